"""`suffice demo semantic`: savings and losses of semantic stopping, offline, on drafts of GPT-4 and text-davinci-003."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from suffice.cli.console import print_json, say
from suffice.cli.output import Output, Screen
from suffice.common.files import write_file
from suffice.common.tables import Table, figure
from suffice.evaluation.replay import Row, policy_for, replay
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import PairedResult
from suffice.presentation import render_html
from suffice.presentation.data import ReportPart
from suffice.recordings import BUNDLED_RECORDINGS, Recording, bundled_recording, write_recording
from suffice_papers.choosing.judged import JudgedComparison, compare_judged, select_variants
from suffice_papers.choosing.judging import Unjudged, draft_families
from suffice_papers.semantic import SemanticProtocol, semantic_protocol, split_drafts, tune
from suffice_papers.semantic.page import protocol_report
from suffice_papers.semantic.protocol_tables import summary_table

METRIC = "target_sentiment"
DEV_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelDrafts:
    """The results of the demonstration for one model.

    Attributes:
        name: Name of the bundled recording.
        protocol: The protocol on the recording's test questions.
        choice: Ways to choose among all five drafts.
        page: Path of the written page.
    """

    name: str
    protocol: SemanticProtocol
    choice: _Choice
    page: Path

    @property
    def lines(self) -> list[str]:
        """The conclusions, one sentence each."""
        return _take_home(self.protocol, self.choice)


def semantic(
    output: Output,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of recordings and pages.")] = Path(
        "suffice-demo-semantic"
    ),
) -> None:
    """Stop drafts that no longer change in meaning, offline.

    It reports drafts saved and whether quality was kept, offline.

    Example: suffice demo semantic
    """
    began = time.monotonic()
    models = [_run_model(name, out) for name in BUNDLED_RECORDINGS]
    seconds = time.monotonic() - began
    if output.as_json:
        figures = {
            one.name: {
                "verdicts": one.lines,
                "protocol": one.protocol.to_dict(),
                "which_draft": one.choice.judged.to_dict(),
                "report": str(one.page),
            }
            for one in models
        }
        print_json({**figures, "seconds": seconds})
        return
    if output.details:
        say(_INTRODUCTION)
        for one in models:
            _print_model(one)
    else:
        parts = [(one.name.removeprefix("self_refine_"), one.protocol.compared, one.protocol.result) for one in models]
        summary = summary_table(parts)
        sentences = [f"{one.name}: {one.choice.fixed_sentence(one.protocol)}" for one in models]
        Screen(sentences=[" ".join(sentences)], tables=[summary, *_other_tables(models)]).print()
    say(f"recordings and pages: {out}/ (the whole demo took {seconds:.0f} s)")
    say("next: suffice draft record DATASET -o run.parquet --base-url URL --model NAME")


_INTRODUCTION = (
    "Two models rewrote reviews until they sound very positive, five drafts each, with their own critique in between "
    "(self-refine; numbers derived from the drafts ship, no text). Quality is the share of returned drafts whose "
    "recorded verdict names the target.\n"
    "The critic never approves in its first word, and no judge marks every draft: of the cascade, convergence is left. "
    "eps and patience are selected on dev questions (a quarter, by id hash) and reported on the others."
)


def _run_model(name: str, out: Path) -> _ModelDrafts:
    """Run the protocol and the choice of a draft on one bundled recording, and write its recordings and page."""
    test, dev = split_drafts(bundled_recording(name), DEV_SHARE)
    for part, recording in (("test", test), ("dev", dev)):
        table = recording.table.replace_schema_metadata(None)
        write_recording(out / f"{name}_{part}.parquet", table, recording.metadata)
    protocol = semantic_protocol(test, tune(dev, METRIC), metric=METRIC, command="suffice demo semantic")
    one = _ModelDrafts(name=name, protocol=protocol, choice=_which_draft(test, dev), page=out / f"{name}.html")
    write_file(one.page, _demo_page(one))
    return one


def _other_tables(models: Sequence[_ModelDrafts]) -> list[Table]:
    """Return the tables that --details prints, without their notes."""
    return [
        replace(table, notes=()) for one in models for table in (*_detailed(one.protocol), one.choice.judged.table())
    ]


def _detailed(protocol: SemanticProtocol) -> list[Table]:
    return [
        table for table in protocol.tables() if table.title.startswith(("Table 1", "Distance of", "The conjecture"))
    ]


@dataclass(frozen=True, slots=True)
class _Choice:
    """Ways to choose among all five drafts, on the test questions.

    Attributes:
        judged: The results of all ways to choose.
        best: The way to choose without a judge that was best on dev.
        fixed: The number of drafts that was best on dev, as `fixed_k(k)`.
        against_fixed: The comparison of `best`, applied to all five drafts, with `fixed`.
    """

    judged: JudgedComparison
    best: str
    fixed: str
    against_fixed: Row

    def fixed_sentence(self, protocol: SemanticProtocol) -> str:
        """Compare the best fixed number of drafts with all five, in one sentence on savings and change of quality."""
        full, rounds = protocol.compared.baseline, protocol.replayed.rounds
        if self.fixed == full:
            return f"{full}, all drafts, is the best number of drafts on dev."
        delta = protocol.compared.differences[self.fixed][METRIC]
        saved = 1 - rounds[self.fixed].mean() / rounds[full].mean()
        fixed = [row for row in protocol.result.rows if row.label.startswith("fixed_k(")]
        best = max(row.metrics[METRIC] for row in fixed) == protocol.result.row(self.fixed).metrics[METRIC]
        return (
            f"{self.fixed}, the best of them on dev, saves {figure(saved, '.0f', 100)} % of the drafts and changes quality "
            f"by {_points_with_interval(delta)} against all five" + (": nothing fixed is better here." if best else ".")
        )


def _which_draft(test: Recording, dev: Recording) -> _Choice:
    policy = policy_for(test, "full")
    families = select_variants(dev, policy, draft_families(test), metric=METRIC)
    free = {name: variants for name, variants in families.items() if isinstance(variants[0], Unjudged)}
    on_dev = compare_judged(dev, policy, free, metric=METRIC)
    best = max(on_dev.rows, key=lambda row: row.quality).name
    (procedure,) = families[best]
    assert isinstance(procedure, Unjudged)
    chosen = replace(policy, selector=procedure.selector, name=best)
    fixed = _best_fixed(dev)
    result = replay(test, [chosen], metrics=(METRIC,), baseline=fixed, margins=())
    return _Choice(compare_judged(test, policy, families, metric=METRIC), best, fixed, result.row(best))


def _best_fixed(dev: Recording) -> str:
    """Return the number of drafts with the best mean quality on dev, as `fixed_k(k)`; among ties, the smallest."""
    quality = PreparedRecording.of(dev).recording.column(METRIC)
    return f"fixed_k({1 + int(np.argmax(quality.mean(axis=0)))})"


def _take_home(protocol: SemanticProtocol, choice: _Choice) -> list[str]:
    """Return the conclusions as sentences, those about fixed budgets first."""
    fixed = [row for row in protocol.result.rows if row.label.startswith("fixed_k(")]
    listed = ", ".join(figure(row.metrics[METRIC], ".1f", 100) for row in fixed)
    lines = [f"By the number of drafts, {fixed[0].label} to {fixed[-1].label}: {listed} % reach the target."]
    if choice.fixed != protocol.compared.baseline:
        lines.append(choice.fixed_sentence(protocol))
    rule = protocol.result.row("judge_free")
    drafts = figure(protocol.replayed.rounds["judge_free"].mean(), ".2f")
    verdict = (
        f"DOMINATED by {rule.dominated_by}, a rule is not worth having here." if rule.dominated_by else "not dominated."
    )
    return [
        *lines,
        (
            f"Stopping on convergence ({rule.rule}) takes {drafts} drafts and reaches "
            f"{figure(rule.metrics[METRIC], '.1f', 100)} %: {verdict}"
        ),
        f"Do drafts converge? {protocol.convergence.verdict.capitalize()}.",
        *_about_choice(choice),
    ]


def _about_choice(choice: _Choice) -> list[str]:
    judged, row = choice.judged, choice.judged.row(choice.best)
    free = sum(other.calls == 0 for other in judged.rows)
    centroid = judged.row("judge_until(centroid)")
    return [
        (
            f"All five drafts written, {choice.best} (on dev the best of {free} ways without a judge) returns "
            f"{figure(row.quality, '.1f', 100)} % instead of {figure(judged.last, '.1f', 100)} %: {_share(row.gap)} of the "
            f"oracle's gap; against {choice.fixed}, which writes fewer, "
            f"{_points_with_interval(choice.against_fixed.deltas[METRIC])}."
        ),
        (
            f"Asking the judge from the centroid outwards until it is content closes {_share(centroid.gap)} with "
            f"{figure(centroid.calls, '.2f')} calls instead of {figure(judged.row('judge_all').calls, '.2f')}; the judge is "
            "the measure itself here, so this is the best case."
        ),
    ]


def _points_with_interval(delta: PairedResult) -> str:
    low, high = figure(delta.low, "+.1f", 100), figure(delta.high, "+.1f", 100)
    return f"{figure(delta.delta, '+.1f', 100)} points [{low}, {high}]"


def _share(gap: tuple[float, float, float]) -> str:
    value, low, high = (figure(part, ".0f", 100) for part in gap)
    return "no gap" if math.isnan(gap[0]) else f"{value} % [{low}, {high}]"


def _print_model(one: _ModelDrafts) -> None:
    say(f"\n{one.name}", bold=True)
    for line in one.lines:
        say(f"- {line}")
    tables = [*_detailed(one.protocol), one.choice.judged.table()]
    Screen(sentences=[one.protocol.tuned.sentence()], tables=tables).print(details=True)
    say(f"{one.page}: all tables, figures and a threshold to move; open it in a browser, it needs no network")


def _demo_page(one: _ModelDrafts) -> str:
    """Render a page with the conclusions, then the protocol, then the ways to choose among drafts."""
    report = protocol_report(one.protocol, one.name)
    short = ReportPart(title="In short", sentences=tuple(one.lines))
    choice = ReportPart(title="Which draft to return", tables=(one.choice.judged.table(),))
    cells = tuple(replace(cell, parts=(short, *cell.parts, choice)) for cell in report.cells)
    return render_html(replace(report, cells=cells))
