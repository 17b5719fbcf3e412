"""Recorded Reflexion trials: JSON lines, one question of one log a line.

``{"log": ..., "question": ..., "gold": ..., "trials": [{"trial": 1, "answer": ..., "logged_correct": false}, ...]}``

Reflexion (Shinn et al., 2023) tries again until the gold answer says that it was right.  Trials after the first success
are copies in the logs, not runs: they are cut, and such a trajectory ends by `rule`.  It is **censored by a stop that
used the gold label**, which no rule of a deployed loop can do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from suffice.adapters.base import ImportedRun, ImportedTrajectory, one_call, score, text_id, unknown_metrics
from suffice.errors import DataError
from suffice.rounds import Round

__all__ = ["read_reflexion"]


def read_reflexion(path: str | Path, *, incomplete: Literal["drop", "keep"] = "drop") -> ImportedRun:
    """Read Reflexion's trials; round r is trial r, and the rows of one question, from several logs, form a cluster.

    Args:
        path: The JSON lines file.
        incomplete: Logs of some agents lack trials of some questions.  `"drop"` leaves such trajectories out and
            notes how many; `"keep"` gives the lacking trials no answer and undefined metrics.

    Raises:
        DataError: A line is no such record; the message names file and line.
    """
    path = Path(path)
    if incomplete not in ("drop", "keep"):
        raise DataError(f"incomplete is {incomplete!r}; allowed are 'drop' and 'keep'.")
    if not path.is_file():
        raise DataError(f"no file {str(path)!r}; give a JSON lines file of Reflexion trials.")
    trajectories: list[ImportedTrajectory] = []
    seen: dict[str, str] = {}
    cut = lacking = disagree = 0
    for where, record in _records(path):
        trials = _until_success(record["trials"])
        cut += len(record["trials"]) - len(trials)
        complete = [trial["trial"] for trial in trials] == list(range(1, len(trials) + 1))
        lacking += not complete
        if not complete and incomplete == "drop":
            continue
        trajectory = _trajectory(record, trials)
        if trajectory.question_id in seen:
            raise DataError(
                f"{where}: this question of log {record['log']!r} was read before, at {seen[trajectory.question_id]}."
            )
        seen[trajectory.question_id] = where
        disagree += sum(
            given["em"] != extra["logged_correct"]
            for given, extra in zip(trajectory.metrics, trajectory.extras, strict=True)
            if not (math.isnan(given["em"]) or extra["logged_correct"] is None)
        )
        trajectories.append(trajectory)
    if not trajectories:
        raise DataError(f"{path}: no trajectory with all its trials; expected at least one.")
    censored = sum(item.end == "rule" for item in trajectories)
    clusters = len({item.cluster for item in trajectories})
    verb = "were left out" if incomplete == "drop" else "have rounds without an answer"
    notes = [
        f"{len(trajectories)} trajectories of {clusters} questions; resample by cluster",
        f"{censored} trajectories ended at the first logged success, by the gold label: censored",
        f"{cut} trials after a success were copies and were cut",
        f"{lacking} trajectories lack trials in their log and {verb}",
        f"em differs from logged_correct in {disagree} trials: the logs normalise answers in another way",
    ]
    return ImportedRun(source="reflexion", trajectories=trajectories, notes=notes)


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            if not raw.strip():
                continue
            try:
                record = json.loads(raw.decode("utf-8"))
            except ValueError as error:
                raise DataError(f"{where}: not JSON in UTF-8 ({error}).") from error
            _check(record, where)
            yield where, record


def _check(record: Any, where: str) -> None:
    if not isinstance(record, dict) or not all(
        isinstance(record.get(name), str) for name in ("log", "question", "gold")
    ):
        raise DataError(f"{where}: expected an object with the texts log, question and gold, and with trials.")
    trials = record.get("trials")
    if not isinstance(trials, list) or not trials:
        raise DataError(f"{where}: trials is {trials!r:.80}; expected a list of at least one trial.")
    before = 0
    for trial in trials:
        fine = (
            isinstance(trial, dict)
            and isinstance(trial.get("trial"), int)
            and isinstance(trial.get("answer"), str | None)
            and isinstance(trial.get("logged_correct"), bool)
        )
        if not fine or trial["trial"] <= before:
            raise DataError(
                f"{where}: trial {trial!r:.120}; expected trial (a rising number from 1), answer and logged_correct."
            )
        before = trial["trial"]


def _until_success(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = []
    for trial in trials:
        kept.append(trial)
        if trial["logged_correct"]:
            break
    return kept


def _trajectory(record: Mapping[str, Any], trials: list[dict[str, Any]]) -> ImportedTrajectory:
    by_number = {trial["trial"]: trial for trial in trials}
    numbers = range(1, trials[-1]["trial"] + 1)
    cluster, golds = text_id(record["question"]), (record["gold"],)
    agent, *strategy = record["log"].split("/")[:-1] or [record["log"]]
    return ImportedTrajectory(
        question_id=f"{cluster}@{record['log']}",
        cluster=cluster,
        question=record["question"],
        golds=golds,
        rounds=tuple(
            Round(
                index=number,
                answer=by_number[number]["answer"] if number in by_number else None,
                costs={"generator": one_call()},
            )
            for number in numbers
        ),
        end="rule" if trials[-1]["logged_correct"] else "max_rounds",
        metrics=tuple(
            score(by_number[number]["answer"], golds) if number in by_number else unknown_metrics()
            for number in numbers
        ),
        extras=tuple(
            {"logged_correct": float(by_number[number]["logged_correct"]) if number in by_number else None}
            for number in numbers
        ),
        labels={"log": record["log"], "agent": agent, "strategy": "/".join(strategy)},
    )
