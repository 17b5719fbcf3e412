"""The cells of a paper's tables: the recordings of each model, retriever and corpus."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from suffice.errors import CensoredError, DataError, NotFoundError, SufficeError
from suffice.evaluation.replay import ReplayResult, calibrate, policy_for, replay
from suffice.evaluation.replay.baselines import (
    Run,
    closed_book,
    fixed_budget,
    oracle_best,
    oracle_earliest,
    run_policy,
)
from suffice.evaluation.replay.outcomes import outcome
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.random_twins import random_stop
from suffice.evaluation.search.data import by_prompt
from suffice.evaluation.statistics import Resampling
from suffice.policy.session import Policy
from suffice.recordings import Recording, read_recording
from suffice_papers.published import published_tasr

BUDGET = 5
"""TASR's R; later rounds of a recording are left out."""

SETTINGS = {"distractor": "distractor", "open": "open-domain BM25", "dense": "open-domain dense"}
"""Sources of evidence by which the paper groups its tables: one for Tables 1 and 2, one for 4, and one for 5."""

_PAPER_PROMPT = "answer_first"
_FEWEST_ROUNDS = 3  # rounds: every difference is against fixed_k(3)
_REQUIRED = ("name", "model", "retriever", "corpus", "setting", "eval")
_OPTIONAL = ("tune", "prompt", "published")


@dataclass(frozen=True, slots=True, kw_only=True)
class TasrCell:
    """One configuration and its two recordings.

    Attributes:
        name: Name in the tables.
        model: The model that answered.
        retriever: The retriever of the passages.
        corpus: The source of the passages.
        setting: A key of `SETTINGS`.
        tune: Recording for fitting calibrators; for a transferred calibration, the tune recording of another cell.  If
            None, no rule is calibrated, and only fixed budgets are compared.
        eval: Recording for the tables; it has no question of `tune`.
        prompt: Id of the prompt.  The tables use cells with `answer_first`; if there are none, cells with the first
            cell's prompt.  Figure 5 uses all prompts.
        published: The paper's cell that this cell reproduces; "" if it reproduces none.
    """

    name: str
    model: str
    retriever: str
    corpus: str
    setting: str
    eval: Path
    tune: Path | None = None
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
                f"cell {self.name!r}: unknown published cell {self.published!r}; allowed: {', '.join(known)}. Leave "
                "`published` out for your own cells"
            )
        theirs = known[self.published]["setting"]
        prompts = ("answer_first", "confidence_first")
        if theirs != self.setting or self.prompt not in prompts:
            raise DataError(
                f"cell {self.name!r} cannot be compared with {self.published!r}, which has the setting {theirs!r} and a "
                f"prompt among {', '.join(prompts)}; this cell has {self.setting!r} and {self.prompt!r}"
            )


def main_prompt(cells: Sequence[CellRuns]) -> str:
    """Return the prompt of the tables: the paper's prompt, or if no cell has it, the first cell's prompt."""
    prompts = [item.cell.prompt for item in cells]
    return _PAPER_PROMPT if _PAPER_PROMPT in prompts or not prompts else prompts[0]


def read_cells(path: str | Path) -> list[TasrCell]:
    """Read a list of cells: a TOML file with one ``[[cell]]`` for each; paths are relative to the file.

    Raises:
        DataError: The file is missing or not TOML, or a cell is invalid; the message names the cell and the key.
    """
    path = Path(path)
    if not path.is_file():
        raise NotFoundError(f"the list of cells {str(path)!r} does not exist")
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not TOML in UTF-8: {error}") from None
    entries = data.pop("cell", None)
    if data or not isinstance(entries, list) or not entries:
        other = f", not {', '.join(map(repr, data))}" if data else ""
        raise DataError(f"{path}: a list of cells must contain at least one [[cell]] table{other}")
    cells = [_parsed_cell(entry, number, path) for number, entry in enumerate(entries, start=1)]
    _once(path, "name", [cell.name for cell in cells])
    _once(path, "published cell and prompt", [f"{cell.published}, {cell.prompt}" for cell in cells if cell.published])
    return cells


def _once(path: Path, what: str, values: list[str]) -> None:
    repeated = next((value for value in values if values.count(value) > 1), None)
    if repeated is not None:
        raise DataError(f"{path}: two cells have the {what} {repeated!r}")


def _parsed_cell(entry: Any, number: int, path: Path) -> TasrCell:
    where = f"{path}: cell {number}"
    if not isinstance(entry, dict):
        raise DataError(f"{where} is {entry!r}; write [[cell]], then one key per line")
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
    files = {key: path.parent / entry[key] for key in ("tune", "eval") if key in entry}
    for key, file in files.items():
        if not file.is_file():
            raise NotFoundError(f"{where}: the {key} recording {str(file)!r} does not exist")
    prompt = entry.get("prompt", "answer_first").split("@")[0]  # a prompt's id may contain its version
    return TasrCell(**{**entry, **files, "prompt": prompt})


