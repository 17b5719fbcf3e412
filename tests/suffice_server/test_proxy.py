"""The proxy with the official clients of both providers, over real sockets: rounds, streams, faults, stops and what is kept."""

import base64
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import httpx
import openai
import pytest

from suffice import Policy
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay.prices import Price
from suffice.policy.session import stops
from suffice.recordings import read_recording
from suffice.recordings.parts_compaction import compact_recording
from suffice.recordings.round_journal import RoundJournal
from suffice.verdicts.decisions import decide
from suffice_server.proxy.app import Forwarding, Proxy
from suffice_server.proxy.recorder import Bounds, ProxyRecorder
from tests.support.endpoint import nobody
from tests.support.serving import running
from tests.support.upstream import THINKING, Upstream

KEY = "sk-test-0123456789abcdef"
PRICES = {"m": Price(uncached=1.0, cached=0.5, output=2.0)}
EDITS = [[("bash", {"command": "sed -i s/a/b/ a.py"})], [("bash", {"command": "pytest -q"})], "Done."]
INTERFACES = ["chat", "responses", "messages"]


class World:
    """An endpoint and a proxy before it."""

    def __init__(self, folder, up, url, proxy):
        self.folder, self.up, self.url, self.proxy = folder, up, url, proxy
        self.headers = {}

    def openai(self, **more):
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=KEY, **{"max_retries": 0, **more})
        return self.stack.enter_context(client)  # closed before the proxy ends

    def anthropic(self, **more):
        import anthropic  # a second, which only these tests take

        client = anthropic.Anthropic(base_url=self.url, api_key=KEY, **{"max_retries": 0, **more})
        return self.stack.enter_context(client)

    @property
    def counts(self):
        return httpx.get(f"{self.url}/suffice/status").json()["counts"]

    def ask(self, interface, history, *, stream=False, **more):
        """Ask for the next reply of a loop with one of the clients; return its text and its calls, and add it to the history."""
        ask = {"chat": self._chat, "responses": self._response, "messages": self._message}[interface]
        return ask(history, stream, **more)

    def _chat(self, history, stream, **more):
        tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
        given = {"model": "m", "messages": history, "tools": tools, "extra_headers": self.headers, **more}
        client = self.openai()
        if stream:
            with client.chat.completions.stream(**given, stream_options={"include_usage": True}) as events:
                message = events.get_final_completion().choices[0].message
        else:
            answer = client.chat.completions.with_raw_response.create(**given)
            self.last = answer.headers
            message = answer.parse().choices[0].message
        history.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        calls = [call.id for call in message.tool_calls or ()]
        history += [{"role": "tool", "tool_call_id": name, "content": "ok"} for name in calls]
        return message.content, calls

    def _response(self, history, stream, **more):
        tools = [{"type": "function", "name": "bash", "parameters": {"type": "object"}}]
        given = {"model": "m", "input": history, "tools": tools, "extra_headers": self.headers, **more}
        client = self.openai()
        if stream:
            with client.responses.stream(**given) as events:
                response = events.get_final_response()
        else:
            answer = client.responses.with_raw_response.create(**given)
            self.last = answer.headers
            response = answer.parse()
        history += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        calls = [item.call_id for item in response.output if item.type == "function_call"]
        history += [{"type": "function_call_output", "call_id": name, "output": "ok"} for name in calls]
        return response.output_text, calls

    def _message(self, history, stream, **more):
        tools = [{"name": "bash", "input_schema": {"type": "object"}}]
        given = {
            "model": "m",
            "max_tokens": 99,
            "messages": history,
            "tools": tools,
            "extra_headers": self.headers,
            **more,
        }
        client = self.anthropic()
        if stream:
            with client.messages.stream(**given) as events:
                message = events.get_final_message()
        else:
            answer = client.messages.with_raw_response.create(**given)
            self.last = answer.headers
            message = answer.parse()
        history.append(
            {"role": "assistant", "content": [part.model_dump(exclude_none=True) for part in message.content]}
        )
        calls = [part.id for part in message.content if part.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": name, "content": "no", "is_error": True} for name in calls]
        history += [{"role": "user", "content": results}] if calls else []
        return "".join(part.text for part in message.content if part.type == "text"), calls

    def loop(self, interface, task="Mend a.py.", *, stream=False, **more):
        """Run a loop up to a reply without tool calls; return that reply."""
        history = [{"role": "user", "content": task}]
        while True:
            text, calls = self.ask(interface, history, stream=stream, **more)
            if not calls:
                return text


def steps(body):
    """Return the next reply of the scripted agent: its place is the number of replies that the request repeats."""
    given = body.get("messages", body.get("input"))
    spoken = [m for m in given if m.get("role") == "assistant" or m.get("type") == "function_call"]
    return EDITS[min(len(spoken), len(EDITS) - 1)]


@pytest.fixture
def world(tmp_path):
    """Return a function that starts a proxy before a scripted endpoint."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(script=steps, *, faults=None, policy=None, bounds=None, upstream=None, prices=PRICES, **forwarding):
            up = Upstream(script)
            address = upstream or stack.enter_context(running(up.app))
            recorder = ProxyRecorder(tmp_path / "runs", prices, policy=policy, bounds=bounds)
            proxy = Proxy(recorder, Forwarding(upstream=address, **forwarding))
            started = World(tmp_path / "runs", up, "", proxy)
            started.stack = stack.enter_context(ExitStack())
            started.url = started.stack.enter_context(running(proxy.guarded()))
            up.requests.clear()
            up.faults = list(faults or ())
            return started

        yield start


def full(*_):
    raise DataError("the disk is full")


def rows(world):
    """End the proxy and return what it recorded."""
    world.stack.close()
    return read_recording(world.folder).table.to_pylist()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("interface", INTERFACES)
def test_a_loop_of_a_client_is_one_question(world, interface, stream):
    started = world()
    assert started.loop(interface, stream=stream) == "Done."
    recorded = rows(started)
    assert [row["round"] for row in recorded] == [1, 2, 3]
    assert len({row["conversation"] for row in recorded}) == 1
    assert {row["key"] for row in recorded} == {"messages"}
    assert {row["question"] for row in recorded} == {"Mend a.py."}
    assert [row["since_change"] for row in recorded] == [0, 1, 2]
    assert [row["text"] for row in recorded] == ["", "", "Done."]
    assert [row["spend"] for row in recorded] == pytest.approx([110e-6, 220e-6, 330e-6])
    assert [row["cost.generator.cached_tokens"] for row in recorded] == [60, 60, 60]
    failed = [1.0, 1.0, None] if interface == "messages" else [None, None, None]
    assert [row.get("tool_failed") for row in recorded] == failed
    assert {row["end"] for row in recorded} == {"exhausted"}


@pytest.mark.parametrize(
    ("path", "interface"), [("/v1/chat/completions", "chat"), ("/v1/responses", "r"), ("/v1/messages", "m")]
)
def test_streams_pass_chunk_by_chunk_and_byte_by_byte(world, path, interface):
    started = world(lambda _: "A long reply that comes in pieces.")
    started.up.gate.clear()
    body = {"model": "m", "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "?"}], "input": "?"}
    with httpx.stream("POST", started.url + path, json=body, timeout=60) as response:
        pieces, first = response.iter_raw(), b""
        while len(started.up.sent) < 2:
            time.sleep(0.01)
        while len(first) < sum(map(len, started.up.sent[:2])):
            first += next(pieces)
        assert len(started.up.sent) == 2  # the endpoint waits, and what it has sent is here
        started.up.gate.set()
        assert first + b"".join(pieces) == b"".join(started.up.sent)
        assert response.headers["content-type"].startswith("text/event-stream")


def test_signed_thoughts_and_unknown_fields_pass_untouched(world):
    started = world(lambda _: "Yes.")
    history = [{"role": "user", "content": "?"}]
    started.ask("messages", history)
    assert history[1]["content"][0] == THINKING
    history.append({"role": "user", "content": "Sure?"})
    started.ask(
        "messages",
        history,
        extra_body={"thinking": {"type": "enabled"}, "own_field": [1]},
        extra_query={"beta": "true"},
    )
    path, headers, body = started.up.requests[-1]
    assert path == "/v1/messages?beta=true"
    assert body["own_field"] == [1]
    assert body["messages"][1]["content"][0] == THINKING
    assert KEY in (
        headers.get("x-api-key"),
        headers.get("authorization", "").removeprefix("Bearer "),
    )  # by the version of the client
    assert "signature" not in json.dumps(rows(started), default=str)


def test_unknown_paths_and_headers_are_forwarded_and_not_recorded(world):
    started = world()
    given = {"x-own": "1", "authorization": f"Bearer {KEY}", "x-suffice-conversation": "c"}
    response = httpx.request("DELETE", f"{started.url}/v1/files/a%2Fb?x=%20", headers=given)
    assert response.json() == {"path": "/v1/files/a/b", "method": "DELETE"}
    assert response.headers["x-other"] == "kept"
    _, headers, _ = started.up.requests[-1]
    assert (headers["x-own"], headers["authorization"]) == ("1", f"Bearer {KEY}")
    assert "x-suffice-conversation" not in headers
    assert started.counts["open conversations"] == 0


@pytest.mark.parametrize("status", [429, 500, 529])
@pytest.mark.parametrize("interface", ["chat", "messages"])
def test_refusals_of_the_endpoint_pass_and_are_retried_by_the_client(world, interface, status):
    started = world(faults=[None, status, status])
    client = started.openai(max_retries=2) if interface == "chat" else started.anthropic(max_retries=2)
    started.openai = started.anthropic = lambda **_: client
    assert started.loop(interface) == "Done."
    assert started.counts[f"status {status}"] == 2
    assert [row["round"] for row in rows(started)] == [1, 2, 3]


def test_a_refusal_reaches_the_client_as_it_was(world):
    started = world(faults=[429])
    with pytest.raises(openai.RateLimitError) as refusal:
        started.loop("chat")
    assert refusal.value.response.headers["x-request-id"] == "r1"
    assert refusal.value.body == {"message": "scripted"}


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_broken_stream_breaks_for_the_client_and_is_no_round(world, interface):
    started = world(faults=["break"])
    with pytest.raises((openai.APIError, httpx.TransportError, Exception)) as broken:
        started.loop(interface, stream=True)
    assert (
        "incomplete" in str(broken.value).lower()
        or "closed" in str(broken.value).lower()
        or "Connection" in str(broken.value)
    )
    counts = started.counts
    assert counts["broken replies"] == 1
    assert "replies" not in counts
    assert started.loop(interface, stream=True) == "Done."
    assert [row["round"] for row in rows(started)] == [1, 2, 3]


def test_a_silent_endpoint_is_a_timeout_of_the_proxy(world):
    started = world(faults=["hang"], seconds=0.3)
    with pytest.raises(openai.InternalServerError, match="in time"):
        started.loop("chat")
    assert started.counts["endpoint timeouts"] == 1


def test_a_client_that_gives_up_ends_the_request(world):
    started = world(faults=["hang"])
    with pytest.raises(openai.APITimeoutError):
        started.openai(timeout=0.3).chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}])
    while not started.counts.get("clients gone"):
        time.sleep(0.02)
    assert started.loop("chat", "?") == "Done."


def test_an_endpoint_that_nobody_serves_is_named(world):
    with nobody() as address:
        started = world(upstream=address)
        with pytest.raises(openai.InternalServerError, match="cannot be reached"):
            started.loop("chat")
        assert started.counts["endpoint failures"] >= 1


def test_keys_reach_no_file_even_if_a_reply_repeats_them(world):
    started = world(lambda _: f"Your key is {KEY}.")
    started.headers = {"x-own-token": "another-secret-42"}
    started.loop("chat", f"Say my key, {KEY}, and another-secret-42.")
    started.loop("messages", "Say my key.", extra_query={"api_key": "third-secret-42"})
    recorded = rows(started)
    assert recorded[0]["text"] == "Your key is [redacted]."
    for path in started.folder.iterdir():
        data = path.read_bytes() + repr(recorded).encode()
        assert not any(secret in data for secret in (KEY.encode(), b"another-secret-42", b"third-secret-42")), path


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"authorization": "Bearer shortkey"}, "shortkey"),
        ({"authorization": "Bearer onlyletterskey"}, "onlyletterskey"),
        ({"authorization": "Basic " + base64.b64encode(b"me:pass").decode()}, "pass"),
        ({"x-api-key": "assistant"}, "assistant"),
    ],
)
def test_short_keys_reach_no_text_and_leave_the_form(world, given, key):
    calls = [("bash", {"command": f"echo {key}"})]
    started = world(lambda body: f"It is {key}." if len(body["messages"]) > 1 else calls)
    history = [{"role": "user", "content": f"Say {key}."}]
    for _ in range(2):
        body = {"model": "m", "messages": history}
        answer = httpx.post(f"{started.url}/v1/chat/completions", json=body, headers=given, timeout=60)
        history.append(answer.json()["choices"][0]["message"])
        history += [{"role": "tool", "tool_call_id": call["id"]} for call in history[-1].get("tool_calls", ())]
    assert history[-1]["content"] == f"It is {key}."
    recorded = rows(started)
    assert [(row["question"], row["text"], row["key"]) for row in recorded] == [
        ("Say [redacted].", "", "messages"),
        ("Say [redacted].", "It is [redacted].", "messages"),
    ]
    assert not any(f"echo {key}".encode() in path.read_bytes() for path in started.folder.iterdir())


def test_files_of_a_proxy_can_be_read_by_their_owner_alone(world):
    started = world()
    started.loop("chat")
    started.stack.close()
    assert {path.stat().st_mode & 0o077 for path in started.folder.iterdir()} == {0}


@pytest.mark.parametrize("grade", [True, False, 0.5])
def test_an_outcome_ends_a_conversation_and_grades_its_final_state(world, grade):
    started = world()
    started.loop("chat")
    name = started.last["x-suffice-conversation"]
    response = httpx.post(f"{started.url}/suffice/outcomes", json={"conversation": name, "resolved": grade})
    assert response.json() == {"conversation": name, "rounds": 3}
    again = httpx.post(f"{started.url}/suffice/outcomes", json={"conversation": name, "resolved": grade})
    assert (again.status_code, again.json()) == (200, response.json())
    assert [row["resolved"] for row in rows(started)] == [grade, grade, grade]


def test_an_outcome_may_name_the_clients_own_key(world):
    started = world()
    started.headers = {"x-suffice-conversation": "task-7"}
    started.loop("chat")
    assert (
        httpx.post(f"{started.url}/suffice/outcomes", json={"conversation": "task-7", "resolved": 1}).status_code == 200
    )
    assert {(row["question_id"], row["key"]) for row in rows(started)} == {("task-7", "header")}


def test_a_call_beside_never_names_the_model_of_a_run(world):
    started = world()
    started.headers = {"x-suffice-conversation": "task-7"}
    started.loop("chat")
    title = [{"role": "user", "content": "A title?"}]
    started.openai().chat.completions.create(model="small", messages=title, extra_headers=started.headers)
    assert {(row["model"], row["key"]) for row in rows(started)} == {("m", "beside")}


def test_a_change_of_the_model_is_unsure(world):
    started = world()
    history = [{"role": "user", "content": "Mend."}]
    for model in ("m", "m", "large"):
        started.ask("chat", history, model=model)
    assert {(row["model"], row["key"], row["end"]) for row in rows(started)} == {("large", "model", "exhausted")}


def outcome(started, name, grade):
    return httpx.post(f"{started.url}/suffice/outcomes", json={"conversation": name, "resolved": grade})


def idle(started, n=1):
    """Make every conversation look as if it were idle for long, and wait until some were recorded without an outcome."""
    while started.counts.get("recorded conversations", 0) < n:
        for conversation in [*started.proxy.recorder.conversations.open.values()]:
            conversation.last = 0.0
        time.sleep(0.05)


@pytest.mark.parametrize("n_before", [0, 1])
def test_an_outcome_waits_for_the_reply_in_flight(world, n_before):
    started = world()
    started.headers = {"x-suffice-conversation": "task-7"}
    history = [{"role": "user", "content": "Mend."}]
    for _ in range(n_before):
        started.ask("chat", history)
    started.up.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        asking = pool.submit(started.ask, "chat", history)
        while len(started.up.requests) == n_before:
            time.sleep(0.01)
        sent = pool.submit(outcome, started, "task-7", True)
        waited = not wait([sent], timeout=0.3).done
        started.up.gate.set()
        asking.result()
        assert waited
        assert sent.result().json()["rounds"] == n_before + 1
    assert [row["resolved"] for row in rows(started)] == [1.0] * (n_before + 1)


def test_an_outcome_before_the_first_reply_is_refused(world):
    started = world(faults=[500])
    started.headers = {"x-suffice-conversation": "task-7"}
    with pytest.raises(openai.InternalServerError):
        started.loop("chat")
    assert (outcome(started, "task-7", True).status_code, started.loop("chat")) == (404, "Done.")
    assert outcome(started, "task-7", True).json()["rounds"] == 3


@pytest.mark.parametrize("restarts", [False, True])
def test_an_outcome_that_comes_late_is_recorded_all_the_same(world, restarts):
    started = world()
    started.loop("chat", "First?")
    first = started.last["x-suffice-conversation"]
    started.headers = {"x-suffice-conversation": "task-7"}
    started.loop("chat", "Second?")
    idle(started, 2)
    before = {(row["conversation"], row["round"]): row for row in read_recording(started.folder).table.to_pylist()}
    if restarts:
        started.stack.close()
        started = world()
    assert outcome(started, first, 0.5).json() == {"conversation": first, "rounds": 3}
    assert outcome(started, "task-7", True).status_code == 200
    assert outcome(started, first, 0.5).status_code == 200
    assert (refusal := outcome(started, first, 1)).status_code == 409
    assert "resolved = 0.5" in refusal.text
    assert outcome(started, "unknown", 1).status_code == 404
    recorded = read_recording(started.folder).table.to_pylist()
    assert rows(started) == recorded
    compact_recording(started.folder)
    assert read_recording(started.folder).table.to_pylist() == recorded
    assert [(row["question"], row["resolved"]) for row in recorded] == [("First?", 0.5)] * 3 + [("Second?", 1.0)] * 3
    for row in recorded:
        known = before[row["conversation"], row["round"]]
        changed = {name for name in {*row, *known} if row.get(name) != known.get(name)}
        assert changed == {"resolved", "amended"}


def test_a_late_outcome_of_an_agent_that_never_came_back_counts(world):
    started = world()
    history = [{"role": "user", "content": "Mend."}]
    started.ask("chat", history)
    started.ask("chat", history)
    idle(started)
    assert outcome(started, started.last["x-suffice-conversation"], 1).status_code == 200
    recorded = rows(started)
    assert [(row["end"], row["resolved"]) for row in recorded] == [("exhausted", 1.0)] * 2
    assert not read_recording(started.folder).metadata["failed"]


def test_a_name_that_several_conversations_had_is_refused(world):
    started = world(lambda _: "Yes.")
    started.headers = {"x-suffice-conversation": "task-7"}
    for number in (1, 2):
        started.loop("chat")
        idle(started, number)
    assert "2 conversations" in outcome(started, "task-7", 1).text


def test_an_outcome_that_cannot_be_written_is_said(world, monkeypatch):
    started = world()
    started.loop("chat")
    idle(started)
    name = started.last["x-suffice-conversation"]
    with monkeypatch.context() as patch:
        patch.setattr(RoundJournal, "_commit_all", full)
        assert outcome(started, name, 1).status_code == 503
    assert outcome(started, name, 0).status_code == 200
    assert [row["resolved"] for row in rows(started)] == [0.0] * 3


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"conversation": "x"}', b'{"conversation": "x", "resolved": 2}'])
def test_what_is_no_outcome_is_refused(world, body):
    assert httpx.post(f"{world().url}/suffice/outcomes", content=body).status_code == 422


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("interface", INTERFACES)
def test_a_policy_ends_a_loop_amid_tool_calls(world, interface, stream):
    started = world(lambda _: EDITS[0], policy=Policy(rule="round >= 2", max_rounds=9))
    text = started.loop(interface, stream=stream)
    assert "round >= 2" in text
    assert len(started.up.requests) == 2  # the third was not sent
    assert started.counts["stopped requests"] == 1
    recorded = rows(started)
    assert [row["round"] for row in recorded] == [1, 2]
    assert {row["end"] for row in recorded} == {"rule"}
    assert {row["stop_round"] for row in recorded} == {2}


def test_a_stop_says_why_in_headers_and_is_said_again(world):
    started = world(lambda _: EDITS[0], policy=Policy(rule="spend > 0.00015", max_rounds=9))
    history = [{"role": "user", "content": "Mend."}]
    for _ in range(2):
        started.ask("chat", history)
    before = list(history)
    for _ in range(2):
        text, calls = started.ask("chat", list(before))
        assert (started.last["x-suffice-stop"], started.last["x-suffice-rule"]) == ("rule", "spend > 0.00015")
        assert (text.startswith("The loop was ended"), calls) == (True, [])
    assert len(started.up.requests) == 2


@pytest.mark.parametrize(("model", "streams"), [("m", True), ("unpriced", False)])
def test_a_policy_that_cannot_see_its_signal_says_so(world, caplog, model, streams):
    started = world(lambda _: EDITS[0], policy=Policy(rule="spend > 0.00001", max_rounds=9))
    history = [{"role": "user", "content": "Mend."}]
    seen = []
    for n in range(3):
        body = {"model": model, "messages": history, "stream": streams}
        answer = httpx.post(f"{started.url}/v1/chat/completions", json=body, timeout=60)
        seen.append(answer.headers.get("x-suffice-unknown"))
        call = {
            "id": f"call{n + 1}_0",
            "type": "function",
            "function": {"name": "bash", "arguments": json.dumps(EDITS[0][0][1])},
        }
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
    assert seen == [None, "spend", "spend"]
    assert started.counts["requests decided without spend"] == 2
    assert started.counts["replies without tokens" if streams else "replies without a price"] == 3
    assert [line.name for line in caplog.records if "the policy reads spend" in line.getMessage()] == [
        "suffice_server.proxy.recorder"
    ]


@pytest.mark.parametrize("written", [1.25, None])
def test_the_proxy_charges_what_a_reply_wrote_to_a_cache(world, written):
    started = world(lambda _: "done", prices={"m": Price(uncached=1.0, cached=0.5, output=2.0, written=written)})
    started.ask("messages", [{"role": "user", "content": "Mend."}], model="anthropic/m-2026-05-01")
    status = httpx.get(f"{started.url}/suffice/status").json()
    assert status["counts"]["written tokens"] == 10
    assert status["dollars"] == pytest.approx((40 * 1 + 60 * 0.5 + 20 * 2 + (2.5 if written else 0)) / 1e6, abs=1e-6)
    assert status["counts"].get("tokens written to a cache and charged as uncached, for lack of a price") == (
        None if written else 10
    )
    row = rows(started)[0]
    assert (row["cost.generator.uncached_tokens"], row["cost.generator.written_tokens"]) == (40, 10)
    assert row["spend"] == pytest.approx((110 + (2.5 if written else 0)) / 1e6)


def test_a_price_of_another_name_is_counted(world, caplog):
    several = {"a/gpt": PRICES["m"], "openai/gpt": Price(uncached=9, cached=9, output=9), "azure/gpt": PRICES["m"]}
    started = world(lambda _: "done", prices={**PRICES, **several})
    for model in ("openai/m-2026-05-01", "gpt-2026-05-01", "gpt-2026-05-01"):
        started.ask("chat", [{"role": "user", "content": model}], model=model)
    assert started.counts["replies at the price of 'm' for 'openai/m-2026-05-01'"] == 1
    assert started.counts["replies without a price"] == 2
    assert sum("'openai/gpt' or 'azure/gpt'" in line.getMessage() for line in caplog.records) == 1


FORMS = [
    ("chat/completions", {"response_format": {"type": "json_schema", "json_schema": {}}}),
    ("chat/completions", {"response_format": {"type": "json_object"}}),
    ("chat/completions", {"tool_choice": "required"}),
    ("chat/completions", {"tool_choice": {"type": "function", "function": {"name": "bash"}}}),
    ("chat/completions", {"guided_json": {}}),
    ("responses", {"text": {"format": {"type": "json_schema"}}}),
    ("responses", {"tool_choice": {"type": "allowed_tools", "mode": "required"}}),
    ("messages", {"tool_choice": {"type": "any"}}),
    ("messages", {"output_config": {"format": {"type": "json_schema"}}}),
]


@pytest.mark.parametrize(("path", "demand"), FORMS)
def test_a_request_that_demands_a_form_is_passed_on(world, path, demand):
    started = world(lambda _: "{}", policy=Policy(rule="round >= 1", max_rounds=9))
    seen, history = [], [{"role": "user", "content": "Mend."}]
    for more in ({}, demand, {"tool_choice": "auto", "response_format": {"type": "text"}}):
        body = {"model": "m", "messages": history, "input": history, **more}
        answer = httpx.post(f"{started.url}/v1/{path}", json=body, timeout=60)
        seen.append((answer.headers.get("x-suffice-passed"), answer.headers.get("x-suffice-stop")))
        history += [{"role": "assistant", "content": "{}"}, {"role": "user", "content": "More."}]
    assert seen == [(None, None), (next(iter(demand)), None), (None, "rule")]
    assert len(started.up.requests) == 2
    assert {row["key"] for row in rows(started)} == {"form"}


def test_a_stop_returns_the_text_of_the_answer(world):
    started = world(lambda body: f"Draft {len(body['messages'])}.", policy=Policy(rule="round >= 2", max_rounds=9))
    history = [{"role": "user", "content": "Write."}]
    for _ in range(3):
        text, _ = started.ask("chat", history)
        history.append({"role": "user", "content": "Better."})
    assert text == "Draft 3."
    assert [row["answer"] for row in rows(started)] == ["Draft 1.", "Draft 3."]


def test_live_decisions_equal_those_of_a_replay(world):
    policy = Policy(rule="(since_change >= 1) & (spend > 0.0001)", max_rounds=9)
    started = world(policy=policy)
    started.loop("messages")
    recorded = rows(started)
    replayed = stops(policy, read_recording(started.folder).rounds(policy.raw_columns))
    assert replayed.rounds.tolist() == [recorded[0]["stop_round"]] == [2]


def test_a_lost_reply_that_is_asked_for_again_is_one_round(world):
    started = world(policy=Policy(rule="round >= 1", max_rounds=9))
    body = {"model": "m", "messages": [{"role": "user", "content": "Mend."}]}
    for retries in ("0", "1"):
        headers = {"x-stainless-retry-count": retries}
        answer = httpx.post(f"{started.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
        assert answer.json()["choices"][0]["message"][
            "tool_calls"
        ]  # a retry asks for a reply, and not for the next decision
    history = [*body["messages"], answer.json()["choices"][0]["message"]]
    history.append({"role": "tool", "tool_call_id": history[1]["tool_calls"][0]["id"], "content": "ok"})
    stopped = httpx.post(f"{started.url}/v1/chat/completions", json={**body, "messages": history}, timeout=60)
    assert stopped.headers["x-suffice-stop"] == "rule"
    (row,) = rows(started)
    assert (row["cost.generator.calls"], row["spend"]) == (2, pytest.approx(220e-6))


def test_replies_that_come_packed_are_read_and_pass_as_they_are(world):
    started = world(lambda _: "Packed.")
    started.up.packs = True
    assert started.loop("chat") == started.loop("messages", stream=True) == "Packed."
    assert [row["text"] for row in rows(started)] == ["Packed.", "Packed."]


def test_a_policy_that_begins_before_the_first_reply_is_refused(tmp_path):
    with pytest.raises(DataError, match="first round"):
        ProxyRecorder(tmp_path / "runs", {}, policy=Policy(rule="round >= 2", start_round=0, max_rounds=3))


def test_two_proxies_do_not_share_a_folder(world, tmp_path):
    world()
    with pytest.raises(DataError, match="another proxy"):
        ProxyRecorder(tmp_path / "runs", {})


def test_a_conversation_is_recorded_once_it_is_idle(world):
    started = world(lambda _: "Yes.", bounds=Bounds(idle=0.1))
    started.loop("chat")
    while not started.counts.get("recorded conversations"):
        time.sleep(0.05)
    assert read_recording(started.folder).table.num_rows == 1


def test_an_agent_that_never_comes_back_has_failed(world):
    started = world(bounds=Bounds(idle=0.1))
    started.ask("chat", [{"role": "user", "content": "Mend."}])
    while not started.counts.get("recorded conversations"):
        time.sleep(0.05)
    assert [row["end"] for row in rows(started)] == ["failed"]


def test_the_conversation_without_a_reply_for_longest_makes_room(world):
    started = world(lambda _: "Yes.", bounds=Bounds(conversations=2))
    for number in range(4):
        started.loop("chat", f"Question {number}?")
    while started.counts.get("recorded conversations", 0) < 2:
        time.sleep(0.05)
    recorded = read_recording(started.folder).table.column("question").to_pylist()
    assert recorded == ["Question 0?", "Question 1?"]


def test_a_conversation_beyond_its_size_is_forwarded_and_marked(world):
    started = world(bounds=Bounds(size=1500))
    assert started.loop("chat") == "Done."
    assert started.counts["replies beyond the size of a conversation"] >= 1
    assert {row["key"] for row in rows(started)} == {"size"}


def test_large_bodies_are_refused_and_large_replies_only_forwarded(world):
    started = world(lambda _: "x" * 5000, body=2000, reply=1000)
    with pytest.raises(openai.APIStatusError) as refusal:
        started.loop("chat", "y" * 3000)
    assert refusal.value.status_code == 413
    assert len(started.loop("chat")) == 5000
    assert len(started.loop("chat", stream=True)) == 5000
    assert started.counts["replies that are not whole"] == 2


def test_a_full_disk_stops_no_loop_and_is_named(world, monkeypatch):
    started = world()
    with monkeypatch.context() as patch:
        patch.setattr(RoundJournal, "_commit_all", full)
        assert started.loop("chat") == "Done."
        assert httpx.get(f"{started.url}/suffice/status").json()["fault"] == "the disk is full"
    assert started.counts["unrecorded replies"] == 3
    started.loop("chat", "Another?")
    assert httpx.get(f"{started.url}/suffice/status").json()["fault"] is None


def test_pages_and_other_hosts_get_nothing(world):
    started = world()
    for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
        assert httpx.get(f"{started.url}/v1/models", headers=headers).status_code == 403
    assert not started.up.requests


def test_a_gateway_that_fails_with_status_200_brings_no_round(world):
    started = world(faults=[200])
    body = {"model": "m", "messages": [{"role": "user", "content": "Mend a.py."}]}
    response = httpx.post(f"{started.url}/v1/chat/completions", json=body, timeout=60)
    assert (response.status_code, response.json()) == (200, {"error": {"message": "scripted"}})
    assert started.counts["replies that are not whole"] == 1
    assert started.loop("chat") == "Done."
    assert [row["round"] for row in rows(started)] == [1, 2, 3]


def test_many_clients_at_once_keep_their_conversations_apart(world):
    started = world(lambda body: f"Echo {body['messages'][-1]['content']}")
    texts = {}

    def one(number):
        history = [{"role": "user", "content": f"Begin {number}"}]
        for turn in range(4):
            text, _ = started.ask("chat", history)
            texts.setdefault(number, []).append(text)
            history.append({"role": "user", "content": f"{number}.{turn}"})

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    found = {}
    for row in rows(started):
        found.setdefault(row["question"], []).append(row["text"])
    assert found == {f"Begin {number}": said for number, said in texts.items()}


def test_a_folder_of_a_proxy_is_decided_on(world):
    started = world(lambda body: "Rome" if len(body["messages"]) == 1 else "Oslo")
    with httpx.Client(base_url=started.url, timeout=60) as client:
        for number in range(40):
            history = [{"role": "user", "content": f"Where is {number}?"}]
            for _ in range(4):
                body = {"model": "m", "messages": history}
                message = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
                history += [message, {"role": "user", "content": "Sure?"}]
    started.stack.close()
    advice = decide(read_recording(started.folder), max_loss=0.2)
    assert (advice.verdict, advice.policy.max_rounds) == ("do it", 2), advice.sentence


def test_prices_do_not_end_conversations_by_amounts_in_another_currency(tmp_path):
    policy = Policy(rule="spend > 0.03", depends={"currency": "EUR"})
    with pytest.raises(ConfigMismatchError, match="in EUR"):
        ProxyRecorder(tmp_path / "runs", PRICES, policy=policy)
    ProxyRecorder(tmp_path / "runs", {}, policy=policy).close()
