"""Selectors that compare rounds: by distances of drafts and runs of agreement, and by votes of independent samples.

Drafts rarely repeat their wording.  Samples have no order, so the ties of their votes are broken at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import RuleSyntaxError
from suffice.policy.normalizers import ANSWER_ID
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules.named import esc
from suffice.policy.rules.parse import parse_rule, register_selector
from suffice.policy.rules.rule import Rule, check_rules
from suffice.policy.rules.selectors import Selector, answered, last_of, nearest, total

DISTANCES = ("semantic_distance", *(f"semantic_distance_{back}" for back in range(2, 6)))
"""The signals that say how far a draft is from the one 1, 2, ... 5 rounds earlier."""


def pairwise_distances(rounds: Rounds) -> Floats:
    """Return the distance of every two drafts, shape ``(..., n_rounds, n_rounds)``, symmetric.

    The diagonal is 0. A distance is NaN if it is undefined, or if the drafts are more than five rounds apart.
    """
    shape = np.broadcast_shapes(*(rounds[name].shape for name in DISTANCES), rounds.seen.shape)
    n = shape[-1]
    distances = np.full((*shape, n), np.nan)
    distances[..., np.arange(n), np.arange(n)] = 0.0
    for back, name in enumerate(DISTANCES, 1):
        column = np.broadcast_to(rounds[name], shape)
        for later in range(back, n):
            distances[..., later, later - back] = distances[..., later - back, later] = column[..., later]
    return distances


@register_selector("centroid")
@dataclass(frozen=True, slots=True)
class Centroid(Selector):
    """The selector of the draft nearest to the centroid of the seen drafts' embeddings; of tied drafts, the latest.

    Embeddings have length 1, so the draft nearest to the direction of their mean is the draft with the smallest mean
    distance to all drafts. The signals `semantic_distance`, `semantic_distance_2`, ... hold these distances, so the
    embeddings are not needed. Pairs whose distance is undefined, and drafts more than five rounds apart, are left out
    of the means. A draft without a defined distance to any other draft is not chosen.
    """

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        distances = pairwise_distances(rounds)
        others = candidates[..., :, None] & candidates[..., None, :] & ~np.eye(len(rounds), dtype=np.bool_)
        known = others & ~np.isnan(distances)
        n = known.sum(axis=-1)
        sums = total(np.where(known, distances, 0.0))
        return nearest(np.where(n > 0, sums / np.maximum(n, 1), np.nan), np.asarray(-np.inf), candidates)

    @property
    def signals(self) -> frozenset[str]:
        return frozenset(DISTANCES)

    def __str__(self) -> str:
        return "centroid"


@dataclass(frozen=True, slots=True)
class LongestRun(Selector):
    """The selector of the last draft in the longest run of rounds that each agree with the previous one.

    Attributes:
        rule: A rule that fires where a round agrees with the one before: ``answer_stable >= 1``, or for drafts a
            distance below a threshold. A round where the rule does not fire, or is undefined, starts a new run.
    """

    rule: Rule

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        joins = np.broadcast_to(self.rule.fires(rounds), candidates.shape)
        lengths = np.zeros(candidates.shape)
        for r in range(candidates.shape[-1]):
            before = lengths[..., r - 1] if r else np.zeros(candidates.shape[:-1])
            lengths[..., r] = np.where(candidates[..., r], np.where(joins[..., r], before, 0.0) + 1, 0.0)
        return last_of(candidates & (lengths == lengths.max(axis=-1, keepdims=True)))

    @property
    def signals(self) -> frozenset[str]:
        return self.rule.signals

    def __str__(self) -> str:
        return f"longest_run({self.rule})"


@register_selector("longest_run")
def longest_run(rule: Rule | str) -> LongestRun:
    """Return the selector of the longest run of rounds at which a rule fires; the rule may be given by its name."""
    (agrees,) = check_rules("longest_run", [parse_rule(rule) if isinstance(rule, str) else rule], 1)
    return LongestRun(agrees)


_USUAL_WEIGHT = "p_correct"
RATIONALE_SCORE = "rationale_score"
"""The signal by which RASC weighs votes."""

_SEEDS = 2**64
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIXING = tuple(
    (np.uint64(shift), np.uint64(factor)) for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
)


@dataclass(frozen=True, slots=True)
class MajorityOfSamples(Selector):
    """The selector of the most frequent answer, by the policy's normalizer; ties are broken at random, by seed.

    Samples have no order, so the last one is not preferred, unlike in `majority`. An unreadable answer casts no vote.
    The choice among tied answers depends only on the seed and the votes, so it is the same live and in a replay.
    Evaluations take the expectation over all seeds instead (`shares`).

    Attributes:
        weight: A signal by which each vote is weighted; an answer whose signal is undefined does not vote. None = equal
            weights.
        seed: Seed of the choice among ties.
    """

    weight: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or not 0 <= self.seed < _SEEDS:
            raise RuleSyntaxError(f"the seed of a vote's ties is a whole number of 64 bits, not {self.seed!r:.40}")

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        leading = self.leading(rounds, candidates)
        drawn = _hash(np.where(candidates, rounds[ANSWER_ID], np.nan), self.seed) % np.maximum(
            leading.sum(axis=-1), 1
        ).astype(np.uint64)
        ranks = np.cumsum(leading, axis=-1) - 1
        return last_of(leading & (ranks == drawn[..., None].astype(np.int64)))

    def shares(self, rounds: Rounds, stop: Positions) -> Floats:
        candidates = answered(rounds) & (np.arange(len(rounds)) <= np.asarray(stop)[..., None])
        leading = self.leading(rounds, candidates)
        return np.asarray(leading / np.maximum(leading.sum(axis=-1, keepdims=True), 1), dtype=np.float64)

    def means_by_stop(self, rounds: Rounds, values: Floats, otherwise: Callable[[], Floats]) -> Floats:
        ids, voting, votes = self._votes(rounds, answered(rounds))
        given = np.where(voting, ids, 0).astype(np.int64)
        rows, width = np.arange(len(given)), int(given.max(initial=0)) + 1
        totals, latest = np.full((len(given), width), -np.inf), np.zeros((len(given), width))
        means = np.full(given.shape, np.nan)
        for r in range(given.shape[1]):
            cast = voting[:, r]
            at, answer = rows[cast], given[cast, r]
            before = totals[at, answer]
            totals[at, answer] = np.where(np.isneginf(before), 0.0, before) + votes[cast, r]
            latest[at, answer] = values[cast, r]
            tied = totals == totals.max(axis=1, keepdims=True)
            means[:, r] = np.where(tied, latest, 0.0).sum(axis=1) / tied.sum(axis=1)
        begun = np.logical_or.accumulate(voting, axis=1)
        return means if begun.all() else np.where(begun, means, otherwise())

    def _votes(self, rounds: Rounds, candidates: Mask) -> tuple[Floats, Mask, Floats]:
        """Return three arrays of shape ``(..., n_rounds)``: the answers' ids, a mask of the answers that vote, and the weights."""
        ids = np.broadcast_to(rounds[ANSWER_ID], candidates.shape)
        voting = candidates & ~np.isnan(ids)
        if self.weight is None:
            return ids, voting, voting.astype(np.float64)
        column = np.broadcast_to(rounds[self.weight], candidates.shape)
        voting = voting & ~np.isnan(column)
        return ids, voting, np.where(voting, column, 0.0)

    def leading(self, rounds: Rounds, candidates: Mask) -> Mask:
        """Return a mask of the leading answer, or of several if tied, each at its latest round; shape ``(..., n_rounds)``."""
        shape = candidates.shape
        ids, voting, votes = self._votes(rounds, candidates)
        row, place = np.nonzero(voting.reshape(-1, shape[-1]))
        given = ids.reshape(-1, shape[-1])[row, place].astype(np.int64)
        n_rows, width = voting.size // shape[-1], int(given.max(initial=0)) + 1
        voted = row * width + given
        cast = votes.reshape(-1, shape[-1])[row, place]
        totals = np.bincount(voted, cast, n_rows * width).astype(np.float64)  # adds in the order of the rounds
        totals[np.bincount(voted, minlength=n_rows * width) == 0] = -np.inf
        latest = np.zeros(n_rows * width, dtype=np.int64)
        latest[voted] = place  # of equal indices the last is kept
        most = totals.reshape(n_rows, width).max(axis=1)
        leading = np.zeros((n_rows, shape[-1]), dtype=np.bool_)
        keeps = (totals[voted] == most[row]) & (latest[voted] == place)
        leading[row[keeps], place[keeps]] = True
        return leading.reshape(shape)

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({ANSWER_ID}) | (frozenset() if self.weight is None else frozenset({self.weight}))

    def __str__(self) -> str:
        name = "majority_of_samples" if self.weight is None else "weighted_majority_of_samples"
        weight = [] if self.weight in (None, _USUAL_WEIGHT) else [self.weight]
        arguments = ", ".join(map(str, [*weight, *([self.seed] if self.seed else [])]))
        return f"{name}({arguments})" if arguments else name


