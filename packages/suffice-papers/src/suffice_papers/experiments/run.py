"""An experiment from its file to its tables: every stage of every cell, then what spans cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.common.display.svg import check_charts_extra
from suffice.common.files import file_sha256, write_file
from suffice.common.results import Result, jsonable
from suffice.common.tables import Column, Table, counted, render
from suffice.errors import ConfigMismatchError, DataError, ModelError
from suffice.loops import LiveLoop, Progress
from suffice_papers.experiments.building import Loaded, drafts_loop, retrieval_loop
from suffice_papers.experiments.cbdr_cells import cbdr_paper, evaluate_cbdr
from suffice_papers.experiments.checks import find_problems
from suffice_papers.experiments.choices import SPLITS
from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.semantic_cells import evaluate_semantic, semantic_inputs, semantic_paper
from suffice_papers.experiments.sources import convert_sources
from suffice_papers.experiments.stages import CellFolder, StageOutcome, record_cell, run_stage
from suffice_papers.experiments.stored_tables import read_paper, write_paper
from suffice_papers.experiments.tasr_cells import evaluate_tasr, tasr_inputs, tasr_paper
from suffice_papers.page import paper_page
from suffice_papers.paper import Paper

__all__ = ["ExperimentRun", "run_experiment"]

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
        skipped = f"{sum(not o.done for o in others)} of {counted(len(others), 'stage')} were up to date"
        if not recordings:
            return f"{skipped}."
        asked = (
            f"{self.calls:,.0f} calls for {sum(o.done for o in recordings)} of {counted(len(recordings), 'recording')}"
        )
        if not any(outcome.done for outcome in recordings):
            asked = f"nothing was asked: all {counted(len(recordings), 'recording')} were complete"
        return f"{asked}; {skipped.replace(' stage', ' other stage')}." if others else f"{asked}."

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


OnTable = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProtocol:
    """How the cells of a protocol are recorded and evaluated, and how their tables are made.

    Attributes:
        loop: Makes the loop of a cell; None where cells are not recorded by a loop.
        evaluate: Runs the other stages of a cell.
        digests: Hashes of the files of a cell that the tables read.
        inputs: What the tables depend on beside these files.
        paper: Makes the tables.
    """

    loop: Callable[[Cell, Experiment, Loaded], LiveLoop] | None
    evaluate: Callable[[CellFolder, OnTable | None], list[StageOutcome]]
    digests: Callable[[CellFolder], list[str]]
    inputs: Callable[[Sequence[CellFolder], Experiment], dict[str, Any]]
    paper: Callable[..., Paper]


def _recordings(folder: CellFolder) -> list[str]:
    splits = SPLITS if folder.cell.rival is None else folder.cell.splits
    return [file_sha256(folder.recording(split)).hex() for split in splits]


TABLE_PROTOCOLS = {
    "tasr": TableProtocol(
        loop=retrieval_loop,
        evaluate=lambda folder, _report: evaluate_tasr(folder),
        digests=_recordings,
        inputs=tasr_inputs,
        paper=tasr_paper,
    ),
    "semantic": TableProtocol(
        loop=drafts_loop,
        evaluate=lambda folder, _report: evaluate_semantic(folder),
        digests=_recordings,
        inputs=semantic_inputs,
        paper=semantic_paper,
    ),
    "cbdr": TableProtocol(
        loop=None,
        evaluate=evaluate_cbdr,
        digests=lambda folder: [file_sha256(folder.file("paper.json")).hex()],
        inputs=lambda _folders, _experiment: {},
        paper=cbdr_paper,
    ),
}
"""By name."""

OnCell = Callable[[str, Progress], None]


def run_experiment(
    experiment: Experiment,
    out: str | Path,
    *,
    pilot: int | None = None,
    command: str = "",
    on_record: OnCell | None = None,
    on_table: OnTable | None = None,
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
        MissingExtraError: The extra `charts` is not installed, by which figures are drawn.
        ModelError: A model failed; what was recorded is kept, and the same call goes on.
    """
    out = Path(out)
    cells = experiment.cells()
    folders = [CellFolder(out, cell, experiment) for cell in cells]
    protocol = TABLE_PROTOCOLS[experiment.protocol]
    if pilot is not None and protocol.loop is None:
        raise DataError(f"the protocol {experiment.protocol!r} has no pilot: leave out --pilot")
    outcomes = convert_sources(experiment)
    if problems := find_problems(experiment, out):  # before the first call of the first cell
        more = f" (and {counted(len(problems) - 1, 'more problem')}; --dry-run lists them)" if problems[1:] else ""
        raise ConfigMismatchError(f"{problems[0]}{more}")
    if pilot is None:
        check_charts_extra()  # the tables come with figures
    loaded = Loaded()
    for folder in sorted(folders, key=_by_what_is_loaded):
        report = None if on_record is None else _reporting(on_record, folder.cell.name)
        if protocol.loop is not None:
            outcomes += record_cell(folder, protocol.loop, loaded, first=pilot, on_progress=report)
    del loaded
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
        outcomes += protocol.evaluate(folder, on_table)
    done = _write_tables(protocol, folders, experiment, out, command=command, on_table=on_table)
    outcomes.append(StageOutcome(cell="", stage="tables", done=done))
    return ExperimentRun(out=out, outcomes=tuple(outcomes), paper=read_paper(out / "tables.json"))


def _by_what_is_loaded(folder: CellFolder) -> tuple[int, int, int]:
    """Return what puts cells together that load the same model, and among them those that search the same index."""
    experiment, cell = folder.experiment, folder.cell
    retriever = experiment.retrievers.index(cell.retriever)
    if cell.model.scripted or cell.model.is_remote:
        return -1, -1, retriever
    return experiment.models.index(cell.model), experiment.prompts.index(cell.prompt), retriever


def _reporting(report: OnCell, cell: str) -> OnCell:
    return lambda split, progress: report(f"{cell} {split}", progress)


def _write_tables(
    protocol: TableProtocol,
    folders: Sequence[CellFolder],
    experiment: Experiment,
    out: Path,
    *,
    command: str,
    on_table: OnTable | None,
) -> bool:
    """Write the tables of all cells as JSON, CSV, Markdown and a page, unless they are up to date; return whether."""
    inputs = {
        "cells": {folder.cell.name: protocol.digests(folder) for folder in folders},
        "draws": experiment.resampling.to_dict(),
        **protocol.inputs(folders, experiment),
    }
    outputs = [out / name for name in ("tables.json", "tables.md", PAGE, "tables", "figures")]

    def make() -> None:
        paper = protocol.paper(folders, experiment, command=command, on_table=on_table)
        write_paper(out / "tables.json", paper)
        write_file(out / "tables.md", f"# {paper.title}\n\n{paper.headline}\n\n" + render(paper.parts, "md"))
        for old in (out / "tables").glob("*.csv"):
            old.unlink()
        for number, table in enumerate(paper.parts):
            write_file(out / "tables" / f"{number:02}-{_csv_name(table.title)}.csv", render([table], "csv"))
        (out / "figures").mkdir(exist_ok=True)
        for old in (out / "figures").glob("*.svg"):
            old.unlink()
        paper.write_figures(out / "figures")
        write_file(out / PAGE, paper_page(paper))

    return run_stage(out / "tables.stamp", inputs, outputs, make)


def _csv_name(title: str) -> str:
    head = title.partition(":")[0].partition(".")[0].lower()
    return "-".join("".join(c if c.isalnum() else " " for c in head).split())
