"""`suffice calibrate` and `suffice replay`: fit and prove on recorded rounds, without a call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from suffice.cli import options
from suffice.cli.console import present, print_json, print_table, say
from suffice.replays import (
    LEDGERS,
    CalibrationSummary,
    Price,
    ReplayResult,
    calibrate,
    component_prices,
    policy_for,
)
from suffice.replays import replay as evaluate
from suffice.replays.prices import list_price, load_prices
from suffice.replays.result import COSTS
from suffice.replays.streaming import StreamResult, replay_stream
from suffice.replays.tables import replay_notes, replay_tables
from suffice.rules import answer_stable, parse_selector, signal, tasr
from suffice.session import Policy
from suffice.signals import GATE, LOOP_COMPONENTS
from suffice.statistics import DEFAULT_INTERVAL, INTERVALS
from suffice.store import Recording, read_recording
from suffice.tables import Table

__all__ = [
    "TEXT_RULES",
    "calibrate_command",
    "prices_for",
    "replay_command",
    "show_calibration",
    "show_replay",
    "with_guarded",
]

_log = logging.getLogger(__name__)

TEXT_RULES = ("answer_stable",)
"""What is replayed where neither a rule nor a policy is named: it needs nothing but text."""

_PRICED = (*LOOP_COMPONENTS, GATE)
_GUARDABLE = (tasr(), answer_stable())


def calibrate_command(
    path: Annotated[Path, typer.Argument(metavar="RECORDING", help="A recording of tune questions.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The policy, a JSON file.")],
    rule: Annotated[str, typer.Option("--rule", help="The rule of the policy: a name or its text.")] = "tasr",
    method: Annotated[str, typer.Option("--method", help="'isotonic' or 'platt'.")] = "isotonic",
    per_round: Annotated[bool, typer.Option("--per-round/--global", help="One map per round, or one for all.")] = True,
    target: Annotated[
        str, typer.Option("--target", help="'em', 'f1 > 0.5', 'agreement' (no gold answers), or a column in [0, 1].")
    ] = "em",
    unseen_round: Annotated[
        str, typer.Option("--unseen-round", help="At a round not fitted: 'error' or 'nearest'.")
    ] = ("error"),
    selector: Annotated[str, typer.Option("--selector", help="Which seen round's answer to return.")] = "last",
    signal_name: Annotated[
        str | None,
        typer.Option(
            "--signal", help="The numeric column that p_correct is fitted to, high for sure; default: answer_margin."
        ),
    ] = None,
    start_round: options.StartRound = None,
    as_json: options.AsJson = False,
) -> None:
    """It also reports how well the calibrators fit.

    Example: suffice calibrate tune.parquet -o policy.json --rule tasr
    """
    policy, summary = calibrate(
        read_recording(path),
        rule=rule,
        method=options.allowed(method, ("isotonic", "platt"), "--method"),
        per_round=per_round,
        target=target,
        unseen_round=options.allowed(unseen_round, ("error", "nearest"), "--unseen-round"),
        selector=parse_selector(selector),
        source=signal_name,
        **options.start_of(start_round, [rule]),
    )
    policy.save(out)
    if as_json:
        print_json({"policy": str(out), **summary.to_dict()})
        return
    show_calibration(summary)
    say(f"policy written to {out}")


def show_calibration(summary: CalibrationSummary) -> None:
    """Print the fit, and what each way of fitting does to the rule."""
    for item in summary.tables():
        print_table(item)
    for note in summary.notes:
        say(f"note: {note}")


def replay_command(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="RECORDING", help="Recorded rounds.")],
    resampling: options.ResamplingOptions,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", help="A rule: a name or its text; may be repeated.")
    ] = None,
    policy: Annotated[list[Path] | None, typer.Option("--policy", help="A policy file; may be repeated.")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="f1, em, contains, agreement, or a column in [0, 1]; the first is the quality."),
    ] = None,
    selector: Annotated[
        str,
        typer.Option("--selector", help="Which seen round's answer the rules, and the baselines beside them, return."),
    ] = "last",
    max_rounds: Annotated[
        int | None, typer.Option("--max-rounds", min=1, help="The highest round of the rules; default: that recorded.")
    ] = None,
    baseline: options.Baseline = None,
    margin: Annotated[
        list[float] | None, typer.Option("--margin", help="For non-inferiority and equivalence; may be repeated.")
    ] = None,
    interval: Annotated[
        str, typer.Option("--interval", help=f"Method of the intervals: {', '.join(INTERVALS)}.")
    ] = DEFAULT_INTERVAL,
    prices: Annotated[
        Path | None,
        typer.Option("--prices", help="USD per million tokens by model or component (TOML or JSON), or 'list'."),
    ] = None,
    cost: Annotated[
        str, typer.Option("--cost", help=f"What 'cheapest' and 'dominated' compare: {', '.join(COSTS)}.")
    ] = "calls",
    ledger: Annotated[
        str,
        typer.Option(
            "--ledger",
            help="'live': judges are charged where the rule reads them; 'published': as Semantic Early-Stopping counted.",
        ),
    ] = "live",
    model: Annotated[
        str | None, typer.Option("--model", help="Price every language model as this one of the list prices.")
    ] = None,
    start_round: options.StartRound = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read one policy's recording block by block; it may exceed the memory.")
    ] = False,
    details: options.Details = False,
    as_json: options.AsJson = False,
) -> None:
    """The result is exact, and no call is made. With --stream the recording need not fit into memory.

    Example: suffice replay run.parquet --rule answer_stable
    """
    options.allowed(interval, INTERVALS, "--interval")
    options.allowed(ledger, LEDGERS, "--ledger")
    if prices is not None and model is not None:
        raise typer.BadParameter("--prices says what tokens cost, too: give one of them", param_hint="--model")
    policies = [Policy.load(file) for file in policy or ()]
    if stream:
        streamed = _streamed(
            context,
            path,
            [*policies, *(rule or ())],
            metric,
            baseline,
            resampling.level,
            list_price(model).price if model else None if prices is None else load_prices(prices),
        )
        print_json(streamed.to_dict()) if as_json else print_table(streamed.table())
        return
    recording = read_recording(path)
    texts = rule or (() if policies else TEXT_RULES)
    changes = options.start_of(start_round, texts)
    changes |= {} if max_rounds is None else {"max_rounds": max_rounds}
    suffix = "" if selector == "last" else f", {selector}"
    policies += [
        policy_for(recording, text, name=f"{text}{suffix}", selector=parse_selector(selector), **changes)
        for text in texts
    ]
    result = evaluate(
        recording,
        with_guarded(policies, recording),
        metrics=tuple(metric) if metric else None,
        baseline=options.read_baseline(baseline),
        resampling=replace(resampling.value, interval=interval),
        prices=prices_for(prices, recording) if model is None else list_price(model).price,
        margins=tuple(margin or (0.02,)),
        cost=cost,
        ledger=ledger,
    )
    if as_json:
        print_json(result.to_dict())
    else:
        show_replay(result, details=details, then=f"suffice report {path} -o report.html")


_STREAMED = {"path", "rule", "policy", "metric", "baseline", "level", "prices", "model", "stream", "as_json", "details"}


def _streamed(
    context: typer.Context,
    path: Path,
    chosen: Sequence[Policy | str],
    metrics: Sequence[str] | None,
    baseline: str | None,
    level: float,
    prices: Price | dict[str, Price] | None,
) -> StreamResult:
    """Replay one policy block by block.

    Raises:
        BadParameter: There are several policies or none, or options that only a whole recording can serve.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if source is not None and source.name == "COMMANDLINE" and parameter.name not in _STREAMED:
            raise typer.BadParameter("--stream does without it: leave one of them out", param_hint=parameter.opts[0])
    if len(chosen) != 1:
        raise typer.BadParameter("--stream takes one --rule or one --policy", param_hint="--stream")
    return replay_stream(
        path, chosen[0], metrics=metrics, baseline=baseline or "fixed_k(3)", level=level, prices=prices
    )


