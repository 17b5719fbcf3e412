"""What each candidate loses and costs, question by question; what is unknown counts at its worst."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.common.tables import counted
from suffice.errors import CensoredError, DataError
from suffice.evaluation.replay import check_policy, dividing_names
from suffice.evaluation.replay.baselines import Run, recorded_run
from suffice.evaluation.replay.by_stop import run_all
from suffice.evaluation.replay.orders import mean_runs, n_orders, seed_of_names
from suffice.evaluation.replay.outcomes import is_agreement
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.references import answering_like, baseline_policy
from suffice.evaluation.statistics import Units
from suffice.policy.rounds import Floats, Mask
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording

__all__ = ["SAVABLE", "Measured", "measure_candidates", "prices_text", "uncut"]

SAVABLE = ("calls", "tokens", "money")
_COST_REMEDIES = {
    "calls": "log every round",
    "tokens": "log cost.generator.uncached_tokens, cost.generator.cached_tokens and cost.generator.output_tokens",
    "money": "log the tokens (cost.generator.uncached_tokens, ...), and give prices of every component (prices=..., --prices FILE)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Candidates and the baseline on units; sums have the baseline as their last value.

    Attributes:
        worst: The largest possible loss of each candidate, shape ``(n_candidates, n_units)``, in [-1, 1].
        best: The smallest possible loss, same shape; the same where everything is known.
        unknown: In which units an outcome is unknown under some candidate, shape ``(n_units,)``.
        failed: In which units a recording failed, same shape; those questions count as lost.
        unexplained: In which units nothing says why there are fewer rounds than in others, same shape: what the loop returned
            there is unknown.
        values: Sum of the metric, shape ``(n_candidates + 1,)``, with the worst case of what is unknown.
        squared: Sum of the squares of the baseline's metric.
        costs: Sums by name in `SAVABLE`, shape of `values`; NaN where some are unknown.
        unpriced: In how many units a cost is unknown, by its name.
        twins: Sum of the metric of each candidate's random twin, which stops as often at each round, shape
            ``(n_candidates,)``, with the worst case of what is unknown; NaN where none was asked for.
        gains: Sum of the smallest possible gains of each candidate over its twin, same shape.
        squared_gains: Sum of the squares of these, same shape.
    """

    worst: Floats
    best: Floats
    unknown: Mask
    failed: Mask
    unexplained: Mask
    values: Floats
    squared: float
    costs: dict[str, Floats]
    unpriced: dict[str, int]
    twins: Floats
    gains: Floats
    squared_gains: Floats

    @property
    def n(self) -> int:
        """Units."""
        return int(self.worst.shape[-1])

    def ordered(self, places: npt.NDArray[np.int64]) -> Measured:
        """Return the same units in another order."""
        arrays = {
            name: getattr(self, name)[..., places] for name in ("worst", "best", "unknown", "failed", "unexplained")
        }
        return replace(self, **arrays)

    def require_cost(self, name: str) -> None:
        """Raise a `DataError` where what is to be saved is unknown."""
        if self.unpriced[name]:
            raise DataError(
                f"{name} {'is' if name == 'money' else 'are'} unknown in {self.unpriced[name]:,} of {counted(self.n, 'question')}, so what a change would "
                f"save is unknown: {_COST_REMEDIES[name]}, or decide about calls (cost='calls', --cost calls)"
            )


def prices_text(prices: Price | Mapping[str, Price] | None) -> str:
    """Return prices as text to compare them by; empty without any."""
    if prices is None:
        return ""
    if isinstance(prices, Price):
        return repr(prices)
    return "; ".join(f"{component}: {price!r}" for component, price in sorted(prices.items()))


def uncut(recording: Recording) -> Recording:
    """Return the recording with the loop's own stops as its ends: what the loop never ran is no part of the question.

    Candidates then stop where the loop stopped, or earlier, and for those every outcome is known.  Where nothing says that the
    loop stopped there by itself (`Recording.unexplained`), it may have gone on, and that question stays cut.
    """
    own = ((recording.ends == "rule") & ~recording.unexplained)[recording.row_question]
    if not own.any():
        return recording
    table = recording.table
    place = table.column_names.index("end")
    ends = pa.array(
        ["exhausted" if stopped else end for stopped, end in zip(own, table.column("end").to_pylist(), strict=True)],
        type=pa.string(),
    )
    field = table.schema.field("end")
    return Recording(table.set_column(place, field, ends.cast(field.type)), recording.metadata)


