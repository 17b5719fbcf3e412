"""One question of a live loop: its rounds as they come, the reason and the cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.live import Live

from suffice.cli.console import console, print_json, say
from suffice.cli.show import decision_lines, round_row, rounds_table
from suffice.errors import ModelError, UnknownSignalError, did_you_mean
from suffice.json_text import well_formed
from suffice.loop import LiveLoop, Outcome
from suffice.loop.measuring import components_of
from suffice.rounds import COST_KINDS, Cost, Decision, Passage, Round
from suffice.signals import SIGNALS

__all__ = ["show_live"]


def show_live(loop: LiveLoop, question: str, passages: Sequence[Passage] = (), *, as_json: bool) -> None:
    """Run one question and print it; what came before a failure is printed, too.

    Args:
        loop: Answers.
        question: The question.
        passages: The question's own passages.
        as_json: Print JSON and nothing else.

    Raises:
        UnknownSignalError: The policy reads what nothing on the command line measures.
        ModelError: The model failed.
    """
    _require_known(loop)
    question = well_formed(question)  # a shell passes on bytes that are not UTF-8
    outcome, decisions = _quiet(loop, question, passages) if as_json else _shown(loop, question, passages)
    if as_json:
        print_json(_as_dict(outcome, decisions))
    else:
        say(decision_lines(outcome.decision, outcome.costs))
    if outcome.error is not None:
        raise ModelError(f"the model failed after {len(outcome.rounds)} rounds: {outcome.error}")


def _require_known(loop: LiveLoop) -> None:
    """Refuse a misspelt signal before the first call: all that the command line builds measures is known by name."""
    known = {*SIGNALS, *components_of(loop.enrichers)}
    unknown = [name for name in loop.policy.raw_signals if name not in known]
    if unknown:
        raise UnknownSignalError(
            f"the policy {loop.policy.label!r} reads {unknown[0]!r}, and nothing here measures it."
            f"{did_you_mean(unknown[0], known)} `suffice data signals` lists what a rule may read; the marks of a panel "
            "(suffice draft answer --judge-model NAME --marks ...) may be read by their names"
        )


def _quiet(loop: LiveLoop, question: str, passages: Sequence[Passage]) -> tuple[Outcome, list[Decision]]:
    """Run the question; return the outcome and what was decided at each round."""
    *rounds, (_, outcome) = loop.stream(question, passages)
    assert isinstance(outcome, Outcome)
    return outcome, [decision for _, decision in rounds if isinstance(decision, Decision)]


def _shown(loop: LiveLoop, question: str, passages: Sequence[Passage]) -> tuple[Outcome, list[Decision]]:
    """Like `_quiet`, and print the rounds; on a terminal they appear as they come."""
    rows: list[list[str]] = []
    decisions: list[Decision] = []
    outcome: Outcome | None = None
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for observed, result in loop.stream(question, passages):
            if isinstance(result, Outcome):
                outcome = result
            elif observed is not None:
                decisions.append(result)
                rows.append(round_row(observed, result))
                live.update(rounds_table(rows), refresh=console.is_terminal)
    console.print(rounds_table(rows))
    assert outcome is not None
    return outcome, decisions


def _as_dict(outcome: Outcome, decisions: Sequence[Decision]) -> dict[str, Any]:
    return {
        "question": outcome.question,
        **outcome.decision.to_dict(),
        "error": None if outcome.error is None else str(outcome.error),
        "costs": {component: _cost(cost) for component, cost in outcome.costs.items()},
        "rounds": [_round(*pair) for pair in zip(outcome.rounds, decisions, strict=True)],
    }


def _round(observed: Round, decision: Decision) -> dict[str, Any]:
    return {
        "round": observed.index,
        "answer": observed.answer,
        "text": observed.text,
        "feedback": observed.feedback,
        "passages": [{"id": passage.passage_id, "title": passage.title} for passage in observed.passages],
        "signals": decision.to_dict()["signals"],
        "costs": {component: _cost(cost) for component, cost in observed.costs.items()},
    }


def _cost(cost: Cost) -> dict[str, float | None]:
    spent = {kind: float(getattr(cost, kind)) for kind in COST_KINDS}
    return {kind: None if math.isnan(value) else value for kind, value in spent.items()}
