"""Reasoning-aware self-consistency (Wan et al., 2024) against plain loops written from its paper."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from suffice import SamplingLoop, decide
from suffice.errors import DataError, NotFittedError, RuleSyntaxError, UnknownSignalError
from suffice.evaluation.replay import calibrate, replay
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.rounds import Round, Rounds
from suffice.policy.rules import parse_rule, parse_selector
from suffice.policy.session import Policy, Session
from suffice.policy.signals import RationaleScore, state_from_dict
from suffice.recordings import Recording
from suffice.recordings.schema import build_table
from tests.support.endpoint import Endpoint
from tests.support.sampling import models_of

WIDTH = 10
GOOD = "Step 1: Ann has two apples.\nStep 2: Ann buys two apples, so Ann has four apples."
BAD = "It is some number. I apologize, there was a mistake! Perhaps nine?"


def recorded(n: int = 80, *, with_text: bool = True) -> Recording:
    rng = np.random.default_rng(5)
    rows = []
    for q in range(n):
        for r in range(WIDTH):
            right = bool(rng.random() < 0.45)
            good = bool(rng.random() < (0.85 if right else 0.2))
            answer = "a" if right else "bc"[rng.integers(2)]
            row = {
                "question_id": f"q{q}",
                "round": r + 1,
                "answer": None if rng.random() < 0.04 else answer,
                "match": float(right),
                "question_relevance": 0.1 * int(rng.integers(4)) + 0.3 * good,
            }
            rows.append(row | ({"text": GOOD if good else BAD} if with_text else {}))
    kinds = {"match": "metric", "question_relevance": "signal"}
    return Recording(build_table(rows, kinds), {"exchangeable": True})


def fitted(recording: Recording, rule: str = "rasc(0.5, 3)") -> Policy:
    return calibrate(recording, rule=rule, selector=parse_selector("rasc(0.5)"))[0]


def plain_features(
    texts: list[str], relevance: list[float], answers: list[str | None]
) -> list[dict[str, float] | None]:
    rows: list[dict[str, float] | None] = []
    for i, answer in enumerate(answers):
        steps = re.split(r"Step \d:", texts[i])[1:] or re.split(r"[.!?] ", texts[i])
        words = [set(re.findall(r"\w+", step.lower())) for step in steps]
        shares = [len(a & b) / len(a | b) for a, b in pairwise(words)]
        before = [given for given in answers[:i] if given is not None]
        row = {
            "rationale_steps": float(len(steps)),
            "rationale_coherence": sum(shares) / len(shares),
            "rationale_doubt": float("apologize" in texts[i]),
            "question_relevance": relevance[i],
            "vote_repeats": float(i > 0 and answers[i - 1] == answer),
            "vote_joins": float(bool(before) and Counter(before).most_common(1)[0][0] == answer),
        }
        rows.append(None if answer is None else row)
    return rows


def plain_rasc(scores: list[float], answers: list[str | None], threshold: float, size: int) -> tuple[int, str]:
    buffer: list[int] = []
    seen = 0
    for i, score in enumerate(scores):
        seen = i + 1
        if score >= threshold:
            buffer.append(i)
        if len(buffer) >= size:
            break
    votes: dict[str, float] = {}
    for i in buffer or range(seen):
        given = answers[i]
        if given is not None:
            votes[given] = votes.get(given, 0.0) + scores[i]
    return seen, max(votes, key=votes.__getitem__)


def test_rasc_stops_and_answers_as_a_plain_reading_does():
    recording = recorded()
    policy = fitted(recording)
    state = policy.state["rationale_score"]
    assert isinstance(state, RationaleScore)
    stopped = PreparedRecording.of(recording, samples=True).stops(policy)
    texts, relevance = recording.objects("text"), recording.column("question_relevance")
    expected = set()
    for q in range(len(texts)):
        answers = list(recording.answers[q])
        scores = [
            math.nan
            if row is None
            else 1 / (1 + math.exp(-state.intercept - sum(state.weights[name] * value for name, value in row.items())))
            for row in plain_features(list(texts[q]), list(relevance[q]), answers)
        ]
        seen, answer = plain_rasc(scores, answers, 0.5, 3)
        expected.add(seen)
        assert (stopped.rounds[q], answers[stopped.answer_position[q]]) == (seen, answer)
    assert len(expected) > 3


def test_rasc_learns_what_good_reasoning_is():
    recording = recorded()
    rasc, full = replay(recording, [fitted(recording), "full"], metrics="match", orders=5).rows[:2]
    assert rasc.metrics["match"] > full.metrics["match"] + 0.1
    assert rasc.calls.mean < 8


def test_rasc_is_the_same_live_replayed_and_stored(tmp_path):
    recording = recorded(20)
    policy = fitted(recording)
    policy.save(tmp_path / "rasc.json")
    loaded = Policy.load(tmp_path / "rasc.json")
    assert loaded == policy
    stopped = PreparedRecording.of(recording, samples=True).stops(loaded)
    texts, relevance = recording.objects("text"), recording.column("question_relevance")
    for q in range(len(texts)):
        session = Session(loaded)
        for r in range(WIDTH):
            signals = {"question_relevance": float(relevance[q, r])}
            sample = Round(index=r + 1, answer=recording.answers[q][r], text=texts[q][r], signals=signals)
            decision = session.observe(sample)
            if decision.stop:
                break
        assert decision.stop_round == stopped.rounds[q]
        assert decision.answer == recording.answers[q][stopped.answer_position[q]]


def test_without_texts_rasc_says_so_live_and_recorded():
    with pytest.raises(UnknownSignalError, match="reads text"):
        fitted(recorded(with_text=False))
    policy = fitted(recorded(20))
    with pytest.raises(UnknownSignalError, match="brings no text"):
        Session(policy).observe(Round(index=1, answer="a", signals={"question_relevance": 0.2}))


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(NotFittedError, match="'rationale_score'"):
        Policy(rule="rasc", selector="rasc").check()
    with pytest.raises(UnknownSignalError, match="suffice calibrate"):
        replay(recorded(20), "rasc", metrics="match")
    with pytest.raises(DataError, match="right or wrong"):
        calibrate(recorded(20), rule="rasc", target="question_relevance")
    for weights, intercept in (({}, 0.0), ({"rationale_steps": math.nan}, 0.0), ({"rationale_steps": 1.0}, math.inf)):
        with pytest.raises(DataError, match="finite weight"):
            RationaleScore(weights, intercept)
    with pytest.raises(DataError, match="object of signals"):
        state_from_dict({"type": "rationale", "weights": [1], "intercept": 0.0})


def test_features_are_recorded_only_where_a_policy_reads_them():
    from suffice.policy.signals import compute_signals

    values = compute_signals([Round(index=1, answer="a", text=GOOD)], state={})
    assert not {"rationale_steps", "rationale_coherence", "rationale_doubt", "rationale_score"} & set(values)
    wanted = ["rationale_steps", "rationale_coherence", "rationale_doubt"]
    assert all(math.isnan(value) for value in compute_signals([Round(index=1)], wanted, state={}).values())


def test_times_counts_rounds_that_need_not_be_neighbours():
    rule = parse_rule("times((rationale_score >= 0.5), 2)")
    assert parse_rule(str(rule)) == rule == parse_rule("rasc(0.5, 2)")
    scores = [0.9, 0.1, math.nan, 0.5, 0.2]
    policy = Policy(rule=rule, max_rounds=9)
    session = Session(replace_state(policy))
    stops = []
    for r, score in enumerate(scores, 1):
        signals = {"rationale_steps": score}
        decision = session.observe(Round(index=r, answer="a", text="x", signals=signals))
        stops.append(decision.stop)
        if decision.stop:
            break
    assert stops == [False, False, False, True]
    with pytest.raises(RuleSyntaxError, match="n of times"):
        parse_rule("times((rationale_score >= 0.5), 0)")


def replace_state(policy: Policy) -> Policy:
    """Return the policy with a score that is at least .5 where the number of steps is at least .5."""
    from dataclasses import replace

    return replace(policy, state={"rationale_score": RationaleScore({"rationale_steps": 20.0}, -10.0)})


def test_the_mean_at_each_stop_is_that_of_tied_answers():
    recording = recorded(30)
    policy = fitted(recording)
    prepared = PreparedRecording.of(recording, samples=True)
    view = prepared.view(policy)
    values = recording.column("match")
    means = policy.selector.means_by_stop(view, values, lambda: np.full(values.shape, -1.0))
    assert means is not None
    answers = policy.selector.select(view, np.full(len(values), WIDTH - 1))
    given = recording.answers
    assert [means[q, -1] for q in range(30)] == [values[q, answers[q]] for q in range(30)]
    for q, r in ((q, r) for q in range(30) for r in range(WIDTH)):
        if means[q, r] >= 0:
            assert 0 <= means[q, r] <= 1
        else:
            assert all(answer is None for answer in given[q][: r + 1])


def test_decide_tries_rasc_where_the_texts_are_on_record():
    advice = decide(recorded(120), metric="match", max_loss=0.2, orders=3)
    tried = {policy.label: str(policy.selector) for policy in advice.trial.candidates}
    assert tried["rasc"] == "rasc(0.5)"
    without = decide(recorded(120, with_text=False), metric="match", max_loss=0.2, orders=3)
    assert "rasc" not in [policy.label for policy in without.trial.candidates]


def test_a_recording_without_the_relevance_to_the_question_is_fitted_and_said():
    rows = [{k: v for k, v in row.items() if k != "question_relevance"} for row in recorded(40).table.to_pylist()]
    other = Recording(build_table(rows, {"match": "metric"}), {"exchangeable": True})
    policy, summary = calibrate(other, rule="rasc", selector=parse_selector("rasc"))
    state = policy.state["rationale_score"]
    assert isinstance(state, RationaleScore)
    assert "question_relevance" not in state.weights
    assert any("fitted without question_relevance" in note for note in summary.notes)


def test_a_live_loop_measures_what_a_sample_shares_with_its_question():
    state = RationaleScore({"question_relevance": 20.0, "rationale_steps": 0.0}, -8.0)
    policy = Policy(rule="rasc(0.5, 2)", selector="rasc(0.5)", max_rounds=5, state={"rationale_score": state})
    replies = iter(["The tower is in Oslo.\nAnswer: Oslo", "No.\nAnswer: Rome", "The tower of Oslo.\nAnswer: Oslo"])
    with Endpoint(lambda body: next(replies)) as endpoint:
        outcome = SamplingLoop(model=models_of(endpoint), policy=policy).run("In which city is the tower?")
    assert (outcome.answer, outcome.decision.stop_round) == ("Oslo", 3)
    words = {"in", "which", "city", "is", "the", "tower"}
    said = {"the", "tower", "is", "in", "oslo", "answer"}
    assert outcome.rounds[0].signals["question_relevance"] == len(words & said) / len(words | said)


def test_times_reads_every_round_unless_one_is_enough():
    rounds = Rounds.from_columns({"a": [1.0, 0.0, 1.0]})
    asked = np.array([False, False, True])
    for n, read in ((1, asked), (2, rounds.seen)):
        (mask,) = parse_rule(f"times((a > 0), {n})").reads(rounds, asked).values()
        assert mask.tolist() == read.tolist()


def test_a_score_alone_is_undefined_since_a_policy_counts_the_votes():
    assert math.isnan(RationaleScore({"rationale_steps": 1.0}, 0.0).compute([Round(index=1)]))
