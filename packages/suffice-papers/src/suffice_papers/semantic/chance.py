"""Compare a policy with the same stops assigned to questions at random, to test the contribution of its signals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from suffice.evaluation.replay.outcomes import answers_by_stop, values_by_stop
from suffice.evaluation.statistics import ROUNDING, Resampling
from suffice.policy.rounds import Floats
from suffice.policy.session import Policy
from suffice_papers.multinomial import draws_by_place
from suffice_papers.semantic.data import Drafts


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """The quality of a policy minus the expected quality if its stops were randomly permuted over the questions.

    Attributes:
        delta: The difference of means.
        low: Lower end of the difference's percentile bootstrap interval; each resample permutes its own stops.
        high: Upper end of the interval.
        p: Two-sided p-value of the permutation test; NaN if several rows belong to one question, because their stops
            cannot be permuted one by one.
        n_resamples: Number of bootstrap draws, and of permutations.
    """

    delta: float
    low: float
    high: float
    p: float
    n_resamples: int


def against_chance(
    drafts: Drafts,
    policies: Mapping[str, Policy],
    *,
    resampling: Resampling = Resampling(),
) -> dict[str, Chance]:
    """Compare each policy with its own stops, randomly permuted over the questions.

    A paired t test is not suitable, because the expectation for a question depends on the policy's own stops. The two
    values of a pair therefore differ only by a share of the differences between the question's rounds, whether or not
    the signal is of use.

    Args:
        drafts: The questions.
        policies: The policies by label.
        resampling: Settings of the intervals; its seed also draws the permutations.
    """
    draws = draws_by_place(resampling, drafts.n, drafts.prepared.recording.clusters)
    results = {}
    for label, policy in policies.items():
        stopped = drafts.prepared.stops(policy)
        view = stopped.view
        metric = drafts.prepared.in_view(drafts.prepared.metrics[drafts.metric], view)
        by_stop = values_by_stop(answers_by_stop(policy.selector, view), view.seen, metric)
        dealt = np.zeros(by_stop.shape)
        dealt[np.arange(drafts.n), stopped.position] = 1.0
        # The expectation depends only on the means of these rows, so one matrix product serves all resamples.
        rows = np.concatenate([(by_stop * dealt).sum(axis=1)[None], by_stop.T, dealt.T])
        drawn = draws.sums(rows) / draws.sums(np.ones(drafts.n))
        resampled = _gain(drawn)
        low, high = np.quantile(resampled, resampling.ends)
        delta = float(_gain(rows.mean(axis=1)))
        p = _permutations(by_stop, stopped.position, resampling) if draws.clusters is None else np.nan
        results[label] = Chance(delta=delta, low=float(low), high=float(high), p=p, n_resamples=resampling.n_resamples)
    return results


def _gain(means: Floats) -> Floats:
    """Return the quality minus its expectation for randomly permuted stops.

    Args:
        means: First the mean quality, then for each round the mean quality if all questions stop there, then for each
            round the share of stops.
    """
    n_rounds = (len(means) - 1) // 2
    gain: Floats = means[0] - (means[1 : n_rounds + 1] * means[n_rounds + 1 :]).sum(axis=0)
    return np.where(np.abs(gain) <= ROUNDING, 0.0, gain)


def _permutations(by_stop: Floats, position: np.typing.NDArray[np.int64], resampling: Resampling) -> float:
    n_resamples = resampling.n_resamples
    rng, rows = np.random.default_rng(resampling.seed), np.arange(len(by_stop))
    dealt = np.array([by_stop[rows, rng.permutation(position)].mean() for _ in range(n_resamples)])
    shares = np.bincount(position, minlength=by_stop.shape[1]) / len(by_stop)
    # The exact mean over all permutations; the drawn ones only estimate the spread around it.
    expected = float(by_stop.mean(axis=0) @ shares)
    away = abs(float(by_stop[rows, position].mean()) - expected) - ROUNDING
    return float((1 + (np.abs(dealt - expected) >= away).sum()) / (1 + n_resamples))
