"""Measure the loss and cost of each candidate question by question; unknown outcomes count at their worst."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.evaluation.replay import check_policy
from suffice.evaluation.replay.baselines import Run, recorded_run
from suffice.evaluation.replay.orders import n_orders
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.references import answering_like, baseline_policy
from suffice.policy.rounds import Floats, Mask
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.verdicts.losses import Baseline, LossAccount, Questions

SAVABLE = ("calls", "tokens", "money")
_COST_REMEDIES = {
    "calls": "log every round",
    "tokens": "log cost.generator.uncached_tokens, cost.generator.cached_tokens and cost.generator.output_tokens",
    "money": "log the tokens (cost.generator.uncached_tokens, ...), and give prices of every component (prices=..., --prices FILE)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Losses and costs of candidates and the baseline on units; the baseline is the last value of each sum.

    Attributes:
        worst: The largest possible loss of each candidate, shape ``(n_candidates, n_units)``, in [-1, 1].
        best: The smallest possible loss, same shape; the same where everything is known.
        unknown: Mask of the units with an unknown outcome under some candidate, shape ``(n_units,)``.
        failed: Mask of the units whose recording failed, same shape; those questions count as lost.
        unexplained: Mask of the units with fewer rounds than others for no recorded reason, same shape: the loop's own
            answer there is unknown.
        n_recorded: Number of units with a row that did not fail, over which the sums below are.
        values: Sum of the metric, shape ``(n_candidates + 1,)``, with the worst case of what is unknown.
        squared: Sum of the squares of the baseline's metric.
        costs: Sums by name in `SAVABLE`, shape of `values`; NaN where some are unknown.
        unpriced: Number of units in which a cost is unknown, by its name.
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
    n_recorded: int
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
        """Raise a `DataError` if the cost to save is unknown in some unit."""
        if self.unpriced[name]:
            raise DataError(
                f"{name} {'is' if name == 'money' else 'are'} unknown in {self.unpriced[name]:,} of {counted(self.n, 'question')}, so what a change would "
                f"save is unknown: {_COST_REMEDIES[name]}, or decide about calls (cost='calls', --cost calls)"
            )


def prices_text(prices: Price | Mapping[str, Price] | None) -> str:
    """Return prices as a text by which they can be compared; empty without prices."""
    if prices is None:
        return ""
    if isinstance(prices, Price):
        return repr(prices)
    return "; ".join(f"{component}: {price!r}" for component, price in sorted(prices.items()))


def uncut(recording: Recording) -> Recording:
    """Return the recording with the loop's own stops as ends, as if no further rounds had been possible.

    Candidates then stop where the loop stopped or earlier, so every outcome is known.  If nothing says that the loop
    stopped there by itself (`Recording.unexplained`), it may have gone on, and the question stays cut.
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
    """Measure the losses of candidates against the baseline.

    Args:
        recording: Recorded rounds, failed questions included.
        policies: The candidates, all with one selector.
        baseline: `recorded` for the logged loop itself, or a rule (`fixed_k(5)`, `full`).
        metric: See `suffice.evaluation.replay.outcome`.
        prices: For money; None = unknown.
        with_twins: Places of the candidates that are compared with stopping at random.
        orders: Of independent samples, over how many random orders the loss of a question is averaged.

    Raises:
        CensoredError: The baseline goes on past what was recorded.
        DataError: The baseline is a budget that no question has.
    """
    account = _account_of(recording, policies, baseline, metric, prices=prices, orders=orders)
    prepared = account.prepared
    questions = Questions.of(recording)
    worst, best = (np.empty((len(policies), questions.units.n_units)) for _ in range(2))
    values, costs = np.empty(len(policies) + 1), {name: np.empty(len(policies) + 1) for name in SAVABLE}
    recorded = questions.of_recorded()
    unpriced = {name: np.zeros(recorded.units.n_units, dtype=np.bool_) for name in SAVABLE}
    twins, gains, squared_gains = (np.full(len(policies), np.nan) for _ in range(3))
    unknown = np.zeros(questions.units.n_units, dtype=np.bool_)

    def add(place: int, run: Run) -> Floats:
        """Add the metric and costs of a run to the sums; return the metric of each recorded unit."""
        scores = recorded.means(np.nan_to_num(run.worst[metric]), failed=np.nan)
        values[place] = scores.sum()
        for name in SAVABLE:
            spent = recorded.means(run.ledger.spent(name), failed=np.nan)
            costs[name][place] = spent.sum()
            unpriced[name] |= np.isnan(spent)
        return scores

    for place, loss in enumerate(account.losses(policies, twinned=with_twins)):
        add(place, loss.run)
        best[place], worst[place] = questions.means(loss.low, failed=-1.0), questions.means(loss.high, failed=1.0)
        unknown |= questions.means(loss.low != loss.high, failed=1.0) > 0
        if loss.twin is not None:
            twins[place] = recorded.means(np.nan_to_num(loss.twin.worst[metric]), failed=np.nan).sum()
            least = np.nan_to_num(loss.run.worst[metric]) - np.nan_to_num(loss.twin.best[metric], nan=1.0)
            gain = recorded.means(least, failed=np.nan)
            gains[place], squared_gains[place] = gain.sum(), (gain**2).sum()
        del loss  # of a million rounds one is large
    squared = float((add(len(policies), account.baseline) ** 2).sum())
    return Measured(
        worst=worst,
        best=best,
        unknown=unknown,
        failed=questions.means(np.zeros(prepared.n, dtype=np.bool_), failed=1.0) > 0,
        unexplained=questions.means(account.open_ends, failed=0.0) > 0,
        n_recorded=recorded.units.n_units,
        values=values,
        squared=squared,
        costs=costs,
        unpriced={name: int(lacking.sum()) for name, lacking in unpriced.items()},
        twins=twins,
        gains=gains,
        squared_gains=squared_gains,
    )


def _account_of(
    recording: Recording,
    policies: Sequence[Policy],
    baseline: str,
    metric: str,
    *,
    prices: Price | Mapping[str, Price] | None,
    orders: int,
) -> LossAccount:
    """Replay the baseline with the selector of the candidates; arguments as for `measure_candidates`."""
    like, of_log = policies[0], baseline == "recorded"
    prepared = PreparedRecording.of(recording, [metric], prices=prices, samples=True)
    reference: Baseline = partial(recorded_run, like=answering_like(like), start_round=like.start_round)
    if not of_log:
        reference = baseline_policy(recording, baseline, like)
        check_policy(reference, prepared.recording)
    n = n_orders(prepared.recording, orders, [*policies, *([reference] if isinstance(reference, Policy) else [])])
    account = LossAccount.of(
        prepared,
        reference,
        orders=n,
        open_ends=of_log,
        remedy="Use the baseline 'recorded', what the log did itself, or record at full width",
    )
    if not of_log:
        _refuse_endless(account.baseline, prepared)
    return account


def _refuse_endless(run: Run, prepared: PreparedRecording) -> None:
    """Raise if the baseline is a budget beyond the cap of the recording.

    Raises:
        DataError: It stops nowhere, and the recording ends at its cap.
    """
    policy = run.policy
    if policy is None or policy.rule.signals != {"round"} or run.reasons.get("rule"):
        return
    if (prepared.recording.ends == "max_rounds").any():
        raise DataError(
            f"the baseline {policy.label!r} stops nowhere up to round {prepared.highest}, where the recording ends: what it "
            "would have answered later is unknown. Use 'recorded' or a smaller budget"
        )
