"""Signals that the policy itself computes: the calibrated margin, the round, and the loop's costs so far."""

from __future__ import annotations

import math

from suffice.policy.signals.definitions import declare

WRITERS = ("generator", "writer")
"""The components that write answers: of most loops, of a drafting loop."""

CRITIC = "critic"
"""The component that replies to drafts."""

TRIAL = "trial"
"""The component that answers at a checkpoint of a chain of thought, which goes on without this answer."""

OF_ANSWERS = frozenset({WRITERS[0], TRIAL})
"""The components of the signals of a checkpoint's answer, which its trial measures."""

QUERY = "query"
"""The component that writes what a retriever is asked, where that takes a call of its own."""

LOOP_COMPONENTS = (*WRITERS, CRITIC, QUERY)
"""The components whose calls the signals `calls` and `tokens` count: the loop's own generation (SEMANTICS)."""

CUMULATED = {
    "calls": ("calls",),
    "tokens": ("uncached_tokens", "cached_tokens", "output_tokens"),
    "seconds": ("seconds",),
}
"""The signals that add up costs since the start round, and the kinds of cost that they add."""

_COUNT = (0.0, math.inf)


def cost_columns(name: str) -> tuple[str, ...]:
    """Return the columns that a signal in `CUMULATED` adds up; empty for other signals."""
    return tuple(f"cost.{component}.{kind}" for component in LOOP_COMPONENTS for kind in CUMULATED.get(name, ()))


def member_component(model: str) -> str:
    """Return the component to which the calls of one model of a panel are charged.

    >>> member_component("gpt-4o-mini")
    'generator:gpt-4o-mini'
    """
    return f"{WRITERS[0]}:{model}"


declare(
    "p_correct",
    "P(correct) by the policy's calibrator of answer_margin.",
    "probability",
    (0.0, 1.0),
    "logprobs",
    source="TASR, section 3.3",
    fitted=True,
)
declare("round", "The index of the round; known to every policy.", "count", _COUNT, component="")
for _name, _unit, _what in (
    ("calls", "count", "The loop's own generation calls since its first round."),
    ("tokens", "count", "Input and output tokens of the loop's own generation calls since its first round."),
    (
        "seconds",
        "seconds",
        "Seconds of the loop's own generation calls since its first round; not exactly replayable.",
    ),
):
    declare(_name, _what, _unit, _COUNT, "costs", component="")
