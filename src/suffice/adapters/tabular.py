"""Any table of rounds, CSV or JSON lines, with a map from this library's names to the table's columns.

One row for each question and round, in any order::

    read_tabular("runs.csv", {"question_id": "qid", "round": "step", "answer": "ans", "golds": "gold", "p_correct": "conf"})
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from suffice.adapters._csv import csv_rows
from suffice.adapters.base import ImportedRun, ImportedTrajectory, check_unit, end_of, score
from suffice.errors import DataError, NotFoundError, SchemaError, UnsettledError
from suffice.files import json_lines
from suffice.metrics import METRICS
from suffice.retrieval import GOLD_FIELDS
from suffice.rounds import COST_KINDS, Cost, End, Round
from suffice.seen import one_name_per_text
from suffice.signals import SIGNALS

__all__ = ["Grid", "group_trajectories", "read_tabular"]

_TEXT_COLUMNS = frozenset({"question_id", "cluster", "end", "question", "answer", "text", "feedback", "finish_reason"})
_OWN_COLUMNS = _TEXT_COLUMNS | {"round", "golds"}
_GOLDS = tuple(name for name in GOLD_FIELDS if name not in ("answers", "answer"))
_PINNED_LABELS = ("model", "prompt_id")
_FEW, _COPIED = 5, 0.98
_EMPTY = frozenset({"", "nan", "null", "none", "na"})
_END_NAMES = get_args(End)


def read_tabular(
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    metrics: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    golds: bool | None = None,
    first_round: int | None = None,
    ended_early: End | None = None,
) -> ImportedRun:
    """Read a `.csv` or `.jsonl` file of rounds.

    This library's names: `question_id` and `round` (required), `answer`, `golds` (a text, or a JSON list of texts),
    `question`, `cluster`, `end`, `text`, `feedback`, `finish_reason`; metrics (`em`, `f1`, `contains`), computed from answer
    and golds where the table lacks them; every signal (`suffice data signals`); costs as ``cost.<component>.<kind>``.  Any
    other mapped name becomes a new signal.  Columns that are not mapped are kept unchanged, except for other usual names of
    gold answers (`gold`, `target`, ...), of the answer (`output`) and of its `model`; the notes list those.

    Args:
        path: The table.
        columns: This library's name to the table's column, besides columns that have these names already; empty to ignore
            one of those.
        metrics: Further metrics, in [0, 1], by name.
        labels: Texts that are the same in all rounds of a question, by name.  A `model` or `prompt_id` that is the same
            everywhere becomes what policies fitted on the run depend on.
        golds: Whether gold answers are right that equal the last answers; False leaves all gold answers out.
        first_round: The number of the table's lowest round, 0 (closed book) or 1 (the first evidence or draft); None to
            keep the table's numbers.
        ended_early: Why trajectories are shorter than the longest one, where the table has no `end`: `rule` marks
            them censored, `exhausted` says that there was no more evidence.

    Raises:
        UnsettledError: Rounds count from 0, trajectories end early, or gold answers equal the last answers, and nothing
            says what that means.
        DataError: A value cannot be used, or is out of its signal's range; the message names file and row.
        SchemaError: The file is of another kind, or lacks a column.
    """
    path = Path(path)
    if not path.is_file():
        raise NotFoundError(f"no file {str(path)!r}; give a .csv or .jsonl file")
    if path.suffix not in (".csv", ".jsonl"):
        raise SchemaError(f"{path}: a table of rounds ends in .csv or .jsonl; convert it")
    records = list(csv_rows(path) if path.suffix == ".csv" else json_lines(path))
    if not records:
        raise DataError(f"{path}: no rows; expected one for each question and round")
    names = list(dict.fromkeys(name for _, record in records for name in record))
    known, mapping = _OWN_COLUMNS | set(METRICS) | set(SIGNALS), dict(columns or {})
    in_use = {*mapping.values(), *(metrics or {}), *(metrics or {}).values(), *(labels or {}), *(labels or {}).values()}
    columns = {name: name for name in names if (name in known or _is_cost(name)) and name not in in_use} | mapping
    columns = {ours: theirs for ours, theirs in columns.items() if theirs}
    columns, labels, notes = _with_usual_names(columns, labels or {}, names, {*(metrics or {}).values()}, golds)
    grid = Grid(
        columns=columns,
        metrics=metrics or {},
        labels=labels,
        first_round=first_round,
        ended_early=ended_early,
        strict=True,
    )
    grid.check(path, names)
    trajectories = group_trajectories(records, grid, str(path))
    if "cluster" not in columns:
        names = one_name_per_text([item.question_id for item in trajectories], [item.question for item in trajectories])
        trajectories = [replace(item, cluster=name) for item, name in zip(trajectories, names, strict=True)]
    if trajectories[0].rounds[0].index == 0:
        notes.append(
            "round 0 is read as the model alone (closed book); --first-round 1 makes it the first draft or evidence"
        )
    elif first_round is not None:
        notes.append(f"the lowest {columns['round']!r} is read as round 1, the first draft or evidence")
    unmapped = list(dict.fromkeys(name for item in trajectories for row in item.extras for name in row))
    if unmapped:
        notes.append(f"columns that are kept as they are: {', '.join(unmapped)}")
    if golds is None:
        _refuse_copied_golds(trajectories, columns.get("golds", ""))
    depends, unpinned = _depends(trajectories)
    return ImportedRun(source="tabular", trajectories=trajectories, notes=[*notes, *unpinned], depends=depends)


def _with_usual_names(
    mapping: Mapping[str, str], labels: Mapping[str, str], names: Sequence[str], in_use: set[str], golds: bool | None
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return the columns and labels with those that have another usual name, and notes that say so."""
    columns, notes = dict(mapping), []
    free = [name for name in names if name not in {*columns.values(), *labels.values(), *in_use}]
    for ours, usual in (("golds", _GOLDS), ("answer", ("output",))):
        theirs = next((name for name in usual if name in free), None)
        if ours not in columns and theirs is not None:
            columns[ours] = theirs
            notes.append(f"the column {theirs!r} is read as {ours}")
    if golds is False:
        columns.pop("golds", None)
    if "model" in free and "model" not in labels:
        labels = {**labels, "model": "model"}
    return columns, dict(labels), notes


