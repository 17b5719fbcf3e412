"""Columns of rounds, such as ``answer_1`` and ``answer_2``: group them, and make a row for each question and round."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os.path import commonprefix
from typing import Any

from suffice.errors import UnsettledError
from suffice.importers.answers.answer_or_gold import ACTIONS, THOUGHTS, is_model_text, is_of_passages
from suffice.importers.answers.parsed_columns import may_be_parsed_name
from suffice.importers.columns.closed_book import (
    alone_note,
    begins_alone,
    closed_book_families,
    has_run,
    pair_of,
    texts_differ,
)
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names
from suffice.importers.shapes.shape import Pair, Shape, flat_record, outer_names, round_rows, without_rounds
from suffice.importers.words.choices import Choices, of_columns
from suffice.importers.words.names import (
    ANSWERS,
    GOLDS,
    NO_ANSWERS,
    ORDER_WORDS,
    OUTCOME_NAMES,
    WEAK_REPLIES,
    last_name,
    numbered,
    plain_name,
    words_in,
)
from suffice.importers.words.sample_names import said_by_columns

_END = re.compile(r"[_\-. @=(#]*(?:[rtkvRTKV]|version|ver)?[_\-. @=(#]*\d+\)?")


def numbered_families(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Group columns whose names differ only in a number: return the columns by the rest of their name, and by number.

    The numbers of a group begin at 0 or 1 and have no gap.

    >>> numbered_families(["id", "answer_1", "answer_2", "round_1_score", "round_2_score", "p_50", "p_90"])
    {'answer': {1: 'answer_1', 2: 'answer_2'}, 'score': {1: 'round_1_score', 2: 'round_2_score'}}
    >>> [*numbered_families(["rouge1_v1", "rouge1_v2", "rougeL_v1", "rougeL_v2"])]
    ['rouge1', 'rougeL']
    """
    families: dict[str, dict[int, str]] = {}
    for name in names:
        place = numbered(name)
        if place is not None and place[0] not in GOLDS:
            families.setdefault(place[0], {}).setdefault(place[1], name)
    ordered = {_spelled(stem, family): dict(sorted(family.items())) for stem, family in families.items()}
    return {
        stem: family
        for stem, family in ordered.items()
        if len(family) > 1 and min(family) in (0, 1) and max(family) - min(family) == len(family) - 1
    }


def _spelled(stem: str, family: Mapping[int, str]) -> str:
    """Return the common part of the names in a group.

    A single word is spelled as in the log, such as rougeL; anything else is in lower case.
    """
    own = {_END.sub("", name) for name in family.values()}
    name = next(iter(own))
    return name if len(own) == 1 and name.isidentifier() and plain_name(name) == stem != name.lower() else stem


