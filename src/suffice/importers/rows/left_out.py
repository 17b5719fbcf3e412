"""Cost of the rows that a filter leaves out.

If they are calls of the same loop, such as failed ones, the kept rows are charged for them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from suffice.common.tables import counted
from suffice.importers.answers.answer_or_gold import session_of
from suffice.importers.columns.cost_names import (
    CACHE_READ,
    CACHE_WRITTEN,
    CACHED_COLUMNS,
    CALLS,
    INPUT_COLUMNS,
    OUTPUT_COLUMNS,
    SECONDS,
)
from suffice.importers.columns.grid import is_cost, number_or_nan
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names, places_of, with_column
from suffice.importers.questions.counted_ids import means_no_question
from suffice.importers.rows.others_scores import have_usual_answers, with_scores
from suffice.importers.rows.stop_words import ends_beside
from suffice.importers.shapes.dialogues import REPLY_TYPE
from suffice.importers.shapes.shape import ANY, Shape
from suffice.importers.words.id_names import is_id_name
from suffice.importers.words.names import (
    GOLDS,
    IDS,
    MONEY,
    PEOPLE,
    QUESTIONS,
    RUNS,
    SPEAKERS,
    TOTAL_TOKENS,
    is_argument,
    is_person,
    is_round_name,
    last_name,
    words,
)
from suffice.recordings.runs import LOOP_NAMES

CALL_KINDS = (*SPEAKERS, "purpose", "operation", "phase", "call_type", "task_type", "action")
"""Names of columns that say what a call was for."""

_OF_ONE_LOOP = frozenset(
    {*CALL_KINDS, REPLY_TYPE, "node_type", "terminal", "is_terminal", "is_leaf", "leaf", "is_final", "state", "level"}
    | {"status", "status_code", "ok", "success", "succeeded", "error", "error_type", "failed", "finish_reason"}
    | {"retry", "is_retry", "retried", "was_retried", "http_status"}
)
"""Names of columns that tell the calls of one loop apart."""

_STEPS = frozenset({"step", "stage", "task_name", "step_name"})
_OTHER_LOOPS = LOOP_NAMES | {*RUNS, "file", "run_file", "split", "dataset", "data_set", "set", "subset"}
_TOKENS = frozenset((*INPUT_COLUMNS, *OUTPUT_COLUMNS, *TOTAL_TOKENS))
COSTS = _TOKENS | {*CACHED_COLUMNS, CACHE_READ, CACHE_WRITTEN, *SECONDS, *CALLS, *MONEY}
_NO_CALLS = frozenset(
    {*words("tool function retriever retrieval retrieve search embedding rerank reranker")}
    | {"eval", "task", "score", "chain", "workflow", "chunk", "delta", "token", "partial", "heartbeat", "progress"}
)
"""What is no model's call, if it has no tokens: tools, people, and spans around calls."""

FAILED = re.compile(r"(?<![a-z])err(?:or|ed)?(?![a-z])|fail|exception|timed?_?out|cancel|abort|retr(?:y|ies|ied)|crash")
"""In the names of calls that failed."""

_MODEL = re.compile(r"llm|model|gpt|chat|generat|completion")
"""In the names of calls of a model."""

_CALLS, _SEVERAL, _NEARLY_ALL, _HALF, _MOST_KINDS = "calls", 3, 0.9, 0.5, 24


def names_loops(name: str) -> bool:
    """Return whether a column's name is one that distinguishes loops; calls of one loop do not add to the cost of another."""
    return last_name(name) in _OTHER_LOOPS


def questions_of(table: TableColumns, shape: Shape, said: Mapping[str, str]) -> Sequence[Hashable]:
    """Return a key of the question of each row.

    If rounds are in lists, the key is the record; else it is the value of a column of ids, texts or sessions.
    """
    if shape.how:
        return [(row.file, row.number) for row in shape.rows]
    return named_questions(table, said)


def named_questions(table: TableColumns, said: Mapping[str, str]) -> Sequence[str]:
    """Return a key of the question of each row, from the column that the user names or one with a usual name.

    Without such a column, all keys are "".
    """
    own = said.get("question_id", "")
    names = [own] if own in table.names else [name for name in table.by_name((*IDS, *QUESTIONS)) if table.repeats(name)]
    names = names or [
        name for name in table.names if is_id_name(name) and not means_no_question(name) and table.repeats(name)
    ]
    name = names[0] if names else session_of(table, "")
    return [*map(str, table.column(name))] if name else [""] * len(table.rows)