def _refuse_copied_golds(trajectories: Sequence[ImportedTrajectory], column: str) -> None:
    """Raise if the gold answers are probably the model's own: in a log, `answer` and `output` are."""
    ends = [(item.rounds[-1].answer, item.golds) for item in trajectories]
    pairs = [(answer.strip(), {gold.strip() for gold in golds}) for answer, golds in ends if answer and golds]
    equal = sum(answer in golds for answer, golds in pairs)
    if len(pairs) >= _FEW and equal >= _COPIED * len(pairs):
        raise UnsettledError(
            f"in {equal} of {len(pairs)} trajectories the gold answer (column {column!r}) is exactly the last answer: is it "
            "what the model said?",
            "golds",
            {"--golds": (True, "they are gold answers"), "--no-golds": (False, "leave them out")},
        )


def _depends(trajectories: Sequence[ImportedTrajectory]) -> tuple[dict[str, Any], list[str]]:
    """Return what the run depends on, by its labels, and what cannot be pinned."""
    depends, notes = {}, []
    for name in _PINNED_LABELS:
        values = {item.labels.get(name) for item in trajectories}
        if len(values) > 1:
            notes.append(
                f"{len(values)} different values of {name!r}: a policy fitted on this recording pins none of them"
            )
        elif values != {None}:
            depends[name] = values.pop()
            notes.append(f"policies fitted on this recording depend on {name} {depends[name]!r}")
    return depends, notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """How a table is read; see `read_tabular`."""

    columns: Mapping[str, str]
    metrics: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    first_round: int | None = None
    ended_early: End | None = None
    strict: bool = False

    def pairs(self) -> list[tuple[str, str]]:
        """Return our name and theirs of every column that is read."""
        return [*self.columns.items(), *self.metrics.items(), *self.labels.items()]

    def check(self, path: Path, names: Sequence[str]) -> None:
        """Refuse a map that the table cannot serve."""
        missing = [ours for ours in ("question_id", "round") if ours not in self.columns]
        if missing:
            raise SchemaError(f"{path}: no column is mapped to {missing[0]!r}; there are: {', '.join(names)}")
        absent = [pair for pair in self.pairs() if pair[1] not in names]
        if absent:
            ours, theirs = absent[0]
            raise SchemaError(f"{path}: no column {theirs!r} (for {ours!r}); there are: {', '.join(names)}")
        for ours in self.columns:
            if ours not in _OWN_COLUMNS and not _is_cost(ours) and not ours.isidentifier():
                raise DataError(
                    f"{ours!r} is not a name of ours; see read_tabular, or use letters, digits and _ for a signal of your own"
                )
        for ours in (*self.metrics, *self.labels):
            if (
                not ours.isidentifier()
                or ours in _OWN_COLUMNS
                or ours in SIGNALS
                or (ours in METRICS and ours in self.labels)
            ):
                raise DataError(f"{ours!r} cannot name a metric or label of your own; use letters, digits and _")
        if self.first_round not in (None, 0, 1):
            raise DataError(f"first_round is {self.first_round!r}; allowed are 0, 1 and None")
        if self.ended_early is not None and self.ended_early not in _END_NAMES:
            raise DataError(f"ended_early is {self.ended_early!r}; allowed are {', '.join(_END_NAMES)} and None")


