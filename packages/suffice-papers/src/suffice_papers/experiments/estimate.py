"""Estimate the remaining cost of an experiment from the questions that are already recorded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Column, Table, counted
from suffice.errors import SufficeError
from suffice.evaluation.replay.costs import NOT_LANGUAGE_MODELS
from suffice.loops.retrieval import Question
from suffice.policy.rounds import Floats
from suffice.recordings import Recording, read_recording
from suffice_papers.experiments.building import has_round_zero
from suffice_papers.experiments.cbdr_estimate import COSTS, open_work, stage_tables
from suffice_papers.experiments.checks import cell_prices, find_obstacles, has_questions
from suffice_papers.experiments.extrapolation import extrapolate, total_of
from suffice_papers.experiments.plan import Cell, Experiment
from suffice_papers.experiments.stages import CellFolder
from suffice_papers.experiments.variance import NOT_KNOWN

_PRICED_KINDS = ("uncached", "cached", "output")
_LEFT = (
    Column("calls left", ",.0f"),
    Column("tokens", ",.0f", interval=True),
    Column("USD", ",.2f", interval=True),
    Column("minutes", ",.1f", interval=True),
)
_COSTS = COSTS
"""The remaining costs, in the order of these columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEstimate:
    """The questions of a cell that remain, and their cost.

    Attributes:
        cell: Its name.
        questions: Number of the cell's questions in both splits; `NOT_KNOWN` if they cannot be loaded.
        recorded: Number of recorded questions.
        left: Calls, tokens, USD and minutes of the remaining questions; each is a number, an estimate with its
            interval, or `NOT_KNOWN`.
    """

    cell: str
    questions: int | str
    recorded: int
    left: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Result):
    """The remaining cost of an experiment, and the problems that were found.

    Attributes:
        cells: The estimate of each cell.
        problems: Problems that would end the run or leave its tables empty.
        notes: Caveats for the reader.
        level: Coverage of the intervals.
        stages: For pipelines, tables of the work and of the memory of each stage.
    """

    cells: tuple[CellEstimate, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    level: float
    stages: tuple[Table, ...] = ()

    @property
    def needs_pilot(self) -> bool:
        """True if the cost of some remaining questions is unknown."""
        return any(cell.left["calls"] and cell.left["tokens"] == NOT_KNOWN for cell in self.cells)

    @property
    def sentence(self) -> str:
        """The total remaining costs in one sentence."""
        table = self.table()
        texts = [column.text(value) for column, value in zip(table.columns, table.rows[-1], strict=True)]
        calls, tokens, usd, minutes = texts[-len(_LEFT) :]
        state = f"{counted(len(self.problems), 'problem')} to solve first" if self.problems else "no problem was found"
        return f"{counted(len(self.cells), 'cell')}; left: {calls} calls, {tokens} tokens, {usd} USD, {minutes} minutes; {state}."

    def table(self) -> Table:
        """Return the remaining questions and costs of each cell, and in total."""
        rows = [(c.cell, c.questions, c.recorded, *(c.left[name] for name in _COSTS)) for c in self.cells]
        questions, recorded, *costs = list(zip(*rows, strict=True))[1:] if rows else [()] * (2 + len(_COSTS))
        totals = [total_of(part) for part in costs]
        calls = replace(_LEFT[0], interval=any(isinstance(value, tuple) for value in (*costs[0], totals[0])))
        counts = (Column("cell"), Column("questions", ",.0f"), Column("recorded", ",.0f"))
        return Table(
            title=f"What is left to ask, with {100 * self.level:g} % prediction intervals",
            columns=(*counts, calls, *_LEFT[1:]),
            rows=(*rows, ("all", total_of(questions) if rows else 0, sum(recorded), *totals)),
            notes=self.notes,
        )

    def tables(self) -> list[Table]:
        """Return the tables of stages, the table of remaining costs, and the problems."""
        problems = Table(title="Problems", columns=(Column("problem"),), rows=tuple((text,) for text in self.problems))
        return [*self.stages, self.table(), *([problems] if self.problems else [])]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "sentence": self.sentence,
            "cells": self.table().to_dict()["rows"],
            "problems": list(self.problems),
            "notes": list(self.notes),
            "stages": [table.to_dict() for table in self.stages],
        }


def estimate_experiment(experiment: Experiment, out: str | Path) -> Estimate:
    """Estimate the remaining cost of an experiment, without a request to a model.

    Calls follow from the settings.  Tokens, money and time are extrapolated from questions of the same cell that are
    already recorded, for instance by a pilot.  Without recorded questions they are unknown.

    Args:
        experiment: The experiment.
        out: The folder of its results.
    """
    out = Path(out)
    every = [CellFolder(out, cell, experiment) for cell in experiment.cells()]
    is_pipeline = experiment.protocol == "cbdr"
    works = open_work(every) if is_pipeline else []
    costs = {work.folder.cell.name: work.costs() for work in works}
    folders = [folder for folder in every if is_pipeline or has_questions(folder.cell, experiment)]
    cells = tuple(
        _pipeline_estimate(folder.cell, costs.get(folder.cell.name)) if is_pipeline else _cell_estimate(folder)
        for folder in folders
    )
    notes = _short_data(experiment)
    if apart := len(every) - len(folders):
        notes.append(f"{counted(apart, 'cell is', 'cells are')} left out: their questions cannot be loaded")
    once = [model.name for model in experiment.models if not experiment.repeats(model)]
    if once and len(experiment.seeds) > 1:
        notes.append(f"one run of {', '.join(once)}: no seed changes its answers")
    if not is_pipeline and (left := [cell for cell in cells if cell.recorded != cell.questions]):
        notes += _cost_notes(left, experiment)
    journals = [path for folder in folders for path in folder.file("").glob("*.journal")]
    if journals:
        notes.append(
            f"{counted(len(journals), 'recording was', 'recordings were')} interrupted: what a journal holds is not asked again, and is counted here "
            "all the same"
        )
    obstacles = find_obstacles(experiment, out)
    notes += obstacles.notes
    return Estimate(
        cells=cells,
        problems=tuple(obstacles.listed),
        notes=tuple(notes),
        level=experiment.level,
        stages=stage_tables(works, len(every)),
    )