@dataclass(frozen=True, slots=True)
class EscAnswer(MajorityOfSamples):
    """The selector of early-stopping self-consistency (ESC).

    It chooses the answer of the last window if this window is unanimous, else the most frequent answer.

    The authors' program returns the answer on which the last window agrees, even if a different answer has more votes.
    """

    window: int = 5

    @property
    def _agreement(self) -> str:
        return f"window_agreement_{self.window}"

    def _agreed(self, rounds: Rounds, candidates: Mask) -> tuple[Positions, Mask]:
        """Return the position of the last round with an answer, and a mask that is True if a unanimous window ends there."""
        last = last_of(candidates)
        agreement = np.broadcast_to(rounds[self._agreement], candidates.shape)
        at = np.take_along_axis(agreement, np.maximum(last, 0)[..., None], axis=-1)[..., 0]
        return last, (last >= 0) & (at >= 1)

    def among(self, rounds: Rounds, candidates: Mask) -> Positions:
        last, agreed = self._agreed(rounds, candidates)
        return np.where(agreed, last, MajorityOfSamples.among(self, rounds, candidates))

    def shares(self, rounds: Rounds, stop: Positions) -> Floats:
        last, agreed = self._agreed(rounds, answered(rounds) & (np.arange(len(rounds)) <= np.asarray(stop)[..., None]))
        alone = np.arange(len(rounds)) == last[..., None]
        return np.where(agreed[..., None], alone, MajorityOfSamples.shares(self, rounds, stop))

    def means_by_stop(self, rounds: Rounds, values: Floats, otherwise: Callable[[], Floats]) -> Floats:
        voted = MajorityOfSamples.means_by_stop(self, rounds, values, otherwise)
        return np.where(np.broadcast_to(rounds[self._agreement], voted.shape) >= 1, values, voted)

    @property
    def signals(self) -> frozenset[str]:
        return frozenset({ANSWER_ID, self._agreement})

    def __str__(self) -> str:
        return f"esc({self.window}, {self.seed})" if self.seed else f"esc({self.window})"


