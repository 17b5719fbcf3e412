"""Convert the rows of a long table to rounds, column by column; errors name the file and row of a bad value."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from suffice.common.tables import counted
from suffice.errors import DataError, UnsettledError
from suffice.importers.columns.closed_book import counts_from_0
from suffice.importers.columns.grid import (
    END_NAMES,
    OWN_COLUMNS,
    Grid,
    cell_number,
    cell_text,
    differing_golds,
    gold_texts,
    is_cost,
    only_text,
    signal_cell,
)
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names
from suffice.importers.questions.compound_ids import compound_choices
from suffice.importers.questions.counted_ids import ROWS_OF_ONE, of_judges, sure_among
from suffice.importers.questions.gaps import counting_columns, gap_error
from suffice.importers.rounds.round_columns import RoundColumns
from suffice.importers.rounds.trajectories import check_unit, end_of
from suffice.importers.rows.incomplete_rows import empty_ids, unnumbered
from suffice.importers.rows.parallel_files import of_files
from suffice.importers.rows.repeated_rounds import (
    begins_again,
    in_order_of_rows,
    of_counted_runs,
    of_one_kind,
    of_repeats,
    refuse_other_calls,
)
from suffice.importers.rows.stages import NUMBERED
from suffice.importers.rows.stop_words import end_in_words, is_not_stopped, unknown_end
from suffice.importers.words.choices import Choices, in_options, of_columns
from suffice.importers.words.id_names import is_id_name
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import COST_KINDS, End, Floats, Positions
from suffice.recordings.runs import MEMBERS
from suffice.recordings.schema import cost_column

_MOST_ROUNDS = 1e9
_MOST_RUNS, _OFFERED, _FEW_COPIES = 12, 3, 0.3
_TEXTS = ("answer", "text", "feedback", "finish_reason")

_Cells = list[Any]
_ReadNumber = Callable[[Any, str, str], float]


def read_rows(
    rows: Sequence[Record],
    grid: Grid,
    where: str,
    *,
    formulas: Mapping[str, Callable[[Record], Any]] | None = None,
    differing: Callable[[str], None] | None = None,
) -> RoundColumns:
    """Convert rows to rounds; questions are in the order of their first rows.

    Args:
        rows: All rows of some questions.
        grid: Settings for reading them.
        where: The file, for messages.
        formulas: Columns that are computed from others, by name.
        differing: Called with a message for each question whose rows have different gold answers; its gold answers are removed.  None =
        raise an error.

    Raises:
        DataError: A value is invalid, or a question's rounds have a gap or a copy; the message names file and row.
        UnsettledError: Rounds are numbered from 0, or one id belongs to several questions.
    """
    return _Rows(rows, grid, where, formulas or {}).rounds(differing)


class _Rows:
    """The columns of some rows; every list and array has one item for each row, unless stated otherwise."""

    def __init__(
        self, rows: Sequence[Record], grid: Grid, where: str, formulas: Mapping[str, Callable[[Record], Any]]
    ) -> None:
        self._rows, self._grid, self._where, self._formulas = rows, grid, where, formulas

    def rounds(self, differing: Callable[[str], None] | None) -> RoundColumns:
        grid = self._grid
        ids, codes, numbers = self._by_question()
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        lengths = np.diff(starts, append=len(codes))
        index = self._indices(ids, starts, lengths, numbers)
        firsts = starts.tolist()
        longest = int(lengths.max()) if grid.longest is None else grid.longest
        said = self._ends(firsts, lengths.tolist())
        texts = {name: self._texts(name) for name in _TEXTS}
        questions = [text or "" for text in self._firsts("question", firsts)]
        clusters = [text or name for text, name in zip(self._firsts("cluster", firsts), ids, strict=True)]
        costs, signals, metrics = self._numbers_by_name()
        if not grid.strict:
            metrics = {**{name: np.full(len(index), math.nan) for name in METRICS}, **metrics}
        mapped = {theirs for _, theirs in grid.pairs()}
        names = column_names(self._rows)
        return RoundColumns(
            question_ids=ids,
            clusters=clusters,
            questions=questions,
            golds=self._golds(ids, starts, lengths, differing),
            ends=[
                end or end_of(n, longest, grid.ended or "rule") for end, n in zip(said, lengths.tolist(), strict=True)
            ],
            assumed=[grid.assumes_end(end, n, longest) for end, n in zip(said, lengths.tolist(), strict=True)],
            lengths=lengths,
            labels={name: self._label(name, theirs, ids, codes) for name, theirs in grid.labels.items()},
            index=index,
            texts=texts,
            metrics=metrics,
            signals=signals,
            costs=costs,
            extras={
                **{name: self._cells(name) for name in names if name not in mapped},
                **{name: self._cells(grid.columns[name]) for name in MEMBERS if name in grid.columns},
            },
            is_scored=not grid.strict,
            has_answers="answer" in grid.columns,
        )

    def _cells(self, theirs: str) -> _Cells:
        formula = self._formulas.get(theirs)
        return [row.values.get(theirs) for row in self._rows] if formula is None else [*map(formula, self._rows)]

    def _texts(self, ours: str) -> list[str | None]:
        theirs = self._grid.columns.get(ours)
        return [None] * len(self._rows) if theirs is None else self._texts_of(ours, theirs)

    def _texts_of(self, ours: str, theirs: str) -> list[str | None]:
        own = self._cells(theirs)
        own = [*map(only_text, own)] if ours == "answer" and self._grid.single_answers else own
        cells = zip(own, self._rows, strict=True)
        return [v if v is None or type(v) is str else cell_text(v, ours, row.where) for v, row in cells]

    def _numbers(self, ours: str, theirs: str, read: _ReadNumber = cell_number) -> Floats:
        cells = self._cells(theirs)
        try:
            return np.array([math.nan if value is None else float(value) for value in cells], dtype=np.float64)
        except (
            TypeError,
            ValueError,
            OverflowError,
        ):  # some cell is a word: read cell by cell, which is slower but locates a bad one
            pairs = zip(cells, self._rows, strict=True)
            return np.array([read(value, ours, row.where) for value, row in pairs], dtype=np.float64)

    def _by_question(self) -> tuple[list[str], Positions, Floats]:
        """Sort the rows by question and round.

        Returns:
            The ids of all questions; for each row, the position of its question in these ids; and for each row, its round number.
        """
        columns = self._grid.columns
        own = self._texts("question_id")
        if not all(own):
            raise empty_ids(self._rows, own, columns)
        numbers = self._numbers("round", columns["round"])
        with np.errstate(invalid="ignore"):
            usable = (numbers >= 0) & (numbers % 1 == 0) & (numbers <= _MOST_ROUNDS)
        if not usable.all():
            raise unnumbered(self._rows, usable.tolist(), columns["round"])
        places: dict[str | None, int] = {}
        codes = np.array([places.setdefault(name, len(places)) for name in own], dtype=np.int64)
        order = np.lexsort((numbers, codes))
        codes, numbers = codes[order], numbers[order]
        self._refuse_copies(codes, numbers, order)
        self._rows = [self._rows[i] for i in order.tolist()]
        return [str(name) for name in places], codes, numbers

    def _refuse_copies(self, codes: Positions, numbers: Floats, order: Positions) -> None:
        """Raise if a question has a round twice; the error mentions whether the two rows have different question texts."""
        copies = np.flatnonzero((np.diff(codes) == 0) & (np.diff(numbers) == 0))
        if not len(copies):
            return
        self._settle_first_round(int(numbers.min()))
        at = min(copies.tolist(), key=lambda i: int(order[i + 1]))
        first, second = int(order[at]), int(order[at + 1])
        columns, row = self._grid.columns, self._rows[second]
        name = self._texts("question_id")[second]
        has_it = (
            f"{row.where}: question {name!r:.80} has round {int(numbers[at])} already, at {self._rows[first].where}"
        )
        questions = self._texts("question")
        text = columns.get("question")
        if text is not None and questions[first] != questions[second]:
            by_text = of_columns({"question_id": text}, f"{text!r} tells the questions apart")
            golds = [*map(str, self._cells(columns.get("golds", "")))]
            differ = sum(golds[order[i]] != golds[order[i + 1]] for i in copies.tolist())
            raise UnsettledError(
                f"{has_it}, with another text: {questions[first]!r:.40} there and {questions[second]!r:.40} here, so "
                f"{columns['question_id']!r} does not name one question",
                "columns",
                by_text,
                next(iter(by_text)) if 2 * differ > len(copies) else "",
            )
        number = columns["round"]
        refuse_other_calls(self._rows, columns)
        is_usual = 2 * len({*codes[copies].tolist()}) > int(codes.max()) + 1
        answers = self._texts("answer")
        is_same = all(answers[order[i]] == answers[order[i + 1]] for i in copies.tolist())
        runs = in_order_of_rows(number) if is_usual and not is_same else {}
        ids: Choices = {}
        kinds: Choices = {}
        is_text = questions == self._texts("question_id")
        place = np.argsort(order)
        for own in column_names(self._rows):
            cells = [*map(str, self._cells(own))]
            if is_text and self._tells_apart(cells, codes[place]):
                ids |= of_columns({"question_id": own}, f"each {own!r} is a question")
            rows = {*zip(codes.tolist(), numbers.tolist(), (cells[i] for i in order.tolist()), strict=True)}
            is_one = len(rows) == len(cells) and 1 < len({*cells}) <= _MOST_RUNS and own not in columns.values()
            if is_one:
                kinds |= of_one_kind(own, rows)
                runs |= of_counted_runs(own, number, rows)
        key, table = columns["question_id"], TableColumns(self._rows)
        parts = {} if runs or is_text else compound_choices(table, columns.values(), key, number)
        is_ordered = number.endswith(NUMBERED)  # its numbers are not from a column that could name runs
        again = not runs or begins_again(codes[place].tolist(), numbers[place].tolist())
        if not is_ordered and again and len({*numbers.tolist()}) > 1:
            meaning = f"another run of the question begins where {number!r} begins again"
            runs |= of_columns({"run": number}, meaning)
        named = {option: own for option, own in ids.items() if is_id_name(own[0]["question_id"])}
        sure = sure_among(TableColumns(self._rows), ids, columns) or (of_judges(runs) if is_same else "")
        ids = dict([*(named or ids).items()][:_OFFERED])
        choices = of_files(self._rows, self._grid.numbered) | kinds | parts | in_options(ids | runs)
        if is_ordered or len(copies) <= _FEW_COPIES * len(codes):
            choices = of_repeats() | choices
        doubt = f"{has_it}; each pair must be unique. If a column such as run_id or seed tells several runs apart, --column run=COLUMN names it, and run=ONE,OTHER several"
        raise UnsettledError(doubt, "options", choices, sure) if choices else DataError(doubt)

    def _tells_apart(self, cells: Sequence[str], codes: Positions) -> bool:
        """Return whether a column could be the id of questions that have the same id at present.

        Each value of the column must belong to one present id, have no round number twice, and have several rows on average.
        """
        numbers = [*map(str, self._cells(self._grid.columns["round"]))]
        owners = {*zip(cells, codes.tolist(), strict=True)}
        is_unique = len({*zip(cells, numbers, strict=True)}) == len(cells)
        return is_unique and len(owners) == len({*cells}) <= len(cells) / ROWS_OF_ONE

    def _settle_first_round(self, lowest: int) -> None:
        grid = self._grid
        if lowest or not grid.strict or grid.first_round is not None or "p_known" in grid.columns:
            return
        raise counts_from_0(grid.columns["round"])

    def _indices(self, ids: Sequence[str], starts: Positions, lengths: Positions, numbers: Floats) -> Positions:
        """Return the index of each round; a question's rounds count from 0 or 1 without gaps."""
        grid = self._grid
        lowest = int(numbers.min()) if grid.lowest is None else grid.lowest
        self._settle_first_round(lowest)
        result: Positions = numbers.astype(np.int64) + (0 if grid.first_round is None else grid.first_round - lowest)
        first = np.repeat(result[starts], lengths)
        place = np.arange(len(numbers)) - np.repeat(starts, lengths)
        wrong = (first > 1) | (result != first + place)
        if wrong.any():
            q = int(np.searchsorted(starts, int(np.argmax(wrong)), side="right")) - 1
            own, theirs = numbers[starts[q] : starts[q] + lengths[q]].astype(np.int64).tolist(), grid.columns["round"]
            if theirs.endswith(NUMBERED):
                n_wrong = len({*np.repeat(np.arange(len(starts)), lengths)[wrong].tolist()})
                raise self._missing_word(theirs, str(ids[q]), own, f"{n_wrong:,} of {counted(len(starts), 'question')}")
            files = [row.file for row in self._rows[starts[q] : starts[q] + lengths[q]]]
            others = [*counting_columns(self._rows, grid.columns["question_id"], grid.columns.values())]
            raise gap_error(self._where, _in_words(ids[q], ids), own, theirs, files, others=others)
        return result

    def _missing_word(self, number: str, name: str, places: Sequence[int], many: str) -> DataError:
        """Return the error about a question that lacks a row for one of the user's ordered words, such as `draft` of draft and final."""
        column = number.removesuffix(NUMBERED)
        words = {int(row.values[number]): row.values.get(column) for row in self._rows}
        place = next(place for place in range(1, max(places) + 1) if place not in places)
        word = repr(words[place]) if place in words else f"of place {place} in the order"
        return DataError(
            f"{self._where}: question {name!r:.80} has no row with {column} {word} before its last one, as {many}: each must have the first "
            f"words of the order without a gap. Log the rows that are missing, or leave those questions, or the rows with {column} {word}, out of the "
            "file and the order"
        )

    def _firsts(self, ours: str, starts: Sequence[int]) -> list[str | None]:
        """Return one text for each question: the value in its first row."""
        values = self._texts(ours)
        return [values[start] for start in starts]

    def _ends(self, starts: Sequence[int], lengths: Sequence[int]) -> list[End | None]:
        """Return the reason why each question has no further round; None if none of its rows gives a reason.

        If several rows of a question give a reason, the last of them counts.
        """
        values = self._texts("end")
        own = (range(start, start + n) for start, n in zip(starts, lengths, strict=True))
        last = [next((place for place in reversed(places) if values[place]), None) for places in own]
        longest = max(lengths) if self._grid.longest is None else self._grid.longest
        at_cap = {place: n == longest for place, n in zip(last, lengths, strict=True) if place is not None}
        words = {place: values[place] or "" for place in at_cap}
        words = {place: word for place, word in words.items() if not (at_cap[place] and is_not_stopped(word))}
        ends = {place: end_in_words(word, at_cap=at_cap[place]) or word for place, word in words.items()}
        for place, end in ends.items():
            if end not in END_NAMES:
                both = (
                    {values[other] or "" for other, is_last in at_cap.items() if is_last is side}
                    for side in (True, False)
                )
                column = self._grid.columns["end"]
                raise unknown_end(self._rows[place].where, column, words.values(), set.intersection(*both))
        return [None if place is None else ends.get(place) for place in last]  # type: ignore[misc]

    def _label(self, name: str, theirs: str, ids: Sequence[str], codes: Positions) -> list[str | None]:
        """Return a label of each question; raise if it differs between the question's rows."""
        values = self._texts_of(name, theirs)
        first: dict[int, str | None] = {}
        for value, q, row in zip(values, codes.tolist(), self._rows, strict=True):
            if first.setdefault(q, value) != value:
                raise DataError(
                    f"{self._where}: {row.where}: a label is the same in all rounds of a question, and {name} of question "
                    f"{ids[q]!r:.80} is {first[q]!r:.80} and {value!r:.80}; leave the column unmapped, and it is kept as it is"
                )
        return [*first.values()]

    def _numbers_by_name(self) -> tuple[dict[str, Floats], dict[str, Floats], dict[str, Floats]]:
        """Return costs, signals and metrics."""
        grid, columns = self._grid, self._grid.columns
        others = [name for name in columns if name not in {*OWN_COLUMNS, *METRICS, *MEMBERS}]
        known = {name: self._numbers(name, columns[name]) for name in others if is_cost(name)}
        undefined = np.full(len(self._rows), math.nan)
        components = dict.fromkeys(name.split(".", 2)[1] for name in known)
        names = [cost_column(component, kind) for component in components for kind in COST_KINDS]
        costs = {**dict.fromkeys(names, undefined), **known}
        signals = {name: self._signal(name, columns[name]) for name in others if not is_cost(name)}
        pairs = [*((name, columns[name]) for name in columns if name in METRICS), *grid.metrics.items()]
        metrics = {name: self._numbers(name, theirs) for name, theirs in pairs}
        for name, values in metrics.items():
            for i in np.flatnonzero((values < 0) | (values > 1))[:1].tolist():
                check_unit(float(values[i]), name, self._rows[i].where)
        return costs, signals, metrics

    def _signal(self, name: str, theirs: str) -> Floats:
        """Return a signal's values; raise if one is out of range.

        If it were set to undefined instead, a rule that reads it would never fire.
        """
        strict = self._grid.strict

        def read(value: Any, ours: str, where: str) -> float:
            return signal_cell(value, ours, theirs, where, strict=strict)

        values = self._numbers(name, theirs, read)
        finite = np.flatnonzero(np.isfinite(values))
        extremes = {int(finite[pick(values[finite])]) for pick in (np.argmin, np.argmax)} if len(finite) else set()
        try:
            for i in extremes:
                read(float(values[i]), name, "")
        except DataError:
            for i in finite.tolist():  # so that the error names the first bad row
                read(float(values[i]), name, self._rows[i].where)
        return values

    def _golds(
        self, ids: Sequence[str], starts: Positions, lengths: Positions, differing: Callable[[str], None] | None
    ) -> list[tuple[str, ...]]:
        """Return the gold answers of each question from all of its rows; empty if rows contradict each other."""
        grid = self._grid
        name = grid.columns.get("golds")
        if name is None:
            return [()] * len(ids)
        cells = self._cells(name)
        texts = {
            v: gold_texts(v, "", listed=grid.listed_golds, form=grid.gold_form)
            for v in {v for v in cells if type(v) is str}
        }
        by_row = [
            texts[v]
            if type(v) is str
            else gold_texts(v, f"{row.where}, {name!r}", listed=grid.listed_golds, as_one=grid.list_answers)
            for v, row in zip(cells, self._rows, strict=True)
        ]
        result = []
        for q, (start, n) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            own = by_row[start : start + n]
            golds = tuple(dict.fromkeys(chain.from_iterable(own)))
            first = {*golds[:1], *own[0]}
            i = next((i for i, texts_here in enumerate(own) if texts_here and not first & {*texts_here}), None)
            if i is not None:
                message = (
                    f"{self._rows[start + i].where}: question {ids[q]!r:.80} has other gold answers here ({list(own[i])!r:.80}) than "
                    f"before ({golds[0]!r:.80})"
                )
                if differing is None:
                    raise DataError(f"{self._where}: {differing_golds(message, grid)}")
                differing(message)
                golds = ()
            result.append(golds)
        return result


def _in_words(name: str, ids: Collection[str]) -> str:
    """Describe an id in words; the id of a further run consists of the question's id, @ and the run.

    >>> _in_words("q1@2", ["q1", "q1@2"]), _in_words("me@home", ["me@home", "q1"])
    ("run '2' of question 'q1'", "question 'me@home'")
    """
    question, at, run = name.rpartition("@")
    is_run = at and any(own != name and question in (own, own.rpartition("@")[0]) for own in ids)
    return f"run {run!r:.40} of question {question!r:.80}" if is_run else f"question {name!r:.80}"
