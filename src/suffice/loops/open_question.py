"""One question while it is recorded: its rounds, its decision, and a possible audit."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from types import TracebackType
from typing import Any, Literal, Protocol, Self, get_args

from suffice.common.json_text import as_number
from suffice.errors import DataError, NotFittedError, UnknownSignalError
from suffice.loops.retrieval import Question
from suffice.loops.rows import decision_columns, row_of
from suffice.policy.metrics import METRICS
from suffice.policy.normalizers import MATCH
from suffice.policy.rounds import Decision, End, Reason, Round
from suffice.policy.session import Session
from suffice.policy.signals import SIGNALS
from suffice.recordings.merging import AMENDED, INFERRED, RUN
from suffice.recordings.round_journal import Changes, RoundWriter
from suffice.recordings.schema import (
    AUDIT_UNIT,
    DECISION_COLUMNS,
    EMBEDDING,
    PINNED_LABELS,
    SHADOW,
    TEXT_COLUMNS,
    THINKING_IDS,
)

Ending = Literal["max_rounds", "exhausted", "rule", "failed", "cancelled"]
"""The reasons that a loop may give for the end of a recorded question."""


class RoundReader(Protocol):
    """Protocol of the recorder that a question belongs to; it reads responses and has the shared settings."""

    @property
    def start_round(self) -> int:
        """The index of the first round, 0 or 1."""

    @property
    def normalizer(self) -> str:
        """The name of the normalizer that compares answers."""

    @property
    def is_deployed(self) -> bool:
        """True if a user's policy decides, and not only the cap."""

    def read(self, response: Any, seen: Sequence[Round], seconds: float, fields: Mapping[str, Any]) -> Round:
        """Read a response as the round that follows `seen`; see `OpenQuestion.observe`."""


