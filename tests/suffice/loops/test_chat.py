from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import time
import traceback
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from suffice.errors import AuthenticationFailedError, DataError, LogprobsUnavailableError, ModelError, ModelTimeoutError
from suffice.loops.models.chat import ChatModel
from suffice.loops.models.prompts import CONFIDENCE_FIRST, NO_CONFIDENCE, Prompt
from suffice.loops.models.protocols import Answerer
from suffice.policy.rounds import Passage
from suffice.policy.signals.position import AnswerPosition
from suffice.recordings.cache import ResponseCache
from tests.support.endpoint import Endpoint, nobody

PASSAGES = [
    Passage(passage_id="1", title="Tower", text="The tower is in Oslo. Answer: Rome"),
    Passage(passage_id="2", title="Bridge", text="The bridge is in Lima."),
]
KEY = "sk-very-secret-0123456789"


def ask(endpoint: Endpoint, **parameters):
    """Return the reply, or the error, of one sync call."""
    parameters = {"max_retries": 0, "timeout_s": 600.0, "api_key": KEY} | parameters
    model = ChatModel("m", base_url=endpoint.url, **parameters)
    try:
        return model.answer("Where is the tower?", PASSAGES)
    except ModelError as error:
        return error
    finally:
        model.close()


def ask_async(endpoint: Endpoint, **parameters):
    """Return the reply, or the error, of one async call."""
    parameters = {"max_retries": 0, "timeout_s": 600.0, "api_key": KEY} | parameters
    model = ChatModel("m", base_url=endpoint.url, **parameters)
    try:
        return asyncio.run(model.answer_async("Where is the tower?", PASSAGES))
    except ModelError as error:
        return error


@pytest.fixture(params=[ask, ask_async], ids=["sync", "async"])
def either(request):
    return request.param


# Replies


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_reply_holds_answer_tokens_confidence_and_costs(either, api):
    with Endpoint("Answer: Oslo\nConfidence: 4") as endpoint:
        reply = either(endpoint, api=api)
    assert reply.answer == "Oslo"
    assert reply.text == "Answer: Oslo\nConfidence: 4"
    assert [token.text for token in reply.answer_tokens] == [" Oslo"]
    assert len(reply.answer_tokens[0].alternatives) == 5
    assert reply.answer_tokens[0].logprob == -0.05
    assert reply.signals == {"verbal_confidence": 4.0}
    assert reply.finish_reason == "stop"
    cost = reply.costs["generator"]
    assert (cost.calls, cost.output_tokens, cost.cached_tokens) == (1.0, 6.0, 0.0)
    assert cost.uncached_tokens == len(endpoint.requests[0].prompt.split())
    assert cost.seconds > 0


def test_the_model_is_an_answerer():
    model = ChatModel("m", base_url="http://localhost:1/v1")
    assert isinstance(model, Answerer)
    assert model.name == "m"
    assert ChatModel("m", base_url="http://localhost:1/v1", name="ours").name == "ours"


def test_sync_and_async_send_the_same_request():
    with Endpoint() as endpoint:
        ask(endpoint, seed=7, extra_body={"top_k": 3})
        ask_async(endpoint, seed=7, extra_body={"top_k": 3})
    first, second = endpoint.requests
    assert first.body == second.body
    assert first.path == second.path == "/v1/chat/completions"
    assert {name: value for name, value in first.body.items() if name != "messages"} == {
        "model": "m",
        "max_tokens": 64,
        "temperature": 0.0,
        "seed": 7,
        "logprobs": True,
        "top_logprobs": 5,
        "top_k": 3,
    }


def test_legacy_completions_send_one_text_that_grows_at_its_end():
    with Endpoint() as endpoint:
        model = ChatModel("m", base_url=endpoint.url, api="completions")
        for k in range(3):
            model.answer("Where is the tower?", PASSAGES[:k])
        model.close()
    prompts = [request.body["prompt"] for request in endpoint.requests]
    assert prompts[1].startswith(prompts[0])
    assert prompts[2].startswith(prompts[1])
    assert endpoint.requests[0].path == "/v1/completions"
    assert endpoint.requests[0].body["logprobs"] == 5


