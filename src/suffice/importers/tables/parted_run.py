"""Imported runs as parts of a recording, in memory, or on disk if a table is large."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from suffice.common.tables import Table
from suffice.importers.answers.columnar import embed_answers, join_golds, ordered_names, recording_part
from suffice.importers.answers.golds import GoldAnswers
from suffice.importers.answers.imported import ImportedRun
from suffice.importers.answers.outcomes import Outcomes
from suffice.importers.checks.reading import Reading
from suffice.importers.guesses.scaled import answer_form
from suffice.importers.guesses.table_settings import TableOptions
from suffice.importers.rounds.preview import rounds_table
from suffice.importers.rounds.round_columns import RoundColumns, columns_of
from suffice.importers.rounds.summary import ColumnCount, match_of_row
from suffice.importers.rounds.trajectories import ColumnReading
from suffice.importers.rows.runs import Run
from suffice.importers.tables.table_parts import PartedTable, UnevenError, is_large
from suffice.importers.tables.table_source import TableSource, WholeTable
from suffice.importers.words.names import RUNS, last_name
from suffice.policy.comparisons import Comparison
from suffice.policy.embedding import Embedder, identity
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH
from suffice.policy.signals import EMBEDDER
from suffice.recordings.opened import write_tables
from suffice.recordings.runs import LOOP_NAMES, with_loops
from suffice.recordings.schema import DOLLAR, RETURNED, metric_field


class PartedRun:
    """A run as parts of a recording, in memory or on disk.

    Args:
        source: The format's name.
        golds: A file of gold answers to join to each part.
        outcomes: A file of outcomes of runs to join to each part.
        named: The columns that the user names, by this library's names; some may be columns of a joined file.  None if users cannot
            name columns in this format.
        embedder: Embeds the answers.
        folder: The folder to which parts are written; None = they stay in memory.

    Attributes:
        columns: The columns that are read from a table's rows, by this library's names, without computed ones.
        depends: The configuration on which signals depend.
        ends: Number of trajectories by the reason for their end.
        longest: The largest number of rounds of a trajectory.
        list_answers: Whether the answers are lists.
        expected: Names of alarms that are not raised, since they would be false for every file of this format.
        doubt: A question about the cost of rows that a filter leaves out; "" for none.
        currency: The currency of the signal `spend`.
        form: The form in which answers are read, one of `ANSWER_FORMS`; "" if they are read unchanged.
        run_columns: The columns that distinguish runs, if the user names them; otherwise the result of `_foreign_loops`.
        shown: The preview of one question and the means by round; empty until `review`.
    """

    def __init__(
        self,
        source: str,
        *,
        golds: str | Path | None = None,
        outcomes: str | Path | None = None,
        named: Mapping[str, str] | None = None,
        embedder: Embedder | None = None,
        folder: Path | None = None,
        computes: bool = True,
    ) -> None:
        self.source = source
        self.notes: list[str] = []
        self.readings: Sequence[ColumnReading] = ()
        self.columns: Mapping[str, str] = {}
        self.depends: Mapping[str, Any] = {}
        self.ends = Counter[str]()
        self.longest = 0
        self.list_answers = False
        self.expected: tuple[str, ...] = ()
        self.doubt = ""
        self.currency = DOLLAR
        self.form = ""
        self.run_columns: tuple[str, ...] = ()
        self.shown: Sequence[Table] = ()
        self._has_match = False
        self._answers = None if golds is None else GoldAnswers(golds, named)
        self._outcomes = None if outcomes is None else Outcomes(outcomes)
        self._embedder, self._folder = embedder, folder
        self._computes = computes  # a trial, whose rounds are only compared, needs no signals
        self._parts: list[Path | pa.Table] = []
        self._schemas: list[pa.Schema] = []
        self._fields: dict[str, pa.Field] = {}
        self._kinds: dict[str, str] = {}
        self._counts: dict[str, ColumnCount] = {}
        self._clusters: list[npt.NDArray[np.int64]] = []

    def add(self, columns: RoundColumns, texts: Collection[str] = ()) -> None:
        """Add the rounds of some questions as a part.

        Args:
            columns: The rounds.
            texts: Columns to store as text, even if all values here are numbers, because other parts contain text in them.
        """
        if self._answers is not None:
            join_golds(columns, self._answers)
        if self._outcomes is not None:
            self._outcomes.join(columns)
        if self._embedder is not None:
            embed_answers(columns, self._embedder)
        table, counts = recording_part(columns, texts, computes=self._computes)
        for item in counts:
            known = self._counts.get(item.name)
            self._counts[item.name] = item if known is None else known + item
        self.ends.update(columns.ends)
        self._clusters.append(np.array([*map(hash, {*columns.clusters})], dtype=np.int64))
        self.longest = max(self.longest, int(columns.lengths.max()))
        self._kinds |= columns.kinds
        # The type of a column without values is a guess: other parts may know it.
        self._schemas.append(
            pa.schema([field for field in table.schema if table.column(field.name).null_count < len(table)])
        )
        for field in table.schema:
            self._fields.setdefault(field.name, field)
        if self._folder is None:
            self._parts.append(table)
        else:
            self._parts.append(self._folder / f"{len(self._parts)}.parquet")
            pq.write_table(table, self._parts[-1])

    def describe(
        self, notes: Sequence[str], readings: Sequence[ColumnReading], depends: Mapping[str, Any]
    ) -> PartedRun:
        """Add caveats and readings after all parts were added; return the run."""
        self.notes = [*notes, *(joined.note() for joined in (self._answers, self._outcomes) if joined is not None)]
        self.readings = readings
        self.depends = dict(depends) if self._embedder is None else {**depends, EMBEDDER: identity(self._embedder)}
        return self

    @property
    def schema(self) -> pa.Schema:
        """The columns of all parts."""
        known = pa.unify_schemas(self._schemas, promote_options="permissive")
        fields = self._fields | {field.name: field for field in known}
        return pa.schema([fields[name] for name in ordered_names(fields, self._kinds)])

    @property
    def n_clusters(self) -> int:
        """Number of questions."""
        return len(np.unique(np.concatenate(self._clusters)))

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield tables of some columns, one for each part that has them."""
        return (_table_of(part, [*columns]) for part in self._parts if {*columns} <= {*_names_of(part)})

    def texts(self, name: Literal["answer", "golds"]) -> PartTexts:
        """Return the answers, or the gold answers, part by part."""
        return PartTexts(self._parts, name)

    def pairs(self, most: int) -> list[tuple[str, str]]:
        """Return at most `most` pairs of texts to compare.

        Each answer is paired with its gold answers, and with the answer before it.  If a gold answer literally equals the answer,
        the other gold answers are left out.
        """
        return [*islice(self._pairs(), most)]

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for part in self._parts:
            names = _names_of(part)
            if "answer" not in names:
                continue
            before: tuple[str, str | None] = ("", None)
            for row in _table_of(
                part, [name for name in ("question_id", "answer", "golds") if name in names]
            ).to_pylist():
                answer = row["answer"] or ""
                if answer.strip():
                    golds = row.get("golds") or ()
                    yield from ((answer, gold) for gold in ([answer] if answer in golds else golds))
                    if before[0] == row["question_id"] and before[1] is not None:
                        yield before[1], answer
                    before = row["question_id"], answer

    def review(self, comparison: Comparison, whole: str = "") -> Reading:
        """Read all parts a second time, and count their questions, answers and scores.

        The metric `match` is added if there are gold answers and the normalizer is not the default.

        Args:
            comparison: How answers are compared.
            whole: The reason why answers get no partial credit, being entirely right or wrong; "" if there is none.
        """
        normalizer = comparison.normalizer
        reading = Reading(normalizer, comparison.why, whole)
        computed = normalizer != DEFAULT_NORMALIZER and any(True for _ in self.texts("golds"))
        for place, part in enumerate(self._parts):
            table = _table_of(part)
            if computed:
                table = _with_match(table, normalizer)
                if isinstance(part, Path):
                    pq.write_table(table, part)
                else:
                    self._parts[place] = table
            reading.add(table)
        if computed:
            self._has_match = True
            if MATCH in self._counts:
                self._counts[MATCH] = replace(self._counts[MATCH], defined=reading.facts.known[MATCH])
        reading.facts.clusters = self.n_clusters
        self.shown = (rounds_table(reading.preview, reading.by_round()),)
        return reading

    def write(self, out: Path, metadata: Mapping[str, Any]) -> tuple[ColumnCount, ...]:
        """Write the recording, one part in memory at a time; return counts of defined, removed and clipped values by column."""
        schema = self.schema
        if self._has_match and MATCH not in schema.names:
            schema = schema.append(metric_field(MATCH))
        for name in self.run_columns:
            schema = mark_loops(schema, name, map(_table_of, self._parts))
        write_tables(out, schema, (_complete(part, schema) for part in self._parts), metadata)
        return tuple(self._counts.values())


