"""The last call without tools in the core of the adapters, and what a run has spent."""

import json
import math
from types import SimpleNamespace

import pytest

from suffice import Policy, Recorder, Session, read_recording
from suffice.errors import DataError
from suffice.evaluation.replay import Price, PriceFile
from suffice.hosts import QuestionRun, call_cost, reply_round, usage_cost

PRICE = Price(uncached=2.0, cached=0.2, output=12.0)
QUESTION = "Which play has Prospero?"


def answered(run, text, **options):
    with run.last_call() as observe:
        observe(text, **options)
    return run


def test_the_last_call_takes_the_place_of_the_last_round():
    run = QuestionRun(Policy(rule="never()", max_rounds=3), final_call=True)
    assert [run.observe("").stop, run.final_call_due] == [False, False]
    assert [run.observe("").stop, run.final_call_due] == [False, True]
    assert answered(run, "The Tempest").text == "The Tempest"
    about = run.metadata()
    assert (about["reason"], about["rounds"], about["final_call"]) == ("max_rounds", 3, "answered")


def test_a_budget_in_dollars_has_room_for_the_last_call():
    run = QuestionRun("(spend > 0.05) | (round >= 5)", price=PRICE, final_call=True)
    cost = call_cost(10_000, 0)  # 2 cents
    assert [run.observe("", cost=cost).stop, run.final_call_due] == [False, False]
    assert [run.observe("", cost=cost).stop, run.final_call_due] == [False, True]
    about = answered(run, "Oslo", cost=cost).metadata()
    assert (about["reason"], about["signals"]["spend"]) == ("rule", pytest.approx(0.06))


def test_a_last_call_that_is_cheaper_than_foreseen_still_ends_the_run():
    run = QuestionRun("(spend > 0.05) | (round >= 5)", price=PRICE, final_call=True)
    for _ in range(2):
        run.observe("", cost=call_cost(10_000, 0))
    assert run.observe("Oslo", cost=call_cost(100, 0)).stop
    about = run.metadata()
    assert (about["reason"], about["answer"], about["final_call"]) == ("cancelled", "Oslo", "answered")


def test_replies_with_a_text_need_no_last_call():
    run = QuestionRun(Policy(rule="never()", max_rounds=3), final_call=True)
    run.observe("The Tempest")
    run.observe("Macbeth")
    assert not run.final_call_due
    assert run.observe("").stop
    assert (run.text, "final_call" in run.metadata()) == ("Macbeth", False)


def test_without_a_final_call_nothing_is_due():
    run = QuestionRun(Policy(rule="never()", max_rounds=2))
    run.observe("")
    assert not run.final_call_due
    run.at_limit()
    assert (run.metadata()["reason"], run.text) == ("failed", "")


def test_an_unforeseen_stop_without_an_answer_is_one_round_of_two_calls():
    run = QuestionRun("(spend > 0.01) | (round >= 5)", price=PRICE, final_call="Answer now.")
    assert not run.observe("", cost=call_cost(10_000, 0)).stop
    assert (run.final_call_due, run.final_request) == (True, "Answer now.")
    about = answered(run, "Oslo", cost=call_cost(5_000, 0)).metadata()
    assert (about["reason"], about["rounds"], about["stop_round"]) == ("rule", 1, 1)
    assert about["signals"]["spend"] == pytest.approx(0.03)
    assert run.session.rounds[0].costs["generator"].calls == 2


def test_a_failing_last_call_leaves_the_round_before_it(caplog):
    run = QuestionRun("(spend > 0.01) | (round >= 5)", price=PRICE, final_call=True)
    run.observe("", cost=call_cost(10_000, 0))
    with run.last_call():
        raise RuntimeError("the model is down")
    about = run.metadata()
    assert (about["reason"], about["rounds"], about["final_call"]) == ("failed", 1, "failed")
    assert about["signals"]["spend"] == pytest.approx(0.02)
    assert "RuntimeError: the model is down" in caplog.text


def test_a_last_call_that_calls_tools_again_is_no_answer():
    run = QuestionRun(Policy(rule="never()", max_rounds=2), final_call=True)
    run.observe("")
    about = answered(run, "").metadata()
    assert (about["reason"], about["final_call"], about["rounds"]) == ("failed", "failed", 2)


def test_an_interrupt_is_not_swallowed_by_the_last_call():
    run = QuestionRun(Policy(rule="never()", max_rounds=2), final_call=True)
    run.observe("")
    with pytest.raises(KeyboardInterrupt), run.last_call():
        raise KeyboardInterrupt


