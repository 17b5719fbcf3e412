"""`suffice report`: write the figures of a replay as one page that opens from disk, or as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from suffice.cli import options
from suffice.cli.console import print_text, status
from suffice.cli.groups import RecordingPath, command_line
from suffice.cli.offline import TEXT_RULES
from suffice.cli.options import Where, chosen_loop, tune_of_loop, where_words
from suffice.cli.output import Output, Screen
from suffice.common.files import check_file, quoted, write_file
from suffice.common.tables import FORMATS, render
from suffice.evaluation.replay import calibrate, policy_for, prices_of
from suffice.evaluation.replay.checks import with_guarded
from suffice.evaluation.replay.outcomes import default_metrics, outcome
from suffice.policy.calibration import CALIBRATED
from suffice.policy.rules import parse_rule
from suffice.policy.session import Policy
from suffice.presentation import Report, Settings, make_report, render_html
from suffice.presentation.trajectories import evidence
from suffice.recordings import Recording, read_recording

_PAGE = Path("report.html")


def report_command(
    context: typer.Context,
    paths: Annotated[
        list[RecordingPath], typer.Argument(metavar="RECORDING...", help="Recorded rounds; one or several.")
    ],
    compared: options.Compared,
    resampling: options.ResamplingOptions,
    output: Output,
    where: Where = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; default: report.html, or standard output for text.")
    ] = None,
    tune: Annotated[
        RecordingPath | None, typer.Option("--tune", help="A recording of tune questions: fits rules and shows drift.")
    ] = None,
    questions: Annotated[
        str | None,
        typer.Option("--questions", help="The data set that was recorded: shows titles and texts of the evidence."),
    ] = None,
    prices: options.Prices = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include every trajectory, however large the page becomes.")
    ] = False,
    form: Annotated[str, typer.Option("--format", help=f"html, {', '.join(FORMATS)} or json.")] = "html",
) -> None:
    """The page holds trade-offs, a threshold to move and every question; it needs no network.

    Example: suffice report run.parquet --rule answer_stable -o report.html
    """
    options.allowed(form, ("html", *FORMATS, "json"), "--format")
    recordings = _recordings_of(paths, where)
    tune_recording = None if tune is None else tune_of_loop(read_recording(tune), where)
    target = _PAGE if out is None and form == "html" else out
    if target is not None:
        check_file(target)
    settings = Settings(
        metrics=tuple(compared.metric or min(map(default_metrics, recordings.values()), key=len)),
        baseline=options.read_baseline(compared.baseline),
        resampling=resampling.value,
        margins=compared.margins,
        command=command_line(context, "out", "form", "as_json", "details", "everything", "questions"),
    )
    with status("replaying"):
        report = make_report(
            recordings,
            _policies_of(next(iter(recordings.values())), compared, tune_recording),
            tune=tune_recording,
            settings=settings,
            prices={name: prices_of(prices, recording) for name, recording in recordings.items()},
        )
        if form == "html":
            text = render_html(
                report, everything=everything, passages=None if questions is None else evidence(questions)
            )
        else:
            text = _report_text(report, form)
    if target is not None:
        write_file(target, text)
    elif not output.as_json and form != "json":
        print_text(text)
        return
    data = {"report": None if target is None else str(target), **report.to_dict()}
    replace(output, as_json=output.as_json or target is None).show(
        data,
        _report_screen(
            report,
            target,
            _next_command(f"{quoted(paths[0])}{where_words(where)}", next(iter(recordings.values())), compared),
        ),
    )


def _report_screen(report: Report, target: Path | None, then: str) -> Screen:
    sentences, notes = [], []
    for cell in report.cells:
        first = cell.headlines[0]
        sentences.append(first.sentence)
        notes += [*first.caveats, *(headline.certificate for headline in cell.headlines if headline.certificate)]
    size = 0.0 if target is None else target.stat().st_size / 1e6
    return Screen(
        sentences=sentences, notes=notes, files={"report": f"{target} ({size:.1f} MB; it needs no network)"}, then=then
    )


def _next_command(words: str, recording: Recording, compared: options.Compared) -> str:
    """Return the next command: `suffice certify` for a policy file, else `suffice diagnose`.

    If the metric has values other than 0 and 1, the command `suffice diagnose` gets a threshold on the metric.
    """
    metric = compared.metric[0] if compared.metric else None
    if compared.policy:
        asked = options.metric_words(metric)
        return f"suffice certify FRESH.parquet --max-loss 0.02 --policy {quoted(compared.policy[0])}{asked}"
    values = np.zeros(1) if metric is None else outcome(recording, metric)
    if not np.isin(values[np.isfinite(values)], (0, 1)).all():
        metric = f"{metric} > 0.5"
    return f"suffice diagnose {words}{options.metric_words(metric)}"


def _recordings_of(paths: Sequence[Path], where: Sequence[str] | None) -> dict[str, Recording]:
    """Return the rounds that `--where` chooses in each recording, by file name; repeated names get a number."""
    recordings: dict[str, Recording] = {}
    for path in paths:
        same = sum(name.partition(" #")[0] == path.stem for name in recordings)
        recordings[path.stem if same == 0 else f"{path.stem} #{same + 1}"] = chosen_loop(read_recording(path), where)
    return recordings


def _policies_of(recording: Recording, compared: options.Compared, tune: Recording | None) -> list[Policy]:
    """Return the policies from files and rules; calibrators that a rule needs are fitted on the tune questions."""
    policies = compared.files()
    usual = ("tasr", *TEXT_RULES) if tune is not None else TEXT_RULES
    texts = compared.rule or (() if policies else usual)
    start = options.start_of(compared.start_round, texts)
    for text in texts:
        fitted = text != "full" and set(parse_rule(text).signals) & set(CALIBRATED)
        known = set(recording.table.column_names)
        if tune is not None and fitted and not fitted <= known:
            policies.append(calibrate(tune, rule=text, **start)[0])
        else:
            policies.append(policy_for(recording, text, **start))
    return with_guarded(policies, recording)


def _report_text(report: Report, form: str) -> str:
    if form == "json":
        return json.dumps(report.to_dict(), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    return render([*report.tables(), report.provenance()], form)
