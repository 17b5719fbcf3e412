"""What an experiment will still cost, extrapolated from the questions that are recorded."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
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
from suffice_papers.experiments.cbdr_cells import is_finished, work_of
from suffice_papers.experiments.checks import cell_prices, find_problems
from suffice_papers.experiments.choices import SPLITS
from suffice_papers.experiments.plan import Experiment
from suffice_papers.experiments.sources import convert_sources, source_notes
from suffice_papers.experiments.stages import CellFolder
from suffice_papers.experiments.variance import NOT_KNOWN

__all__ = ["CellEstimate", "Estimate", "Extrapolated", "estimate_experiment", "extrapolate"]

_PRICED_KINDS = ("uncached", "cached", "output")
_FACTORS = {"tokens": 1.0, "usd": 1.0, "seconds": 1 / 60}
"""What is extrapolated, and what it is multiplied with for the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolated:
    """A sum over questions that are not asked yet.

    Attributes:
        value: The estimate; NaN if nothing is known.
        half: Half the width of its prediction interval; NaN where one question cannot show it.
    """

    value: float
    half: float = 0.0

    def shown(self, factor: float) -> Any:
        """Return the estimate with its interval, times a factor, or that it is unknown."""
        if math.isnan(self.value):
            return NOT_KNOWN
        low = self.value - self.half
        return tuple(
            factor * part for part in (self.value, low if low > 0 or math.isnan(low) else 0.0, self.value + self.half)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEstimate:
    """What is left to do in a cell.

    Attributes:
        cell: Its name.
        questions: Tune and eval questions that it records.
        recorded: Those that are recorded.
        calls: Calls that are left; at most so many, for a retriever may run out of passages. Extrapolated, with its
            interval, where they do not follow from the settings.
        costs: Tokens, USD and seconds that are left, by name.
        basis: Recorded questions behind `costs`.
    """

    cell: str
    questions: int
    recorded: int
    calls: Any
    costs: dict[str, Extrapolated]
    basis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Result):
    """What an experiment will cost from here on.

    Attributes:
        cells: What is left, cell by cell.
        problems: What would end the run, or leave its tables empty.
        notes: What a reader must know.
        level: Coverage of the intervals.
    """

    cells: tuple[CellEstimate, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    level: float

    @property
    def sentence(self) -> str:
        """The totals in one sentence."""
        total = self.table().rows[-1]
        columns = self.table().columns
        texts = dict(
            zip(
                [column.name for column in columns],
                [c.text(v) for c, v in zip(columns, total, strict=True)],
                strict=True,
            )
        )
        state = f"{counted(len(self.problems), 'problem')} to solve first" if self.problems else "no problem was found"
        return (
            f"{counted(len(self.cells), 'cell')}; left: {texts['calls left']} calls, {texts['tokens']} tokens, {texts['USD']} USD, "
            f"{texts['minutes']} minutes; {state}."
        )

    def table(self) -> Table:
        """Return what is left, cell by cell and in total."""
        shown = [tuple(cell.costs[name].shown(factor) for name, factor in _FACTORS.items()) for cell in self.cells]
        shown = [(cell.calls, *costs) for cell, costs in zip(self.cells, shown, strict=True)]
        counts = [(cell.questions, cell.recorded) for cell in self.cells]
        rows = [(cell.cell, *count, *costs) for cell, count, costs in zip(self.cells, counts, shown, strict=True)]
        totals = (*(sum(part) for part in zip(*counts, strict=True)), *map(_total, zip(*shown, strict=True)))
        columns = (
            Column("cell"),
            *(Column(name, ",.0f") for name in ("questions", "recorded")),
            Column("calls left", ",.0f", interval=any(isinstance(row[3], tuple) for row in (*rows, ("", *totals)))),
            Column("tokens", ",.0f", interval=True),
            Column("USD", ",.2f", interval=True),
            Column("minutes", ",.1f", interval=True),
        )
        title = f"What is left to ask, with {100 * self.level:g} % prediction intervals"
        return Table(title=title, columns=columns, rows=(*rows, ("all", *totals)), notes=self.notes)

    def tables(self) -> list[Table]:
        """Return what is left, and the problems."""
        problems = Table(title="Problems", columns=(Column("problem"),), rows=tuple((text,) for text in self.problems))
        return [self.table(), *([problems] if self.problems else [])]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "sentence": self.sentence,
            "cells": self.table().to_dict()["rows"],
            "problems": list(self.problems),
            "notes": list(self.notes),
        }


