from langgraph.graph import START, MessagesState, StateGraph

from suffice.hosts.langgraph import stop_node


def write(state):  # your node: one call of the model
    return {"messages": [model.invoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("write", write)
graph.add_node("stop", stop_node("policy.json", again="write"))
graph.add_edge(START, "write")
graph.add_edge("write", "stop")
app = graph.compile()


def ask(question):
    state = app.invoke({"messages": [("user", question)]}, {"recursion_limit": 25})
    final = state["messages"][-1]
    return final.text, final.response_metadata["suffice"]
