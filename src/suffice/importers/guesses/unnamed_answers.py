"""Find columns with unusual names that may contain the answers, because no answer is read or because they have words of the replies."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from suffice.errors import UnsettledError
from suffice.importers.answers.answer_or_gold import (
    ACTIONS,
    CHANGING,
    FEW,
    THOUGHTS,
    is_model_text,
    is_of_passages,
    varies,
)
from suffice.importers.answers.parsed_columns import are_in_replies, may_be_parsed_name
from suffice.importers.answers.parsed_pairs import right_beside
from suffice.importers.checks.judging import may_judge
from suffice.importers.columns.table_columns import TableColumns, several_rows
from suffice.importers.words.choices import Choices, column_options, of_answers, of_columns
from suffice.importers.words.names import (
    ANSWERS,
    ARGUMENTS,
    GOLDS,
    OUTCOME_NAMES,
    OWN_SIGNALS,
    REPLIES,
    WEAK_REPLIES,
    last_name,
    plain_name,
)
from suffice.importers.words.object_fields import fields_in, paths_of
from suffice.importers.words.score_names import is_measure_of
from suffice.policy.metrics import normalize_answer
from suffice.recordings.schema import is_measure_name

_ENOUGH = 5
"""With at least this many questions of several rows, numbers and lists may be answers where nothing counts rounds."""

_OFTEN, _ENOUGH_ROWS = 0.3, 20
"""The least share of rows in which the answer is the gold answer, and the fewest rows that show it."""

_BY_CHANCE = 1.5
"""By what that share is above the one by chance."""

_HARDLY_EVER = 0.05
"""The most replies that equal a gold answer if answers are words of them."""

_CITED = re.compile(r"article|citation|cited|section")
"""Names of what a reply names as its source."""

_LISTED, _ROWS = 4, 2000
"""The most columns that are offered, and the most rows that are compared."""

_LONG, _SHORT, _LONGER = 25, 40, 3
"""The least characters of replies on average, the most of an answer in them, and by how many times replies are longer."""


def refuse_unread_answer(
    table: TableColumns,
    ids: Sequence[Any],
    columns: Mapping[str, str],
    unread: Collection[str],
    *,
    is_scored: bool,
    is_of_tasks: bool,
) -> None:
    """Raise to ask for the column of answers, if none is read and some texts differ between the rows of a question.

    If gold answers are known, they show which of several columns has the answers.  An agent's actions are offered only if rows have
    scores.  Numbers are offered if they often equal the gold answer, or if the column's name suggests an answer.  In rows without
    scores, other numbers and lists are offered as well, unless the outcome of each task is known, as for agents
    with tools.
    """
    if not any(ids) and any(map(table.lists_objects, table.names)):
        return  # rows are questions, and a list may have their rounds
    several, golds = len(several_rows(ids)), columns.get("golds", "")
    unread = [name for name in unread if table.filled(name) and not is_of_passages(name)] if several else []
    names = [name for name in unread if table.is_text(name)]
    names = [name for name in names if last_name(name) not in (THOUGHTS if is_scored else (*THOUGHTS, *ACTIONS))]
    names = [name for name in names if is_scored or ARGUMENTS.isdisjoint(plain_name(name).split("."))]
    names = [name for name in names if varies(table, name, ids, several)]
    is_scored = is_scored or is_of_tasks
    may = unread if "round" in columns or several >= _ENOUGH else []
    right = {} if golds or is_scored else right_beside(table, ids, may, _OFTEN)
    others = [name for name in may if name not in names and _may_hold_answers(table, name, ids, several, right)]
    names = [*(name for name in others if name in right or _is_called_or_agrees(table, name, golds)), *names][:_LISTED]
    names = names or ([] if is_scored else others[:_LISTED])
    if not names and not is_scored:
        names = [name for name in unread if last_name(name) in (*REPLIES, *WEAK_REPLIES, "sampled")]
    objects = [] if is_scored else _objects(table, names, unread, ids)
    if names or objects:
        paths = [path for name in objects for path in paths_of(name, fields_in(table.names)[name])]
        choices: Choices = {} if any(ids) or "round" in columns else rounds_in_objects(paths)
        for name in [] if choices else objects:
            choices |= of_columns({"answer": name}, f"all fields of {name!r} are what the model said, together")
        for name in names:
            is_said = f"{name!r} is what the model said"
            if gold := right.get(name):
                choices |= of_columns({"answer": name, "golds": gold}, f"{is_said}, and {gold!r} what is right")
            choices |= of_columns({"answer": name}, is_said)
        listed = names or objects
        said = _told_by_golds(table, names, golds)
        raise UnsettledError(
            f"no column is called like an answer{'' if is_scored else ' or a score'}, and {', '.join(map(repr, listed))} "
            f"{'differs' if len(listed) == 1 else 'differ'} between {'the rows of a question' if any(ids) else 'rows'}",
            "columns",
            choices | of_columns({"answer": ""}, "there is none"),
            column_options({"answer": said}) if said else "",
        )


def _objects(table: TableColumns, names: Collection[str], unread: Collection[str], ids: Sequence[Any]) -> list[str]:
    """Return objects that may be whole answers: some of their fields vary within questions.

    In addition, one of these must be true: another object has the same fields, several fields are varying texts, or the object is
    named like an answer.
    """
    fields = fields_in(table.names)
    found = []
    for above, own in fields.items():
        paths = paths_of(above, own)
        varying = [name for name in paths if name in unread and table.changing_in(name, ids)]
        others = [*fields.values()].count(own) > 1 or len(paths.intersection(names)) > 1 or last_name(above) in ANSWERS
        if varying and others and above not in table.names:
            found.append(above)
    return found[:_LISTED]


def rounds_in_objects(names: Collection[str], *, like_golds: bool = False) -> Choices:
    """Return the options that read objects with equal fields as the answers of successive rounds; gold answers are left out.

    Args:
        names: The columns; fields of objects have dotted names.
        like_golds: Whether there must also be a gold answer with the same fields.
    """
    alike = defaultdict[frozenset[str], list[str]](list)
    for name, fields in fields_in(names).items():
        alike[fields].append(name)
    choices: Choices = {}
    for objects in alike.values():
        said = [name for name in objects if last_name(name) not in GOLDS]
        for own, meaning in of_answers(said, {}, "rounds").values() if said != objects or not like_golds else ():
            choices |= of_columns(own["columns"], meaning)
    return choices


def refuse_words_of_replies(
    table: TableColumns, ids: Sequence[Any], columns: Mapping[str, str], unread: Collection[str]
) -> None:
    """Raise if whole replies would be read as answers, but another column has words of them and varies between rounds.

    The column is confirmed as the answer if it often equals gold answers while replies hardly ever do.

    Args:
        table: The rows.
        ids: The question of each row.
        columns: The table's columns by this library's names; the column of answers is a guess.
        unread: Columns of rounds without a known meaning.
    """
    reply, golds = columns.get("answer", ""), columns.get("golds", "")
    several, replies = len(several_rows(ids)), table.column(reply)[:_ROWS]
    longest = _length(replies) / _LONGER
    if several < _ENOUGH or _length(replies) < _LONG or _agrees(table, reply, golds) > _HARDLY_EVER:
        return
    names = [name for name in unread if _may_hold_answers(table, name, ids, several) and table.is_text(name)]
    names = [name for name in names if not (is_of_passages(name) or _CITED.search(name))]
    names = [name for name in names if _length(table.column(name)[:_ROWS]) <= min(_SHORT, longest)]
    names = [name for name in names if are_in_replies(table.column(name)[:_ROWS], replies)]
    said = _told_by_golds(table, names, golds)
    if said or len(names) == 1:
        name = said or names[0]
        columns = {"answer": name, "text": reply}
        raise UnsettledError(
            f"{reply!r} has whole replies, and {name!r}, which varies between the rounds of a question, words of them",
            "columns",
            of_columns(columns, f"{name!r} is the answer, and {reply!r} the reply that it is in")
            | of_columns({"answer": reply}, f"the whole {reply!r} is the answer, and {name!r} something else"),
            column_options(columns) if said else "",
        )


def _told_by_golds(table: TableColumns, names: Sequence[str], golds: str) -> str:
    """Return the only column that often equals the gold answer, if all others hardly ever do; else ""."""
    said = [name for name in names if _agrees(table, name, golds) >= _OFTEN]
    is_told = len(said) == 1 and all(_agrees(table, name, golds) <= FEW for name in names if name not in said)
    return said[0] if is_told else ""


def _agrees(table: TableColumns, name: str, golds: str) -> float:
    """Return the share of a column's values that equal a gold answer.

    Return 0 if few rows have both a value and a gold answer, or if as many would be equal by chance.
    """
    columns = (table.column(own)[:_ROWS] for own in (name, golds))
    pairs = [pair for pair in zip(*columns, strict=True) if None not in pair]
    if not golds or len(pairs) < _ENOUGH_ROWS:
        return 0.0
    said, right = [_key(own) for own, _ in pairs], [_right(gold) for _, gold in pairs]
    share = sum(own in gold for own, gold in zip(said, right, strict=True)) / len(pairs)
    often = Counter(text for gold in right for text in gold)
    by_chance = sum(n * often[own] for own, n in Counter(said).items()) / len(pairs) ** 2
    return share if share >= _BY_CHANCE * by_chance else 0.0


def _right(gold: Any) -> set[str]:
    return {_key(own) for own in [gold, *(gold if isinstance(gold, list) else ())]} - {""}


def _key(value: Any) -> str:
    return normalize_answer(str(value).removesuffix(".0"))


def _may_hold_answers(
    table: TableColumns, name: str, ids: Sequence[Any], several: int, right: Collection[str] = ()
) -> bool:
    """Return whether a column may have answers, by its name and values.

    The values are texts, numbers or lists that vary within at least a tenth of the questions.

    A column in `right` equals a constant column in many rows.  It may also be a price or a count, and need vary only in
    one question.
    """
    is_other = last_name(name) in (*THOUGHTS, *ACTIONS, *OUTCOME_NAMES, *OWN_SIGNALS)
    is_other = is_other or (name not in right and (is_measure_of(name) or is_measure_name(name)))
    if (
        is_other
        or not is_model_text(name)
        or (may_judge(name) and table.is_text(name) and not may_be_parsed_name(name))
    ):
        return False
    values = [value for value in table.column(name) if value is not None]
    parts = [part for value in values for part in (value if isinstance(value, list) else [value])]
    is_said = bool(parts) and all(isinstance(part, str | int | float) for part in parts)
    return is_said and table.changing_in(name, ids) >= (1 if name in right else CHANGING * several)


def _is_called_or_agrees(table: TableColumns, name: str, golds: str) -> bool:
    """Return whether a column's name suggests parsed answers, or its values often equal the gold answer.

    For flags, such as true and false, the name is not enough: their values must often equal the gold answer.
    """
    is_flag = {str(value).lower() for value in table.column(name)} <= {"true", "false", "0", "1", "none", ""}
    return (may_be_parsed_name(name) and not is_flag) or _agrees(table, name, golds) >= _OFTEN


def _length(values: Sequence[Any]) -> float:
    known = [len(str(value)) for value in values if value is not None]
    return sum(known) / max(len(known), 1)
