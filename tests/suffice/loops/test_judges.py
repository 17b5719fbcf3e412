"""Judges over a real local server: the wire, the cache, both orders, and everything a judge may reply instead."""

from __future__ import annotations

import asyncio
import json
import math
import time

import pytest

from suffice import Passage, Round
from suffice.errors import AuthenticationFailedError, DataError, ModelError, ModelTimeoutError
from suffice.loops.course import RoundResult
from suffice.loops.judges import MARKS, Draft, JudgeModel, MarkJudge, PairwiseJudge, Panel
from suffice.loops.measuring import measure_lazily
from suffice.loops.models import ChatModel
from suffice.policy.rules import parse_rule
from suffice.policy.session import Policy, Session
from suffice.policy.signals import Enricher
from suffice.recordings import ResponseCache
from tests.support.endpoint import Endpoint, prompt_of

PASSAGES = (
    Passage(passage_id="1", title="Norway", text="Oslo is its capital."),
    Passage(passage_id="2", title="{text}", text="{question} braces stay"),
)
DRAFT = Draft(question="What is the capital?", text="Oslo.", contexts=PASSAGES, reference="Oslo")
STATEMENTS = '{"statements": [{"statement": "a", "supported": true}, {"statement": "b", "supported": false}]}'
USEFUL = '{"passages": [{"number": 2, "useful": true}, {"number": 1, "useful": false}]}'
GOOD = {
    "faithfulness": (STATEMENTS, 0.5),
    "answer_relevancy": ('{"reason": "x", "mark": 3}', 0.75),
    "context_precision": (USEFUL, 0.5),
    "context_recall": (STATEMENTS, 0.5),
}


def reply(body):
    """Reply in the shape that was asked for, as a judge with structured output does."""
    return GOOD[body["response_format"]["json_schema"]["name"]][0]


def asker(endpoint, cache=None, **options):
    options = {"max_retries": 0, "api_key": "sk-1234567890"} | options
    return JudgeModel(ChatModel("j", base_url=endpoint.url, **options), cache=cache)


def judged(endpoint, mark="faithfulness", draft=DRAFT, cache=None, **options):
    return asyncio.run(MarkJudge(asker(endpoint, cache, **options), MARKS[mark]).judge(draft))


# The wire


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_is_requested_by_schema_and_read_from_the_verdicts(mark):
    with Endpoint(reply) as endpoint:
        found = judged(endpoint, mark)
        (request,) = endpoint.requests
    assert (found.mark, found.note, found.from_cache) == (GOOD[mark][1], "", False)
    assert found.cost.calls == 1
    asked = request.body["response_format"]
    assert (asked["type"], asked["json_schema"]["name"], asked["json_schema"]["strict"]) == ("json_schema", mark, True)
    assert asked["json_schema"]["schema"]["additionalProperties"] is False
    assert "logprobs" not in request.body
    assert "What is the capital?" in request.prompt
    assert ("Oslo is its capital." in request.prompt) == MARKS[mark].with_contexts
    assert request.prompt.rstrip().endswith("Reference answer: Oslo" if mark == "context_recall" else "Draft: Oslo.")
    if MARKS[mark].with_contexts:
        assert "{question} braces stay" in request.prompt


def test_the_text_that_is_judged_comes_last_so_that_prefix_caches_serve():
    with Endpoint(reply) as endpoint:
        for text in ("Oslo.", "Bergen."):
            judged(endpoint, draft=Draft(question="Q?", text=text, contexts=PASSAGES))
        first, second = (request.prompt for request in endpoint.requests)
    same = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert first[same:] == "Oslo."


def test_after_an_endpoint_refuses_schemas_it_is_asked_without():
    with Endpoint(STATEMENTS, fault=["400"]) as endpoint:
        model = asker(endpoint)
        judge = MarkJudge(model, MARKS["faithfulness"])
        marks = [asyncio.run(judge.judge(Draft(question="q", text=t, contexts=PASSAGES))).mark for t in "abc"]
        sent = ["response_format" in request.body for request in endpoint.requests]
    assert marks == [0.5, 0.5, 0.5]
    assert sent == [True, False, False, False]
    assert not model.structured


def test_an_endpoint_that_refuses_everything_fails():
    with Endpoint(fault="400") as endpoint:
        model = asker(endpoint)
        with pytest.raises(ModelError, match="400"):
            asyncio.run(MarkJudge(model, MARKS["faithfulness"]).judge(DRAFT))
        assert len(endpoint.requests) == 2
    assert model.structured


