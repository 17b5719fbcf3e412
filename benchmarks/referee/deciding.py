"""Attacks on `decide`: advice that loses what it excludes, and what is printed beside it."""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from benchmarks.referee.attack import Attack, Shot
from benchmarks.referee.made import graded, made, names, nested_caps, one_cap, sentences, sorted_reruns, three_caps
from suffice import decide
from suffice.errors import SufficeError
from suffice.policy.rounds import Floats
from suffice.recordings import Recording
from suffice.recordings.schema import ASSUMED_END
from suffice.verdicts.decisions import Labels
from suffice.verdicts.losses import IF_INDEPENDENT

MOST = 4000
"""The most further questions that are recorded here."""


def advised(recording: Recording, max_loss: float) -> Shot:
    """Return whether a change is advised, which is false wherever every change loses `max_loss`."""
    try:
        advice = decide(recording, metric="score", max_loss=max_loss)
    except SufficeError as error:
        return Shot(false=False, refused=True, said=str(error))
    return Shot(advice.verdict == "do it", said=" ".join([advice.sentence, *advice.notes]))


# Questions as assumed


def of_population(population: str, rng) -> Shot:
    """Decide on independent questions in which every cap loses exactly what is accepted."""
    if population == "graded":
        return advised(made(rng, graded(rng, 200, 0.05)), 0.05)
    gain, lose = {"rare losses": (0.0, 0.05), "gains and losses": (0.05, 0.1)}[population]
    return advised(made(rng, three_caps(rng, 200, gain, lose)), 0.05)


def visits(rng) -> Shot:
    """Come back with 20 more questions twenty times, and stop at the first advice."""
    advice = decide(made(rng, three_caps(rng, 100, 0.05, 0.1)), metric="score", max_loss=0.05)
    for _ in range(20):
        if advice.verdict == "do it":
            break
        advice = decide(made(rng, three_caps(rng, 20, 0.05, 0.1)), metric="score", previous=advice)
    return Shot(advice.verdict == "do it", said=advice.sentence)


def drift(loss: float, rng) -> Shot | None:
    """Given advice after 300 questions that lose next to nothing, come back ten times with questions that lose `loss`.

    At the bound, the alarm must not ring; below it, the advice must not be taken back for any reason.
    """
    bound = 0.05
    advice = decide(made(rng, one_cap(rng, 300, 0.005)), metric="score", max_loss=bound)
    if advice.verdict != "do it":
        return None
    for _ in range(10):
        advice = decide(made(rng, one_cap(rng, 150, loss)), metric="score", previous=advice)
        wrong = advice.trial.rung.any() if loss >= bound else advice.verdict != "do it"
        if wrong:
            return Shot(false=True, said=advice.sentence)
    return Shot(false=False, said=advice.sentence)


def margins(rng) -> Shot:
    """Accept the smallest of five losses that passes; all caps lose 5 points."""
    recording = made(rng, three_caps(rng, 400, 0.05, 0.1))
    shots = [advised(recording, points / 100) for points in range(1, 6)]
    return Shot(any(shot.false for shot in shots), said=shots[-1].said)


def other_ids(rng, tries: int = 20) -> Shot:
    """Rename the questions until one of the divisions into tune questions and others is lucky; the texts stay."""
    scores = three_caps(rng, 200, 0.05, 0.1)
    columns = {"question": sentences(rng, 200)}
    shots = [advised(made(rng, scores, columns=columns), 0.05) for _ in range(tries)]
    return Shot(any(shot.false for shot in shots), said=shots[-1].said)


# Dependent questions


