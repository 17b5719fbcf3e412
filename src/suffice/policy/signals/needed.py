"""The fields of `Round` that a signal needs, by the names in `Signal.needs`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from suffice.common.json_text import as_number
from suffice.policy.rounds import Round
from suffice.policy.signals.definitions import SIGNALS

FREE = frozenset({"", "generator", "retrieval"})
"""The components whose signals come with every round, without a call of their own."""

_ROUND_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "costs": "costs",
        "embedding": "embedding",
        "feedback": "feedback",
        "logprobs": "answer_tokens",
        "passages": "passages",
        "pool_scores": "pool_scores",
        "thinking": "thinking",
        "token_logprobs": "answer_tokens",
        "verbal_confidence": "text",
    }
)


def lacking(name: str, observed: Round, value: float) -> str | None:
    """Return which fields a round lacks for a signal, or `value` if that is invalid; None if it is complete.

    A value in the round may be undefined, but not out of the signal's range, which indicates an error of the host.

    >>> lacking("answer_margin", Round(index=1, answer="Oslo"), float("nan"))
    'answer_tokens'

    Args:
        name: A measured signal.
        observed: The round.
        value: The signal's value in this round.
    """
    if not math.isnan(value):
        return None
    known = SIGNALS.get(name)
    if name in observed.signals:
        numeric = as_number(observed.signals[name])
        if known is None or not math.isfinite(numeric) or not known.may_exist(observed.index):
            return None
        return f"value in [{known.range[0]:g}, {known.range[1]:g}], but {numeric!r}"
    fields = sorted({_ROUND_FIELDS[need] for need in known.needs if need in _ROUND_FIELDS}) if known is not None else []
    if known is not None and known.reads == {"text"}:
        fields = ["text"]
    if not fields:
        computed = known is not None and known.compute is not None and not known.needs  # from the answers alone
        return None if computed else "value"
    # Costs that lack the summed kind count as missing.
    has_field = any(_is_there(getattr(observed, field)) for field in fields if field != "costs")
    return None if has_field else " or ".join(fields)


def _is_there(value: object) -> bool:
    return value is not None and not (isinstance(value, tuple | str) and not value)