def with_guarded(policies: Sequence[Policy], recording: Recording) -> list[Policy]:
    """Add to `tasr` and `answer_stable` the variant that never stops on a refusal: both are always reported."""
    listed: list[Policy] = []
    for policy in policies:
        listed.append(policy)
        guarded = policy.rule & (signal("abstained") < 1)
        if policy.rule not in _GUARDABLE or any(guarded == other.rule for other in policies):
            continue
        if "abstained" not in recording.table.column_names:
            _log.warning("no column 'abstained' was recorded: %s is not shown without stops on refusals", policy.label)
            continue
        head, comma, selector = policy.name.partition(", ")
        listed.append(replace(policy, rule=guarded, name=f"{head}_guarded{comma}{selector}" if head else ""))
    return listed


def prices_for(path: Path | None, recording: Recording) -> dict[str, Price] | None:
    """Return the prices of the recorded components; one whose model the recording does not name goes by its own name."""
    if path is None:
        return None
    config = recording.metadata.get("config", {})
    names = {column.split(".")[1]: "" for column in recording.names("cost")}
    names |= {component: told.get("model", "") for component, told in config.get("enrichers", {}).items()}
    names["generator"] = config.get("model", {}).get("model", "")
    return component_prices(path, {c: n for c, n in names.items() if c in _PRICED or c.startswith("judge:")})


def show_replay(result: ReplayResult, *, details: bool = False, then: str = "") -> None:
    """Print the outcomes and what a reader must know on one screen, or every table."""
    tables = replay_tables(result)
    if not details:
        tables[0] = _narrow(tables[0])
    sentences = [result.headline(row.label) for row in result.rows if row.kind == "rule"]
    present(sentences, tables, replay_notes(result), details=details, then=then)


def _narrow(outcomes: Table) -> Table:
    """Return the outcomes without the quantiles and the difference of calls, which the other columns suggest."""
    keep = [
        place
        for place, column in enumerate(outcomes.columns)
        if column.name not in {"P50", "P95"} and not column.name.startswith("Δcalls")
    ]
    return replace(
        outcomes,
        columns=tuple(outcomes.columns[place] for place in keep),
        rows=tuple(tuple(row[place] for place in keep) for row in outcomes.rows),
    )
