"""The journal of an unfinished recording, to which each reply is written before the next call."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from suffice.common.files import disk_fault
from suffice.common.identities import aligned
from suffice.errors import ConfigMismatchError, SchemaError, SufficeError
from suffice.recordings.journal_file import LockedJournal, Place, check_age

_log = logging.getLogger(__name__)

_JOURNAL_BUSY_S = 2.0
_SYNC_EVERY_S = 1.0
_RECORDING = "another process is recording into this file: wait for it, or record to another file"
_CONFIG, _REPLIES, _FINISHED, _CUT_SHORT = "config", "replies", "finished", "cut short"
"""Kinds of records; the kind is a record's first entry."""


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the differences between two nested configurations, as ``key: old -> new``.

    Two names of the same model are not a difference, see `suffice.common.identities`. Nor are two lists of endpoints
    that have an endpoint in common.
    """
    if not prefix:
        old = aligned(old, new)
    changes: list[str] = []
    for key in sorted(set(old) | set(new)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            changes += differences(before, after, f"{prefix}{key}.")
        elif before != after and not (key == "endpoint" and _have_common_part(before, after)):
            changes.append(f"{prefix}{key}: {_shortened(before)} -> {_shortened(after)}")
    return changes


def _have_common_part(before: Any, after: Any) -> bool:
    """Return True if two comma-separated lists of addresses have an address in common."""
    return bool(set(str(before).split(", ")) & set(str(after).split(", ")))


def _shortened(value: Any, most: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


class Journal:
    """The replies of an unfinished recording, in a file beside the recording; memory only holds positions of records.

    `suffice.recordings.journal_file` describes the form of the file. The file is locked while it is open, so that only
    one process uses it; the lock ends with the process.  Once `put` has returned, the reply survives `kill -9`.  While
    replies come, the file is synced every second, and also when it is closed. So a power cut costs at most the replies
    of the last second.

    Args:
        path: The journal file; created if missing.
        config: JSON-ready values that affect the recording.

    Raises:
        BusyError: A different process is writing to the file.
        ConfigMismatchError: The file has a different configuration than `config`.
        DataError: The disk is not writable.
        SchemaError: The file is not a journal, is damaged, or is a journal of suffice 0.4.0 or older.
    """

    def __init__(self, path: str | Path, config: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._config = json.loads(json.dumps(config, sort_keys=True))
        self._replies: dict[str, list[Place]] = {}  # of questions that have not finished
        self._finished: dict[str, Place] = {}
        self._cut_short: dict[str, Place] = {}
        self.changes = 0
        """The number of records that were written since the file was opened."""
        check_age(self.path)
        self._file = LockedJournal(self.path, busy=_RECORDING, wait_s=_JOURNAL_BUSY_S)
        try:
            self._begin()
        except BaseException:
            self._file.close()
            raise
        self._synced_at = time.monotonic()

    def _begin(self) -> None:
        """Index the records; compare the configuration with that in the file, or write it to a new file."""
        stored = None
        for before, (kind, *rest) in self._file.records():
            if kind == _CONFIG:
                stored = rest[0]
            elif kind != _CUT_SHORT:  # a question that was cut short is recorded again
                self._note(kind, rest[0], before)
        if stored is None:
            self._file.append([[_CONFIG, self._config]])
            return
        changed = differences(stored, self._config)
        if changed:
            raise ConfigMismatchError(
                f"the unfinished recording {str(self.path)!r} was begun with another configuration "
                f"({'; '.join(changed)}): resume with the old one, or record to another file"
            )

    def _note(self, kind: str, question_id: str, place: Place) -> None:
        if kind == _REPLIES:
            if question_id not in self._finished:
                self._replies.setdefault(question_id, []).append(place)
            return
        places = self._finished if kind == _FINISHED else self._cut_short
        places.pop(question_id, None)
        places[question_id] = place
        if kind == _FINISHED:
            self._replies.pop(question_id, None)

    def _append(self, kind: str, question_id: str, content: Any) -> None:
        is_due = time.monotonic() - self._synced_at >= _SYNC_EVERY_S
        (place,) = self._file.append([[kind, question_id, content]], sync=is_due)
        if is_due:
            self._synced_at = time.monotonic()
        self._note(kind, question_id, place)
        self.changes += 1

    def put(self, question_id: str, payloads: Mapping[tuple[int, str], Mapping[str, Any]]) -> None:
        """Commit all of these replies or none; they are keyed by round and part (the component that replied).

        Samples of one question are different rounds, so the replies to equal requests are kept apart.

        Raises:
            DataError: The disk is full, or not writable.
        """
        self._append(_REPLIES, question_id, [[r, part, payload] for (r, part), payload in payloads.items()])

    def replies(self, question_id: str) -> dict[tuple[int, str], dict[str, Any]]:
        """Return the committed replies of a question that has not finished, by round and part.

        Raises:
            SchemaError: The file is damaged.
        """
        records = map(self._file.read, self._replies.get(question_id, ()))
        return {(r, part): payload for _, _, replies in records for r, part, payload in replies}

    def finish(self, question_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Commit the finished rows of a question, which replace its replies.

        Raises:
            DataError: The disk is full, or not writable.
        """
        self._append(_FINISHED, question_id, list(rows))

    def cut_short(self, question_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the rows of a failed question until the file is closed; the next run repeats the question.

        Raises:
            DataError: The disk is full, or not writable.
        """
        self._append(_CUT_SHORT, question_id, list(rows))

    def finished(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Yield the finished questions with their rows, in order of completion.

        Raises:
            SchemaError: The file is damaged.
        """
        for question_id in [*self._finished]:
            yield question_id, self.rows(question_id)

    def rows(self, question_id: str) -> list[dict[str, Any]]:
        """Return the rows of a question that was finished, or that was cut short since this file was opened.

        Raises:
            SchemaError: There are no rows, so the file is damaged.
        """
        place = self._finished.get(question_id, self._cut_short.get(question_id))
        if place is None:
            raise SchemaError(f"{str(self.path)!r} is damaged: it has no rows of question {question_id!r}")
        rows: list[dict[str, Any]] = self._file.read(place)[2]
        return rows

    def questions(self) -> set[str]:
        """Return all questions with replies or rows in the file."""
        return self._replies.keys() | self._finished.keys()

    def copy_to(self, path: Path) -> None:
        """Write a copy of the file in its present state."""
        try:
            shutil.copyfile(self.path, path)
        except OSError as error:
            raise disk_fault(path, error) from error

    def absorb(self, path: Path) -> None:
        """Add the replies and rows of a second journal of the same recording.

        Raises:
            ConfigMismatchError: The second journal has a different configuration than this one.
            SchemaError: The file of the second journal is not a journal, or it is damaged.
        """
        with closing(Journal(path, self._config)) as other:
            for question_id in sorted(other._replies.keys() - self._finished.keys()):  # noqa: SLF001 - another self
                replies = other.replies(question_id)
                new = {key: replies[key] for key in replies.keys() - self.replies(question_id).keys()}
                if new:
                    self.put(question_id, new)
            for question_id, rows in other.finished():
                if question_id not in self._finished:
                    self.finish(question_id, rows)

    def close(self) -> None:
        """Sync the file to the disk, and release the lock."""
        if not self._file.is_closed:
            try:
                self._file.sync()
            except OSError as error:
                _log.warning("the last replies may not be on the disk: %s", disk_fault(self.path, error))
        self._file.close()

    def release(self) -> None:
        """Release the lock after a failure, and remove the file if it is empty."""
        with suppress(SufficeError):
            if not self.questions():
                self.delete()
        self.close()

    def delete(self) -> None:
        """Remove the file and release the lock, when the recording is complete."""
        self._file.remove()
