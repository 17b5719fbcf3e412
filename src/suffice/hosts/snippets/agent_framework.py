from agent_framework import Agent, AgentLoopMiddleware

from suffice.hosts.agent_framework import stop_loop_middleware

stop = stop_loop_middleware("policy.json")
loop = AgentLoopMiddleware(stop.should_continue, max_iterations=10, next_message=lambda **_: "Improve your answer.")
agent = Agent(client, middleware=[stop, loop])


async def ask(question):
    response = await agent.run(question)
    return response.text, response.additional_properties["suffice"]
