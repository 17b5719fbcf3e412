"""The driver, which assigns shards to workers, replaces lost workers, and adds up all reports."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any

from suffice.cli.console import ShardReport
from suffice.common.tables import counted
from suffice.errors import DataError, WorkerDiedError
from suffice.loops.models.limits import EvenPace
from suffice_scale.clusters.connection import Cluster, first_line
from suffice_scale.clusters.total import Total
from suffice_scale.clusters.worker import Needs, ShardOutcome, WorkerProcess

_LOOK_S = 0.5
_START_S = 60.0
"""Seconds to wait for the first workers, so that all finish their checks before one of them begins."""

_LOSSES = 5
"""Number of times in a row that a shard may lose its worker without having finished another question."""

SHARDS_PER_WORKER = 4
"""Several, so that a slow last shard delays little; on GPUs there is 1, since each shard loads its model again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command to run shard by shard.

    Attributes:
        entry: The function that takes command-line arguments, as ``module:function``.
        words: The arguments, to which ``--shard i/n`` is added.
        last_words: The arguments of a command that one worker runs after all shards; None for no such command.
        needs: The versions and files that every worker must share.
        n_shards: Number of shards; None = `SHARDS_PER_WORKER` for each worker, but only 1 for a worker with a GPU.
        requests_per_minute: The largest number of requests per minute of all workers together; None = no limit.
        tokens_per_minute: The largest number of tokens per minute of all workers together; None = no limit.
    """

    entry: str
    words: Sequence[str]
    needs: Needs
    last_words: Sequence[str] | None = None
    n_shards: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(eq=False, slots=True)
class _Member:
    """The driver's record of a worker.

    Attributes:
        call: The pending call to the worker: its check, or a shard.
        shard: The shard that the worker works on; None before its first shard.
    """

    place: int
    actor: Any
    call: Any
    shard: int | None = None
    look: Any = None


def run_shards(
    cluster: Cluster,
    job: Job,
    *,
    on_progress: Callable[[Total], None] = lambda _: None,
    on_note: Callable[[str], None] = lambda _: None,
) -> tuple[list[ShardOutcome], Total]:
    """Run a command on a cluster; return the outcome of each shard, in order, and the sum of the reports.

    The outcome of `last_words`, if given, comes last.

    If a worker is lost with its process or its node, another worker replaces it and resumes the shard from the shard's
    journal.  A command that fails without a result stops all workers.

    Raises:
        DataError: There is no such cluster, a worker lacks the driver's files or has other versions, or the command failed.
        MissingExtraError: Ray is not installed.
        WorkerDiedError: A shard lost its worker repeatedly.
    """
    with cluster.connected() as ray:
        n_workers = cluster.n_workers(ray)
        n_shards = job.n_shards or n_workers * (1 if cluster.gpus else SHARDS_PER_WORKER)
        n_workers = min(n_workers, n_shards)
        on_note(
            f"{counted(n_workers, 'worker')} for {counted(n_shards, 'shard')}, on a Ray cluster of {cluster.described(ray)}"
        )
        driver = _Driver(
            ray, cluster, job, n_workers=n_workers, n_shards=n_shards, on_progress=on_progress, on_note=on_note
        )
        try:
            driver.run(range(1, n_shards + 1))
            if job.last_words is not None:
                driver.run([n_shards + 1])
        finally:
            driver.stop()
        return [driver.outcomes[shard] for shard in sorted(driver.outcomes)], driver.total


@dataclass(eq=False)
class _Driver:
    ray: Any
    cluster: Cluster
    job: Job
    _: KW_ONLY
    n_workers: int
    n_shards: int
    on_progress: Callable[[Total], None]
    on_note: Callable[[str], None]

    def __post_init__(self) -> None:
        ray, cluster, job = self.ray, self.cluster, self.job
        self.actor_class = ray.remote(
            num_cpus=cluster.cpus,
            num_gpus=cluster.gpus,
            max_concurrency=2,  # its report is requested while it works
            max_restarts=0,  # a lost one is replaced here, where its shard is known
            scheduling_strategy="SPREAD",
        )(WorkerProcess)
        self.pace = None
        if job.requests_per_minute or job.tokens_per_minute:
            shared = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(EvenPace)
            self.pace = shared.remote(job.requests_per_minute, job.tokens_per_minute)
        self.members: list[_Member] = []
        self.waiting: deque[int] = deque()
        self.outcomes: dict[int, ShardOutcome] = {}
        self.total = Total(self.n_shards)
        self.losses: Counter[int | None] = Counter()
        self.is_open = False
        self.began = time.monotonic()

    def run(self, shards: Iterable[int]) -> None:
        """Work on shards until all have ended; the number `n_shards + 1` stands for `last_words`."""
        self.waiting.extend(shards)
        while self.waiting or any(member.shard is not None for member in self.members):
            self._hire()
            self._hand_out()
            self._wait()
            self._look()

    def stop(self) -> None:
        """End all workers; their files are kept, and the same command resumes from them."""
        for member in self.members:
            self._end(member)

    def _end(self, member: _Member) -> None:
        with suppress(Exception):  # it has ended, or the cluster has
            self.ray.kill(member.actor)

    def _hire(self) -> None:
        """Start workers until there are enough for the remaining shards."""
        busy = sum(member.shard is not None for member in self.members)
        while len(self.members) < min(self.n_workers, len(self.waiting) + busy):
            place = min({*range(1, self.n_workers + 1)} - {member.place for member in self.members})
            actor = self.actor_class.remote(self.job.entry, (place, self.n_workers), self.pace)
            self.members.append(_Member(place, actor, actor.check.remote(self.job.needs)))

    def _hand_out(self) -> None:
        free = [member for member in self.members if member.call is None]
        if not self.is_open:
            late = len(self.members) - len(free)
            if late and (time.monotonic() < self.began + _START_S or not free):
                return
            self.is_open = True
            if late:
                self.on_note(f"{late} of {len(self.members)} workers wait for a place in the cluster; the others begin")
        for member in free:
            if not self.waiting:
                self.members.remove(member)
                self._end(member)
                continue
            member.shard = self.waiting.popleft()
            words = self.job.last_words or ()
            if member.shard <= self.n_shards:
                words = [*self.job.words, "--shard", f"{member.shard}/{self.n_shards}"]
            member.call = member.actor.run.remote(words, self.job.needs.folder)

    def _wait(self) -> None:
        """Wait briefly for pending calls to workers."""
        calls = {member.call: member for member in self.members if member.call is not None}
        ready = self.ray.wait(list(calls), num_returns=1, timeout=_LOOK_S)[0] if calls else []
        for call in ready:
            member = calls[call]
            try:
                value = self.ray.get(call)
            except self.ray.exceptions.RayTaskError as error:  # an exception in the worker, not its loss
                raise DataError(f"a worker failed: {type(error.cause).__name__}: {error.cause}") from None
            except self.ray.exceptions.RayError as error:
                self._lost(member, error)
            else:
                self._ended(member, value)

    def _ended(self, member: _Member, value: Any) -> None:
        shard, member.call, member.look, member.shard = member.shard, None, None, None
        if shard is None:
            if value is not None:
                raise DataError(value)
            self.losses[None] = 0
            return
        outcome: ShardOutcome = value
        if outcome.error is not None:
            raise DataError(f"{self._name(shard)}: {outcome.error.removeprefix('error: ')}")
        self.outcomes[shard] = outcome
        self._count(shard, outcome.report)
        self.on_progress(self.total)

    def _lost(self, member: _Member, error: Exception) -> None:
        """Put the shard of a lost worker back into the queue; raise if the shard loses its worker repeatedly."""
        self.members.remove(member)
        self._end(member)  # it may still be running, only disconnected from Ray
        shard = member.shard
        what = "a worker that was starting" if shard is None else f"the worker of {self._name(shard)}"
        if shard is not None:
            if self.total.give_up(shard):
                self.losses[shard] = 0
            self.waiting.appendleft(shard)
        self.losses[shard] += 1
        if self.losses[shard] >= _LOSSES:
            raise WorkerDiedError(
                f"{what} was lost {_LOSSES} times in a row, without a further question done; the last time: {error}. Look "
                "at the memory of the nodes; what was written is kept, and the same command goes on from there"
            )
        self.on_note(f"{what} was lost ({first_line(error)}): another takes its place")

    def _name(self, shard: int) -> str:
        return f"shard {shard}/{self.n_shards}" if shard <= self.n_shards else "the whole, after the shards"

    def _count(self, shard: int | None, report: ShardReport | None) -> None:
        if shard is not None and shard <= self.n_shards:
            self.total.put(shard, report)

    def _look(self) -> None:
        """Request the workers' progress, and report the sum."""
        asked = {member.look: member for member in self.members if member.look is not None}
        ready = self.ray.wait(list(asked), num_returns=len(asked), timeout=0)[0] if asked else []
        for look in ready:
            member = asked[look]
            member.look = None
            with suppress(self.ray.exceptions.RayError):  # the worker is lost, which the call for its shard reports
                self._count(member.shard, self.ray.get(look))
        for member in self.members:
            if member.shard is not None and member.look is None:
                member.look = member.actor.report.remote()
        self.on_progress(self.total)
