"""Recorded rounds as rows for the diagnostics of signals, and Cohen's d between right and wrong rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.replay import AGREEMENT, outcome
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import ROUNDING, Resampling, Units
from suffice.evaluation.statistics.auroc import Coded, Codes
from suffice.policy.rounds import Floats, Mask
from suffice.policy.session import Policy
from suffice.policy.signals import SIGNALS, clean_column
from suffice.recordings.recording import Recording


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The recorded rounds of all questions as rows.

    Attributes:
        columns: Signals by name, shape ``(n_rows,)``, NaN where undefined.
        right: 1 if the round's answer is right, 0 if it is wrong, NaN if this was not measured, shape ``(n_rows,)``.
        unit: The question (or cluster) of each row, 0..n_units - 1, shape ``(n_rows,)``.
        n_units: Number of units.
        rounds: The round of each row, shape ``(n_rows,)``.
        names: Names of the units, which determine their bootstrap draws; empty if the units only have numbers.
    """

    columns: Mapping[str, Floats]
    right: Floats
    unit: Codes
    n_units: int
    rounds: Codes
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, recording: Recording, metric: str = "em", policy: Policy | None = None) -> Rows:
        """Return a recording's rounds as rows; the columns include the signals that a policy derives.

        Args:
            recording: Recorded rounds; `right` is NaN everywhere if the recording lacks the metric.
            metric: The metric that says which answers are right.
            policy: The policy whose calibrators and z-scores are applied. Their signals are undefined in rounds that
                the policy does not read.
        """
        seen = recording.seen
        columns = {
            name: clean_column(name, recording.column(name), index=recording.index)[seen]
            for name in recording.names("signal")
        }
        if policy is not None:
            columns |= {name: column[seen] for name, column in _derived(recording, policy).items()}
        units = Units.of(len(recording.question_ids), recording.clusters)
        question = np.arange(len(recording.question_ids)) if units.codes is None else units.codes
        return cls(
            columns=columns,
            right=right_if_known(recording, metric)[seen],
            unit=np.broadcast_to(question[:, None], seen.shape)[seen],
            n_units=units.n_units,
            rounds=np.broadcast_to(recording.index, seen.shape)[seen],
            names=tuple(dict.fromkeys(map(str, recording.clusters.tolist()))),
        )

    def at(self, rows: Mask) -> Rows:
        """Return the rows in a mask; the units keep their numbers."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return replace(self, columns=columns, right=self.right[rows], unit=self.unit[rows], rounds=self.rounds[rows])

    @cached_property
    def coded(self) -> dict[str, Coded]:
        """The columns in coded form: distinct values are numbered, and each value is replaced by its number."""
        return {name: Coded.of(column) for name, column in self.columns.items()}

    def labelled(self, outcome_: int) -> Mask:
        """Return a mask of the rows that are right (1) or wrong (0)."""
        return np.asarray(self.right == outcome_, dtype=np.bool_)


def right_or_wrong(recording: Recording, metric: str) -> Floats:
    """Return 1 where a round's answer is right, 0 where it is wrong, else NaN, shape ``(n_questions, n_rounds)``.

    Raises:
        DataError: There is no such metric, or the metric takes other values than 0 and 1.
    """
    values = outcome(recording, metric)
    between = ~(np.isnan(values) | (values == 0) | (values == 1))
    if between.any():
        raise DataError(
            f"right or wrong needs a metric of 0 and 1; {metric!r} has {values[between][0]:g} among its values: "
            f"use 'em', or a threshold as '{metric} > 0.5'"
        )
    return np.where(recording.seen, values, np.nan)


def right_if_known(recording: Recording, metric: str) -> Floats:
    """Return `right_or_wrong`; NaN everywhere if the recording lacks the metric."""
    return right_or_wrong(recording, metric) if has_metric(recording, metric) else np.full(recording.shape, np.nan)


def has_metric(recording: Recording, metric: str) -> bool:
    """Return True if a recording contains a metric, even if all of its values are undefined."""
    name = metric.replace(">=", ">").partition(">")[0].strip()
    return name in AGREEMENT or name in recording.table.column_names


def _derived(recording: Recording, policy: Policy) -> dict[str, Floats]:
    """Return the signals that the policy's fitted state computes, at every recorded round."""
    names = [name for name in policy.signals if policy.raw_of(name) != name]
    if not names:
        return {}
    view = policy.view(recording.rounds(policy.raw_columns))
    before = int(view.index[0] - recording.index[0])
    # A view covers consecutive recorded rounds; rounds before and after it have no value.
    widths = ((0, 0), (before, recording.shape[1] - before - len(view)))
    return {name: np.pad(view[name], widths, constant_values=np.nan) for name in names}


def rule_figures(prepared: PreparedRecording, policy: Policy, quality: str) -> tuple[float, float, float]:
    """Return the share of early stops, the mean quality (NaN without that metric) and the mean calls of a policy.

    All three are NaN if the policy reads a signal that was not recorded, or needs rounds that never ran because another
    rule stopped the question.
    """
    unknown = math.nan, math.nan, math.nan
    if not set(policy.raw_signals) <= set(prepared.rounds(policy.raw_signals).columns):
        return unknown
    run, stopped = run_policy(prepared, policy)
    if not run.exact:
        return unknown
    early = stopped.position < stopped.view.seen.sum(axis=1) - 1
    mean_quality = float(run.values[quality].mean()) if quality in run.values else math.nan
    return float(early.mean()), mean_quality, float(run.ledger.calls.mean())


