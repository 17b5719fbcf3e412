"""Check a host's values besides responses: gold answers, labels, metrics and names of signals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from suffice.common.json_text import as_number
from suffice.errors import DataError
from suffice.policy.metrics import METRICS
from suffice.policy.signals import SIGNALS
from suffice.recordings.merging import AMENDED, INFERRED, RUN
from suffice.recordings.schema import DECISION_COLUMNS, EMBEDDING, PINNED_LABELS, SHADOW, TEXT_COLUMNS

_RESERVED_NAMES = frozenset(
    {
        *TEXT_COLUMNS,
        *DECISION_COLUMNS,
        "round",
        "golds",
        "passage_ids",
        EMBEDDING,
        "question_type",
        "recorded_at",
        RUN,
        INFERRED,
        AMENDED,
    }
).difference(PINNED_LABELS)


def checked_golds(golds: str | Sequence[str]) -> tuple[str, ...]:
    """Return gold answers as a tuple; raise if they are not texts."""
    texts = (golds,) if isinstance(golds, str) or not isinstance(golds, Iterable) else tuple(golds)
    if not all(isinstance(gold, str) for gold in texts):
        raise DataError(f"gold answers are texts, not {golds!r}")
    return texts


def check_signal_names(names: Iterable[str], labels: Iterable[str] = ()) -> None:
    """Raise if a signal has the name of another column, whose values it would replace."""
    others = {*_RESERVED_NAMES, *PINNED_LABELS, *METRICS, *labels}
    for name in names:
        if name in others or name.startswith((SHADOW, "cost.")):
            raise DataError(f"{name!r} cannot be the name of a signal: a recording has another column of that name")


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels; raise if one is not text, or has the name of one of this library's columns."""
    for name, text in labels.items():
        ours = name in _RESERVED_NAMES or name in SIGNALS or name in METRICS
        if not isinstance(name, str) or not name.isidentifier() or ours or not isinstance(text, str):
            raise DataError(f"{name!r}: {text!r} cannot be a label: give a text, under a name that no other column has")
    return dict(labels)


def checked_metric(name: str, value: float) -> float | None:
    """Return a metric after checking that it lies in [0, 1]; None if it is unknown."""
    number = as_number(value)
    if (
        not name.isidentifier()
        or name in _RESERVED_NAMES
        or name in SIGNALS
        or not (math.isnan(number) or 0 <= number <= 1)
    ):
        raise DataError(f"the metric {name!r} is {value!r}: a metric has a name of its own and lies in [0, 1]")
    return None if math.isnan(number) else number
