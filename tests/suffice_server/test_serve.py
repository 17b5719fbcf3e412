"""The decision as a service: what its document says is what it does, and what it decides is what the policy decides."""

import asyncio
import json
import math
import os
import re
import sqlite3
import threading
import time
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from hypothesis import given, settings, strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from suffice import AnswerPosition, Audit, Policy, Round
from suffice.errors import DataError
from suffice.policy import normalizers
from suffice.policy.rounds import Cost, Decision, Passage, Token
from suffice_server.serve import work
from suffice_server.serve.answers import RefusedError
from suffice_server.serve.app import make_app
from suffice_server.serve.document import openapi, schemas_for
from suffice_server.serve.guard import Limits
from suffice_server.serve.log import DecisionLog
from suffice_server.serve.operations import OPERATIONS
from suffice_server.serve.policies import PolicyFolder
from suffice_server.serve.schema import checker
from suffice_server.serve.service import Service
from suffice_server.serve.sessions import SessionStore
from tests.support.serving import running, watching_here

TOKEN = "0123456789abcdef0123456789abcdef"
STABLE = Policy(rule="answer_stable", max_rounds=4, name="stable")
ANSWERS = st.sampled_from(["Oslo", "oslo.", "Bergen", None, ""])


class Client:
    """Asks an application without a server, and checks each response against the document."""

    def __init__(self, app, document):
        self.app, self.document = app, document

    def __call__(self, method, path, body=None, *, status=None, token=TOKEN, content=None):
        async def ask():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                headers = {} if token is None else {"authorization": f"Bearer {token}"}
                return await client.request(method, path, json=body, content=content, headers=headers)

        response = asyncio.run(ask())
        operation = next((o for o in OPERATIONS if o.method == method and matches(o.path, path)), None)
        if operation is not None:
            described = self.document["paths"][operation.path][method.lower()]["responses"][str(response.status_code)]
            schema = described.get("content", {}).get("application/json", {}).get("schema")
            if schema is not None:
                valid(response.json(), schema, self.document)
            elif "content" not in described:
                assert response.content == b""
        if status is not None:
            assert response.status_code == status, response.text
        assert TOKEN not in response.text
        assert "Traceback" not in response.text
        is_json = response.headers.get("content-type") == "application/json"
        return response.json() if is_json else response.text


def matches(template, path):
    ours, theirs = template.split("/"), path.split("?")[0].split("/")
    return len(ours) == len(theirs) and all(a == b or a.startswith("{") for a, b in zip(ours, theirs, strict=True))


def valid(value, schema, document):
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "policies"
    path.mkdir()
    STABLE.save(path / "stable.json")
    return path


STORES = []


@pytest.fixture(scope="module", autouse=True)
def _closed():
    yield
    while STORES:
        STORES.pop().close()


def serving(folder, *, limits=None, sessions=None, log=None, prices=None):
    limits = limits or Limits()
    service = Service(PolicyFolder(folder), SessionStore(sessions, limits), log, prices=prices)
    STORES.append(service.store)
    return Client(make_app(service, limits, token=TOKEN), openapi(limits, token=True)), service


@pytest.fixture
def ask(folder):
    return serving(folder)[0]


def rounds(*answers, start=1):
    return [{"answer": answer, "index": r} for r, answer in enumerate(answers, start=start)]


# What is spent


def reply(content, model="m"):
    """Return a response with the model's name and usage."""
    usage = {"prompt_tokens": 10_000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 4_000}}
    return {"response": {"model": model, "choices": [{"message": {"content": content}}], "usage": usage}}


def test_what_is_spent_follows_from_responses_and_a_file_of_prices(folder, tmp_path):
    Policy(rule="(spend > 0.03) & (context_tokens > 9000)", max_rounds=9).save(folder / "spent.json")
    prices = tmp_path / "prices.json"

    def write(factor):
        table = {"uncached": 2.0 * factor, "cached": 0.2 * factor, "output": 12.0 * factor}
        prices.write_text(json.dumps({"m": table}), "utf-8")

    write(1)
    call = (6_000 * 2.0 + 4_000 * 0.2 + 100 * 12.0) / 1e6
    ask = serving(folder, prices=prices)[0]
    name = ask("POST", "/v1/sessions", {"policy": "spent", "question": "Where?"}, status=201)["id"]
    path = f"/v1/sessions/{name}/rounds"
    first = ask("POST", path, {**reply("Oslo"), "index": 1}, status=200)
    assert first["signals"]["spend"] == pytest.approx(call)
    assert ask("POST", path, {**reply("Oslo"), "index": 1}, status=200) == first  # sent again
    write(10)
    second = ask("POST", path, {**reply("Oslo"), "index": 2}, status=200)
    assert (second["reason"], second["signals"]["spend"]) == ("rule", pytest.approx(11 * call))
    at_once = ask("POST", "/v1/decide", {"policy": "spent", "rounds": [reply("Oslo"), reply("Oslo")]}, status=200)
    assert at_once["signals"]["spend"] == pytest.approx(10 * call)
    told = {
        "answer": "Oslo",
        "signals": {"spend": 0.5},
        "costs": {"generator": {"calls": 1, "uncached_tokens": 10_000}},
    }
    assert ask("POST", "/v1/decide", {"policy": "spent", "rounds": [told]}, status=200)["reason"] == "rule"


