"""The effect of a reranker on answers: the same model answers the same questions with candidates in two orders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling
from suffice.loops import RetrievalLoop, record
from suffice.loops.models.protocols import Answerer
from suffice.loops.retrieval import Question, Retriever
from suffice.policy.rounds import Floats, Mask
from suffice.policy.session import Policy
from suffice.policy.signals.position import AnswerPosition
from suffice.recordings import Recording, read_recording
from suffice_gates.rerank import CrossEncoderScorer, Reranked
from suffice_gates.training.ranking import DEPTHS, RankingReport, compare_rankings

_ANSWER_METRICS = ("em", "f1", "contains")


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
    """Record a model's answers with one more passage each round, in a reranker's order.

    After an interruption, the same call resumes.

    Args:
        questions: Questions with gold answers.
        model: Answers the questions.
        retriever: Finds the candidates.
        scorer: Orders the candidates.
        path: The file of the recording.
        candidates: Number of candidates to order.
        max_rounds: Largest number of passages.

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
            f"{len(summary.failed)} questions failed, {question_id!r} first: {why}; the answers so far are kept in {path}: "
            "repeat the call to resume"
        )
    return read_recording(path)


def compare_answers(
    before: Recording, after: Recording, *, resampling: Resampling, rounds: Sequence[int] = DEPTHS
) -> RankingReport:
    """Compare two recordings of the same questions at fixed numbers of passages.

    If a question has fewer passages than such a number, its last round counts, as in `fixed_k`.

    Args:
        before: Answers in the first order.
        after: Answers in the second order.
        resampling: Settings of the bootstrap and the permutation test.
        rounds: Numbers of passages.

    Raises:
        DataError: The questions differ, or none has gold answers.
    """
    ids = [list(recording.question_ids) for recording in (before, after)]
    if sorted(ids[0]) != sorted(ids[1]):
        raise DataError(
            f"recordings of {len(ids[0])} and {len(ids[1])} questions, of which {len(set(ids[0]) & set(ids[1]))} are in both: "
            "both recordings must contain the same questions"
        )
    names = [f"{metric}, top {k}" for k in rounds for metric in _ANSWER_METRICS]
    column = {name: i for i, name in enumerate(ids[1])}
    values = np.stack([_at_rounds(before, rounds), _at_rounds(after, rounds)[:, [column[name] for name in ids[0]]]])
    defined: Mask = np.asarray(np.isfinite(values).all(axis=(0, 1)))
    if not defined.any():
        raise DataError("no question has gold answers, so the two orders cannot be compared")
    clusters = before.clusters[defined].tolist()
    return compare_rankings(
        values[0][:, defined], values[1][:, defined], resampling=resampling, names=names, clusters=clusters
    )


def _at_rounds(recording: Recording, rounds: Sequence[int]) -> Floats:
    """Return the metrics at each number of passages, shape ``(len(rounds) * len(_METRICS), n_questions)``."""
    rows = []
    for k in rounds:
        # The last column that counts as one of the first k rounds; -1 where no round was recorded.
        reached = recording.seen & (recording.index <= k) & (recording.index >= 1)
        last = np.where(reached, np.arange(recording.shape[1]), -1).max(axis=1)
        for metric in _ANSWER_METRICS:
            column = recording.column(metric)[np.arange(len(last)), np.maximum(last, 0)]
            rows.append(np.where(last >= 0, column, np.nan))
    return np.stack(rows)
