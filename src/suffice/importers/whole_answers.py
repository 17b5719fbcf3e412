"""Detect logs in which an answer that shares only some words with the gold answer is wrong.

Examples are labels, codes, names of cases, and logs whose own score is 0 for such answers.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa

from suffice.importers.importers import is_of_own_loop
from suffice.importers.rounds.facts import SCORES
from suffice.importers.tables.parted_run import PartedRun
from suffice.policy.metrics import METRICS, normalize_answer
from suffice.policy.normalizers import NORMALIZERS
from suffice.recordings.schema import column_kind

_PAIRS = 20_000
"""The most pairs of answers that are looked at."""

_FEW, _MOST, _SAME = 0.01, 0.9, 0.98
_ENOUGH = 20
"""The least number of answers about which a share says something."""

_LABELS, _EACH = 20, 8
"""The most labels of a classifier, and the fewest pairs of answers for each, on average."""

_COMMON = 0.25
"""A word of more than this share of the gold answers does not tell them apart."""

_SHORT, _WORDS, _LONGEST = 0.95, 4, 10
"""The least share of gold answers that are short, and the most words of one that is, and of one with a number."""

_MOSTLY = 0.8
"""The least share of answers with some words of another that are another value."""

_CASE = re.compile(r"\w\W* (?:v|vs|versus)\.? \w")
"""The name of a case, such as Marbury v. Madison."""

_CODE = re.compile(r"\w*\d\w*|[a-z]|[ivx]+")
"""A word that tells values apart: one with digits, a letter alone, or a Roman numeral."""

_END = "em is the quality, since f1 would count {} with the same words as half right"


def whole_reason(run: PartedRun, options: Mapping[str, Any]) -> str:
    """Return the reason why exact match judges a log's answers instead of F1; "" if F1 is suitable.

    A log with its own F1 is judged by this F1.

    Args:
        run: A run whose answers are compared by the default normalizer for question answering.
        options: The user's options for the import.  If they include a normalizer, it is used, and the result is "".
    """
    golds = run.texts("golds")
    is_said = "normalizer" in options or any(item.ours == "f1" for item in run.readings)
    if is_said or not is_of_own_loop(run.source) or not any(True for _ in golds):
        return ""
    pairs = run.pairs(_PAIRS)
    halves = [pair for pair in pairs if _is_half(*pair)]
    if len(halves) <= _FEW * len(pairs):
        return ""
    told = {*golds}
    is_closed = 2 * len(told) <= run.ends.total()
    return (
        _of_labels(told, pairs)
        or _of_shared_words(told, halves)
        or _of_cases(told, halves)
        or _of_other_values(told, halves, is_closed=is_closed)
        or _of_own_score(run)
    )


def _is_half(first: str, second: str) -> bool:
    return first != second and 0 < METRICS["f1"](first, [second]) < 1


def _of_labels(golds: Collection[str], pairs: Collection[tuple[str, str]]) -> str:
    """Return the reason if nearly all answers are among a few labels, namely the gold answers; else ""."""
    labels = {*map(normalize_answer, golds)}
    said = [normalize_answer(text) in labels for pair in pairs for text in pair]
    are_few = 1 < len(labels) <= _LABELS and _EACH * len(labels) <= len(pairs)
    if not are_few or sum(said) < _MOST * len(said):
        return ""
    return f"the gold answers are {len(labels)} labels: {_END.format('another label')}"


def _of_cases(golds: Collection[str], halves: Collection[tuple[str, str]]) -> str:
    """Return the reason if gold answers are names of legal cases, and most partly right answers name a different case; else ""."""
    apart = sum(all(_words_apart(*pair)) for pair in halves)
    if sum(_CASE.search(gold) is not None for gold in golds) < _SHORT * len(golds) or apart < _MOSTLY * len(halves):
        return ""
    return f"the gold answers are names of cases, such as {next(iter(golds))!r:.60}: {_END.format('another case')}"


def _of_shared_words(golds: Collection[str], halves: Collection[tuple[str, str]]) -> str:
    """Return the reason if partly right answers mostly share only usual words with gold answers, such as "v." or "Art."; else ""."""
    words = Counter(word for gold in golds for word in {*normalize_answer(gold).split()})
    shared = {word for word, n in words.items() if n > _COMMON * len(golds)}
    alike = [{*normalize_answer(first).split()} & {*normalize_answer(second).split()} for first, second in halves]
    if len(golds) < _ENOUGH or sum(own <= shared for own in alike) < _MOST * len(alike):
        return ""
    counted = Counter(word for own in alike for word in own & shared)
    word = max(counted, key=lambda own: (counted[own], own))
    return f"gold answers have words in common, such as {word!r:.40}: {_END.format('another answer')}"


def _of_other_values(golds: Collection[str], halves: Collection[tuple[str, str]], *, is_closed: bool) -> str:
    """Return the reason if most partly right answers name a different value, such as line 18 and not line 11; else "".

    If the set of gold answers is closed (each belongs to several questions), any two different answers are different values.
    """
    kinds = (lambda gold: len(gold.split()) <= _WORDS, _is_numbered)
    if all(sum(map(is_kind, golds)) < _SHORT * len(golds) for is_kind in kinds):
        return ""
    known = {*map(normalize_answer, golds)} if is_closed else frozenset[str]()
    scored = [pair for pair in halves if pair[1] in golds]
    key_of = NORMALIZERS["mixed"]
    apart = [pair for pair in scored if key_of(pair[0]) != key_of(pair[1])]
    others = [pair for pair in apart if _differ_in_code(*pair) or known.issuperset(map(normalize_answer, pair))]
    if len(others) < max(1, _MOSTLY * len(scored)):
        return ""
    first, second = others[0]
    return f"f1 would count other values as half right, such as {first!r:.40} beside {second!r:.40}: em is the quality"


def _is_numbered(gold: str) -> bool:
    """Return whether a gold answer is a title or a citation with a number, not a sentence.

    >>> _is_numbered("Directive 2019/790, Article 17(4), point (c)"), _is_numbered("It sold 12 of the 15."), _is_numbered("Oslo")
    (True, False, False)
    """
    return any(map(str.isdigit, gold)) and len(gold.split()) <= _LONGEST and gold.rstrip()[-1:] not in ".!?"


def _words_apart(first: str, second: str) -> tuple[set[str], set[str]]:
    """Return the words that only the first text has, and those that only the second has."""
    own, other = ({*re.findall(r"\w+", text.lower())} for text in (first, second))
    return own - other, other - own


def _differ_in_code(first: str, second: str) -> bool:
    """Return whether each of two texts has a number, a letter or a code that the other lacks."""
    return all(any(map(_CODE.fullmatch, words)) for words in _words_apart(first, second))


def _of_own_score(run: PartedRun) -> str:
    """Return the reason if a score of the log agrees with exact match and is 0 for answers that share only some words; else ""."""
    names = [item.name for item in run.schema if column_kind(item.name, item) == "metric" and item.name not in SCORES]
    for name in names:
        rows = [row for part in run.tables(["em", "f1", name]) for row in zip(*_columns(part), strict=True)]
        known = [row for row in rows if all(value is not None and not math.isnan(value) for value in row)]
        halves = [own for _, f1, own in known if 0 < f1 < 1]
        agreeing = sum(em == own for em, _, own in known)
        if len(halves) >= _ENOUGH and agreeing >= _SAME * len(known) and sum(halves) <= _FEW * len(halves):
            return f"the log's own {name!r} is 1 only for whole answers: {_END.format('an answer')}"
    return ""


def _columns(part: pa.Table) -> Iterable[list[float | None]]:
    return [column.to_pylist() for column in part.columns]
