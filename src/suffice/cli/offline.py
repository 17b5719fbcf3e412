"""`suffice calibrate` and `suffice replay`: fit policies and test them on recorded rounds, without a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from suffice.cli import options
from suffice.cli.cluster import ClusterOptions
from suffice.cli.console import progress_bar
from suffice.cli.groups import RecordingPath
from suffice.cli.options import Where, chosen_loop, chosen_questions, where_words
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting, given_fields
from suffice.common.files import quoted
from suffice.common.provided import provided
from suffice.evaluation.replay import (
    LEDGERS,
    ReplayResult,
    calibrate,
    policy_for,
    replay as evaluate,
)
from suffice.evaluation.replay.blocks import Source
from suffice.evaluation.replay.checks import with_guarded
from suffice.evaluation.replay.outcomes import needed_metric
from suffice.evaluation.replay.parts import opened
from suffice.evaluation.replay.replay_tables import replay_notes, replay_tables
from suffice.evaluation.replay.result import COSTS
from suffice.evaluation.statistics import DEFAULT_INTERVAL, INTERVALS
from suffice.policy.rules import parse_selector
from suffice.recordings import Recording, read_recording

TEXT_RULES = ("answer_stable",)
"""The rule to replay if neither a rule nor a policy is given; it needs only the answers' text."""

SAMPLE_RULES = ("lead(3)", "adaptive_consistency")
"""The rule to replay for independent samples, if none is given."""


@dataclass(frozen=True, kw_only=True)
class _Learning:
    """Options for learning a stopping policy, instead of fitting the calibrators of a rule."""

    panel: ClassVar[str] = "A learned rule"

    learn: Annotated[
        str | None,
        typer.Option(
            "--learn-stop",
            metavar="SIGNALS",
            help="Instead of --rule: learn from these signals, with commas between them, where stopping is worth no less than "
            "going on (Stop-RAG, suffice-papers). An answer is worth its --target.",
        ),
    ] = None
    trace: Annotated[
        float,
        Setting(
            "calibration",
            "trace",
            min=0.0,
            max=1.0,
            help="With --learn-stop: lambda of its targets; 0 = dynamic programme.",
        ),
    ] = 0.0
    round_price: Annotated[
        float,
        Setting(
            "calibration",
            "round-price",
            min=0.0,
            help="With --learn-stop: what one more round costs, in units of --target.",
        ),
    ] = 0.0

    def signals(self, rule: str | None) -> list[str] | None:
        """Return the signals to learn from; None if a rule is calibrated instead."""
        if self.learn is None:
            unused = [name for field, name in given_fields(self).items() if field != "learn"]
            if unused:
                raise typer.BadParameter("goes with --learn-stop", param_hint=unused[0])
            return None
        if rule is not None:
            raise typer.BadParameter("--learn-stop makes the rule: give one of them", param_hint="--rule")
        return options.split_names(self.learn)


def calibrate_command(
    path: Annotated[RecordingPath, typer.Argument(metavar="RECORDING", help="A recording of tune questions.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The policy, a JSON file.")],
    learning: _Learning,
    output: Output,
    rule: Annotated[
        str | None, typer.Option("--rule", help="The rule of the policy: a name or its text; default: tasr.")
    ] = None,
    method: Annotated[str, Setting("calibration", "method", help="'isotonic' or 'platt'.")] = "isotonic",
    per_round: Annotated[
        bool, Setting("calibration", "per-round", off="global", help="One map per round; false: one for all.")
    ] = True,
    target: Annotated[
        str, typer.Option("--target", help="'em', 'f1 > 0.5', 'agreement' (no gold answers), or a column in [0, 1].")
    ] = "em",
    unseen_round: Annotated[
        str, Setting("calibration", "unseen-round", help="At a round not fitted: 'error' or 'nearest'.")
    ] = ("error"),
    selector: options.SelectorText = "last",
    signal_name: Annotated[
        str | None,
        typer.Option("--signal", help="The column that p_correct is fitted from, high = sure; default: answer_margin."),
    ] = None,
    start_round: options.StartRound = None,
    where: Where = None,
) -> None:
    """It also reports how well the calibrators fit.

    Example: suffice calibrate tune.parquet -o policy.json --rule tasr
    """
    how: dict[str, Any] = {
        "method": options.allowed(method, ("isotonic", "platt"), "method"),
        "per_round": per_round,
        "target": target,
        "unseen_round": options.allowed(unseen_round, ("error", "nearest"), "unseen-round"),
        "selector": parse_selector(selector),
        "source": signal_name,
        **options.start_of(start_round, [rule or "tasr"]),
    }
    recording = chosen_loop(read_recording(path), where)
    summary: Any
    signals = learning.signals(rule)
    if signals is None:
        policy, summary = calibrate(recording, rule=rule or "tasr", **how)
    else:
        value = {"trace": learning.trace, "price": learning.round_price}
        learn_stop = provided("papers.learn_stop", "learning where to stop (--learn-stop)")
        policy, summary = learn_stop(recording, signals, metric=target, **value, **how)
    policy.save(out)
    screen = Screen(
        tables=summary.tables(),
        notes=summary.notes,
        files={"policy": out},
        then=f"suffice replay OTHER.parquet --policy {quoted(out)}{options.metric_words(needed_metric(recording))}",
    )
    output.show({"policy": str(out), **summary.to_dict()}, screen)


