"""Figures from sums over parts: differences with intervals, and the share of luck in the best rule's lead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, TypeVar

import numpy as np

from suffice.common.processes import over_parts
from suffice.common.tables import figure
from suffice.evaluation.replay.blocks import PieceFacts
from suffice.evaluation.search.choosing import Goal
from suffice.evaluation.search.explore import SearchProgress
from suffice.evaluation.search.optimism import Optimism, RuleEstimate, Trials, best_within
from suffice.evaluation.search.passes import Comparisons, ComparisonSums, comparisons_in, family_in, with_facts
from suffice.evaluation.search.reading import PlacedPiece, SearchReading
from suffice.evaluation.search.result import Chosen, Named
from suffice.evaluation.search.sums import FOLDED, RuleSums
from suffice.evaluation.statistics import ROUNDING, PairedResult, Resampling, p_of_largest
from suffice.policy.rounds import Floats, Positions
from suffice.policy.rules import tasr
from suffice.policy.session import Policy
from suffice.recordings.pieces import Piece

_OfPiece = TypeVar("_OfPiece")


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Runs functions on every piece of the recordings, in several processes.

    Attributes:
        pool: The processes, if they are reused by several passes.
        progress: Called in each pass with the number of finished pieces and their total.
    """

    reading: SearchReading
    jobs: int
    pool: Executor | None
    progress: SearchProgress | None

    def each(
        self,
        function: Callable[..., _OfPiece],
        *arguments: Any,
        columns: Sequence[str] | None = None,
        tune: bool | None = None,
    ) -> Iterator[tuple[PlacedPiece, _OfPiece]]:
        """Yield each piece with the result of a function of `suffice.evaluation.search.passes`, in order.

        Args:
            function: Called with `reading`, the arguments and the piece.
            arguments: Further arguments of the function.
            columns: The columns that the function reads; None = those of a search.
            tune: True for tune questions, False for searched ones, None for all.

        Raises:
            SchemaError: A file is damaged, which is reported after the last piece.
        """
        reading = self.reading
        pieces = reading.pieces(reading.columns if columns is None else columns, tune=tune)
        # Pieces in the memory of this process are not sent to others; they come last.
        near = [place for place in pieces if reading.is_in_memory(place)]
        far = [place for place in pieces if not reading.is_in_memory(place)]
        facts: list[list[tuple[Piece, PieceFacts]]] = [[] for _ in reading.recordings]
        for done, places, how in ((0, far, reading.sent), (len(far), near, reading)):
            results = over_parts(
                partial(with_facts, function, how, arguments),
                places,
                jobs=1 if how is reading else self.jobs,
                on_progress=self._counted(done, len(pieces)),
                pool=self.pool,
            )
            for place, (result, read) in zip(places, results, strict=True):
                if not place.is_together:
                    facts[place.recording] += [(place.piece, one) for one in read[:1]]
                yield place, result
        for recording, of_pieces in zip(reading.recordings, facts, strict=True):
            if of_pieces:
                recording.check(of_pieces)

    def _counted(self, before: int, total: int) -> SearchProgress | None:
        progress = self.progress
        return None if progress is None else lambda done, _: progress(before + done, total)

    def of(self, **changes: Any) -> Passes:
        """Return passes with changed fields of `reading`; cached questions are dropped."""
        return replace(self, reading=replace(self.reading, **{"kept": {}, **changes}))


_MOST_SUMS_DRAWN = 2**24
"""Largest number of rules * draws for which the lead is tested against all rules; it bounds the memory (128 MiB)."""

_MOST_PAIRS_TESTED = 2**29
"""Largest number of rules * questions for this test; it bounds the time (two minutes on one core with 1,000 draws)."""


