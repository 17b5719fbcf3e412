"""Selectors for drafts, which rarely repeat their wording: by distances in meaning, and by runs of agreement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules.parse import parse_rule, register_selector
from suffice.policy.rules.rule import Rule, check_rules
from suffice.policy.rules.selectors import Selector, last_of, nearest, total

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

    Embeddings have length 1, so the draft nearest to the direction of their mean is the one with the smallest mean
    distance to all drafts. The signals `semantic_distance`, `semantic_distance_2`, ... hold these distances, so the
    embeddings are not needed. Pairs whose distance is undefined, and drafts more than five rounds apart, are left out
    of the means. A draft without any distance to another draft is not chosen.
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