def test_what_was_written_to_a_cache_is_charged(folder, tmp_path):
    Policy(rule="spend > 0.001", max_rounds=9).save(folder / "spent.json")
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"m": {"uncached": 1, "cached": 0.1, "output": 5, "written": 1.25}}), "utf-8")
    ask = serving(folder, prices=prices)[0]
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 400, "output_tokens": 0}
    body = {"type": "message", "model": "m", "content": [{"type": "text", "text": "Oslo"}], "usage": usage}
    given = {"calls": 1, "uncached_tokens": 500, "cached_tokens": 0, "output_tokens": 0, "written_tokens": 400}
    told = {"answer": "Oslo", "reply_model": "m-2026-01-01", "costs": {"generator": given}}
    for sent in ({"response": body}, told):
        answer = ask("POST", "/v1/decide", {"policy": "spent", "rounds": [sent]}, status=200)
        assert answer["signals"]["spend"] == pytest.approx((100 + 500) / 1e6)


def test_a_round_whose_price_is_unknown_is_refused(folder, tmp_path):
    Policy(rule="spend > 0.03").save(folder / "spent.json")
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"m": {"uncached": 2.0, "cached": 0.2, "output": 12.0}}), "utf-8")
    ask = serving(folder, prices=prices)[0]
    for sent, said in ((reply("Oslo", "other"), "no price"), ({"answer": "Oslo"}, "reply_model")):
        refused = ask("POST", "/v1/decide", {"policy": "spent", "rounds": [sent]})
        assert said in refused["error"]["message"]
        assert str(tmp_path) not in str(refused)


def test_prices_do_not_decide_by_amounts_in_another_currency(folder, tmp_path):
    Policy(rule="spend > 0.03", depends={"currency": "EUR"}).save(folder / "spent.json")
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"m": {"uncached": 2.0, "cached": 0.2, "output": 12.0}}), "utf-8")
    ask = serving(folder, prices=prices)[0]
    refused = ask("POST", "/v1/decide", {"policy": "spent", "rounds": [reply("Oslo")]})
    assert "in EUR" in refused["error"]["message"]
    told = {**reply("Oslo"), "signals": {"spend": 0.5}}
    assert ask("POST", "/v1/decide", {"policy": "spent", "rounds": [told]}, status=200)["reason"] == "rule"


# The document


def test_the_document_is_openapi_and_says_what_is_served(ask):
    document = ask("GET", "/openapi.json", token=None, status=200)
    validate(document)
    assert document == openapi(Limits(), token=True)
    assert {(path, method.upper()) for path, methods in document["paths"].items() for method in methods} == {
        (operation.path, operation.method) for operation in OPERATIONS
    }


REQUESTS = {
    "decide": {"policy": "stable", "rounds": rounds("Oslo", "Oslo")},
    "open_session": {"policy": "stable", "question": "Where?", "question_id": "q1"},
    "observe": {"answer": "Oslo", "index": 1},
    "end": {"reason": "cancelled"},
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_does_what_the_document_says(folder, tmp_path, monkeypatch, operation):
    watching_here(monkeypatch)
    ask, _ = serving(folder, log=DecisionLog(tmp_path / "log", Audit(rate=1.0, seed="key")))
    ask("POST", "/v1/decide", REQUESTS["decide"], status=200)  # so that the log has something to watch
    body = REQUESTS.get(operation.name)
    assert (body is None) == (operation.body is None)
    if body is not None:
        valid(body, {"$ref": f"#/components/schemas/{operation.body}"}, ask.document)
    session = ask("POST", "/v1/sessions", {"policy": "stable"})["id"]
    path = operation.path.replace("{id}", session).replace("{policy}", "stable")
    ask(operation.method, path, body, status=operation.status)
    is_open = "security" not in ask.document["paths"][operation.path][operation.method.lower()]
    ask(operation.method, path, body, token=None, status=None if is_open else 401)
    if operation.body is not None:
        for wrong in ([], {**body, "unknown": 1}, {}, "text", None):
            refused = ask(operation.method, path, wrong)
            if wrong != {} or operation.name != "observe":  # a round may be empty
                assert refused["error"]["type"] == "DataError", refused
        ask(operation.method, path, content=b"{", status=422)
    if "{" in operation.path:
        ask(operation.method, re.sub(r"\{\w+\}", "unknown", operation.path), body, status=404)
    other = "PUT" if operation.method != "PUT" else "PATCH"
    assert ask(other, path, body, status=405)["error"]["type"] == "RefusedError"


def test_unknown_paths_are_refused_in_json(ask):
    for path in ("/", "/v1", "/v2/decide", "/v1/decide/", "/v1/policies/../../etc/passwd", "/v1/sessions/a/b"):
        assert "error" in ask("GET", path)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "index", "answer"]), inner, max_size=3)
    ),
    max_leaves=8,
)
ROUND = st.fixed_dictionaries(
    {},
    optional={
        "answer": st.none() | st.text("ab", max_size=3) | JSON,
        "index": st.integers(-2, 3) | JSON,
        "signals": st.dictionaries(
            st.text("ab", max_size=2), st.sampled_from([1, 0.5, None, "inf", "-inf", "x", True])
        ),
        "passages": st.lists(st.lists(st.sampled_from(["a", 1, None]), min_size=3, max_size=5), max_size=2),
        "answer_tokens": st.none() | st.just([["a", -1, [["b", None]], None]]) | JSON,
        "costs": st.dictionaries(
            st.just("llm"), st.dictionaries(st.sampled_from(["calls", "dollars"]), st.integers(0, 3))
        ),
        "embedding": st.none() | st.lists(st.floats(-1, 1) | st.none(), max_size=3),
        "response": st.sampled_from(["Answer: a", {}, 1]),
        "other": JSON,
    },
)