class OpenQuestion:
    """One question while it is recorded; created by `Recorder.question`.

    Attributes:
        question_id: The id of the question.
        run: The id of this run, unique among all recorded questions.
        rounds: The rounds so far, including those of an audit.
        session: The session that decides; None if there is neither a policy nor a cap.
    """

    def __init__(
        self,
        reader: RoundReader,
        question: Question,
        labels: Mapping[str, str],
        session: Session | None,
        *,
        run: str,
        journal: RoundWriter,
        request_id: str | None = None,
        rounds: Sequence[Round] = (),
    ) -> None:
        self.question_id = question.question_id
        self.run = run
        self.rounds = list(rounds)
        self.session = session
        self._reader, self._question, self._labels, self._request_id = reader, question, labels, request_id
        self._journal = journal
        self._columns: dict[str, Any] = {}
        self._ended = False

    @property
    def done(self) -> bool:
        """True once the question has ended, by the policy, its cap, or `end`; rounds of its audit may remain."""
        return self._ended or self.decision is not None

    @property
    def auditing(self) -> bool:
        """True while rounds of its audit remain.

        Return the answer to the user, and let the loop continue until this is False.
        """
        return self.session is not None and self.session.auditing

    @property
    def decision(self) -> Decision | None:
        """The final decision, with the answer to return; None while the loop continues, and if nothing decides.

        Nothing decides if there is neither a policy nor a cap.
        """
        return None if self.session is None else self.session.decision

    @property
    def next_round(self) -> int:
        """The index of the round that `observe` expects."""
        return self._reader.start_round + len(self.rounds)

    def observe(
        self,
        response: Any,
        *,
        seconds: float = math.nan,
        metrics: Mapping[str, float] | None = None,
        **fields: Any,
    ) -> Decision | None:
        """Record one round and decide; during an audit, only record the round, and return the earlier decision.

        Args:
            response: The client's response (see `Round.from_response`), a text, a `Reply`, or a `Round` of your own.
            seconds: Duration of the call, seconds; NaN if unknown.
            metrics: Your own metrics of the answer, in [0, 1], by name; NaN = unknown.
            **fields: Other fields of the `Round`: `passages`, `signals`, `feedback`, `costs`, ...

        Returns:
            The decision at this round; None if there is neither a policy nor a cap.

        Raises:
            DataError: The response cannot be read, the question has ended, or a value has the wrong type.
            UnknownSignalError: The round lacks a signal that the policy reads; the round is still recorded.
            NotFittedError: The policy lacks the calibrator of a signal that it reads; the round is still recorded.
        """
        if self._ended:
            raise DataError(f"question {self.question_id!r} has ended: begin a new one for another round")
        if not isinstance(response, Round):
            response = self._reader.read(response, self.rounds, seconds, fields)
        elif fields or not math.isnan(seconds):
            raise DataError("a Round has its own fields: give them to it")
        if response.index != self.next_round:
            raise DataError(f"round {response.index} came where round {self.next_round} is expected")
        check_signal_names(response.signals, self._labels)
        rounds = [*self.rounds, response]
        row = row_of(
            self._question,
            rounds,
            "rule",
            state={} if self.session is None else self.session.policy.state,
            cells=self._labels,
            recorded_at=time.time(),
            normalizer=self._reader.normalizer,
        )
        row |= {name: checked_metric(name, value) for name, value in (metrics or {}).items()}
        kinds = {MATCH: "metric"} if MATCH in row else {}
        kinds |= {name: "signal" for name in response.signals if name not in SIGNALS}
        kinds |= {name: "metric" for name in metrics or {} if name not in METRICS}
        return self._commit(response, {"columns": row, "kinds": kinds}, rounds)

    def _commit(self, observed: Round, row: Mapping[str, Any], rounds: list[Round]) -> Decision | None:
        """Commit a round and decide; at a stop, or in an audit, commit the decision and the end together with the round."""
        session = self.session
        # Nothing has to be undone for a round that continues, or that is committed together with all others.
        if (
            session is None
            or isinstance(self._journal, Changes)
            or not (session.auditing or session.would_stop(observed))
        ):
            return self._put(observed, row, rounds)
        before = self.rounds, self._columns, self._ended, _copy_of(session)
        decision, refused = None, None
        try:
            with self.together():
                try:
                    decision = self._put(observed, row, rounds)
                except (UnknownSignalError, NotFittedError) as error:  # the round is recorded all the same
                    refused = error
        except BaseException:  # nothing was committed, so the same round may be given again
            self.rounds, self._columns, self._ended, self.session = before
            raise
        if refused is not None:
            raise refused
        return decision

    def _put(self, observed: Round, row: Mapping[str, Any], rounds: list[Round]) -> Decision | None:
        """Write a round, and the decision on it."""
        self._journal.put(self.run, observed.index, row)
        self.rounds = rounds
        if self.session is None:
            return None
        decision = self.session.observe(observed)
        self._write_decision(decision, observed)
        return decision

    def _write_decision(self, decision: Decision, observed: Round) -> None:
        assert self.session is not None
        if (
            self.session.auditing
        ):  # commit before the next round runs, so that the draw and the decision cannot depend on it
            columns = self._decided()
            if columns != self._columns:  # a shadow may still decide in an audit
                self._journal.decide(self.run, columns)
                self._columns = columns
        elif decision.stop:
            is_drawn = self.session.draw is not None and self.session.draw.audited
            is_whole = observed.index == self.session.policy.max_rounds and (is_drawn or decision.reason != "rule")
            self._close("max_rounds" if is_whole else "rule")

    def end(self, reason: Ending) -> Decision | None:
        """End the question, or its audit, for a reason.

        Args:
            reason: `max_rounds` (the loop's cap), `exhausted` (nothing was left to try), `rule` (the loop decided to
                stop, so that later rounds are unknown and the question is censored), `failed` or `cancelled` (the
                question is left out of all results).  If an audit ends as `rule`, `failed` or `cancelled`, the decision
                counts, but the loss of stopping stays unknown.

        Returns:
            The decision, with the best answer so far; None if there is neither a policy nor a cap.

        Raises:
            DataError: The reason has another value than those above, or the question has ended.
        """
        if reason not in get_args(Ending):
            raise DataError(f"a question cannot end for the reason {reason!r}; allowed: {', '.join(get_args(Ending))}")
        if self._ended:
            raise DataError(f"question {self.question_id!r} has ended already")
        self._end(reason, why=reason if reason in ("failed", "cancelled") else "")
        return self.decision

    @contextmanager
    def together(self) -> Iterator[Self]:
        """Commit all records of the block together, for a question whose rounds are already known.

        If the block raises, nothing is recorded, and the question must not be used any more.
        """
        journal = self._journal
        try:
            with journal.together() as self._journal:
                yield self
        finally:
            self._journal = journal

    def goes_on_in(self, journal: RoundWriter) -> None:
        """Record into another journal from now on."""
        self._journal = journal

    def to_state(self) -> dict[str, Any]:
        """Return the question as JSON-ready values, for `Recorder.resume`, in this process or another.

        Raises:
            DataError: The answer position of the policy is a Python callable, which cannot be stored as text.
        """
        return {
            "run": self.run,
            "question_id": self.question_id,
            "request_id": self._request_id,
            "question": self._question.question,
            "golds": list(self._question.answers),
            "labels": dict(self._labels),
            "session": None if self.session is None else self.session.to_state(),
            "rounds": [] if self.session is not None else [observed.to_dict() for observed in self.rounds],
        }

    def _end(self, reason: Ending, *, why: str = "", inferred: bool = False) -> None:
        if self.session is not None and self.session.auditing:
            end: End = reason if reason in ("max_rounds", "exhausted") else "rule"
            self.session.end("cancelled" if end == "rule" else "exhausted")
            self._close(end)
            return
        end = "failed" if reason == "cancelled" or not self.rounds else reason
        if self.session is not None and self.session.decision is None:
            known: Reason = reason if reason in ("exhausted", "failed") else "cancelled"
            self.session.end(known)
        self._close(end, why=why or ("" if self.rounds else "no round was observed"), inferred=inferred)

    def _close(self, end: End, *, why: str = "", inferred: bool = False) -> None:
        """Commit the decision and the end of the question."""
        self._journal.end(self.run, {"end": end, "inferred": inferred, "why": why}, self._decided())
        self._ended = True

    def _decided(self) -> dict[str, Any]:
        if self.session is None:
            return {}
        columns = decision_columns(self.session, is_deployed=self._reader.is_deployed)
        is_by_request = self._request_id is not None and columns.get("audit_rate") is not None
        return {**columns, AUDIT_UNIT: "request"} if is_by_request else columns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._ended:
            return
        if kind is not None:
            # Only the error's type: its text may contain a key.
            self._end("failed", why=f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))
        elif not self.done:  # if it is done, rounds of an audit may still follow
            self._end("rule", inferred=self.session is None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)


