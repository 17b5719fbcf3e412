"""OpenAI Agents: end an agent that goes on searching once its answer has settled, with the answer instead of an exception.

Needs openai-agents.
"""

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from agents.exceptions import MaxTurnsExceeded
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from suffice.hosts.openai_agents import stop_hooks

QUESTION = "Where was Edvard Munch born?"
set_tracing_disabled(disabled=True)  # nothing here asks a network


class Scripted(Model):
    """A model from a script, in the place of "gpt-...": each reply has an answer, and searches once more."""

    def __init__(self) -> None:
        self.said = ["Oslo", "Løten", "Løten, Norway", "Løten", "Løten", "Løten", "Oslo"]
        self.calls = 0

    async def get_response(self, *arguments: object, **options: object) -> ModelResponse:
        self.calls += 1
        part = ResponseOutputText(text=self.said[self.calls - 1], type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id=f"m{self.calls}", content=[part], role="assistant", status="completed", type="message"
        )
        search = ResponseFunctionToolCall(arguments="{}", call_id=f"c{self.calls}", name="search", type="function_call")
        usage = Usage(requests=1, input_tokens=200 * self.calls, output_tokens=20, total_tokens=200 * self.calls + 20)
        return ModelResponse([message, search], usage=usage, response_id=None)

    def stream_response(self, *arguments: object, **options: object) -> None:
        raise NotImplementedError


@function_tool
def search() -> str:
    """Search the web."""
    return "Munch was born in a farmhouse in Løten."


# Without a stop the limit of turns raises: seven calls are paid, and there
# is no answer.
model = Scripted()
try:
    Runner.run_sync(Agent("researcher", model=model, tools=[search]), QUESTION, max_turns=7)
except MaxTurnsExceeded:
    print(f"without a stop: {model.calls} calls, and no answer")

# With one: hooks see each reply, and `after_tools` ends the run.  In
# production give "policy.json", from `suffice decide`.
model, stop = Scripted(), stop_hooks("answer_stable | (round >= 7)")
agent = Agent("researcher", model=model, tools=[search], tool_use_behavior=stop.after_tools)
result = Runner.run_sync(agent, QUESTION, hooks=stop, error_handlers=stop.handlers, max_turns=7)
output, decision = stop.ended(result)
print(f"with a stop: {model.calls} calls, {output!r}; {decision['reason']}: {decision['fired']}")
