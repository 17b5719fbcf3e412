"""Metrics with a gold answer (exact match, token F1, containment), and the weighted mean of a judge's marks.

Definitions follow the official HotpotQA scorer (Yang et al., 2018): lowercase, strip punctuation, strip articles,
collapse white space, in that order.  TASR's published replay strips articles before punctuation, so that "the-cat"
becomes "cat" instead of "thecat"; this module keeps the official order.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

from suffice.common.provided import registration
from suffice.errors import DataError

_ARTICLE_PATTERN = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_PART = re.compile(r"_(?:precision|prec|p|recall|rec|r)(?=_)")
_WHOLE = re.compile(r"_f_?1?_?(?:score|measure)?(?=_)")
_CLOSED = frozenset({"yes", "no", "noanswer"})


@lru_cache(maxsize=4096)  # each metric, signal and split normalises the same texts
def normalize_answer(text: str) -> str:
    """Return `text` in the normalised form that the official HotpotQA scorer compares.

    >>> normalize_answer("The  Tempest!")
    'tempest'
    """
    return " ".join(_ARTICLE_PATTERN.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def answer_key(text: str) -> str:
    """Return the key of an answer; the answers of two rounds count as equal if their keys are equal.

    The key is the normalised answer. If the normalised answer is empty ("The The" loses both words), the key is the
    lowercased text without surrounding white space.

    >>> answer_key("The The"), answer_key("the tempest.")
    ('the the', 'tempest')
    """
    return normalize_answer(text) or text.strip().lower()


def exact_match(answer: str | None, golds: Sequence[str]) -> float:
    """Return 1.0 if the normalised answer equals a normalised gold answer, else 0.0 (range {0, 1}).

    A missing answer (None) scores 0.0.

    >>> exact_match("the Tempest", ["The Tempest (1979 film)", "Tempest"])
    1.0
    """
    if answer is None:
        return 0.0
    normalised = normalize_answer(answer)
    return float(any(normalised == normalize_answer(gold) for gold in golds))


def f1(answer: str | None, golds: Sequence[str]) -> float:
    """Return the best token F1 against any gold answer, in [0, 1].

    As in the official scorer, `yes`, `no` and `noanswer` score only when equal.  A missing answer scores 0.0.

    >>> round(f1("1979 film The Tempest", ["The Tempest"]), 3)
    0.5
    """
    if answer is None or not golds:
        return 0.0
    normalised = normalize_answer(answer)
    return max(_f1_pair(normalised, normalize_answer(gold)) for gold in golds)


def _f1_pair(answer: str, gold: str) -> float:
    if answer != gold and (answer in _CLOSED or gold in _CLOSED):
        return 0.0
    answer_tokens, gold_tokens = answer.split(), gold.split()
    same = sum((Counter(answer_tokens) & Counter(gold_tokens)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(answer_tokens), same / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)


def contains(answer: str | None, golds: Sequence[str]) -> float:
    """Return 1.0 if the normalised answer contains a normalised gold answer as a run of characters, else 0.0.

    A gold answer that normalises to the empty string never matches, nor does a missing answer.  Containment favours
    long answers, so report it beside `exact_match` and `f1`.

    >>> contains("It was The Tempest, in 1979", ["the tempest"]), contains("anything", ["The"])
    (1.0, 0.0)
    """
    if answer is None:
        return 0.0
    normalised = normalize_answer(answer)
    return float(any(gold in normalised for gold in map(normalize_answer, golds) if gold))


Metric = Callable[[str | None, Sequence[str]], float]
"""Scores an answer, None if there is none, against the gold answers: a number in [0, 1], or NaN where it is undefined."""

_Metric = TypeVar("_Metric", bound=Metric)

_ALL_METRICS: dict[str, Metric] = {"em": exact_match, "f1": f1, "contains": contains}

METRICS: Mapping[str, Metric] = MappingProxyType(_ALL_METRICS)
"""The metrics that a recording stores for each round, by column name: built in and registered."""


def register_metric(name: str) -> Callable[[_Metric], _Metric]:
    """Return a decorator that adds your own metric, which is recorded in every round and available as ``--metric``.

    In recordings without its column, the metric is computed from answers and gold answers.

    >>> @register_metric("same_length")
    ... def same_length(answer, golds):
    ...     return float(any(len(answer or "") == len(gold) for gold in golds))
    >>> METRICS["same_length"]("Oslo", ["Rome"])
    1.0

    Args:
        name: The name of the metric and of its column: an ASCII identifier that no other metric has.

    Raises:
        DataError: The name is taken, or is not an identifier.
    """
    return registration(_ALL_METRICS, name, "a metric")


EQUAL_WEIGHTS: Mapping[str, float] = MappingProxyType(
    dict.fromkeys(("faithfulness", "answer_relevancy", "context_precision", "context_recall"), 0.25)
)
"""The weights of the published runs of Semantic Early-Stopping."""

_OFF_SIMPLEX = 1e-9
"""Tolerance of the weights' sum around 1, for weights that were normalised with rounding."""


def information_score(marks: Mapping[str, float], weights: Mapping[str, float] = EQUAL_WEIGHTS) -> float:
    """Return the weighted mean of a judge's marks for one draft (Semantic Early-Stopping, IS_t), in [0, 1].

    >>> marks = {"faithfulness": 1.0, "answer_relevancy": 0.5, "context_precision": 0.5, "context_recall": 0.0}
    >>> information_score(marks)
    0.5
    >>> information_score({"faithfulness": 0.9}, {"faithfulness": 1.0, "context_recall": 0.0})
    0.9

    Args:
        marks: Marks by metric, each in [0, 1]; NaN and values outside [0, 1] count as undefined.
        weights: Weights by metric, not negative and with the sum 1.

    Returns:
        The score; NaN if a mark with a non-zero weight is undefined or missing.

    Raises:
        DataError: A weight is negative, or the sum is not 1.
    """
    if not all(weight >= 0 for weight in weights.values()) or not abs(sum(weights.values()) - 1) <= _OFF_SIMPLEX:
        raise DataError(f"weights must be >= 0 and add up to 1, not {dict(weights)!r}: divide them by their sum")
    score = 0.0
    for name, weight in weights.items():
        if weight > 0:
            mark = marks.get(name, math.nan)
            if not 0 <= mark <= 1:
                return math.nan
            score += weight * mark
    return min(max(score, 0.0), 1.0)  # clipped because rounding could move the mean outside of the range of the marks


def without_parts(names: Iterable[str]) -> list[str]:
    """Leave out precision and recall metrics whose F1 is also listed, because neither alone measures an answer's quality.

    >>> without_parts(["bertscore_precision", "bertscore_recall", "bertscore_f1", "rouge1"])
    ['bertscore_f1', 'rouge1']
    >>> without_parts(["rougeL_p", "rougeL_fmeasure", "precision"])
    ['rougeL_fmeasure', 'precision']
    """
    kept = [*names]
    wholes = {_stem(_WHOLE, name) for name in kept} - {""}
    return [name for name in kept if (_stem(_PART, name) or None) not in wholes]


def _stem(word: re.Pattern[str], name: str) -> str:
    """Return a name, in snake case, without the match of `word`; "" if there is no match."""
    plain = f"_{re.sub(r'(?<=[a-z])(?=[A-Z])', '_', name).lower()}_"
    return word.sub("", plain, count=1) if word.search(plain) else ""
