from langchain.agents import create_agent

from suffice.hosts.langchain import stop_middleware

agent = create_agent(model, tools, middleware=[stop_middleware("policy.json")])


def ask(question):
    state = agent.invoke({"messages": [("user", question)]}, {"recursion_limit": 25})
    final = state["messages"][-1]
    return final.text, final.response_metadata["suffice"]
