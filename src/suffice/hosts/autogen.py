"""Adapter for AutoGen: a termination condition that keeps the best message and the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError
from suffice.hosts.runs import REPLY_NEEDS, Measure, OpenRun, QuestionRun, call_cost, opener
from suffice.policy.rounds import Cost
from suffice.policy.session.sources import PolicySource
from suffice.policy.signals import LOGPROB_NEEDS

if TYPE_CHECKING:
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder


def stop_condition(
    policy: PolicySource,
    *,
    writer: str | None = None,
    measure: Measure | None = None,
    recorder: Recorder | None = None,
    price: Price | None = None,
) -> Any:
    """Return a termination condition for a team: each message of the writer is a round, and the policy decides.

    A team resets its conditions when it ends, and its result ends with the last message, not the best one.  So the condition
    keeps the run, and `ended()` returns the best message and the decision, also if the team's `max_turns` or another
    condition ended it.  Call it after each run: until then, a recording counts a question that the policy did not end as
    unfinished, since the condition cannot tell whether the team ended or failed.  One condition serves one team, for any
    number of successive questions.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        writer: The agent whose messages are rounds; None = every agent.
        measure: Measures signals of a message, given the task and the message.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.

    Raises:
        ImportError: AutoGen AgentChat is not installed.
    """
    from autogen_agentchat.base import TerminationCondition

    class StopCondition(_StopCondition, TerminationCondition):
        """`_StopCondition` as a condition of the framework."""

    # AutoGen's messages have no log-probabilities.
    return StopCondition(opener(policy, measure, recorder, price=price, gives=REPLY_NEEDS - LOGPROB_NEEDS), writer)


class _StopCondition:
    """A termination condition that observes the writer's messages."""

    def __init__(self, open_run: OpenRun, writer: str | None) -> None:
        self._open_run, self._writer = open_run, writer
        self._run: QuestionRun | None = None
        self._last: QuestionRun | None = None
        self._costs: list[Cost] = []
        self._question = ""

    @property
    def terminated(self) -> bool:
        """True once the policy has ended the team."""
        return self._run is not None and self._run.decision is not None

    async def __call__(self, messages: Sequence[Any]) -> Any:
        """Observe the messages since the last call; return the message that ends the team, or None."""
        from autogen_agentchat.base import TerminatedException
        from autogen_agentchat.messages import BaseChatMessage, StopMessage

        if self.terminated:
            raise TerminatedException("the policy has already ended the team")
        for message in messages:
            if isinstance(message, BaseChatMessage) and message.source == "user":
                self._question = message.to_model_text()
                self._run = self._open_run(self._question)
                continue
            if message.models_usage is not None:
                usage = message.models_usage
                self._costs.append(call_cost(usage.prompt_tokens, usage.completion_tokens))
            if not isinstance(message, BaseChatMessage) or self._writer not in (None, message.source):
                continue
            run = self._run = self._run or self._open_run(self._question)
            cost = sum(self._costs[1:], self._costs[0]) if self._costs else None
            self._costs = []
            decision = run.observe(message.to_model_text(), cost=cost)
            if decision.stop:
                said = f"{decision.reason} at round {decision.stop_round}: round {decision.answer_round} is the best"
                return StopMessage(content=said, source="suffice", metadata={"answer": run.text})
        return None

    async def reset(self) -> None:
        """Keep the run for `ended`; the next message starts a new run."""
        self._last = self._run or self._last
        self._run, self._costs = None, []

    def ended(self) -> tuple[str, dict[str, Any]]:
        """Return the best message of the team that ended last, and the decision.

        Raises:
            DataError: No team has ended yet.
        """
        self._last, self._run = self._run or self._last, None
        if self._last is None:
            raise DataError("no team has ended yet: give one termination_condition=, and run it first")
        self._last.end("cancelled")
        return self._last.text, self._last.metadata()
