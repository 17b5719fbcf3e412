"""What each candidate loses and costs, question by question; what is unknown counts at its worst."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.errors import CensoredError, DataError
from suffice.replays import dividing_names
from suffice.replays.baselines import Run, random_stop, recorded_run, run_policy
from suffice.replays.prepared import PreparedRecording
from suffice.replays.prices import Price
from suffice.replays.references import answering_like, baseline_policy
from suffice.rounds import Floats, Mask
from suffice.session import Policy
from suffice.statistics import Units
from suffice.store.recording import Recording
from suffice.tables import counted

__all__ = ["SAVABLE", "Measured", "measure_candidates", "uncut"]

SAVABLE = ("calls", "tokens", "money")
_COST_REMEDIES = {
    "calls": "log every round",
    "tokens": "log cost.generator.uncached_tokens, cost.generator.cached_tokens and cost.generator.output_tokens",
    "money": "log the tokens (cost.generator.uncached_tokens, ...), and give prices (prices=..., --prices FILE)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Candidates and the baseline on units, in the order of their arrival; the baseline is the last row.

    Attributes:
        worst: The largest possible loss of each candidate, shape ``(n_candidates, n_units)``, in [-1, 1].
        best: The smallest possible loss, same shape; the same where everything is known.
        values: The metric, shape ``(n_candidates + 1, n_units)``, with the worst case of what is unknown.
        costs: By name in `SAVABLE`, same shape as `values`; NaN where unknown.
        twins: The metric of each candidate's random twin, which stops as often at each round, shape of `worst`, with the
            worst case of what is unknown; NaN where none was asked for.
        gains: The smallest possible gain of each candidate over its twin, same shape.
        unknown: In which units an outcome is unknown under some candidate, shape ``(n_units,)``.
        failed: In which units a recording failed, same shape; those questions count as lost.
    """

    worst: Floats
    best: Floats
    values: Floats
    costs: dict[str, Floats]
    twins: Floats
    gains: Floats
    unknown: Mask
    failed: Mask

    def ordered(self, places: npt.NDArray[np.int64]) -> Measured:
        """Return the same units in another order."""
        return Measured(
            worst=self.worst[:, places],
            best=self.best[:, places],
            values=self.values[:, places],
            costs={name: spent[:, places] for name, spent in self.costs.items()},
            twins=self.twins[:, places],
            gains=self.gains[:, places],
            unknown=self.unknown[places],
            failed=self.failed[places],
        )

    def require_cost(self, name: str) -> None:
        """Raise a `DataError` where what is to be saved is unknown."""
        unknown = np.asarray(np.isnan(self.costs[name]).any(axis=0))
        if unknown.any():
            raise DataError(
                f"{name} {'is' if name == 'money' else 'are'} unknown in {int(unknown.sum()):,} of {counted(len(unknown), 'question')}, so what a change would "
                f"save is unknown: {_COST_REMEDIES[name]}, or decide about calls (cost='calls', --cost calls)"
            )


def uncut(recording: Recording) -> Recording:
    """Return the recording with the loop's own stops as its ends: what the loop never ran is no part of the question.

    Candidates then stop where the loop stopped, or earlier, and for those every outcome is known.
    """
    if "end" not in recording.table.column_names or not (recording.ends == "rule").any():
        return recording
    table = recording.table
    place = table.column_names.index("end")
    ends = pa.array(
        ["exhausted" if end == "rule" else end for end in table.column("end").to_pylist()], type=pa.string()
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
) -> Measured:
    """Return what candidates lose against the baseline.

    Args:
        recording: Recorded rounds, failed questions included.
        policies: The candidates, all with one selector.
        baseline: `recorded` for what the log did itself, or a rule (`fixed_k(5)`, `full`).
        metric: See `suffice.replays.outcome`.
        prices: For money; None = unknown.
        with_twins: Places of the candidates that are compared with stopping at random.

    Raises:
        CensoredError: The baseline goes on past what was recorded.
    """
    like = policies[0]
    reference = None if baseline == "recorded" else baseline_policy(recording, baseline, like)
    prepared = PreparedRecording.of(recording, [metric], prices=prices)
    base = recorded_run(prepared, answering_like(like)) if reference is None else run_policy(prepared, reference)[0]
    if not base.exact:
        raise CensoredError(
            f"the baseline {baseline!r} goes on past what was recorded in {int(base.unrun.sum())} of {prepared.n} "
            "questions, because a rule ended them: what it would have answered is unknown. Use the baseline 'recorded', "
            "what the log did itself, or record at full width"
        )
    kept = recording.ends != "failed"
    units = Units.of(len(kept), dividing_names(recording))

    def means(values: Floats | Mask, failed: float) -> Floats:
        """Return the mean of each unit of values of the questions that did not fail, `failed` for the others."""
        everywhere = np.full(len(kept), failed)
        everywhere[kept] = values
        each: Floats = units.sums(everywhere[None])[0] / units.sizes
        return each

    worst, best, twins, gains = (np.full((len(policies), units.n_units), np.nan) for _ in range(4))
    values = np.empty((len(policies) + 1, units.n_units))
    costs = {name: np.empty_like(values) for name in SAVABLE}
    unknown = np.zeros(units.n_units, dtype=np.bool_)
    for place, policy in enumerate([*policies, None]):
        # One run at a time: of a million rounds each is large.
        run, stops = (base, None) if policy is None else run_policy(prepared, policy)
        values[place] = means(np.nan_to_num(run.worst[metric]), 0.0)
        for name in SAVABLE:
            costs[name][place] = means(run.ledger.spent(name), 0.0)
        if policy is not None:
            low, high = _bounds(run, base, metric)
            best[place], worst[place] = means(low, -1.0), means(high, 1.0)
            unknown |= means(low != high, 1.0) > 0
        if policy is not None and stops is not None and place in with_twins:
            twin = random_stop(prepared, policy, stops)
            twins[place] = means(np.nan_to_num(twin.worst[metric]), 0.0)
            gain = np.nan_to_num(run.worst[metric]) - np.nan_to_num(twin.best[metric], nan=1.0)
            gains[place] = means(gain, 0.0)
    failed = means(np.zeros(prepared.n, dtype=np.bool_), 1.0) > 0
    return Measured(
        worst=worst,
        best=best,
        values=values,
        costs=costs,
        twins=twins,
        gains=gains,
        unknown=unknown,
        failed=failed,
    )


def _bounds(run: Run, base: Run, metric: str) -> tuple[Floats, Floats]:
    """Return the smallest and the largest loss that what is known allows, each of shape ``(n_questions,)``."""
    low, high = np.nan_to_num(run.worst[metric]), np.nan_to_num(run.best[metric], nan=1.0)
    base_low, base_high = np.nan_to_num(base.worst[metric]), np.nan_to_num(base.best[metric], nan=1.0)
    assert run.rounds is not None
    assert base.rounds is not None
    same: Mask = (run.rounds == base.rounds) & ~run.unrun  # one stop, one answer, whatever it scored
    return np.where(same, 0.0, base_low - high), np.where(same, 0.0, base_high - low)