@dataclass(frozen=True, slots=True)
class RascAnswer(MajorityOfSamples):
    """The selector of reasoning-aware self-consistency (RASC): a vote among samples that score at least `threshold`.

    Votes are weighted by score.

    If no sample reaches the threshold, all samples vote.
    """

    weight: str | None = RATIONALE_SCORE
    threshold: float = 0.5

    def means_by_stop(self, rounds: Rounds, values: Floats, otherwise: Callable[[], Floats]) -> Floats:
        means = np.array(otherwise())
        for r in range(values.shape[1]):  # voters depend on the stop, so totals cannot be carried over to the next
            shares = self.shares(rounds, np.full(len(values), r))
            voted = shares.any(axis=1)
            means[voted, r] = np.where(shares > 0, shares * values, 0.0).sum(axis=1)[voted]
        return means

    def _votes(self, rounds: Rounds, candidates: Mask) -> tuple[Floats, Mask, Floats]:
        ids, voting, votes = MajorityOfSamples._votes(self, rounds, candidates)  # noqa: SLF001 - its own base
        accepted = voting & (votes >= self.threshold)
        return ids, np.where(accepted.any(axis=-1, keepdims=True), accepted, voting), votes

    def __str__(self) -> str:
        return f"rasc({self.threshold!r}, {self.seed})" if self.seed else f"rasc({self.threshold!r})"


def _hash(ids: Floats, seed: int) -> npt.NDArray[np.uint64]:
    """Return for each question a hash of the seed and its votes, shape ``(...)``; rounds without a vote are ignored.

    It uses the integer mixing steps of SplitMix64 (Steele et al., 2014), so it is the same on every machine.
    """
    place = np.arange(1, ids.shape[-1] + 1, dtype=np.uint64)
    mixed = np.asarray(np.nan_to_num(ids, nan=0.0).astype(np.uint64) + place * _STEP + np.uint64(seed))
    for shift, factor in _MIXING:
        mixed = (mixed ^ np.right_shift(mixed, shift)) * factor
    mixed = np.where(np.isnan(ids), np.uint64(0), mixed ^ np.right_shift(mixed, np.uint64(31)))
    return np.asarray(np.right_shift(mixed.sum(axis=-1, dtype=np.uint64), np.uint64(33)), dtype=np.uint64)


@register_selector("majority_of_samples")
def majority_of_samples(seed: int = 0) -> MajorityOfSamples:
    """Return the selector of the most frequent answer."""
    return MajorityOfSamples(None, seed)


@register_selector("weighted_majority_of_samples")
def weighted_majority_of_samples(weight: str | int = _USUAL_WEIGHT, seed: int = 0) -> MajorityOfSamples:
    """Return the selector of the answer with the largest sum of a signal, by default `p_correct`.

    >>> print(weighted_majority_of_samples("verifier_score"), weighted_majority_of_samples(7))
    weighted_majority_of_samples(verifier_score) weighted_majority_of_samples(7)

    Args:
        weight: A signal that is never negative. If it is a number, this number is the seed, and the signal is
            `p_correct`.
        seed: Seed of the choice among ties.
    """
    if isinstance(weight, str):
        return MajorityOfSamples(weight, seed)
    return MajorityOfSamples(_USUAL_WEIGHT, weight)


@register_selector("esc")
def esc_answer(window: int, seed: int = 0) -> EscAnswer:
    """Return the selector of early-stopping self-consistency; use it with the rule ``esc(window)`` of the same window.

    >>> print(esc_answer(5))
    esc(5)

    Args:
        window: Number of answers in a window, 2 to 10.
        seed: Seed of the choice among ties.
    """
    esc(window)  # refuses other sizes
    return EscAnswer(None, seed, int(window))


@register_selector("rasc")
def rasc_answer(threshold: float = 0.5, seed: int = 0) -> RascAnswer:
    """Return the selector of reasoning-aware self-consistency; use it with the rule ``rasc(threshold)``.

    >>> print(rasc_answer())
    rasc(0.5)
    """
    return RascAnswer(RATIONALE_SCORE, seed, float(threshold))
