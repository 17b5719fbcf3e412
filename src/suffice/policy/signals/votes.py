"""Signals of a vote: the agreement among independent answers to one question.

Samples of one model, or of the members of a panel, are rounds without an order.  All of these signals depend on the
answer of each sample (`answer_id`), as the policy's normalizer compares answers. So the policy computes them, with the
same code live and in replays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.policy.normalizers import ANSWER_ID, Grouping, Normalizer
from suffice.policy.rounds import Floats, Positions
from suffice.policy.rules.named import DSC_WINDOW, WINDOWS
from suffice.policy.signals.definitions import declare
from suffice.policy.signals.state import DIFFICULTY

ALLOCATED = "allocated"
"""The signal with the number of samples that a question is given beforehand."""

WEIGHT = "p_correct"
"""The signal that weighted votes count each answer by."""

_CONSISTENCY = "Adaptive-Consistency, Aggarwal et al. (2023)"
_RASC = "RASC, Wan et al. (2024)"
_VOTES_RANGE = (0.0, math.inf)
_MOST_FREQUENT = 5  # number of the most frequent answers that Adaptive-Consistency's code integrates over

VoteCounts = npt.NDArray[np.float64]


def answer_ids(answers: npt.NDArray[np.object_], normalizer: Normalizer) -> Floats:
    """Number a question's distinct answers by first appearance, and return the number of each round's answer.

    >>> from suffice.policy.normalizers import normalizer_of
    >>> answer_ids(np.array([["18", "20", None, "18.0", "no idea"]], dtype=object), normalizer_of("number"))
    array([[ 0.,  1., nan,  0., nan]])

    Args:
        answers: The answers, shape ``(..., n_rounds)``, None where missing.
        normalizer: The normalizer that compares answers.

    Returns:
        The numbers, same shape; NaN for an answer that is missing or cannot be read.
    """
    if isinstance(normalizer, Grouping):
        return normalizer.ids_of(answers)
    key_of = lru_cache(maxsize=1 << 16)(normalizer)  # few answers differ
    flat = answers.reshape(-1, answers.shape[-1])
    ids = np.full(flat.shape, np.nan)
    for row, texts in zip(ids, flat.tolist(), strict=True):
        known: dict[str, int] = {}
        for r, text in enumerate(texts):
            key = key_of(text) if isinstance(text, str) else None
            if key is not None:
                row[r] = known.setdefault(key, len(known))
    return ids.reshape(answers.shape)


class _VoteTally:
    """Running counts of the votes for each answer, for many questions at once.

    Attributes:
        counts: The votes of each answer so far, shape ``(n_questions, n_answers)``.
        first: Votes of the leading answer, shape ``(n_questions,)``.
        second: Votes of the runner-up, same shape; 0 without a second answer.
        total: Votes of all answers, same shape.
    """

    def __init__(self, n_questions: int, n_answers: int = 0) -> None:
        self._rows = np.arange(n_questions)
        self._leader = np.full(n_questions, -1)
        self._begun = np.zeros(n_questions, dtype=np.bool_)
        self.counts: VoteCounts = np.zeros((n_questions, n_answers))
        self.first, self.second, self.total = (np.zeros(n_questions) for _ in range(3))

    def add(self, ids: Floats, weights: Floats | None = None) -> None:
        """Add one vote to each question; since counts only grow, the leaders are updated from the new vote alone.

        Args:
            ids: The number of each question's answer, shape ``(n_questions,)``; NaN = no vote.
            weights: The weight of each vote, same shape; NaN = no vote. None = 1.
        """
        weights = np.ones(len(ids)) if weights is None else weights
        voted = ~np.isnan(ids) & ~np.isnan(weights)
        votes = np.where(voted, weights, 0.0)
        given: Positions = np.where(voted, ids, 0.0).astype(np.int64)
        more = int(given.max(initial=0)) + 1 - self.counts.shape[1]
        if more > 0:
            self.counts = np.pad(self.counts, ((0, 0), (0, more)))
        count = self.counts[self._rows, given] + votes
        self.counts[self._rows, given] = count
        self.total += votes
        passes = voted & (given != self._leader) & (count > self.first)
        behind = voted & (given != self._leader) & ~passes
        self.second = np.where(passes, self.first, np.where(behind, np.maximum(self.second, count), self.second))
        self._leader = np.where(passes, given, self._leader)
        self.first = np.where(given == self._leader, count, self.first)
        self._begun |= voted

    def value(self, compute: Callable[[_VoteTally], Floats]) -> Floats:
        """Return `compute` of each question's votes so far, shape ``(n_questions,)``; NaN before the first vote."""
        return np.where(self._begun, compute(self), np.nan)


