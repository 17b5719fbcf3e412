"""Cells of TASR: calibrate, replay and certify each cell, then make the paper's tables and further tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.cli.certify import certify_path
from suffice.common.tables import Column, Table, counted
from suffice.errors import DataError, SufficeError
from suffice.evaluation.replay import calibrate, replay
from suffice.evaluation.statistics import Resampling
from suffice.recordings import merge_recordings, read_recording
from suffice_papers.experiments.calibrations import curve_table, floor_table, transfer_table
from suffice_papers.experiments.checks import cell_prices, listed_cell
from suffice_papers.experiments.choices import SPLITS
from suffice_papers.experiments.plan import Experiment
from suffice_papers.experiments.rival_cells import WaysOfAsking
from suffice_papers.experiments.stages import CellFolder, write_result
from suffice_papers.experiments.variance import RunValues, Shown, runs_tables
from suffice_papers.paper import NOT_MADE, Paper, not_made_table
from suffice_papers.tasr.cells import CellRuns, TasrCell, load_cell
from suffice_papers.tasr.frontier import tasr_figures
from suffice_papers.tasr.tasr_tables import paper_of_cells


def evaluate_tasr(folder: CellFolder) -> None:
    """Write a cell's policy, fitted on its tune questions, and the policy's replay and certificate on the eval questions.

    A rival is only compared, so nothing is written for it.
    """
    if folder.cell.rival is not None:
        return
    tune, evaluation = (read_recording(folder.recording(split)) for split in SPLITS)
    experiment = folder.experiment
    for name in ("replay.json", "certificate.json"):  # of an earlier policy, which is gone
        folder.file(name).unlink(missing_ok=True)
    policy = write_result(
        folder.file("policy.json"), lambda: calibrate(tune, rule="tasr", max_rounds=experiment.max_rounds)[0]
    )
    if isinstance(policy, SufficeError):
        return
    write_result(
        folder.file("replay.json"),
        lambda: replay(
            evaluation,
            [policy],
            metrics=("f1", "em"),
            baseline="fixed_k(3)",
            resampling=experiment.resampling,
            prices=cell_prices(folder.cell, experiment) or None,
        ),
    )
    write_result(
        folder.file("certificate.json"),
        lambda: certify_path(evaluation, tune, policy, "p_correct", experiment.claim),
    )


def tasr_cell(folder: CellFolder) -> TasrCell:
    """Return a cell of the paper's tables: one run of a configuration."""
    tune, evaluation = (with_all_prompts(folder, split) for split in SPLITS)
    return listed_cell(folder.cell, folder.experiment, tune, evaluation)


def with_all_prompts(folder: CellFolder, split: str) -> Path:
    """Return the path of a recording merged over all prompts, since the search of 381 rules needs two prompts."""
    experiment, path = folder.experiment, folder.recording(split)
    if len(experiment.prompts) == 1:
        return path
    cell = experiment.tune_cell(folder.cell) if split == "tune" else folder.cell
    others = [CellFolder(folder.out, replace(cell, prompt=name), experiment) for name in experiment.prompts]
    paths = [other.file(f"{split}.parquet") for other in others if not other.pending(split, cell.data.questions(split))]
    if len(paths) == 1:  # the cells of the other prompts failed
        return path
    place = "-".join([cell.model.name, cell.data.name, cell.retriever.name, f"seed-{cell.seed}"])
    merged = folder.out / "prompts" / f"{place}-{split}.parquet"
    merged.parent.mkdir(parents=True, exist_ok=True)
    merge_recordings(merged, paths)
    return merged


def _certified(folder: CellFolder) -> Mapping[str, Any]:
    """Return the verdict of a cell's certificate, or the reason why the cell has no certificate."""
    path = next(path for path in (folder.file("certificate.json"), folder.file("policy.json")) if path.is_file())
    values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return {"cell": folder.cell.name, **{key: values.get(key) for key in ("problem", "headline", "certified", "n")}}


