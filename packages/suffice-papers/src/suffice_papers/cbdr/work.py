"""The amount of work in each stage of CBDR's pipeline, counted from settings and questions before the first call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suffice.errors import DataError
from suffice.loops.retrieval import InMemoryRetriever, Question
from suffice_gates.probes import LabelRule, is_right
from suffice_gates.training.preferences import candidates_of
from suffice_gates.training.shift import draw_contexts
from suffice_papers.cbdr.plan import CbdrSettings, Parts

CALLS, PASSES, PAIRS, STEPS = "calls", "passes", "pairs", "steps"
"""Units of work: answers of the model, prompts whose hidden states it reads, pairs that a cross-encoder scores, training steps."""

PROBE_STEP, RERANKER_STEP = "a step of the probe", "a step of the reranker"
"""Names of training steps in a pilot's measurements."""


def answer_of(passages: int) -> str:
    """Return the name that a pilot's measurements use for an answer with this number of passages."""
    return f"an answer, {passages} passages"


def pass_of(passages: int) -> str:
    """Return the name that a pilot's measurements use for a pass over a prompt with this number of passages."""
    return f"a pass, {passages} passages"


def pair_of(reranker: str) -> str:
    """Return the name that a pilot's measurements use for a pair that this reranker scores."""
    return f"a pair, {reranker}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Work of one kind in a stage.

    Attributes:
        stage: Name of the stage, as reported while it runs.
        unit: One of `CALLS`, `PASSES`, `PAIRS` and `STEPS`.
        what: The name that a pilot's measurements use for one unit.
        count: Number of units; None if unknown.
        at_most: True if the number of units depends on the preferences; `count` is then its upper bound.
    """

    stage: str
    unit: str
    what: str
    count: int | None
    at_most: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Numbers of questions and passages on which the work depends.

    Attributes:
        asked: Number of questions of the probe and the test, which are answered without passages; None if unknown.
        train: Largest number of questions to fit a probe on; None if unknown.
        test: Number of test questions.
        drawn: Number of test questions on which the probe is measured under both prompts.
        usable: Number of test questions whose answers can be marked right or wrong.
        scored: Number of questions with candidates in the preference data, for training and test.
        candidates: Number of candidates of these questions.
        positives: Largest number of positives to train the reranker on.
        ranked: Largest number of passages in the test preferences.
        pooled: Number of passages of the test questions, which a reranker orders.
        exact: False if the numbers come from the settings alone, because the questions are not available.
    """

    asked: int | None
    train: int | None
    test: int
    drawn: int
    usable: int
    scored: int
    candidates: int
    positives: int
    ranked: int
    pooled: int
    exact: bool = True

    @classmethod
    def of(cls, parts: Parts, questions: Sequence[Question], settings: CbdrSettings) -> Sizes:
        """Count the questions of each part, and their candidates."""
        n, k, retriever = settings.candidates, settings.k, InMemoryRetriever()  # any retriever finds the same number
        of_prefer, of_test = (
            [len(candidates_of(question, retriever, n)[0]) for question in part] for part in (parts.prefer, parts.test)
        )
        return cls(
            asked=len(parts.asked(questions)),
            train=min(settings.train_size, len(parts.probe.train)),
            test=len(parts.test),
            drawn=_drawn(parts.test, settings),
            usable=sum(not math.isnan(is_right("", q.answers, LabelRule.parse(settings.label))) for q in parts.test),
            scored=sum(map(bool, [*of_prefer, *of_test])),
            candidates=sum(of_prefer) + sum(of_test),
            positives=sum(min(k, max(0, found - 1)) for found in of_prefer),
            ranked=sum(min(2 * k, found) for found in of_test),
            pooled=sum(min(n, len(question.passages)) for question in parts.test),
        )

    @classmethod
    def stated(cls, settings: CbdrSettings) -> Sizes | None:
        """Return the numbers that the settings determine without questions.

        Return None if the settings divide the questions by shares.
        """
        test, prefer, n = settings.test_size, settings.prefer_size, settings.candidates
        if test is None or prefer is None:
            return None
        return cls(
            asked=None,
            train=None,
            test=test,
            drawn=min(settings.shift, test),
            usable=test,
            scored=test + prefer,
            candidates=(test + prefer) * n,
            positives=prefer * min(settings.k, n - 1),
            ranked=test * min(2 * settings.k, n),
            pooled=test * n,
            exact=False,
        )


def _drawn(questions: Sequence[Question], settings: CbdrSettings) -> int:
    """Return the number of test questions on which the probe is measured under both prompts."""
    rng = np.random.default_rng(settings.seed)
    sample = shift_sample(questions, settings.shift, rng)
    try:
        return len(draw_contexts(sample, rng=rng, retriever=InMemoryRetriever(), candidates=settings.candidates))
    except DataError:  # no question has both gold answers and candidates, which is reported elsewhere
        return 0


def shift_sample(questions: Sequence[Question], most: int, rng: np.random.Generator) -> Sequence[Question]:
    """Return the test questions on which to measure the probe under both prompts: all, or `most` of them at random."""
    if len(questions) <= most:
        return questions
    chosen = np.sort(rng.choice(len(questions), size=most, replace=False))
    return [questions[i] for i in chosen.tolist()]


def count_work(sizes: Sizes, settings: CbdrSettings, *, layers: int, rerankers: Sequence[str]) -> list[Task]:
    """List the work of the pipeline, stage by stage.

    Args:
        sizes: Numbers of questions and passages.
        settings: Settings of the pipeline.
        layers: Number of layers with a probe.
        rerankers: Names of all rerankers, the aligned one included.
    """
    orders, batch = 1 + len(rerankers), settings.probe.batch_size
    fitted = settings.train_size if sizes.train is None else sizes.train
    in_epochs = math.ceil(settings.reranker.epochs * math.ceil(sizes.positives / settings.reranker.batch))
    probe_steps = layers * sum(settings.epochs) * math.ceil(fitted / batch)
    rows: list[tuple[str, str, str, int | None, bool]] = [
        ("closed-book answers", CALLS, answer_of(0), sizes.asked, False),
        ("hidden states", PASSES, pass_of(0), sizes.asked, False),
        ("probes", STEPS, PROBE_STEP, probe_steps, True),
        ("both prompts", CALLS, answer_of(1), sizes.drawn, False),
        ("both prompts", PASSES, pass_of(0), sizes.drawn, False),
        ("both prompts", PASSES, pass_of(1), sizes.drawn, False),
        ("preference data", PASSES, pass_of(0), sizes.scored, False),
        ("preference data", PASSES, pass_of(1), sizes.candidates, False),
        ("reranker", STEPS, RERANKER_STEP, in_epochs, True),
        *(("ranking", PAIRS, pair_of(name), sizes.ranked, True) for name in rerankers),
        *(("answers with passages", PAIRS, pair_of(name), sizes.pooled, False) for name in rerankers),
        *(("answers with passages", CALLS, answer_of(k), orders * sizes.test, False) for k in settings.depths),
        ("gate", PASSES, pass_of(0), sizes.usable, False),
    ]
    return [
        Task(stage=stage, unit=unit, what=what, count=count, at_most=at_most)
        for stage, unit, what, count, at_most in rows
    ]
