"""Margins: two highest log-probabilities, or nothing."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.policy.rounds import Round, Token
from suffice.policy.signals import AnswerPosition, compute_signals, token_margin
from suffice.policy.signals.margins import answer_logprob_mean, answer_margin

INF, NAN = math.inf, math.nan
AGGREGATES = ("answer_margin_min", "answer_margin_p10", "answer_margin_mean", "answer_margin_median")
PAYLOAD = Path(__file__).resolve().parents[2] / "data" / "logprobs" / "debug_response_simple_fact.json"


def token(*logprobs, text="a", own=None):
    return Token(text, logprobs[0] if own is None else own, tuple(zip("abcdefgh", logprobs, strict=False)))


def rounds_with(*tokens):
    return [Round(index=1, answer="x", answer_tokens=tokens)]


@pytest.mark.parametrize(
    ("logprobs", "margin"),
    [
        ((-0.1, -2.6, -5.0), 2.5),
        ((-2.6, -5.0, -0.1), 2.5),  # by value, not by order
        ((-1.0, -1.0), 0.0),
        ((0.0, -26.0), 26.0),  # gpt-4o rounds a certain token to 0
        ((-0.0, -45.0), 30.0),  # cut
        ((1e-6, -1.0), 1.000001),  # rounding leaves some barely positive
        ((-0.1, -INF, -2.1), 2.0),  # a masked token is not the second
    ],
)
def test_the_margin_is_top_1_minus_top_2(logprobs, margin):
    assert token_margin(token(*logprobs)) == pytest.approx(margin)


@pytest.mark.parametrize(
    "given_token",
    [
        Token("a"),
        Token("a", -0.1),
        token(-0.1),
        token(-0.1, -INF),
        token(-0.1, -9999.0),
        token(-0.1, -9999),
        token(-0.1, -100.0),
        token(0.0, -INF, -INF, -INF, -INF),  # processed at temperature 0
        token(0.0, -9999.0, -9999.0),
        token(-0.1, 9999.0),
        token(-0.1, -2.0, 9999.0),
        token(-0.1, -2.0, INF),
        token(-0.1, -2.0, NAN),  # may be the second
        token(NAN, NAN),
        token(-INF, -INF),
        Token("a", -0.1, (("a", -0.1), ("a", -0.1))),
        Token("b", NAN, (("a", -0.1),)),
        Token("b", -9999.0, (("a", -0.1),)),
    ],
)
def test_fewer_than_two_known_values_have_no_margin(given_token):
    assert math.isnan(token_margin(given_token))


def test_the_generated_token_counts_where_the_alternatives_leave_it_out():
    assert token_margin(Token("z", -0.5, (("a", -2.0),))) == 1.5
    assert token_margin(Token("z", -2.0, (("a", -0.5),))) == 1.5
    assert token_margin(Token("z", -5.0, (("a", -0.5), ("b", -1.0)))) == 0.5
    assert token_margin(Token("z", -0.7, (("a", -0.5), ("b", -1.0)))) == pytest.approx(0.2)


def test_which_token_was_generated_does_not_matter():
    alternatives = (("a", -0.5), ("b", -1.0), ("c", -4.0))
    assert token_margin(Token("c", -4.0, alternatives)) == token_margin(Token("a", -0.5, alternatives)) == 0.5


def test_the_generated_token_under_another_spelling_is_not_counted_twice():
    assert token_margin(Token("Paris", -0.1, ((" Paris", -0.1), (" London", -3.1)))) == 3.0


def test_one_token_listed_twice_counts_once_and_two_byte_tokens_twice():
    assert token_margin(Token("a", -0.5, (("a", -0.5), ("b", -2.0), ("a", -0.5)))) == 1.5
    assert token_margin(Token("a", -0.5, (("b", -2.0), ("b", -2.0), ("a", -0.5)))) == 1.5
    assert token_margin(Token("\ufffd", -0.5, (("\ufffd", -0.5), ("\ufffd", -1.0), ("b", -2.0)))) == 0.5


LOGPROBS = st.sampled_from([-INF, -9999.0, -100.0, NAN, INF, 9999.0, 0.0]) | st.floats(-40, 0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), LOGPROBS), max_size=6), LOGPROBS, st.randoms())
def test_the_margin_ignores_the_order_of_alternatives(alternatives, own, random):
    margin = token_margin(Token("a", own, tuple(alternatives)))
    random.shuffle(alternatives)
    np.testing.assert_equal(token_margin(Token("a", own, tuple(alternatives))), margin)
    assert math.isnan(margin) or 0 <= margin <= 30


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-99, 0), min_size=2))
def test_the_margin_equals_the_sorted_difference(alternatives):
    top = sorted(alternatives.values(), reverse=True)
    expected = min(top[0] - top[1], 30)
    chosen = next(iter(alternatives))
    assert token_margin(Token(chosen, alternatives[chosen], tuple(alternatives.items()))) == expected


@settings(deadline=None)
@given(st.lists(LOGPROBS, min_size=2, max_size=5), st.integers(0, 4))
def test_losing_an_alternative_never_lowers_the_margin_of_the_others(logprobs, lost):
    whole = token_margin(token(*logprobs, own=NAN))
    fewer = list(logprobs)
    fewer[lost % len(fewer)] = -INF
    part = token_margin(token(*fewer, own=NAN))
    top = max(range(len(logprobs)), key=lambda i: logprobs[i]) if not math.isnan(whole) else -1
    if not math.isnan(whole) and lost % len(fewer) != top:
        assert math.isnan(part) or part >= whole


@pytest.mark.parametrize("blank", ["", " ", "\n\n", "\u2581", "\u0120", "\u010a", "\u2581\u2581", "\u00a0", "<0x0A>"])
def test_the_margin_is_read_at_the_first_visible_token(blank):
    tokens = (token(-0.1, -9.0, text=blank), token(-0.1, -1.1), token(-0.1, -5.0))
    assert answer_margin(rounds_with(*tokens)) == 1.0
    assert compute_signals(rounds_with(*tokens), ["answer_margin_mean"], state={})[
        "answer_margin_mean"
    ] == pytest.approx(2.95)


@pytest.mark.parametrize("tokens", [None, (), (Token(" "),), (token(-0.1),)])
def test_without_log_probabilities_every_margin_is_undefined(tokens):
    values = compute_signals(
        [Round(index=1, answer="x", answer_tokens=tokens)], ["answer_margin", *AGGREGATES], state={}
    )
    assert all(map(math.isnan, values.values()))


def test_an_unknown_first_margin_is_not_replaced_by_the_second_token_s():
    assert math.isnan(answer_margin(rounds_with(token(-0.1), token(-0.1, -5.0))))


@settings(deadline=None)
@given(st.lists(st.floats(0, 29), min_size=1, max_size=8))
def test_aggregates_equal_numpy_s(margins):
    tokens = [token(-1.0, -1.0 - margin) for margin in margins]
    margins = [token_margin(item) for item in tokens]
    values = compute_signals(rounds_with(*tokens), AGGREGATES, state={})
    expected = [np.min(margins), np.percentile(margins, 10), np.mean(margins), np.median(margins)]
    np.testing.assert_allclose(list(values.values()), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("place", range(4))
def test_one_unknown_margin_makes_the_aggregates_undefined(place):
    tokens = [token(-0.1, -5.0), token(-0.1, -6.0), token(-0.1, -7.0)]
    tokens.insert(place, token(-0.1, -9999.0))
    values = compute_signals(rounds_with(*tokens), AGGREGATES, state={})
    assert all(map(math.isnan, values.values()))


def test_the_mean_log_probability_is_that_of_the_generated_tokens():
    assert answer_logprob_mean(rounds_with(Token("a", -1.0), Token(" ", -50.0), Token("b", -2.0))) == -1.5
    assert answer_logprob_mean(rounds_with(Token("a", 1e-5))) == 0
    for tokens in ((), (Token("a"),), (Token("a", -INF),), (Token("a", -1.0), Token("b", -9999.0)), (Token("a", 3.0),)):
        assert math.isnan(answer_logprob_mean(rounds_with(*tokens)))


def test_a_real_reply_of_gpt_4o_has_its_margin():
    content = json.loads(PAYLOAD.read_text(encoding="utf-8"))["output"][0]["content"][0]
    tokens = [
        Token(
            item["token"],
            item["logprob"],
            tuple((other["token"], other["logprob"]) for other in item["top_logprobs"]),
            bytes(item["bytes"]),
        )
        for item in content["logprobs"]
    ]
    located = AnswerPosition("start").locate(content["text"], tokens)
    observed = [Round(index=1, answer=located.answer, text=content["text"], answer_tokens=located.answer_tokens)]
    assert answer_margin(observed) == pytest.approx(-0.003178 - -5.753178)
    assert compute_signals(observed, ["answer_margin_min"], state={})["answer_margin_min"] <= answer_margin(observed)