def _over_rounds(ids: Floats, weights: Floats | None, compute: Callable[[_VoteTally], Floats]) -> Floats:
    """Return `compute` of the votes after each round, shape ``(n_questions, n_rounds)``."""
    tally = _VoteTally(len(ids), int(np.nan_to_num(ids).max(initial=0)) + 1)
    out = np.full(ids.shape, np.nan)
    for r in range(ids.shape[1]):
        tally.add(ids[:, r], None if weights is None else weights[:, r])
        out[:, r] = tally.value(compute)
    return out


def _leading_share(tally: _VoteTally) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(tally.total > 0, tally.first / tally.total, np.nan), dtype=np.float64)


def _lead_over_second(tally: _VoteTally) -> Floats:
    return tally.first - tally.second


def _vote_entropy(tally: _VoteTally) -> Floats:
    shares = tally.counts / np.maximum(tally.total, 1e-300)[:, None]
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return np.asarray(np.abs((shares * logs).sum(axis=1)), dtype=np.float64)  # 0 for a single answer, not -0


def _posterior_beta(tally: _VoteTally) -> Floats:
    """Return P(p > 1/2) with a uniform prior on p, the leader's share of the votes for the leader and the runner-up."""
    first, second = (votes.astype(np.int64) for votes in (tally.first, tally.second))
    table = _beta_table(int((first + second).max(initial=0)))
    return np.asarray(table[first + second, first], dtype=np.float64)


@lru_cache(maxsize=8)
def _beta_table(n: int) -> Floats:
    """Return a table of P(p > 1/2) for a Beta(a + 1, b + 1) at index (a + b, a), shape ``(n + 1, n + 1)``.

    An entry equals P(Binomial(a + b + 1, 1/2) <= a), which is the mean of the two entries with one vote less. So the
    table is exact.
    """
    table = np.zeros((n + 1, n + 1))
    table[0, 0] = 0.5
    for votes in range(1, n + 1):
        table[votes, 1 : votes + 1] += table[votes - 1, :votes] / 2
        table[votes, :votes] += table[votes - 1, :votes] / 2
        table[votes, votes] += 0.5  # half of the missing entry, which is P(Binomial(votes, 1/2) <= votes) = 1
    return table


def _evidence(tally: _VoteTally) -> Floats:
    """Return the log of the prior-posterior ratio at p = 1/2; p is the leader's share of its and the runner-up's votes.

    The prior is uniform, and the posterior density of a Beta(a + 1, b + 1) at 1/2 is (a + b + 1)! / (a! b! 2**(a + b)).
    """
    first, second = (votes.astype(np.int64) for votes in (tally.first, tally.second))
    n = first + second
    logs = np.cumsum(np.log(np.maximum(np.arange(int(n.max(initial=0)) + 2), 1)))  # logs of factorials
    return np.asarray(n * math.log(2) - logs[n + 1] + logs[first] + logs[second], dtype=np.float64)


def _posterior_dirichlet(tally: _VoteTally) -> Floats:
    """Return P(the leading answer has the largest share), with a uniform prior over the shares of the answers so far."""
    top = -np.sort(-tally.counts, axis=1)[:, :_MOST_FREQUENT]
    unique, inverse = np.unique(top, axis=0, return_inverse=True)
    values = np.array([_largest_share(tuple(row[row > 0].astype(int).tolist())) for row in unique])
    return values[inverse.reshape(-1)]


