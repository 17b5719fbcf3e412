"""The drafting loop: what a round is and pays, what the models are asked, and what happens when they misbehave."""

from __future__ import annotations

import asyncio
from itertools import takewhile

import numpy as np
import pytest

from suffice import ChatModel, Cost, Policy, Round, Session, parse_rule, parse_selector, read_recording, record
from suffice.errors import AuthenticationFailedError, DataError, LogprobsUnavailableError, ModelError
from suffice.loops import Outcome
from suffice.loops.models import DRAFTING
from suffice.loops.retrieval import Question
from suffice.policy.rounds import Reply
from tests.support.drafting import CONTEXTS, ROUNDS, loop, reply, role_of
from tests.support.endpoint import Endpoint, prompt_of

Q = "Where is the tower?"
APPROVED = Policy(rule=parse_rule("critic_approved >= 1"), max_rounds=ROUNDS)


def run(made, how="sync", contexts=CONTEXTS) -> Outcome:
    return made.run(Q, contexts) if how == "sync" else asyncio.run(made.run_async(Q, contexts))


def shared_start(*texts):
    same = takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False))
    return "".join(column[0] for column in same)


def roles(endpoint):
    return [role_of(request.prompt) for request in endpoint.requests]


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_draft_that_was_cut_is_no_answer_and_is_not_criticised(how):
    cut = iter([False, True, False, False])

    def say(body):
        if role_of(prompt_of(body)) == "critic":
            return {"choices": [{"message": {"content": "Say more. And"}, "finish_reason": "length"}]}
        reason = "length" if next(cut) else "stop"
        return {"choices": [{"message": {"content": reply(body)}, "finish_reason": reason}]}

    with Endpoint(say) as endpoint:
        outcome = run(loop(endpoint.url), how)
        assert roles(endpoint) == ["draft", "critic", "revision", "revision", "critic", "revision"]
    assert [r.answer is None for r in outcome.rounds] == [False, True, False, False]
    assert outcome.rounds[1].text == "Draft 2. The tower stands in Oslo."
    assert [r.finish_reason for r in outcome.rounds] == ["stop", "length", "stop", "stop"]
    assert outcome.rounds[0].feedback == "Say more. And"  # half of a review is worth reading
    assert "round 2 was cut (length): no answer" in outcome.tables()[-1].notes
    assert outcome.answer == outcome.rounds[-1].answer


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_round_is_a_draft_and_the_critics_reply_to_it(how):
    with Endpoint(reply) as endpoint:
        outcome = run(loop(endpoint.url), how)
        assert roles(endpoint) == ["draft", *["critic", "revision"] * (ROUNDS - 1)]
    assert [r.index for r in outcome.rounds] == [1, 2, 3, 4]
    assert [r.answer for r in outcome.rounds] == [f"Draft {t}. The tower stands in Oslo." for t in (1, 2, 3, 4)]
    assert [r.feedback for r in outcome.rounds] == [
        "Say more than draft 1 does.",
        "Say more than draft 2 does.",
        "Approved",
        None,  # nobody would have read it
    ]
    assert all(r.passages == CONTEXTS for r in outcome.rounds)
    assert (outcome.decision.reason, outcome.answer) == ("max_rounds", outcome.rounds[-1].answer)


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize(
    ("rule", "writers", "critics"),
    [
        ("fixed_k(1)", 1, 0),
        ("fixed_k(2)", 2, 1),
        ("answer_stable >= 1", 4, 3),
        ("critic_approved >= 1", 3, 3),
        ("first_of((round >= 3), (critic_approved >= 1))", 3, 2),  # the first member has decided
        ("first_of((critic_approved >= 1), (round >= 2))", 2, 2),  # the first member had to be asked
        ("(round >= 2) & (critic_approved < 1)", 2, 2),
        ("calls >= 2", 1, 1),  # a round's cost is known once its critic has replied
        ("never()", 4, 3),
    ],
)
def test_the_critic_is_asked_only_where_it_is_read(rule, writers, critics, how):
    with Endpoint(reply) as endpoint:
        outcome = run(loop(endpoint.url, Policy(rule=parse_rule(rule), max_rounds=ROUNDS)), how)
        asked = roles(endpoint)
    assert (len(outcome.rounds), asked.count("critic")) == (writers, critics)
    assert len(asked) == writers + critics