@given(value=ROUND | JSON)
def test_values_are_checked_as_a_library_of_json_schema_checks_them(value):
    schemas = schemas_for(Limits())
    try:
        checker(schemas["Round"], schemas)(value)
        accepted = True
    except DataError:
        accepted = False
    document = {"components": {"schemas": schemas}}
    reference = Draft202012Validator({"$ref": "#/components/schemas/Round", **document})
    assert accepted == reference.is_valid(value)


def test_a_message_says_where_and_what(ask):
    body = {"policy": "stable", "rounds": [{"answer": "Oslo"}, {"answr": "Oslo"}]}
    assert ask("POST", "/v1/decide", body, status=422)["error"]["message"].startswith(
        "rounds[1] has the unknown field \"answr\". Did you mean 'answer'? There are: response, seconds, index"
    )
    body = {"policy": "stable", "rounds": [], "question_id": " "}
    assert ask("POST", "/v1/decide", body, status=422)["error"]["message"].startswith("question_id must match")
    body = {"policy": "stable", "rounds": [{"answer": 3}]}
    message = ask("POST", "/v1/decide", body, status=422)["error"]["message"]
    assert message == "rounds[0].answer must be a text or null, not 3"
    for number in ("1" + "0" * 400, "-1" + "0" * 400, "1e400"):
        text = f'{{"policy": "stable", "rounds": [{{"signals": {{"x": {number}}}}}]}}'
        message = ask("POST", "/v1/decide", content=text, status=422)["error"]["message"]
        assert message.startswith("rounds[0].signals.x must be a number or null")
    for text, what in (
        (b"\xff", "UTF-8"),
        (b"[" * 100_000, "nested"),
        (b'{"policy": NaN}', "NaN"),
        (b"1" * 5000, "not JSON"),
    ):
        assert what in ask("POST", "/v1/decide", content=text, status=422)["error"]["message"]


# Decisions


def test_what_a_round_holds_is_what_a_request_may_hold():
    described = schemas_for(Limits())["Round"]["properties"].keys() - {"response", "seconds"}
    assert described == {field.name for field in fields(Round)}
    assert schemas_for(Limits())["Decision"]["properties"].keys() == Decision(stop=False).to_dict().keys()


WHOLE = Round(
    index=1,
    answer="Oslo",
    text="Answer: Oslo",
    answer_tokens=(Token(" Oslo", -0.1, ((" Oslo", -0.1), (" Bergen", -math.inf)), b" Oslo"),),
    passages=(Passage(passage_id="p", title="t", text="Oslo is it."),),
    pool_scores=(3.0, 1.0),
    signals={"quality": 0.5, "other": math.nan},
    costs={"generator": Cost(calls=1, seconds=math.nan)},
    finish_reason="stop",
    feedback="Good.",
    thinking="Where is it?",
    reply_model="m-1",
    system_fingerprint="f",
)


def test_a_whole_round_may_be_sent_as_it_is_written(folder):
    Policy(rule="(answer_margin > 5) | (quality > 0.4)", name="margin").save(folder / "margin.json")
    ask, _ = serving(folder)
    decided = ask("POST", "/v1/decide", {"policy": "margin", "rounds": [WHOLE.to_dict()]}, status=200)
    expected = Policy.load(folder / "margin.json").decide([WHOLE]).to_dict()
    assert {name: decided[name] for name in expected} == json.loads(json.dumps(expected))


@settings(max_examples=60)
@given(answers=st.lists(ANSWERS, max_size=6), missing=st.sampled_from(["error", "ignore"]))
def test_the_service_decides_what_the_policy_decides_in_both_ways(answers, missing, shared):
    ask = shared
    expected = STABLE.decide([Round(index=r, answer=a) for r, a in enumerate(answers, 1)], missing=missing).to_dict()
    body = {"policy": "stable", "rounds": rounds(*answers), "missing": missing}
    decided = ask("POST", "/v1/decide", body, status=200)
    assert {name: decided[name] for name in expected} == expected
    session = ask("POST", "/v1/sessions", {"policy": STABLE.digest, "missing": missing}, status=201)
    for observed in body["rounds"]:
        decided = ask("POST", f"/v1/sessions/{session['id']}/rounds", observed, status=200)
        again = ask("POST", f"/v1/sessions/{session['id']}/rounds", observed, status=200)
        assert again == decided
        if decided["stop"]:
            break
    if answers:
        assert {name: decided[name] for name in expected} == expected
    assert decided["policy"] == STABLE.digest
    assert ask("DELETE", f"/v1/sessions/{session['id']}", status=204) == ""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    path = tmp_path_factory.mktemp("policies")
    STABLE.save(path / "stable.json")
    return serving(path)[0]


