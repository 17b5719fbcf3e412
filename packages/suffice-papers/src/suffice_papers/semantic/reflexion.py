"""Recorded Reflexion trials: JSON lines, each with the trials of one question in one log.

Each line has this form:

``{"log": ..., "question": ..., "gold": ..., "trials": [{"trial": 1, "answer": ..., "logged_correct": false}, ...]}``

Reflexion (Shinn et al., 2023) tries again until its answer matches the gold answer.  In the logs, trials after the
first success are only copies, so they are cut, and the end of such a trajectory is `rule`.  It is **censored by a stop
that used the gold label**, which a rule of a deployed loop cannot use.

From the second trial on, some logs append an instruction to the question, once or twice ("You have attempted to answer
following question before and failed. ...").  The instruction is removed, and lines of one log that then have the same
question are merged.  Otherwise the published logs would seem to contain 195 questions instead of 100.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from suffice.common.files import json_lines
from suffice.errors import DataError
from suffice.importers import Head, ImportedRun, ImportedTrajectory, one_call, recognised_by, score, unknown_metrics
from suffice.loops.retrieval import text_id
from suffice.policy.rounds import Round
from suffice_papers.importing import existing

_APPENDED = "You have attempted to answer following question before and failed"


def _has_trials(head: Head) -> bool:
    """Return whether a file contains records of Reflexion: questions of a log, with their trials."""
    trials = head.record.get("trials") if head.has("log", "question", "gold") else None
    first = trials[0] if isinstance(trials, list) and trials else None
    return isinstance(first, dict) and {"trial", "logged_correct"} <= first.keys()


@recognised_by(_has_trials)
def read_reflexion(path: str | Path, *, incomplete: Literal["drop", "keep"] = "drop") -> ImportedRun:
    """Read Reflexion's trials.

    Round r is trial r.  Trajectories of one question in several logs form a cluster.

    Args:
        path: The JSON lines file.
        incomplete: Treatment of a question whose log lacks some trials, mostly the first ones. `"drop"` leaves the
            question's trajectory out, and a note contains the number of such trajectories. `"keep"` adds the missing
            trials, without an answer and with undefined metrics.

    Raises:
        DataError: A line does not have this form, or two lines contain the same trial; the message names file and line.
    """
    if incomplete not in ("drop", "keep"):
        raise DataError(f"incomplete is {incomplete!r}; allowed are 'drop' and 'keep'.")
    path = existing(path, "a JSON lines file of Reflexion trials")
    trajectories: list[ImportedTrajectory] = []
    cut = lacking = 0
    merged = _merged_trials(path)
    for (log, question), (gold, logged) in merged.items():
        trials = _until_success(logged)
        cut += len(logged) - len(trials)
        complete = max(trials) == len(trials)
        lacking += not complete
        if complete or incomplete == "keep":
            trajectories.append(_trials_trajectory(log, question, gold, trials))
    if not trajectories:
        raise DataError(f"{path}: no trajectory with all its trials; expected at least one.")
    censored = sum(item.end == "rule" for item in trajectories)
    verb = "were left out" if incomplete == "drop" else "have rounds without an answer"
    notes = [
        f"{len(trajectories)} trajectories of {len({item.cluster for item in trajectories})} questions; resample by cluster",
        f"{censored} trajectories ended at the first logged success, by the gold label: censored",
        f"{cut} trials after a success were copies and were cut",
        f"{lacking} of {len(merged)} trajectories lack trials in their log and {verb}",
        f"em differs from logged_correct in {_disagreements(trajectories)} trials: the logs compare answers in another way",
    ]
    return ImportedRun(source="reflexion", trajectories=trajectories, notes=notes)


_Trials = dict[int, dict[str, Any]]


def _merged_trials(path: Path) -> dict[tuple[str, str], tuple[str, _Trials]]:
    """Return the gold answer and the trials by log and question; the appended instruction is removed from questions."""
    merged: dict[tuple[str, str], tuple[str, _Trials]] = {}
    for where, record in json_lines(path):
        _check_record(record, where)
        question = record["question"].split(_APPENDED)[0].strip()
        if not question:
            raise DataError(f"{where}: question is {record['question']!r:.80}; expected a question.")
        gold, trials = merged.setdefault((record["log"], question), (record["gold"], {}))
        for trial in record["trials"]:
            if trial["trial"] in trials or gold != record["gold"]:
                raise DataError(
                    f"{where}: trial {trial['trial']} of {question!r:.60} in log {record['log']!r} was read before, or "
                    "with another gold answer; each may occur once."
                )
            trials[trial["trial"]] = trial
    return {key: (gold, dict(sorted(trials.items()))) for key, (gold, trials) in merged.items()}


def _check_record(record: Mapping[str, Any], where: str) -> None:
    if not all(isinstance(record.get(name), str) for name in ("log", "question", "gold")):
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


def _until_success(trials: _Trials) -> _Trials:
    first = next((number for number, trial in trials.items() if trial["logged_correct"]), max(trials))
    return {number: trial for number, trial in trials.items() if number <= first}


def _disagreements(trajectories: list[ImportedTrajectory]) -> int:
    pairs = [
        (metrics["em"], extra["logged_correct"])
        for item in trajectories
        for metrics, extra in zip(item.metrics, item.extras, strict=True)
    ]
    return sum(em != logged for em, logged in pairs if logged is not None)


def _trials_trajectory(log: str, question: str, gold: str, trials: _Trials) -> ImportedTrajectory:
    last = max(trials)
    rounds, metrics, extras = [], [], []
    for number in range(1, last + 1):
        trial = trials.get(number)
        answer = None if trial is None else trial["answer"]
        rounds.append(Round(index=number, answer=answer, costs={"generator": one_call()}))
        metrics.append(unknown_metrics() if trial is None else score(answer, (gold,)))
        extras.append({"logged_correct": None if trial is None else float(trial["logged_correct"])})
    agent, _, rest = log.partition("/")
    cluster = text_id(question)
    return ImportedTrajectory(
        question_id=f"{cluster}@{log}",
        cluster=cluster,
        question=question,
        golds=(gold,),
        rounds=tuple(rounds),
        end="rule" if trials[last]["logged_correct"] else "max_rounds",
        metrics=tuple(metrics),
        extras=tuple(extras),
        labels={"log": log, "agent": agent, "strategy": rest.rpartition("/")[0]},
    )