@lru_cache(maxsize=1 << 14)
def _largest_share(counts: tuple[int, ...]) -> float:
    """Return P(p_1 is the largest) for p from a Dirichlet(counts + 1) distribution; the highest count comes first.

    A Dirichlet variable consists of gamma variables divided by their sum. So one integral is left, over the density of
    the first variable times the distribution functions of all other variables. The integral is computed by Gauss-Legendre
    quadrature.
    """
    if len(counts) < 2:  # noqa: PLR2004 - one answer is compared with any other, as in the published code
        first = counts[0] if counts else 0
        return float(_beta_table(first)[first, first])
    shape = counts[0] + 1
    upper = shape + 12 * math.sqrt(shape) + 30
    nodes, weights = _legendre()
    x = (nodes + 1) * upper / 2
    density = np.exp((shape - 1) * np.log(x) - x - math.lgamma(shape))
    for count in counts[1:]:
        steps = np.arange(count + 1)
        log_terms = steps[:, None] * np.log(x) - x - np.array([math.lgamma(step + 1) for step in steps])[:, None]
        density = density * np.clip(1 - np.exp(log_terms).sum(axis=0), 0.0, 1.0)
    return float(min((weights * density).sum() * upper / 2, 1.0))


@lru_cache(maxsize=1)
def _legendre() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(400)
    return np.asarray(nodes), np.asarray(weights)


def _window_agreement(ids: Floats, size: int) -> Floats:
    """Return 1 at the end of each window of `size` rounds in which all answers are the same, else 0."""
    agree = np.zeros(ids.shape)
    for end in range(size, ids.shape[1] + 1, size):
        window = ids[:, end - size : end]
        agree[:, end - 1] = (window == window[:, :1]).all(axis=1)  # NaN, an unreadable answer, equals nothing
    return agree


def _repeats(ids: Floats) -> Floats:
    """Return 1 where an answer equals the previous answer, else 0; NaN where an answer cannot be read."""
    before = np.concatenate([np.full_like(ids[:, :1], np.nan), ids[:, :-1]], axis=1)
    return np.where(np.isnan(ids), np.nan, (ids == before).astype(np.float64))


def _joins(ids: Floats) -> Floats:
    """Return 1 where an answer equals the earliest leader of the votes before it, else 0; NaN where it cannot be read."""
    tally = _VoteTally(len(ids), int(np.nan_to_num(ids).max(initial=0)) + 1)
    joins = np.full(ids.shape, np.nan)
    for r in range(ids.shape[1]):
        joins[:, r] = _joins_now(tally, ids[:, r])
        tally.add(ids[:, r])
    return joins


def _joins_now(before: _VoteTally, ids: Floats) -> Floats:
    """Return `_joins` for one more round, given the votes before it."""
    if not before.counts.shape[1]:
        return np.where(np.isnan(ids), np.nan, 0.0)
    joins = (before.total > 0) & (before.counts.argmax(axis=1) == ids)
    return np.where(np.isnan(ids), np.nan, joins.astype(np.float64))


_FROM_EARLIER: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType(
    {"vote_repeats": _repeats, "vote_joins": _joins}
)

_FROM_COUNTS: Mapping[str, Callable[[_VoteTally], Floats]] = MappingProxyType(
    {
        "vote_share": _leading_share,
        "vote_lead": _lead_over_second,
        "vote_entropy": _vote_entropy,
        "posterior_majority": _posterior_beta,
        "posterior_plurality": _posterior_dirichlet,
        "vote_evidence": _evidence,
        "weighted_vote_share": _leading_share,
        "weighted_vote_lead": _lead_over_second,
    }
)

_WINDOW_SIZES = {f"window_agreement_{size}": size for size in WINDOWS}

_WINDOW_ENDS = {f"window_end_{DSC_WINDOW}": DSC_WINDOW}

VOTES = frozenset({ANSWER_ID, *_WINDOW_SIZES, *_WINDOW_ENDS, *_FROM_EARLIER, *_FROM_COUNTS})
"""The signals that a policy computes from all answers so far."""


