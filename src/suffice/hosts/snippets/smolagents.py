from smolagents import ToolCallingAgent

from suffice.hosts.smolagents import run_agent

agent = ToolCallingAgent(tools=tools, model=model)


def ask(question):
    return run_agent(agent, question, "policy.json", max_steps=10)