def test_a_prefilled_start_is_sent_last_and_the_answer_begins_the_reply():
    prompt = Prompt(name="p", version=1, system="Answer.", prefill="Answer:")
    for api in ("chat", "completions"):
        with Endpoint(" Oslo\n") as endpoint:
            reply = ask(endpoint, prompt=prompt, api=api, position=AnswerPosition("start"))
        body = endpoint.requests[0].body
        assert reply.answer == "Oslo"
        assert (body.get("prompt") or body["messages"][-1]["content"]).endswith("Answer:")


def test_parameters_that_are_none_are_not_sent():
    with Endpoint() as endpoint:
        reply = ask(endpoint, max_tokens=None, temperature=None, top_logprobs=None)
    assert set(endpoint.requests[0].body) == {"model", "messages"}
    assert reply.tokens is None
    assert reply.answer_tokens is None


def test_overrides_hold_for_one_call_only():
    with Endpoint("fine") as endpoint:
        model = ChatModel("m", base_url=endpoint.url, extra_body={"a": 1})
        completion = model.complete("Judge this.", max_tokens=2, extra_body={"b": 2}, top_logprobs=None)
        model.complete([{"role": "user", "content": "x"}])
        with pytest.raises(DataError, match="top_p"):
            model.complete("x", top_p=0.5)
        model.close()
    first, second = (request.body for request in endpoint.requests)
    assert completion.text == "fine"
    assert first["messages"] == [{"role": "user", "content": "Judge this."}]
    assert (first["max_tokens"], first["b"], "a" in first, "logprobs" in first) == (2, 2, False, False)
    assert (second["max_tokens"], second["a"], second["logprobs"]) == (64, 1, True)


def test_the_answer_of_a_tool_call_is_read_from_its_arguments():
    call = {"function": {"name": "answer", "arguments": '{"answer": "Oslo"}'}}
    body = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    with Endpoint(lambda _: body) as endpoint:
        reply = ask(endpoint, position=AnswerPosition("tool"))
    assert reply.answer == "Oslo"


def test_separated_reasoning_is_no_part_of_the_text():
    message = {"content": "Answer: Oslo", "reasoning_content": "Answer: Rome?"}
    with Endpoint(lambda _: {"choices": [{"message": message}]}) as endpoint:
        model = ChatModel("m", base_url=endpoint.url)
        completion = model.complete("Q")
        model.close()
        assert ask(endpoint).answer == "Oslo"
    assert (completion.text, completion.reasoning) == ("Answer: Oslo", "Answer: Rome?")


def test_content_in_parts_is_joined():
    parts = [{"type": "text", "text": "Answer: "}, {"type": "image"}, {"type": "text", "text": "Oslo"}]
    with Endpoint(lambda _: {"choices": [{"message": {"content": parts}}]}) as endpoint:
        assert ask(endpoint).answer == "Oslo"


def test_bytes_of_tokens_are_kept_and_sentinels_stay_as_given():
    content = [
        {"token": "\ufffd", "bytes": [226, 130], "logprob": -0.5, "top_logprobs": [{"token": "a", "logprob": -9999.0}]},
        {"token": "x", "bytes": None, "logprob": None, "top_logprobs": [{"token": "b", "logprob": None}]},
        {"token": "y", "bytes": [999], "logprob": "high", "top_logprobs": None},
    ]
    choice = {"message": {"content": "x"}, "logprobs": {"content": content}}
    with Endpoint(lambda _: {"choices": [choice]}) as endpoint:
        tokens = ask(endpoint).tokens
    assert (tokens[0].raw, tokens[0].alternatives) == (b"\xe2\x82", (("a", -9999.0),))
    assert tokens[1].raw is None
    assert math.isnan(tokens[1].logprob)
    assert tokens[1].alternatives == (("b", -math.inf),)
    assert tokens[2].raw is None
    assert tokens[2].alternatives == ()


def test_prompts_without_confidence_give_no_confidence_signal():
    with Endpoint("Answer: Oslo") as endpoint:
        assert ask(endpoint, prompt=NO_CONFIDENCE).signals == {}
        assert math.isnan(ask(endpoint, prompt=CONFIDENCE_FIRST).signals["verbal_confidence"])


