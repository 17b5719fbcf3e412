"""The journal of rounds that users' own loops record, possibly from several processes at once."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suffice.common.files import place
from suffice.errors import ConfigMismatchError, DataError, SchemaError
from suffice.recordings.group_commit import Write, Writers, writers_of
from suffice.recordings.journal import differences
from suffice.recordings.journal_file import BEGINNING, LockedJournal, Place, is_finished_old, read_records
from suffice.recordings.schema import ROUNDS_SUFFIX

_BUSY_S = 60.0
_BUSY = "other processes are writing to it: try again"
_SEALED = (
    "takes no more rounds: it was sealed while this question was open, a day after the last round, or it was removed. Record the "
    "question again"
)
_METADATA, _BEGUN, _ROUND, _DECIDED, _ENDED, _MOVED, _SEAL = (
    "metadata",
    "begun",
    "round",
    "decided",
    "ended",
    "moved",
    "sealed",
)
"""Kinds of changes; the kind is a change's first entry.  A record is a list of changes that were committed together."""


_OF_A_QUESTION = frozenset({_BEGUN, _ROUND, _DECIDED, _ENDED})
"""Kinds of changes whose second entry is the run of a question."""


@dataclass(slots=True, kw_only=True)
class JournalQuestion:
    """One question in a journal.

    Attributes:
        run: The id of the run, unique among all runs ever recorded.
        fields: The question's cluster and, once there is a decision, the decision's columns under the key `decision`.
        ending: The reason for the end; None while the question is open, or if its process was killed.
        rows: The rows of the question's rounds, in order.
    """

    run: str
    fields: Mapping[str, Any]
    ending: Mapping[str, Any] | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContent:
    """The content of a journal.

    Attributes:
        metadata: The configuration that the recording depends on.
        questions: The questions, in the order in which they began.
        file_rows: Number of rows that the recording's file had after questions were last moved to it; a file with fewer
            rows is an old copy.
    """

    metadata: Mapping[str, Any]
    questions: Sequence[JournalQuestion]
    file_rows: int = 0


class SealedError(DataError):
    """Raised if a part's journal was removed, so that the part accepts no more rounds."""


class RoundWriter(ABC):
    """Writer of changes to recorded questions."""

    @abstractmethod
    def commit(self, changes: Sequence[Sequence[Any]]) -> None:
        """Store all of these changes or none.

        Raises:
            DataError: The disk is full, or not writable, or a round was already recorded.
        """

    def begin(self, run: str, fields: Mapping[str, Any]) -> None:
        """Commit the start of a question."""
        self.commit([[_BEGUN, run, fields]])

    def put(self, run: str, r: int, row: Mapping[str, Any]) -> None:
        """Commit one round."""
        self.commit([[_ROUND, run, r, row]])

    def decide(self, run: str, columns: Mapping[str, Any]) -> None:
        """Commit the decision on a question; the question may go on with an audit."""
        self.commit([[_DECIDED, run, columns]])

    def end(self, run: str, ending: Mapping[str, Any], columns: Mapping[str, Any] | None = None) -> None:
        """Commit the end of a question, and the decision on it."""
        self.commit([*([[_DECIDED, run, columns]] if columns else []), [_ENDED, run, ending]])

    @contextmanager
    def together(self) -> Iterator[Changes]:
        """Yield a writer that collects changes, and commit all of them after the block; commit none if the block raises."""
        changes = Changes()
        yield changes
        self.commit(changes.changes)


class Changes(RoundWriter):
    """Collects changes to be committed together."""

    def __init__(self) -> None:
        self.changes: list[Sequence[Any]] = []

    def commit(self, changes: Sequence[Sequence[Any]]) -> None:
        """Collect changes."""
        self.changes += changes


