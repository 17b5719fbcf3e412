"""Rows of events before or after a loop, such as a person's ruling or a payment.

They are neither rounds nor calls of the loop.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from suffice.common.tables import counted, cut_list
from suffice.errors import NotFoundError, UnsettledError
from suffice.importers.columns.cost_names import SECONDS
from suffice.importers.columns.grid import is_cost, whole_number
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names, places_of
from suffice.importers.rows.left_out import COSTS, FAILED, names_loops, questions_of, totals_of
from suffice.importers.rows.row_times import order_by_time
from suffice.importers.shapes.shape import Shape
from suffice.importers.words.choices import of_rows
from suffice.importers.words.id_names import is_id_name
from suffice.importers.words.names import ANSWERS, LABELS, WEAK_REPLIES, is_person, is_round_name, last_name
from suffice.recordings.runs import MODEL_NAMES

NOT = "!"
"""The end of a column's name in a filter that leaves rows out, as in ``event!=report``."""

KINDS = frozenset(
    {"event", "event_type", "event_name", "type", "kind", "step_type", "stage", "action", "activity", "phase", "step"}
    | {"operation", "op", "purpose", "call_type", "task_type", "task_name", "step_name", "node"}
)
"""Names of columns that may say of what kind a row is."""

_STATES = frozenset({"status", "state"})
"""Names of columns that say so where a row has no number of a round."""

_MOST_KINDS, _NEARLY_ALL = 24, 0.9

_LIFE = re.compile(
    r"(?:sent|paid|closed|opened|released|received|queued|submitted|delivered|shipped|resolved|assigned|created|started|finished|ended|"
    r"completed|archived|refunded|notified|rejected|approved|booked|published|begin|begun|end|start|done)$"
)
"""Ends of words for what happens to a case, and not in a loop."""

_PEOPLE = re.compile(r"human|manual|customer|client|officer|clerk|staff|person|supervisor|manager")
_WORK = re.compile(
    r"llm|model|gpt|call|prompt|generat|completion|infer|plan|draft|writ|revis|refin|summar|format|final|answer|respon|reply|thought|think|"
    r"reason|reflect|criti|judg|eval|grad|review|verif|valid|guard|check(?:er|ing)?$|search|retriev|look_?up|fetch|query|rank|embed|tool|exec|run|"
    r"test|pars|extract|classif|translat|rout|agent|step|sampl|debate|vote|select|rewrit|improv|repair|fix|compos|creat(?:e|ing)$|analy"
)
"""Parts of words for what a loop does; where nothing says what calls cost, such rows may be calls."""

_BY_HAND = re.compile(r"(?:^|_)(?:human|manual|officer|clerk|staff|person|supervisor)(?:_|$)")
_NOT_RUN = frozenset({"skipped", "skip", "not_run", "not run", "not_reached", "unused", "pruned"})
"""The states of rounds after the one at which a loop stopped."""

_MISSING = re.compile(r"abst[ae]in|no_answer|unanswered|g[ai]ve_?n?_?up|skip|refus|empty|unknown|invalid|unpars")
"""Parts of words for rounds without an answer."""

_WARM = re.compile(
    r"(?:^|[_\W])(?:warm[_-]?up|health[_-]?check|heartbeat|ping|keep[_-]?alive|smoke[_-]?test)(?:$|[_\W])",
    re.IGNORECASE,
)
"""What is called so tests whether a model answers, before its loop is run."""


class Outside(NamedTuple):
    """Rows outside the loop.

    Attributes:
        rows: The `Record.where` of these rows.
        names: The columns that identify the kinds of these rows.
        notes: Describes this reading.
    """

    rows: frozenset[str]
    names: list[str]
    notes: list[str]


