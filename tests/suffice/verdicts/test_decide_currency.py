"""A decision prints money in the currency of its log."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay.prices import Price
from suffice.verdicts.decisions import Advice, decide
from suffice.verdicts.decisions.steps import Spending
from tests.support.money_logs import money_recording as imported, money_rows

FEW = 60
"""Questions: the sentence names what a change would save before anything is proved."""


def rows(*arguments, **more):
    return money_rows(*arguments, n=FEW, **more)


PRICE = Price(uncached=1, cached=1, output=1)


@pytest.mark.parametrize(
    ("name", "amount", "currency"),
    [
        ("cost", 0.002, "USD"),
        ("cost_usd", 0.002, "USD"),
        ("cost", "$0.002", "USD"),
        ("cost_eur", 0.002, "EUR"),
        ("Kosten (EUR)", "0,002", "EUR"),
        ("cost", "0,002 €", "EUR"),
        ("cost_usd", "0,002 €", "EUR"),
        ("price", "£0.002", "GBP"),
        ("cost_chf", 0.002, "CHF"),
    ],
)
def test_money_is_saved_in_the_currency_of_the_log(name, amount, currency, tmp_path):
    recording = imported(tmp_path, rows(amount, name), name)
    assert recording.metadata.get("currency", "USD") == currency
    advice = decide(recording, cost="money")
    assert f"{currency} 2.00 per 1,000 questions" in advice.sentence
    assert ("USD" in advice.sentence) == (currency == "USD")
    advice.save(tmp_path / "decision.json")
    assert Advice.load(tmp_path / "decision.json").sentence == advice.sentence
    titles = json.dumps(advice.plot().spec)
    assert (f"{currency} per question" in titles) == (currency != "USD")


def test_the_note_of_an_import_names_the_currency(tmp_path):
    (note,) = [
        note
        for note in imported(tmp_path, rows(name="cost_eur"), "cost_eur").metadata["notes"]
        if "of each call" in note
    ]
    assert note.startswith("'cost_eur' is read as the amounts of each call, in EUR;")


def test_amounts_in_several_currencies_are_refused(tmp_path):
    with pytest.raises(DataError, match="'cost' has amounts"):
        imported(tmp_path, rows(lambda q, r: "$0.002" if q % 2 else "0.002 €"))


def test_prices_of_tokens_are_dollars_whatever_the_log_says(tmp_path):
    tokens = {"input_tokens": 900, "cached_tokens": 0, "output_tokens": 100}
    recording = imported(tmp_path, rows(name="cost_eur", **tokens), "cost_eur")
    assert "EUR 2.00 per 1,000" in decide(recording, cost="money").sentence
    assert "USD 1.00 per 1,000" in decide(recording, cost="money", prices=PRICE).sentence


def test_questions_in_another_currency_are_not_added(tmp_path):
    advice = decide(imported(tmp_path, rows(name="cost_eur"), "cost_eur"), cost="money")
    more = imported(tmp_path, rows(name="cost_eur", first=FEW), "cost_eur")
    assert "EUR 2.00" in decide(more, previous=advice).sentence
    with pytest.raises(ConfigMismatchError, match="in EUR"):
        decide(imported(tmp_path, rows(first=FEW)), previous=advice)


def test_what_runs_and_successes_are_worth_is_in_that_currency():
    spent = Spending(unit="EUR", runs=2, total=3.5, after_change=0.5, failed=None, repeated=0.0, by_tenth=(0.1,) * 10)
    assert spent.sentence.startswith("EUR 3.50 went into 2 runs")
    table = spent.table()
    assert (table.title, table.columns[-1].name, table.rows[0][-1]) == ("Where the money went", "EUR", "EUR 1.75")
    assert replace(spent, unit="USD").sentence.startswith("$3.50 went into")
    assert replace(spent, unit="tokens").table().title == "Where the tokens went"
