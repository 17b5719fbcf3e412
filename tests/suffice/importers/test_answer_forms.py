"""Gold answers under unusual names, and numbers and dates that answers and gold answers write in different ways."""

from __future__ import annotations

import pytest
from benchmarks.readings.answer_forms import (
    amounts_with_apostrophes,
    amounts_with_commas,
    booleans_that_were_observed,
    booleans_with_the_truth,
    months_first_beside_days_first,
    prices_among_other_fields,
)

from suffice.errors import UnsettledError
from suffice.importers.words.gold_names import may_be_golds
from suffice.recordings import read_recording
from tests.support.logs import Brief, imported, written


def rows_of(make):
    return make(Brief("x")).content


def match(summary):
    return read_recording(summary.path).column("match").mean()


def test_the_truth_is_the_gold_answer(tmp_path):
    rows = rows_of(booleans_with_the_truth)
    right = sum(row["answer"] == row["truth"] for row in rows) / len(rows)
    summary = imported(written(tmp_path / "log.jsonl", rows))
    assert read_recording(summary.path).column("em").mean() == pytest.approx(right)


@pytest.mark.parametrize("name", ["observed", "actual", "verified", "human", "y", "solution_value", "right option"])
def test_a_column_called_like_golds_is_asked_about(tmp_path, name):
    rows = [{name if own == "observed" else own: value for own, value in row.items()} for row in rows_of(booleans_that_were_observed)]  # fmt: skip
    source = written(tmp_path / "log.jsonl", rows)
    with pytest.raises(UnsettledError, match="no column") as found:
        imported(source)
    assert {"columns": {"golds": name}} in [value for value, _ in found.value.choices.values()]
    if name == "observed":
        said = imported(source, expected=["unread-golds"])
        assert not any("golds=" in note for note in said.notes)


@pytest.mark.parametrize(
    ("make", "is_named"), [(lambda row: row["truth"], True), (lambda row: f"zone {len(row['answer'])}", False)]
)
def test_a_column_with_the_values_of_answers_is_named(tmp_path, make, is_named):
    rows = [{**row, "sky": make(row)} for row in rows_of(booleans_with_the_truth)]
    for row in rows:
        del row["truth"]
    notes = " ".join(imported(written(tmp_path / "log.jsonl", rows)).notes)
    assert ("--column golds=sky" in notes) is is_named
    assert ("nothing in the log says" in notes) is not is_named


def test_an_unread_number_called_actual_is_named(tmp_path):
    rows = [{**row, "actual": row["id"] + 0.77, "answer": f"{row['id'] + 0.3 * row['round']:.1f}"} for row in rows_of(booleans_with_the_truth)]  # fmt: skip
    rows = [{name: value for name, value in row.items() if name != "truth"} for row in rows]
    notes = imported(written(tmp_path / "log.jsonl", rows)).notes
    assert any("--column golds=actual" in note for note in notes)


@pytest.mark.parametrize("name", ["human_score", "verified_by", "target_tokens", "predicted_label", "customer"])
def test_other_names_are_not_those_of_golds(name):
    assert not may_be_golds(name)


def test_a_decimal_comma_is_read_as_golds_show(tmp_path):
    rows = rows_of(amounts_with_commas)
    plain = match(imported(written(tmp_path / "log.jsonl", rows)))
    assert 0.3 < plain < 0.9
    amounts = [float(row["answer"].removesuffix(" EUR").replace(".", "").replace(",", ".")) for row in rows]
    rows = [  # the gold answers have the comma
        {**row, "answer": amount, "gold": f"{row['gold']:.2f} EUR".replace(".", ",")}
        for row, amount in zip(rows, amounts, strict=True)
    ]
    assert match(imported(written(tmp_path / "log.jsonl", rows))) == pytest.approx(plain)


def test_a_comma_is_not_read_where_the_user_says_how(tmp_path):
    source = written(tmp_path / "log.jsonl", rows_of(amounts_with_commas))
    with pytest.raises(UnsettledError):
        imported(source, normalizer="number")


@pytest.mark.parametrize(
    ("make", "form"), [(amounts_with_apostrophes, "thousands"), (months_first_beside_days_first, "month-first")]
)
def test_forms_that_golds_show_in_part_are_asked_about(tmp_path, make, form):
    source = written(tmp_path / "log.jsonl", rows_of(make))
    with pytest.raises(UnsettledError, match="different ways") as found:
        imported(source)
    option, other = found.value.choices
    assert option == f"--column answer=answer:{form}"
    assert other.startswith("--set normalizer=")


@pytest.mark.parametrize("wide", [False, True])
def test_a_decimal_comma_among_other_fields_is_read_as_golds_show(tmp_path, wide):
    made = prices_among_other_fields(Brief("x"))
    rows, options = made.content, {}
    if wide:
        by_id: dict[int, dict[str, object]] = {}
        for row in rows:
            own = by_id.setdefault(row["id"], {"id": row["id"], "gold": row["gold"]})
            own[f"pass{row['round']}_output"] = row["answer"]
        rows, options = [*by_id.values()], {"columns": {"rounds": "pass1_output,pass2_output,pass3_output"}}
    summary = imported(written(tmp_path / "log.jsonl", rows), **options)
    right = [good for loop in made.loops for good in loop.scores]
    assert match(summary) == pytest.approx(sum(right) / len(right))
    assert summary.preview.golds[0].startswith("2")
    assert all(own.answer.count(",") == 2 for own in summary.preview.rounds)
