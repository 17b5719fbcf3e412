"""Chains that go on while trial answers are asked beside them: the same decisions, and what is thought beyond the stop is paid."""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import replace

import pytest

from suffice import ChatModel, Policy, record
from suffice.errors import DataError, ModelError, ModelTimeoutError
from suffice.loops.models.limits import RequestLimits
from suffice.loops.models.streaming import StreamedCompletion
from suffice.loops.retrieval import Question
from suffice.loops.thinking_loop import CHATML
from suffice.loops.waves import Surplus
from suffice.policy.rounds import Cost
from tests.suffice.loops import test_token_ids as of_ids
from tests.suffice.loops.test_thinking_loop import CHAINS, RULES, completion, loop, reply
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint


@pytest.fixture(scope="module")
def endpoint():
    with Endpoint(reply) as running:
        yield running


def paid(outcome, component):
    cost = outcome.costs.get(component, Cost())
    return cost.calls, cost.uncached_tokens, cost.cached_tokens, cost.output_tokens


@pytest.mark.parametrize("rule", RULES)
def test_a_chain_that_goes_on_beside_its_trials_decides_the_same(endpoint, rule):
    policy = Policy(rule=rule, max_rounds=9)
    loops = [loop(endpoint, policy, overlap=overlap) for overlap in (False, True)]
    for name in CHAINS:
        waits, goes_on = (each.run(f"{name}?") for each in loops)
        assert goes_on.decision.to_dict() == waits.decision.to_dict(), name
        assert [observed.thinking for observed in goes_on.rounds] == [observed.thinking for observed in waits.rounds]
        for component in ("generator", "trial"):
            assert paid(goes_on, component) == paid(waits, component), (name, component)
        assert waits.surplus == Surplus()
        # Beyond the stop, a stretch was begun exactly where the rule read the trial and the chain had not ended.
        last = goes_on.rounds[-1]
        certain = rule.startswith(("fixed_k", "token_budget", "thinking_ended")) or last.signals["thinking_ended"]
        assert goes_on.surplus.samples in ((0,) if certain else (0, 1)), name


def test_thoughts_beyond_the_stop_are_cancelled_and_charged():
    def holds(body: dict) -> bool:  # the trial is answered once the chain goes on
        return body["prompt"].endswith(CHATML.cue) and not any(item.body.get("stream") for item in slow.requests)

    with Endpoint(reply, holds=holds) as slow:
        slow.stream_gap_s = 0.5
        outcome = loop(slow, Policy(rule="deer(0.01)", max_rounds=9), overlap=True).run("settles?")
        assert outcome.decision.stop_round == 1
        until = time.monotonic() + 20
        while slow.abandoned != 1:
            assert time.monotonic() < until, "the server was not told"
            time.sleep(0.01)
    assert (outcome.surplus.samples, outcome.surplus.cancelled) == (1, 1)
    assert outcome.surplus.cost.output_tokens < len(CHAINS["settles"][0][1].split())
    assert "1 stretch of thought, 1 cancelled in flight" in outcome.surplus.notes[0]


def test_a_certain_stop_has_nothing_thought_beside_it():
    with Endpoint(reply) as counted:
        outcome = loop(counted, Policy(rule="token_budget(4)", max_rounds=9), overlap=True).run("settles?")
        assert not any(request.body.get("stream") for request in counted.requests)
    assert outcome.surplus.samples == 0


def test_a_completion_that_arrived_before_its_cancellation_is_paid_in_full():
    async def cancelled(wait_s: float, endpoint: Endpoint) -> tuple[Cost, bool]:
        async def prompt():
            return [101, 102]

        thinking = of_ids.loop(endpoint)
        settings = {"max_tokens": 2, "extra_body": {"return_token_ids": True}}
        streamed = StreamedCompletion(thinking.model, prompt, settings)
        await asyncio.wait({streamed._task}, timeout=wait_s)
        return await streamed.cancel()

    with Endpoint(of_ids.reply) as quick:
        cost, was_cancelled = asyncio.run(cancelled(60, quick))
        assert (was_cancelled, cost.output_tokens, cost.uncached_tokens) == (False, 2, 2)
        quick.stream_gap_s = 30
        cost, was_cancelled = asyncio.run(cancelled(0.5, quick))
    assert (was_cancelled, cost.output_tokens, cost.uncached_tokens) == (
        True,
        0,
        2,
    )  # at most the whole prompt was read


def test_chains_of_token_ids_go_on_beside_their_trials():
    with Endpoint(of_ids.reply, tokenizer=of_ids.starts) as endpoint:
        policy = Policy(rule="answer_stable", max_rounds=9)
        waits, goes_on = (of_ids.loop(endpoint, policy, overlap=overlap).run("How tall?") for overlap in (False, True))
    assert goes_on.decision == waits.decision
    assert [observed.thinking_ids for observed in goes_on.rounds] == [
        observed.thinking_ids for observed in waits.rounds
    ]


