"""Ids of questions: plain forms, ids that differ in them alone, and ids of calls that hold the number of a round."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.common.tables import counted
from suffice.errors import UnsettledError
from suffice.importers.choices import of_columns
from suffice.importers.names import ROUND_WORDS
from suffice.importers.records import Record
from suffice.policy.metrics import normalize_answer

ALIKE, ANY_CASE = "alike", "any-case"
"""Ends of ``COLUMN:FORM`` in the option that names the ids of questions."""


def plain_id(value: Any, form: str = ALIKE) -> str:
    """Return an id without spaces around it and leading zeros, and in lower case for `ANY_CASE`.

    >>> [plain_id(own) for own in (" q1 ", "q007", 7, 7.0, "1.05")], plain_id("Q1", ANY_CASE)
    (['q1', 'q7', '7', '7', '1.05'], 'q1')
    """
    text = re.sub(r"(?<![\d.])0+(?=\d)", "", plain_text(value).strip())
    return text.lower() if form == ANY_CASE else text


def plain_text(value: Any) -> str:
    """Return an id as text, a whole number as such."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def alike_pairs(ids: Iterable[str], form: str = ALIKE) -> list[tuple[str, str]]:
    """Return pairs of different ids that have the same plain form.

    >>> alike_pairs(["7", "8", "007"])
    [('7', '007')]
    """
    first: dict[str, str] = {}
    pairs = ((first.setdefault(plain_id(own, form), own), own) for own in ids)
    return [(one, other) for one, other in pairs if one != other]


_ENOUGH, _OFTEN = 5, 0.1
"""The fewest ids, and the smallest share of them, whose case shows that it means nothing: random ids differ in case by chance."""


def refuse_alike_ids(rows: Sequence[Record], key: str, question: str, golds: str) -> None:
    """Raise if ids differ in spaces, leading zeros or case alone, unless their questions or gold answers differ.

    Args:
        rows: All rows, with ids.
        key: The column of ids.
        question: The column of questions; "" if there is none.
        golds: The column of gold answers; "" if there is none.
    """
    facts: dict[str, tuple[str, str]] = {}
    for row in rows:
        value = row.values.get(key)
        if value is not None:
            said = normalize_answer(str(row.values.get(question) or "")), str(row.values.get(golds) or "")
            before = facts.get(own := plain_text(value), ("", ""))
            facts[own] = before[0] or said[0], before[1] or said[1]
    if any(" " in own.strip() for own in facts):
        return  # texts, not ids
    for form, least in ((ALIKE, 1), (ANY_CASE, max(_ENOUGH, _OFTEN * len(facts)))):
        pairs = [pair for pair in alike_pairs(facts, form) if not _differ(facts[pair[0]], facts[pair[1]])]
        if len(pairs) >= least:
            what = "spaces or leading zeros" if form == ALIKE else "case, spaces or leading zeros"
            one, other = pairs[0]
            raise UnsettledError(
                f"{counted(len(pairs), 'pair')} of ids in {key!r} differ in {what} alone, such as {one!r:.40} and {other!r:.40}: do they "
                "name one question each?",
                "columns",
                of_columns({"question_id": f"{key}:{form}"}, "they do, and their rows belong together")
                | of_columns({"question_id": key}, "each is a question of its own"),
            )


def _differ(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether the questions of two ids differ, or else their gold answers."""
    known = [pair for pair in zip(one, other, strict=True) if all(pair)]
    return bool(known) and known[0][0] != known[0][1]


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
