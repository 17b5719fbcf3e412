"""The recorder for loops of your own: it stores the rounds of every question from the responses given to it."""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from suffice.common.recent import RecentTexts
from suffice.errors import DataError, NotFittedError, SchemaError, UnknownSignalError
from suffice.loops.open_question import Ending, OpenQuestion, checked_golds, checked_labels, checked_metric
from suffice.loops.retrieval import Question
from suffice.policy.normalizers import DEFAULT_NORMALIZER, normalizer_of
from suffice.policy.rounds import Reply, Round
from suffice.policy.rules import Never
from suffice.policy.session import Audit, Policy, Session, read_reply
from suffice.policy.session.policy import Missing
from suffice.policy.session.sources import PolicySource, is_rule, shadow_policies
from suffice.policy.signals import AnswerPosition
from suffice.recordings.amending import StoredRun
from suffice.recordings.parts_writing import LARGE_BYTES, recorded_at
from suffice.recordings.round_journal import Changes, RoundJournal
from suffice.recordings.schema import PINNED_LABELS

_LOG = logging.getLogger(__name__)


class Recorder:
    """Records the rounds of your own loop, from any number of threads, tasks and processes.

    Each round is on disk once `observe` has returned, in a journal beside `path`.  The journal is part of the recording:
    `read_recording(path)` and every command read both.  When the program ends, or `save` is called, the questions that have
    ended move into the parquet file.  A question that has not ended, for instance because its process was killed, counts as
    failed: no figure uses it, and its rounds stay in the journal.

    A production log goes to a folder, in which each process appends to its own parts and shares no lock with others.

    >>> import tempfile
    >>> from suffice import read_recording
    >>> with tempfile.TemporaryDirectory() as folder, Recorder(f"{folder}/runs.parquet", max_rounds=2) as recorder:
    ...     with recorder.question("Which play has Prospero?", golds=["The Tempest"]) as run:
    ...         while not run.done:
    ...             _ = run.observe("The Tempest")  # or the response of a client
    ...     read_recording(f"{folder}/runs.parquet").column("em")
    array([[1., 1.]])

    Args:
        path: The recording: a new one, or one that was made with the settings given here.  It is a parquet file; if the
            path is an existing folder or does not end in ``.parquet``, it is a folder of parts.
        policy: A policy, a policy file, a rule, or the text of a rule, which decides when to stop.  Questions that it stops
            are marked as censored.  None = the loop runs as it does without a recorder.
        max_rounds: The cap of a loop without a policy; None = the loop ends each question itself.
        start_round: The index of the first round: 1, or 0 if in the first round the model answers without evidence.  A
            policy defines its own first round.
        answer_position: The position of the answer in a response.  None = the policy's position or, without a policy, the
            whole text.  A policy with the default position (after `Answer:`) is an exception: until a response to the
            question contains this marker, the whole text is the answer.
        labels: Texts that all questions share, such as `model`; policies fitted on the recording depend on `model` and
            `prompt_id`.
        golds: Gold answers by the text of the question, for questions that begin without any.
        missing: The reaction to a round that lacks a signal of the policy; see `Session`.
        audit: The share of questions that continue after the policy's stop, to measure the loss of stopping; None = no
            audits.
        shadow: Policies that decide on the same rounds and change nothing; the rounds at which they would stop are recorded.
        samples: True if the rounds of a question are independent answers in arbitrary order; figures of the recording are
            then means over random orders.
        normalizer: A name in `NORMALIZERS`.  The normalizer decides which answers are the same.  None = with `samples` the
            policy's normalizer, otherwise that of question answering.
        part_questions: In a folder: the largest number of questions in a part.
        part_bytes: In a folder: a part whose rounds have this size, in bytes, takes no further questions.

    Raises:
        ConfigMismatchError: The file was recorded with other settings.
        DataError: A setting contradicts another, or the file cannot be written.
        SchemaError: The file is not a recording, or it is damaged.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        policy: PolicySource | None = None,
        max_rounds: int | None = None,
        start_round: Literal[0, 1] = 1,
        answer_position: AnswerPosition | None = None,
        labels: Mapping[str, str] | None = None,
        golds: Mapping[str, str | Sequence[str]] | None = None,
        missing: Missing = "error",
        audit: Audit | None = None,
        shadow: PolicySource | Iterable[PolicySource] = (),
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
            if answer_position is None and not is_rule(policy):
                self._position = self.policy.answer_position
                self._falls_back = self._position.is_default  # also the default position of a policy
            else:
                self.policy = replace(self.policy, answer_position=self.answer_position)
        elif max_rounds is not None:
            self.policy = Policy(rule=Never(), start_round=start_round, max_rounds=max_rounds)
        self.start_round = start_round if self.policy is None else self.policy.start_round
        self.labels = checked_labels(labels or {})
        self.golds = {text.strip(): checked_golds(value) for text, value in (golds or {}).items()}
        self.missing = missing
        self.is_deployed = policy is not None
        self.samples = samples
        self.normalizer = self._compared_by(normalizer)
        self.audit, self.shadow = audit, self._checked_following(audit, shadow)
        self._ids = RecentTexts()
        self._has_repeated_id = False
        self._log.check(self._metadata())
        atexit.register(self._log.close)

    def __repr__(self) -> str:
        return f"Recorder({str(self.path)!r})"

    def _checked_following(
        self, audit: Audit | None, shadow: PolicySource | Iterable[PolicySource]
    ) -> tuple[Policy, ...]:
        """Return the shadow policies.

        Raises:
            DataError: There are shadow policies, but neither a policy nor a cap; or an audit, but no policy.
        """
        if audit is not None and not self.is_deployed:
            raise DataError(
                "an audit runs what a policy cut off, and there is no policy: give policy=, or leave it out"
            )
        if self.policy is None:
            if shadow_policies(shadow, Policy()):
                raise DataError("shadow policies decide up to the loop's last round: give policy= or max_rounds=")
            return ()
        Session(self.policy, missing=self.missing, audit=audit, question_id="any")
        return tuple(shadow_policies(shadow, self.policy).values())

    def _compared_by(self, normalizer: str | None) -> str:
        """Return the normalizer that compares answers; raise if the policy's normalizer differs from the given one."""
        theirs = DEFAULT_NORMALIZER if self.policy is None else self.policy.normalizer
        if normalizer is None:
            return theirs if self.samples else DEFAULT_NORMALIZER
        normalizer_of(normalizer)
        if self.policy is not None and isinstance(self.policy.rule, Never):
            self.policy = replace(self.policy, normalizer=normalizer)
        elif self.policy is not None and normalizer != theirs:
            raise DataError(
                f"the policy compares answers as {theirs!r}, and normalizer is {normalizer!r}: leave it out"
            )
        return normalizer

    @property
    def journal(self) -> RoundJournal | None:
        """The journal of rounds that are not yet in the parquet file; in a folder, the journal of the current part."""
        return self._log.journal

    @property
    def answer_position(self) -> AnswerPosition:
        """The position of the recorded answers in the responses."""
        return self._position or AnswerPosition("whole")

    def _metadata(self) -> dict[str, Any]:
        position = self.answer_position
        config: dict[str, Any] = {
            "recorder": 1,
            "start_round": self.start_round,
            "answer_position": None if position.kind == "callable" else position.to_dict(),
            "labels": self.labels,
        }
        compared = {"normalizer": self.normalizer} if self.samples or self.normalizer != DEFAULT_NORMALIZER else {}
        samples = {"exchangeable": True, **compared} if self.samples else compared
        # only where it differs from the default, so that files of older releases stay valid
        config |= {"samples": self.normalizer} if self.samples else compared
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
        request_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> OpenQuestion:
        """Begin a question: ``with recorder.question(...) as run``, or ``async with``.

        The same question may be recorded several times; its records form one unit for statistics.

        Args:
            question: The text of the question.
            golds: Gold answers, for EM and F1; empty if unknown.  None = the recorder's `golds` for this text.
            question_id: The id of the question; None = a hash of the text.  If a question is recorded again, its id
                becomes ``NAME#2``, ``NAME#3``, ...
            request_id: An id of this request, so that an audit draws each request separately.  None = all requests of a
                question share one draw.
            labels: Your own texts, for columns of these names.

        Raises:
            DataError: The text is blank, or an argument has the wrong type.
        """
        entry = self._question(question, golds, question_id)
        return self._begin(entry, {**self.labels, **checked_labels(labels or {})}, request_id)

    @contextmanager
    def at_once(
        self, question: str, *, question_id: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Iterator[OpenQuestion]:
        """Record a question whose rounds are already known; everything in the block is one commit.

        If the block raises, nothing of the question is recorded.

        Args:
            question: See `question`.
            question_id: See `question`.
            labels: See `question`.

        Raises:
            DataError: The disk is full or not writable, or the text is blank.
        """
        entry = self._question(question, None, question_id)
        opened, changes = self._opened(entry, {**self.labels, **checked_labels(labels or {})}, None)
        yield opened
        opened.goes_on_in(self._log.take(changes))

    def amend(self, stored: StoredRun, metrics: Sequence[Mapping[str, float]], *, end: Ending | None = None) -> None:
        """Record a run again with metrics that became known after its end; this copy replaces the earlier record.

        Args:
            stored: The run, see `stored_runs`.
            metrics: Metrics of each round, in [0, 1]; NaN = unknown.
            end: The reason for the end; None = as it was.

        Raises:
            DataError: A metric is not in [0, 1], or the disk is full or not writable.
        """
        checked = [{name: checked_metric(name, value) for name, value in own.items()} for own in metrics]
        journal = self._log.take(stored.amended(checked, end))
        if journal.size >= LARGE_BYTES:  # finding the next run in a large journal is slow
            self._log.save()

    def resume(self, state: Mapping[str, Any]) -> OpenQuestion:
        """Continue a question from the state of `OpenQuestion.to_state`; its rounds are not recorded twice.

        If the loop returned to an earlier state, the record on disk may have ended or have other rounds than the state.
        This record then stays unchanged, and the question is recorded anew, starting with the rounds of the state.

        Args:
            state: The values of `OpenQuestion.to_state`.

        Raises:
            DataError: The question has ended, or its audit was continued elsewhere.
            SchemaError: The values are not the state of a question.
            ConfigMismatchError: The question is still open, and the recorder has another policy.
        """
        if not isinstance(state, Mapping) or not isinstance(state.get("run"), str):
            raise SchemaError(f"this is not the state of a question that a Recorder records: {str(state)[:80]!r}")
        run, request_id = state["run"], state.get("request_id")
        entry = self._question(state.get("question"), state.get("golds"), state.get("question_id"))
        labels = checked_labels(state.get("labels") or self.labels)
        stored: Any = state.get("session")
        session = None if stored is None else Session.from_state(stored)
        rounds = [*map(Round.from_dict, state.get("rounds", ()))] if session is None else session.rounds
        is_audit = session is not None and session.decision is not None
        if not is_audit and session is not None and self.is_deployed:
            Session.from_state(stored, self.policy)  # raises for another policy
        journal = self._log.holding(run)
        if journal is not None and journal.n_rounds(run) == len(rounds):
            decides = session if is_audit else self._session(entry, request_id, rounds)
            return OpenQuestion(
                self, entry, labels, decides, run=run, journal=journal, request_id=request_id, rounds=rounds
            )
        if is_audit:
            raise DataError(f"question {entry.question_id!r} has ended, or its audit went on elsewhere")
        again = self._begin(entry, labels, request_id)
        for observed in rounds:
            again.observe(observed)
        return again

    def _begin(self, entry: Question, labels: Mapping[str, str], request_id: str | None) -> OpenQuestion:
        opened, changes = self._opened(entry, labels, request_id)
        opened.goes_on_in(self._log.take(changes))
        return opened

    def _opened(
        self, entry: Question, labels: Mapping[str, str], request_id: str | None
    ) -> tuple[OpenQuestion, Changes]:
        """Return a question that is not yet committed, and the changes to commit for it."""
        session, run, changes = self._session(entry, request_id), uuid.uuid4().hex, Changes()
        changes.begin(run, {"cluster": entry.question_id})
        return OpenQuestion(self, entry, labels, session, run=run, journal=changes, request_id=request_id), changes

    def _session(self, entry: Question, request_id: str | None, rounds: Sequence[Round] = ()) -> Session | None:
        """Return the session that decides on a question, after its earlier rounds."""
        if self.policy is None:
            return None
        name = entry.question_id if request_id is None else json.dumps([entry.question_id, request_id])
        session = Session(self.policy, missing=self.missing, audit=self.audit, shadow=self.shadow, question_id=name)
        for observed in rounds:
            with suppress(UnknownSignalError, NotFittedError):  # it was reported when the round was first observed
                session.observe(observed)
        return session

    def _question(self, question: Any, golds: str | Sequence[str] | None, question_id: str | None) -> Question:
        if not isinstance(question, str) or not question.strip():
            raise DataError(f"a question is a text, not {question!r}")
        if question_id is not None and (not isinstance(question_id, str) or not question_id.strip()):
            raise DataError(f"question_id is a text, not {question_id!r}")
        text = question.strip()
        answers = self.golds.get(text, ()) if golds is None else checked_golds(golds)
        name = question_id or hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
        return Question(question_id=name, question=text, answers=answers)

    def save(self) -> None:
        """Move ended questions into the parquet file or, if the recording is a folder, into this process's own parts.

        The file, or each of these parts, is rewritten.

        Raises:
            DataError: The disk is full, or the path cannot be written.
        """
        self._log.save()

    def close(self) -> None:
        """Save the recording; open questions stay in the journal.

        This also runs when the program ends.
        """
        atexit.unregister(self._log.close)
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, response: Any, seen: Sequence[Round], seconds: float, fields: Mapping[str, Any]) -> Round:
        """Read a response as the next round of its question; see `OpenQuestion.observe`."""
        index = self.start_round + len(seen)
        if isinstance(response, Reply):
            return Round.of(index, response, **fields)
        self._note_id(response)
        if self._falls_back:
            observed = read_reply(response, self._position, seen, index=index, seconds=seconds, **fields)
        else:
            observed = Round.from_response(response, index=index, position=self._position, seconds=seconds, **fields)
        if observed.answer is not None or self._position is None or not observed.text.strip():
            return observed
        warnings.warn(
            f"round {index} has a text, but no answer at {self._position}: {observed.text[:80]!r}. It is recorded without "
            "an answer; answer_position says where the answer is",
            stacklevel=3,
        )
        return observed

    def _note_id(self, response: Any) -> None:
        """Warn once if two responses have the same id, for instance because a proxy or cache resent an earlier one."""
        name = response.get("id") if isinstance(response, Mapping) else getattr(response, "id", None)
        if isinstance(name, str) and name and self._ids.add(name) and not self._has_repeated_id:
            self._has_repeated_id = True
            _LOG.warning(
                "two responses recorded to %s have the id %.80r: a cache or proxy may have sent an earlier one again, for another request, or "
                "your loop gave one response to two rounds. Record again what was affected",
                self.path,
                name,
            )
