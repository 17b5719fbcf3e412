"""Guess the meaning of a table's columns from usual names and from the values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from suffice.errors import UnsettledError
from suffice.importers.answers import answer_or_gold as doubts
from suffice.importers.answers.golds import mark_of
from suffice.importers.answers.parsed_columns import are_in_replies, is_parsed_name
from suffice.importers.answers.parsed_pairs import refuse_parsed_pairs
from suffice.importers.columns.cost_names import OF_CALLS
from suffice.importers.columns.grid import AFTER_MARK, OWN_COLUMNS, is_cost
from suffice.importers.columns.table_columns import RECORD_NUMBER, ColumnMap, TableColumns
from suffice.importers.files.records import Record
from suffice.importers.guesses.cost_guesses import COST_NAMES
from suffice.importers.guesses.number_guesses import NumberGuess
from suffice.importers.guesses.options import has_options
from suffice.importers.guesses.unnamed_answers import refuse_unread_answer, refuse_words_of_replies
from suffice.importers.guesses.unread import names_runs, refuse_unread_rounds, unread_notes
from suffice.importers.questions.block_ids import block_id
from suffice.importers.questions.counted_ids import counted_id
from suffice.importers.questions.record_ids import ids_of_records
from suffice.importers.rounds.trajectories import ColumnReading
from suffice.importers.rows.scores import are_marks, refuse_parts_of_scores, refuse_unscaled
from suffice.importers.rows.stop_words import may_end, told_ends
from suffice.importers.shapes.shape import Shape
from suffice.importers.words.asked_names import is_asked_name
from suffice.importers.words.choices import Choices, of_columns
from suffice.importers.words.gold_names import is_in_golds
from suffice.importers.words.names import (
    FEEDBACK,
    GOLDS,
    IDS,
    LABELS,
    MODELS,
    NO_ANSWERS,
    OPTION_NUMBERS,
    OUTCOME_NAMES,
    PARSED_ANSWERS,
    QUESTIONS,
    REPLIES,
    SUBJECTS,
    WEAK_REPLIES,
    is_of_person,
    is_round_name,
    last_name,
    plain_name,
    without_steps,
)
from suffice.importers.words.number_forms import FORMS, TOTALS
from suffice.policy.metrics import METRICS
from suffice.policy.signals import SIGNALS
from suffice.recordings.runs import is_of_judge

_NUMBER_NAMES = frozenset({"calls", "seconds", "tokens"})  # costs: signals of these names are computed as sums
_SHOWN, _HOW = 6, re.compile(r" \([^()]+\)$")  # the form in which a column is read, such as a scale
OF_ITS_OWN = "a text of its own for nearly each question"
"""The reason why a column such as a ticket's subject is read as the question."""

_OWN_TEXTS = 0.9
"""The least share of the questions that have a text of their own if it asks them."""

_SENTENCE = 3
"""The fewest words of most texts in a column `source` that asks questions."""

_GOLD_FIELDS = ("answer", "answers", "text", "value")
"""Names of the gold answer in an object of gold answers that has further fields."""

OF_ROUNDS = frozenset({"answer", "text", "feedback", "finish_reason"})
"""Columns about a single round; beside a list of rounds, the record's own columns of these names are not."""


def is_long(rows: Sequence[Record]) -> bool:
    """Return whether each row is a round: ids repeat, and a column numbers rounds or contains replies."""
    table = TableColumns(rows)
    if not any(table.repeats(name) for name in table.by_name(IDS)):
        return False
    replied = table.by_name((*REPLIES, "prediction")) and any(plain_name(name) == "messages" for name in table.names)
    return bool(replied) or any(table.counts(name) for name in table.names if is_round_name(name.rpartition(".")[2]))


