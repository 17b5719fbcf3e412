"""`suffice demo semantic`: what stopping in meaning saves and costs on real drafts of GPT-4 and text-davinci-003, offline."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from suffice.cli import options
from suffice.cli.console import console, print_json, print_table, say
from suffice.diagnostics.drafts import draft_families
from suffice.diagnostics.judged import JudgedComparison, compare_judged, select_variants
from suffice.diagnostics.judging import Unjudged
from suffice.files import write_file
from suffice.papers.semantic import SemanticProtocol, semantic_protocol, split, tune
from suffice.papers.semantic.page import protocol_report
from suffice.replays import policy_for, replay
from suffice.replays.prepared import PreparedRecording
from suffice.replays.result import Row
from suffice.reports import render_html
from suffice.reports.part import ReportPart
from suffice.store import BUNDLED_RECORDINGS, Recording, bundled_recording, write_recording
from suffice.tables import figure

__all__ = ["semantic"]

METRIC = "target_sentiment"
DEV_SHARE = 0.25
_COMMAND = "suffice demo semantic"
_SHOWN = ("Table 1", "Distance of", "The conjecture")


def semantic(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the recordings and the pages go.")] = Path(
        "suffice-demo-semantic"
    ),
    as_json: options.AsJson = False,
) -> None:
    """Stop drafts in meaning, on real drafts of two models.

    It reports drafts saved and whether quality was kept, offline.

    Example: suffice demo semantic
    """
    began = time.monotonic()
    if not as_json:
        _introduce()
    told: dict[str, Any] = {}
    for name in BUNDLED_RECORDINGS:
        test, dev = split(bundled_recording(name), DEV_SHARE)
        _write(test, dev, out, name)
        found = _protocol(test, dev)
        choice = _which_draft(test, dev)
        judged, lines = choice.judged, _verdicts(found, choice)
        page = out / f"{name}.html"
        write_file(page, _page(found, judged, lines, name))
        told[name] = {
            "verdicts": lines,
            "protocol": found.to_dict(),
            "which_draft": judged.to_dict(),
            "report": str(page),
        }
        if not as_json:
            _show(name, found, judged, lines, page)
    if as_json:
        print_json({**told, "seconds": time.monotonic() - began})
    else:
        _say(
            f"\nrecordings and pages: {out}/ (the whole demo took {time.monotonic() - began:.0f} s)\n"
            "The same on drafts of yours:  suffice draft record DATASET -o run.parquet --base-url URL --model NAME, then\n"
            "suffice paper protocol run.parquet"
        )


def _introduce() -> None:
    say(
        "Two models rewrote reviews until they sound very positive, five drafts each, with their own critique in between "
        "(self-refine; numbers derived from the drafts ship, no text). Quality is the share of returned drafts whose "
        "recorded verdict names the target.\n"
        "The critic never approves in its first word, and no judge marks every draft: of the cascade, convergence is left. "
        "eps and patience are selected on dev questions (a quarter, by id hash) and reported on the others."
    )


def _write(test: Recording, dev: Recording, out: Path, name: str) -> None:
    for part, recording in (("test", test), ("dev", dev)):
        table = recording.table.replace_schema_metadata(None)
        write_recording(out / f"{name}_{part}.parquet", table, recording.metadata)


def _protocol(test: Recording, dev: Recording) -> SemanticProtocol:
    return semantic_protocol(test, tune(dev, METRIC), metric=METRIC, command=_COMMAND)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Ways to choose among all five drafts on the test questions, and what was best on dev.

    Attributes:
        judged: All of them.
        best: The one without a judge that was best on dev.
        fixed: The number of drafts that was best on dev, as `fixed_k(k)`.
        against_fixed: `best` after all drafts, compared with `fixed`.
    """

    judged: JudgedComparison
    best: str
    fixed: str
    against_fixed: Row


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
    """Return the number of drafts with the best mean quality on dev, the smallest among ties."""
    quality = PreparedRecording.of(dev).recording.column(METRIC)
    return f"fixed_k({1 + int(np.argmax(quality.mean(axis=0)))})"


