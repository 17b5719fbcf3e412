"""Attacks on `watch`: alarms at a loss that is within the bound, and what it says would have been noticed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks.referee.attack import Attack, Shot
from suffice import Policy, watch
from suffice.evaluation.statistics import Alarm
from suffice.policy.rounds import Floats, Mask
from suffice.recordings import Recording
from suffice.verdicts.watches.evidence import audits_needed

BOUND, ALPHA, DAY = 0.02, 0.05, 86_400.0
START = 1.7e9
POLICY = Policy(rule="round >= 1", max_rounds=2)


def log(losses: Mask, drawn: Mask, rate: float, times: Floats, *, open_: Mask | None = None, texts=None) -> Recording:
    """Return the log of a policy that stops after round 1: audited requests run on, and their golds may be open."""
    n = len(losses)
    request = np.repeat(np.arange(n), np.where(drawn, 2, 1))
    second = np.concatenate([[False], request[1:] == request[:-1]])
    score = np.where(second, 1.0, 1.0 - losses[request])
    if open_ is not None:
        score = np.where(open_[request], np.nan, score)
    names = np.array([f"r{place}" for place in range(n)], dtype=object)
    texts = np.array([f"question {place}" for place in range(n)] if texts is None else texts, dtype=object)
    audited = drawn[request]
    columns = {
        "question_id": pa.array(names[request].tolist()),
        "question": pa.array(texts[request].tolist()),
        "round": pa.array(1 + second.astype(np.int64)),
        "answer": pa.array(np.where(losses[request] & ~second, "a", "b").tolist()),
        "em": pa.array(score, from_pandas=True),
        "end": pa.array(np.where(audited, "max_rounds", "rule").tolist()),
        "policy_digest": pa.array([POLICY.digest] * len(request)),
        "stop_round": pa.array(np.ones(len(request), dtype=np.int64)),
        "answer_round": pa.array(np.ones(len(request), dtype=np.int64)),
        "stop_reason": pa.array(["rule"] * len(request)),
        "audit_rate": pa.array(np.full(len(request), rate)),
        "audited": pa.array(audited.astype(np.float64)),
        "recorded_at": pa.array(times[request]),
        "cost.generator.calls": pa.array(np.ones(len(request))),
    }
    return Recording(pa.table(columns), {})


def late_golds(loss: float, rng) -> Shot:
    """Look every ten days at a log in which the golds of losses come at once, and others when they come."""
    days, a_day, rate = 60, 80, 0.5
    n = days * a_day
    losses, drawn = rng.random(n) < loss, rng.random(n) < rate
    day = np.repeat(np.arange(days), a_day)
    due = day + np.where(losses, 0.0, rng.exponential(15.0, n))
    for look in range(10, days + 1, 10):
        now = day < look
        recording = log(losses[now], drawn[now], rate, START + day[now] * DAY, open_=(due > look)[now])
        result = watch(recording, POLICY, metric="em", max_loss=BOUND, now=START + look * DAY + 4_000)
        if result.rang:
            return Shot(false=True, said=result.sentence)
    return Shot(false=False, said=result.sentence)


def changed_seed(rng) -> Shot:
    """Change the seed of the audit half-way through a log that repeats its questions."""
    n, questions, rate = 4000, 1500, 0.1
    weights = 1 / np.arange(1, questions + 1) ** 0.9
    weights /= weights.sum()
    while True:  # a mean loss of requests that is within the bound
        lossy = rng.random(questions) < BOUND
        if 0.75 * BOUND <= weights @ lossy <= BOUND:
            break
    asked = rng.choice(questions, n, p=weights)
    asked = asked[np.argsort(rng.random(questions)[asked] + rng.normal(0, 0.05, n))]  # each mostly within a day
    draws = rng.random((2, questions)) < rate
    drawn = np.where(np.arange(n) < n // 2, draws[0][asked], draws[1][asked])
    texts = [f"question {place}" for place in asked.tolist()]
    recording = log(lossy[asked], drawn, rate, START + 60.0 * np.arange(n), texts=texts)
    result = watch(recording, POLICY, metric="em", max_loss=BOUND, now=START + 90 * DAY)
    return Shot(result.rang, said=" ".join([result.sentence, *result.notes]))


def at_the_bound(rng) -> Shot:
    """Let the loss of 20,000 audits be the bound."""
    return Shot(bool(Alarm.start(BOUND, ALPHA, low=0.0).observe((rng.random(20_000) < BOUND).astype(float)).rings))


def changes(rng, n_policies: int = 8, each: int = 500) -> Shot:
    """Deploy eight policies one after another, each with a loss at the bound, and watch each in the log of all."""
    n = n_policies * each
    policies = [Policy(rule=f"round >= 1 | round >= {9 + place}", max_rounds=2) for place in range(n_policies)]
    of_all = log(rng.random(n) < BOUND, np.ones(n, dtype=bool), 1.0, START + 60.0 * np.arange(n))
    at = of_all.table.column_names.index("policy_digest")
    digests = [policies[place // each].digest for place in of_all.row_question.tolist()]
    recording = Recording(of_all.table.set_column(at, "policy_digest", pa.array(digests)), {})
    for policy in policies:
        result = watch(recording, policy, metric="em", max_loss=BOUND, now=START + 90 * DAY)
        if result.rang:
            return Shot(false=True, said=result.sentence)
    return Shot(false=False, said=result.sentence)


def season(rng) -> Shot:
    """Let the loss be 1 point for three quarters of a year and 4.8 for one, twice: a mean of 1.95."""
    n = 12_000
    rates = np.where(np.arange(n) % (n // 2) < 3 * n // 8, 0.01, 0.048)
    recording = log(rng.random(n) < rates, np.ones(n, dtype=bool), 1.0, START + 3600.0 * np.arange(n))
    result = watch(recording, POLICY, metric="em", max_loss=BOUND, now=START + 1000 * DAY)
    return Shot(result.rang, said=result.sentence)


def noticed(before: int, rng) -> Shot:
    """Let the loss rise by 5 points for as many audits as are said to show it."""
    n = audits_needed(BOUND, 0.0, alpha=ALPHA, rise=0.05, before=before)
    rates = np.concatenate([np.full(before, BOUND / 4), np.full(n, BOUND + 0.05)])
    alarm = Alarm.start(BOUND, ALPHA, low=0.0).observe((rng.random(len(rates)) < rates).astype(float))
    return Shot(not bool(alarm.rings))


ATTACKS = (
    *(
        Attack(
            name=f"late-golds-{name}",
            item="watch",
            claim=f"false alarm, a loss of {points}, golds of losses come first",
            nominal=ALPHA,
            repetitions=20,
            run=partial(late_golds, loss),
        )
        for name, points, loss in (("bound", "2 points, the bound", BOUND), ("half", "half the bound", BOUND / 2))
    ),
    Attack(
        name="audit-seed",
        item="watch",
        claim="false alarm, repeated questions and a changed seed of the audit",
        nominal=ALPHA,
        repetitions=60,
        run=changed_seed,
    ),
    Attack(
        name="alarm-bound",
        item="watch",
        claim="false alarm, 20,000 audits at the bound",
        nominal=ALPHA,
        repetitions=300,
        run=at_the_bound,
    ),
    Attack(
        name="alarm-policies",
        item="watch",
        claim="false alarm for any of eight policies of one log, each at the bound",
        nominal=ALPHA,
        repetitions=60,
        run=changes,
    ),
    Attack(
        name="alarm-season",
        item="watch",
        claim="alarm in a bad season of a year whose mean is within the bound",
        nominal=ALPHA,
        repetitions=20,
        run=season,
        warning="for a while",
    ),
    *(
        Attack(
            name=f"noticed-{before}",
            item="watch",
            claim=f"a rise of 5 points after {before:,} good audits is not noticed in the time that is said",
            nominal=0.2,
            repetitions=200,
            run=partial(noticed, before),
        )
        for before in (0, 2_000, 20_000)
    ),
)
