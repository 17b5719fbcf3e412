"""Ids of calls that contain a question and a number, as in ``q012-round3`` or ``task-5_1``.

The number is a round, or possibly a sample.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from suffice.importers.words.likeness import are_of_one_question
from suffice.importers.words.names import ROUND_WORDS

_OTHERS = {
    "r": "round",
    **dict.fromkeys(("rep", "repeat", "run", "seed", "rollout", "completion", "candidate", "generation"), "sample"),
}
"""Further words, by what they count: runs of single calls are samples."""

_GAP = r"[-_/.:@#| ]"
_NUMBERED = re.compile(
    rf"(?P<question>.*[^\W_]){_GAP}+(?P<word>{'|'.join((*ROUND_WORDS, *_OTHERS))}){_GAP}?(?P<number>\d+)", re.IGNORECASE
)


_BARE = re.compile(rf"(?P<question>.*[^\W_]){_GAP}+(?P<word>[a-z]?)(?P<number>\d+)", re.IGNORECASE)
"""Ids that end in a number without a word: what it counts is not said."""

_ENOUGH, _NEARLY_ALL, _MOST = 3, 0.9, 64
"""The fewest questions, the least share of them that have all numbers, and the most numbers of each, if no word says what these are."""


@dataclass(frozen=True, slots=True)
class NumberedIds:
    """Ids that contain a question and a round number.

    Attributes:
        word: The word for a round in the ids; `sample` if the word in the ids means independent calls, or if the ids have no word.
        example: One of the ids.
        is_bare: True if the ids have no word for a round.
    """

    word: str
    example: str
    is_bare: bool = False

    def parts(self, text: object) -> tuple[str, int]:
        """Split an id into its question and number."""
        match = (_BARE if self.is_bare else _NUMBERED).fullmatch(str(text))
        if match is None:
            raise ValueError(f"{text!r} has no number of a round")
        return match["question"], int(match["number"])

    def note(self, name: str, option: str) -> str:
        """Return a note on how the ids in a column are read, with the option that reads whole ids instead."""
        question, number = self.parts(self.example)
        return (
            f"{name!r} has the question and the number of the {self.word}: {self.example!r} is {question!r}, {self.word} {number}; "
            f"if each is a question of its own, {option}"
        )


def number_at_end(text: str) -> tuple[str, int] | None:
    """Split an id into the part before the number at its end, and the number; None if it has none.

    >>> number_at_end("meter-0041-s3"), number_at_end("meter-0041_3"), number_at_end("meter")
    (('meter-0041', 3), ('meter-0041', 3), None)
    """
    match = _BARE.fullmatch(text)
    return None if match is None else (match["question"], int(match["number"]))


def numbered_ids(ids: Sequence[object], texts: Sequence[object] = ()) -> NumberedIds | None:
    """Return the form of ids that contain a question and a number; None if ids have no such form.

    All ids must be different and have the same word before the number, and some question must have several ids.  If ids have no
    word, nearly all questions must have the same numbers, and texts of one question must share more words than others.

    Args:
        ids: The ids.
        texts: The text of each call; without texts, only ids with a word are recognised.

    >>> numbered_ids(["q1-round1", "q1-round2", "q2-round1"])
    NumberedIds(word='round', example='q1-round1', is_bare=False)
    >>> numbered_ids(["q1_seed_7", "q1_seed_8"]).word, numbered_ids(["q1-2", "q1-3"]), numbered_ids(["a-round1", "b-round1"])
    ('sample', None, None)
    """
    return _by_word(ids) or (_without_word(ids, texts) if texts else None)


def _by_word(ids: Sequence[object]) -> NumberedIds | None:
    matches = [_NUMBERED.fullmatch(str(text)) for text in ids]
    found = [match for match in matches if match is not None]
    words = {match["word"].lower() for match in found}
    pairs = {(match["question"], int(match["number"])) for match in found}
    if (
        not ids
        or len(words) != 1
        or len(found) < len(ids)
        or len(pairs) < len(ids)
        or len({q for q, _ in pairs}) == len(pairs)
    ):
        return None
    word = words.pop()
    return NumberedIds(_OTHERS.get(word, word), str(ids[0]))


def _without_word(ids: Sequence[object], texts: Sequence[object]) -> NumberedIds | None:
    matches = [_BARE.fullmatch(str(text)) for text in ids]
    found = [match for match in matches if match is not None]
    if len(found) < len(ids) or len({match["word"].lower() for match in found}) != 1:
        return None
    numbers: dict[str, list[int]] = {}
    for match in found:
        numbers.setdefault(match["question"], []).append(int(match["number"]))
    (usual, n), *_ = Counter(tuple(sorted(own)) for own in numbers.values()).most_common(1)
    is_whole = n >= max(_ENOUGH, _NEARLY_ALL * len(numbers)) and {*chain(*numbers.values())} == {*usual}
    counts = usual in (tuple(range(len(usual))), tuple(range(1, len(usual) + 1))) and 1 < len(usual) <= _MOST
    if not (is_whole and counts and are_of_one_question(texts, [match["question"] for match in found])):
        return None
    return NumberedIds("sample", str(ids[0]), is_bare=True)
