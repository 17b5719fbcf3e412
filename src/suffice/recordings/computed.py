"""Compute signals from recorded rounds, if a recording has no column for them.

A signal that was registered after a recording was made is computed by its own function, from the same `Round` objects
that a live loop gives it.  A recording does not contain all parts of a round. If a function reads a missing part, an
error is raised.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.errors import UnknownSignalError
from suffice.policy.rounds import ABSENT_COSTS, Cost, Floats, Round
from suffice.policy.signals import SIGNALS, compute_signals
from suffice.recordings.schema import EMBEDDING, REPLY_COLUMNS, column_kind, is_computed

if TYPE_CHECKING:
    import pyarrow as pa

    from suffice.recordings.recorded_columns import RecordedColumns

_TEXTS = ("answer", "text", "finish_reason", "feedback", "thinking", *REPLY_COLUMNS)
_FIELDS = frozenset(item.name for item in fields(Round))
_NO_COST = Cost()


def source_columns(names: Collection[str], schema: pa.Schema) -> set[str]:
    """Return the columns to read for the signals in `names`.

    A signal without a column needs the columns from which it is computed.
    """
    wanted = set(names)
    if any(is_computed(name) and name not in schema.names for name in names):
        wanted.update((*_TEXTS, EMBEDDING))
        wanted.update(field.name for field in schema if column_kind(field.name, field) in ("signal", "cost"))
    return wanted


def compute_column(recording: RecordedColumns, name: str) -> Floats:
    """Return the values of a registered signal at every recorded round.

    For each round, the function is called with the question's rounds up to that round, as in a live loop.

    Args:
        recording: Recorded rounds.
        name: A signal for which `is_computed` holds.

    Returns:
        Values in the signal's range, shape ``(n_questions, n_rounds)``; NaN where undefined and past the end of a
        trajectory.

    Raises:
        UnknownSignalError: The function reads a part of a round that the recording does not have.
    """
    absent: set[str] = set()
    column = np.full(recording.seen.shape, np.nan)
    for q, rounds in enumerate(_recorded_rounds(recording, absent)):
        try:
            column[q, : len(rounds)] = [
                compute_signals(rounds[: r + 1], [name], state={})[name] for r in range(len(rounds))
            ]
        except _UnrecordedError:
            raise _refusal(name, absent) from None
        if absent:  # the function caught the exception itself, so its value is not to be trusted
            raise _refusal(name, absent)
    return column


class _UnrecordedError(Exception):
    """Raised if a signal reads a part of a round that was not recorded."""


class _RecordedRound(Round):
    """A round of a recording that has only the recorded parts; reading any other part raises an error."""

    __slots__ = ("_absent",)

    def __init__(self, absent: set[str], **parts: Any) -> None:
        for name, value in {**parts, "_absent": absent}.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _FIELDS:
            raise AttributeError(name)
        self._absent.add(name)  # Python calls this method for a field without a value
        raise _UnrecordedError(name)


def _recorded_rounds(recording: RecordedColumns, absent: set[str]) -> Iterator[list[Round]]:
    columns = recording.table.column_names
    texts = {name: recording.objects(name) for name in _TEXTS if name in columns}
    vectors = recording.objects(EMBEDDING) if EMBEDDING in columns else None
    signals = {name: recording.column(name) for name in recording.names("signal") if _is_measured(name)}
    costs: dict[str, dict[str, Floats]] = {}
    for name in recording.names("cost"):
        component, _, kind = name.removeprefix("cost.").rpartition(".")
        kinds = costs.setdefault(component, {})
        if kind in ABSENT_COSTS:
            kinds[kind] = recording.column(name)
    for q, length in enumerate(recording.seen.sum(axis=1).tolist()):
        rounds: list[Round] = []
        for i in range(length):
            own = {name: values[q, i] for name, values in texts.items()}
            if own.get("text", "") is None:
                del own["text"]
            if vectors is not None:
                own[EMBEDDING] = None if vectors[q, i] is None else np.array(vectors[q, i], dtype=np.float32)
            rounds.append(
                _RecordedRound(
                    absent,
                    index=int(recording.index[i]),
                    signals={name: float(v[q, i]) for name, v in signals.items() if not math.isnan(v[q, i])},
                    costs=_costs(costs, (q, i)),
                    **own,
                )
            )
        yield rounds


def _is_measured(name: str) -> bool:
    """Return True if a host or model measures a signal, so that a live round contains it, too."""
    return name not in SIGNALS or SIGNALS[name].compute is None


def _costs(columns: Mapping[str, Mapping[str, Floats]], place: tuple[int, int]) -> dict[str, Cost]:
    """Return the costs of a round by component, without the components that were not called."""
    costs = {
        component: Cost(**ABSENT_COSTS | {kind: float(values[place]) for kind, values in kinds.items()})
        for component, kinds in columns.items()
    }
    return {component: cost for component, cost in costs.items() if cost != _NO_COST}


def _refusal(name: str, absent: set[str]) -> UnknownSignalError:
    remedy = (
        "record or import the replies with their whole texts"
        if SIGNALS[name].on_demand
        else "record again with the signal registered (`suffice --extension FILE record`)"
    )
    return UnknownSignalError(
        f"the signal {name!r} reads {', '.join(sorted(absent))} of a round, which this recording does not have, so it "
        f"cannot be computed afterwards: {remedy}, or use a policy without it"
    )
