"""Thresholds inside rules, and the interval of those that stop alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import RuleSyntaxError
from suffice.evaluation.replay import even_thresholds
from suffice.policy.rounds import Rounds
from suffice.policy.rules import parse_rule, tasr
from suffice.policy.rules.algebra import find_threshold, thresholds, with_threshold
from suffice.policy.session import Policy, stops
from tests.support.replayed import equivalent_thresholds

RULES = (
    "p_correct > 0.5",
    "p_correct >= 0.5",
    "overlap < 0.5",
    "overlap <= 0.5",
    "(answer_stable >= 1) & (p_correct > 0.5)",
    "(answer_stable >= 1) | (p_correct > 0.5) | (overlap <= 0.25)",
    "k_of(2, (answer_stable >= 1), (p_correct >= 0.5), (overlap > 0.5))",
    "patience((p_correct > 0.5), 2)",
    "first_of((answer_stable >= 1), (p_correct > 0.5))",
)


def rounds(seed: int, n: int = 12, width: int = 4) -> Rounds:
    rng = np.random.default_rng(seed)
    grid = [0.0, 0.25, 0.5, 0.75, 1.0, np.nan]
    columns = {name: rng.choice(grid, (n, width)) for name in ("p_correct", "overlap")}
    columns["answer_stable"] = rng.choice([0.0, 1.0, np.nan], (n, width))
    answers = np.full((n, width), "an answer", dtype=object)
    return Rounds(columns, np.arange(1, width + 1), np.ones((n, width), dtype=bool), answers)


@settings(max_examples=25)
@given(text=st.sampled_from(RULES), seed=st.integers(0, 10**6))
def test_the_interval_of_equivalent_thresholds_is_exact(text: str, seed: int) -> None:
    raw, rule = rounds(seed), parse_rule(text)
    policy = Policy(rule=rule, max_rounds=4)
    for literal in thresholds(rule):
        low, high = equivalent_thresholds(policy, raw, literal)
        upper_closed = literal.comparison in (">=", "<")
        own = stops(policy, raw).position
        for value in np.arange(-0.2, 1.3, 0.05).round(2):
            moved = replace(policy, rule=with_threshold(rule, literal, float(value)))
            inside = low < value <= high if upper_closed else low <= value < high
            assert np.array_equal(stops(moved, raw).position, own) == inside, (str(literal), value, low, high)


def test_a_threshold_is_replaced_wherever_it_stands() -> None:
    rule = parse_rule("first_of(patience((p_correct > 0.5), 2), (p_correct > 0.5) & (overlap > 0.5))")
    moved = with_threshold(rule, find_threshold(rule, "p_correct"), 0.75)
    assert str(moved) == "first_of((patience((p_correct > 0.75), 2)), ((p_correct > 0.75) & (overlap > 0.5)))"
    assert with_threshold(moved, find_threshold(moved, "p_correct"), 0.5) == rule


def test_a_signal_without_one_threshold_is_refused() -> None:
    with pytest.raises(RuleSyntaxError, match="'overlap'"):
        find_threshold(tasr(), "overlap")
    with pytest.raises(RuleSyntaxError, match="'p_correct'"):
        find_threshold(parse_rule("(p_correct > 0.1) & (p_correct < 0.9)"), "p_correct")
    with pytest.raises(RuleSyntaxError, match="finite"):
        with_threshold(tasr(), find_threshold(tasr(), "p_correct"), float("nan"))


def test_a_signal_defined_nowhere_has_no_thresholds_and_changes_nothing() -> None:
    assert even_thresholds(np.array([np.nan, np.inf])).size == 0
    assert even_thresholds(np.array([2.0, 2.0])).tolist() == [2.0]
    raw = rounds(0)
    raw.columns["p_correct"][:] = np.nan  # type: ignore[index]
    policy = Policy(rule=parse_rule("p_correct > 0.5"), max_rounds=4)
    assert equivalent_thresholds(policy, raw, find_threshold(policy.rule, "p_correct")) == (-np.inf, np.inf)
