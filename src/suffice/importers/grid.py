"""Long tables of rounds: how their columns are read, and the trajectories of their rows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from suffice.common.files import quoted
from suffice.errors import DataError, SchemaError, UnsettledError, did_you_mean
from suffice.importers.base import ImportedTrajectory, check_unit, end_of, score
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import COST_KINDS, Cost, End, Round
from suffice.policy.signals import SIGNALS

__all__ = [
    "END_NAMES",
    "OWN_COLUMNS",
    "Grid",
    "cell_number",
    "cell_text",
    "differing_golds",
    "gold_texts",
    "group_trajectories",
    "is_cost",
    "list_text",
    "signal_cell",
    "whole_number",
]

_TEXT_COLUMNS = frozenset({"question_id", "cluster", "end", "question", "answer", "text", "feedback", "finish_reason"})
OWN_COLUMNS = _TEXT_COLUMNS | {"round", "golds"}
"""Names of ours beside signals, metrics and costs."""

_EMPTY = frozenset({"", "nan", "null", "none", "na", "n/a", "#n/a", "<na>", "-"})
_TRUTH_WORDS = {
    "true": 1.0,
    "yes": 1.0,
    "pass": 1.0,
    "passed": 1.0,
    "false": 0.0,
    "no": 0.0,
    "fail": 0.0,
    "failed": 0.0,
}
"""Words that are truth values where a number is expected."""
END_NAMES = get_args(End)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """How a table is read; see `read_tabular`.  `lowest` and `longest` are those of the table, where rows are a part of it."""

    columns: Mapping[str, str]
    metrics: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    first_round: int | None = None
    ended: End | None = None
    strict: bool = False
    listed_golds: bool = True
    list_answers: bool = False
    lowest: int | None = None
    longest: int | None = None

    def pairs(self) -> list[tuple[str, str]]:
        """Return our name and theirs of every column that is read."""
        return [*self.columns.items(), *self.metrics.items(), *self.labels.items()]

    def assumes_end(self, said: str | None, n_rounds: int, longest: int) -> bool:
        """Return whether nothing says why a trajectory has fewer rounds than the longest one.

        Args:
            said: The end that its rows name.
            n_rounds: Its rounds.
            longest: Those of the longest trajectory.
        """
        return not said and self.ended is None and n_rounds < longest

    def check(self, path: Path, names: Sequence[str]) -> None:
        """Refuse a map that the table cannot serve."""
        missing = [ours for ours in ("question_id", "round") if ours not in self.columns]
        if missing:
            raise SchemaError(
                f"{path}: no column is mapped to {missing[0]!r}; there are: {', '.join(names)}. Name it with --column "
                f"{missing[0]}=COLUMN, or the field with the list of a question's rounds with --column rounds=FIELD"
            )
        absent = [pair for pair in self.pairs() if pair[1] not in names]
        if absent:
            ours, theirs = absent[0]
            raise SchemaError(f"{path}: no column {theirs!r} (for {ours!r}); there are: {', '.join(names)}")
        for ours in self.columns:
            if ours not in OWN_COLUMNS and not is_cost(ours) and not ours.isidentifier():
                raise DataError(
                    f"{ours!r} is not a name of ours; see read_tabular, or use letters, digits and _ for a signal of your own"
                )
        for ours in (*self.metrics, *self.labels):
            if (
                not ours.isidentifier()
                or ours in OWN_COLUMNS
                or ours in SIGNALS
                or (ours in METRICS and ours in self.labels)
            ):
                raise DataError(f"{ours!r} cannot name a metric or label of your own; use letters, digits and _")
        if self.first_round not in (None, 0, 1):
            raise DataError(f"first_round is {self.first_round!r}; allowed are 0, 1 and None")
        if self.ended is not None and self.ended not in END_NAMES:
            raise DataError(f"ended is {self.ended!r}; allowed are {', '.join(END_NAMES)} and None")


def group_trajectories(
    records: Sequence[tuple[str, Mapping[str, Any]]],
    grid: Grid,
    where: str,
    differing: Callable[[str], None] | None = None,
) -> list[ImportedTrajectory]:
    """Group rows by question.

    Args:
        records: Each row with its place, for messages.
        grid: How it is read.
        where: The file, for messages.
        differing: Is given a message for each question whose gold answers differ between its rows, which then has none;
            None = raise it.

    Raises:
        DataError: A value cannot be used, or a question's rounds have a gap or a copy.
    """
    rows = [_round_of_row(record, grid, spot) for spot, record in records]
    lowest = min(row.index for row in rows) if grid.lowest is None else grid.lowest
    _settle_first_round(lowest, grid)
    shift = 0 if grid.first_round is None else grid.first_round - lowest
    by_question: dict[str, dict[int, _Row]] = {}
    for row in rows:
        rounds = by_question.setdefault(row.own["question_id"], {})
        if row.index in rounds:
            raise _occurs_twice(row, rounds[row.index], grid)
        rounds[row.index] = row
    longest = max(map(len, by_question.values())) if grid.longest is None else grid.longest
    trajectories = []
    for question_id, rounds in by_question.items():
        ordered = [rounds[index] for index in sorted(rounds)]
        try:
            trajectories.append(_trajectory_of_rows(question_id, ordered, grid, shift, longest, differing=differing))
        except UnsettledError:
            raise
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
    return trajectories


def _occurs_twice(row: _Row, other: _Row, grid: Grid) -> DataError:
    """Return the error about a question that has a round twice; the texts of two questions tell them apart."""
    question_id, text = row.own["question_id"], grid.columns.get("question")
    has_it = f"{row.where}: question {question_id!r} has round {row.index} already, at {other.where}"
    if text is not None and row.own["question"] != other.own["question"]:
        return UnsettledError(
            f"{has_it}, with another text: {other.own['question']!r:.40} there and {row.own['question']!r:.40} here, so "
            f"{grid.columns['question_id']!r} does not name one question",
            "columns",
            {
                f"--column {quoted(f'question_id={text}')}": (
                    {"question_id": text},
                    f"{text!r} tells the questions apart",
                ),
            },
        )
    return DataError(
        f"{has_it}; each pair must be unique. If they are several runs of one question, a column such as run_id or seed tells "
        "them apart"
    )


def _settle_first_round(lowest: int, grid: Grid) -> None:
    theirs = grid.columns["round"]
    if lowest or not grid.strict or grid.first_round is not None or theirs == "round" or "p_known" in grid.columns:
        return
    raise UnsettledError(
        f"{theirs!r} counts from 0: is 0 the model alone, or the loop's first draft?",
        "first_round",
        {
            "--first-round 0": (0, "0 is the model alone, without evidence: closed book"),
            "--first-round 1": (1, "0 is the first draft, or the first evidence"),
        },
    )


@dataclass(frozen=True, slots=True)
class _Row:
    where: str
    index: int
    own: Mapping[str, Any]
    golds: tuple[str, ...]
    metrics: Mapping[str, float]
    signals: Mapping[str, float]
    costs: Mapping[str, Cost]
    labels: Mapping[str, str | None]
    extras: Mapping[str, Any]


def _round_of_row(record: Mapping[str, Any], grid: Grid, where: str) -> _Row:
    columns = grid.columns
    cells = {ours: record.get(theirs) for ours, theirs in columns.items()}
    own = {name: cell_text(cells[name], name, where) for name in cells if name in _TEXT_COLUMNS}
    if not own["question_id"]:
        raise DataError(f"{where}: {columns['question_id']} is empty; every row needs the id of its question")
    index = cell_number(cells["round"], "round", where)
    if not (index.is_integer() and index >= 0):
        raise DataError(f"{where}: round is {cells['round']!r}; expected a whole number of at least 0")
    if own.get("end") and own["end"] not in END_NAMES:
        raise DataError(f"{where}: end is {own['end']!r}; allowed are {', '.join(END_NAMES)}")
    costs: dict[str, dict[str, float]] = {}
    for name in filter(is_cost, cells):
        _, component, kind = name.split(".", 2)
        costs.setdefault(component, dict.fromkeys(COST_KINDS, math.nan))[kind] = cell_number(cells[name], name, where)
    signals = [name for name in cells if name not in OWN_COLUMNS and name not in METRICS and not is_cost(name)]
    metrics = {name: cells[name] for name in cells if name in METRICS}
    metrics |= {name: record.get(theirs) for name, theirs in grid.metrics.items()}
    mapped = {theirs for _, theirs in grid.pairs()}
    return _Row(
        where=where,
        index=int(index),
        own=own,
        golds=gold_texts(cells.get("golds"), where, listed=grid.listed_golds, as_one=grid.list_answers),
        metrics={name: check_unit(cell_number(value, name, where), name, where) for name, value in metrics.items()},
        signals={name: signal_cell(cells[name], name, columns[name], where, strict=grid.strict) for name in signals},
        costs={component: Cost(**kinds) for component, kinds in costs.items()},
        labels={name: cell_text(record.get(theirs), name, where) for name, theirs in grid.labels.items()},
        extras={name: value for name, value in record.items() if name not in mapped},
    )


def signal_cell(value: Any, name: str, theirs: str, where: str, *, strict: bool) -> float:
    """Return a signal's value; one out of its range would be undefined, and a rule that reads it never fire.

    Raises:
        DataError: It is not a number, or out of its range.
    """
    signal = SIGNALS.get(name)
    try:
        number = cell_number(value, name, where)
    except DataError as error:
        hint = "" if signal is not None else f" {name!r} is a signal of your own.{did_you_mean(name, OWN_COLUMNS)}"
        raise DataError(f"{error}{hint}") from None
    if strict and signal is not None and not signal.clip and math.isfinite(number):
        low, high = signal.range
        if not low <= number <= high:
            raise DataError(
                f"{where}: {name} is {number!r} (column {theirs!r}), and it lies in [{low:g}, {high:g}]: scale the column, or "
                f"rename it to a signal of your own, --column my_{name}={theirs}"
            )
    return number


def _trajectory_of_rows(
    question_id: str,
    rows: Sequence[_Row],
    grid: Grid,
    shift: int,
    longest: int,
    *,
    differing: Callable[[str], None] | None,
) -> ImportedTrajectory:
    indices = [row.index + shift for row in rows]
    if indices[0] not in (0, 1) or indices != [*range(indices[0], indices[0] + len(indices))]:
        raise DataError(
            f"question {question_id!r} has the rounds {[row.index for row in rows]!r:.80}; expected 0, 1, 2, ... or 1, 2, ... "
            "without gaps. --column round= counts the rows of each question in their order instead"
        )
    first = rows[0]
    end = first.own.get("end") or None
    for name, value in first.labels.items():
        other = next((row for row in rows if row.labels[name] != value), None)
        if other is not None:
            raise DataError(
                f"{other.where}: a label is the same in all rounds of a question, and {name} of question {question_id!r} is "
                f"{value!r} and {other.labels[name]!r}; leave the column unmapped, and it is kept as it is"
            )
    golds = _golds_of_rows(question_id, rows, grid, differing)
    metrics = []
    for row in rows:
        # Without a column of answers, what a metric says would be about nothing.
        computed = (
            score(row.own.get("answer"), golds if "answer" in row.own else ()) if golds or not grid.strict else {}
        )
        metrics.append({**computed, **row.metrics})
    return ImportedTrajectory(
        question_id=question_id,
        cluster=first.own.get("cluster") or question_id,
        question=first.own.get("question") or "",
        golds=golds,
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
        end=end or end_of(len(rows), longest, grid.ended or "rule"),
        end_assumed=grid.assumes_end(end, len(rows), longest),
        metrics=tuple(metrics),
        extras=tuple(row.extras for row in rows),
        labels=dict(first.labels),
    )


def _golds_of_rows(
    question_id: str, rows: Sequence[_Row], grid: Grid, differing: Callable[[str], None] | None
) -> tuple[str, ...]:
    """Return the gold answers of a question, from all of its rows; none where rows contradict each other."""
    golds = tuple(dict.fromkeys(gold for row in rows for gold in row.golds))
    other = next((row for row in rows if row.golds and not {golds[0], *rows[0].golds} & {*row.golds}), None)
    if other is None:
        return golds
    message = (
        f"{other.where}: question {question_id!r} has other gold answers here ({list(other.golds)!r:.80}) than before "
        f"({golds[0]!r:.80})"
    )
    if differing is None:
        raise differing_golds(message, grid)
    differing(message)
    return ()


def differing_golds(message: str, grid: Grid) -> DataError:
    """Return the error about gold answers that differ between the rows of a question."""
    return DataError(
        f"{message}: is {grid.columns['golds']!r} what the model said? Map another column to golds, or --log-golds drop"
    )


def is_cost(name: str) -> bool:
    """Return whether a name of ours is ``cost.<component>.<kind>``."""
    parts = name.split(".")
    return len(parts) == 3 and parts[0] == "cost" and bool(parts[1]) and parts[2] in COST_KINDS  # noqa: PLR2004


def cell_text(value: Any, name: str, where: str) -> str | None:
    """Return a cell as text; numbers of an id or an answer are text, too, and an answer that is a list or an object is JSON.

    Raises:
        DataError: It is, except in an answer, a list, an object, a truth value or a fraction.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and math.isnan(value):  # how data frames spell a missing text
        return None
    if isinstance(value, bool | list | dict) or (isinstance(value, float) and not value.is_integer()):
        if name == "answer":
            return list_text(value) if isinstance(value, list | dict) else str(value).lower()
        raise DataError(f"{where}: {name} is {value!r:.80}; expected text")
    return str(int(value))


