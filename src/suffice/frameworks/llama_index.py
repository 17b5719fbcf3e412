"""LlamaIndex workflows: a decision in a step, which ends the workflow with the best reply and the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.frameworks.runs import METADATA, Measure, QuestionRun, opener
from suffice.rounds import Cost
from suffice.rules import Rule
from suffice.session import Policy

if TYPE_CHECKING:
    from suffice.loop import Recorder

__all__ = ["ended", "stop_step"]


def stop_step(
    policy: Policy | Rule | str | Path, *, measure: Measure | None = None, recorder: Recorder | None = None
) -> Callable[..., Awaitable[Any | None]]:
    """Return what a step awaits with its context and a reply: a `StopEvent` if the policy ends the workflow, else None.

    The result of that event is the best reply with the decision, `{"answer": ..., "decision": ...}`.  The run is JSON in
    the context's store; a reply after the end begins the next question.

    Args:
        policy: What decides, see `suffice.Session`.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.

    Raises:
        ImportError: LlamaIndex's workflows are not installed.
    """
    from workflows.events import StopEvent

    open_run = opener(policy, measure, recorder)

    async def stop(ctx: Any, reply: Any, question: str = "", cost: Cost | None = None) -> Any | None:
        """Observe a reply: its text, or what a client returned."""
        stored = await ctx.store.get(METADATA, default=None)
        run = open_run(question) if stored is None or stored["session"]["decision"] else open_run(state=stored)
        decision = run.observe(reply, cost=cost)
        await ctx.store.set(METADATA, run.to_state())
        return StopEvent(result=_result(run)) if decision.stop else None

    return stop


async def ended(handler: Any) -> dict[str, Any]:
    """Return the result of a workflow whose step awaits `stop_step`; at its timeout, the best reply so far.

    Args:
        handler: What `Workflow.run` returned.

    Raises:
        WorkflowTimeoutError: The time ran out before the first reply.
    """
    from workflows.errors import WorkflowTimeoutError

    try:
        result: dict[str, Any] = await handler
    except WorkflowTimeoutError:
        stored = await handler.ctx.store.get(METADATA, default=None)
        if stored is None or stored["session"]["decision"]:  # of an earlier question
            raise
        run = QuestionRun(state=stored)
        run.end("cancelled")
        await handler.ctx.store.set(METADATA, run.to_state())
        result = _result(run)
    return result


def _result(run: QuestionRun) -> dict[str, Any]:
    return {"answer": run.text, "decision": run.metadata()}
