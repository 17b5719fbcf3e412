"""The log of a service: one folder of recorded rounds for each policy, written when a question stops."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from suffice.common.files import disk_fault, make_folder
from suffice.errors import DataError, SufficeError
from suffice.loops import OpenQuestion, Recorder
from suffice.policy.session import Audit, Session
from suffice_server.serve.answers import RefusedError
from suffice_server.serve.policies import NamedPolicy

_LOG = logging.getLogger(__name__)
_SEED_FILE = "audit.seed"
_PROBE_BYTES = 1 << 14
"""Size of the file that shows whether the log can be written: that of the rounds of a question."""


def question_names(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the text and id of a request's question.

    A missing id is replaced by a hash of the text.  If the text is missing too, the id is random.  A missing text is
    replaced by the id.
    """
    text = (body.get("question") or "").strip()
    name = body.get("question_id") or (hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12] if text else "")
    name = name or secrets.token_hex(12)
    return {"question": text or name, "question_id": name}


def audit_seed(folder: Path) -> str:
    """Return the random seed of the audit's draws, which is stored in the log's folder and shared by all processes.

    Raises:
        DataError: The file of the seed cannot be written or read.
    """
    path = folder / _SEED_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            mine = folder / f".{_SEED_FILE}.{secrets.token_hex(6)}"
            with os.fdopen(os.open(mine, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
            with suppress(FileExistsError):  # another process was first
                path.hardlink_to(mine)
            mine.unlink()
        return path.read_text("ascii").strip()
    except OSError as error:
        raise disk_fault(path, error) from None


class DecisionLog:
    """Records every stopped question, in a recording NAME-DIGEST for each policy.

    Args:
        folder: The folder that contains these recordings.
        audit: The share of questions that continue after the stop; None = no audit.

    Attributes:
        fault: The reason why `check` could not write the log, without the path; None if it could.
    """

    def __init__(self, folder: Path, audit: Audit | None = None) -> None:
        self.folder, self.audit = folder, audit
        self.fault: str | None = None
        self._folders: dict[Path, tuple[int, int] | None] = {}
        self._recorders: dict[str, Recorder] = {}
        self._lock = threading.Lock()

    def path(self, named: NamedPolicy) -> Path:
        """Return the path of a policy's recording."""
        return self.folder / f"{named.name}-{named.digest}"

    def check(self) -> None:
        """Write a small file into the log's folder; set `fault` to the reason if this fails, else to None."""
        path = self.folder / f".ready.{os.getpid()}"
        try:
            self.refuse_removed()
            make_folder(self.folder)
            path.write_bytes(bytes(_PROBE_BYTES))
            path.unlink()
            self.fault = None
        except RefusedError as error:
            self.fault = str(error)
        except (OSError, DataError) as error:
            cause = error.__cause__ or error
            self.fault = f"the log cannot be written: {getattr(cause, 'strerror', None) or type(cause).__name__}"

    def write(self, named: NamedPolicy, session: Session, names: Mapping[str, str]) -> OpenQuestion:
        """Commit a stopped question, with its decision and its draw for the audit.

        Raises:
            RefusedError: The log cannot be written, or was removed.
        """
        decision = session.decision
        assert decision is not None
        self.refuse_removed()
        with _faults():
            recorder = self._recorder(named)
            with recorder.at_once(names["question"], question_id=names["question_id"]) as run:
                for observed in session.rounds:
                    run.observe(observed)
                if not run.done:
                    assert decision.reason in ("exhausted", "failed", "cancelled")
                    run.end(decision.reason)
        return run

    def resume(self, named: NamedPolicy, state: Mapping[str, Any], session: Session) -> OpenQuestion | None:
        """Restore an audited question from `OpenQuestion.to_state`; return None if its last round is already recorded.

        Raises:
            RefusedError: The log cannot be written.
        """
        self.refuse_removed()
        try:
            return self._recorder(named).resume({**state, "session": session.to_state()})
        except DataError as error:
            # A round was recorded, and the process killed before its session was stored.
            _LOG.warning("%s", error)
            return None

    def change(self, run: OpenQuestion, change: Callable[[OpenQuestion], Any]) -> None:
        """Commit a change of an audited question: a further round, or its end.

        Raises:
            RefusedError: The log cannot be written.
        """
        self.refuse_removed()
        with _faults():
            change(run)

    def close(self) -> None:
        """Compact finished recordings; open questions stay in the journals, which are part of the recordings."""
        with self._lock:
            for recorder in self._recorders.values():
                try:
                    recorder.close()
                except SufficeError as error:
                    _LOG.warning("%s", error)

    def _recorder(self, named: NamedPolicy) -> Recorder:
        path = self.path(named)
        with self._lock:
            if path.name not in self._recorders:
                self._recorders[path.name] = Recorder(path, policy=named.policy, audit=self.audit, missing="ignore")
                for folder in (self.folder, path):
                    self._folders.setdefault(folder, _identity(folder))
            return self._recorders[path.name]

    def refuse_removed(self) -> None:
        """Raise if a folder of the log was removed or replaced, since further writes would silently start a new log.

        Raises:
            RefusedError: A folder is not the one that was written before.
        """
        for folder, identity in [*self._folders.items()]:
            if _identity(folder) != identity:
                what = "the log" if folder == self.folder else "the recording of a policy in the log"
                message = f"{what} was removed or replaced while the server ran: put it back, or restart the server for a new one"
                raise RefusedError(503, message, retry_after=5)


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return the device and inode of a folder, by which a replaced folder is noticed; None if the folder is missing."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except SufficeError:
        _LOG.exception("the log cannot be written")
        message = "the log cannot be written, so no decision is returned; the server's own log contains the reason"
        raise RefusedError(503, message, retry_after=5) from None