def rows_outside(
    shape: Shape, kept: Sequence[bool], where: Mapping[str, str], said: Mapping[str, str], left_out: Mapping[str, str]
) -> Outside:
    """Return rows that are not part of the loop.

    They are of kinds that occur only before the first answer, or only after the last one.

    Args:
        shape: The rows.
        kept: For each row, True if a filter keeps it.
        where: The filter.
        said: The columns that the user names.
        left_out: For each column, the kinds that the user leaves out, separated by commas; "" for none.

    Raises:
        UnsettledError: Rows after the last answer have costs, so that they may be calls of the last round or outside the loop.
        NotFoundError: No row is of a kind that the user leaves out.
    """
    rows, names, notes = set[str](), list[str](), list[str]()
    for name in [*dict.fromkeys([*_kind_columns(shape), *left_out])]:
        kinds = [_text(row.values.get(name)) for row in shape.rows]
        gone = _named(left_out.get(name, ""), name, kinds)
        rows |= {row.where for row, kind in zip(shape.rows, kinds, strict=True) if kind in gone}
        answering = _answering(shape, kept, name in where, said)
        if name not in where and name not in left_out:
            _refuse_people(name, kinds, answering)
        around = _Around(shape, kinds, answering, said)
        paid = [kind for kind in around.after if kind not in gone and around.costs(kind)]
        if paid and name not in left_out:
            raise _doubt(name, paid, sum(kind in paid for kind in kinds))
        own = {kind for kind in (*around.before, *around.after) if kind not in gone and around.is_no_call(kind)}
        rows |= {row.where for row, kind in zip(shape.rows, kinds, strict=True) if kind in own}
        if gone or own:
            names.append(name)
            notes.append(_note(name, sorted(gone | own), sum(kind in gone | own for kind in kinds), bool(gone)))
    warm = {row.where: name for row in shape.rows if row.where not in rows if (name := _warming(row))}
    if 0 < len(warm) < len(shape.rows) / 2:
        notes.append(
            f"{counted(len(warm), 'row')} left out that {cut_list(sorted({*map(repr, warm.values())}))} calls a warm-up or a check"
        )
        rows |= {*warm}
    for state, places in _not_run(shape, _answering(shape, kept, bool(where), said), said).items():
        notes.append(
            f"{counted(len(places), 'row')} left out whose {state!r} says that they were not run, after the last answer of their question"
        )
        rows |= places
    return Outside(frozenset(rows), names, notes)


def _refuse_people(name: str, kinds: Sequence[str], answering: Sequence[bool]) -> None:
    """Raise if some kinds of answers are written by people, and others are not."""
    answers = [kind for kind, own in zip(kinds, answering, strict=True) if own]
    people = [kind for kind in dict.fromkeys(answers) if _BY_HAND.search(last_name(kind))]
    if people and len(people) < len({*answers}):
        words = ",".join(people)
        raise UnsettledError(
            f"{counted(sum(kind in people for kind in answers), 'answer')} whose {name!r} is {cut_list([*map(repr, people)])} may be a person's: are "
            "they rounds of the loop?",
            "options",
            {
                **of_rows(f"{name}{NOT}", words, "no: they are left out"),
                **of_rows(f"{name}{NOT}", "", "yes: they are rounds like the others"),
            },
        )