def group_trajectories(
    records: Sequence[tuple[str, Mapping[str, Any]]], grid: Grid, where: str
) -> list[ImportedTrajectory]:
    """Group rows by question.

    Args:
        records: Each row with its place, for messages.
        grid: How it is read.
        where: The file, for messages.

    Raises:
        DataError: A value cannot be used, or a question's rounds have a gap or a copy.
    """
    rows = [_round_of_row(record, grid, spot) for spot, record in records]
    lowest = min(row.index for row in rows)
    _settle_first_round(lowest, grid)
    shift = 0 if grid.first_round is None else grid.first_round - lowest
    by_question: dict[str, dict[int, _Row]] = {}
    for row in rows:
        rounds = by_question.setdefault(row.own["question_id"], {})
        if row.index in rounds:
            raise DataError(
                f"{row.where}: question {row.own['question_id']!r} has round {row.index} already, at "
                f"{rounds[row.index].where}; each pair must be unique"
            )
        rounds[row.index] = row
    longest = max(map(len, by_question.values()))
    trajectories = []
    for question_id, rounds in by_question.items():
        ordered = [rounds[index] for index in sorted(rounds)]
        try:
            trajectories.append(_trajectory_of_rows(question_id, ordered, grid, shift, longest))
        except UnsettledError:
            raise
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
    return trajectories


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
    own = {name: _cell_text(cells[name], name, where) for name in cells if name in _TEXT_COLUMNS}
    if not own["question_id"]:
        raise DataError(f"{where}: {columns['question_id']} is empty; every row needs the id of its question")
    index = _cell_number(cells["round"], "round", where)
    if not (index.is_integer() and index >= 0):
        raise DataError(f"{where}: round is {cells['round']!r}; expected a whole number of at least 0")
    if own.get("end") and own["end"] not in _END_NAMES:
        raise DataError(f"{where}: end is {own['end']!r}; allowed are {', '.join(_END_NAMES)}")
    costs: dict[str, dict[str, float]] = {}
    for name in filter(_is_cost, cells):
        _, component, kind = name.split(".", 2)
        costs.setdefault(component, dict.fromkeys(COST_KINDS, math.nan))[kind] = _cell_number(cells[name], name, where)
    signals = [name for name in cells if name not in _OWN_COLUMNS and name not in METRICS and not _is_cost(name)]
    metrics = {name: cells[name] for name in cells if name in METRICS}
    metrics |= {name: record.get(theirs) for name, theirs in grid.metrics.items()}
    mapped = {theirs for _, theirs in grid.pairs()}
    return _Row(
        where=where,
        index=int(index),
        own=own,
        golds=_gold_texts(cells.get("golds"), where),
        metrics={name: check_unit(_cell_number(value, name, where), name, where) for name, value in metrics.items()},
        signals={name: _signal_cell(cells[name], name, columns[name], where, strict=grid.strict) for name in signals},
        costs={component: Cost(**kinds) for component, kinds in costs.items()},
        labels={name: _cell_text(record.get(theirs), name, where) for name, theirs in grid.labels.items()},
        extras={name: value for name, value in record.items() if name not in mapped},
    )