def test_capabilities_follow_what_is_asked():
    url = "http://localhost:1/v1"
    assert ChatModel("m", base_url=url).capabilities == {"logprobs", "token_logprobs", "verbal_confidence"}
    assert ChatModel("m", base_url=url, prompt=NO_CONFIDENCE, top_logprobs=None).capabilities == frozenset()
    assert "logprobs" not in ChatModel("m", base_url=url, top_logprobs=1).capabilities


@pytest.mark.parametrize(
    "parameters",
    [
        {"api": "responses"},
        {"timeout_s": 0.0},
        {"max_retries": -1},
        {"max_tokens": 0},
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"top_logprobs": 0},
        {"seed": "x"},
        {"extra_body": {"stream": True}},
        {"extra_body": {"messages": []}},
        {"base_url": "localhost:8000"},
    ],
)
def test_wrong_parameters_are_refused_before_any_request(parameters):
    with pytest.raises(DataError):
        ChatModel("m", **{"base_url": "http://localhost:1/v1", **parameters})


# Costs


def test_cached_tokens_grow_with_the_prefix():
    with Endpoint() as endpoint:
        model = ChatModel("m", base_url=endpoint.url)
        costs = [model.answer("Where?", PASSAGES[:k]).costs["generator"] for k in range(3)]
        model.close()
    for before, cost in pairwise(costs):
        assert cost.cached_tokens == before.cached_tokens + before.uncached_tokens
        assert cost.uncached_tokens > 0


