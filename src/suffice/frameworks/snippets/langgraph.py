from typing import NotRequired

from langgraph.graph import START, MessagesState, StateGraph
from langgraph.managed import RemainingSteps

from suffice.frameworks.langgraph import stop_node


class State(MessagesState):
    suffice: NotRequired[dict]
    remaining_steps: RemainingSteps


def write(state):  # your node: one call of the model
    return {"messages": [model.invoke(state["messages"])]}


graph = StateGraph(State)
graph.add_node("write", write)
graph.add_node("stop", stop_node("policy.json", again="write"), destinations=("write", "__end__"))
graph.add_edge(START, "write")
graph.add_edge("write", "stop")
app = graph.compile()


def ask(question):
    state = app.invoke({"messages": [("user", question)]}, {"recursion_limit": 25})
    return state["messages"][-1].text, state["suffice"]["decision"]