def _signal_cell(value: Any, name: str, theirs: str, where: str, *, strict: bool) -> float:
    """Return a signal's value; one out of its range would be undefined, and a rule that reads it never fire."""
    number = _cell_number(value, name, where)
    signal = SIGNALS.get(name)
    if strict and signal is not None and not signal.clip and math.isfinite(number):
        low, high = signal.range
        if not low <= number <= high:
            raise DataError(
                f"{where}: {name} is {number!r} (column {theirs!r}), and it lies in [{low:g}, {high:g}]: scale the column, or "
                f"rename it to a signal of your own, --column my_{name}={theirs}"
            )
    return number


def _trajectory_of_rows(
    question_id: str, rows: Sequence[_Row], grid: Grid, shift: int, longest: int
) -> ImportedTrajectory:
    first = rows[0]
    end = first.own.get("end") or None
    if end is None and len(rows) < longest and grid.ended_early is None:
        raise UnsettledError(
            f"question {question_id!r} has {len(rows)} rounds, others have {longest}, and nothing says why it ended: map a "
            "column to 'end', or say it for all.",
            "ended_early",
            {
                "--ended-early rule": ("rule", "a stopping rule cut them: censored"),
                "--ended-early exhausted": ("exhausted", "there was no more evidence"),
            },
        )
    for name, value in first.labels.items():
        other = next((row for row in rows if row.labels[name] != value), None)
        if other is not None:
            raise DataError(
                f"{other.where}: a label is the same in all rounds of a question, and {name} of question {question_id!r} is "
                f"{value!r} and {other.labels[name]!r}; leave the column unmapped, and it is kept as it is"
            )
    golds = tuple(dict.fromkeys(gold for row in rows for gold in row.golds))
    other = next((row for row in rows if row.golds and not {golds[0], *first.golds} & {*row.golds}), None)
    if other is not None:
        raise DataError(
            f"{other.where}: question {question_id!r} has other gold answers here ({list(other.golds)!r:.80}) than before "
            f"({golds[0]!r:.80}): is {grid.columns['golds']!r} what the model said? Map another column to golds, or --no-golds"
        )
    metrics = []
    for row in rows:
        # Without a column of answers, what a metric says would be about nothing.
        computed = score(row.own.get("answer"), golds if "answer" in row.own else ())
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
        end=end or end_of(len(rows), longest, grid.ended_early or "max_rounds"),
        metrics=tuple(metrics),
        extras=tuple(row.extras for row in rows),
        labels=dict(first.labels),
    )


def _is_cost(name: str) -> bool:
    parts = name.split(".")
    return len(parts) == 3 and parts[0] == "cost" and bool(parts[1]) and parts[2] in COST_KINDS  # noqa: PLR2004


def _cell_text(value: Any, name: str, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and math.isnan(value):  # how data frames spell a missing text
        return None
    if isinstance(value, bool | list | dict) or (isinstance(value, float) and not value.is_integer()):
        if name == "answer" and isinstance(value, bool | float):
            return str(value).lower()
        raise DataError(f"{where}: {name} is {value!r:.80}; expected text")
    return str(int(value))


def _cell_number(value: Any, name: str, where: str) -> float:
    if value is None or (isinstance(value, str) and value.strip().lower() in _EMPTY):
        return math.nan
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return float(value.strip().lower() == "true")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(f"{where}: {name} is {value!r:.80}; expected a number, or nothing where undefined.") from None


def _gold_texts(value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            value = [value]  # a text that happens to start with a bracket
    if value is None or value == "":
        return ()
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in listed):
        raise DataError(f"{where}: golds is {value!r:.80}; expected a text, or a JSON list of texts")
    return tuple(str(item) for item in listed)
