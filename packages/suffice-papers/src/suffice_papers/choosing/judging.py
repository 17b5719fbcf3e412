"""Procedures that choose among the drafts so far with few calls of a judge, applied to recorded marks.

A procedure may read a draft's mark only after a call of the judge, and every call is counted.  To choose the drafts to
judge, it therefore uses information that costs nothing: answers, distances, or a selector.  Equal drafts share one
mark, so that each distinct draft is judged once. `draft_families` returns those families of procedures whose signals a
recording contains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules.parse import parse_selector
from suffice.policy.rules.registered_selectors import DISTANCES, pairwise_distances
from suffice.policy.rules.selectors import Last, Selector, answered, last_of, nearest, same_answers
from suffice.recordings.recording import Recording

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome of a procedure: the returned rounds, and its calls.

    Attributes:
        position: The round whose draft is returned, shape ``(n_questions,)``; -1 where no seen round has a draft.
        calls: Calls of the judge on each round's draft, shape ``(n_questions, n_rounds)``.
    """

    position: Positions
    calls: Counts


class Procedure(ABC):
    """A procedure that chooses among the rounds seen at the stop, and asks a judge for some of the marks."""

    __slots__ = ()

    def choose(self, view: Rounds, stop: Positions, marks: Floats) -> Choice:
        """Return the chosen rounds and the calls.

        Args:
            view: The rounds from the policy's start on, with answers.
            stop: Position of the stop, shape ``(n_questions,)``.
            marks: The judge's mark of each draft, shape ``(n_questions, n_rounds)``; NaN where a reply could not be
                read.  A third axis may contain the marks of repeated calls, in the order of the calls.

        Raises:
            DataError: The marks have another shape.
        """
        repeated = marks[..., None] if marks.ndim == len(view.shape) else marks
        if repeated.shape[:-1] != view.shape:
            raise DataError(f"marks of shape {marks.shape!r} for rounds of shape {view.shape!r}: one for each round")
        candidates = answered(view) & (np.arange(len(view)) <= np.asarray(stop)[..., None])
        first = _first_equal(view, candidates)
        shared = np.take_along_axis(repeated, first[..., None], axis=-2)
        position, calls = self._choose(view, candidates, shared)
        position = np.where(position >= 0, position, last_of(candidates))
        return Choice(position, _once_each(calls, first))

    @abstractmethod
    def _choose(self, view: Rounds, candidates: Mask, marks: Floats) -> tuple[Positions, Counts]:
        """Return the chosen position (-1 if no draft has a mark), and the number of calls on each round's draft."""

    @property
    def signals(self) -> frozenset[str]:
        """The signals that the procedure reads."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class Unjudged(Procedure):
    """A procedure that only uses a selector and never asks the judge."""

    selector: Selector

    def _choose(self, view: Rounds, candidates: Mask, marks: Floats) -> tuple[Positions, Counts]:
        del marks
        return self.selector.select(_only(view, candidates), _end(view)), np.zeros(view.shape, dtype=np.int64)

    @property
    def signals(self) -> frozenset[str]:
        """The signals that the procedure reads."""
        return self.selector.signals

    def __str__(self) -> str:
        return str(self.selector)


@dataclass(frozen=True, slots=True)
class JudgeAll(Procedure):
    """Judge every draft so far and return the best; among ties, the latest."""

    def _choose(self, view: Rounds, candidates: Mask, marks: Floats) -> tuple[Positions, Counts]:
        del view
        return _best_marked(marks[..., 0], candidates), candidates.astype(np.int64)

    def __str__(self) -> str:
        return "judge_all"


@dataclass(frozen=True, slots=True)
class JudgeDistinct(Procedure):
    """Judge drafts from the latest backwards, but skip a draft that is near an already judged draft.

    Attributes:
        eps: Two drafts are near if their cosine distance is below this number; with 0, only equal drafts are near.
    """

    eps: float = 0.0

    def _choose(self, view: Rounds, candidates: Mask, marks: Floats) -> tuple[Positions, Counts]:
        near = same_answers(view)
        if self.eps > 0:
            near = near | (pairwise_distances(view) < self.eps)
        judged = np.zeros(view.shape, dtype=np.bool_)
        for r in reversed(range(len(view))):
            judged[..., r] = candidates[..., r] & ~(near[..., r, :] & judged).any(axis=-1)
        return _best_marked(marks[..., 0], judged), judged.astype(np.int64)

    @property
    def signals(self) -> frozenset[str]:
        """The signals that the procedure reads."""
        return frozenset(DISTANCES) if self.eps > 0 else frozenset()

    def __str__(self) -> str:
        return f"judge_distinct({self.eps:g})"


@dataclass(frozen=True, slots=True)
class Ordered(Procedure):
    """Base of the procedures that judge drafts in the order in which a selector would choose them.

    Attributes:
        order: The selector.  The draft that it chooses comes first, then the draft that it chooses among the rest, and
            so on.
    """

    order: Selector

    @property
    def signals(self) -> frozenset[str]:
        """The signals that the procedure reads."""
        return self.order.signals


@dataclass(frozen=True, slots=True)
class JudgeUntil(Ordered):
    """Judge drafts in a selector's order until a mark is good enough; without such a mark, return the best draft.

    Attributes:
        enough: The mark that ends the judging; 1 is the highest mark in [0, 1].
    """

    enough: float = 1.0

    def _choose(self, view: Rounds, candidates: Mask, marks: Floats) -> tuple[Positions, Counts]:
        ranks = rank_rounds(self.order, view, candidates)
        good = candidates & (marks[..., 0] >= self.enough)
        until = np.where(good, ranks, len(view)).min(axis=-1, keepdims=True)
        judged = candidates & (ranks <= until)
        return _best_marked(marks[..., 0], judged), judged.astype(np.int64)

    def __str__(self) -> str:
        return f"judge_until({self.order}, {self.enough:g})"


@dataclass(frozen=True, slots=True)
class Halving(Ordered):
    """Successive halving: a selector first halves the drafts without a call; each later stage judges all that are left.

    Every stage keeps the better half (rounded up) by the mean of the marks so far, with ties in the selector's order,
    until one draft is left or no repeated marks remain.  With only one mark for each draft, as in a cache, there is
    only one stage.  Source: sequential halving, Karnin, Koren and Somekh (2013), with a first stage that costs nothing.
    """

    def _choose(self, view: Rounds, candidates: Mask, marks: Floats) -> tuple[Positions, Counts]:
        ranks = rank_rounds(self.order, view, candidates)
        rest = candidates & (ranks < _better_half(candidates))
        calls = np.zeros(view.shape, dtype=np.int64)
        sums, known = np.zeros(view.shape), np.zeros(view.shape)
        for stage in range(marks.shape[-1]):
            judged = rest & (rest.sum(axis=-1, keepdims=True) > 1)
            mark = marks[..., stage]
            readable = judged & ~np.isnan(mark)
            calls += judged
            sums, known = sums + np.where(readable, mark, 0.0), known + readable
            mean = np.where(known > 0, sums / np.maximum(known, 1), -np.inf)
            n_kept = np.ones_like(_better_half(rest)) if stage == marks.shape[-1] - 1 else _better_half(rest)
            rest = rest & (_places(mean, ranks, rest) < n_kept)
        return last_of(rest), calls

    def __str__(self) -> str:
        return f"halving({self.order})"


def rank_rounds(selector: Selector, view: Rounds, candidates: Mask) -> Counts:
    """Return the rank of each round, shape ``(n_questions, n_rounds)``.

    The selector chooses one of the candidates, which gets rank 0; then it chooses among the candidates that are left,
    and so on. Rounds that are not candidates have the largest rank.
    """
    n = len(view)
    ranks = np.full(view.shape, n, dtype=np.int64)
    rest = candidates.copy()
    for place in range(n):
        chosen = selector.select(_only(view, rest), _end(view))
        hit = rest & (np.arange(n) == chosen[..., None])
        ranks[hit] = place
        rest &= ~hit
    return ranks


def _end(view: Rounds) -> Positions:
    return np.full(view.shape[:-1], len(view) - 1, dtype=np.int64)


def _only(view: Rounds, candidates: Mask) -> Rounds:
    """Return the rounds without the answers of rounds that are not candidates, so that a selector ignores these rounds."""
    assert view.answers is not None
    answers = np.full(candidates.shape, None, dtype=object)
    answers[candidates] = np.broadcast_to(view.answers, candidates.shape)[candidates]
    return Rounds(view.columns, view.index, view.seen, answers, view.normalizer)


def _best_marked(marks: Floats, judged: Mask) -> Positions:
    return nearest(-marks, np.asarray(-np.inf), judged)


def _better_half(mask: Mask) -> Counts:
    return np.asarray(-(-mask.sum(axis=-1, keepdims=True) // 2), dtype=np.int64)  # rounded up


def _places(mean: Floats, ranks: Counts, rest: Mask) -> Counts:
    """Return each round's place in the order by mean mark, then rank; rounds that are not in `rest` come last."""
    order = np.lexsort((ranks, -mean, ~rest), axis=-1)
    places: Counts = np.empty(order.shape, dtype=np.int64)  # the inverse permutation of the order
    np.put_along_axis(places, order, np.broadcast_to(np.arange(order.shape[-1]), order.shape), axis=-1)
    return places


