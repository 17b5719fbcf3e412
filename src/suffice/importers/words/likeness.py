"""Recognise by shared words if texts are about one question or about several."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from suffice.policy.metrics import normalize_answer

_ALIKE = 0.2
"""By how much more the texts of one id have words in common than those of different ids if they are about one question."""

_BY_CHANCE = math.log(1e-6)
"""The logarithm of the probability below which values are not equal by chance."""

_Words = dict[str, list[set[str]]]
_Pairs = Sequence[tuple[set[str], set[str]]]


def are_other_questions(texts: Iterable[Any], ids: Sequence[Any]) -> bool:
    """Return whether texts with the same id have hardly more words in common than texts with different ids.

    Words that occur with all ids do not count.  Repeated and missing texts are ignored.
    """
    words = _words(texts, ids)
    within = [pair for own in words.values() for pair in pairwise(own) if pair[0] != pair[1]]
    return _are_known(words, within) and not _are_closer(words, within)


def are_of_one_question(texts: Iterable[Any], ids: Sequence[Hashable]) -> bool:
    """Return whether texts with the same id have clearly more words in common than others, as answers to one question have.

    >>> are_of_one_question(["Oslo", "Oslo", "Rome", "Rome"], [1, 1, 2, 2]), are_of_one_question(["a", "b", "c", "d"], [1, 1, 2, 2])
    (True, False)
    """
    words = _words(texts, ids)
    within = [pair for own in words.values() for pair in pairwise(own)]
    return _are_known(words, within) and _are_closer(words, within)


def _words(texts: Iterable[Any], ids: Sequence[Hashable]) -> _Words:
    """Return the sets of words of the texts of each id."""
    words: _Words = {}
    for own, text in zip(map(str, ids), texts, strict=True):
        if text is not None:
            words.setdefault(own, []).append({*normalize_answer(str(text)).split()})
    return words


def _are_known(words: _Words, within: _Pairs) -> bool:
    return bool(within) and len(words) > 1


def _are_closer(words: _Words, within: _Pairs) -> bool:
    spread = Counter(word for own in words.values() for word in set[str]().union(*own))
    weights = {word: math.log(len(words) / n) for word, n in spread.items()}
    between = [(one[-1], other[0]) for one, other in pairwise(words.values())]
    return _in_common(within, weights) >= _in_common(between, weights) + _ALIKE


def _in_common(pairs: _Pairs, weights: Mapping[str, float]) -> float:
    """Return the mean share of words that the two texts of a pair have in common, weighted by word."""
    sums = [[sum(map(weights.__getitem__, own)) for own in (one & other, one | other)] for one, other in pairs]
    return sum(same / whole for same, whole in sums if whole) / len(pairs)


def is_by_chance(values: Counter[str], n: int) -> bool:
    """Return whether `n` pairs of values may all be equal by chance, if values are drawn with the counted frequencies.

    >>> is_by_chance(Counter(a=50, b=50), 10), is_by_chance(Counter(a=50, b=50), 30), is_by_chance(Counter(a=100), 30)
    (True, False, True)
    """
    same = sum((own / values.total()) ** 2 for own in values.values())
    return not values or n * math.log(same) >= _BY_CHANCE