class RoundJournal(RoundWriter):
    """Rounds in a file beside a recording; once `put` has returned, a round survives `kill -9` and power loss.

    `suffice.recordings.journal_file` describes the file's form.  Any number of threads and processes may write at a
    time. Each commit opens the file, takes its lock, and closes it again, so a fork inherits nothing. Writes of waiting
    threads are committed together, with one sync. The file is only removed by `seal`, and only for a part of a folder;
    later writers get a `SealedError`.

    Args:
        path: The recording; the journal is `path` with ``.rounds`` at its end.
        is_part: Whether the recording is a part of a folder.

    Attributes:
        size: The size of the records in bytes, after the last write by this object.
        n_open: The number of questions that had not ended after that write.
    """

    def __init__(self, path: str | Path, *, is_part: bool = False) -> None:
        self.size = self.n_open = 0
        self.recording = place(path)
        self.path = self.recording.with_name(self.recording.name + ROUNDS_SUFFIX)
        self._is_part = is_part
        self._known_writers: Writers | None = None

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Store the configuration that the recording depends on, or compare it with the stored one.

        Args:
            metadata: JSON-ready values that all processes must agree on.

        Raises:
            ConfigMismatchError: The file has a different configuration than `metadata`.
            SchemaError: The file is not a journal of rounds, or it is damaged.
        """
        with self._locked(create=True) as (file, known):
            stored = known.metadata
            if stored is None:
                known.metadata = json.loads(json.dumps(metadata))
                file.append([[[_METADATA, metadata]]], reserve=True)
        changed = [] if stored is None else differences(stored, json.loads(json.dumps(metadata)))
        if changed:
            raise ConfigMismatchError(
                f"rounds are being recorded to {str(self.path)!r} with another configuration ({'; '.join(changed)}): record "
                "to another file"
            )

    def n_rounds(self, run: str) -> int | None:
        """Return the number of rounds of an open question; None if the question is not in the file or has ended."""
        with self._locked() as (_, known):
            rounds = known.open.get(run)
            return None if rounds is None else len(rounds)

    def commit(self, changes: Sequence[Sequence[Any]]) -> None:
        """Write changes as one record; commit it together with the records of waiting threads of this process."""
        if changes:
            self._writers().commit(changes, self._commit_all)

    def _commit_all(self, writes: Sequence[Write]) -> None:
        with self._locked() as (file, known):
            for write in writes:
                try:
                    known.accept(write.value)
                except DataError as error:
                    write.error = error
            changes = [change for write in writes if write.error is None for change in write.value]
            if changes:
                file.append([changes], reserve=True)

    def content(self) -> JournalContent | None:
        """Return all committed changes, even while processes write; None if there is no file."""
        if not self.path.exists() or is_finished_old(self.path):
            return None
        try:
            try:
                return self._content(read_records(self.path))
            except (
                SchemaError
            ):  # perhaps not damaged: a torn tail may have been cut and overwritten during the reading, so read again
                return self._content(read_records(self.path))
        except FileNotFoundError:
            return None  # it was removed meanwhile

    def _content(self, records: Iterator[Any]) -> JournalContent:
        metadata: Mapping[str, Any] = {}
        questions: dict[str, JournalQuestion] = {}
        file_rows = 0
        for kind, *rest in (change for changes in records for change in changes):
            if kind == _METADATA:
                (metadata,) = rest
            elif kind == _MOVED:
                (file_rows,) = rest
            elif kind == _BEGUN:
                questions[rest[0]] = JournalQuestion(run=rest[0], fields=rest[1])
            elif kind == _ROUND:
                questions[rest[0]].rows.append(rest[2])
            elif kind == _DECIDED:
                questions[rest[0]].fields = {**questions[rest[0]].fields, "decision": rest[1]}
            elif kind == _ENDED:
                questions[rest[0]].ending = rest[1]
        return JournalContent(metadata=metadata, questions=[*questions.values()], file_rows=file_rows)

    def move(self, write: Callable[[JournalContent], int | None], *, unfinished: bool = False) -> None:
        """Move ended questions into the recording's file and remove them from the journal; other writers wait meanwhile.

        Args:
            write: A function that writes the questions to the file and returns the file's number of rows, or None if
                the file did not change. If it raises, nothing is removed.
            unfinished: Whether to remove the open questions, too.

        Raises:
            SchemaError: The file is damaged.
        """
        if not self.path.exists():
            return
        with self._locked(sealed=True) as (file, known):
            content = self._content(file.values())
            file_rows = write(content)
            kept = {question.run for question in content.questions if not unfinished and question.ending is None}
            if len(kept) == len(content.questions):
                return
            known.is_gone = True
            rows = content.file_rows if file_rows is None else file_rows
            head: list[list[Any]] = [[_METADATA, content.metadata]] if content.metadata else []
            file.replace([[*head, [_MOVED, rows]], *_of_runs(file.values(), kept)])

    def seal(self) -> bool:
        """Remove a part's journal if it contains no questions; return True if it is removed."""
        if not self.path.exists():
            return True
        with suppress(SealedError), self._locked(sealed=True) as (file, known):
            if known.n_questions:
                return False
            known.is_gone = True
            # Windows may not remove the file while others have it open.
            file.append([[[_SEAL]]])
            with suppress(PermissionError):
                file.remove()
        return True

    def _writers(self) -> Writers:
        self._known_writers = writers_of(self.path, self._known_writers)
        return self._known_writers

    @contextmanager
    def _locked(self, *, create: bool = False, sealed: bool = False) -> Iterator[tuple[LockedJournal, _Known]]:
        """Yield the locked file, and the knowledge about its questions; with `create`, a missing file of a part is created."""
        writers = self._writers()
        with writers.lock:
            known, writers.known = writers.known, None  # if the block raises, the file is read again from its beginning
            try:
                file = LockedJournal(self.path, busy=_BUSY, wait_s=_BUSY_S, create=create or not self._is_part)
            except FileNotFoundError:
                raise SealedError(f"{str(self.path)!r} {_SEALED}") from None
            with file:
                if known is None or known.identity != file.identity or not file.has(known.place):
                    known = _Known(identity=file.identity)
                    if is_finished_old(self.path):
                        file.clear()
                file.place = known.place
                for _, changes in file.records():
                    known.accept(changes)
                if known.is_sealed and not sealed:
                    raise SealedError(f"{str(self.path)!r} {_SEALED}")
                yield file, known
                if not known.is_gone:
                    known.place, writers.known = file.place, known
                    self.size, self.n_open = file.place.offset, len(known.open)


