"""A gated round 0: what is asked, what is generated, what it costs, and that live equals replayed."""

from __future__ import annotations

import asyncio
import logging
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from suffice import (
    Passage,
    Policy,
    Reply,
    RetrievalLoop,
    ScriptedModel,
    calibrate,
    parse_rule,
    parse_selector,
    read_recording,
    record,
)
from suffice.errors import AuthenticationFailedError, ConfigMismatchError, DataError, ModelError
from suffice.evaluation.replay import LIVE, CostTable, policy_for, replay
from suffice.evaluation.statistics import Resampling
from suffice.loops.models import Gate
from suffice.loops.retrieval import InMemoryRetriever, Question
from suffice.policy.rounds import COST_KINDS
from suffice.policy.session import stops
from suffice.policy.signals import Idf
from tests.suffice.loops.test_loop import Judge
from tests.suffice.loops.test_loop_replay import pool
from tests.support import strategies as drawn
from tests.support.gating import ScriptedGate

ROUNDS = 3
QUESTION = "Who made it?"
GIVES = ("logprobs", "token_logprobs", "verbal_confidence")
KNOWN = [math.nan, 0.0, 0.3, 0.6, 0.95, 1.0]
BETA = st.builds("p_known {} {}".format, st.sampled_from([">", ">="]), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
READS = ("p_known", "answer_margin", "verbal_confidence", "judge_entailment", "own", *drawn.COMPUTED)
RULES = st.one_of(
    BETA.map(parse_rule),
    st.builds("({}) | ((answer_stable >= 1) & (p_correct > 0.25))".format, BETA).map(parse_rule),
    st.builds("({}) & (abstained < 1)".format, BETA).map(parse_rule),
    st.builds("({}) | ((round >= 1) & (calls >= 2))".format, BETA).map(parse_rule),
    drawn.rules((*READS, "p_correct", "round", "calls", "tokens")),
)


def passages(n=4):
    return [Passage(passage_id=str(i), title=f"t{i}", text=f"text {i}") for i in range(n)]


def gated(script, known, rule="p_known > 0.5", *, resumes=True, policy=None, failures=None, gate_failures=None, **more):
    model = ScriptedModel(script, capabilities=GIVES, failures=failures)
    gate = ScriptedGate(known, model if resumes else None, gate_failures)
    policy = policy or Policy(rule=parse_rule(rule), start_round=0, max_rounds=ROUNDS)
    return RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=policy, gate=gate, **more)


def run(loop, how, given=None):
    given = passages() if given is None else given
    return loop.run(QUESTION, given) if how == "sync" else asyncio.run(loop.run_async(QUESTION, given))


both = pytest.mark.parametrize("how", ["sync", "async"])
SCRIPT = {QUESTION: ["Titus", "Storm", "the Tempest", "the Tempest"]}


def test_the_double_is_a_gate():
    assert isinstance(ScriptedGate({}), Gate)


@both
def test_a_confident_gate_answers_without_reading_prompt_tokens_again(how):
    loop = gated(SCRIPT, {QUESTION: 0.9})
    outcome = run(loop, how)
    assert (outcome.answer, outcome.decision.stop_round, outcome.decision.fired) == ("Titus", 0, "p_known > 0.5")
    assert (loop.gate.asked, loop.gate.resumed) == ([QUESTION], [QUESTION])
    assert outcome.costs["gate"].uncached_tokens == 3
    assert (outcome.costs["generator"].uncached_tokens, outcome.costs["generator"].output_tokens) == (0, 1)
    assert outcome.cost.calls == 1
    assert outcome.rounds[0].signals["p_known"] == 0.9


@both
def test_a_gate_of_another_model_decides_and_the_loops_own_model_answers(how):
    loop = gated(SCRIPT, {QUESTION: 0.9}, resumes=False)
    outcome = run(loop, how)
    assert outcome.answer == "Titus"
    assert outcome.costs["generator"].uncached_tokens == 3  # a prefill of its own
    other = gated(SCRIPT, {QUESTION: 0.9})
    other.gate.source = ScriptedModel({QUESTION: ["the other model's answer"]})
    assert run(other, how).answer == "Titus"


@both
def test_an_unsure_gate_retrieves_without_a_closed_book_answer(how):
    loop = gated(SCRIPT, {QUESTION: 0.4}, "(p_known > 0.5) | (answer_stable >= 1)")
    outcome = run(loop, how)
    assert (outcome.answer, outcome.decision.stop_round) == ("the Tempest", 3)
    assert (loop.gate.resumed, [len(given) for _, given in loop.model.requests]) == ([], [1, 2, 3])
    assert outcome.rounds[0].answer is None
    assert set(outcome.rounds[0].costs) == {"gate"}
    assert math.isnan(outcome.decision.signals["p_known"])  # known at round 0 and at no other


