"""The remaining work of CBDR's pipelines by stage, and its cost, extrapolated from pilots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table, counted
from suffice.errors import SufficeError
from suffice.evaluation.replay import Price
from suffice_papers.cbdr.names import ALIGNED, display_name
from suffice_papers.cbdr.plan import divide
from suffice_papers.cbdr.work import CALLS, PAIRS, PASSES, STEPS, Sizes, Task, count_work
from suffice_papers.experiments.cbdr_cells import (
    aligned_name,
    all_questions,
    has_begun,
    is_finished,
    pipeline_settings,
)
from suffice_papers.experiments.cbdr_memory import plan_memory
from suffice_papers.experiments.cbdr_pilot import Pilot, read_pilot
from suffice_papers.experiments.checks import cell_prices
from suffice_papers.experiments.extrapolation import extrapolate, total_of
from suffice_papers.experiments.stages import CellFolder
from suffice_papers.experiments.variance import NOT_KNOWN

COSTS = ("calls", "tokens", "usd", "minutes")
_UNITS = (CALLS, PASSES, PAIRS, STEPS)
_SIXTY = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CellWork:
    """The work of a cell whose pipeline has not finished.

    Attributes:
        folder: The cell.
        sizes: Numbers of questions and passages; None if neither the questions nor the settings determine them.
        tasks: The work by stage; empty without sizes.
        pilot: The measurements of the cell's pilot; None without a pilot.
    """

    folder: CellFolder
    sizes: Sizes | None
    tasks: tuple[Task, ...]
    pilot: Pilot | None

    def costs(self) -> dict[str, Any]:
        """Return the calls, tokens, USD and minutes of the whole pipeline."""
        if not self.tasks:
            return dict.fromkeys(COSTS, NOT_KNOWN)
        parts = [self.cost_of(task) for task in self.tasks]
        return {name: total_of([part[name] for part in parts if name in part]) for name in COSTS}

    def cost_of(self, task: Task) -> dict[str, Any]:
        """Return the calls, tokens, USD and minutes of a task; kinds of cost that it does not have are left out."""
        level, gpu = self.folder.experiment.level, self.folder.experiment.cbdr.gpu
        measured = None if self.pilot is None else self.pilot.measured.get(task.what)
        is_read = task.unit in (CALLS, PASSES)
        names = (*(["calls"] if task.unit == CALLS else []), *(["tokens"] if is_read else []), "minutes", "usd")
        cost: dict[str, Any] = dict.fromkeys(names, NOT_KNOWN)
        if task.unit == CALLS and task.count is not None:
            cost["calls"] = task.count
        if measured is None or task.count is None:
            return cost
        read = np.array(measured.read)
        written = np.array(measured.written) if measured.written else np.zeros(len(read))
        minutes = task.count * measured.seconds / measured.n / _SIXTY
        cost["minutes"] = (minutes, np.nan, np.nan)
        if is_read:
            cost["tokens"] = extrapolate(read + written, task.count, level)
        price = self._price()
        if gpu.usd_per_hour is not None:
            usd = minutes / _SIXTY * gpu.usd_per_hour
            cost["usd"] = (usd, np.nan, np.nan)
        elif price is not None:
            cost["usd"] = extrapolate(price.of(read, 0 * read, written), task.count, level) if is_read else 0
        return cost

    def _price(self) -> Price | None:
        """Return the price of the model's tokens; None if unknown."""
        try:
            prices = cell_prices(self.folder.cell, self.folder.experiment)
        except SufficeError:  # reported with the problems of the cell
            return None
        if prices is None:
            return None
        return prices.get("generator", Price(uncached=0, cached=0, output=0))


def open_work(folders: Iterable[CellFolder]) -> list[CellWork]:
    """Count the work of the cells whose pipelines have not finished."""
    counted_before: dict[tuple[str, int], Sizes | None] = {}
    works = []
    for folder in folders:
        chosen = folder.experiment.cbdr
        is_loaded = folder.cell.data.problem is None
        if is_loaded and is_finished(folder):
            continue
        settings, key = pipeline_settings(folder), (folder.cell.data.name, folder.cell.seed)
        if key not in counted_before:
            counted_before[key] = _sizes(folder) if is_loaded else Sizes.stated(settings)
        sizes = counted_before[key]
        names = [display_name(chosen.cross_encoder), *map(display_name, chosen.others)]
        names += [aligned_name(name) for name in folder.experiment.aligned_before(folder.cell)]
        rerankers = [*dict.fromkeys([*names, ALIGNED])]
        tasks = () if sizes is None else count_work(sizes, settings, layers=len(chosen.layers), rerankers=rerankers)
        pilot = read_pilot(folder) if is_loaded else None
        works.append(CellWork(folder=folder, sizes=sizes, tasks=tuple(tasks), pilot=pilot))
    return works


