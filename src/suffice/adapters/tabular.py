"""Any table of rounds, CSV or JSON lines, with a map from this library's names to the table's columns.

One row for each question and round, in any order::

    read_tabular("runs.csv", {"question_id": "qid", "round": "step", "answer": "ans", "golds": "gold", "p_correct": "conf"})
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from suffice.adapters.base import ImportedRun, ImportedTrajectory, check_unit, end_of, json_lines, score
from suffice.errors import DataError, SchemaError
from suffice.metrics import METRICS
from suffice.rounds import COST_KINDS, Cost, End, Round
from suffice.signals import SIGNALS

__all__ = ["Grid", "read_tabular", "trajectories"]

_TEXT = frozenset({"question_id", "cluster", "end", "question", "answer", "text", "feedback", "finish_reason"})
_OWN = _TEXT | {"round", "golds"}
_EMPTY = frozenset({"", "nan", "null", "none", "na"})
_ENDS = get_args(End)


def read_tabular(
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    first_round: int | None = None,
    ended_early: End | None = None,
) -> ImportedRun:
    """Read a `.csv` or `.jsonl` file of rounds.

    Names of ours: `question_id` and `round` (required), `answer`, `golds` (a text, or a JSON list of texts), `question`,
    `cluster`, `end`, `text`, `feedback`, `finish_reason`; metrics (`em`, `f1`, `contains`), computed from answer and golds
    where the table has none; every signal (`suffice signals`); costs as ``cost.<component>.<kind>``.  Another name that
    is mapped becomes a signal of its own.  Columns that are not mapped are kept as they are.

    Args:
        path: The table.
        columns: Our name to the table's column; None for columns that have our names already.
        first_round: What the table's lowest round is in our count, 0 (closed book) or 1 (the first evidence or
            draft); None if it counts so already.
        ended_early: Why trajectories are shorter than the longest one, where the table has no `end`: `rule` marks
            them censored, `exhausted` says that there was no more evidence.

    Raises:
        DataError: A value cannot be used; the message names file and row.
        SchemaError: The file is of another kind, or lacks a column.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"no file {str(path)!r}; give a .csv or .jsonl file.")
    if path.suffix not in (".csv", ".jsonl"):
        raise SchemaError(f"{path}: a table of rounds ends in .csv or .jsonl; convert it.")
    records = list(_csv(path) if path.suffix == ".csv" else json_lines(path))
    if not records:
        raise DataError(f"{path}: no rows; expected one for each question and round.")
    names = list(dict.fromkeys(name for _, record in records for name in record))
    if columns is None:
        known = _OWN | set(METRICS) | set(SIGNALS)
        columns = {name: name for name in names if name in known or _is_cost(name)}
    grid = Grid(columns=dict(columns), first_round=first_round, ended_early=ended_early)
    grid.check(path, names)
    return ImportedRun(source="tabular", trajectories=trajectories(records, grid, str(path)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """How a table is read; see `read_tabular`."""

    columns: Mapping[str, str]
    first_round: int | None = None
    ended_early: End | None = None

    def check(self, path: Path, names: Sequence[str]) -> None:
        """Refuse a map that the table cannot serve."""
        missing = [ours for ours in ("question_id", "round") if ours not in self.columns]
        if missing:
            raise SchemaError(f"{path}: no column is mapped to {missing[0]!r}; there are: {', '.join(names)}.")
        absent = {ours: theirs for ours, theirs in self.columns.items() if theirs not in names}
        if absent:
            ours, theirs = next(iter(absent.items()))
            raise SchemaError(f"{path}: no column {theirs!r} (for {ours!r}); there are: {', '.join(names)}.")
        for ours in self.columns:
            if ours not in _OWN and not _is_cost(ours) and not ours.isidentifier():
                raise DataError(
                    f"{ours!r} is no name of ours; see read_tabular, or use letters, digits and _ for a signal of your own."
                )
        if self.first_round not in (None, 0, 1):
            raise DataError(f"first_round is {self.first_round!r}; allowed are 0, 1 and None.")
        if self.ended_early is not None and self.ended_early not in _ENDS:
            raise DataError(f"ended_early is {self.ended_early!r}; allowed are {', '.join(_ENDS)} and None.")


def trajectories(records: Sequence[tuple[str, Mapping[str, Any]]], grid: Grid, where: str) -> list[ImportedTrajectory]:
    """Group rows by question.

    Args:
        records: Each row with the place where it stands.
        grid: How it is read.
        where: The file, for messages.

    Raises:
        DataError: A value cannot be used, or a question's rounds have a gap or a copy.
    """
    rows = [_row(record, grid.columns, spot) for spot, record in records]
    lowest = min(row.index for row in rows)
    shift = 0 if grid.first_round is None else grid.first_round - lowest
    by_question: dict[str, dict[int, _Row]] = {}
    for row in rows:
        rounds = by_question.setdefault(row.own["question_id"], {})
        if row.index in rounds:
            raise DataError(
                f"{row.where}: question {row.own['question_id']!r} has round {row.index} already, at "
                f"{rounds[row.index].where}; each pair must be unique."
            )
        rounds[row.index] = row
    longest = max(map(len, by_question.values()))
    found = []
    for question_id, rounds in by_question.items():
        ordered = [rounds[index] for index in sorted(rounds)]
        try:
            found.append(_trajectory(question_id, ordered, grid, shift, longest))
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    where: str
    index: int
    own: Mapping[str, Any]
    golds: tuple[str, ...]
    metrics: Mapping[str, float]
    signals: Mapping[str, float]
    costs: Mapping[str, Cost]
    extras: Mapping[str, Any]


def _row(record: Mapping[str, Any], columns: Mapping[str, str], where: str) -> _Row:
    given = {ours: record.get(theirs) for ours, theirs in columns.items()}
    own = {name: _text(given[name], name, where) for name in given if name in _TEXT}
    if not own["question_id"]:
        raise DataError(f"{where}: {columns['question_id']} is empty; every row needs the id of its question.")
    index = _number(given["round"], "round", where)
    if not (index.is_integer() and index >= 0):
        raise DataError(f"{where}: round is {given['round']!r}; expected a whole number of at least 0.")
    if own.get("end") and own["end"] not in _ENDS:
        raise DataError(f"{where}: end is {own['end']!r}; allowed are {', '.join(_ENDS)}.")
    costs: dict[str, dict[str, float]] = {}
    for name in filter(_is_cost, given):
        _, component, kind = name.split(".", 2)
        costs.setdefault(component, dict.fromkeys(COST_KINDS, math.nan))[kind] = _number(given[name], name, where)
    signals = [name for name in given if name not in _OWN and name not in METRICS and not _is_cost(name)]
    mapped = set(columns.values())
    return _Row(
        where=where,
        index=int(index),
        own=own,
        golds=_golds(given.get("golds"), where),
        metrics={name: check_unit(_number(given[name], name, where), name, where) for name in given if name in METRICS},
        signals={name: _number(given[name], name, where) for name in signals},
        costs={component: Cost(**kinds) for component, kinds in costs.items()},
        extras={name: value for name, value in record.items() if name not in mapped},
    )


def _trajectory(question_id: str, rows: Sequence[_Row], grid: Grid, shift: int, longest: int) -> ImportedTrajectory:
    first = rows[0]
    end = first.own.get("end") or None
    if end is None and len(rows) < longest and grid.ended_early is None:
        raise DataError(
            f"question {question_id!r} has {len(rows)} rounds, others have {longest}, and nothing tells why it ended: "
            "map a column to 'end', or set ended_early to 'rule' (a stopping rule cut it: censored) or 'exhausted'."
        )
    metrics = []
    for row in rows:
        # Without a column of answers, what a metric says would be about nothing.
        computed = score(row.own.get("answer"), row.golds if "answer" in row.own else ())
        metrics.append({**computed, **row.metrics})
    return ImportedTrajectory(
        question_id=question_id,
        cluster=first.own.get("cluster") or question_id,
        question=first.own.get("question") or "",
        golds=first.golds,
        rounds=tuple(
            Round(
                index=row.index + shift,
                answer=row.own.get("answer"),
                text=row.own.get("text") or "",
                signals=row.signals,
                costs=row.costs,
                feedback=row.own.get("feedback"),
                finish_reason=row.own.get("finish_reason"),
            )
            for row in rows
        ),
        end=end or end_of(len(rows), longest, grid.ended_early or "max_rounds"),
        metrics=tuple(metrics),
        extras=tuple(row.extras for row in rows),
    )


def _is_cost(name: str) -> bool:
    parts = name.split(".")
    return len(parts) == 3 and parts[0] == "cost" and bool(parts[1]) and parts[2] in COST_KINDS  # noqa: PLR2004


def _text(value: Any, name: str, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and math.isnan(value):  # how data frames spell a missing text
        return None
    if isinstance(value, bool | list | dict) or (isinstance(value, float) and not value.is_integer()):
        if name == "answer" and isinstance(value, bool | float):
            return str(value).lower()
        raise DataError(f"{where}: {name} is {value!r:.80}; expected text.")
    return str(int(value))


def _number(value: Any, name: str, where: str) -> float:
    if value is None or (isinstance(value, str) and value.strip().lower() in _EMPTY):
        return math.nan
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return float(value.strip().lower() == "true")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(f"{where}: {name} is {value!r:.80}; expected a number, or nothing where undefined.") from None


def _golds(value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            value = [value]  # a text that happens to start with a bracket
    if value is None or value == "":
        return ()
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in listed):
        raise DataError(f"{where}: golds is {value!r:.80}; expected a text, or a JSON list of texts.")
    return tuple(str(item) for item in listed)


def _csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    limit = csv.field_size_limit(sys.maxsize)  # a passage or a draft may have a megabyte
    try:
        table = csv.DictReader(_decoded(path), strict=True)
        for record in table:
            where = f"{path}, line {table.line_num}"
            if None in record or None in record.values():
                raise DataError(f"{where}: expected {len(table.fieldnames or ())} fields, as in the header.")
            # An empty field is a missing value: CSV cannot tell the two apart.
            yield where, {name: value or None for name, value in record.items()}
    except csv.Error as error:
        raise DataError(f"{path}: not CSV ({error}).") from error
    finally:
        csv.field_size_limit(limit)


def _decoded(path: Path) -> Iterator[str]:
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            try:
                yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}, line {number}: not UTF-8 ({error.reason}); save the file as UTF-8."
                ) from error