@pytest.mark.parametrize("fault", ["401", "500", "429", "drop", "hang"])
def test_a_failing_endpoint_raises_at_once_and_nothing_is_kept(fault, tmp_path, impatient):
    if fault == "hang":
        impatient.append(bool)
    kinds = {"401": AuthenticationFailedError, "hang": ModelTimeoutError}
    with Endpoint(fault=fault) as endpoint, ResponseCache(tmp_path / "c.sqlite") as cache:
        with pytest.raises(kinds.get(fault, ModelError)):
            judged(endpoint, cache=cache, timeout_s=200.0 if fault == "hang" else 600.0)
        while not endpoint.requests:  # it was sent, and may be read later than its client gave up
            time.sleep(0.001)
        assert len(endpoint.requests) == 1
        assert len(cache) == 0


def test_fields_of_the_users_own_are_sent_too():
    with Endpoint(reply) as endpoint:
        judged(endpoint, extra_body={"top_k": 1})
        assert endpoint.requests[0].body["top_k"] == 1


# What a judge replies instead


@pytest.mark.parametrize(
    ("mark", "text", "note"),
    [
        ("faithfulness", "Looks good to me, 5/5!", "is not JSON"),
        ("faithfulness", "I cannot help with that.", "is not JSON"),
        ("faithfulness", "", "is empty"),
        ("faithfulness", "<think>hm", "is empty"),
        ("faithfulness", "[1, 2]", "not an object"),
        ("faithfulness", "{}", "lacks 'statements'"),
        ("faithfulness", '{"statements": []}', "empty"),
        ("faithfulness", '{"statements": "all"}', "lacks 'statements'"),
        ("faithfulness", '{"statements": ["a"]}', "lacks 'supported'"),
        ("faithfulness", '{"statements": [{"statement": "a"}]}', "lacks 'supported'"),
        ("faithfulness", '{"statements": [{"supported": "true"}]}', "lacks 'supported'"),
        ("faithfulness", '{"statements": [{"supported": 1}]}', "lacks 'supported'"),
        ("faithfulness", STATEMENTS[:-5], "is not JSON"),
        ("faithfulness", STATEMENTS + STATEMENTS, "is not JSON"),
        ("answer_relevancy", '{"mark": 5}', "not within 0 to 4"),
        ("answer_relevancy", '{"mark": -1}', "not within 0 to 4"),
        ("answer_relevancy", '{"mark": true}', "lacks 'mark'"),
        ("answer_relevancy", '{"mark": 3.5}', "lacks 'mark'"),
        ("answer_relevancy", '{"mark": "3"}', "lacks 'mark'"),
        ("answer_relevancy", '{"mark": null}', "lacks 'mark'"),
        ("answer_relevancy", '{"mark": NaN}', "NaN"),
        ("answer_relevancy", '{"mark": 1, "mark": 4}', "repeats a"),
        ("answer_relevancy", '{"a": ' * 100_000, "is not JSON"),
        ("context_precision", '{"passages": [{"number": 1, "useful": true}]}', "leaves passages out"),
        ("context_precision", USEFUL.replace("2", "3"), "unknown one"),
        ("context_precision", USEFUL.replace("2", "1"), "repeats a"),
        ("context_precision", USEFUL.replace("2", "0"), "unknown one"),
    ],
)
def test_an_unexpected_reply_gives_no_mark_and_a_note(mark, text, note):
    with Endpoint(text) as endpoint:
        found = judged(endpoint, mark)
    assert math.isnan(found.mark)
    assert note in found.note
    assert found.cost.calls == found.attempts == 3


def test_a_reply_that_was_cut_off_says_so():
    choice = {"message": {"content": STATEMENTS[:40]}, "finish_reason": "length"}
    with Endpoint(lambda body: {"choices": [choice]}) as endpoint:
        found = judged(endpoint)
    assert math.isnan(found.mark)
    assert "cut off at max_tokens" in found.note


def test_a_refusal_without_content_gives_no_mark():
    choice = {"message": {"content": None, "refusal": "I will not."}, "finish_reason": "stop"}
    with Endpoint(lambda body: {"choices": [choice]}) as endpoint:
        found = judged(endpoint)
    assert math.isnan(found.mark)
    assert "I will not." in found.note
    assert math.isnan(found.cost.output_tokens), "what the endpoint does not tell is unknown, not free"


