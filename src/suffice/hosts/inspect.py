"""Adapter for Inspect: a policy that ends an agent, and one that ends the epochs of a sample."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from suffice.hosts.runs import METADATA, Measure, OpenRun, chat_reply, continued, opener
from suffice.hosts.usage import call_cost
from suffice.policy.rounds import Cost, Decision, Round
from suffice.policy.session import Session
from suffice.policy.session.sources import PolicySource, as_policy, is_rule

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder


def stop_continue(
    policy: PolicySource,
    *,
    measure: Measure | None = None,
    recorder: Recorder | None = None,
    price: Price | PriceFile | None = None,
    final_call: bool | str = False,
) -> Any:
    """Return a function for `react(on_continue=...)`: each turn is a round, and the policy ends the agent.

    The completion of the sample is then the best reply, with the decision in ``output.metadata["suffice"]`` and in the sample's
    store.  A limit of the sample (messages, turns, tokens or costs) would end the agent without a decision; the agent
    therefore ends with a decision just before such a limit.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
        final_call: Whether the sample's model is called once more, without tools, if the agent would end without an answer, see
            `QuestionRun`.

    Raises:
        ImportError: Inspect is not installed.
    """
    import inspect_ai.model  # noqa: F401 - now, not at the first turn

    open_run = opener(policy, measure, recorder, price=price, final_call=final_call)

    async def on_continue(state: Any) -> bool:  # Inspect asks for a coroutine function
        return await _continues(open_run, state, spare=bool(final_call))

    return on_continue


async def _continues(open_run: OpenRun, state: Any, *, spare: bool) -> bool:
    """Observe a turn; return whether the agent goes on."""
    from inspect_ai.model import ChatMessageUser, get_model
    from inspect_ai.util import store

    stored = store().get(METADATA)
    asked = next((said.text for said in state.messages if said.role == "user"), "")
    run = continued(open_run, stored, asked)
    run.observe(_reply(state.output), cost=_cost(state.output.usage))
    if run.decision is None and not run.final_call_due and _is_at_limit(state, spare):
        run.at_limit()
    if run.final_call_due:
        with run.last_call() as observe:
            said = await get_model().generate([*state.messages, ChatMessageUser(content=run.final_request)], tools=[])
            observe(_reply(said), cost=_cost(said.usage))
    store().set(METADATA, {**run.to_state(), "decision": run.metadata()})
    if run.decision is None:
        return True
    state.output.completion = run.text
    state.output.metadata = {**(state.output.metadata or {}), METADATA: run.metadata()}
    return False


def _reply(output: Any) -> dict[str, Any]:
    choice = output.choices[0] if output.choices else None
    logprobs = None if choice is None else choice.logprobs
    return chat_reply(output.message.text if choice else "", logprobs=logprobs, finish_reason=output.stop_reason)


def _cost(usage: Any) -> Cost:
    """Return the cost of a call; Inspect counts cache reads and writes apart from the input."""
    if usage is None:
        return call_cost(None, None)
    written = usage.input_tokens_cache_write or 0
    return call_cost(usage.input_tokens + written, usage.output_tokens, usage.input_tokens_cache_read, written)


def _is_at_limit(state: Any, spare: bool) -> bool:
    """Return whether a limit of the sample leaves no room for one more turn as large as the newest one.

    If `spare`, there must be room for a last call too.
    """
    from inspect_ai.util import sample_limits

    limits, usage = sample_limits(), state.output.usage
    said = len(state.messages) + (not state.output.message.tool_calls) + 3 * spare
    if limits.message.limit is not None and said >= limits.message.limit:
        return True
    turn = {"turn": 1.0}
    if usage is not None:
        turn |= {"token": usage.total_tokens, "cost": usage.total_cost or 0.0}
    left = {name: getattr(limits, name).remaining for name in turn}
    return any(left[name] is not None and left[name] < one * (1 + spare) for name, one in turn.items())


def stop_epochs(policy: PolicySource) -> Any:
    """Return an early-stopping manager for `Task(epochs=20, early_stopping=...)`; each epoch of a sample is a round.

    Once the policy has stopped, the sample's remaining epochs are skipped, with the reason and the decision in the log.  Rounds
    are numbered in the order in which epochs end.  The answer of a round is that of the first score with an answer.  The
    value of each score becomes a signal with the name of the scorer.

    Args:
        policy: Decides when to stop, see `suffice.Session`; its `max_rounds` limits the number of epochs.  A rule
            needs no cap here, since the task limits the number of epochs.

    Raises:
        DataError: The policy file cannot be read.
    """
    return _StopEpochs(policy)


class _StopEpochs:
    """An early-stopping manager with a session for each sample."""

    def __init__(self, policy: PolicySource) -> None:
        self._policy, self._is_rule = as_policy(policy), is_rule(policy)
        self._sessions: dict[str | int, Session] = {}

    async def start_task(self, task: Any, samples: Any, epochs: int) -> str:
        """Start a session for each sample; return the name of the manager."""
        if self._is_rule:
            self._policy = replace(self._policy, max_rounds=epochs)
        self._sessions = {sample.id: Session(self._policy) for sample in samples}
        return METADATA

    async def schedule_sample(self, sample_id: str | int, epoch: int) -> Any:
        """Return the `EarlyStop` that skips an epoch; None if the epoch is to run."""
        from inspect_ai.util import EarlyStop

        decision = self._decision(sample_id)
        if decision is None:
            return None
        return EarlyStop(id=sample_id, epoch=epoch, reason=decision.reason, metadata=decision.to_dict())

    async def complete_sample(self, sample_id: str | int, epoch: int, scores: dict[str, Any]) -> None:
        """Observe the scores of an epoch; scores that arrive after the stop change nothing."""
        from inspect_ai.scorer import value_to_float

        if self._decision(sample_id) is not None:
            return
        session, to_float = self._sessions[sample_id], value_to_float()
        given = [one.score for one in scores.values()]
        answer = next((score.answer for score in given if score.answer), None)
        values = {name: _number(one.score.value, to_float) for name, one in scores.items()}
        session.observe(Round(index=session.next_round, answer=answer, text=answer or "", signals=values))

    async def complete_task(self) -> dict[str, Any]:
        """Return the decisions of all samples, for the log."""
        decisions = {str(name): session.decision for name, session in self._sessions.items()}
        decided = {name: decision.to_dict() for name, decision in decisions.items() if decision is not None}
        return {"policy": self._policy.label, "decisions": decided}

    def _decision(self, sample_id: str | int) -> Decision | None:
        return self._sessions[sample_id].decision if sample_id in self._sessions else None


def _number(value: Any, to_float: Any) -> float:
    return float(to_float(value)) if isinstance(value, str | int | float | bool) else math.nan