def _first_equal(view: Rounds, candidates: Mask) -> Positions:
    """Return, for each candidate, the earliest candidate with the same draft; for any other round, the round itself."""
    # Compare candidates only: drafts after the stop are not known yet.
    equal = same_answers(view) & candidates[..., None, :] & candidates[..., :, None]
    own = np.broadcast_to(np.arange(len(view)), view.shape)
    first: Positions = np.where(equal.any(axis=-1), np.argmax(equal, axis=-1), own)
    return first


def _once_each(calls: Counts, first: Positions) -> Counts:
    """Count the calls on equal drafts once.

    In a group of equal drafts, the latest one that was judged gets the largest number of calls in the group. All others
    get 0.
    """
    n = calls.shape[-1]
    # Axis -2 is a round, axis -1 the rounds that it is compared with.
    equal = first[..., :, None] == first[..., None, :]
    most = np.where(equal, calls[..., None, :], 0).max(axis=-1)
    later = np.triu(np.ones((n, n), dtype=np.bool_), 1)
    repeated = (equal & later & (calls[..., None, :] > 0)).any(axis=-1)
    return np.where((calls > 0) & ~repeated, most, 0).astype(np.int64)


DRAFT_SELECTORS = (
    *("last", "first", "majority", "centroid", "min_semantic_distance", "max_critic_praise"),
    *("max_answer_length", "min_answer_length", "median_answer_length", "max_lexical_support"),
)
"""Selectors without a judge and without a threshold."""