def test_the_page_shows_a_request_and_its_response(ask):
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "serve.md").read_text("utf-8")
    body = json.loads(re.search(r"/v1/decide .* -d '(.*?)'\n", page, re.DOTALL)[1])
    assert ask("POST", "/v1/decide", body, status=200) == json.loads(
        re.search(r"```json\n(.*?)```", page, re.DOTALL)[1]
    )


def test_a_response_of_an_endpoint_is_read_where_the_policy_says(ask):
    reply = {"choices": [{"message": {"content": "I think.\nAnswer: Oslo"}, "finish_reason": "stop"}]}
    body = {"policy": "stable", "rounds": [{"response": reply, "seconds": 1.5}, {"response": "Answer: Oslo"}]}
    decided = ask("POST", "/v1/decide", body, status=200)
    assert (decided["stop"], decided["stop_round"], decided["answer"]) == (True, 2, "Oslo")
    whole = {"policy": "stable", "rounds": [{"response": "The Tempest"}, {"response": "the Tempest."}]}
    assert ask("POST", "/v1/decide", whole, status=200)["answer"] == "the Tempest."
    assert (
        "not a reply"
        in ask("POST", "/v1/decide", {**body, "rounds": [{"response": {"a": 1}}]}, status=422)["error"]["message"]
    )
    refused = ask("POST", "/v1/decide", {**body, "rounds": [{"answer": "a", "seconds": 1}]}, status=422)
    assert "seconds belong to a response" in refused["error"]["message"]


def test_a_response_without_an_answer_where_the_policy_says_has_none(folder):
    replace(STABLE, answer_position=AnswerPosition("json", "city")).save(folder / "city.json")
    ask, _ = serving(folder)
    said = [{"response": text} for text in ("I do not know yet.", "I do not know yet.", '{"city": "Oslo"}')]
    assert not ask("POST", "/v1/decide", {"policy": "city", "rounds": said[:2]}, status=200)["stop"]
    assert not ask("POST", "/v1/decide", {"policy": "city", "rounds": said}, status=200)["stop"]


def test_a_repeated_round_is_read_as_before_whatever_followed(ask):
    name = ask("POST", "/v1/sessions", {"policy": "stable"}, status=201)["id"]
    for index, text in enumerate(("Oslo", "Answer: Lima", "Oslo"), 1):
        body = {"index": index, "response": text}
        assert not ask("POST", f"/v1/sessions/{name}/rounds", body, status=200)["stop"]
    for index, text in enumerate(("Oslo", "Answer: Lima"), 1):
        body = {"index": index, "response": text}
        assert not ask("POST", f"/v1/sessions/{name}/rounds", body, status=200)["stop"]


def test_a_policy_of_another_model_is_refused(folder):
    replace(STABLE, depends={"model": "m"}).save(folder / "of-m.json")
    ask, _ = serving(folder)
    for path, body in (("/v1/decide", {"rounds": []}), ("/v1/sessions", {})):
        refused = ask("POST", path, {"policy": "of-m", "depends": {"model": "other"}, **body}, status=409)
        assert "another model" in refused["error"]["message"]
        ask("POST", path, {"policy": "of-m", "depends": {"model": "m", "prompt_id": "any"}, **body})


def test_a_policy_lacking_its_signals_is_refused_and_sessions_stay_intact(folder):
    Policy(rule="quality > 0.5", name="quality").save(folder / "quality.json")
    ask, _ = serving(folder)
    refused = ask("POST", "/v1/decide", {"policy": "quality", "rounds": rounds("Oslo")}, status=422)
    assert refused["error"]["type"] == "UnknownSignalError"
    body = {"policy": "quality", "rounds": rounds("Oslo"), "missing": "ignore"}
    assert ask("POST", "/v1/decide", body, status=200)["signals"] == {"quality": None}
    session = f"/v1/sessions/{ask('POST', '/v1/sessions', {'policy': 'quality'})['id']}"
    ask("POST", f"{session}/rounds", rounds("Oslo")[0], status=422)
    assert ask("GET", session, status=200)["next_round"] == 1
    decided = ask("POST", f"{session}/rounds", {"answer": "Oslo", "signals": {"quality": 0.9}}, status=200)
    assert (decided["stop"], decided["fired"]) == (True, "quality > 0.5")


# Sessions


def test_a_session_refuses_what_contradicts_it(ask):
    session = f"/v1/sessions/{ask('POST', '/v1/sessions', {'policy': 'stable'})['id']}"
    ask("POST", f"{session}/rounds", {"answer": "Oslo", "index": 2}, status=422)
    ask("POST", f"{session}/rounds", {"answer": "Oslo", "index": 1}, status=200)
    assert (
        "another round 1"
        in ask("POST", f"{session}/rounds", {"answer": "Bergen", "index": 1}, status=409)["error"]["message"]
    )
    ask("POST", f"{session}/rounds", {"answer": "Oslo", "index": 0}, status=409)
    assert ask("POST", f"{session}/rounds", {"answer": "Oslo"}, status=200)["stop"]
    ask("POST", f"{session}/rounds", {"answer": "Oslo"}, status=409)
    assert ask("GET", session)["decision"]["stop_round"] == 2
    assert ask("POST", f"{session}/end", {"reason": "failed"}, status=200)["reason"] == "rule"
    ask("DELETE", session, status=204)
    ask("GET", session, status=404)


