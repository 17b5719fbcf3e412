"""Watch the log of a service at intervals, one policy at a time."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Any

from suffice.common.json_text import number_or_none
from suffice.errors import NotFoundError, SufficeError
from suffice.recordings import read_recording
from suffice.verdicts.watches import WatchResult, watch
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
            moment = time.monotonic()
            self._latest[named.digest] = moment, watch(read_recording(path), named.policy, deadline=self.deadline)
            return self._latest[named.digest]


def _finite_or_none(number: float) -> float | None:
    return number if math.isfinite(number) else None
