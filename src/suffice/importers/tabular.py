"""Read tables of rounds in any shape; columns are guessed, or mapped from this library's names to the table's.

One row for each question and round, in any order; or one record for each question, with its rounds in a list or in numbered
columns::

    read_tabular("runs.csv", {"question_id": "qid", "round": "step", "answer": "ans", "golds": "gold", "p_correct": "conf"})
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from suffice.errors import DataError, SchemaError
from suffice.importers.answer_or_gold import FEW
from suffice.importers.base import ImportedRun
from suffice.importers.columnar import score_rounds
from suffice.importers.grid import Grid
from suffice.importers.guesses import ColumnMap, guess_columns, is_long
from suffice.importers.names import is_round_name, plain_name
from suffice.importers.records import Record, records_of
from suffice.importers.round_columns import trajectories_of
from suffice.importers.runs import (
    RowOrder,
    RunColumns,
    chosen_rows,
    column_names,
    ignored_names,
    row_order,
    tell_apart,
)
from suffice.importers.shapes import ROUNDS, Shape, unfold
from suffice.importers.table_reading import TableReader
from suffice.policy.rounds import End
from suffice.policy.seen import one_name_per_text


def read_tabular(
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    metrics: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    log_golds: Literal["keep", "drop"] | None = None,
    first_round: int | None = None,
    ended: End | None = None,
    samples: bool = False,
    where: Mapping[str, str] | None = None,
) -> ImportedRun:
    """Read rounds from a CSV, TSV, JSON, JSON lines or parquet file, gzipped or not, or from a folder of such files.

    A table may be long (a row for each question and round), wide (``answer_1``, ``answer_2``, ...), or nested (the rounds of a
    question in a list: `steps`, `attempts`, `messages`, ...).

    This library's names: `question_id` and `round`, `answer`, `golds` (a text, or a JSON list of texts),
    `question`, `cluster`, `end`, `text`, `feedback`, `finish_reason`; metrics (`em`, `f1`, `contains`), computed from answer
    and golds where the table lacks them; every signal (`suffice data signals`); costs as ``cost.<component>.<kind>``; `rounds`
    for the field that contains the list of rounds.  Any other mapped name becomes a new signal.  Unmapped columns are guessed
    by usual names (see `readings`); all others are kept unchanged.

    Args:
        path: The table, or the folder.
        columns: The table's column for each of this library's names; not needed for columns that have these names already.  An
            empty column ignores such a name.
        metrics: Further metrics, in [0, 1], by name.
        labels: Texts that are the same in all rounds of a question, by name.  A `model` or `prompt_id` that is the same
            everywhere becomes what policies fitted on the run depend on.
        log_golds: `keep` the table's gold answers although they equal the last answers, or `drop` them.
            None = keep them unless they equal the last answers, which is an error.
        first_round: The number of the table's lowest round, 0 (closed book) or 1 (the first evidence or draft); None to
            keep the table's numbers.
        ended: The reason why trajectories are shorter than the longest one, if the table has no `end`: `rule` (the loop
            stopped, so that they are censored), `exhausted` (there was no more evidence) or `max_rounds` (each had a cap of its
            own).  None = `rule`.
        samples: Whether rows of a question are samples or answers of a panel, which need no order.  Another model, system or file
            is then another sample; otherwise it is another run of the question, unless the table counts rounds.
        where: Only rows with these values, by the table's column; `file` is the name of the file without its ending.

    Raises:
        NotFoundError: No row has a value of `where`.
        UnsettledError: The table can be read in several ways: several columns may be the answer or the rounds, rounds count from
            0, or gold answers equal the last answers.
        DataError: A value cannot be used, or is out of its signal's range; the message names file and row.
        SchemaError: The file is of another kind, or lacks a column.
    """
    options = TableOptions(
        columns=columns or {},
        metrics=metrics or {},
        labels=labels or {},
        log_golds=log_golds,
        first_round=first_round,
        ended=ended,
        samples=samples,
        where=where or {},
    )
    source = WholeTable(Path(path), options)
    reader = TableReader(Path(path), source)
    (rounds,) = reader.parts()
    reader.check(ask_golds=options.asks_golds)
    score_rounds(rounds)
    return ImportedRun(
        source="tabular",
        trajectories=trajectories_of(rounds),
        notes=reader.notes(),
        depends=reader.tally.depends(),
        readings=source.plan.readings,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The user's options for a table; see `read_tabular`."""

    columns: Mapping[str, str]
    metrics: Mapping[str, str]
    labels: Mapping[str, str]
    log_golds: Literal["keep", "drop"] | None = None
    first_round: int | None = None
    ended: End | None = None
    samples: bool = False
    where: Mapping[str, str] = field(default_factory=dict)

    @property
    def asks_golds(self) -> bool:
        """True if a gold answer that equals the model's answer must be confirmed, since no option names the gold answers."""
        return self.log_golds is None and "golds" not in self.columns


