"""Destinations of recorders: a file that processes share, or a folder in which each process has its own parts."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from suffice.common.files import check_file, is_url, make_folder, place, quoted, remove_leftovers
from suffice.common.processes import can_start_python, start_python
from suffice.errors import ConfigMismatchError, DataError, SchemaError, SufficeError
from suffice.recordings.journal import differences
from suffice.recordings.opened import OpenFile, with_journal, write_tables
from suffice.recordings.parts import common_state, part_paths
from suffice.recordings.round_journal import Changes, JournalContent, RoundJournal, SealedError

_log = logging.getLogger(__name__)
_WRITER = re.compile(r"-([0-9a-f]{8})-(\d+)-[0-9a-f]{6}\.parquet$")
_HOST_LENGTH = 24
_LOW_PRIORITY = 10
IDLE_S = 24 * 3600.0
"""Seconds without a write after which a compaction seals a journal."""

LARGE_BYTES = 1 << 20
"""Journals of at least this many bytes are sealed by a separate process; below, starting one would take longer."""


def recorded_at(path: str | Path, *, questions: int, size: int) -> RecordedFile | RecordedFolder:
    """Return a recorder's destination: a folder if `path` is a folder or lacks the suffix ``.parquet``, else a file.

    Args:
        path: A file or folder, existing or new.
        questions: The largest number of questions in a part.
        size: The size of a part's journal, in bytes, at which the part takes no further questions.
    """
    if is_url(path):
        raise DataError(
            f"{str(path)!r} is a URL, and rounds are committed to files of this machine one by one: log to a local folder. To have it "
            "there, write one file with `suffice merge FOLDER -o URL`, also while processes write to the folder, or copy the folder once all of "
            "them have closed it"
        )
    path = place(path)
    if questions < 1 or size < 1:
        raise DataError(f"a part has at least one question and one byte, not {questions!r} and {size!r}")
    is_file = path.suffix == ".parquet" or path.exists() or RoundJournal(path).path.exists()
    if path.is_dir() or not is_file:
        return RecordedFolder(path, questions=questions, size=size)
    return RecordedFile(path)


class RecordedFile:
    """One parquet file with a journal beside it."""

    def __init__(self, path: Path) -> None:
        self.path = check_file(path)
        self.journal = RoundJournal(self.path)

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Store the settings; raise if the file has different settings."""
        if self.path.exists():
            with OpenFile(self.path) as opened:
                _check_settings(self.path, opened.metadata, metadata, "file")
        self.journal.check(metadata)

    def take(self, changes: Changes) -> RoundJournal:
        """Commit the first changes of a new question; return the journal that takes its further rounds."""
        self.journal.commit(changes.changes)
        return self.journal

    def holding(self, run: str) -> RoundJournal | None:
        """Return the journal that contains an open question; None if no journal contains it."""
        return None if self.journal.n_rounds(run) is None else self.journal

    def save(self) -> None:
        """Move ended questions into the parquet file."""
        move_ended(self.path, self.journal)

    def close(self) -> None:
        """Save once more."""
        self.save()


