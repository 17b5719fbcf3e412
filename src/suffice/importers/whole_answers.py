"""Logs in which an answer with some words of the gold answer is not half right: labels, codes, names with words in common, and where the log itself counts so."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa

from suffice.importers.facts import SCORES
from suffice.importers.parted_run import PartedRun
from suffice.policy.metrics import METRICS, normalize_answer
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

_END = "em is the quality, since f1 would count {} with the same words as half right"


def whole_reason(run: PartedRun, options: Mapping[str, Any]) -> str:
    """Return why exact match judges the answers of a table, and not F1; "" if F1 suits them.

    A log with its own F1 is judged by that.

    Args:
        run: A run whose answers are compared as in question answering.
        options: The user's options for the import; who names the normalizer has decided.
    """
    golds = run.texts("golds")
    is_said = run.source != "tabular" or "normalizer" in options or any(item.ours == "f1" for item in run.readings)
    if is_said or not any(True for _ in golds):
        return ""
    pairs = run.pairs(_PAIRS)
    halves = [pair for pair in pairs if _is_half(*pair)]
    if len(halves) <= _FEW * len(pairs):
        return ""
    return _of_labels({*golds}, pairs) or _of_shared_words({*golds}, halves) or _of_own_score(run)


def _is_half(first: str, second: str) -> bool:
    return first != second and 0 < METRICS["f1"](first, [second]) < 1


def _of_labels(golds: Collection[str], pairs: Collection[tuple[str, str]]) -> str:
    """Return the reason if answers are a few labels, each of which is a gold answer of many."""
    labels = {*map(normalize_answer, golds)}
    said = [normalize_answer(text) in labels for pair in pairs for text in pair]
    are_few = 1 < len(labels) <= _LABELS and _EACH * len(labels) <= len(pairs)
    if not are_few or sum(said) < _MOST * len(said):
        return ""
    return f"the gold answers are {len(labels)} labels: {_END.format('another label')}"


def _of_shared_words(golds: Collection[str], halves: Collection[tuple[str, str]]) -> str:
    """Return the reason if answers are half right by words that many gold answers have, such as "v." or "Art.", and that say nothing."""
    words = Counter(word for gold in golds for word in {*normalize_answer(gold).split()})
    shared = {word for word, n in words.items() if n > _COMMON * len(golds)}
    alike = [{*normalize_answer(first).split()} & {*normalize_answer(second).split()} for first, second in halves]
    if len(golds) < _ENOUGH or sum(own <= shared for own in alike) < _MOST * len(alike):
        return ""
    counted = Counter(word for own in alike for word in own & shared)
    word = max(counted, key=lambda own: (counted[own], own))
    return f"gold answers have words in common, such as {word!r:.40}: {_END.format('another answer')}"


def _of_own_score(run: PartedRun) -> str:
    """Return the reason if a score of the log is 1 where an answer equals a gold answer, and 0 where it has some of its words."""
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
