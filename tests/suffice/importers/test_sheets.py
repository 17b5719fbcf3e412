"""Sheets that a spreadsheet saved: merged cells, totals, and columns of marks and counts beside the answers."""

from __future__ import annotations

import pytest

from suffice.errors import DataError
from suffice.importers.columns.merged_cells import filled_down
from suffice.importers.files.records import Record
from suffice.recordings import read_recording
from tests.suffice.importers.test_doubtful_orders import drawn
from tests.support.logs import imported, offered, written

SAID = {"answer": "Antwort des Bots", "golds": "Soll"}


def sheet(merged=True):
    """Return the rows of a sheet with three runs of each question, each with a mark."""
    return [
        {
            "Nr.": q + 1 if r == 0 or not merged else "",
            "Frage": f"Where is {q}?" if r == 0 or not merged else "",
            "Soll": gold if r == 0 or not merged else "",
            "Durchgang": r + 1,
            "Antwort des Bots": own,
            "Note (1-6)": 1 if own == gold else 4,
        }
        for q, gold, said in drawn(rounds=3)
        for r, own in enumerate(said)
    ]


@pytest.mark.parametrize("total", [[], [{**dict.fromkeys(sheet()[0], ""), "Nr.": "Summe"}]])
def test_merged_cells_are_filled_down(tmp_path, total):
    path = written(tmp_path / "log.csv", sheet() + total)
    answer = "--column 'answer=Antwort des Bots'"
    assert offered(path)[:2] == [f"{answer} --column golds=Soll", answer]
    summary = imported(path, columns=SAID)
    assert (summary.clusters, summary.rounds) == (40, 3)
    assert any("as in a sheet with merged cells" in note for note in summary.notes)
    assert any("has totals" in note for note in summary.notes) is bool(total)
    whole = imported(written(tmp_path / "whole.csv", sheet(merged=False)), columns=SAID)
    assert summary.by_round == whole.by_round


def test_cells_that_are_missing_otherwise_stay_empty(tmp_path):
    rows = [
        {"id": q, "round": r, "answer": own, "gold": gold} for q, gold, said in drawn() for r, own in enumerate(said)
    ]
    rows[5]["gold"] = rows[7]["answer"] = ""
    assert not any(
        "merged cells" in note for note in imported(written(tmp_path / "log.csv", rows), first_round=1).notes
    )
    assert filled_down([Record("", "", n, {}) for n in range(3)])[1] == []


def test_a_title_above_the_header_is_noticed(tmp_path):
    path = written(tmp_path / "log.csv", sheet())
    path.write_text("Run of May,,,,,\n" + path.read_text())
    with pytest.raises(DataError, match="be a title"):
        imported(path)


def test_marks_and_counts_are_no_answers_of_rounds(tmp_path):
    rows = [{**row, "Frage": f"{row['Frage']} {n}"} for n, row in enumerate(sheet(merged=False))]
    rows = [{name.replace("Durchgang", "Lauf"): own for name, own in row.items() if name != "Nr."} for row in rows]
    assert not any("Note" in option or "Lauf" in option for option in offered(written(tmp_path / "log.csv", rows)))


def european(place):
    """Return a number with a point between thousands."""
    return f"{place:,}".replace(",", ".")


def test_points_between_thousands_of_tokens_are_read_and_said(tmp_path):
    rows = [
        {
            "id": q,
            "round": r,
            "answer": own,
            "gold": gold,
            "input_tokens": european(600 * (r + 1) + q),
            "seconds": f"{r},5" if q else european(1234),
        }
        for q, gold, said in drawn(rounds=3)
        for r, own in enumerate(said)
    ]
    summary = imported(written(tmp_path / "log.csv", rows), first_round=1)
    recording = read_recording(summary.path)
    assert recording.column("cost.generator.uncached_tokens")[5].tolist() == [605, 1205, 1805]
    assert recording.column("cost.generator.seconds")[:2].tolist() == [[1234] * 3, [0.5, 1.5, 2.5]]
    assert "1.200 in 'input_tokens' is read as 1200: its point separates thousands" in summary.notes
    assert any("1.234 in 'seconds'" in note for note in summary.notes)


@pytest.mark.parametrize("names", [("Tokens In", "Tokens Out"), ("tok_in", "tok_out"), ("prompt_tokens", "nCalls")])
def test_commas_between_thousands_of_tokens_are_read(tmp_path, names):
    rows = [
        {"id": q, "round": r, "answer": own, "gold": gold, **dict.fromkeys(names, f"{1200 - 100 * r + q:,}")}
        for q, gold, said in drawn(rounds=3)
        for r, own in enumerate(said, start=1)
    ]
    recording = read_recording(imported(written(tmp_path / "log.csv", rows)).path)
    assert recording.column("cost.generator.uncached_tokens")[5].tolist() == [1105, 1005, 905]


@pytest.mark.parametrize(
    ("ours", "kind"),
    [
        ("input_tokens", "uncached_tokens"),
        ("output_tokens", "output_tokens"),
        ("cached_tokens", "cached_tokens"),
        ("cost.generator.prompt_tokens", "uncached_tokens"),
    ],
)
def test_names_of_logs_for_costs_are_refused(tmp_path, ours, kind):
    rows = [
        {"id": q, "round": r, "answer": own, "gold": gold, "Größe": f"{1200 - 100 * r + q:,}"}
        for q, gold, said in drawn(rounds=3)
        for r, own in enumerate(said, start=1)
    ]
    path = written(tmp_path / "log.csv", rows)
    with pytest.raises(DataError, match="not the name") as error:
        imported(path, columns={ours: "Größe:thousands"})
    assert f"--column cost.generator.{kind}=Größe:thousands " in str(error.value).replace("'", "")
    summary = imported(path, columns={f"cost.generator.{kind}": "Größe:thousands"})
    assert read_recording(summary.path).column(f"cost.generator.{kind}")[5].tolist() == [1105, 1005, 905]


def test_unknown_kinds_of_costs_are_refused_with_their_names(tmp_path):
    path = written(tmp_path / "log.csv", sheet(merged=False))
    with pytest.raises(DataError, match=r"cost\.generator\.seconds"):
        imported(path, columns={**SAID, "cost.euros": "Note (1-6)"})


def test_points_of_decimals_stay_decimals(tmp_path):
    rows = [
        {
            "id": q,
            "round": r,
            "answer": own,
            "gold": gold,
            "seconds": 1.234 if r else 2.5,
            "output_tokens": 12.5 if q else 1.234,
        }
        for q, gold, said in drawn()
        for r, own in enumerate(said)
    ]
    summary = imported(written(tmp_path / "log.csv", rows), first_round=1)
    assert read_recording(summary.path).column("cost.generator.seconds")[0].tolist() == [2.5, *[1.234] * 3]
    assert not any("thousands" in note and "is read as" in note for note in summary.notes)