class RecordedFolder:
    """A folder of parts; this process only appends to its own parts and shares no lock with other processes.

    Only one part takes new questions. When it is full, its ended questions move into its parquet file. Once it has no
    open questions, the part is sealed, which means that its journal is removed.  After a fork, the child begins its own
    part.
    """

    def __init__(self, path: Path, *, questions: int, size: int) -> None:
        self.path = path
        self._limits = questions, size
        self._metadata: Mapping[str, Any] = {}
        self._forget()

    def _forget(self) -> None:
        """Begin without parts; this also runs after a fork, because the earlier parts belong to the parent process."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._current: RoundJournal | None = None
        self._begun = 0
        self._taken = time.monotonic()
        self._full: list[RoundJournal] = []
        self._sealing: threading.Thread | None = None
        self._is_sealing = False

    @property
    def journal(self) -> RoundJournal | None:
        """The journal that takes new questions; None before the first question."""
        return self._current

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Raise if `metadata` has different settings than the newest readable part, because all parts must have the same."""
        make_folder(self.path)
        for part in reversed(part_paths(self.path)):
            try:
                stored = _part_settings(part)
            except DataError:  # damaged or empty: the reader reports it
                continue
            _check_settings(self.path, stored, metadata, "folder")
            break
        self._metadata = metadata
        from suffice.recordings.parts_compaction import has_many_parts

        if has_many_parts(self.path):  # many short processes leave many small parts
            with self._lock:
                self._seal_soon()

    def take(self, changes: Changes) -> RoundJournal:
        """Commit the first changes of a new question to the current part; return the part's journal."""
        if os.getpid() != self._process:
            self._forget()
        while True:
            with self._lock:
                journal = self._part()
                self._begun += 1
            with suppress(SealedError):
                journal.commit(changes.changes)
                self._taken = time.monotonic()
                return journal
            with self._lock:  # another thread has filled and sealed the part meanwhile
                if self._current is journal:
                    self._current = None
                    if not journal.recording.exists() and time.monotonic() - self._taken < IDLE_S:
                        _log.warning(
                            "%s was removed while questions were recorded to it, and with it %d of them",
                            journal.recording,
                            self._begun - 1,
                        )

    def _part(self) -> RoundJournal:
        """Return the journal of the part that takes a new question."""
        if self._current is None or self._is_full(self._current):
            if self._current is not None:
                self._full.append(self._current)
                self._seal_soon()
            self._current, self._begun = RoundJournal(new_part(self.path), is_part=True), 0
            self._current.check(self._metadata)
        return self._current

    def _is_full(self, journal: RoundJournal) -> bool:
        questions, size = self._limits
        return self._begun >= questions or journal.size >= size

    def _seal_soon(self) -> None:
        """Join small parts and seal full parts in a thread, so that no question waits; the caller must hold the lock."""
        if not self._is_sealing:
            self._is_sealing = True
            self._sealing = threading.Thread(target=self._seal_full, name="suffice-seal")
            self._sealing.start()

    def _seal_full(self) -> None:
        """Join small parts if there are many, and seal full parts, including parts that become full meanwhile."""
        try:
            _join_elsewhere(self.path)
            self._seal_each()
        finally:
            with self._lock:  # if it failed, the next full part is sealed all the same
                if self._sealing is threading.current_thread():
                    self._is_sealing = False

    def _seal_each(self) -> None:
        tried = set[RoundJournal]()
        while True:
            with self._lock:
                some = [journal for journal in self._full if journal not in tried]
                self._is_sealing = bool(some)
            if not some:
                return
            tried.update(some)
            _seal_elsewhere(some)
            for journal in some:
                try:
                    move_ended(journal.recording, journal)
                    if journal.seal():
                        with self._lock:
                            self._full.remove(journal)
                except (SufficeError, OSError) as error:
                    _log.warning("%s: its questions stay in its journal for now: %s", journal.recording, error)

    def holding(self, run: str) -> RoundJournal | None:
        """Return the journal that contains an open question; None if no journal contains it.

        If the question's part was written on a different machine, its rounds are first copied into a journal of this process.
        """
        for part in reversed(part_paths(self.path)):
            journal = RoundJournal(part, is_part=True)
            with suppress(SchemaError, SealedError):
                if not journal.path.exists() or journal.n_rounds(run) is None:
                    continue
                if _machine_of(part) == _machine():
                    return journal
                return self._copied(journal, run)
        return None

    def _copied(self, journal: RoundJournal, run: str) -> RoundJournal | None:
        """Copy the rounds of a question that began on a different machine to a journal of this process; return this journal."""
        content = journal.content()
        for question in () if content is None else content.questions:
            if question.run == run:
                copied = Changes()
                copied.begin(run, question.fields)
                for row in question.rows:
                    copied.put(run, row["columns"]["round"], row)
                return self.take(copied)
        return None

    def save(self) -> None:
        """Move ended questions into the parquet files of their parts."""
        if os.getpid() != self._process:
            self._forget()
        if self._sealing is not None:
            self._sealing.join()
        for journal in [*self._full, *([] if self._current is None else [self._current])]:
            move_ended(journal.recording, journal)

    def close(self) -> None:
        """Save, and seal the parts whose questions have all ended."""
        self.save()
        with self._lock:
            if self._current is not None:
                self._full.append(self._current)
                self._current = None
        self._full = [journal for journal in self._full if not journal.seal()]


def move_ended(path: Path, journal: RoundJournal, *, unfinished: bool = False) -> None:
    """Move ended questions from a journal into its parquet file; with `unfinished`, also move open questions, as failed."""

    def write(content: JournalContent) -> int | None:
        ended = [question for question in content.questions if unfinished or question.ending is not None]
        if not any(question.rows for question in ended) and not (ended and path.exists()):
            return None
        remove_leftovers(path)
        table, metadata = with_journal(path, JournalContent(metadata=content.metadata, questions=ended))
        write_tables(path, table.schema, [table], metadata, private=True)
        return int(table.num_rows)

    with suppress(SealedError):
        journal.move(write, unfinished=unfinished)


