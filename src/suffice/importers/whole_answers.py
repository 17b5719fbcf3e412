"""Logs in which an answer with some words of the gold answer is not half right: labels, codes, and where the log itself counts so."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pyarrow as pa

from suffice.importers.facts import SCORES
from suffice.importers.parted_run import PartedRun
from suffice.policy.metrics import METRICS, normalize_answer
from suffice.recordings.schema import column_kind

_PAIRS = 20_000
"""The most pairs of answers that are looked at."""

_FEW, _MOST, _NEARLY_ALL, _SAME = 0.01, 0.9, 0.95, 0.98
_ENOUGH = 20
"""The least number of answers about which a share says something."""

_LABELS, _EACH = 20, 8
"""The most labels of a classifier, and the fewest pairs of answers for each, on average."""

_FORMS = 3
"""The most wordings that stand beside codes."""

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
    if sum(_is_half(*pair) for pair in pairs) <= _FEW * len(pairs):
        return ""
    return _of_labels({*golds}, pairs) or _of_codes({*golds}, pairs) or _of_own_score(run)


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


def _of_codes(golds: Collection[str], pairs: Collection[tuple[str, str]]) -> str:
    """Return the reason if nearly all gold answers and answers are a code, such as 65-1037, beside the same words."""
    forms = [form for gold in golds if (form := _words_beside_code(gold))]
    if len(forms) < _NEARLY_ALL * len(golds) or len({*forms}) > _FORMS or len(golds) < _ENOUGH:
        return ""
    said = [_words_beside_code(text) in forms for pair in pairs for text in pair]
    if sum(said) < _MOST * len(said):
        return ""
    return (
        f"the gold answers are codes beside the same words, such as {min(golds)!r:.40}: {_END.format('another code')}"
    )


def _words_beside_code(text: str) -> tuple[str, ...]:
    """Return the words of a text beside its only word with a digit; none without one.

    >>> _words_beside_code("P/N 65-1037"), _words_beside_code("65-1037"), _words_beside_code("from 3 to 5")
    (('pn',), (), ())
    """
    parts = text.split()
    plain = [part for part in parts if not any(map(str.isdigit, part))]
    return tuple(map(normalize_answer, plain)) if len(parts) - len(plain) == 1 else ()


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
