"""The cells of a paper's tables: which recordings belong to which model, retriever and corpus."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from suffice.errors import CensoredError, DataError, SufficeError
from suffice.papers.published import published_tasr
from suffice.replays import CostTable, ReplayResult, calibrate, policy_for, replay
from suffice.replays.baselines import (
    Bench,
    Run,
    closed_book,
    fixed_budget,
    oracle_best,
    oracle_earliest,
    random_stop,
    run_policy,
)
from suffice.replays.evaluate import drop_failed
from suffice.replays.outcomes import outcome
from suffice.searches.data import by_prompt
from suffice.session import Policy
from suffice.statistics import Resampling
from suffice.store import Recording, read_recording

__all__ = ["BUDGET", "SETTINGS", "Cell", "CellRuns", "defined", "load_cell", "read_cells", "with_evidence"]

BUDGET = 5
"""TASR's R; later rounds of a recording are left out."""

SETTINGS = {"distractor": "distractor", "open": "open-domain BM25", "dense": "open-domain dense"}
"""What a cell's evidence comes from, as the paper groups its tables: 1 and 2, 4, 5."""

_LEAST = 3  # rounds: every difference is against fixed_k(3)
_REQUIRED = ("name", "model", "retriever", "corpus", "setting", "tune", "eval")
_OPTIONAL = ("prompt", "published")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One configuration and its two recordings.

    Attributes:
        name: What the tables call it.
        model: The model that answered.
        retriever: What ranked the passages.
        corpus: What they came from.
        setting: A key of `SETTINGS`.
        tune: The recording that calibrators are fitted on; for a transferred calibration that of another cell.
        eval: The recording that the tables are of; no question of `tune`.
        prompt: The prompt's id; the tables are of `answer_first`, figure 5 is of all prompts.
        published: The cell of the paper that this one repeats; "" if it repeats none.
    """

    name: str
    model: str
    retriever: str
    corpus: str
    setting: str
    tune: Path
    eval: Path
    prompt: str = "answer_first"
    published: str = ""

    def __post_init__(self) -> None:
        if self.setting not in SETTINGS:
            raise DataError(f"cell {self.name!r}: setting {self.setting!r}; allowed: {', '.join(SETTINGS)}")
        if not self.published:
            return
        known = published_tasr().cells
        if self.published not in known:
            raise DataError(
                f"cell {self.name!r}: the paper has no cell {self.published!r}; there are: {', '.join(known)}. Leave "
                "`published` out for a cell of your own"
            )
        theirs = known[self.published]["setting"]
        prompts = ("answer_first", "confidence_first")
        if theirs != self.setting or self.prompt not in prompts:
            raise DataError(
                f"cell {self.name!r} cannot stand beside {self.published!r}: that one has the setting {theirs!r} and a "
                f"prompt among {', '.join(prompts)}, this one {self.setting!r} and {self.prompt!r}"
            )


def read_cells(path: str | Path) -> list[Cell]:
    """Read a list of cells: a TOML file with one ``[[cell]]`` for each; paths are relative to the file.

    Raises:
        DataError: The file is missing or no TOML, or a cell is wrong; the message names the cell and the key.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no list of cells at {str(path)!r}")
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not TOML in UTF-8: {error}") from None
    entries = data.pop("cell", None)
    if data or not isinstance(entries, list) or not entries:
        other = f", not {', '.join(map(repr, data))}" if data else ""
        raise DataError(f"{path}: a list of cells holds [[cell]] tables, at least one{other}")
    cells = [_cell(entry, number, path) for number, entry in enumerate(entries, start=1)]
    _once(path, "name", [cell.name for cell in cells])
    _once(path, "published cell and prompt", [f"{cell.published}, {cell.prompt}" for cell in cells if cell.published])
    return cells


def _once(path: Path, what: str, values: list[str]) -> None:
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise DataError(f"{path}: two cells have the {what} {twice!r}")


def _cell(entry: Any, number: int, path: Path) -> Cell:
    where = f"{path}: cell {number}"
    if not isinstance(entry, dict):
        raise DataError(f"{where} is {entry!r}; write [[cell]], then one key a line")
    where = f"{path}: cell {entry['name']!r}" if isinstance(entry.get("name"), str) else where
    allowed = (*_REQUIRED, *_OPTIONAL)
    unknown = [key for key in entry if key not in allowed]
    if unknown:
        raise DataError(f"{where} has the unknown key {unknown[0]!r}; allowed: {', '.join(allowed)}")
    missing = [key for key in _REQUIRED if key not in entry]
    if missing:
        raise DataError(f"{where} lacks the key {missing[0]!r}; needed: {', '.join(_REQUIRED)}")
    for key, value in entry.items():
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{where}: {key} is {value!r}; expected text")
    files = {key: path.parent / entry[key] for key in ("tune", "eval")}
    for key, file in files.items():
        if not file.is_file():
            raise DataError(f"{where}: there is no {key} recording at {str(file)!r}")
    prompt = entry.get("prompt", "answer_first").split("@")[0]  # a prompt's id may name its version
    return Cell(**{**entry, **files, "prompt": prompt})


