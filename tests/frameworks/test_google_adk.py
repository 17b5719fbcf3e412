"""Google ADK: the lines to paste, questions in one session, and an agent that ends by itself."""

import asyncio

from google.adk.agents.run_config import RunConfig
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from tests.frameworks.acceptance import CAPPED, QUESTION, SCRIPT, Script, check, check_cap, loaded

LIMIT = RunConfig(max_llm_calls=10)


def look_up() -> str:
    """Look something up."""
    return "nothing new"


class Fake(BaseLlm):
    script: Script
    ends_at: int | None = None

    async def generate_content_async(self, llm_request, stream=False):
        self.script.log.append(list(llm_request.contents))
        self.script.offered.append(bool(llm_request.config.tools))
        parts = [types.Part(text=self.script.next())]
        if self.script.calls != self.ends_at and self.script.offered[-1]:
            parts.append(types.Part(function_call=types.FunctionCall(name="look_up", args={})))
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=10,
            cached_content_token_count=4,
            candidates_token_count=1,
            thoughts_token_count=1,
            total_token_count=12,
        )
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=usage)


def asked(lines):
    runner = InMemoryRunner(agent=lines["agent"], app_name="plays")
    sessions = []

    async def ask(question):
        if not sessions:
            sessions.append(await runner.session_service.create_session(app_name="plays", user_id="u"))
        said = types.Content(role="user", parts=[types.Part(text=question)])
        stream = runner.run_async(user_id="u", session_id=sessions[0].id, new_message=said, run_config=LIMIT)
        final = [event async for event in stream][-1]
        return final.content.parts[0].text, final.custom_metadata["suffice"]

    return ask


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, asked(loaded("google_adk", folder, model=Fake(model="m", script=script), tools=[look_up])))


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, asked(loaded("google_adk", folder, model=Fake(model="m", script=script), tools=[look_up])))
    assert script.calls == 10


def test_an_agent_that_ends_by_itself_is_exhausted(folder):
    model = Fake(model="m", script=Script(SCRIPT), ends_at=3)
    text, decision = asyncio.run(asked(loaded("google_adk", folder, model=model, tools=[look_up]))(QUESTION))
    assert (text, decision["reason"], decision["rounds"]) == ("The Tempest", "exhausted", 3)