def mean_known(values: Floats) -> float:
    """Return the mean of the finite values; NaN if there are none."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def column_or_nan(recording: Recording, name: str) -> Floats:
    """Return a recorded column, shape ``(n_questions, n_rounds)``; NaN everywhere if the recording lacks it."""
    return recording.column(name) if name in recording.table.column_names else np.full(recording.shape, np.nan)


def unit_of(recording: Recording, name: str) -> str:
    """Return the unit of a signal: the one that its definition declares, else the one in the recording."""
    if name in SIGNALS:
        return SIGNALS[name].unit
    position = recording.table.schema.get_field_index(name)
    metadata = recording.table.schema.field(position).metadata if position >= 0 else None
    return str((metadata or {}).get(b"unit", b"score").decode())


MOST_UNDEFINED = 0.05
"""The share of draws in which a statistic may be undefined before its interval is."""


def _moments(rows: Rows, names: Sequence[str]) -> Floats:
    """Return count, sum and sum of squares of each unit's right rows, then of its wrong rows.

    Shape ``(n_units, 6, n_signals)``.
    """
    moments = np.zeros((rows.n_units, 6, len(names)))
    for position, name in enumerate(names):
        column = rows.columns[name]
        defined = ~np.isnan(column)
        if not defined.any():
            continue
        low, high = float(column[defined].min()), float(column[defined].max())
        scale = (high - low) or 1.0
        centred = np.where(defined, (column - low) / scale - 0.5, 0.0)  # d does not change, and squares stay small
        for half, mask in enumerate((rows.labelled(1) & defined, rows.labelled(0) & defined)):
            unit, values = rows.unit[mask], centred[mask]
            for power, weights in enumerate((None, values, values**2)):
                moments[:, 3 * half + power, position] = np.bincount(unit, weights, rows.n_units)
    return moments


def _d_of(totals: Floats) -> Floats:
    """Return Cohen's d, shape ``(..., n)``, from the results of `_moments` summed over units, shape ``(..., 6, n)``."""
    n1, s1, q1, n0, s0, q0 = np.moveaxis(totals, -2, 0)  # 1 = right, 0 = wrong
    usable = (n1 > 0) & (n0 > 0) & (n1 + n0 > 2)  # noqa: PLR2004
    n1, n0 = np.where(usable, n1, 1.0), np.where(usable, n0, 2.0)  # arbitrary values, which avoid a division warning
    within = (q1 - s1**2 / n1) + (q0 - s0**2 / n0)
    usable &= within > ROUNDING * (q1 + q0)
    pooled = np.sqrt(np.where(usable, within / (n1 + n0 - 2), 1.0))
    return np.where(usable, (s1 / n1 - s0 / n0) / pooled, np.nan)


def cohens_d(rows: Rows, names: Sequence[str]) -> Floats:
    """Return (mean when right - mean when wrong) / pooled standard deviation of each signal, shape ``(n_signals,)``.

    It is NaN if a class is empty or the signal does not vary within the classes.  Source: Cohen (1988), section 2.2.
    """
    return _d_of(_moments(rows, names).sum(axis=0))


def draw_d(rows: Rows, names: Sequence[str], resampling: Resampling) -> Floats:
    """Return Cohen's d of each signal in bootstrap draws of questions, shape ``(n_draws, n_signals)``.

    All signals share the draws. A value is NaN if d is undefined in that draw.
    """
    # d of a draw follows from the sums over units, so a draw is one product instead of a pass over all rounds.
    flat = _moments(rows, names).reshape(rows.n_units, 6 * len(names))
    drawn = resampling.draws(rows.names or range(rows.n_units)).sums(flat.T)
    return _d_of(drawn.T.reshape(drawn.shape[1], 6, len(names)))


def ends(draws: Floats, level: float) -> tuple[Floats, Floats]:
    """Return percentile ends of each column of draws; NaN for a column with more than one undefined draw in twenty."""
    # Linear interpolation between order statistics of the defined draws; `np.nanquantile` takes a Python loop over columns.
    ordered = np.sort(draws, axis=0)  # sorted with NaN last
    defined = (~np.isnan(draws)).sum(axis=0)
    usable = defined >= (1 - MOST_UNDEFINED) * len(draws)
    columns, last = np.arange(draws.shape[1]), np.maximum(defined - 1, 0)

    def quantile(share: float) -> Floats:
        place = share * last
        lower = np.floor(place).astype(np.int64)
        low, high = ordered[lower, columns], ordered[np.minimum(lower + 1, last), columns]
        return np.where(usable, low + (place - lower) * (high - low), np.nan)

    return quantile((1 - level) / 2), quantile((1 + level) / 2)


def with_ends(name: str) -> Callable[[Any], Any]:
    """Return a function that reads a figure, with the ends ``NAME_low`` and ``NAME_high`` of its interval if they are defined."""

    def read(item: Any) -> Any:
        value, low, high = (getattr(item, f"{name}{end}") for end in ("", "_low", "_high"))
        return value if np.isnan(low) else (value, low, high)

    return read
