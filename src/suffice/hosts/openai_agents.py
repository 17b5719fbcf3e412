"""Adapter for OpenAI Agents: hooks that end a run with its best reply and the reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from suffice.errors import DataError
from suffice.hosts.runs import Measure, OpenRun, QuestionRun, opener
from suffice.hosts.usage import call_cost
from suffice.policy.rounds import Cost
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
    final_call: bool | str = False,
) -> Any:
    """Return hooks for `Runner.run(hooks=...)`: each response is a round, and the policy ends the run.

    In this framework, hooks see replies but cannot stop, and a tool behaviour can stop but sees no reply.  So pass the returned
    object `stop` in three places: `hooks=stop`, the agent's `tool_use_behavior=stop.after_tools`, and
    `error_handlers=stop.handlers` (for the end at `max_turns`).  `stop.ended(result)` returns the best output and the decision,
    even if the run ended by itself.  `stop.run(agent, question)` does all of this.  One object serves any number of runs, even
    concurrent ones.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
        final_call: Whether the agent is run once more, without tools and handoffs, if it would end without an answer, see
            `QuestionRun`.

    Raises:
        ImportError: OpenAI Agents is not installed.
    """
    from agents import RunHooks

    class StopHooks(_StopHooks, RunHooks[Any]):
        """`_StopHooks` as hooks of the framework."""

    return StopHooks(opener(policy, measure, recorder, price=price, final_call=final_call))


class _StopHooks:
    """Hooks that store the run of each context for the lifetime of the context.

    A run that is interrupted for an approval continues in a new context.  The run of a new context is found by the tool
    calls that waited for the approval.
    """

    def __init__(self, open_run: OpenRun) -> None:
        self._open_run = open_run
        self._runs: WeakKeyDictionary[Any, QuestionRun] = WeakKeyDictionary()
        self._agents: WeakKeyDictionary[QuestionRun, Any] = WeakKeyDictionary()
        self._heard: WeakKeyDictionary[QuestionRun, list[Any]] = WeakKeyDictionary()
        self._configs: WeakKeyDictionary[QuestionRun, Any] = WeakKeyDictionary()
        self._waiting: dict[str, QuestionRun] = {}
        self.handlers = {"max_turns": self._at_limit}

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        """Start a new question, or resume an interrupted run, which continues in a new context."""
        earlier = _earlier_outputs(input_items) if context.usage.requests else []
        run = self._run_of(context, [item.get("call_id") for output in earlier for item in output])
        if run is not None:
            self._heard[run] = list(input_items)
            return
        run = self._runs[context] = self._open_run(_question(input_items))
        self._heard[run] = list(input_items)
        for output in earlier:  # the run continues in another process: observe its earlier outputs again
            if run.decision is None:
                run.observe({"output": output}, cost=call_cost(None, None))

    def _run_of(self, context: Any, calls: Iterable[Any]) -> QuestionRun | None:
        """Return the run of a context, or the run that was waiting for one of these calls."""
        if context not in self._runs:
            waiting = next((self._waiting[call] for call in calls if call in self._waiting), None)
            if waiting is None:
                return None
            self._runs[context] = waiting
        return self._runs[context]

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """Observe the response."""
        run = self._runs[context]
        self._agents[run] = agent
        self._heard[run] = [*self._heard.get(run, ()), *response.to_input_items()]
        output = [item.model_dump() if hasattr(item, "model_dump") else item for item in response.output]
        self._waiting = {call: other for call, other in self._waiting.items() if other is not run}
        self._waiting |= {item["call_id"]: run for item in output if item.get("call_id")}
        if run.decision is None:
            run.observe({"output": _of_type(output, agent)}, cost=_cost_of(response.usage))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Store the configuration of the run, which only the hooks of tools receive."""
        for known, run in list(self._runs.items()):
            if known.usage is context.usage:
                self._configs[run] = getattr(context, "run_config", None)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """End the run if the agent ended by itself.

        The context object of this hook differs from those of the other hooks.  All of them have the same usage object, by
        which the run is found.
        """
        for known, run in list(self._runs.items()):
            if known.usage is context.usage:
                run.end("exhausted")
                self._waiting = {call: other for call, other in self._waiting.items() if other is not run}

    async def after_tools(self, context: Any, results: Any) -> Any:
        """Return the best reply as the final output if the policy ends the run."""
        from agents import ToolsToFinalOutputResult

        items = [result.run_item for result in results if result.run_item is not None]
        run = self._run_of(context, [_call_id(item.raw_item) for item in items])
        if run is not None and run.final_call_due:
            heard = [*self._heard[run], *(item.to_input_item() for item in items)]
            await self._last_call(run, context, self._agents[run], heard)
        if run is None or run.decision is None:
            return ToolsToFinalOutputResult(is_final_output=False)
        return ToolsToFinalOutputResult(True, _output(run, self._agents[run]))

    async def _at_limit(self, error: Any) -> Any:
        run, agent = self._runs.get(error.context), error.run_data.last_agent
        if run is None:
            return None  # the framework raises its own error
        run.at_limit()
        if run.final_call_due:
            await self._last_call(run, error.context, agent, error.run_data.history)
        is_text = agent.output_type in (None, str)
        return {"final_output": _output(run, agent)} if run.text or run.final_request or not is_text else None

    async def _last_call(self, run: QuestionRun, context: Any, agent: Any, heard: list[Any]) -> None:
        """Run the agent once more, without tools, on the messages so far."""
        from agents import Runner

        settings = replace(agent.model_settings, tool_choice=None, parallel_tool_calls=None)
        bare: dict[str, Any] = {
            "tools": [],
            "handoffs": [],
            "mcp_servers": [],
            "tool_use_behavior": "run_llm_again",
            "hooks": None,
        }
        asked = [*heard, {"role": "user", "content": run.final_request}]
        with run.last_call() as observe:
            result = await Runner.run(
                agent.clone(**bare, model_settings=settings),
                asked,
                context=context.context,
                max_turns=1,
                run_config=self._configs.get(run),
            )
            context.usage.add(result.context_wrapper.usage)
            response = result.raw_responses[-1]
            output = [item.model_dump() for item in response.output]
            observe({"output": _of_type(output, agent)}, cost=_cost_of(response.usage))

    async def run(self, agent: Any, question: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Run an agent with these hooks set in all three places, and return the result of `ended`.

        Call this method instead of `Runner.run`.  If the agent hands off to other agents, set the `tool_use_behavior=` of
        those agents yourself.

        Args:
            agent: The agent; its own `tool_use_behavior` is replaced.
            question: The input of the run.
            **options: Other arguments of `Runner.run`, such as `max_turns`.
        """
        from agents import Runner

        own = agent.clone(tool_use_behavior=self.after_tools)
        return self.ended(await Runner.run(own, question, hooks=self, error_handlers=self.handlers, **options))

    def ended(self, result: Any) -> tuple[Any, dict[str, Any]]:
        """Return the best output of a run and the decision.

        Raises:
            DataError: The run did not use these hooks.
        """
        run = self._runs.get(result.context_wrapper)
        if run is None:
            raise DataError("the run was not observed: pass these hooks to Runner.run(hooks=...)")
        run.end("exhausted")
        output = result.final_output if run.is_last or not run.text else _output(run, result.last_agent)
        return output, run.metadata()


def _question(items: Any) -> str:
    """Return the newest text of a user; empty without a user's text."""
    for item in reversed(items):
        if isinstance(item, dict) and item.get("role") == "user":
            content = item["content"]
            parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
            return "".join(parts)
    return ""


def _earlier_outputs(items: Any) -> list[list[Any]]:
    """Return the output of each response since the newest text of a user."""
    responses: list[list[Any]] = []
    is_open = False
    for item in items:
        if item.get("role") == "user":
            responses, is_open = [], False
        elif str(item.get("type", "")).endswith("_output"):  # the output of a tool
            is_open = False
        elif is_open:
            responses[-1].append(item)
        else:
            responses.append([item])
            is_open = True
    return responses


def _cost_of(usage: Any) -> Cost:
    details = usage.input_tokens_details
    cached, written = details.cached_tokens, getattr(details, "cache_write_tokens", 0)
    return call_cost(usage.input_tokens - cached, usage.output_tokens, cached, written)


def _output(run: QuestionRun, agent: Any) -> Any:
    """Return the best reply as the agent's output.

    If no reply has an answer, return an empty text; if the output type is not text, raise instead.
    """
    from agents.exceptions import ModelBehaviorError

    try:
        return _typed(run.text, agent)
    except ModelBehaviorError as error:
        run.end("failed")
        raise run.unanswered(agent.output_type) from error


def _call_id(item: Any) -> Any:
    return item.get("call_id") if isinstance(item, dict) else getattr(item, "call_id", None)


def _of_type(output: list[Any], agent: Any) -> list[Any]:
    """Return the items of a response; leave out messages if their text does not fit the agent's output type."""
    from agents.exceptions import ModelBehaviorError

    said = [part.get("text") for item in output if item.get("type") == "message" for part in item["content"]]
    try:
        _typed("".join(text or "" for text in said), agent)
    except ModelBehaviorError:
        return [item for item in output if item.get("type") != "message"]
    return output


def _typed(text: str, agent: Any) -> Any:
    """Convert a reply to the agent's output type."""
    from agents import AgentOutputSchema
    from agents.agent_output import AgentOutputSchemaBase

    kind = agent.output_type
    if kind is None or kind is str:
        return text
    schema = kind if isinstance(kind, AgentOutputSchemaBase) else AgentOutputSchema(kind)
    return schema.validate_json(text)
