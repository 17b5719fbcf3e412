"""Sums of outcomes over questions for every rule of a space; sums of parts can be added."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from suffice.evaluation.search.data import Questions, Side
from suffice.evaluation.search.explore import Explorer, Hashes, Places, Section, outcome_at
from suffice.evaluation.search.space import Space
from suffice.evaluation.statistics import ROUNDING, DrawnSums, Keys, PairedResult, Resampling
from suffice.policy.rounds import Floats, Positions

FOLDED = ("quality", "calls")
"""Outcomes that are summed by fold, because they are used to select rules."""

_SQUARES = ("quality_squares", "calls_squares")
"""Sums of the squares of each unit's difference to the baseline, from which errors follow."""

_SLICE = 512
"""Number of questions evaluated at once: for a few hundred rules they fit into the processor's cache."""

_PAIRS = 2**19
"""Number of rules times questions that are evaluated at once if there are few rules."""

_COMBINATIONS = 1024
"""Most combinations of stops of neighbouring questions in one look-up table."""


@dataclass(slots=True, kw_only=True, eq=False)
class UnitCounts:
    """Counts of units and rows; the counts of several parts can be added.

    Attributes:
        units: Number of units: questions, or clusters of rows that repeat a question.
        squares: The sum of the squares of each unit's number of rows.
    """

    units: int = 0
    rows: int = 0
    squares: int = 0

    def add(self, sizes: npt.NDArray[np.int64]) -> None:
        """Add units, given their numbers of rows."""
        self.add_counts(UnitCounts(units=len(sizes), rows=int(sizes.sum()), squares=int((sizes**2).sum())))

    def add_counts(self, other: UnitCounts) -> None:
        """Add the counts of other units."""
        self.units += other.units
        self.rows += other.rows
        self.squares += other.squares

    def errors(self, sums: Floats, squares: Floats, products: Floats) -> Floats:
        """Return the standard errors of means over rows, as ratios of sums; 0 without variance, NaN for a single unit.

        Cochran (1977), section 6.3; `suffice.evaluation.statistics.units.standard_errors` computes the same from all
        rows at once.

        Args:
            sums: Sums over all rows.
            squares: Sums over units of the squared sum of each unit.
            products: Sums over units of (the unit's sum * its number of rows).
        """
        if self.units < 2:  # noqa: PLR2004
            return np.full(len(sums), np.nan)
        mean = sums / self.rows
        spread = squares - 2 * mean * products + mean**2 * self.squares
        spread[spread <= ROUNDING * squares] = 0.0  # equal numbers may differ by rounding
        errors: Floats = np.sqrt(self.units / (self.units - 1) * spread) / self.rows
        return errors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitSums:
    """Sums of several paired differences over units, in total and in every draw; the sums of two parts can be added.

    Attributes:
        drawn: Sums over each unit's rows, in total and in every draw.
        products: Sums over units of (the unit's sum * its number of rows), shape ``(n_differences,)``.
    """

    drawn: DrawnSums
    products: Floats
    counts: UnitCounts

    @classmethod
    def of(cls, deltas: Floats, units: Keys, weights: Callable[[Keys], Floats]) -> Self:
        """Compute the sums of differences, which have shape ``(n_differences, n_rows)`` and no NaN.

        Args:
            deltas: The differences.
            units: The key of each row's unit.
            weights: Function from keys to the number of times that each unit is drawn, shape ``(n_resamples,
                n_units)``.
        """
        keys, place, sizes = np.unique(units, return_inverse=True, return_counts=True)
        order = np.argsort(place.reshape(-1), kind="stable")
        sums = np.add.reduceat(deltas[:, order], np.cumsum(sizes) - sizes, axis=1)
        times, counts = weights(keys), UnitCounts()
        counts.add(sizes)
        drawn = replace(DrawnSums.of(sums, times), sizes=times @ sizes)
        return cls(drawn=drawn, products=sums @ sizes, counts=counts)

    def __add__(self, other: UnitSums) -> UnitSums:
        counts = replace(self.counts)
        counts.add_counts(other.counts)
        return UnitSums(drawn=self.drawn + other.drawn, products=self.products + other.products, counts=counts)

    @property
    def means(self) -> Floats:
        """The mean of each difference over rows."""
        return self.drawn.sums / self.counts.rows

    @property
    def errors(self) -> Floats:
        """The standard error of each mean."""
        return self.counts.errors(self.drawn.sums, self.drawn.squares, self.products)

    def paired(self, resampling: Resampling) -> list[PairedResult]:
        """Return the mean of each difference with its bootstrap interval; see `DrawnSums.paired`."""
        return [
            replace(result, delta=mean, n=self.counts.rows, n_clusters=self.counts.units)
            for result, mean in zip(self.drawn.paired(resampling), self.means.tolist(), strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RuleSums:
    """Sums of metric and costs for all rules of a space over some questions; the sums of several parts can be added.

    Attributes:
        hashes: A hash of each rule's stops, shape ``(n_rules,)``.  Each stop of a question has a random number, and the
            hash is the sum of these numbers modulo 2**64.
        folds: Sums over the questions of each fold, by name in `FOLDED`, shape ``(n_folds, n_rules)``.
        more: Further sums by name, shape ``(n_rules,)``; empty if the sums only serve to choose a rule.
        repeats: By name in `FOLDED`, sums over units of (the unit's summed difference * (its number of rows - 1));
            empty if no unit has several rows.
        sizes: Number of questions in each fold, shape ``(n_folds,)``.
        baseline: The sums of the baseline over all questions, by prompt and name in `FOLDED`.
    """

    hashes: Hashes
    folds: dict[str, Floats]
    more: dict[str, Floats]
    repeats: dict[str, Floats]
    sizes: npt.NDArray[np.int64]
    counts: UnitCounts
    baseline: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def zero(cls, n_rules: int, n_folds: int = 1, *, tokens: bool = False, errors: bool = False) -> Self:
        """Return sums over no questions, all zero.

        Args:
            n_rules: Number of rules.
            n_folds: Number of folds.
            tokens: Whether to sum tokens, too.
            errors: Whether to keep the sums that standard errors of differences need.
        """
        more = [*(["tokens"] if tokens else []), *(_SQUARES if errors else [])]
        return cls(
            hashes=np.zeros(n_rules, dtype=np.uint64),
            folds={name: np.zeros((n_folds, n_rules)) for name in FOLDED},
            more={name: np.zeros(n_rules) for name in more},
            repeats={},
            sizes=np.zeros(n_folds, dtype=np.int64),
            counts=UnitCounts(),
        )

    @property
    def n(self) -> int:
        """The number of questions."""
        return self.counts.rows

    @property
    def baselines(self) -> dict[str, tuple[float, float]]:
        """Mean quality and calls of the baseline, by prompt."""
        return {prompt: (sums["quality"] / self.n, sums["calls"] / self.n) for prompt, sums in self.baseline.items()}

    def means(self, numbers: Positions) -> dict[str, Floats]:
        """Return mean outcomes of some rules, each of shape ``(n_rules,)``."""
        sums = {name: fold.sum(axis=0)[numbers] for name, fold in self.folds.items()}
        sums |= {name: values[numbers] for name, values in self.more.items() if not name.endswith("_squares")}
        return {name: values / self.n for name, values in sums.items()}

    def differences(self, explorer: Explorer, name: str, numbers: Positions) -> tuple[Floats, Floats]:
        """Return the mean difference to the baseline, and its standard error, for each rule in `numbers`, which must be sorted.

        Each rule is compared with the baseline of its own prompt.
        """
        total = self.folds[name].sum(axis=0)[numbers]
        for part, section, _, _ in explorer.where(numbers):
            total[part] -= self.baseline[section.prompt][name]
        products = total + self.repeats[name][numbers] if self.repeats else total
        return total / self.n, self.counts.errors(total, self.more[f"{name}_squares"][numbers], products)

    def add(self, other: RuleSums) -> None:
        """Add the sums over other questions."""
        np.add(self.hashes, other.hashes, out=self.hashes)
        for mine, theirs in ((self.folds, other.folds), (self.more, other.more), (self.repeats, other.repeats)):
            for name, values in theirs.items():
                mine[name] = np.add(mine[name], values, out=mine[name]) if name in mine else values
        np.add(self.sizes, other.sizes, out=self.sizes)
        self.counts.add_counts(other.counts)
        for prompt, sums in other.baseline.items():
            self._add_baseline(prompt, sums)

    def _add_baseline(self, prompt: str, sums: dict[str, float]) -> None:
        mine = self.baseline.setdefault(prompt, dict.fromkeys(FOLDED, 0.0))
        for name in FOLDED:
            mine[name] += sums[name]

    def add_questions(self, space: Space, questions: Questions, fold: Positions | None = None) -> None:
        """Add sums over questions; each unit must be added as a whole.

        Args:
            space: The space, with its thresholds.
            questions: The questions.
            fold: The fold of each question, the same within a unit, shape ``(n_questions,)``; None = all are in the
                first fold.
        """
        if not len(questions):
            return
        of = np.zeros(len(questions), dtype=np.int64) if fold is None else fold
        np.add(self.sizes, np.bincount(of, minlength=len(self.sizes)), out=self.sizes)
        for prompt, side in questions.sides.items():
            self._add_baseline(prompt, {name: float(side.baseline[name].sum()) for name in FOLDED})
        _, place, sizes = np.unique(questions.units, return_inverse=True, return_counts=True)
        self.counts.add(sizes)
        size = sizes[place.reshape(-1)]
        at_once = max(_SLICE, _PAIRS // max(1, space.count))
        for number in np.unique(of).tolist():
            # Look-up tables of stops cannot include trial answers, so questions with trials are added unit by unit.
            thinks = any(side.trials is not None for side in questions.sides.values())
            alone = (size == 1) & (not thinks)
            for rows in slices(np.flatnonzero((of == number) & alone), at_once):
                self._add_slice(space, questions.rows(rows), number)
            several = np.flatnonzero((of == number) & ~alone)
            several = several[np.argsort(place.reshape(-1)[several], kind="stable")]
            for rows in whole_units(several, questions.units, at_once):
                self._add_units(space, questions.rows(rows), number)

    def _add_units(self, space: Space, questions: Questions, fold: int) -> None:
        """Add units that may have several rows; the rows of a unit must be adjacent, since its sum is squared."""
        explorer = Explorer(space, questions)
        begin = np.flatnonzero(np.concatenate([[True], questions.units[1:] != questions.units[:-1]]))
        sizes = np.diff(begin, append=len(questions))
        errors = _SQUARES[0] in self.more
        if errors and not self.repeats:
            self.repeats.update({name: np.zeros(len(self.hashes)) for name in FOLDED})
        for section in explorer.sections:
            for whole, places in _rule_places(section, explorer.step):
                hashes = explorer.hash_of(section.prompt, places, gated=section.family.is_gated)
                self.hashes[whole] += hashes.sum(axis=1)
                for name in (*FOLDED, *(self.more.keys() & {"tokens"})):
                    values = outcome_at(section.side, places, name)
                    target = self.folds[name][fold] if name in FOLDED else self.more[name]
                    target[whole] += values.sum(axis=1)
                    if errors and name in FOLDED:
                        sums = np.add.reduceat(values - section.side.baseline[name], begin, axis=1)
                        self.more[f"{name}_squares"][whole] += np.einsum("ru,ru->r", sums, sums)
                        self.repeats[name][whole] += sums @ (sizes - 1.0)

    def _add_slice(self, space: Space, questions: Questions, fold: int) -> None:
        explorer = Explorer(space, questions)
        targets = {**{name: sums[fold] for name, sums in self.folds.items()}, **self.more}
        tables = {
            (prompt, gated): _StopTables.of(side.of(gated=gated), [*targets], explorer.hashes[prompt, gated])
            for prompt, side in questions.sides.items()
            for gated in ((False, True) if side.gated is not None else (False,))
        }
        for section in explorer.sections:
            table = tables[section.prompt, section.family.is_gated]
            for whole, places in _rule_places(section, explorer.step):
                at = table.at(places.column.astype(np.uint8, copy=False))
                self.hashes[whole] += table.hashes.take(at).sum(axis=1)
                for target, values in zip(targets.values(), table.values, strict=True):
                    target[whole] += values.take(at).sum(axis=1)


def slices(rows: Positions, size: int) -> Iterator[Positions]:
    """Yield rows in pieces of `size` rows."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def whole_units(rows: Positions, units: Keys, size: int) -> Iterator[Positions]:
    """Yield rows sorted by unit, in pieces of whole units of about `size` rows."""
    ends = np.flatnonzero(np.diff(units[rows])) + 1
    begin = 0
    for end in [*ends.tolist(), len(rows)]:
        if end - begin >= size or (end == len(rows) and end > begin):
            yield rows[begin:end]
            begin = end


def _rule_places(section: Section, step: int) -> Iterator[tuple[slice, Places]]:
    """Yield the rules of a section in parts: their numbers in the space, and the places of their outcomes."""
    for start in range(0, section.family.count, step):
        numbers = np.arange(start, min(start + step, section.family.count))
        codes = section.family.decode(numbers)
        bits, places = section.bits(codes), section.places(codes)
        for variant in range(len(section.variants)):
            first = section.number(variant) + start
            yield slice(first, first + len(numbers)), places(section.stops(bits, variant, np.uint8))


@dataclass(frozen=True, slots=True, kw_only=True)
class _StopTables:
    """Look-up tables to sum outcomes over questions quickly.

    A few questions form a group.  For each combination of their stops, a table holds the sum of their outcomes, so that
    one look-up serves the whole group.

    Attributes:
        width: Number of possible stops of one question.
        groups: Slices of the questions with their sizes.  The first slice has the first question of every group, the
            second slice the second question, and so on.
        values: Flat tables, one for each outcome.
        hashes: Flat table of the random numbers, whose sum identifies the stops.
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
        # First the first questions of all groups, then the second ones, so that adjacent columns are read together.
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
        """Return the index of each group's sums in the flat tables, shape ``(n_rules, n_groups)``."""
        (first, count), *others = self.groups
        index = place[:, first].astype(np.uint16)
        for group, n in others:
            index *= self.width
            index[:, :n] += place[:, group]
        combinations = self.width ** len(self.groups)
        flat: Positions = index + combinations * np.arange(count)
        return flat


def _combined(table: npt.NDArray[Any], groups: Sequence[tuple[slice, int]]) -> npt.NDArray[Any]:
    """Return a flat array with a sum of values for each group and each combination of the columns of its rows."""
    (first, count), *others = groups
    sums = table[first]
    for group, n in others:
        more = np.zeros((count, table.shape[1]), dtype=table.dtype)
        more[:n] = table[group]  # the last group may have fewer questions; a missing one adds nothing
        sums = (sums[:, :, None] + more[:, None, :]).reshape(count, -1)
    return sums.ravel()


def _outcome_table(side: Side, name: str) -> Floats:
    if not name.endswith("_squares"):
        return side.tables[name]
    of = name.removesuffix("_squares")
    squares: Floats = (side.tables[of] - side.baseline[of][:, None]) ** 2
    return squares
