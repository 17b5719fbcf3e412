"""`suffice diagnose`: what a recording tells about its signals, calibrators and stops, without a call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suffice.cli import options
from suffice.cli.console import errors, present, print_json
from suffice.diagnostics import Diagnosis, diagnose
from suffice.replays.outcomes import outcome
from suffice.session import Policy
from suffice.store import read_recording

__all__ = ["diagnose_command", "show_diagnosis"]


def diagnose_command(
    path: Annotated[Path, typer.Argument(metavar="RECORDING", help="Recorded rounds.")],
    resampling: options.ResamplingOptions,
    tune: Annotated[
        Path | None, typer.Option("--tune", help="A recording of tune questions: fits calibrators, measures drift.")
    ] = None,
    policy: Annotated[Path | None, typer.Option("--policy", help="A policy file: whose stops to look into.")] = None,
    rule: Annotated[
        str | None, typer.Option("--rule", help="A rule instead: a name or its text; calibrated on --tune if need be.")
    ] = None,
    cells: Annotated[
        list[Path] | None, typer.Option("--cells", help="A recording of another model or corpus; may be repeated.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="What is right: em (default), 'f1 > 0.5', agreement, or a column of 0 and 1."),
    ] = None,
    quality: Annotated[
        str | None, typer.Option("--quality", help="The quality of a policy's answers; default: f1 where recorded.")
    ] = None,
    baseline: options.Baseline = None,
    type_column: Annotated[str, typer.Option("--types", help="The column of question types.")] = "question_type",
    details: options.Details = False,
    as_json: options.AsJson = False,
) -> None:
    """It covers drift, calibrators, thresholds, types of questions and premature stops; no call is made.

    Example: suffice diagnose eval.parquet --tune tune.parquet --rule tasr
    """
    if policy is not None and rule is not None:
        raise typer.BadParameter("give a policy file or a rule, not both", param_hint="--rule")
    recording = read_recording(path)
    if metric is not None:  # the default may be missing, and a note then says so
        outcome(recording, metric)
    with errors.status("diagnosing"):
        found = diagnose(
            recording,
            policy=rule if policy is None else Policy.load(policy),
            tune=None if tune is None else read_recording(tune),
            cells={name: read_recording(file) for name, file in zip(_names(cells or []), cells or (), strict=True)},
            metric=metric or "em",
            quality=quality,
            baseline=options.read_baseline(baseline),
            type_column=type_column,
            name=path.stem,
            resampling=resampling.value,
        )
    if as_json:
        print_json(found.to_dict())
    else:
        show_diagnosis(found, details=details)


def _names(paths: list[Path]) -> list[str]:
    """Return a name for each cell: the file's, with its folder's where several files share it."""
    stems = [path.stem for path in paths]
    return [
        f"{path.parent.name}/{stem}" if stems.count(stem) > 1 else stem for path, stem in zip(paths, stems, strict=True)
    ]


def show_diagnosis(found: Diagnosis, *, details: bool = False) -> None:
    """Print the signals and what is missing on one screen, or every table."""
    present([], found.tables(), found.notes, details=details)