def test_a_selector_on_the_critic_asks_it_in_the_last_round():
    policy = Policy(rule=parse_rule("fixed_k(2)"), selector=parse_selector("max_critic_praise"), max_rounds=ROUNDS)
    with Endpoint(reply) as endpoint:
        run(loop(endpoint.url, policy))
        assert roles(endpoint) == ["draft", "critic", "revision", "critic"]


def test_a_rule_on_the_cost_of_a_round_counts_its_critic():
    with Endpoint(reply) as endpoint:
        outcome = run(loop(endpoint.url, Policy(rule=parse_rule("calls >= 4"), max_rounds=ROUNDS)))
        assert len(endpoint.requests) == 4
    assert outcome.decision.stop_round == 2  # both roles count as the loop's own calls
    for observed in outcome.rounds:
        assert {component: cost.calls for component, cost in observed.costs.items()} == {"writer": 1, "critic": 1}
        assert all(cost.tokens > 0 for cost in observed.costs.values())


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_rule_on_the_critics_reply_stops_at_the_approved_draft(how):
    with Endpoint(reply) as endpoint:
        outcome = run(loop(endpoint.url, APPROVED), how)
        assert len(endpoint.requests) == 6
    assert (outcome.decision.stop_round, outcome.decision.reason) == (3, "rule")
    assert outcome.answer.startswith("Draft 3.")


def test_a_critic_that_never_approves_ends_at_max_rounds():
    with Endpoint(lambda body: reply(body).replace("Approved", "Not approved")) as endpoint:
        outcome = run(loop(endpoint.url, APPROVED))
        assert len(endpoint.requests) == 2 * ROUNDS
    assert (outcome.decision.stop_round, outcome.decision.reason) == (ROUNDS, "max_rounds")


def test_one_round_is_a_loop_too():
    with Endpoint(reply) as endpoint:
        outcome = run(loop(endpoint.url, Policy(rule=parse_rule("critic_approved >= 1"), max_rounds=1)))
        assert roles(endpoint) == ["draft"]  # an approval counts from round 2 on
    assert (outcome.decision.stop_round, outcome.decision.reason) == (1, "max_rounds")


def test_rounds_stream_as_they_come():
    with Endpoint(reply) as endpoint:
        seen = [(observed and observed.index, len(endpoint.requests)) for observed, _ in loop(endpoint.url).stream(Q)]
        assert seen == [(1, 2), (2, 4), (3, 6), (4, 7), (None, 7)]

        async def collect():
            return [observed.index async for observed, _ in loop(endpoint.url).stream_async(Q) if observed]

        assert asyncio.run(collect()) == [1, 2, 3, 4]


def test_writer_and_critic_share_input_and_never_learn_the_rounds_left():
    with Endpoint(reply) as endpoint:
        run(loop(endpoint.url))
        prompts = [request.prompt for request in endpoint.requests]
    common = shared_start(*prompts)
    assert common.endswith(CONTEXTS[-1].text + "\n\n")  # the contexts are paid for once
    for critic, revision in zip(prompts[1::2], prompts[2::2], strict=False):
        shared = shared_start(critic, revision)
        assert "\n\nDraft:\nDraft " in shared  # a revision extends what the critic read
    four, two = prompts, []
    with Endpoint(reply) as endpoint:
        run(loop(endpoint.url, Policy(max_rounds=2)))
        two = [request.prompt for request in endpoint.requests]
    assert two == four[:3]


def test_drafts_have_their_own_token_limit_and_no_log_probabilities():
    with Endpoint(reply) as endpoint:
        run(loop(endpoint.url, Policy(max_rounds=2)))
        bodies = [request.body for request in endpoint.requests]
    assert {body["max_tokens"] for body in bodies} == {64}
    assert not any("logprobs" in body for body in bodies)


def test_a_text_in_braces_is_not_a_template():
    messages = DRAFTING.revising("{critique}?", CONTEXTS[:1], "{critique} {question}", "{draft} {text}")
    text = messages[1]["content"]
    assert "Question: {critique}?" in text
    assert "Draft:\n{critique} {question}\n" in text
    assert "draft:\n{draft} {text}\n" in text