def _not_run(shape: Shape, answering: Sequence[bool], said: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the rows after a question's last answer whose state says that they were not run.

    The result has the `Record.where` of these rows, by the column of their state.
    """
    names = [name for name in column_names(shape.rows) if last_name(name) in KINDS | _STATES]
    result: dict[str, set[str]] = {}
    states = {
        place: name
        for place, row in enumerate(shape.rows)
        for name in names
        if not answering[place] and _text(row.values.get(name)).lower() in _NOT_RUN
    }
    questions = _questions(shape, said) if states and any(answering) else ()
    for own in places_of(questions).values():
        for place in own[1 + max((i for i, place in enumerate(own) if answering[place]), default=len(own)) :]:
            if place in states:
                result.setdefault(states[place], set()).add(shape.rows[place].where)
    return result


class _Around:
    """The kinds of rows without an answer that do not occur between the answers of a question.

    Attributes:
        before: Kinds that occur only before the first answer.
        after: Kinds that occur after the last answer, and perhaps also before the first one.
    """

    def __init__(self, shape: Shape, kinds: Sequence[str], answering: Sequence[bool], said: Mapping[str, str]) -> None:
        self._shape, self._kinds, self._answering = shape, kinds, answering
        self._table = TableColumns(shape.rows)
        self.before, self.after = list[str](), list[str]()
        answers = {kind for kind, own in zip(kinds, answering, strict=True) if own}
        silent = [kind for kind in dict.fromkeys(kinds) if kind not in answers and may_be_outside(kind)]
        if not silent or not answers or len({*kinds}) > _MOST_KINDS:
            return
        self._questions = _questions(shape, said)
        if self._questions and len([*groupby(kinds)]) >= len({*self._questions}):  # else the file is sorted by kind
            sides = self._sides()
            around = [kind for kind in silent if kind in sides and "between" not in sides[kind]]
            self.after = [kind for kind in around if "after" in sides[kind]]
            self.before = [kind for kind in around if kind not in self.after]
        self._sums = totals_of(shape.rows, self._questions, answering) if self.after else set[int]()
        costs = {theirs for ours, theirs in said.items() if is_cost(ours)}
        names = [name for name in self._table.names if name in costs or last_name(name) in COSTS]
        usual = [name for name in names if last_name(name) not in SECONDS]
        # A model named in every row, such as the run's, does not show that a row is a model call.
        names += [
            name for name in self._table.names if last_name(name) in MODEL_NAMES and not all(self._table.column(name))
        ]
        self._paying = usual if self._pay(usual) else names

    def _pay(self, names: Sequence[str]) -> bool:
        """Return whether nearly all answers have a cost in at least one of these columns."""
        answers = [row for row, own in zip(self._shape.rows, self._answering, strict=True) if own]
        return sum(_pays(row, names) for row in answers) >= _NEARLY_ALL * len(answers)

    def _sides(self) -> dict[str, set[str]]:
        """Return for each kind where its rows occur: "before", "after" or "between" the answers of their question.

        In questions with a single answer, rows before or after the answer are ignored.
        """
        rows, sides = self._shape.rows, dict[str, set[str]]()
        _, order = order_by_time(rows, [(str(own),) for own in self._questions], asks=False)
        rank = {place: n for n, place in enumerate(order)}
        counters = [name for name in self._table.names if is_round_name(last_name(name))]
        numbers = [[whole_number(str(value)) for value in self._table.column(name)] for name in counters]
        for own in places_of(self._questions).values():
            answers = sorted((place for place in own if self._answering[place]), key=rank.__getitem__)
            for place in own if answers else ():
                first, last = answers[0], answers[-1]
                if not self._answering[place]:
                    earlier = rank[place] < rank[first] and not any(_rises(n[first], n[place]) for n in numbers)
                    later = rank[place] > rank[last] and not any(_rises(n[place], n[last]) for n in numbers)
                    side = "before" if earlier else "after" if later else "between"
                    if side == "between" or len(answers) > 1:
                        sides.setdefault(self._kinds[place], set()).add(side)
        return sides

    def costs(self, kind: str) -> bool:
        """Return whether some row of a kind has the cost of a model call; rows with totals of their question do not count."""
        own = [place for place, other in enumerate(self._kinds) if other == kind]
        return any(_pays(self._shape.rows[place], self._paying) for place in own if place not in self._sums)

    def is_no_call(self, kind: str) -> bool:
        """Return whether rows of a kind are not model calls.

        They have no cost, and either nearly all answers have one, or the kind's name implies that no model was called.
        """
        if self.costs(kind):
            return False
        word = last_name(kind)
        is_said = bool(_LIFE.search(word) or _PEOPLE.search(word)) or is_person(kind) or not _WORK.search(word)
        return is_said or (bool(self._paying) and self._pay(self._paying))


def _pays(row: Record, names: Sequence[str]) -> bool:
    return any(row.values.get(name) not in (None, "", 0, "0", False) for name in names)


def may_be_outside(kind: str) -> bool:
    """Return whether a kind may be outside a loop.

    It must be a word without digits, since steps have numbers, and must not name a failed or missing answer.
    """
    is_word = bool(re.fullmatch(r"[^\d]*[^\W\d_][^\d]*", kind))
    return is_word and not FAILED.search(kind.lower()) and not _MISSING.search(kind.lower())


def _warming(row: Record) -> str:
    """Return the column of kinds or ids that marks a row as a warm-up; "" if there is none."""
    names = [name for name, value in row.values.items() if isinstance(value, str) and _WARM.search(value)]
    return next((name for name in names if last_name(name) in KINDS or is_id_name(name)), "")


def _kind_columns(shape: Shape) -> list[str]:
    """Return the columns that may name a row's kind.

    A column of states is returned if rows without a round number have states that no numbered row has.
    """
    counters = [name for name in column_names(shape.rows) if is_round_name(last_name(name))]
    states = [name for name in column_names(shape.rows) if last_name(name) in _STATES]
    numbered = {
        (name, _text(row.values.get(name)))
        for row in shape.rows
        for name in states
        if any(row.values.get(own) is not None for own in counters)
    }
    bare = {(name, _text(row.values.get(name))) for row in shape.rows for name in states} - numbered
    names = [
        name
        for name in column_names(shape.rows)
        if last_name(name) in KINDS or (counters and name in {own for own, _ in bare})
    ]
    names = [name for name in names if name not in shape.outer]
    return [name for name in names if all(isinstance(row.values.get(name), str | None) for row in shape.rows)]


def _answering(shape: Shape, kept: Sequence[bool], is_kind: bool, said: Mapping[str, str]) -> list[bool]:
    """Return for each row whether it is an answer.

    If the filter selects a kind, all kept rows are answers; otherwise only the kept rows with a known answer are.
    """
    table = TableColumns(shape.rows)
    names = table.by_name(ANSWERS) or table.by_name((*WEAK_REPLIES, *LABELS))[:1]
    names = [said["answer"]] if "answer" in said else names
    if is_kind:
        return [*kept]
    pairs = zip(kept, shape.rows, strict=True)
    return [own and any(row.values.get(name) not in (None, "", []) for name in names) for own, row in pairs]


def _questions(shape: Shape, said: Mapping[str, str]) -> Sequence[Hashable]:
    """Return a key of the question and run of each row; empty if no column identifies questions."""
    table = TableColumns(shape.rows)
    ids: Sequence[Hashable] = questions_of(table, shape, said)
    if len({*ids}) == 1:
        names = [name for name in table.names if is_id_name(name) and table.repeats(name)]
        names = [name for name in names if not is_round_name(last_name(name)) and None not in table.column(name)]
        if not names or not all(table.constant_in(names[0], table.column(name)) for name in names):
            return ()
        ids = [*map(str, table.column(names[0]))]
    loops = [name for name in table.names if names_loops(name) and None not in table.column(name)]
    runs = zip(*(map(str, table.column(name)) for name in loops), strict=True) if loops else [()] * len(ids)
    return [*zip(ids, runs, strict=True)]


def _rises(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and before < after


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _named(words: str, name: str, kinds: Sequence[str]) -> set[str]:
    """Return the kinds that the user leaves out."""
    gone = {words} if words in kinds else {word.strip() for word in words.split(",")}
    for word in sorted(gone - {*kinds, ""}):
        raise NotFoundError(f"no row has the {name} {word!r:.80}; there are: {cut_list(sorted({*kinds} - {''}))}")
    return gone - {""}


def _doubt(name: str, kinds: Sequence[str], n: int) -> UnsettledError:
    words = ",".join(kinds)
    return UnsettledError(
        f"{counted(n, 'row')} whose {name!r} is {cut_list([*map(repr, kinds)])} come after the last answer of each question, and have costs: are they "
        "calls of the loop?",
        "options",
        {
            **of_rows(
                f"{name}{NOT}", words, "no: they come whichever round is the last, and are left out with their costs"
            ),
            **of_rows(
                f"{name}{NOT}", "", "yes: each stop before the last round saves them, and they are charged to it"
            ),
        },
    )


def _note(name: str, kinds: Sequence[str], n: int, said: bool) -> str:
    why = "" if said else ": they come before the first or after the last answer of each question, and carry no call"
    return (
        f"{counted(n, 'row')} whose {name!r} is {cut_list([*map(repr, kinds)])} are around the loop, and left out{why}"
    )