class WholeTable:
    """A table that is read in one piece, as `TableSource` describes; its columns are guessed from all of its rows.

    Args:
        path: The table, or a folder of tables.
        options: The user's options.

    Raises:
        NotFoundError: No row has the wanted values.
        UnsettledError: The table can be read in several ways.
        DataError: A name or value cannot be used.
        SchemaError: The file is of another kind, or lacks a column.
    """

    def __init__(self, path: Path, options: TableOptions) -> None:
        columns = dict(options.columns)
        records = _table_records(path)
        shape = unfold(records, columns.pop(ROUNDS, None), is_long=lambda rows: "round" in columns or is_long(rows))
        refuse_other_files(path, {item.file for item in records}, {row.file for row in shape.rows}, shape.how)
        ignored = ignored_names(columns)
        self.shape = chosen_rows(shape, ignored, options.where)
        self.skipped = self.shape.skipped
        self.plan = guess_columns(columns, options.metrics, options.labels, shape=self.shape)
        if options.log_golds == "drop":
            self.plan.drop("golds")
        self._rows, self.order = in_order(self.shape, self.plan, ignored=ignored, samples=options.samples)
        self.notes = order_notes(self.order)
        self.grid = grid_of(path, self._rows, self.plan, first_round=options.first_round, ended=options.ended)
        runs = RunColumns(self._rows, self.plan)
        runs.add(self._rows)
        self.run = runs.choice()
        self.formulas: Mapping[str, Callable[[Record], Any]] = {}  # `in_order` has added their columns to the rows
        self.texts: Collection[str] = ()

    def parts(self) -> Iterator[tuple[list[Record], Mapping[str, str]]]:
        """Yield all rows, with the question of each id if a question has several runs."""
        yield (self._rows, {}) if self.run is None else tell_apart(self._rows, self.plan, self.run)

    def clusters(self, names: Sequence[str], texts: Sequence[str]) -> list[str]:
        """Return the cluster of each question; questions with the same text form one."""
        return one_name_per_text(names, texts)


def refuse_other_files(path: Path, files: set[str], with_rounds: set[str], how: str) -> None:
    """Raise if a file of a folder lacks the fields in which the others have their rounds, since it would be left out.

    Raises:
        SchemaError: There is such a file.
    """
    without = sorted(files - with_rounds)
    if without and len(files) > 1:
        raise SchemaError(
            f"{path}: {how}, and the file {without[0]!r} has no such rounds. The files of a folder are one run: put files of "
            "another form into a folder of their own, or import them one by one"
        )


def _table_records(path: Path) -> list[Record]:
    records = list(records_of(path))
    if not records:
        raise DataError(f"{path}: no rows; expected one for each question and round, or one for each question")
    return records