@pytest.mark.parametrize(
    "text",
    [f"```json\n{STATEMENTS}\n```", f"Here it is:\n```\n{STATEMENTS}\n```\n", f"<think>{{}}</think>{STATEMENTS}"],
)
def test_a_fence_or_a_thinking_block_around_the_reply_does_no_harm(text):
    with Endpoint(text) as endpoint:
        assert judged(endpoint).mark == 0.5


@pytest.mark.parametrize(
    ("mark", "draft", "note"),
    [
        ("faithfulness", Draft(question="q", text=None, contexts=PASSAGES), "no draft"),
        ("faithfulness", Draft(question="q", text=" \n", contexts=PASSAGES), "no draft"),
        ("faithfulness", Draft(question="q", text="x"), "no contexts"),
        ("context_precision", Draft(question="q", text="x"), "no contexts"),
        ("context_recall", Draft(question="q", text="x", contexts=PASSAGES), "no reference"),
        ("context_recall", Draft(question="q", text="x", reference="x"), "no contexts"),
    ],
)
def test_what_is_missing_gives_no_mark_and_asks_nobody(mark, draft, note):
    with Endpoint(reply) as endpoint:
        found = judged(endpoint, mark, draft)
        assert endpoint.requests == []
    assert math.isnan(found.mark)
    assert (found.note, found.cost.calls) == (note, 0)


# Average precision


@pytest.mark.parametrize(
    ("useful", "mark"), [("11", 1.0), ("10", 1.0), ("01", 0.5), ("00", 0.0), ("101", 5 / 6), ("011", 7 / 12)]
)
def test_context_precision_is_the_average_precision_of_the_order(useful, mark):
    verdicts = [{"number": i, "useful": u == "1"} for i, u in enumerate(useful, 1)]
    passages = tuple(Passage(passage_id=str(i), title="t", text="x") for i in range(len(useful)))
    with Endpoint(json.dumps({"passages": verdicts})) as endpoint:
        found = judged(endpoint, "context_precision", Draft(question="q", text="x", contexts=passages))
    assert found.mark == pytest.approx(mark)


# Once, ever; what cannot be read is asked for again


def retrying(endpoint, cache):
    """A judge that asks again where no reply that is kept can be read."""
    model = ChatModel("j", base_url=endpoint.url, max_retries=0, api_key="sk-1234567890")
    return MarkJudge(JudgeModel(model, cache=cache, retry_unreadable=True), MARKS["faithfulness"])


def moody(prose):
    """Return an endpoint's reply that is prose for the first so many requests, and the text of all of them."""
    prompts = []

    def answer(body):
        prompts.append(prompt_of(body))
        return "It seems fine to me." if len(prompts) <= prose else reply(body)

    return answer, prompts


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("prose", [0, 1, 2])
def test_an_unreadable_reply_is_repeated_and_every_attempt_is_paid(prose, cached, tmp_path):
    answer, prompts = moody(prose)
    with Endpoint(answer) as endpoint, ResponseCache(tmp_path / "c.sqlite") as cache:
        found = judged(endpoint, cache=cache if cached else None)
        assert (found.mark, found.note) == (0.5, "")
        assert found.cost.calls == found.attempts == len(endpoint.requests) == prose + 1
        again = judged(endpoint, cache=cache if cached else None)
        assert (again.mark, again.from_cache) == (0.5, cached)
        assert again.cost.calls == (prose + 1 if cached else 1)
    first, *others = prompts[: prose + 1]
    assert all(other == f"{first}\n\nReply with the JSON object alone." for other in others)


def test_cached_unreadable_replies_are_repeated_only_on_request(tmp_path):
    answer, _ = moody(4)
    with Endpoint(answer) as endpoint, ResponseCache(tmp_path / "c.sqlite") as cache:
        assert math.isnan(judged(endpoint, cache=cache).mark)
        assert math.isnan(judged(endpoint, cache=cache).mark)
        assert len(endpoint.requests) == 3
        found = asyncio.run(retrying(endpoint, cache).judge(DRAFT))
        assert (found.mark, found.attempts, found.from_cache) == (0.5, 5, False)
        usual = judged(endpoint, cache=cache)  # what was found is found without the flag, too
        assert (usual.mark, usual.cost, usual.from_cache) == (0.5, found.cost, True)
        assert len(endpoint.requests) == 5


def test_a_judge_is_asked_at_least_once():
    with pytest.raises(DataError, match="attempts is 0"):
        JudgeModel(ChatModel("j", base_url="http://localhost:1/v1", api_key="k"), attempts=0)


