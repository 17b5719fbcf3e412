"""Find the columns of a table by usual names, test their values, and record their meanings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.errors import DataError
from suffice.importers.columns.grid import END_NAMES, OWN_COLUMNS, cell_number, cell_text, whole_number
from suffice.importers.files.records import Record, column_names, places_of
from suffice.importers.rounds.trajectories import ColumnReading
from suffice.importers.words.names import (
    GOLDS,
    QUESTIONS,
    ends_with_round,
    is_argument,
    is_pass_name,
    last_name,
    plain_name,
)
from suffice.importers.words.sample_names import said_by_counter
from suffice.policy.normalizers import ANSWER_ID
from suffice.recordings.runs import tells_loops_apart

_PAIRS = 5
"""The fewest ids of two rows that are numbered if none has more rows."""


class TableColumns:
    """The columns of some rows; the values of each column are extracted once."""

    def __init__(self, rows: Sequence[Record]) -> None:
        self.rows = rows
        self.names = column_names(rows)
        self._columns: dict[str, list[Any]] = {}

    def column(self, name: str) -> list[Any]:
        """Return the values of a column; None in rows that lack it."""
        if name not in self._columns:
            self._columns[name] = [row.values.get(name) for row in self.rows]
        return self._columns[name]

    def filled(self, name: str) -> bool:
        """Return whether a column has a value in some row."""
        return any(value is not None for value in self.column(name))

    def by_name(self, usual: Iterable[str]) -> list[str]:
        """Return the columns with one of the usual names, the best name first, and fields of objects last.

        If an object named like a gold answer has only one field, this field counts as the gold answer, whatever its name.
        """
        places = {name: place for place, name in reversed(list(enumerate(usual)))}
        plain = [(name, plain_name(name).rpartition(".")) for name in self.names]
        alone = Counter(path for _, (path, _, _) in plain if path in GOLDS and path in places)
        plain = [(name, (path, _, path if alone[path] == 1 else last)) for name, (path, _, last) in plain]
        candidates = [
            (bool(path), places[last], name)
            for name, (path, _, last) in plain
            if last in places
            and not (last in GOLDS and is_argument(name))
            and (path == last or path.rpartition(".")[2] not in ("record", "provider", *GOLDS))
        ]
        return [name for _, _, name in sorted(candidates, key=lambda item: item[:2]) if self.filled(name)]

    def repeats(self, name: str) -> bool:
        """Return whether a column has only texts or whole numbers, and some value occurs several times."""
        values = [value for value in self.column(name) if value is not None]
        return all(isinstance(value, str | int) for value in values) and len(set(values)) < len(values)

    def lists_objects(self, name: str) -> bool:
        """Return whether a column has lists of objects, such as tags of a run."""
        return any(
            isinstance(value, list) and any(isinstance(item, dict) for item in value) for value in self.column(name)
        )

    def counts(self, name: str) -> bool:
        """Return whether all values of a column are whole numbers of at least 0, and not all are equal."""
        values = self.column(name)
        return all(_is_whole(value) for value in values) and len(set(map(str, values))) > 1

    def counts_in(self, name: str, key: str) -> bool:
        """Return whether a column's whole numbers start at 0 or 1 and have no gaps within each value of the column `key`."""
        numbers = self.whole_numbers(name)
        questions = places_of(map(str, self.column(key))).values()
        return all(counts_up([*{numbers[place] for place in own}]) for own in questions)

    def counters_in(self, names: Iterable[str], ids: Sequence[str]) -> list[str]:
        """Return the columns among `names` that number the rounds, passes or samples of a question; all of `names` have whole numbers.

        If the names of some columns end with a word for rounds, only these are returned.  A column of passes or samples must have each
        number once in every question, and no column that may distinguish loops, such as the model, may vary within questions.  Some
        samples must have numbers above 1, since 0 and 1 may be votes.  Without `ids`, texts identify questions.
        """
        called = [name for name in names if ends_with_round(name) and any(self.counts_in(name, key) for key in ids[:1])]
        texts = [name for name in self.by_name(QUESTIONS) if self.repeats(name)]
        keys = [*ids, *texts][:1]
        passes = [name for name in names if is_pass_name(name) and self._counts_passes(name, keys)]
        passes += [name for name in names if said_by_counter(name) == "samples" and max(self.whole_numbers(name)) > 1]
        return called or [name for name in passes if any(self._counts_once_in(name, key) for key in keys)]

    def _counts_passes(self, name: str, keys: Sequence[str]) -> bool:
        """Return whether a column counts passes: from 1, or from 0 in the order of the rows.

        In another order, 0 and 1 might say which tests passed.
        """
        return min(self.whole_numbers(name)) == 1 or any(self.numbers_rows(name, self.column(key)) for key in keys)

    def _counts_once_in(self, name: str, key: str) -> bool:
        is_once = len({*zip(map(str, self.column(key)), self.whole_numbers(name), strict=True)}) == len(self.rows)
        loops = filter(tells_loops_apart, self.names)
        are_one = all(self.constant_in(own, self.column(key)) for own in loops)
        return is_once and are_one and self.counts_in(name, key)

    def numbers_rows(self, name: str, ids: Sequence[Any]) -> bool:
        """Return whether a column only numbers the rows of each id in their order, from 0 or 1.

        To exclude chance, one id must have at least three rows, or several ids two rows each.
        """
        last: dict[Any, int] = {}
        start = None
        for own, value in zip(ids, self.column(name), strict=True):
            number = whole_number(str(value))
            if number is None or isinstance(value, bool):
                return False
            start = number if start is None else start
            if start > 1 or number != last.get(own, start - 1) + 1:
                return False
            last[own] = number
        pairs = [number for number in last.values() if number != start]
        return len(pairs) >= _PAIRS or any(number != start + 1 for number in pairs if start is not None)

    def whole_numbers(self, name: str) -> list[int]:
        """Return the values of a column for which `counts` is true, as integers."""
        return [int(float(value)) for value in self.column(name)]

    def numbers_items(self, name: str) -> bool:
        """Return whether a column numbers the items of each record's list, and is not an id that all items of a record share."""
        records = [row.number for row in self.rows]
        return last_name(name) in ("index", "idx", "id") and not self.constant_in(name, records)

    def not_whole(self, name: str) -> Any:
        """Return the first value that is not a whole number of at least 0; None if there is none."""
        return next((value for value in self.column(name) if not _is_whole(value)), None)

    def not_a_number(self, name: str) -> Any:
        """Return the first value that is not a number; None if there is none."""
        for value in self.column(name):
            try:
                cell_number(value, name, "")
            except DataError:
                return value
        return None

    def is_text(self, name: str) -> bool:
        """Return whether most values of a column are single texts or numbers; a few values may be lists."""
        values = [value for value in self.column(name) if value is not None]
        return 2 * sum(isinstance(value, str | int | float) for value in values) > len(values) or not values

    def lists_texts(self, name: str) -> bool:
        """Return whether a column has only lists of texts, such as several labels of one answer."""
        values = [value for value in self.column(name) if value is not None]
        return bool(values) and all(
            isinstance(value, list) and all(isinstance(item, str) for item in value) for value in values
        )

    def other_meaning(self, name: str) -> Any:
        """Return one of a column's values if most of them are impossible in this library's column of the same name; else None."""
        values = [value for value in self.column(name) if value is not None and value != ""]
        unusable = [value for value in values if not _is_usable(name, value)]
        return unusable[0] if 2 * len(unusable) > len(values) else None

    def numbers(self, name: str) -> list[float] | None:
        """Return the numbers of a column, without missing values; None if the column has no number, or if some value is not a number."""
        try:
            numbers = [cell_number(value, name, "") for value in self.column(name)]
        except DataError:
            return None
        known = [number for number in numbers if not math.isnan(number)]
        return known or None

    def judges_rounds(self, name: str, ids: Sequence[Any], but_for: float = 0.0) -> bool:
        """Return whether a column may judge rounds: it has only 0 and 1, and varies within a larger share of ids than `but_for`."""
        return {*(self.numbers(name) or ())} == {0.0, 1.0} and not self.constant_in(name, ids, but_for=but_for)

    def changing_in(self, name: str, ids: Sequence[Any]) -> int:
        """Return the number of ids with several values in a column, ignoring missing values."""
        first: dict[str, Any] = {}
        pairs = zip(map(str, ids), self.column(name), strict=True)
        return len({key for key, value in pairs if value is not None and first.setdefault(key, value) != value})

    def constant_in(self, name: str, ids: Sequence[Any], *, but_for: float = 0.0) -> bool:
        """Return whether a column has one value for each id, ignoring missing values.

        `but_for` is the share of ids that may have several values.
        """
        return self.changing_in(name, ids) <= but_for * len(set(map(str, ids)))


