"""LangGraph: end a graph that revises its answer when the answer has settled, not at the recursion limit.

Needs langgraph and langchain-core.
"""

from langchain_core.language_models import FakeListChatModel
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph

from suffice.hosts.langgraph import stop_node

QUESTION = {"messages": [("user", "Which play of Shakespeare has Prospero?")]}
LIMIT = {"recursion_limit": 20}
SAID = ["Titus Andronicus", "Othello", "The Tempest", "the Tempest.", "The Tempest", "Macbeth", *["The Tempest"] * 20]


class Writer:
    """The node that you have: one call of a model, here a list of replies in the place of `ChatOpenAI(...)`."""

    def __init__(self) -> None:
        self.calls = 0
        self.model = FakeListChatModel(responses=SAID)

    def __call__(self, state: MessagesState) -> dict[str, list[object]]:
        self.calls += 1
        return {"messages": [self.model.invoke(state["messages"])]}


# What many graphs do: revise in a circle until LangGraph raises.  All calls
# are paid, and the answer is lost.
writer = Writer()
graph = StateGraph(MessagesState)
graph.add_node("write", writer)
graph.add_edge(START, "write")
graph.add_edge("write", "write")
try:
    graph.compile().invoke(QUESTION, LIMIT)
except GraphRecursionError:
    print(f"without a stop: {writer.calls} calls, and no answer")

# With a node that decides.  In production its first argument is
# "policy.json", from `suffice decide`; a rule as text needs a cap of its
# own, here 6, because an answer may never settle.
writer = Writer()
graph = StateGraph(MessagesState)
graph.add_node("write", writer)
graph.add_node("stop", stop_node("answer_stable | (round >= 6)", again="write"))
graph.add_edge(START, "write")
graph.add_edge("write", "stop")
final = graph.compile().invoke(QUESTION, LIMIT)["messages"][-1]

# The last message is the best reply, and carries the decision: log it, so
# that you see in production why runs end.
decision = final.response_metadata["suffice"]
print(f"with a stop: {writer.calls} calls, {final.text!r}")
print(f"decision: {decision['reason']} at round {decision['stop_round']}, because {decision['fired']}")