def _seal_elsewhere(journals: Sequence[RoundJournal]) -> None:
    """Seal large parts in a separate process, so that questions here need not wait.

    Parts that the separate process could not seal are sealed by this process.
    """
    large = [journal for journal in journals if journal.size >= LARGE_BYTES]
    # Rounds of open questions may wait for the locks that it holds.
    low = not any(journal.n_open for journal in large)
    if large:
        _run_elsewhere(f"seal_parts(sys.argv[1:], low={low})", [str(journal.recording) for journal in large])


def _join_elsewhere(folder: Path) -> None:
    """Join the small parts of a folder in a separate process if there are many."""
    from suffice.recordings.parts_compaction import has_many_parts

    if has_many_parts(folder) and _run_elsewhere("join_parts(sys.argv[1])", [str(folder)]):
        _log.warning(
            "%s has many small parts that could not be joined: `suffice merge %s --compact` joins them, or says why not",
            folder,
            quoted(folder),
        )


def _run_elsewhere(call: str, words: Sequence[str]) -> int:
    """Call a function of this module in a separate process and return the exit status; 1 if no process can be started."""
    if not can_start_python():
        return 1
    nothing, code = subprocess.DEVNULL, f"import sys; from {__name__} import {call.partition('(')[0]}; {call}"
    try:
        return start_python("-c", code, *words, stdin=nothing, stdout=nothing, stderr=nothing).wait()
    except OSError as error:
        _log.info("no process could be started beside this one: %s", error)
        return 1


def seal_parts(paths: Sequence[str], *, low: bool = False) -> None:
    """Seal parts; this runs in a separate process, with `low` priority if nobody waits for it."""
    if low:
        _yield_to_others()
    for journal in (RoundJournal(path, is_part=True) for path in paths):
        move_ended(journal.recording, journal)
        journal.seal()


def join_parts(folder: str) -> None:
    """Join the small parts of a folder; this runs in a separate process, and nobody waits for it."""
    from suffice.recordings.parts_compaction import join_many_parts

    _yield_to_others()
    join_many_parts(Path(folder))


def _yield_to_others() -> None:
    if hasattr(os, "nice"):
        os.nice(_LOW_PRIORITY)


def _check_settings(path: Path, stored: Mapping[str, Any], metadata: Mapping[str, Any], what: str) -> None:
    known = {name: stored.get(name) or {} for name in metadata}
    wanted = json.loads(json.dumps(metadata))
    if what == "folder":
        known, wanted = common_state(known, wanted)
    changed = differences(known, wanted)
    if changed:
        raise ConfigMismatchError(
            f"{str(path)!r} was recorded with other settings ({'; '.join(changed)}): record to another {what}"
        )


def _part_settings(part: Path) -> Mapping[str, Any]:
    if part.is_file():
        with OpenFile(part) as opened:
            return opened.metadata
    content = RoundJournal(part, is_part=True).content()
    if content is None or not content.metadata:
        raise DataError(f"{str(part)!r} is empty")
    return content.metadata


@cache
def _machine() -> str:
    """Return a short id of this machine or container.

    The id changes at each boot, so that this id and a process id together are unique.
    """
    facts = [socket.gethostname()]
    with suppress(OSError):
        facts += [Path("/proc/sys/kernel/random/boot_id").read_text(), str(Path("/proc/self/ns/pid").readlink())]
    return sha256("\n".join(facts).encode()).hexdigest()[:8]


def _machine_of(part: Path) -> str:
    match = _WRITER.search(part.name)
    return match[1] if match else ""


def new_part(folder: Path) -> Path:
    """Return a unique path for a new part; the name begins with the time, in UTC, and ends with the writing process."""
    seconds, fraction = divmod(time.time(), 1)
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds)) + f"{int(fraction * 1e6):06d}"
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()).strip("-")[:_HOST_LENGTH] or "host"
    return folder / f"part-{moment}-{host}-{_machine()}-{os.getpid()}-{secrets.token_hex(3)}.parquet"


def writer_ended(part: Path) -> bool:
    """Return True if the process that wrote a part is known to have ended; False if it ran on a different machine."""
    match = _WRITER.search(part.name)
    if match is None or match[1] != _machine() or sys.platform == "win32":
        return False
    try:
        os.kill(int(match[2]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
