"""Counts of the columns that an import keeps unchanged.

Such a column may mark the returned round, or distinguish groups of questions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.policy.rounds import Floats, Mask, Positions
from suffice.recordings.runs import value_text

MANY_VALUES = 200
"""A column with so many different values is an id, a time or a text."""

_MOST_QUESTIONS = 5_000
"""Scores of so many questions are compared between groups."""

_FALSE = frozenset({"0", "false", "no", "n", "f", "off"})
_NEARLY_ALL, _TWO = 0.98, 2


@dataclass(frozen=True, kw_only=True)
class Part:
    """The rows of some whole trajectories, with precomputed values for counting.

    Attributes:
        starts: The first row of each trajectory.
        answers: The answer of each row; None if it has none.
        keys: The key by which each answer is compared; None if there is no answer.
        metrics: The metrics of each row, by name.
    """

    table: pa.Table
    starts: Positions
    answers: Sequence[str | None]
    keys: Sequence[Any]
    metrics: Mapping[str, Floats] = field(default_factory=dict)

    @cached_property
    def ends(self) -> Positions:
        """The position after each trajectory's last row."""
        return np.append(self.starts[1:], len(self.answers))

    @property
    def lengths(self) -> Positions:
        """The number of rows of each trajectory."""
        return self.ends - self.starts

    @property
    def trajectories(self) -> list[slice]:
        """The rows of each trajectory."""
        return [*map(slice, self.starts.tolist(), self.ends.tolist())]

    @cached_property
    def has_answer(self) -> Mask:
        """A mask of the rows with an answer."""
        return np.array([text is not None for text in self.answers], dtype=np.bool_)

    @cached_property
    def places(self) -> dict[Any, int]:
        """A number for each distinct key, from 1; 0 stands for no answer."""
        return {key: place for place, key in enumerate(dict.fromkeys([None, *self.keys]))}

    @cached_property
    def codes(self) -> Positions:
        """The number of each row's key."""
        return np.array([self.places[key] for key in self.keys], dtype=np.int64)

    def are_same(self, codes: Positions) -> Mask:
        """Return a mask of the trajectories in which a column does not vary."""
        same: Mask = np.minimum.reduceat(codes, self.starts) == np.maximum.reduceat(codes, self.starts)
        return same


@dataclass(slots=True)
class Marks:
    """Counts of the trajectories in which a value marks exactly one round.

    Attributes:
        once: Number of these trajectories.
        last: Of these, those in which the marked round is the last one.
        other: Of these, those in which the answer of the marked round differs from the last answer.
        copied: Of these, those in which the marked round is the last one, and an earlier round has the same answer.
        places: How often the marked round has each position, counted from the start and from the end.
    """

    once: int = 0
    last: int = 0
    other: int = 0
    copied: int = 0
    places: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def moves(self) -> bool:
        """True if the marked rounds differ in position.

        False if no round is marked, or if nearly all marked rounds have the same position, counted from the start or from the end.
        """
        return self.once > 0 and max(self.places.values()) < _NEARLY_ALL * self.once


@dataclass(slots=True)
class OwnColumn:
    """Counts of one column.

    Attributes:
        values: Its different values, at most `MANY_VALUES`.
        varying: Trajectories in which it varies.
        groups: Trajectories in which it does not vary, by value; empty if there are too many values.
        marks: For each value that does not mean false: counts of the rounds that it marks; only for columns of one or two values.
        known: Trajectories in which it has a value.
        low: Its lowest number; NaN if some values are not numbers.
        high: Its highest number.
        first: Its different values in first rounds; empty if there are many values.
    """

    values: set[str] = field(default_factory=set)
    varying: int = 0
    groups: Counter[str] = field(default_factory=Counter)
    marks: dict[str, Marks] = field(default_factory=dict)
    known: int = 0
    low: float = math.inf
    high: float = -math.inf
    first: set[str] = field(default_factory=set)

    def add_numbers(self, texts: Iterable[str]) -> None:
        """Widen the range of the column by the numbers in texts.

        If some text is not a number, the lowest number becomes NaN.
        """
        try:
            numbers = [*map(float, texts)]
        except ValueError:
            numbers = [math.nan]
        for number in numbers:
            self.low = math.nan if math.isnan(number + self.low) else min(self.low, number)
            self.high = max(self.high, number)