@pytest.mark.parametrize(
    ("rule", "selector", "answered"),
    [
        ("p_known > 0.5", "last", False),
        ("(p_known > 0.5) | (answer_stable >= 1)", "last", False),
        ("(p_known > 0.5) & (abstained < 1)", "last", False),
        ("(abstained >= 1) & (p_known > 0.5)", "last", True),
        ("(p_known > 0.5) | (abstained >= 1)", "last", True),
        ("(p_known > 0.3) & (answer_margin > 3)", "last", True),
        ("first_of((p_known > 0.5), (round >= 2))", "last", False),
        ("(p_known > 0.5) | ((round >= 2) & (calls >= 2))", "last", True),
        ("p_known > 0.5", "first", True),
        ("p_known > 0.5", "majority", True),
        ("patience((abstained >= 1), 2)", "last", True),
        ("round >= 2", "last", False),
    ],
)
@both
def test_the_closed_book_answer_is_generated_only_where_the_policy_reads_it(rule, selector, answered, how):
    policy = Policy(rule=parse_rule(rule), selector=parse_selector(selector), start_round=0, max_rounds=ROUNDS)
    loop = gated(SCRIPT, {QUESTION: 0.4}, policy=policy)
    outcome = run(loop, how)
    assert (loop.gate.resumed == [QUESTION]) == answered
    assert (outcome.rounds[0].answer == "Titus") == answered


@both
def test_a_calibrated_one_does_not_skip_retrieval_at_beta_one(how):
    """CBDR's text says >, its algorithm >=; beta = 1 is defined as "always retrieve"."""
    assert run(gated(SCRIPT, {QUESTION: 1.0}, "p_known > 1"), how).decision.stop_round == ROUNDS
    assert run(gated(SCRIPT, {QUESTION: 1.0}, "p_known >= 1"), how).decision.stop_round == 0


@both
def test_a_gate_that_fails_leads_to_retrieval_and_says_so(how, caplog):
    loop = gated(SCRIPT, {QUESTION: 0.9}, gate_failures={1: ModelError("out of memory")})
    with caplog.at_level(logging.WARNING):
        outcome = run(loop, how)
    assert (outcome.answer, outcome.decision.stop_round, outcome.error) == ("the Tempest", ROUNDS, None)
    assert math.isnan(outcome.rounds[0].signals["p_known"])
    assert "gate" not in outcome.costs
    assert "out of memory" in caplog.text


@both
def test_refused_credentials_of_a_gate_are_an_error(how):
    loop = gated(SCRIPT, {QUESTION: 0.9}, gate_failures={1: AuthenticationFailedError("401")})
    with pytest.raises(AuthenticationFailedError):
        run(loop, how)


@both
def test_an_answer_that_fails_after_the_gate_keeps_what_was_paid(how):
    outcome = run(gated(SCRIPT, {QUESTION: 0.9}, failures={1: ModelError("down")}), how)
    assert (outcome.answer, outcome.decision.reason, str(outcome.error)) == (None, "failed", "down")
    assert outcome.costs["gate"].calls == 1


@both
def test_a_model_that_fails_after_retrieval_leaves_the_closed_book_answer(how):
    loop = gated(SCRIPT, {QUESTION: 0.1}, failures={1: ModelError("context too long")})
    outcome = run(loop, how)
    assert (outcome.answer, outcome.decision.reason, outcome.decision.answer_round) == ("Titus", "failed", 0)
    assert str(outcome.error) == "context too long"


@both
def test_without_any_evidence_the_closed_book_answer_is_generated_after_all(how):
    loop = gated(SCRIPT, {QUESTION: 0.1})
    outcome = run(replace(loop, retriever=InMemoryRetriever([])), how, given=[])
    assert (outcome.answer, outcome.decision.reason) == ("Titus", "exhausted")


@both
def test_without_a_later_answer_the_closed_book_one_is_generated(how):
    loop = gated({QUESTION: ["Titus", None, " ", None]}, {QUESTION: 0.1}, "(p_known > 0.5) | (round >= 2)")
    outcome = run(loop, how)
    assert (outcome.answer, outcome.decision.stop_round, outcome.decision.answer_round) == ("Titus", 2, 0)
    assert loop.gate.resumed == [QUESTION]
    assert [observed.answer for observed in outcome.rounds] == ["Titus", None, " "]


@both
def test_a_round_of_an_unanswered_gate_is_not_judged(how):
    judge = Judge(5.0)
    loop = gated(
        SCRIPT, {QUESTION: 0.1}, "(p_known > 0.5) | ((round >= 1) & (judge_entailment >= 4))", enrichers=(judge,)
    )
    outcome = run(loop, how)
    assert (judge.asked, outcome.decision.stop_round, loop.gate.resumed) == ([1], 1, [])
    eager = gated(SCRIPT, {QUESTION: 0.1}, "(p_known > 0.5) | (own >= 4)", enrichers=(Judge(5.0, "judge:own", "own"),))
    outcome = run(eager, how)
    assert (outcome.decision.stop_round, eager.gate.resumed) == (0, [QUESTION])  # a judge judges an answer


