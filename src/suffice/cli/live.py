"""Run one question in a live loop, and show its rounds as they arrive, the reason and the cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.live import Live

from suffice.cli.console import console, print_json, say, table_view
from suffice.cli.output import COLUMNS, Output
from suffice.cli.show import ROUND_COLUMNS, decision_lines, round_row
from suffice.common.json_text import well_formed
from suffice.common.tables import Table
from suffice.errors import ModelError, UnknownSignalError, did_you_mean
from suffice.loops import LiveLoop, Outcome
from suffice.loops.measuring import components_of
from suffice.policy.rounds import Cost, Decision, Passage, Round
from suffice.policy.signals import SIGNALS

_SHORT, _WHOLE = 100, 400
"""The most characters of a draft or critique in a table, by default and with --details."""


def show_live(loop: LiveLoop, question: str, passages: Sequence[Passage] = (), *, output: Output, then: str) -> None:
    """Run one question and print it, including the rounds before a failure."""
    _require_known(loop)
    question = well_formed(question)  # a shell may pass bytes that are not UTF-8
    if output.as_json:
        *rounds, (_, outcome) = loop.stream(question, passages)
        assert isinstance(outcome, Outcome)
        decisions = [decision for _, decision in rounds if isinstance(decision, Decision)]
        print_json(_outcome_json(loop, outcome, decisions))
    else:
        outcome = _run_shown(loop, question, passages, most=_WHOLE if output.details else _SHORT)
        say(decision_lines(outcome.decision, outcome.costs))
        for note in outcome.surplus.notes:
            say(f"note: {note}")
        say(f"next: {then}")
    if outcome.error is not None:
        raise ModelError(f"the model failed after {len(outcome.rounds)} rounds: {outcome.error}")


def _require_known(loop: LiveLoop) -> None:
    """Raise before the first call if the policy reads a signal that no part of the loop measures, such as a misspelt one."""
    known = {*SIGNALS, *components_of(loop.enrichers)}
    unknown = [name for name in loop.policy.raw_signals if name not in known]
    if unknown:
        raise UnknownSignalError(
            f"the policy {loop.policy.label!r} reads {unknown[0]!r}, and nothing here measures it."
            f"{did_you_mean(unknown[0], known)} `suffice data signals` lists what a rule may read; the marks of a panel "
            "(suffice draft answer --judge-model NAME --set marks=...) may be read by their names"
        )


def _run_shown(loop: LiveLoop, question: str, passages: Sequence[Passage], *, most: int) -> Outcome:
    """Run the question and print its rounds; on a terminal, as they arrive."""
    table = Table(title="", columns=ROUND_COLUMNS, rows=())
    outcome: Outcome | None = None
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for observed, result in loop.stream(question, passages):
            if isinstance(result, Outcome):
                outcome = result
            elif observed is not None:
                table = replace(table, rows=(*table.rows, round_row(observed, result, most)))
                live.update(table_view(table), refresh=console.is_terminal)
    width = min(COLUMNS, console.width)
    console.print(table_view(table, width), width=width)
    assert outcome is not None
    return outcome


def _outcome_json(loop: LiveLoop, outcome: Outcome, decisions: Sequence[Decision]) -> dict[str, Any]:
    return {
        "question": outcome.question,
        **outcome.decision.to_dict(),
        "error": None if outcome.error is None else str(outcome.error),
        "costs": {component: _cost_json(cost) for component, cost in outcome.costs.items()},
        "cancelled": outcome.surplus.cancelled,
        "rounds": [_round_json(loop, *pair) for pair in zip(outcome.rounds, decisions, strict=True)],
    }


def _round_json(loop: LiveLoop, observed: Round, decision: Decision) -> dict[str, Any]:
    return {
        "round": observed.index,
        "labels": dict(loop.cells(observed.index)),
        "answer": observed.answer,
        "text": observed.text,
        "feedback": observed.feedback,
        "passages": [{"id": passage.passage_id, "title": passage.title} for passage in observed.passages],
        "signals": decision.to_dict()["signals"],
        "costs": {component: _cost_json(cost) for component, cost in observed.costs.items()},
    }


def _cost_json(cost: Cost) -> dict[str, float | None]:
    spent = {kind: float(getattr(cost, kind)) for kind in cost.kinds}
    return {kind: None if math.isnan(value) else value for kind, value in spent.items()}