def test_a_session_may_be_ended_from_outside(ask):
    session = f"/v1/sessions/{ask('POST', '/v1/sessions', {'policy': 'stable'})['id']}"
    ask("POST", f"{session}/rounds", {"answer": "Oslo"})
    ended = ask("POST", f"{session}/end", {"reason": "exhausted"}, status=200)
    assert (ended["stop"], ended["answer"], ended["reason"]) == (True, "Oslo", "exhausted")


def test_sessions_are_limited_in_number_and_time(folder, monkeypatch):
    ask, service = serving(folder, limits=Limits(sessions=2, ttl=60.0))
    now = [time.time()]
    monkeypatch.setattr("suffice_server.serve.sessions.time", SimpleNamespace(time=lambda: now[0]))
    first = [ask("POST", "/v1/sessions", {"policy": "stable"}, status=201)["id"] for _ in range(2)]
    now[0] += 59.0
    assert service.store.count() == 2
    ask("POST", "/v1/sessions", {"policy": "stable"}, status=429)
    now[0] += 1.0
    assert service.store.count() == 0
    ask("GET", f"/v1/sessions/{first[0]}", status=404)
    ask("POST", "/v1/sessions", {"policy": "stable"}, status=201)


class FullDisk:
    """A database that cannot commit."""

    def __init__(self, database):
        self.database = database

    def __getattr__(self, name):
        return getattr(self.database, name)

    def execute(self, query, *values):
        if query == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return self.database.execute(query, *values)


def test_a_full_disk_refuses_a_session_and_the_server_survives(folder, monkeypatch):
    ask, service = serving(folder)
    with monkeypatch.context() as patch:
        patch.setattr(service.store, "_database", FullDisk(service.store._database))
        assert "cannot be stored" in ask("POST", "/v1/sessions", {"policy": "stable"}, status=503)["error"]["message"]
    assert service.store.count() == 0
    ask("POST", "/v1/sessions", {"policy": "stable"}, status=201)


def test_a_session_that_is_over_makes_room_for_a_new_one(folder):
    """Otherwise a server took no more questions in an hour than it may have sessions open."""
    ask, service = serving(folder, limits=Limits(sessions=2))
    for _ in range(5):
        session = ask("POST", "/v1/sessions", {"policy": "stable"}, status=201)["id"]
        for index in (1, 2):
            decided = ask("POST", f"/v1/sessions/{session}/rounds", {"index": index, "answer": "Oslo"})
        assert ask("POST", f"/v1/sessions/{session}/rounds", {"index": 2, "answer": "Oslo"}) == decided
        assert service.store.count() == 0
    for _ in range(2):
        ask("POST", "/v1/sessions", {"policy": "stable"}, status=201)
    ask("POST", "/v1/sessions", {"policy": "stable"}, status=429)


def test_a_round_repeated_after_the_end_has_the_final_decision(ask):
    session = f"/v1/sessions/{ask('POST', '/v1/sessions', {'policy': 'stable'}, status=201)['id']}"
    for index, answer in ((1, "Oslo"), (2, "Bergen")):
        assert not ask("POST", f"{session}/rounds", {"index": index, "answer": answer})["stop"]
    ended = ask("POST", f"{session}/end", {"reason": "exhausted"})
    assert ask("POST", f"{session}/rounds", {"index": 2, "answer": "Bergen"}) == ended
    assert not ask("POST", f"{session}/rounds", {"index": 1, "answer": "Oslo"})["stop"]


def test_a_session_goes_on_in_another_process_that_shares_its_file(folder, tmp_path):
    ask, _ = serving(folder, sessions=tmp_path / "s.sqlite")
    other, service = serving(folder, sessions=tmp_path / "s.sqlite")
    session = f"/v1/sessions/{ask('POST', '/v1/sessions', {'policy': 'stable', 'question_id': 'q'})['id']}"
    assert not other("POST", f"{session}/rounds", {"answer": "Bergen", "index": 1}, status=200)["stop"]
    assert not ask("POST", f"{session}/rounds", {"answer": "Oslo", "index": 2}, status=200)["stop"]
    decided = other("POST", f"{session}/rounds", {"answer": "Oslo", "index": 3}, status=200)
    assert (decided["stop_round"], other("GET", session)["question_id"]) == (3, "q")
    assert {path.stat().st_mode & 0o77 for path in tmp_path.glob("s.sqlite*")} == {0}  # for the owner alone
    late = service.store.get(session.rpartition("/")[2])
    with pytest.raises(RefusedError, match="same time"):
        service.store.put(session.rpartition("/")[2], late.version - 1, {})


