"""`suffice data signals` and `suffice doctor`: what can be read, and what an endpoint gives."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from suffice.cli import options
from suffice.cli.console import console, number, print_json, say, table
from suffice.errors import DataError, LogprobsUnavailableError, ModelError, NotFittedError
from suffice.llm import ChatModel, EndpointReport, probe
from suffice.results import jsonable
from suffice.rules import NAMED_RULES, parse_rule
from suffice.rules.named import spelled
from suffice.session import Policy
from suffice.signals import SIGNALS

__all__ = ["doctor", "signals"]

_SHOWN = 400
"""Characters of a reply."""


def signals(as_json: options.AsJson = False) -> None:
    """A rule compares signals with thresholds; a named rule can be used by its name alone.

    Example: suffice data signals
    """
    rules = {name: spelled(name) for name in NAMED_RULES}
    if as_json:
        listed = [
            {
                "name": signal.name,
                "range": signal.range,
                "unit": signal.unit,
                "needs": sorted(signal.needs),
                "fitted": signal.fitted,
                "component": signal.component,
                "source": signal.source,
                "doc": signal.doc,
            }
            for signal in SIGNALS.values()
        ]
        print_json(jsonable({"signals": listed, "rules": rules}))
        return
    rows = [
        [
            signal.name,
            f"{signal.range[0]:g}..{signal.range[1]:g}",
            signal.unit,
            ", ".join([*sorted(signal.needs), *(["fit"] if signal.fitted else [])]) or "-",
            signal.source,
            signal.doc,
        ]
        for signal in SIGNALS.values()
    ]
    console.print(table("Signals", ["name", "range", "unit", "needs", "source", "meaning"], rows, left=6))
    console.print()
    named = [[name, text, NAMED_RULES[name].doc] for name, text in rules.items()]
    console.print(table("Named rules", ["name", "rule", "meaning"], named, left=3))


def doctor(
    endpoint: options.Examined,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Prompts of the determinism probe.")] = 20,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Requests sent at once.")] = 4,
    as_json: options.AsJson = False,
) -> None:
    """A few short requests show log-probabilities, reuse of prefixes, concurrency and noise.

    Example: suffice doctor --model NAME --base-url http://localhost:8000/v1
    """
    answerer = endpoint.answerer()
    if not isinstance(answerer, ChatModel):
        raise DataError("the embedded span reader has no endpoint to examine: give --base-url and a model's name")
    report = probe(answerer, repeats=repeats, workers=workers)
    unread = "no: no answer could be read out of the replies"
    verdicts = {
        name: unread if report.answered == 0 else _runnable(name, frozenset(report.capabilities))
        for name in NAMED_RULES
    }
    if as_json:
        print_json(jsonable({**report.to_dict(), "rules": verdicts}))
    else:
        _show(report, verdicts)
    if not report.reachable:
        raise typer.Exit(1)


_LOOPS_GIVE = frozenset({"costs", "feedback", "passages", "pool_scores"})


def _runnable(name: str, capabilities: frozenset[str]) -> str:
    """Return `yes`, `after calibration`, or what is missing."""
    entry = NAMED_RULES[name]
    policy = Policy(rule=parse_rule(name if 0 in entry.arity else f"{name}(3)"))
    needs: frozenset[str] = frozenset()
    for signal in policy.signals:
        source = {"p_correct": "answer_margin", "calibrated_confidence": "verbal_confidence"}.get(signal, signal)
        needs |= SIGNALS[source].needs if source in SIGNALS else frozenset()
    needs -= _LOOPS_GIVE
    capabilities |= _LOOPS_GIVE
    if needs - capabilities:
        return f"no: needs {', '.join(sorted(needs - capabilities))}"
    try:
        policy.check(capabilities)
    except (LogprobsUnavailableError, NotFittedError):
        return "after calibration"
    except ModelError as error:
        return f"no: {error}"
    return "yes"


def _show(report: EndpointReport, verdicts: dict[str, str]) -> None:
    facts: list[tuple[str, Any]] = [
        ("endpoint", report.endpoint),
        ("model", f"{report.model} ({report.api})"),
        ("reachable", _yes(report.reachable)),
        ("log-probabilities", f"{report.logprobs}, {report.alternatives} alternatives"),
        ("cached tokens reported", _yes(report.cached_tokens_reported)),
        ("prefix reuse", f"{_yes(report.prefix_reuse)} (share {number(report.prefix_share)})"),
        ("concurrency", f"{report.workers} at once run {number(report.speedup, 1)}x as fast as one by one"),
        ("latency", f"{number(report.latency_s, 3)} s"),
        ("repeated prompts", f"{report.repeats}: {number(100 * report.changed_answers, 0)} % changed answers"),
        ("margin drift", f"{number(report.margin_drift, 4)} nats"),
        ("gives", ", ".join(report.capabilities) or "text only"),
    ]
    console.print(table("Endpoint", ["what", "found"], [[name, str(value)] for name, value in facts], left=2))
    for note in report.notes:
        say(f"note: {note}")
    console.print()
    for sample in report.samples:
        read = f"answer {sample.answer!r}, confidence {number(sample.confidence, 0)}"
        say(
            f"asked    {sample.question}\nreplied  {sample.reply!r:.{_SHOWN}} ({sample.finish_reason})\nread     {read}\n"
        )
    console.print(
        table("Rules that can run there", ["rule", "runs"], [list(pair) for pair in verdicts.items()], left=2)
    )


def _yes(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"
