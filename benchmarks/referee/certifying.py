"""Attacks on `certify`: certificates of policies whose loss is epsilon or more."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.referee.attack import Attack, Shot
from benchmarks.referee.made import made, names, one_cap, sentences, sorted_reruns
from benchmarks.violations import gains_and_losses, harm_zero_inflated, rare_and_large
from suffice import Claim, Policy, certify
from suffice.errors import SufficeError
from suffice.policy.rules import fixed_k
from suffice.recordings import Recording
from suffice.verdicts.certificates import measure_losses
from suffice.verdicts.losses import IF_INDEPENDENT

DELTA = 0.05


def certified(recording: Recording, epsilon: float) -> Shot:
    """Return whether a cap of one round is certified."""
    try:
        result = certify(recording, ["fixed_k(1)"], Claim(epsilon=epsilon, metric="score"))
    except SufficeError as error:
        return Shot(false=False, refused=True, said=str(error))
    return Shot(result.policy is not None, said=" ".join([result.headline, *result.measured.notes]))


def at_epsilon(draw, loss: str, rng) -> Shot:
    """Test losses whose mean is epsilon."""
    claim = Claim(epsilon=0.05, loss=loss, metric="f1")
    return Shot(bool((claim.p_values(draw(rng, (1, 200), 0.05), DELTA) <= DELTA).any()))


def other_ids(rng, tries: int = 20) -> Shot:
    """Rename the questions until one of the orders of the bets is lucky; the texts stay."""
    n = 300
    drawn = rng.random(n)
    scores = np.stack([drawn >= 0.07, drawn < 0.98], axis=1).astype(float)
    columns = {"question": sentences(rng, n)}
    claim, cap = Claim(epsilon=0.05, metric="score"), Policy(rule=fixed_k(1), max_rounds=2)
    losses = (
        measure_losses(made(rng, scores, columns=columns, ids=names(rng, n)), [cap], claim).losses for _ in range(tries)
    )
    return Shot(any(claim.p_values(one, DELTA)[0] <= DELTA for one in losses))


def failed(rng) -> Shot:
    """Let 9 in 10 questions fail that more rounds would have saved; the cap loses 5 points."""
    scores = one_cap(rng, 400, 0.05, 3)
    fails = (scores[:, 0] == 0) & (rng.random(400) < 0.9)
    return certified(made(rng, scores, ends=np.where(fails, "failed", "max_rounds").tolist()), 0.04)


def reruns(rng) -> Shot:
    """Record each question three times, declared, and sort the runs of each by what the cap loses in them."""
    return certified(sorted_reruns(rng), 0.05)


def copies(kind: str, rng, size: int = 10) -> Shot:
    """Certify on thirty questions, each of them in ten copies under ids of their own."""
    n = 300
    scores = np.repeat(one_cap(rng, n // size, 0.05), size, axis=0)
    columns = {}
    if kind == "near texts":
        originals, ends = sentences(rng, n // size, 24), sentences(rng, n, 1)
        columns["question"] = [f"{originals[place // size]} {ends[place]}" for place in range(n)]
    return certified(made(rng, scores, columns=columns), 0.05)


ATTACKS = (
    *(
        Attack(
            name=f"certificate-{loss}-{name}",
            item="certify",
            claim=f"false certificate, the {loss} is epsilon: {name.replace('-', ' ')}",
            nominal=DELTA,
            repetitions=1000,
            run=partial(at_epsilon, draw, loss),
        )
        for loss, name, draw in (
            ("net", "gains-and-losses", gains_and_losses),
            ("net", "rare-and-large", rare_and_large),
            ("harm", "graded", harm_zero_inflated),
        )
    ),
    Attack(
        name="certificate-ids",
        item="certify",
        claim="false certificate under any of twenty sets of ids of the same questions",
        nominal=DELTA,
        repetitions=40,
        run=other_ids,
    ),
    Attack(
        name="certificate-failed",
        item="certify",
        claim="false certificate, questions failed that more rounds would have saved",
        nominal=DELTA,
        repetitions=60,
        run=failed,
    ),
    Attack(
        name="certificate-reruns",
        item="certify",
        claim="false certificate, three runs of each question, sorted by score",
        nominal=DELTA,
        repetitions=60,
        run=reruns,
    ),
    *(
        Attack(
            name=f"certificate-copies-{kind.replace(' ', '-')}",
            item="certify",
            claim=f"false certificate, thirty questions in ten copies: {kind}",
            nominal=DELTA,
            repetitions=80,
            run=partial(copies, kind),
            warning=IF_INDEPENDENT if kind == "no texts" else "",
        )
        for kind in ("near texts", "no texts")
    ),
)