@pytest.mark.parametrize(
    ("body", "uncached", "cached"),
    [
        ({}, math.nan, math.nan),
        ({"usage": None}, math.nan, math.nan),
        ({"usage": {"prompt_tokens": "ten"}}, math.nan, math.nan),
        ({"usage": {"prompt_tokens": 10}}, 10, 0),
        ({"usage": {"prompt_tokens": 10, "prompt_tokens_details": None}}, 10, 0),
        ({"usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}}}, 6, 4),
        ({"usage": {"prompt_tokens": 10}, "timings": {"cache_n": 7}}, 3, 7),
        ({"usage": {"prompt_tokens": 10}, "tokens_cached": 6}, 4, 6),
        ({"usage": {"prompt_tokens": 10}, "tokens_cached": 24}, 10, 0),
        ({"usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}}}, 0, 10),
    ],
)
def test_input_tokens_are_split_into_cached_and_uncached(body, uncached, cached):
    with Endpoint(lambda _: {"choices": [{"message": {"content": "Answer: x"}}], **body}) as endpoint:
        cost = ask(endpoint).costs["generator"]
    assert [cost.uncached_tokens, cost.cached_tokens] == pytest.approx([uncached, cached], nan_ok=True)
    assert math.isnan(cost.output_tokens)
    assert cost.calls == 1.0


# Failures


@pytest.mark.parametrize(
    ("fault", "error", "retryable", "said"),
    [
        ("400", ModelError, False, "no such parameter"),
        ("401", AuthenticationFailedError, False, "bad key"),
        ("403", AuthenticationFailedError, False, "not for you"),
        ("404", ModelError, False, "no such model"),
        ("429", ModelError, True, "slow down"),
        ("quota", ModelError, False, "quota"),
        ("500", ModelError, True, "it broke"),
        ("503", ModelError, True, "busy"),
        ("logprobs", LogprobsUnavailableError, False, "top_logprobs"),
        ("html", ModelError, False, "Sign in"),
        ("half", ModelError, True, "invalid or incomplete JSON"),
        ("list", ModelError, True, "not an object"),
        ("empty", ModelError, True, "empty choice list"),
        ("gateway", ModelError, True, "502"),
        ("drop", ModelError, True, "dropped the connection"),
        ("hang", ModelTimeoutError, True, "within 200 s"),
    ],
)
def test_each_fault_becomes_its_own_error(either, fault, error, retryable, said, *, impatient):
    if fault == "hang":
        impatient.append(bool)
    with Endpoint(fault=fault) as endpoint:
        raised = either(endpoint, timeout_s=200.0 if fault == "hang" else 600.0)
        while not endpoint.requests:  # it was sent, and may be read later than its client gave up
            time.sleep(0.001)
    assert type(raised) is error
    assert raised.retryable is retryable
    assert said in str(raised)
    assert endpoint.url in str(raised)
    assert len(str(raised)) < 800
    assert len(endpoint.requests) == 1


def test_a_server_that_is_not_there_is_retryable():
    with nobody() as url:
        raised = ask(SimpleNamespace(url=url))
    assert isinstance(raised, ModelError)
    assert raised.retryable
    assert "cannot be reached" in str(raised)


def test_a_reply_of_nulls_is_an_empty_reply_not_an_error():
    with Endpoint(fault="null") as endpoint:
        reply = ask(endpoint)
    assert (reply.answer, reply.text, reply.tokens) == (None, "", None)


def test_retry_after_is_honoured_and_each_retry_is_one_request(either):
    with Endpoint(fault=["429", "503"], retry_after="1") as endpoint:
        started = time.perf_counter()
        reply = either(endpoint, max_retries=3)
        took = time.perf_counter() - started
    assert reply.answer == "yes"
    assert len(endpoint.requests) == 3
    assert took >= 2.0
    assert reply.costs["generator"].seconds >= 2.0


def test_a_wait_beyond_the_clients_cap_is_told_not_slept():
    with Endpoint(fault="429", retry_after="3600") as endpoint:
        started = time.perf_counter()
        raised = ask(endpoint, max_retries=1)
        took = time.perf_counter() - started
    assert raised.retryable
    assert "Retry-After: 3600" in str(raised)
    assert took < 3600


def test_retries_and_failures_are_counted():
    with Endpoint(fault=["500", None, "500", "500"]) as endpoint:
        model = ChatModel("m", base_url=endpoint.url, max_retries=1)
        model.answer("Q")
        with pytest.raises(ModelError):
            model.answer("Q")
        model.close()
    stats = model.stats
    assert (stats.requests_sent, stats.retries, stats.failures, stats.cache_hits) == (2, 1, 1, 0)


def test_nothing_is_retried_on_refusals():
    for fault in ("400", "401", "403", "404"):
        with Endpoint(fault=fault) as endpoint:
            ask(endpoint, max_retries=3)
        assert len(endpoint.requests) == 1


def test_cancelling_the_task_drops_the_connection():
    async def cancelled(endpoint: Endpoint) -> None:
        model = ChatModel("m", base_url=endpoint.url)
        task = asyncio.create_task(model.answer_async("Q"))
        while not endpoint.running:  # noqa: ASYNC110 - the endpoint lives in another thread
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(6000):
            if endpoint.abandoned:
                break
            await asyncio.sleep(0.01)

    with Endpoint(fault="hang") as endpoint:
        asyncio.run(cancelled(endpoint))
        assert endpoint.abandoned == 1
        assert len(endpoint.requests) == 1


def test_a_model_that_nobody_closes_closes_its_connections_when_it_is_gone():
    with Endpoint() as endpoint:
        model = ChatModel("m", base_url=endpoint.url)
        model.answer("Q")
        http = model._clients.sync()._client  # a cycle of garbage may hold it for long, and its sockets go first
        assert not http.is_closed
        del model
        gc.collect()
        assert http.is_closed


def test_async_calls_run_together_and_event_loops_have_their_own_connections():
    async def many(model: ChatModel, endpoint: Endpoint) -> None:
        endpoint.allow = len(endpoint.requests)
        replies = asyncio.gather(*(model.answer_async(f"Q{i}") for i in range(16)))
        while endpoint.running < 16 and not replies.done():  # noqa: ASYNC110 - the endpoint lives in another thread
            await asyncio.sleep(0.002)
        endpoint.allow = None
        await replies

    with Endpoint() as endpoint:
        model = ChatModel("m", base_url=endpoint.url, max_retries=0, timeout_s=60.0)
        for _ in range(2):
            asyncio.run(many(model, endpoint))
        assert endpoint.most_running == 16
        # Connections that their loop left open would warn here, and warnings are errors.
        gc.collect()


def test_aclose_closes_and_the_next_call_opens_again():
    async def twice(model: ChatModel) -> None:
        await model.answer_async("Q")
        await model.aclose()
        await model.aclose()
        await model.answer_async("Q")

    with Endpoint() as endpoint:
        asyncio.run(twice(ChatModel("m", base_url=endpoint.url)))
        assert endpoint.connections == 2


# Logprobs checked beforehand


@pytest.mark.parametrize(
    ("logprobs", "said"),
    [("none", "no log-probabilities"), ("processed", "raw"), ("null", "raw"), ("refused", "not supported")],
)
def test_an_endpoint_without_usable_logprobs_is_refused_beforehand(logprobs, said):
    with Endpoint(logprobs=logprobs) as endpoint:
        model = ChatModel("m", base_url=endpoint.url)
        with pytest.raises(LogprobsUnavailableError, match=said):
            model.verify(frozenset({"logprobs", "verbal_confidence"}))
        model.close()


def test_nothing_is_sent_where_no_logprobs_are_needed_or_asked():
    with Endpoint(fault="500") as endpoint:
        ChatModel("m", base_url=endpoint.url).verify(frozenset({"verbal_confidence"}))
        with pytest.raises(LogprobsUnavailableError, match="top_logprobs is None"):
            ChatModel("m", base_url=endpoint.url, top_logprobs=None).verify(frozenset({"logprobs"}))
        assert endpoint.requests == []


def test_an_endpoint_with_logprobs_passes_the_check():
    with Endpoint() as endpoint:
        model = ChatModel("m", base_url=endpoint.url)
        model.verify(frozenset({"logprobs", "verbal_confidence"}))
        model.close()


# Secrets


def test_secrets_are_never_shown_stored_or_logged(tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    other = "header-secret-987654"
    texts = []
    for fault in ("echo", "401", "hang", "drop"):
        with Endpoint(fault=fault) as endpoint:
            raised = ask(endpoint, default_headers={"X-Token": other}, timeout_s=1.0 if fault == "hang" else 600.0)
            texts += [str(raised), repr(raised), "".join(traceback.format_exception(raised))]
            assert raised.__cause__ is None
            assert raised.__context__ is None
            if fault == "echo":
                assert str(raised).count("[redacted]") == 2
                assert endpoint.requests[0].headers["authorization"] == f"Bearer {KEY}"
    with Endpoint(lambda _: f"Answer: your key is {KEY}") as endpoint, ResponseCache(tmp_path / "cache") as cache:
        model = ChatModel("m", base_url=endpoint.url, api_key=KEY, cache=cache, default_headers={"X-Token": other})
        texts += [repr(model), str(model), json.dumps(model.fingerprint()), model.endpoint, repr(vars(model))]
        texts.append(repr(model.answer("Q")))
        model.close()
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    texts += [record.getMessage() for record in caplog.records if not record.name.startswith("asyncio")]
    texts.append(stored.decode("latin-1"))
    for secret in (KEY, other):
        assert not [text for text in texts if secret in text]


def test_redacting_does_not_touch_an_answer():
    with Endpoint("Answer: production EMPTY demo") as endpoint:
        headers = {"X-Title": "production", "X-Token": "demo"}
        assert ask(endpoint, api_key="EMPTY", default_headers=headers).answer == "production EMPTY demo"


@pytest.mark.parametrize("url", ["http://me:password-1@host/v1", "http://host/v1?key=query-1", "http://h ost:x/v1"])
def test_an_address_with_secrets_is_refused_without_showing_them(url):
    with pytest.raises(DataError) as raised:
        ChatModel("m", base_url=url)
    assert "password-1" not in str(raised.value)
    assert "query-1" not in str(raised.value)


def test_the_key_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Endpoint(api_key=KEY) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        model = ChatModel("m")
        assert model.answer("Q").answer == "yes"
        assert KEY not in repr(model)
        model.close()


# Response cache


def test_a_cached_reply_costs_no_request_and_keeps_its_costs(tmp_path):
    with Endpoint(latency_s=0.05) as endpoint, ResponseCache(tmp_path / "cache") as cache:
        model = ChatModel("m", base_url=endpoint.url, cache=cache)
        first = model.answer("Q", PASSAGES)
        second = asyncio.run(model.answer_async("Q", PASSAGES))
        assert second == replace(first, from_cache=True)
        assert first.costs["generator"].seconds >= 0.05
        assert (model.stats.requests_sent, model.stats.cache_hits) == (1, 1)
        assert model.complete("x").from_cache is False
        assert model.complete("x").from_cache is True
        assert model.complete("x", use_cache=False).from_cache is False
        assert len(endpoint.requests) == 3
        model.close()


def test_changing_any_parameter_misses_the_cache(tmp_path):
    base = {"api_key": KEY}
    changed = [
        {"max_tokens": 65},
        {"temperature": 0.5},
        {"top_logprobs": 4},
        {"top_logprobs": None},
        {"seed": 1},
        {"extra_body": {"top_k": 1}},
        {"prompt": CONFIDENCE_FIRST},
        {"api": "completions"},
    ]
    with Endpoint() as endpoint, Endpoint() as other, ResponseCache(tmp_path / "cache") as cache:
        for parameters in (base, *(base | change for change in changed)):
            ask(endpoint, cache=cache, **parameters)
        ask(other, cache=cache)
        ask(endpoint, cache=cache, api_key="another-key-of-mine")
        ask(endpoint, cache=cache, temperature=0)
        assert len(endpoint.requests) == 1 + len(changed)
        assert len(other.requests) == 1
        assert len(cache) == 2 + len(changed)


def test_failures_are_not_cached(tmp_path):
    with Endpoint(fault=["half", "empty"]) as endpoint, ResponseCache(tmp_path / "cache") as cache:
        assert isinstance(ask(endpoint, cache=cache), ModelError)
        assert isinstance(ask(endpoint, cache=cache), ModelError)
        assert len(cache) == 0
        assert ask(endpoint, cache=cache).answer == "yes"
        assert len(cache) == 1


def test_the_fingerprint_tells_what_changes_replies_apart():
    def of(**parameters) -> str:
        model = ChatModel("m", **{"base_url": "http://localhost:1/v1", **parameters})
        return json.dumps(model.fingerprint(), sort_keys=True)

    variants = [
        {"base_url": "http://localhost:2/v1"},
        {"prompt": NO_CONFIDENCE},
        {"position": AnswerPosition("start")},
        {"api": "completions"},
        {"max_tokens": 8},
        {"temperature": 1.0},
        {"top_logprobs": None},
        {"seed": 3},
        {"extra_body": {"x": 1}},
    ]
    assert len({of(), *(of(**variant) for variant in variants)}) == 1 + len(variants)
    assert of(api_key="one") == of(api_key="two")


def test_the_tokens_of_several_choices_are_those_of_all_or_unknown():
    def several(body, counted):
        choices = [{"index": k, "message": {"role": "assistant", "content": f"Answer: {k}"}} for k in range(body["n"])]
        usage = {"prompt_tokens": 9, "completion_tokens": 4}
        return {"choices": choices, "usage": usage, **({"timings": {"predicted_n": 4}} if counted else {})}

    for counted in (False, True):
        with Endpoint(lambda body, counted=counted: several(body, counted)) as endpoint:
            model = ChatModel("m", base_url=endpoint.url, api_key="k", max_retries=0)
            replies = model.complete_several("Who?", 3, sample=2)
            assert [item.text for item in replies] == ["Answer: 0", "Answer: 1", "Answer: 2"]
            assert sum(item.cost.calls for item in replies) == pytest.approx(1)
            assert [item.cost.uncached_tokens for item in replies] == [3, 3, 3]
            assert len({item.cost.seconds for item in replies}) == 1
            # llama.cpp counts the first choice alone.
            generated = [item.cost.output_tokens for item in replies]
            assert np.isnan(generated).all() if counted else generated == pytest.approx([4 / 3] * 3)