def several_rows(ids: Iterable[Any]) -> set[str]:
    """Return the questions that have several rows."""
    return {key for key, n in Counter(map(str, ids)).items() if n > 1}


def counts_up(numbers: Sequence[int]) -> bool:
    """Return whether numbers, in any order, run from 0 or 1 without gaps or duplicates.

    >>> counts_up([2, 1, 3]), counts_up([0, 2]), counts_up([2, 3])
    (True, False, False)
    """
    return min(numbers) <= 1 and sorted(numbers) == [*range(min(numbers), min(numbers) + len(numbers))]


def _is_usable(name: str, value: Any) -> bool:
    """Return whether `value` is possible in this library's column `name`."""
    if name == ANSWER_ID:
        return False  # in a log it is a row's id, while this library computes its own from the answers
    if name in ("answer", "golds", "round"):
        return True  # values that cannot be read raise an error that names their row
    try:
        if name == "end":
            return value in END_NAMES
        if name in OWN_COLUMNS:
            cell_text(value, name, "")
        else:
            cell_number(value, name, "")
    except (DataError, TypeError):
        return False
    return True


def _is_whole(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, str):
        return value.strip().removesuffix(".0").isdigit()
    return isinstance(value, int | float) and value >= 0 and value % 1 == 0


RECORD_NUMBER = "number of the record"
"""The reading of ids where each record is a question without one."""

