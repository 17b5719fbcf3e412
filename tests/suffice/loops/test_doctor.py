from __future__ import annotations

import itertools
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from suffice.errors import DataError
from suffice.loops.models.chat import ChatModel
from suffice.loops.models.doctor import EndpointReport, probe
from suffice.loops.models.prompts import NO_CONFIDENCE
from suffice.recordings.cache import ResponseCache
from tests.support.endpoint import Endpoint


def examine(endpoint: Endpoint, *, repeats: int = 3, workers: int = 4, **parameters) -> EndpointReport:
    model = ChatModel("m", **{"base_url": endpoint.url, "max_retries": 0, "timeout_s": 600.0} | parameters)
    try:
        return probe(model, repeats=repeats, workers=workers)
    finally:
        model.close()


def test_a_full_endpoint_gets_a_full_report():
    alone = 1 + 3 + 4  # log-probabilities, prefixes, one request after the other
    with Endpoint(latency_s=0.02, allow=alone) as endpoint, ThreadPoolExecutor(1) as beside:
        began = time.perf_counter()
        found = beside.submit(examine, endpoint, timeout_s=60.0)
        while endpoint.running < 4 and not found.done():
            time.sleep(0.001)
        endpoint.allow = None  # answered only when four are in flight
        report = found.result()
        took = time.perf_counter() - began
    assert report.reachable
    assert report.capabilities == ("logprobs", "token_logprobs", "verbal_confidence")
    assert (report.logprobs, report.alternatives) == ("raw", 20)
    assert (report.cached_tokens_reported, report.prefix_reuse) == (True, True)
    assert report.prefix_share > 0.9
    assert (report.changed_answers, report.margin_drift, report.answered) == (0.0, 0.0, 1.0)
    assert report.latency_s >= 0.02
    assert 4 * report.latency_s / took < report.speedup <= 4 * report.latency_s / 0.02
    assert endpoint.most_running == 4
    assert report.notes == ()
    assert report.continues is None  # chat messages are not continued


@pytest.mark.parametrize(
    ("logprobs", "kind"), [("none", "none"), ("refused", "none"), ("processed", "processed"), ("null", "processed")]
)
def test_unusable_logprobs_are_no_capability(logprobs, kind):
    with Endpoint(logprobs=logprobs) as endpoint:
        report = examine(endpoint)
    assert report.reachable
    assert report.logprobs == kind
    assert report.capabilities == ("verbal_confidence",)
    assert math.isnan(report.margin_drift)
    assert report.answered == 1.0
    assert bool(report.notes) == (logprobs == "refused")


def test_fewer_alternatives_than_asked_are_counted():
    def few(body):
        top = [{"token": "a", "logprob": -0.1 * i} for i in range(1, min(body.get("top_logprobs", 0), 3) + 1)]
        content = [{"token": "a", "logprob": -0.1, "top_logprobs": top}]
        return {"choices": [{"message": {"content": "a"}, "logprobs": {"content": content}}]}

    with Endpoint(few) as endpoint:
        assert examine(endpoint).alternatives == 3


def test_unreported_cached_tokens_leave_reuse_unknown():
    with Endpoint(usage="plain") as endpoint:
        report = examine(endpoint)
    assert report.cached_tokens_reported is False
    assert report.prefix_reuse is None
    assert math.isnan(report.prefix_share)
    assert report.prefix_latency_ratio > 0


def test_a_text_that_is_too_long_is_tried_shorter():
    def limited(body):
        if len(body["messages"][0]["content"].split()) > 500:
            return {"error": {"code": 400, "message": "context size exceeded"}}
        return {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 9}, "timings": {"cache_n": 8}}

    with Endpoint(limited) as endpoint:
        report = examine(endpoint)
    assert report.prefix_reuse is True
    assert "context size" in report.notes[0]


def test_changed_answers_and_drift_are_measured():
    count = itertools.count()

    def fickle(body):
        n = next(count)
        return ("Answer: Rome" if n == 7 else "Answer: Oslo", 1.0 + 0.01 * n)

    with Endpoint(fickle) as endpoint:
        report = examine(endpoint, repeats=5, workers=1)
    assert report.changed_answers == 0.2
    assert 0 < report.margin_drift < 1