def difference_columns_of(sums: RuleSums, trials: Trials, level: float) -> dict[str, Floats]:
    """Return mean differences to the baseline with t intervals: for quality and, with the prefix `calls_`, for calls.

    In simulations with 60 to 300 questions, of which 3 to 30 % differ, t intervals cover the mean about as often as
    bootstrap intervals, and far more often if few differ (92 instead of 79 % with 60 questions of which 5 % differ).
    Unlike bootstrap intervals, t intervals need no draws for every rule.
    """
    from scipy.special import stdtrit

    columns: dict[str, Floats] = {}
    n = sums.counts.units
    for prefix, name in (("", "quality"), ("calls_", "calls")):
        delta, error = sums.differences(trials.explorer, name, trials.distinct.number)
        reach = float(stdtrit(n - 1, (1 + level) / 2)) * error if n > 1 else np.full(len(delta), np.nan)
        columns |= {f"{prefix}delta": delta, f"{prefix}low": delta - reach, f"{prefix}high": delta + reach}
    return columns


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Question-by-question comparisons of single rules, and tests of the best rule's lead."""

    trials: Trials
    comparisons: Comparisons
    sums: ComparisonSums
    paired: dict[str, PairedResult]
    picked: tuple[int, ...]
    resampling: Resampling
    p_corrected: float

    @classmethod
    def of(cls, passes: Passes, trials: Trials, on_tune: Trials, sums: RuleSums) -> Estimates:
        """Compare the best rule, the rule chosen on tune, the rules that the folds select, and `tasr`."""
        rules = {}
        for how, side in (("naive", trials), ("nested", on_tune)):
            if side.best is not None:
                rules[how] = int(side.distinct.number[side.best])
        picked = _picked(trials, sums)
        sides = trials.explorer.questions.sides
        named = {
            prompt: "tasr" if len(sides) == 1 else f"tasr  [{prompt}]"
            for prompt, side in sides.items()
            if tasr().signals <= set(side.view.columns)
        }
        comparisons = Comparisons(rules=rules, by_fold=picked, named=named)
        space, resampling = trials.explorer.space, passes.reading.resampling
        parts = [part for _, part in passes.each(comparisons_in, space, comparisons, tune=False) if part is not None]
        total = reduce(add, parts)
        return cls(
            trials=trials,
            comparisons=comparisons,
            sums=total,
            paired=dict(zip(comparisons.names, total.deltas.paired(resampling), strict=True)),
            picked=picked,
            resampling=resampling,
            p_corrected=_p_corrected(passes, trials, sums),
        )

    def _estimate(self, how: str) -> RuleEstimate:
        place = self.comparisons.names.index(how)
        numbers = [self.comparisons.rules[how]] if how in self.comparisons.rules else [*self.picked]
        values, counts = np.unique(np.array(numbers, dtype=np.int64), return_counts=True)
        texts = list(map(str, self.trials.explorer.rules(values)))
        n = self.sums.deltas.counts.rows
        return RuleEstimate(
            how=how,
            rules=tuple(texts[i] for i in np.argsort(-counts, kind="stable").tolist()),
            quality=float(self.sums.quality[place] / n),
            calls=float(self.sums.calls[place] / n),
            delta=self.paired[how],
        )

    def named(self, trials: Trials) -> tuple[Named, ...]:
        """Return the figures of `tasr` for every prompt that has its signals."""
        names, n = self.comparisons.names, self.sums.deltas.counts.rows
        return tuple(
            Named(
                name=name,
                prompt=prompt,
                quality=float(self.sums.quality[names.index(name)] / n),
                calls=float(self.sums.calls[names.index(name)] / n),
                delta=self.paired[name] if self.resampling.n_resamples else None,
                members=int(trials.distinct.members[trials.distinct.hash == number].sum()),
            )
            for (prompt, name), number in zip(self.comparisons.named.items(), self.sums.hashes, strict=True)
        )

    def chosen(self, policy: Policy, prompt: str, on_tune: Trials, goal: Goal) -> Chosen:
        """Return the rule chosen on tune questions, with its figures on the searched questions."""
        assert on_tune.best is not None
        estimate = self._estimate("nested")
        quality, delta = figure(estimate.quality, ".1f", 100), figure(estimate.delta.triple, "+.1f", 100)
        return Chosen(
            policy=policy,
            prompt=prompt,
            quality=float(on_tune.means["quality"][on_tune.best]),
            calls=float(on_tune.means["calls"][on_tune.best]),
            headline=f"{policy.label}: {goal.metric} {quality} ({delta} vs {goal.baseline}); {estimate.calls:.2f} calls",
            estimate=estimate,
        )

    def optimism(self) -> Optimism | None:
        """Return estimates of the gain from selecting the best rule within the budget."""
        if self.trials.best is None:
            return None
        hows = [how for how in ("naive", "nested", "cross-fitted") if how in self.comparisons.names]
        return Optimism(
            estimates=tuple(map(self._estimate, hows)),
            n_rules=self.trials.explorer.space.count,
            n_distinct=len(self.trials.distinct),
            n_within=len(_affordable(self.trials)),
            p_raw=_one(self.sums, self.comparisons.names.index("naive")),
            p_corrected=self.p_corrected,
        )


def _one(sums: ComparisonSums, place: int) -> float:
    """Return the p-value of one difference alone, not corrected for the number of differences."""
    deltas, one = sums.deltas, slice(place, place + 1)
    return p_of_largest(0, deltas.means[one], deltas.errors[one], deltas.drawn.drawn[one], deltas.drawn.sizes)


def _affordable(trials: Trials) -> Positions:
    return np.flatnonzero(trials.means["calls"] <= trials.budget + ROUNDING)


def _picked(trials: Trials, sums: RuleSums) -> tuple[int, ...]:
    """Return, for each fold, the number of the rule that the other folds select; empty if none can be selected."""
    numbers, picked = trials.distinct.number, []
    totals = {name: sums.folds[name].sum(axis=0)[numbers] for name in FOLDED}
    for fold, size in enumerate(sums.sizes.tolist()):
        if size == sums.n:
            return ()
        others = {name: (totals[name] - sums.folds[name][fold][numbers]) / (sums.n - size) for name in FOLDED}
        best = best_within(others["quality"], others["calls"], trials.budget)
        if best is None:
            return ()
        picked.append(int(numbers[best]))
    return tuple(picked)


def _p_corrected(passes: Passes, trials: Trials, sums: RuleSums) -> float:
    """Return the p-value of the best rule's lead, corrected for all rules within the budget.

    NaN if no rule meets the budget, if there are no draws, or if there are too many rules to test together.
    """
    within, n_resamples = _affordable(trials), passes.reading.resampling.n_resamples
    too_many = len(within) * n_resamples > _MOST_SUMS_DRAWN or len(within) * sums.n > _MOST_PAIRS_TESTED
    if trials.best is None or not n_resamples or too_many:
        return float("nan")
    numbers = trials.distinct.number[within]
    drawn, sizes = np.zeros((len(within), n_resamples)), np.zeros(n_resamples)
    for _, (some, n) in passes.each(family_in, trials.explorer.space, numbers, tune=False):
        drawn += some
        sizes += n
    delta, errors = sums.differences(trials.explorer, "quality", numbers)
    return p_of_largest(int(np.searchsorted(within, trials.best)), delta, errors, drawn, sizes)