def _total(parts: tuple[Any, ...]) -> Any:
    """Return the sum of intervals end by end, as cells share questions; a lower bound where some are unknown."""
    known = [part for part in parts if part != NOT_KNOWN]
    if not known:
        return NOT_KNOWN
    if not any(isinstance(part, tuple) for part in known) and len(known) == len(parts):
        return sum(known)
    known = [part if isinstance(part, tuple) else (part, part, part) for part in known]
    sums = tuple(float(sum(ends)) for ends in zip(*known, strict=True))
    return sums if len(known) == len(parts) else (sums[0], math.inf)


def estimate_experiment(experiment: Experiment, out: str | Path) -> Estimate:
    """Return what is left to ask in an experiment and what that will cost; no request is sent to a model.

    Published sets that the file names are converted first.

    Calls follow from the settings.  Tokens, money and time are extrapolated from the questions of the same cell that are
    recorded, for instance by a pilot; without any they are unknown.

    Args:
        experiment: The experiment.
        out: The folder of its results.
    """
    out = Path(out)
    convert_sources(experiment)
    folders = [CellFolder(out, cell, experiment) for cell in experiment.cells()]
    cells = tuple(_cell_estimate(folder) for folder in folders)
    basis = "extrapolated from the recorded questions of the same cell, whose spread over questions makes the intervals"
    notes = [*source_notes(experiment), *_short_data(experiment)]
    once = [model.name for model in experiment.models if not experiment.repeats(model)]
    if once and len(experiment.seeds) > 1:
        notes.append(f"one run of {', '.join(once)}: no seed changes its answers")
    left = [cell for cell in cells if cell.recorded < cell.questions]
    if any(cell.basis for cell in left):
        notes.append(
            f"tokens, money and time are {basis}; the intervals of all cells are summed end by end, as cells share questions"
        )
    problems = find_problems(experiment, out)
    if left and experiment.protocol == "cbdr":
        notes.append(f"{NOT_KNOWN}: tokens, money and minutes of a pipeline cannot be extrapolated: it has no pilot")
        notes += [_pipeline_note(folders)] if not problems else []
    elif any(not cell.basis for cell in left):
        notes.append(f"{NOT_KNOWN}: no question of the cell is recorded; `--pilot 5` records five of each split")
    if left and experiment.protocol != "cbdr":
        notes.append("minutes: those of the requests, as many at once as `concurrency` says, without loading models")
    if left and experiment.prices is None and experiment.protocol != "cbdr":
        notes.append(f"money is {NOT_KNOWN}: the file names no prices")
    journals = [path for folder in folders for path in folder.file("").glob("*.journal")]
    if journals:
        notes.append(
            f"{counted(len(journals), 'recording was', 'recordings were')} interrupted: what a journal holds is not asked again, and is counted here "
            "all the same"
        )
    return Estimate(
        cells=cells,
        problems=tuple(problems),
        notes=tuple(notes),
        level=experiment.level,
    )


def _short_data(experiment: Experiment) -> list[str]:
    """Return a note for each limit that is larger than its data."""
    notes = []
    for item in experiment.data:
        for split in item.splits:
            n, limit = len(item.questions(split)), getattr(item, f"{split}_limit")
            if limit is not None and n < limit:
                notes.append(f"data {item.name!r}: {split}-limit is {limit:,}, and there are {counted(n, 'question')}")
    return notes


def _cell_estimate(folder: CellFolder) -> CellEstimate:
    experiment = folder.experiment
    if experiment.protocol == "cbdr":
        return _pipeline_estimate(folder)
    questions = {split: folder.cell.data.questions(split) for split in folder.cell.splits}
    pending = [question for split, listed in questions.items() for question in folder.pending(split, listed)]
    total = sum(map(len, questions.values()))
    paths = [folder.file(f"{split}.parquet") for split in SPLITS]
    values = _recorded_costs(folder, [read_recording(path) for path in paths if path.exists()])
    values["seconds"] = values["seconds"] / experiment.at_once(folder.cell.model)
    calls: Any = sum(_calls(question, folder) for question in pending)
    if math.isnan(calls):
        calls = extrapolate(values["calls"], len(pending), experiment.level).shown(1)
    return CellEstimate(
        cell=folder.cell.name,
        questions=total,
        recorded=total - len(pending),
        calls=calls,
        costs={name: extrapolate(values[name], len(pending), experiment.level) for name in _FACTORS},
        basis=len(values["tokens"]),
    )


