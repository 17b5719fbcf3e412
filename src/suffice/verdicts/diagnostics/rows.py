"""Recorded rounds as rows, which the diagnostics of signals count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.replay import AGREEMENT, outcome
from suffice.evaluation.statistics import Units
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
        right: 1 where the round's answer is right, 0 where it is wrong, NaN where that was not measured.
        unit: The question (or cluster) of each row, 0..n_units - 1, shape ``(n_rows,)``.
        n_units: How many there are.
        rounds: The round of each row, shape ``(n_rows,)``.
        names: Names of the units, which determine their draws; empty if units only have numbers.
    """

    columns: Mapping[str, Floats]
    right: Floats
    unit: Codes
    n_units: int
    rounds: Codes
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, recording: Recording, metric: str = "em", policy: Policy | None = None) -> Rows:
        """Return a recording's rounds as rows, with the signals that a policy derives among the columns.

        Args:
            recording: Recorded rounds; nothing is right or wrong if it lacks the metric.
            metric: The metric that says which answers are right.
            policy: Whose calibrators and z-scores to apply; at rounds that it does not read they are undefined.
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
        """Return some of the rows; the units keep their numbers."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return replace(self, columns=columns, right=self.right[rows], unit=self.unit[rows], rounds=self.rounds[rows])

    @cached_property
    def coded(self) -> dict[str, Coded]:
        """The columns by their different values."""
        return {name: Coded.of(column) for name, column in self.columns.items()}

    def labelled(self, outcome_: int) -> Mask:
        """Return which rows are right (1) or wrong (0)."""
        return np.asarray(self.right == outcome_, dtype=np.bool_)


def right_or_wrong(recording: Recording, metric: str) -> Floats:
    """Return 1 where a round's answer is right, 0 where wrong, NaN where unknown, shape ``(n_questions, n_rounds)``.

    Raises:
        DataError: There is no such metric, or it takes other values than 0 and 1.
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
    """Return whether a recording has a metric, whatever its values."""
    name = metric.replace(">=", ">").partition(">")[0].strip()
    return name in AGREEMENT or name in recording.table.column_names


def _derived(recording: Recording, policy: Policy) -> dict[str, Floats]:
    """Return the signals that the policy's fitted state makes, at every recorded round."""
    names = [name for name in policy.signals if policy.raw_of(name) != name]
    if not names:
        return {}
    view = policy.view(recording.rounds(policy.raw_columns))
    before = int(view.index[0] - recording.index[0])
    # A view covers consecutive recorded rounds; rounds before and after it have no value.
    widths = ((0, 0), (before, recording.shape[1] - before - len(view)))
    return {name: np.pad(view[name], widths, constant_values=np.nan) for name in names}


def column_or_nan(recording: Recording, name: str) -> Floats:
    """Return a recorded column, shape ``(n_questions, n_rounds)``; NaN everywhere if the recording lacks it."""
    return recording.column(name) if name in recording.table.column_names else np.full(recording.shape, np.nan)


def unit_of(recording: Recording, name: str) -> str:
    """Return the unit of a signal: as declared, else as recorded."""
    if name in SIGNALS:
        return SIGNALS[name].unit
    position = recording.table.schema.get_field_index(name)
    metadata = recording.table.schema.field(position).metadata if position >= 0 else None
    return str((metadata or {}).get(b"unit", b"score").decode())
