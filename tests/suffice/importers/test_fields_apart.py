"""Logs with a column for each field of what was extracted: which is judged, which are not, and which is no money of the loop."""

from __future__ import annotations

import pytest

from tests.support.logs import imported, written

N = 40
ANSWER = {"answer": "vintage", "golds": "vintage_gold"}


def extracted(**more):
    """Return rows of two passes over 40 labels; `more` has functions of a row's place."""
    return [
        {"id": q, "round": r, "vintage": 1990 + q % 9 + (r == 1 and q % 4 == 0), "price": 20.5 + q + (r < q % 3) / 4}
        | {"vintage_gold": 1990 + q % 9, "price_gold": 20.5 + q}
        | {name: value_of(2 * q + r) for name, value_of in more.items()}
        for q in range(N)
        for r in (1, 2)
    ]


def notes(place, rows, **options):
    return "\n".join(imported(written(place, rows), **{"columns": ANSWER, **options}).notes)


def test_other_fields_of_an_answer_are_said_not_to_be_judged(tmp_path):
    said = notes(tmp_path, extracted())
    assert "only the field 'vintage' is judged, and not 'price'" in said
    alone = [{name: own for name, own in row.items() if "price" not in name} for row in extracted()]
    assert "only the field" not in notes(tmp_path, alone)
    assert "only the field" not in notes(tmp_path, [{**row, "price": 5} for row in extracted()])


def test_wide_fields_are_said_not_to_be_judged(tmp_path):
    rows = [
        {"id": own["id"], **{f"{name}_pass{r}": row[name] for r, row in enumerate(both, 1) for name in ("vintage", "price")}}
        | {"vintage_true": own["vintage_gold"], "price_true": own["price_gold"]}
        for both in zip(extracted()[::2], extracted()[1::2], strict=True)
        for own in both[:1]
    ]  # fmt: skip
    columns = {"rounds": "vintage_pass1,vintage_pass2", "golds": "vintage_true"}
    said = notes(tmp_path, rows, columns=columns)
    assert "only the field 'vintage' is judged, and not 'price'" in said
    assert "price_pass" in said.partition("not read: ")[2]


@pytest.mark.parametrize("name", ["cost", "total_cost_usd"])
def test_what_a_loop_pays_is_no_price_of_what_is_asked(name, tmp_path):
    said = notes(tmp_path, extracted(**{name: lambda place: 0.01 * (place * 7 % 11)}))
    assert f"{name!r} is not counted" in said
    assert "'price' is not counted" not in said
    paid = [{("fee" if own == "price_gold" else own): value for own, value in row.items()} for row in extracted()]
    assert "'price' is not counted" in notes(tmp_path, paid)
    both = notes(tmp_path, [{**row, name: 0.01 * (row["id"] % 7)} for row in paid])
    assert f"{name!r} is not counted" in both
