"""Answers in two spellings: typography, times of day, ranges and dates, and the comparison that is chosen for them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from suffice.errors import UnsettledError
from suffice.policy.comparisons import chosen_normalizer
from suffice.policy.metrics import exact_match, f1
from suffice.policy.normalizers import NORMALIZERS
from suffice.policy.plain_forms import plain_text

SAME = [
    [
        "12-17 days",
        *(f"12{dash}17 days" for dash in "\u2010\u2011\u2012\u2013\u2014\u2212\uff0d"),
        "12 \u2013 17 Days.",
        "12 to 17 days",
        "12\u2009\u2013\u200917\u00a0days",
        "\uff11\uff12-\uff11\uff17 days",
    ],
    ["12-18 days"],
    ["1217 days"],
    ["Rubik's \u201cCube\u201d", "rubik\u2019s cube", "Rubik\u2019s\u202fCube", "Rubiks Cu\u00adbe"],
    ["Bogot\u00e1", "Bogota\u0301"],
    ["8:05", "08:05", "8:05 am", "8.05 a.m.", "08:05 AM"],
    ["8:50"],
    ["20:05", "8:05 pm", "8:05 P.M."],
    ["15:00", "3 pm", "3pm", "3 p.m."],
    ["0:30", "12:30 am", "00:30"],
    ["12:30", "12:30 pm"],
    ["3 to 5 pm", "3-5 pm"],
    ["8:05 to 9:10", "08:05\u20139:10", "8:05 - 9:10 am"],
    ["23:00-01:00", "11 pm to 1 am"],
    ["1,939 to 1,945", "1939-1945"],
    ["May 1, 2021", "1 May 2021", "2021\u201105\u201101", "Saturday, May 1st, 2021"],
    ["9-4"],
    ["9 4"],
    ["def dash():\n    return '\u2013'"],
    ["def dash():\n    return '-'"],
    ["'\u2013'"],
    ["'-'"],
]
"""Texts of one line are the same, and those of two lines are not."""


def test_mixed_reads_spellings_of_one_answer_alike():
    keys = [{NORMALIZERS["mixed"](text) for text in texts} for texts in SAME]
    assert [len(own) for own in keys] == [1] * len(SAME)
    assert len(set().union(*keys)) == len(SAME)


def test_numbers_keep_their_sign_behind_any_hyphen():
    assert {NORMALIZERS["number"](f"{dash}5") for dash in "-\u2010\u2011\u2012\u2013\u2212\uff0d"} == {"-5"}


def test_dates_are_read_behind_any_hyphen_and_blank():
    assert NORMALIZERS["date"]("2021\u201105\u201101") == NORMALIZERS["date"]("1\u202fMay\u00a02021") == "2021-05-01"


def test_scores_of_papers_tell_spellings_apart():
    assert exact_match("12\u201317 days", ["12-17 days"]) == 0
    assert f1("12\u201317 days", ["12-17 days"]) == 0.5
    assert NORMALIZERS["qa"]("12\u201317 days") != NORMALIZERS["qa"]("12-17 days")


@given(st.text(max_size=20))
def test_a_plain_text_has_one_spelling(text):
    assert plain_text(plain_text(text)) == plain_text(text)


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        (("12\u201317 days", "12-17 days"), "dashes, quotes or blanks alone"),
        (("Rubik\u2019s Cube", "Rubik's Cube"), "dashes, quotes or blanks alone"),
        (("8:05", "08:05"), "in two forms"),
        (("at 3 pm", "at 15:00"), "in two forms"),
        (("May 05, 2021", "May 5, 2021"), "in two forms"),
        (("5.0 and Oslo", "5 and Oslo"), "in two forms"),
        (("3.10 km", "3.1 km"), "in two forms"),
        (("$3.10 or so", "$3.1 or so"), "in two forms"),
    ],
)
def test_answers_in_two_spellings_are_compared_as_mixed(pair, why):
    others = [("Oslo", "Oslo"), ("Rome", "Lima")]
    chosen = chosen_normalizer(["Oslo", pair[1]], pairs=[pair, *others])
    assert chosen.normalizer == "mixed"
    assert why in chosen.why
    assert chosen_normalizer([], ["Oslo", *pair], [pair, *others]).normalizer == "mixed"
    assert chosen_normalizer(["Oslo", pair[1]], pairs=[pair, *others * 100]).normalizer == "qa"


@pytest.mark.parametrize(
    "pair", [("agent 007", "agent 7"), ("Python 3.10", "Python 3.1"), ("room 012, Oslo", "room 12, Oslo")]
)
def test_zeros_of_ids_and_versions_are_asked_about(pair):
    with pytest.raises(UnsettledError, match="zeros") as caught:
        chosen_normalizer(["Oslo", pair[0]], pairs=[pair, ("Oslo", "Oslo")])
    assert [*caught.value.choices] == ["--set normalizer=mixed", "--set normalizer=qa"]


@pytest.mark.parametrize(
    "pair",
    [
        ("the Nile", "nile."),
        ("long " * 99 + "8:05", "long " * 99 + "08:05"),
        ("5 May", "6 May"),
        ("1 May 2021", "May 1, 2021"),
        ("Oslo 8:05", "Rome 08:05"),
    ],
)
def test_words_stay_where_spellings_make_no_difference(pair):
    assert chosen_normalizer(["Oslo", pair[0]], pairs=[pair]).normalizer == "qa"


def test_initials_of_names_are_asked_about():
    with pytest.raises(UnsettledError, match="first letter") as caught:
        chosen_normalizer(["J. Smith", "A. Moss"], ["J. Reed", "A. Moss"], [("J. Reed", "J. Smith")])
    assert [*caught.value.choices] == ["--set normalizer=qa", "--set normalizer=letter"]


@pytest.mark.parametrize(
    "answer", ["B", "B.", "(B) Paris", "B) Paris, in France", "A) Rome", "B) It is the city on the Seine"]
)
def test_options_with_their_texts_are_letters(answer):
    assert (
        chosen_normalizer(["B) Paris", "A"], [answer], [(answer, "B) Paris"), ("(A), (B)", "(A), (C)")]).normalizer
        == "letter"
    )