def _with_match(table: pa.Table, normalizer: str) -> pa.Table:
    """Add the metric `match` of a normalizer to a part."""
    table = table.drop_columns([MATCH]) if MATCH in table.column_names else table
    rows = table.select([name for name in ("answer", "golds", "em") if name in table.column_names]).to_pylist()
    values = [match_of_row(row, normalizer) for row in rows]
    return table.append_column(metric_field(MATCH), pa.array(values, pa.float64(), from_pandas=True))


def _complete(part: Path | pa.Table, schema: pa.Schema) -> pa.Table:
    """Add the recording's missing columns to a part."""
    table = _table_of(part)
    own = {*table.column_names}
    columns = [table[item.name] if item.name in own else pa.nulls(len(table), item.type) for item in schema]
    return pa.table(columns, names=schema.names).cast(schema)


def _names_of(part: Path | pa.Table) -> list[str]:
    return [*(pq.read_schema(part).names if isinstance(part, Path) else part.column_names)]


def _table_of(part: Path | pa.Table, columns: list[str] | None = None) -> pa.Table:
    if isinstance(part, Path):
        with pq.ParquetFile(part) as file:  # a third of the time that a data set takes
            table = file.read(columns)
        return table if columns is None else table.select(columns)
    return part if columns is None else part.select(columns)


