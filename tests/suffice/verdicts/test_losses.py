"""The account of losses: bounds, questions that count once, and what equal answers lose."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st

from suffice.errors import CensoredError
from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.baselines import recorded_run
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.rules import fixed_k
from suffice.policy.session import Policy
from suffice.verdicts.certificates import Claim, measure_losses
from suffice.verdicts.losses import LossAccount, Questions, loss_bounds, same_texts
from tests.support.shared import recording_of

METRIC = st.one_of(st.just(math.nan), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
ONE = Policy(rule=fixed_k(1), max_rounds=1)


@given(st.lists(st.tuples(METRIC, METRIC), min_size=1, max_size=6), st.sampled_from([-1.0, 0.0]))
def test_bounds_are_the_extremes_of_all_completions(pairs, lowest):
    mine, base = np.array(pairs).T
    low, high = loss_bounds(mine, base, lowest=lowest)
    for q, pair in enumerate(pairs):
        choices = [[0.0, 1.0] if math.isnan(value) else [value] for value in pair]
        losses = [max(b - m, lowest) for m, b in itertools.product(*choices)]
        assert (low[q], high[q]) == (min(losses), max(losses))


def account(recording, metric="em", **options):
    prepared = PreparedRecording.of(recording, [metric], samples=True)
    return LossAccount.of(prepared, partial(recorded_run, like=Policy(), start_round=1), **options)


def test_equal_answers_lose_nothing_without_a_gold():
    answers = [["a", "a"], ["a", "b"], ["a", "b"], [None, None]]
    recording = recording_of(answers, em=[[None, None], [None, None], [0.0, 1.0], [None, None]])
    (loss,) = account(recording).losses([ONE])
    assert loss.low.tolist() == [0.0, -1.0, 1.0, -1.0]
    assert loss.high.tolist() == [0.0, 1.0, 1.0, 1.0]
    assert loss.open.tolist() == [0.0, 1.0, 0.0, 1.0]


def test_equal_answers_may_differ_in_a_score_of_somebody_else():
    recording = recording_of([["a", "a"]], mark=[[None, 0.5]], kinds={"mark": "metric"})
    (loss,) = account(recording, "mark").losses([ONE])
    assert (loss.low.tolist(), loss.high.tolist()) == ([-0.5], [0.5])
    assert not same_texts(recording, "mark", np.array([1]), np.array([2])).any()


def test_the_same_stop_loses_nothing_whatever_it_scores():
    recording = recording_of([["a", "b"], ["a"]], mark=[[None, None], [None]], kinds={"mark": "metric"})
    (loss,) = account(recording, "mark").losses([ONE])
    assert (loss.low.tolist(), loss.high.tolist()) == ([-1.0, 0.0], [1.0, 0.0])


def test_harm_counts_no_gain_and_bounds_stay_in_order():
    recording = recording_of([["a", "b"], ["a", "b"], ["a", "b"]], em=[[1.0, 0.0], [0.0, 1.0], [1.0, None]])
    (loss,) = account(recording, harm=True).losses([ONE])
    assert (loss.low.tolist(), loss.high.tolist()) == ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0])


def test_rows_of_one_question_are_one_unit_with_their_mean():
    recording = recording_of(
        [["a"], ["b"], ["c"], ["d"]], cluster=["x", "y", "x", "y"], end=["max_rounds"] * 3 + ["failed"]
    )
    questions = Questions.of(recording)
    assert (questions.units.n_units, questions.n_failed) == (2, 1)
    assert questions.means(np.array([0.5, 1.0, 0.25]), failed=-1.0).tolist() == [0.375, 0.0]
    assert questions.of_recorded().means(np.array([0.5, 1.0, 0.25]), failed=math.nan).tolist() == [0.375, 1.0]
    left = Questions.of(recording, leave_out_failed=True)
    assert (left.recorded.all(), len(left.names), left.n_failed) == (True, 3, 1)
    assert questions.first_ids == [recording.question_ids[0], recording.question_ids[1]]


def test_ids_of_questions_are_listed_once_for_a_certificate(monkeypatch):
    """Listing them for each question made a certificate of 50,000 questions take minutes."""
    listed = []

    def first_ids(self):
        listed.append(1)
        return [*dict.fromkeys(self.ids)]

    monkeypatch.setattr(Questions, "first_ids", property(first_ids))
    recording = recording_of([["a", "b"]] * 4, em=[[1.0, 1.0]] * 4)
    measured = measure_losses(recording, [ONE], Claim(epsilon=0.1, confidence=0.95, metric="em"))
    assert (len(listed), len(measured.question_ids)) == (1, 4)


def test_a_baseline_past_what_was_recorded_is_refused():
    recording = recording_of([["a", "b"], ["a"]], em=[[1.0, 1.0], [1.0]], end=["max_rounds", "rule"])
    prepared = PreparedRecording.of(recording, ["em"])
    with pytest.raises(CensoredError, match="baseline 'full'"):
        LossAccount.of(prepared, policy_for(recording, "full"))


def test_the_order_of_bets_follows_texts_and_not_ids():
    texts = [f"Who wrote book {number}?" for number in range(30)]

    def order(prefix: str, **columns) -> list[int]:
        ids = [f"{prefix}{number}" for number in range(30)]
        return Questions.of(recording_of([["a", "b"]] * 30, question_id=ids, **columns)).order("salt").tolist()

    assert order("q", question=texts) == order("r", question=texts)
    assert order("q") != order("r")


def test_texts_of_signs_alone_order_by_name():
    recording = recording_of([["a", "b"]] * 3, question=["?", "!", "Who?"])
    assert sorted(Questions.of(recording).order("salt").tolist()) == [0, 1, 2]
