"""Run an experiment: record every cell, then compute policies, certificates and tables from the recordings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from suffice.common.display.svg import check_charts_extra
from suffice.common.files import write_file
from suffice.common.results import Result, jsonable
from suffice.common.tables import Column, Table, counted, render
from suffice.errors import ConfigMismatchError, DataError, ModelError, SufficeError
from suffice.loops import LiveLoop, Progress
from suffice_papers.experiments.building import Loaded, drafts_loop, retrieval_loop, thinking_loop
from suffice_papers.experiments.cbdr_cells import cbdr_paper, run_cbdr_cell
from suffice_papers.experiments.cbdr_pilot import pilot_cbdr_cell
from suffice_papers.experiments.checks import Obstacles, find_obstacles
from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.semantic_cells import semantic_paper
from suffice_papers.experiments.stages import CellFolder, StageOutcome, record_cell
from suffice_papers.experiments.stored_tables import write_paper
from suffice_papers.experiments.tasr_cells import tasr_paper
from suffice_papers.experiments.thinking_cells import thinking_paper
from suffice_papers.page import paper_page
from suffice_papers.paper import NOT_MADE, Paper, not_made_table

PAGE = "index.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRun(Result):
    """The recordings and tables of one run of an experiment.

    Attributes:
        out: The folder of the results.
        outcomes: The recordings, or pipelines, in order.
        paper: All tables; None after a pilot.
        failed: The error of each cell that could not be recorded, by the cell's name; the tables leave these cells out.
    """

    out: Path
    outcomes: tuple[StageOutcome, ...]
    paper: Paper | None
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def calls(self) -> float:
        """Number of calls of models in this run."""
        return sum(outcome.calls for outcome in self.outcomes)

    @property
    def sentence(self) -> str:
        """The number of calls, new recordings and failed cells."""
        left_out = f" {counted(len(self.failed), 'cell')} failed." if self.failed else ""
        return f"{self._work}{left_out}"

    @property
    def _work(self) -> str:
        stages = {outcome.stage for outcome in self.outcomes}
        is_pipeline = stages == {"cbdr"}
        noun = "pipeline" if is_pipeline else "pilot" if stages == {"pilot"} else "recording"
        counts = counted(len(self.outcomes), noun)
        done = sum(outcome.done for outcome in self.outcomes)
        if not done:
            return f"nothing was asked: all {counts} were complete."
        return f"{done} of {counts} ran." if is_pipeline else f"{self.calls:,.0f} calls for {done} of {counts}."

    def tables(self) -> Sequence[Table]:
        """Return the table of stages, followed by the tables of the paper."""
        return [self.stages_table(), *(() if self.paper is None else self.paper.parts)]

    def stages_table(self) -> Table:
        """Return a table with each stage's calls, and whether the stage ran now or was complete before."""
        return Table.of(
            "Stages",
            self.outcomes,
            {
                Column("cell"): "cell",
                Column("stage"): "stage",
                Column("this run"): lambda item: "done" if item.done else "complete",
                Column("calls", ",.0f"): "calls",
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "out": str(self.out),
            "sentence": self.sentence,
            "calls": self.calls,
            "stages": [jsonable(outcome) for outcome in self.outcomes],
            "failed": dict(self.failed),
            **({} if self.paper is None else self.paper.to_dict()),
        }


_LOOPS: dict[str, Callable[[Cell, Experiment, Loaded], LiveLoop]] = {
    "tasr": retrieval_loop,
    "semantic": drafts_loop,
    "thinking": thinking_loop,
}
"""The loop that records a cell, by protocol; CBDR has a pipeline instead."""

_PAPERS: dict[str, Callable[..., Paper]] = {
    "tasr": tasr_paper,
    "semantic": semantic_paper,
    "cbdr": cbdr_paper,
    "thinking": thinking_paper,
}
"""The function that evaluates the cells and makes the tables, by protocol."""

OnTable = Callable[[str, int, int], None]
OnCell = Callable[[str, Progress], None]
OnFailed = Callable[[str, str], None]


def run_experiment(
    experiment: Experiment,
    out: str | Path,
    *,
    pilot: int | None = None,
    command: str = "",
    on_record: OnCell | None = None,
    on_table: OnTable | None = None,
    on_failed: OnFailed | None = None,
) -> ExperimentRun:
    """Record every cell, then calibrate, replay and certify each, and write the tables.

    Recorded questions are not asked again; policies, certificates and tables are computed anew.  If the model, encoder
    or endpoint of a cell cannot be reached, only that cell fails: the tables contain the other cells, and name the
    failed cell in a note.

    Args:
        experiment: Result of `read_experiment`.
        out: The folder of the results.
        pilot: Record only this number of questions of each split, starting with the first; the whole run later
            continues from them. For CBDR, measure each kind of work on this number of questions; the whole run does not
            reuse these results.
        command: The command that was run, for the provenance.
        on_record: Called with the name of a recording and its progress.
        on_table: Called with the current table, the number of finished tables and the number of all tables.
        on_failed: Called with the name of a cell and its error, as soon as the cell is known to fail.

    Raises:
        ConfigMismatchError: `find_obstacles` reports a problem of the whole run, such as a cell that was recorded with other
            settings, or a problem of every cell.
        MissingExtraError: The extra `charts`, which draws figures, is not installed.
        ModelError: No cell could be recorded completely; recorded questions are kept, and the same call resumes.
    """
    out = Path(out)
    folders = [CellFolder(out, cell, experiment) for cell in experiment.cells()]
    if pilot is None:
        check_charts_extra()  # the tables come with figures
    failures = _Failures(find_obstacles(experiment, out), folders, on_failed)
    outcomes = _record_cells(folders, failures, pilot, on_record=on_record, on_table=on_table)
    usable = failures.usable(folders)
    if pilot is not None:
        return ExperimentRun(out=out, outcomes=tuple(outcomes), paper=None, failed=failures.messages)
    paper = _PAPERS[experiment.protocol](usable, experiment, command=command, on_table=on_table)
    paper = _naming(paper, failures.messages, len(folders))
    _write_tables(out, paper)
    return ExperimentRun(out=out, outcomes=tuple(outcomes), paper=paper, failed=failures.messages)


class _Failures:
    """Collects the errors of failed cells, so that the other cells can go on.

    Args:
        obstacles: The problems that are known before the first call.
        folders: All cells.
        report: Called with each cell that fails.

    Raises:
        ConfigMismatchError: A problem ends the whole run, or every cell has a problem.
    """

    def __init__(self, obstacles: Obstacles, folders: Sequence[CellFolder], report: OnFailed | None) -> None:
        problems = list(obstacles.shared)
        if all(folder.cell.name in obstacles.by_cell for folder in folders):
            problems = [problem for problem in obstacles.listed if problem not in obstacles.estimates]
        if problems:
            more = f" (and {counted(len(problems) - 1, 'more problem')}; --dry-run lists them)" if problems[1:] else ""
            raise ConfigMismatchError(f"{problems[0]}{more}")
        self._errors: dict[str, SufficeError] = {}
        self._report = report or (lambda _cell, _why: None)
        for cell, (first, *_) in obstacles.by_cell.items():
            self.add(cell, ModelError(first))

    @property
    def messages(self) -> dict[str, str]:
        """The message of each cell's error."""
        return {cell: str(error) for cell, error in self._errors.items()}

    def add(self, cell: str, error: SufficeError) -> None:
        """Keep the error of a cell, and report it."""
        self._errors[cell] = error
        self._report(cell, str(error))

    def has(self, cell: Cell) -> bool:
        """Return whether a cell has failed."""
        return cell.name in self._errors

    def usable(self, folders: Sequence[CellFolder]) -> list[CellFolder]:
        """Return the cells that did not fail.

        A cell also fails if the cell that calibrates it, or the cell that it is compared with, failed.

        Raises:
            SufficeError: All cells failed; the error is that of the first failed cell.
        """
        for folder in folders:
            cell = folder.cell
            needed = [cell.plain, folder.experiment.tune_cell(cell)] if folder.experiment.protocol == "tasr" else []
            lacking = next((other.name for other in needed if self.has(other)), None)
            if lacking is not None and not self.has(cell):
                self.add(cell.name, DataError(f"it needs the cell {lacking}, which failed"))
        usable = [folder for folder in folders if not self.has(folder.cell)]
        if not usable:
            raise next(iter(self._errors.values()))
        return usable


def _record_cells(
    folders: Sequence[CellFolder],
    failures: _Failures,
    pilot: int | None,
    *,
    on_record: OnCell | None,
    on_table: OnTable | None,
) -> list[StageOutcome]:
    """Record the missing questions of every cell that can be recorded; release the models afterwards."""
    loaded, outcomes = Loaded(), list[StageOutcome]()
    for folder in sorted(folders, key=_loading_order):
        if failures.has(folder.cell):
            continue
        report = None if on_record is None else _reporting(on_record, folder.cell.name)
        build = _LOOPS.get(folder.experiment.protocol)
        try:
            if build is None:
                one = run_cbdr_cell(folder, on_table) if pilot is None else pilot_cbdr_cell(folder, pilot, on_table)
                own = [one]
            else:
                own = record_cell(folder, build, loaded, first=pilot, on_progress=report)
            outcomes += own
            _check_answered(own)
        except SufficeError as error:
            failures.add(folder.cell.name, error)
    return outcomes


def _check_answered(outcomes: Sequence[StageOutcome]) -> None:
    """Raise if questions of a cell failed.

    Raises:
        ModelError: Questions failed; the message contains their number and the first error.
    """
    failed = [(outcome.cell, outcome.stage, outcome.failed) for outcome in outcomes if outcome.failed]
    if failed:
        cell, stage, errors = failed[0]
        raise ModelError(
            f"{cell}, {stage}: {counted(len(errors), 'question')} failed, the first with: {next(iter(errors.values()))} "
            f"({counted(len(failed), 'recording')} with failures). The tables need every question: run the same command again to ask "
            "for the missing ones"
        )


def _naming(paper: Paper, failed: Mapping[str, str], n_cells: int) -> Paper:
    """Add a note that names the failed cells to the first table and to the summary."""
    if not failed:
        return paper
    note = f"left out: {len(failed)} of {counted(n_cells, 'cell')}, which failed: see {NOT_MADE}"
    not_made = {**paper.not_made, **{f"the cell {name}": why for name, why in failed.items()}}
    first, *rest = (table for table in paper.parts if table.title != NOT_MADE)
    return replace(
        paper,
        summary=replace(paper.summary, notes=(*paper.summary.notes, note)),
        parts=(replace(first, notes=(note, *first.notes)), *rest, *not_made_table(not_made)),
        not_made=not_made,
    )


def _loading_order(folder: CellFolder) -> tuple[int, int, int]:
    """Return a sort key that puts cells with the same model side by side; among these, cells with the same index."""
    experiment, cell = folder.experiment, folder.cell
    retriever = experiment.retrievers.index(cell.retriever)
    if cell.model.scripted or cell.model.is_remote:
        return -1, -1, retriever
    return experiment.models.index(cell.model), experiment.prompts.index(cell.prompt), retriever


def _reporting(report: OnCell, cell: str) -> OnCell:
    return lambda split, progress: report(f"{cell} {split}", progress)


def _write_tables(out: Path, paper: Paper) -> None:
    """Write tables and figures as JSON, CSV, Markdown, SVG and one page; remove the tables and figures of an earlier run."""
    write_paper(out / "tables.json", paper)
    write_file(out / "tables.md", f"# {paper.title}\n\n{paper.headline}\n\n" + render(paper.parts, "md"))
    for folder, kind in (("tables", "csv"), ("figures", "svg")):
        (out / folder).mkdir(exist_ok=True)
        for old in (out / folder).glob(f"*.{kind}"):
            old.unlink()
    for number, table in enumerate(paper.parts):
        write_file(out / "tables" / f"{number:02}-{_csv_name(table.title)}.csv", render([table], "csv"))
    paper.write_figures(out / "figures")
    write_file(out / PAGE, paper_page(paper))


def _csv_name(title: str) -> str:
    head = title.partition(":")[0].partition(".")[0].lower()
    return "-".join("".join(c if c.isalnum() else " " for c in head).split())
