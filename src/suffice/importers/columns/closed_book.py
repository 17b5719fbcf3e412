"""Find pairs of columns with answers without and with retrieval.

The answer without retrieval is round 0, the model alone; the answer with retrieval is round 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from suffice.errors import UnsettledError
from suffice.importers.files.records import Record, column_names
from suffice.importers.words.names import ANSWERS, last_name, plain_name, words, words_in
from suffice.recordings.schema import is_confidence_name

_WHAT = "(?:rag|retrieval|contexts?|docs|documents|evidence|search|passages|tools?|knowledge)"
_ALONE = rf"closed_?book|(?<!non_)parametric|memory_only|(?:no|non|without|w_?o|before|pre)_?{_WHAT}|(?:llm|model)_(?:only|alone)"
_WEAK = "direct|zero_?shot|baseline|vanilla|base|plain"
"""Words that also have other meanings, so that only the user's order of columns makes them the model alone."""

_CLOSED_BOOK = re.compile(rf"(?:^|_)(?:{_ALONE})(?=_|$)")
_PERHAPS = re.compile(rf"(?:^|_)(?:{_ALONE}|{_WEAK})(?=_|$)")
_RETRIEVED = re.compile(
    rf"(?:^|_)(?:rag|open_?book|(?:with|after|post|w)_?{_WHAT}|retriev(?:al|ed)|augmented|grounded)(?=_|$)"
)
_STATUS = frozenset({"status", "error", "state", "ok", "failed", "finish_reason", "exception"})
_NOT_RUN = frozenset({"skipped", "skip", "not_run", "not run", "none", "gated", "unused", "n/a", "no"})

_EVIDENCE = frozenset(
    words(
        "retrieval retrievals retrieved retriever passage passages doc docs document documents context contexts chunk chunks snippet snippets "
        "evidence search searches source sources citation citations"
    )
)
"""Words of names of columns with what was retrieved, or with how much."""

_NOTHING = frozenset({"", "0", "0.0", "[]", "{}", "none", "null", "nan", "false", "no"})
_NEARLY_ALL, _MOSTLY = 0.98, 0.8
"""The least share of first rows without evidence, and of later rows with some, if only the former are the model alone."""

Families = dict[str, dict[int, str]]


def is_confidence(name: str) -> bool:
    """Return whether a name is usual for a column of the model's confidence in its answer or knowledge.

    >>> [is_confidence(name) for name in ("verbal_conf", "gate.logprob", "p_known", "configuration")]
    [True, True, True, False]
    """
    return is_confidence_name(_words(name))


def is_of_retrieval(name: str) -> bool:
    """Return whether a column's name says that its values belong to the round with retrieval.

    >>> is_of_retrieval("rag_confidence"), is_of_retrieval("no_rag_confidence")
    (True, False)
    """
    words = _words(name)
    return _CLOSED_BOOK.search(words) is None and _RETRIEVED.search(words) is not None


def begins_alone(answers: Sequence[str]) -> bool:
    """Return whether the first column of answers is named like one without retrieval, and no other column is.

    >>> begins_alone(["direct_answer", "rag_answer"]), begins_alone(["rag_answer", "final_answer"])
    (True, False)
    """
    first, *others = (_PERHAPS.search(_words(name)) is not None for name in answers)
    return first and not any(others)


def pair_of(names: Iterable[str]) -> list[str]:
    """Return two columns of answers, without and with retrieval; empty unless there is exactly one of each.

    Without their words for retrieval, both columns must have the same name.

    >>> pair_of(["id", "rag_answer", "parametric_answer", "tokens_rag"]), pair_of(["answer_no_rag", "answer_rag", "gold"])
    (['parametric_answer', 'rag_answer'], ['answer_no_rag', 'answer_rag'])
    >>> pair_of(["baseline_answer", "rag_answer"]), pair_of(["closed_book.em", "rag.em"])
    ([], [])
    """
    places = {
        name: place for name in names if (place := _place_of(name)) is not None and last_name(place[0]) in ANSWERS
    }
    ordered = sorted(places, key=lambda name: places[name][1])
    return (
        ordered if [places[name][1] for name in ordered] == [0, 1] and len({p[0] for p in places.values()}) == 1 else []
    )


