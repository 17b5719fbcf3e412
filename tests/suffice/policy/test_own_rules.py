"""Rules and selectors of a user's own: text, files, and everything that takes rules apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from suffice import Policy, Rounds, Rule, Selector, parse_rule, parse_selector, register_rule, register_selector, signal
from suffice.errors import DataError, RuleSyntaxError
from suffice.policy.rules import Threshold, find_threshold, thresholds, with_threshold
from suffice.policy.rules.selectors import last_of


@dataclass(frozen=True, slots=True)
class Rising(Rule):
    """Fires where a signal has risen by more than `by` since the round before."""

    name: str
    by: float = 0.0

    def fires(self, rounds):
        column = rounds[self.name]
        before = np.concatenate([np.full((*column.shape[:-1], 1), np.nan), column[..., :-1]], axis=-1)
        return column - before > self.by

    @property
    def signals(self):
        return frozenset({self.name})

    def reads(self, rounds, asked):
        return {self.name: rounds.seen & asked}

    def __str__(self):
        return f"test_rising({self.name}, {self.by!r})"


@dataclass(frozen=True, slots=True)
class After(Rule):
    """Fires where another rule does, from a round on."""

    rule: Rule
    r: int

    def fires(self, rounds):
        return self.rule.fires(rounds) & (rounds.index >= self.r)

    @property
    def signals(self):
        return self.rule.signals

    def reads(self, rounds, asked):
        return self.rule.reads(rounds, asked & (rounds.index >= self.r))

    def __str__(self):
        return f"test_after(({self.rule}), {self.r})"


class Unregistered(After):
    def __str__(self):
        return f"test_unregistered(({self.rule}), {self.r})"


@dataclass(frozen=True, slots=True)
class Within(Selector):
    """The latest answer at which a signal lies in a range."""

    name: str
    low: float
    high: float

    def among(self, rounds, candidates):
        column = rounds[self.name]
        return last_of(candidates & (column >= self.low) & (column <= self.high))

    @property
    def signals(self):
        return frozenset({self.name})

    def __str__(self):
        return f"test_within({self.name}, {self.low!r}, {self.high!r})"


register_rule("test_rising", Rising)
register_rule("test_after", After)
register_rule("test_confident", lambda least=0.5: signal("p_correct") > least)
register_selector("test_within", Within)
register_selector("test_middle", lambda: Within("p_correct", 0.25, 0.75))

RULES = [
    Rising("p_correct"),
    Rising("answer_margin", 0.5),
    After(Rising("p_correct", -1.0) & (signal("answer_stable") >= 1), 3),
    After(After(signal("p_correct") > 0.5, 2), 1) | Rising("p_correct"),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_text_of_a_registered_rule_reads_back_equal(rule):
    assert parse_rule(str(rule)) == rule


def test_a_registered_name_may_stand_for_a_rule_of_ours():
    assert parse_rule("test_confident") == parse_rule("test_confident()") == parse_rule("p_correct > 0.5")
    assert str(parse_rule("test_confident(0.75) & (round > 1)")) == "(p_correct > 0.75) & (round > 1)"


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_policy_with_a_registered_rule_and_selector_is_saved_and_loaded(rule, tmp_path):
    policy = Policy(rule=rule, selector=Within("p_correct", 0.25, -0.5))
    policy.save(tmp_path / "policy.json")
    assert Policy.load(tmp_path / "policy.json") == policy


def test_a_registered_selector_is_called_by_its_text():
    assert parse_selector("test_within(p_correct, 0.25, 1)") == Within("p_correct", 0.25, 1)
    middle = parse_selector(" test_middle ")
    rounds = Rounds.from_columns({"p_correct": [0.1, 0.5, 0.9]}, answers=["a", "b", "c"])
    assert middle.select(rounds, np.array(2)) == 1


@pytest.mark.parametrize(
    "policy",
    [
        Policy(rule=Unregistered(signal("p_correct") > 0.5, 2)),
        Policy(rule=Rising("answer_margin") & Unregistered(signal("p_correct") > 0.5, 2)),
        Policy(rule=Rising("p correct")),
        Policy(selector=type("Odd", (Within,), {"__str__": lambda self: "test_odd"})("p_correct", 0.0, 1.0)),
    ],
    ids=lambda policy: str(policy.rule),
)
def test_a_policy_that_would_not_load_is_refused_when_it_is_saved(policy, tmp_path):
    with pytest.raises(DataError, match="register_(rule|selector)"):
        policy.save(tmp_path / "policy.json")
    assert list(tmp_path.iterdir()) == []


def test_a_rule_that_reads_back_differently_cannot_be_saved(tmp_path):
    liar = type("Liar", (After,), {"__str__": lambda self: "p_correct > 0.5"})(signal("p_correct") > 0.5, 2)
    with pytest.raises(DataError, match="read back"):
        Policy(rule=liar).save(tmp_path / "policy.json")


RULES = ["tasr", "k_of", "patience", "first_of", "never", "test_rising", "two words", "and"]
SELECTORS = ["last", "centroid", "max_p", "median_x", "ranked", "longest_run", "test_within", "a b", "is"]


@pytest.mark.parametrize(
    ("register", "name", "made"),
    [*((register_rule, name, Rising) for name in RULES), *((register_selector, name, Within) for name in SELECTORS)],
)
def test_a_rule_or_selector_takes_a_free_name(register, name, made):
    with pytest.raises(DataError, match="name"):
        register(name, made)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_rule, "test_rising()"),
        (parse_rule, "test_rising(p_correct, 1, 2)"),
        (parse_rule, "test_rising(p_correct, by=1)"),
        (parse_rule, "test_after(p_correct)"),
        (parse_rule, "test_rising('p_correct')"),
        (parse_rule, "test_after(p_correct > 0.5, __import__)(1)"),
        (parse_rule, "test_confident(p_correct)"),
        (parse_rule, "test_within(p_correct, 0, 1)"),
        (parse_rule, "test_nothing(1)"),
        (parse_selector, "test_within"),
        (parse_selector, "test_within()"),
        (parse_selector, "test_within(1"),
        (parse_selector, "test_within(p, 0, 1) + 1"),
        (parse_selector, "test_within(p, 0, 1, 2)"),
        (parse_selector, "test_no(1)"),
    ],
)
def test_a_text_that_does_not_fit_is_refused(parse, text):
    with pytest.raises(RuleSyntaxError):
        parse(text)


def test_what_a_name_builds_must_be_a_rule_or_a_selector():
    register_rule("test_nothing_built", lambda: None)
    register_selector("test_none_built", lambda: None)
    with pytest.raises(RuleSyntaxError, match="test_nothing_built"):
        parse_rule("test_nothing_built")
    with pytest.raises(RuleSyntaxError, match="test_none_built"):
        parse_selector("test_none_built")


def test_a_decorated_class_is_called_by_its_name_and_its_fields():
    @register_selector("test_decorated")
    @dataclass(frozen=True)
    class Decorated(Selector):
        name: str
        least: float

        def among(self, rounds, candidates):
            return last_of(candidates & (rounds[self.name] >= self.least))

    selector = Decorated("p_correct", 0.25)
    assert str(selector) == "test_decorated(p_correct, 0.25)"
    assert parse_selector(str(selector)) == selector


def test_thresholds_inside_a_wrapped_rule_are_seen_and_moved():
    rule = After((signal("p_correct") > 0.5) & (signal("overlap") > 0.25), 2) | Rising("p_correct")
    assert thresholds(rule) == (Threshold("p_correct", ">", 0.5), Threshold("overlap", ">", 0.25))
    moved = with_threshold(rule, find_threshold(rule, "p_correct"), 0.75)
    assert moved == After((signal("p_correct") > 0.75) & (signal("overlap") > 0.25), 2) | Rising("p_correct")


def test_a_rule_that_is_no_dataclass_has_no_thresholds_to_move():
    class Always(Rule):
        signals = frozenset()

        def fires(self, rounds):
            return rounds.seen

        def reads(self, rounds, asked):
            return {}

    both = Always() & (signal("p_correct") > 0.5)
    assert thresholds(both) == (Threshold("p_correct", ">", 0.5),)
    moved = with_threshold(both, thresholds(both)[0], 0.25)
    assert moved.rules[0] is both.rules[0]