def tasr_paper(
    folders: Sequence[CellFolder],
    experiment: Experiment,
    *,
    command: str,
    on_table: Callable[[str, int, int], None] | None,
) -> Paper:
    """Return the paper's tables of the first run of each configuration, and tables on runs, calibrations and rivals."""
    resampling = experiment.resampling
    for folder in folders:
        evaluate_tasr(folder)
    ways = WaysOfAsking(folders, experiment)
    folders = [folder for folder in folders if folder.cell.rival is None]
    by_configuration: dict[str, list[CellRuns]] = {}
    for folder in folders:
        loaded = load_cell(tasr_cell(folder), resampling=resampling)
        by_configuration.setdefault(folder.cell.configuration, []).append(loaded)
    first = [cells[0] for cells in by_configuration.values()]
    paper = paper_of_cells(first, resampling=resampling, command=command, on_progress=on_table)
    added: list[Table] = []
    not_made = dict(paper.not_made)
    parts: dict[str, Callable[[], Sequence[Table]]] = {
        "Ways of asking": ways.tables,
        "Certificates": lambda: [_certificates_table(folders, experiment)],
        "Runs": lambda: _tasr_runs(by_configuration, resampling),
        "Learning curve": lambda: [
            curve_table(first, experiment.tune_sizes, experiment.tune_draws, resampling),
        ],
        "Floor": lambda: [floor_table(first, resampling)],
        "Transferred calibration": lambda: [transfer_table(first, resampling)],
    }
    for name, part in parts.items():
        try:
            added += part()
        except DataError as error:
            not_made[name] = str(error)
    origin, cells, *rest = paper.parts
    repeated = sum(len(runs) > 1 for runs in by_configuration.values())
    note = (
        f"tables and figures of the paper are those of the first run of each configuration; {repeated} of "
        f"{len(by_configuration)} have more runs, see Runs"
    )
    scripted = [
        f"{model.name} is a script and no model: its figures say nothing about any model"
        for model in experiment.models
        if model.scripted
    ]
    cells = replace(cells, notes=(note, *ways.left_out, *scripted, *cells.notes))
    rest = [table for table in rest if table.title != NOT_MADE]
    return replace(
        paper,
        title=f"The tables of TASR: {experiment.path.stem}",
        headline=" ".join([paper.headline, *ways.sentences]),
        summary=ways.summary or paper.summary,
        parts=(origin, cells, *rest[:-1], *added, *not_made_table(not_made), rest[-1]),
        not_made=not_made,
    )


_TASR_FIGURES = {
    "f1": Shown(heading="F1", scale=100),
    "delta": Shown(heading="ΔF1 vs k=3", spec="+.2f", scale=100),
    "calls": Shown(heading="calls"),
}


def _tasr_runs(by_configuration: Mapping[str, Sequence[CellRuns]], resampling: Resampling) -> list[Table]:
    runs, notes = {}, []
    for name, cells in by_configuration.items():
        usable = [cell for cell in cells if cell.runs]
        if without := [cell.problem for cell in cells if not cell.runs]:
            notes.append(f"left out, {name}: {len(without)} of {counted(len(cells), 'run')}: {without[0]}")
        if not usable:
            continue
        runs[name] = [
            RunValues(values=tasr_figures(c), questions=tuple(c.eval.question_ids), clusters=c.eval.clusters)
            for c in usable
        ]
    return runs_tables(runs, _TASR_FIGURES, resampling, notes)


def _certificates_table(folders: Sequence[CellFolder], experiment: Experiment) -> Table:
    rows = []
    for folder in folders:
        values = _certified(folder)
        verdict = "not possible" if values["problem"] else "certified" if values["certified"] else "not certified"
        rows.append((folder.cell.name, verdict, values["n"], values["problem"] or values["headline"]))
    title = (
        f"Certificates: the expected loss of F1 against the full budget is at most {100 * experiment.max_loss:g} points, with "
        f"{100 * experiment.confidence:g} % confidence, along the floor on p_correct"
    )
    columns = (
        Column("cell"),
        Column("verdict"),
        Column("questions", ",.0f"),
        Column("what was certified, or what is missing"),
    )
    note = "each certificate holds for its own cell with its own confidence: that all of several hold is less certain"
    return Table(title=title, columns=columns, rows=tuple(rows), notes=(note,))
