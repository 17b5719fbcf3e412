"""Adapter for smolagents: a run of an agent that ends with its best reply and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suffice.hosts.runs import NO_LOGPROBS, Measure, QuestionRun, opener
from suffice.hosts.usage import usage_cost
from suffice.policy.rounds import Cost
from suffice.policy.session.sources import PolicySource

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder


def run_agent(
    agent: Any,
    task: str,
    policy: PolicySource,
    *,
    measure: Measure | None = None,
    recorder: Recorder | None = None,
    price: Price | PriceFile | None = None,
    final_call: bool | str = False,
    max_steps: int | None = None,
    **options: Any,
) -> tuple[str, dict[str, Any]]:
    """Run an agent with a policy, instead of `agent.run`; return its best reply and the decision, even at `max_steps`.

    Args:
        agent: The agent of smolagents.
        task: The question.
        policy: Decides when to stop, see `suffice.Session`.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
        final_call: Whether the model is called once more, without tools, if the agent would end without an answer, see
            `QuestionRun`.
        max_steps: Largest number of steps of this run; None = the agent's own limit.
        **options: Other arguments of `agent.run`, such as `reset`.

    Raises:
        DataError: The policy file cannot be read.
    """
    from smolagents import ActionStep, FinalAnswerStep

    limit, cost = max_steps or agent.max_steps, None
    run = opener(policy, measure, recorder, price=price, final_call=final_call, gives=NO_LOGPROBS)(task)
    steps = agent.run(task, stream=True, max_steps=limit, **options)
    try:
        for step in steps:
            if isinstance(step, FinalAnswerStep):
                run.observe(str(step.output), cost=cost)
            elif isinstance(step, ActionStep):
                cost = _cost_of(step.model_output_message, step.token_usage)
                if not step.is_final_answer:
                    run.observe(step.model_output if isinstance(step.model_output, str) else "", cost=cost)
                    if run.decision is None and step.step_number == limit:  # before a final answer of the agent's own
                        run.at_limit()
            if run.final_call_due:
                _last_call(run, agent)
            if run.decision is not None:
                break
    finally:
        steps.close()
    run.end("exhausted")
    return run.text, run.metadata()


def _last_call(run: QuestionRun, agent: Any) -> None:
    from smolagents import ChatMessage
    from smolagents.models import MessageRole

    with run.last_call() as observe:
        asked = ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": run.final_request}])
        said = agent.model.generate([*agent.write_memory_to_messages(), asked])
        observe(said.content if isinstance(said.content, str) else "", cost=_cost_of(said, said.token_usage))


def _cost_of(message: Any, usage: Any) -> Cost:
    """Return the cost of a call.

    The usage in the provider's own response is preferred to `usage`, because only the former counts cache reads.
    """
    return usage_cost(getattr(getattr(message, "raw", None), "usage", None) or usage)
