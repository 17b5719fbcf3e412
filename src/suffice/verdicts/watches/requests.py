"""The requests of a production log that one policy decided, in the order in which they came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.evaluation.replay import dividing_names
from suffice.policy.rounds import Floats, Mask
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.recordings.schema import AUDIT_UNIT

_DECIDED_COLUMNS = ("policy_digest", "stop_round", "answer_round", "stop_reason")
"""The columns of a log that say what a policy decided."""

RAN_ON = frozenset({"max_rounds", "exhausted"})
"""The ends of questions that ran as far as they could."""

_DECIDED = frozenset({"rule", "max_rounds", "exhausted"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Requests:
    """Requests that a policy decided; arrays have shape ``(n_requests,)``, in the order of time.

    Attributes:
        recording: The rounds of the requests.
        policy: The policy that decided.
        times: Start time of each request, seconds since 1970; NaN where unknown.
        stop: The round at which each stopped.
        answer: The round whose answer was returned; -1 if no answer was returned.
        reasons: The reason of each stop.
        rate: The probability with which each was drawn for an audit; NaN if none is recorded.
        drawn: Mask of the requests that were drawn.
        others: Number of requests in the log that are not judged, for each reason.
        notes: Notes for the reader.
    """

    recording: Recording
    policy: Policy
    times: Floats
    stop: npt.NDArray[np.int64]
    answer: npt.NDArray[np.int64]
    reasons: npt.NDArray[np.object_]
    rate: Floats
    drawn: Mask
    others: Counter[str]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, log: Recording, policy: Policy, *, since: float | None = None) -> Requests:
        """Return the requests of a log that a policy decided.

        Args:
            log: Recorded by deployed policies, with the columns of their decisions.
            policy: The policy that is judged.
            since: Leave out requests before this time, seconds since 1970.

        Raises:
            DataError: The log does not record decisions, or none of its requests was decided by this policy.
        """
        missing = [name for name in _DECIDED_COLUMNS if name not in log.table.column_names]
        if missing:
            raise DataError(
                f"the log has no column {missing[0]!r}, so it does not say what a deployed policy decided: log with "
                "Recorder(path, policy=..., audit=Audit(rate=0.05))"
            )
        digests = log.per_question("policy_digest", [])
        mine: Mask = np.asarray(digests == policy.digest, dtype=np.bool_)
        others = Counter(
            {
                f"of {'no policy' if name is None else f'the policy {name}'}": n
                for name, n in Counter(digests[~mine].tolist()).items()
            }
        )
        if not mine.any():
            counts = Counter(digests.tolist()).most_common(5)
            known = ", ".join(f"{'none' if name is None else name} ({n:,})" for name, n in counts)
            raise DataError(
                f"no request of this log was decided by the policy {policy.label!r} ({policy.digest}); its policies are "
                f"{known}. Name the policy file that was deployed: any change of what decides makes another policy. "
                "recorder.policy.save(...) writes that of a Recorder"
            )
        times = times_of(log)
        order = np.argsort(times, kind="stable")
        notes = []
        if np.isnan(times[mine]).any():
            notes.append("recorded_at is missing, so the order of the log counts as the order of time")
            order = np.arange(len(times))
        order = order[mine[order]]
        if since is not None:
            late = order[times[order] >= since]
            if not len(late):
                raise DataError(f"no request of the policy {policy.label!r} is as late as --since")
            others["before the time from which on requests count (since)"] += len(order) - len(late)
            order = late
        rows = _requests_in_order(log, order)
        reasons = rows.per_question("stop_reason", [])
        stop = _rounds_of_requests(rows, "stop_round")
        # A rule may stop a loop that has no answer yet: the loop did not fail, and a full run might have had an answer.
        unanswered = (reasons == "failed") & (rows.ends != "failed")
        ended = np.where(rows.seen, rows.index, -1).max(axis=1) <= stop
        reasons[unanswered] = np.where(ended, rows.ends, "rule")[unanswered]
        requests = cls(
            recording=rows,
            policy=policy,
            times=times[order],
            stop=stop,
            answer=_rounds_of_requests(rows, "answer_round"),
            reasons=reasons,
            rate=numbers_of(rows, "audit_rate"),
            drawn=np.asarray(numbers_of(rows, "audited") == 1, dtype=np.bool_),
            others=others,
            notes=tuple(notes),
        )
        requests.check()
        undecided = Counter(str(reason) for reason in reasons.tolist() if reason not in _DECIDED)
        others.update(
            {f"that ended as {reason}, without a decision of the policy": n for reason, n in undecided.items()}
        )
        if not undecided:
            return requests
        decided: Mask = np.isin(reasons.astype(str), [*_DECIDED])
        if not decided.any():
            raise DataError(
                f"no request of the policy {policy.label!r} was decided: all {len(reasons)} failed or were cancelled"
            )
        return requests.at(decided)

    def check(self) -> None:
        """Raise if audit rates and draws contradict each other."""
        wrong = (self.rate <= 0) | (self.rate > 1)
        if wrong.any():
            place = int(np.argmax(wrong))
            raise DataError(
                f"request {self.ids[place]!r} has the audit rate {self.rate[place]:g}: a rate is the probability of the draw, "
                "above 0 and at most 1"
            )
        undrawn = ~np.isnan(self.rate) & np.isnan(numbers_of(self.recording, "audited"))
        if undrawn.any():
            raise DataError(
                f"request {self.ids[int(np.argmax(undrawn))]!r} has an audit rate, and whether it was drawn (audited) is missing: an audit "
                "that nobody knows of is no good news"
            )
        unknown = self.drawn & np.isnan(self.rate)
        if unknown.any():
            raise DataError(
                f"request {self.ids[int(np.argmax(unknown))]!r} was audited, and its audit rate is missing: without the "
                "probability of the draw no loss can be estimated"
            )

    def __len__(self) -> int:
        return len(self.stop)

    @property
    def ids(self) -> list[str]:
        """The ids of the requests."""
        return self.recording.question_ids

    @cached_property
    def questions(self) -> list[str]:
        """The question of each request."""
        return [*map(str, dividing_names(self.recording))]

    @cached_property
    def counting(self) -> Mask:
        """Mask of the requests that count for the loss.

        These are the requests with a draw of their own and, of several requests that share a draw, the first.

        A repeated question that shares its draw cannot be bet on, because its loss is known beforehand. The log records
        which requests have a draw of their own. Comparing draws would not be enough: two requests of one question also
        differ in their draws if the seed of the audit was changed.
        """
        _, firsts = np.unique(self.questions, return_index=True)
        counts: Mask = self.recording.per_question(AUDIT_UNIT, [None] * len(self)) == "request"
        counts = np.asarray(counts, dtype=np.bool_)
        counts[firsts] = True
        return counts

    @cached_property
    def complete(self) -> Mask:
        """Mask of the requests that were drawn and ran to the end of their budget, so that their loss is known."""
        return self.drawn & np.isin(self.recording.ends.astype(str), [*RAN_ON])

    @property
    def lost(self) -> Mask:
        """Mask of the requests that were drawn but did not run on, so the answer of their full run is unknown."""
        return self.drawn & ~self.complete

    @property
    def cut(self) -> Mask:
        """Mask of the requests that the rule stopped before the highest round."""
        return np.asarray((self.reasons == "rule") & (self.stop < self.policy.max_rounds), dtype=np.bool_)

    @cached_property
    def ran(self) -> Mask:
        """Mask of the rounds up to the stop, without the rounds that only an audit ran."""
        index = self.recording.index
        mask: Mask = self.recording.seen & (index >= self.policy.start_round) & (index <= self.stop[:, None])
        return mask

    def at(self, keep: Mask | npt.NDArray[np.int64]) -> Requests:
        """Return the requests in a mask or at some positions, in the same order."""
        keep = np.flatnonzero(keep) if keep.dtype == np.bool_ else keep
        arrays = {name: getattr(self, name)[keep] for name in ("times", "stop", "answer", "reasons", "rate", "drawn")}
        chosen = np.zeros(len(self), dtype=np.bool_)
        chosen[keep] = True
        return replace(self, recording=self.recording.select(chosen), **arrays)


def moment(seconds: float, before: str = "") -> str:
    """Return a time in words, to the minute; empty where it is unknown.

    >>> moment(1e300), moment(float("nan"))
    ('', '')
    >>> moment(0.0, "since ")
    'since 1970-01-01 00:00 UTC'
    """
    from datetime import UTC, datetime

    try:
        return f"{before}{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):  # undefined, or beyond the calendar
        return ""


def others_text(others: Counter[str]) -> list[str]:
    """Return one note for each reason why requests are not judged, with the number of requests."""
    return [f"{counted(n, 'request')} {why}: not judged here" for why, n in sorted(others.items()) if n]


def times_of(log: Recording) -> Floats:
    """Return the time at which each question began, seconds since 1970; NaN where it is missing."""
    if "recorded_at" not in log.table.column_names:
        return np.full(log.shape[0], np.nan)
    column = log.column("recorded_at")
    known: Mask = np.asarray(np.isfinite(column).any(axis=1), dtype=np.bool_)
    return np.where(known, np.nanmin(np.where(known[:, None], column, 0.0), axis=1), np.nan)


def numbers_of(log: Recording, name: str) -> Floats:
    """Return the column `name` as one number for each question, NaN where it is missing."""
    if name not in log.table.column_names:
        return np.full(log.shape[0], np.nan)
    return log.column(name)[:, 0]


def _rounds_of_requests(log: Recording, name: str) -> npt.NDArray[np.int64]:
    values = numbers_of(log, name)
    return np.where(np.isnan(values), -1, values).astype(np.int64)


def _requests_in_order(log: Recording, places: Sequence[int] | npt.NDArray[np.int64]) -> Recording:
    rank = np.full(log.shape[0], -1, dtype=np.int64)
    rank[np.asarray(places)] = np.arange(len(places))
    of_rows = rank[log.row_question]
    rows = np.flatnonzero(of_rows >= 0)
    table = log.table.take(pa.array(rows[np.argsort(of_rows[rows], kind="stable")]))
    return Recording(table, log.metadata)