def test_an_edited_session_or_policy_of_one_is_refused(folder, tmp_path):
    path = tmp_path / "sessions.sqlite"
    ask, _ = serving(folder, sessions=path)
    sessions = [ask("POST", "/v1/sessions", {"policy": "stable"})["id"] for _ in range(3)]
    for session in sessions:
        ask("POST", f"/v1/sessions/{session}/rounds", {"answer": "Oslo"}, status=200)
    stored = sqlite3.connect(path, isolation_level=None)
    changes = ("state = replace(state, 'Oslo', 'Aslo')", "version = version + 1", "state = substr(state, 2)")
    ask, _ = serving(folder, sessions=path)
    for session, change in zip(sessions, changes, strict=True):
        stored.execute(f"UPDATE sessions SET {change} WHERE id = ?", (session,))
        refused = ask("POST", f"/v1/sessions/{session}/rounds", {"answer": "Oslo"}, status=409)
        assert "open a new one" in refused["error"]["message"]
    session = ask("POST", "/v1/sessions", {"policy": "stable"})["id"]
    stored.execute("UPDATE policies SET policy = replace(policy, '\"max_rounds\": 4', '\"max_rounds\": 5')")
    (folder / "stable.json").unlink()
    ask, _ = serving(folder, sessions=path)
    refused = ask("GET", f"/v1/sessions/{session}", status=409)
    assert "was changed" in refused["error"]["message"]
    stored.close()


def test_a_session_that_grows_too_large_stays_as_it_was(folder):
    ask, _ = serving(folder, limits=Limits(session=20_000))
    session = f"/v1/sessions/{ask('POST', '/v1/sessions', {'policy': 'stable', 'question_id': 'q'})['id']}"
    ask("POST", f"{session}/rounds", {"answer": "Bergen", "index": 1}, status=200)
    refused = ask("POST", f"{session}/rounds", {"answer": "B" * 30_000, "index": 2}, status=413)
    assert "max-session-bytes" in json.dumps(refused)
    assert ask("POST", f"{session}/rounds", {"answer": "Bergen", "index": 2}, status=200)["stop_round"] == 2


