"""An advice is taken back when later questions lose more: the alarm beside a trial, its sentence, and its state in a file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks.advice import Drifting

from suffice import write_recording
from suffice.errors import DataError, SchemaError
from suffice.evaluation.statistics import Alarm
from suffice.verdicts.decisions import Advice, Labels, decide
from suffice.verdicts.decisions.drift import DriftAlarm
from tests.suffice.verdicts.test_decide import converged_at_2, log_of
from tests.support.cli_tools import cli

BOUND, ALPHA = 0.02, 0.05


def losing(share: float):
    """Return scores under which a share of the questions needs the last round."""
    each = round(1 / share)
    return lambda q, r: float(q % each > 0 or r == 5)


def continued(advice: Advice, values, *, first: int, n: int, visit: int = 100) -> list[Advice]:
    """Return the advice after each visit."""
    visits = []
    for start in range(first, first + n, visit):
        advice = decide(log_of(visit, values, first=start), previous=advice)
        visits.append(advice)
    return visits


@pytest.fixture(scope="module")
def advised() -> Advice:
    """Advice on 1,500 questions to stop at round 2."""
    return decide(log_of(1500, converged_at_2), metric="quality")


@pytest.fixture(scope="module")
def lost(advised) -> list[Advice]:
    """The same after each of six visits in which one question in ten needs the last round."""
    return continued(advised, losing(0.1), first=1500, n=600)


def reference(losses, bound):
    """Return excess, least and began of one candidate by a plain loop; the alarm looks at all losses so far."""
    excess, least, began = 0.0, 0.0, 0
    for n in range(1, len(losses) + 1):
        excess += losses[n - 1] - bound
        rang = int(Alarm.start(bound, ALPHA).observe(losses[:n]).rang_at)
        if excess < least and (not rang or n < rang):
            least, began = excess, n
    return excess, least, began


def test_the_beginning_of_a_rise_equals_a_plain_loop_however_visits_divide():
    rng = np.random.default_rng(4)
    good, bad = rng.random((3, 90)) < 0.02, rng.random((3, 130)) < np.array([[0.5], [0.1], [0.0]])
    losses = np.concatenate([good, bad], axis=1).astype(float)
    whole = DriftAlarm.start(BOUND, ALPHA, 3).observe(losses)
    parts = DriftAlarm.start(BOUND, ALPHA, 3)
    for first, last in ((0, 1), (1, 1), (1, 95), (95, 150), (150, 220)):
        parts = parts.observe(losses[:, first:last])
    assert whole.rings.tolist() == [True, True, False]
    for state in (whole, parts):
        for place in range(3):
            excess, least, began = reference(losses[place], BOUND)
            assert state.excess[place] == pytest.approx(excess)
            assert state.least[place] == pytest.approx(least)
            assert state.began[place] == began
            assert began < 220 or np.isnan(state.since[place])
            assert began == 220 or state.since[place] == pytest.approx(losses[place, began:].mean())
    np.testing.assert_array_equal(whole.alarm.rang_at, parts.alarm.rang_at)


def test_a_state_survives_a_file_and_goes_on_alike():
    rng = np.random.default_rng(1)
    losses = (rng.random((2, 300)) < 0.06).astype(float)
    state = DriftAlarm.start(BOUND, ALPHA, 2).observe(losses[:, :200])
    read = DriftAlarm.from_dict(json.loads(json.dumps(state.to_dict(), allow_nan=False)), BOUND, ALPHA, 2)
    assert read is not None
    assert read.to_dict() == state.to_dict()
    assert read.observe(losses[:, 200:]).to_dict() == state.observe(losses[:, 200:]).to_dict()
    assert DriftAlarm.from_dict(None, BOUND, ALPHA, 2) is None


@pytest.mark.parametrize("change", [{"excess": [0.0]}, {"log_value": [0.0, None]}, {"n": "many"}, {"began": {}}])
def test_a_state_that_does_not_fit_is_refused(change):
    data = DriftAlarm.start(BOUND, ALPHA, 2).observe(np.zeros((2, 5))).to_dict()
    with pytest.raises(SchemaError, match="alarm of a"):
        DriftAlarm.from_dict({**data, **change}, BOUND, ALPHA, 2)


def test_false_alarms_are_at_most_the_risk_at_the_bound():
    rng, runs = np.random.default_rng(11), 200
    drawn = rng.random((2, runs, 1000))
    for losses in ((drawn[0] < BOUND).astype(float), np.where(drawn[1] < 0.05, -1.0, drawn[1] < 0.1 + BOUND)):
        assert DriftAlarm.start(BOUND, ALPHA, runs).observe(losses).rings.mean() <= ALPHA


def test_an_alarm_takes_advice_back_long_before_the_mean_does(advised, lost):
    assert advised.verdict == "do it"
    assert advised.trial.drift is None
    back = next(advice for advice in lost if advice.verdict != "do it")
    assert back.verdict == "keep what you have"
    assert back.policy is None
    trial = back.trial
    mean = trial.totals.losses[list(trial.taken_back)] / trial.totals.n
    assert len(mean)
    assert (mean < BOUND).all(), "the mean of all questions is still within the bound"
    assert trial.proved_once.any()
    assert not trial.proved.any()
    assert back.sentence.startswith(
        "Go back to what you had: fixed_k(2), proved earlier to lose less than 2 points of quality, "
    )
    assert "seems to lose 10." in back.sentence
    rang = advised.n + int(trial.drift.alarm.rang_at[0])
    assert f"the alarm rang at question {rang:,} (risk 5 % if the questions are independent)" in back.sentence
    assert "(-o OTHER.json)" in back.sentence
    assert any(note.startswith("not advised any more: fixed_k(2), shown earlier") for note in back.notes)
    states = {item.policy: (item.state, item.needed) for item in back.figures}
    assert states["fixed_k(2)"] == ("taken back", None)


def test_the_alarm_is_faster_than_the_mean_after_long_good_times():
    rng = np.random.default_rng(3)
    back, by_mean = np.array([Drifting(3000, 0.0, 0.1).taken_back(rng) for _ in range(5)]).T
    assert (back <= 500).all()
    assert (by_mean >= 500).all()
    assert np.median(back) < np.median(by_mean) / 2


def test_the_command_says_to_go_back_and_to_decide_anew(tmp_path):
    paths = [tmp_path / name for name in ("before.parquet", "after.parquet")]
    for path, values, first, n in ((paths[0], converged_at_2, 0, 1500), (paths[1], losing(0.1), 1500, 400)):
        log = log_of(n, values, first=first)
        write_recording(path, log.table, log.metadata)
    decision = tmp_path / "decision.json"
    assert cli("decide", paths[0], "--metric", "quality", "-o", decision).code == 0
    shown = cli("decide", paths[1], "--continue", decision, "-o", decision, code=0)
    assert shown.words.startswith(
        "Go back to what you had: a limit of 2 rounds, proved earlier to lose less than 2 points"
    )
    assert "next: suffice decide FRESH.parquet -o OTHER.json" in shown.out
    assert "taken back" in shown.words


def test_a_proof_that_was_taken_back_never_returns(lost):
    back = lost[-1]
    # Enough that the mean of all is far within the bound again.
    good = decide(log_of(2000, converged_at_2, first=2100), previous=back)
    place = good.trial.taken_back[0]
    assert good.trial.totals.losses[place] / good.trial.totals.n < 0.9 * BOUND
    assert good.trial.rung.any()
    assert good.verdict == "keep what you have"
    assert good.sentence.split("since")[1].split(" of ")[0] == back.sentence.split("since")[1].split(" of ")[0]


def test_losses_after_the_alarm_move_no_beginning():
    state = DriftAlarm.start(BOUND, ALPHA, 1).observe(np.concatenate([np.zeros(50), np.ones(40)])[None])
    assert state.rings.all()
    assert state.observe(np.full((1, 500), -1.0)).began.tolist() == state.began.tolist() == [50]


def test_a_decision_that_tests_nothing_goes_on_from_its_file(tmp_path):
    def spent(q, r):
        return float(r == 1)  # later rounds are free, so that no cap saves

    advice = decide(log_of(60, converged_at_2, **{"cost.generator.calls": spent}), metric="quality")
    for visit in (1, 2):
        advice = decide(
            log_of(60, converged_at_2, first=60 * visit, **{"cost.generator.calls": spent}), previous=advice
        )
        advice.save(tmp_path / "decision.json")
        advice = Advice.load(tmp_path / "decision.json")
    assert advice.trial.sequence == ()
    assert advice.sentence.startswith("Keep what you have: nothing here would save calls")


def test_candidates_that_were_never_proved_are_not_taken_back(lost):
    back = lost[-1]
    untested = {"fixed_k(3)", "fixed_k(4)"}
    assert untested <= {item.policy for item in back.figures if not item.tested}
    assert not any(name in note for note in back.notes for name in untested)


def test_a_proof_that_used_the_share_of_another_falls_with_it():
    def good(q, r):  # cap 1 loses a little, cap 2 nothing
        return float(r > 1 or q % 150 > 0)

    def bad(q, r):  # only cap 2 loses
        return float(r != 2 or q % 2 > 0)

    tune, log = log_of(300, good, rounds=3), log_of(700, good, first=300, rounds=3)
    first = decide(log, metric="quality", tune=tune)
    assert first.policy.label == "fixed_k(1)"
    assert np.exp(first.trial.below.log_highest[0]) < 100  # which its own share needs
    back = decide(log_of(90, bad, first=1000, rounds=3), previous=first)
    assert back.sentence.startswith("Go back to what you had: fixed_k(2)")
    states = {item.policy: (item.state, item.waits_for) for item in back.figures}
    assert states == {"fixed_k(1)": ("open", ""), "fixed_k(2)": ("taken back", "")}
    assert any(note.startswith("not advised any more: fixed_k(1), proved earlier with") for note in back.notes)


def test_other_candidates_stay_advised_and_the_sentence_says_both():
    def earlier(q: int, r: int) -> float:
        return float((q % 200 > 0 or r >= 3) and r >= 2)

    def later(q: int, r: int) -> float:
        return float((q % 10 > 0 or r >= 3) and r >= 2)

    first = decide(log_of(1500, earlier), metric="quality")
    assert first.policy is not None
    assert first.policy.label == "fixed_k(2)"
    back = continued(first, later, first=1500, n=600)[-1]
    assert back.verdict == "do it"
    assert back.policy is not None
    assert back.policy.label == "fixed_k(3)"
    assert "fixed_k(2), proved earlier to lose less than 2 points of quality, seems to lose 10" in back.sentence
    assert Advice.from_dict(back.to_dict()).sentence == back.sentence


def test_good_questions_never_take_advice_back():
    first = decide(log_of(400, converged_at_2), metric="quality")
    visits = continued(first, converged_at_2, first=400, n=500)
    assert all(advice.verdict == "do it" for advice in visits)
    assert visits[-1].trial.drift.n == 500


def test_a_file_without_the_alarm_starts_it_at_the_next_visit(advised):
    later = continued(advised, converged_at_2, first=1500, n=200, visit=200)[-1].to_dict()
    del later["trial"]["drift"]
    back = continued(Advice.from_dict(later), losing(0.1), first=1700, n=600)[-1]
    assert back.trial.drift.n == 600
    assert back.verdict == "keep what you have"
    since = int(back.sentence.split("since about question ")[1].split(" of ")[0].replace(",", ""))
    assert abs(since - advised.n - 200) < 60


def test_missing_scores_of_later_questions_ring_no_alarm(advised):
    scores = {True: lambda q, r: None if r == 2 and q % 5 == 0 else 1.0, False: lambda q, r: float(r != 2 or q % 5 > 0)}
    unknown, lost = (decide(log_of(100, scores[missing], first=1500), previous=advised).trial for missing in scores)
    np.testing.assert_array_equal(
        unknown.totals.losses[list(unknown.sequence)], lost.totals.losses[list(lost.sequence)]
    )
    assert (unknown.rung.any(), lost.rung.any()) == (False, True)


def test_a_mean_above_the_bound_is_said_without_a_beginning():
    def partly(q, r):  # too few losses for the alarm, and some scores that are missing
        return 1.0 if r == 5 else None if q % 40 == 0 else float(q % 25 > 0)

    back = decide(log_of(500, converged_at_2), metric="quality")
    for first in (500, 700):
        back = decide(log_of(200, partly, first=first), previous=back)
        trial = back.trial
        assert not trial.rung.any()
        place = trial.taken_back[0]
        lost, unknown = (100 * sums[place] / trial.totals.n for sums in (trial.totals.losses, trial.totals.open))
        assert unknown > 0
        assert (
            f"points of quality, lost {lost:.1f} on all {trial.totals.n:,} questions together, of which {unknown:.1f} are unknown"
        ) in back.sentence
        assert "since about question" not in back.sentence


def test_where_labels_judge_no_alarm_is_kept():
    log = log_of(60, converged_at_2)
    bare = type(log)(log.table.drop_columns(["quality"]), log.metadata)
    advice = decide(bare, labels=Labels())
    advice = decide(bare, labels=Labels(right=dict.fromkeys(advice.to_label[:5], ("a",))), previous=advice)
    assert advice.trial.drift is None
    assert "drift" not in advice.to_dict()["trial"]


def test_the_bound_of_an_alarm_is_checked():
    with pytest.raises(DataError, match="epsilon must lie"):
        DriftAlarm.start(0.0, ALPHA, 1)
