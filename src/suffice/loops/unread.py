"""Count replies without a readable answer, and stop recording if all replies are unreadable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from suffice.errors import ModelError
from suffice.loops.models._wire import is_cut
from suffice.policy.signals import LOOP_COMPONENTS
from suffice.recordings.schema import cost_column

_FIRST_QUESTIONS = 8
_REPLY_CHARACTERS = 200
_ROWS_READ = 1000
_CALL_COLUMN = tuple(cost_column(component, "calls") for component in LOOP_COMPONENTS)


def _replied(row: Mapping[str, Any]) -> bool:
    """Return whether a model replied in a round; an extractive reader is not called without passages."""
    return bool(row.get("text")) or any(row.get(name) for name in _CALL_COLUMN)


def count_unread(path: Path) -> tuple[int, int, dict[str, int]]:
    """Count a recording's replies, those without a readable answer, and cut ones by finish reason."""
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
