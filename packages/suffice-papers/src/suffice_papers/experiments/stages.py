"""The folder of a cell: its recordings, and results that are computed from the recordings.

An interrupted recording resumes, but a recording never mixes two settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from suffice.common.files import write_file
from suffice.common.results import jsonable
from suffice.errors import ConfigMismatchError, DataError, SufficeError
from suffice.evaluation.replay.costs import NOT_LANGUAGE_MODELS
from suffice.loops import LiveLoop, Progress, RecordSummary, RetrievalLoop, ThinkingLoop, record
from suffice.loops.retrieval import Question
from suffice.recordings.journal import differences
from suffice.recordings.recording import open_recording
from suffice.recordings.stored import StoredRows
from suffice_papers.experiments.building import Loaded, cell_settings
from suffice_papers.experiments.choices import SPLITS
from suffice_papers.experiments.plan import Cell, Experiment

T = TypeVar("T")

_NAMED_AT_MOST = 3
"""Most question ids in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutcome:
    """The outcome of one recording or pipeline of a cell in this run.

    Attributes:
        cell: Name of the cell.
        stage: Name of the stage.
        done: True if the stage ran now; False if it was already complete.
        calls: Calls of models in this run.
        failed: The error of each failed question, by id.
    """

    cell: str
    stage: str
    done: bool
    calls: float = 0.0
    failed: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CellFolder:
    """The files of a cell.

    Args:
        out: The folder of the experiment's results.
        cell: The cell.
        experiment: The experiment.
    """

    out: Path
    cell: Cell
    experiment: Experiment

    def file(self, name: str) -> Path:
        """Return the path of a file of the cell."""
        return self.out / "cells" / self.cell.name / name

    def recording(self, split: str) -> Path:
        """Return the path of a recording.

        With a transferred calibration, the tune recording is that of another cell.
        """
        cell = self.experiment.tune_cell(self.cell) if split == "tune" else self.cell
        return CellFolder(self.out, cell, self.experiment).file(f"{split}.parquet")

    def recorded(self, split: str) -> dict[str, str]:
        """Return how each recorded question ended, by id; empty if there is no recording yet."""
        path = self.file(f"{split}.parquet")
        return dict(StoredRows(path, open_recording(path)).ends) if path.exists() else {}

    def pending(self, split: str, questions: Sequence[Question]) -> list[Question]:
        """Return the questions that remain to be recorded: new questions, and questions that failed."""
        ends = self.recorded(split)
        return [question for question in questions if ends.get(question.question_id, "failed") == "failed"]

    @property
    def is_pending(self) -> bool:
        """True if some of the cell's questions remain to be recorded."""
        return any(self.pending(split, self.cell.data.questions(split)) for split in self.cell.splits)

    def check(self) -> None:
        """Raise if the cell was recorded with settings or questions that differ from those in the file.

        Raises:
            ConfigMismatchError: The cell has other settings or questions; the message says what changed.
        """
        stored = self._stored()
        if not stored:
            return
        restore = "restore the old value, or give another --out"
        changed = differences(stored["settings"], jsonable(cell_settings(self.cell, self.experiment)))
        if changed:
            raise ConfigMismatchError(
                f"the cell {self.cell.name} was recorded with other settings ({'; '.join(changed)}): {restore}"
            )
        for split in self.cell.splits:
            now = self.cell.data.hashes(split)
            for question_id, digest in stored["questions"].get(split, {}).items():
                if now.get(question_id, digest) != digest:
                    raise ConfigMismatchError(
                        f"the cell {self.cell.name} was recorded with another form of the {split} question {question_id!r}: {restore}"
                    )
            gone = [name for name in self.recorded(split) if name not in now]
            if gone:
                raise ConfigMismatchError(
                    f"the cell {self.cell.name} has recorded {len(gone)} {split} questions that are not asked for now "
                    f"({', '.join(map(repr, gone[:_NAMED_AT_MOST]))}): restore {split}-limit and {split}, or give another --out"
                )

    def remember(self) -> None:
        """Store the settings and the hashes of questions, before the first question is asked."""
        held = {split: self.cell.data.hashes(split) for split in self.cell.splits}
        stored = {"settings": jsonable(cell_settings(self.cell, self.experiment)), "questions": held}
        write_file(self.file("settings.json"), json.dumps(stored, indent=1, sort_keys=True) + "\n")

    def _stored(self) -> dict[str, Any]:
        """Return the stored settings and hashes; empty if nothing was recorded yet."""
        files = [self.file(f"{split}.parquet{suffix}") for split in SPLITS for suffix in ("", ".journal")]
        path = self.file("settings.json")
        if not any(file.exists() for file in files):
            return {}
        if not path.is_file():
            raise DataError(f"{str(path)!r} is missing, so nobody knows how this cell was recorded: give another --out")
        stored = json_of(path)
        if not isinstance(stored, dict) or not all(
            isinstance(stored.get(key), dict) for key in ("settings", "questions")
        ):
            raise DataError(f"{str(path)!r} is damaged, so nobody knows how this cell was recorded: give another --out")
        return stored