def test_the_critic_may_be_another_model_at_another_endpoint():
    with Endpoint(reply) as writers, Endpoint(reply) as critics:
        critic = ChatModel("critic", base_url=critics.url, max_retries=0)
        outcome = run(loop(writers.url, APPROVED, critic=critic))
        assert (roles(writers), roles(critics)) == (["draft", "revision", "revision"], ["critic"] * 3)
    assert {request.body["model"] for request in critics.requests} == {"critic"}
    assert outcome.decision.stop_round == 3


def test_without_contexts_the_writer_answers_from_what_it_knows():
    with Endpoint(reply) as endpoint:
        outcome = run(loop(endpoint.url), contexts=())
        assert "Passage" not in endpoint.requests[0].prompt
    assert len(outcome.rounds) == ROUNDS
    assert outcome.rounds[0].passages == ()


@pytest.mark.parametrize("empty", ["", " \n", "<think>what to write?"])
def test_an_empty_draft_is_no_answer_asks_no_critic_and_never_stops(empty):
    drafts = iter([empty, "Draft 1. Oslo.", empty, "Draft 2. Oslo."])

    def misbehave(body):
        return reply(body) if role_of(prompt_of(body)) == "critic" else next(drafts)

    policy = Policy(rule=parse_rule("first_of((critic_approved >= 1), (answer_stable >= 1))"), max_rounds=ROUNDS)
    with Endpoint(misbehave) as endpoint:
        outcome = run(loop(endpoint.url, policy))
        assert roles(endpoint) == ["draft", "draft", "critic", "revision", "revision", "critic"]
        third, fourth = (r.prompt for r in endpoint.requests[3:5])
    assert third == fourth  # the newest draft that there is is revised
    assert [r.answer for r in outcome.rounds] == [None, "Draft 1. Oslo.", None, "Draft 2. Oslo."]
    assert [r.feedback is None for r in outcome.rounds] == [True, False, True, False]
    assert [set(r.costs) for r in outcome.rounds] == [{"writer"}, {"writer", "critic"}] * 2
    assert outcome.decision.reason == "max_rounds"


def test_without_any_draft_there_is_no_answer():
    with Endpoint("") as endpoint:
        outcome = run(loop(endpoint.url))
    assert (outcome.answer, outcome.decision.reason) == (None, "failed")
    assert len(outcome.rounds) == ROUNDS


def test_an_empty_critique_is_feedback_that_does_not_approve():
    with Endpoint(lambda body: "" if role_of(prompt_of(body)) == "critic" else reply(body)) as endpoint:
        outcome = run(loop(endpoint.url, APPROVED))
    assert [r.feedback for r in outcome.rounds] == [""] * ROUNDS
    assert outcome.decision.reason == "max_rounds"


def test_thinking_is_no_part_of_drafts_and_critiques():
    with Endpoint(lambda body: f"<think>Approved?</think>\n{reply(body)}\n") as endpoint:
        outcome = run(loop(endpoint.url, APPROVED))
        assert not any("think" in request.prompt for request in endpoint.requests)
    assert outcome.decision.stop_round == 3
    assert outcome.rounds[0].text.startswith("<think>")
    assert outcome.rounds[0].answer.startswith("Draft 1.")


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize(("failing", "rounds", "feedback"), [(4, 2, [False, True]), (5, 2, [False, False])])
def test_a_failing_endpoint_ends_with_every_draft_that_was_paid_for(how, failing, rounds, feedback):
    faults = [None] * (failing - 1) + ["500"]
    with Endpoint(reply, fault=faults) as endpoint:
        outcome = run(loop(endpoint.url), how)
    assert outcome.error is not None
    assert outcome.decision.reason == "failed"
    assert len(outcome.rounds) == rounds
    assert [r.feedback is None for r in outcome.rounds] == feedback
    assert outcome.answer == "Draft 2. The tower stands in Oslo."
    assert sum(cost.calls for r in outcome.rounds for cost in r.costs.values()) == failing - 1


def test_refused_credentials_are_an_error_where_nothing_was_drafted():
    with Endpoint(reply, fault="401") as endpoint, pytest.raises(AuthenticationFailedError):
        run(loop(endpoint.url))
    with Endpoint(reply, fault=[None, "401"]) as endpoint:
        outcome = run(loop(endpoint.url))
    assert isinstance(outcome.error, AuthenticationFailedError)
    assert outcome.answer == "Draft 1. The tower stands in Oslo."