@dataclass(slots=True)
class _Known:
    """A writing process's knowledge of its journal, so that it need not read the file again.

    Attributes:
        place: The end of the last record that was read, as an offset in the file.
        metadata: The configuration that the recording depends on; None if the journal has none yet.
        open: The rounds of each question that has not ended.
        is_sealed: True if nothing more may be written.
        is_gone: True if the file was replaced or removed.
    """

    identity: tuple[int, int]
    place: Place = BEGINNING
    metadata: Mapping[str, Any] | None = None
    open: dict[str, set[int]] = field(default_factory=dict)
    n_questions: int = 0
    is_sealed: bool = False
    is_gone: bool = False

    def accept(self, changes: Sequence[Sequence[Any]]) -> None:
        """Apply all changes or none."""
        runs = {change[1] for change in changes if change[0] in _OF_A_QUESTION}
        before = {run: set(self.open[run]) for run in runs & self.open.keys()}
        n_questions = self.n_questions
        try:
            for change in changes:
                self._accept(*change)
        except DataError:
            for run in runs:
                self.open.pop(run, None)
            self.open |= before
            self.n_questions = n_questions
            raise

    def _accept(self, kind: str, *rest: Any) -> None:
        if kind == _METADATA:
            self.metadata = rest[0]
        elif kind == _SEAL:
            self.is_sealed = True
        elif kind == _BEGUN:
            self.open[rest[0]] = set()
            self.n_questions += 1
        elif kind != _MOVED:
            rounds = self.open.get(rest[0])
            if rounds is None or (kind == _ROUND and rest[1] in rounds):
                what = f"round {rest[1]} of this question" if kind == _ROUND else "the end of this question"
                raise DataError(f"{what} was recorded already: two runs go on from one state")
            if kind == _ROUND:
                rounds.add(rest[1])
            elif kind == _ENDED:
                del self.open[rest[0]]


def _of_runs(records: Iterable[Sequence[Sequence[Any]]], runs: AbstractSet[str]) -> Iterator[list[Sequence[Any]]]:
    """Yield the changes that belong to the runs in `runs`: one list for each record with such changes."""
    for changes in records:
        of_runs = [change for change in changes if change[0] in _OF_A_QUESTION and change[1] in runs]
        if of_runs:
            yield of_runs