def test_a_stretch_that_fails_beside_a_trial_ends_the_chain():
    with Endpoint(reply, fault=lambda body: "500" if body.get("stream") else None) as failing:
        outcome = loop(failing, Policy(rule="dynasor(3)", max_rounds=9), overlap=True).run("settles?")
    assert isinstance(outcome.error, ModelError)
    assert outcome.answer == "40"
    assert not math.isnan(outcome.cost.tokens)


def test_a_recording_of_overlapping_chains_is_refused(endpoint, tmp_path):
    with pytest.raises(DataError, match="live runs"):
        record([Question(question_id="q", question="settles?")], loop(endpoint, overlap=True), tmp_path / "t.parquet")


def test_the_command_lets_the_chain_go_on(endpoint):
    words = ("think", "answer", "settles?", "--model", "m", "--base-url", endpoint.url, "--set=every=2", "--json")
    waits, goes_on = (json.loads(cli(*words, "--rule", "dynasor(2)", *more).out) for more in ((), ("--overlap",)))
    assert (goes_on["answer"], goes_on["stop_round"]) == (waits["answer"], waits["stop_round"])
    assert "surplus" in goes_on["costs"]


class WithoutStreams(Endpoint):
    """An endpoint that ignores `stream`, and sends its replies at once."""

    async def _stream(self, body, reader, writer):
        writer.write(self._bytes(200, "application/json", json.dumps(body)))


class Endless(Endpoint):
    """An endpoint that sends one event without an end."""

    async def _stream(self, body, reader, writer):
        writer.write(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: ")
        while not writer.is_closing():
            writer.write(b"x" * 1000)
            await writer.drain()
            await asyncio.sleep(0.001)


def breaks_off(body: dict) -> dict:
    whole = reply(body)
    if body.get("stream"):
        whole["choices"][0]["finish_reason"] = None
    return whole


@pytest.mark.parametrize(("kind", "says"), [(WithoutStreams, reply), (Endpoint, breaks_off)])
def test_a_stretch_that_breaks_off_is_no_end_of_thinking(kind, says):
    with kind(says) as broken:
        outcome = loop(broken, Policy(rule="dynasor(3)", max_rounds=9), overlap=True).run("settles?")
    assert isinstance(outcome.error, ModelError)
    assert outcome.error.retryable
    assert "none with a finish_reason" in str(outcome.error)
    assert [observed.signals["thinking_ended"] for observed in outcome.rounds] == [0.0]


async def streamed(endpoint: Endpoint, **options):
    """Return a model, and what a streamed completion of it came to: a completion or an error."""

    async def prompt():
        return "Go on."

    model = ChatModel("m", base_url=endpoint.url, api="completions", max_retries=0, **{"api_key": "key", **options})
    (end,) = await asyncio.gather(StreamedCompletion(model, prompt, {}).result(), return_exceptions=True)
    return model, end


@pytest.mark.parametrize(
    ("options", "kind"),
    [({"max_reply_bytes": 20_000}, ModelError), ({"total_s": 0.2}, ModelTimeoutError)],
)
def test_a_stream_without_an_end_is_read_up_to_the_limits(options, kind):
    with Endless(lambda body: completion("a", "stop", body["prompt"])) as endless:
        model, end = asyncio.run(asyncio.wait_for(streamed(endless, **options), 20))
    assert type(end) is kind
    assert "so reading stopped" in str(end)
    assert model.stats.failures == 1


def test_a_streamed_reply_is_redacted_noted_and_settled(monkeypatch, caplog):
    key, settled = "sk-0123456789", []
    monkeypatch.setattr(RequestLimits, "settle", lambda self, expected, reported: settled.append(reported))

    def in_two_tokens(body: dict) -> dict:
        whole = {**completion(key, "stop", ""), "model": "another"}
        whole["choices"][0]["logprobs"] = {"tokens": [key[:5], key[5:]], "token_logprobs": [-0.5, -0.5]}
        return whole

    with Endpoint(in_two_tokens) as endpoint:
        _, end = asyncio.run(streamed(endpoint, api_key=key))
    assert end.text == "[redacted]"
    assert settled == [end.cost.tokens]
    assert "replied as 'another'" in caplog.text


class LongPace:
    def reserve(self, tokens=0.0):
        return 60.0


@pytest.mark.parametrize("wait_s", [0.0, 0.3])
def test_a_stretch_whose_request_was_never_sent_costs_nothing(endpoint, wait_s):
    async def surplus():
        thinking = loop(endpoint, overlap=True)
        model = ChatModel(
            "m", base_url=endpoint.url, api_key="key", api="completions", limits=RequestLimits(pace=LongPace())
        )
        course = replace(thinking, model=model, token_ids=False).course("settles?", ())
        course._go_on(["Go on."])
        ahead = course._ahead
        await asyncio.wait({ahead._task}, timeout=wait_s)
        return await course.end(), await ahead.cancel()

    before = len(endpoint.requests)
    assert asyncio.run(surplus()) == (Surplus(), (Cost(), False))
    assert len(endpoint.requests) == before