class Length:
    """Measures a host's own signal: the words of the draft."""

    name = "judge:words"
    capabilities = frozenset()

    def __init__(self):
        self.asked = []

    def fingerprint(self):
        return {"kind": "words"}

    async def measure(self, question, observed):
        assert (question, observed.passages) == (Q, CONTEXTS)
        self.asked.append(observed.answer)
        return Reply(signals={"words": float(len(observed.answer.split()))}, costs={self.name: Cost(calls=1)})


@pytest.mark.parametrize("how", ["sync", "async"])
def test_enrichers_measure_drafts_where_the_rule_reads_them(how):
    words = Length()
    policy = Policy(rule=parse_rule("first_of((critic_approved >= 1), (words > 100))"), max_rounds=ROUNDS)
    with Endpoint(reply) as endpoint:
        outcome = run(loop(endpoint.url, policy, enrichers=(words,)), how)
    assert outcome.decision.stop_round == 3
    assert len(words.asked) == 2  # not where the critic's approval has decided already
    assert outcome.rounds[1].signals["words"] == 7
    assert outcome.rounds[1].feedback == "Say more than draft 2 does."
    assert set(outcome.rounds[0].costs) == {"writer", "critic", "judge:words"}


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_measurement_that_stops_the_loop_spares_the_critic(how):
    policy = Policy(rule=parse_rule("first_of((words > 0), (critic_approved >= 1))"), max_rounds=ROUNDS)
    with Endpoint(reply) as endpoint:
        outcome = run(loop(endpoint.url, policy, enrichers=(Length(),)), how)
        assert roles(endpoint) == ["draft"]
    assert (outcome.decision.stop_round, outcome.decision.fired) == (1, "words > 0")


class Breaking(Length):
    """An embedder that breaks at the second draft, in its own way."""

    name = "embedder"
    capabilities = frozenset({"embedding"})

    def __init__(self, error):
        super().__init__()
        self.error = error

    async def measure(self, question, observed):
        self.asked.append(observed.answer)
        if len(self.asked) == 2:
            raise self.error
        return Reply(signals={}, costs={self.name: Cost(calls=1)}, embedding=np.ones(2, np.float32))


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("error", [ZeroDivisionError("in the pool"), DataError("no words"), KeyError("x"), OSError(5)])
def test_an_embedder_that_raises_anything_ends_the_question_with_its_drafts_kept(error, how):
    policy = Policy(rule=parse_rule("semantic_distance < 0.01"), max_rounds=ROUNDS)
    with Endpoint(reply) as endpoint:
        outcome = run(loop(endpoint.url, policy, enrichers=(Breaking(error),)), how)
    assert (outcome.decision.reason, outcome.answer) == ("failed", "Draft 2. The tower stands in Oslo.")
    assert isinstance(outcome.error, ModelError)
    assert outcome.error.__cause__ is error
    assert type(error).__name__ in str(outcome.error)
    assert [set(r.costs) for r in outcome.rounds] == [{"writer", "critic", "embedder"}, {"writer"}]


def test_an_embedder_that_raises_anything_fails_its_question_and_not_the_recording(tmp_path):
    with Endpoint(reply) as endpoint:
        made = loop(endpoint.url, enrichers=(Breaking(ZeroDivisionError("in the pool")),))
        asked = [Question(question_id=f"q{n}", question=Q, answers=("Oslo",), passages=CONTEXTS) for n in range(2)]
        summary = record(asked, made, tmp_path / "r.parquet", concurrency=1)
    assert list(summary.failed) == ["q0"]
    assert "ZeroDivisionError: in the pool" in summary.failed["q0"]
    assert read_recording(tmp_path / "r.parquet").shape == (2, ROUNDS)


def test_a_draft_whose_critic_failed_keeps_what_was_measured_before():
    words = Length()
    policy = Policy(rule=parse_rule("words > 100"), max_rounds=ROUNDS)
    with Endpoint(reply, fault=[None, "500"]) as endpoint:
        outcome = run(loop(endpoint.url, policy, enrichers=(words,)))
    assert [r.signals["words"] for r in outcome.rounds] == [7]
    assert set(outcome.rounds[0].costs) == {"writer", "judge:words"}
    assert (outcome.decision.reason, outcome.answer) == ("failed", "Draft 1. The tower stands in Oslo.")