def charged(
    shape: Shape,
    kept: Sequence[bool],
    where: Mapping[str, str],
    said: Mapping[str, str],
    outside: Collection[str] = (),
) -> tuple[list[Record], list[str], str]:
    """Return the rows that a filter keeps, with the cost and scores of the rows that it leaves out.

    The cost of a left-out row is added to the next kept row of its question, or at the end to the previous one.  For scores, see
    `with_scores`.  Rows in `outside`, given by their `Record.where`, are left out together with their cost.

    Returns:
        The kept rows, notes on the left-out rows, and a question about the cost of the left-out rows; "" if there is none.
    """
    kept = [is_kept and row.where not in outside for row, is_kept in zip(shape.rows, kept, strict=True)]
    rows = [row for row, is_kept in zip(shape.rows, kept, strict=True) if is_kept]
    if len(rows) == len(kept):
        return rows, [], ""
    table = TableColumns(shape.rows)
    questions = questions_of(table, shape, said)
    named = {name: value for name, value in where.items() if not (value == ANY and name == said.get("answer"))}
    option = (
        " ".join(f"--where {name}={value}" for name, value in named.items()) or "reading the rows of the loop alone"
    )
    notes: list[str] = []
    are_of_one_loop = all(_is_of_one_loop(name, value) for name, value in where.items())
    shape = replace(shape, rows=_with_facts(shape.rows, kept, questions, said))
    if "answer" in said or have_usual_answers(rows):  # otherwise, the column of answers is asked first
        scored, _, notes = with_scores(shape.rows, kept, questions, option, is_one_loop=are_of_one_loop)
        shape = replace(shape, rows=scored)
    rows = [row for row, is_kept in zip(shape.rows, kept, strict=True) if is_kept]
    totals = totals_of(shape.rows, questions, kept)
    owners = _owners(questions, kept)
    free = totals | {place for place, row in enumerate(shape.rows) if row.where in outside}
    owners = {place: [own for own in others if own not in free] for place, others in owners.items()}
    calls = model_calls(shape.rows, kept, where)
    n = sum(calls[place] for places in owners.values() for place in places)
    if not any(owners.values()):
        return rows, notes, ""
    if n and not are_of_one_loop:
        return (
            rows,
            notes,
            (
                f"{option:.80} leaves out {counted(n, 'row')} of questions that are read, and what they cost: if they are calls of the same loop, "
                "its costs are too low. Rename the column to 'purpose' in the log, and the cost of these rows is added"
            ),
        )
    result = _with_costs(shape.rows, owners, _cost_columns(table, said, questions), calls)
    note = f"{option:.80} leaves out {counted(n, 'call')}, whose cost counts to the next row of the question, or to the one before at its end"
    return [result[place] for place, is_kept in enumerate(kept) if is_kept], [*notes, *([note] if n else [])], ""


def model_calls(rows: Sequence[Record], kept: Sequence[bool], where: Mapping[str, str]) -> list[bool]:
    """Return whether each row is a model call, by its tokens, its kind, and the filter."""
    silent = _silent_kinds(rows, kept)
    return [
        _is_call(row, where) and (silent.isdisjoint(own) or any(_MODEL.search(kind) for _, kind in own))
        for row, own in zip(rows, map(_kinds_of, rows), strict=True)
    ]


def _is_of_one_loop(name: str, value: str) -> bool:
    """Return whether a filter selects some calls of one loop, by purpose or step, and not one of several loops."""
    is_step = last_name(name) in _STEPS and not any(map(str.isdigit, value))
    return is_step or last_name(name) in _OF_ONE_LOOP or value == ANY


def _is_call(row: Record, where: Mapping[str, str]) -> bool:
    """Return whether a row that a filter leaves out may be a model call.

    A row with tokens is a call.  A row without tokens may be a call, unless it belongs to a tool or a person, or the filter drops rows
    without a round number.
    """
    if _has_tokens(row):
        return True
    if any(value == ANY and is_round_name(last_name(name)) for name, value in where.items()):
        return False  # a sum or a note, without a round number
    kinds = {str(value).lower() for name, value in row.values.items() if last_name(name) in CALL_KINDS}
    return kinds.isdisjoint(_NO_CALLS) and not any(map(is_person, kinds)) and PEOPLE.isdisjoint(map(last_name, where))


def _silent_kinds(rows: Sequence[Record], kept: Sequence[bool]) -> set[tuple[str, str]]:
    """Return the kinds of rows that are no model calls, as (column, word).

    Rows of these kinds never have tokens, although nearly all kept rows do.  Kinds of failed calls are not returned, since a failed
    call may have no tokens.
    """
    has = [*map(_has_tokens, rows)]
    own = [paid for paid, is_kept in zip(has, kept, strict=True) if is_kept]
    if sum(own) < _NEARLY_ALL * len(own):
        return set()
    costs = Counter({kind: 0 for row in rows for kind in _kinds_of(row)})
    for row, paid in zip(rows, has, strict=True):
        costs.update({kind: int(paid) for kind in _kinds_of(row)})
    words_of = Counter(name for name, _ in costs)
    return {
        (name, kind)
        for (name, kind), n in costs.items()
        if not n and words_of[name] <= _MOST_KINDS and not FAILED.search(kind)
    }


def _kinds_of(row: Record) -> set[tuple[str, str]]:
    names = [name for name in row.values if last_name(name) in CALL_KINDS or last_name(name) in _STEPS]
    return {(name, value.lower()) for name in names if isinstance(value := row.values[name], str)}


def _has_tokens(row: Record) -> bool:
    return any(last_name(name) in _TOKENS and value for name, value in row.values.items())


