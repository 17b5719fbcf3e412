"""What rows cost that a filter leaves out: calls of the same loop are charged to the rows that are kept."""

from __future__ import annotations

import json

from suffice import import_recording, read_recording
from suffice.importers.alarms import ALARMS
from tests.support.cli_tools import CITIES

FIGURES = ("calls", "uncached_tokens", "output_tokens")


def costs(tmp_path, records, **options):
    """Import a log; return the costs of the first question by round, and the summary."""
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    summary = import_recording(path, out=tmp_path / "log.parquet", **options)
    table = read_recording(summary.path).table
    names = [f"cost.generator.{kind}" for kind in FIGURES]
    rows = [tuple(row[name] for name in names) for row in table.to_pylist() if row["question_id"] in ("0", "1")]
    return rows[: summary.rounds], summary


def calls(q, kinds, **more):
    """Return a row for each call: the first letter of its kind says whether it failed, and the rest what it used."""
    rows = []
    for place, (kind, used, written) in enumerate(kinds):
        text = "" if kind == "error" else CITIES[(q + place) % 4]
        usage = {"prompt_tokens": used, "completion_tokens": written}
        rows.append({"id": str(q), "output": text, "status": kind, **usage, **more})
    return rows


KINDS = [("error", 10, 0), ("ok", 20, 4), ("ok", 30, 3), ("error", 40, 0)]


def test_failed_calls_count_to_the_next_round_or_the_last(tmp_path):
    records = [row for q in range(30) for row in calls(q, KINDS)]
    rows, summary = costs(tmp_path, records, where={"status": "ok"})
    assert rows == [(2, 30, 4), (2, 70, 3)]
    assert any("leaves out 60 calls" in note for note in summary.notes)


def test_calls_of_another_loop_cost_nothing(tmp_path):
    records = [
        row
        for q in range(30)
        for model, scale in (("small", 1), ("large", 9))
        for row in calls(q, [(kind, scale * used, written) for kind, used, written in KINDS], model=model)
    ]
    rows, _ = costs(tmp_path, records, where={"model": "small", "status": "ok"})
    assert rows == [(2, 30, 4), (2, 70, 3)]


def test_items_of_a_list_that_are_left_out_are_charged(tmp_path):
    steps = [{"node": node, "answer": "Rome", "prompt_tokens": 5} for node in ("search", "answer", "search", "answer")]
    records = [{"id": str(q), "steps": steps} for q in range(30)]
    rows, _ = costs(tmp_path, records, where={"node": "answer"})
    assert [own[:2] for own in rows] == [(2, 10), (2, 10)]


def test_a_column_that_counts_calls_is_added_up(tmp_path):
    records = [{**row, "n_calls": 3} for q in range(30) for row in calls(q, KINDS)]
    assert [own[0] for own in costs(tmp_path, records, where={"status": "ok"})[0]] == [6, 6]


def test_running_totals_have_the_failed_calls_already(tmp_path):
    totals = [("error", 10, 1), ("ok", 30, 3), ("error", 60, 5), ("ok", 100, 8)]
    records = [row for q in range(30) for row in calls(q, totals)]
    rows, _ = costs(tmp_path, records, where={"status": "ok"})
    assert rows == [(2, 30, 3), (2, 70, 5)]


def test_a_filter_whose_meaning_is_unknown_has_a_caution(tmp_path):
    records = [{**row, "template": row.pop("status")} for q in range(30) for row in calls(q, KINDS)]
    rows, summary = costs(tmp_path, records, where={"template": "ok"})
    assert [own[1:] for own in rows] == [(20, 4), (30, 3)]
    (alarm,) = [alarm for alarm in summary.alarms if alarm.name == "left-out-costs"]
    assert alarm.level == ALARMS["left-out-costs"][0] == "caution"
    assert "60 rows of questions" in alarm.sentence


def test_rows_of_other_questions_are_charged_to_none(tmp_path):
    records = [row for q in range(30) for row in calls(q, KINDS[1:3], type=("a", "b")[q % 2])]
    rows, summary = costs(tmp_path, records, where={"type": "b"})
    assert [own[1:] for own in rows] == [(20, 4), (30, 3)]
    assert not any("leaves out" in note for note in summary.notes)