def copies(kind: str, rng, size: int = 10) -> Shot:
    """Decide on twenty questions, each of them in ten copies under ids of their own."""
    n = 200
    scores = np.repeat(three_caps(rng, n // size, 0.05, 0.1), size, axis=0)
    columns, rounds = {}, {}
    originals = sentences(rng, n // size, 24)
    if kind == "equal texts":
        columns["question"] = [originals[place // size] for place in range(n)]
    elif kind == "near texts":
        ends = sentences(rng, n, 1)
        columns["question"] = [f"{originals[place // size]} {ends[place]}" for place in range(n)]
    elif kind == "equal passages":
        columns["question"] = sentences(rng, n)
        passages = np.empty(scores.shape, dtype=object)
        for place in range(n):
            for k in range(scores.shape[1]):
                passages[place, k] = [f"d{place // size}-{k}", f"e{place // size}-{k}"]
        rounds["passage_ids"] = passages
    return advised(made(rng, scores, columns=columns, of_rounds=rounds), 0.05)


def documents(rng, *, declared: bool, size: int = 25) -> Shot:
    """Decide on questions of twelve documents, some of which are hard and others easy."""
    n, loss = 300, 0.05
    rates = np.repeat(rng.beta(2 * loss, 2 * (1 - loss), n // size), size)
    scores = np.concatenate([1.0 - (rng.random((n, 3)) < rates[:, None]), np.ones((n, 1))], axis=1)
    columns = {"cluster": [f"document {place // size}" for place in range(n)]} if declared else {}
    return advised(made(rng, scores, columns=columns), loss)


def reruns(rng) -> Shot:
    """Record each question three times, declared, and sort the runs of each by what a cap loses in them."""
    return advised(sorted_reruns(rng), 0.05)


def two_models(rng) -> Shot:
    """Mix the logs of two models: one loses 5 points by a cap, the other gains 8."""
    n = 400
    first, other = one_cap(rng, n, 0.05), np.ones((n, 2))
    other[rng.random(n) < 0.08, 1] = 0.0
    columns = {"model": ["A"] * n + ["B"] * n}
    return advised(made(rng, np.concatenate([first, other]), columns=columns), 0.02)


# What is missing


def missing_rows(rng, *, marked: bool) -> Shot:
    """Lose the last round of 9 in 10 questions that it saved, and of 1 in 10 others; every cap loses 5 points."""
    n = 400
    scores = one_cap(rng, n, 0.05, 3)
    cut = rng.random(n) < np.where(scores[:, 0] == 0, 0.9, 0.1)
    seen = np.ones(scores.shape, dtype=bool)
    seen[cut, 2] = False
    ends = np.where(cut, "rule", "max_rounds").tolist()
    columns = {ASSUMED_END: np.where(cut, 1.0, np.nan).tolist()} if marked else {}
    return advised(made(rng, scores, seen=seen, ends=ends, columns=columns), 0.04)


def missing_scores(rng) -> Shot:
    """Lose the score of the last round of 9 in 10 questions that it saved; every cap loses 5 points."""
    scores = one_cap(rng, 400, 0.05, 3)
    recorded = scores.copy()
    recorded[(scores[:, 0] == 0) & (rng.random(400) < 0.9), 2] = np.nan
    return advised(made(rng, recorded), 0.04)


def failed(rng) -> Shot:
    """Let 9 in 10 questions fail that the last round would have saved; every cap loses 5 points."""
    scores = one_cap(rng, 400, 0.05, 3)
    fails = (scores[:, 0] == 0) & (rng.random(400) < 0.9)
    return advised(made(rng, scores, ends=np.where(fails, "failed", "max_rounds").tolist()), 0.04)


# What is printed beside the verdict


def selected(rng) -> Shot | None:
    """Given advice, ask whether the printed interval contains the change of the chosen cap."""
    gain, lose = 0.02, (0.035, 0.03, 0.025)
    advice = decide(made(rng, nested_caps(rng, 500, gain, lose)), metric="score", max_loss=0.02)
    if advice.verdict != "do it":
        return None
    place = advice.chosen
    assert place is not None
    _, low, high = advice.figures[place].change
    true = gain - lose[advice.trial.candidates[place].max_rounds - 1]
    return Shot(not low <= true <= high, said=advice.sentence)


def as_many_more(n: int, rng) -> Shot | None:
    """Record as many more questions as the sentence says, and ask whether they prove the change."""

    def draw(many: int) -> Floats:
        return nested_caps(rng, many, 0.01, (0.01, 0.01, 0.01))

    advice = decide(made(rng, draw(n)), metric="score", max_loss=0.02)
    number = re.search(r"Record about (?:[\d,]+ to )?([\d,]+)", advice.sentence)
    more = 0 if number is None else int(number[1].replace(",", ""))
    if not 0 < more <= MOST:
        return None
    later = decide(made(rng, draw(more)), metric="score", previous=advice)
    return Shot(later.verdict != "do it", said=advice.sentence)


def needless_golds(rng) -> Shot:
    """Leave out gold answers where all answers are equal, and ask whether the losses change."""
    scores = three_caps(rng, 300, 0.02, 0.02)
    equal = (scores == scores[:, :1]).all(axis=1)
    known = np.where(equal[:, None], np.nan, scores)
    ids = names(rng, 300)
    with_all, with_few = (
        decide(made(rng, cells, ids=ids, metric="em"), metric="em", max_loss=0.05) for cells in (scores, known)
    )
    same = np.allclose(with_all.trial.totals.losses, with_few.trial.totals.losses)
    return Shot(not same, said=with_few.sentence)


def labels(rng) -> Shot:
    """Label what is asked, ten questions at a time, and stop at the first advice; every cap loses what is accepted."""
    scores = three_caps(rng, 300, 0.05, 0.1)
    columns = {"question": sentences(rng, 300)}
    bare = made(rng, scores, columns=columns)
    bare = Recording(bare.table.drop("score"), {})
    given: dict[str, tuple[str, ...] | None] = {}
    while True:
        advice = decide(bare, labels=Labels(right=given), max_loss=0.05)
        if advice.verdict == "do it" or not advice.to_label:
            return Shot(advice.verdict == "do it", said=advice.sentence)
        given |= dict.fromkeys(advice.to_label[:10], ("1.0",))  # the answers are the scores


def blocked(rng) -> Shot:
    """Put a cap that loses nothing behind one that loses 3 points and seemed safe; ask whether it goes without a proof."""
    tune = made(rng, np.stack([rng.random(200) >= 0.02, np.ones(200), np.ones(200)], axis=1).astype(float))
    scores = np.stack([np.ones(700), rng.random(700) >= 0.03, np.ones(700)], axis=1).astype(float)
    advice = decide(made(rng, scores), metric="score", max_loss=0.02, tune=tune)
    return Shot(advice.verdict != "do it", said=advice.sentence)


def neighbours(rng) -> Shot:
    """Put a bad cap between good ones, each of which passes its share of the risk on; ask whether it is advised."""
    n = 400
    scores = np.stack(
        [rng.random(n) >= 0.05, np.ones(n), rng.random(n) >= 0.05, np.ones(n), np.ones(n)], axis=1
    ).astype(float)
    advice = decide(made(rng, scores), metric="score", max_loss=0.05)
    bad = [place for place, policy in enumerate(advice.trial.candidates) if policy.max_rounds in (1, 3)]
    return Shot(bool(advice.trial.proved[bad].any()), said=advice.sentence)


ATTACKS = (
    *(
        Attack(
            name=f"advice-{population.replace(' ', '-')}",
            item="decide",
            claim=f"false advice, every cap loses what is accepted: {population}",
            nominal=0.05,
            repetitions=200,
            run=partial(of_population, population),
        )
        for population in ("rare losses", "gains and losses", "graded")
    ),
    Attack(
        name="advice-visits",
        item="decide",
        claim="false advice at any of twenty visits with more questions",
        nominal=0.05,
        repetitions=25,
        run=visits,
    ),
    *(
        Attack(
            name=f"advice-drift-{name}",
            item="decide",
            claim=claim,
            nominal=0.05,
            repetitions=60,
            run=partial(drift, loss),
        )
        for name, claim, loss in (
            ("bound", "the alarm after advice rings, the loss rises to what is accepted", 0.05),
            ("half", "advice is taken back, the loss rises to half of what is accepted", 0.025),
        )
    ),
    Attack(
        name="advice-margins",
        item="decide",
        claim="false advice, the smallest of five losses that passes",
        nominal=0.05,
        repetitions=40,
        run=margins,
    ),
    Attack(
        name="advice-ids",
        item="decide",
        claim="false advice under any of twenty sets of ids of the same questions",
        nominal=0.05,
        repetitions=60,
        run=other_ids,
    ),
    *(
        Attack(
            name=f"copies-{kind.replace(' ', '-')}",
            item="decide",
            claim=f"false advice, twenty questions in ten copies: {kind}",
            nominal=0.05,
            repetitions=100,
            run=partial(copies, kind),
            warning=IF_INDEPENDENT if kind == "no texts" else "",
        )
        for kind in ("equal texts", "near texts", "equal passages", "no texts")
    ),
    Attack(
        name="documents-declared",
        item="decide",
        claim="false advice, 25 questions of each document, declared as clusters",
        nominal=0.05,
        repetitions=100,
        run=partial(documents, declared=True),
    ),
    Attack(
        name="documents",
        item="decide",
        claim="false advice, 25 questions of each document, nothing declared",
        nominal=0.05,
        repetitions=300,
        run=partial(documents, declared=False),
        warning=IF_INDEPENDENT,
    ),
    Attack(
        name="advice-reruns",
        item="decide",
        claim="false advice, three runs of each question, sorted by score",
        nominal=0.05,
        repetitions=60,
        run=reruns,
    ),
    Attack(
        name="two-models",
        item="decide",
        claim="advice for a log of two models, of which one loses 5 points",
        nominal=0.0,
        repetitions=3,
        run=two_models,
    ),
    Attack(
        name="missing-rows",
        item="decide",
        claim="false advice, the rows that helped are missing, and the log does not say why rounds are missing",
        nominal=0.05,
        repetitions=60,
        run=partial(missing_rows, marked=True),
    ),
    Attack(
        name="missing-scores",
        item="decide",
        claim="false advice, the scores that helped are missing",
        nominal=0.05,
        repetitions=60,
        run=missing_scores,
    ),
    Attack(
        name="advice-failed",
        item="decide",
        claim="false advice, questions failed that more rounds would have saved",
        nominal=0.05,
        repetitions=60,
        run=failed,
    ),
    Attack(
        name="advice-interval",
        item="decide",
        claim="the interval beside advice misses the change of the chosen cap",
        nominal=0.05,
        repetitions=400,
        run=selected,
    ),
    *(
        Attack(
            name=f"advice-more-{n}",
            item="decide",
            claim=f"as many questions as are asked for after {n} are too few",
            nominal=0.2,
            repetitions=200,
            run=partial(as_many_more, n),
        )
        for n in (60, 150)
    ),
    Attack(
        name="advice-labels",
        item="decide",
        claim="false advice at any time while labels are given one after another",
        nominal=0.05,
        repetitions=60,
        run=labels,
    ),
    Attack(
        name="needless-golds",
        item="decide",
        claim="losses change where gold answers are missing that cannot matter",
        nominal=0.0,
        repetitions=10,
        run=needless_golds,
    ),
    Attack(
        name="blocked",
        item="decide",
        claim="a cap that loses nothing is not advised, behind one that loses 3 points",
        nominal=0.2,
        repetitions=60,
        run=blocked,
    ),
    Attack(
        name="neighbours",
        item="decide",
        claim="false advice on a bad cap between good ones, whose shares of the risk it may get",
        nominal=0.05,
        repetitions=100,
        run=neighbours,
    ),
)
