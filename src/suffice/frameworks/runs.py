"""One question in a loop that belongs to somebody else: observe each reply, end with the best one and the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError
from suffice.frameworks.tracing import trace_decision
from suffice.rounds import Cost, Decision, Reason, Round
from suffice.rules import Rule
from suffice.session import Policy, Session

if TYPE_CHECKING:
    from suffice.loop import Recorder

__all__ = ["METADATA", "Measure", "QuestionRun", "call_cost", "opener"]

METADATA = "suffice"
"""The key of the decision in a framework's final message."""

_ENDINGS: Mapping[Any, Any] = {"cancelled": "max_rounds"}
"""How a recording calls an end that its loop's own limit brought."""

Measure = Callable[[str, str], Mapping[str, float]]
"""Returns signals of a reply by name, given the question and the reply; NaN where undefined."""


class QuestionRun:
    """One question: every reply of the model is a round, and the end is the best reply with the reason.

    A reply without text, such as one that only calls tools, is a round without an answer.  Where the policy's answer
    position finds an answer in a reply (`Answer: ...`), rules and selectors read that answer; otherwise they read the
    whole reply, after any thinking block.

    >>> run = QuestionRun("answer_stable")
    >>> [run.observe(reply).stop for reply in ("The Tempest", "the Tempest.")]
    [False, True]
    >>> run.text, run.metadata()["reason"]
    ('the Tempest.', 'rule')

    Args:
        policy: What decides: a policy, a policy file (a path, or text that ends in ``.json``), or a rule or its text; None =
            the policy in `state`.
        question: The question, for `measure`.
        measure: Measures signals of each reply that the policy reads and that are not computed from the rounds.
        recorder: Records the rounds when the run ends.  `cancelled` is recorded as `max_rounds`, the cap of the loop.
        state: What `to_state` wrote, to continue that run; None begins a new one.

    Raises:
        DataError: The policy file cannot be read, or there is neither a policy nor a state, or a recorder but no question.
        SchemaError: `state` is not the state of a run.
        ConfigMismatchError: `state` belongs to another policy.
    """

    def __init__(
        self,
        policy: Policy | Rule | str | Path | None = None,
        question: str = "",
        *,
        measure: Measure | None = None,
        recorder: Recorder | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        if state is not None:
            self.question = str(state.get("question", ""))
            self.session = Session.from_state(state.get("session", {}), policy)
        elif policy is not None:
            self.question, self.session = question, Session(policy)
        else:
            raise DataError("a run needs a policy, or a state that contains one")
        if recorder is not None and not self.question.strip():
            raise DataError("a recording needs the text of each question, and this run has none: give question=")
        self._measure, self._recorder = measure, recorder

    @property
    def decision(self) -> Decision | None:
        """The final decision; None while the loop goes on."""
        return self.session.decision

    @property
    def text(self) -> str:
        """The reply of the round whose answer is returned; empty while the loop goes on or if no reply has an answer."""
        decision = self.decision
        if decision is None or decision.answer_round is None:
            return ""
        return next(item.text for item in self.session.rounds if item.index == decision.answer_round)

    @property
    def is_last(self) -> bool:
        """Whether the returned answer is the one of the newest round."""
        decision = self.decision
        return decision is not None and decision.answer_round == self.session.rounds[-1].index

    def observe(self, reply: Any, *, cost: Cost | None = None) -> Decision:
        """Take in one reply and decide.

        Args:
            reply: The text of the reply, empty if it only calls tools; or what a client returned, see `Round.from_response`.
            cost: What the call cost; None = what the reply says, tokens are unknown of a text.

        Raises:
            DataError: The run has ended, or `reply` is neither.
            UnknownSignalError: The policy reads a signal that nothing measures.
        """
        index, position = self.session.next_round, self.session.policy.answer_position
        observed = Round.from_response(reply, index=index, position=position)
        if observed.answer is None:
            observed = Round.from_response(reply, index=index)
        if self._measure is not None and observed.answer is not None:
            measured = self._measure(self.question, observed.text)
            observed = replace(observed, signals={**observed.signals, **measured})
        if cost is not None:
            observed = replace(observed, costs={"generator": cost})
        return self._reported(self.session.observe(observed))

    def end(self, reason: Reason = "cancelled") -> Decision:
        """End the run with the best answer so far; if it has ended, return its decision.

        Args:
            reason: `exhausted` if the loop ended by itself, `cancelled` if the framework's own limit ended it, or `failed`.
        """
        return self.decision or self._reported(self.session.end(reason))

    def _reported(self, decision: Decision) -> Decision:
        """Record and trace a decision that ends the run."""
        if decision.stop:
            trace_decision(decision, rounds=len(self.session.rounds))
        if decision.stop and self._recorder is not None:
            with self._recorder.question(self.question) as question:
                for observed in self.session.rounds:
                    question.observe(observed)
                if not question.done:
                    question.end(_ENDINGS.get(decision.reason, decision.reason))
        return decision

    def metadata(self) -> dict[str, Any]:
        """Return what was decided, JSON-ready, for the metadata of a framework's final message.

        The fields of `Decision`, the number of `rounds`, and the `policy` that decided.
        """
        decision = self.decision or Decision(stop=False)
        return {**decision.to_dict(), "rounds": len(self.session.rounds), "policy": self.session.policy.label}

    def to_state(self) -> dict[str, Any]:
        """Return the run as JSON-ready values, for frameworks that write their state down between two rounds."""
        return {"question": self.question, "session": self.session.to_state()}


def opener(
    policy: Policy | Rule | str | Path, measure: Measure | None = None, recorder: Recorder | None = None
) -> partial[QuestionRun]:
    """Return what opens the run of each question; the policy is read once, here.

    Args:
        policy: What decides, see `QuestionRun`.
        measure: Measures signals of each reply, see `QuestionRun`.
        recorder: Records the rounds, see `QuestionRun`.

    Raises:
        DataError: The policy file cannot be read.
        RuleSyntaxError: The text is neither a rule nor the name of a policy file.
    """
    return partial(QuestionRun, Session(policy).policy, measure=measure, recorder=recorder)


def call_cost(uncached: float | None, output: float | None, cached: float | None = None) -> Cost:
    """Return the cost of one call; an unknown number is NaN.

    >>> call_cost(120, 8)
    Cost(calls=1.0, uncached_tokens=120.0, cached_tokens=0.0, output_tokens=8.0, seconds=nan)

    Args:
        uncached: Input tokens that were processed; None = unknown.
        output: Generated tokens; None = unknown.
        cached: Input tokens from a prefix cache; None = not reported, so all input counts as uncached.
    """
    known = math.nan if uncached is None else 0.0
    return Cost(
        calls=1.0,
        uncached_tokens=math.nan if uncached is None else float(uncached),
        cached_tokens=known if cached is None else float(cached),
        output_tokens=math.nan if output is None else float(output),
        seconds=math.nan,
    )
