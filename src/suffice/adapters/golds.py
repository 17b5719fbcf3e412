"""Gold answers from another file: joined to a run by the questions' ids, or by their texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from suffice.adapters.base import ImportedRun, ImportedTrajectory, score
from suffice.adapters.grid import gold_texts
from suffice.adapters.names import GOLDS, IDS, QUESTIONS, plain_name
from suffice.adapters.records import Record, records_of
from suffice.errors import DataError, SchemaError
from suffice.metrics import normalize_answer
from suffice.tables import counted

__all__ = ["join_golds"]

_LISTED_IDS = 3


def join_golds(run: ImportedRun, path: str | Path) -> ImportedRun:
    """Return the run with the gold answers of a file, its metrics computed from them, and a note that says how many matched.

    Args:
        run: The run; gold answers of its own are replaced where the file has some.
        path: Questions with gold answers, in any form that `read_tabular` reads: an id or the question's text, and the answers.

    Raises:
        DataError: No question matches, or one has two different lists of gold answers.
        SchemaError: The file has no gold answers, or neither ids nor questions.
    """
    by_id, by_text = _golds(Path(path))
    ways: dict[str, int] = {"id": 0, "text": 0}
    trajectories = []
    for item in run.trajectories:
        golds = by_id.get(item.question_id) or by_id.get(item.cluster)
        ways["id"] += golds is not None
        if golds is None and item.question:
            golds = by_text.get(normalize_answer(item.question))
            ways["text"] += golds is not None
        trajectories.append(item if golds is None else _with_golds(item, golds))
    matched, n = sum(ways.values()), len(trajectories)
    if not matched:
        raise DataError(
            f"{path}: no question of the run is in it; the run has the ids "
            f"{', '.join(repr(item.question_id) for item in trajectories[:_LISTED_IDS])}, ..., the file "
            f"{', '.join(map(repr, list(by_id)[:_LISTED_IDS])) or 'none'}, ..."
        )
    how = " and ".join(f"{count} by {way}" for way, count in ways.items() if count)
    note = f"gold answers of {Path(path).name}: {matched} of {counted(n, 'trajectory', 'trajectories')} matched ({how})"
    missing = [item.question_id for item, old in zip(trajectories, run.trajectories, strict=True) if item is old]
    if missing:
        note += f"; missing for {', '.join(map(repr, missing[:_LISTED_IDS]))}{', ...' if len(missing) > _LISTED_IDS else ''}"
    return replace(run, trajectories=trajectories, notes=[*run.notes, note])


def _with_golds(item: ImportedTrajectory, golds: tuple[str, ...]) -> ImportedTrajectory:
    """Return a trajectory with gold answers; metrics that the file has itself stay if it has no other gold answers."""
    metrics = []
    for r, own in zip(item.rounds, item.metrics, strict=True):
        own_metrics = {} if item.golds else {name: value for name, value in own.items() if not math.isnan(value)}
        metrics.append({**own, **score(r.answer, golds), **own_metrics})
    return replace(item, golds=golds, metrics=tuple(metrics))


def _golds(path: Path) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return the gold answers by id, and by normalised question."""
    records = list(records_of(path))
    names = list(dict.fromkeys(name for item in records for name in item.values))

    def called(usual: tuple[str, ...]) -> list[str]:
        return [name for wanted in usual for name in names if plain_name(name) == wanted]

    golds, ids, questions = called((*GOLDS, "answers", "answer")), called(IDS), called(QUESTIONS)
    if not golds or not (ids or questions):
        lacking = "ids or questions" if golds else "gold answers"
        raise SchemaError(f"{path}: no column has {lacking}; there are: {', '.join(names)}")
    return _by(records, ids, golds, str), _by(records, questions, golds, normalize_answer)


def _by(
    records: list[Record], keys: list[str], columns: list[str], normalise: Callable[[str], str]
) -> dict[str, tuple[str, ...]]:
    """Return gold answers by the first of several columns that has a value."""
    result: dict[str, tuple[str, ...]] = {}
    for item in records:
        value = next((item.values[name] for name in keys if item.values.get(name) is not None), None)
        listed = (gold_texts(_cell(item.values, name), item.where) for name in columns)
        golds = next(filter(None, listed), ())
        if value is None or not golds:
            continue
        own = normalise(str(value))
        if result.setdefault(own, golds) != golds:
            raise DataError(f"{item.where}: {value!r:.60} has other gold answers here than before: {golds!r:.80}")
    return result


def _cell(values: Mapping[str, object], name: str) -> object:
    value = values.get(name)
    return str(value).lower() if isinstance(value, bool) else value