def guess_columns(
    columns: Mapping[str, str],
    metrics: Mapping[str, str],
    labels: Mapping[str, str],
    *,
    shape: Shape,
    has_golds: bool = False,
) -> ColumnMap:
    """Map the columns that the user names, those with this library's names, and those with usual names, in this order.

    If the user gives an empty name for a column, the table does not have it.  With `has_golds`, gold answers come from another file.
    """
    table, shown = TableColumns(shape.rows), shape.columns
    result = ColumnMap({}, dict(metrics), dict(labels))
    for ours, theirs in columns.items():
        if theirs:
            is_of_calls = ours == "spend" and theirs.endswith(
                tuple(f" ({form})" for form in FORMS if form not in TOTALS)
            )
            result.read(ours, theirs, OF_CALLS if is_of_calls else "option")
    refuse_parts_of_scores(metrics, shape)
    said = {*columns.values(), *metrics, *metrics.values(), *labels, *labels.values()}
    said |= {re.sub(_HOW, "", name) for name in said}
    outcomes = set(OUTCOME_NAMES) - set(
        METRICS
    )  # in a log, these names mean the outcome, even if a signal has the same name
    known = (OWN_COLUMNS | set(METRICS) | set(SIGNALS)) - _NUMBER_NAMES - outcomes
    guess = _Guess(table, result, shape, frozenset({*columns, *metrics, *labels}))
    for name in table.names:
        if name in guess.counters & OWN_COLUMNS:
            continue  # it numbers the rounds
        if name in shape.outer and (name in OF_ROUNDS or is_cost(name) or name in METRICS or name in SIGNALS):
            continue  # it describes the question, not a round
        if name == "feedback" and are_marks(table.column(name)):
            continue  # it judges answers, and is not a critique
        if (name in known or is_cost(name)) and name not in said and name not in columns:
            other = None if name in shown else table.other_meaning(name)
            if other is not None:
                result.notes.append(
                    f"{name!r} has {other!r:.40}, so it is not the column of this name in a recording: it is kept as 'imported_{name}'"
                )
                continue
            if name in METRICS:
                refuse_unscaled(table, name)
            how = "shape" if name in shown else "its own name"
            result.read(name, name, how, shown.get(name, ""))
    guess.place(one_per_record=bool(shape.how))
    guess.texts()
    guess.costs()
    guess.thoughts()
    guess.numbers()
    guess.scores()
    guess.confidences()
    guess.outcomes_of_tasks()
    guess.outcomes_of_runs()
    guess.ask_for_an_unread_answer()
    read = {*result.columns.values(), *result.metrics.values(), *result.labels.values(), *columns}
    used = read | {re.sub(_HOW, "", name) for name in read} | {*result.sources}
    is_judged = has_golds or bool(result.metrics) or not result.columns.keys().isdisjoint({"golds", *METRICS})
    result.notes += unread_notes(table, result.columns, shape, used, COST_NAMES, is_judged=is_judged)
    return result