def _cost_notes(left: list[CellEstimate], experiment: Experiment) -> list[str]:
    """Return notes on the origin of the estimated costs."""
    notes = []
    if any(cell.recorded for cell in left):
        notes.append(
            "tokens, money and time are extrapolated from the recorded questions of the same cell, whose spread over questions makes the "
            "intervals; the intervals of all cells are summed end by end, as cells share questions"
        )
    if not all(cell.recorded for cell in left):
        notes.append(f"{NOT_KNOWN}: no question of the cell is recorded; `--pilot 5` records five of each split")
    notes.append("minutes: those of the requests, as many at once as `concurrency` says, without loading models")
    if experiment.prices is None:
        notes.append(f"money is {NOT_KNOWN}: the file names no prices")
    return notes


def _short_data(experiment: Experiment) -> list[str]:
    """Return a note for each limit that exceeds the number of questions in its data."""
    notes = []
    for item in experiment.data:
        for split in item.splits if item.problem is None else ():
            n, limit = len(item.questions(split)), getattr(item, f"{split}_limit")
            if limit is not None and n < limit:
                notes.append(f"data {item.name!r}: {split}-limit is {limit:,}, and there are {counted(n, 'question')}")
    return notes


def _cell_estimate(folder: CellFolder) -> CellEstimate:
    cell, level = folder.cell, folder.experiment.level
    questions = {split: cell.data.questions(split) for split in cell.splits}
    pending = [question for split, listed in questions.items() for question in folder.pending(split, listed)]
    total = sum(map(len, questions.values()))
    paths = [folder.file(f"{split}.parquet") for split in cell.splits]
    spent = [_spent(folder, read_recording(path)) for path in paths if path.exists()]
    values = {name: np.concatenate([np.empty(0), *(part[name] for part in spent)]) for name in _COSTS}
    left = {name: extrapolate(values[name], len(pending), level) for name in _COSTS}
    calls = [_calls(question, folder) for question in pending]
    if None not in calls:
        left["calls"] = sum(n for n in calls if n is not None)
    return CellEstimate(cell=cell.name, questions=total, recorded=total - len(pending), left=left)


def _pipeline_estimate(cell: Cell, costs: Mapping[str, Any] | None) -> CellEstimate:
    """Return the estimate of a cell of CBDR; `costs` is None if the cell's pipeline has finished."""
    left = dict.fromkeys(_COSTS, 0) if costs is None else costs
    if cell.data.problem is not None:
        return CellEstimate(cell=cell.name, questions=NOT_KNOWN, recorded=0, left=left)
    total = sum(len(cell.data.questions(split)) for split in cell.data.splits)
    return CellEstimate(cell=cell.name, questions=total, recorded=total * (costs is None), left=left)


def _calls(question: Question, folder: CellFolder) -> int | None:
    """Return the number of calls of a question if the settings determine it (TASR: one for each round); else None."""
    experiment, rival = folder.experiment, folder.cell.rival
    if experiment.protocol != "tasr" or (rival is None and experiment.signals.judge_model is not None):
        return None
    if rival is not None and rival.looping.method is not None:
        return None
    most = experiment.max_rounds
    if folder.cell.retriever.options.corpus is None:
        most = min(most, len({passage.title for passage in question.passages}))
    return most + has_round_zero(folder.cell, experiment)


def _spent(folder: CellFolder, recording: Recording) -> dict[str, Floats]:
    """Return calls, tokens, USD and minutes of each recorded question that did not fail, over all rounds."""
    sums = {name: np.where(recording.seen, recording.column(name), 0.0).sum(axis=1) for name in recording.names("cost")}
    nothing = np.zeros(len(recording.question_ids))

    def total(kind: str, leave_out: Collection[str] = ()) -> Floats:
        others = {f"cost.{component}.{kind}" for component in leave_out}
        parts = (values for name, values in sums.items() if name.endswith(f".{kind}") and name not in others)
        spent: Floats = sum(parts, nothing)
        return spent

    tokens = [total(f"{kind}_tokens") for kind in _PRICED_KINDS]
    try:
        prices = cell_prices(folder.cell, folder.experiment)
    except SufficeError:  # reported with the problems of the cell
        prices = None
    money = nothing + np.nan if prices is None else nothing
    for component, price in (prices or {}).items():
        money = money + price.of(*(sums.get(f"cost.{component}.{kind}_tokens", nothing) for kind in _PRICED_KINDS))
    values = {
        "calls": total("calls", NOT_LANGUAGE_MODELS),
        "tokens": tokens[0] + tokens[1] + tokens[2],
        "usd": money,
        "minutes": total("seconds") / 60 / folder.experiment.at_once(folder.cell.model),
    }
    return {name: value[recording.ends != "failed"] for name, value in values.items()}
