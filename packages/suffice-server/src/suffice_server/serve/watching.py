"""Watch the log of a service at intervals, one policy at a time."""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import suppress
from typing import Any

from suffice.common.json_text import number_or_none
from suffice.errors import NotFoundError, SufficeError
from suffice.recordings import Recording, read_recording
from suffice.verdicts.watches import WatchResult, watch
from suffice.verdicts.watches.policies import number_by_begin
from suffice.verdicts.watches.requests import times_of
from suffice_server.serve.log import DecisionLog
from suffice_server.serve.policies import NamedPolicy

_LOG = logging.getLogger(__name__)


class LogWatch:
    """Watches the log of each policy, and caches the last result.

    Args:
        log: The log.
        seconds: Age of a result after which the log is read again.
        deadline: Longest duration of an audit, seconds; requests after an unfinished audit are not judged before then.
    """

    def __init__(self, log: DecisionLog, seconds: float, *, deadline: float) -> None:
        self.log, self.seconds, self.deadline = log, seconds, deadline
        self._latest: dict[str, tuple[float, WatchResult]] = {}
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

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
        """Watch policies again; policies whose log cannot be judged are named in the server's log."""
        for named in policies:
            try:
                self._result(named)
            except NotFoundError:
                continue
            except SufficeError as error:
                _LOG.warning("the log of policy %s cannot be watched: %s", named.name, error)

    def _result(self, named: NamedPolicy) -> tuple[float, WatchResult]:
        with self._lock:
            latest = self._latest.get(named.digest)
            if latest is not None and time.monotonic() - latest[0] < self.seconds:
                return latest
            path = self.log.path(named)
            if not path.is_dir():
                raise NotFoundError(f"the log has no question of policy {named.name!r} ({named.digest}) yet")
            moment, recording = time.monotonic(), read_recording(path)
            number = self._numbers.get(named.digest) or self._number(named, recording)
            result = watch(recording, named.policy, deadline=self.deadline, number=number)
            self._latest[named.digest], self._numbers[named.digest] = (moment, result), number
            return self._latest[named.digest]

    def _number(self, named: NamedPolicy, recording: Recording) -> int:
        """Return the number of a policy among those that were served under its name; each has a recording of its own."""
        begins = {named.digest: _begin(recording)}
        for path in self.log.path(named).parent.iterdir():
            name, _, digest = path.name.rpartition("-")
            if name == named.name and digest != named.digest and path.is_dir():
                with suppress(NotFoundError):  # nothing is committed yet
                    begins[digest] = _begin(read_recording(path))
        return number_by_begin(begins, named.policy)


def _begin(recording: Recording) -> float:
    return float(times_of(recording).min())


def _finite_or_none(number: float) -> float | None:
    return number if math.isfinite(number) else None