def test_a_gate_needs_a_round_0():
    loop = gated(SCRIPT, {QUESTION: 0.9}, policy=Policy(rule=parse_rule("p_known > 0.5")))
    with pytest.raises(DataError, match="start_round=0"):
        loop.run(QUESTION, passages())


def test_a_p_known_rule_without_a_gate_is_refused_before_calls():
    model = ScriptedModel(SCRIPT)
    policy = Policy(rule=parse_rule("p_known > 0.5"), start_round=0)
    with pytest.raises(ModelError, match="--gate"):
        RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=policy).run(QUESTION, passages())
    assert model.calls == 0


def test_a_policy_pins_its_gate_and_refuses_another(tmp_path):
    policy = Policy(rule=parse_rule("p_known > 0.5"), start_round=0, max_rounds=ROUNDS)
    first = gated(SCRIPT, {QUESTION: 0.9}, policy=policy)
    pinned = Policy.from_dict({**policy.to_dict(), "depends": first.pinned})
    pinned.save(tmp_path / "p.json")
    loaded = Policy.load(tmp_path / "p.json")
    assert gated(SCRIPT, {QUESTION: 0.9}, policy=loaded).run(QUESTION, passages()).answer == "Titus"
    with pytest.raises(ConfigMismatchError, match="gate"):
        gated(SCRIPT, {QUESTION: 0.8}, policy=loaded).run(QUESTION, passages())


def questions(n=3):
    return [
        Question(question_id=f"q{i}", question=f"question {i}", answers=("the Tempest",), passages=pool(i, 4))
        for i in range(n)
    ]


def recordable(n=3, **more):
    script = {f"question {i}": ["Titus", "Storm", "the Tempest", "the Tempest"] for i in range(n)}
    return gated(script, {f"question {i}": 0.3 * i for i in range(n)}, **more)


def test_a_recording_holds_decision_and_answer_of_every_round_0(tmp_path):
    loop = recordable()
    summary = record(questions(), loop, tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    np.testing.assert_equal(recording.column("p_known")[:, 0], [0.0, 0.3, 0.6])
    assert np.isnan(recording.column("p_known")[:, 1:]).all()
    assert (recording.column("cost.gate.uncached_tokens")[:, 0] == 2).all()
    assert (recording.column("cost.gate.calls")[:, 1:] == 0).all()
    assert (recording.column("cost.generator.uncached_tokens")[:, 0] == 0).all()
    assert (recording.column("cost.generator.output_tokens")[:, 0] == 1).all()
    assert recording.answers[:, 0].tolist() == ["Titus"] * 3
    assert summary.costs["gate"].calls == 3
    assert recording.metadata["depends"]["gate"] == loop.gate.fingerprint()


def test_an_interrupted_recording_keeps_the_decision_that_was_paid(tmp_path):
    """The second question's answer fails after its gate: the next run asks for the answer alone, and books one decision."""
    path = tmp_path / "r.parquet"
    first = recordable(resumes=False, failures=lambda number: ModelError("down") if number == 5 else None)
    summary = record(questions(), first, path, concurrency=1)
    assert list(summary.failed) == ["q1"]
    second = recordable(resumes=False)
    record(questions(), second, path, concurrency=1)
    assert second.gate.asked == []
    recording = read_recording(path)
    np.testing.assert_equal(recording.column("cost.gate.calls")[:, 0], [1, 1, 1])
    assert recording.answers[:, 0].tolist() == ["Titus"] * 3


def test_after_an_interruption_the_gates_pass_is_repeated_but_booked_once(tmp_path):
    path = tmp_path / "r.parquet"
    record(questions(), recordable(failures=lambda n: ModelError("down") if n == 5 else None), path, concurrency=1)
    second = recordable()
    summary = record(questions(), second, path, concurrency=1)
    assert (second.gate.asked, summary.costs.get("gate")) == (["question 1"], None)
    uninterrupted = recordable()
    record(questions(), uninterrupted, tmp_path / "whole.parquet", concurrency=1)
    whole, resumed = read_recording(tmp_path / "whole.parquet"), read_recording(path)
    for name in whole.names("cost"):
        if "seconds" not in name:
            np.testing.assert_equal(resumed.column(name), whole.column(name))


def test_a_gate_failing_while_recording_fails_the_question_and_loses_nothing(tmp_path):
    path = tmp_path / "r.parquet"
    loop = recordable(gate_failures={2: ModelError("down")})
    assert list(record(questions(), loop, path, concurrency=1).failed) == ["q1"]
    assert not record(questions(), recordable(), path, concurrency=1).failed
    assert read_recording(path).column("p_known")[:, 0].tolist() == [0.0, 0.3, 0.6]


@st.composite
def worlds(draw):
    """Questions with scripted replies, what a judge says of each round, and what the gate says of the question."""
    asked, script, marks, known = [], {}, {}, {}
    for number in range(draw(st.integers(2, 4))):
        text = f"question {number} of the tempest"
        size = draw(st.integers(1, ROUNDS + 1))
        asked.append(
            Question(question_id=f"q{number}", question=text, answers=("the Tempest",), passages=pool(number, size))
        )
        lines = []
        for r in range(ROUNDS + 1):
            values = {
                name: draw(st.sampled_from(drawn.MEASURED[name])) for name in ("answer_margin", "verbal_confidence")
            }
            lines.append(Reply(answer=draw(st.sampled_from(drawn.ANSWERS)), signals=values))
            marks["judge_entailment", text, r] = draw(st.sampled_from(drawn.MEASURED["judge_entailment"]))
            marks["own", text, r] = draw(st.sampled_from(drawn.MEASURED["own_judge"]))
        script[text] = lines
        known[text] = draw(st.sampled_from(KNOWN))
    return asked, script, marks, known


def fresh(world, policy, resumes):
    _, script, marks, known = world

    def judge(name, signal):
        return Judge(lambda question, given: marks[signal, question, len(given)], name, signal)

    enrichers = (judge("judge:entailment", "judge_entailment"), judge("judge:own", "own"))
    return gated(script, known, policy=policy, resumes=resumes, enrichers=enrichers)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds(), st.lists(RULES, min_size=2, max_size=5), drawn.selectors(), st.booleans(), st.booleans())