def test_a_draft_is_judged_once_and_even_prose_is_kept(tmp_path):
    with Endpoint("no JSON here") as endpoint:
        for _ in range(2):
            with ResponseCache(tmp_path / "c.sqlite") as cache:
                found = judged(endpoint, cache=cache)
        assert len(endpoint.requests) == 3
        with ResponseCache(tmp_path / "c.sqlite") as cache:
            assert asyncio.run(retrying(endpoint, cache).judge(DRAFT)).cost.calls == 6
        assert len(endpoint.requests) == 6
    assert found.from_cache
    assert "is not JSON" in found.note
    assert found.cost.calls == 3, "from the cache it carries what the calls cost"
    assert "sk-1234567890" not in (tmp_path / "c.sqlite").read_bytes().decode("latin-1")


def test_an_unknown_cost_stays_unknown_in_the_cache(tmp_path):
    with Endpoint(reply, usage="none") as endpoint, ResponseCache(tmp_path / "c.sqlite") as cache:
        costs = [judged(endpoint, cache=cache).cost for _ in range(2)]
    assert all(math.isnan(cost.output_tokens) and cost.calls == 1 for cost in costs)


@pytest.mark.parametrize(
    ("mark", "other", "asks"),
    [
        ("faithfulness", Draft(question="Another?", text="Oslo.", contexts=PASSAGES), True),
        ("faithfulness", Draft(question="What is the capital?", text="Oslo!", contexts=PASSAGES), True),
        ("faithfulness", Draft(question="What is the capital?", text="Oslo.", contexts=PASSAGES[:1]), True),
        ("faithfulness", Draft(question="What is the capital?", text="Oslo.", contexts=PASSAGES[::-1]), True),
        (
            "faithfulness",
            Draft(question="What is the capital?", text=" Oslo.", contexts=PASSAGES, reference="x"),
            False,
        ),
        ("answer_relevancy", Draft(question="What is the capital?", text="Oslo."), False),
        (
            "context_recall",
            Draft(question="What is the capital?", text="Another", contexts=PASSAGES, reference="Oslo"),
            False,
        ),
        (
            "context_recall",
            Draft(question="What is the capital?", text="Oslo.", contexts=PASSAGES, reference="Rome"),
            True,
        ),
    ],
)
def test_the_key_is_what_the_judge_sees_and_nothing_else(mark, other, asks, tmp_path):
    with Endpoint(reply) as endpoint, ResponseCache(tmp_path / "c.sqlite") as cache:
        judged(endpoint, mark, cache=cache)
        judged(endpoint, mark, other, cache=cache)
        assert len(endpoint.requests) == 1 + asks


def test_another_model_prompt_version_or_repeat_is_asked_anew(tmp_path):
    from dataclasses import replace

    prompt = MARKS["faithfulness"]
    with Endpoint(reply) as endpoint, ResponseCache(tmp_path / "c.sqlite") as cache:
        model = asker(endpoint, cache)
        warm = JudgeModel(ChatModel("j", base_url=endpoint.url, temperature=0.7), cache=cache)
        other = JudgeModel(ChatModel("k", base_url=endpoint.url), cache=cache)
        for judge, repeat in (
            (MarkJudge(model, prompt), 0),
            (MarkJudge(model, prompt), 1),
            (MarkJudge(model, replace(prompt, version=2)), 0),
            (MarkJudge(model, replace(prompt, system="Check it.")), 0),
            (MarkJudge(warm, prompt), 0),
            (MarkJudge(other, prompt), 0),
        ):
            for _ in range(2):
                asyncio.run(judge.judge(DRAFT, repeat=repeat))
        assert len(endpoint.requests) == 6


# Two drafts


def preferring(choose):
    """Return an endpoint's reply that chooses between the two drafts it sees."""

    def answer(body):
        a, b = prompt_of(body).split("Draft A: ")[1].split("\n\nDraft B: ")
        return json.dumps({"reason": "", "better": choose(a, b.removesuffix("\n\nReply with the JSON object alone."))})

    return answer


@pytest.mark.parametrize(
    ("choose", "verdict"),
    [
        (lambda a, b: "A" if len(a) > len(b) else "B", "first"),
        (lambda a, b: "A" if len(a) < len(b) else "B", "second"),
        (lambda a, b: "tie", "tie"),
        (lambda a, b: "A", "order_dependent"),
        (lambda a, b: "B", "order_dependent"),
        (lambda a, b: "A" if len(a) > len(b) else "tie", "order_dependent"),
        (lambda a, b: "both", "undefined"),
        (lambda a, b: "A" if len(a) > len(b) else "a", "undefined"),
    ],
)
def test_two_drafts_are_compared_in_both_orders(choose, verdict):
    with Endpoint(preferring(choose)) as endpoint:
        found = asyncio.run(PairwiseJudge(asker(endpoint)).compare("q?", "the long one", "short", PASSAGES))
        asked = len(endpoint.requests)
    assert found.verdict == verdict
    assert found.cost.calls == asked
    assert (asked == 2) == (verdict != "undefined")
    assert bool(found.note) == (verdict == "undefined")


