"""Write decisions to OpenTelemetry spans, so that a trace viewer shows why a loop stopped."""

from __future__ import annotations

import sys

from suffice.policy.rounds import Decision


def trace_decision(decision: Decision, *, rounds: int | None = None) -> None:
    """Add a decision to the current span, as attributes and as one event, `suffice.decision`, with the signals read.

    Nothing happens if the program has not imported OpenTelemetry, or if no span is being recorded.  Undefined values are left
    out.

    Args:
        decision: The decision.
        rounds: Number of rounds; None = unknown.
    """
    trace = sys.modules.get("opentelemetry.trace")
    span = None if trace is None else trace.get_current_span()
    if span is None or not span.is_recording():
        return
    values = decision.to_dict()
    signals = values.pop("signals")
    values = {"rounds": rounds, **values, **{f"signals.{name}": value for name, value in signals.items()}}
    attributes = {f"suffice.decision.{name}": value for name, value in values.items() if value is not None}
    span.set_attributes(attributes)
    span.add_event("suffice.decision", attributes)
