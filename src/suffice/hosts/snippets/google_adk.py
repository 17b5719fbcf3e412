from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.models import LlmResponse
from google.genai import types

from suffice.hosts import opener

open_run = opener("policy.json")
LIMIT = RunConfig(max_llm_calls=10)


def decide(callback_context, llm_response):
    if llm_response.partial:  # a piece of a stream
        return None
    stored = callback_context.state.get("temp:suffice")  # of this invocation
    question = "".join(part.text or "" for part in callback_context.user_content.parts)
    run = open_run(state=stored) if stored else open_run(question)
    parts = llm_response.content.parts if llm_response.content else []
    run.observe("".join(part.text or "" for part in parts))
    if not any(part.function_call for part in parts):
        run.end("exhausted")
    if len(run.session.rounds) == LIMIT.max_llm_calls:
        run.end("cancelled")
    callback_context.state["temp:suffice"] = run.to_state()
    best = types.Content(role="model", parts=[types.Part(text=run.text)])
    return LlmResponse(content=best, custom_metadata={"suffice": run.metadata()}) if run.decision else None


agent = LlmAgent(name="writer", model=model, tools=tools, after_model_callback=decide)
