"""SEMANTICS, line by line, as far as replay, baselines and costs are concerned; each test is named after its line."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from suffice.cli.console import number
from suffice.common.tables import figure
from suffice.errors import CensoredError
from suffice.evaluation.replay import replay
from suffice.evaluation.replay.replay_tables import outcomes_table
from suffice.evaluation.statistics import Resampling
from suffice.policy.rounds import COST_KINDS
from suffice.policy.rules import FirstOf, Never, fixed_k, parse_rule, parse_selector
from suffice.policy.session import Policy, stops
from suffice.policy.signals import ZScore
from suffice.presentation.headline import headline
from suffice.recordings.recording import Recording
from tests.support import shared
from tests.support.strategies import CALIBRATOR, policies, record, recorded, rules, shortened

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


COSTS = {f"cost.generator.{kind}": float(kind == "calls") for kind in COST_KINDS}
recording_of = partial(shared.recording_of, **COSTS | {"cost.generator.uncached_tokens": 10.0})


def policy(rule, **changes) -> Policy:
    return Policy(rule=parse_rule(rule) if isinstance(rule, str) else rule, **{"max_rounds": 3, **changes})


def rows_of(recording: Recording, *items, **options):
    return replay(recording, list(items), resampling=Resampling(n_resamples=20), **options)


# --- Rounds, rules, decisions ---------------------------------------------------------------------------------------


def test_replay_slices_from_start_round_and_charges_nothing_before_it():
    recording = recording_of([["a", "b", "b", "b"]], start=0)
    zero, one = policy(Never(), start_round=0, name="zero"), policy(Never(), start_round=1, name="one")
    result = rows_of(recording, zero, one)
    assert [row.calls.mean for row in result.rows[:2]] == [4.0, 3.0]  # R + 1 calls from round 0
    assert result.row("one").costs["tokens"] == 30.0
    first = parse_selector("first")
    picked = rows_of(
        recording, policy(Never(), start_round=0, selector=first, name="z"), policy(Never(), selector=first)
    )
    assert [row.metrics["em"] for row in picked.rows[:2]] == [1.0, 0.0]


def test_calls_and_tokens_count_only_the_loops_own_generation_since_start_round():
    judge = {"cost.judge:j.calls": [[5.0] * 4], "cost.judge:j.uncached_tokens": [[500.0] * 4]}
    recording = recording_of([["b"] * 4], start=0, **judge)
    result = rows_of(recording, policy("calls >= 2"), policy("tokens >= 20", start_round=0, name="from 0"))
    assert [list(row.stop_rounds) for row in result.rows[:2]] == [[2], [1]]


def test_rules_on_seconds_are_marked_not_exactly_replayable():
    recording = recording_of([["a", "a", "a"]])
    result = rows_of(recording, policy("seconds > 100"), policy("calls > 100"))
    assert "not exactly replayable" in result.rows[0].notes[0]
    assert result.rows[1].notes == ()


def test_a_rule_that_holds_at_r_beats_max_rounds():
    recording = recording_of([["b", "b", "a"]])
    result = rows_of(recording, policy("round >= 3"), policy("round >= 4"))
    assert [row.reasons for row in result.rows[:2]] == [{"rule": 1}, {"max_rounds": 1}]


def test_if_no_round_was_answered_the_reason_is_failed():
    recording = recording_of([[None, None, "a"]])
    row = rows_of(recording, policy("round >= 2")).rows[0]
    assert (row.reasons, row.metrics["em"]) == ({"failed": 1}, 0.0)


def test_nan_is_null_in_all_json():
    text = json.dumps(rows_of(recording_of([["a", "b", "a"]]), policy("calls >= 2")).to_dict(), allow_nan=False)
    assert "NaN" not in text
    assert '"money": null' in text


def test_exhausted_is_not_censored_and_only_rule_is():
    ends = ["exhausted", "rule", "max_rounds"]
    recording = recording_of([["b"], ["b"], ["b", "b", "a"]], end=ends)
    result = rows_of(recording, policy(Never(), name="all"), policy(fixed_k(1), name="one"))
    everything, one = result.rows[:2]
    assert (everything.n_censored, everything.censored, one.n_censored) == (1, True, 0)
    assert everything.reasons == {"exhausted": 1, "max_rounds": 1, "unrun": 1}
    assert any("a rule ended 1 of 3" in note for note in result.notes)
    assert result.row("fixed_k(2)").n_censored == 1
    assert result.row("oracle_best").n_censored == 1
    assert result.row("oracle_earliest").n_censored == 1
    assert "censored: unknown in 1 of 3 questions" in result.headline("all")
    assert result.row("random(all)").n_censored == 2  # the unknown stop is dealt to the question of three rounds, too


def test_what_never_ran_is_bounded_and_never_zero():
    recording = recording_of([["b"], ["b"], ["b", "b", "a"]], end=["exhausted", "rule", "max_rounds"])
    result = rows_of(recording, policy(Never(), name="all"), policy("round >= 2", name="two"), baseline=None)
    row = result.row("all")
    assert math.isnan(row.metrics["em"])
    assert row.bounds["em"] == pytest.approx((1 / 3, 2 / 3))
    assert "em" not in row.deltas
    assert row.delta_bounds["em"] == pytest.approx((0.0, 1 / 3))
    assert row.stop_rounds == pytest.approx({1: 1 / 3, 3: 1 / 3})  # and one question is in no round
    assert row.calls.mean == pytest.approx(5 / 3)
    assert row.delta_bounds["calls"] == pytest.approx((0.0, math.inf))
    assert row.margins == ()
    recorded = result.row("recorded")
    assert (result.baseline, recorded.metrics["em"], recorded.censored) == ("recorded", pytest.approx(1 / 3), False)
    assert result.row("oracle_best").bounds["em"] == pytest.approx((1 / 3, 2 / 3))
    data = row.to_dict()
    assert (data["metrics"]["em"], data["bounds"]["em"]) == (None, pytest.approx([1 / 3, 2 / 3]))


def test_a_verdict_that_depends_on_what_never_ran_is_unknown():
    answers = [["b"], ["b", "a", "a"], ["a", "a", "a"], ["b", "b", "b"]]
    enough = [[1.0], [0.0, 1.0, 1.0], [1.0] * 3, [1.0] * 3]
    recording = recording_of(answers, end=["rule", *["max_rounds"] * 3], enough=enough)
    result = rows_of(recording, policy("enough >= 1"), policy(Never(), name="all"), baseline=None)
    ours, everything = result.rows[:2]
    # Ours has .5 at 1.25 calls, fixed_k(2) something from .5 to .75 at 1.75 or more: it may match, and not dominate.
    assert (ours.metrics["em"], ours.calls.mean) == (0.5, 1.25)
    assert (ours.undecided, ours.verdict) == (("cheapest_match",), "not dominated")
    assert "whether a fixed or random policy has this em for less is unknown" in rows_of(
        recording, policy("enough >= 1"), metrics=("em",)
    ).headline("enough >= 1")
    assert (everything.undecided, everything.verdict) == (("cheapest_match", "dominated_by"), "unknown†")
    worse = [["b"], *[["a", "b", "b"]] * 3]
    lost = rows_of(recording_of(worse, end=["rule", *["max_rounds"] * 3]), policy(Never(), name="all"), baseline=None)
    assert lost.row("all").bounds["em"] == (0.0, 0.25)
    assert lost.row("all").dominated_by == "fixed_k(1)"  # in the worst case and in the best


def test_a_mixture_with_a_budget_that_never_ran_leaves_the_verdict_unknown():
    answers = [["a"], *[["b", "b", "a"]] * 4]
    enough = [[1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0] * 3, [1.0] * 3]
    recording = recording_of(answers, end=["rule", *["max_rounds"] * 4], enough=enough)
    row = rows_of(recording, policy("enough >= 1"), baseline=None).rows[0]
    # It scores .4 in 1.6 calls.  fixed_k(1) scores .2 in 1, fixed_k(3) .8 to 1 in 2.6 or more: a mixture scores up to .5.
    assert (row.metrics["em"], row.calls.mean) == pytest.approx((0.4, 1.6))
    assert (row.mixture.cheap, row.mixture.share, row.dominated_by) == ("fixed_k(1)", 0.0, None)
    assert (row.undecided, row.verdict) == (("cheapest_match", "dominated_by"), "unknown†")


def test_a_baseline_that_never_ran_is_refused():
    recording = recording_of([["b"], ["b", "b", "a"]], end=["rule", "max_rounds"])
    with pytest.raises(CensoredError, match=r"'fixed_k\(2\)'"):
        rows_of(recording, policy(fixed_k(1)), baseline="fixed_k(2)")


def test_failed_questions_are_left_out_of_every_policy_alike_and_counted():
    recording = recording_of([["a", "a", "a"], ["b"], ["b", "b", "a"]], end=["max_rounds", "failed", "max_rounds"])
    result = rows_of(recording, policy("round >= 1"), policy(Never()))
    assert {(row.n, row.n_failed) for row in result.rows} == {(2, 1)}
    assert result.rows[0].metrics["em"] == 0.5
    assert any("1 question failed" in note for note in result.notes)


def test_fixed_k_on_a_shorter_trajectory_returns_its_last_round():
    recording = recording_of([["b", "a"], ["b", "b", "a"]], end=["exhausted", "max_rounds"])
    row = rows_of(recording).row("fixed_k(3)")
    assert (row.metrics["em"], row.calls.mean, row.stop_rounds) == (1.0, 2.5, {2: 0.5, 3: 0.5})
    beyond = rows_of(recording, baseline="fixed_k(9)")
    assert beyond.row("fixed_k(9)").stop_rounds == {2: 0.5, 3: 0.5}


@settings(SETTINGS, max_examples=25)
@given(st.data())
def test_first_of_fires_exactly_when_the_or_of_its_members_does(data):
    drawn = data.draw(recorded(start=1))
    members = tuple(data.draw(st.lists(rules(), min_size=2, max_size=3)))
    base = {"max_rounds": int(drawn.recording.index[-1]), "calibrators": (CALIBRATOR,)}
    ordered = Policy(rule=FirstOf(members), **base)
    union = members[0]
    for member in members[1:]:
        union = union | member
    plain = Policy(rule=union, **base)
    raw = drawn.recording.rounds(ordered.raw_columns)
    assert stops(ordered, raw).position.tolist() == stops(plain, raw).position.tolist()


# --- Undefined values and fitted state ------------------------------------------------------------------------------


def test_containment_is_reported_beside_em_and_f1():
    recording = recording_of([["b", "a", "a"]], contains=[[0.0, 1.0, 1.0]])
    assert rows_of(recording, metrics=("contains",)).metrics == ("contains", "em", "f1")
    assert rows_of(recording, metrics=("f1",)).metrics == ("f1",)


def test_a_missing_margin_never_stops_the_loop():
    missing = {"p_correct": [[None] * 3, [None, 0.9, 0.9]], "answer_stable": [[None, 1.0, 1.0]] * 2}
    row = rows_of(recording_of([["a", "a", "a"]] * 2, **missing), "tasr").rows[0]
    assert row.stop_rounds == {2: 0.5, 3: 0.5}
    assert "p_correct is undefined in 67 % of rounds (4 of 6)" in row.notes


def test_a_fitted_z_score_decides_one_question_as_it_decides_all():
    scores = [[1.0] * 3, [5.0] * 3, [9.0] * 3]
    recording = recording_of([["a"] * 3] * 3, top_score=scores)
    fitted = policy("top_score_z > 0.5", state={"top_score_z": ZScore.fit([1.0, 5.0, 9.0])})
    full = rows_of(recording, fitted).rows[0]
    alone = [rows_of(recording.select(np.arange(3) == q), fitted).rows[0] for q in range(3)]
    assert full.stop_rounds == {1: pytest.approx(1 / 3), 3: pytest.approx(2 / 3)}
    assert [list(row.stop_rounds) for row in alone] == [[3], [3], [1]]


# --- Costs ----------------------------------------------------------------------------------------------------------


def test_a_call_is_operational_only_if_the_live_policy_makes_it():
    judge = {f"cost.judge:entailment.{kind}": [[1.0] * 3] for kind in COST_KINDS}
    recording = recording_of([["a", "a", "a"]], judge_entailment=[[5.0] * 3], **judge)
    judged, blind = policy("judge_entailment >= 4", name="judged"), policy("round >= 1", name="blind")
    result = rows_of(recording, judged, blind)
    assert (result.row("judged").costs["calls"], result.row("judged").evaluation["calls"]) == (2.0, 4.0)
    assert (result.row("blind").costs["calls"], result.row("blind").evaluation["calls"]) == (1.0, 5.0)


def test_oracles_have_no_operational_cost_for_judges():
    judge = {f"cost.judge:entailment.{kind}": [[100.0] * 3] for kind in COST_KINDS}
    recording = recording_of([["b", "a", "a"]], judge_entailment=[[5.0] * 3], **judge)
    for label in ("oracle_best", "oracle_earliest"):
        row = rows_of(recording).row(label)
        assert (row.costs["calls"], row.costs["tokens"]) == (2.0, 20.0)  # the loop up to the chosen round


# --- Exactness ------------------------------------------------------------------------------------------------------


@settings(SETTINGS, max_examples=25)
@given(st.data())
def test_stopping_takes_a_prefix(data):
    """What was recorded after the stop changes nothing: cut there, the replay is the same."""
    drawn = data.draw(recorded(start=1, complete=True))
    mine = data.draw(policies(drawn.recording))
    full = stops(mine, drawn.recording.rounds(mine.raw_columns))
    cut = record(
        [shortened(item, int(stop) + 1) for item, stop in zip(drawn.trajectories, full.position.tolist(), strict=True)]
    )
    again = stops(mine, cut.rounds(mine.raw_columns))
    assert again.rounds.tolist() == full.rounds.tolist()
    assert again.answer_rounds.tolist() == full.answer_rounds.tolist()
    assert again.fired.tolist() == full.fired.tolist()


# --- Baselines and oracles ------------------------------------------------------------------------------------------


def test_the_whole_fixed_k_frontier_is_always_shown():
    result = rows_of(recording_of([["b", "a", "b", "b"], ["a", "b", "b", "b"]]))
    frontier = [(row.label, row.metrics["f1"], row.calls.mean) for row in result.rows if row.kind == "fixed"]
    assert frontier == [("fixed_k(1)", 0.5, 1), ("fixed_k(2)", 0.5, 2), ("fixed_k(3)", 0.0, 3), ("fixed_k(4)", 0.0, 4)]


def test_random_is_the_exact_expectation_of_the_rules_own_stop_rounds():
    recording = recording_of([["a", "b", "b"], ["b", "b", "a"]], own=[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    result = rows_of(recording, policy("own > 0.5", name="own"))
    own, twin = result.row("own"), result.row("random(own)")
    assert (own.metrics["em"], own.calls.mean) == (1.0, 2.0)
    assert (twin.metrics["em"], twin.calls.mean) == (0.5, 2.0)  # same calls, no information
    assert (twin.calls.p50, twin.calls.p95) == (1.0, 3.0)
    assert twin.stop_rounds == {1: 0.5, 3: 0.5}


def test_the_closed_book_is_shown_where_the_recording_has_it():
    assert (
        rows_of(recording_of([["a", "b"]], start=0), policy("round >= 1", max_rounds=1))
        .row("closed_book")
        .metrics["em"]
        == 1.0
    )
    assert all(row.kind != "closed_book" for row in rows_of(recording_of([["a", "b"]])).rows)


def test_oracle_earliest_takes_the_first_correct_round_else_the_start_round():
    recording = recording_of([["b", "a", "a"], ["b", "b", "b"]])
    row = rows_of(recording).row("oracle_earliest")
    assert (row.metrics["em"], row.stop_rounds, row.calls.mean) == (0.5, {1: 0.5, 2: 0.5}, 1.5)


def test_oracle_best_takes_the_largest_metric_earliest_tie():
    recording = recording_of([["b", "b", "b"]], f1=[[0.2, 0.7, 0.7]])
    row = rows_of(recording).row("oracle_best")
    assert (row.metrics["f1"], row.stop_rounds) == (0.7, {2: 1.0})


def test_selector_gaps_use_the_oracle_over_seen_rounds():
    recording = recording_of([["a", "b", "b"], ["b", "b", "a"]])
    result = rows_of(recording, policy("round >= 2", selector=parse_selector("majority"), name="m"))
    assert (result.row("m").oracle_seen["em"], result.row("oracle_best").metrics["em"]) == (0.5, 1.0)


def test_a_headline_says_dominated_when_a_cheaper_equal_exists():
    recording = recording_of([["a", "a", "a"], ["b", "b", "b"]], own=[[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    result = rows_of(recording, policy("own > 0.5", name="own"))
    assert result.row("own").dominated_by == result.row("own").cheapest_match == "fixed_k(1)"
    assert "dominated by fixed_k(1)" in result.headline("own")


def test_agreement_needs_no_gold_answers_and_says_that_it_measures_sameness():
    recording = recording_of([["b", "the B!", "b"], ["c d", "c", "d"], [None, None, None], ["The The", "x", "the the"]])
    result = rows_of(recording, policy("round >= 2", name="two"), metrics=("agreement_f1", "agreement"))
    assert result.row("two").metrics == {"agreement_f1": 0.5, "agreement": 0.5}
    assert result.row("fixed_k(1)").metrics["agreement_f1"] == pytest.approx((1 + 2 / 3 + 1 + 1) / 4)
    assert result.row("fixed_k(3)").metrics == {"agreement_f1": 1.0, "agreement": 1.0}
    assert any("sameness" in note and "not truth" in note for note in result.notes)
    assert not rows_of(recording).notes


# --- Statistics -----------------------------------------------------------------------------------------------------


def test_one_draw_is_shared_by_every_rule():
    recording = recording_of([["a", "b", "a"], ["b", "a", "b"], ["b", "b", "a"], ["a", "a", "b"]])
    one, two = policy("round >= 1", name="x"), policy("round <= 1", name="y")  # the same stops by other words
    result = replay(recording, [one, two], resampling=Resampling(n_resamples=50))
    assert result.row("x").deltas["f1"].to_dict() == result.row("y").deltas["f1"].to_dict()


def test_rows_of_one_question_form_a_cluster():
    recording = recording_of(
        [["a", "b", "a"], ["b", "a", "b"], ["b", "b", "a"], ["a", "a", "b"]], cluster=["x", "x", "y", "y"]
    )
    result = rows_of(recording, policy("round >= 1"))
    assert (result.n, result.n_clusters, result.rows[0].deltas["f1"].n_clusters) == (4, 2, 2)


def test_few_non_zero_pairs_warn_and_give_an_exact_test():
    recording = recording_of([["a", "a", "a"]] * 20 + [["b", "b", "a"]] * 3)
    delta = rows_of(recording, policy("round >= 1")).rows[0].deltas["f1"]
    assert (delta.n_nonzero, delta.p_exact) == (3, 0.25)
    assert "only 3 pairs differ" in delta.warning


def test_margins_are_tested_one_sided_and_both_sides():
    recording = recording_of([["a", "a", "a"]] * 20)
    row = rows_of(recording, policy("round >= 1", name="one"), margins=(0.01, 0.05)).row("one")
    assert [(test.kind, test.margin, test.passed, test.p) for test in row.margins] == [
        ("non_inferiority", 0.01, True, 0.0),
        ("equivalence", 0.01, True, 0.0),
        ("non_inferiority", 0.05, True, 0.0),
        ("equivalence", 0.05, True, 0.0),
    ]
    assert all(math.isnan(test.d_z) for test in row.margins)


def test_agreement_with_a_cut_run_is_labelled_as_such():
    recording = recording_of([["b", "a"], ["b", "b", "a"]], end=["rule", "max_rounds"])
    result = rows_of(recording, policy("round >= 2"), metrics=("agreement",))
    assert any(
        "with the last recorded answer (in 1 of 2 questions a rule ended the loop" in note for note in result.notes
    )
    whole = rows_of(recording_of([["b", "a", "a"]]), policy("round >= 2"), metrics=("agreement",))
    assert "agreement measures sameness with the full-budget run's answer, not truth" in whole.notes


def test_a_mean_is_rounded_alike_in_tables_and_sentences():
    lengths = [4] * 113 + [5] * 87  # 4.435 calls on average, which is 4.43499... in binary
    recording = recording_of([["a"] * n for n in lengths], end=["exhausted"] * 200)
    result = rows_of(recording, policy(Never(), name="all", max_rounds=5), baseline="fixed_k(1)")
    assert (f"{result.row('all').calls.mean:.2f}", figure(result.row("all").calls.mean, ".2f")) == ("4.43", "4.44")
    place = [column.name for column in outcomes_table(result).columns].index("calls")
    assert outcomes_table(result).texts()[0][place] == "4.44"
    assert "4.44 calls" in result.headline("all")
    assert "with 4.44 model calls" in headline(result, "all").sentence
    assert number(result.row("all").calls.mean) == "4.44"
