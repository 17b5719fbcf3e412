"""Recording: every round of every question, each reply on disk before the next call goes out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from suffice._version import __version__
from suffice.display import Displayed, facts_table
from suffice.errors import AuthenticationFailedError, ConfigMismatchError, DataError, ModelError, SufficeError
from suffice.files import check_file
from suffice.loop.assembly import Assembly
from suffice.loop.blocking import run_blocking
from suffice.loop.live import LiveLoop
from suffice.loop.measuring import components_of
from suffice.loop.rows import cost_names
from suffice.loop.trajectory import RecordedTrajectory
from suffice.loop.unread import ReadReplies, count_unread
from suffice.retrieval import Question, dataset_hash
from suffice.rounds import Cost, total_cost
from suffice.store.journal import Journal, differences
from suffice.store.recording import open_recording, remove_leftovers
from suffice.store.stored import StoredRows
from suffice.tables import Table

__all__ = ["Progress", "RecordSummary", "record", "record_async"]

_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a recording run has come.

    Attributes:
        total: Questions asked for.
        done: Questions with all their rounds on disk, earlier runs included.
        resumed: Of these, how many an earlier run had finished.
        failed: Questions that a failing model cut short in this run.
        costs: What this run spent, by component; replies from a response cache cost nothing now.
        began: When it began, `time.monotonic` seconds.
    """

    total: int
    done: int = 0
    resumed: int = 0
    failed: int = 0
    costs: dict[str, Cost] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def cost(self) -> Cost:
        """What this run spent, over all components."""
        return total_cost(self.costs)

    @property
    def questions_per_s(self) -> float:
        """Questions finished in this run, per second."""
        return (self.done - self.resumed) / max(time.monotonic() - self.began, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSummary(Displayed):
    """Outcome of a recording run.

    Attributes:
        path: The recording.
        questions: Questions in the file.
        rounds: Rows in the file.
        failed: Why the model failed, by question; running again completes them.
        replies: Rounds in the file in which a model replied.
        unread: Of these, how many hold no answer that could be read.
        remedy: What to do about them.
        costs: What this run spent, by component.
        seconds: How long it took.
    """

    path: Path
    questions: int
    rounds: int
    failed: Mapping[str, str]
    replies: int
    unread: int
    remedy: str
    costs: Mapping[str, Cost]
    seconds: float

    @property
    def cost(self) -> Cost:
        """What this run spent, over all components."""
        return total_cost(self.costs)

    def tables(self) -> list[Table]:
        """Return the outcome, as one table."""
        facts = {
            "questions": f"{self.questions:,}",
            "rounds": f"{self.rounds:,}",
            "failed": f"{len(self.failed):,}; run it again to complete them" if self.failed else "",
            "unread": f"{self.unread:,} of {self.replies:,} replies. {self.remedy}" if self.unread else "",
            "calls now": f"{self.cost.calls:,}",
            "seconds": f"{self.seconds:,.1f}",
        }
        return [facts_table(f"Recorded to {self.path}", facts)]


def record(
    questions: Sequence[Question],
    loop: LiveLoop,
    path: str | Path,
    *,
    concurrency: int = 8,
    parallel_rounds: bool = False,
    allow_unread: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> RecordSummary:
    """Run every round of every question and write the recording; the rule of the policy is not asked.

    Interrupted at any instant, it goes on where it was when it is called again with the same arguments: a reply that
    reached the journal is never asked for again, only calls that were in flight are repeated.  What a model, retriever or
    signal raises fails its question only.  It may be called from a notebook, too, where an event loop already runs.

    >>> import tempfile
    >>> from suffice import PoolBM25, RetrievalLoop, SpanReaderModel, load_questions, record
    >>> questions = load_questions("hotpotqa_tune", limit=2)
    >>> loop = RetrievalLoop(model=SpanReaderModel(), retriever=PoolBM25())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     record(questions, loop, f"{folder}/tune.parquet").rounds
    10

    Args:
        questions: What to record; ids must be unique.
        loop: The models, and a policy that gives the rounds, the answer position and fitted signal state.
        path: The parquet file; the journal lies beside it until the recording is complete.
        concurrency: Questions in flight, and so at most as many calls (times the rounds if they are parallel).
        parallel_rounds: Send a question's rounds together; the use of prefix caches is then not that of a live run,
            and the file says `cache_state: unknown`.
        allow_unread: Go on if no answer can be read out of the replies to the first eight questions.
        on_progress: Called after every reply.

    Raises:
        ConfigMismatchError: The file was recorded with another configuration.
        DataError: Question ids repeat, rounds that build on each other are to be sent together, or another process
            records into this file.
        AuthenticationFailedError: The endpoint refused the credentials.
        ModelError: No question was answered, or nothing could be read out of the first replies; what came is kept.
    """
    recorder = _Recorder(
        questions,
        loop,
        check_file(path),
        concurrency=concurrency,
        parallel_rounds=parallel_rounds,
        allow_unread=allow_unread,
        on_progress=on_progress,
    )
    return run_blocking(recorder.run())


async def record_async(
    questions: Sequence[Question],
    loop: LiveLoop,
    path: str | Path,
    *,
    concurrency: int = 8,
    parallel_rounds: bool = False,
    allow_unread: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> RecordSummary:
    """Record as `record` does, awaited; the arguments and errors are the same."""
    recorder = _Recorder(
        questions,
        loop,
        Path(path),
        concurrency=concurrency,
        parallel_rounds=parallel_rounds,
        allow_unread=allow_unread,
        on_progress=on_progress,
    )
    return await recorder.run()


class _Recorder:
    def __init__(
        self,
        questions: Sequence[Question],
        loop: LiveLoop,
        path: Path,
        *,
        concurrency: int,
        parallel_rounds: bool,
        allow_unread: bool,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        ids = [question.question_id for question in questions]
        if len(set(ids)) != len(ids) or not ids:
            raise DataError(f"{len(ids)} questions with {len(set(ids))} distinct ids: at least one, no id twice")
        if concurrency < 1:
            raise DataError(f"concurrency must be at least 1, not {concurrency!r}")
        if parallel_rounds and not loop.independent_rounds:
            raise DataError(
                "rounds that revise the round before them cannot be sent together: leave out parallel_rounds"
            )
        self.questions = questions
        self.texts = {question.question_id: question.question for question in questions}
        self.loop = replace(loop, policy=replace(loop.policy, rule=type(loop.policy)().rule, calibrators=()))
        self.path = path
        self.concurrency = concurrency
        self.parallel_rounds = parallel_rounds
        self.on_progress = on_progress
        self.progress = Progress(total=len(ids))
        self.journal_path = path.with_name(path.name + ".journal")
        self.read = ReadReplies(remedy=loop.unread_remedy, journal=self.journal_path, allow_unread=allow_unread)
        self.failed: dict[str, str] = {}
        self.still_failed: dict[str, str] = {}  # in the file, and not asked for now
        self.new: dict[str, None] = {}  # questions with rows in the journal that are not in the file
        self.costs: set[str] = set()  # the cost columns of these
        self.config = _configuration(self.loop, parallel_rounds)

    async def run(self) -> RecordSummary:
        await asyncio.to_thread(self.loop.check)
        # The lock first: what another process finishes while we read its file would not be in our copy.
        journal = Journal(self.journal_path, self.config)
        try:
            remove_leftovers(self.path)
            stored = self._stored()
            kept = {} if stored is None else dict.fromkeys(self._kept(stored))
            self._resume(journal, kept)
            open_ = [q for q in self.questions if q.question_id not in kept and q.question_id not in self.new]
            self.progress.done = self.progress.resumed = len(self.questions) - len(open_)
            await self._all(open_, journal)
            whole = self._assembly(journal, stored, kept)
            whole.write(self.path, self._metadata())
        except BaseException:
            journal.release()
            raise
        if journal.questions() <= whole.complete:
            journal.delete()
        else:
            journal.close()  # its replies spare a rerun the calls that succeeded
        seconds = time.monotonic() - self.progress.began
        replies, unread = count_unread(self.path)
        return RecordSummary(
            path=self.path,
            questions=len(whole.sizes),
            rounds=sum(whole.sizes.values()),
            failed=self.failed,
            replies=replies,
            unread=unread,
            remedy=self.loop.unread_remedy,
            costs=dict(self.progress.costs),
            seconds=seconds,
        )

    def _stored(self) -> StoredRows | None:
        """Return what an earlier run's file holds."""
        if not self.path.exists():
            return None
        opened = open_recording(self.path)
        changed = differences(opened.metadata.get("config", {}), self.config)
        if changed:
            raise ConfigMismatchError(
                f"{str(self.path)!r} was recorded with another configuration ({'; '.join(changed)}): "
                "record to another file"
            )
        self.still_failed = {q: why for q, why in opened.metadata.get("failed", {}).items() if q not in self.texts}
        stored = StoredRows(self.path, opened)
        self._check_texts(stored.texts(), self.path)
        return stored

    def _kept(self, stored: StoredRows) -> list[str]:
        """Return the questions whose rows stay as they are: all but the failed ones that are asked again."""
        return [q for q, end in stored.ends.items() if end != "failed" or q not in self.texts]

    def _resume(self, journal: Journal, kept: Collection[str]) -> None:
        """Take what an earlier run finished and did not write."""
        for question_id, rows in journal.finished():
            if rows:
                self._check_texts([(question_id, rows[0]["question"])], journal.path)
            if rows and question_id not in kept:
                self._add(question_id, rows)

    def _add(self, question_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self.new[question_id] = None
        self.costs |= cost_names(rows)

    def _check_texts(self, recorded: Iterable[tuple[str, str]], where: Path) -> None:
        """Refuse to go on where a question of the same id had another text."""
        for question_id, text in recorded:
            if self.texts.get(question_id, text) != text:
                raise ConfigMismatchError(
                    f"question {question_id!r} reads {self.texts[question_id]!r} now and {text!r} in {str(where)!r}: "
                    "record to another file"
                )

    async def _all(self, questions: Sequence[Question], journal: Journal) -> None:
        """Work through the questions, `concurrency` at a time; the first fatal error stops all."""
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
            wanted = [r for r in rounds if course.has(r)]
        except Exception as error:
            if _is_fatal(error) and not isinstance(error, DataError):  # a question without a pool fails alone
                raise
            self._failed(question, error)
            return
        trajectory = RecordedTrajectory(self.loop, question, course, journal, self._spent)
        if not wanted:
            self._failed(question, DataError("no passage was found for the question"))
            return
        try:
            await trajectory.run(wanted, parallel=self.parallel_rounds)
            rows = trajectory.rows("max_rounds" if wanted[-1] == policy.max_rounds else "exhausted")
        except Exception as error:
            if _is_fatal(error):
                raise
            self._failed(question, error)
            rows = []
            with suppress(Exception):  # the signal that failed may be one of an earlier round
                rows = trajectory.rows("failed")
            if rows:
                journal.cut_short(question.question_id, rows)
                self._add(question.question_id, rows)
            return
        journal.finish(question.question_id, rows)
        self._add(question.question_id, rows)
        self.progress.done += 1
        self._tell()
        self.read.add(rows)

    def _failed(self, question: Question, error: Exception) -> None:
        ours = isinstance(error, SufficeError)
        if not ours:
            _LOG.debug("question %r failed", question.question_id, exc_info=error)
        self.failed[question.question_id] = str(error) if ours else f"{type(error).__name__}: {error}"
        self.progress.failed += 1
        self._tell()

    def _spent(self, costs: Mapping[str, Cost]) -> None:
        for component, cost in costs.items():
            self.progress.costs[component] = self.progress.costs.get(component, Cost()) + cost
        self._tell()

    def _tell(self) -> None:
        if self.on_progress is not None:
            self.on_progress(self.progress)

    def _assembly(self, journal: Journal, stored: StoredRows | None, kept: Collection[str]) -> Assembly:
        """Return all rows in the order of the questions; those of an earlier run only come last."""
        if not self.new and not kept:
            raise ModelError(f"no question was answered; the first failure: {next(iter(self.failed.values()))}")
        order = dict.fromkeys([*self.texts, *self.new, *kept])
        return Assembly(journal, self.new, costs=self.costs, stored=stored, kept=kept, order=order)

    def _metadata(self) -> dict[str, Any]:
        return {
            "config": self.config,
            "depends": self.loop.pinned,
            "state": {name: fitted.to_dict() for name, fitted in self.loop.policy.state.items()},
            "fitted": {name: None if seen is None else seen.to_dict() for name, seen in self.loop.fitted.items()},
            "signal_components": components_of(self.loop.enrichers),
            "cache_state": "unknown" if self.parallel_rounds else "live",
            "dataset": {"hash": dataset_hash(self.questions), "questions": len(self.questions)},
            "failed": {**self.still_failed, **self.failed},
            "suffice": __version__,
        }


def _is_fatal(error: Exception) -> bool:
    """Return whether the other questions would fail in the same way: credentials, the journal, the configuration."""
    ours = isinstance(error, SufficeError)
    return isinstance(error, AuthenticationFailedError) or (ours and not isinstance(error, ModelError))


def _configuration(loop: LiveLoop, parallel_rounds: bool) -> dict[str, Any]:
    """Return everything that changes what is recorded."""
    policy = loop.policy
    return {
        **loop.configuration(),
        "enrichers": {enricher.name: dict(enricher.fingerprint()) for enricher in loop.enrichers},
        "start_round": policy.start_round,
        "max_rounds": policy.max_rounds,
        "answer_position": policy.answer_position.to_dict(),
        "state": {name: _hash(_deciding(fitted.to_dict())) for name, fitted in policy.state.items()},
        "parallel_rounds": parallel_rounds,
    }


def _deciding(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state without the questions that it was fitted on, which change nothing that is recorded."""
    return {key: value for key, value in state.items() if key != "seen"}


def _hash(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