def _sizes(folder: CellFolder) -> Sizes | None:
    questions, settings = all_questions(folder), pipeline_settings(folder)
    try:
        return Sizes.of(divide(questions, settings), questions, settings)
    except SufficeError:  # reported with the problems of the cell
        return None


def stage_tables(works: Sequence[CellWork], n_cells: int) -> tuple[Table, ...]:
    """Return the tables of the work and of the memory of each stage; none if all cells have finished.

    Args:
        works: The cells that have not finished.
        n_cells: Number of all cells.
    """
    if not works:
        return ()
    experiment = works[0].folder.experiment
    return _work_table(works, n_cells), plan_memory([work.folder.cell for work in works], experiment).table()


def _work_table(works: Sequence[CellWork], n_cells: int) -> Table:
    tasks = [(work, task) for work in works for task in work.tasks]
    rows = []
    for stage in dict.fromkeys(task.stage for _, task in tasks):
        own = [(work, task) for work, task in tasks if task.stage == stage]
        rows.append((stage, *_row(own)))
    if rows:
        rows.append(("all", *_row(tasks)))
    columns = (
        Column("stage"),
        *(Column(unit, ",.0f") for unit in _UNITS),
        Column("tokens", ",.0f", interval=True),
        Column("minutes", ",.1f", interval=True),
    )
    title = f"What each stage of {counted(len(works), 'cell')} takes"
    return Table(title=title, columns=columns, rows=tuple(rows), notes=_work_notes(works, n_cells))


def _row(own: Sequence[tuple[CellWork, Task]]) -> list[Any]:
    """Return sums over some tasks: the units of each kind, the tokens, and the minutes; None for a kind that no task has."""
    counts = []
    for unit in _UNITS:
        found = [NOT_KNOWN if task.count is None else task.count for _, task in own if task.unit == unit]
        counts.append(total_of(found) if found else None)
    costs = [work.cost_of(task) for work, task in own]
    tokens = [cost["tokens"] for cost in costs if "tokens" in cost]
    return [*counts, total_of(tokens) if tokens else None, total_of([cost["minutes"] for cost in costs])]


def _work_notes(works: Sequence[CellWork], n_cells: int) -> tuple[str, ...]:
    notes = []
    if stated := [work for work in works if work.sizes is not None and not work.sizes.exact]:
        notes.append(
            f"unknown: the number of the probe's questions, as the questions of {counted(len(stated), 'cell')} cannot be loaded: the other numbers "
            "are those of test-size, prefer-size and candidates"
        )
    if lacking := sum(not work.tasks for work in works):
        notes.append(
            f"unknown: {counted(lacking, 'cell is', 'cells are')} left out, as their questions cannot be loaded or divided"
        )
    if len(works) < n_cells:
        notes.append(f"{counted(n_cells - len(works), 'cell')} finished before, and need nothing")
    if begun := sum(has_begun(work.folder) for work in works):
        notes.append(
            f"{counted(begun, 'pipeline was', 'pipelines were')} interrupted: what their journals hold is not asked again, and is counted here all the same"
        )
    notes.append(
        "calls: answers of the model; passes: prompts whose hidden states it reads; pairs: questions with a passage that a cross-encoder scores; "
        "steps: of training"
    )
    notes.append("at most: steps, and pairs of the ranking, as labels and preferences decide")
    return (*notes, *_pilot_notes(works))


def _pilot_notes(works: Sequence[CellWork]) -> list[str]:
    """Return notes on the origin of tokens, minutes and money."""
    notes, experiment = [], works[0].folder.experiment
    pilots = {work.folder.cell.model.name: work for work in works if work.pilot is not None}
    for name, work in pilots.items():
        pilot, batch = work.pilot, work.folder.cell.model.options.batch_size
        assert pilot is not None
        fewer = "" if pilot.questions >= batch else f"; a pass of the run takes {batch} prompts, for less time each"
        notes.append(
            f"tokens and minutes of {name!r}: extrapolated from a pilot of {counted(pilot.questions, 'question')} on {pilot.device}{fewer}"
        )
    if pilots:
        notes.append("minutes: without loading models; tokens have prediction intervals, which are summed end by end")
    if any(work.pilot is None for work in works):
        notes.append(
            f"tokens and minutes are {NOT_KNOWN} before a pilot: `--pilot 5` measures each kind of work on five questions"
        )
    if experiment.cbdr.gpu.usd_per_hour is None and experiment.prices is None:
        notes.append(f"money is {NOT_KNOWN}: write usd-per-hour in [cbdr.gpu], or name a list of prices")
    return notes