def weights_of(names: Iterable[str]) -> frozenset[str]:
    """Return the signals that weight the votes, if there are weighted signals of votes among `names`; else the empty set."""
    return frozenset({WEIGHT} if any(name.startswith("weighted_") for name in VOTES.intersection(names)) else ())


def vote_signal(name: str, ids: Floats, weights: Floats | None = None) -> Floats:
    """Return a signal of `VOTES` after each round.

    >>> ids = np.array([[0.0, 1.0, 0.0, np.nan, 0.0]])
    >>> vote_signal("vote_lead", ids)
    array([[1., 0., 1., 1., 2.]])

    Args:
        name: The signal.
        ids: Result of `answer_ids`, shape ``(..., n_rounds)``.
        weights: For a weighted vote, the weight of each answer, same shape; an answer with NaN does not vote.
    """
    if name == ANSWER_ID:
        return ids
    flat = ids.reshape(-1, ids.shape[-1])
    if name in _WINDOW_ENDS:
        return np.broadcast_to(
            (np.arange(1, ids.shape[-1] + 1) % _WINDOW_ENDS[name] == 0).astype(np.float64), ids.shape
        )
    if name in _WINDOW_SIZES:
        return _window_agreement(flat, _WINDOW_SIZES[name]).reshape(ids.shape)
    if name in _FROM_EARLIER:
        return _FROM_EARLIER[name](flat).reshape(ids.shape)
    spread = None if weights is None else np.broadcast_to(weights, ids.shape).reshape(flat.shape)
    return _over_rounds(flat, spread, _FROM_COUNTS[name]).reshape(ids.shape)


class RunningVotes:
    """A running counter of one question's votes, which computes signals of votes and counts each answer only once.

    >>> from suffice.policy.normalizers import normalizer_of
    >>> votes = RunningVotes({"lead": "vote_lead"}, normalizer_of("number"))
    >>> votes.columns(["18", "20"]), votes.columns(["18", "20", None, "18.0"])
    ({'lead': array([1., 0.])}, {'lead': array([1., 0., 0., 1.])})

    Args:
        names: A map from the name of each resulting column to its signal.
        normalizer: The normalizer that compares answers. With a `Grouping`, which needs all answers at once, there are
            no running signals.

    Attributes:
        counts_weights: True if a signal counts each answer by its weight.
    """

    def __init__(self, names: Mapping[str, str], normalizer: Normalizer) -> None:
        self._names = {} if isinstance(normalizer, Grouping) else dict(names)
        self._normalizer = normalizer
        self._answers: list[Any] = []
        self._weighted = {name for name in self._names.values() if weights_of([name])}
        self.counts_weights = bool(self._weighted)

    def _begin(self) -> None:
        self._answers = []
        self._ids: list[float] = []
        self._known: dict[str, int] = {}
        self._tally, self._weighed = _VoteTally(1), _VoteTally(1)
        self._values: dict[str, list[float]] = {name: [] for name in self._names.values()}

    def columns(
        self, answers: Sequence[Any] | npt.NDArray[np.object_], weights: Floats | None = None
    ) -> dict[str, Floats]:
        """Return the columns, each of shape ``(n_rounds,)``; only answers since the last call are counted anew.

        Args:
            answers: All answers so far, None where missing.
            weights: The weight of each answer, shape ``(n_rounds,)``, if a signal counts weights; an answer with NaN
                does not vote.
        """
        if self._names:
            n_known = len(self._answers)
            if not n_known or n_known > len(answers) or self._answers[-1] != answers[n_known - 1]:
                self._begin()
            for r in range(len(self._answers), len(answers)):
                self._add(answers[r], None if weights is None else weights[r : r + 1])
        return {column: np.array(self._values[name]) for column, name in self._names.items()}

    def _add(self, answer: Any, weight: Floats | None) -> None:
        key = self._normalizer(answer) if isinstance(answer, str) else None
        self._answers.append(answer)
        self._ids.append(math.nan if key is None else float(self._known.setdefault(key, len(self._known))))
        ids = np.array(self._ids[-1:])
        joins = _joins_now(self._tally, ids)
        self._tally.add(ids)
        if self.counts_weights:
            self._weighed.add(ids, weight)
        for name, values in self._values.items():
            if name in _FROM_COUNTS:
                value = (self._weighed if name in self._weighted else self._tally).value(_FROM_COUNTS[name])
            elif name == "vote_joins":
                value = joins
            else:  # depends on the answers of this window, or on the last two
                size = {**_WINDOW_SIZES, **_WINDOW_ENDS}.get(name)
                begun = max(len(self._ids) - 2, 0) if size is None else (len(self._ids) - 1) // size * size
                value = vote_signal(name, np.array(self._ids[begun:]))[-1:]
            values.append(float(value[0]))