def _verdicts(found: SemanticProtocol, choice: _Choice) -> list[str]:
    """Return what a reader should take home, the fixed budgets first."""
    fixed = [row.label for row in found.result.rows if row.label.startswith("fixed_k(")]
    qualities = {label: found.result.row(label).metrics[METRIC] for label in fixed}
    best, full = choice.fixed, found.compared.baseline
    listed = ", ".join(figure(value, ".1f", 100) for value in qualities.values())
    lines = [f"By the number of drafts, {fixed[0]} to {fixed[-1]}: {listed} % reach the target."]
    if best != full:
        difference = found.compared.differences[best][METRIC]
        saved = 1 - found.replayed.rounds[best].mean() / found.replayed.rounds[full].mean()
        lines.append(
            f"{best}, the best of them on dev, saves {figure(saved, '.0f', 100)} % of the drafts and changes quality by "
            f"{figure(difference.delta, '+.1f', 100)} points [{figure(difference.low, '+.1f', 100)}, {figure(difference.high, '+.1f', 100)}] against all five"
            + (": nothing fixed is better here." if qualities[best] == max(qualities.values()) else ".")
        )
    rule = found.result.row("judge_free")
    dominating = rule.dominated_by
    lines.append(
        f"Stopping on convergence ({rule.rule}) takes {figure(found.replayed.rounds['judge_free'].mean(), '.2f')} drafts and reaches "
        f"{figure(rule.metrics[METRIC], '.1f', 100)} %: "
        + (f"DOMINATED by {dominating}, a rule is not worth having here." if dominating else "not dominated.")
    )
    lines.append(f"Do drafts converge? {found.convergence.verdict.capitalize()}.")
    return lines + _about_choice(choice)


def _about_choice(choice: _Choice) -> list[str]:
    judged, row, delta = choice.judged, choice.judged.row(choice.best), choice.against_fixed.deltas[METRIC]
    n = sum(found.calls == 0 for found in judged.rows)
    asked = judged.row("judge_until(centroid)")
    return [
        (
            f"All five drafts written, {choice.best} (on dev the best of {n} ways without a judge) returns "
            f"{figure(row.quality, '.1f', 100)} % instead of {figure(judged.last, '.1f', 100)} %: {_share(row.gap)} of the oracle's gap; against "
            f"{choice.fixed}, which writes fewer, {figure(delta.delta, '+.1f', 100)} points "
            f"[{figure(delta.low, '+.1f', 100)}, {figure(delta.high, '+.1f', 100)}]."
        ),
        (
            f"Asking the judge from the centroid outwards until it is content closes {_share(asked.gap)} with "
            f"{figure(asked.calls, '.2f')} calls instead of {figure(judged.row('judge_all').calls, '.2f')}; the judge is the measure itself "
            "here, so this is the best case."
        ),
    ]


def _share(gap: tuple[float, float, float]) -> str:
    return (
        "no gap"
        if gap[0] != gap[0]
        else f"{figure(gap[0], '.0f', 100)} % [{figure(gap[1], '.0f', 100)}, {figure(gap[2], '.0f', 100)}]"
    )


def _show(name: str, found: SemanticProtocol, judged: JudgedComparison, lines: list[str], page: Path) -> None:
    say(f"\n{name}", bold=True)
    for line in lines:
        _say(f"- {line}")
    _say(found.tuned.sentence())
    console.print()
    for table in found.tables():
        if table.title.startswith(_SHOWN):
            print_table(table)
    print_table(judged.table())
    _say(f"{page}: all tables, figures and a threshold to move; open it in a browser, it needs no network")


def _say(text: str) -> None:
    say(text)


def _page(found: SemanticProtocol, judged: JudgedComparison, lines: list[str], name: str) -> str:
    """Return the protocol's page, with the verdicts before it and the choice among drafts behind it."""
    report = protocol_report(found, name)
    verdicts = ReportPart(title="In short", sentences=tuple(lines))
    choice = ReportPart(title="Which draft to return", tables=(judged.table(),))
    cells = tuple(replace(cell, parts=(verdicts, *cell.parts, choice)) for cell in report.cells)
    return render_html(replace(report, cells=cells))
