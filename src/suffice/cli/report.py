"""`suffice report`: everything that a replay shows, as one page that opens from disk, or as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from suffice.calibration import CALIBRATED
from suffice.cli import options
from suffice.cli.console import errors, print_json, print_text, say
from suffice.cli.groups import command_line
from suffice.cli.offline import TEXT_RULES, prices_for, with_guarded
from suffice.files import check_file, write_file
from suffice.replays import calibrate, policy_for
from suffice.replays.outcomes import default_metrics
from suffice.reports import Report, Settings, make_report, render_html
from suffice.retrieval import load_questions
from suffice.rounds import Passage
from suffice.rules import parse_rule
from suffice.session import Policy
from suffice.store import Recording, read_recording
from suffice.tables import FORMATS, render

__all__ = ["evidence", "report_command"]

_PAGE = Path("report.html")


def report_command(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(metavar="RECORDING...", help="Recorded rounds; one or several.")],
    resampling: options.ResamplingOptions,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; default: report.html, or standard output for text.")
    ] = None,
    policy: Annotated[list[Path] | None, typer.Option("--policy", help="A policy file; may be repeated.")] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", help="A rule: a name or its text; may be repeated.")
    ] = None,
    tune: Annotated[
        Path | None, typer.Option("--tune", help="A recording of tune questions: fits rules and shows drift.")
    ] = None,
    questions: Annotated[
        str | None,
        typer.Option("--questions", help="The data set that was recorded: shows titles and texts of the evidence."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", help="f1, em, contains, agreement, or a column in [0, 1]; the first is the quality."),
    ] = None,
    baseline: options.Baseline = None,
    margin: Annotated[
        list[float] | None, typer.Option("--margin", help="For non-inferiority and equivalence; may be repeated.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="USD per million tokens by model or component (TOML or JSON).")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Hold every trajectory, however large the page becomes.")
    ] = False,
    form: Annotated[str, typer.Option("--format", help=f"html, {', '.join(FORMATS)} or json.")] = "html",
    start_round: options.StartRound = None,
    as_json: options.AsJson = False,
) -> None:
    """The page holds trade-offs, a threshold to move and every question; it needs no network.

    Example: suffice report run.parquet --rule answer_stable -o report.html
    """
    options.allowed(form, ("html", *FORMATS, "json"), "--format")
    recordings = _read(paths)
    tuned = None if tune is None else read_recording(tune)
    target = _PAGE if out is None and form == "html" else out
    if target is not None:
        check_file(target)
    settings = Settings(
        metrics=tuple(metric or min(map(default_metrics, recordings.values()), key=len)),
        baseline=options.read_baseline(baseline),
        resampling=resampling.value,
        margins=tuple(margin or (0.02,)),
        command=command_line(context, "out", "form", "as_json", "everything", "questions"),
    )
    with errors.status("replaying") if errors.is_terminal else nullcontext():
        report = make_report(
            recordings,
            _policies(next(iter(recordings.values())), policy or (), rule or (), tuned, start_round),
            tune=tuned,
            settings=settings,
            prices={name: prices_for(prices, recording) for name, recording in recordings.items()},
        )
        text = _page(report, everything, questions) if form == "html" else _text(report, form)
    if target is not None:
        write_file(target, text)
    if as_json or (form == "json" and target is None):
        print_json({"report": None if target is None else str(target), **report.to_dict()})
    elif target is None:
        print_text(text)
    else:
        _show(report, target)


def _page(report: Report, everything: bool, questions: str | None) -> str:
    return render_html(report, everything=everything, passages=None if questions is None else evidence(questions))


def evidence(questions: str) -> dict[str, dict[str, Passage]]:
    """Return the passages of a data set by question id, then passage id."""
    loaded = load_questions(questions)
    return {one.question_id: {passage.passage_id: passage for passage in one.passages} for one in loaded}


def _show(report: Report, target: Path) -> None:
    for cell in report.cells:
        first = cell.headlines[0]
        say(first.sentence)
        certificates = [told.certificate for told in cell.headlines if told.certificate]
        for text in (*first.caveats, *certificates):
            say(f"note: {text}")
    size = f"{target.stat().st_size / 1e6:.1f} MB"
    say(f"report written to {target} ({size}; it needs no network)")


def _read(paths: Sequence[Path]) -> dict[str, Recording]:
    """Return recordings by the name of their file; two of one name are told apart by a number."""
    found: dict[str, Recording] = {}
    for path in paths:
        same = sum(name.partition(" #")[0] == path.stem for name in found)
        found[path.stem if same == 0 else f"{path.stem} #{same + 1}"] = read_recording(path)
    return found


def _policies(
    recording: Recording,
    files: Sequence[Path],
    rules: Sequence[str],
    tune: Recording | None,
    start_round: int | None = None,
) -> list[Policy]:
    """Return the policies of files and rules; a rule that needs a calibrator is fitted on the tune questions."""
    policies = [Policy.load(file) for file in files]
    usual = ("tasr", *TEXT_RULES) if tune is not None else TEXT_RULES
    texts = rules or (() if policies else usual)
    start = options.start_of(start_round, texts)
    for text in texts:
        fitted = text != "full" and set(parse_rule(text).signals) & set(CALIBRATED)
        known = set(recording.table.column_names)
        if tune is not None and fitted and not fitted <= known:
            policies.append(calibrate(tune, rule=text, **start)[0])
        else:
            policies.append(policy_for(recording, text, **start))
    return with_guarded(policies, recording)


def _text(report: Report, form: str) -> str:
    if form == "json":
        return json.dumps(report.to_dict(), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    return render([*report.tables(), report.provenance()], form)
