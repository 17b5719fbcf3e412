"""Adapter for AutoGen: a termination condition that keeps the best message and the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError
from suffice.hosts.runs import NO_LOGPROBS, Measure, OpenRun, QuestionRun, opener
from suffice.hosts.usage import call_cost
from suffice.policy.rounds import Cost
from suffice.policy.session.sources import PolicySource

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder


def stop_condition(
    policy: PolicySource,
    *,
    writer: str | None = None,
    measure: Measure | None = None,
    recorder: Recorder | None = None,
    price: Price | PriceFile | None = None,
    final_call: Callable[[list[Any]], Awaitable[Any]] | None = None,
) -> Any:
    """Return a termination condition for a team: each message of the writer is a round, and the policy decides.

    A team resets its conditions when the team ends, and the team's result ends with the last message, not the best one.
    The condition therefore keeps the run, and `ended()` returns the best message and the decision, even if the team was
    ended by its `max_turns` or by another condition.  Call `ended()` after each run of the team.  If the policy did not
    stop, the condition cannot tell whether the team ended or failed, and a recording lists the question as unfinished until
    `ended()` is called.  Use one condition for each team, for any number of successive questions.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        writer: The agent whose messages are rounds; None = every agent.
        measure: Measures signals of a message, given the task and the message.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
        final_call: A method that gets the messages so far and returns a reply without calling tools, such as
            ``model.create``.  It is called once if the policy would end the team without an answer, see `QuestionRun`.

    Raises:
        ImportError: AutoGen AgentChat is not installed.
    """
    from autogen_agentchat.base import TerminationCondition

    class StopCondition(_StopCondition, TerminationCondition):
        """`_StopCondition` as a condition of the framework."""

    # AutoGen's messages have no log-probabilities.
    open_run = opener(policy, measure, recorder, price=price, final_call=final_call is not None, gives=NO_LOGPROBS)
    return StopCondition(open_run, writer, final_call)


class _StopCondition:
    """A termination condition that observes the writer's messages."""

    def __init__(
        self, open_run: OpenRun, writer: str | None, final_call: Callable[[list[Any]], Awaitable[Any]] | None
    ) -> None:
        self._open_run, self._writer, self._final_call = open_run, writer, final_call
        self._said: list[Any] = []
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
            is_said = isinstance(message, BaseChatMessage)
            if is_said and message.source == "user":
                self._said = [message]
                self._question = message.to_model_text()
                self._run = self._open_run(self._question)
                continue
            if message.models_usage is not None:
                usage = message.models_usage
                self._costs.append(call_cost(usage.prompt_tokens, usage.completion_tokens))
            self._said += [message] if is_said else []
            if not is_said or self._writer not in (None, message.source):
                continue
            run = self._run = self._run or self._open_run(self._question)
            cost = sum(self._costs[1:], self._costs[0]) if self._costs else None
            self._costs = []
            run.observe(message.to_model_text(), cost=cost)
            if run.final_call_due:
                await self._last_call(run)
            if (decision := run.decision) is not None:
                said = f"{decision.reason} at round {decision.stop_round}: round {decision.answer_round} is the best"
                return StopMessage(content=said, source="suffice", metadata={"answer": run.text})
        return None

    async def _last_call(self, run: QuestionRun) -> None:
        from autogen_core.models import UserMessage

        if self._final_call is None:
            return
        asked = [UserMessage(content=said.to_model_text(), source=said.source) for said in self._said]
        asked.append(UserMessage(content=run.final_request, source="user"))
        with run.last_call() as observe:
            result = await self._final_call(asked)
            cost = call_cost(result.usage.prompt_tokens, result.usage.completion_tokens)
            observe(result.content if isinstance(result.content, str) else "", cost=cost)

    async def reset(self) -> None:
        """Keep the run for `ended`; the next message starts a new run."""
        self._last = self._run or self._last
        self._run, self._costs, self._said = None, [], []

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
