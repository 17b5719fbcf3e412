"""The loss of each request, as reported by a later signal of its user, such as a complaint."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.policy.rounds import Mask
from suffice.recordings.merging import RUN
from suffice.verdicts.watches.losses import Losses
from suffice.verdicts.watches.requests import Requests, moment

_LAST_SECOND = 1e11
"""Times beyond the year 5138 are not seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSignal:
    """A later signal about a request, from its user or from a system that observes users.

    Attributes:
        request: The id of the request, or its run (`OpenQuestion.run`). The run is known from the start, whereas the id
            of a repeated question depends on the other recorded questions.
        value: The loss in [0, 1]; 1 is a complaint.
        time: Time when the signal arrived, seconds since 1970.
    """

    request: str
    value: float
    time: float


def signalled_losses(
    requests: Requests,
    signals: Iterable[UserSignal],
    *,
    deadline: float,
    now: float,
    names: Collection[str] | None = None,
) -> Losses:
    """Return the losses that users reported, in the order of requests; 0 if no report came before the deadline.

    Complaints arrive early and contented users never report, so a request only counts once its deadline has passed.

    Args:
        requests: The requests of the log.
        signals: The signals in any order; if one request has several, the largest counts.
        deadline: Seconds after which a request counts; a later signal about it is not used.
        now: The time, seconds since 1970.
        names: The ids and runs of all requests of the log, including requests that are not judged; None = those of `requests`.

    Raises:
        DataError: There is no deadline, the log does not say when requests came, no signal belongs to a request of the
            log, or a value is outside [0, 1].
    """
    if np.isnan(requests.times).any():
        raise DataError("a deadline needs to know when each request came, and the log has no recorded_at")
    heard = _Heard(requests=requests, deadline=deadline)
    given = [*signals]
    for item in given:
        heard.add(item)
    if deadline <= 0:
        raise DataError(
            "a user signal needs a deadline, the time after which a request without a complaint counts as good: "
            "deadline=7 * 86400, or --set deadline=7d"
        )
    if given and not {item.request for item in given} & {*(names or heard.place_of)}:
        raise DataError(
            f"no signal is of a request of this log: {given[0].request!r} is not an id as {requests.ids[0]!r}. Give the id of the "
            "request in the log (question_id), or its run"
        )
    due = np.flatnonzero(requests.times + deadline <= now)
    never = np.zeros(len(due), dtype=np.bool_)
    return Losses(
        places=due,
        loss=heard.values[due],
        most=heard.values[due],
        same=never,
        lost=never,
        rates=np.ones(len(due)),
        lowest=0.0,
        notes=tuple(heard.notes(due, given)),
    )


@dataclass(kw_only=True, eq=False)
class _Heard:
    """The largest signal about each request, and counts of the signals that are unused or doubtful.

    Attributes:
        deadline: Seconds after which a signal about a request is late.
    """

    requests: Requests
    deadline: float
    late: int = 0
    unknown: int = 0
    early: int = 0
    ambiguous: int = 0
    last: float = math.nan

    def __post_init__(self) -> None:
        ids = self.requests.ids
        self._runs = self.requests.recording.per_question(RUN, ids)
        self._times_asked = Counter(self.requests.questions)
        self.place_of = {str(name): place for names in (ids, self._runs) for place, name in enumerate(names)}
        self.values = np.zeros(len(ids))
        self.signalled: Mask = np.zeros(len(ids), dtype=np.bool_)

    def add(self, item: UserSignal) -> None:
        """Count a signal."""
        if not 0 <= item.value <= 1:
            raise DataError(
                f"the signal of request {item.request!r} is {item.value!r}: it says what was lost, from 0 to 1 (a complaint)"
            )
        self.last = float(np.fmax(self.last, seconds_of(item.time)))
        place = self.place_of.get(item.request)
        if place is None:
            self.unknown += 1
            return
        began = self.requests.times[place]
        if item.time > began + self.deadline:
            self.late += 1
            return
        self.early += item.time < began
        asked_again = self._times_asked[self.requests.questions[place]] > 1
        self.ambiguous += asked_again and item.request != self._runs[place]
        self.values[place] = max(self.values[place], item.value)
        self.signalled[place] = True

    def notes(self, due: npt.NDArray[np.int64], given: Collection[UserSignal]) -> list[str]:
        """Return notes on the signals, given the positions of the requests whose deadline has passed."""
        waiting = len(self.requests) - len(due)
        counts = {
            f"{counted(self.unknown, 'signal')} of requests that are not judged here": self.unknown,
            f"{counted(self.late, 'signal')} came after the deadline of {self.deadline:g} seconds: reported, not used": self.late,
            f"{counted(self.early, 'signal')} came before the request, by the clocks: are their times UTC?": self.early,
            (
                f"{counted(self.ambiguous, 'signal')} of a question that was asked several times: which request is meant by an id depends on "
                "what else was recorded, so give its run (OpenQuestion.run)"
            ): self.ambiguous,
            f"{counted(waiting, 'request')} still before the deadline: not used yet": waiting,
        }
        return [
            *(text for text, n in counts.items() if n),
            f"{int(self.signalled[due].sum()):,} of {len(due):,} requests have a signal; without one the loss is 0",
            f"the last signal came {moment(self.last, 'at ')}"
            if given
            else "there is no signal at all: is the file whole?",
        ]


def by_request(records: Iterable[Mapping[str, object]]) -> list[UserSignal]:
    """Convert records with `question_id`, `value` (default 1) and `time` to signals.

    >>> by_request([{"question_id": "q7", "time": "1970-01-01T00:01:00Z"}])
    [UserSignal(request='q7', value=1.0, time=60.0)]

    Raises:
        DataError: A record has no id or no time, or its time is neither seconds since 1970 nor ISO 8601.
    """
    signals = []
    for number, record in enumerate(records, start=1):
        name, time = record.get("question_id"), record.get("time")
        if not isinstance(name, str) or not name or time is None:
            raise DataError(
                f"signal {number} needs a question_id (the id of its request) and a time, not {dict(record)!r:.120}"
            )
        value = record.get("value")
        signals.append(
            UserSignal(request=name, value=1.0 if value in (None, "") else _lost_share(value), time=seconds_of(time))
        )
    return signals


def _lost_share(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"the value of a signal is a number from 0 to 1, not {value!r}") from None


def seconds_of(time: object) -> float:
    """Convert a time, given in seconds since 1970 or as ISO 8601 text, to seconds since 1970.

    Text without a time zone is read as UTC.

    Raises:
        DataError: The time has neither form.
    """
    from datetime import UTC, datetime

    try:
        seconds = float(time)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        pass
    else:
        if not abs(seconds) < _LAST_SECOND:  # also where it is undefined
            raise DataError(f"a time is in seconds since 1970, not {time!r}; is it in milliseconds?")
        return seconds
    try:
        stamp = datetime.fromisoformat(str(time))
    except ValueError:
        raise DataError(f"a time is seconds since 1970 or ISO 8601 as 2026-05-01T12:00:00Z, not {time!r}") from None
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
