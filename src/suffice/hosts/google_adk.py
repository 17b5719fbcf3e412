"""Adapter for Google ADK: callbacks that end an agent with its best reply and the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from suffice.hosts.runs import METADATA, NO_LOGPROBS, Measure, OpenRun, QuestionRun, opener
from suffice.hosts.usage import usage_cost
from suffice.policy.session.sources import PolicySource

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder

_KEY = "temp:suffice"  # ADK keeps such keys for one invocation


def stop_callbacks(
    policy: PolicySource,
    *,
    measure: Measure | None = None,
    recorder: Recorder | None = None,
    price: Price | PriceFile | None = None,
    final_call: bool | str = False,
) -> dict[str, Any]:
    """Return the callbacks of `LlmAgent(**stop_callbacks(...))`: each response is a round, and the policy ends the agent.

    The last event is then the best reply, with the decision in ``custom_metadata["suffice"]``, even if the agent ends at the
    `max_llm_calls` of the run.  If you have callbacks of your own, pass lists that contain yours and these.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
        final_call: Whether the model is called once more, without tools, if the agent would end without an answer, see
            `QuestionRun`.

    Raises:
        ImportError: Google ADK is not installed.
    """
    import google.adk.models  # noqa: F401 - now, not at the first response

    open_run = opener(policy, measure, recorder, price=price, final_call=final_call, gives=NO_LOGPROBS)
    stop = _StopCallbacks(open_run)
    return {"before_model_callback": stop.before_model, "after_model_callback": stop.after_model}


class _StopCallbacks:
    """Callbacks that store the run as JSON in the state of an invocation.

    The request of a call is kept until its response arrives, so that it can be repeated as a last call.
    """

    def __init__(self, open_run: OpenRun) -> None:
        self._open_run = open_run
        self._asked: WeakValueDictionary[str, Any] = WeakValueDictionary()

    def before_model(self, callback_context: Any, llm_request: Any) -> None:
        """Store the request, for a possible last call."""
        self._asked[callback_context.invocation_id] = llm_request

    async def after_model(self, callback_context: Any, llm_response: Any) -> Any:
        """Observe the response; if the policy or the limit ends the agent, return the best response."""
        from google.adk.models import LlmResponse
        from google.genai import types

        if llm_response.partial:  # a piece of a stream
            return None
        stored, asked = callback_context.state.get(_KEY), callback_context.user_content
        run = self._open_run(state=stored) if stored else self._open_run(_text(asked.parts if asked else ()))
        parts = (llm_response.content and llm_response.content.parts) or []
        run.observe(_text(parts), cost=usage_cost(llm_response.usage_metadata))
        if run.decision is None and parts and not any(part.function_call for part in parts):
            run.end("exhausted")
        limit = callback_context.run_config.max_llm_calls if callback_context.run_config else 0
        if run.decision is None and len(run.session.rounds) == limit:
            run.at_limit()
        if run.final_call_due:
            await self._last_call(run, callback_context, llm_response)
        callback_context.state[_KEY] = run.to_state()
        best = types.Content(role="model", parts=[types.Part(text=run.text)])
        return LlmResponse(content=best, custom_metadata={METADATA: run.metadata()}) if run.decision else None

    async def _last_call(self, run: QuestionRun, context: Any, response: Any) -> None:
        """Answer the model's open tool calls, and call the model once more, without tools."""
        from google.genai import types

        request = self._asked[context.invocation_id]
        calls = [
            part.function_call for part in (response.content and response.content.parts) or [] if part.function_call
        ]
        closed = [
            types.Part(
                function_response=types.FunctionResponse(id=call.id, name=call.name, response={"error": "not run"})
            )
            for call in calls
        ]
        said = [response.content] if calls else []
        contents = [
            *request.contents,
            *said,
            types.Content(role="user", parts=[*closed, types.Part(text=run.final_request)]),
        ]
        config = request.config.model_copy(update={"tools": None, "tool_config": None})
        bare = request.model_copy(update={"contents": contents, "config": config, "tools_dict": {}})
        with run.last_call() as observe:
            model = context.get_invocation_context().agent.canonical_model
            replies = [reply async for reply in model.generate_content_async(bare, stream=False)]
            observe(
                "".join(_text(reply.content.parts or ()) for reply in replies if reply.content),
                cost=usage_cost(replies[-1].usage_metadata),
            )


def _text(parts: Any) -> str:
    return "".join(part.text or "" for part in parts or () if not part.thought)
