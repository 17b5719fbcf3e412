"""Tables as values: what each format prints."""

from __future__ import annotations

import csv
import io
import math

import pytest

from suffice.common.tables import Column, Table, render
from suffice.errors import DataError

TABLE = Table(
    title="F1 & calls",
    columns=(Column("policy"), Column("F1", ".1f", scale=100), Column("Δ", "+.1f", scale=100, interval=True)),
    rows=(("a | b_c", 0.5, (0.1, -0.2, 0.3)), ("100 %", math.nan, None)),
    notes=("selected here",),
)


def test_markdown_escapes_bars_and_aligns_numbers() -> None:
    lines = render([TABLE], "md").splitlines()
    assert lines[2:6] == [
        "| policy | F1 | Δ |",
        "| --- | ---: | ---: |",
        "| a \\| b_c | 50.0 | +10.0 [-20.0, +30.0] |",
        "| 100 % | - | - |",
    ]
    assert lines[-1] == "selected here"


def test_latex_escapes_what_latex_reads() -> None:
    text = render([TABLE], "latex")
    assert r"a \textbar{} b\_c & 50.0" in text
    assert r"100 \% & - & -" in text
    assert r"\caption{F1 \& calls}" in text
    assert text.count(r"\begin{tabular}{lrr}") == 1


def test_csv_holds_raw_values() -> None:
    rows = list(csv.DictReader(io.StringIO(render([TABLE], "csv"))))
    assert rows[0] == {"policy": "a | b_c", "F1": "0.5", "Δ": "0.1", "Δ low": "-0.2", "Δ high": "0.3"}
    assert rows[1] == {"policy": "100 %", "F1": "", "Δ": "", "Δ low": "", "Δ high": ""}


def test_json_has_no_nan() -> None:
    data = TABLE.to_dict()
    assert data["rows"][0]["Δ"] == {"value": 0.1, "low": -0.2, "high": 0.3}
    assert data["rows"][1] == {"policy": "100 %", "F1": None, "Δ": None}


def test_a_row_of_another_length_and_an_unknown_format_are_refused() -> None:
    with pytest.raises(DataError, match="3 columns"):
        Table(title="t", columns=TABLE.columns, rows=(("a",),))
    with pytest.raises(DataError, match="'pdf'"):
        render([TABLE], "pdf")
