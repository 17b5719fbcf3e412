"""The recorder for loops of your own: give it each response, and it keeps the rounds of every question."""

from __future__ import annotations

import atexit
import hashlib
import math
import time
import uuid
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

from suffice.errors import DataError
from suffice.json_text import as_number
from suffice.loop.rows import row_of
from suffice.metrics import METRICS
from suffice.normalizers import DEFAULT_NORMALIZER, MATCH, normalizer_of
from suffice.retrieval import Question
from suffice.rounds import Decision, End, Reason, Reply, Round
from suffice.rules import Never, Rule
from suffice.session import Policy, Session
from suffice.session.state import Missing
from suffice.signals import SIGNALS, AnswerPosition
from suffice.store.merging import INFERRED, RUN
from suffice.store.parts_writing import recorded_at
from suffice.store.round_journal import RoundJournal
from suffice.store.schema import PINNED_LABELS, TEXT_COLUMNS

__all__ = ["Ending", "OpenQuestion", "Recorder"]

Ending = Literal["max_rounds", "exhausted", "rule", "failed", "cancelled"]
"""Why a question that is recorded has no further round, as the loop itself says it."""

_RESERVED_NAMES = frozenset({*TEXT_COLUMNS, "round", "golds", "question_type", "recorded_at", RUN, INFERRED})


