"""A session that is not given what its policy needs says so at the first round, and keeps the answers."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from suffice import (
    Calibrator,
    Cost,
    DraftingLoop,
    Passage,
    Policy,
    RetrievalLoop,
    Round,
    ScriptedModel,
    Session,
    Token,
    parse_rule,
    parse_selector,
)
from suffice.errors import (
    ConfigMismatchError,
    DataError,
    LogprobsUnavailableError,
    ModelError,
    NotFittedError,
    UnknownSignalError,
)
from suffice.loops.models import ChatModel
from suffice.loops.retrieval import InMemoryRetriever
from suffice.policy.rounds import COST_KINDS

NAN = math.nan
CALIBRATOR = Calibrator().fit([[0.0] * 5, [4.0] * 5], [[0] * 5, [1] * 5], index=[1, 2, 3, 4, 5])
TASR = Policy(rule=parse_rule("tasr"), calibrators=(CALIBRATOR,), depends={"model": "a", "prompt_id": "p@1"})
PASSAGE = Passage(passage_id="1", title="Norway", text="Oslo is its capital.")
TOKENS = (Token("a", -0.1, (("a", -0.1), ("b", -3.0))),)


def session_of(rule: str, **options) -> Session:
    return Session(Policy(rule=parse_rule(rule)), **options)


@pytest.mark.parametrize(
    ("rule", "first", "what"),
    [
        ("answer_margin > 1", 1, "answer_tokens"),
        ("answer_margin_min > 1", 1, "answer_tokens"),
        ("tokens > 1000", 1, "costs"),
        ("calls >= 2", 1, "costs"),
        ("seconds > 2", 1, "costs"),
        ("draft_tokens > 9", 1, "costs"),
        ("semantic(0.05)", 2, "embedding"),
        ("critic_only", 2, "feedback"),
        ("answer_in_evidence >= 1", 1, "passages"),
        ("score_gap > 1", 1, "pool_scores"),
        ("verbal_confidence > 3", 1, "text"),
        ("tool_errors < 1", 1, r"value.*signals=\{'tool_errors'"),
        ("judge_entailment >= 4", 1, r"signals=\{'judge_entailment'"),
        ("information_gain <= 0", 2, r"signals=\{'information_gain'"),
        ("(round >= 9) | (tokens > 1000)", 1, "costs"),
    ],
)
def test_a_needed_signal_that_a_round_lacks_is_an_error_at_once(rule, first, what):
    session = session_of(rule)
    for r in range(1, first):
        session.observe(Round(index=r, answer=f"answer {r}"))
    with pytest.raises(UnknownSignalError, match=f"round {first} .*{what}"):
        session.observe(Round(index=first, answer="best"))
    assert session.decision is None
    decision = session.end("failed")
    assert (decision.answer, decision.answer_round, decision.reason) == ("best", first, "failed")


def test_a_calibrated_signal_is_asked_for_by_what_it_is_computed_from():
    with pytest.raises(UnknownSignalError, match=r"signals=\{'answer_margin'"):
        Session(TASR).observe(Round(index=1, answer="a"))
    assert not Session(TASR).observe(Round(index=1, answer="a", answer_tokens=TOKENS)).stop


def test_a_selector_needs_its_signals_too():
    session = Session(Policy(selector=parse_selector("max_answer_margin")))
    with pytest.raises(UnknownSignalError, match="answer_tokens"):
        session.observe(Round(index=1, answer="a"))


def test_a_calibrated_signal_without_a_calibrator_keeps_the_answer():
    session = session_of("tasr")
    with pytest.raises(NotFittedError, match="suffice calibrate"):
        session.observe(Round(index=1, answer="a"))
    assert session.end("failed").answer == "a"


def test_the_loop_may_go_on_after_the_error_and_is_told_once():
    session = session_of("tokens > 1000")
    with pytest.raises(UnknownSignalError):
        session.observe(Round(index=1, answer="a"))
    for r in (2, 3, 4):
        assert not session.observe(Round(index=r, answer="a")).stop
    assert session.observe(Round(index=5, answer="a")).reason == "max_rounds"


def test_a_session_refused_at_its_last_round_accepts_no_other():
    session = Session(Policy(rule=parse_rule("tokens > 1000"), max_rounds=1))
    with pytest.raises(UnknownSignalError):
        session.observe(Round(index=1, answer="a"))
    with pytest.raises(DataError, match="max_rounds"):
        session.observe(Round(index=2, answer="a"))
    assert session.end("cancelled").answer == "a"


def test_a_warning_or_nothing_in_the_place_of_the_error():
    warned = session_of("semantic(0.05)", missing="warn")
    assert not warned.observe(draft="same").stop
    with pytest.warns(UserWarning, match="embedding"):
        assert not warned.observe(draft="same").stop
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not warned.observe(draft="same").stop
        ignored = session_of("(tokens > 1000) | (tool_errors > 0) | (p_correct > 0.5)", missing="ignore")
        decision = ignored.observe(draft="a")
    assert all(math.isnan(value) for value in decision.signals.values())
    with pytest.raises(DataError, match="'no'"):
        session_of("tasr", missing="no")


def test_a_round_without_an_answer_is_not_held_against_the_host():
    session = session_of("(answer_margin > 1) | (tokens > 1000) | (tool_errors < 1)")
    assert not session.observe(Round(index=1)).stop
    assert not session.observe(Round(index=2, answer=" ")).stop
    with pytest.raises(UnknownSignalError, match="round 3"):
        session.observe(Round(index=3, answer="a"))


def test_what_was_brought_once_may_be_undefined_later():
    session = session_of("(answer_margin > 9) & (tokens > 1000)")
    cost = {"generator": Cost(calls=1, output_tokens=3)}
    assert not session.observe(Round(index=1, answer="a", answer_tokens=TOKENS, costs=cost)).stop
    assert not session.observe(Round(index=2, answer="a")).stop


def test_a_value_that_is_said_to_be_undefined_was_brought():
    signals = {"answer_margin": NAN, "own": NAN, "semantic_distance": NAN}
    session = session_of("(answer_margin > 1) | (own > 1) | (semantic_distance < 0.1)")
    for r in (1, 2):
        assert not session.observe(Round(index=r, answer="a", signals=signals)).stop


@pytest.mark.parametrize(("rule", "given"), [("verbal_confidence >= 4", 80), ("p_known >= 0.5", -1)])
def test_a_value_on_another_scale_is_an_error_and_no_undefined_one(rule, given):
    start = int("p_known" not in rule)
    session = Session(Policy(rule=parse_rule(rule), start_round=start))
    with pytest.raises(UnknownSignalError, match=f"but {float(given)}"):
        session.observe(draft="Oslo", signals={rule.split()[0]: given})
    assert session.end("exhausted").answer == "Oslo"


def test_costs_whose_tokens_nobody_told_were_not_brought():
    session = session_of("tokens > 1000")
    unknown = Cost(**{**dict.fromkeys(COST_KINDS, 1.0), "output_tokens": NAN})
    with pytest.raises(UnknownSignalError, match="costs"):
        session.observe(Round(index=1, answer="a", costs={"generator": unknown}))


def test_a_judge_mark_is_missed_only_where_the_rule_needs_it():
    """A host that asks its judge lazily, where `Session.reads` says so, is right to leave it out elsewhere."""
    session = session_of("(answer_stable >= 1) & (judge_entailment >= 4)")
    session.observe(Round(index=1, answer="a"))
    session.observe(Round(index=2, answer="b"))
    with pytest.raises(UnknownSignalError, match="judge_entailment"):
        session.observe(Round(index=3, answer="b"))


def test_a_misspelt_signal_is_suggested():
    with pytest.raises(UnknownSignalError, match="'answer_stable'"):
        session_of("answer_stabel >= 1").observe(Round(index=1, answer="a"))


@pytest.mark.parametrize("embedding", [np.array([1.0, 0.0], np.float32), [1.0, 0.0]])  # a list as endpoints send it
def test_an_embedding_of_each_draft_is_all_that_convergence_needs(embedding):
    session = session_of("semantic(0.05)")
    drafts = [session.observe(draft="same", embedding=embedding) for _ in range(3)]
    assert [decision.stop for decision in drafts] == [False, False, True]


# --- whose model ----------------------------------------------------------------------------------------------------


def test_a_session_refuses_a_policy_of_another_model():
    with pytest.raises(ConfigMismatchError, match="running 'b'"):
        Session(TASR, depends={"model": "b"})
    Session(TASR, depends={"model": "a"})
    Session(TASR, depends={"corpus": "wiki"})


def test_a_session_that_knows_the_models_limits_refuses_before_round_one():
    with pytest.raises(LogprobsUnavailableError):
        Session(TASR, capabilities=frozenset())
    session = Session(TASR, capabilities=frozenset({"logprobs"}))
    assert not session.observe(Round(index=1, answer="a")).stop  # this reply had none; another will
    with pytest.raises(UnknownSignalError, match="own"):
        session_of("own > 1", capabilities=frozenset()).observe(Round(index=1, answer="a"))


# --- the library's own loops ----------------------------------------------------------------------------------------


def loop_of(rule: str, replies, **options) -> RetrievalLoop:
    policy = Policy(rule=parse_rule(rule), max_rounds=2, **options)
    return RetrievalLoop(
        model=ScriptedModel({"Q?": replies}, capabilities={"logprobs"}), retriever=InMemoryRetriever(), policy=policy
    )


@pytest.mark.parametrize("rule", ["critic_only", "semantic(0.05)", "judge_entailment >= 4", "rerank_score > 0"])
def test_a_retrieval_loop_refuses_what_none_of_its_parts_gives(rule):
    loop = loop_of(rule, ["a", "a"])
    with pytest.raises(ModelError, match="which needs"):
        loop.run("Q?", [PASSAGE])
    assert loop.model.calls == 0


@pytest.mark.parametrize("rule", ["score_gap > 1", "answer_margin > 1", "semantic(0.05)"])
def test_a_drafting_loop_refuses_what_none_of_its_parts_gives(rule):
    writer = ChatModel("m", base_url="http://127.0.0.1:9/v1", api_key="k", max_retries=0)
    with pytest.raises(ModelError, match="which needs"):
        DraftingLoop(writer=writer, policy=Policy(rule=parse_rule(rule))).run("Q?")


def test_one_reply_without_log_probabilities_does_not_end_a_question():
    outcome = loop_of("answer_margin > 1", ["a", "a"]).run("Q?", [PASSAGE, Passage(passage_id="2", title="2", text="")])
    assert (outcome.answer, outcome.error, outcome.decision.reason) == ("a", None, "max_rounds")
    assert math.isnan(outcome.decision.signals["answer_margin"])


def test_a_value_out_of_range_is_an_error_at_every_round():
    session = session_of("answer_f1_previous > 2")
    session.observe(Round(index=1, answer="a", signals={"answer_f1_previous": 0.5}))
    session.observe(Round(index=2, answer="b", signals={"answer_f1_previous": NAN}))
    with pytest.raises(UnknownSignalError, match="but 50"):
        session.observe(Round(index=3, answer="c", signals={"answer_f1_previous": 50}))
    with pytest.raises(UnknownSignalError, match="but -1"):
        session.observe(Round(index=4, answer="d", signals={"answer_f1_previous": -1.0}))
    session = session_of("answer_f1_previous > 2", missing="ignore")
    assert [session.observe(Round(index=1, answer="a", signals={"answer_f1_previous": 50.0})).stop] == [False]


@pytest.mark.parametrize("rule", ["round >= 1", "calls >= 1", "vote_share >= 1"])
def test_a_host_may_name_what_a_policy_computes_itself(rule):
    told = {"round": 7.0, "calls": 0.0, "vote_share": 0.0}
    round_1 = Round(index=1, answer="Oslo", signals=told, costs={"generator": Cost(calls=1)})
    assert Session(rule).observe(round_1).stop


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda session: session.observe(Round(index=1, answer="a", costs={"writer": 3})), "'writer'"),
        (lambda session: session.observe(Round(index=1, answer=3)), "answer is"),
        (lambda session: session.observe(draft=3), "draft is"),
        (lambda session: session.observe("a text"), "draft="),
        (lambda session: session.reads("a text"), "observes a Round"),
    ],
)
def test_a_value_of_another_type_is_an_error_naming_the_type(call, what):
    session = session_of("fixed_k(3)")
    with pytest.raises(DataError, match=what):
        call(session)
    assert (session.rounds, session.next_round) == ([], 1)
