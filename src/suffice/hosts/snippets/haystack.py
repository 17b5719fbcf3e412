from haystack.components.agents import Agent, State
from haystack.dataclasses import ChatMessage
from haystack.hooks import hook

from suffice.hosts import QuestionRun


@hook
def decide(state: State):
    run, messages = state.data["hook_context"]["run"], state.data["messages"]
    if state.data["step_count"] > len(run.session.rounds):
        run.observe(next(said.text or "" for said in reversed(messages) if said.is_from("assistant")))
    if run.decision:
        state.set("stop_run", run.decision.reason)


agent = Agent(
    chat_generator=model, tools=tools, max_agent_steps=10, hooks={"before_llm": [decide], "after_run": [decide]}
)


def ask(question):
    run = QuestionRun("policy.json", question)
    result = agent.run(messages=[ChatMessage.from_user(question)], hook_context={"run": run})
    run.end("exhausted" if result["exit_reason"] == "text" else "cancelled")
    return run.text, run.metadata()