def test_live_equals_replayed_stop_answer_and_every_cost(world, rules, selector, resumes, is_async):
    asked, *_ = world
    base = {"max_rounds": ROUNDS, "start_round": 0, "state": {"overlap": Idf.fit(["tempest storm"])}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.parquet"
        record(asked, fresh(world, Policy(**base), resumes), path)
        recording = read_recording(path)
    table = CostTable(recording)
    for rule in rules:
        policy = Policy(rule=rule, selector=selector, calibrators=(drawn.CALIBRATOR,), **base)
        replayed = stops(policy, recording.rounds(policy.raw_columns))
        reasons = replayed.reasons(recording.ends, ROUNDS)
        ledger = table.charge(LIVE.policy_masks(table, policy, replayed))
        loop = fresh(world, policy, resumes)
        for question, outcome in zip(asked, outcomes_of(loop, asked, is_async), strict=True):
            q = recording.question_ids.index(question.question_id)
            decision, chosen = outcome.decision, int(replayed.answer_rounds[q])
            answer = recording.answers[q, chosen] if chosen >= 0 else None
            assert (decision.stop_round, decision.reason) == (int(replayed.rounds[q]), reasons[q])
            assert (decision.answer_round, decision.answer) == (None if chosen < 0 else chosen, answer)
            for component, kinds in ledger.costs.items():
                spent = outcome.costs.get(component)
                for kind in COST_KINDS if component != "retrieval" else ("calls",):
                    paid = 0.0 if spent is None else getattr(spent, kind)
                    np.testing.assert_allclose(paid, kinds[kind][q], err_msg=f"{rule}: {component} {kind}")


def outcomes_of(loop, asked, is_async):
    async def one_by_one():
        return [await loop.run_async(question.question, question.passages) for question in asked]

    if is_async:
        return asyncio.run(one_by_one())
    return [loop.run(question.question, question.passages) for question in asked]


def test_replay_of_a_gate_shows_what_it_saves(tmp_path):
    record(questions(), recordable(), tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    gate = Policy(rule=parse_rule("p_known > 0.5"), start_round=0, max_rounds=ROUNDS)
    result = replay(recording, [gate], baseline="full", resampling=Resampling(n_resamples=50))
    row = next(row for row in result.rows if row.kind == "rule")
    assert row.calls.mean == pytest.approx((1 + 3 + 1 + 3 + 1) / 3)  # a pass that goes on is one call


def test_a_p_known_rule_starts_at_round_0_if_recorded(tmp_path):
    record(questions(), recordable(), tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    assert policy_for(recording, "(p_known > 0.5) | (answer_stable >= 1)").start_round == 0
    assert policy_for(recording, "answer_stable").start_round == 1
    policy, _ = calibrate(recording, rule="(p_known > 0.5) | (answer_stable >= 1)")
    assert (policy.start_round, policy.depends["gate"]["kind"]) == (0, "scripted")
