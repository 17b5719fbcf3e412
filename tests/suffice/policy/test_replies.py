"""Replies of other clients become rounds: files in `tests/data/replies` were written by these clients' own objects."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from suffice import AnswerPosition, Cost, Round, Token
from suffice.errors import DataError
from suffice.importers.traces import read_openai
from suffice.loops.models.replies import reply_of_response
from suffice.policy.session.replies import located_in, read_reply
from suffice.policy.signals import compute_signals

DATA = Path(__file__).resolve().parents[2] / "data"
PAYLOADS = {path.stem: json.loads(path.read_text("utf-8")) for path in (DATA / "replies").glob("*.json")}
COST = Cost(calls=1.0, uncached_tokens=20.0, cached_tokens=100.0, output_tokens=3.0, seconds=2.0)


class Sent:
    """An object of a client: fields by `model_dump`, as pydantic has it."""

    def __init__(self, payload):
        self.payload = payload

    def model_dump(self, *, warnings=True):
        assert not warnings
        return self.payload


class Older(Sent):
    def model_dump(self):
        return self.payload


def test_there_are_files_of_every_client():
    assert {name.partition("_")[0] for name in PAYLOADS} == {"openai", "anthropic", "litellm"}
    assert len(PAYLOADS) == 13


@pytest.mark.parametrize("wrapped", [dict, Sent, Older])
@pytest.mark.parametrize(
    ("name", "finish_reason", "cost"),
    [
        ("openai_chat", "stop", COST),
        ("openai_response", "completed", COST),
        ("litellm_chat", "stop", COST),
        ("litellm_anthropic", "stop", Cost(**{**COST.to_dict(), "uncached_tokens": 27.0, "written_tokens": 7.0})),
        ("anthropic", "end_turn", Cost(**{**COST.to_dict(), "uncached_tokens": 27.0, "written_tokens": 7.0})),
    ],
)
def test_every_shape_has_its_answer_usage_and_reason(name, finish_reason, cost, wrapped):
    observed = Round.from_response(wrapped(PAYLOADS[name]), index=3, seconds=2.0)
    assert (observed.index, observed.answer, observed.text) == (3, "The Tempest", "The Tempest")
    assert observed.finish_reason == finish_reason
    assert observed.costs == {"generator": cost}


@pytest.mark.parametrize("wrapped", [dict, Sent, Older])
@pytest.mark.parametrize(
    ("name", "finish_reason"), [("openai_completion", "length"), ("openai_response_cut", "max_output_tokens")]
)
def test_a_cut_reply_has_text_costs_and_reason_but_no_answer(name, finish_reason, wrapped):
    observed = Round.from_response(wrapped(PAYLOADS[name]), index=3, seconds=2.0)
    assert (observed.index, observed.answer, observed.text) == (3, None, "The Tempest")
    assert observed.answer_tokens is None
    assert observed.finish_reason == finish_reason
    assert observed.costs == {"generator": COST}
    assert math.isnan(compute_signals([observed], ["answer_margin"], state={})["answer_margin"])


@pytest.mark.parametrize("position", ["whole", "marker", "json", "tool", "start"])
@pytest.mark.parametrize(
    "failure",
    [
        {"finish_reason": "length"},
        {"finish_reason": "content_filter"},
        {"finish_reason": "stop", "error": {"code": 502, "message": "the provider went away"}},
    ],
)
def test_a_cut_reply_is_no_answer_wherever_the_answer_would_be(position, failure):
    content = {"json": '{"answer": "Oslo"} and more'}.get(position, "Answer: Oslo")
    arguments = [{"function": {"name": "answer", "arguments": '{"answer": "Oslo"}'}}]
    message = {"content": None, "tool_calls": arguments} if position == "tool" else {"content": content}
    where = AnswerPosition(position)
    whole = Round.from_response({"choices": [{"message": message, "finish_reason": "stop"}]}, position=where)
    assert whole.answer in ("Oslo", "Answer: Oslo")
    cut = Round.from_response({"choices": [{"message": message, **failure}]}, position=where)
    assert (cut.answer, cut.text) == (None, whole.text)
    assert cut.finish_reason == ("error" if "error" in failure else failure["finish_reason"])
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "error": failure.get("error")}
    assert (Round.from_response(body, position=where).answer is None) == ("error" in failure)


@pytest.mark.parametrize(
    ("text", "finish_reason", "answer"),
    [
        ("Oslo\n\nQuestion: Who wrote it?\nAns", "length", "Oslo"),
        ("Oslo, the", "length", None),
        ("Oslo ", "length", None),
        ("Oslo\nConfidence: 1", "content_filter", None),
        ("Oslo", "stop", "Oslo"),
    ],
)
def test_after_a_prefilled_prompt_an_answer_is_whole_where_something_follows_it(text, finish_reason, answer):
    response = {"choices": [{"message": {"content": text}, "finish_reason": finish_reason}]}
    assert Round.from_response(response, position=AnswerPosition("start")).answer == answer


@pytest.mark.parametrize("name", ["openai_chat", "openai_response", "litellm_chat"])
def test_log_probabilities_are_those_of_the_answer(name):
    observed = Round.from_response(PAYLOADS[name])
    assert [token.text for token in observed.answer_tokens] == ["The", " Temp", "est"]
    assert compute_signals([observed], ["answer_margin"], state={}) == {"answer_margin": 1.5}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("openai_chat_tools", "The Tempest"),
        ("litellm_chat_tools", "The Tempest"),
        ("openai_response_tools", "Oslo"),
        ("anthropic_tools", "The Tempest"),
    ],
)
def test_a_reply_of_tool_calls_has_no_answer_outside_tools(name, answer):
    observed = Round.from_response(PAYLOADS[name])
    assert (observed.answer, observed.text) == (None, "")
    assert observed.costs["generator"].output_tokens == 3
    assert Round.from_response(PAYLOADS[name], position=AnswerPosition("tool")).answer == answer
    assert observed.finish_reason in {"tool_calls", "tool_use", "completed"}


def test_a_refusal_is_what_was_said():
    assert Round.from_openai(PAYLOADS["openai_chat_refusal"]).answer == "I can't help with that."


def refused_response():
    """Return a response whose only part is a refusal, as OpenAI's reference documents it, cut by a filter."""
    parts = [{"type": "refusal", "refusal": "I can't help with that."}]
    return {
        "object": "response",
        "status": "incomplete",
        "incomplete_details": {"reason": "content_filter"},
        "output": [{"type": "message", "role": "assistant", "content": parts}],
        "usage": {"input_tokens": 9, "output_tokens": 6},
    }


