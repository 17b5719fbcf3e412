"""Adapter for Haystack: hooks that end an agent with its best reply and the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from suffice.hosts.runs import METADATA, NO_LOGPROBS, Measure, OpenRun, QuestionRun, opener
from suffice.hosts.usage import usage_cost
from suffice.policy.session.sources import PolicySource

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder


def stop_hooks(
    policy: PolicySource,
    *,
    measure: Measure | None = None,
    recorder: Recorder | None = None,
    price: Price | PriceFile | None = None,
    final_call: Callable[..., Any] | None = None,
) -> dict[str, list[Any]]:
    """Return hooks for `Agent(hooks=...)`: each reply is a round, and the policy ends the agent.

    The last message is then the best reply, with the decision in ``meta["suffice"]``, even if the agent ended by itself or
    at `max_agent_steps`.  One agent serves any number of questions.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
        final_call: A method of a chat generator, such as ``model.run``.  It is called once, with the messages and without
            tools, if the agent would end without an answer, see `QuestionRun`.

    Raises:
        ImportError: Haystack is not installed.
    """
    import haystack.hooks  # noqa: F401 - now, not at the first reply

    open_run = opener(policy, measure, recorder, price=price, final_call=final_call is not None, gives=NO_LOGPROBS)
    deciding = _StopHook(open_run, final_call)
    return {"before_llm": [deciding], "after_run": [_EndHook(deciding)]}


class _StopHook:
    """A hook that decides before each call of the model; each run of the agent has its own state."""

    def __init__(self, open_run: OpenRun, final_call: Callable[..., Any] | None) -> None:
        self._open_run, self._final_call = open_run, final_call
        self._runs: WeakKeyDictionary[Any, QuestionRun] = WeakKeyDictionary()

    def run(self, state: Any) -> None:
        """Observe the newest reply, and stop the agent if the policy says so."""
        run = self.observed(state)
        if run.final_call_due:
            self.last_call(run, state)
        if run.decision is not None:
            state.set("stop_run", run.decision.reason)

    def observed(self, state: Any) -> QuestionRun:
        """Return the run of this state, which has observed the newest reply."""
        messages = state.data["messages"]
        if state not in self._runs:
            asked = next((said.text or "" for said in reversed(messages) if said.is_from("user")), "")
            self._runs[state] = self._open_run(asked)
        run = self._runs[state]
        if run.decision is None and state.data["step_count"] > len(run.session.rounds):
            newest = next(said for said in reversed(messages) if said.is_from("assistant"))
            run.observe(newest.text or "", cost=usage_cost(newest.meta.get("usage")))
        return run

    def last_call(self, run: QuestionRun, state: Any) -> None:
        """Call the model once more, without tools."""
        from haystack.dataclasses import ChatMessage

        if self._final_call is None:
            return
        with run.last_call() as observe:
            asked = [*state.data["messages"], ChatMessage.from_user(run.final_request)]
            reply = self._final_call(messages=asked)["replies"][0]
            observe(reply.text or "", cost=usage_cost(reply.meta.get("usage")))


class _EndHook:
    """A hook that hands the best reply back as the last message."""

    def __init__(self, deciding: _StopHook) -> None:
        self._deciding = deciding

    def run(self, state: Any) -> None:
        """End the run, and add the best reply with the decision."""
        from haystack.dataclasses import ChatMessage

        run = self._deciding.observed(state)
        if run.decision is None and state.data["exit_reason"] != "max_agent_steps":
            run.end("exhausted")
        run.at_limit()
        if run.final_call_due:
            self._deciding.last_call(run, state)
        state.set("messages", [ChatMessage.from_assistant(run.text, meta={METADATA: run.metadata()})])
