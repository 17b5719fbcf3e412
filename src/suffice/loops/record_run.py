"""One run of a recording's plan: replies in the journal are kept, and the others are requested."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from suffice._version import __version__
from suffice.common.files import reaching, remove_leftovers
from suffice.common.provided import provided
from suffice.errors import (
    AuthenticationFailedError,
    ConfigMismatchError,
    DataError,
    ModelError,
    PendingReplyError,
    SufficeError,
)
from suffice.loops.assembly import Assembly
from suffice.loops.measuring import components_of
from suffice.loops.models._wire import is_cut
from suffice.loops.plan import RecordingPlan
from suffice.loops.progress import Progress, RecordSummary
from suffice.loops.retrieval import Question, dataset_hash
from suffice.loops.trajectory import RecordedTrajectory
from suffice.policy.rounds import Cost, added_costs
from suffice.policy.signals import LOOP_COMPONENTS
from suffice.recordings.journal import Journal, differences
from suffice.recordings.recording import open_recording
from suffice.recordings.recording_files import file_in_work
from suffice.recordings.schema import cost_column, cost_names
from suffice.recordings.shards import SHARD
from suffice.recordings.stored import StoredRows

_LOG = logging.getLogger(__name__)
_SHARDED = "recording a shard (--shard, shard=)"


class LiveExecutor:
    """An executor that sends each request immediately."""

    async def run(self, plan: RecordingPlan) -> RecordSummary:
        """Run a plan; see `PlanExecutor`."""
        if plan.files.batches.exists():
            raise DataError(
                f"replies to this recording come in batches ({str(plan.files.batches)!r}): collect them with --batch "
                "(batches=BatchQueue()), or remove the folder to request everything again"
            )
        return await RecordRun(plan).run()


class RecordRun:
    """One run of a plan, which uses the data on disk and asks the models for the rest."""

    def __init__(self, plan: RecordingPlan) -> None:
        self.plan, self.files, self.questions = plan, plan.files, plan.own_questions
        self.work = file_in_work(plan.files)
        self.texts = {question.question_id: question.question for question in self.questions}
        loop = plan.loop
        self.loop = replace(loop, policy=replace(loop.policy, rule=type(loop.policy)().rule, calibrators=()))
        self.notes = list(plan.notes)
        self.progress = Progress(total=len(self.questions))
        self.read = ReadReplies(remedy=loop.unread_remedy, journal=plan.files.journal, allow_unread=plan.allow_unread)
        self.failed: dict[str, str] = {}
        self.pending = 0  # questions whose replies come with batches
        self.still_failed: dict[str, str] = {}  # in the file, but not requested now
        self.new: dict[str, None] = {}  # questions with rows in the journal but not in the file
        self.costs: set[str] = set()  # the cost columns of the new questions

    async def run(self) -> RecordSummary:
        """Record the plan's questions, except those whose replies will come with batches."""
        # First, in a thread: the configuration and the notes use the endpoint's replies to this check.
        await asyncio.to_thread(self.loop.check)
        self.notes += self.loop.notes
        if self.plan.shard is not None:
            with reaching(self.files.whole):
                provided("scale.check_shard", _SHARDED)(self.files.whole, self.plan.shard, self.plan.config)
        # The lock first: otherwise another process could finish questions while its file is being read.
        journal = Journal(self.files.journal, self.plan.config)
        try:
            remove_leftovers(self.files.path)
            self.work.take_up(journal)
            stored = self._stored()
            complete = {} if stored is None else dict.fromkeys(self._complete(stored))
            self._resume(journal, complete)
            pending = [q for q in self.questions if q.question_id not in complete and q.question_id not in self.new]
            self.progress.done = self.progress.resumed = len(self.questions) - len(pending)
            async with self.work.copying(journal):
                await self._all(pending, journal)
            if self.pending:
                self.work.end(journal, complete=False)
                return self._summary(questions=self.progress.done, rounds=0, pending=self.pending)
            assembly = self._assembly(journal, stored, complete)
            assembly.write(
                self.files.path,
                self._metadata(len(assembly.sizes)),
                None if self.plan.share is None else self.plan.share.places,
            )
            self.work.put()
        except BaseException:
            self.work.leave(journal)
            raise
        replies, unread, cut = count_unread(self.files.path)
        self.work.end(journal, complete=journal.questions() <= assembly.complete)
        with reaching(self.files.whole):
            incomplete = "" if self.plan.shard is None else provided("scale.complete_shards")(self.files.whole)
        return self._summary(
            questions=len(assembly.sizes),
            rounds=sum(assembly.sizes.values()),
            replies=replies,
            unread=unread,
            cut=cut,
            incomplete=incomplete,
        )

    def _summary(self, *, questions: int, rounds: int, replies: int = 0, unread: int = 0, **more: Any) -> RecordSummary:
        return RecordSummary(
            path=self.files.target,
            questions=questions,
            rounds=rounds,
            failed=self.failed,
            replies=replies,
            unread=unread,
            remedy=self.loop.unread_remedy,
            costs=dict(self.progress.costs),
            seconds=time.monotonic() - self.progress.began,
            folder=None if self.plan.shard is None else self.files.whole,
            **more,
        )

    def _stored(self) -> StoredRows | None:
        """Return the rows of an earlier run's file, if any."""
        if not self.files.path.exists():
            return None
        opened = open_recording(self.files.path)
        changed = differences(opened.metadata.get("config", {}), self.plan.config)
        if changed:
            raise ConfigMismatchError(
                f"{str(self.files.target)!r} was recorded with another configuration ({'; '.join(changed)}): "
                "record to another file"
            )
        if not opened.n_rows:  # no question fell into the shard
            opened.close()
            return None
        self.notes = list(dict.fromkeys([*self.notes, *opened.metadata.get("notes", ())]))
        self.still_failed = {q: why for q, why in opened.metadata.get("failed", {}).items() if q not in self.texts}
        stored = StoredRows(self.files.path, opened)
        self._check_texts(stored.texts(), self.files.target)
        return stored

    def _complete(self, stored: StoredRows) -> list[str]:
        """Return the questions whose rows are kept: all except failed ones that are requested again."""
        return [q for q, end in stored.ends.items() if end != "failed" or q not in self.texts]

    def _resume(self, journal: Journal, complete: Collection[str]) -> None:
        """Add questions that an earlier run finished but did not write to the file."""
        for question_id, rows in journal.finished():
            if rows:
                self._check_texts([(question_id, rows[0]["question"])], journal.path)
            if rows and question_id not in complete:
                self._add(question_id, rows)

    def _add(self, question_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self.new[question_id] = None
        self.costs |= cost_names(rows)

    def _check_texts(self, recorded: Iterable[tuple[str, str]], where: Path) -> None:
        """Raise if a question's text differs from the recorded text of the same id."""
        for question_id, text in recorded:
            if self.texts.get(question_id, text) != text:
                raise ConfigMismatchError(
                    f"question {question_id!r} reads {self.texts[question_id]!r} now and {text!r} in {str(where)!r}: "
                    "record to another file"
                )

    async def _all(self, questions: Sequence[Question], journal: Journal) -> None:
        """Record the questions, `concurrency` at a time; the first fatal error stops all."""
        queue = iter(questions)

        async def worker() -> None:
            for question in queue:
                await self._one(question, journal)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.plan.concurrency, len(questions))):
                    group.create_task(worker())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _one(self, question: Question, journal: Journal) -> None:
        policy = self.loop.policy
        course = self.loop.course(question.question, question.passages)
        try:
            rounds = range(policy.start_round, policy.max_rounds + 1)
            for r in rounds:
                await course.prepare(r)
            available = [r for r in rounds if course.has(r)]
        except Exception as error:
            if _is_fatal(error) and not isinstance(error, DataError):  # a question without a pool fails alone
                raise
            self._failed(question, error)
            return
        trajectory = RecordedTrajectory(self.loop, question, course, journal, self._add_costs)
        if not available:
            self._failed(question, DataError("no passage was found for the question"))
            return
        try:
            await trajectory.run(available, at_once=len(available) if self.plan.parallel_rounds else self.loop.at_once)
            rows = trajectory.rows("max_rounds" if policy.max_rounds in trajectory.rounds else "exhausted")
        except PendingReplyError:
            self.pending += 1
            return
        except Exception as error:
            if _is_fatal(error):
                raise
            self._failed(question, error)
            rows = []
            with suppress(Exception):  # the failed signal may belong to an earlier round
                rows = trajectory.rows("failed")
            if rows:
                journal.cut_short(question.question_id, rows)
                self._add(question.question_id, rows)
            return
        journal.finish(question.question_id, rows)
        self._add(question.question_id, rows)
        self.progress.done += 1
        self._report()
        self.read.add(rows)

    def _failed(self, question: Question, error: Exception) -> None:
        ours = isinstance(error, SufficeError)
        if not ours:
            _LOG.debug("question %r failed", question.question_id, exc_info=error)
        self.failed[question.question_id] = str(error) if ours else f"{type(error).__name__}: {error}"
        self.progress.failed += 1
        self._report()

    def _add_costs(self, costs: Mapping[str, Cost]) -> None:
        self.progress.costs = added_costs(self.progress.costs, costs)
        self._report()

    def _report(self) -> None:
        if self.plan.on_progress is not None:
            self.plan.on_progress(self.progress)

    def _assembly(self, journal: Journal, stored: StoredRows | None, complete: Collection[str]) -> Assembly:
        """Assemble all rows in the order of the questions; questions that occur only in earlier runs come last."""
        if not self.new and not complete and self.questions:
            raise ModelError(f"no question was answered; the first failure: {next(iter(self.failed.values()))}")
        order = dict.fromkeys([*self.texts, *self.new, *complete])
        return Assembly(journal, self.new, costs=self.costs, stored=stored, kept=complete, order=order)

    def _metadata(self, recorded: int) -> dict[str, Any]:
        dataset = {"hash": dataset_hash(self.questions), "questions": len(self.questions)}
        shard = {}
        if self.plan.shard is not None and self.plan.share is not None:
            shard = {SHARD: self.plan.shard.entry(self.plan.share.dataset, recorded)}
        return {
            "config": self.plan.config,
            "depends": self.loop.pinned,
            "state": {name: fitted.to_dict() for name, fitted in self.loop.policy.state.items()},
            "fitted": {name: None if seen is None else seen.to_dict() for name, seen in self.loop.fitted.items()},
            "signal_components": components_of(self.loop.enrichers),
            "cache_state": "unknown" if self.plan.parallel_rounds else "live",
            **({"notes": self.notes} if self.notes else {}),
            **self.loop.provenance,
            "dataset": dataset,
            **shard,
            "failed": {**self.still_failed, **self.failed},
            "suffice": __version__,
        }


