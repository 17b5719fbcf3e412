"""Several endpoints of one model, and limits that their requests share."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import shutil
import socket
import ssl
import threading
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from urllib.parse import urlsplit

import certifi
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from suffice.common.blocking import finished
from suffice.errors import DataError, ModelError
from suffice.loops import RetrievalLoop, record
from suffice.loops.models import ChatModel, EvenPace, RequestLimits
from suffice.loops.models._endpoints import CALL, EndpointCall, Endpoints, affinity_of
from suffice.loops.models.limits import limits_here, sharing_limits
from suffice.loops.retrieval import PoolBM25, load_questions
from suffice.policy.session import Policy
from suffice.recordings import read_recording
from suffice.recordings.cache import ResponseCache
from suffice.recordings.journal import differences
from tests.support.cli_tools import cli, corpus, dataset
from tests.support.endpoint import Endpoint, nobody

TIMES = re.compile("seconds|latency|recorded_at")
KEY = "sk-very-secret-0123456789"
A, B, C = "http://a:1/v1", "http://b:2/v1", "http://c:3/v1"


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self, monkeypatch=None):
        self.now = 0.0
        if monkeypatch is not None:
            monkeypatch.setattr("suffice.loops.models.limits.pause", self.pause)
            monkeypatch.setattr("suffice.loops.models._endpoints.pause", self.pause)

    def __call__(self):
        return self.now

    async def pause(self, seconds, *, blocking):
        self.now += seconds


class Servers:
    """Three servers, of which some fail: what each replies to a request, as a status, an exception or a header."""

    def __init__(self, clock, *urls, limits=None):
        self.replies = dict.fromkeys(urls, 200)
        self.asked = []
        self.endpoints = Endpoints(tuple(sorted(urls)), limits or RequestLimits(), clock)
        self.clock = clock

    def send(self, affinity=""):
        """Send one request; return the status that came back."""
        first = self.endpoints.urls[0]
        request = SimpleNamespace(url=_Url(f"{first}/chat/completions"), headers={}, extensions={})
        token = CALL.set(EndpointCall(affinity=affinity))
        try:
            return finished(self.endpoints.send(request, self._exchange, blocking=True)).status_code
        finally:
            CALL.reset(token)

    async def _exchange(self, request):
        url = str(request.url).removesuffix("/chat/completions")
        self.asked.append(url)
        self.clock.now += 0.01
        reply = self.replies[url]
        if isinstance(reply, Exception):
            raise reply
        status, headers = reply if isinstance(reply, tuple) else (reply, {})
        return SimpleNamespace(status_code=status, headers=headers, close=lambda: None)


class _Url(str):
    __slots__ = ()

    @property
    def raw_path(self):
        return urlsplit(self).path.encode()

    @property
    def netloc(self):
        return urlsplit(self).netloc.encode()


# Which endpoint


def test_requests_are_spread_over_idle_endpoints():
    servers = Servers(Clock(), A, B, C)
    assert [servers.send() for _ in range(9)] == [200] * 9
    assert Counter(servers.asked) == {A: 3, B: 3, C: 3}


def test_requests_about_one_question_stay_at_one_endpoint():
    servers = Servers(Clock(), A, B, C)
    for _ in range(4):
        for question in ("Who?", "Where?", "When?"):
            servers.send(question)
    assert {len(set(servers.asked[start::3])) for start in range(3)} == {1}
    assert len(set(servers.asked)) == 3


@pytest.mark.parametrize("failure", [500, 503, 408, 429, ConnectionError("refused"), TimeoutError("silent")])
def test_failed_requests_move_on_and_bad_endpoints_pause_ever_longer(failure):
    clock = Clock()
    servers = Servers(clock, A, B)
    servers.replies[A] = failure
    asked_at = []
    while clock.now < 400:
        before = len(servers.asked)
        assert servers.send() == 200
        asked_at += [clock.now] * (A in servers.asked[before:])
        clock.now += 0.25
    gaps = [round(later - earlier) for earlier, later in pairwise(asked_at)]
    assert gaps[:6] == [1, 2, 4, 8, 16, 32]
    assert set(gaps[6:]) <= {60, 61}
    servers.replies[A] = 200
    clock.now += 61
    before = len(servers.asked)
    for _ in range(6):
        servers.send()
    assert A in servers.asked[before : before + 2]
    assert Counter(servers.asked[before:])[A] >= 2


def test_an_endpoint_coming_back_gets_one_request_at_a_time():
    clock = Clock()
    servers = Servers(clock, A, B)
    servers.replies[A] = 500
    servers.send()
    clock.now += 5
    exchange, during, other = servers._exchange, [], servers.endpoints._places[1]

    async def silent(request):
        if str(request.url).startswith(A) and not during:
            during.append(None)
            other.in_flight += 9
            during[:] = [servers.send() for _ in range(4)]  # while nobody knows whether A replies
            other.in_flight -= 9
        return await exchange(request)

    servers._exchange, before = silent, len(servers.asked)
    servers.send()
    assert during == [200] * 4
    assert servers.asked[before:] == [B] * 4 + [A, B]


def test_a_question_leaves_an_endpoint_that_fails_and_stays_where_it_went():
    clock = Clock()
    servers = Servers(clock, A, B)
    servers.send("Who?")
    usual = servers.asked[0]
    other = B if usual == A else A
    servers.replies[usual] = 500
    assert servers.send("Who?") == 200
    servers.replies[usual] = 200
    clock.now += 100
    for _ in range(3):
        servers.send("Who?")
    assert servers.asked == [usual, usual, *[other] * 4]


def test_if_all_endpoints_fail_each_is_tried_once():
    servers = Servers(Clock(), A, B, C)
    servers.replies |= {A: 500, B: ConnectionError("refused"), C: 503}
    assert servers.send() in (500, 503)
    assert sorted(servers.asked) == [A, B, C]
    with_error = Servers(Clock(), A)
    with_error.replies[A] = ConnectionError("refused")
    with pytest.raises(ConnectionError):
        with_error.send()


@pytest.mark.parametrize("refusal", [400, 401, 404, 422])
def test_a_refusal_is_not_a_failure_of_the_endpoint(refusal):
    servers = Servers(Clock(), A, B)
    servers.replies |= {A: refusal, B: refusal}
    assert servers.send() == refusal
    assert len(servers.asked) == 1


def test_retry_after_of_one_endpoint_sends_requests_to_the_others_until_then(monkeypatch):
    clock = Clock(monkeypatch)
    servers = Servers(clock, A, B)
    servers.replies[A] = (429, {"retry-after": "30"})
    for _ in range(3):
        assert servers.send() == 200
    assert servers.asked == [A, B, B, B]
    clock.now = 31
    servers.replies[A] = 200
    servers.send()
    assert servers.asked[-1] == A


def test_retry_after_of_every_endpoint_makes_the_next_request_wait(monkeypatch):
    clock = Clock(monkeypatch)
    servers = Servers(clock, A)
    servers.replies[A] = (503, {"retry-after": "20"})
    assert servers.send() == 503
    servers.replies[A] = 200
    assert servers.send() == 200
    assert clock.now == pytest.approx(20.02)


def test_a_very_long_retry_after_is_left_to_its_request(monkeypatch):
    clock = Clock(monkeypatch)
    servers = Servers(clock, A)
    servers.replies[A] = (503, {"retry-after": "3600"})
    assert servers.send() == 503
    assert servers.send() == 503
    assert clock.now < 1


def test_what_requests_have_in_common_is_the_question():
    from suffice.loops.models.prompts import ANSWER_FIRST
    from suffice.policy.rounds import Passage

    passages = [Passage(passage_id=str(i), title="T", text="A text.") for i in range(3)]
    keys = {affinity_of(ANSWER_FIRST.messages("Who wrote it?", passages[:n])) for n in range(4)}
    assert keys == {"Question: Who wrote it?"}
    assert affinity_of([{"role": "system", "content": "Answer."}]) == ""


def test_a_request_that_goes_to_another_endpoint_waits_for_its_turn_again(monkeypatch):
    clock = Clock(monkeypatch)
    servers = Servers(clock, A, B, limits=RequestLimits(pace=EvenPace(60, clock=clock)))
    servers.replies[A] = 500
    for _ in range(3):
        assert servers.send() == 200
    assert servers.asked == [A, B, A, B, B]
    assert clock.now == pytest.approx(4.01)  # five requests, one a second


# Over HTTP


def loop_of(urls, **settings):
    model = ChatModel("m", base_url=urls, api_key=KEY, timeout_s=600.0, **settings)
    return RetrievalLoop(model=model, retriever=PoolBM25(), policy=Policy(max_rounds=3))


def test_recording_continues_while_an_endpoint_is_down(tmp_path):
    questions = load_questions("hotpotqa_tune", limit=6)
    with nobody() as gone, Endpoint() as first, Endpoint() as second, Endpoint(fault="500") as broken:
        urls = f"{gone},{second.url}, {broken.url},{first.url}"
        # With three at a time no endpoint is ever so busy that a question leaves it.
        summary = record(questions, loop_of(urls), tmp_path / "r.parquet", concurrency=3)
        assert (summary.questions, summary.rounds, dict(summary.failed)) == (6, 18, {})
        by_question = {}
        for number, endpoint in enumerate((first, second)):
            for request in endpoint.requests:
                assert request.headers["host"] == f"127.0.0.1:{endpoint.port}"
                assert request.headers["authorization"] == f"Bearer {KEY}"
                by_question.setdefault(affinity_of(request.body["messages"]), []).append(number)
        assert sum(map(len, by_question.values())) == 18
        assert all(len(set(numbers)) == 1 for numbers in by_question.values())
        assert {numbers[0] for numbers in by_question.values()} == {0, 1}


def cached_tokens(path):
    """Return the cached tokens of the rounds that follow another one."""
    table = pq.read_table(path, columns=["round", "cost.generator.cached_tokens"]).to_pylist()
    return [row["cost.generator.cached_tokens"] for row in table if row["round"] > 1]


def test_rounds_find_their_prefix_where_the_ones_before_were(tmp_path):
    questions = load_questions("hotpotqa_tune", limit=5)
    with Endpoint() as alone:
        record(questions, loop_of(alone.url), tmp_path / "one.parquet", concurrency=1)
    with Endpoint() as first, Endpoint() as second, Endpoint() as third:
        record(questions, loop_of([first.url, second.url, third.url]), tmp_path / "three.parquet", concurrency=3)
        assert all(endpoint.requests for endpoint in (first, second, third))
    assert cached_tokens(tmp_path / "three.parquet") == cached_tokens(tmp_path / "one.parquet")


def test_an_endpoint_that_fails_again_and_again_is_noted_once(caplog):
    clock = Clock()
    servers = Servers(clock, A, B)
    servers.replies[A] = 503
    for _ in range(200):
        servers.send()
        clock.now += 0.5
    (note,) = [entry.getMessage() for entry in caplog.records]
    assert note == f"{A} answers 503 again and again: its requests go to the other endpoints"


def test_the_error_names_every_endpoint_that_is_down():
    with nobody() as first, nobody() as second:
        model = ChatModel("m", base_url=[second, first], max_retries=0)
        with pytest.raises(ModelError) as raised:
            model.answer("Who?")
    assert raised.value.retryable
    assert first in str(raised.value)
    assert second in str(raised.value)
    with Endpoint(fault="404") as refusing:
        model = ChatModel("m", base_url=[refusing.url], max_retries=0)
        with pytest.raises(ModelError, match=refusing.url):
            model.answer("Who?")


def test_clients_share_certificates_until_the_environment_names_others(monkeypatch, tmp_path):
    read, load = [], ssl.SSLContext.load_verify_locations
    monkeypatch.setattr(
        ssl.SSLContext, "load_verify_locations", lambda *args, **kwargs: (read.append(args), load(*args, **kwargs))[1]
    )
    monkeypatch.setattr(ssl, "create_default_context", ssl.create_default_context.__wrapped__)
    http = importlib.import_module("suffice.loops.models._http")
    http._trusted.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", certifi.where())

    def ask():
        model = ChatModel("m", base_url=endpoint.url, max_retries=0)
        model.answer("Who?")
        asyncio.run(model.answer_async("Who?"))

    with Endpoint("Answer: he") as endpoint:
        ask()
        ask()
        assert len(read) == 1
        monkeypatch.setenv("SSL_CERT_FILE", shutil.copy(certifi.where(), tmp_path))
        ask()
        assert len(read) == 2


def rows_of(path):
    """Return the rows of a recording without times."""
    table = pq.read_table(path)
    return table.select([name for name in table.column_names if not TIMES.search(name)]).to_pylist()


def test_a_recording_does_not_depend_on_the_number_and_order_of_endpoints(tmp_path):
    questions = load_questions("hotpotqa_tune", limit=2)
    with Endpoint(usage="plain") as first, Endpoint(usage="plain") as second:
        alone, both, turned = first.url, [first.url, second.url], f"{second.url},{first.url}"
        for name, urls in (("one", alone), ("two", both), ("three", turned)):
            record(questions, loop_of(urls), tmp_path / f"{name}.parquet")
        one, two, three = (read_recording(tmp_path / f"{name}.parquet") for name in ("one", "two", "three"))
        assert two.metadata["config"] == three.metadata["config"]
        assert differences(one.metadata["config"], two.metadata["config"]) == []
        assert (
            rows_of(tmp_path / "one.parquet")
            == rows_of(tmp_path / "two.parquet")
            == rows_of(tmp_path / "three.parquet")
        )
        more = load_questions("hotpotqa_tune", limit=3)
        record(more, loop_of(both), tmp_path / "one.parquet")  # goes on where one endpoint began
        record(more, loop_of(alone), tmp_path / "one.parquet")
        assert len(set(pq.read_table(tmp_path / "one.parquet")["question_id"].to_pylist())) == 3
        with Endpoint() as third, pytest.raises(DataError, match="another configuration"):
            record(more, loop_of(third.url), tmp_path / "one.parquet")


def test_a_cache_answers_whichever_endpoint_was_asked(tmp_path):
    from suffice.recordings import ResponseCache

    with Endpoint() as first, Endpoint() as second, ResponseCache(tmp_path / "cache.sqlite") as cache:
        ChatModel("m", base_url=first.url, cache=cache).answer("Who?")
        ChatModel("m", base_url=second.url, cache=cache).answer("Where?")
        both = ChatModel("m", base_url=[second.url, first.url], cache=cache)
        assert both.answer("Who?").from_cache
        assert both.answer("Where?").from_cache
        assert len(first.requests) + len(second.requests) == 2


def test_endpoints_that_serve_different_models_are_noted_once(caplog):
    def says(name):
        return {"model": name, "choices": [{"message": {"content": "Answer: Oslo"}}]}

    with Endpoint(reply=lambda _: says("llama-8b")) as first, Endpoint(reply=lambda _: says("llama-70b")) as second:
        model = ChatModel("m", base_url=[first.url, second.url])
        for question in ("Who?", "Where?", "When?", "Why?"):
            model.answer(question)
        model.close()
    (warning,) = [entry.getMessage() for entry in caplog.records if "same model" in entry.getMessage()]
    assert "'llama-8b'" in warning
    assert "'llama-70b'" in warning


def said(caplog, words):
    return [entry.getMessage() for entry in caplog.records if words in entry.getMessage()]


def completion(name="m", model="m"):
    return {"id": name, "model": model, "choices": [{"message": {"content": "Answer: Oslo"}}]}


def test_an_id_that_two_replies_have_is_noted_once(caplog):
    with Endpoint(reply=lambda _: completion()) as endpoint:
        model = ChatModel("m", base_url=endpoint.url)
        model.answer("Who?")
        assert not said(caplog, "the id")
        for question in ("Where?", "When?"):
            model.answer(question)
    (warning,) = said(caplog, "the id")
    assert "gave the id 'm' to two replies" in warning


def test_the_reply_of_another_model_is_noted_once(caplog):
    with Endpoint(reply=lambda body: completion(str(len(str(body))), "gpt-4o-mini")) as endpoint:
        model = ChatModel("gpt-4o", base_url=endpoint.url)
        for question in ("Who?", "Where is it?"):
            model.answer(question)
    (warning,) = said(caplog, "was asked for")
    assert "the model 'gpt-4o' and replied as 'gpt-4o-mini'" in warning


def test_a_repeated_id_and_another_model_are_noted_while_recording_and_answering(tmp_path):
    questions = dataset(tmp_path / "q.jsonl")
    Policy(rule="answer_stable", max_rounds=2).save(tmp_path / "p.json")
    with Endpoint(reply=lambda _: completion("1", "other")) as endpoint:
        ways = (
            ("record", questions, "-o", tmp_path / "r.parquet", "--max-rounds", 2),
            ("answer", "Where?", "--policy", tmp_path / "p.json", "--corpus", corpus(tmp_path / "corpus")),
        )
        for way in ways:
            shown = cli(*way, "--base-url", endpoint.url, "--model", "m", "--set", "logprobs=false", code=0)
            assert shown.err.count("gave the id '1' to two replies") == 1
            assert shown.err.count("replied as 'other'") == 1


class TwiceTold(threading.Thread):
    """A server whose proxy sends each reply twice on a connection that is kept open."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/v1"
        self.asked = 0
        self.start()

    def run(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as file, suppress(OSError):
                length = 0
                for line in iter(file.readline, b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split()[1])
                    if line == b"\r\n":
                        file.read(length)
                        self.asked += 1
                        body = json.dumps(completion(f"id{self.asked}")).encode()
                        answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                        connection.sendall(answer % (len(body), body) * 2)


def test_a_reply_that_a_proxy_sends_twice_is_noted(caplog):
    server = TwiceTold()
    model = ChatModel("m", base_url=server.url)
    completions = [model.complete(question).completion_id for question in ("Who?", "Where?", "When?", "Why?")]
    model.close()
    server.socket.close()
    assert len(set(completions)) < len(completions), "an answer became that of the next prompt"
    assert len(said(caplog, "the id")) == 1


def test_replies_from_the_own_cache_repeat_no_id(tmp_path, caplog):
    with Endpoint(reply=lambda _: completion()) as endpoint:
        model = ChatModel("m", base_url=endpoint.url, cache=ResponseCache(tmp_path / "c.sqlite"))
        assert [model.answer("Who?").from_cache for _ in range(2)] == [False, True]
    assert not said(caplog, "the id")


@pytest.mark.parametrize("urls", ["", " , ", "http://a:1/v1,ftp://b/v1", "http://a:1/v1,http://me:secret@b:2/v1", []])
def test_a_list_with_something_that_is_not_an_endpoint_is_refused(urls, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    if not urls:
        assert ChatModel("m", base_url=urls).endpoint == "https://api.openai.com/v1"
        return
    with pytest.raises(DataError) as raised:
        ChatModel("m", base_url=urls)
    assert "secret@" not in str(raised.value)


# Limits


@given(st.integers(1, 50), st.lists(st.tuples(st.floats(0, 40), st.floats(0, 5)), min_size=1, max_size=120))
def test_no_minute_has_more_requests_than_the_limit_whatever_processes_ask(limit, steps):
    clock = Clock()
    pace = EvenPace(limit, clock=clock)
    sent = []
    for gap, _ in steps:  # each step is a process that asks, perhaps at the same moment as others
        clock.now += gap if gap > 20 else 0.0
        sent.append(clock.now + pace.reserve())
    assert sent == sorted(sent)
    for moment in sent:
        assert sum(moment <= other < moment + 60 - 1e-6 for other in sent) <= limit


@given(st.integers(1, 60), st.integers(1, 8), st.lists(st.integers(0, 7), max_size=200))
def test_the_parts_of_processes_add_up_to_the_limit(limit, n, asks):
    if limit < n:
        with pytest.raises(DataError, match="raise it"):
            RequestLimits(requests_per_minute=limit).share(1, n)
        return
    parts = [
        RequestLimits(requests_per_minute=limit, tokens_per_minute=10 * limit, max_in_flight=limit).share(i, n)
        for i in range(1, n + 1)
    ]
    for name in ("requests_per_minute", "max_in_flight"):
        assert sum(getattr(part, name) for part in parts) == limit
    clock = Clock()
    paces = [EvenPace(part.requests_per_minute, clock=clock) for part in parts]
    sent = sorted(paces[process % n].reserve() for process in asks)
    for moment in sent:
        assert sum(moment <= other < moment + 60 - 1e-6 for other in sent) <= limit


@given(st.integers(10, 1000), st.lists(st.integers(0, 300), min_size=1, max_size=60))
def test_tokens_of_a_minute_exceed_the_limit_by_less_than_one_request(limit, requests):
    clock = Clock()
    pace = EvenPace(None, limit, clock=clock)
    sent = [(pace.reserve(tokens), tokens) for tokens in requests]
    for moment, _ in sent:
        window = [tokens for other, tokens in sent if moment <= other < moment + 60 - 1e-6]
        assert sum(window) - max(window) <= limit + 1e-6


def test_a_request_larger_than_the_tokens_of_a_minute_is_noted_once(caplog, monkeypatch):
    async def no_pause(_seconds, *, blocking):
        del blocking

    monkeypatch.setattr("suffice.loops.models.limits.pause", no_pause)
    limits = RequestLimits(tokens_per_minute=100)
    finished(limits.turn(100.0, blocking=True))
    assert not caplog.messages
    for _ in range(2):
        finished(limits.turn(250.0, blocking=True))
    (note,) = caplog.messages
    assert "about 250 tokens" in note
    assert "tokens_per_minute (--set tokens-per-minute=...) is 100: the next one waits for about 2 minutes" in note


def test_what_replies_report_is_settled_with_later_requests():
    asked = []
    pace = SimpleNamespace(reserve=lambda tokens: asked.append(tokens) or 0.0)
    limits = RequestLimits(pace=pace)
    finished(limits.turn(100.0, blocking=True))
    limits.settle(100.0, 160.0)
    limits.settle(100.0, float("nan"))
    finished(limits.turn(100.0, blocking=True))
    limits.settle(100.0, 0.0)
    finished(limits.turn(30.0, blocking=True))
    finished(limits.turn(100.0, blocking=True))
    assert asked == [100.0, 160.0, 0.0, 30.0]


def test_every_request_waits_for_its_turn_and_the_wait_is_not_latency():
    with Endpoint(fault=["500"]) as endpoint:
        moments = iter([0.2, 0.3, 0.0])
        model = ChatModel(
            "m", base_url=endpoint.url, limits=RequestLimits(pace=SimpleNamespace(reserve=lambda _: next(moments)))
        )
        began = time.perf_counter()
        reply = model.answer("Who?")  # with one retry: two requests
        took = time.perf_counter() - began
        again = asyncio.run(model.answer_async("Who?"))
        model.close()
    assert len(endpoint.requests) == 3
    assert took >= 0.5
    assert reply.costs["generator"].seconds <= took - 0.5
    assert again.answer == "yes"


@pytest.mark.parametrize("kind", ["tasks", "threads"])
def test_no_more_requests_are_in_flight_than_the_limit_of_all_models(kind):
    limits = RequestLimits(max_in_flight=2)
    with Endpoint(latency_s=0.02) as first, Endpoint(latency_s=0.02) as second:
        models = [ChatModel("m", base_url=url, limits=limits) for url in (first.url, second.url)]
        most = []
        # The first request is held until two are in flight.
        first.holds = second.holds = lambda _: bool(most.append(first.running + second.running)) or max(most) < 2
        if kind == "tasks":

            async def all_of_them():
                await asyncio.gather(*(model.answer_async(f"Who {i}?") for i in range(5) for model in models))

            asyncio.run(all_of_them())
        else:
            threads = [threading.Thread(target=model.answer, args=(f"Who {i}?",)) for i in range(5) for model in models]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(600)
        for model in models:
            model.close()
    assert len(first.requests) + len(second.requests) == 10
    assert max(most) == 2


def test_a_cancelled_request_gives_its_place_to_the_next():
    with Endpoint() as endpoint:
        model = ChatModel("m", base_url=endpoint.url, limits=RequestLimits(max_in_flight=1))
        endpoint.allow = 0

        async def cancelled_ones():
            tasks = [asyncio.create_task(model.answer_async(f"Who {i}?")) for i in range(3)]
            while not endpoint.requests:  # noqa: ASYNC110 - from another thread
                await asyncio.sleep(0.001)
            for task in tasks[:2]:  # one in flight, one that waits
                task.cancel()
            await asyncio.gather(*tasks[:2], return_exceptions=True)
            endpoint.allow = None
            return await tasks[2]

        assert asyncio.run(cancelled_ones()).answer == "yes"


@pytest.mark.parametrize(
    "settings",
    [
        {"requests_per_minute": 0},
        {"tokens_per_minute": -1},
        {"max_in_flight": 0},
        {"max_in_flight": 1.5},
        {"requests_per_minute": True},
        {"pace": EvenPace(1), "requests_per_minute": 5},
    ],
)
def test_wrong_limits_are_refused(settings):
    with pytest.raises(DataError):
        RequestLimits(**settings)


def test_a_process_uses_its_part_of_the_limits():
    limits = RequestLimits(max_in_flight=5, requests_per_minute=7)
    assert limits_here(limits) is limits
    with sharing_limits(lambda whole: whole.share(2, 2)):
        assert (limits_here(limits).max_in_flight, limits_here(limits).requests_per_minute) == (2, 3)
    pace = EvenPace(3)
    with pytest.raises(DataError, match="requests_per_minute"):
        RequestLimits(requests_per_minute=3).share(1, 8)
    part = RequestLimits(requests_per_minute=3, max_in_flight=9).share(1, 8, pace=pace)
    assert (part.requests_per_minute, part.max_in_flight, part.pace) == (None, 2, pace)
    assert part.share(1, 2).pace is pace
    with pytest.raises(DataError, match="1 to 2"):
        limits.share(3, 2)
