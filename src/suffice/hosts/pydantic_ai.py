"""Adapter for Pydantic AI: a capability that ends a run with its best reply and the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_origin

from suffice.errors import DataError
from suffice.hosts.runs import METADATA, Measure, OpenRun, QuestionRun, chat_reply, opener
from suffice.hosts.usage import call_cost
from suffice.policy.session.sources import PolicySource

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder


_NOT_RUN = "not run: the loop ended (no budget)"


def stop_capability(
    policy: PolicySource,
    *,
    measure: Measure | None = None,
    recorder: Recorder | None = None,
    price: Price | PriceFile | None = None,
    final_call: bool | str = False,
    revise: str | None = None,
) -> Any:
    """Return a capability for `Agent(capabilities=[...])`: each response is a round, and the policy ends the run.

    The output is then the best reply, and `decision_of(result)` returns the decision.  If the agent has a typed output, a reply
    is the JSON of the output tool's arguments, and the best arguments are returned through that tool.  A text that does not fit
    the type is then a round without an answer.  The run also ends before it exceeds its `request_limit`.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
        final_call: Whether the model is called once more, without function tools, if the run would end without an answer, see
            `QuestionRun`.
        revise: The request to send if the run would end but the policy continues; None lets it end.  Each request counts as a
            retry of the output, of which an agent has one by default: `Agent(retries={"output": 10})` allows more.

    Raises:
        ImportError: Pydantic AI 2 is not installed.
    """
    from pydantic_ai.capabilities import AbstractCapability

    class StopCapability(_StopCapability, AbstractCapability[Any]):
        """`_StopCapability` as a capability of the framework."""

    return StopCapability(opener(policy, measure, recorder, price=price, final_call=final_call), revise)


class _StopCapability:
    """A capability that observes responses; each run of the agent has its own copy."""

    def __init__(self, open_run: OpenRun, revise: str | None, run: QuestionRun | None = None) -> None:
        self.open_run, self.revise, self.run = open_run, revise, run
        self.tools: dict[int, str | None] = {}
        self.output_tools: Mapping[str, Any] = {}
        self.asked: Any = None
        self.said: list[Any] = []
        self.stopped = False

    async def for_run(self, ctx: Any) -> Any:
        """Begin a new question."""
        prompt = ctx.prompt
        for message in () if prompt is not None else ctx.messages:  # a continued run has the prompt in its history
            prompt = next((part.content for part in message.parts if part.part_kind == "user-prompt"), prompt)
        parts = [prompt] if isinstance(prompt, str) else prompt or ()
        question = " ".join(part for part in parts if isinstance(part, str))
        return type(self)(self.open_run, self.revise, self.open_run(question))

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        """Observe the response; if the policy or the request limit ends the run, return the best response instead."""
        from pydantic_ai import ModelRetry
        from pydantic_ai.exceptions import UnexpectedModelBehavior

        run = self.run
        if run is None or run.decision is not None:
            return response
        self.asked, shape = request_context, request_context.model_request_parameters
        self.said = [*request_context.messages, response]
        self.output_tools = (ctx.tool_manager and ctx.tool_manager.tools) or {}
        if not run.session.rounds and ctx.prompt is None:
            for earlier in _earlier_responses(ctx.messages, response):
                self.observe(run, earlier, shape)
        is_final = self.observe(run, response, shape)
        limit = None if ctx.usage_limits is None else ctx.usage_limits.request_limit
        used = max(ctx.usage.requests, len(run.session.rounds))  # this response may not be counted yet
        if run.decision is None and limit is not None and used >= limit:
            run.at_limit()
        if run.final_call_due:
            await self.last_call(run, ctx)
        if run.decision is None and is_final:
            if self.revise is not None:
                raise ModelRetry(self.revise)
            run.end("exhausted")
        if run.decision is not None and run.decision.answer_round is None:
            self.stopped = True
            raise UnexpectedModelBehavior(f"{run.session.policy.label!r} ended the run before any answer")
        return response if run.decision is None else self.final(run, response, is_best=is_final and run.is_last)

    def observe(self, run: QuestionRun, response: Any, shape: Any) -> bool:
        """Observe a response; return whether the run would end with it."""
        text, tool, is_final = _reply(response, shape)
        self.tools[run.session.next_round] = tool
        usage, cached = response.usage, response.usage.cache_read_tokens
        tokens = usage.input_tokens - cached, usage.output_tokens, cached, usage.cache_write_tokens
        logprobs = None if tool else _openai_logprobs(response)
        reply = chat_reply(text, logprobs=logprobs, finish_reason=response.finish_reason)
        run.observe(reply, cost=call_cost(*tokens))
        return is_final

    async def last_call(self, run: QuestionRun, ctx: Any) -> None:
        """Call the model once more, with no tools but those of the output."""
        from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart

        shape = self.asked.model_request_parameters
        closed = [ToolReturnPart(call.tool_name, _NOT_RUN, call.tool_call_id) for call in self.said[-1].tool_calls]
        asked = ModelRequest([*closed, UserPromptPart(run.final_request)])
        bare = replace(shape, function_tools=[], native_tools=[])
        with run.last_call():
            response = await self.asked.model.request([*self.said, asked], self.asked.model_settings, bare)
            ctx.usage.requests += 1
            ctx.usage.incr(response.usage)
            self.observe(run, response, shape)

    def final(self, run: QuestionRun, response: Any, *, is_best: bool) -> Any:
        """Return the response that ends a run: the newest one if it is the best, else one made from the best reply."""
        from pydantic_ai.messages import TextPart, ToolCallPart

        metadata = {**(response.metadata or {}), METADATA: run.metadata()}
        if is_best or run.decision is None or run.decision.answer_round is None:
            return replace(response, metadata=metadata)
        tool = self.tools[run.decision.answer_round]
        part = TextPart(run.text) if tool is None else ToolCallPart(tool, run.text)
        return replace(response, parts=[part], metadata=metadata)

    async def on_run_error(self, ctx: Any, *, error: BaseException) -> Any:
        """Return the best output of a run that ends with an error, such as a limit of tokens or retries.

        If no reply has an answer, raise an error.  But if the output is text, and the policy ended the run or `final_call`
        is set, return an empty text.
        """
        from pydantic import TypeAdapter
        from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
        from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolReturnPart
        from pydantic_ai.run import AgentRunResult

        run, limits = self.run, (UsageLimitExceeded, UnexpectedModelBehavior)
        if run is None or not isinstance(error, limits):
            raise error
        run.at_limit()
        if run.final_call_due and self.asked is not None:
            await self.last_call(run, ctx)
        is_text = self.asked is None or self.asked.model_request_parameters.output_mode in ("text", "tool_or_text")
        if run.end("cancelled").answer is None and is_text and not (run.final_request or self.stopped):
            raise error
        final = self.final(run, ModelResponse([TextPart("")]), is_best=False)
        part = final.parts[0]
        tool = None if isinstance(part, TextPart) else self.output_tools.get(part.tool_name)
        output = run.text if is_text and isinstance(part, TextPart) else _typed(run, tool, ctx.agent.output_type, error)
        messages = [*(ctx.messages or self.said), final]
        if not isinstance(part, TextPart):
            messages.append(
                ModelRequest([ToolReturnPart(part.tool_name, "Final result processed.", part.tool_call_id)])
            )
        fields = {"output": output, "messages": messages, "usage": ctx.usage, "run_id": ctx.run_id}
        return TypeAdapter(AgentRunResult[Any]).validate_python(fields)


def _typed(run: QuestionRun, tool: Any, wanted: Any, error: BaseException) -> Any:
    """Convert the best reply to the agent's typed output.

    A reply that used an output tool is converted by this tool, any other reply by the agent's output types.  If the agent
    has output functions, the tool is not used, since it might call one of them.  If the reply cannot be converted, raise
    an error that contains all replies.
    """
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    named = wanted if isinstance(wanted, type) else getattr(wanted, "outputs", getattr(wanted, "output", wanted))
    kinds = [
        kind if isinstance(kind, type) else getattr(kind, "output", kind)
        for kind in (named if isinstance(named, list | tuple) else [named])
    ]
    types = [kind for kind in kinds if isinstance(kind, type) or get_origin(kind) is not None or not callable(kind)]
    with suppress(ValidationError):
        if tool is not None and types == kinds:
            value, key = tool.args_validator.validate_json(run.text), tool.tool_def.outer_typed_dict_key
            return value if key is None else value[key]
    for kind in types if tool is None else ():
        with suppress(ValidationError, PydanticUserError):
            return TypeAdapter(kind).validate_json(run.text)
    raise run.unanswered(named) from error


def _earlier_responses(messages: Any, response: Any) -> list[Any]:
    """Return the responses after the newest prompt of a user, without the given response."""
    responses: list[Any] = []
    for message in messages:
        if any(part.part_kind == "user-prompt" for part in message.parts):
            responses = []
        elif message.kind == "response" and message is not response:
            responses.append(message)
    return responses


def _reply(response: Any, shape: Any) -> tuple[str, str | None, bool]:
    """Return the reply in a response, the output tool that the response uses (or None), and True if it would end the run.

    The reply is empty if the output is typed and the agent would therefore refuse a text.
    """
    outputs = {tool.name for tool in shape.output_tools}
    typed = next((call for call in response.tool_calls if call.tool_name in outputs), None)
    if typed is not None:
        return typed.args_as_json_str(), typed.tool_name, True
    text = response.text or ""
    if shape.output_mode not in ("text", "tool_or_text") and not _is_json(text):
        text = ""
    return text, None, bool(text) and not response.tool_calls


def _openai_logprobs(response: Any) -> Any:
    """Return the log-probabilities of a response in OpenAI's form; None without log-probabilities.

    They belong to the response or, if the response has exactly one text, to this text.
    """
    texts = [part for part in response.parts if part.part_kind == "text"]
    details = (response.provider_details, *(part.provider_details for part in texts if len(texts) == 1))
    return next((item["logprobs"] for item in details if isinstance((item or {}).get("logprobs"), list)), None)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def decision_of(result: Any) -> dict[str, Any]:
    """Return the decision behind the result of a run.

    Args:
        result: The result of a run of an agent with `stop_capability`.

    Raises:
        DataError: The agent did not have this capability.
    """
    for message in reversed(result.all_messages()):
        decision = (getattr(message, "metadata", None) or {}).get(METADATA)
        if decision is not None:
            return dict(decision)
    raise DataError(
        "no message carries a decision: give the agent capabilities=[stop_capability(...)], and do not use run_stream, which "
        "ends at the first text; run(..., event_stream_handler=...) streams, too"
    )