def _pipeline_estimate(folder: CellFolder) -> CellEstimate:
    """Return what is left of CBDR's pipeline: answers by its settings and journals, and everything else unknown."""
    total = sum(len(folder.cell.data.questions(split)) for split in folder.cell.data.splits)
    finished = is_finished(folder)
    unknown = Extrapolated(value=math.nan, half=math.nan)
    try:
        left: Any = 0 if finished else work_of(folder).left
    except SufficeError:  # one of the problems
        left = NOT_KNOWN
    return CellEstimate(
        cell=folder.cell.name,
        questions=total,
        recorded=total if finished else 0,
        calls=left,
        costs=dict.fromkeys(_FACTORS, Extrapolated(value=0.0) if finished else unknown),
        basis=0,
    )


def _pipeline_note(folders: Sequence[CellFolder]) -> str:
    """Return what CBDR's calls are, and what its models do beside them."""
    reads = sum(work_of(folder).reads for folder in folders if not is_finished(folder))
    return (
        "calls: the answers that the models still generate, without those in the journals of a pipeline that was interrupted; "
        f"beside them the models read at most {reads:,} prompts for their states, and a cross-encoder is trained for each cell"
    )


def _calls(question: Question, folder: CellFolder) -> float:
    """Return the calls of a question that follow from the settings: in TASR one for each round; NaN if they do not follow."""
    experiment, rival = folder.experiment, folder.cell.rival
    if experiment.protocol != "tasr" or (rival is None and experiment.signals.judge_model is not None):
        return math.nan
    if rival is not None and rival.looping.method is not None:
        return math.nan
    most = experiment.max_rounds
    if folder.cell.retriever.options.corpus is None:
        most = min(most, len({passage.title for passage in question.passages}))
    return most + has_round_zero(folder.cell, experiment)


def _recorded_costs(folder: CellFolder, recordings: list[Recording]) -> dict[str, Floats]:
    """Return calls, tokens, USD and seconds of each recorded question."""
    parts = [_spent(folder, recording) for recording in recordings]
    return {name: np.concatenate([np.empty(0), *(part[name] for part in parts)]) for name in ("calls", *_FACTORS)}


def _spent(folder: CellFolder, recording: Recording) -> dict[str, Floats]:
    """Return what each question that did not fail spent over all its rounds."""
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
    except SufficeError:  # one of the problems
        prices = None
    money = nothing + np.nan if prices is None else nothing
    for component, price in (prices or {}).items():
        money = money + price.of(*(sums.get(f"cost.{component}.{kind}_tokens", nothing) for kind in _PRICED_KINDS))
    values = {
        "calls": total("calls", NOT_LANGUAGE_MODELS),
        "tokens": tokens[0] + tokens[1] + tokens[2],
        "usd": money,
        "seconds": total("seconds"),
    }
    return {name: value[recording.ends != "failed"] for name, value in values.items()}


def extrapolate(values: Floats, left: int, level: float) -> Extrapolated:
    """Return the sum over further questions, with the prediction interval of a normal sample.

    >>> extrapolate(np.array([2.0, 4.0]), 10, 0.95).value
    30.0

    Args:
        values: Of the recorded questions, shape ``(n_questions,)``; NaN where unknown.
        left: How many further ones there are.
        level: Coverage of the interval.
    """
    from scipy.stats import t

    n = len(values)
    if left == 0:
        return Extrapolated(value=0.0)
    if not n or np.isnan(values).any():
        return Extrapolated(value=math.nan, half=math.nan)
    half = math.nan
    if n > 1:  # the spread of the further questions, and the error of the mean of the recorded ones
        half = float(t.ppf((1 + level) / 2, n - 1)) * math.sqrt(float(values.var(ddof=1)) * (left + left**2 / n))
    return Extrapolated(value=left * float(values.mean()), half=half)
