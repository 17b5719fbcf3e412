"""Decisions about agents: what a change must save, and where the money went."""

import json
import math

import numpy as np
import pytest

from suffice import decide
from suffice.errors import DataError
from suffice.evaluation.replay import Price, list_price, prices_of, replay
from suffice.evaluation.replay.prices import with_priced_spend
from suffice.recordings import bundled_recording, read_recording, write_recording
from suffice.verdicts.decisions import Advice, Labels
from suffice.verdicts.decisions.steps import Spending
from tests.support.cli_tools import cli


def run(name, states, *, resolved, dollars, commands=None):
    """Return the rows of a run: `states` by step, None before the first change."""
    known, spent, rows = set(), 0.0, []
    for place, state in enumerate(states, start=1):
        command = commands[place - 1] if commands else f"command {place}"
        spent += dollars[place - 1]
        rows.append(
            {
                "question_id": name,
                "round": place,
                "end": "exhausted",
                "answer": state,
                "resolved": float(resolved and state == states[-1]),
                "command_repeated": float(command in known),
                "spend": spent,
                "cost.generator.calls": 1.0,
            }
        )
        known.add(command)
    return rows


def recorded(tmp_path, rows):
    path = tmp_path / "runs.parquet"
    write_recording(path, rows, {}, {"resolved": "metric"})
    return read_recording(path)


def test_money_is_counted_by_what_came_after_the_last_change(tmp_path):
    rows = run("a", [None, "s1", "s2", "s2", "s2"], resolved=True, dollars=[1, 2, 3, 4, 5], commands="abcbc")
    rows += run("b", ["s1", "s2", "s1"], resolved=False, dollars=[1, 1, 3], commands="xyz")
    found = Spending.of(recorded(tmp_path, rows), "resolved")
    assert (found.unit, found.runs, found.total) == ("USD", 2, 20.0)
    assert found.after_change == pytest.approx(9 / 20)  # in b a state came back: its last change is its last step
    assert found.failed == pytest.approx(5 / 20)
    assert found.savable == pytest.approx((9 + 4) / 20)  # all but the first step of the run that failed
    assert found.repeated == pytest.approx(9 / 20)
    assert sum(found.by_tenth) == pytest.approx(1)
    assert Spending.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_run_without_a_result_has_no_last_change(tmp_path):
    found = Spending.of(recorded(tmp_path, run("a", [None, None, None], resolved=False, dollars=[1, 1, 1])), "resolved")
    assert found.after_change == 0


def test_without_prices_and_tokens_nothing_is_said_of_spending(tmp_path):
    rows = [{**row, "spend": None} for row in run("a", ["s", "s"], resolved=True, dollars=[1, 1])]
    assert Spending.of(recorded(tmp_path, rows), "resolved") is None


def test_a_spend_that_falls_is_not_what_was_spent_so_far(tmp_path):
    rows = run("a", ["s", "s", "s"], resolved=True, dollars=[1, 1, 1])
    for row, value in zip(rows, (1.0, 0.5, 2.0), strict=True):
        row["spend"] = value
    assert Spending.of(recorded(tmp_path, rows), "resolved") is None


def test_the_coding_agent_is_kept_as_it_is():
    advice = decide(bundled_recording("agents_swebench"))
    assert (advice.verdict, advice.trial.cost, advice.trial.min_saving) == ("keep what you have", "money", 0.05)
    assert advice.spending.runs == 500
    assert advice.spending.after_change == pytest.approx(0.222, abs=0.002)
    assert "5 % of the money or more" in advice.sentence
    assert "22 %" in advice.lead
    assert (
        "could save 50 % at most" in advice.lead
    )  # half the money went into runs that failed, or after a right result
    again = Advice.from_dict(json.loads(json.dumps(advice.to_dict())))
    assert (again.lead, again.trial.min_saving) == (advice.lead, 0.05)


def test_a_smaller_saving_counts_if_that_is_declared():
    agents = bundled_recording("agents_swebench")
    agents = agents.select(np.arange(agents.shape[0]) < 250)
    advice = decide(agents, min_saving=0.0, cost="calls", max_loss=0.05)
    saving = advice.trial.totals.saving("calls")
    assert advice.verdict == "do it"
    assert advice.trial.saves.sum() == (saving > 0).sum() > (saving > 0.05).sum()