@pytest.mark.parametrize("fault", ["401", "500", "html", "half", "empty", "hang", "drop", "404"])
def test_an_endpoint_that_always_fails_gets_a_report_too(fault):
    with Endpoint(fault=fault) as endpoint:
        report = examine(endpoint, timeout_s=0.2)
    assert not report.reachable
    assert report.logprobs == "unknown"
    assert report.capabilities == ()
    assert report.notes


def test_one_failing_probe_does_not_end_the_others():
    with Endpoint(fault=[None, "500"]) as endpoint:
        report = examine(endpoint)
    assert report.logprobs == "raw"
    assert report.prefix_reuse is None
    assert report.changed_answers == 0.0
    assert len(report.notes) == 1
    assert "prefix reuse" in report.notes[0]


def test_the_response_cache_is_left_out(tmp_path):
    with Endpoint() as endpoint, ResponseCache(tmp_path / "cache") as cache:
        examine(endpoint, cache=cache)
        assert len(cache) == 0


def test_the_report_is_json_with_null_for_nan():
    with Endpoint(usage="none", logprobs="none") as endpoint:
        report = examine(endpoint, prompt=NO_CONFIDENCE)
    values = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert values["margin_drift"] is None
    assert values["capabilities"] == []


def test_counts_below_one_are_refused():
    model = ChatModel("m", base_url="http://localhost:1/v1")
    for wrong in ({"repeats": 0}, {"workers": 0}):
        with pytest.raises(DataError):
            probe(model, **wrong)


def test_a_rate_limit_is_counted_and_leaves_the_speed_unknown(monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    number = itertools.count()
    with Endpoint(fault=lambda body: "429" if next(number) % 3 == 2 else None) as endpoint:
        report = examine(endpoint, max_retries=3)
    assert report.reachable
    assert report.refused > 0
    assert math.isnan(report.speedup)
    assert any("rate limit" in note and "requests-per-minute" in note for note in report.notes)


def test_a_refusal_for_the_rate_limit_says_so():
    with Endpoint(fault="429") as endpoint:
        report = examine(endpoint)
    assert not report.reachable
    assert "429, its rate limit" in report.notes[0]


def reciting(body):
    """Recite a text from where a prompt ends in it, or from its beginning."""
    recited = "Answer: it stands in Oslo, where it has been for long"
    known = next(n for n in range(len(recited), -1, -1) if body["prompt"].endswith(recited[:n]))
    return {"choices": [{"text": recited[known:][:40], "finish_reason": "length"}], "usage": {"prompt_tokens": 9}}


@pytest.mark.parametrize(("reply", "continues"), [(reciting, True), ("Answer: yes", False)])
def test_only_a_server_that_continues_a_cut_text_can_think(reply, continues):
    with Endpoint(reply) as endpoint:
        report = examine(endpoint, api="completions", prompt=NO_CONFIDENCE)
    assert report.continues is continues
    assert report.token_ids is (False if continues else None)
    assert ("thinking" in report.capabilities) is continues
    assert any("no chain of thought" in note for note in report.notes) is not continues


def test_a_failure_of_token_ids_keeps_what_was_found_before_it():
    def fault(body):
        return "500" if isinstance(body["prompt"], list) else None

    with Endpoint(reciting, tokenizer=lambda _: [1, 2], fault=fault) as endpoint:
        report = examine(endpoint, api="completions", prompt=NO_CONFIDENCE)
    assert (report.continues, report.token_ids) == (True, None)
    assert "thinking" in report.capabilities
    assert [note for note in report.notes if note.startswith("token ids: ")]


@pytest.mark.parametrize("shown", [None, "Is it Oslo?"])
def test_an_endpoint_that_hides_its_thoughts_is_told_apart(shown):
    def thinks(body: dict) -> dict:
        message = {"role": "assistant", "content": "Answer: Oslo", "reasoning_content": shown}
        usage = {"prompt_tokens": 9, "completion_tokens": 40, "completion_tokens_details": {"reasoning_tokens": 32}}
        return {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

    with Endpoint(thinks) as endpoint:
        notes = examine(endpoint).notes
    assert any("it thinks (32 tokens" in note and "budget" in note for note in notes) is (shown is None)