def totals_of(rows: Sequence[Record], questions: Sequence[Hashable], kept: Sequence[bool]) -> set[int]:
    """Return the places of left-out rows that contain the totals of their question, such as a span around all of its calls.

    The tokens and money of such a row are the sums over the question's other rows.  A token column that only such rows have may
    be the sum over all kinds of tokens.
    """
    names = [name for name in column_names(rows) if last_name(name) in _TOKENS or last_name(name) in MONEY]
    numbers = {name: [number_or_nan(row.values.get(name), name) for row in rows] for name in names}
    tokens = [name for name in names if last_name(name) in _TOKENS]
    result, asked = set[int](), 0
    for own in places_of(questions).values():
        left = [place for place in own if not kept[place] and any(numbers[name][place] > 0 for name in names)]
        asked += bool(left) and len(own) > _SEVERAL - 1
        for place in left if len(own) >= _SEVERAL else ():
            others = {name: [numbers[name][i] for i in own if i != place] for name in names}
            sums = {name: sum(values) for name, values in others.items()}
            for name in tokens:
                if all(map(math.isnan, others[name])):
                    sums[name] = sum(n for other in tokens for n in others[other] if not math.isnan(n))
            known = [name for name in names if not math.isnan(numbers[name][place])]
            result |= {place} if all(math.isclose(numbers[name][place], sums[name]) for name in known) else set()
    return result if len(result) >= _NEARLY_ALL * asked else set()


def _with_facts(
    rows: Sequence[Record], kept: Sequence[bool], questions: Sequence[Hashable], said: Mapping[str, str]
) -> list[Record]:
    """Copy the question, gold answer and end reason to all rows of a question, if only left-out rows have them.

    The columns of these facts are named by the user, or have usual names.
    """
    result = [*rows]
    own_rows = [row for row, is_kept in zip(rows, kept, strict=True) if is_kept]
    there = {name for row in own_rows for name, value in row.values.items() if value is not None}
    table = TableColumns(rows)
    golds = [name for name in table.names if last_name(name) in GOLDS and not is_argument(name)][:1]
    asked = [] if "question" in said else table.by_name(QUESTIONS)[:1]
    for name in {
        said.get("question", ""),
        said.get("golds", ""),
        *asked,
        *(golds if "golds" not in said else []),
    } - there - {""} | {*ends_beside(rows, kept, questions, said.get("end", ""))}:
        known = {
            own: row.values[name] for own, row in zip(questions, rows, strict=True) if row.values.get(name) is not None
        }
        result = with_column(result, name, map(known.get, questions))
    return result


def _owners(questions: Sequence[Hashable], kept: Sequence[bool]) -> dict[int, list[int]]:
    """Return, for the place of each kept row, the places of the rows that are charged to it."""
    waiting: dict[Hashable, list[int]] = {}
    last: dict[Hashable, int] = {}
    owners: dict[int, list[int]] = {}
    for place, (question, is_kept) in enumerate(zip(questions, kept, strict=True)):
        if is_kept:
            last[question] = place
            owners[place] = waiting.pop(question, [])
        else:
            waiting.setdefault(question, []).append(place)
    for question, places in waiting.items():
        if question in last:
            owners[last[question]] += places
    return owners


def _cost_columns(table: TableColumns, said: Mapping[str, str], questions: Sequence[Hashable]) -> list[str]:
    """Return the columns with the cost of single calls.

    If one column of tokens is a running total, all columns of tokens are excluded.
    """
    mapped = {theirs for ours, theirs in said.items() if is_cost(ours)}
    names = [name for name in table.names if name in mapped or last_name(name) in COSTS]
    written = [name for name in names if last_name(name) in (*OUTPUT_COLUMNS, *TOTAL_TOKENS)]
    are_totals = any(_always_rises(table.column(name), questions) for name in written)
    return [name for name in names if not (are_totals and "token" in last_name(name))]


def _always_rises(values: Sequence[object], questions: Sequence[Hashable]) -> bool:
    """Return whether numbers rise from row to row within each question of at least three rows."""
    numbers = [*map(number_or_nan, values)]
    long = [own for own in places_of(questions).values() if len(own) >= _SEVERAL]
    return bool(long) and all(numbers[one] < numbers[other] for own in long for one, other in pairwise(own))


def _with_costs(
    rows: Sequence[Record], owners: Mapping[int, Sequence[int]], names: Sequence[str], calls: Sequence[bool]
) -> list[Record]:
    """Add the cost of left-out rows to the rows that own them; also add the number of calls if no column counts calls."""
    result = [*rows]
    counts = any(last_name(name) in CALLS for name in column_names(rows))
    for place, others in owners.items():
        values = dict(rows[place].values)
        for name in names if others else ():
            more = [own for other in others if not math.isnan(own := number_or_nan(rows[other].values.get(name), name))]
            own = number_or_nan(values.get(name), name)
            values[name] = own + sum(more) if more and not math.isnan(own) else values.get(name)
        result[place] = replace(
            rows[place], values=values if counts else {**values, _CALLS: 1 + sum(calls[other] for other in others)}
        )
    return result