@dataclass(frozen=True, kw_only=True)
class CellRuns:
    """A cell with its recordings and what TASR and the baselines do on them.

    Attributes:
        cell: The cell.
        tune: Recorded tune questions with the cell's prompt, failed ones left out.
        eval: The same of eval questions.
        prompts: Tune and eval with all the prompts that their files hold.
        policy: TASR, its calibrator fitted on `tune`; None where that cannot be done.
        result: The replay of that policy; None where it cannot be done.
        runs: TASR, its random twin, fixed budgets, closed book and oracles by label; empty where `result` is None.
        problem: Why `result` is None.
        notes: What a reader must know.
    """

    cell: Cell
    tune: Recording
    eval: Recording
    prompts: tuple[Recording, Recording]
    policy: Policy | None = None
    result: ReplayResult | None = None
    runs: Mapping[str, Run] = field(default_factory=dict)
    problem: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def f1(self) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """F1 of each question by run, shape ``(n_questions,)``."""
        return {label: run.values["f1"] for label, run in self.runs.items()}

    @cached_property
    def calls(self) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Calls of each question by run, shape ``(n_questions,)``."""
        return {label: run.ledger.calls for label, run in self.runs.items()}


def load_cell(cell: Cell, *, resampling: Resampling = Resampling()) -> CellRuns:
    """Read the recordings of a cell, fit TASR on tune and replay it on eval.

    Where the recordings lack what the rule or its score needs, the cell has no runs, and says why.

    Raises:
        DataError: A recording does not read or has other prompts, or both hold the same question.
    """
    prompts = _read(cell.tune), _read(cell.eval)
    tune, evaluation = (_with_prompt(recording, cell) for recording in prompts)
    common = sorted(_units(tune) & _units(evaluation))
    if common:
        raise DataError(
            f"cell {cell.name!r}: {len(common)} questions are in both recordings ({common[0]!r}): what is fitted on tune "
            "questions must be judged on others"
        )
    try:
        if evaluation.index[-1] < _LEAST:
            raise DataError(
                f"the recording ends at round {int(evaluation.index[-1])}; the tables compare with fixed_k({_LEAST})"
            )
        policy, notes = _tasr(tune, evaluation)
        result = replay(
            evaluation,
            [policy],
            metrics=("f1",),
            baseline="fixed_k(3)",
            resampling=resampling,
        )
        runs = _runs(evaluation, policy)
        _refuse_cut(runs)
    except SufficeError as error:
        return CellRuns(cell=cell, tune=tune, eval=evaluation, prompts=prompts, problem=str(error))
    return CellRuns(
        cell=cell,
        tune=tune,
        eval=evaluation,
        prompts=prompts,
        policy=policy,
        result=result,
        runs=runs,
        notes=tuple(notes),
    )


def _refuse_cut(runs: Mapping[str, Run]) -> None:
    cut = {label: int(run.unrun.sum()) for label, run in runs.items() if not run.exact}
    if cut:
        label, n = next(iter(cut.items()))
        raise CensoredError(
            f"a rule ended the recording of {n} questions before {label} would have stopped, so the tables cannot be "
            "filled: record those questions at full width, without a rule"
        )


def defined(recording: Recording, name: str) -> bool:
    """Return whether a recording has a numeric column with at least one defined value."""
    return name in recording.table.column_names and bool(np.isfinite(recording.column(name)).any())


def _units(recording: Recording) -> set[str]:
    return {*map(str, recording.clusters.tolist()), *recording.question_ids}


def _read(path: Path) -> Recording:
    recording = _within_budget(drop_failed(read_recording(path))[0])
    # The authors draw from questions in the order of their ids, so intervals do not depend on a file's.
    keys = [name for name in ("cluster", "question_id", "round") if name in recording.table.column_names]
    ordered = Recording(recording.table.sort_by([(name, "ascending") for name in keys]), recording.metadata)
    ordered.data_hash = recording.data_hash  # what readers compare is the file, whose order counts
    return ordered


def with_evidence(recording: Recording) -> Recording:
    """Return the rounds from the first passage on, which the paper's signals are of; round 0 is the model alone."""
    if recording.index[0] > 0:
        return recording
    return Recording(recording.table.filter(pc.field("round") > 0), recording.metadata)


def _with_prompt(recording: Recording, cell: Cell) -> Recording:
    """Return the rounds that were recorded with the cell's prompt; all of them where no prompt was recorded."""
    parts = by_prompt(recording)
    if list(parts) == [""]:
        return recording
    if cell.prompt not in parts:
        raise DataError(
            f"cell {cell.name!r} has the prompt {cell.prompt!r}, its recordings {', '.join(map(repr, parts))}: set the "
            "cell's `prompt`, or name another recording"
        )
    return parts[cell.prompt]


def _within_budget(recording: Recording) -> Recording:
    if recording.index[-1] <= BUDGET:
        return recording
    return Recording(recording.table.filter(pc.field("round") <= BUDGET), recording.metadata)


def _tasr(tune: Recording, evaluation: Recording) -> tuple[Policy, list[str]]:
    """Return TASR fitted on tune; where no margins were recorded, TASR on the recorded `p_correct`."""
    if all(defined(recording, "answer_margin") for recording in (tune, evaluation)):
        return calibrate(tune, rule="tasr", max_rounds=int(evaluation.index[-1]))[0], []
    return policy_for(evaluation, "tasr"), ["no answer_margin was recorded: p_correct is read as it was recorded"]


def _runs(recording: Recording, policy: Policy) -> dict[str, Run]:
    f1, em = outcome(recording, "f1"), outcome(recording, "em")
    bench = Bench(recording, {"f1": f1}, CostTable(recording), recording.rounds(policy.raw_columns))
    run, stopped = run_policy(bench, policy, label="tasr")
    listed = [closed_book(bench)] if recording.index[0] == 0 else []
    listed += [fixed_budget(bench, k) for k in range(1, bench.highest + 1)]
    listed += [run, random_stop(bench, policy, stopped), oracle_earliest(bench, em), oracle_best(bench, f1)]
    return {item.label: item for item in listed}
