"""`suffice data signals`, `data prices`, `data costs` and `suffice doctor`: list signals, prices and costs, and examine an endpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from suffice.cli import models, options
from suffice.cli.approvals import Approval, approvals_here
from suffice.cli.console import number
from suffice.cli.groups import command_line
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.cli.settings import FILE
from suffice.common.results import jsonable
from suffice.common.tables import Column, Table, facts_table
from suffice.errors import DataError, LogprobsUnavailableError, ModelError, NotFittedError
from suffice.evaluation.replay import list_price, list_prices
from suffice.evaluation.replay.costs_by_round import round_costs
from suffice.evaluation.replay.price_lists import price_table
from suffice.loops.models import ChatModel, EndpointReport, probe
from suffice.policy.rules import NAMED_RULES, parse_rule
from suffice.policy.rules.named import spelled
from suffice.policy.session import Policy
from suffice.policy.signals import SIGNALS
from suffice.policy.signals.margins import LOGPROB_NEEDS
from suffice.recordings import read_recording

_LONGEST_REPLY = 400
"""The most characters shown of a reply."""

_BY_NEED = "Signals by what they need (fit: a state fitted on tune questions)"


def signals(output: Output) -> None:
    """A rule compares signals with thresholds; a named rule can be used by its name alone.

    Example: suffice data signals
    """
    rules = {name: spelled(name) for name in NAMED_RULES}
    needs = {
        name: ", ".join([*sorted(signal.needs), *(["fit"] if signal.fitted else [])]) or "nothing"
        for name, signal in SIGNALS.items()
    }
    groups: dict[str, list[str]] = {}
    for name, signal in SIGNALS.items():
        need = "itself" if signal.needs == {name} else ", ".join(sorted(signal.needs)) or "nothing"
        groups.setdefault(need, []).append(name + " (fit)" * signal.fitted)
    described = tuple(
        (s.name, f"{s.range[0]:g}..{s.range[1]:g}", s.unit, needs[s.name], s.source, s.doc) for s in SIGNALS.values()
    )
    fields = ("name", "range", "unit", "needs", "source", "meaning")
    tables = [
        Table(
            title=_BY_NEED,
            columns=(Column("needs"), Column("signals")),
            rows=tuple((need, ", ".join(names)) for need, names in groups.items()),
        ),
        Table(title="Signals", columns=tuple(map(Column, fields)), rows=described),
        Table(
            title="Named rules",
            columns=(Column("name"), Column("rule"), Column("meaning")),
            rows=tuple((name, text, NAMED_RULES[name].doc) for name, text in rules.items()),
        ),
    ]
    descriptions = [
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
    sentence = f"{len(SIGNALS)} signals, and these named rules: {', '.join(rules)}"
    then = "suffice replay RECORDING --rule 'answer_stable & (overlap > 0.15)'"
    output.show({"signals": descriptions, "rules": rules}, Screen(sentences=[sentence], tables=tables, then=then))


def doctor(
    context: typer.Context,
    endpoint: models.Examined,
    output: Output,
    repeats: Annotated[int, Setting("endpoint", "repeats", min=1, help="Prompts of the determinism probe.")] = 20,
    workers: Annotated[int, Setting("cluster", "workers", min=1, help="Requests sent at once.")] = 4,
) -> None:
    """A few short requests show log-probabilities, reuse of prefixes, concurrency and noise.

    Example: suffice doctor --model NAME --base-url http://localhost:8000/v1
    """
    answerer = endpoint.answerer()
    if not isinstance(answerer, ChatModel):
        raise DataError(f"{answerer.name} has no endpoint to examine: give --base-url and a model's name")
    report = probe(answerer, repeats=repeats, workers=workers)
    unread = "no: no answer could be read out of the replies"
    verdicts = {
        name: unread if report.answered == 0 else _runnable(name, frozenset(report.capabilities))
        for name in NAMED_RULES
    }
    approvals = approvals_here()
    data = {**report.to_dict(), "rules": verdicts, "approved": [asdict(one) for one in approvals]}
    given = command_line(context, "repeats", "workers", "details", "as_json").removeprefix("suffice doctor")
    then = f"suffice record hotpotqa_tune -o tune.parquet{given}"
    if not set(LOGPROB_NEEDS) <= set(report.capabilities):
        then = f"suffice record hotpotqa_tune -o tune.parquet{given} --set logprobs=false"
    output.show(data, _endpoint_screen(report, verdicts, approvals, then if report.reachable else ""))
    if not report.reachable:
        raise typer.Exit(1)


_LOOPS_GIVE = frozenset({"costs", "feedback", "passages", "pool_scores"})


def _runnable(name: str, capabilities: frozenset[str]) -> str:
    """Say if a loop with these capabilities can use a rule: `yes`, `after calibration`, or `no` with what is missing."""
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


def _endpoint_screen(
    report: EndpointReport, verdicts: dict[str, str], approvals: Sequence[Approval], then: str
) -> Screen:
    facts = {
        "endpoint": report.endpoint,
        "model": f"{report.model} ({report.api})",
        "reachable": _in_words(report.reachable),
        "log-probabilities": f"{report.logprobs}, {report.alternatives} alternatives",
        "cached tokens reported": _in_words(report.cached_tokens_reported),
        "prefix reuse": f"{_in_words(report.prefix_reuse)} (share {number(report.prefix_share)})",
        "continues raw text": "not examined (--set api=completions)"
        if report.continues is None
        else _in_words(report.continues) + {True: ", from token ids", False: ", as text", None: ""}[report.token_ids],
        "concurrency": _concurrency_text(report),
        "latency": f"{number(report.latency_s, 3)} s",
        "repeated prompts": f"{report.repeats}: {number(100 * report.changed_answers, 0)} % changed answers",
        "margin drift": f"{number(report.margin_drift, 4)} nats",
        "gives": ", ".join(report.capabilities) or "text only",
        f"keys that {FILE} may send": ", ".join(map(str, approvals)) or "none",
    }
    samples = tuple(
        (
            sample.question,
            f"{sample.reply!r:.{_LONGEST_REPLY}} ({sample.finish_reason})",
            f"answer {sample.answer!r}, confidence {number(sample.confidence, 0)}",
        )
        for sample in report.samples
    )
    run, fitted = (
        ", ".join(name for name, verdict in verdicts.items() if verdict == kind) or "none"
        for kind in ("yes", "after calibration")
    )
    sentence = f"Rules that can run there: {run}; after calibration: {fitted}"
    if not report.reachable:
        sentence = f"{report.endpoint} is unreachable or refuses requests (see the note), so no rule can be examined"
    return Screen(
        sentences=[sentence],
        tables=[
            facts_table("Endpoint", facts),
            Table(title="Replies", columns=(Column("asked"), Column("replied"), Column("read")), rows=samples),
            Table(
                title="Rules that can run there", columns=(Column("rule"), Column("runs")), rows=tuple(verdicts.items())
            ),
        ],
        notes=report.notes,
        then=then,
    )


def _concurrency_text(report: EndpointReport) -> str:
    if math.isnan(report.speedup):
        return "unknown: the rate limit (429) delayed requests" if report.refused else "unknown"
    return f"{report.workers} at once bring {number(report.speedup, 1)} times as many replies a second as one by one"


def _in_words(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"


def prices_command(
    output: Output,
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="One model's name at its provider; default: all.")
    ] = None,
) -> None:
    """In USD per million tokens, each with its date and source.

    Example: suffice data prices gpt-4o-mini
    """
    prices = list(list_prices().values()) if model is None else [list_price(model)]
    screen = Screen(tables=[price_table(prices)], then="suffice data prices MODEL" if model is None else "")
    output.show({"prices": jsonable(prices)}, screen)


def costs_command(
    path: options.Recorded,
    pricing: options.Pricing,
    output: Output,
) -> None:
    """As recorded, without a prefix cache, and as if every shared prefix had been cached.

    Example: suffice data costs run.parquet
    """
    pricing.price()  # raises if there are two prices, since neither would be right
    recording = read_recording(path)
    result = round_costs(recording, pricing.of(recording))
    output.show(result.to_dict(), Screen(tables=result.tables(), then=options.replay_step(path, recording)))
