"""Recording: every round of every question, with each reply on disk before the next call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from suffice._version import __version__
from suffice.common.blocking import run_blocking
from suffice.common.files import check_file, place, reaching, remove_leftovers
from suffice.errors import (
    AuthenticationFailedError,
    ConfigMismatchError,
    DataError,
    ModelError,
    PendingReplyError,
    SufficeError,
)
from suffice.loops.assembly import Assembly
from suffice.loops.batching import BatchQueue, batches_of, in_batches
from suffice.loops.configuration import configuration_of
from suffice.loops.live import LiveLoop
from suffice.loops.measuring import components_of
from suffice.loops.models.chat import ChatModel
from suffice.loops.progress import Progress, RecordSummary
from suffice.loops.retrieval import Question, QuestionShare, dataset_hash
from suffice.loops.rows import cost_names
from suffice.loops.trajectory import RecordedTrajectory
from suffice.loops.unread import ReadReplies, count_unread
from suffice.policy.rounds import Cost
from suffice.recordings.batch_state import BATCH_NOTE
from suffice.recordings.journal import Journal, differences
from suffice.recordings.recording import open_recording
from suffice.recordings.sharded import check_shard, complete_shards
from suffice.recordings.shards import SHARD, Shard
from suffice.recordings.stored import StoredRows
from suffice.recordings.uploads import file_in_work

__all__ = ["record", "record_async"]

_LOG = logging.getLogger(__name__)


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
    batches: BatchQueue | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RecordSummary:
    """Run every round of every question and write the recording; the rule of the policy is not used.

    After an interruption, the same call resumes: replies in the journal are not requested again, only calls in flight are
    repeated.  An exception of a model, retriever or signal fails only its question.  It also works in a notebook, where
    an event loop is already running.

    >>> import tempfile
    >>> from suffice import PoolBM25, RetrievalLoop, load_questions, record
    >>> from suffice_reader.model import SpanReaderModel
    >>> questions = load_questions("hotpotqa_tune", limit=2)
    >>> loop = RetrievalLoop(model=SpanReaderModel(), retriever=PoolBM25())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     record(questions, loop, f"{folder}/tune.parquet").rounds
    10

    Args:
        questions: Questions with unique ids.
        loop: The models, and a policy with the rounds, the answer position and fitted signal state.
        path: The parquet file; the journal is beside it until the recording is complete.  With a shard, a folder.
        shard: Record only the questions of this share, into a part of the folder.  Every process is given all questions, or
            what `suffice.loops.retrieval.load_share` returns, which has only its own in memory; the one that completes the set writes `manifest.json`, and until then the folder cannot be read.
        journal_folder: If `path` is a URL: where the journal is on this machine; None = the user's cache folder.  It is copied to
            the URL about every minute, so that another machine takes the recording up and pays again for that minute at most.
        concurrency: Questions in flight, which limits the calls (times the rounds if they are parallel, or their wave).
        parallel_rounds: Send the rounds of a question together; prefix caches are then not used as in a live run, and
            the file contains `cache_state: unknown`.
        allow_unread: Continue if no answer can be read from the replies to the first eight questions.
        batches: Request the replies of language models in batches, at a lower price and within a day; the rounds of a
            question are then requested together, and their seconds are unknown.
        on_progress: Called after every reply.

    Raises:
        ConfigMismatchError: The file was recorded with another configuration.
        DataError: Question ids repeat, `parallel_rounds` or `batches` is set for rounds that depend on each other, or another
            process is recording into this file.
        AuthenticationFailedError: The endpoint refused the credentials.
        ModelError: No question was answered, or no answer could be read from the first replies; the replies are kept.
    """
    awaited = record_async(
        questions,
        loop,
        path,
        shard=shard,
        journal_folder=journal_folder,
        concurrency=concurrency,
        parallel_rounds=parallel_rounds,
        allow_unread=allow_unread,
        batches=batches,
        on_progress=on_progress,
    )
    return run_blocking(awaited)


async def record_async(
    questions: Sequence[Question],
    loop: LiveLoop,
    path: str | Path,
    *,
    shard: Shard | None = None,
    journal_folder: str | Path | None = None,
    concurrency: int = 8,
    parallel_rounds: bool = False,
    allow_unread: bool = False,
    batches: BatchQueue | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> RecordSummary:
    """Like `record`, but awaited, with the same arguments and errors."""
    if batches is not None and not loop.independent_rounds:
        raise DataError(
            "these rounds depend on each other, so no batch can contain them: record without --batch (batches)"
        )
    asked = getattr(loop, "models", None) or [getattr(loop, "model", None)]
    if batches is not None and not any(isinstance(model, ChatModel) for model in asked):
        raise DataError(
            "batches are sent to an endpoint: give a model there (--model, ChatModel), or leave out --batch"
        )
    recorder = partial(
        _RecordRun,
        questions,
        loop,
        place(path) if shard is not None else check_file(path),
        shard=shard,
        journal_folder=journal_folder,
        concurrency=concurrency,
        parallel_rounds=parallel_rounds or batches is not None,
        allow_unread=allow_unread,
        batches=batches,
        on_progress=on_progress,
    )
    first = recorder()
    if batches is not None:
        try:
            return await in_batches(lambda: recorder().run(), batches, first.path)
        except Exception:
            if not batches_of(
                first.path
            ).exists():  # nothing was submitted: an empty journal would refuse other settings
                with suppress(SufficeError):
                    Journal(first.journal_path, first.config).release()
            raise
    if batches_of(first.path).exists():
        raise DataError(
            f"replies to this recording come in batches ({str(batches_of(first.path))!r}): collect them with --batch "
            "(batches=BatchQueue()), or remove the folder to request everything again"
        )
    return await first.run()


class _RecordRun:
    def __init__(
        self,
        questions: Sequence[Question],
        loop: LiveLoop,
        path: Path,
        *,
        shard: Shard | None,
        journal_folder: str | Path | None,
        concurrency: int,
        parallel_rounds: bool,
        allow_unread: bool,
        batches: BatchQueue | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        share = questions if isinstance(questions, QuestionShare) else None
        ids = [question.question_id for question in questions]
        if len(set(ids)) != len(ids) or not (share.dataset["questions"] if share is not None else ids):
            raise DataError(
                f"{len(ids)} questions with {len(set(ids))} distinct ids: at least one question is needed, each with its own id"
            )
        if concurrency < 1:
            raise DataError(f"concurrency must be at least 1, got {concurrency!r}")
        if parallel_rounds and not loop.independent_rounds:
            raise DataError("these rounds depend on each other and cannot be sent together: leave out parallel_rounds")
        self.shard, self.folder = shard, path
        self.share: QuestionShare | None = None
        if shard is not None:
            questions = self.share = QuestionShare(questions, shard.takes) if share is None else share
            path /= shard.part_name
        self.questions = questions
        self.texts = {question.question_id: question.question for question in questions}
        self.loop = replace(loop, policy=replace(loop.policy, rule=type(loop.policy)().rule, calibrators=()))
        self.target, self.work = path, file_in_work(path, journal_folder)
        self.path = self.work.path
        self.concurrency = concurrency
        self.parallel_rounds = parallel_rounds
        self.notes = [] if batches is None else [BATCH_NOTE]
        self.on_progress = on_progress
        self.progress = Progress(total=len(questions))
        self.journal_path = self.path.with_name(self.path.name + ".journal")
        self.read = ReadReplies(remedy=loop.unread_remedy, journal=self.journal_path, allow_unread=allow_unread)
        self.failed: dict[str, str] = {}
        self.pending = 0  # questions whose replies come with batches
        self.still_failed: dict[str, str] = {}  # in the file, but not requested now
        self.new: dict[str, None] = {}  # questions with rows in the journal but not in the file
        self.costs: set[str] = set()  # the cost columns of these
        self.config = configuration_of(self.loop, parallel_rounds)

    async def run(self) -> RecordSummary:
        if self.shard is not None:
            with reaching(self.folder):
                check_shard(self.folder, self.shard, self.config)
        await asyncio.to_thread(self.loop.check)
        # The lock first: otherwise another process could finish questions while its file is being read.
        journal = Journal(self.journal_path, self.config)
        try:
            remove_leftovers(self.path)
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
                self.path, self._metadata(len(assembly.sizes)), None if self.share is None else self.share.places
            )
            self.work.put()
        except BaseException:
            self.work.leave(journal)
            raise
        replies, unread, cut = count_unread(self.path)
        self.work.end(journal, complete=journal.questions() <= assembly.complete)
        with reaching(self.folder):
            incomplete = "" if self.shard is None else complete_shards(self.folder)
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
            path=self.target,
            questions=questions,
            rounds=rounds,
            failed=self.failed,
            replies=replies,
            unread=unread,
            remedy=self.loop.unread_remedy,
            costs=dict(self.progress.costs),
            seconds=time.monotonic() - self.progress.began,
            folder=None if self.shard is None else self.folder,
            **more,
        )

    def _stored(self) -> StoredRows | None:
        """Return the rows of an earlier run's file, if any."""
        if not self.path.exists():
            return None
        opened = open_recording(self.path)
        changed = differences(opened.metadata.get("config", {}), self.config)
        if changed:
            raise ConfigMismatchError(
                f"{str(self.target)!r} was recorded with another configuration ({'; '.join(changed)}): "
                "record to another file"
            )
        if not opened.n_rows:  # no question fell into the shard
            opened.close()
            return None
        self.notes = list(dict.fromkeys([*self.notes, *opened.metadata.get("notes", ())]))
        self.still_failed = {q: why for q, why in opened.metadata.get("failed", {}).items() if q not in self.texts}
        stored = StoredRows(self.path, opened)
        self._check_texts(stored.texts(), self.target)
        return stored

    def _complete(self, stored: StoredRows) -> list[str]:
        """Return the questions whose rows stay: all except failed ones that are requested again."""
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
        """Raise if a question had another text under the same id."""
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
                for _ in range(min(self.concurrency, len(questions))):
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
            await trajectory.run(available, at_once=len(available) if self.parallel_rounds else self.loop.at_once)
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
        for component, cost in costs.items():
            self.progress.costs[component] = self.progress.costs.get(component, Cost()) + cost
        self._report()

    def _report(self) -> None:
        if self.on_progress is not None:
            self.on_progress(self.progress)

    def _assembly(self, journal: Journal, stored: StoredRows | None, complete: Collection[str]) -> Assembly:
        """Return all rows in the order of the questions; questions of earlier runs only come last."""
        if not self.new and not complete and self.questions:
            raise ModelError(f"no question was answered; the first failure: {next(iter(self.failed.values()))}")
        order = dict.fromkeys([*self.texts, *self.new, *complete])
        return Assembly(journal, self.new, costs=self.costs, stored=stored, kept=complete, order=order)

    def _metadata(self, recorded: int) -> dict[str, Any]:
        dataset = {"hash": dataset_hash(self.questions), "questions": len(self.questions)}
        shard = {}
        if self.shard is not None and self.share is not None:
            shard = {SHARD: self.shard.entry(self.share.dataset, recorded)}
        return {
            "config": self.config,
            "depends": self.loop.pinned,
            "state": {name: fitted.to_dict() for name, fitted in self.loop.policy.state.items()},
            "fitted": {name: None if seen is None else seen.to_dict() for name, seen in self.loop.fitted.items()},
            "signal_components": components_of(self.loop.enrichers),
            "cache_state": "unknown" if self.parallel_rounds else "live",
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
