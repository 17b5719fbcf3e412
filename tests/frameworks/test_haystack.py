"""Haystack: the lines to paste, and an agent that ends by itself."""

from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import tool

from tests.frameworks.acceptance import CAPPED, QUESTION, SCRIPT, Script, check, check_cap, loaded


@tool
def look_up() -> str:
    """Look something up."""
    return "nothing new"


def fake(script, ends_at=None):
    def respond(messages, tools):
        script.log.append(list(messages))
        script.offered.append(bool(tools))
        text = script.next()
        calls = [] if script.calls == ends_at or not tools else [ToolCall(tool_name="look_up", arguments={})]
        details = {"cached_tokens": 4}
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": details}
        return ChatMessage.from_assistant(text, tool_calls=calls, meta={"usage": usage})

    return MockChatGenerator(response_fn=respond)


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("haystack", folder, model=fake(script), tools=[look_up])["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, loaded("haystack", folder, model=fake(script), tools=[look_up])["ask"])
    assert script.calls == 10


def test_an_agent_that_ends_by_itself_is_exhausted(folder):
    script = Script(SCRIPT)
    lines = loaded("haystack", folder, model=fake(script, ends_at=3), tools=[look_up])
    text, decision = lines["ask"](QUESTION)
    assert (text, decision["reason"], decision["rounds"]) == ("The Tempest", "exhausted", 3)
