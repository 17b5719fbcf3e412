"""LangGraph: the lines to paste, checkpoints, and threads."""

import json
import operator
from typing import Annotated, NotRequired

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.managed import RemainingSteps
from pydantic import BaseModel
from typing_extensions import TypedDict

from suffice import Policy, Recorder, read_recording
from suffice.errors import DataError
from suffice.hosts.langgraph import stop_node
from tests.frameworks.acceptance import CAPPED, QUESTION, SCRIPT, Script, check, check_cap, check_stop, loaded, measured
from tests.frameworks.chat import FakeChat


def decision_in(state):
    return state["messages"][-1].response_metadata["suffice"]


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("langgraph", folder, model=FakeChat(script=script))["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, loaded("langgraph", folder, model=FakeChat(script=script))["ask"])


def test_a_second_question_in_a_thread_starts_anew_with_json_checkpoints(folder):
    script = Script()
    saver = InMemorySaver(serde=JsonPlusSerializer(pickle_fallback=False))
    app = loaded("langgraph", folder, model=FakeChat(script=script))["graph"].compile(checkpointer=saver)
    thread = {"configurable": {"thread_id": "1"}}

    def ask(question):
        state = app.invoke({"messages": [("user", question)]}, thread)
        return state["messages"][-1].text, decision_in(state)

    check(script, ask)
    assert len(app.get_state(thread).values["messages"]) == 12
    runs = [item.checkpoint["channel_values"]["suffice"] for item in saver.list(thread) if item.metadata["step"] > 2]
    assert json.dumps(runs).count('"suffice.session"') == len(runs) >= 10


def test_a_thread_that_was_interrupted_goes_on_in_another_process(folder):
    script, saver = Script(), InMemorySaver()
    thread = {"configurable": {"thread_id": "1"}}
    for part in range(2):
        graph = loaded("langgraph", folder, model=FakeChat(script=script))["graph"]
        app = graph.compile(checkpointer=saver, interrupt_before=["write"] if part == 0 else [])
        state = app.invoke({"messages": [("user", QUESTION)]} if part == 0 else None, thread)
        while part == 0 and script.calls < 2:
            state = app.invoke(None, thread)
    check_stop(script, state["messages"][-1].text, decision_in(state))


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
    graph.add_node("stop", stop_node(Policy(rule="marks < 0.5"), again="write", reply="draft", measure=measure))
    graph.add_edge(START, "write")
    graph.add_edge("write", "stop")
    state = graph.compile().invoke({"question": QUESTION})
    assert state["drafts"] == list(SCRIPT[:3])
    assert (state["draft"], state["suffice"]["decision"]["reason"]) == ("Macbeth", "rule")
    assert asked == [QUESTION] * 3


def test_costs_are_those_of_the_messages():
    node = stop_node(Policy(rule="tokens > 20"), again="write")
    usage = {"input_tokens": 12, "output_tokens": 2, "total_tokens": 14, "input_token_details": {"cache_read": 4}}
    first = node({"messages": [AIMessage("Oslo", usage_metadata=usage)]})
    assert first.goto == "write"
    second = node({**first.update, "messages": [AIMessage("Oslo", usage_metadata=usage)]})
    assert second.update["suffice"]["decision"]["signals"] == {"tokens": 28}
    cost = second.update["suffice"]["session"]["rounds"][0]["costs"]["generator"]
    assert (cost["uncached_tokens"], cost["cached_tokens"], cost["output_tokens"]) == (8, 4, 2)


def test_a_node_before_the_first_reply_is_an_error():
    with pytest.raises(DataError, match="reply"):
        stop_node("answer_stable | (round >= 5)", again="write")({"messages": []})


def graph_of(script, state, **arguments):
    graph = StateGraph(state)
    graph.add_node("write", lambda values: {"messages": [FakeChat(script=script).invoke(QUESTION)]})
    graph.add_node("stop", stop_node(**{"again": "write", **arguments}))
    graph.add_edge(START, "write")
    graph.add_edge("write", "stop")
    return graph


def test_the_state_can_be_a_model_with_declared_fields(folder):
    class Model(BaseModel):
        messages: Annotated[list, add_messages] = []
        suffice: dict | None = None

    class Declared(MessagesState):
        suffice: NotRequired[dict]
        remaining_steps: RemainingSteps

    for state in (Model, Declared):
        script = Script()
        values = (
            graph_of(script, state, policy=folder / "policy.json").compile().invoke({"messages": [("user", QUESTION)]})
        )
        assert values["suffice"]["decision"] == decision_in(values)
        check_stop(script, values["messages"][-1].text, decision_in(values))


def test_an_unknown_node_or_key_is_an_error(folder):
    with pytest.raises(ValueError, match="wrte"):
        graph_of(Script(), MessagesState, policy=folder / "policy.json", again="wrte").compile()
    graph = graph_of(Script(), MessagesState, policy=folder / "policy.json", reply="draft").compile()
    with pytest.raises(DataError, match="'draft'"):
        graph.invoke({"messages": [("user", QUESTION)]})


@pytest.mark.parametrize(("limit", "calls"), [(2, 4), (3, 5), (4, 5), (6, 6)])
def test_a_resumed_thread_ends_exactly_at_its_new_limit(folder, limit, calls):
    script, saver = Script(CAPPED), InMemorySaver()
    graph = loaded("langgraph", folder, model=FakeChat(script=script))["graph"]
    thread = {"configurable": {"thread_id": "1"}}
    app = graph.compile(checkpointer=saver, interrupt_before=["write"])
    app.invoke({"messages": [("user", QUESTION)]}, thread)
    while script.calls < 3:
        app.invoke(None, thread)
    state = graph.compile(checkpointer=saver).invoke(None, {**thread, "recursion_limit": limit})
    assert (state["messages"][-1].text, decision_in(state)["reason"], script.calls) == (
        "The Tempest",
        "cancelled",
        calls,
    )


def test_a_thread_resumed_from_an_earlier_checkpoint_is_recorded_as_another_run(folder):
    script = Script(fails_at=3)
    with Recorder(folder / "runs.parquet", policy=folder / "policy.json") as recorder:
        graph = loaded("langgraph", folder, recorder=recorder, model=FakeChat(script=script))["graph"]
        app, thread = graph.compile(checkpointer=InMemorySaver()), {"configurable": {"thread_id": "1"}}
        with pytest.raises(RuntimeError, match="down"):
            app.invoke({"messages": [("user", QUESTION)]}, thread)
        script.fails_at, script.calls = None, 2
        check_stop(script, "The Tempest", decision_in(app.invoke(None, thread)))
        before = [
            item for item in app.get_state_history(thread) if item.next == ("write",) and item.metadata["step"] == 4
        ]
        for _ in range(2):
            script.calls = 2
            check_stop(script, "The Tempest", decision_in(app.invoke(None, before[0].config)))
            recorder.save()
    recording = read_recording(folder / "runs.parquet")
    assert recording.answers.tolist() == [list(SCRIPT[:4])] * 3
    assert recording.ends.tolist() == ["rule"] * 3
    assert len(set(recording.clusters.tolist())) == 1
