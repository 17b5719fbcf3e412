"""Attacks on intervals, tests and calibration reports."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.stats import norm

from benchmarks.referee.attack import Attack, Shot
from benchmarks.referee.made import made, names
from suffice import replay
from suffice.evaluation.replay import policy_for
from suffice.evaluation.statistics import Resampling, area_under_roc
from suffice.policy.calibration import calibration_report
from suffice.policy.rounds import Floats
from suffice.verdicts.decisions.losses import Totals, measure_candidates

MARGIN = 0.02


def rare(rng, n: int) -> Floats:
    """Return differences of which 2 % are -1: a loss of exactly 2 points."""
    return -(rng.random(n) < MARGIN).astype(float)


def ties(rng, n: int) -> Floats:
    """Return differences of mean 0 of which 94 % are 0, the others -1 or 1."""
    return np.where(rng.random(n) < 0.06, rng.choice([-1.0, 1.0], n), 0.0)


def skew(rng, n: int) -> Floats:
    """Return differences of mean 0: 3 % lose 1, 30 % gain a tenth."""
    drawn = rng.random(n)
    return np.where(drawn < 0.03, -1.0, np.where(drawn > 0.7, 0.1, 0.0))


def resampled(rng, n: int, n_resamples: int):
    """Return the draws of `n` questions with other names each time."""
    return Resampling(n_resamples=n_resamples).draws(names(rng, n))


def shown(n: int, rng) -> Shot:
    """Test whether a loss of exactly the margin is smaller than the margin."""
    return Shot(resampled(rng, n, 100).non_inferior(rare(rng, n), MARGIN).shown)


def interval(draw, n: int, rng) -> Shot:
    """Ask whether the interval of a mean difference of 0 misses 0."""
    result = resampled(rng, n, 400).paired(draw(rng, n))
    return Shot(result.low > 1e-12 or result.high < -1e-12, said=result.warning)


def permuted(draw, n: int, rng) -> Shot:
    """Ask whether the permutation test calls a mean difference of 0 significant."""
    result = resampled(rng, n, 500).compare({"rule": draw(rng, n)}, family=["rule"])["rule"]
    return Shot(result.p <= 0.05, said=result.warning)


def roc(n: int, positive: float, shift: float, rng) -> Shot | None:
    """Ask whether the interval of an area under the curve misses it."""
    right = rng.random(n) < positive
    area = area_under_roc(rng.normal(size=n) + shift * right, right.astype(float))
    if np.isnan(area.low):
        return None
    true = norm.cdf(shift / np.sqrt(2))
    return Shot(not area.low <= true <= area.high)


def calibrated(rng) -> Shot:
    """Ask whether the error of a calibrated signal exceeds what is said to be usual of one."""
    p = rng.beta(2, 1.2, 100)
    report = calibration_report(p, (rng.random(100) < p).astype(float))
    return Shot(report.ece > 2 * report.ece_if_calibrated)


def twin(signal: float, rng) -> Shot:
    """Compare a rule with its random twin, where quality rises by round, and its signal says nothing (or something)."""
    n, means = 100, np.array([0.2, 0.5, 0.7, 0.8])
    scores = (rng.random((n, 1)) < means).astype(float)
    signals = rng.normal(size=scores.shape) + signal * (scores - 0.5)
    recording = made(rng, scores, of_rounds={"answer_margin": signals})
    rule = "answer_margin > 0.7"
    result = replay(
        recording, rule, baseline=f"random({rule})", metrics="score", resampling=Resampling(n_resamples=200)
    )
    delta = next(row for row in result.rows if row.label.startswith("answer")).deltas["score"]
    return Shot(not delta.low <= 0 <= delta.high)


def twin_in_files(n: int, rng) -> Shot:
    """Compare a rule with its random twin as `decide` does, with files of `n` questions one after another, 100 in all."""
    totals = Totals.start(1)
    for _ in range(100 // n):
        scores = (rng.random((n, 1)) < np.array([0.2, 0.5, 0.7, 0.8])).astype(float)
        recording = made(rng, scores, of_rounds={"answer_margin": rng.normal(size=scores.shape)})
        policies = [policy_for(recording, "answer_margin > 0.7", max_rounds=4)]
        totals += measure_candidates(recording, policies, "recorded", "score", with_twins=[0]).totals
    _, low, high = totals.gain_interval()
    return Shot(not low[0] <= 0 <= high[0])


def hull(rng) -> Shot:
    """Judge a rule whose quality a mixture of fixed_k(1) and fixed_k(3) exceeds by 10 points at the same cost."""
    n = 200
    scores = np.repeat(np.array([[0.2, 0.3, 0.8]]), n, axis=0)
    stops_first, runs_on = np.arange(n) < n // 10, np.arange(n) >= n - n // 10
    scores[stops_first, :2], scores[runs_on, :3] = (1.0, 1.0), (0.0, 0.0, 1.0)
    signals = np.stack([stops_first, ~runs_on, np.ones(n)], axis=1).astype(float)
    recording = made(rng, scores, of_rounds={"answer_margin": signals})
    result = replay(recording, "answer_margin > 0.5", metrics="score", resampling=Resampling(n_resamples=100))
    row = next(row for row in result.rows if row.label.startswith("answer"))
    return Shot(row.dominated_by is None, said=" ".join(row.notes))


ATTACKS = (
    *(
        Attack(
            name=f"margin-{n}",
            item="replay",
            claim=f"margin table, n = {n}: shown although the loss is the margin",
            nominal=0.05,
            repetitions=60,
            run=partial(shown, n),
        )
        for n in (50, 200)
    ),
    *(
        Attack(
            name=f"interval-{name}-{n}",
            item="replay",
            claim=f"interval of a mean difference misses it, n = {n}: {said}",
            nominal=0.05,
            repetitions=400,
            run=partial(interval, draw, n),
            warning="pairs differ",
        )
        for name, said, draw in (("ties", "94 % ties", ties), ("skew", "3 % lose 1, 30 % gain a tenth", skew))
        for n in (50, 200)
    ),
    *(
        Attack(
            name=f"permutation-skew-{n}",
            item="replay",
            claim=f"permutation test, n = {n}: significant without a difference, 3 % lose 1, 30 % gain a tenth",
            nominal=0.05,
            repetitions=400,
            run=partial(permuted, skew, n),
            warning="pairs differ",
        )
        for n in (50, 200)
    ),
    Attack(
        name="auroc",
        item="diagnose",
        claim="interval of an AUROC misses it, n = 100, 10 % positive",
        nominal=0.05,
        repetitions=500,
        run=partial(roc, 100, 0.1, 1.0),
    ),
    Attack(
        name="ece",
        item="calibrate",
        claim="the error of a calibrated signal is twice what is said to be usual of one, n = 100",
        nominal=0.05,
        repetitions=300,
        run=calibrated,
    ),
    Attack(
        name="twin",
        item="replay",
        claim="interval against the random twin misses 0, the signal says nothing",
        nominal=0.05,
        repetitions=300,
        run=partial(twin, 0.0),
        exact=True,
    ),
    *(
        Attack(
            name=f"twin-files-{n}",
            item="decide",
            claim=f"interval of the gain over the random twin misses 0, 100 questions in files of {n}, the signal says nothing",
            nominal=0.05,
            repetitions=repetitions,
            run=partial(twin_in_files, n),
            exact=True,
        )
        for n, repetitions in ((100, 400), (10, 200))
    ),
    Attack(
        name="hull",
        item="replay",
        claim="a rule that a mixture of two budgets beats is not called dominated",
        nominal=0.0,
        repetitions=5,
        run=hull,
        warning="a mixture of",
    ),
)