def grid_of(path: Path, rows: Sequence[Record], plan: ColumnMap, *, first_round: int | None, ended: End | None) -> Grid:
    """Return the settings for reading the rows of a table.

    Raises:
        DataError: A name cannot be used.
        SchemaError: The table has no id of a question, no number of a round, or not a column that is mapped.
    """
    if "round" not in plan.columns and "question_id" in plan.columns:
        raise SchemaError(
            f"{path}: there is one row for each {plan.columns['question_id']!r}, and no list or numbered columns with several rounds; "
            f"there are: {', '.join(column_names(rows))}. If several rows are the rounds of one question, --column "
            "question_id=COLUMN names it; if a field lists them, --column rounds=FIELD. A log of last answers alone has nothing "
            "to stop earlier: log the answer of every round"
        )
    grid = Grid(
        columns=plan.columns,
        metrics=plan.metrics,
        labels=plan.labels,
        first_round=_first_round(rows, plan, first_round),
        ended=ended,
        strict=True,
        listed_golds=not _says_lists(rows, plan.columns),
        list_answers=_are_lists(rows, plan.columns.get("answer")),
    )
    grid.check(path, column_names(rows))
    return grid


def _says_lists(rows: Sequence[Record], columns: Mapping[str, str]) -> bool:
    """Return whether answers themselves are lists, so that a gold answer in brackets is one answer.

    If all gold answers are in brackets but hardly any answer is, they are lists of several gold answers.
    """
    answers, golds = (
        [str(value).lstrip()[:1] == "[" for row in rows if (value := row.values.get(columns.get(ours, ""))) is not None]
        for ours in ("answer", "golds")
    )
    return any(answers) and not (golds and all(golds) and sum(answers) <= FEW * len(answers))


def _are_lists(rows: Sequence[Record], answer: str | None) -> bool:
    values = [row.values.get(answer) for row in rows] if answer is not None else []
    return all(isinstance(value, list | None) for value in values) and any(isinstance(value, list) for value in values)


def in_order(
    shape: Shape, plan: ColumnMap, *, ignored: Collection[str] = (), samples: bool = False
) -> tuple[list[Record], RowOrder | None]:
    """Add computed columns and numbers of rounds to rows; also return their order, None if a column counts rounds.

    Args:
        shape: The rows, and their form in the file.
        plan: The meaning of the columns; computed rounds and ids are added.
        ignored: Names that the user declared to have no column.
        samples: Whether the user declared the rows of a question to be samples, or answers of a panel.
    """
    key = plan.columns.get("question_id")
    if key is not None and key in {theirs for ours, theirs in plan.columns.items() if ours != "question_id"}:
        # The ids of runs must not change the text of the question.
        plan.columns["question_id"] = "question_id"
        plan.formulas["question_id"] = lambda row: row.values.get(key)
    rows = [
        replace(row, values={**row.values, **{name: make(row) for name, make in plan.formulas.items()}})
        for row in shape.rows
    ]
    order = row_order(rows, plan, is_ordered=shape.is_ordered, ignored=ignored, samples=samples)
    if order is None:
        return rows, None
    rows, time = order.numbered(rows)
    order = replace(order, time=time)
    if "round" not in plan.columns:
        how = f"order of {time!r}" if time else "order of the rows"
        plan.read(
            "round", order.column, "no column counts rounds", "number in the name of the file" if order.head else how
        )
    return rows, order


def order_notes(order: RowOrder | None) -> list[str]:
    """Return a note on how the rows of a question were numbered."""
    if order is None:
        return []
    if order.head:
        return [f"the number in the name of a file is that of its round: {order.head} 1, 2, ..."]
    if order.is_counted:
        return []
    by = f"by {order.time!r}" if order.time else "in their order"
    what = "the rows of a question are its rounds"
    if order.runs:
        what = "the rows of a question that belong to one run are its rounds"
    return [f"no column counts rounds: {what}, {by}"]


def _first_round(rows: Sequence[Record], plan: ColumnMap, first_round: int | None) -> int | None:
    """Return the number of the lowest round; it is 1 for drafts, steps or attempts, which are never the model alone."""
    name = plan.columns.get("round", "round")
    plain = plain_name(name).rpartition(".")[2]
    if (
        first_round is not None
        or not is_round_name(plain)
        or plain.startswith(("round", "depth"))
        or "p_known" in plan.columns
    ):
        return first_round
    return 1 if any(str(row.values.get(name)).strip() in ("0", "0.0") for row in rows) else None
