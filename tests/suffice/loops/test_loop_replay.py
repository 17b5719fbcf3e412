"""Live equals replayed: any model, rule and selector, question by question, stop by stop, call by call."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from suffice import Passage, Policy, Reply, RetrievalLoop, ScriptedModel, calibrate, parse_rule, read_recording, record
from suffice.errors import DataError
from suffice.evaluation.replay import replay
from suffice.evaluation.statistics import Resampling
from suffice.loops.retrieval import InMemoryRetriever, PoolBM25, Question
from suffice.policy.session import stops
from suffice.policy.signals import Idf
from tests.suffice.loops.test_loop import Judge
from tests.support import strategies as drawn

ROUNDS = 4
SIGNALS = ("answer_margin", "verbal_confidence", "overlap", "score_gap", "judge_entailment", "rerank_score", "own")
RULES = drawn.rules((*SIGNALS, *drawn.COMPUTED, "p_correct", "round", "calls", "tokens"))
GIVES = ("logprobs", "token_logprobs", "verbal_confidence")
VALUES = {**drawn.MEASURED, "rerank_score": [math.nan, -3.0, 0.0, 0.5, 3.0], "own": drawn.MEASURED["own_judge"]}


def pool(number: int, size: int) -> tuple[Passage, ...]:
    words = ["tempest", "storm", "derek", "jarman", "island", "titus"]
    return tuple(
        Passage(passage_id=f"{number}-{i}", title=f"t{i}", text=" ".join(words[: 1 + (i + number) % 6]))
        for i in range(size)
    )


@st.composite
def worlds(draw):
    """Questions with scripted replies, and what judges say of each round."""
    questions, script, marks = [], {}, {}
    for number in range(draw(st.integers(2, 4))):
        text = f"question {number} of the tempest"
        size = draw(st.integers(1, ROUNDS + 1))
        questions.append(
            Question(question_id=f"q{number}", question=text, answers=("the Tempest",), passages=pool(number, size))
        )
        lines = []
        for r in range(ROUNDS + 1):
            signals = {
                name: draw(st.sampled_from(VALUES[name])) for name in ("answer_margin", "verbal_confidence", "overlap")
            }
            lines.append(Reply(answer=draw(st.sampled_from(drawn.ANSWERS)), signals=signals))
            for name in ("judge_entailment", "rerank_score", "own"):
                marks[name, text, r] = draw(st.sampled_from(VALUES[name]))
        script[text] = lines
    return questions, script, marks


def fresh(script, marks, policy, retriever=None):
    """Return a loop of which no part has run before."""

    def judge(name, signal):
        return Judge(lambda question, passages: marks[signal, question, len(passages)], name, signal)

    return RetrievalLoop(
        model=ScriptedModel(script, capabilities=GIVES),
        retriever=retriever or InMemoryRetriever(),
        policy=policy,
        enrichers=(
            judge("judge:entailment", "judge_entailment"),
            judge("reranker", "rerank_score"),
            judge("judge:own", "own"),
        ),
    )


def compared(recording, policy, questions, loop):
    """Run every question live and hold it against the replay of the recording; return the outcomes."""
    replayed = stops(policy, recording.rounds(policy.raw_columns))
    reasons = replayed.reasons(recording.ends, policy.max_rounds)
    place = {question_id: q for q, question_id in enumerate(recording.question_ids)}
    outcomes = []
    for question in questions:
        q = place[question.question_id]
        outcomes.append(loop.run(question.question, question.passages))
        decision = outcomes[-1].decision
        chosen = int(replayed.answer_rounds[q])
        answer = recording.answers[q, int(np.searchsorted(recording.index, chosen))] if chosen >= 0 else None
        assert (decision.stop_round, decision.reason) == (int(replayed.rounds[q]), reasons[q])
        assert (decision.answer_round, decision.answer) == (None if chosen < 0 else chosen, answer)
    return outcomes


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds(), st.lists(RULES, min_size=3, max_size=6), drawn.selectors(), st.sampled_from([0, 1]), st.booleans())
def test_live_equals_replayed_for_any_model_rule_and_selector(world, rules, selector, start_round, bm25):
    questions, script, marks = world
    retriever = PoolBM25() if bm25 else InMemoryRetriever()
    state = {"overlap": Idf.fit(p.text for question in questions for p in question.passages)}
    base = {"state": state, "max_rounds": ROUNDS, "start_round": start_round}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.parquet"
        record(questions, fresh(script, marks, Policy(**base), retriever), path, concurrency=3)
        recording = read_recording(path)
    for rule in rules:
        policy = Policy(rule=rule, selector=selector, calibrators=(drawn.CALIBRATOR,), **base)
        compared(recording, policy, questions, fresh(script, marks, policy, retriever))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds(), st.lists(RULES, min_size=2, max_size=4))
def test_a_later_starting_policy_replays_a_recording_from_round_0(world, rules):
    questions, script, marks = world
    state = {"overlap": Idf.fit(p.text for question in questions for p in question.passages)}
    base = {"state": state, "max_rounds": ROUNDS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.parquet"
        record(questions, fresh(script, marks, Policy(start_round=0, **base)), path)
        recording = read_recording(path)
    for rule in rules:
        policy = Policy(rule=rule, calibrators=(drawn.CALIBRATOR,), **base)
        compared(recording, policy, questions, fresh(script, marks, policy))


def world_of(n=20):
    """Return enough questions to fit calibrators on: right ones are surer."""
    rng = np.random.default_rng(5)
    questions, script, marks = [], {}, {}
    for number in range(n):
        text = f"question {number} of the tempest"
        questions.append(
            Question(
                question_id=f"q{number}",
                question=text,
                answers=("the Tempest",),
                passages=pool(number, int(rng.integers(2, 7))),
            )
        )
        answers = rng.choice(["the Tempest", "Storm", "not mentioned"], size=ROUNDS + 1)
        script[text] = [
            Reply(
                answer=str(answer),
                signals={
                    "answer_margin": float(rng.gamma(4 if "Tem" in answer else 1)),
                    "verbal_confidence": float(rng.integers(1, 6)),
                },
            )
            for answer in answers
        ]
        for r in range(ROUNDS + 1):
            marks |= {("judge_entailment", text, r): float(rng.integers(1, 6)), ("rerank_score", text, r): rng.normal()}
            marks["own", text, r] = rng.random()
    return questions, script, marks


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    questions, script, marks = world_of()
    path = tmp_path_factory.mktemp("recorded") / "r.parquet"
    state = {"overlap": Idf.fit(p.text for question in questions for p in question.passages)}
    record(questions, fresh(script, marks, Policy(max_rounds=ROUNDS, state=state), PoolBM25()), path)
    return questions, script, marks, read_recording(path)


FITTED = [
    "tasr",
    "tasr_guarded",
    "margin",
    "stable_and_entailed",
    "soft_sum",
    "(calibrated_confidence > 0.4) & (overlap < 0.5)",
    "top_score_z > 0.2",
    "patience((judge_entailment >= 3), 2)",
    "first_of((rerank_score > 1), (judge_entailment >= 5), (tokens > 40))",
    "(answer_stable >= 1) & (patience((judge_entailment >= 3), 2))",
    "k_of(2, (answer_stable >= 1), (p_correct > 0.4), (patience((rerank_score > 0), 3)))",
]


@pytest.mark.parametrize("rule", FITTED)
@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_fitted_policies_from_a_file_stop_and_spend_live_as_replayed(recorded, tmp_path, rule, method):
    questions, script, marks, recording = recorded
    policy, _ = calibrate(recording, rule=rule, method=method, unseen_round="nearest")
    policy.save(tmp_path / "p.json")
    loaded = Policy.load(tmp_path / "p.json")
    outcomes = compared(recording, loaded, questions, fresh(script, marks, loaded, PoolBM25()))
    row = next(
        row
        for row in replay(recording, [loaded], baseline="full", resampling=Resampling(n_resamples=10)).rows
        if row.kind == "rule"
    )
    spent = [cost for outcome in outcomes for name, cost in outcome.costs.items() if name != "retrieval"]
    language = [
        cost for outcome in outcomes for name, cost in outcome.costs.items() if name not in ("retrieval", "reranker")
    ]
    assert row.calls.mean == pytest.approx(sum(cost.calls for cost in language) / len(questions))
    assert row.costs["tokens"] == pytest.approx(sum(cost.tokens for cost in spent) / len(questions))


def test_a_selector_that_reads_a_judge_is_charged_live_as_replayed(recorded):
    from suffice import parse_selector

    questions, script, marks, recording = recorded
    policy = Policy(rule=parse_rule("answer_stable"), selector=parse_selector("max_own"), max_rounds=ROUNDS)
    compared(recording, policy, questions, fresh(script, marks, policy, PoolBM25()))


def test_a_misspelt_own_signal_is_an_error(recorded):
    questions, script, marks, _ = recorded
    policy = Policy(rule=parse_rule("onw > 0.5"), max_rounds=ROUNDS)
    with pytest.raises((DataError, LookupError), match="onw"):
        fresh(script, marks, policy).run(questions[0].question, questions[0].passages)
