"""TASR's predictions with fixed budgets: one JSON file for each k, all on the same questions.

A file such as ``fixed_k3_dev_eval.json`` contains ``{"predictions": {id: answer}, "confidences": {id: 1 to 5}}``, from
one call with the best k passages.  It is read as round k of the loop, which has the same evidence.  Rounds between two
budgets were never run, and have neither an answer nor metrics.  A file ``{id: answer}``, such as
``closed_book_dev_eval.json``, is round 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suffice.errors import DataError, SchemaError
from suffice.importers import Head, ImportedRun, ImportedTrajectory, one_call, unknown_metrics
from suffice.importers.files.recognise import data_files, json_document
from suffice.importers.rounds.trajectories import score
from suffice.policy.rounds import Round

_BUDGET = re.compile(r"(?<![a-z0-9])k[_=-]?(\d+)(?!\d)", re.IGNORECASE)
_ANSWERS, _CONFIDENCES = "predictions", "confidences"
_FEWEST = 2


def is_budget(head: Head) -> bool:
    """Return whether a file has the predictions of one budget."""
    return head.form in ("json", "jsonl") and all(
        isinstance(head.record.get(key), Mapping) for key in (_ANSWERS, _CONFIDENCES)
    )


def read_budgets(path: Path) -> ImportedRun:
    """Read a folder of predictions, one file for each budget, as one run whose rounds are the budgets.

    Raises:
        SchemaError: A file does not have this form.
        DataError: A file name contains no budget, two files have the same budget, there are fewer than two files, or
            their questions differ.
    """
    files: dict[int, tuple[Path, dict[str, str | None], dict[str, float]]] = {}
    for file in data_files(path):
        answers, confidences = _contents(file)
        k = _budget_of(file) if confidences is not None else 0
        if k in files:
            raise DataError(
                f"{file} and {files[k][0].name} both have the budget k = {k}: import each split and model from a folder of its own"
            )
        files[k] = file, answers, confidences or {}
    budgets = sorted(files)
    if len(budgets) < _FEWEST:
        raise DataError(
            f"{path} has the predictions of one budget, k = {budgets[0]}: nothing can be stopped earlier. Import the folder of all budgets"
        )
    ids = _same_questions([(file, answers) for file, answers, _ in (files[k] for k in budgets)])
    asked = range(min(budgets[0], 1), budgets[-1] + 1)
    trajectories = [
        ImportedTrajectory(
            question_id=name,
            cluster=name,
            rounds=tuple(_round(k, name, files.get(k)) for k in asked),
            metrics=tuple(score(files[k][1][name], ()) if k in files else unknown_metrics() for k in asked),
            end="max_rounds",
        )
        for name in ids
    ]
    gaps = [k for k in asked if k not in files]
    notes = [f"rounds are the budgets k = {', '.join(map(str, budgets))}: one call each, with the best k passages"]
    if gaps:
        notes.append(
            f"nothing was asked at k = {', '.join(map(str, gaps))}: these rounds have no answer, and a stop there returns the one before"
        )
    notes.append(
        "gold answers are not in the files: --golds joins them, for instance from the authors' data/dev_eval.json"
    )
    return ImportedRun(source="tasr", trajectories=trajectories, notes=notes)


def _budget_of(file: Path) -> int:
    found = _BUDGET.findall(file.name)
    if len(found) != 1 or int(found[0]) < 1:
        raise DataError(f"{file}: the name has no budget; write it as in fixed_k3.json")
    return int(found[0])


def _contents(file: Path) -> tuple[dict[str, str | None], dict[str, float] | None]:
    """Return the answers and the confidences of a file; the confidences are None for answers without evidence."""
    value: Any = json_document(file)
    if not isinstance(value, dict) or not value:
        raise SchemaError(f"{file}: expected {{'{_ANSWERS}': {{id: answer}}, '{_CONFIDENCES}': {{id: number}}}}")
    answers, confidences = (value.get(_ANSWERS), value.get(_CONFIDENCES)) if _ANSWERS in value else (value, None)
    if not isinstance(answers, dict) or not all(isinstance(text, str | None) for text in answers.values()):
        raise SchemaError(f"{file}: {_ANSWERS} is not a mapping from ids to texts: {answers!r:.80}")
    if confidences is None and _ANSWERS not in value:
        return answers, None
    if not isinstance(confidences, dict) or not all(_is_number(number) for number in confidences.values()):
        raise SchemaError(f"{file}: {_CONFIDENCES} is not a mapping from ids to numbers: {confidences!r:.80}")
    return answers, confidences


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _same_questions(files: list[tuple[Path, dict[str, str | None]]]) -> list[str]:
    """Return the ids of the questions, in the order of the first file; raise if files have different questions."""
    first, answers = files[0]
    for file, others in files[1:]:
        only = [*(answers.keys() - others.keys()), *(others.keys() - answers.keys())]
        if only:
            raise DataError(
                f"{first} and {file.name} have different questions: {len(only)} are in one of them only ({min(only)!r}). Import budgets of the "
                "same questions"
            )
    return list(answers)


def _round(k: int, name: str, found: tuple[Path, dict[str, str | None], dict[str, float]] | None) -> Round:
    """Return a round with its answer and confidence; if there is no file with this budget, both are missing."""
    answer, confidence = (None, None) if found is None else (found[1][name], found[2].get(name))
    signals = {"verbal_confidence": math.nan if confidence is None else float(confidence)}
    return Round(index=k, answer=answer, text=answer or "", signals=signals, costs={"generator": one_call()})