@pytest.mark.parametrize("rule", ["(spend > 0.01) | (round >= 5)", "(spend > 0.03) | (round >= 5)"])
def test_a_due_last_call_survives_in_json(rule):
    run = QuestionRun(rule, price=PRICE, final_call=True)
    run.observe("", cost=call_cost(10_000, 0))
    again = QuestionRun(state=json.loads(json.dumps(run.to_state())), price=PRICE, final_call=True)
    assert again.final_call_due
    assert answered(again, "Oslo", cost=call_cost(10_000, 0)).metadata() == (
        answered(run, "Oslo", cost=call_cost(10_000, 0)).metadata()
    )
    ended = QuestionRun(state=json.loads(json.dumps(again.to_state())), price=PRICE, final_call=True)
    assert (ended.final_call_due, ended.metadata()["final_call"]) == (False, "answered")


@pytest.mark.parametrize(
    ("rule", "calls"), [("(spend > 0.01) | (round >= 5)", [2]), ("(spend > 0.03) | (round >= 5)", [1, 1])]
)
def test_the_last_call_is_recorded_with_its_cost(tmp_path, rule, calls):
    path = tmp_path / "runs.parquet"
    with Recorder(path, policy=rule) as recorder:
        run = QuestionRun(rule, QUESTION, recorder=recorder, price=PRICE, final_call=True)
        run.observe("", cost=call_cost(10_000, 0))
        answered(run, "The Tempest", cost=call_cost(10_000, 0))
    recording = read_recording(path)
    assert recording.column("cost.generator.calls").tolist() == [calls]
    assert recording.answers.tolist() == [[*[None] * (len(calls) - 1), "The Tempest"]]
    assert recording.ends.tolist() == ["rule"]


def test_a_session_of_your_own_reads_what_is_spent_and_the_context():
    session = Session("(spend > 0.02) & (context_tokens > 5000)")
    usage = {"prompt_tokens": 6000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 1000}}
    reply = {"choices": [{"message": {"content": "Oslo"}}], "usage": usage}
    assert not session.observe(reply_round(session, reply, price=PRICE)).stop
    decision = session.observe(reply_round(session, reply, price=PRICE))
    assert decision.stop
    assert decision.signals == {"spend": pytest.approx(2 * 0.0114), "context_tokens": 6000}


USAGES = {
    "openai": {"prompt_tokens": 12, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}},
    "responses": {
        "input_tokens": 12,
        "output_tokens": 9,
        "input_tokens_details": {"cached_tokens": 8},
        "output_tokens_details": {"reasoning_tokens": 6},
    },
    "anthropic": {
        "input_tokens": 3,
        "output_tokens": 9,
        "cache_read_input_tokens": 8,
        "cache_creation_input_tokens": 1,
    },
    "gemini": SimpleNamespace(
        prompt_token_count=12, cached_content_token_count=8, candidates_token_count=3, thoughts_token_count=6
    ),
    "thoughts alone": {"promptTokenCount": 12, "cachedContentTokenCount": 8, "thoughtsTokenCount": 9},
}


@pytest.mark.parametrize("provider", USAGES)
def test_cached_and_reasoning_tokens_count_alike_for_each_provider(provider):
    cost = usage_cost(USAGES[provider])
    assert (cost.uncached_tokens, cost.cached_tokens, cost.output_tokens, cost.calls) == (4, 8, 9, 1)


def test_a_usage_that_says_nothing_is_unknown():
    for nothing in (None, {}, object()):
        assert math.isnan(usage_cost(nothing).tokens)


def prices(file, output):
    file.write_text(json.dumps({"m": {"uncached": 1.0, "cached": 0.5, "output": output}}), "utf-8")


def test_a_price_file_is_read_again_when_it_changes(tmp_path, caplog):
    file = tmp_path / "prices.json"
    prices(file, 2.0)
    price = PriceFile(file, "m")
    assert price.price.output == 2.0
    prices(file, 30.0)
    assert price.price.output == 30.0
    file.write_text("{", "utf-8")
    assert price.price.output == 30.0
    assert "the last price of 'm' stays" in caplog.text
    file.unlink()
    assert price.price.output == 30.0


def test_a_price_file_without_the_model_is_refused_at_once(tmp_path):
    file = tmp_path / "prices.json"
    prices(file, 2.0)
    with pytest.raises(DataError, match="neither"):
        PriceFile(file, "other")
    with pytest.raises(DataError, match="cannot be read"):
        PriceFile(tmp_path / "none.json", "m")
