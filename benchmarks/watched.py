"""Deployments of a rule by simulation: audited losses whose mean changes, watched by an alarm, by intervals and by a CUSUM.

Losses are those that stopping rules really had on bundled recordings; to move their mean, losing becomes more or less frequent,
while gains stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy import stats

from suffice import Policy
from suffice.evaluation.statistics import Alarm
from suffice.policy.rounds import Floats
from suffice.recordings import bundled_recording
from suffice.verdicts.certificates import Claim
from suffice.verdicts.certificates.losses import measure_losses

RUNS, SEED, ALPHA, EPSILON = 1000, 42, 0.05, 0.02
QUESTIONS, A_DAY, CHUNK = 100_000, 1000, 1000
FEW = 30
"""Audits from which on the interval of normal theory is looked at."""


@dataclass(frozen=True, slots=True)
class Population:
    """Losses that a rule had on recorded questions: how often it gained, and by how much it gained and lost."""

    name: str
    gained: float
    gains: Floats
    losses: Floats

    def lost(self, mean):
        """Return the share of questions that must lose for a mean loss."""
        return (mean - self.gained * self.gains.mean()) / self.losses.mean()

    def draw(self, rng, shape, mean):
        """Return losses whose expectation is `mean`, one for all or one for each question."""
        share = self.lost(np.asarray(mean, dtype=float))
        drawn = rng.random(shape)
        gain = self.gains[np.minimum(drawn / self.gained * len(self.gains), len(self.gains) - 1).astype(int)]
        place = np.clip((drawn - self.gained) / share, 0, 1) * len(self.losses)
        loss = self.losses[np.minimum(place, len(self.losses) - 1).astype(int)]
        return np.where(drawn < self.gained, gain, np.where(drawn < self.gained + share, loss, 0.0))


RECORDED = (("panel_gsm8k", "lead(2)", 30), ("samples_aqua", "lead(2)", 20), ("panel_cruxeval", "lead(3)", 24))
"""Recordings, rules and rounds: from losses that are hardly ever not 0 to ones that are often not."""
USUAL = 1


@cache
def population(place: int) -> Population:
    """Return what a rule lost against the full run on a bundled recording, in the recorded order of samples."""
    name, rule, rounds = RECORDED[place]
    policy = Policy(rule=rule, selector="majority_of_samples", max_rounds=rounds)
    claim = Claim(epsilon=EPSILON, metric="match", orders=1)
    measured = measure_losses(bundled_recording(name), [policy], claim)
    shuffled = np.random.default_rng(SEED).permutation(np.argsort(np.asarray(measured.question_ids), kind="stable"))
    losses = measured.losses[0][shuffled]
    gains = losses[losses < 0]
    return Population(f"{name}, {rule}", gains.size / losses.size, gains, losses[losses > 0])


def kept(alarm: Alarm, places) -> Alarm:
    """Return some of the runs of an alarm."""
    names = ("log_capital", "begun", "due", "log_value", "log_highest", "rang_at")
    return replace(alarm, **{name: getattr(alarm, name)[places] for name in names})


def looked_at(losses: Floats, daily: int, days: int | None):
    """Return which runs ever have a one-sided 95 % interval above the bound, at the end of any day."""
    ends = np.arange(daily, losses.shape[-1] + 1, daily)
    firsts = np.zeros_like(ends) if days is None else np.maximum(ends - days * daily, 0)
    sums, squares = (
        np.concatenate([np.zeros((len(losses), 1)), np.cumsum(losses**k, axis=-1)], axis=-1) for k in (1, 2)
    )
    n = ends - firsts
    mean = (sums[:, ends] - sums[:, firsts]) / n
    variance = np.maximum((squares[:, ends] - squares[:, firsts]) / n - mean**2, 0.0)
    low = mean - stats.norm.ppf(1 - ALPHA) * np.sqrt(variance / n)
    return ((low > EPSILON) & (n >= FEW) & (variance > 0)).any(axis=-1)


def cusum(losses: Floats) -> Floats:
    """Return Page's cumulative sum after each audit, for a change to two points above the bound."""
    walk = np.cumsum(losses - EPSILON - 0.01, axis=-1)
    return walk - np.minimum(np.minimum.accumulate(walk, axis=-1), 0.0)