def test_a_candidate_must_save_what_is_declared():
    loops = bundled_recording("checked_loops")
    loops = loops.select(np.arange(loops.shape[0]) % 5 == 0)
    for least in (0.0, 0.65, 0.69, 0.9):
        trial = decide(loops, min_saving=least).trial
        np.testing.assert_array_equal(trial.saves, trial.totals.saving("calls") >= max(least, 1e-12))
    with pytest.raises(DataError, match="min_saving"):
        decide(loops, min_saving=1.0)


def test_loops_with_a_check_return_the_draft_with_least_error():
    loops = bundled_recording("checked_loops")
    advice = decide(loops.select(np.arange(loops.shape[0]) % 2 == 0))
    by_label = {figures.policy: figures for figures in advice.figures}
    assert advice.trial.selector == "min_check_error"
    stop = by_label["check_error <= 0"]
    assert (stop.state, stop.change[0]) == ("proved", 0.0)
    assert {"checked(3)", "loopgain(0)"} <= by_label.keys()


def test_the_screen_shows_where_the_money_went(tmp_path):
    path = tmp_path / "runs.parquet"
    recording = bundled_recording("agents_swebench")
    few = recording.select(np.arange(len(recording.question_ids)) < 40)
    write_recording(path, few.table, few.metadata)
    shown = cli("decide", path, "-o", tmp_path / "d.json").out
    assert "Where the money went" in shown
    assert "after the last change" in shown
    listed = cli("decide", path, "-o", tmp_path / "e.json", "--json", "--set", "min-saving=0.2").json
    assert listed["spending"]["unit"] == "USD"
    assert listed["trial"]["min_saving"] == 0.2


def test_nobody_labels_the_states_of_files():
    with pytest.raises(DataError, match="outcomes"):
        decide(bundled_recording("agents_swebench"), labels=Labels())


def test_a_verdict_that_cannot_be_judged_says_no_more(tmp_path):
    rows = [row for q in range(60) for row in run(f"q{q}", ["s", "t", "u", "v"], resolved=q % 2, dollars=[1, 1, 1, 1])]
    unknown = [{**row, "resolved": row["resolved"] if row["round"] == 4 else None} for row in rows]
    advice = decide(recorded(tmp_path, unknown), metric="resolved")
    assert advice.verdict == "cannot be judged"
    assert "--metric 'abandon(resolved)'" in advice.lead
    assert advice.spending is not None


def test_prices_reach_the_only_model_that_a_log_names(tmp_path):
    rows = [row for name in "abcd" for row in run(name, ["s", "s", "t"], resolved=True, dollars=[math.nan] * 3)]
    for row in rows:
        row |= {"model": "claude-opus-4-5", "cost.generator.uncached_tokens": 1000.0}
        row |= {"cost.generator.cached_tokens": 2000.0, "cost.generator.output_tokens": 40.0}
    recording = recorded(tmp_path, rows)
    prices = prices_of("list", recording)
    assert prices == {"generator": list_price("claude-opus-4-5").price}
    result = replay(recording, ["spend > 0.01"], metrics=["resolved"], prices=prices)
    (row,) = [row for row in result.rows if row.kind == "rule"]
    assert row.costs["money"] == pytest.approx(2 * 0.007)  # each step is 0.7 cents
    assert Spending.of(recording, "resolved", prices).total == pytest.approx(12 * 0.007)


def test_rules_on_spending_are_tried_where_prices_say_it(tmp_path):
    rows = []
    for place in range(60):
        rows += run(f"run {place}", ["s", "t", "t", "t"], resolved=place % 2, dollars=[math.nan] * 4)
    for row in rows:
        row |= {"cost.generator.uncached_tokens": 1000.0 * row["round"], "cost.generator.cached_tokens": 0.0}
        row["cost.generator.output_tokens"] = 0.0
    price = Price(uncached=1.0, cached=1.0, output=1.0)
    advice = decide(recorded(tmp_path, rows), prices=price)
    assert any("spend" in policy.rule.signals for policy in advice.trial.candidates)


def test_dollars_of_the_log_are_not_replaced_by_prices(tmp_path):
    rows = run("a", ["s", "s"], resolved=True, dollars=[1, 2])
    kinds = ("uncached_tokens", "cached_tokens", "output_tokens")
    rows = [{**row, **{f"cost.generator.{kind}": 1.0 for kind in kinds}} for row in rows]
    recording = recorded(tmp_path, rows)
    assert with_priced_spend(recording, Price(uncached=1.0, cached=1.0, output=1.0)) is recording
