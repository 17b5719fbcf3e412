"""Replay: laws against live sessions and plain loops, baselines, verdicts, refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from suffice.errors import CensoredError, ConfigMismatchError, DataError, NotFittedError, UnknownSignalError
from suffice.evaluation.replay import policy_for, replay, replay_matrix
from suffice.evaluation.replay.baselines import oracle_best, oracle_earliest, run_policy
from suffice.evaluation.replay.outcomes import answers_by_stop, values_by_stop
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.random_twins import random_stop
from suffice.evaluation.replay.replay_tables import mixtures_table, outcomes_table
from suffice.evaluation.replay.replayer import Replayer
from suffice.evaluation.statistics import Resampling
from suffice.policy.rounds import Cost, Round, Rounds
from suffice.policy.rules import Never, fixed_k, parse_rule, parse_selector, signal
from suffice.policy.seen import id_hash
from suffice.policy.session import Policy, Session, stops
from suffice.policy.signals import AnswerPosition
from suffice.presentation.headline import headline
from suffice.recordings import bundled_recording
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from tests.support import reference
from tests.support.shared import recording_of
from tests.support.strategies import MEASURED, Trajectory, policies, record, recorded, reference_rows, rules

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def prepared_for(recording: Recording, *policies_: Policy) -> PreparedRecording:
    return PreparedRecording.of(recording, ["f1", "em"])


# --- laws -----------------------------------------------------------------------------------------------------------


@SETTINGS
@given(st.data())
def test_replay_equals_a_live_session(data):
    drawn = data.draw(recorded())
    policy = data.draw(policies(drawn.recording))
    stopped = stops(policy, drawn.recording.rounds(policy.raw_columns))
    reasons = stopped.reasons(drawn.recording.ends, policy.max_rounds)
    for q, item in enumerate(drawn.trajectories):
        live = [observed for observed in item.rounds if policy.start_round <= observed.index <= policy.max_rounds]
        session = Session(policy)
        decision = session.observe_all(live)
        if decision is None or not decision.stop:
            decision = session.end("exhausted")
        assert decision.stop_round == (None if not live else int(stopped.rounds[q]))
        answered = int(stopped.answer_rounds[q])
        assert decision.answer_round == (None if answered < 0 else answered)
        assert decision.answer == (None if answered < 0 else item.rounds[answered - item.rounds[0].index].answer)
        assert decision.reason == reasons[q]
        assert (decision.fired is not None) == (reasons[q] == "rule")


@SETTINGS
@given(st.data())
def test_stops_and_answers_equal_plain_loops(data):
    drawn = data.draw(recorded())
    policy = data.draw(policies(drawn.recording))
    run, stopped = run_policy(prepared_for(drawn.recording, policy), policy)
    for q, item in enumerate(drawn.trajectories):
        rows = reference_rows(item, policy)
        stop, fired = reference.stop(policy.rule, rows)
        chosen = reference.select(str(policy.selector), rows, stop)
        assert (int(stopped.position[q]), bool(stopped.fired[q])) == (stop, fired)
        assert int(stopped.answer_position[q]) == chosen
        for name in ("em", "f1"):
            assert run.values[name][q] == reference.scored(rows, stop, chosen, name)


@settings(SETTINGS, max_examples=25)
@given(st.data())
def test_one_question_alone_replays_as_it_does_in_the_full_recording(data):
    drawn = data.draw(recorded(complete=True))
    policy = data.draw(policies(drawn.recording))
    full, _ = run_policy(prepared_for(drawn.recording, policy), policy)
    for q in range(len(drawn.trajectories)):
        alone = drawn.recording.select(np.arange(len(drawn.trajectories)) == q)
        run, _ = run_policy(prepared_for(alone, policy), policy)
        assert run.rounds is not None
        assert full.rounds is not None
        assert run.rounds[0] == full.rounds[q]
        assert [run.values[name][0] for name in ("em", "f1")] == [full.values[name][q] for name in ("em", "f1")]
        np.testing.assert_equal(run.ledger.calls[0], full.ledger.calls[q])


@settings(SETTINGS, max_examples=25)
@given(st.data())
def test_the_matrix_path_equals_one_policy_at_a_time(data):
    drawn = data.draw(recorded())
    policy = data.draw(policies(drawn.recording))
    many = [policy.rule, *data.draw(st.lists(rules(), max_size=4))]
    wide = replace(policy, rule=parse_rule(" | ".join(f"({rule})" for rule in [*many, fixed_k(1)])))
    prepared = prepared_for(drawn.recording, wide)
    view = prepared.view(wide)
    answers = answers_by_stop(policy.selector, view)
    by_stop = {
        name: values_by_stop(answers, view.seen, prepared.in_view(m, view)) for name, m in prepared.metrics.items()
    }
    matrix = replay_matrix(view, many, by_stop)
    for position, rule in enumerate(many):
        run, _ = run_policy(prepared, replace(policy, rule=rule))
        for name in ("em", "f1"):
            assert matrix[name][position].tolist() == run.values[name].tolist()


@settings(SETTINGS, max_examples=25)
@given(st.data())
def test_the_random_twin_is_the_mean_over_permutations_of_equal_lengths(data):
    drawn = data.draw(recorded(max_questions=5))
    policy = data.draw(policies(drawn.recording))
    prepared = prepared_for(drawn.recording, policy)
    run, stopped = run_policy(prepared, policy)
    twin = random_stop(prepared, policy, stopped)
    every = [reference_rows(item, policy) for item in drawn.trajectories]
    loop = twin.ledger.costs["generator"]["calls"]
    for length in {len(rows) for rows in every} - {0}:
        having = [q for q, rows in enumerate(every) if len(rows) == length]
        positions = [reference.stop(policy.rule, every[q])[0] for q in having]
        for name in ("em", "f1"):
            at = [
                [
                    reference.scored(every[q], k, reference.select(str(policy.selector), every[q], k), name)
                    for k in range(length)
                ]
                for q in having
            ]
            expected = reference.random_expectation(positions, at)
            assert twin.values[name][having].tolist() == pytest.approx(expected, abs=1e-12)
        calls = [[float(k + 1) for k in range(length)] for _ in having]
        assert loop[having].tolist() == pytest.approx(reference.random_expectation(positions, calls), abs=1e-12)
    assert loop.sum() == pytest.approx(run.ledger.costs["generator"]["calls"].sum(), abs=1e-12)
    assert twin.stop_rounds == run.stop_rounds
    alone = sum(sum(len(rows) == len(other) for other in every) == 1 for rows in every)
    same = f"in {alone} question{'s' if alone != 1 else ''} it stops as the rule does"
    assert any(note.startswith(same) for note in twin.notes) == (alone > 0)


@SETTINGS
@given(st.data())
def test_oracles_equal_plain_loops(data):
    drawn = data.draw(recorded())
    start = int(drawn.recording.index[0])
    if drawn.recording.index[-1] < 1:
        return
    policy = Policy(start_round=start, max_rounds=int(drawn.recording.index[-1]))
    prepared = prepared_for(drawn.recording, policy)
    earliest = oracle_earliest(prepared, prepared.metrics["em"], start)
    best = oracle_best(prepared, prepared.metrics["f1"], start)
    assert earliest.rounds is not None
    assert best.rounds is not None
    for q, item in enumerate(drawn.trajectories):
        rows = reference_rows(item, policy)
        assert earliest.rounds[q] == rows[reference.oracle_earliest(rows)]["round"]
        assert best.rounds[q] == rows[reference.oracle_best(rows, "f1")]["round"]
        assert best.values["f1"][q] == max(row["f1"] for row in rows)


@settings(SETTINGS, max_examples=12)
@given(st.data())
def test_the_dominated_verdict_equals_a_plain_comparison(data):
    drawn = data.draw(recorded(complete=True, start=1))
    policy = data.draw(policies(drawn.recording, replayable=True))
    result = replay(drawn.recording, [policy], resampling=Resampling(n_resamples=20))
    points = {row.label: (row.metrics["f1"], row.calls.mean) for row in result.rows if row.kind in ("fixed", "random")}
    budgets = {row.label: points[row.label] for row in result.rows if row.kind == "fixed"}
    for row in result.rows:
        rivals = {label: point for label, point in points.items() if label != row.label}
        expected = reference.dominated((row.metrics["f1"], row.calls.mean), rivals)
        mixed = reference.best_mixture(budgets, row.calls.mean + 1e-12)
        beaten = row.kind == "rule" and mixed > row.metrics["f1"] + 1e-9
        if expected:
            assert row.dominated_by in expected
        elif abs(mixed - row.metrics["f1"]) > 1e-9:  # rounding may decide ties
            assert (row.dominated_by is not None) == beaten
            assert (row.dominating_mixture is not None) == beaten
        if row.kind == "rule" and math.isfinite(mixed):
            assert row.mixture.quality == pytest.approx(mixed, abs=1e-9)
        else:
            assert row.mixture is None
        good = [label for label, (quality, _) in rivals.items() if quality >= row.metrics["f1"] - 1e-12]
        assert (row.cheapest_match in good) if good else row.cheapest_match is None
        if good and row.cheapest_match is not None:
            assert points[row.cheapest_match][1] == min(points[label][1] for label in good)


@settings(SETTINGS, max_examples=10)
@given(st.data())
def test_a_rule_compared_with_itself_has_delta_exactly_zero(data):
    drawn = data.draw(recorded(start=1))
    policy = replace(data.draw(policies(drawn.recording, replayable=True)), name="itself")
    result = replay(drawn.recording, [policy], baseline=policy, resampling=Resampling(n_resamples=20))
    for delta in result.row("itself").deltas.values():
        assert (delta.delta, delta.n_nonzero, delta.p_exact) == (0.0, 0, 1.0)
        end = 0.0 if result.n_clusters > 1 else math.nan
        assert (delta.low, delta.high) == pytest.approx((end, end), abs=0, nan_ok=True)


@pytest.mark.parametrize("rule", ["answer_stable", fixed_k(2), Policy(rule=fixed_k(2), max_rounds=2)])
def test_one_rule_and_one_metric_need_no_list(rule):
    recording = recording_of([["b", "a", "a"], ["a", "a", "b"]], answer_stable=[[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    assert replay(recording, rule, metrics="em").to_dict() == replay(recording, [rule], metrics=["em"]).to_dict()


# --- what a result says ---------------------------------------------------------------------------------------------


def test_every_baseline_is_in_the_table():
    recording = recording_of([["x", "b", "a", "a"], ["x", "a", "b", "b"]], start=0)
    result = replay(recording, [Policy(rule=fixed_k(2), max_rounds=3, name="mine")])
    assert [(row.label, row.kind) for row in result.rows] == [
        ("mine", "rule"),
        ("random(mine)", "random"),
        ("closed_book", "closed_book"),
        ("fixed_k(1)", "fixed"),
        ("fixed_k(2)", "fixed"),
        ("fixed_k(3)", "fixed"),
        ("oracle_earliest", "oracle"),
        ("oracle_best", "oracle"),
    ]
    assert result.row("fixed_k(1)").metrics["f1"] == 0.5
    assert result.row("closed_book").metrics["f1"] == 0.0
    assert result.row("oracle_best").metrics["f1"] == 1.0
    assert result.row("oracle_best").calls.mean == 1.5


def test_a_result_is_json_without_nan():
    recording = recording_of([["b", "a", "a"], ["a", "b", "b"]], answer_stable=[[None, 0, 1], [None, 0, 1]])
    result = replay(recording, ["answer_stable"])
    text = json.dumps(result.to_dict(), allow_nan=False)
    back = json.loads(text)
    assert back["rows"][0]["costs"]["money"] is None
    assert back["rows"][0]["label"] == "answer_stable"
    assert back["baseline"] == "fixed_k(3)"
    assert back["rows"][0]["stop_rounds"] == {"3": 1.0}


def test_the_headline_names_the_cheapest_policy_that_does_as_well():
    recording = recording_of(
        [["a", "a", "a"], ["b", "a", "a"], ["b", "b", "a"]], answer_stable=[[None, 1, 1], [None, 0, 1], [None, 1, 0]]
    )
    result = replay(recording, ["answer_stable"])
    row = result.row("answer_stable")
    assert (row.metrics["f1"], row.calls.mean) == pytest.approx((2 / 3, 7 / 3))
    assert row.cheapest_match == row.dominated_by == "fixed_k(2)"
    assert "dominated by fixed_k(2)" in result.headline("answer_stable")
    assert "cheapest fixed or random policy of at least this f1: fixed_k(2)" not in result.headline("answer_stable")
    assert "none" in result.headline("fixed_k(3)")


def test_among_equally_cheap_policies_the_better_one_is_named():
    # The rule stops at 1 and 3: its random twin is as good and as cheap, fixed_k(2) is as cheap and better.
    recording = recording_of(
        [["b"] * 3, ["b"] * 3], own=[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], f1=[[0.5, 1.0, 0.75], [0.25, 1.0, 0.5]]
    )
    result = replay(recording, ["own > 0.5"])
    points = [
        (result.row(label).metrics["f1"], result.row(label).calls.mean) for label in ("own > 0.5", "random(own > 0.5)")
    ]
    assert points == [(0.5, 2.0), (0.5, 2.0)]
    assert result.row("own > 0.5").dominated_by == "fixed_k(2)"


def test_a_note_names_the_mixture_of_budgets_that_beats_a_rule():
    # Means by cap are 0.2, 0.3 and 0.8; the rule stops at round 2 on average and scores 0.4, half of caps 1 and 3 0.5.
    right = [["a"] * 3] + [["b", "b", "a"]] * 6 + [["b"] * 3] + [["a"] * 3] + [["b", "a", "b"]]
    stops = [1] + [2] * 8 + [3]
    right[-1] = ["b", "b", "a"]
    own = [[float(k + 1 == stop) for k in range(3)] for stop in stops]
    result = replay(recording_of(right, own=own), ["own > 0.5"], metrics=("em",))
    row = result.row("own > 0.5")
    costs = [result.row(f"fixed_k({k})").metrics["em"] for k in (1, 2, 3)]
    assert row.calls.mean == pytest.approx(2.0)
    assert row.dominated_by == row.verdict.removeprefix("dominated by ") == "a mixture of fixed_k(1) and fixed_k(3)"
    assert (row.mixture.share, row.mixture.quality) == pytest.approx((0.5, (costs[0] + costs[2]) / 2))
    assert result.headline(row.label).endswith("dominated by a mixture of fixed_k(1) and fixed_k(3)")
    said = headline(result, row.label).sentence
    assert said.endswith(f"it is dominated by {row.dominated_by}, which reaches 55.0 for as much (calls).")
    shown = mixtures_table(result).texts()
    assert shown == [["own > 0.5", "2.00", "30.0", "fixed_k(1) and fixed_k(3)", "50%", "55.0", "-25.0"]]
    alone = mixtures_table(replay(recording_of(right), ["round >= 3"], metrics=("em",)))
    assert alone.rows[0][3:] == ("fixed_k(3)", None, costs[2], 0.0)
    mixed = 100 * (costs[0] + costs[2]) / 2
    said = f"a mixture of fixed_k(1) and fixed_k(3) costs as much (calls) and scores {mixed:.1f} against {100 * row.metrics['em']:.1f}"
    assert any(said in note for note in row.notes)
    assert not any("a mixture of" in note for note in result.row("fixed_k(2)").notes)


def test_calls_have_mean_median_and_95th_percentile():
    answers = [["a"] * 5 for _ in range(20)]
    fire_at = [1] * 11 + [2] * 7 + [5] * 2
    column = [[float(r >= at) for r in range(1, 6)] for at in fire_at]
    row = replay(recording_of(answers, own=column), [signal("own") > 0.5]).rows[0]
    assert (row.calls.mean, row.calls.p50, row.calls.p95) == (1.75, 1.0, 5.0)
    assert row.stop_rounds == {1: 0.55, 2: 0.35, 5: 0.1}
    assert row.reasons == {"rule": 20}


def test_the_oracle_over_seen_rounds_stands_beside_the_one_over_full_width():
    recording = recording_of([["a", "b", "b"], ["b", "b", "a"]])
    result = replay(recording, [Policy(rule=fixed_k(2), max_rounds=3, name="two")])
    assert result.row("two").metrics["f1"] == 0.0
    assert result.row("two").oracle_seen == {"f1": 0.5, "em": 0.5}
    assert result.row("oracle_best").metrics["f1"] == 1.0


def test_two_policies_of_one_name_are_told_apart():
    recording = recording_of([["b", "a"], ["a", "b"]])
    one, two = Policy(rule=fixed_k(1), max_rounds=2, name="x"), Policy(rule=fixed_k(2), max_rounds=2, name="x")
    result = replay(recording, [one, two])
    assert [row.label for row in result.rows[:2]] == ["x", "x #2"]
    assert result.rows[0].metrics == result.rows[1].metrics == {"f1": 0.5, "em": 0.5}
    assert result.rows[0].stop_rounds != result.rows[1].stop_rounds


def test_a_baseline_may_be_a_label_a_rule_or_a_policy():
    recording = recording_of([["b", "a", "a"], ["a", "b", "b"]], answer_stable=[[None, 0, 1], [None, 0, 1]])
    for baseline, label in [
        ("full", "fixed_k(3)"),
        ("oracle_best", "oracle_best"),
        ("random(answer_stable)", "random(answer_stable)"),
        ("random( answer_stable>=1 )", "random(answer_stable)"),
        ("round >= 2", "round >= 2"),
        (Policy(rule=fixed_k(2), max_rounds=3), "round >= 2"),
        (Policy(rule=fixed_k(1), max_rounds=3, name="answer_stable"), "answer_stable (baseline)"),
    ]:
        result = replay(recording, ["answer_stable"], baseline=baseline, resampling=Resampling(n_resamples=10))
        assert result.baseline == label
        assert result.row(label).deltas["f1"].delta == 0.0


def test_without_metrics_stops_and_costs_are_replayed_alone():
    row = replay(recording_of([["b", "a"], ["a", "b"]]), ["fixed_k(1)"], metrics=()).rows[0]
    assert row.metrics == {}
    assert row.calls.mean == 1.0
    assert row.deltas["calls"].delta == -1.0


def test_a_user_metric_in_the_unit_interval_works_and_others_are_refused():
    recording = recording_of([["b", "a"], ["a", "b"]], helpful=[[0.2, 0.4], [0.6, 1.0]], tokens_used=[[5, 9], [5, 9]])
    row = replay(recording, ["fixed_k(1)"], metrics=("helpful", "helpful > 0.5")).rows[0]
    assert row.metrics == pytest.approx({"helpful": 0.4, "helpful > 0.5": 0.5})
    with pytest.raises(DataError, match="'tokens_used'"):
        replay(recording, ["fixed_k(1)"], metrics=("tokens_used",))
    with pytest.raises(DataError, match="'bleu'"):
        replay(recording, ["fixed_k(1)"], metrics=("bleu",))


def test_rows_that_repeat_a_question_are_resampled_together():
    rows = [
        {"question_id": f"q{q}", "cluster": f"c{q % 3}", "round": r, "answer": "a", "f1": float((q + r) % 2), "em": 0.0}
        for q in range(12)
        for r in (1, 2)
    ]
    result = replay(Recording(build_table(rows)), ["fixed_k(1)"], baseline="full")
    assert (result.n, result.n_clusters) == (12, 3)
    assert result.rows[0].deltas["f1"].n_clusters == 3
    assert outcomes_table(result).title.startswith("12 rows of 3 questions; ")


def test_a_question_without_a_cluster_is_its_own():
    rows = [
        {"question_id": f"q{q}", "cluster": "c" if q < 2 else None, "round": 1, "answer": "a", "em": float(q % 2)}
        for q in range(6)
    ]
    recording = Recording(build_table(rows))
    assert recording.clusters.tolist() == ["c", "c", "q2", "q3", "q4", "q5"]
    assert (
        replay(
            recording, ["fixed_k(1)"], metrics=("em",), baseline="full", resampling=Resampling(n_resamples=10)
        ).n_clusters
        == 5
    )


# --- refusals -------------------------------------------------------------------------------------------------------


def test_replay_refuses_metrics_where_answers_exist_only_at_the_last_round():
    answers = [[None, None, "a"], [None, None, "b"]]
    known = [[None, None, 1.0], [None, None, 0.0]]
    recording = recording_of(answers, em=known, f1=known)
    with pytest.raises(CensoredError, match="last round"):
        replay(recording, ["fixed_k(2)"])
    full = replay(recording, ["full"], baseline="full")
    assert full.rows[0].metrics["em"] == 0.5
    early = full.row("fixed_k(1)")
    assert math.isnan(early.metrics["em"])
    assert "em" not in early.deltas
    assert any("no answer was recorded" in note for note in early.notes)
    assert replay(recording, ["fixed_k(2)"], metrics=()).rows[0].calls.mean == 2.0


def test_a_partly_missing_metric_is_refused_with_a_remedy():
    recording = recording_of([["b", "a"], ["a", "b"]], f1=[[0.0, 1.0], [None, None]])
    with pytest.raises(DataError, match="'f1'"):
        replay(recording, ["fixed_k(1)"])
    assert replay(recording, ["fixed_k(1)"], metrics=("agreement",)).rows[0].metrics == {"agreement": 0.0}


def test_a_policy_that_needs_more_rounds_than_were_recorded_is_refused():
    recording = recording_of([["b", "a"], ["a", "b"]])
    with pytest.raises(ConfigMismatchError, match="max_rounds=2"):
        replay(recording, [Policy(rule=fixed_k(1))])
    with pytest.raises(ConfigMismatchError, match="starts at"):
        replay(recording, [Policy(rule=fixed_k(1), start_round=0, max_rounds=2)])
    closed = recording_of([["b"], ["a"]], start=0)
    with pytest.raises(ConfigMismatchError, match="ends at"):
        replay(closed, [Policy(rule=fixed_k(1), max_rounds=1)])


def test_where_the_evidence_ran_out_everywhere_a_higher_budget_is_fine():
    recording = recording_of([["b", "a"], ["a", "b"]], end="exhausted")
    row = replay(recording, [Policy(rule=Never(), max_rounds=5)]).rows[0]
    assert (row.reasons, row.n_censored) == ({"exhausted": 2}, 0)


def test_a_policy_of_another_model_or_answer_position_is_refused():
    recording = recording_of([["b", "a"], ["a", "b"]])
    recording.metadata["depends"] = {"model": "m1", "retriever": "bm25"}
    fine = Policy(rule=fixed_k(1), max_rounds=2, depends={"model": "m1", "prompt": "p"})
    assert replay(recording, [fine]).rows[0].calls.mean == 1.0
    with pytest.raises(ConfigMismatchError, match="'m2'"):
        replay(recording, [replace(fine, depends={"model": "m2"})])
    recording.metadata["config"] = {"answer_position": AnswerPosition().to_dict()}
    assert replay(recording, [fine]).rows[0].calls.mean == 1.0
    recording.metadata["config"] = {"answer_position": {**AnswerPosition().to_dict(), "changed": 1}}
    with pytest.raises(ConfigMismatchError, match="answer position"):
        replay(recording, [fine])


def test_a_policy_without_its_calibrator_or_signal_is_refused():
    recording = recording_of([["b", "a"], ["a", "b"]], answer_stable=[[None, 0], [None, 0]])
    with pytest.raises(NotFittedError, match="calibrator"):
        replay(recording, ["tasr"])
    with pytest.raises(UnknownSignalError, match="'overlap'"):
        replay(recording, ["overlap > 0.5"])
    with_column = recording_of([["b", "a"]], answer_stable=[[None, 1]], p_correct=[[0.1, 0.9]])
    row = replay(with_column, ["tasr"]).rows[0]
    assert any("cannot run live" in note for note in row.notes)


def test_policies_tuned_on_these_questions_are_labelled_selected_here():
    recording = recording_of([["b", "a"], ["a", "b"]])
    tuned = Policy(rule=fixed_k(1), max_rounds=2, name="t", provenance={"tune_ids": [id_hash("q1"), id_hash("other")]})
    clean = replace(tuned, name="c", provenance={"tune_ids": [id_hash("other")]})
    result = replay(recording, [tuned, clean])
    assert [(row.selected_here, row.n_selected) for row in result.rows[:2]] == [(True, 1), (False, 0)]
    assert "selected here" in result.headline("t")
    assert "selected here" not in result.headline("c")


def test_all_failed_or_twice_the_same_metric_is_refused():
    with pytest.raises(DataError, match="failed"):
        replay(recording_of([["b", "a"]], end="failed"), ["fixed_k(1)"])
    with pytest.raises(DataError, match="twice"):
        replay(recording_of([["b", "a"]]), ["fixed_k(1)"], metrics=("em", "em"))
    with pytest.raises(DataError, match="row 'x'"):
        replay(recording_of([["b", "a"]]), []).row("x")


def test_policy_for_takes_the_recordings_rounds_position_and_dependencies():
    recording = recording_of([["b", "a", "a", "b"]])
    recording.metadata.update(depends={"model": "m"}, config={"answer_position": AnswerPosition().to_dict()})
    policy = policy_for(recording, "tasr", selector=parse_selector("majority"))
    assert (policy.max_rounds, policy.depends, policy.label) == (4, {"model": "m"}, "tasr")
    assert policy_for(recording, "full").rule == Never()


def test_a_prepared_recording_leaves_failed_questions_out_and_reads_a_column_once():
    recording = recording_of([["b", "a"], ["a", "b"]], p_correct=[[0.1, 0.9], [0.2, 0.8]])
    prepared = PreparedRecording.of(recording)
    assert (prepared.recording, prepared.n_failed, prepared.metrics) == (recording, 0, {})
    assert prepared.rounds(["p_correct"])["p_correct"] is prepared.rounds(["p_correct", "absent"])["p_correct"]
    assert "absent" not in prepared.rounds(["absent"]).columns
    shifted = prepared.with_columns({"p_correct": np.zeros((2, 2))})
    assert not shifted.rounds(["p_correct"])["p_correct"].any()
    assert prepared.rounds(["p_correct"])["p_correct"].any()


def test_strategies_cover_what_they_promise():
    item = Trajectory(
        question_id="q",
        rounds=(Round(index=1, answer="x", signals=dict.fromkeys(MEASURED, 1.0), costs={"generator": Cost(calls=1)}),),
        end="max_rounds",
    )
    assert isinstance(record([item]).rounds(), Rounds)


# --- many replays of one recording ------------------------------------------------------------------------------------


def _same(value, other):
    """Return whether two results are equal, NaN to NaN."""
    return json.dumps(value.to_dict()) == json.dumps(other.to_dict())


@settings(SETTINGS, max_examples=10)
@given(st.data())
def test_a_replayer_says_what_replay_says_whatever_it_replayed_before(data):
    drawn = data.draw(recorded())
    how = {"resampling": Resampling(n_resamples=20), "metrics": ("f1", "em")}
    replayer = Replayer(drawn.recording, **how)
    for _ in range(3):
        policy = data.draw(policies(drawn.recording))
        baseline = data.draw(st.sampled_from([None, "fixed_k(1)", "full", policy]))
        try:
            wanted = replay(drawn.recording, policy, baseline=baseline, **how)
        except (DataError, UnknownSignalError) as error:
            with pytest.raises(type(error), match=None):
                replayer.compare(policy, baseline).result()
        else:
            assert _same(replayer.compare(policy, baseline).result(), wanted)


def test_figures_without_intervals_equal_those_with_and_draw_nothing(monkeypatch):
    answers = [["b", "a", "a"] if q % 3 else ["a", "a", "a"] for q in range(12)]
    stable = [[None, float(q % 3 == 0), 1.0] for q in range(12)]
    recording = recording_of(answers, answer_stable=stable, abstained=0.0)
    replayer = Replayer(recording)
    quick = replayer.compare("answer_stable").result(intervals=False)
    assert "draws" not in vars(replayer)
    whole = replayer.compare("answer_stable").result()
    without_tests = replayer.compare("answer_stable").result(tests=False)
    nothing = replay(recording, "answer_stable", metrics=())
    assert [row.stop_rounds for row in nothing.rows[:2]] == [row.stop_rounds for row in whole.rows[:2]]
    for row, full, untested in zip(quick.rows, whole.rows, without_tests.rows, strict=True):
        assert (row.label, row.metrics, row.calls, row.stop_rounds) == (
            full.label,
            full.metrics,
            full.calls,
            full.stop_rounds,
        )
        assert (row.cheapest_match, row.dominated_by) == (full.cheapest_match, full.dominated_by)
        for name, delta in full.deltas.items():
            assert (row.deltas[name].delta, row.deltas[name].n_nonzero) == (delta.delta, delta.n_nonzero)
            assert math.isnan(row.deltas[name].low)
            assert untested.deltas[name].triple == delta.triple
            assert math.isnan(untested.deltas[name].p)
        assert not row.margins
        assert not untested.margins


def test_a_comparison_ends_where_its_check_raises():
    class Ended(Exception):
        pass

    calls = []

    def check():
        calls.append(None)
        if len(calls) == 3:
            raise Ended

    replayer = Replayer(bundled_recording("samples_date"), orders=40)
    with pytest.raises(Ended):
        replayer.compare("lead(3)", check=check)
    assert len(calls) == 3
    assert replayer.compare("lead(3)").result(intervals=False).rows[0].label == "lead(3)"