@dataclass(frozen=True, kw_only=True)
class CellRuns:
    """A cell with its recordings and the runs of TASR and the baselines on them.

    Attributes:
        cell: The cell.
        tune: Recorded tune questions with the cell's prompt, without failed questions; the same as `eval` if the cell
            has no tune recording.
        eval: Recorded eval questions with the cell's prompt, without failed questions.
        prompts: Tune and eval recordings with all prompts in their files.
        policy: TASR with its calibrator fitted on `tune`; None if it cannot be fitted.
        result: The replay of the policy; None if the policy cannot be replayed.
        runs: The runs by label: of TASR, its random twin, fixed budgets, closed book and oracles; empty if `result` is
            None.
        problem: The reason why `result` is None; empty otherwise.
        notes: Deviations from the paper's procedure in this cell.
    """

    cell: TasrCell
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


def load_cell(cell: TasrCell, *, resampling: Resampling = Resampling()) -> CellRuns:
    """Read the recordings of a cell, fit TASR on tune and replay it on eval.

    If the recordings lack columns for the rule or its score, the cell has no runs, and `problem` says why.

    Raises:
        DataError: A recording cannot be read or lacks the cell's prompt, or a question is in both recordings.
    """
    if cell.tune is None:
        return _without_rule(cell)
    prompts = _read_ordered(cell.tune), _read_ordered(cell.eval)
    tune, evaluation = (_with_prompt(recording, cell) for recording in prompts)
    common = sorted(_units(tune) & _units(evaluation))
    if common:
        raise DataError(
            f"cell {cell.name!r}: {len(common)} questions are in both recordings ({common[0]!r}): fit on tune "
            "questions and evaluate on others"
        )
    try:
        if evaluation.index[-1] < _FEWEST_ROUNDS:
            raise DataError(
                f"the recording ends at round {int(evaluation.index[-1])}; the tables compare with fixed_k({_FEWEST_ROUNDS})"
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
        _check_complete(runs)
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


def _without_rule(cell: TasrCell) -> CellRuns:
    """Return a cell without a rule, in which only fixed budgets can be compared."""
    evaluation = _with_prompt(_read_ordered(cell.eval), cell)
    problem = "the cell has no tune recording, on which the rule is calibrated: only fixed budgets are compared"
    return CellRuns(cell=cell, tune=evaluation, eval=evaluation, prompts=(evaluation, evaluation), problem=problem)


def _check_complete(runs: Mapping[str, Run]) -> None:
    censored = {label: int(run.unrun.sum()) for label, run in runs.items() if not run.exact}
    if censored:
        label, n = next(iter(censored.items()))
        raise CensoredError(
            f"a rule ended the recording of {n} questions before {label} would have stopped, so the tables cannot be "
            "computed: record those questions in full, without a rule"
        )


def defined(recording: Recording, name: str) -> bool:
    """Return whether a recording has a numeric column with at least one defined value."""
    return name in recording.table.column_names and bool(np.isfinite(recording.column(name)).any())


def _units(recording: Recording) -> set[str]:
    return {*map(str, recording.clusters.tolist()), *recording.question_ids}


def _read_ordered(path: Path) -> Recording:
    recording = _within_budget(PreparedRecording.of(read_recording(path)).recording)
    # Like the authors, draw from questions in the order of their ids, so that intervals do not depend on the file's order.
    keys = [name for name in ("cluster", "question_id", "round") if name in recording.table.column_names]
    ordered = Recording(recording.table.sort_by([(name, "ascending") for name in keys]), recording.metadata)
    ordered.data_hash = recording.data_hash  # keep the hash of the file as it is, including its order
    return ordered


def with_evidence(recording: Recording) -> Recording:
    """Return the rounds with passages, where the paper's signals are defined; round 0 has no passages."""
    if recording.index[0] > 0:
        return recording
    return Recording(recording.table.filter(pc.field("round") > 0), recording.metadata)


def _with_prompt(recording: Recording, cell: TasrCell) -> Recording:
    """Return the rounds recorded with the cell's prompt, or all of them if no prompt was recorded."""
    parts = by_prompt(recording)
    if list(parts) == [""]:
        return recording
    if cell.prompt not in parts:
        raise DataError(
            f"cell {cell.name!r} has the prompt {cell.prompt!r}, but its recordings have {', '.join(map(repr, parts))}: set the "
            "cell's `prompt`, or use another recording"
        )
    return parts[cell.prompt]


def _within_budget(recording: Recording) -> Recording:
    if recording.index[-1] <= BUDGET:
        return recording
    return Recording(recording.table.filter(pc.field("round") <= BUDGET), recording.metadata)


def _tasr(tune: Recording, evaluation: Recording) -> tuple[Policy, list[str]]:
    """Return TASR calibrated on tune, and notes; without recorded margins, TASR reads the recorded `p_correct`."""
    if all(defined(recording, "answer_margin") for recording in (tune, evaluation)):
        return calibrate(tune, rule="tasr", max_rounds=int(evaluation.index[-1]), compare=False)[0], []
    return policy_for(evaluation, "tasr"), ["no answer_margin was recorded: p_correct is read as it was recorded"]


def _runs(recording: Recording, policy: Policy) -> dict[str, Run]:
    em = outcome(recording, "em")
    prepared = PreparedRecording.of(recording, ["f1"])
    run, stopped = run_policy(prepared, policy, label="tasr")
    listed = [closed_book(prepared)] if recording.index[0] == 0 else []
    listed += [fixed_budget(prepared, k) for k in range(1, prepared.highest + 1)]
    listed += [
        run,
        random_stop(prepared, policy, stopped),
        oracle_earliest(prepared, em),
        oracle_best(prepared, prepared.metrics["f1"]),
    ]
    return {item.label: item for item in listed}