def test_many_requests_for_one_session_at_a_time_count_each_round_once(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "suffice_server.serve.sessions._LOCK_S", 600.0
    )  # for a thread that stands still in a transaction
    services = [serving(folder, sessions=tmp_path / "s.sqlite")[1] for _ in range(2)]
    name = services[0].open_session({"policy": "stable"})["id"]
    outcomes = []

    def send(service):
        for r, answer in enumerate(["a", "b", "b"], 1):
            while True:
                try:
                    outcomes.append((r, service.observe(name, {"index": r, "answer": answer})["stop"]))
                    break
                except RefusedError as refusal:
                    outcomes.extend([] if refusal.status == 409 else [refusal])

    threads = [threading.Thread(target=send, args=(service,)) for service in services * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [(1, False)] * 4 + [(2, False)] * 4 + [(3, True)] * 4


# Policies


def test_policies_are_loaded_again_when_they_change_and_sessions_keep_theirs(folder):
    ask, service = serving(folder)
    session = f"/v1/sessions/{ask('POST', '/v1/sessions', {'policy': 'stable'})['id']}"
    ask("POST", f"{session}/rounds", {"answer": "Oslo"})
    Policy(rule="fixed_k(3)", max_rounds=4).save(folder / "stable.json")
    Policy(rule="fixed_k(1)").save(folder / "other.json")
    service.policies.refresh()
    service._live.clear()
    assert ask("POST", f"{session}/rounds", {"answer": "Oslo"})["stop_round"] == 2
    body = {"policy": "stable", "rounds": rounds("Oslo", "Oslo")}
    assert not ask("POST", "/v1/decide", body)["stop"]
    assert ask("POST", "/v1/decide", {**body, "policy": STABLE.digest})["stop_round"] == 2
    assert ask("POST", "/v1/decide", {**body, "policy": "other"})["stop_round"] == 1
    (folder / "other.json").unlink()
    service.policies.refresh()
    ask("POST", "/v1/decide", {**body, "policy": "other"}, status=404)
    assert [policy["name"] for policy in ask("GET", "/v1/policies")["policies"]] == ["stable"]


def test_a_session_outlives_its_policy_file_and_the_process(folder, tmp_path):
    ask, _ = serving(folder, sessions=tmp_path / "s.sqlite")
    session = f"/v1/sessions/{ask('POST', '/v1/sessions', {'policy': 'stable'})['id']}"
    (folder / "stable.json").unlink()
    ask, _ = serving(folder, sessions=tmp_path / "s.sqlite")
    ask("POST", "/v1/decide", {"policy": "stable", "rounds": []}, status=404)
    ask("POST", f"{session}/rounds", {"answer": "Oslo"}, status=200)
    assert ask("POST", f"{session}/rounds", {"answer": "Oslo"}, status=200)["stop"]


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "suffice.policy", "version": 9}', b"\xff"])
def test_a_broken_file_is_reported_and_the_others_stay(folder, text, caplog):
    ask, service = serving(folder)
    (folder / "new.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    (folder / "stable.json").write_bytes(b"{")
    service.policies.refresh()
    assert ask("GET", "/ready", token=None, status=200) == {
        "ready": True,
        "policies": 1,
        "broken": ["new", "stable"],
        "fault": None,
    }
    assert ask("POST", "/v1/decide", {"policy": "stable", "rounds": rounds("a", "a")})["stop_round"] == 2
    broken = ask("GET", "/v1/policies")["broken"]
    assert "stays" in broken["stable"]
    assert str(folder) not in json.dumps(broken)
    assert "new.json does not load" in caplog.text


def test_names_that_are_no_names_and_policies_that_cannot_decide_are_broken(folder):
    STABLE.save(folder / "..json")
    STABLE.save(folder / "a b.json")
    Policy(rule="tasr").save(folder / "unfitted.json")
    (folder / "link.json").symlink_to(folder / "nowhere")
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    ask, _ = serving(folder)
    broken = ask("GET", "/v1/policies")["broken"]
    assert set(broken) == {"a b", "unfitted", "link", "folder", "pipe"} | ({"."} if "." in broken else set())
    assert "needs a calibrator" in broken["unfitted"]
    for name in ("../policies/stable", "stable.json", str(folder / "stable.json"), "a b", "%2e%2e"):
        assert ask("POST", "/v1/decide", {"policy": name, "rounds": []}, status=404)


def test_without_policy_the_server_is_unready_and_without_folder_it_fails(tmp_path):
    ask, _ = serving(tmp_path)
    assert ask("GET", "/ready", token=None, status=503) == {"ready": False, "policies": 0, "broken": [], "fault": None}
    with pytest.raises(DataError, match="be read"):
        PolicyFolder(tmp_path / "none")


def test_the_state_of_a_certificate_is_shown(folder):
    certified = replace(STABLE, certificate={"policy_digest": STABLE.digest})
    certified.save(folder / "certified.json")
    replace(certified, max_rounds=3).save(folder / "changed.json")
    ask, _ = serving(folder)
    states = {policy["name"]: policy["certificate"] for policy in ask("GET", "/v1/policies")["policies"]}
    assert states == {"stable": "none", "certified": "valid", "changed": "void: the policy was changed"}


# Figures


def test_prometheus_reads_stops_saved_rounds_and_durations(ask):
    ask("POST", "/v1/decide", {"policy": "stable", "rounds": rounds("a", "a")})
    ask("POST", "/v1/decide", {"policy": "stable", "rounds": rounds("a", "b", "c", "d")})
    ask("POST", "/v1/decide", {"policy": "stable", "rounds": rounds("a")})
    ask("POST", "/v1/decide", {"policy": "none", "rounds": []})
    ask("POST", "/v1/sessions", {"policy": "stable"})
    text = ask("GET", "/metrics", status=200)
    for line in (
        'suffice_stops_total{policy="stable",reason="rule"} 1.0',
        'suffice_stops_total{policy="stable",reason="max_rounds"} 1.0',
        'suffice_rounds_saved_total{policy="stable"} 2.0',
        'suffice_request_seconds_count{operation="decide",status="200"} 3.0',
        'suffice_request_seconds_count{operation="decide",status="404"} 1.0',
        "suffice_policies 1.0",
        "suffice_policies_broken 0.0",
        "suffice_sessions 1.0",
    ):
        assert line in text, text
    from prometheus_client.parser import text_string_to_metric_families

    assert {family.name for family in text_string_to_metric_families(text)} >= {"suffice_stops", "suffice_sessions"}


def test_slow_comparisons_of_answers_do_not_block_other_requests(folder, monkeypatch):
    n_held = 8
    inside, go, replies = threading.Semaphore(0), threading.Event(), []

    def held(answer):
        if answer == "hold":
            inside.release()
            go.wait(60)
        return answer

    monkeypatch.setitem(normalizers._ALL_NORMALIZERS, "held", held)
    Policy(rule="answer_stable", max_rounds=2, normalizer="held").save(folder / "held.json")
    limits = Limits()
    service = Service(PolicyFolder(folder), SessionStore(None, limits))
    STORES.append(service.store)

    with running(make_app(service, limits, token=None)) as url, httpx.Client(base_url=url, timeout=600) as client:

        def ask_held():
            answers = [{"answer": "hold"}, {"answer": "hold"}]
            replies.append(httpx.post(f"{url}/v1/decide", json={"policy": "held", "rounds": answers}, timeout=600))

        threads = [threading.Thread(target=ask_held) for _ in range(n_held)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert inside.acquire(timeout=60)
        body = {"policy": "stable", "rounds": [{"answer": "Oslo"}, {"answer": "Oslo"}]}
        assert client.post("/v1/decide", json=body).json()["answer"] == "Oslo"
        opened = client.post("/v1/sessions", json={"policy": "stable"}).json()["id"]
        assert not client.post(f"/v1/sessions/{opened}/rounds", json={"answer": "Oslo"}).json()["stop"]
        assert client.get("/v1/policies").status_code == 200
        assert replies == []  # all of them are still being compared
        go.set()
        for thread in threads:
            thread.join()
    assert [reply.json()["answer"] for reply in replies] == ["hold"] * n_held
    assert {reply.json()["reason"] for reply in replies} == {"rule"}


def test_comparing_for_longer_than_allowed_is_refused_and_changes_nothing(folder):
    ask, service = serving(folder, limits=Limits(work=1e-9))
    refused = ask("POST", "/v1/decide", {"policy": "stable", "rounds": rounds("Oslo", "Oslo")}, status=422)
    assert "max-seconds" in refused["error"]["message"]
    service._limit.seconds = 10.0
    assert ask("POST", "/v1/decide", {"policy": "stable", "rounds": rounds("Oslo", "Oslo")})["stop"]


@pytest.mark.parametrize(
    "policy", [{"rule": "answer_similarity_previous > 0.9"}, {"rule": "answer_stable", "normalizer": "math"}]
)
def test_requests_that_compare_long_take_turns_and_others_go_on(folder, monkeypatch, policy):
    monkeypatch.setitem(normalizers._ALL_NORMALIZERS, "math", str)
    Policy(**policy, max_rounds=2).save(folder / "long.json")
    ask, service = serving(folder)
    cheap = {"policy": "stable", "rounds": rounds("Oslo", "Oslo")}
    long = {"policy": "long", "rounds": rounds("Oslo", "Oslo")}
    replies = []
    with service._limit._turn:
        thread = threading.Thread(target=lambda: replies.append(ask("POST", "/v1/decide", long, status=200)))
        thread.start()
        assert ask("POST", "/v1/decide", cheap, status=200)["stop"]
        while thread.is_alive() and service._limit._places._value == work._PLACES:
            time.sleep(0.001)
        for _ in range(work._PLACES - 1):
            service._limit._places.acquire()
        assert "try again" in ask("POST", "/v1/decide", long, status=503)["error"]["message"]
        assert replies == []
        service._limit._places.release()
        service._limit.seconds = 0.001
        assert "try again" in ask("POST", "/v1/decide", long, status=503)["error"]["message"]  # it waited for too long
        service._limit._places.acquire()
    thread.join()
    assert [reply["stop"] for reply in replies] == [True]
    assert service._limit._places._value == 1  # it gave its place back


@pytest.mark.whole
def test_towers_of_exponents_are_compared_as_text_and_block_nobody(folder):
    Policy(rule="answer_stable", max_rounds=6, normalizer="math").save(folder / "towers.json")
    ask, service = serving(folder)
    tower = {"policy": "towers", "rounds": rounds(*(f"$2^{{9^{{9^{{9 + {r}}}}}}}$" for r in range(6)))}
    replies = []
    thread = threading.Thread(target=lambda: replies.append(ask("POST", "/v1/decide", tower, status=200)))
    thread.start()
    assert ask("POST", "/v1/decide", {"policy": "stable", "rounds": rounds("Oslo", "Oslo")})["stop"]
    thread.join(service._limit.seconds)
    assert [reply["stop"] for reply in replies] == [True], "no tower equals another, so the cap stops it"


def test_many_rounds_and_work_that_becomes_long_wait_for_their_turn(folder, monkeypatch):
    service = serving(folder)[1]
    policy, limit = service.policies.named("stable").policy, service._limit
    for n_rounds, cheap_s, waits in ((1, 9.0, False), (101, 9.0, True), (1, -1.0, True)):
        monkeypatch.setattr(work, "_CHEAP_S", cheap_s)
        with limit.work(policy, n_rounds) as check:
            check()
            assert limit._turn.locked() == waits
        assert not limit._turn.locked()


def test_a_session_has_at_most_the_rounds_of_a_request(folder):
    ask, _ = serving(folder, limits=Limits(rounds=2))
    session = ask("POST", "/v1/sessions", {"policy": "stable"})["id"]
    for answer in ("Oslo", "Bergen"):
        ask("POST", f"/v1/sessions/{session}/rounds", {"answer": answer}, status=200)
    refused = ask("POST", f"/v1/sessions/{session}/rounds", {"answer": "Narvik"}, status=413)
    assert "max-rounds" in refused["error"]["message"]
    assert ask("POST", f"/v1/sessions/{session}/end", {"reason": "exhausted"})["answer"] == "Bergen"


def test_a_policy_with_endless_rounds_is_not_served(folder):
    endless = {**STABLE.to_dict(), "max_rounds": 1_000_000_000}
    (folder / "endless.json").write_text(json.dumps(endless))
    ask, _ = serving(folder)
    assert "max_rounds must be a whole number from 1 to 100,000" in ask("GET", "/v1/policies")["broken"]["endless"]


def test_a_response_that_was_cut_is_a_round_without_an_answer(ask):
    def response(answer, reason):
        return {"response": {"choices": [{"message": {"content": f"Answer: {answer}"}, "finish_reason": reason}]}}

    given = [response("Oslo", "stop"), response("Os", "length"), response("Oslo", "content_filter")]
    decided = ask("POST", "/v1/decide", {"policy": "stable", "rounds": given}, status=200)
    assert not decided["stop"]
    decided = ask("POST", "/v1/decide", {"policy": "stable", "rounds": [*given, response("Oslo", "stop")]}, status=200)
    assert (decided["reason"], decided["answer"], decided["answer_round"]) == ("max_rounds", "Oslo", 4)
