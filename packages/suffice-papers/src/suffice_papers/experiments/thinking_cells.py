"""Cells of chains of thought: rules, fixed budgets, the price of trial answers, and a certificate, on recorded chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from suffice.common.tables import Column, Table
from suffice.errors import SufficeError
from suffice.recordings import read_recording
from suffice_papers.experiments.plan import Experiment
from suffice_papers.experiments.stages import CellFolder
from suffice_papers.paper import Paper, PaperFigure, narrow, not_made_table, origin_table
from suffice_papers.thinking.lines import METRIC
from suffice_papers.thinking.thinking_demo import ThinkingFigures

_SCREEN = ("cell", "stop at", "right, %", "tokens", "trials", "above it", "dominated by")


def thinking_paper(
    folders: Sequence[CellFolder],
    experiment: Experiment,
    *,
    command: str,
    on_table: Callable[[str, int, int], None] | None,
) -> Paper:
    """Return the tables of each cell: the ways to stop its chains, and the price of trial answers.

    Raises:
        SufficeError: The rules can be judged in no cell; the error is that of the first cell.
    """
    figures: dict[str, ThinkingFigures] = {}
    tables: dict[str, tuple[Table, Table]] = {}
    errors: dict[str, SufficeError] = {}
    for number, folder in enumerate(folders):
        name = folder.cell.name
        if on_table is not None:
            on_table(name, number, len(folders))
        try:
            one = _figures(folder)
            tables[name], figures[name] = (one.ways(), one.asking()), one
        except SufficeError as error:
            errors[name] = error
    if not figures:
        raise next(iter(errors.values()))
    facts = (("command", command or "run_experiment"), ("draws", experiment.resampling.text))
    summary = _summary(tables)
    not_made = {name: str(error) for name, error in errors.items()}
    parts = [replace(table, title=f"{name}. {table.title}") for name, made in tables.items() for table in made]
    return Paper(
        title=f"Chains of thought: {experiment.path.stem}",
        headline=" ".join(f"{name}: {one.sentence} {one.proof}" for name, one in figures.items()),
        summary=narrow(summary, _SCREEN),
        parts=(origin_table(facts), summary, *parts, *not_made_table(not_made)),
        not_made=not_made,
        figures=tuple(
            PaperFigure(
                name=name.replace("/", "-"), spec=one.plot().spec, caption=f"{name}. Right answers against tokens"
            )
            for name, one in figures.items()
        ),
    )


def _figures(folder: CellFolder) -> ThinkingFigures:
    tune, test = (read_recording(folder.recording(split)) for split in ("tune", "eval"))
    experiment = folder.experiment
    return ThinkingFigures(
        tune=tune,
        test=test,
        rules={rule: rule for rule in experiment.thinking.rules},
        claim=replace(experiment.claim, metric=METRIC),
        resampling=experiment.resampling,
        noun="questions",
    )


def _summary(tables: dict[str, tuple[Table, Table]]) -> Table:
    """Return a table with two lines for each cell: the chosen rule, and the cell's chains without a stop."""
    ways = next(iter(tables.values()))[0]
    return Table(
        title="The chosen rule of each cell, beside chains without a stop",
        columns=(Column("cell"), *ways.columns),
        rows=tuple((name, *row) for name, (own, _) in tables.items() for row in own.rows[:2]),
        notes=ways.notes,
    )