def record_cell(
    folder: CellFolder,
    build: Callable[[Cell, Experiment, Loaded], LiveLoop],
    loaded: Loaded,
    *,
    first: int | None = None,
    on_progress: Callable[[str, Progress], None] | None = None,
) -> list[StageOutcome]:
    """Record the missing questions of a cell; no model is loaded if no question is missing.

    Args:
        folder: The cell.
        build: Function that builds the cell's loop and loads its models.
        loaded: The parts that earlier cells have loaded.
        first: For a pilot, the number of questions of each split to record; a later run continues the same recording.
        on_progress: Called with the split and the progress of its recording.

    Raises:
        ConfigMismatchError: The cell was recorded with other settings or questions.
        ModelError: The model cannot be reached, or no question was answered.
    """
    folder.check()
    questions = {split: folder.cell.data.questions(split) for split in folder.cell.splits}
    pending = {split: folder.pending(split, listed[:first]) for split, listed in questions.items()}
    outcomes = [StageOutcome(cell=folder.cell.name, stage=f"record {split}", done=False) for split in questions]
    if not any(pending.values()):
        return outcomes
    folder.remember()
    loop = build(folder.cell, folder.experiment, loaded)
    if isinstance(loop, RetrievalLoop) and folder.cell.model.options.logprobs:
        loop.model.verify(frozenset({"logprobs"}))
    is_thought = isinstance(loop, ThinkingLoop)  # a chain of thought has no place for passages
    for place, (split, listed) in enumerate(questions.items()):
        if not pending[split]:
            continue
        report = None if on_progress is None else lambda progress, name=split: on_progress(name, progress)
        summary = record(
            [replace(item, passages=()) for item in listed[:first]] if is_thought else listed[:first],
            loop,
            folder.file(f"{split}.parquet"),
            concurrency=folder.experiment.at_once(folder.cell.model),
            on_progress=report,
        )
        outcomes[place] = _recorded(folder, split, summary)
    folder.check()  # a journal of an earlier run may have held questions that are not asked for now
    return outcomes


def _recorded(folder: CellFolder, split: str, summary: RecordSummary) -> StageOutcome:
    return StageOutcome(
        cell=folder.cell.name,
        stage=f"record {split}",
        done=True,
        calls=sum(cost.calls for name, cost in summary.costs.items() if name not in NOT_LANGUAGE_MODELS),
        failed=dict(summary.failed),
    )


def json_of(path: Path) -> Any:
    """Parse a JSON file; None if it is damaged."""
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError:
        return None


def write_result(path: Path, make: Callable[[], T]) -> T | SufficeError:
    """Compute a result, write it as JSON and return it; if it cannot be computed, write and return the error.

    Args:
        path: The file.
        make: Function that returns the result, an object with `to_dict`.
    """
    result: Any
    try:
        result = make()
        values = result.to_dict()
    except SufficeError as error:
        result, values = error, {"problem": str(error)}
    write_file(path, json.dumps(jsonable(values), ensure_ascii=False, indent=1) + "\n")
    return cast("T | SufficeError", result)
