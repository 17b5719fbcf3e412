"""Strands: the lines to paste, and an agent that ends by itself."""

from strands import tool
from strands.models import Model

from tests.frameworks.acceptance import CAPPED, QUESTION, SCRIPT, Script, check, check_cap, loaded


@tool
def look_up() -> str:
    """Look something up."""
    return "nothing new"


class Fake(Model):
    def __init__(self, script, ends_at=None):
        self.script, self.ends_at = script, ends_at

    def update_config(self, **config):
        pass

    def get_config(self):
        return {}

    def structured_output(self, *arguments, **options):
        raise NotImplementedError

    async def stream(self, messages, *arguments, **options):
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": self.script.next()}}}
        yield {"contentBlockStop": {}}
        is_last = self.script.calls == self.ends_at
        if not is_last:
            use = {"name": "look_up", "toolUseId": f"t{len(messages)}"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if is_last else "tool_use"}}


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("strands", folder, model=Fake(script), tools=[look_up])["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, loaded("strands", folder, model=Fake(script), tools=[look_up])["ask"])
    assert script.calls == 10


def test_an_agent_that_ends_by_itself_is_exhausted(folder):
    script = Script(SCRIPT)
    lines = loaded("strands", folder, model=Fake(script, ends_at=3), tools=[look_up])
    text, decision = lines["ask"](QUESTION)
    assert (text, decision["reason"], decision["rounds"]) == ("The Tempest", "exhausted", 3)
