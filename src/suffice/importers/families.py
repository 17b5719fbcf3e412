"""Columns of rounds: groups of columns whose names differ only in the round that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from os.path import commonprefix

from suffice.importers.names import GOLDS, numbered, plain_name

_END = re.compile(r"[_\-. @=(#]*(?:[rtkvRTKV]|version|ver)?[_\-. @=(#]*\d+\)?")


def numbered_families(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Group columns whose names differ only in a number, by the rest of the name, then by the number, from 0 or 1.

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
    """Return the common part of names as the log spells it if that is one word, such as rougeL; else in lower case."""
    own = {_END.sub("", name) for name in family.values()}
    name = next(iter(own))
    return name if len(own) == 1 and name.isidentifier() and plain_name(name) == stem != name.lower() else stem


def families_beside(answers: Sequence[str], names: Iterable[str]) -> dict[str, dict[int, str]]:
    """Group columns by rounds whose answers are in some columns: those that differ from one another as the answers do.

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
