"""Watch the log of a service at intervals, one policy at a time, in a separate process.

Reading a log of 200,000 rows takes seconds and hundreds of megabytes.  In the server's process all decisions would have to wait
meanwhile; a separate process runs in parallel, and frees its memory when it ends.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.common.json_text import number_or_none
from suffice.common.processes import start_python
from suffice.errors import NotFoundError, SufficeError, WorkerDiedError
from suffice.policy.session import Policy
from suffice.recordings import Recording, read_recording
from suffice.verdicts.watches import WatchResult, read_log, watch
from suffice.verdicts.watches.policies import number_by_begin
from suffice.verdicts.watches.requests import times_of
from suffice_server.serve.answers import RefusedError
from suffice_server.serve.log import DecisionLog
from suffice_server.serve.policies import NamedPolicy

_LOG = logging.getLogger(__name__)


class LogWatch:
    """Watches the log of each policy, and caches the last result.

    Args:
        log: The log.
        seconds: Age of a result after which the log is read again.
        deadline: Longest duration of an audit, seconds.  Requests after an unfinished audit wait to be judged until the
            audit has ended or has reached this duration.
    """

    def __init__(self, log: DecisionLog, seconds: float, *, deadline: float) -> None:
        self.log, self.seconds, self.deadline = log, seconds, deadline
        self._latest: dict[str, tuple[float, WatchResult]] = {}
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def results(self) -> list[WatchResult]:
        """Return the last result of each policy."""
        return [result for _, result in [*self._latest.values()]]

    def described(self, named: NamedPolicy) -> dict[str, Any]:
        """Return the result of watching a policy, JSON-ready.

        Raises:
            NotFoundError: No question of the policy has stopped yet.
            DataError: The log cannot be judged.
        """
        moment, result = self._result(named)
        mean, low, high = result.whole.interval
        return {
            "policy": named.digest,
            "status": result.status,
            "sentence": result.sentence,
            "requests": result.n,
            "audited": result.n_audited,
            "metric": result.question.metric,
            "loss": {"mean": number_or_none(mean), "low": number_or_none(low), "high": number_or_none(high)},
            "bound": result.question.bound,
            "e_value": None if result.alarm is None else _finite_or_none(result.alarm.e_value),
            "alarm": result.rang,
            "risk": result.risk,
            "seconds_ago": round(max(0.0, time.monotonic() - moment), 3),
        }

    def refresh(self, policies: list[NamedPolicy]) -> None:
        """Watch policies again; if the log of a policy cannot be judged, write a warning to the server's log."""
        for named in policies:
            try:
                self._result(named)
            except NotFoundError:
                continue
            except (SufficeError, RefusedError) as error:
                _LOG.warning("the log of policy %s cannot be watched: %s", named.name, error)

    def close(self) -> None:
        """Kill the process that watches, if there is one."""
        process = self._process
        if process is not None:
            process.kill()

    def _result(self, named: NamedPolicy) -> tuple[float, WatchResult]:
        """Return the result of a policy; a cached result is used if it is recent, or while a log is being read."""
        latest = self._latest.get(named.digest)
        if latest is not None and time.monotonic() - latest[0] < self.seconds:
            return latest
        if not self._lock.acquire(blocking=False):
            if latest is not None:
                return latest
            raise RefusedError(503, "the log is being read at the moment: try again", retry_after=2)
        try:
            path = self.log.path(named)
            if not path.is_dir():
                raise NotFoundError(f"the log has no question of policy {named.name!r} ({named.digest}) yet")
            moment = time.monotonic()
            look = _Look(
                path=path,
                name=named.name,
                policy=named.policy,
                deadline=self.deadline,
                number=self._numbers.get(named.digest),
            )
            result, self._numbers[named.digest] = self._elsewhere(look)
            self._latest[named.digest] = moment, result
            return self._latest[named.digest]
        finally:
            self._lock.release()

    def _elsewhere(self, look: _Look) -> tuple[WatchResult, int]:
        """Read and judge a log in a separate process."""
        code = f"from {__name__} import answer_look; answer_look()"
        self._process = start_python("-c", code, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            reply, _ = self._process.communicate(pickle.dumps(look))
        finally:
            process, self._process = self._process, None
        if process.returncode:
            raise WorkerDiedError(
                f"the process that reads the log {str(look.path)!r} ended with the status {process.returncode}: was the memory too small? It is "
                "started again at the next look"
            )
        result = pickle.loads(reply)  # noqa: S301 - our own process wrote it
        if isinstance(result, SufficeError):
            raise result
        seen: tuple[WatchResult, int] = result
        return seen


@dataclass(frozen=True, kw_only=True)
class _Look:
    """One evaluation of the log of a policy, to be run in a separate process.

    Attributes:
        path: The recording.
        name: The name under which the policy is served.
        policy: The policy.
        deadline: Longest duration of an audit, seconds.
        number: The policy's number, from 1, among all policies served under this name so far; None if not known yet.
    """

    path: Path
    name: str
    policy: Policy
    deadline: float
    number: int | None

    def result(self) -> tuple[WatchResult, int]:
        """Read the log's new parts, judge the whole log, and return the result and the policy's number."""
        recording, notes = read_log(self.path, self.policy)
        for note in notes:
            _LOG.warning("the log %s: %s", self.path, note)
        number = self.number or self._counted(recording)
        return watch(recording, self.policy, deadline=self.deadline, number=number), number

    def _counted(self, recording: Recording) -> int:
        """Return the policy's number; the policies served under one name are numbered by the start of their recordings."""
        begins = {self.policy.digest: _begin(recording)}
        for path in self.path.parent.iterdir():
            name, _, digest = path.name.rpartition("-")
            if name == self.name and digest != self.policy.digest and path.is_dir():
                with suppress(NotFoundError):  # nothing is committed yet
                    begins[digest] = _begin(read_recording(path))
        return number_by_begin(begins, self.policy)


def answer_look() -> None:
    """Read a pickled `_Look` from standard input, and write its result or error to standard output.

    This function runs in the separate process.
    """
    if hasattr(os, "nice"):
        os.nice(19)  # decisions come first
    look = pickle.load(sys.stdin.buffer)  # noqa: S301 - the server wrote it
    try:
        reply: Any = look.result()
    except SufficeError as error:
        reply = error
    sys.stdout.buffer.write(pickle.dumps(reply))


def _begin(recording: Recording) -> float:
    return float(times_of(recording).min())


def _finite_or_none(number: float) -> float | None:
    return number if math.isfinite(number) else None