def _is_fatal(error: Exception) -> bool:
    """Return whether other questions would fail too, because of credentials, the journal or the configuration."""
    ours = isinstance(error, SufficeError)
    return isinstance(error, AuthenticationFailedError) or (ours and not isinstance(error, ModelError))


_FIRST_QUESTIONS = 8
_REPLY_CHARACTERS = 200
_ROWS_READ = 1000
_CALL_COLUMN = tuple(cost_column(component, "calls") for component in LOOP_COMPONENTS)


def _replied(row: Mapping[str, Any]) -> bool:
    """Return whether a model replied in a round; for example, an extractive reader is not called before the first passage."""
    return bool(row.get("text")) or any(row.get(name) for name in _CALL_COLUMN)


def count_unread(path: Path) -> tuple[int, int, dict[str, int]]:
    """Return three counts of a recording's replies: all, those without a readable answer, and those that were cut.

    Cut replies are counted by finish reason; they are also without a readable answer.
    """
    replies = unread = 0
    cut: Counter[str] = Counter()
    with pq.ParquetFile(path) as file:
        wanted = ("answer", "text", "finish_reason", *_CALL_COLUMN)
        names = [name for name in wanted if name in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS_READ, columns=names):
            rows = [row for row in batch.to_pylist() if _replied(row)]
            replies += len(rows)
            without = [row.get("finish_reason") for row in rows if row["answer"] is None]
            unread += len(without)
            cut.update(reason for reason in without if is_cut(reason))
    return replies, unread, dict(sorted(cut.items()))


@dataclass(slots=True, kw_only=True)
class ReadReplies:
    """The counts of replies in a recording run, and advice if no answer can be read from them."""

    remedy: str
    journal: Path
    allow_unread: bool
    questions: int = 0
    replies: int = 0
    read: int = 0

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count the rounds of one question.

        Raises:
            ModelError: No answer could be read from the replies to the first questions.
        """
        replied = [row for row in rows if _replied(row)]
        self.questions += 1
        self.replies += len(replied)
        self.read += sum(row["answer"] is not None for row in replied)
        if self.allow_unread or self.read or self.questions < _FIRST_QUESTIONS or not replied:
            return
        example = f"{replied[-1]['text']!r:.{_REPLY_CHARACTERS}} (finish reason {replied[-1]['finish_reason']!r})"
        raise ModelError(
            f"no answer could be read: none of the {self.replies} replies to the first {self.questions} questions contains an "
            f"answer; the last one is {example}. {self.remedy} The replies are kept in {str(self.journal)!r}, and the same "
            "command resumes from them; for other settings record to another file, or delete this one. --set allow-unread=true "
            "(allow_unread) records all replies"
        )