@pytest.mark.parametrize(
    "payload",
    [
        *(body for name, body in PAYLOADS.items() if "tools" not in name and name != "openai_chat_two"),
        refused_response(),
        {
            "choices": [
                {"message": {"role": "assistant", "content": "<think>Hm.</think> Oslo"}, "finish_reason": "stop"}
            ]
        },
        {"choices": [{"message": {"content": [{"type": "refusal", "refusal": "No."}]}, "finish_reason": "stop"}]},
    ],
)
def test_a_reply_in_a_log_is_read_as_the_same_reply_live(payload, tmp_path):
    live = Round.from_response(payload)
    (tmp_path / "log.jsonl").write_text(
        "".join(
            json.dumps({"custom_id": "q", "response": {"status_code": 200, "body": {**body, "created": at}}}) + "\n"
            for at, body in enumerate((payload, {"choices": [{"message": {"content": "last"}}]}), start=1)
        )
    )
    rounds = read_openai(tmp_path / "log.jsonl").trajectories[0].rounds
    logged = rounds[0]
    assert (logged.answer, logged.text, logged.finish_reason) == (live.answer, live.text, live.finish_reason)
    assert logged.answer_tokens == live.answer_tokens
    cost, expected = logged.costs["generator"], live.costs["generator"]
    for kind in ("uncached_tokens", "cached_tokens", "output_tokens"):
        assert getattr(cost, kind) == pytest.approx(getattr(expected, kind), nan_ok=True)


def test_a_real_response_of_a_real_model():
    payload = json.loads((DATA / "logprobs" / "debug_response_simple_fact.json").read_text("utf-8"))
    observed = Round.from_openai(payload, seconds=2.0)
    assert observed.answer == "The capital of France is Paris."
    assert "".join(token.text for token in observed.answer_tokens) == observed.answer
    assert observed.costs["generator"] == Cost(
        calls=1.0,
        uncached_tokens=payload["usage"]["input_tokens"],
        cached_tokens=payload["usage"]["input_tokens_details"]["cached_tokens"],
        output_tokens=payload["usage"]["output_tokens"],
        seconds=2.0,
    )
    found = Round.from_openai(payload, position=AnswerPosition("marker", "France is"))
    assert (found.answer, found.answer_tokens[0].text) == ("Paris.", " Paris")


def test_plain_text_and_messages_are_one_call_whose_tokens_are_unknown():
    for response in ("<think>Hm.</think> Oslo", {"role": "assistant", "content": "Oslo"}):
        observed = Round.from_response(response, position=None)
        cost = observed.costs["generator"]
        assert (observed.answer, cost.calls) == ("Oslo", 1.0)
        assert all(map(math.isnan, (cost.uncached_tokens, cost.cached_tokens, cost.output_tokens, cost.seconds)))
    assert Round.from_response("Answer: Oslo\nbye", position=AnswerPosition()).answer == "Oslo"
    assert Round.from_response(" ").answer is None


