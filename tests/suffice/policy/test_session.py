"""Sessions: what one live question does, line by line of the semantics."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections import Counter

import numpy as np
import pytest

from suffice import (
    Calibrator,
    Cost,
    FirstOf,
    Never,
    Patience,
    Policy,
    Round,
    Rounds,
    Session,
    fixed_k,
    parse_rule,
    parse_selector,
    signal,
    tasr,
)
from suffice.errors import DataError, UnknownSignalError
from suffice.policy.rules import answer_stable
from suffice.policy.signals import SIGNALS

NAN = float("nan")


def play(policy: Policy, answers, **columns):
    """Observe one round per answer; `columns` are host-measured signals."""
    session = Session(policy)
    decision = None
    for position, answer in enumerate(answers):
        signals = {name: values[position] for name, values in columns.items()}
        decision = session.observe(Round(index=policy.start_round + position, answer=answer, signals=signals))
        if decision.stop:
            return decision
    return decision


def test_the_walk_through_of_the_paper_stops_at_round_3():
    decision = play(
        Policy(rule=tasr()), ["Titus Andronicus", "The Tempest", "the tempest."], p_correct=[0.3, 0.81, 0.8]
    )
    assert (decision.stop_round, decision.answer_round, decision.answer) == (3, 3, "the tempest.")
    assert decision.reason == "rule"
    assert decision.signals == {"answer_stable": 1.0, "p_correct": 0.8}


def test_a_rule_that_holds_at_the_last_round_beats_max_rounds():
    assert play(Policy(rule=fixed_k(3), max_rounds=3), ["a", "b", "c"]).reason == "rule"
    assert play(Policy(rule=fixed_k(4), max_rounds=3), ["a", "b", "c"]).reason == "max_rounds"


def test_starting_at_0_makes_one_call_more_than_max_rounds():
    assert play(Policy(rule=Never(), max_rounds=2, start_round=0), ["a", "b", "c"]).stop_round == 2
    assert not play(Policy(rule=Never(), max_rounds=2, start_round=0), ["a", "b"]).stop


def test_if_no_round_was_answered_the_reason_is_failed():
    decision = play(Policy(rule=fixed_k(2)), [None, "  "])
    assert (decision.reason, decision.answer, decision.answer_round, decision.fired) == ("failed", None, None, None)
    session = Session(Policy())
    assert session.end("failed").stop_round is None


@pytest.mark.parametrize("reason", ["exhausted", "failed", "cancelled"])
def test_a_loop_that_is_ended_from_outside_keeps_its_best_answer(reason):
    session = Session(Policy(rule=Never(), selector=parse_selector("max_p_correct")))
    session.observe(Round(index=1, answer="good", signals={"p_correct": 0.9}))
    session.observe(Round(index=2, answer="worse", signals={"p_correct": 0.1}))
    decision = session.end(reason)
    assert (decision.reason, decision.answer, decision.answer_round, decision.stop_round) == (reason, "good", 1, 2)
    assert session.decision is decision


def test_a_stopped_session_and_a_wrong_round_are_refused():
    session = Session(Policy(rule=fixed_k(1)))
    with pytest.raises(DataError, match="round 2"):
        session.observe(Round(index=2, answer="a"))
    session.observe(Round(index=1, answer="a"))
    with pytest.raises(DataError, match="after the stop"):
        session.observe(Round(index=2, answer="a"))
    with pytest.raises(DataError, match="already stopped"):
        session.end("failed")
    with pytest.raises(DataError, match="allowed: exhausted"):
        Session(Policy()).end("rule")


def test_stability_is_undefined_at_rounds_0_and_1():
    decision = play(Policy(rule=answer_stable(), start_round=0), ["a", "a"])
    assert not decision.stop
    assert math.isnan(decision.signals["answer_stable"])


def test_undefined_and_infinite_values_never_stop_the_loop():
    for value in (NAN, float("inf"), float("-inf")):
        assert not play(Policy(rule=parse_rule("p_correct > 0.1")), ["a"], p_correct=[value]).stop
        assert not play(Policy(rule=parse_rule("p_correct < 0.1")), ["a"], p_correct=[value]).stop
        assert not play(Policy(rule=parse_rule("my_own < 0.1")), ["a"], my_own=[value]).stop


@pytest.mark.parametrize(("spent", "reported"), [((float("inf"), 1.0), [NAN, NAN]), ((1e308, 1e308), [1e308, NAN])])
def test_a_cost_beyond_all_numbers_is_undefined_and_never_stops_the_loop(spent, reported):
    session = Session(Policy(rule=parse_rule("(tokens > 1.2e308) | (10 * tokens < 0)")))
    for r, (tokens, shown) in enumerate(zip(spent, reported, strict=True), start=1):
        decision = session.observe(Round(index=r, answer="a", costs={"generator": Cost(calls=1, output_tokens=tokens)}))
        assert not decision.stop
        np.testing.assert_equal(decision.signals["tokens"], shown)


def test_an_infinite_margin_is_clipped_to_its_range():
    decision = play(Policy(rule=signal("answer_margin") > 1), ["a"], answer_margin=[float("inf")])
    assert decision.stop
    assert decision.signals["answer_margin"] == 30.0


def test_patience_does_not_see_rounds_before_the_start():
    decision = play(Policy(rule=Patience(signal("x") > 0, 2), start_round=1), ["a", "a"], x=[1, 1])
    assert decision.stop_round == 2


def test_calls_and_tokens_count_the_loops_own_generation_since_the_start():
    policy = Policy(rule=parse_rule("(calls >= 2) & (tokens >= 220)"))
    costs = {
        "generator": Cost(calls=1, uncached_tokens=70, cached_tokens=30, output_tokens=10),
        "judge:entailment": Cost(calls=5, uncached_tokens=1000),
    }
    session = Session(policy)
    first = session.observe(Round(index=1, answer="a", costs=costs))
    assert first.signals == {"calls": 1.0, "tokens": 110.0}
    second = session.observe(Round(index=2, answer="a", costs=costs))
    assert second.stop
    assert second.signals == {"calls": 2.0, "tokens": 220.0}


def test_a_round_without_costs_has_unknown_and_not_zero_calls():
    session = Session(Policy(rule=parse_rule("calls < 100")), missing="ignore")
    decision = session.observe(Round(index=1, answer="a"))
    assert not decision.stop
    assert math.isnan(decision.signals["calls"])


def test_an_unknown_signal_is_an_error_and_not_a_silent_never():
    with pytest.raises(UnknownSignalError, match="no_such"):
        play(Policy(rule=parse_rule("no_such > 1")), ["a"])


def test_a_policys_calibrator_turns_the_raw_margin_into_p_correct():
    calibrator = Calibrator().fit([[0.0, 0.0], [4.0, 4.0]], [[0, 0], [1, 1]], index=[1, 2])
    decision = play(Policy(rule=tasr(), calibrators=(calibrator,)), ["a", "a"], answer_margin=[1.0, 2.0])
    assert decision.stop
    assert decision.signals["p_correct"] == pytest.approx(0.5)


def test_a_calibrated_signal_is_undefined_at_rounds_at_which_its_source_is():
    calibrator = Calibrator(output="p_correct", signal="score_gap", per_round=False).fit(
        [[0.1, 0.4], [2.0, 3.0]], [[0, 1], [1, 1]], index=[1, 2]
    )
    policy = Policy(rule=parse_rule("p_correct > 0"), calibrators=(calibrator,), start_round=0)
    source = SIGNALS["score_gap"]
    raw = Rounds.from_columns({"score_gap": [1.0, 1.0]}, start=0)
    assert np.isnan(policy.view(raw)["p_correct"]).tolist() == [not source.may_exist(r) for r in (0, 1)]
    assert source.first_round == 1


def test_text_with_the_hosts_patterns_makes_a_column_of_numbers():
    policy = Policy(rule=parse_rule("abstained >= 1"), abstain_patterns=("pass",))
    view = policy.view(Rounds.from_columns({"abstained": [0.0, 0.0]}, answers=["pass", "Oslo"]))
    assert view["abstained"].dtype == np.float64
    assert view["abstained"].tolist() == [1.0, 0.0]


def test_a_rule_that_was_not_called_is_refused_with_a_hint():
    with pytest.raises(DataError, match="Call it"):
        Policy(rule=tasr)
    with pytest.raises(DataError, match=r"not 3\.$"):
        Policy(rule=3)


def test_the_decision_names_the_member_of_a_cascade_that_held():
    rule = FirstOf((signal("approved") >= 1, fixed_k(2)))
    decision = play(Policy(rule=rule), ["a", "b"], approved=[0, 0])
    assert decision.fired == "round >= 2"


def test_a_decision_is_json_with_null_for_undefined():
    decision = play(Policy(rule=parse_rule("p_correct > 0.9")), ["a"], p_correct=[NAN])
    assert json.loads(json.dumps(decision.to_dict(), allow_nan=False))["signals"] == {"p_correct": None}


@pytest.mark.parametrize(
    ("selector", "answers", "p", "expected"),
    [
        ("last", ["a", "b", None], [0.1, 0.2, 0.3], "b"),
        ("first", [None, "b", "c"], [0.1, 0.2, 0.3], "b"),
        ("max_p_correct", ["a", "b", "c"], [0.5, 0.9, 0.9], "c"),  # among ties the latest
        ("max_p_correct", ["a", "b", None], [0.5, NAN, 0.9], "a"),  # undefined scores and missing answers are skipped
        ("max_p_correct", ["a", "b", None], [NAN, NAN, NAN], "b"),  # nothing is left: the last non-empty answer
        ("majority", ["The x", "y", "x!"], [0.1, 0.1, 0.1], "x!"),
        ("majority", ["x", "y", "y", "x"], [0.1] * 4, "x"),  # tied: the answer seen last, at its latest round
        ("majority", ["x", "y", "x", "y"], [0.1] * 4, "y"),
        ("weighted_majority", ["x", "x", "y"], [0.2, 0.2, 0.5], "y"),
        ("weighted_majority", ["x", "x", "y"], [0.3, 0.3, 0.5], "x"),
        ("weighted_majority", ["x", "x", "y"], [NAN, 0.2, 0.1], "x"),
        ("weighted_majority", ["x", "x", "y"], [NAN, NAN, NAN], "y"),
    ],
)
def test_selectors(selector, answers, p, expected):
    n = len(answers)
    policy = Policy(rule=Never(), selector=parse_selector(selector), max_rounds=n)
    assert play(policy, answers, p_correct=p).answer == expected


def test_selectors_never_look_past_the_stop():
    policy = Policy(rule=fixed_k(2), selector=parse_selector("max_p_correct"))
    session = Session(policy)
    for r, p in ((1, 0.2), (2, 0.1)):
        decision = session.observe(Round(index=r, answer=f"a{r}", signals={"p_correct": p}))
    assert decision.answer_round == 1


def test_a_refusal_counts_as_the_policy_says():
    answers = ["not mentioned", "not mentioned"]
    stable, guarded = parse_rule("answer_stable"), parse_rule("answer_stable_guarded")
    assert play(Policy(rule=stable), answers).stop
    assert not play(Policy(rule=guarded), answers).stop
    own = Policy(rule=guarded, abstain_patterns=("pass",))
    assert play(own, answers).stop
    assert not play(own, ["pass", "pass"]).stop


def test_observe_all_ends_with_the_first_stop():
    session = Session(Policy(rule=fixed_k(2)))
    rounds = (Round(index=r, answer=str(r)) for r in range(1, 9))
    decision = session.observe_all(rounds)
    assert decision is not None
    assert decision.stop_round == 2
    assert Session(Policy()).observe_all([]) is None


def test_whether_a_round_would_stop_the_loop_is_known_without_a_step():
    session = Session(Policy(rule=parse_rule("p_correct > 0.5"), max_rounds=3))
    for r, p, stops in ((1, 0.1, False), (2, 0.9, True), (2, 0.2, False), (3, 0.2, True)):
        observed = Round(index=r, answer="a", signals={"p_correct": p})
        assert session.would_stop(observed) is stops
        assert session.next_round == r
        if not stops or r == 3:
            assert session.observe(observed).stop is stops


def test_a_session_lists_the_signals_it_will_read_before_observing():
    session = Session(Policy(rule=parse_rule("first_of((approved >= 1), ((round >= 2) & (judge_entailment >= 4)))")))
    assert session.reads(Round(index=1, answer="a")) == ("approved", "round")
    assert session.reads(Round(index=1, answer="a", signals={"approved": 1})) == ("approved",)
    session.observe(Round(index=1, answer="a", signals={"approved": 0}))
    assert session.reads(Round(index=2, answer="a", signals={"approved": 0})) == (
        "approved",
        "round",
        "judge_entailment",
    )


def test_a_rule_on_costs_that_were_not_recorded_names_the_column():
    from suffice import Rounds

    raw = Rounds.from_columns({"answer_stable": [1.0, 1.0]})
    with pytest.raises(UnknownSignalError, match=r"cost\.generator\.calls"):
        Policy(rule=parse_rule("calls > 1")).view(raw)


def test_costs_add_up_over_components():
    from suffice.policy.rounds import total_cost

    cost = Cost(calls=1, uncached_tokens=2, cached_tokens=3, output_tokens=4, seconds=5)
    assert total_cost({"generator": cost, "judge:x": cost}) == cost + cost
    assert (cost + cost).tokens == 18


def test_a_view_can_carry_answers():
    from suffice import Rounds

    assert Rounds.from_columns({"a": [[1.0, 2.0]]}, answers=[["x", None]]).answers.tolist() == [["x", None]]


def test_seconds_add_up_as_calls_do():
    policy = Policy(rule=parse_rule("seconds > 1"))
    session = Session(policy)
    cost = {"generator": Cost(calls=1, seconds=0.75)}
    assert not session.observe(Round(index=1, answer="a", costs=cost)).stop
    assert session.observe(Round(index=2, answer="a", costs=cost)).signals["seconds"] == np.float64(1.5)


@pytest.mark.parametrize("wrong", [5, None, ["answer_stable"]])
def test_what_cannot_be_a_policy_is_named(wrong):
    with pytest.raises(DataError, match="policy file"):
        Session(wrong)


def test_session_memory_grows_with_observed_rounds_not_with_max_rounds():
    policy = Policy(rule="answer_stable", max_rounds=100_000)
    sessions = []
    tracemalloc.start()
    for _ in range(20):
        sessions.append(Session(policy))
        sessions[-1].observe(Round(index=1, answer="Oslo"))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < len(sessions) * 8 * policy.max_rounds / 10  # a tenth of one column of numbers


@pytest.mark.parametrize("start", [0, 1])
def test_every_one_of_many_rounds_is_decided_on_its_own_values(start):
    policy = Policy(
        rule=parse_rule("((calls > 142) & (answer_stable >= 0)) | (vote_lead > 60)"),
        selector=parse_selector("majority"),
        start_round=start,
        max_rounds=70,
    )
    answers = [f"answer {r % 7 or r % 3}" if r < 20 else "Oslo" for r in range(start, 71)]
    session = Session(policy)
    decisions = [
        session.observe(Round(index=r, answer=answer, costs={"generator": Cost(calls=2)}))
        for r, answer in enumerate(answers, start)
    ]
    assert [decision.stop for decision in decisions] == [False] * (len(answers) - 1) + [True]
    assert [d.signals["calls"] for d in decisions] == [2.0 * (position + 1) for position in range(len(answers))]
    stable = [
        float(a == b) if r > 1 else NAN for r, a, b in zip(range(start, 71), ["", *answers], answers, strict=False)
    ]
    np.testing.assert_array_equal([d.signals["answer_stable"] for d in decisions], stable)
    leads = []
    for n in range(1, len(answers) + 1):
        (_, most), *others = Counter(answers[:n]).most_common(2)
        leads.append(float(most - others[0][1] if others else most))
    assert [d.signals["vote_lead"] for d in decisions] == leads
    assert (decisions[-1].answer, decisions[-1].reason) == ("Oslo", "max_rounds")
