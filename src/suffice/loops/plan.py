"""The plan of a recording (questions, files and settings), and the protocol of plan executors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from suffice.errors import DataError
from suffice.loops.live import LiveLoop
from suffice.loops.progress import Progress, RecordSummary
from suffice.loops.retrieval import Question, QuestionShare
from suffice.recordings.recording_files import RecordingFiles
from suffice.recordings.shards import Shard


@dataclass(frozen=True, eq=False)
class RecordingPlan:
    """The plan of a recording; see `suffice.loops.record` for the arguments.

    Raises:
        DataError: Question ids repeat, or arguments contradict each other.
    """

    questions: Sequence[Question]
    loop: LiveLoop
    path: str | Path
    _: KW_ONLY
    shard: Shard | None = None
    journal_folder: str | Path | None = None
    concurrency: int = 8
    parallel_rounds: bool = False
    allow_unread: bool = False
    on_progress: Callable[[Progress], None] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ids = [question.question_id for question in self.questions]
        n = self.questions.dataset["questions"] if isinstance(self.questions, QuestionShare) else len(ids)
        if len(set(ids)) != len(ids) or not n:
            raise DataError(
                f"{len(ids)} questions with {len(set(ids))} distinct ids: at least one question is needed, each with its own id"
            )
        if self.concurrency < 1:
            raise DataError(f"concurrency must be at least 1, got {self.concurrency!r}")
        if self.parallel_rounds and not self.loop.independent_rounds:
            raise DataError("these rounds depend on each other and cannot be sent together: leave out parallel_rounds")

    @cached_property
    def files(self) -> RecordingFiles:
        """The files of the recording; `RecordingFiles.at` lists the errors of invalid paths."""
        return RecordingFiles.at(self.path, self.shard, self.journal_folder)

    @cached_property
    def share(self) -> QuestionShare | None:
        """The questions of the shard, with their positions among all questions; None without a shard."""
        if self.shard is None:
            return None
        if isinstance(self.questions, QuestionShare):
            return self.questions
        return QuestionShare(self.questions, self.shard.takes)

    @property
    def own_questions(self) -> Sequence[Question]:
        """The questions that are recorded: those of the shard, or all."""
        return self.questions if self.share is None else self.share

    @cached_property
    def config(self) -> dict[str, Any]:
        """The values that affect the recording."""
        return _configuration_of(self.loop, self.parallel_rounds)


class PlanExecutor(Protocol):
    """Protocol of an executor of plans.

    `LiveExecutor` sends requests immediately, and `suffice_scale.batches.BatchQueue` sends them in batches.  On a cluster,
    each worker runs the plan of its shard with one of these executors, see `suffice_scale.clusters`.  The worker receives the
    command line instead of the plan, because a pickled plan would contain the keys and open connections of its models.
    """

    async def run(self, plan: RecordingPlan) -> RecordSummary:
        """Run a plan, resume an interrupted run of the same plan, and return the outcome."""


def _configuration_of(loop: LiveLoop, parallel_rounds: bool) -> dict[str, Any]:
    """Return all settings that affect a recording; the journal and the file of a recording must have the same settings."""
    policy = loop.policy
    return {
        **loop.configuration(),
        "enrichers": {enricher.name: dict(enricher.fingerprint()) for enricher in loop.enrichers},
        "start_round": policy.start_round,
        "max_rounds": policy.max_rounds,
        "answer_position": policy.answer_position.to_dict(),
        "state": {name: _state_hash(fitted.to_dict()) for name, fitted in policy.state.items()},
        "parallel_rounds": parallel_rounds,
    }


def _state_hash(state: Mapping[str, Any]) -> str:
    """Return the hash of a signal's state; its fitting questions are left out, since they do not affect a recording."""
    deciding = {key: value for key, value in state.items() if key != "seen"}
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]