def test_after_a_failed_critic_a_draft_is_unmeasured_with_undefined_signal():
    words = Length()
    policy = Policy(rule=parse_rule("first_of((calls > 99), (words > 0))"), max_rounds=ROUNDS)
    with Endpoint(reply, fault=[None, "500"]) as endpoint:
        outcome = run(loop(endpoint.url, policy, enrichers=(words,)))
    assert not words.asked
    assert (outcome.decision.reason, outcome.answer) == ("failed", "Draft 1. The tower stands in Oslo.")


def test_a_draft_of_200k_characters_goes_through_whole():
    page = "The tower stands in Oslo. " * 8000
    with Endpoint(lambda body: page if role_of(prompt_of(body)) != "critic" else "Shorter.") as endpoint:
        outcome = run(loop(endpoint.url, Policy(rule=parse_rule("answer_stable >= 1"), max_rounds=3)))
        assert page.strip() in endpoint.requests[2].prompt
    assert (len(page), outcome.answer, outcome.decision.stop_round) == (208_000, page.strip(), 2)


@pytest.mark.parametrize(
    ("policy", "error", "says"),
    [
        (Policy(start_round=0), DataError, "start_round=1"),
        (Policy(rule=parse_rule("answer_margin > 1")), LogprobsUnavailableError, "answer_margin"),
    ],
)
def test_a_policy_that_cannot_decide_here_is_refused_before_the_first_call(policy, error, says):
    with Endpoint(reply) as endpoint:
        with pytest.raises(error, match=says):
            run(loop(endpoint.url, policy))
        assert not endpoint.requests


def test_a_context_that_is_no_passage_is_refused_before_the_first_call():
    with Endpoint(reply) as endpoint:
        with pytest.raises(DataError, match="as Passage"):
            run(loop(endpoint.url), contexts="a text")
        assert not endpoint.requests


def test_a_selector_may_return_an_earlier_draft():
    texts = iter(["Oslo", "Oslo", "Lima"])
    with Endpoint(lambda body: "No." if role_of(prompt_of(body)) == "critic" else next(texts)) as endpoint:
        outcome = run(loop(endpoint.url, Policy(selector=parse_selector("majority"), max_rounds=3)))
    assert (outcome.answer, outcome.decision.stop_round, outcome.decision.answer_round) == ("Oslo", 3, 2)


def test_the_hook_decides_as_whole_rounds_do():
    policy = Policy(rule=parse_rule("first_of((critic_approved >= 1), (tokens > 90))"), max_rounds=ROUNDS)
    texts = [("one", "more"), ("two", None), ("three", "approved.")]
    cost = {"writer": Cost(calls=1, output_tokens=20)}
    hooked, whole = (Session(policy, missing="ignore") for _ in range(2))
    for t, (draft, feedback) in enumerate(texts, 1):
        ours = hooked.observe(draft=draft, feedback=feedback, costs=cost)
        theirs = whole.observe(Round(index=t, answer=draft, text=draft, feedback=feedback, costs=cost))
        assert ours.to_dict() == theirs.to_dict()
    assert (ours.stop_round, ours.answer) == (3, "three")
    assert hooked.rounds == whole.rounds


def test_the_hook_takes_a_hosts_own_signals_and_empty_drafts():
    session = Session(Policy(rule=parse_rule("semantic_distance < 0.06"), max_rounds=ROUNDS))
    session.observe(draft="Oslo.")
    assert not session.observe(draft=" ", signals={"semantic_distance": float("nan")}).stop
    assert session.rounds[-1].answer is None
    decision = session.observe(draft="In Oslo.", signals={"semantic_distance": 0.01})
    assert (decision.stop, decision.answer) == (True, "In Oslo.")


@pytest.mark.parametrize(
    ("args", "more"),
    [
        ((), {}),
        ((), {"feedback": "no"}),
        ((Round(index=1, answer="x"),), {"draft": "x"}),
        ((Round(index=1, answer="x"),), {"feedback": "no"}),
    ],
)
def test_the_hook_wants_a_round_or_a_draft_and_not_both(args, more):
    session = Session(Policy())
    with pytest.raises(DataError, match="draft="):
        session.observe(*args, **more)
    assert session.next_round == 1