class Recorder:
    """Records the rounds of a loop of your own, from any number of threads, tasks and processes.

    Each round is on disk once `observe` has returned, in a journal beside `path`.  The journal is part of the recording:
    `read_recording(path)` and every command read both.  When the program ends, or `save` is called, the questions that have
    ended move into the parquet file.  A question that has not ended, for instance because its process was killed, counts as
    failed: no figure uses it, and its rounds stay there.

    A log of production goes to a folder: each process appends to parts of its own there, and shares no lock with others.

    >>> import tempfile
    >>> from suffice import read_recording
    >>> with tempfile.TemporaryDirectory() as folder, Recorder(f"{folder}/runs.parquet", max_rounds=2) as recorder:
    ...     with recorder.question("Which play has Prospero?", golds=["The Tempest"]) as run:
    ...         while not run.done:
    ...             _ = run.observe("The Tempest")  # or the response of a client
    ...     read_recording(f"{folder}/runs.parquet").column("em")
    array([[1., 1.]])

    Args:
        path: The recording; a new one, or one of a recorder with the same settings. A parquet file, or a folder of parts: a
            path that does not end in ``.parquet``, or an existing folder.
        policy: What decides when to stop: a policy, a policy file, or a rule or its text.  What it cuts off is marked as
            censored.  None = the loop runs as it does without a recorder.
        max_rounds: The cap of the loop, where there is no policy; None = the loop alone knows when it ends.
        start_round: The index of the first round: 1, or 0 if it is the model alone, before any evidence.  A policy has its
            own.
        answer_position: Where the answer is in a response.  None = where the policy says; the whole text where it finds no
            answer there, or without a policy.
        labels: Texts that all questions share, `model` for instance; policies fitted on the recording depend on `model`
            and `prompt_id`.
        golds: Gold answers by the text of the question, for questions that are given none when they begin.
        missing: What to do if a round does not bring what the policy reads; see `Session`.
        samples: Whether the rounds of a question are independent answers, so that their order means nothing; figures of the
            recording are then means over random orders.
        normalizer: Which answers of samples are the same, a name in `NORMALIZERS`; None = as the policy says.
        part_questions: In a folder: the most questions of a part.
        part_bytes: In a folder: bytes of rounds from which on a part takes no further question.

    Raises:
        ConfigMismatchError: The file was recorded with other settings.
        DataError: A setting contradicts another, or the file cannot be written.
        SchemaError: The file is not a recording, or it is damaged.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        policy: Policy | Rule | str | Path | None = None,
        max_rounds: int | None = None,
        start_round: Literal[0, 1] = 1,
        answer_position: AnswerPosition | None = None,
        labels: Mapping[str, str] | None = None,
        golds: Mapping[str, str | Sequence[str]] | None = None,
        missing: Missing = "error",
        samples: bool = False,
        normalizer: str | None = None,
        part_questions: int = 1000,
        part_bytes: int = 1 << 26,
    ) -> None:
        self._log = recorded_at(path, questions=part_questions, size=part_bytes)
        self.path = self._log.path
        if policy is not None and max_rounds is not None:
            raise DataError("the policy has its own max_rounds: leave out one of them")
        if start_round not in (0, 1):
            raise DataError(f"start_round must be 0 (the model alone) or 1, not {start_round!r}")
        if not isinstance(answer_position, AnswerPosition | None):
            raise DataError(
                f"answer_position is an AnswerPosition, such as AnswerPosition('whole'), not {answer_position!r}"
            )
        if not isinstance(golds, Mapping | None):
            raise DataError(f"golds are gold answers by the text of the question, not {golds!r}")
        self.policy: Policy | None = None
        self._position = answer_position
        self._falls_back = False
        if policy is not None:
            self.policy = Session(policy, missing=missing).policy
            has_position = isinstance(policy, Policy | Path) or str(policy).endswith(".json")
            if answer_position is None and has_position:
                self._position, self._falls_back = self.policy.answer_position, True
            else:
                self.policy = replace(self.policy, answer_position=self.answer_position)
        elif max_rounds is not None:
            self.policy = Policy(rule=Never(), start_round=start_round, max_rounds=max_rounds)
        self.start_round = start_round if self.policy is None else self.policy.start_round
        self.labels = _checked_labels(labels or {})
        self.golds = {text.strip(): _checked_golds(value) for text, value in (golds or {}).items()}
        self.missing = missing
        self.samples = samples
        self.normalizer = self._compared_by(normalizer)
        self._log.check(self._metadata())
        atexit.register(self._log.close)

    def __repr__(self) -> str:
        return f"Recorder({str(self.path)!r})"

    def _compared_by(self, normalizer: str | None) -> str:
        """Return which answers are the same, where samples are recorded."""
        theirs = DEFAULT_NORMALIZER if self.policy is None else self.policy.normalizer
        if normalizer is None:
            return theirs if self.samples else DEFAULT_NORMALIZER
        normalizer_of(normalizer)
        if not self.samples:
            raise DataError("a normalizer says which samples agree: give samples=True, too, or leave it out")
        if self.policy is not None and isinstance(self.policy.rule, Never):
            self.policy = replace(self.policy, normalizer=normalizer)
        elif self.policy is not None and normalizer != theirs:
            raise DataError(
                f"the policy compares answers as {theirs!r}, and normalizer is {normalizer!r}: leave it out"
            )
        return normalizer

    @property
    def journal(self) -> RoundJournal | None:
        """The rounds that are not in the parquet file yet; of a folder, those of the part that takes new questions, if any."""
        return self._log.journal

    @property
    def answer_position(self) -> AnswerPosition:
        """Where the recorded answers are in the responses."""
        return self._position or AnswerPosition("whole")

    def _metadata(self) -> dict[str, Any]:
        position = self.answer_position
        config: dict[str, Any] = {
            "recorder": 1,
            "start_round": self.start_round,
            "answer_position": None if position.kind == "callable" else position.to_dict(),
            "labels": self.labels,
        }
        samples = {"exchangeable": True, "normalizer": self.normalizer} if self.samples else {}
        config |= {"samples": self.normalizer} if samples else {}  # files of older releases do not say it
        state = {} if self.policy is None else {name: item.to_dict() for name, item in self.policy.state.items()}
        return {
            "config": config,
            "depends": {k: v for k, v in self.labels.items() if k in PINNED_LABELS},
            "state": state,
            **samples,
        }

    def question(
        self,
        question: str,
        *,
        golds: str | Sequence[str] | None = None,
        question_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> OpenQuestion:
        """Begin a question: ``with recorder.question(...) as run``, or ``async with``.

        The same question may be recorded several times; all of them are one unit for statistics.

        Args:
            question: Its text.
            golds: Gold answers, for EM and F1; empty if unknown.  None = those that the recorder has for this text.
            question_id: Its name; None = a hash of the text.  Recorded again, it is ``NAME#2``, ``NAME#3``, ...
            labels: Texts of your own, for columns of these names.

        Raises:
            DataError: The text is blank, or an argument has another type.
        """
        entry = self._question(question, golds, question_id)
        return self._begin(entry, {**self.labels, **_checked_labels(labels or {})})

    def _begin(self, entry: Question, labels: Mapping[str, str]) -> OpenQuestion:
        run = uuid.uuid4().hex
        journal = self._log.begin(run, {"cluster": entry.question_id})
        return OpenQuestion(self, entry, labels, run=run, journal=journal)

    def resume(self, run: str, question: str, rounds: Sequence[Round]) -> OpenQuestion:
        """Return a question that somebody holds as values between two rounds; its rounds are recorded once.

        If it has ended, or has other rounds on disk, its loop was taken back to an earlier state: what was recorded stays
        as it is, and the question is recorded again from `rounds` on.

        Args:
            run: The `run` of the `OpenQuestion`.
            question: Its text.
            rounds: Its rounds so far.
        """
        entry = self._question(question, None, None)
        journal = self._log.holding(run)
        if journal is not None and journal.n_rounds(run) == len(rounds):
            return OpenQuestion(self, entry, self.labels, run=run, journal=journal, rounds=rounds)
        again = self._begin(entry, self.labels)
        for observed in rounds:
            again.observe(observed)
        return again

    def _question(self, question: str, golds: str | Sequence[str] | None, question_id: str | None) -> Question:
        if not isinstance(question, str) or not question.strip():
            raise DataError(f"a question is a text, not {question!r}")
        if question_id is not None and (not isinstance(question_id, str) or not question_id.strip()):
            raise DataError(f"question_id is a text, not {question_id!r}")
        text = question.strip()
        answers = self.golds.get(text, ()) if golds is None else _checked_golds(golds)
        name = question_id or hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
        return Question(question_id=name, question=text, answers=answers)

    def save(self) -> None:
        """Move the questions that have ended into the parquet file, which is written anew; of a folder, only this part.

        Raises:
            DataError: The disk is full, or the path cannot be written.
        """
        self._log.save()

    def close(self) -> None:
        """Save, also when the program ends; questions that are still open stay in the journal."""
        atexit.unregister(self._log.close)
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, response: Any, index: int, seconds: float, fields: Mapping[str, Any]) -> Round:
        """Return the round of a response; see `OpenQuestion.observe`."""
        if isinstance(response, Reply):
            return Round.of(index, response, **fields)
        observed = Round.from_response(response, index=index, position=self._position, seconds=seconds, **fields)
        if observed.answer is not None or self._position is None or not observed.text.strip():
            return observed
        if self._falls_back:
            return Round.from_response(response, index=index, seconds=seconds, **fields)
        warnings.warn(
            f"round {index} has a text, but no answer at {self._position}: {observed.text[:80]!r}. It is recorded without "
            "an answer; answer_position says where the answer is",
            stacklevel=3,
        )
        return observed


class OpenQuestion:
    """One question while it is recorded; made by `Recorder.question`.

    Attributes:
        question_id: The name that it was given.
        run: Unique among all questions that are recorded, for `Recorder.resume`.
        rounds: The rounds so far.
        session: What decides; None without a policy and a cap.
    """

    def __init__(
        self,
        recorder: Recorder,
        question: Question,
        labels: Mapping[str, str],
        *,
        run: str,
        journal: RoundJournal,
        rounds: Sequence[Round] = (),
    ) -> None:
        self.question_id = question.question_id
        self.run = run
        self.rounds = list(rounds)
        policy = recorder.policy
        self.session = None if policy is None else Session(policy, missing=recorder.missing)
        self._recorder, self._question, self._labels = recorder, question, labels
        self._state = {} if policy is None else policy.state
        self._journal = journal
        self._ended = False
        if self.session is not None:
            self.session.observe_all(self.rounds)

    @property
    def done(self) -> bool:
        """Whether the question has ended: by the policy, its cap, or `end`."""
        return self._ended

    @property
    def decision(self) -> Decision | None:
        """The final decision, with the answer to return; None while the loop goes on, and without a policy and a cap."""
        return None if self.session is None else self.session.decision

    @property
    def next_round(self) -> int:
        """The index of the round that `observe` expects."""
        return self._recorder.start_round + len(self.rounds)

    def observe(
        self,
        response: Any,
        *,
        seconds: float = math.nan,
        metrics: Mapping[str, float] | None = None,
        **fields: Any,
    ) -> Decision | None:
        """Record one round, and decide.

        Args:
            response: What the client returned (see `Round.from_response`), a text, a `Reply`, or a `Round` of your own.
            seconds: Duration of the call, seconds; NaN if unknown.
            metrics: Metrics of your own for the answer, in [0, 1], by name; NaN = unknown.
            **fields: Other fields of the `Round`: `passages`, `signals`, `feedback`, `costs`, ...

        Returns:
            The decision at this round; None without a policy and a cap.

        Raises:
            DataError: The response cannot be read, the question has ended, or a value has another type.
            UnknownSignalError: The round does not bring what the policy reads; it is recorded all the same.
            NotFittedError: The same of a calibrated signal for which the policy has no calibrator.
        """
        if self._ended:
            raise DataError(f"question {self.question_id!r} has ended: begin a new one for another round")
        if not isinstance(response, Round):
            response = self._recorder.read(response, self.next_round, seconds, fields)
        elif fields or not math.isnan(seconds):
            raise DataError("a Round has its own fields: give them to it")
        if response.index != self.next_round:
            raise DataError(f"round {response.index} came where round {self.next_round} is expected")
        rounds = [*self.rounds, response]
        row = row_of(
            self._question,
            rounds,
            "rule",
            state=self._state,
            cells=self._labels,
            recorded_at=time.time(),
            normalizer=self._recorder.normalizer,
        )
        row |= {name: _checked_metric(name, value) for name, value in (metrics or {}).items()}
        kinds = {MATCH: "metric"} if MATCH in row else {}
        kinds |= {name: "signal" for name in response.signals if name not in SIGNALS}
        kinds |= {name: "metric" for name in metrics or {} if name not in METRICS}
        self._journal.put(self.run, response.index, {"columns": row, "kinds": kinds})
        self.rounds = rounds
        if self.session is None:
            return None
        decision = self.session.observe(response)
        if decision.stop:
            is_cut = decision.reason == "rule" or response.index != self.session.policy.max_rounds
            self._end("rule" if is_cut else "max_rounds")
        return decision

    def end(self, reason: Ending) -> Decision | None:
        """End the question, and say why there is no further round.

        Args:
            reason: `max_rounds` (the loop's cap), `exhausted` (nothing was left to try), `rule` (the loop decided: what it
                cut off is unknown, so the question is censored), `failed` or `cancelled` (left out of every figure).

        Returns:
            The decision, with the best answer so far; None without a policy and a cap.

        Raises:
            DataError: Another reason, or the question has ended.
        """
        if reason not in get_args(Ending):
            raise DataError(f"a question cannot end for the reason {reason!r}; allowed: {', '.join(get_args(Ending))}")
        if self._ended:
            raise DataError(f"question {self.question_id!r} has ended already")
        self._end(reason, why=reason if reason in ("failed", "cancelled") else "")
        return self.decision

    def _end(self, reason: Ending, *, why: str = "", inferred: bool = False) -> None:
        end: End = "failed" if reason == "cancelled" or not self.rounds else reason
        why = why or ("" if self.rounds else "no round was observed")
        self._journal.end(self.run, {"end": end, "inferred": inferred, "why": why})
        self._ended = True
        if self.session is not None and self.session.decision is None:
            known: Reason = reason if reason in ("exhausted", "failed") else "cancelled"
            self.session.end(known)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._ended:
            return
        if kind is not None:
            # The name alone: the text of an error may hold a key.
            self._end("failed", why=f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))
        else:
            self._end("rule", inferred=self.session is None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)


def _checked_golds(golds: str | Sequence[str]) -> tuple[str, ...]:
    """Raise if gold answers are not texts."""
    texts = (golds,) if isinstance(golds, str) or not isinstance(golds, Iterable) else tuple(golds)
    if not all(isinstance(gold, str) for gold in texts):
        raise DataError(f"gold answers are texts, not {golds!r}")
    return texts


def _checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Raise if labels are not texts, or have the name of a column of ours."""
    for name, text in labels.items():
        ours = name in _RESERVED_NAMES or name in SIGNALS or name in METRICS
        if not isinstance(name, str) or not name.isidentifier() or ours or not isinstance(text, str):
            raise DataError(f"{name!r}: {text!r} cannot be a label: give a text, under a name that no other column has")
    return dict(labels)


def _checked_metric(name: str, value: float) -> float | None:
    """Return a metric in [0, 1]; None if it is unknown."""
    number = as_number(value)
    if (
        not name.isidentifier()
        or name in _RESERVED_NAMES
        or name in SIGNALS
        or not (math.isnan(number) or 0 <= number <= 1)
    ):
        raise DataError(f"the metric {name!r} is {value!r}: a metric has a name of its own and lies in [0, 1]")
    return None if math.isnan(number) else number