def families_beside(answers: Sequence[str], names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Group columns by round, if their names differ in the same way as the names of the columns of answers.

    >>> families_beside(["sql_0", "sql_1"], ["db", "sql_0", "sql_1", "acc_0", "acc_1"])
    {'answer': {1: 'sql_0', 2: 'sql_1'}, 'acc': {1: 'acc_0', 2: 'acc_1'}}
    >>> families_beside(["draft", "final"], ["draft", "final", "draft_ok", "final_ok"])
    {'answer': {1: 'draft', 2: 'final'}, 'ok': {1: 'draft_ok', 2: 'final_ok'}}
    >>> families_beside(["draft", "draft_2"], ["draft", "draft_2", "score", "score_2"])["score"]
    {1: 'score', 2: 'score_2'}

    Args:
        answers: The columns of answers, in the order of the rounds.
        names: All columns.
    """
    others = [name for name in dict.fromkeys(names) if name not in answers]
    result = {"answer": dict(enumerate(answers, start=1))}
    places = [numbered(name) for name in answers]
    numbers = [place[1] for place in places if place is not None]
    if len(numbers) == len(answers):
        for stem, family in numbered_families(others).items():
            if {*numbers} <= {*family}:
                result.setdefault(stem or "round_value", {r: family[n] for r, n in enumerate(numbers, start=1)})
    head = commonprefix(answers)  # noqa: RUF071 - not of paths
    rests = [name[len(head) :] for name in answers]
    n_tail = len(commonprefix([rest[::-1] for rest in rests]))  # noqa: RUF071 - the same
    marks = [rest[: len(rest) - n_tail] for rest in rests]
    for name in others:
        before, mark, after = name.partition(marks[0]) if marks[0] else (name, name, "")
        alike = [f"{before}{own}{after}" for own in marks]
        if mark and {*alike} <= {*others} and not any(name in known.values() for known in result.values()):
            result.setdefault(f"{before}{after}".strip("_-. "), dict(enumerate(alike, start=1)))
    return result


OPTION_STEMS = frozenset({"option", "choice", "alternative", "ending", "distractor", "note", "comment", "tag"})
"""Names of numbered texts that are no rounds: options of a multiple choice, and notes."""

_PREDICTED = re.compile(
    r"--column '?rounds=(?:pred|predicted|prediction|predictions|answer|response)[_. ]", re.IGNORECASE
)
"""The option that reads columns called after what a model predicts."""

_SOME, _MOST = 0.1, 0.5
_MARKS = frozenset({"0", "1", "0.0", "1.0", "true", "false"})
_DECIMAL = re.compile(r"-?\d*\.\d+")
_OFFERED, _LONGEST_OPTION = 4, 120
"""The most families of texts that are asked about, and the most letters of an option that a message makes up."""


def widened(records: list[Record], *, samples: bool = False) -> Shape | None:
    """Return a row for each number in the names of columns such as ``answer_1`` and ``answer_2``; None for other tables.

    Args:
        records: The file's records.
        samples: Whether the columns are independent samples.

    Raises:
        UnsettledError: Columns with unusual names may have the answers.
    """
    names = column_names(records)
    families = numbered_families(names)
    leads = [stem for stem in families if not stem or plain_name(stem.rpartition(".")[2]) in (*ANSWERS, *OUTCOME_NAMES)]
    if not leads and not any(last_name(name) in ANSWERS for name in names):
        leads = [stem for stem, family in families.items() if said_by_columns(next(iter(family.values()))) == "samples"]
    if not leads:
        pair = pair_of(names)
        if pair and texts_differ(records, pair):
            return rows_of_answers(records, pair, samples=samples)
        _ask_for_texts(records, families)
        return None
    lead = max(leads, key=lambda stem: (len(families[stem]), stem == "" or plain_name(stem) in ANSWERS))
    ordered = all(any(word in plain_name(name) for word in ORDER_WORDS) for name in families[lead].values())
    return rows_of_families(records, families, lead, is_ordered=ordered, samples=samples)


def rows_of_answers(records: list[Record], answers: Sequence[str], *, samples: bool = False) -> Shape:
    """Return a row for each column of answers, in the given order, together with the other columns of the same round.

    If the name of the first column means an answer without retrieval, this answer is round 0.

    Args:
        records: The file's records.
        answers: The columns of answers.
        samples: Whether the answers are independent samples.
    """
    records = _as_texts(records, answers)
    names = column_names(map(flat_record, records))
    families = families_beside(answers, names)
    if begins_alone(answers):
        families = closed_book_families(answers, families, names)
    shape = rows_of_families(records, families, "answer", is_ordered=True, samples=samples)
    return replace(shape, read=lambda others: shape.read(_as_texts(others, answers)))


def _as_texts(records: Iterable[Record], answers: Sequence[str]) -> list[Record]:
    """Convert answers that are objects to JSON text."""
    result = []
    for item in records:
        own = {name: value for name in answers if isinstance(value := item.values.get(name), dict)}
        texts = {name: json.dumps(value, ensure_ascii=False) for name, value in own.items()}
        result.append(replace(item, values={**item.values, **texts}) if texts else item)
    return result


def _ask_for_texts(records: Sequence[Record], families: Mapping[str, Mapping[int, str]]) -> None:
    """Raise if numbered columns may be answers of successive rounds.

    They may be answers if they have texts of several words that differ within most records.  If no column is named like an answer,
    shorter texts count, too, and the texts need to differ only within some records.
    """
    choices: Choices = {}
    table = TableColumns(records)
    is_any = not any(last_name(name) in ANSWERS for name in table.names)
    least = _SOME if is_any else _MOST
    for stem, family in sorted(families.items(), key=lambda item: last_name(item[0]) in (*ACTIONS, *THOUGHTS)):
        is_other = is_of_passages(stem) or stem in OPTION_STEMS or not NO_ANSWERS.isdisjoint(words_in(stem))
        if not is_model_text(stem) or is_other or not stem:
            continue
        rows = [*zip(*map(table.column, family.values()), strict=True)]
        texts = [[value for value in row if isinstance(value, str) and " " in value.strip()] for row in rows]
        if is_any and _may_be_said(stem, rows):
            texts = [
                [str(value) for value in row if isinstance(value, str | int | float) and str(value).strip()]
                for row in rows
            ]
        differing = sum(len({*own}) > 1 for own in texts)
        joined, (first, *_, last) = ",".join(family.values()), family.values()
        if differing > least * len(rows) and sum(map(len, texts)) > len(rows) and len(joined) <= _LONGEST_OPTION:
            meaning = f"{first!r} to {last!r} are the answers of successive rounds, in this order"
            choices |= of_columns({"rounds": joined}, meaning)
    if choices and len(choices) <= _OFFERED:
        raise UnsettledError(
            "no column is called like an answer, and numbered columns have texts: are these what the model said in each round?",
            "columns",
            choices,
            next(iter(choices)) if len(choices) == 1 and _PREDICTED.match(next(iter(choices))) else "",
        )


def _may_be_said(stem: str, rows: Iterable[Sequence[Any]]) -> bool:
    """Return whether the values of some columns may be answers, rather than grades or measurements."""
    values = {str(value).strip().lower() for row in rows for value in row if value is not None} - {""}
    is_called = stem in WEAK_REPLIES or may_be_parsed_name(stem)
    return not values <= _MARKS and (is_called or not any(map(_DECIMAL.fullmatch, values)))


def rows_of_families(
    records: list[Record], families: Mapping[str, Mapping[int, str]], lead: str, *, is_ordered: bool, samples: bool
) -> Shape:
    """Return a row for each number in the column names of the family `lead`, with the columns of this number in all families.

    Empty cells at the end of a record are rounds that were not run.  With `samples`, they are samples without an answer if some
    record has an empty cell before a filled one.
    """
    numbers = list(families[lead])
    moved = {stem: family for stem, family in families.items() if len(family) == len(numbers) and [*family] != numbers}
    parts = {
        stem: dict(zip(numbers, family.values(), strict=True)) if stem in moved else family
        for stem, family in families.items()
        if stem in moved or set(family) <= set(numbers)
    }
    beside = "".join(f"; {_first_to_last(family)} belong to them in this order" for family in moved.values())
    used = {name for family in parts.values() for name in family.values()}
    is_alone = min(numbers) == 0 and begins_alone([*families[lead].values()])
    own = {"round", *(stem or "answer" for stem in parts)}

    def cells(values: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [
            {stem or "answer": values.get(family[n]) for stem, family in parts.items() if n in family} for n in numbers
        ]

    has_gaps = samples and any(_has_gap(cells(flat_record(item).values)) for item in records)

    def read(others: Iterable[Record]) -> tuple[list[Record], int]:
        pairs: list[Pair] = []
        for item in map(flat_record, others):
            outer = {name: value for name, value in item.values.items() if name not in used}
            inner = cells(item.values)
            while inner and not has_run(inner[-1]) and not (has_gaps and any(map(has_run, inner))):
                inner.pop()
            pairs.append((item, outer, [{"round": r, **row} for r, row in enumerate(inner)] if is_alone else inner))
        return round_rows(pairs, own, "round"), without_rounds(pairs)

    rows, skipped = read(records)
    what = "samples" if samples else "rounds"
    beside += "; an empty cell is a sample without an answer, as in records with later samples" * has_gaps
    ends = f"{families[lead][numbers[0]]!r} to {families[lead][numbers[-1]]!r}"
    return Shape(
        rows=rows,
        how=f"each record is a question, and the columns {ends} are its {what}{beside}{alone_note(families[lead][0]) if is_alone else ''}",
        columns={
            "round": f"number in {ends}",
            **{stem or "answer": _first_to_last(family) for stem, family in parts.items()},
        },
        skipped=skipped,
        outer=outer_names(rows, own),
        is_ordered=is_ordered,
        is_alone=is_alone,
        read=read,
    )


def _has_gap(cells: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an empty cell comes before a filled cell."""
    there = [*map(has_run, cells)]
    return sorted(there, reverse=True) != there


def _first_to_last(family: Mapping[int, str]) -> str:
    first, *_, last = family.values() if len(family) > 1 else (*family.values(), *family.values())
    return f"{first} ... {last}"
