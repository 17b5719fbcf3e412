"""Read a table of rounds as columns: guess what its columns mean, order its rows, and collect notes on it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from suffice.common.tables import counted
from suffice.errors import DataError, UnsettledError
from suffice.importers.answers.golds import settle_named_golds
from suffice.importers.answers.parsed_columns import refuse_other_parses
from suffice.importers.answers.reply_answers import position_note, read_at, with_position
from suffice.importers.checks.named_columns import refuse_two_roles
from suffice.importers.columns.cost_names import (
    OF_CALLS,
    add_up,
    dollars_note,
    running_totals,
    subtract_totals,
    totals_note,
)
from suffice.importers.columns.grid import Grid, is_cost
from suffice.importers.columns.merged_cells import filled_down, refuse_second_header
from suffice.importers.columns.table_columns import ColumnMap, TableColumns
from suffice.importers.files.file_names import refuse_other_files
from suffice.importers.files.ids import refuse_alike_ids
from suffice.importers.files.records import Record, column_names, records_of
from suffice.importers.guesses.averages import refuse_averages
from suffice.importers.guesses.guesses import guess_columns, is_long
from suffice.importers.guesses.money_notes import model_costs
from suffice.importers.guesses.options import answers_in_one_form, golds_as_answers
from suffice.importers.guesses.prefixes import Prefixes
from suffice.importers.guesses.scaled import scaled_metrics, with_forms, with_whole_thousands
from suffice.importers.guesses.table_settings import TableOptions, grid_of
from suffice.importers.questions.block_ids import id_choices
from suffice.importers.questions.compound_ids import compound_choices, with_compound_ids
from suffice.importers.rounds.round_columns import RoundColumns
from suffice.importers.rows.attempts import refuse_models_in_turn, turns_hint
from suffice.importers.rows.call_kinds import AnsweringRows, answering_rows
from suffice.importers.rows.failed_calls import models_that_answer, refuse_failed_calls, without_repeated_calls
from suffice.importers.rows.filters import chosen_rows
from suffice.importers.rows.numbering import in_order, refuse_items_from_0, with_ids
from suffice.importers.rows.others_scores import with_scores_of_dropped
from suffice.importers.rows.outside import NOT
from suffice.importers.rows.repeated_rounds import without_copies
from suffice.importers.rows.returned import mark_returned
from suffice.importers.rows.round_lists import ROUNDS, unfold
from suffice.importers.rows.row_factors import ask_about_factors, refuse_passes
from suffice.importers.rows.row_times import BY_TIME
from suffice.importers.rows.runs import (
    RUN,
    RUN_NUMBER,
    Passes,
    Run,
    RunColumns,
    declared_runs,
    ignored_names,
    order_notes,
    ordered_files,
    run_id,
    runs_notes,
    tell_apart,
)
from suffice.importers.rows.scores import keep_at_ends
from suffice.importers.rows.speakers import refuse_first_speakers, refuse_several_speakers
from suffice.importers.rows.stages import ordered_stages, with_numbers_of_ids
from suffice.importers.rows.stop_words import said_ends
from suffice.importers.rows.tool_answers import refuse_calls_alone, tool_choices, with_tool_answers
from suffice.importers.rows.tool_calls import answers_alone, with_reply_types
from suffice.importers.rows.trees import OF_TREES, marked_nodes, refuse_inner_nodes
from suffice.importers.shapes.shape import ANY, Shape
from suffice.importers.shapes.whole_objects import with_whole_objects
from suffice.importers.tables.table_rounds import read_rows
from suffice.importers.tables.tally import Tally
from suffice.importers.words.choices import Choices
from suffice.importers.words.names import last_name
from suffice.policy.seen import one_name_per_text
from suffice.policy.signals import SIGNALS, AnswerPosition
from suffice.recordings.schema import RETURNED


class TableSource(ABC):
    """A table, read as rounds of whole questions.

    Attributes:
        shape: The form in which the file contains the rows.
        run: The columns that distinguish runs of a question, as returned by `RunColumns.choice`.
        skipped: Number of records without any round.
        repeated: Number of rows that were left out as repeats: without an answer that another row of the round has, or equal to it.
        texts: Columns with at least one value that is not a number; empty if all rows are read at once.
        doubt: A question about the cost of rows that a filter leaves out; "" for none.
        calls_tools: Whether assistant messages call tools.
        lacks_rows: Whether rows are left out, by a filter or since they are outside the loop.
        tally: Counts over the trajectories; complete once all rounds are read.
        position: The position of the answers in replies, with their form; None if the log has answers.
    """

    shape: Shape
    plan: ColumnMap
    grid: Grid
    run: Run | None = None
    skipped: int
    repeated: int = 0
    texts: Collection[str] = ()
    doubt: str = ""
    calls_tools: bool = False
    lacks_rows: bool = False
    position: AnswerPosition | None = None
    _without_copies = staticmethod(without_copies)

    def __init__(self, path: Path, options: TableOptions) -> None:
        refuse_two_roles(options.columns, joins_golds=bool(options.joined))
        named = {name: value for name, value in options.where.items() if name.endswith(NOT)}
        self._left_out = {name.removesuffix(NOT): value for name, value in named.items()}
        rest = {name: value for name, value in options.where.items() if name not in named}
        self._path, self._options = path, replace(options, where=rest)
        self.tally, self.prefixes = Tally(), Prefixes(options.trial_cost)
        self._several = 0
        self._again = ""
        self._answering: dict[str, str] = {}
        self._totals: list[str] | None = None
        self._replies = Counter[str]()

    def _records(self) -> Iterator[Record]:
        records = records_of(self._path, self._options.file_is, self._options.columns.get(ROUNDS))
        return Passes(self._again).numbered(records) if self._again else records

    def _unfolded(self, records: Sequence[Record]) -> Shape:
        """Return the rows of some or all records, after detecting how the records contain these rows."""
        columns = self._options.columns
        refuse_second_header(records)
        if self._options.file_is == "round":
            inner = unfold(records, columns.get(ROUNDS), is_long=lambda _: False)
            if inner.how:
                raise DataError(
                    f"{self._path}: {inner.how}, so a file is not a round: --file-is model, or --file-is run, if files repeat questions"
                )
        number = columns.get("round", "")
        numbers = {number, number.rpartition(":")[0]} - {""}

        def is_table(rows: Sequence[Record]) -> bool:
            return not numbers.isdisjoint(column_names(rows)) or is_long(rows)

        return unfold(records, columns.get(ROUNDS), is_long=is_table, samples=self._options.samples)

    def _handed_in(self, shape: Shape, columns: dict[str, str]) -> tuple[Shape, dict[str, str]]:
        """Read the tool calls that the user names as answers, and return their filter; if none are named, raise if answers are in doubt."""
        options = self._options
        shape, answer = with_tool_answers(shape, columns, options.answer_position)
        if answer:
            return shape, {answer: ANY}
        refuse_calls_alone(shape, options.columns, options.where)
        refuse_several_speakers(shape, options.where, {*options.columns, *options.columns.values()})
        return shape, {}

    def _guess(self, shape: Shape) -> None:
        """Guess the meaning of the columns from some or all rows, and number these rows."""
        options = self._options
        columns = {ours: theirs for ours, theirs in options.columns.items() if ours not in (ROUNDS, RUN)}
        ignored = ignored_names(columns)
        shape, handed_in = self._handed_in(shape, columns)
        if self._again:
            shape = replace(shape, rows=[*Passes(self._again).numbered(shape.rows)])
        by_tools = partial(tool_choices, shape, columns)
        shape, of_ids = with_numbers_of_ids(with_reply_types(shape), [*options.columns])
        alone, of_tools = answers_alone(shape, options.where, by_tools)
        self.calls_tools, shape_before = bool(of_tools), shape.rows
        where = {**options.where, **alone, **handed_in, **self._answering}
        shape, of_costs, self.doubt = chosen_rows(marked_nodes(shape, columns), ignored, where, columns, self._left_out)
        self.lacks_rows = len(shape.rows) < len(shape_before)
        self.shape = refuse_inner_nodes(shape, options.where)
        if of_tools:
            lost = {(row.file, row.number) for row in shape_before} - {(row.file, row.number) for row in shape.rows}
            of_costs, self.shape = of_tools, replace(self.shape, skipped=self.shape.skipped + len(lost))
        self.shape = with_whole_objects(said_ends(ordered_stages(self.shape, columns), columns), columns)
        settle_named_golds(columns, column_names(self.shape.rows), options.joined)
        self.shape = with_compound_ids(self.shape, columns)
        self.shape, self.position = with_forms(self.shape, columns, options.answer_position)
        self.shape, of_thousands = with_whole_thousands(self.shape, columns)
        try:
            self.shape, metrics = scaled_metrics(self.shape, options.metrics)
            self.plan = guess_columns(
                columns, metrics, options.labels, shape=self.shape, has_golds=bool(options.joined)
            )
        except UnsettledError as error:
            raise error if options.answer_position else with_position(error, self.shape.rows) from None
        refuse_averages(TableColumns(self.shape.rows), self.plan.columns)
        self.plan.notes += [*of_ids, *of_costs, *of_thousands]
        self.shape = models_that_answer(self.shape, self.plan.columns)
        self._read_options()
        if RETURNED in options.columns:
            ids = [row.values.get(self._key) for row in with_ids(self.shape.rows, self.plan)]
            self.shape = mark_returned(self.shape, ids, self.plan)
        if self.plan.columns.get("question_id") in self.declared_runs and not (self._again or shape.how):
            self._again = self._key
            self._guess(shape)
            return
        if "question_id" in self.plan.columns and "question_id" not in options.columns:
            others = (self.plan.columns.get(ours, "") for ours in ("question", "golds"))
            refuse_alike_ids(with_ids(self.shape.rows, self.plan), self._key, *others)
        self._ask_about_order()
        if options.log_golds == "drop":
            self.plan.drop("golds")
        said = options.columns.get("round")
        self._rows, self._order = in_order(
            self.shape,
            self.plan,
            ignored=ignored,
            samples=options.samples,
            runs=self.declared_runs,
            trusted="file" if said == "" else "time" if said and said.endswith(f":{BY_TIME}") else "",
        )
        self._settle_rows(shape, of_costs)

    def _settle_rows(self, shape: Shape, of_costs: Sequence[str]) -> None:
        """Leave out repeated rows, and complete the settings; if rows are steps of other rows' rounds, guess again without these steps."""
        options = self._options
        if kinds := self._kinds(self._rows):
            self._answering, doubt = kinds.where, self.doubt
            self._guess(replace(shape, rows=kinds.in_front(shape.rows)))
            self.plan.notes += [kinds.note, *of_costs]
            self.doubt = doubt or self.doubt
            return
        self._rows = self._without_repeated_calls(self._rows)
        numbered = "" if self._order is None or self._order.is_counted else self._order.column
        if options.first_round is None and not options.samples:
            refuse_items_from_0(self._rows, self.plan, {*self.declared_runs, *options.where})
        self.grid = replace(grid_of(self._path, self._rows, self.plan, options), numbered=numbered)
        if self.grid.first_round is None and (self.shape.is_alone or options.samples):
            self.grid = replace(self.grid, first_round=0 if self.shape.is_alone else 1)  # samples have no first one

    def _read_options(self) -> None:
        """Convert gold answers that are option numbers, letters or texts to the form of the answers."""
        readings = {item.ours: item for item in self.plan.readings}
        if "golds" in readings and "answer" in self.plan.columns:
            theirs, own = self.plan.columns["golds"], readings["golds"]
            answer, said = self.plan.columns["answer"], readings["answer"]
            self.shape, name, form, wanted = golds_as_answers(self.shape, theirs, answer, is_said=own.how == "option")
            if wanted:
                self.plan.drop("golds")
                self.plan.read("golds", name, own.how, f"{own.theirs} as {wanted}")
                self.plan.notes.append(
                    f"the gold answers in {theirs!r} are {form}{' of options' * (' or ' not in form)}, and answers are {wanted}: they are read as {wanted}"
                )
                return
            self.shape, name, wanted = answers_in_one_form(self.shape, theirs, answer)
            if wanted:
                self.plan.drop("answer")
                self.plan.read("answer", name, said.how, f"{said.theirs} as {wanted}")
                self.plan.notes.append(
                    f"answers in {said.theirs!r} are letters and texts of options: they are read as {wanted}, which a live session needs as well"
                )

    @property
    def _is_plain(self) -> bool:
        return self._order is None and not (self.shape.how or self.declared_runs)

    def _kinds(self, rows: Sequence[Record]) -> AnsweringRows | None:
        """Split rows into answers and steps that lead to an answer; None if there are no steps, or if rows were selected before."""
        if not self._is_plain or self._answering or self._options.repeated:
            return None
        return answering_rows(rows, self.plan.columns, self._options.where)

    def _without_repeated_calls(self, rows: list[Record]) -> list[Record]:
        """If the table numbers its rounds, leave out failed calls that were repeated, and calls that were logged twice."""
        kept = without_repeated_calls(rows, self.plan.columns, self._options.repeated) if self._is_plain else rows
        if len(kept) == len(rows):
            return rows
        scored, notes, n_judging = with_scores_of_dropped(rows, kept, self.plan.columns.get("question_id", ""))
        self.repeated += len(rows) - len(kept) - n_judging
        self.plan.notes += [note for note in notes if note not in self.plan.notes]
        return scored

    def _ask_about_order(self) -> None:
        """Ask about columns that may order or divide a question's rows, if nothing else orders them."""
        columns, plan = self._options.columns, self.plan
        read = {*plan.columns.values(), *plan.metrics.values(), *columns.values(), *self._options.where}
        has_replies = self._options.answer_position is not None
        refuse_other_parses(TableColumns(self.shape.rows), plan.columns, read, has_replies=has_replies)
        counts = plan.columns.get("round", "")
        order = re.fullmatch(r"order in '(.+)'", self.shape.columns.get(counts, ""))
        is_said = self._options.samples or not {"round", RUN, ROUNDS}.isdisjoint(columns) or (counts and order is None)
        if not is_said and "question_id" in plan.columns:
            others = {*plan.metrics.values(), *plan.labels.values(), *columns, *self._options.where}
            table = TableColumns(with_ids(self.shape.rows, plan))
            used = others.union(plan.columns.values(), (name for name in table.names if last_name(name) in OF_TREES))
            said = {*columns, *columns.values(), *self._options.where}
            if order and not self.shape.is_ordered:
                refuse_models_in_turn(table, self._key, said, order[1])
            if "answer" in plan.columns and not order:
                refuse_models_in_turn(table, self._key, said)
                head, _ = ordered_files([*dict.fromkeys(row.file for row in table.rows)])
                if not head:  # otherwise, a failed call is that of its file
                    refuse_failed_calls(table, plan.columns["answer"], [*used])
                refuse_first_speakers(table, [*map(str, table.column(self._key))], used)
            numbers = [theirs for ours, theirs in plan.columns.items() if is_cost(ours) or ours in SIGNALS]
            ask_about_factors(
                table, self._key, used, order[1] if order else "", costs=numbers, answer=plan.columns.get("answer", "")
            )

    def _refuse_passes(self, blocks: Sequence[Any], n_rows: int) -> None:
        """Raise if a file without round numbers has the rows of a question in several places, as if its loop ran again."""
        is_said = self._options.samples or not {"round", RUN}.isdisjoint(self._options.columns) or self.shape.how
        if not (is_said or self._order is None or self._order.head or self._order.is_counted):
            table, own = TableColumns(self.shape.rows), self.plan.columns
            key = self._key if self._key in table.names else own.get("question", self._key)
            ids = {} if "question_id" in self._options.columns else id_choices(table, self.plan)
            refuse_passes(blocks, n_rows, key, ids, compound_choices(table, own.values(), self._key))

    def _blocks(self, rows: Sequence[Record]) -> Iterator[Any]:
        """Yield the question and run of each group of consecutive rows."""
        names = (self._key, *(self._order.runs if self._order else ()))
        return (name for name, _ in groupby(run_id(row, names) for row in rows))

    @property
    def declared_runs(self) -> tuple[str, ...]:
        """The columns that distinguish runs of a question according to the user; if empty, `RunColumns` looks for them."""
        said, file_is = declared_runs(self._options.columns, column_names(self.shape.rows)), self._options.file_is
        said += (file_is,) if said and file_is in ("run", "model") and file_is not in said else ()
        return tuple(RUN_NUMBER if name == self._again else name for name in said)

    @property
    def _key(self) -> str:
        return self.plan.columns["question_id"]

    @abstractmethod
    def parts(self) -> Iterator[tuple[list[Record], Mapping[str, str]]]:
        """Yield the rows of some whole questions, and the question of each run's id (empty if questions have one run each)."""

    @abstractmethod
    def clusters(self, names: Sequence[str], texts: Sequence[str]) -> list[str]:
        """Return the cluster of each question; questions with the same text share a cluster."""

    @property
    def _dollars(self) -> str:
        """The column with the dollars of each call; "" if there is none."""
        return next((item.theirs for item in self.plan.readings if item.how == OF_CALLS), "")

    def rounds(self) -> Iterator[RoundColumns]:
        """Yield the rounds of whole questions; after the last one, raise if the question ids or gold answers are implausible."""
        formulas = {name: make for name, make in self.plan.formulas.items() if name != self._key}
        for rows, questions in self.parts():
            columns = read_rows(rows, self.grid, str(self._path), formulas=formulas, differing=self.tally.add_differing)
            keep_at_ends(columns, self.plan.of_runs)
            self._totals = running_totals(columns) if self._totals is None else self._totals
            subtract_totals(columns, self._totals)
            if money := self.plan.columns.get("spend"):
                self.tally.add_money([row.values.get(money) for row in rows], money)
            if self._dollars:
                add_up(columns, "spend")
            if not (self._options.samples or self._options.keeps_copies):
                columns, self.grid = self._without_copies(columns, self.grid, self.plan, self._options.columns)
            self._several += sum(n > 1 for n in Counter(questions.values()).values())
            names = [questions.get(name, name) for name in columns.question_ids]
            self.tally.add_names(names, columns, self._texts_within(rows))
            if "cluster" not in self.grid.columns:
                columns.clusters = self.clusters(names, columns.questions)
            if self.position is not None:
                self._replies.update(read_at(columns, self.position))
            self.grid = self.prefixes.read(columns, self.grid, self.plan)
            self.tally.add(columns)
            yield columns
        self.tally.refuse_several_questions(self.plan.columns)
        self.tally.refuse_differing_golds(str(self._path), self.grid, self._other_ids)
        if self._options.log_golds is None and "golds" not in self._options.columns:
            self.tally.refuse_copied_golds(self.plan.columns)

    def _other_ids(self) -> Choices:
        """Return the options that read another column, or several columns together, as the question's id."""
        counter = "" if self._order is not None else self.plan.columns["round"]
        ids = id_choices(TableColumns(self.shape.rows), self.plan, golds_differ=True)
        return ids | compound_choices(TableColumns(self._rows), self.plan.columns.values(), self._key, counter)

    def _texts_within(self, rows: Sequence[Record]) -> dict[str, Counter[str]]:
        """Count the rows of each question text, for ids with several texts of at least two rows each."""
        name, key = self.grid.columns.get("question", ""), self._key
        texts: dict[str, Counter[str]] = {}
        for row in rows if name and name != key else ():
            if isinstance(text := row.values.get(name), str):
                texts.setdefault(str(row.values.get(key)), Counter())[text] += 1
        return {own: counts for own, counts in texts.items() if len(counts) > 1 < min(counts.values())}

    @property
    def _hint(self) -> str:
        """Advice on how to read runs that have one round each; "" if questions have one run each."""
        if not self._several or self.run is None:
            return ""
        table = TableColumns(with_ids(self.shape.rows, self.plan))
        turns = turns_hint(table, self._key, self.run[1], partial(model_costs, table))
        return turns or "what tells its runs apart is said above. Else log the answer of every round"

    def notes(self) -> list[str]:
        """Return all caveats about the table."""
        which = self._options.repeated
        what = f"left out (--repeated {which})" if which else "without an answer, or with nothing new, left out"
        rows = f"{counted(self.repeated, 'row')} {what}"
        unpaid = ", and what they cost is not counted" if any(map(is_cost, self.plan.columns)) else ""
        grid = replace(self.grid, first_round=None) if self._options.samples else self.grid  # which has no first draft
        return [
            *self.prefixes.notes,
            *order_notes(self._order, self.plan, self.shape, samples=self._options.samples),
            *([self.shape.how] if self.shape.how else []),
            *([f"{counted(self.skipped, 'record')} without a round left out"] if self.skipped else []),
            *(
                [f"{rows}, since another row has the same round: calls that were repeated, or logged twice{unpaid}"]
                if self.repeated
                else []
            ),
            *(runs_notes(self._several, self.plan, self.run, self._order) if self.run else []),
            *self.tally.notes(self.plan, grid, self._hint),
            *([dollars_note(self._dollars, self.tally.currency)] if self._dollars else []),
            *([totals_note([self.plan.columns[name] for name in self._totals])] if self._totals else []),
            *([] if self.position is None else [position_note(self.position, self._replies)]),
        ]


class WholeTable(TableSource):
    """A table that is read in one piece; its columns are guessed from all of its rows."""

    def __init__(self, path: Path, options: TableOptions) -> None:
        super().__init__(path, options)
        records = list(self._records())
        if not records:
            raise DataError(f"{path}: no rows; expected one for each question and round, or one for each question")
        records, merged = filled_down(records, options.columns)
        shape = self._unfolded(records)
        refuse_other_files(path, {item.file for item in records}, {row.file for row in shape.rows}, shape.how)
        self._guess(shape)
        self.plan.notes[:0] = merged
        self._refuse_passes([*self._blocks(self._rows)], len(self._rows))
        self.skipped = self.shape.skipped
        runs = RunColumns(self._rows, self.plan, self.declared_runs, self._options.where)
        runs.add(self._rows)
        self.run = runs.choice()

    def parts(self) -> Iterator[tuple[list[Record], Mapping[str, str]]]:
        """Yield all rows."""
        yield (self._rows, {}) if self.run is None else tell_apart(self._rows, self.plan, self.run)

    def clusters(self, names: Sequence[str], texts: Sequence[str]) -> list[str]:
        """Return the cluster of each question."""
        return one_name_per_text(names, texts)