def replay_command(
    path: options.Recorded,
    compared: options.Compared,
    pricing: options.Pricing,
    resampling: options.ResamplingOptions,
    cluster: ClusterOptions,
    output: Output,
    where: Where = None,
    selector: Annotated[
        str | None,
        typer.Option(
            "--selector",
            help="Chooses the round whose answer rules and baselines return. [default: last, or the majority of samples]",
        ),
    ] = None,
    max_rounds: Annotated[
        int | None, typer.Option("--max-rounds", min=1, help="The highest round of the rules; default: that recorded.")
    ] = None,
    interval: Annotated[
        str, Setting("statistics", "interval", help=f"Method of the intervals: {', '.join(INTERVALS)}.")
    ] = DEFAULT_INTERVAL,
    cost: Annotated[
        str, typer.Option("--cost", help=f"The cost that 'cheapest' and 'dominated' compare: {', '.join(COSTS)}.")
    ] = "calls",
    ledger: options.LedgerName = "live",
    orders: Annotated[
        int | None,
        Setting(
            "statistics", "orders", min=1, help="For independent samples: average over this many orders; default: 100."
        ),
    ] = None,
    wave: Annotated[
        int | None,
        Setting(
            "sampling", "wave", min=1, help="For independent samples: charge as if this many were requested at once."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            help="Processes that read the recording. [default: one for every 4 million rounds, up to all processors]",
        ),
    ] = None,
) -> None:
    """The result is exact, and no call is made. The recording need not fit into memory.

    Example: suffice replay run.parquet --rule answer_stable
    """
    options.allowed(interval, INTERVALS, "interval")
    options.allowed(ledger, LEDGERS, "ledger")
    pricing.price()  # raises if two prices are given, before anything is read
    policies = compared.files()
    source = _source(path, where, in_blocks=jobs is not None or cluster.on is not None)
    recording = source if isinstance(source, Recording) else source.empty()
    texts = compared.rule or (() if policies else SAMPLE_RULES if recording.independent else TEXT_RULES)
    changes = options.start_of(compared.start_round, texts)
    changes |= {} if max_rounds is None else {"max_rounds": max_rounds}
    changes |= {} if selector is None else {"selector": parse_selector(selector)}
    suffix = "" if selector in (None, "last") else f", {selector}"
    policies += [policy_for(recording, text, name=f"{text}{suffix}", **changes) for text in texts]
    policies = with_guarded(policies, recording)
    how: dict[str, Any] = {
        "metrics": tuple(compared.metric) if compared.metric else None,
        "baseline": options.read_baseline(compared.baseline),
        "resampling": replace(resampling.value, interval=interval),
        "prices": pricing.of(recording),
        "margins": compared.margins,
        "cost": cost,
        "ledger": ledger,
        "wave": wave,
    }
    with cluster.parts(jobs) as at_once, progress_bar("replay", quiet=output.as_json) as progress:
        result = evaluate(source, policies, **how, orders=orders, jobs=at_once, on_progress=progress)
    named = compared.metric or ()
    then = f"suffice report {quoted(path)}{where_words(where)} -o report.html{options.metric_words(*named)}"
    if recording.exchangeable:
        then = f"suffice certify {quoted(path)}{where_words(where)} --rules RULES --max-loss 0.01{options.metric_words(*named[:1])}"
    output.show(result.to_dict(), replay_screen(result, then=then))


def _source(path: Path, where: Sequence[str] | None, *, in_blocks: bool) -> Recording | Source:
    """Return the questions of one loop, either in memory or as a source that is read block by block."""
    chosen = chosen_questions(path, where)
    return chosen if isinstance(chosen, Recording) else opened(chosen, in_blocks=in_blocks)


def replay_screen(result: ReplayResult, then: str = "") -> Screen:
    """Return the screen with the outcomes of a replay.

    Columns that follow from other columns, such as quantiles and differences of calls, are shown only with `--details`.
    """
    outcomes, *others = replay_tables(result)
    names = (column.name for column in outcomes.columns)
    return Screen(
        sentences=[result.headline(row.label) for row in result.rows if row.kind == "rule"],
        tables=[outcomes, *others],
        notes=replay_notes(result),
        aside={name for name in names if name in {"P50", "P95"} or name.startswith("Δcalls")},
        then=then,
    )
