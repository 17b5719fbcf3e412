"""Completion of rules: the parser decides, so every candidate leads on, and no text makes it fail."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from suffice.policy.rules import NAMED_RULES, Threshold, parse_rule, parse_selector, register_rule
from suffice_server.studio.completion import Vocabulary, complete_rule, complete_selector, ends_of

SIGNALS = Vocabulary(
    signals={
        "answer_stable": "the answer repeats",
        "p_correct": "P(correct)",
        "overlap": "shared evidence",
        "round": "the round",
        "two words": "a column that no rule can name",
        "lambda": "neither this one",
        "<script>alert(1)</script>": "hostile",
    },
    values_of=lambda name: [0.1, 0.2, 0.31234, 0.5, 0.9],
)
NAMES = "answer_stable p_corr tasr fixed_k k_of patience esc first_of never() nothing é lambda"
SIGNS = "( ) & | > >= < , + - * 0.5 2 . ' #"
PARTS = st.sampled_from([*NAMES.split(), *SIGNS.split(), " ", "\n"])
BEGUN = [
    "",
    "(",
    "(p_correct > 0.2) & ",
    "k_of(2, (round > 1), ",
    "patience((overlap < 0.1) | tasr, ",
    "2 * p_correct + ",
]
TEXTS = st.builds(lambda begun, parts: begun + "".join(parts), st.sampled_from(BEGUN), st.lists(PARTS, max_size=7))


def inserts(text, cursor=None):
    return [one.insert for one in complete_rule(text, len(text) if cursor is None else cursor, SIGNALS).candidates]


@given(TEXTS | st.text(max_size=30), st.integers(-2, 60))
def test_every_candidate_leads_to_a_text_that_some_rule_begins_with(text, cursor):
    completion = complete_rule(text, cursor, SIGNALS)
    for candidate in completion.candidates:
        applied, after = candidate.applied(text)
        whole = next(ends_of(applied[:after]), None)
        assert whole is not None, (text, cursor, candidate)
        parse_rule(whole)
    problem = completion.problem
    if problem is None:
        assert parse_rule(text).signals <= set(SIGNALS.signals)
    else:
        assert 0 <= problem.first <= problem.last <= len(text)
        assert problem.message


@given(st.text("amjority_x(", max_size=12), st.integers(0, 12))
def test_every_selector_that_is_offered_reads(text, cursor):
    completion = complete_selector(text, cursor, SIGNALS)
    for candidate in completion.candidates:
        if not candidate.insert.endswith("("):
            parse_selector(candidate.applied(text)[0])
    if completion.problem is None:
        parse_selector(text)


@pytest.mark.parametrize(
    ("text", "first", "never"),
    [
        ("", "answer_stable ", "two words "),
        ("p_c", "p_correct ", "answer_stable "),
        ("p_correct ", "> ", "& "),
        ("p_correct > ", "0.1", "> "),
        ("p_correct > 0.2 ", "& ", "> "),
        ("tasr | (p_correct > 0.2 ", ")", "> "),
        ("(p_correct > 0.2) ", "& ", "> "),
        ("(p_correct > 0.2) & ", "answer_stable ", "(answer_stable "),
        ("p_correct > 0.2 and ", "answer_stable ", "& "),
        ("tasr ", "& ", "> "),
        ("2 * ", "answer_stable ", "tasr"),
        ("fix", "fixed_k(", "fixed_k"),
        ("k_of(", "1", "tasr"),
        ("ppr(2, ", "0.5", "2"),
        ("esc(", "2", "1"),
    ],
)
def test_what_fits_is_offered_and_what_does_not_is_not(text, first, never):
    offered = inserts(text)
    assert offered[0] == first
    assert never not in offered


def test_the_word_at_the_cursor_is_replaced_whole():
    text = "(p_cor > 0.2) & tasr"
    candidate = complete_rule(text, 4, SIGNALS).candidates[0]
    assert candidate.applied(text) == ("(p_correct  > 0.2) & tasr", 11)


def test_an_unknown_name_has_the_near_ones_as_fixes_in_its_place():
    text = "(answer_stabel >= 1) & (p_correct > 0.2)"
    problem = complete_rule(text, 3, SIGNALS).problem
    assert text[problem.first : problem.last] == "answer_stabel"
    assert problem.fixes[0].applied(text)[0] == "(answer_stable >= 1) & (p_correct > 0.2)"
    problem = complete_rule("(p_correct > 0.2) & over", 3, SIGNALS).problem
    assert problem.message == "this is not finished; for example: (p_correct > 0.2) & over > 0"
    assert not complete_rule("p_correct > ", 0, SIGNALS).problem.fixes
    assert complete_rule("tasrr", 5, SIGNALS).problem.fixes[0].insert == "tasr"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("(p_correct > 0.2) & (over", (21, 25), "for example: (p_correct > 0.2) & (over > 0)"),
        ("(nothing) & tasr", (1, 8), "nothing is neither"),
    ],
    ids=["unfinished", "unknown"],
)
def test_an_unfinished_text_and_an_unknown_word_are_marked(text, place, words):
    problem = complete_rule(text, 3, SIGNALS).problem
    assert (problem.first, problem.last) == place
    assert words in problem.message


def test_a_named_rule_says_which_of_its_signals_the_recording_lacks():
    problem = complete_rule("stable_and_entailed", 0, SIGNALS).problem
    assert "judge_entailment has no values in this recording" in problem.message
    assert "(answer_stable >= 1) & (judge_entailment >= 4)" in problem.message


def test_every_named_rule_and_a_registered_one_is_offered():
    register_rule("test_completion_own", lambda least=0.9: Threshold("p_correct", ">", least))
    names = {one.insert.rstrip("(") for one in complete_rule("", 0, SIGNALS).candidates}
    assert {*NAMED_RULES, "test_completion_own", "k_of", "patience", "first_of", "never()"} <= names


def test_a_very_long_or_deep_text_is_diagnosed_and_nothing_is_offered():
    for text in ("(" * 150, "(round > 1) & " * 400):
        completion = complete_rule(text, len(text), SIGNALS)
        assert not completion.candidates
        assert completion.problem
