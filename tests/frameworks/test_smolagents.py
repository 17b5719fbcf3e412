"""smolagents: the lines to paste, and an agent that ends by itself."""

from types import SimpleNamespace

from smolagents import ChatMessage, Model, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole
from smolagents.monitoring import TokenUsage

from tests.frameworks.acceptance import CAPPED, QUESTION, SCRIPT, Script, check, check_cap, loaded


@tool
def look_up() -> str:
    """Look something up."""
    return "nothing new"


class Fake(Model):
    def __init__(self, script, ends_at=None):
        super().__init__()
        self.script, self.ends_at = script, ends_at

    def generate(self, messages, **options):
        self.script.log.append(list(messages))
        tools = options.get("tools_to_call_from")
        self.script.offered.append(bool(tools))
        text = self.script.next()
        is_last = self.script.calls == self.ends_at
        name, arguments = ("final_answer", {"answer": text}) if is_last else ("look_up", {})
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(id=f"c{self.script.calls}", type="function", function=function)
        calls = [call] if tools else None
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
        raw = SimpleNamespace(usage=usage)
        used = TokenUsage(input_tokens=10, output_tokens=2)
        return ChatMessage(role=MessageRole.ASSISTANT, content=text, tool_calls=calls, raw=raw, token_usage=used)


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("smolagents", folder, model=Fake(script), tools=[look_up])["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, loaded("smolagents", folder, model=Fake(script), tools=[look_up])["ask"])
    assert script.calls == 10


def test_an_agent_that_ends_by_itself_is_exhausted(folder):
    script = Script(SCRIPT)
    lines = loaded("smolagents", folder, model=Fake(script, ends_at=3), tools=[look_up])
    text, decision = lines["ask"](QUESTION)
    assert (text, decision["reason"], decision["rounds"]) == ("The Tempest", "exhausted", 3)