class _Guess(NumberGuess):
    """Guesses, by usual names, for columns that neither the user nor this library's names determine."""

    def place(self, *, one_per_record: bool) -> None:
        """Find the column of round numbers and the ids of questions; rounds without numbers are numbered by the position of their rows."""
        for name in [name for name in self.shown if self.shown[name].startswith("order ") and self.lacks("round")]:
            self.result.read("round", name, "shape", self.shown[name])
        if self.lacks("round"):
            used = set(self.result.columns.values())
            free = [name for name in self.table.names if name not in used and self.table.counts(name)]
            names = [name for name in free if is_round_name(name.rpartition(".")[2])]
            counting = sorted(names, key=lambda name: "." in name)
            ids = self.table.by_name(IDS)[:1]
            others = [name for name in counting if not self._names_texts(name)]
            counting = [name for name in counting if name not in ids] or others
            counting = self._without_row_ids(counting, ids)
            counting = counting or self.table.counters_in(free, ids)
            if counting:
                self.read("round", counting[0])
        if self.lacks("question_id"):
            self._ids(one_per_record=one_per_record)

    def _without_row_ids(self, names: Sequence[str], ids: Sequence[str]) -> list[str]:
        """Remove counters that are ids of rows: their values never repeat, and their names end with `_id`.

        If rows belong to several questions, and some counters repeat, all counters that never repeat are removed.
        """
        unique = [name for name in names if len({*map(str, self.table.column(name))}) == len(self.table.rows)]
        counting = [name for name in names if name not in unique]
        key = self.result.columns.get("question_id") or next(iter(ids), "")
        are_several = self.table.repeats(key) and len({*map(str, self.table.column(key))}) > 1
        if are_several and counting:
            return counting
        of_rows = [name for name in unique if plain_name(name).endswith("_id")] if are_several or counting else []
        return [name for name in names if name not in of_rows]

    def _names_texts(self, name: str) -> bool:
        """Return whether a column named like an id has one value for each text of a question; such a column does not number rounds."""
        texts = [text for text in self.table.by_name(QUESTIONS) if self.table.repeats(text)][:1]
        return last_name(name) in IDS and any(self.table.constant_in(name, self.table.column(text)) for text in texts)

    def _ids(self, *, one_per_record: bool) -> None:
        ids = [name for name in self.free(IDS) if not (is_of_person(name) or self.table.lists_objects(name))]
        ids = self._ids_of_records(ids) if one_per_record else ids
        top = [name for name in ids if "." not in name] or ids
        asked = without_steps([*dict.fromkeys([*self.table.by_name(("question",)), *self.free(QUESTIONS)])])
        questions = [name for name in asked if self.table.repeats(name) and len({*self.table.column(name)}) > 1]
        top = [name for name in top if not (self.table.repeats(name) and names_runs(self.table, name, questions))]
        if repeated := [*filter(self.table.repeats, top)]:
            self.read("question_id", repeated[0])
        elif (own := None if one_per_record or questions else counted_id(self.table, self._unread())) is not None:
            self.counted_rounds(*own)
        elif top and not (questions and not one_per_record and "round" in self.result.columns):
            self.read("question_id", top[0])
        elif one_per_record:
            self.result.formulas["question_id"] = lambda row: row.number
            self.result.read("question_id", "question_id", "no column has an id", RECORD_NUMBER)
        elif (session := doubts.session_of(self.table, text := next(iter(questions or asked), ""))) is not None:
            changing = ", in which the text of the question changes" if text else ""
            self.read("question_id", session, f"name of a session{changing}")
        elif (code := doubts.code_of(self.table, questions)) is not None:
            self.read("question_id", code, "a word for each text of the question")
        elif questions and (block := block_id(self.table, questions[0], self._unread())):
            self.read("question_id", block, "one value for the rows of each question, whose texts are asked again")
        elif questions:
            self.result.read("question_id", questions[0], "text of the question, as no column has its id")

    def _ids_of_records(self, ids: Sequence[str]) -> list[str]:
        """Return the columns named like ids that may identify records, the record's own id first.

        Ids and numbers of the items in a record's list are left out.
        """
        ids = [n for n in ids if (n in self.outer or self.table.repeats(n)) and not self.table.numbers_items(n)]
        above = [name for name in self.outer if name.startswith("record.") and name.removeprefix("record.") in IDS]
        ids = ids or [name for name in self.free(("request_id",)) if name in self.outer] or sorted(above)
        is_nested = all("." in name for name in ids)
        return [*(ids_of_records(self.table, self._unread(), self.outer) if is_nested else ()), *ids]

    def texts(self) -> None:
        """Find answers, gold answers, questions and models."""
        ids = self._ids_of_rows()
        if self.lacks("golds"):
            self._golds(ids)
        self._ask_for_the_answer(ids)
        if self.lacks("answer"):
            self._answer()
            self._ask_for_the_answer(ids)
        self._text_as_question(ids)
        if self.lacks("golds"):
            self._golds_of_record()
            gold = doubts.gold_beside(self.table, ids, self.result.columns.get("answer", ""), self._unread())
            if gold is not None and self.lacks("golds"):
                self.read("golds", gold, "called after the answer")
        key = self.result.columns.get("question_id", "")
        if "question_id" not in self.said and key in self.table.names:
            doubts.refuse_other_questions(self.table, ids, key, self.result.columns.get("golds", ""))
        self._ask_for_steps()
        self._question(ids)
        self._ask_for_parsed_answers(ids)
        rounds = self.result.columns.get("round", "")
        for name, said, end in told_ends(self.table, ids, rounds, self._unread()) if self.lacks("end") else ():
            self._make("end", end, said, [name])
        self.result.may_end = may_end(self.table, ids, rounds, self._unread()) if self.lacks("end") else ""
        for ours, usual in (("feedback", FEEDBACK), ("finish_reason", ("finish_reason", "stop_reason"))):
            free = [name for name in self.free(usual, of_rounds=True) if name not in self.result.sources]
            names = [name for name in free[:1] if self.table.is_text(name)]
            are_words = names and ours == "feedback" and are_marks(self.table.column(names[0]))
            if names and self.lacks(ours) and not are_words:
                self.read(ours, names[0])
        self._model(ids)

    def _ask_for_parsed_answers(self, ids: Sequence[Any]) -> None:
        """Raise if columns with unusual names may contain answers that were parsed from replies, and perhaps gold answers."""
        if not self.said & {"answer", "golds"} and "golds" not in self.result.columns:
            refuse_parsed_pairs(self.table, ids, self.result.columns.get("answer", ""), self._unread())
        if "answer" not in self.said and self.lacks("text"):
            free = [name for name in self._unread(of_rounds=True) if name not in self.counters]
            refuse_words_of_replies(self.table, ids, self.result.columns, free)

    def _text_as_question(self, ids: Sequence[Any]) -> None:
        """Read a column `text` as the question if it is constant in each question while answers change, as in logs of classifiers."""
        columns = self.result.columns
        is_guess = columns.get("text") == "text" and "text" not in self.said and columns.get("answer", "text") != "text"
        if is_guess and self.table.constant_in("text", ids) and self.table.changing_in(columns["answer"], ids):
            self.result.drop("text")
            texts, names = {*map(str, self.table.column("text"))}, {*map(str, ids)}
            if self.lacks("question") and len(texts) >= _OWN_TEXTS * len(
                names
            ):  # otherwise, it is a passage or an instruction
                self.read("question", "text", "the same in all rows of a question, while answers change")

    def _question(self, ids: Sequence[Any]) -> None:
        """Find the question; it may be a ticket's subject or a case's text, if nearly every question has a different one."""
        if self.lacks("question"):
            self._first_constant("question", QUESTIONS, ids)
        if not self.lacks("question"):
            return
        n = len({*map(str, ids)})
        for name in [*self.free(SUBJECTS), *filter(is_asked_name, self._unread())]:
            path, texts = plain_name(name).split(".")[:-1], self.table.column(name)
            is_own = "." in name or last_name(name) != "text"  # a column `text` may be a reply
            if last_name(name) == "source":  # may be a file or an address
                is_own = 2 * sum(len(str(text).split()) >= _SENTENCE for text in texts) > len(texts)
            is_asked = is_own and NO_ANSWERS.isdisjoint(path) and all(isinstance(text, str) for text in texts)
            if is_asked and self.table.constant_in(name, ids) and len({*texts}) >= max(2, _OWN_TEXTS * n):
                self.read("question", name, OF_ITS_OWN)
                return

    def _golds(self, ids: Sequence[Any]) -> None:
        """Find gold answers; if the rows have options, the number of the right option may be the gold answer."""
        free = [name for name in self.free(GOLDS) if name not in self.counters]
        names = [name for name in free if not self.table.judges_rounds(name, ids, doubts.FEW)]
        tags = {name for name in names if last_name(name) in ("label", "labels") and self.table.lists_objects(name)}
        names = [name for name in names if name not in tags and not plain_name(name).endswith("prompt.label")]
        changing = [name for name in names if last_name(name) in LABELS]
        names = [n for n in names if not (n in changing and doubts.changes_in_rounds(self.table, ids, n))][:1]
        if not names:  # for an object such as {"gold": {"answer": "Oslo", "source": "wiki"}}
            inner = [name for name in self._unread() if is_in_golds(name) and last_name(name) in _GOLD_FIELDS]
            names = [name for name in inner if len(inner) == 1 and self.table.constant_in(name, ids)]
        if not names and has_options(self.table.rows):
            names = [name for name in self.free(OPTION_NUMBERS) if self.table.constant_in(name, ids)][:1]
        for name in names:
            self.read("golds", name)
        if not names:
            self._marked_golds(ids)

    def _marked_golds(self, ids: Sequence[Any]) -> None:
        """Read solutions with GSM8K's mark (####) as gold answers.

        They must be constant in each question, vary between questions, and not be named like replies.
        """
        for name in [name for name in self._unread() if not doubts.is_called_reply(name)]:
            texts = [text for text in self.table.column(name) if text is not None]
            if len({*map(str, texts)}) > 1 and mark_of(texts) == AFTER_MARK and self.table.constant_in(name, ids):
                self.read("golds", name, f"solutions with {AFTER_MARK!r} before the answer")
                return

    def _model(self, ids: Sequence[Any]) -> None:
        if "model" not in self.said:
            for name in [name for name in self.free(MODELS) if not is_of_judge(name)][:1]:
                if self.table.is_text(name) and self.table.constant_in(name, ids):
                    self.result.labels["model"] = name
                    self.result.readings.append(ColumnReading(ours="model (label)", theirs=name, how="usual name"))

    def _first_constant(self, ours: str, usual: Sequence[str], ids: Sequence[Any]) -> None:
        for name in self.free(usual):
            texts = all(value is None or isinstance(value, str) for value in self.table.column(name))
            is_same = texts and len({*self.table.column(name)}) == 1 < len({*map(str, ids)})  # an instruction
            if texts and not is_same and self.table.constant_in(name, ids):
                self.read(ours, name)
                return

    def _golds_of_record(self) -> None:
        """Read the answer stored once for the record as the gold answer, unless it always equals the last round's answer."""
        answer = self.result.columns.get("answer")
        for name in ("record.answers", "answers", "record.answer", "answer"):
            if answer is None or name == answer or name not in self.outer or not self.table.filled(name):
                continue
            last: dict[int, tuple[Any, Any]] = {}
            for row in self.table.rows:
                last[row.number] = (row.values.get(name), row.values.get(answer))
            if not all(gold == said for gold, said in last.values()):
                self.read("golds", name, "the record's, and not always the last answer")
                return

    def _ask_for_steps(self) -> None:
        """Raise if rounds have replies, and the record has an answer that its last reply does not contain: rounds may be steps."""
        answer = self.result.columns.get("answer", "")
        if "answer" not in self.said and last_name(answer) in (*REPLIES, *WEAK_REPLIES):
            of_record = {*self.outer} - {*self.result.columns.values()}
            parsed = filter(of_record.__contains__, self.table.by_name(PARSED_ANSWERS[1:]))
            for name in [name for name in parsed if self.table.is_text(name)][:1]:
                doubts.refuse_steps(self.table, answer, name)

    def _ask_for_the_answer(self, ids: Sequence[Any]) -> None:
        """Raise if the column read as answers may have the gold answers, and another column the model's answers."""
        if "answer" in self.said:
            return
        free = [name for name in self.free(("answer",), of_rounds=True) if name not in self.counters]
        answer = self.result.columns.get("answer") or next(iter(free), None)
        if answer is None:
            return
        read = {ours: theirs for ours, theirs in self.result.columns.items() if ours != "text"}
        used = {*read.values(), *self.result.metrics.values(), *self.result.labels.values(), *self.outer}
        unread = [name for name in self.table.names if name not in used]
        golds = self.result.columns.get("golds", "" if "golds" in self.said else None)
        doubts.refuse_gold_as_answer(self.table, ids, answer, golds, unread)

    def ask_for_an_unread_answer(self) -> None:
        """Raise to ask for the column of answers, if none is known and some column of texts may contain them."""
        columns, metrics = self.result.columns, self.result.metrics
        if self.lacks("answer"):
            unread = self._unread(of_rounds=True)
            scored = bool({*metrics, *(columns.keys() & METRICS)} - self.result.of_runs)
            tasks = bool(self.result.of_runs)
            try:
                refuse_unread_answer(
                    self.table, self._ids_of_rows(), columns, unread, is_scored=scored, is_of_tasks=tasks
                )
            except UnsettledError:
                if "question_id" not in columns:  # until it is known, nothing says which texts differ between its rows
                    refuse_unread_rounds(self.table.rows, columns)
                raise

    def _answer(self) -> None:
        """Find the column of the model's answers, preferring parsed answers to replies; raise if there are several candidates."""
        ids = self._ids_of_rows()
        said = self.free(LABELS, of_rounds=True)
        labels = doubts.labels_as_answers(self.table, ids, said, self.result.columns.get("golds", ""))
        for usual in (PARSED_ANSWERS, REPLIES, WEAK_REPLIES):
            if usual is WEAK_REPLIES and self.lacks("golds"):
                doubts.refuse_unnamed_pair(self.table, ids, self._unread())
            names = self._texts(usual)
            if usual is not PARSED_ANSWERS and labels:
                names = [name for name in names if not self.table.constant_in(name, ids)] + labels
            top = [name for name in names if "." not in name] or names
            distinct = [name for i, name in enumerate(top) if not any(self._same(name, other) for other in top[:i])]
            if len(distinct) > 1:
                shown = distinct[:_SHOWN]
                choices: Choices = {}
                for name in shown:
                    choices |= of_columns({"answer": name}, f"{name!r} is the answer")
                if "round" not in self.result.columns and shown == distinct:
                    meaning = "they are the answers of successive rounds, in this order"
                    choices |= of_columns({"rounds": ",".join(distinct)}, meaning)
                others = f" and {len(distinct) - _SHOWN} more" if shown != distinct else ""
                raise UnsettledError(f"{' and '.join(map(repr, shown))}{others} may be the answer", "columns", choices)
            if distinct:
                self._read_answer(distinct[0], is_reply=usual is not PARSED_ANSWERS)
                return
        columns = self.result.columns
        ours = columns.get("question_id") == "question_id" and columns.get("round") == "round"
        ours = ours and "question_id" not in self.result.formulas
        if columns.get("text") == "text" and "text" not in self.said and not ours:
            self.result.drop("text")
            self.read("answer", "text", "no other column may be the answer")

    def _read_answer(self, name: str, *, is_reply: bool) -> None:
        """Read a column as the answer.

        If it has whole replies and exactly one column was parsed from them, read the parsed column as the answer in its place.
        """
        if is_reply and self.lacks("text"):
            free = [own for own in self._unread(of_rounds=True) if own not in self.counters]
            replies = self.table.column(name)
            parsed = [own for own in free if is_parsed_name(own) and are_in_replies(self.table.column(own), replies)]
            if len(parsed) == 1:
                self.read("answer", parsed[0], f"parsed from {name!r}, in which its values are")
                self.read("text", name)
                return
        self.read("answer", name)
        for text in self._texts(REPLIES)[:1] if not is_reply and self.lacks("text") else ():
            self.read("text", text)

    def _texts(self, usual: Iterable[str]) -> list[str]:
        names = [name for name in self.free(usual, of_rounds=True) if self.table.is_text(name)]
        names = [name for name in names if name not in self.counters]
        return [name for name in names if NO_ANSWERS.isdisjoint(plain_name(name).split(".")[:-1])]

    def _same(self, name: str, other: str) -> bool:
        return self.table.column(name) == self.table.column(other)
