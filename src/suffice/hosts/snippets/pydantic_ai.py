from pydantic_ai import Agent, UsageLimits

from suffice.hosts.pydantic_ai import decision_of, stop_capability

agent = Agent(model, tools=tools, capabilities=[stop_capability("policy.json")])


def ask(question):
    result = agent.run_sync(question, usage_limits=UsageLimits(request_limit=10))
    return result.output, decision_of(result)
