"""Alarms about the order of rounds: answers in sorted order, falling scores, or texts that repeat all texts before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from suffice.common.files import quoted
from suffice.common.tables import counted
from suffice.importers.checks.alarm import Doubt, Read
from suffice.importers.rounds.facts import SCORES, Facts, is_clear
from suffice.importers.words.answer_places import last_of
from suffice.importers.words.choices import Choices
from suffice.importers.words.names import in_log, is_error_count, last_name, plain_name, words
from suffice.policy.metrics import without_parts
from suffice.policy.normalizers import MATCH
from suffice.policy.signals.position import AnswerPosition

_ENOUGH, _FEW = 20, 5
_FAR, _FALLEN = 0.2, 0.2
"""How far a metric falls if the order of rounds is doubtful; for a score with values between 0 and 1, the share of the first one suffices."""

_NEARLY_ALL, _MOST = 0.98, 0.8
_ALIKE = 3
_HALF = 0.5
_KINDS = frozenset({"metric", "metric_name", "metric_type", "score_name", "score_type", "measure"})
"""Names of columns that say what a score measures."""

_MEASURES = frozenset(words("hter mae mse rmse mape nll ppl perplexity brier ece error_rate levenshtein"))
"""Measures of which a lower value is better, besides those whose names say that they count what went wrong."""


def orders_of(answers: Sequence[str]) -> list[str]:
    """Return the orders in which answers are sorted.

    The result is empty for answers that begin alike, as numbered drafts do, and for two numbers.

    >>> orders_of(["Lima", "Oslo"]), orders_of(["10", "9", "9"]), orders_of(["Oslo", "Lima", "Rome"]), orders_of(["draft 1", "draft 2"])
    (['rise as texts'], ['rise as texts', 'fall as numbers'], [], [])
    """
    is_pair = len(answers) <= len(("first", "last"))  # of two numbers, the later one is often larger
    if len({text[:_ALIKE] for text in answers}) == 1 or (is_pair and not all(text[:1].isalpha() for text in answers)):
        return []
    keys: dict[str, Sequence[Any]] = {"texts": [text.casefold() for text in answers]}
    with suppress(ValueError):
        keys["numbers"] = [*map(float, answers)]
    return [
        f"{word} as {what}"
        for what, own in keys.items()
        for word, falls in (("rise", False), ("fall", True))
        if [*own] == sorted(own, reverse=falls)
    ]


def sorted_answers(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if the answers of nearly all questions are sorted and no column numbers the rounds.

    The order of the rounds may then be lost.
    """
    facts, where = read.facts, read.columns.get("round", "")
    n = facts.orders[""]
    if n and max([*facts.firsts.values(), *facts.finals.values()]) > _MOST * n:
        return  # such as a greeting, or a text before the first answer
    for order, own in facts.orders.most_common():
        is_uncounted = where.startswith("order of the rows") and not read.samples
        if order and n >= _ENOUGH and own >= _NEARLY_ALL * n and is_uncounted:
            sentence = (
                f"the answers {order} in {own:,} of {n:,} questions whose answers differ, and nothing else orders the rounds: if they were sorted, as "
                "by ORDER BY, the order of the loop is lost. Write the log again in the order of its time, or with the number of each round; "
                "--samples reads independent samples, which need no order"
            )
            yield sentence, {}
            return


def transcripts(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if texts begin with the text of the round before, and every answer is read from this repeated part."""
    facts = read.facts
    position = read.options.get("answer_position")
    is_same = facts.several >= _FEW and facts.several - facts.equal <= (1 - _NEARLY_ALL) * facts.several
    if position is None or not is_same or facts.continued < max(_FEW, _HALF * facts.following):
        return
    own = AnswerPosition.parse(position)
    choices: Choices = {}
    if own.kind == "marker":
        last = str(last_of(own))
        choices = {f"--answer-position {quoted(last)}": ({"answer_position": last}, "the last one is meant")}
    sentence = (
        f"{facts.continued:,} of {facts.following:,} texts begin with the whole text of the round before, so they are transcripts of all rounds so "
        f"far; read at '{own}', all answers of {facts.equal:,} of {counted(facts.several, 'question')} are equal, as if each were the first one"
    )
    yield sentence, choices


def falling_scores(read: Read) -> Iterator[Doubt]:
    """Yield a doubt if a metric falls far from the first to the last round, or is named as a measure of errors.

    The order of rounds or the scale may be reversed.
    """
    facts = read.facts
    if not read.is_table or read.samples:
        return
    quality = MATCH if MATCH in facts.ends else "f1"
    error = _error_name(facts)
    for name in without_parts(facts.ends):  # precision may fall while recall rises
        n, first, last, squares = facts.ends[name]
        is_own = name not in SCORES
        least = min(_FAR * n, _FALLEN * first) if name in facts.graded_by else _FAR * n
        is_fall = first - last >= least > 0 and is_clear(n, first - last, squares)
        theirs, is_turned = _scored_by(read, name)
        is_error = error is not None and is_own and not is_turned
        if n < _ENOUGH or not (name == quality or is_own) or not (is_error or is_fall):
            continue
        sentence = (
            f"{name} falls from {100 * first / n:.1f} in the first round to {100 * last / n:.1f} in the last (%, {n:,} trajectories): "
            "the rounds may be in reverse order (--column round=COLUMN:3,2,1 names the order of a column's values), or the metric may be an error"
        )
        if is_error and error:
            sentence = f"{theirs!r} is read as what is right, and {error[0]!r} says that it is {error[1]!r}, of which lower values are better"
        option = f"--metric-column {quoted(f'{name}={theirs}:1..0')}"
        turned: Choices = {option: ({"metrics": {name: f"{theirs}:1..0"}}, "lower is better")}
        yield sentence, turned if is_own and not is_turned else {}
        return


def _scored_by(read: Read, name: str) -> tuple[str, bool]:
    """Return the log's column of a metric, and whether the user gave the direction of its scale."""
    said = (read.options.get("metrics") or {}).get(name, "")
    theirs, _, scale = said.rpartition(":")
    return theirs or said or read.named_metric(name), bool(theirs and scale)


def _error_name(facts: Facts) -> tuple[str, str] | None:
    """Find a column whose only value is the name of an error measure, such as "WER"; return the column and this name, or None."""
    for name, own in facts.own.columns.items():
        if last_name(in_log(name)) in _KINDS and len(own.values) == 1:
            (value,) = own.values
            if is_error_count(value) or plain_name(value) in _MEASURES:
                return in_log(name), value
    return None