def closed_book_families(
    answers: Sequence[str], families: Mapping[str, Mapping[int, str]], names: Iterable[str]
) -> Families:
    """Return the column families with rounds counted from 0, and add families of columns whose names say if retrieval was used.

    Args:
        answers: The columns of answers, the one without retrieval first.
        families: The column families by round, counted from 1.
        names: All columns.
    """
    result = {stem: {r - 1: name for r, name in family.items()} for stem, family in families.items()}
    used = {name for family in result.values() for name in family.values()}
    further: Families = {}
    for name in names:
        place = _place_of(name)
        if place is not None and place[0] and name not in used:
            further.setdefault(place[0], {})[place[1]] = name
    is_pair = pair_of(answers) == [*answers]
    for stem, family in further.items() if is_pair else ():
        if stem not in result and ({*family} == {0, 1} or last_name(stem) in _STATUS):
            result[stem] = dict(sorted(family.items()))
    return result


def has_run(values: Mapping[str, object]) -> bool:
    """Return whether a round was run: it has some value that is not a status such as "skipped"."""
    there = {name: value for name, value in values.items() if value is not None and value != ""}
    return not all(last_name(name) in _STATUS and str(value).lower() in _NOT_RUN for name, value in there.items())


def alone_note(name: str) -> str:
    """Return the part of a description that names the column of round 0, the model alone."""
    return f"; {name!r} is round 0, without retrieval"


def _words(name: str) -> str:
    return plain_name(name).replace(".", "_")


def _place_of(name: str) -> tuple[str, int] | None:
    """Return a column's name without its word for retrieval, and the round: 0 without retrieval, 1 with retrieval.

    Return None if the name has no such word.
    """
    words = _words(name)
    for r, pattern in enumerate((_CLOSED_BOOK, _RETRIEVED)):
        match = pattern.search(words)
        if match is not None:
            return (words[: match.start()] + words[match.end() :]).strip("_"), r
    return None


def texts_differ(records: Sequence[Record], pair: Sequence[str]) -> bool:
    """Return whether both columns of a pair contain texts, and the columns differ in some row."""
    first, second = ([row.values.get(name) for row in records] for name in pair)
    return first != second and all(any(isinstance(value, str) and value for value in own) for own in (first, second))


def is_of_evidence(name: str) -> bool:
    """Return whether a name is usual for a column of retrieved passages or of their number."""
    return not _EVIDENCE.isdisjoint(words_in(last_name(name)))


def only_later_have_evidence(rows: Sequence[Record], are_first: Sequence[bool]) -> bool:
    """Return whether a column of retrieved passages, or of their number, is filled only in later rows.

    Nearly all first rows must be empty or 0, and most later rows filled.
    """
    for name in filter(is_of_evidence, column_names(rows)):
        has = [str(row.values.get(name)).strip().lower() not in _NOTHING for row in rows]
        first = [own for own, is_first in zip(has, are_first, strict=True) if is_first]
        later = [own for own, is_first in zip(has, are_first, strict=True) if not is_first]
        if later and sum(first) <= (1 - _NEARLY_ALL) * len(first) and sum(later) >= _MOSTLY * len(later):
            return True
    return False


def counts_from_0(name: str) -> UnsettledError:
    """Return the error for a column of rounds that counts from 0; the error asks if round 0 is a call of the loop."""
    return UnsettledError(
        f"{name!r} counts from 0: does the loop begin with 0, or is 0 the model alone, asked beside the loop?",
        "first_round",
        {
            "--first-round 1": (
                1,
                "0 is the loop's first call, and counts as one: its first draft, attempt or search, whether or not anything was retrieved",
            ),
            "--first-round 0": (
                0,
                "0 is outside the loop, which begins with 1: the model was asked once more, closed book, to compare with",
            ),
        },
    )