class PartTexts(Collection[str]):
    """The answers or gold answers of a run, without blank texts; every iteration reads the run's parts again."""

    def __init__(self, parts: Sequence[Path | pa.Table], name: str) -> None:
        self._parts, self._name = parts, name
        self._held: list[str] | None = None

    def __iter__(self) -> Iterator[str]:
        if self._held is None and not any(isinstance(part, Path) for part in self._parts):
            self._held = [*self._read()]  # tables in memory are small
        return iter(self._read() if self._held is None else self._held)

    def _read(self) -> Iterator[str]:
        for part in self._parts:
            names = _names_of(part)
            if self._name not in names:
                continue
            column = _table_of(part, [self._name]).column(0)
            texts = column.combine_chunks().flatten() if pa.types.is_list(column.type) else column
            yield from (text for text in texts.unique().to_pylist() if text and text.strip())

    def __contains__(self, text: object) -> bool:
        return any(text == own for own in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def run_of_table(
    path: Path,
    options: TableOptions,
    *,
    folder: Callable[[], Path],
    golds: str | Path | None = None,
    outcomes: str | Path | None = None,
    embedder: Embedder | None = None,
    announce: Callable[[], None] = lambda: None,
    computes: bool = True,
) -> PartedRun:
    """Read a table as a run.

    A large table is read part by part, and the meaning of its columns is guessed from the first rows.  `folder` creates an empty
    folder for these parts.  `announce` is called before a table is read as a whole.
    """
    named = options.columns
    if golds is not None:
        options = replace(options, joined=frozenset(GoldAnswers(golds, named).names))

    def read(table: TableSource, place: Path | None) -> PartedRun:
        run = PartedRun(
            "tabular", golds=golds, outcomes=outcomes, named=named, embedder=embedder, folder=place, computes=computes
        )
        for columns in table.rounds():
            run.add(columns, table.texts)
        return run

    run, how = None, []
    of_all = options.samples or options.where or RETURNED in options.columns  # these need all rows
    if not of_all and is_large(path):
        place = folder()
        try:
            table: TableSource = PartedTable(path, place, options)
            run = read(table, place)
            how = ["a large table: its columns were guessed from the first rows"]
        except UnevenError as error:
            why = str(error) or "the records differ in their shape"
            how = [f"{why}, so that all of them were read before any was imported"]
    if run is None:
        announce()
        table = WholeTable(path, options)
        run = read(table, None)
    run.doubt = table.doubt
    run.currency = table.tally.currency
    run.form = answer_form(table.plan.columns, named) if table.position is None else table.position.form
    run.columns = {ours: own for ours, own in table.plan.columns.items() if own not in table.plan.formulas}
    run.list_answers, run.run_columns = table.grid.list_answers, table.declared_runs or _foreign_loops(table.run)
    run.describe(table.notes(), table.plan.readings, {**table.tally.depends(), **table.prefixes.depends})
    run.notes += how
    return run


def _foreign_loops(run: Run | None) -> tuple[str, ...]:
    """Return the column that distinguishes runs, if its name means a model or system in another language than English, such as `modell`.

    Return an empty tuple for any other column.
    """
    names = [name for name in (run[1] if run else ()) if last_name(name) in LOOP_NAMES]
    return tuple(name for name in names if name.rpartition(".")[2].lower() not in LOOP_NAMES)[:1]


def run_of_trajectories(
    imported: ImportedRun,
    golds: str | Path | None = None,
    outcomes: str | Path | None = None,
    embedder: Embedder | None = None,
    *,
    computes: bool = True,
) -> PartedRun:
    """Convert trajectories to a run of one part; join gold answers and outcomes from files, and embed the answers."""
    run = PartedRun(imported.source, golds=golds, outcomes=outcomes, embedder=embedder, computes=computes)
    run.expected = imported.expected
    run.add(columns_of(imported.trajectories))
    return run.describe(imported.notes, imported.readings, imported.depends)


_MOST = 20
"""With more values, a column names runs and no loops."""

_NEARLY_ALL = 0.8
_SEVERAL = 2
_NUMBER = re.compile(r"[\d.\s_-]+")


def mark_loops(schema: pa.Schema, name: str, tables: Iterable[pa.Table]) -> pa.Schema:
    """Mark in a recording's schema that a column distinguishes loops.

    The column must have few values in all, and several of them in nearly every question; otherwise the schema is unchanged.
    Values that differ only in a number, such as seeds, are repeats of one loop, unless the column is named like models or systems.

    Args:
        schema: The schema.
        name: The column that the user named.
        tables: The recording part by part, with the column `name` and the clusters.
    """
    known = next((own for own in (name, f"imported_{name}") if own in schema.names), None)
    if known is None or not pa.types.is_string(schema.field(known).type):
        return schema
    questions: dict[str, set[str]] = {}
    for table in tables:
        if known in table.column_names:
            for question, value in zip(
                table.column("cluster").to_pylist(), table.column(known).to_pylist(), strict=True
            ):
                questions.setdefault(question, set()).add(value)
    values = set().union(*questions.values()) - {None}
    words = {_NUMBER.sub("", value) for value in values}
    are_repeats = words <= {""} or (len(words) == 1 and last_name(name) in {*RUNS} - LOOP_NAMES)
    shared = sum(len(own - {None}) >= _SEVERAL for own in questions.values())
    if are_repeats or len(values) > _MOST or shared < _NEARLY_ALL * len(questions):
        return schema
    return with_loops(schema, known)
