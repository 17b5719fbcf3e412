"""`suffice run`: a whole table from one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from suffice.cli.console import progress_bar, warn
from suffice.cli.groups import command_line
from suffice.cli.output import Output, Screen
from suffice.common.files import quoted
from suffice.loops import Progress
from suffice_papers.experiments.estimate import estimate_experiment
from suffice_papers.experiments.plan import Experiment
from suffice_papers.experiments.reading import read_experiment
from suffice_papers.experiments.run import PAGE, ExperimentRun, run_experiment
from suffice_papers.printing import stage_bar


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
        typer.Option(
            "--pilot",
            min=1,
            help="Only record so many questions of each split, which the whole run keeps; of CBDR, measure each stage on them.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only check the file, and say what is left to ask; with --pilot, after the pilot."
        ),
    ] = False,
) -> None:
    """Record, calibrate, replay and certify every cell, and write tables and one page. Run it again to resume.

    Example: suffice run experiment.toml
    """
    experiment = read_experiment(file, check_files=not dry_run or pilot is not None)
    folder = out or (file.with_suffix("") if file.suffix else file.with_name(f"{file.name}-results"))
    again = f"suffice run {quoted(file)}" if out is None else f"suffice run {quoted(file)} --out {quoted(out)}"
    if dry_run and pilot is None:
        _show_estimate(experiment, folder, output, again)
        return
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
            on_failed=lambda cell, why: warn(f"the cell {cell} fails: {why}"),
        )
    if dry_run:
        _show_estimate(experiment, folder, output, again)
        return
    output.show(result.to_dict(), _screen(result, folder, again))
    if result.failed:
        raise typer.Exit(1)


def _show_estimate(experiment: Experiment, folder: Path, output: Output, again: str) -> None:
    """Show the remaining cost and the problems; exit with 2 if there are problems."""
    estimate = estimate_experiment(experiment, folder)
    again += " --dry-run" * bool(estimate.problems) or " --pilot 5 --dry-run" * estimate.needs_pilot
    screen = Screen(
        sentences=[estimate.sentence, *estimate.problems],
        tables=estimate.tables(),
        notes=[f"problem: {problem}" for problem in estimate.problems],
        shown=1 if estimate.problems else max(1, len(estimate.stages)),
        then=again,
    )
    output.show(estimate.to_dict(), screen)
    if estimate.problems:
        raise typer.Exit(2)


def _screen(result: ExperimentRun, folder: Path, again: str) -> Screen:
    """Return a screen with the run's calls and all tables; only the most important table keeps its notes."""
    if result.paper is None:
        return Screen(sentences=[result.sentence], tables=[result.stages_table()], then=again)
    cell = folder / "cells" / next(outcome.cell for outcome in result.outcomes if outcome.cell)
    evaluation, policy = cell / "eval.parquet", cell / "policy.json"
    then = f"{again} --details"
    if policy.is_file():
        then = f"suffice replay {quoted(evaluation)} --policy {quoted(policy)}"
    return Screen(
        sentences=[f"{result.sentence} {result.paper.headline}"],
        tables=[result.paper.summary, *(replace(table, notes=()) for table in result.tables())],
        files={"tables": folder / "tables", "page": folder / PAGE},
        then=then,
    )