WITHIN = "no column has them"
"""The reading of a count that another count contains."""


@dataclass(slots=True)
class ColumnMap:
    """The columns to read, each with its meaning, and the columns to compute.

    Attributes:
        columns: The file's column for each of this library's names.
        metrics: The file's columns for the user's own metrics, by name.
        labels: The file's columns for labels, by name.
        formulas: Functions that compute a column from a record, by the column's name.
        readings: The meaning of each column, to show to the user.
        notes: Notes on columns with usual names that cannot be used, with reasons.
        of_runs: Metrics that judge whole runs; each row of a run repeats the value.
        may_end: A column that may contain end reasons, but in unknown words; "" if there is none.
    """

    columns: dict[str, str]
    metrics: dict[str, str]
    labels: dict[str, str]
    formulas: dict[str, Callable[[Record], Any]] = field(default_factory=dict)
    readings: list[ColumnReading] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    of_runs: set[str] = field(default_factory=set)
    may_end: str = ""

    def read(
        self, ours: str, theirs: str, how: str = "usual name", shown: str = "", sources: Iterable[str] = ()
    ) -> None:
        """Read the file's column `theirs` as this library's column `ours`; `sources` are the columns from which it is computed, if any."""
        self.columns[ours] = theirs
        own = theirs if shown else ""
        self.readings.append(ColumnReading(ours=ours, theirs=shown or theirs, how=how, sources=(*sources,), column=own))

    def read_metric(self, ours: str, theirs: str, how: str, shown: str = "") -> None:
        """Read the file's column `theirs` as a metric."""
        self.metrics[ours] = theirs
        own = theirs if shown else ""
        self.readings.append(ColumnReading(ours=f"{ours} (metric)", theirs=shown or theirs, how=how, column=own))

    @property
    def sources(self) -> set[str]:
        """The file's columns from which other columns are computed."""
        return {name for item in self.readings for name in item.sources}

    def drop(self, ours: str) -> None:
        """Remove the column `ours` from those that are read."""
        self.columns.pop(ours, None)
        self.readings[:] = [item for item in self.readings if item.ours != ours]