def list_text(value: Any) -> str:
    """Return a list or an object as JSON; the order of the items of a list does not count.

    >>> list_text(["b", "a"]), list_text([2, 5])
    ('["a", "b"]', '[2, 5]')
    """
    if isinstance(value, list):
        items = sorted(json.dumps(item, ensure_ascii=False, sort_keys=True, default=str) for item in value)
        return f"[{', '.join(items)}]"
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def cell_number(value: Any, name: str, where: str) -> float:
    """Return a cell as a number; NaN where it is empty.

    Raises:
        DataError: It is something else.
    """
    if value is None:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # an integer may have hundreds of digits
        text = value.strip().lower() if isinstance(value, str) else None
    if text in _EMPTY:
        return math.nan
    if text in _TRUTH_WORDS:
        return _TRUTH_WORDS[text]
    if text is not None and re.fullmatch(r"[0-9]+(\.[0-9]*)?\s*%", text):
        return float(text[:-1]) / 100
    raise DataError(f"{where}: {name} is {value!r:.80}; expected a number, or nothing where undefined.")


@lru_cache(maxsize=1024)
def whole_number(text: str) -> int | None:
    """Return the whole number that a text is; None if it is something else, or has more than 30 digits.

    >>> whole_number(" 12 "), whole_number("-3"), whole_number("²")
    (12, -3, None)
    """
    return int(text) if re.fullmatch(r"\s*-?[0-9]{1,30}\s*", text) else None


def gold_texts(value: Any, where: str, *, listed: bool = True, as_one: bool = False) -> tuple[str, ...]:
    """Return the gold answers of a cell: a text, a list of texts, or, where it may be `listed`, such a list as JSON.

    Args:
        value: The cell.
        where: Its place, for messages.
        listed: Whether a text in brackets may be a list of gold answers.
        as_one: Whether answers are lists, so that a list is one gold answer, and a list of lists are several.

    Raises:
        DataError: It is something else.
    """
    if as_one and isinstance(value, list):
        are_lists = bool(value) and all(isinstance(item, list) for item in value)
        return tuple(map(list_text, value if are_lists else [value]))
    if listed and isinstance(value, str) and value.lstrip().startswith("["):
        try:
            items = json.loads(value)
        except (json.JSONDecodeError, RecursionError):
            items = None  # a text that happens to start with a bracket
        if isinstance(items, list) and all(isinstance(item, str | int | float) for item in items):
            value = items
    if value is None or value == "":
        return ()
    golds = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in golds):
        raise DataError(f"{where}: golds is {value!r:.80}; expected a text, or a JSON list of texts")
    return tuple(str(item) for item in golds)
