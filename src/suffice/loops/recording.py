"""Record every round of every question; each reply is on disk before the next call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from suffice.common.blocking import run_blocking
from suffice.loops.live import LiveLoop
from suffice.loops.plan import PlanExecutor, RecordingPlan
from suffice.loops.progress import Progress, RecordSummary
from suffice.loops.record_run import LiveExecutor
from suffice.loops.retrieval import Question
from suffice.recordings.shards import Shard

_P = ParamSpec("_P")
_T = TypeVar("_T")


def record(
    questions: Sequence[Question],
    loop: LiveLoop,
    path: str | Path,
    *,
    shard: Shard | None = None,
    journal_folder: str | Path | None = None,
    concurrency: int = 8,
    parallel_rounds: bool = False,
    allow_unread: bool = False,
    batches: PlanExecutor | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RecordSummary:
    """Run every round of every question and write the recording; the rule of the policy is not used.

    After an interruption, the same call resumes: replies in the journal are not requested again, only calls in flight are
    repeated.  An exception of a model, retriever or signal fails only its question.  This function also works in a
    notebook, where an event loop is already running.

    >>> import tempfile
    >>> from suffice import PoolBM25, RetrievalLoop, load_questions, record
    >>> from suffice.loops.models import ScriptedModel
    >>> questions = load_questions("hotpotqa_tune", limit=2)
    >>> loop = RetrievalLoop(model=ScriptedModel(lambda question, passages: "yes"), retriever=PoolBM25())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     record(questions, loop, f"{folder}/tune.parquet").rounds
    10

    Args:
        questions: Questions with unique ids.
        loop: The loop with its models, and a policy with the rounds, the answer position and fitted signal state.
        path: The parquet file; the journal is beside it until the recording is complete.  With a shard, a folder.
        shard: Record only the questions of this share, into a part of the folder.  Give every process all questions, or
            the result of `suffice.loops.retrieval.load_share`, which holds only the process's share in memory.  The process
            that completes the last part writes `manifest.json`; until then the folder cannot be read.
        journal_folder: If `path` is a URL: the folder of the journal on this machine; None = the user's cache folder.  The
            journal is copied to the URL about every minute, so that another machine can resume the recording and pay again
            for at most that minute.
        concurrency: Number of questions recorded at once.  Each makes one call at a time, or as many as it has parallel
            rounds or samples in a wave.
        parallel_rounds: Send the rounds of a question together; prefix caches are then not used as in a live run, and
            the file contains `cache_state: unknown`.
        allow_unread: Continue if no answer can be read from the replies to the first eight questions.
        batches: A `suffice_scale.batches.BatchQueue`, which requests the replies of language models in batches, at a lower price
            and within a day.  The rounds of a question are then requested together, and their seconds are unknown.
        on_progress: Called after every reply.

    Raises:
        ConfigMismatchError: The file was recorded with another configuration.
        DataError: Question ids repeat, `parallel_rounds` or `batches` is set for rounds that depend on each other, or another
            process is recording into this file.
        AuthenticationFailedError: The endpoint refused the credentials.
        ModelError: No question was answered, or no answer could be read from the first replies; the replies are kept.
    """
    plan = RecordingPlan(
        questions,
        loop,
        path,
        shard=shard,
        journal_folder=journal_folder,
        concurrency=concurrency,
        parallel_rounds=parallel_rounds,
        allow_unread=allow_unread,
        on_progress=on_progress,
    )
    return run_blocking(_executor(batches).run(plan))


def _with_arguments_of(
    blocking: Callable[_P, _T],
) -> Callable[[Callable[..., Coroutine[Any, Any, _T]]], Callable[_P, Coroutine[Any, Any, _T]]]:
    """Declare that an asynchronous function has the same arguments as its blocking counterpart."""

    def declared(function: Any) -> Any:
        function.__signature__ = inspect.signature(blocking)
        return function

    return declared


@_with_arguments_of(record)
async def record_async(*args: Any, batches: PlanExecutor | None = None, **settings: Any) -> RecordSummary:
    """Like `record`, but awaited, with the same arguments and errors."""
    return await _executor(batches).run(RecordingPlan(*args, **settings))


def _executor(batches: PlanExecutor | None) -> PlanExecutor:
    return LiveExecutor() if batches is None else batches