def measure_candidates(
    recording: Recording,
    policies: Sequence[Policy],
    baseline: str,
    metric: str,
    *,
    prices: Price | Mapping[str, Price] | None = None,
    with_twins: Collection[int] = (),
    orders: int = 1,
) -> Measured:
    """Return what candidates lose against the baseline.

    Args:
        recording: Recorded rounds, failed questions included.
        policies: The candidates, all with one selector.
        baseline: `recorded` for what the log did itself, or a rule (`fixed_k(5)`, `full`).
        metric: See `suffice.evaluation.replay.outcome`.
        prices: For money; None = unknown.
        with_twins: Places of the candidates that are compared with stopping at random.
        orders: Of independent samples, over how many random orders the loss of a question is averaged.

    Raises:
        CensoredError: The baseline goes on past what was recorded.
        DataError: The baseline is a budget that no question has.
    """
    like = policies[0]
    reference = None if baseline == "recorded" else baseline_policy(recording, baseline, like)
    prepared = PreparedRecording.of(recording, [metric], prices=prices, samples=True)
    n = n_orders(prepared.recording, orders, [*policies, *([] if reference is None else [reference])])
    seed = seed_of_names(prepared.recording)
    if reference is None:
        own = answering_like(like)
        base = mean_runs(prepared, n, seed, lambda one: [recorded_run(one, own, start_round=like.start_round)])[0]
    else:
        base = _baseline_run(prepared, reference, n, seed)
    if not base.exact:
        raise CensoredError(
            f"the baseline {baseline!r} goes on past what was recorded in {int(base.unrun.sum())} of {prepared.n} "
            "questions, because a rule ended them, or nothing says why they ended: what it would have answered is unknown. Use the "
            "baseline 'recorded', what the log did itself, or record at full width"
        )
    open_ends = prepared.recording.unexplained & (reference is None)
    kept = recording.ends != "failed"
    units = Units.of(len(kept), dividing_names(recording))

    def means(values: Floats | Mask, failed: float) -> Floats:
        """Return the mean of each unit of values of the questions that did not fail, `failed` for the others."""
        everywhere = np.full(len(kept), failed)
        everywhere[kept] = values
        each: Floats = units.sums(everywhere[None])[0] / units.sizes
        return each

    worst, best = (np.empty((len(policies), units.n_units)) for _ in range(2))
    values, costs = np.empty(len(policies) + 1), {name: np.empty(len(policies) + 1) for name in SAVABLE}
    unpriced = {name: np.zeros(units.n_units, dtype=np.bool_) for name in SAVABLE}
    twins, gains, squared_gains = (np.full(len(policies), np.nan) for _ in range(3))
    unknown = np.zeros(units.n_units, dtype=np.bool_)

    def add(place: int, run: Run) -> Floats:
        """Add what a run gives and costs; return the metric of each unit."""
        scores = means(np.nan_to_num(run.worst[metric]), 0.0)
        values[place] = scores.sum()
        for name in SAVABLE:
            spent = means(run.ledger.spent(name), 0.0)
            costs[name][place] = spent.sum()
            unpriced[name] |= np.isnan(spent)
        return scores

    def add_candidate(place: int, run: Run, twin: Run | None) -> None:
        """Add a candidate, and the random twin if it has one."""
        add(place, run)
        low, high = _bounds(run, base, metric, open_ends, averaged=n > 1)
        best[place], worst[place] = means(low, -1.0), means(high, 1.0)
        np.logical_or(unknown, means(low != high, 1.0) > 0, out=unknown)
        if twin is not None:
            twins[place] = means(np.nan_to_num(twin.worst[metric]), 0.0).sum()
            gain = means(np.nan_to_num(run.worst[metric]) - np.nan_to_num(twin.best[metric], nan=1.0), 0.0)
            gains[place], squared_gains[place] = gain.sum(), (gain**2).sum()

    # Of a million rounds each run is large, so there is one at a time; samples in many orders are replayed together.
    for part in [range(len(policies))] if n > 1 else [[place] for place in range(len(policies))]:
        runs, twin_runs = run_all(
            prepared,
            [policies[place] for place in part],
            n,
            seed,
            twinned=[at for at, place in enumerate(part) if place in with_twins],
        )
        for at, place in enumerate(part):
            add_candidate(place, runs[at], twin_runs.get(at))
        del runs, twin_runs
    squared = float((add(len(policies), base) ** 2).sum())
    return Measured(
        worst=worst,
        best=best,
        unknown=unknown,
        failed=means(np.zeros(prepared.n, dtype=np.bool_), 1.0) > 0,
        unexplained=means(open_ends, 0.0) > 0,
        values=values,
        squared=squared,
        costs=costs,
        unpriced={name: int(lacking.sum()) for name, lacking in unpriced.items()},
        twins=twins,
        gains=gains,
        squared_gains=squared_gains,
    )


def _baseline_run(prepared: PreparedRecording, policy: Policy, n: int, seed: int) -> Run:
    """Return the run of a baseline.

    Raises:
        DataError: It is a budget beyond the cap of the recording.
    """
    check_policy(policy, prepared.recording)
    run = run_all(prepared, [policy], n, seed)[0][0]
    if (
        policy.rule.signals == {"round"}
        and not run.reasons.get("rule")
        and (prepared.recording.ends == "max_rounds").any()
    ):
        raise DataError(
            f"the baseline {policy.label!r} stops nowhere up to round {prepared.highest}, where the recording ends: what it "
            "would have answered later is unknown. Use 'recorded' or a smaller budget"
        )
    return run


def _bounds(run: Run, base: Run, metric: str, open_ends: Mask, *, averaged: bool) -> tuple[Floats, Floats]:
    """Return the smallest and the largest loss that what is known allows, each of shape ``(n_questions,)``.

    Args:
        run: A candidate.
        base: The baseline.
        metric: What must not be lost.
        open_ends: Where the baseline may have gone on, so that what it returned is unknown.
        averaged: Whether these are means over orders.
    """
    low, high = np.nan_to_num(run.worst[metric]), np.nan_to_num(run.best[metric], nan=1.0)
    base_low, base_high = np.nan_to_num(base.worst[metric]), np.nan_to_num(base.best[metric], nan=1.0)
    if is_agreement(metric):  # the baseline agrees with itself, whatever its answer was
        low, high = np.where(open_ends, 0.0, low), np.where(open_ends, 1.0, high)
    else:
        base_low, base_high = np.where(open_ends, 0.0, base_low), np.where(open_ends, 1.0, base_high)
    assert run.rounds is not None
    assert base.rounds is not None
    # One stop, one answer, whatever it scored; of means over orders equal ones need not be equal stops.
    same: Mask = (run.rounds == base.rounds) & ~run.unrun & ~open_ends & (not averaged)
    # Means over orders are sums in floating point: what is 1 may be a little more.
    ends = (np.clip(base_low - high, -1.0, 1.0), np.clip(base_high - low, -1.0, 1.0))
    return np.where(same, 0.0, ends[0]), np.where(same, 0.0, ends[1])
