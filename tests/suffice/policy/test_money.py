"""Amounts of money: all forms of one are the same answer, and two currencies never are."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import UnsettledError
from suffice.policy.comparisons import chosen_normalizer
from suffice.policy.normalizers import NORMALIZERS
from suffice.policy.plain_forms import in_one_form

FORMS = {
    "EUR": ["€{}", "€ {}", "{}€", "{} €", "{} EUR", "EUR {}", "EUR{}", "{} eur", "{} euros", "€{} EUR", "EUR €{}"],
    "USD": [
        "${}",
        "$ {}",
        "{}$",
        "{} $",
        "{} USD",
        "USD {}",
        "US${}",
        "U.S. ${}",
        "{} dollars",
        "${} USD",
        "{} US dollars",
    ],
    "GBP": ["£{}", "£ {}", "{}£", "{} GBP", "GBP {}", "GBP{}", "{} pounds sterling", "£{} GBP"],
    "CAD": ["C${}", "CA${}", "CAD {}", "{} CAD", "CAD ${}", "${} CAD"],
    "AUD": ["A${}", "AU${}", "AUD{}", "{} aud", "AUD $ {}"],
    "JPY": ["JPY {}", "{} yen", "JP¥{}", "¥{} JPY"],
    "CNY": ["CNY {}", "{} yuan", "CN¥{}", "{} RMB", "RMB {}"],
    "¥": ["¥{}", "{} ¥", "¥ {}"],
    "CHF": ["CHF {}", "{} CHF", "CHF{}"],
}
"""Forms of an amount in each currency."""

AMOUNTS = st.decimals(min_value=0, max_value=10**9, places=2)


def _written(amount):
    """Return an amount with and without separators of thousands, and without zeros at its end."""
    return {
        f"{amount}",
        f"{amount:,}",
        f"{amount:,}".replace(",", " "),
        f"{amount:,}".replace(",", "'"),
        f"{amount.normalize():f}",
    }


@settings(max_examples=50)
@given(AMOUNTS, st.sampled_from(["", "-"]))
def test_all_forms_of_an_amount_have_one_key(amount, sign):
    keys = {
        currency: {NORMALIZERS["mixed"](sign + form.format(number)) for form in forms for number in _written(amount)}
        for currency, forms in FORMS.items()
    }
    assert [len(own) for own in keys.values()] == [1] * len(FORMS), keys
    assert len(set().union(*keys.values())) == len(FORMS)


@given(AMOUNTS, AMOUNTS, st.data())
def test_other_amounts_have_another_key(first, second, data):
    forms = data.draw(st.sampled_from([*FORMS.values()]))
    keys = [NORMALIZERS["mixed"](data.draw(st.sampled_from(forms)).format(own)) for own in (first, second)]
    assert (keys[0] == keys[1]) == (Decimal(first) == Decimal(second))


@pytest.mark.parametrize(
    "texts",
    [
        ["€1,500,000", "1.5 million euros", "EUR 1.5M", "1.5m EUR", "€1.5 million"],
        ["CHF 5k", "5,000 CHF", "5 thousand CHF"],
        ["$5", "5", "5 USD"],
        ["about €5 a night", "about 5 EUR a night"],
        ["€5/night", "5 €/night", "EUR 5/night"],
        ["-€5", "€-5", "\u22125 €", "minus 5 EUR", "-EUR 5"],
        ["between €5 and $6", "between 5 euros and 6 dollars"],
        ["5 to 10 EUR", "5-10 EUR", "5\u201310 €"],
    ],
)
def test_amounts_with_scales_and_words_have_one_key(texts):
    assert len({NORMALIZERS["mixed"](text) for text in texts}) == 1


@pytest.mark.parametrize(
    "text",
    [
        "€5-10",
        "$5-$10",
        "9-4 EUR",
        "$5$",
        "$x$ and 5$",
        "€5 USD",
        "Q5 EUR",
        "8:05 EUR",
        "EUR/USD 1.08",
        "5 km",
        "EUR",
        "5 eurocents",
    ],
)
def test_what_is_no_single_amount_stays(text):
    assert in_one_form(text) == text


def test_literals_keep_their_money_as_written():
    assert NORMALIZERS["mixed"]("'5 USD'") != NORMALIZERS["mixed"]("'$5'")


def test_a_comma_is_decimal_only_where_it_is_said():
    assert NORMALIZERS["mixed"]("42,50 €") != NORMALIZERS["mixed"]("42.50 €")
    assert {NORMALIZERS["decimal_comma"](text) for text in ("42,50 €", "€42,50", "EUR 42,5")} == {"85/2"}


OTHERS = [("yes", "yes"), ("Anna Stone", "Anna Stone"), ("31 July", "31 July"), ("no", "yes")]


@pytest.mark.parametrize(
    "pair",
    [
        ("€42.50", "42.50 EUR"),
        ("74.00 €", "€74.00"),
        ("$73,500", "73500 USD"),
        ("CHF 3.1", "3.10 CHF"),
        ("£3", "3.00 GBP"),
        ("€1.5 million", "1.50M EUR"),
        ("¥1.5", "1.50 ¥"),
    ],
)
def test_amounts_among_other_answers_are_compared_as_mixed(pair):
    chosen = chosen_normalizer(["yes", "Anna Stone", "31 July", pair[1]], pairs=[pair, *OTHERS])
    assert chosen.normalizer == "mixed"
    assert "amount" in chosen.why
    assert chosen_normalizer(["yes", pair[1]], pairs=[pair, *OTHERS * 100]).normalizer == "qa"


@pytest.mark.parametrize("pair", [("€42.50", "$42.50"), ("5 EUR", "5 GBP"), ("€5", "6 EUR")])
def test_other_amounts_among_other_answers_stay_words(pair):
    assert chosen_normalizer(["yes", "Anna Stone", pair[1]], pairs=[pair, *OTHERS]).normalizer == "qa"


@pytest.mark.parametrize("answer", ["€42.50", "EUR 42.5", "42.50", "€42.50 a night"])
def test_prices_alone_are_compared_as_numbers(answer):
    assert chosen_normalizer(["42.50 EUR", "7 EUR"], pairs=[(answer, "42.50 EUR")]).normalizer == "number"


@pytest.mark.parametrize("answer", ["$42.50", "42.50 USD", "CHF 42.50"])
def test_prices_in_two_currencies_are_asked_about(answer):
    with pytest.raises(UnsettledError, match="other words") as caught:
        chosen_normalizer(["€42.50", "7 EUR"], pairs=[(answer, "€42.50")])
    assert [*caught.value.choices] == ["--set normalizer=number", "--set normalizer=mixed"]


def test_versions_beside_amounts_are_asked_about():
    pair = ("€5 for Python 3.10", "5 EUR for Python 3.1")
    with pytest.raises(UnsettledError, match="zeros"):
        chosen_normalizer(["yes", pair[1]], pairs=[pair, *OTHERS])