@pytest.mark.parametrize("position", ["marker", 3, {"kind": "whole"}])
def test_a_position_is_not_its_name(position):
    with pytest.raises(DataError, match="AnswerPosition"):
        Round.from_response("Oslo", position=position)


def test_others_take_the_place_of_what_was_read():
    observed = Round.from_response("Oslo", feedback="Say where.", costs={"writer": Cost(calls=2)})
    assert (observed.feedback, observed.costs) == ("Say where.", {"writer": Cost(calls=2)})


@pytest.mark.parametrize(
    "response",
    [
        *(
            None,
            3,
            ["Oslo"],
            {},
            {"answer": "Oslo"},
            iter(["chunk"]),
            Sent,
            {"choices": []},
            {"choices": [{"delta": {}}]},
        ),
        *({"role": role, "content": "Where is it?"} for role in ("user", "system", "tool", None)),
    ],
)
def test_an_unknown_shape_is_refused_with_what_is_accepted(response):
    with pytest.raises(DataError, match="accepted|Collect"):
        Round.from_response(response)


def test_a_provider_takes_its_own_replies_only():
    assert Round.from_anthropic(PAYLOADS["anthropic"], index=2).index == 2
    for read, name in ((Round.from_anthropic, "openai_chat"), (Round.from_openai, "anthropic")):
        with pytest.raises(DataError, match="accepted are"):
            read(PAYLOADS[name])
    with pytest.raises(DataError, match="accepted are"):
        Round.from_openai("Oslo")


def test_several_choices_and_failures_are_refused():
    with pytest.raises(DataError, match="2 choices"):
        Round.from_openai(PAYLOADS["openai_chat_two"])
    with pytest.raises(DataError, match="failure"):
        Round.from_openai({**PAYLOADS["openai_response"], "error": {"code": "server_error", "message": "no"}})


@pytest.mark.parametrize(
    ("name", "usage"),
    [("openai_chat", None), ("openai_response", None), ("anthropic", None), ("anthropic", {"input_tokens": "many"})],
)
def test_a_usage_that_is_missing_is_unknown(name, usage):
    cost = reply_of_response({**PAYLOADS[name], "usage": usage}).costs["generator"]
    assert cost.calls == 1
    assert all(map(math.isnan, (cost.uncached_tokens, cost.cached_tokens, cost.output_tokens, cost.seconds)))


def test_a_response_whose_parts_are_strange_has_no_answer():
    strange = {
        **PAYLOADS["openai_response"],
        "output": [None, {"type": "message", "content": [3]}, {"type": "message"}],
    }
    assert Round.from_openai(strange).answer is None
    assert Round.from_anthropic({"type": "message", "content": [3, {"type": "text"}]}).answer is None


def test_a_reply_needs_the_default_marker_only_after_one_had_it():
    first = read_reply("Oslo", AnswerPosition(), [], index=1)
    second = read_reply("Answer: Oslo", AnswerPosition(), [first], index=2)
    third = read_reply("Let me see.", AnswerPosition(), [first, second], index=3)
    assert (first.answer, second.answer, third.answer) == ("Oslo", "Oslo", None)
    assert read_reply("Let me see.", AnswerPosition("json", "city"), [], index=1).answer is None
    assert read_reply("  ", AnswerPosition(), [], index=1).answer is None


@pytest.mark.parametrize(
    "position", [*map(AnswerPosition, ("marker", "whole", "boxed")), AnswerPosition("regex", "<<(.*)>>")]
)
def test_all_replies_at_once_are_read_as_one_by_one(position):
    texts = [
        "",
        "Rome",
        "<think>Answer: Bern</think>Bern",
        "Answer: Oslo",
        "Lima",
        "<<Oslo>>",
        r"\boxed{Bern}",
        "Final answer: Rome",
    ]
    seen = []
    for index, text in enumerate(texts, 1):
        seen.append(read_reply(text, position, seen, index=index))
    assert [item.answer for item in located_in(texts, position)] == [item.answer for item in seen]


def test_tokens_of_answers_are_found_in_all_replies():
    tokens = [Token("Answer:"), Token(" Os"), Token("lo")]
    without, located = located_in(["Rome", "Answer: Oslo"], AnswerPosition(), [None, tokens])
    assert (without.answer, without.answer_tokens) == ("Rome", None)
    assert [token.text for token in located.answer_tokens] == [" Os", "lo"]
