"""What a reranker does to the answers: the same questions, model and candidates, in two orders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from suffice.errors import DataError
from suffice.llm.base import Answerer
from suffice.loop import RetrievalLoop, record
from suffice.retrieval import CrossEncoderScorer, Question, Reranked, Retriever
from suffice.rounds import Floats, Mask
from suffice.session import Policy
from suffice.signals.position import AnswerPosition
from suffice.store import Recording, read_recording
from suffice.train.ranking import DEPTHS, RankingReport, compare_rankings

__all__ = ["answers_in_order", "compare_answers"]

_METRICS = ("em", "f1", "contains")


def answers_in_order(
    questions: Sequence[Question],
    model: Answerer,
    retriever: Retriever,
    scorer: CrossEncoderScorer,
    path: str | Path,
    *,
    candidates: int = 20,
    max_rounds: int = DEPTHS[-1],
) -> Recording:
    """Record a model's answers from one passage more each round, in a reranker's order; resumable.

    Args:
        questions: With gold answers.
        model: Answers.
        retriever: Finds the candidates.
        scorer: Orders them.
        path: The recording.
        candidates: How many are ordered.
        max_rounds: Most passages.

    Raises:
        ConfigMismatchError: The file was recorded with another configuration.
        DataError: The model failed on a question.
    """
    loop = RetrievalLoop(
        model=model,
        retriever=Reranked(retriever, scorer, candidates=candidates),
        policy=Policy(
            start_round=1, max_rounds=max_rounds, answer_position=getattr(model, "position", AnswerPosition())
        ),
    )
    summary = record(questions, loop, path)
    if summary.failed:
        question_id, why = next(iter(summary.failed.items()))
        raise DataError(
            f"{len(summary.failed)} questions failed, {question_id!r} first: {why}. What was answered is kept in {path}: "
            "the same call goes on from there"
        )
    return read_recording(path)


def compare_answers(
    before: Recording, after: Recording, *, rng: np.random.Generator, rounds: Sequence[int] = DEPTHS
) -> RankingReport:
    """Compare two recordings of the same questions at fixed numbers of passages.

    A question whose evidence ran out earlier gives its last round, as `fixed_k` does.

    Args:
        before: In one order.
        after: In the other.
        rng: Draws the resamples.
        rounds: Numbers of passages.

    Raises:
        DataError: Other questions, or no question with gold answers.
    """
    ids = [list(recording.question_ids) for recording in (before, after)]
    if sorted(ids[0]) != sorted(ids[1]):
        raise DataError(
            f"recordings of {len(ids[0])} and {len(ids[1])} questions, {len(set(ids[0]) & set(ids[1]))} of them in both: "
            "the same questions are compared in two orders"
        )
    names = [f"{metric}, top {k}" for k in rounds for metric in _METRICS]
    values = np.stack([_at_rounds(before, rounds), _at_rounds(after, rounds)[:, _order(ids[1], ids[0])]])
    defined: Mask = np.asarray(np.isfinite(values).all(axis=(0, 1)))
    if not defined.any():
        raise DataError("no question has gold answers: nothing tells which order is better")
    clusters = before.clusters[defined].tolist()
    return compare_rankings(values[0][:, defined], values[1][:, defined], rng=rng, names=names, clusters=clusters)


def _order(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    place = {name: i for i, name in enumerate(names)}
    return [place[name] for name in wanted]


def _at_rounds(recording: Recording, rounds: Sequence[int]) -> Floats:
    """Return the metrics at each number of passages, shape ``(len(rounds) * len(_METRICS), n_questions)``."""
    rows = []
    for k in rounds:
        reached = recording.seen & (recording.index <= k) & (recording.index >= 1)
        last = np.where(reached, np.arange(recording.shape[1]), -1).max(axis=1)
        for metric in _METRICS:
            column = recording.column(metric)[np.arange(len(last)), np.maximum(last, 0)]
            rows.append(np.where(last >= 0, column, np.nan))
    return np.stack(rows)
