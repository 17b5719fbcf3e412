"""Sums of every rule of a space over questions, which add up over parts: memory is rules times a few numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from suffice.evaluation.search.data import Questions, Side
from suffice.evaluation.search.explore import Explorer, Hashes, Section
from suffice.evaluation.search.space import Space
from suffice.evaluation.statistics import Keys
from suffice.policy.rounds import Floats, Positions

__all__ = ["FOLDED", "RuleSums", "slices"]

FOLDED = ("quality", "calls")
"""Outcomes that are summed fold by fold: what a rule is selected by."""

_MORE = ("tokens", "quality_squares", "calls_squares")
"""Further sums; squares are those of the differences to the baseline."""

_SLICE = 512
"""Questions whose rules are evaluated at once: a few hundred rules of them fit into the processor's cache."""

_PAIRS = 2**19
"""Rules times questions that are evaluated at once where there are few rules."""

_COMBINATIONS = 1024
"""Most combinations of stops of neighbouring questions that are one look-up."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RuleSums:
    """What all rules of a space give and cost over some questions; parts are added.

    Attributes:
        hashes: A hash of where each rule stops, shape ``(n_rules,)``: a sum of random numbers modulo 2**64.
        folds: By name in `FOLDED`: sums over the questions of each fold, shape ``(n_folds, n_rules)``.
        more: By name: further sums, shape ``(n_rules,)``; empty where only the choice of a rule matters.
        sizes: Questions in each fold, shape ``(n_folds,)``.
        baseline: By name in `FOLDED`: the sum of the baseline over all questions.
    """

    hashes: Hashes
    folds: dict[str, Floats]
    more: dict[str, Floats]
    sizes: npt.NDArray[np.int64]
    baseline: dict[str, float]

    @classmethod
    def zero(cls, n_rules: int, n_folds: int = 1, *, more: bool = False) -> Self:
        """Return the sums over no questions.

        Args:
            n_rules: Rules of the space.
            n_folds: Folds.
            more: Whether figures are wanted beside those that rules are selected by.
        """
        return cls(
            hashes=np.zeros(n_rules, dtype=np.uint64),
            folds={name: np.zeros((n_folds, n_rules)) for name in FOLDED},
            more={name: np.zeros(n_rules) for name in _MORE if more},
            sizes=np.zeros(n_folds, dtype=np.int64),
            baseline=dict.fromkeys(FOLDED, 0.0),
        )

    @property
    def n(self) -> int:
        """Questions."""
        return int(self.sizes.sum())

    @property
    def baseline_point(self) -> tuple[float, float]:
        """Mean quality and calls of the baseline."""
        return self.baseline["quality"] / self.n, self.baseline["calls"] / self.n

    def means(self, numbers: Positions) -> dict[str, Floats]:
        """Return mean outcomes of some rules, each of shape ``(n_rules,)``."""
        sums = {name: fold.sum(axis=0)[numbers] for name, fold in self.folds.items()}
        sums |= {name: values[numbers] for name, values in self.more.items() if not name.endswith("_squares")}
        return {name: values / self.n for name, values in sums.items()}

    def add(self, other: RuleSums) -> None:
        """Add the sums over other questions."""
        np.add(self.hashes, other.hashes, out=self.hashes)
        for name in FOLDED:
            self.folds[name] += other.folds[name]
            self.baseline[name] += other.baseline[name]
        for name in self.more:
            self.more[name] += other.more[name]
        np.add(self.sizes, other.sizes, out=self.sizes)

    def add_questions(self, space: Space, questions: Questions, keys: Keys, fold: Positions | None = None) -> None:
        """Add the sums over questions.

        Args:
            space: With its thresholds.
            questions: The questions.
            keys: Of the questions.
            fold: The fold of each, shape ``(n_questions,)``; None = all are in the first.
        """
        of = np.zeros(len(questions), dtype=np.int64) if fold is None else fold
        np.add(self.sizes, np.bincount(of, minlength=len(self.sizes)), out=self.sizes)
        side = next(iter(questions.sides.values()))  # every side has the same questions; each baseline is its own
        for name in FOLDED:
            self.baseline[name] += float(side.baseline[name].sum())
        for number in np.unique(of).tolist():
            for rows in slices(np.flatnonzero(of == number), max(_SLICE, _PAIRS // max(1, space.count))):
                self._add_slice(space, questions.rows(rows), keys[rows], number)

    def _add_slice(self, space: Space, questions: Questions, keys: Keys, fold: int) -> None:
        explorer = Explorer(space, questions, keys)
        targets = {**{name: sums[fold] for name, sums in self.folds.items()}, **self.more}
        tables = {
            (prompt, gated): _StopTables.of(side.of(gated=gated), [*targets], explorer.hashes[prompt, gated])
            for prompt, side in questions.sides.items()
            for gated in ((False, True) if side.gated is not None else (False,))
        }
        for section in explorer.sections:
            table = tables[section.prompt, section.family.is_gated]
            for whole, place in _rule_places(section, explorer.step):
                at = table.at(place)
                self.hashes[whole] += table.hashes.take(at).sum(axis=1)
                for target, values in zip(targets.values(), table.values, strict=True):
                    target[whole] += values.take(at).sum(axis=1)


def slices(rows: Positions, size: int) -> Iterator[Positions]:
    """Yield rows in pieces of a size."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _rule_places(section: Section, step: int) -> Iterator[tuple[slice, Positions]]:
    """Yield the rules of a section in parts: their numbers in the space, and their places ``(n_rules, n_questions)``."""
    for start in range(0, section.family.count, step):
        numbers = np.arange(start, min(start + step, section.family.count))
        codes = section.family.decode(numbers)
        bits, places = section.bits(codes), section.places(codes)
        for variant in range(len(section.variants)):
            first = section.number(variant) + start
            place = places(section.stops(bits, variant, np.uint8))
            yield slice(first, first + len(numbers)), place.astype(np.uint8, copy=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StopTables:
    """Outcomes of a side, those of several questions added up for every combination of their places.

    Attributes:
        width: Places of one question.
        groups: Where the first, the second, ... question of each group lie, as slices of the questions.
        values: Flat tables, one for each outcome.
        hashes: The same of random numbers.
    """

    width: int
    groups: Sequence[tuple[slice, int]]
    values: Sequence[Floats]
    hashes: Hashes

    @classmethod
    def of(cls, side: Side, names: Sequence[str], numbers: Hashes) -> Self:
        n, width = numbers.shape
        together = 1
        while width ** (together + 1) <= _COMBINATIONS:
            together += 1
        # The first questions of all groups, then the second ones: columns that lie together are read together.
        count = -(-n // together)
        ends = [min(i * count, n) for i in range(together + 1)]
        groups = [(slice(a, b), b - a) for a, b in pairwise(ends) if b > a]
        return cls(
            width=width,
            groups=groups,
            values=[_combined(_outcome_table(side, name), groups) for name in names],
            hashes=_combined(numbers, groups),
        )

    def at(self, place: Positions) -> Positions:
        """Return where the sums of each group lie in the tables, shape ``(n_rules, n_groups)``."""
        (first, count), *others = self.groups
        index = place[:, first].astype(np.uint16)
        for group, n in others:
            index *= self.width
            index[:, :n] += place[:, group]
        combinations = self.width ** len(self.groups)
        flat: Positions = index + combinations * np.arange(count)
        return flat


def _combined(table: npt.NDArray[Any], groups: Sequence[tuple[slice, int]]) -> npt.NDArray[Any]:
    """Return the sums of the rows of each group for every combination of their columns, flat."""
    (first, count), *others = groups
    sums = table[first]
    for group, n in others:
        more = np.zeros((count, table.shape[1]), dtype=table.dtype)
        more[:n] = table[group]  # the last group may lack a question, which then adds nothing
        sums = (sums[:, :, None] + more[:, None, :]).reshape(count, -1)
    return sums.ravel()


def _outcome_table(side: Side, name: str) -> Floats:
    if not name.endswith("_squares"):
        return side.tables[name]
    of = name.removesuffix("_squares")
    squares: Floats = (side.tables[of] - side.baseline[of][:, None]) ** 2
    return squares
