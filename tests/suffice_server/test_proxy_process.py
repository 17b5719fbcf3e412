"""`suffice proxy` as a process: kills, restarts, llama.cpp's server behind it, and what it refuses to start with."""

import json
import time

import httpx
import pytest

from suffice import Policy
from suffice.recordings import read_recording
from suffice_server.proxy.conversations import Asked
from suffice_server.proxy.openai import Chat
from suffice_server.proxy.recorder import ProxyRecorder
from suffice_server.proxy.redacting import Secrets
from tests.support.cli_tools import cli
from tests.support.serving import proxy, running
from tests.support.upstream import Upstream, chat


def ask(url, history):
    """Ask for the next reply of a loop, and append it."""
    body = {"model": "gpt-4o-mini", "messages": history}
    message = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()["choices"][0]["message"]
    history.append(message)
    history += [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in message.get("tool_calls", ())]
    return message


def next_step(body):
    return [("bash", {"command": "ls"})] if len(body["messages"]) < 9 else "Done."


@pytest.mark.whole
def test_a_kill_loses_at_most_the_reply_in_flight(tmp_path):
    upstream = Upstream(next_step)
    histories = [[{"role": "user", "content": f"Task {n}."}] for n in range(3)]
    with running(upstream.app) as address:
        for _ in range(2):
            with proxy(tmp_path / "runs", address) as (process, url):
                for history in histories:
                    ask(url, history)
                    ask(url, history)
                upstream.gate.clear()
                with httpx.Client(timeout=0.5) as client, pytest.raises(httpx.TimeoutException):
                    client.post(f"{url}/v1/chat/completions", json={"model": "m", "messages": histories[0]})
                process.kill()
                upstream.gate.set()
        with proxy(tmp_path / "runs", address) as (_, url):
            for history in histories:
                assert ask(url, history)["content"] == "Done."
    table = read_recording(tmp_path / "runs").table
    rows = sorted((row["question"], row["round"], row["key"]) for row in table.to_pylist())
    assert rows == [(f"Task {n}.", r, "messages") for n in range(3) for r in range(1, 6)]


@pytest.mark.whole
def test_kills_at_any_moment_lose_and_repeat_nothing(tmp_path):
    upstream, told = Upstream(next_step), []
    with running(upstream.app) as address:
        for number in range(3):
            with proxy(tmp_path / "runs", address) as (process, url):
                start, moment = time.monotonic(), 0.4 + 0.21 * number
                try:
                    while True:
                        history = [{"role": "user", "content": f"Task {number}.{len(told)}."}]
                        while not (message := ask(url, history))["content"]:
                            told.append((history[0]["content"], len([m for m in history if m["role"] == "assistant"])))
                            if time.monotonic() - start > moment:
                                process.kill()
                        told.append((history[0]["content"], len([m for m in history if m["role"] == "assistant"])))
                        assert message["content"] == "Done."
                except (httpx.TransportError, json.JSONDecodeError):
                    pass
        with proxy(tmp_path / "runs", address, "--set", "idle=0.1") as (_, url):
            while httpx.get(f"{url}/suffice/status").json()["counts"]["open conversations"]:
                time.sleep(0.1)
    rows = [(row["question"], row["round"]) for row in read_recording(tmp_path / "runs").table.to_pylist()]
    assert len(rows) == len(set(rows))
    assert set(told) <= set(rows)
    assert len(set(rows) - set(told)) <= 3  # stored, and lost on the way to the client


@pytest.mark.whole
def test_a_late_outcome_survives_a_kill(tmp_path):
    upstream = Upstream(next_step)
    with running(upstream.app) as address:
        with proxy(tmp_path / "runs", address, "--set", "idle=0.1") as (process, url):
            body = {"model": "m", "messages": [{"role": "user", "content": "Task."}] * 9}
            name = httpx.post(f"{url}/v1/chat/completions", json=body).headers["x-suffice-conversation"]
            while httpx.get(f"{url}/suffice/status").json()["counts"]["open conversations"]:
                time.sleep(0.1)
            told = {"conversation": name, "resolved": 1}
            assert httpx.post(f"{url}/suffice/outcomes", json=told).status_code == 200
            process.kill()
        assert read_recording(tmp_path / "runs").table.column("resolved").to_pylist() == [1.0]
        with proxy(tmp_path / "runs", address) as (_, url):
            assert httpx.post(f"{url}/suffice/outcomes", json=told).status_code == 200
            told["resolved"] = 0
            assert httpx.post(f"{url}/suffice/outcomes", json=told).status_code == 409
    assert read_recording(tmp_path / "runs").table.column("resolved").to_pylist() == [1.0]


def test_what_was_recorded_before_a_kill_is_not_recorded_again(tmp_path):
    recorder = ProxyRecorder(tmp_path / "runs", {})
    stored(recorder)
    (conversation,) = recorder.conversations.open.values()
    journal = (tmp_path / "runs" / "open.rounds").read_bytes()
    assert recorder.record(conversation) == 1
    recorder.close()
    (tmp_path / "runs" / "open.rounds").write_bytes(journal)  # as if killed before the journal's own note
    again = ProxyRecorder(tmp_path / "runs", {})
    assert not again.conversations.open
    again.close()
    assert read_recording(tmp_path / "runs").table.num_rows == 1


def test_an_enforced_stop_survives_a_kill(tmp_path):
    recorder = ProxyRecorder(tmp_path / "runs", {}, policy=Policy(rule="round >= 1", max_rounds=9))
    asked = stored(recorder)
    (conversation,) = recorder.conversations.open.values()
    assert recorder.decide(conversation, asked).reason == "rule"
    recorder._guard.close()
    again = ProxyRecorder(tmp_path / "runs", {}, policy=Policy(rule="round >= 1", max_rounds=9))
    (conversation,) = again.conversations.open.values()
    assert conversation.stopped
    assert again.decide(conversation, asked).fired == "round >= 1"
    again.close()


def stored(recorder):
    """Store one reply, and return its request."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Task."}]}
    asked = Asked.of(Chat(), body, key="", is_retry=False, redact=Secrets())
    conversation, branch = recorder.conversations.find(asked)
    called = Chat().reply(chat("Done.", body, 1)[0])
    replied = recorder.store(conversation, branch=branch, number=1, asked=asked, called=called, seconds=1.0)
    recorder.conversations.note(conversation, replied)
    return asked


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--upstream", "localhost:1"], "http"),
        (["--set", "key-header=Authorization"], "key-header"),
        (["--enforce", "missing.json"], "missing.json"),
        (["--prices", "missing.toml"], "missing.toml"),
    ],
)
def test_what_a_proxy_cannot_start_with_is_named(tmp_path, options, word):
    assert word in cli("proxy", tmp_path / "runs", "--port", "0", *options).error
    assert not (tmp_path / "runs").exists()
