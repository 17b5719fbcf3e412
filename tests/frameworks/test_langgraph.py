"""LangGraph: the lines to paste, checkpoints, and threads."""

import json
import operator
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from suffice.errors import DataError
from suffice.frameworks.langgraph import stop_node
from tests.frameworks.acceptance import CAPPED, QUESTION, SCRIPT, Script, check, check_cap, check_stop, loaded, measured
from tests.frameworks.chat import FakeChat


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("langgraph", folder, model=FakeChat(script=script))["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, loaded("langgraph", folder, model=FakeChat(script=script))["ask"])


def test_a_second_question_in_one_thread_begins_anew_and_every_checkpoint_is_json(folder):
    script = Script()
    saver = InMemorySaver(serde=JsonPlusSerializer(pickle_fallback=False))
    app = loaded("langgraph", folder, model=FakeChat(script=script))["graph"].compile(checkpointer=saver)
    thread = {"configurable": {"thread_id": "1"}}

    def ask(question):
        state = app.invoke({"messages": [("user", question)]}, thread)
        return state["messages"][-1].text, state["suffice"]["decision"]

    check(script, ask)
    assert len(app.get_state(thread).values["messages"]) == 12
    for snapshot in app.get_state_history(thread):
        json.dumps(snapshot.values.get("suffice"))


def test_a_thread_that_was_interrupted_goes_on_in_another_process(folder):
    script, saver = Script(), InMemorySaver()
    thread = {"configurable": {"thread_id": "1"}}
    for part in range(2):
        graph = loaded("langgraph", folder, model=FakeChat(script=script))["graph"]
        app = graph.compile(checkpointer=saver, interrupt_before=["write"] if part == 0 else [])
        state = app.invoke({"messages": [("user", QUESTION)]} if part == 0 else None, thread)
        while part == 0 and script.calls < 2:
            state = app.invoke(None, thread)
    check_stop(script, state["messages"][-1].text, state["suffice"]["decision"])


def test_the_state_may_hold_one_text_and_signals_may_be_measured_outside(folder):
    class State(TypedDict):
        question: str
        draft: str
        drafts: Annotated[list, operator.add]
        suffice: dict

    def write(state):
        draft = script.next()
        return {"draft": draft, "drafts": [draft]}

    asked = []

    def measure(question, text):
        asked.append(question)
        return {"marks": measured(text)}

    script = Script()
    graph = StateGraph(State)
    graph.add_node("write", write)
    graph.add_node("stop", stop_node("marks < 0.5", again="write", reply="draft", measure=measure))
    graph.add_edge(START, "write")
    graph.add_edge("write", "stop")
    state = graph.compile().invoke({"question": QUESTION})
    assert state["drafts"] == list(SCRIPT[:3])
    assert (state["draft"], state["suffice"]["decision"]["reason"]) == ("Macbeth", "rule")
    assert asked == [QUESTION] * 3


def test_costs_are_those_of_the_messages():
    node = stop_node("tokens > 20", again="write")
    usage = {"input_tokens": 12, "output_tokens": 2, "total_tokens": 14, "input_token_details": {"cache_read": 4}}
    first = node({"messages": [AIMessage("Oslo", usage_metadata=usage)]})
    assert first.goto == "write"
    second = node({**first.update, "messages": [AIMessage("Oslo", usage_metadata=usage)]})
    assert second.update["suffice"]["decision"]["signals"] == {"tokens": 28}
    cost = second.update["suffice"]["session"]["rounds"][0]["costs"]["generator"]
    assert (cost["uncached_tokens"], cost["cached_tokens"], cost["output_tokens"]) == (8, 4, 2)


def test_a_node_before_the_first_reply_is_an_error():
    with pytest.raises(DataError, match="no reply of a model"):
        stop_node("answer_stable", again="write")({"messages": []})