def test_equal_drafts_tie_without_a_call_and_an_empty_one_is_refused():
    with Endpoint(fault="500") as endpoint:
        judge = PairwiseJudge(asker(endpoint))
        assert asyncio.run(judge.compare("q?", "same", " same\n")).verdict == "tie"
        with pytest.raises(DataError, match="empty"):
            asyncio.run(judge.compare("q?", "a", " "))
        assert endpoint.requests == []


def test_an_order_that_was_answered_is_not_paid_for_again(tmp_path):
    with (
        Endpoint(preferring(lambda a, b: "A"), fault=[None, "500"]) as endpoint,
        ResponseCache(tmp_path / "c.sqlite") as cache,
    ):
        judge = PairwiseJudge(asker(endpoint, cache))
        with pytest.raises(ModelError):
            asyncio.run(judge.compare("q?", "one", "two"))
        assert asyncio.run(judge.compare("q?", "one", "two")).verdict == "order_dependent"
        assert asyncio.run(judge.compare("q?", "two", "one")).verdict == "order_dependent"
        assert len(endpoint.requests) == 3


# Panels


def test_a_panel_measures_its_marks_and_the_score_under_one_component():
    with Endpoint(reply) as endpoint:
        panel = Panel(asker(endpoint), references={DRAFT.question: "Oslo"})
        assert isinstance(panel, Enricher)
        found = asyncio.run(panel.measure(DRAFT.question, Round(index=1, answer="Oslo.", passages=PASSAGES)))
    assert found.signals == {
        "faithfulness": 0.5,
        "answer_relevancy": 0.75,
        "context_precision": 0.5,
        "context_recall": 0.5,
        "information_score": 0.5625,
    }
    assert {name: cost.calls for name, cost in found.costs.items()} == {"judge:information_score": 4}
    assert json.dumps(dict(panel.fingerprint()))


def test_an_undefined_mark_makes_the_score_undefined_unless_weightless():
    with Endpoint(reply) as endpoint:
        for weights, score in ((None, None), ({"faithfulness": 0.5, "answer_relevancy": 0.5}, 0.625)):
            panel = Panel(asker(endpoint), weights=weights)
            found = asyncio.run(
                panel.measure(DRAFT.question, Round(index=1, answer="Oslo.", passages=PASSAGES))
            ).signals
            assert math.isnan(found["context_recall"])
            assert math.isnan(found["information_score"]) if score is None else found["information_score"] == score


def test_a_live_policy_asks_the_panel_only_where_it_is_read():
    rule = parse_rule("first_of((answer_stable >= 1), (information_score >= 0.9))")
    with Endpoint(reply) as endpoint:
        panel = Panel(asker(endpoint), ["faithfulness", "answer_relevancy"])
        session = Session(Policy(rule=rule, max_rounds=5))
        for index, answer in ((1, "Oslo"), (2, "Rome"), (3, "Rome")):
            made = RoundResult(observed=Round(index=index, answer=answer, passages=PASSAGES))
            seen, failed = asyncio.run(measure_lazily([panel], session, "q?", made))
            assert failed is None
            decision = session.observe(seen)
        assert len(endpoint.requests) == 4
    assert (decision.stop_round, decision.fired) == (3, "answer_stable >= 1")


@pytest.mark.parametrize(
    ("marks", "weights", "match"),
    [
        (["truth"], None, "'truth'"),
        ([], None, "least one"),
        (["faithfulness", "faithfulness"], None, "without repeats"),
        (["faithfulness"], {"faithfulness": 0.5}, "add up"),
        (["faithfulness"], {"truth": 1.0}, "unknown mark"),
        (["faithfulness", "answer_relevancy"], {"faithfulness": 1.5, "answer_relevancy": -0.5}, ">= 0"),
        (["faithfulness"], {"faithfulness": math.nan}, ">= 0"),
    ],
)
def test_panels_that_make_no_sense_are_refused(marks, weights, match):
    with Endpoint(reply) as endpoint, pytest.raises(DataError, match=match):
        Panel(asker(endpoint), marks, weights=weights)
