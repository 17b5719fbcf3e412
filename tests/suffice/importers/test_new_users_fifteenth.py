"""What a fifteenth tester met: labels in lists, runs of agents with one outcome, two columns of amounts, and money under other names."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.readings.cases import CITIES
from benchmarks.readings.misled_fourteenth import (
    lists_of_labels,
    outcomes_in_words_of_nested_runs,
    prices_beside_areas,
)

from suffice.errors import DataError
from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import Brief, answer, imported, offered, written

N = 40


def runs(folder: Path, **changed: str) -> Path:
    """Write a file for each run of an agent; words of outcomes may be replaced."""
    place = folder / "runs"
    place.mkdir()
    for name, run in outcomes_in_words_of_nested_runs(Brief("runs")).content.items():
        (place / name).write_text(json.dumps({**run, "outcome": changed.get(run["outcome"], run["outcome"])}), "utf-8")
    return place


def notes_of(place: Path, rows: list[dict[str, Any]]) -> str:
    return " ".join(imported(written(place, rows)).notes)


def printed(said: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^ +suffice (.*)$", said, re.MULTILINE)]


@pytest.mark.parametrize("golds", ["reference_labels", "gold", None])
def test_lists_of_labels_are_answers_and_sets(tmp_path, golds):
    log = lists_of_labels(Brief("labels"))
    for scan in log.content["scans"]:
        right = scan.pop("reference_labels")
        scan.update({golds: right} if golds else {})
    path = tmp_path / "scans.json"
    path.write_text(json.dumps(log.content), "utf-8")
    summary = imported(path)
    assert ("answer", "labels") in {(item.ours, item.theirs) for item in summary.readings}
    assert read_recording(summary.path).metadata["normalizer"] == "unordered"
    if golds:
        shares = [sum(loop.scores[r] for loop in log.loops) / len(log.loops) for r in range(3)]
        assert [means.match for means in summary.by_round] == pytest.approx(shares)


def test_the_outcome_of_runs_is_offered_before_their_tools(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = cli("import", runs(tmp_path), "-o", "r.parquet", "--yes", code=2)
    first, *others = printed(refused.err)
    assert first[-1] == "outcome=outcome:failed|gave_up,success"
    assert "tool_call" not in str(others)
    done = cli(*first, "--ended", "rule", code=0)
    assert "(last round) as outcome" in done.words
    assert "no cap can be judged by it" in " ".join(cli(*first, "--ended", "rule", "--json").json["notes"])
    advice = cli("decide", "r.parquet", "--json").json
    assert (advice["verdict"], advice["trial"]["metric"]) == ("cannot be judged", "outcome")


def test_outcomes_in_other_words_are_read_in_the_order_that_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = runs(tmp_path, gave_up="ran-aground")
    refused = cli("import", place, "-o", "r.parquet", "--yes", code=2)
    for words in ("outcome=outcome:WORST,...,BEST", "failed, ran-aground, success", "--outcomes FILE"):
        assert words in refused.err
    for scale in ("outcome", "outcome:"):
        asked = cli("import", place, "-o", "r.parquet", "--yes", "--metric-column", f"success={scale}", code=1)
        assert "list them from the worst to the best" in asked.error
        assert "--outcomes FILE" in asked.error
    option = "success=outcome:ran-aground,failed,success"
    assert cli("import", place, "-o", "r.parquet", "--yes", "--metric-column", option, code=0)
    values = read_recording("r.parquet").column("success")
    assert {*values[np.isfinite(values)]} == {0.0, 0.5, 1.0}


def test_an_outcome_is_no_score_of_each_answer(tmp_path):
    rows = [
        {"id": f"q{q}", "solved": q % 3 > 0, "rounds": [{"answer": CITIES[(q + r) % 7]} for r in range(3)]}
        for q in range(N)
    ]
    with pytest.raises(DataError, match="known once"):
        imported(written(tmp_path, rows), metrics={"solved": "solved"})


def test_messages_of_whole_runs_are_not_judged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = (
        "import",
        runs(tmp_path),
        "-o",
        "r.parquet",
        "--yes",
        "--ended",
        "rule",
        "--column",
        "answer=final_message",
    )
    assert "or the result of the whole run" in cli(*command, code=0).words
    advice = cli("decide", "r.parquet", "--json").json
    assert advice["verdict"] == "cannot be judged"
    assert "--expected equal-answers" in advice["sentence"]
    cli(*command, "--expected", "equal-answers", code=0)
    assert cli("decide", "r.parquet", "-o", "other.json", "--json").json["verdict"] == "not enough data"


def test_amounts_are_offered_with_what_is_right(tmp_path):
    options = offered(written(tmp_path / "log.csv", prices_beside_areas(Brief("flats")).content))
    for name in ("preis", "flaeche"):
        unit = "eur" if name == "preis" else "m2"
        assert f"--column answer={name}_{unit} --column golds={name}_soll" in options


def test_a_copy_of_the_last_amount_is_not_offered_as_right(tmp_path):
    rows = prices_beside_areas(Brief("flats")).content
    last = {row["inserat_id"]: row["preis_eur"] for row in rows}
    rows = [{**row, "preis_soll": last[row["inserat_id"]]} for row in rows]
    assert not [option for option in offered(written(tmp_path / "log.csv", rows)) if "golds=preis_soll" in option]


def rounds(**more: Any) -> list[dict[str, Any]]:
    """Return rounds of questions; each further column is made from a question and a round."""
    return [
        {"qid": f"q{q}", "round": r, "answer": answer(q, r), "gold": CITIES[q % 4]}
        | {name: make(q, r) for name, make in more.items()}
        for q in range(N)
        for r in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("kosten_eur", "amounts (EUR)"),
        ("coste_eur", "amounts (EUR)"),
        ("costo", "dollars"),
        ("Coût (€)", "amounts (€)"),
        ("preis_chf", "amounts (CHF)"),
        ("kosten_je_anfrage_eur", "amounts (EUR)"),
        ("kosten_cents", "cents"),
    ],
)
def test_money_under_names_of_other_languages_is_noted(tmp_path, name, unit):
    notes = notes_of(tmp_path, rounds(**{name: lambda q, r: (q * r) % 5 + 0.5}))
    assert f"{name!r} is not counted: if each row has its own {unit}" in notes


def test_running_totals_in_cents_have_a_form(tmp_path):
    path = written(tmp_path, rounds(total_cost_cents=lambda q, r: 2 * r + q % 2))
    notes = " ".join(imported(path).notes)
    assert "--column spend=total_cost_cents:cents-total if it is a running total" in notes
    assert "--column spend=total_cost_cents:cents if each row has its own cents" in notes
    summary = imported(path, columns={"spend": "total_cost_cents:cents-total"})
    assert read_recording(summary.path).column("spend")[0] == pytest.approx([0.02, 0.04, 0.06])


def test_runs_that_stopped_at_the_cap_are_not_said_to_lack_rounds(tmp_path):
    lengths = {f"q{q}": 1 + q % 3 for q in range(N)}
    rows = [row for row in rounds() if row["round"] <= lengths[row["qid"]]]
    for row in rows:
        is_cap = row["round"] == 3 and int(row["qid"][1:]) % 2  # the others were confident at the cap
        row["stop_reason"] = "max_attempts" if is_cap else "confident" if row["round"] == lengths[row["qid"]] else None
    said = cli("import", written(tmp_path, rows), "-o", tmp_path / "r.parquet", code=0).words
    n = sum(row["stop_reason"] == "max_attempts" for row in rows)
    assert f"{n} ran to the cap" in said
    assert f"{N - n} stopped by themselves" in said
    assert "have all of them" not in said


def test_solutions_with_answers_suggest_a_file_of_golds(tmp_path):
    rows = rounds(solution=lambda q, r: f"From {q} on, the caravan reaches {CITIES[q % 4]} in the end")
    rows = [{name: own for name, own in row.items() if name != "gold"} for row in rows]
    notes = notes_of(tmp_path, rows)
    assert "'solution', which no round changes, contains the last answer" in notes
    assert "--golds FILE" in notes
    rows = [{**row, "solution": f"{row['solution']}{' now' * (row['round'] == 2)}"} for row in rows]
    assert "contains the last answer" not in notes_of(tmp_path / "other.jsonl", rows)
