"""The progress and the outcome of a recording run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from suffice.common.results import Displayed
from suffice.common.tables import Table, counted, facts_table
from suffice.policy.rounds import Cost, total_cost


@dataclass(slots=True, kw_only=True)
class Progress:
    """The progress of a recording run.

    Attributes:
        total: Questions requested.
        done: Questions with all rounds on disk, including earlier runs.
        resumed: Questions finished by earlier runs.
        failed: Questions cut short by a failing model in this run.
        costs: Costs of this run by component; replies from a response cache are free.
        began: Start of the run, seconds of `time.monotonic`.
    """

    total: int
    done: int = 0
    resumed: int = 0
    failed: int = 0
    costs: dict[str, Cost] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def cost(self) -> Cost:
        """Total cost of this run."""
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
        failed: Errors of failed questions, by question; another run completes these questions.
        replies: Rounds in the file with a reply of a model.
        unread: Replies without a readable answer.
        cut: Number of replies that were cut off, by finish reason (`length`, `content_filter`, `error`, ...).
        remedy: Advice about unread replies.
        costs: Costs of this run by component.
        seconds: Duration of the run.
        folder: The folder with the recording of all shards; the file is one part of it.  None without shards.
        incomplete: A sentence on the shards that the folder lacks; empty if no shard is missing.
        pending: Questions whose replies will come with batches; while there are any, the file is not written.
        notes: Notes on awaited batches, and on what to do meanwhile.
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
    folder: Path | None = None
    incomplete: str = ""
    pending: int = 0
    notes: tuple[str, ...] = ()
    cut: Mapping[str, int] = field(default_factory=dict)

    @property
    def cost(self) -> Cost:
        """Total cost of this run."""
        return total_cost(self.costs)

    @property
    def cut_note(self) -> str:
        """A sentence on the replies that were cut off, and on the consequences; empty if no reply was cut off."""
        if not self.cut:
            return ""
        reasons = ", ".join(f"{reason}: {n:,}" for reason, n in self.cut.items())
        return (
            f"{counted(sum(self.cut.values()), 'reply was', 'replies were')} cut ({reasons}): a cut reply is no answer. Where "
            "it is the limit of tokens, raise max-tokens (--set max-tokens=512, max_tokens)"
        )

    def tables(self) -> list[Table]:
        """Return the outcome as one table."""
        facts = {
            "questions": f"{self.questions:,}",
            "rounds": f"{self.rounds:,}",
            "failed": f"{len(self.failed):,}; run it again to complete them" if self.failed else "",
            "unread": f"{self.unread:,} of {self.replies:,} replies. {self.remedy}" if self.unread else "",
            "cut": self.cut_note,
            "incomplete": self.incomplete,
            "pending": f"{self.pending:,}. {' '.join(self.notes)}" if self.pending else "",
            "calls now": f"{self.cost.calls:,}",
            "seconds": f"{self.seconds:,.1f}",
        }
        return [facts_table(f"Recorded to {self.path}", facts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """Progress of the batches.

    Attributes:
        batches: Number of submitted batches.
        ended: Number of submitted batches that have ended.
        requests: Number of requests in the batches that have not ended.
        done: Number of those requests (in batches that have not ended) that the endpoint has already answered.
    """

    batches: int
    ended: int
    requests: int
    done: int
