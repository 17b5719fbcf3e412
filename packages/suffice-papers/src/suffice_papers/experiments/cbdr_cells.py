"""Cells of CBDR: run the pipeline on a local model and collect its tables; the pipeline resumes from its own journals."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from suffice._version import __version__
from suffice.common.files import write_file
from suffice.common.results import jsonable
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling
from suffice.loops.models.prompts import prompt
from suffice.loops.retrieval import Question
from suffice_papers.cbdr.cbdr_tables import paper_cbdr
from suffice_papers.cbdr.names import display_name
from suffice_papers.cbdr.plan import CbdrSettings, divide
from suffice_papers.cbdr.run import CbdrRun, run_cbdr
from suffice_papers.experiments.building import content_of, stated_options
from suffice_papers.experiments.plan import Experiment
from suffice_papers.experiments.stages import CellFolder, StageOutcome, json_of
from suffice_papers.experiments.stored_tables import read_paper, stored_value, write_paper
from suffice_papers.experiments.variance import NOT_KNOWN, repeated
from suffice_papers.paper import Paper, origin_table

_WORK = "work"
_FINISHED = "settings.json"
"""The settings that the tables of a finished cell were made with."""


def all_questions(folder: CellFolder) -> list[Question]:
    """Return all questions of a cell; the pipeline divides them itself."""
    return [question for split in folder.cell.data.splits for question in folder.cell.data.questions(split)]


def pipeline_settings(folder: CellFolder) -> CbdrSettings:
    """Return the settings of a cell's pipeline, with its seed."""
    seed = folder.cell.seed
    return replace(
        folder.experiment.cbdr.settings, seed=seed, resampling=replace(folder.experiment.resampling, seed=seed)
    )


def run_cbdr_cell(folder: CellFolder, report: Callable[[str, int, int], None] | None) -> StageOutcome:
    """Run or resume the pipeline of a cell; no model is loaded if the cell's tables are finished.

    Args:
        folder: The cell.
        report: Called with the name of a stage, the number of units of the stage that are done, and the number of all
            its units.
    """
    finished = is_finished(folder)
    if not finished:
        folder.file(_FINISHED).unlink(missing_ok=True)  # an interruption must not leave new tables under old settings
        _run_pipeline(folder, report)
        write_file(folder.file(_FINISHED), json.dumps(jsonable(_settings(folder)), indent=1, sort_keys=True) + "\n")
    return StageOutcome(cell=folder.cell.name, stage="cbdr", done=not finished)


def is_finished(folder: CellFolder) -> bool:
    """Return whether a cell has tables that were made with the present settings."""
    files = [folder.file(name) for name in (_FINISHED, "paper.json", "figures.json")]
    return all(file.is_file() for file in files) and bool(json_of(files[0]) == jsonable(_settings(folder)))


def has_begun(folder: CellFolder) -> bool:
    """Return whether a cell's pipeline has answered anything yet."""
    return any((folder.file(_WORK) / "answers").glob("*.journal"))


def check_cell(folder: CellFolder) -> None:
    """Raise if a cell's questions cannot be divided into the pipeline's parts.

    Raises:
        DataError: The questions cannot be divided; the message says why.
    """
    divide(all_questions(folder), pipeline_settings(folder))


def _settings(folder: CellFolder) -> dict[str, Any]:
    """Return all settings that the tables of a cell depend on, JSON-ready."""
    chosen = folder.experiment.cbdr
    elsewhere = {name: _settings(other) for name, other in _aligned_before(folder).items()}
    return {
        "model": stated_options(folder.cell.model.options),
        "prompt": prompt(folder.cell.prompt).pin,
        "questions": [list(folder.cell.data.hashes(split).values()) for split in folder.cell.data.splits],
        "cross-encoders": [content_of(name) for name in (chosen.cross_encoder, *chosen.others)],
        **({"aligned elsewhere": elsewhere} if elsewhere else {}),
        "layers": list(chosen.layers),
        "settings": asdict(pipeline_settings(folder)),
        "suffice": __version__,
    }


def _aligned_before(folder: CellFolder) -> dict[str, CellFolder]:
    """Return the folders of earlier cells whose aligned rerankers are compared in this cell."""
    cells = folder.experiment.aligned_before(folder.cell)
    return {name: CellFolder(folder.out, cell, folder.experiment) for name, cell in cells.items()}


def rerankers_by_name(folder: CellFolder, *, is_pilot: bool = False) -> dict[str, str]:
    """Return the cross-encoders that a cell compares without training them, by their name in the tables.

    In a pilot, the reranker before alignment takes the place of rerankers that other cells have not aligned yet.

    Raises:
        DataError: An earlier cell, whose aligned reranker is to be compared, has not aligned one.
    """
    named = {display_name(name): name for name in folder.experiment.cbdr.others}
    for name, other in _aligned_before(folder).items():
        path = other.file(_WORK) / "reranker"
        if not path.is_dir() and not is_pilot:
            raise DataError(f"the cell {other.cell.name} has no aligned reranker to compare, as it failed: run again")
        named[aligned_name(name)] = str(path) if path.is_dir() else folder.experiment.cbdr.cross_encoder
    return named


