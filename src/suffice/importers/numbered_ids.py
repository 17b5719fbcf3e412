"""Ids of calls that hold a question and the number of a round, such as ``q012-round3`` or ``task-5/attempt-1``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from suffice.importers.names import ROUND_WORDS

_OTHERS = {
    "r": "round",
    **dict.fromkeys(("rep", "repeat", "run", "seed", "rollout", "completion", "candidate", "generation"), "sample"),
}
"""Further words, by what they count: runs of single calls are samples."""

_GAP = r"[-_/.:@#| ]"
_NUMBERED = re.compile(
    rf"(?P<question>.*[^\W_]){_GAP}+(?P<word>{'|'.join((*ROUND_WORDS, *_OTHERS))}){_GAP}?(?P<number>\d+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class NumberedIds:
    """Ids that hold a question and the number of a round.

    Attributes:
        word: The word for a round in them, `sample` if it is one for independent calls.
    """

    word: str
    example: str

    def parts(self, text: object) -> tuple[str, int]:
        """Return the question and the number of an id."""
        match = _NUMBERED.fullmatch(str(text))
        if match is None:
            raise ValueError(f"{text!r} has no number of a round")
        return match["question"], int(match["number"])

    def note(self, name: str, option: str) -> str:
        """Return a note on the reading of the ids in a column, with the option that reads whole ids."""
        question, number = self.parts(self.example)
        return (
            f"{name!r} has the question and the number of the {self.word}: {self.example!r} is {question!r}, {self.word} {number}; "
            f"if each is a question of its own, {option}"
        )


def numbered_ids(ids: Sequence[object]) -> NumberedIds | None:
    """Return how ids hold questions and numbers, if all do by the same word, no two are the same, and a question has several.

    >>> numbered_ids(["q1-round1", "q1-round2", "q2-round1"])
    NumberedIds(word='round', example='q1-round1')
    >>> numbered_ids(["q1_seed_7", "q1_seed_8"]).word, numbered_ids(["q1-2", "q1-3"]), numbered_ids(["a-round1", "b-round1"])
    ('sample', None, None)
    """
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
