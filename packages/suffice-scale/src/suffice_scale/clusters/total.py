"""The sum of the reports of a command's shards."""

from __future__ import annotations

import math
import time

from suffice.cli.console import ShardReport
from suffice.loops import Progress
from suffice.policy.rounds import Cost, added_costs


class Total:
    """The progress and the cost of all shards.

    The costs of a lost worker after its last report (up to half a second) are missing here, but the recording contains the
    costs of every round.

    Attributes:
        lost: Number of workers that were lost while they had a shard.
    """

    def __init__(self, n_shards: int) -> None:
        self.lost = 0
        self._n_shards = n_shards
        self._latest: dict[int, ShardReport] = {}
        self._resumed: dict[int, int] = {}
        self._done: dict[int, int] = {}
        self._spent: dict[str, Cost] = {}
        self._usd: list[float] = []
        self._began = time.monotonic()

    def put(self, shard: int | None, report: ShardReport | None) -> None:
        """Store the report of a shard."""
        if shard is not None and report is not None:
            self._latest[shard] = report
            self._resumed.setdefault(shard, report.progress.resumed)

    def give_up(self, shard: int) -> bool:
        """Add the costs of a lost worker; return whether this worker had finished any question of the shard."""
        self.lost += 1
        last = self._latest.pop(shard, None)
        if last is None:
            return False
        self._spent = added_costs(self._spent, last.progress.costs)
        if last.usd is not None:
            self._usd.append(last.usd)
        before, self._done[shard] = self._done.get(shard, last.progress.resumed), last.progress.done
        return bool(last.progress.done > before)

    @property
    def progress(self) -> Progress:
        """The progress of all shards together; a shard that has not begun is assumed to have the mean size of begun shards."""
        every = [report.progress for report in self._latest.values()]
        return Progress(
            total=round(sum(progress.total for progress in every) / max(len(every), 1) * self._n_shards),
            done=sum(progress.done for progress in every),
            resumed=sum(self._resumed.values()),
            failed=sum(progress.failed for progress in every),
            costs=added_costs(self._spent, *(progress.costs for progress in every)),
            began=self._began,
        )

    @property
    def usd(self) -> float | None:
        """The money spent on all shards, in USD; None without prices."""
        spent = [*self._usd, *(report.usd for report in self._latest.values() if report.usd is not None)]
        return math.fsum(spent) if spent else None

    @property
    def seconds(self) -> float:
        """The time since the command began."""
        return time.monotonic() - self._began