def aligned_name(cell: str) -> str:
    """Return the name, in the tables, of the reranker that another cell aligned."""
    return f"aligned, {cell}"


def open_target(folder: CellFolder) -> Any:
    """Load the model of a cell."""
    options = folder.cell.model.options
    layers = [int(layer) if layer.isdecimal() else layer for layer in folder.experiment.cbdr.layers]
    return options.open(options.model, prompt(folder.cell.prompt), layers=layers, max_tokens=options.max_tokens)


def rerankers_device(folder: CellFolder) -> str | None:
    """Return the device of a cell's rerankers: the model's device, or None if the model is spread over all devices."""
    device: str | None = folder.cell.model.options.device
    return None if device == "auto" else device


def _run_pipeline(folder: CellFolder, report: Callable[[str, int, int], None] | None) -> None:
    chosen = folder.experiment.cbdr
    run = run_cbdr(
        all_questions(folder),
        open_target(folder),
        chosen.cross_encoder,
        folder.file(_WORK),
        others=rerankers_by_name(folder),
        settings=pipeline_settings(folder),
        device=rerankers_device(folder),
        on_progress=report,
    )
    paper = paper_cbdr(run, model=folder.cell.model.name, reranker=chosen.cross_encoder, data=folder.cell.data.name)
    write_file(folder.file("figures.json"), json.dumps(_accuracies(run), indent=1) + "\n")
    write_paper(folder.file("paper.json"), paper)


def _accuracies(run: CbdrRun) -> list[dict[str, Any]]:
    """Return the accuracy of every order and depth, and the share of known questions."""
    known = {"figure": "known without passages", "value": run.known, "low": None, "high": None}
    return [known] + [
        {"figure": f"accuracy, {order}, top-{depth}", "value": value, "low": low, "high": high}
        for (order, depth), (value, low, high) in run.accuracy.items()
    ]


def cbdr_paper(
    folders: Sequence[CellFolder],
    experiment: Experiment,
    *,
    command: str,
    on_table: Callable[[str, int, int], None] | None,
) -> Paper:
    """Return the tables of the first run of each configuration, and the accuracies of all runs."""
    del on_table  # nothing takes long here
    papers: dict[str, Paper] = {}
    figures: dict[str, list[list[dict[str, Any]]]] = {}
    for folder in folders:
        name = folder.cell.configuration
        papers.setdefault(name, read_paper(folder.file("paper.json")))
        figures.setdefault(name, []).append(json.loads(folder.file("figures.json").read_text("utf-8")))
    name, first = next(iter(papers.items()))
    several = len(papers) > 1
    parts = [
        replace(table, title=f"{cell}. {table.title}") if several else table
        for cell, paper in papers.items()
        for table in paper.parts
    ]
    facts = (("command", command or "run_experiment"), ("cells", ", ".join(papers)))
    return Paper(
        title=f"The tables of CBDR: {experiment.path.stem}",
        headline=f"{name}: {first.headline}" if several else first.headline,
        summary=first.summary,
        parts=(origin_table(facts), _accuracy_runs(figures, experiment.resampling), *parts),
        figures=tuple(
            replace(figure, name=f"{cell.replace('/', '-')}-{figure.name}", caption=f"{cell}. {figure.caption}")
            for cell, paper in papers.items()
            for figure in paper.figures
        ),
    )


def _accuracy_runs(figures: dict[str, list[list[dict[str, Any]]]], resampling: Resampling) -> Table:
    """Return a table of accuracies, with an interval over questions (first run) and one over the runs' means."""
    rows: list[tuple[Any, ...]] = []
    for name, runs in figures.items():
        for place, one in enumerate(runs[0]):
            mean = repeated(np.array([[run[place]["value"]] for run in runs]), resampling)
            over_runs = NOT_KNOWN if mean.runs is None else (mean.mean, *mean.runs)
            over_questions = stored_value([one["value"], one["low"], one["high"]])
            rows.append((name, one["figure"], len(runs), over_questions, over_runs))
    columns = (
        *map(Column, ("configuration", "figure")),
        Column("runs", ".0f"),
        Column("first run, over questions", ".2f", scale=100, interval=True),
        Column("all runs, over runs", ".2f", scale=100, interval=True),
    )
    notes = (
        "over questions: the test questions of the first run",
        f"over runs: Student's t of the runs' means on the same test questions, whose training differs by seed; {NOT_KNOWN} with one run",
    )
    return Table(
        title=f"Runs: accuracy, {100 * resampling.level:g} % intervals",
        columns=columns,
        rows=tuple(rows),
        notes=notes,
    )