def _copy_of(session: Session) -> Session:
    """Return an independent copy of a session; only policies and rounds are shared, since they never change."""
    policies = [session.policy, *(shadow.policy for shadow in session._shadows.sessions.values())]  # noqa: SLF001 - a part of it
    return deepcopy(session, {id(shared): shared for shared in (*policies, *session.rounds)})


_RESERVED_NAMES = frozenset(
    {
        *TEXT_COLUMNS,
        *DECISION_COLUMNS,
        "round",
        "golds",
        "passage_ids",
        EMBEDDING,
        THINKING_IDS,
        "question_type",
        "recorded_at",
        RUN,
        INFERRED,
        AMENDED,
    }
).difference(PINNED_LABELS)


def checked_golds(golds: str | Sequence[str]) -> tuple[str, ...]:
    """Return gold answers as a tuple; raise if they are not texts."""
    texts = (golds,) if isinstance(golds, str) or not isinstance(golds, Iterable) else tuple(golds)
    if not all(isinstance(gold, str) for gold in texts):
        raise DataError(f"gold answers are texts, not {golds!r}")
    return texts


def check_signal_names(names: Iterable[str], labels: Iterable[str] = ()) -> None:
    """Raise if a signal has the name of a column or label, whose values the signal would replace."""
    others = {*_RESERVED_NAMES, *PINNED_LABELS, *METRICS, *labels}
    for name in names:
        if name in others or name.startswith((SHADOW, "cost.")):
            raise DataError(f"{name!r} cannot be the name of a signal: a recording has another column of that name")


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels; raise if one is not text, or has the name of one of this library's columns."""
    for name, text in labels.items():
        ours = name in _RESERVED_NAMES or name in SIGNALS or name in METRICS
        if not isinstance(name, str) or not name.isidentifier() or ours or not isinstance(text, str):
            raise DataError(f"{name!r}: {text!r} cannot be a label: give a text, under a name that no other column has")
    return dict(labels)


def checked_metric(name: str, value: float) -> float | None:
    """Return a metric after checking that it lies in [0, 1]; None if it is unknown."""
    number = as_number(value)
    if (
        not name.isidentifier()
        or name in _RESERVED_NAMES
        or name in SIGNALS
        or not (math.isnan(number) or 0 <= number <= 1)
    ):
        raise DataError(f"the metric {name!r} is {value!r}: a metric has a name of its own and lies in [0, 1]")
    return None if math.isnan(number) else number
