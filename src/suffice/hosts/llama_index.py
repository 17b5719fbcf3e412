"""Adapter for LlamaIndex workflows: a step's decision, which ends the workflow with the best reply and the reason."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from suffice.hosts.runs import METADATA, Measure, OpenRun, QuestionRun, continued, opener
from suffice.policy.rounds import Cost
from suffice.policy.session.sources import PolicySource

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder


def stop_step(
    policy: PolicySource,
    *,
    measure: Measure | None = None,
    recorder: Recorder | None = None,
    price: Price | PriceFile | None = None,
    final_call: Callable[[str], Any] | None = None,
) -> StopStep:
    """Return a function to await in a step: it returns a `StopEvent` if the policy ends the workflow, else None.

    Call it with the step's context and a reply.  The event's result is the best reply with the decision,
    `{"answer": ..., "decision": ...}`.  `ended(handler)` returns the same result, even if the workflow timed out.  The run is
    stored as JSON in the context; a reply after the end begins the next question.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
        final_call: A function that gets the question and returns a reply (or an awaitable) without calling tools.  It is
            called if the workflow would end without an answer, see `QuestionRun`.

    Raises:
        ImportError: LlamaIndex's workflows are not installed.
    """
    import workflows.events  # noqa: F401 - now, not at the first reply

    return StopStep(opener(policy, measure, recorder, price=price, final_call=final_call is not None), final_call)


class StopStep:
    """The decision in a step of a workflow; made by `stop_step`."""

    def __init__(self, open_run: OpenRun, final_call: Callable[[str], Any] | None = None) -> None:
        self._open_run, self._final_call = open_run, final_call

    async def __call__(self, ctx: Any, reply: Any, question: str = "", cost: Cost | None = None) -> Any | None:
        """Observe a reply, which is a text or a client's response; return an event that ends the workflow, or None."""
        from workflows.events import StopEvent

        stored = await ctx.store.get(METADATA, default=None)
        run = continued(self._open_run, stored, question)
        run.observe(reply, cost=cost)
        if run.final_call_due:
            await self._last_call(run)
        await ctx.store.set(METADATA, run.to_state())
        return None if run.decision is None else StopEvent(result=_result(run))

    async def _last_call(self, run: QuestionRun) -> None:
        if self._final_call is None:
            return
        with run.last_call() as observe:
            reply = self._final_call(run.question)
            observe(await reply if isawaitable(reply) else reply)

    async def ended(self, handler: Any) -> dict[str, Any]:
        """Return the best reply and the decision, even if a timeout or one of your own steps ended the workflow.

        If the workflow ended before the first reply, this returns the workflow's own result.

        Args:
            handler: The result of `Workflow.run`.

        Raises:
            WorkflowTimeoutError: The time ran out before the first reply.
        """
        from workflows.errors import WorkflowTimeoutError

        timeout = None
        try:
            result: dict[str, Any] = await handler
        except WorkflowTimeoutError as error:
            timeout = error
        stored = await handler.ctx.store.get(METADATA, default=None)
        if stored is not None and not stored["session"]["decision"]:
            run = self._open_run(state=stored)
            if timeout is None:
                run.end("exhausted")
            else:
                run.at_limit()
            if run.final_call_due:
                await self._last_call(run)
            await handler.ctx.store.set(METADATA, run.to_state())
            return _result(run)
        if timeout is not None:
            raise timeout
        return result


def _result(run: QuestionRun) -> dict[str, Any]:
    return {"answer": run.text, "decision": run.metadata()}
