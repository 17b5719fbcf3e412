from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat

from suffice.hosts.autogen import stop_condition

stop = stop_condition("policy.json", writer="writer")
writer = AssistantAgent("writer", model)
team = RoundRobinGroupChat([writer], termination_condition=stop, max_turns=10)


async def ask(question):
    await team.reset()  # forget the last question
    await team.run(task=question)
    return stop.ended()