@dataclass(slots=True)
class OwnColumns:
    """Counts of all columns that are kept unchanged.

    Attributes:
        columns: The columns by name.
        changes: For the first questions, the last score minus the score of each round; empty if a score is unknown.
        members: The value of each column in these questions; None where it varies or is missing.
    """

    columns: dict[str, OwnColumn] = field(default_factory=dict)
    changes: list[tuple[float, ...]] = field(default_factory=list)
    members: dict[str, list[str | None]] = field(default_factory=dict)

    def add(self, part: Part, names: Iterable[str], scores: Floats | None) -> None:
        """Update the counts of the columns `names` with a part of the run.

        If `scores` is None, an answer scores 1 if it equals the last answer, else 0.
        """
        before = len(self.changes)
        room = max(0, _MOST_QUESTIONS - before)
        for rows in part.trajectories[:room]:
            own = (part.codes[rows] == part.codes[rows.stop - 1]).astype(float) if scores is None else scores[rows]
            self.changes.append(() if np.isnan(own).any() else tuple((own[-1] - own).tolist()))
        for name in names:
            encoded = part.table.column(name).combine_chunks().dictionary_encode()
            texts = [*map(_text, encoded.dictionary.to_pylist())]
            codes = encoded.indices.fill_null(-1).to_numpy()
            codes = np.array([*(-1 if text is None else place for place, text in enumerate(texts)), -1])[codes]
            self._count(name, codes, texts, part)
            constant = np.where(part.are_same(codes), codes[part.starts], -1)[:room]
            members = self.members.setdefault(name, [])
            members += [None] * (before - len(members))
            members += [None if code < 0 else texts[code] for code in constant.tolist()]

    def _count(self, name: str, codes: Positions, texts: Sequence[str | None], part: Part) -> None:
        own = self.columns.setdefault(name, OwnColumn())
        if len(own.values) < MANY_VALUES:
            own.values.update(filter(None, texts))
        own.add_numbers(filter(None, texts))
        own.known += int((np.maximum.reduceat(codes, part.starts) >= 0).sum())
        same = part.are_same(codes)
        own.varying += int((~same).sum())
        if len(own.values) < MANY_VALUES:
            own.first.update(str(texts[code]) for code in {*codes[part.starts].tolist()} - {-1})
            constant = codes[part.starts[same]]
            own.groups.update({str(texts[code]): int((constant == code).sum()) for code in {*constant.tolist()} - {-1}})
        if len(own.values) <= _TWO:
            for code in {*codes.tolist()} - {-1}:
                if not is_false(value := str(texts[code])):
                    _mark(own.marks.setdefault(value, Marks()), codes == code, part)


def _text(value: Any) -> str | None:
    """Return a value as text, with all digits of a number; None if it is missing."""
    return value_text(f"{value:.17g}" if isinstance(value, float) and not math.isnan(value) else value)


def is_false(text: str) -> bool:
    """Return whether a flag's text means no."""
    return text.lower() in _FALSE


def _mark(marks: Marks, is_marked: Mask, part: Part) -> None:
    """Count the trajectories of several rounds in which exactly one round is marked."""
    once = (np.add.reduceat(is_marked.astype(int), part.starts) == 1) & (part.lengths > 1)
    rows = np.flatnonzero(is_marked & np.repeat(once, part.lengths))
    first, last = part.starts[once], part.ends[once] - 1
    marks.once += len(rows)
    marks.last += int((rows == last).sum())
    marks.other += int((part.codes[rows] != part.codes[last]).sum())
    marks.copied += sum(
        row == end and part.codes[row] in part.codes[start:end]
        for row, start, end in zip(rows.tolist(), first.tolist(), last.tolist(), strict=True)
    )
    marks.places.update(("start", place) for place in (rows - first).tolist())
    marks.places.update(("end", place) for place in (last - rows).tolist())
