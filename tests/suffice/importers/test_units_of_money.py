"""Money in parts of a dollar or of a cent: no number of them is read as dollars."""

from __future__ import annotations

import pytest

from suffice.errors import DataError
from suffice.recordings import read_recording
from tests.support.logs import imported, written

UNITS = {
    "cost_micros_usd": ("microdollars", 1_000_000),
    "cost_usd_micros": ("microdollars", 1_000_000),
    "usage.costMicroUsd": ("microdollars", 1_000_000),
    "cost_usd_e6": ("microdollars", 1_000_000),
    "nanodollars": ("nanodollars", 1_000_000_000),
    "cost_millicents": ("millicents", 100_000),
    "cost_mills": ("millidollars", 1_000),
    "price_ct": ("cents", 100),
}


def log(folder, name):
    rows = [
        {"id": q, "round": r, "answer": "Oslo" if r > q % 2 else "Rome", "gold": "Oslo", name: 250 * r}
        for q in range(20)
        for r in (1, 2)
    ]
    return written(folder / "log.jsonl", rows)


@pytest.mark.parametrize("name", UNITS)
def test_the_printed_option_reads_a_unit_of_money(tmp_path, name):
    unit, per = UNITS[name]
    source = log(tmp_path, name)
    plain = imported(source)
    assert any(f"--column spend={name}:{unit} if each row has its own {unit};" in note for note in plain.notes)
    assert any(f"--column spend={name}:{unit}-total if it is a running total" in note for note in plain.notes)
    assert "spend" not in read_recording(plain.path).table.column_names
    summary = imported(source, columns={"spend": f"{name}:{unit}"})
    spend = read_recording(summary.path).column("spend")
    assert spend[0].tolist() == pytest.approx([250 / per, 750 / per])
    assert any(f"{per:,} a dollar" in note for note in summary.notes)
    if name != "cost_mills":
        return
    total = imported(source, columns={"spend": f"{name}:{unit}-total"})
    assert read_recording(total.path).column("spend")[0].tolist() == pytest.approx([250 / per, 500 / per])


@pytest.mark.parametrize("form", ["", ":each", ":cents"])
def test_microdollars_are_refused_as_another_unit(tmp_path, form):
    with pytest.raises(DataError, match="says microdollars"):
        imported(log(tmp_path, "cost_micros_usd"), columns={"spend": f"cost_micros_usd{form}"})


def test_a_price_of_tokens_is_not_offered_as_money(tmp_path):
    assert not any("spend=" in note for note in imported(log(tmp_path, "usd_per_1m_tokens")).notes)