for _name, _unit, _range, _doc, _source in (
    (ANSWER_ID, "count", _VOTES_RANGE, "Which of the distinct answers so far this is, by the policy's normalizer.", ""),
    ("vote_share", "ratio", (0.0, 1.0), "Share of the votes that the leading answer has.", "Wang et al. (2023)"),
    ("vote_lead", "count", _VOTES_RANGE, "Votes of the leading answer minus those of the runner-up.", ""),
    ("vote_entropy", "nats", _VOTES_RANGE, "Entropy of the votes over the distinct answers.", _CONSISTENCY),
    (
        "posterior_majority",
        "probability",
        (0.0, 1.0),
        "P(the leading answer beats the runner-up), by a Beta posterior.",
        f"{_CONSISTENCY}, section 3",
    ),
    (
        "posterior_plurality",
        "probability",
        (0.0, 1.0),
        "P(the leading answer is the most frequent), by a Dirichlet posterior over the answers seen.",
        f"{_CONSISTENCY}, section 3",
    ),
    (
        "vote_evidence",
        "nats",
        (-math.inf, math.inf),
        "Log of the prior-posterior ratio against a tie of the leading answer and the runner-up, for ppr.",
        "PPR-1v1, Jain et al. (2022)",
    ),
    *(
        (
            name,
            "bool",
            (0.0, 1.0),
            f"This answer ends a window of {size}, and all answers of the window are the same.",
            "Early-stopping self-consistency, Li et al. (2024)",
        )
        for name, size in _WINDOW_SIZES.items()
    ),
    *(
        (name, "bool", (0.0, 1.0), f"This answer ends a window of {size}.", "DSC, Wang et al. (2025)")
        for name, size in _WINDOW_ENDS.items()
    ),
    ("vote_repeats", "bool", (0.0, 1.0), "Whether the answer equals the one before.", _RASC),
    ("vote_joins", "bool", (0.0, 1.0), "Whether the answer equals the most frequent one before it.", _RASC),
    (
        "weighted_vote_share",
        "ratio",
        (0.0, 1.0),
        "As vote_share, each vote weighted by p_correct.",
        "Wang et al. (2023)",
    ),
    ("weighted_vote_lead", "score", _VOTES_RANGE, "As vote_lead, each vote weighted by p_correct.", ""),
):
    declare(_name, _doc, _unit, _range, source=_source, component="")
declare(
    "verifier_score",
    "A verifier's score of the answer, higher for a better one.",
    "score",
    (-math.inf, math.inf),
    "verifier",
    component="verifier",
)
declare(
    "passed", "Whether the answer passed its tests or a checker.", "bool", (0.0, 1.0), "checker", component="checker"
)
declare(
    DIFFICULTY,
    "How hard the question is said to be before any answer, by whatever rank or score; the same in every round.",
    "score",
    (-math.inf, math.inf),
    DIFFICULTY,
    source="DSC, Wang et al. (2025)",
    component=DIFFICULTY,
)
declare(
    ALLOCATED,
    "Samples that difficulty-adaptive self-consistency allocates to the question beforehand, from its difficulty.",
    "count",
    (1.0, math.inf),
    DIFFICULTY,
    source="DSC, Wang et al. (2025)",
    component=DIFFICULTY,
    fitted=True,
)