EPS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3)
"""Distances below which drafts may count as near; they were fixed before any comparison on marks."""


def usable_selectors(recording: Recording) -> list[str]:
    """Return the selectors among `DRAFT_SELECTORS` whose signals the recording contains."""
    return [name for name in DRAFT_SELECTORS if _has_values(recording, parse_selector(name).signals)]


def draft_families(recording: Recording, *, judged: bool = True) -> dict[str, tuple[Procedure, ...]]:
    """Return families of methods to choose a draft, by name: some without a judge, others with few calls of a judge.

    Args:
        recording: The recording; families are left out if they read signals that the recording does not contain.
        judged: True to include families that call a judge.
    """
    names = usable_selectors(recording)
    families: dict[str, tuple[Procedure, ...]] = {name: (Unjudged(parse_selector(name)),) for name in names}
    apart = "centroid" in names
    if apart:
        runs = (f"longest_run(semantic_distance < {eps:g})" for eps in EPS)
        families["longest_run"] = tuple(Unjudged(parse_selector(text)) for text in runs)
    if not judged:
        return families
    middle = parse_selector("centroid" if apart else "majority")
    families["judge_all"] = (JudgeAll(),)
    families["judge_distinct"] = tuple(JudgeDistinct(eps) for eps in (0.0, *(EPS if apart else ())))
    for order in (Last(), middle):
        families[f"judge_until({order})"] = (JudgeUntil(order),)
        families[f"halving({order})"] = (Halving(order),)
    return families


def _has_values(recording: Recording, names: frozenset[str]) -> bool:
    """Return whether all columns exist, and at least one of them has a value.

    A column may be empty: for example, a distance over five rounds is never defined if no question has six drafts.
    """
    if not names <= set(recording.table.column_names):
        return False
    return not names or any(np.isfinite(recording.column(name)).any() for name in names)
