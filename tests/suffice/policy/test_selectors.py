"""Selectors over many questions at once choose in each what a plain loop chooses there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import RuleSyntaxError
from suffice.evaluation.replay import policy_for
from suffice.policy.metrics import answer_key
from suffice.policy.rounds import Round, Rounds
from suffice.policy.rules import (
    FirstOf,
    fixed_k,
    parse_rule,
    parse_selector,
    register_rule,
    register_selector,
    round_aware,
    signal,
)
from suffice.policy.rules.algebra import find_threshold
from suffice.policy.session import Policy, Session, stops
from suffice.recordings import Recording
from suffice.recordings.schema import build_table

NAN = math.nan
SELECTORS = ("first", "last", "majority", "weighted_majority", "max_x", "min_x", "median_x", "longest_run(x >= 2)")
ROUND = st.tuples(
    st.sampled_from([None, " ", "a", "the A", "b", "c"]), st.sampled_from([NAN, -1.0, 0.0, 1.0, 2.0, 7.0])
)
QUESTIONS = st.integers(1, 6).flatmap(
    lambda n: st.lists(
        st.tuples(st.lists(ROUND, min_size=n, max_size=n), st.integers(1, n), st.integers(0, n - 1)),
        min_size=1,
        max_size=4,
    )
)
"""Questions of as many rounds: answers and values, how many were seen, and where the stop is."""


def chosen(text, rounds, n_seen, stop):
    """Return the position that a selector must choose in one question."""
    usable = [r for r, (answer, _) in enumerate(rounds) if answer and answer.strip() and r < n_seen and r <= stop]
    values = {r: rounds[r][1] for r in usable if not math.isnan(rounds[r][1])}
    if not usable:
        return -1
    if text == "first":
        return usable[0]
    if text.endswith("majority"):
        weights = dict.fromkeys(usable, 1.0) if text == "majority" else values
        votes = {r: sum(weights[o] for o in weights if key(rounds, o) == key(rounds, r)) for r in weights}
        return max(votes, key=lambda r: (votes[r], r), default=usable[-1])
    if text.startswith("longest_run"):
        lengths = {}
        for r in usable:
            lengths[r] = 1 + (lengths.get(r - 1, 0) if values.get(r, NAN) >= 2 else 0)
        return max(lengths, key=lambda r: (lengths[r], r))
    ordered = sorted(values.values())
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2 if ordered else NAN
    merit = {
        "last": lambda r: r,
        "max_x": lambda r: values[r],
        "min_x": lambda r: -values[r],
        "median_x": lambda r: -abs(values[r] - middle),
    }[text]
    return max(values, key=lambda r: (merit(r), r), default=usable[-1]) if text != "last" else usable[-1]


def key(rounds, r):
    return answer_key(rounds[r][0])


@pytest.mark.parametrize("text", SELECTORS)
@settings(max_examples=25)
@given(questions=QUESTIONS)
def test_many_questions_are_answered_as_a_plain_loop_answers_each(text, questions):
    x = np.array([[value for _, value in rounds] for rounds, _, _ in questions])
    answers = np.array([[answer for answer, _ in rounds] for rounds, _, _ in questions], dtype=object)
    n_rounds = x.shape[1]
    seen = np.array([np.arange(n_rounds) < n_seen for _, n_seen, _ in questions])
    rounds = Rounds({"x": x, "p_correct": x}, np.arange(1, n_rounds + 1), seen, answers)
    positions = parse_selector(text).select(rounds, np.array([stop for _, _, stop in questions]))
    assert positions.tolist() == [chosen(text, *question) for question in questions]


def test_what_is_registered_is_what_its_name_builds():
    register_rule("test_at_last", fixed_k)
    register_selector("test_best", lambda: parse_selector("max_x"))
    assert parse_rule("test_at_last(3)") == fixed_k(3)
    assert parse_selector("test_best()") == parse_selector("max_x")


def test_round_aware_asks_for_80_percent_by_default():
    assert round_aware() == parse_rule("round_aware") == round_aware(0.8)


def test_a_rule_without_a_threshold_on_a_signal_names_those_it_has():
    with pytest.raises(RuleSyntaxError, match="b <= 2$"):
        find_threshold(parse_rule("(a > 1) & (b <= 2)"), "c")
    with pytest.raises(RuleSyntaxError, match="none$"):
        find_threshold(parse_rule("never()"), "c")


def test_a_weight_scales_a_sum_and_what_is_in_it():
    assert str(2 * (0.5 * signal("a") + signal("b")) > 0) == "a + 2 * b > 0"


def test_the_part_that_held_is_named_within_a_cascade():
    inner = (signal("a") > 0) | (signal("b") > 0)
    rounds = Rounds.from_columns({"a": [0.0], "b": [1.0], "c": [0.0]})
    assert FirstOf((signal("c") > 0, inner)).held(rounds) == "b > 0"


@pytest.mark.parametrize(
    ("rule", "meant"),
    [
        ("patience((quality < 0.5), 2)", "max_quality"),
        ("(answer_stable >= 1) & (own_score > 3) & (top_score > 1) & (rerank_score > 0)", "max_own_score"),
        ("tasr", "max_p_correct"),
        ("(p_correct > 0.5) | (answer_margin > 2)", "max_p_correct"),
        ("semantic_full_bge", None),
        ("(quality > 1) | (p_correct > 0.9)", None),
        ("answer_stable", None),
        ("score_gap > 1", None),
    ],
)
def test_the_best_round_is_that_of_the_one_signal_of_quality(rule, meant):
    if meant is not None:
        policy = Policy(rule=rule, selector="best")
        assert str(policy.selector) == meant
        assert Policy.from_dict(policy.to_dict()).selector == policy.selector
        return
    with pytest.raises(RuleSyntaxError, match="max_"):
        Policy(rule=rule, selector="best")


def test_an_ambiguous_best_names_the_signals():
    with pytest.raises(RuleSyntaxError, match="max_p_correct or max_quality"):
        Policy(rule="(quality > 1) | (p_correct > 0.9)", selector="best")


def test_a_recordings_best_round_follows_its_quality_signal():
    rows = [
        {"question_id": "q", "round": r, "answer": f"a{r}", "em": 0.0, "quality": q, "verbal_confidence": NAN}
        for r, q in enumerate([0.2, 0.9, 0.1], start=1)
    ]
    recording = Recording(build_table(rows, {"quality": "signal"}))
    for selector in ("best", parse_selector(" best ")):
        policy = policy_for(recording, "full", selector=selector)
        assert str(policy.selector) == "max_quality"
        assert stops(policy, recording.rounds(policy.raw_columns)).answer_rounds.tolist() == [2]
    with pytest.raises(RuleSyntaxError, match="of quality"):
        policy_for(Recording(build_table([{**row, "quality": None} for row in rows])), "full", selector="best")


def test_a_session_returns_the_best_round():
    session = Session(Policy(rule="patience((quality < 0.5), 2)", selector="best"))
    for quality in (0.6, 0.8, 0.4, 0.3):
        decision = session.observe(draft=f"draft {quality}", signals={"quality": quality})
    assert (decision.stop_round, decision.answer) == (4, "draft 0.8")


def test_similar_drafts_stop_without_a_threshold_to_know():
    drafts = [
        "It lies in Oslo, by the sea.",
        None,
        "Rome.",
        "The tower lies in Oslo by the sea",
        "The tower, it lies in Oslo by the sea",
    ]
    session = Session("similar")
    decisions = [session.observe(draft=draft or "") for draft in drafts]
    assert [decision.stop for decision in decisions] == [False] * 4 + [True]
    assert decisions[-1].fired == "answer_f1_previous >= 0.8"
    assert [math.isnan(decision.signals["answer_f1_previous"]) for decision in decisions] == [
        True,
        True,
        True,
        False,
        False,
    ]
    again = Policy(rule="similar(1)").decide([Round(index=r, answer=draft) for r, draft in enumerate(drafts, 1)])
    assert again.reason == "max_rounds"


def test_best_without_a_policy_uses_the_quality_signal_column():
    among = np.ones((1, 3), dtype=np.bool_)
    rounds = Rounds({"quality": np.array([[0.2, 0.9, 0.4]])}, np.array([1, 2, 3]), among)
    assert parse_selector("best").among(rounds, among).tolist() == [1]
    assert str(parse_selector("best")) == "best"
