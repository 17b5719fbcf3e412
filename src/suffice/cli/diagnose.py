"""`suffice diagnose`: examine a recording's signals, calibrators and stops, without a call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from suffice.cli import options
from suffice.cli.console import status
from suffice.cli.groups import RecordingPath
from suffice.cli.options import Where, chosen_loop, tune_of_loop, where_words
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.common.files import quoted
from suffice.evaluation.replay.outcomes import needed_metric, outcome
from suffice.recordings import read_recording
from suffice.verdicts.diagnostics import diagnose

_SIGNAL_DETAILS = {"unit", "separation", "entropy", "values", "mode", "collapse"}


def diagnose_command(
    path: options.Recorded,
    resampling: options.ResamplingOptions,
    output: Output,
    where: Where = None,
    tune: Annotated[
        RecordingPath | None,
        typer.Option("--tune", help="A recording of tune questions: fits calibrators, measures drift."),
    ] = None,
    policy: Annotated[Path | None, typer.Option("--policy", help="A policy file, whose stops are examined.")] = None,
    rule: Annotated[
        str | None, typer.Option("--rule", help="A rule instead: a name or its text; calibrated on --tune if need be.")
    ] = None,
    cells: Annotated[
        list[RecordingPath] | None,
        typer.Option("--cells", help="A recording of another model or corpus; may be repeated."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", help="When an answer is right: em (default), 'f1 > 0.5', agreement, or a column of 0 and 1."
        ),
    ] = None,
    quality: Annotated[
        str | None,
        Setting("statistics", "quality", help="The quality of a policy's answers; default: f1 where recorded."),
    ] = None,
    baseline: options.Baseline = None,
    type_column: Annotated[str, Setting("statistics", "types", help="The column of question types.")] = "question_type",
) -> None:
    """It covers drift, calibrators, thresholds, types of questions and premature stops; no call is made.

    Example: suffice diagnose eval.parquet --tune tune.parquet --rule tasr
    """
    if policy is not None and rule is not None:
        raise typer.BadParameter("give a policy file or a rule, not both", param_hint="--rule")
    recording = chosen_loop(read_recording(path), where)
    if metric is not None:  # if only the default metric is missing, a note says so
        outcome(recording, metric)
    with status("diagnosing", quiet=output.as_json):
        result = diagnose(
            recording,
            policy=rule if policy is None else options.load_policy(policy),
            tune=None if tune is None else tune_of_loop(read_recording(tune), where),
            cells={
                name: read_recording(file) for name, file in zip(_cell_names(cells or []), cells or (), strict=True)
            },
            metric=metric or "em",
            quality=quality,
            baseline=options.read_baseline(baseline),
            type_column=type_column,
            name=path.stem,
            resampling=resampling.value,
        )
    words = options.metric_words(quality or metric or needed_metric(recording))
    then = f"suffice report {quoted(path)}{where_words(where)} -o report.html{words}"
    if policy is None and rule is None:
        then = f"suffice diagnose {quoted(path)}{where_words(where)} --rule answer_stable{options.metric_words(metric)}"
    output.show(result.to_dict(), Screen(tables=result.tables(), notes=result.notes, aside=_SIGNAL_DETAILS, then=then))


def _cell_names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each cell: the file's name, preceded by its folder's name if several files have the same name."""
    stems = [path.stem for path in paths]
    return [
        f"{path.parent.name}/{stem}" if stems.count(stem) > 1 else stem for path, stem in zip(paths, stems, strict=True)
    ]
