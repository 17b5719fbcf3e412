"""Read the outcomes of whole runs, that is, whether each run succeeded, from another file."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from suffice.common.files import decoded, unpacked
from suffice.common.json_text import load_json
from suffice.common.tables import counted, cut_list
from suffice.errors import DataError, SchemaError
from suffice.importers.files.ids import plain_id
from suffice.importers.files.records import records_of
from suffice.importers.rounds.round_columns import RoundColumns
from suffice.importers.words.names import IDS, plain_name

RESOLVED = "resolved"
"""The metric of a run's grade."""

LISTS = {"resolved_ids": 1.0, "resolved": 1.0, "unresolved_ids": 0.0, "empty_patch_ids": 0.0, "error_ids": 0.0}
"""The lists of ids in a report of SWE-bench, with the grade of each."""

_GRADES = ("resolved", "success", "passed", "correct", "solved", "reward", "score")
_PAIR = 2
"""Columns of a table of which either names the other: an id and a grade."""


def _report(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty for any other file."""
    value = None
    with suppress(ValueError):
        value = load_json(decoded(b"".join(unpacked(path)), str(path)))
    return value if isinstance(value, dict) else {}


def _graded(grade: Any, where: str) -> float:
    """Return the grade in a table cell, or raise if it is not a grade."""
    with suppress(TypeError, ValueError):
        number = float({"true": 1, "false": 0}.get(str(grade).strip().lower(), grade))
        if 0 <= number <= 1:
            return number
    raise DataError(f"{where}: the grade {grade!r:.60} is neither true, false nor a number in [0, 1]")


def read_outcomes(path: str | Path) -> dict[str, float]:
    """Read the grade of each run by its id; a grade of 1 is success.

    The file is a SWE-bench report (lists of ids, or an object with `resolved` for each id), or a table with an id and a grade in
    [0, 1] in each row.  If a table has two columns, only one of them needs a usual name.

    Raises:
        SchemaError: The file is neither a report nor such a table.
        DataError: A grade is not in [0, 1], or an id has two different grades.
    """
    grades: dict[str, float] = {}
    for name, value in _report(Path(path)).items():
        if name in LISTS and isinstance(value, list):
            grades |= {str(own): LISTS[name] for own in value}
        elif isinstance(value, dict) and isinstance(value.get(RESOLVED), bool):
            grades[name] = float(value[RESOLVED])
    if grades:
        return grades
    for row in records_of(Path(path)):
        named = {plain_name(name): value for name, value in row.values.items()}
        key, graded = (next((name for name in usual if named.get(name) is not None), None) for usual in (IDS, _GRADES))
        if len(named) == _PAIR and (key is None) != (graded is None):
            (other,) = named.keys() - {key, graded}
            key, graded = key or other, graded or other
        own, grade = named.get(key or ""), named.get(graded or "")
        if own is None or grade is None:
            continue
        number = _graded(grade, row.where)
        if grades.setdefault(str(own), number) != number:
            raise DataError(
                f"{row.where}: {str(own)!r} is graded {number:g}, and {grades[str(own)]:g} before: grade several runs of a task as "
                f"{str(own) + '#1'!r}, {str(own) + '#2'!r}, ..., in the order of the log"
            )
    if not grades:
        raise SchemaError(
            f"{path}: no grades of runs; expected a report of SWE-bench, or a table with instance_id and resolved in each row"
        )
    return grades


class Outcomes:
    """Outcomes of whole runs from a file, joined to rounds by the ids of runs or of their questions.

    Args:
        path: The file; see `read_outcomes`.
    """

    def __init__(self, path: str | Path) -> None:
        self._path, self._grades = Path(path), read_outcomes(path)
        plain = Counter(map(plain_id, self._grades))
        self._plain = {plain_id(own): grade for own, grade in self._grades.items() if plain[plain_id(own)] == 1}
        self._matched = 0
        self._missing: list[str] = []

    def join(self, columns: RoundColumns) -> None:
        """Add the outcome of each run as the metric `resolved` of the run's last round; earlier rounds have no value."""
        grades = [*map(self._of, columns.question_ids, columns.clusters)]
        values = np.full(len(columns), math.nan)
        values[columns.starts + columns.lengths - 1] = grades
        columns.metrics[RESOLVED] = values
        self._matched += sum(not math.isnan(grade) for grade in grades)
        self._missing += [own for own, grade in zip(columns.question_ids, grades, strict=True) if math.isnan(grade)]

    def _of(self, question_id: str, cluster: str) -> float:
        """Return the outcome of a run; NaN if it is unknown."""
        exact = (self._grades.get(own) for own in (question_id, cluster))
        alike = (self._plain.get(plain_id(own)) for own in (question_id, cluster))
        return next((grade for grade in (*exact, *alike) if grade is not None), math.nan)

    def note(self) -> str:
        """Return a note on the number of runs with an outcome.

        Raises:
            DataError: No run has an outcome.
        """
        if not self._matched:
            raise DataError(
                f"{self._path}: no outcome is that of a run: the runs are {self._missing[0]!r:.60}, ..., the outcomes "
                f"{next(iter(self._grades))!r:.60}, ...; give the file with the ids of these runs (--outcomes)"
            )
        runs = counted(self._matched + len(self._missing), "run")
        return (
            f"{self._matched:,} of {runs} have an outcome in {self._path.name}: {RESOLVED!r} of the last round, since nobody knows what a loop "
            f"that stops earlier would have got{f'; missing for {cut_list(self._missing)}' if self._missing else ''}"
        )
