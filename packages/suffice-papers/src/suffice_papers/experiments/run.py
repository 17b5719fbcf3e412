"""Run an experiment: record every cell, then compute policies, certificates and tables from the recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.common.display.svg import check_charts_extra
from suffice.common.files import write_file
from suffice.common.results import Result, jsonable
from suffice.common.tables import Column, Table, counted, render
from suffice.errors import ConfigMismatchError, DataError, ModelError
from suffice.loops import LiveLoop, Progress
from suffice_papers.experiments.building import Loaded, drafts_loop, retrieval_loop
from suffice_papers.experiments.cbdr_cells import cbdr_paper, run_cbdr_cell
from suffice_papers.experiments.checks import find_problems
from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.semantic_cells import semantic_paper
from suffice_papers.experiments.stages import CellFolder, StageOutcome, record_cell
from suffice_papers.experiments.stored_tables import write_paper
from suffice_papers.experiments.tasr_cells import tasr_paper
from suffice_papers.page import paper_page
from suffice_papers.paper import Paper

PAGE = "index.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRun(Result):
    """The recordings and tables of one run of an experiment.

    Attributes:
        out: The folder of the results.
        outcomes: The recordings, or pipelines, in order.
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
        """The number of calls, and the number of new recordings, in one sentence."""
        is_pipeline = all(outcome.stage == "cbdr" for outcome in self.outcomes)
        counts = counted(len(self.outcomes), "pipeline" if is_pipeline else "recording")
        done = sum(outcome.done for outcome in self.outcomes)
        if not done:
            return f"nothing was asked: all {counts} were complete."
        return f"{done} of {counts} ran." if is_pipeline else f"{self.calls:,.0f} calls for {done} of {counts}."

    def tables(self) -> Sequence[Table]:
        """Return the table of stages, then those of the paper."""
        return [self.stages_table(), *(() if self.paper is None else self.paper.parts)]

    def stages_table(self) -> Table:
        """Return a table of the stages: whether each ran in this run or was complete before, and its calls."""
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
            **({} if self.paper is None else self.paper.to_dict()),
        }


_LOOPS: dict[str, Callable[[Cell, Experiment, Loaded], LiveLoop]] = {"tasr": retrieval_loop, "semantic": drafts_loop}
"""The loop that records a cell, by protocol; CBDR has a pipeline instead."""

_PAPERS: dict[str, Callable[..., Paper]] = {"tasr": tasr_paper, "semantic": semantic_paper, "cbdr": cbdr_paper}
"""The function that evaluates the cells and makes the tables, by protocol."""

OnTable = Callable[[str, int, int], None]
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
    """Record every cell, then calibrate, replay and certify each, and write the tables.

    Recorded questions are not asked again; policies, certificates and tables are computed anew.

    Args:
        experiment: Result of `read_experiment`.
        out: The folder of the results.
        pilot: Only record the first questions of each split; they are a part of the whole run later.
        command: The command that was run, for the provenance.
        on_record: Called with the name of a recording and its progress.
        on_table: Called with the current table, the number of finished tables and their total.

    Raises:
        ConfigMismatchError: `find_problems` reports a problem, such as a cell that was recorded with other settings.
        MissingExtraError: The extra `charts`, which draws figures, is not installed.
        ModelError: A model failed; recorded questions are kept, and the same call resumes.
    """
    out = Path(out)
    folders = [CellFolder(out, cell, experiment) for cell in experiment.cells()]
    build = _LOOPS.get(experiment.protocol)
    if pilot is not None and build is None:
        raise DataError(f"the protocol {experiment.protocol!r} has no pilot: leave out --pilot")
    if problems := find_problems(experiment, out):  # before the first call of the first cell
        more = f" (and {counted(len(problems) - 1, 'more problem')}; --dry-run lists them)" if problems[1:] else ""
        raise ConfigMismatchError(f"{problems[0]}{more}")
    if pilot is None:
        check_charts_extra()  # the tables come with figures
    if build is None:
        outcomes = [run_cbdr_cell(folder, on_table) for folder in folders]
    else:
        outcomes = _record_cells(folders, build, pilot, on_record)
    failed = [(o.cell, o.stage, len(o.failed), next(iter(o.failed.values()))) for o in outcomes if o.failed]
    if failed:
        cell, stage, n, why = failed[0]
        raise ModelError(
            f"{cell}, {stage}: {counted(n, 'question')} failed, the first with: {why} ({counted(len(failed), 'recording')} with failures). "
            "The tables need every question: run the same command again to ask for the missing ones"
        )
    if pilot is not None:
        return ExperimentRun(out=out, outcomes=tuple(outcomes), paper=None)
    paper = _PAPERS[experiment.protocol](folders, experiment, command=command, on_table=on_table)
    _write_tables(out, paper)
    return ExperimentRun(out=out, outcomes=tuple(outcomes), paper=paper)


def _record_cells(
    folders: Sequence[CellFolder],
    build: Callable[[Cell, Experiment, Loaded], LiveLoop],
    pilot: int | None,
    on_record: OnCell | None,
) -> list[StageOutcome]:
    """Record the missing questions of every cell; models are released before anything is computed."""
    loaded, outcomes = Loaded(), []
    for folder in sorted(folders, key=_loading_order):
        report = None if on_record is None else _reporting(on_record, folder.cell.name)
        outcomes += record_cell(folder, build, loaded, first=pilot, on_progress=report)
    return outcomes


def _loading_order(folder: CellFolder) -> tuple[int, int, int]:
    """Return a sort key that puts cells with the same model together, and among them those with the same index."""
    experiment, cell = folder.experiment, folder.cell
    retriever = experiment.retrievers.index(cell.retriever)
    if cell.model.scripted or cell.model.is_remote:
        return -1, -1, retriever
    return experiment.models.index(cell.model), experiment.prompts.index(cell.prompt), retriever


def _reporting(report: OnCell, cell: str) -> OnCell:
    return lambda split, progress: report(f"{cell} {split}", progress)


def _write_tables(out: Path, paper: Paper) -> None:
    """Write tables and figures as JSON, CSV, Markdown, SVG and one page; those of an earlier run are removed."""
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
