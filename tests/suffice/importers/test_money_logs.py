"""Logs whose answers are amounts of money, in other forms than gold answers, beside answers of other kinds."""

from __future__ import annotations

import re

import pytest
from benchmarks.readings.money import bare_golds_beside_pounds, prices_with_the_sign_in_later_rounds

from suffice.errors import UnsettledError
from suffice.recordings import read_recording
from tests.support.logs import Brief, by_round, imported, written

KINDS = ["yes", "no", "Anna Stone", "Ben Marsh", "31 July"]


def rows_of(golds, later):
    """Return two rounds of each question, the first of which is wrong where the later one has an answer of its own."""
    return [
        {"id": f"q{q}", "question": f"Question {q}?", "round": r, "answer": answer, "gold": gold}
        for q, gold in enumerate(golds)
        for r, answer in enumerate((f"1{gold}", later[gold]) if gold in later else (gold, gold), start=1)
    ]


@pytest.mark.parametrize(
    "later",
    [
        {"42.50 EUR": "€42.50", "61.00 EUR": "€61"},
        {"€74.00": "74.00 €", "€61": "EUR 61.00"},
        {"73500 USD": "$73,500", "61 USD": "US$61"},
    ],
)
def test_prices_beside_other_answers_are_right_in_any_form(tmp_path, later):
    assert by_round(written(tmp_path / "log.jsonl", rows_of([*KINDS, *later], later))) == [pytest.approx(5 / 7), 1.0]


@pytest.mark.parametrize("later", [{"42.50 EUR": "$42.50", "61 EUR": "61 USD"}, {"£5": "¥5", "£6": "6 JPY"}])
def test_prices_in_another_currency_are_wrong(tmp_path, later):
    source = written(tmp_path / "log.jsonl", rows_of([*KINDS, *later], later))
    assert by_round(source, normalizer="mixed") == [pytest.approx(5 / 7)] * 2


def test_the_form_of_a_price_changes_no_score(tmp_path):
    rows = prices_with_the_sign_in_later_rounds(Brief("x")).content
    codes = [{**row, "answer": re.sub(r"€(.*)", r"\1 EUR", row["answer"])} for row in rows]
    of_signs = by_round(written(tmp_path / "signs.jsonl", rows))
    assert of_signs == by_round(written(tmp_path / "codes.jsonl", codes), normalizer="mixed")


def test_currencies_that_golds_leave_out_are_left_out(tmp_path):
    summary = imported(written(tmp_path / "log.jsonl", bare_golds_beside_pounds(Brief("x")).content))
    assert any("--column answer=answer:no-currency" in note and "£" in note for note in summary.notes)
    assert not {
        text for text in read_recording(summary.path).table["answer"].to_pylist() if "£" in text or "GBP" in text
    }


def test_several_currencies_beside_bare_golds_are_asked_about(tmp_path):
    later = {"42.50": "€42.50", "61.25": "61.25 GBP"}
    source = written(tmp_path / "log.jsonl", rows_of([*KINDS, *later], later))
    with pytest.raises(UnsettledError, match="currencies of amounts") as found:
        imported(source)
    option, other = found.value.choices
    assert (option, other) == ("--column answer=answer:no-currency", "--set normalizer=mixed")
    assert by_round(source, columns={"answer": "answer:no-currency"}) == [pytest.approx(5 / 7), 1.0]


def test_golds_with_a_currency_beside_bare_answers(tmp_path):
    later = {"€42.50": "42.50", "€61.25": "61.25"}
    summary = imported(written(tmp_path / "log.jsonl", rows_of([*KINDS, *later], later)))
    assert any("--column golds=gold:no-currency" in note for note in summary.notes)


def test_equal_amounts_are_not_called_other_values(tmp_path):
    golds = [f"{q}500 USD" if q % 3 else f"street {q}a" for q in range(1, 101)]
    rows = rows_of(golds, {golds[0]: "$1,500", golds[1]: "$2,500"})
    rows = [{**row, "answer": "north lane" if row["answer"] == f"1{row['gold']}" else row["answer"]} for row in rows]
    rows[-1]["answer"] = "street 7x" if "street" in rows[-1]["gold"] else "7 USD"
    notes = imported(written(tmp_path / "log.jsonl", rows), log_golds="keep").notes
    assert not any("other values" in note for note in notes)
