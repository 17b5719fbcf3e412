from agents import Agent, Runner

from suffice.hosts.openai_agents import stop_hooks

stop = stop_hooks("policy.json")
agent = Agent("writer", model=model, tools=tools, tool_use_behavior=stop.after_tools)


def ask(question):
    result = Runner.run_sync(agent, question, hooks=stop, error_handlers=stop.handlers, max_turns=10)
    return stop.ended(result)
