"""`suffice run`: a whole table from one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from suffice.cli.console import progress_bar
from suffice.cli.groups import command_line
from suffice.cli.output import Output, Screen
from suffice.files import quoted
from suffice.loop import Progress
from suffice.papers.experiments.plan import read_experiment
from suffice.papers.experiments.run import PAGE, ExperimentRun, run_experiment
from suffice.papers.printing import stage_bar

__all__ = ["run_command"]


def run_command(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE.toml", help="The experiment: models, data, retrievers, prompts, seeds.")
    ],
    output: Output,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder of the results; default: beside FILE, with its name.")
    ] = None,
    pilot: Annotated[
        int | None,
        typer.Option("--pilot", min=1, help="Only record so many questions of each split; the whole run keeps them."),
    ] = None,
) -> None:
    """It records, calibrates, replays and certifies every cell, and writes tables and one page. Run it again to resume.

    Example: suffice run experiment.toml
    """
    experiment = read_experiment(file)
    folder = out or file.with_suffix("")
    with progress_bar("recording", quiet=output.as_json) as move, stage_bar() as report:

        def recorded(name: str, progress: Progress) -> None:
            if move is not None:
                move(progress.done + progress.failed, progress.total, name)

        result = run_experiment(
            experiment,
            folder,
            pilot=pilot,
            command=command_line(context, "out", "details", "as_json"),
            on_record=recorded,
            on_table=report,
        )
    output.show(result.to_dict(), _screen(result, file, folder))


def _screen(result: ExperimentRun, file: Path, folder: Path) -> Screen:
    """Return what was asked and the most important table, with its own notes alone."""
    if result.paper is None:
        return Screen(sentences=[result.sentence], tables=[result.stages_table()], then=f"suffice run {quoted(file)}")
    cell = folder / "cells" / result.outcomes[0].cell
    return Screen(
        sentences=[f"{result.sentence} {result.paper.headline}"],
        tables=[result.paper.summary, *(replace(table, notes=()) for table in result.tables())],
        files={"tables": folder / "tables", "page": folder / PAGE},
        then=f"suffice replay {quoted(cell / 'eval.parquet')} --policy {quoted(cell / 'policy.json')}",
    )
