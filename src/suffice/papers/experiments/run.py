"""An experiment from its file to its tables: every stage of every cell, then what spans cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suffice.errors import ConfigMismatchError, DataError, ModelError
from suffice.files import file_sha256, write_file
from suffice.loop import Progress
from suffice.papers.experiments.calibrations import curve_table, floor_table, transfer_table
from suffice.papers.experiments.checks import find_problems
from suffice.papers.experiments.plan import Experiment
from suffice.papers.experiments.stages import CellFolder, StageOutcome, evaluate_cell, record_cell, run_stage
from suffice.papers.experiments.stored_tables import read_paper, write_paper
from suffice.papers.experiments.variance import runs_tables
from suffice.papers.page import paper_page
from suffice.papers.paper import Paper
from suffice.papers.tasr.cells import CellRuns, TasrCell, load_cell
from suffice.papers.tasr.tables import paper_of_cells
from suffice.results import Result, jsonable
from suffice.tables import Column, Table, counted, render

__all__ = ["ExperimentRun", "run_experiment", "tasr_cell"]

PAGE = "index.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRun(Result):
    """What a run of an experiment did, and its tables.

    Attributes:
        out: The folder of the results.
        outcomes: What each stage did, in order.
        paper: All tables; None after a pilot.
    """

    out: Path
    outcomes: tuple[StageOutcome, ...]
    paper: Paper | None

    @property
    def calls(self) -> float:
        """Calls of models in this run."""
        return sum(outcome.calls for outcome in self.outcomes)

    @property
    def sentence(self) -> str:
        """What was asked, and what was done, in one sentence."""
        recordings = [outcome for outcome in self.outcomes if outcome.stage.startswith("record")]
        others = [outcome for outcome in self.outcomes if not outcome.stage.startswith("record")]
        asked = (
            f"{self.calls:,.0f} calls for {sum(o.done for o in recordings)} of {counted(len(recordings), 'recording')}"
        )
        if not any(outcome.done for outcome in recordings):
            asked = f"nothing was asked: all {counted(len(recordings), 'recording')} were complete"
        skipped = sum(not outcome.done for outcome in others)
        return f"{asked}; {skipped} of {counted(len(others), 'other stage')} were up to date."

    def tables(self) -> Sequence[Table]:
        """Return what was done, and all tables."""
        return [self.stages_table(), *(() if self.paper is None else self.paper.parts)]

    def stages_table(self) -> Table:
        """Return what each stage did."""
        return Table.of(
            "Stages",
            self.outcomes,
            {
                Column("cell"): lambda item: item.cell or "all cells",
                Column("stage"): "stage",
                Column("this run"): lambda item: "done" if item.done else "up to date",
                Column("calls", ",.0f"): "calls",
                Column("problem"): lambda item: item.problem or None,
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "out": str(self.out),
            "sentence": self.sentence,
            "calls": self.calls,
            "stages": [jsonable(outcome) for outcome in self.outcomes],
            **({} if self.paper is None else self.paper.to_dict()),
        }


OnCell = Callable[[str, Progress], None]


def run_experiment(
    experiment: Experiment,
    out: str | Path,
    *,
    pilot: int | None = None,
    command: str = "",
    on_record: OnCell | None = None,
    on_table: Callable[[str, int, int], None] | None = None,
) -> ExperimentRun:
    """Record, calibrate, replay and certify every cell, and write the tables; what is there and unchanged is skipped.

    Args:
        experiment: From `read_experiment`.
        out: The folder of the results.
        pilot: Only record the first questions of each split; they are a part of the whole run later.
        command: The command that was run, for the provenance.
        on_record: Called with the name of a recording and its progress.
        on_table: Called with the table that is made, the number of tables done and their total.

    Raises:
        ConfigMismatchError: A recorded cell has other settings or questions than the file names now, or something else
            that `find_problems` looks for is wrong.
        ModelError: A model failed; what was recorded is kept, and the same call goes on.
    """
    out = Path(out)
    cells = experiment.cells()
    folders = [CellFolder(out, cell, experiment) for cell in cells]
    if problems := find_problems(experiment, out):  # before the first call of the first cell
        more = f" (and {counted(len(problems) - 1, 'more problem')}; --dry-run lists them)" if problems[1:] else ""
        raise ConfigMismatchError(f"{problems[0]}{more}")
    outcomes: list[StageOutcome] = []
    for folder in folders:
        report = None if on_record is None else _named(on_record, folder.cell.name)
        outcomes += record_cell(folder, first=pilot, on_progress=report)
    failed = [(o.cell, o.stage, len(o.failed), next(iter(o.failed.values()))) for o in outcomes if o.failed]
    if failed:
        cell, stage, n, why = failed[0]
        raise ModelError(
            f"{cell}, {stage}: {counted(n, 'question')} failed, the first with: {why} ({counted(len(failed), 'recording')} with failures). "
            "The tables need every question: run the same command again to ask for the missing ones"
        )
    if pilot is not None:
        return ExperimentRun(out=out, outcomes=tuple(outcomes), paper=None)
    for folder in folders:
        outcomes += evaluate_cell(folder)
    done = _write_tables(folders, experiment, out, command=command, on_table=on_table)
    outcomes.append(StageOutcome(cell="", stage="tables", done=done))
    return ExperimentRun(out=out, outcomes=tuple(outcomes), paper=read_paper(out / "tables.json"))


def _named(report: OnCell, cell: str) -> OnCell:
    return lambda split, progress: report(f"{cell} {split}", progress)


def tasr_cell(folder: CellFolder) -> TasrCell:
    """Return a cell of the paper's tables: one run of a configuration."""
    cell = folder.cell
    place = cell.configuration.rpartition("/")[0]
    return TasrCell(
        name=cell.configuration,
        model=cell.model.name,
        retriever=cell.retriever.name,
        corpus=cell.data.corpus,
        setting=cell.data.setting,
        tune=folder.recording("tune"),
        eval=folder.recording("eval"),
        prompt=cell.prompt,
        published=folder.experiment.published.get(place, ""),
    )


