"""Loops with a check: its error, whether that falls, and the rules that read both."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from suffice.evaluation.replay import policy_for
from suffice.policy.rounds import Round, Rounds
from suffice.policy.rules import parse_rule
from suffice.policy.session import Policy, Session
from suffice.policy.signals import compute_signals
from suffice.recordings import bundled_recording
from suffice.recordings.computed import compute_column

ERRORS = st.lists(st.integers(0, 12).map(float), min_size=1, max_size=12)


def steps(errors):
    return [Round(index=i, answer=f"draft {i}", signals={"check_error": e}) for i, e in enumerate(errors, start=1)]


def gains(errors):
    """Smooth ratios in a plain loop, as LoopGain 0.1 describes it: an exponential mean over three observations."""
    smoothed, result = None, [math.nan]
    for before, now in pairwise(errors):
        ratio = now / before if before > 0 else 0.0 if now == 0 else 2.05
        smoothed = ratio if smoothed is None else (ratio + smoothed) / 2
        result.append(smoothed)
    return result


@given(ERRORS)
def test_the_gain_is_that_of_a_plain_loop(errors):
    rounds = steps(errors)
    found = [compute_signals(rounds[: i + 1], ["error_gain"], state={})["error_gain"] for i in range(len(rounds))]
    np.testing.assert_allclose(found, gains(errors))


def test_the_gain_begins_anew_after_an_unknown_error():
    rounds = steps([4.0, 2.0, math.nan, 3.0, 6.0])
    found = [compute_signals(rounds[: i + 1], ["error_gain"], state={})["error_gain"] for i in range(5)]
    np.testing.assert_equal(found, [math.nan, 0.5, math.nan, math.nan, 2.0])


@given(ERRORS, st.integers(1, 6))
def test_checked_stops_at_no_error_or_at_its_round(errors, most):
    session = Session(Policy(rule=f"checked({most})", selector="min_check_error", max_rounds=12))
    for observed in steps(errors):
        decision = session.observe(observed)
        expected = observed.signals["check_error"] == 0 or observed.index >= most
        assert decision.stop == expected
        if expected:
            seen = errors[: observed.index]
            assert errors[decision.answer_round - 1] == min(seen)
            return


def test_loopgain_ends_its_own_runs_where_they_ended():
    ended = bundled_recording("checked_loops_loopgain")
    made = np.array(["adversarial" in cell for cell in ended.objects("cell")[:, 0]])
    columns = {"check_error": ended.column("check_error"), "error_gain": compute_column(ended, "error_gain")}
    view = Rounds(columns, ended.index, ended.seen)
    for rule, cells in (("loopgain(0.5)", ~made), ("loopgain", made)):
        fires = parse_rule(rule).fires(view) & ended.seen
        last = ended.seen.sum(axis=1) - 1
        assert fires.any(axis=1)[cells].all()
        np.testing.assert_array_equal(fires.argmax(axis=1)[cells], last[cells])


@pytest.mark.parametrize("rule", ["checked(3)", "loopgain(0)", "check_error <= 0"])
def test_the_rules_replay_on_recorded_loops_as_live(rule):
    loops = bundled_recording("checked_loops")
    policy = policy_for(loops, rule, selector="min_check_error")
    error = loops.column("check_error")
    for row in range(0, len(error), 97):
        session = Session(policy)
        for observed in steps(error[row].tolist()):
            decision = session.observe(observed)
            if decision.stop:
                break
        fires = parse_rule(rule).fires(
            Rounds(
                {
                    "check_error": error[row],
                    "error_gain": np.array(gains(error[row].tolist())),
                    "round": loops.index.astype(float),
                },
                loops.index,
                loops.seen[row],
            )
        )
        assert decision.stop_round == (int(fires.argmax()) + 1 if fires.any() else 20)
