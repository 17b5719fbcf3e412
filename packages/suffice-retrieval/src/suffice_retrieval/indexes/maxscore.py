"""The best passages of a question without reading the long lists of its common words.

MaxScore (Turtle and Flood, "Query evaluation: strategies and optimizations", Information Processing and Management 31,
1995): the largest score of each term is stored.  Once the terms that are left cannot lift a passage among the best k, only
passages with an earlier term are candidates, and are looked up in the lists of the terms that are left.  The result is that
of adding up everything, to the bit: passages are dropped by bounds that rounding cannot exceed, and scores are the same
sums of 32-bit numbers in the order of the question.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["TermLists", "added_up", "best_k", "best_passages"]

_LOOKUP = 32
"""Postings that are read one after another in the time of one look-up."""

_HEADS = 200
"""Passages of a term that are scored in full, beside twice as many as are asked for."""

_Singles = npt.NDArray[np.float32]
_Doubles = npt.NDArray[np.float64]
_Rows = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TermLists:
    """The postings of an index, by term.

    Attributes:
        data: The score of each posting.
        indices: Its passage; sorted within a term.
        starts: Where the postings of each term begin, and the end of the last, shape ``(n_terms + 1,)``.
        maxima: The largest score of each term.
        size: Passages of the index.
    """

    data: _Singles
    indices: _Rows
    starts: npt.NDArray[np.int64]
    maxima: _Singles
    size: int

    def of(self, term: int) -> tuple[_Rows, _Singles]:
        """Return the passages of a term and their scores."""
        part = slice(int(self.starts[term]), int(self.starts[term + 1]))
        return self.indices[part], self.data[part]

    def looked_up(self, term: int, rows: _Rows) -> _Singles:
        """Return the scores of passages by one term; 0 where they do not contain it."""
        indices, data = self.of(term)
        places = np.minimum(np.searchsorted(indices, rows), len(indices) - 1)
        values: _Singles = np.where(indices[places] == rows, data[places], np.float32(0))
        return values


def added_up(lists: TermLists, terms: Sequence[int]) -> _Singles:
    """Return the score of every passage: sums in single precision in the order of the terms, which may repeat."""
    scores = np.zeros(lists.size, dtype=np.float32)
    for term in terms:
        rows, data = lists.of(term)
        scores[rows] += data  # a term lists each passage once
    return scores


def best_k(scores: _Singles, k: int) -> tuple[npt.NDArray[np.int64], _Singles]:
    """Return the first k of a stable descending sort without sorting the rest."""
    # Everything above the k-th largest score is in; of its ties only the first in the corpus's order fill the rest.
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > least)
    candidates = np.concatenate([above, np.flatnonzero(scores == least)[: k - len(above)]])
    where = candidates[np.argsort(-scores[candidates], kind="stable")]
    return where, scores[where]


def best_passages(lists: TermLists, terms: Sequence[int], k: int) -> tuple[npt.NDArray[np.int64], _Singles]:
    """Return what `best_k` of all scores returns; see the module.

    Args:
        lists: The index.
        terms: At least one term, in the order of the question; they may repeat.
        k: Between 1 and the size of the index.

    Raises:
        IndexError: The index lists a passage that does not exist.
    """
    plan = _Plan(lists, terms)
    compiled = _compiled()
    if compiled is None:
        rows = _Candidates(plan, k).rows()
        scores = plan.scores(rows)
    else:
        rows, scores = compiled(lists.data, lists.indices, *plan.arrays(), k, lists.size)
    scored = scores > 0
    rows, scores = rows[scored], scores[scored]
    first = np.argsort(-scores, kind="stable")[:k]
    where, best = rows[first].astype(np.int64), scores[first]
    if len(where) and not 0 <= where.min() <= where.max() < lists.size:
        raise IndexError(f"passage {where.max()} of {lists.size}")
    if len(where) < k:  # the rest scores 0, in the order of the corpus
        rest = np.setdiff1d(np.arange(min(lists.size, 2 * k)), where)[: k - len(where)]
        where, best = np.append(where, rest), np.append(best, np.zeros(len(rest), dtype=np.float32))
    return where, best


class _Plan:
    """The terms of a question, those first that may add most.

    Attributes:
        lists: The index.
        order: The distinct terms.
        weights: How often the question contains each.
        question: The question's terms as places in `order`.
        slack: A factor that no rounding of a sum exceeds.
        rest: What the terms from a place on add at most, rounding included; one longer than `order`.
    """

    def __init__(self, lists: TermLists, terms: Sequence[int]) -> None:
        counts = Counter(terms)
        bounds = {term: n * float(lists.maxima[term]) for term, n in counts.items()}
        self.lists = lists
        self.order = sorted(bounds, key=lambda term: -bounds[term])
        self.weights = [float(counts[term]) for term in self.order]
        self.question = [self.order.index(term) for term in terms]
        self.slack = 1 + (len(terms) + 1) * 2.0**-22
        self.rest = np.cumsum([0.0, *(bounds[term] for term in reversed(self.order))])[::-1] * self.slack

    def scores(self, rows: _Rows) -> _Singles:
        """Return the scores of passages, added up in the order of the question."""
        values = [self.lists.looked_up(term, rows) for term in self.order]
        scores = np.zeros(len(rows), dtype=np.float32)
        for place in self.question:
            scores += values[place]
        return scores

    def arrays(self) -> tuple[Any, ...]:
        """Return what the compiled search takes."""
        order = np.array(self.order)
        starts, ends = self.lists.starts[order], self.lists.starts[order + 1]
        return starts, ends, np.array(self.weights), self.rest, self.slack, np.array(self.question)


class _Candidates:
    """The passages that may be among the best k: those with an essential term, less those that others surpass for sure."""

    def __init__(self, plan: _Plan, k: int) -> None:
        self._plan, self._k = plan, k
        self._threshold = 0.0
        self._seen = np.empty(0, dtype=np.int32)
        self._best = np.empty(0, dtype=np.float32)

    def rows(self) -> _Rows:
        """Return them, sorted."""
        order, weights, lists, rest = self._plan.order, self._plan.weights, self._plan.lists, self._plan.rest
        parts: list[tuple[_Rows, _Doubles]] = []
        while len(parts) < len(order) and rest[len(parts)] >= self._threshold:
            own, data = lists.of(order[len(parts)])
            self._raise_threshold(own, data)
            parts.append((own, weights[len(parts)] * data.astype(np.float64)))
        listed = np.sort(np.concatenate([own for own, _ in parts]))
        rows = listed[np.flatnonzero(np.diff(listed, prepend=listed[0] - 1))]
        partial = np.zeros(len(rows))
        for own, values in parts:
            partial[np.searchsorted(rows, own)] += values
        for place in range(len(parts), len(order) + 1):
            may_win = partial * self._plan.slack + rest[place] >= self._threshold
            rows, partial = rows[may_win], partial[may_win]
            if place < len(order):
                partial += weights[place] * lists.looked_up(order[place], rows).astype(np.float64)
        return rows

    def _raise_threshold(self, rows: _Rows, data: _Singles) -> None:
        """Score the passages in full that have most of a term: nothing below the k-th best of them is among the best."""
        n = _HEADS + 2 * self._k
        heads = rows if len(rows) <= n else rows[np.argpartition(data, len(rows) - n)[-n:]]
        heads = np.setdiff1d(heads, self._seen)
        self._seen = np.append(self._seen, heads)
        self._best = np.append(self._best, self._plan.scores(heads))
        if len(self._best) >= self._k:
            self._threshold = float(np.partition(self._best, len(self._best) - self._k)[len(self._best) - self._k])


@functools.cache
def _compiled() -> Callable[..., Any] | None:
    """Return the search that numba compiles, in a second or two, once per process; None without the extra `fast`."""
    try:
        from numba import njit
    except ImportError:
        return None
    return functools.partial(njit(nogil=True)(_window_at_a_time), njit(nogil=True)(_first_from))


def _first_from(indices: _Rows, place: int, end: int, row: int) -> int:
    """Return the first place from `place` on with a passage that is not before `row`."""
    low = high = place
    step = 1
    while high < end and indices[high] < row:  # forward in steps that double, then by halves
        low = high + 1
        high += step
        step *= 2
    high = min(high, end)
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low


def _window_at_a_time(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one function is what numba compiles best
    first_from: Callable[[_Rows, int, int, int], int],
    data: _Singles,
    indices: _Rows,
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    weights: _Doubles,
    rest: _Doubles,
    slack: float,
    question: npt.NDArray[np.int64],
    k: int,
    size: int,
) -> tuple[npt.NDArray[np.int64], _Singles]:
    """Return the best passages, as many as have a term, at most k.

    The essential terms are added up for 4,096 passages at a time.  Passages come in the order of the corpus, so that one must
    surpass the k-th best to be among the best.  Whatever a damaged index contains, no place outside the arrays is read or
    written.
    """
    n, width = len(starts), 4096
    places, begins = starts.copy(), starts.copy()
    values = np.zeros(n, dtype=np.float32)
    sums = np.zeros(width, dtype=np.float32)
    touched = np.empty(width, dtype=np.int64)
    best = np.empty(k, dtype=np.float32)
    where = np.empty(k, dtype=np.int64)
    length, essential = 0, n
    while essential > 0:
        first = 2**32
        for i in range(essential):
            if places[i] < ends[i]:
                first = min(first, indices[places[i]])
        if first == 2**32:
            break
        n_touched = 0
        for i in range(essential):
            begins[i] = j = places[i]
            weight = np.float32(weights[i])
            while j < ends[i] and indices[j] - first < width:
                at = indices[j] - first
                if at >= 0:
                    if sums[at] == 0 and n_touched < width:
                        touched[n_touched] = at
                        n_touched += 1
                    sums[at] += weight * data[j]
                j += 1
            places[i] = j
        local = essential
        while True:
            if length == k:
                n_left = 0
                for t in range(n_touched):
                    at = touched[t]
                    if float(sums[at]) * slack + rest[local] > best[k - 1]:
                        touched[n_left] = at
                        n_left += 1
                    else:
                        sums[at] = 0
                n_touched = n_left
            if local == n or n_touched * _LOOKUP < (ends[local] - starts[local]) * width / size:
                break
            # So many candidates are left that reading the next list here is faster than looking them up.
            weight = np.float32(weights[local])
            begins[local] = j = first_from(indices, places[local], ends[local], first)
            while j < ends[local] and indices[j] - first < width:
                at = indices[j] - first
                if at >= 0 and sums[at] > 0:
                    sums[at] += weight * data[j]
                j += 1
            places[local] = j
            local += 1
        listed = touched[:n_touched]
        listed.sort()
        for at in listed:
            row = first + at
            partial = float(sums[at])
            sums[at] = 0
            i = local
            while i < n:
                if length == k and partial * slack + rest[i] <= best[k - 1]:
                    break
                places[i] = first_from(indices, places[i], ends[i], row)
                values[i] = 0
                if places[i] < ends[i] and indices[places[i]] == row:
                    values[i] = data[places[i]]
                    partial += weights[i] * data[places[i]]
                i += 1
            if i < n or (length == k and partial * slack <= best[k - 1]):
                continue
            for i in range(local):
                begins[i] = first_from(indices, begins[i], places[i], row)
                values[i] = 0
                if begins[i] < places[i] and indices[begins[i]] == row:
                    values[i] = data[begins[i]]
            score = np.float32(0)
            for place in question:
                score += values[place]
            if length < k:
                slot = length
                length += 1
            elif score > best[k - 1]:
                slot = k - 1
            else:
                continue
            while slot > 0 and best[slot - 1] < score:
                best[slot] = best[slot - 1]
                where[slot] = where[slot - 1]
                slot -= 1
            best[slot] = score
            where[slot] = row
        while length == k and essential > 0 and rest[essential - 1] <= best[k - 1]:
            essential -= 1
    return where[:length], best[:length]