def _write_tables(
    folders: Sequence[CellFolder],
    experiment: Experiment,
    out: Path,
    *,
    command: str,
    on_table: Callable[[str, int, int], None] | None,
) -> bool:
    """Write the tables of all cells as JSON, CSV, Markdown and a page, unless they are up to date; return whether."""
    inputs: dict[str, Any] = {
        "cells": {
            folder.cell.name: [file_sha256(folder.recording(split)).hex() for split in ("tune", "eval")]
            for folder in folders
        },
        "corpora": {item.name: [item.corpus, item.setting] for item in experiment.data},
        "published": dict(experiment.published),
        "certificates": [_certified(folder) for folder in folders],
        "draws": experiment.resampling.to_dict(),
        "curve": [list(experiment.tune_sizes), experiment.tune_draws],
        "rounds": experiment.max_rounds,
    }
    outputs = [out / name for name in ("tables.json", "tables.md", PAGE)]

    def make() -> None:
        paper = _tables(folders, experiment, command=command, on_table=on_table)
        write_paper(out / "tables.json", paper)
        write_file(out / "tables.md", f"# {paper.title}\n\n{paper.headline}\n\n" + render(paper.parts, "md"))
        for old in (out / "tables").glob("*.csv"):
            old.unlink()
        for number, table in enumerate(paper.parts):
            write_file(out / "tables" / f"{number:02}-{_file_name(table.title)}.csv", render([table], "csv"))
        for old in (out / "figures").glob("*.svg"):
            old.unlink()
        paper.write_figures(out / "figures")
        write_file(out / PAGE, paper_page(paper))

    return run_stage(out / "tables.stamp", inputs, outputs, make)


def _file_name(title: str) -> str:
    head = title.partition(":")[0].partition(".")[0].lower()
    return "-".join("".join(c if c.isalnum() else " " for c in head).split())


def _certified(folder: CellFolder) -> Mapping[str, Any]:
    """Return what the certificate of a cell says, or why there is none."""
    path = next(path for path in (folder.file("certificate.json"), folder.file("policy.json")) if path.is_file())
    values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return {"cell": folder.cell.name, **{key: values.get(key) for key in ("problem", "headline", "certified", "n")}}


def _tables(
    folders: Sequence[CellFolder],
    experiment: Experiment,
    *,
    command: str,
    on_table: Callable[[str, int, int], None] | None,
) -> Paper:
    """Return the paper's tables of the first run of each configuration, and what the runs and calibrations show."""
    resampling = experiment.resampling
    by_configuration: dict[str, list[CellRuns]] = {}
    for folder in folders:
        loaded = load_cell(tasr_cell(folder), resampling=resampling)
        by_configuration.setdefault(folder.cell.configuration, []).append(loaded)
    first = [cells[0] for cells in by_configuration.values()]
    paper = paper_of_cells(first, resampling=resampling, command=command, on_progress=on_table)
    added: list[Table] = []
    not_made = dict(paper.not_made)
    parts: dict[str, Callable[[], Sequence[Table]]] = {
        "Certificates": lambda: [_certificates_table(folders, experiment)],
        "Runs": lambda: runs_tables(by_configuration, resampling),
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
    cells = replace(cells, notes=(note, *cells.notes))
    missing = Table(title="Not made", columns=(Column("what"), Column("why")), rows=tuple(not_made.items()))
    rest = [table for table in rest if table.title != "Not made"]
    return replace(
        paper,
        title=f"The tables of TASR: {experiment.path.stem}",
        parts=(origin, cells, *rest[:-1], *added, *([missing] if not_made else []), rest[-1]),
        not_made=not_made,
    )


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
