"""The risk of false alarms is spent over the policies of a loop: their numbers, their shares, and what is printed."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice import write_recording
from suffice.errors import DataError
from suffice.evaluation.statistics import Alarm
from suffice.evaluation.statistics.restarts import share_left
from suffice.recordings.recording import Recording
from suffice.verdicts.watches import watch
from suffice.verdicts.watches.policies import policy_number, share_of_risk
from tests.support.cli_tools import cli
from tests.support.production import BEGIN, MINUTE, POLICY, certified, production_log

POLICIES = [POLICY, *(replace(POLICY, max_rounds=3, rule=f"answer_margin >= {number}") for number in (2, 3, 4))]


def log_of_policies(places, *, n: int | None = None, **columns) -> Recording:
    """Return a log of one-minute requests, each decided by the policy at its place; None is a request without a policy."""
    digests = [None if place is None else POLICIES[place].digest for place in places]
    return production_log(n or len(places), policy_digest=digests, **columns)


def deployed_after(n: int, before: int) -> Recording:
    """Return a log of n requests of `POLICY`, after as many of each of some other policies."""
    places = [place for place in range(before, 0, -1) for _ in range(20)] + [0] * n
    return log_of_policies(places)


# Numbers and shares


@settings(max_examples=40)
@given(st.lists(st.sampled_from([None, 0, 1, 2, 3]), min_size=1, max_size=12), st.randoms())
def test_policies_are_numbered_by_their_first_request_in_any_row_order(places, random):
    log = log_of_policies(places)
    expected: list[int] = []
    for place in places:  # by a plain loop
        if place is not None and place not in expected:
            expected.append(place)
    rows = log.table.to_pylist()
    blocks = [[row for row in rows if row["question_id"] == name] for name in log.question_ids]
    random.shuffle(blocks)
    shuffled = Recording(
        type(log.table).from_pylist([*itertools.chain(*blocks)], schema=log.table.schema), log.metadata
    )
    for number, place in enumerate(expected, start=1):
        assert policy_number(log, POLICIES[place]) == policy_number(shuffled, POLICIES[place]) == number
    absent = replace(POLICY, max_rounds=9)
    assert policy_number(log, absent) == len(expected) + 1


def test_policies_that_began_at_once_have_different_numbers():
    log = log_of_policies([0, 1, 2, 3], recorded_at=[BEGIN] * 4)
    assert sorted(policy_number(log, policy) for policy in POLICIES) == [1, 2, 3, 4]


def test_without_times_the_order_of_the_log_counts():
    log = log_of_policies([2, 1, 0, 1])
    bare = Recording(log.table.drop_columns(["recorded_at"]), log.metadata)
    assert [policy_number(bare, policy) for policy in POLICIES] == [3, 2, 1, 4]


@settings(max_examples=50)
@given(st.floats(0.001, 0.5), st.integers(1, 300))
def test_the_shares_of_all_policies_add_up_to_the_risk(alpha, n):
    spent = sum(share_of_risk(alpha, number) for number in range(1, n + 1))
    assert spent + alpha * float(share_left(n + 1)) == pytest.approx(alpha)
    assert spent < alpha


def test_a_number_below_one_is_refused():
    for number in (0, -2):
        with pytest.raises(DataError, match="numbered from 1"):
            watch(production_log(50), certified(), number=number)


# False alarms over changes


def test_false_alarms_over_many_policies_are_at_most_the_risk():
    rng, runs, bound, alpha = np.random.default_rng(2), 60, 0.1, 0.2
    spent, anew = np.zeros((2, runs), dtype=bool)
    for number in range(1, 13):
        losses = (rng.random((runs, 300)) < bound).astype(float)
        spent |= Alarm.start(bound, share_of_risk(alpha, number), low=0.0, shape=(runs,)).observe(losses).rings
        anew |= Alarm.start(bound, alpha, low=0.0, shape=(runs,)).observe(losses).rings
    assert spent.mean() <= alpha
    assert anew.mean() > 1.5 * alpha, "what alarms do that start with the whole risk"


# What is printed


def test_a_later_policy_says_its_smaller_share_of_the_risk():
    results = [watch(deployed_after(400, before), certified()) for before in (0, 2)]
    assert [result.number for result in results] == [1, 3]
    assert [round(result.risk, 5) for result in results] == [round(0.05 * 0.40938, 5), 0.00287]
    first, third = ([note for note in result.notes if "false alarm" in note] for result in results)
    assert first[0].startswith(
        "the risk of a false alarm is 2 % for this policy, number 1 of this log, and 5 % over all policies that it ever has. If"
    )
    assert "--set policy-number=N" in first[0]
    assert third == [
        "the risk of a false alarm is 0.29 % for this policy, number 3 of this log, and 5 % over all policies that it ever has"
    ]
    values = json.loads(json.dumps(results[1].to_dict(), allow_nan=False))
    assert (values["number"], values["alpha"]) == (3, 0.05)
    assert values["risk"] == pytest.approx(share_of_risk(0.05, 3))
    facts = str(results[1].tables()[-1].rows)
    assert "0.29 %; 5 % over all policies; this is number 3" in facts
    assert "the alarm rings at 348" in facts


def test_an_alarm_rings_at_the_share_of_its_policy():
    log = production_log(1500, loss=lambda number: 0.4, rate=lambda number: 1.0)
    rang = [watch(log, certified(), number=number) for number in (1, 20, 1000)]
    assert all(result.rang for result in rang)
    places = [result.alarm.rang for result in rang]
    assert places == sorted(set(places)), "the smaller the share, the later it rings"
    words = "(risk 2 %; 5 % over all policies); the mean since deployment"
    assert words in rang[0].sentence
    kept = watch(production_log(3000), certified(), number=3)
    assert "348 would ring)" in kept.sentence
    assert watch(production_log(3000), certified(), alpha=0.2, number=1).risk == pytest.approx(0.2 * 0.40938, abs=1e-5)


def test_without_a_bound_there_is_no_risk_to_spend():
    assert not any("false alarm" in note for note in watch(production_log(300), POLICY).notes)


def test_the_command_counts_policies_in_the_whole_log(tmp_path):
    places = [1] * 40 + [0] * 400
    log = log_of_policies(places, model=["a"] * 40 + ["b"] * 400)
    write_recording(tmp_path / "log.parquet", log.table, log.metadata)
    certified().save(tmp_path / "policy.json")
    command = ["watch", tmp_path / "log.parquet", "--policy", tmp_path / "policy.json", "--json"]
    part = cli(*command, "--where", "model=b", code=0)
    assert json.loads(part.out)["number"] == 2
    declared = cli(*command, "--where", "model=b", "--set", "policy-number=7")
    assert json.loads(declared.out)["number"] == 7
    assert "--set policy-number=7" in json.loads(declared.out)["next"]
    assert "for this policy, number 7 of this loop, and 5 %" in " ".join(json.loads(declared.out)["notes"])
    assert cli(*command, "--set", "policy-number=0").code == 2


def test_a_time_since_which_requests_count_hides_no_policy():
    log = deployed_after(400, 2)
    assert watch(log, certified(), since=BEGIN + 100 * MINUTE).number == 3