@cache
def cusum_threshold(rate: float, runs: int = 2 * RUNS, questions: int = QUESTIONS) -> float:
    """Return the threshold that the usual losses at the bound pass in 5 % of runs over these questions."""
    rng = np.random.default_rng(SEED + 1)
    losses = population(USUAL).draw(rng, (runs, round(rate * questions)), EPSILON)
    return float(np.quantile(cusum(losses).max(axis=-1), 1 - ALPHA))


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the mean loss at a question, and how it is watched."""

    before: float
    after: float
    age: int
    rate: float
    place: int = USUAL
    low: float = -1.0


def drawn(change: Change, rng, runs: int, n: int, mean: float) -> Floats:
    """Return audited losses; `harm` counts no gains."""
    source = population(change.place)
    return (replace(source, gained=1e-12) if change.low == 0 else source).draw(rng, (runs, n), mean)


def chunks(change: Change, rng, runs: int, followed: int) -> Iterator[tuple[int, Floats]]:
    """Yield the audited losses after a change, and how many came before them; the audits of `followed` questions and some."""
    last = int(change.rate * followed + 6 * (change.rate * followed) ** 0.5)
    for first in range(0, last, CHUNK):
        yield first, drawn(change, rng, runs, min(CHUNK, last - first), change.after)


def delays(change: Change, runs: int, followed: int) -> tuple[Floats, float]:
    """Return after how many questions the alarm rings, infinite if not in those followed, and the share that rang before."""
    rng = np.random.default_rng(SEED)
    alarm = Alarm.start(EPSILON, ALPHA, low=change.low, shape=(runs,))
    alarm = alarm.observe(drawn(change, rng, runs, round(change.rate * change.age), change.before))
    rang_before = float(alarm.rings.mean())
    alarm = kept(alarm, ~alarm.rings)
    began, silent = alarm.n, np.arange(len(alarm.rings))
    audits = np.full(len(silent), np.inf)
    for _, losses in chunks(change, rng, runs, followed):
        alarm = alarm.observe(losses[: len(silent)])
        audits[silent[alarm.rings]] = alarm.rang_at[alarm.rings] - began
        silent, alarm = silent[~alarm.rings], kept(alarm, ~alarm.rings)
        if not len(silent):
            break
    return as_questions(audits, change.rate, followed, rng), rang_before


def as_questions(audits: Floats, rate: float, followed: int, rng) -> Floats:
    """Return at which question an audit falls if each is drawn with a probability."""
    counts = np.where(np.isfinite(audits), audits, 1)
    questions = counts + rng.negative_binomial(counts, rate)
    return np.where(np.isfinite(audits) & (questions <= followed), questions, np.inf)


def cusum_delays(change: Change, runs: int, followed: int) -> Floats:
    """Return the same of the CUSUM that is right for the usual losses over 100,000 questions."""
    rng, threshold = np.random.default_rng(SEED), cusum_threshold(change.rate)
    walk = drawn(change, rng, runs, round(change.rate * change.age), change.before)
    level = cusum(walk)[:, -1] if walk.shape[-1] else np.zeros(runs)
    audits = np.full(runs, np.inf)
    for first, losses in chunks(change, rng, runs, followed):
        steps = losses - EPSILON - 0.01
        steps[:, 0] += level
        path = np.cumsum(steps, axis=-1)
        path -= np.minimum(np.minimum.accumulate(path, axis=-1), 0.0)
        level, reached = path[:, -1], path >= threshold
        audits = np.where(np.isinf(audits) & reached.any(axis=-1), first + 1 + reached.argmax(axis=-1), audits)
        if np.isfinite(audits).all():
            break
    return as_questions(audits, change.rate, followed, rng)
