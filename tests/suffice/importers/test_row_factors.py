"""Rows that nothing counts: a column that counts them in another order, or divides them into loops, is a question."""

from __future__ import annotations

import json

import pytest

from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import asked, imported, offered, written

CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Bern")


def log(path, rows, n=20):
    """Write `n` questions with the same rows, each a place of the answer among cities with further columns."""
    lines = [
        {
            "id": f"q{q}",
            "question": f"Where is tower {q}?",
            "answer": CITIES[(q + place) % 5],
            "gold": CITIES[q % 5],
            **more,
        }
        for q in range(n)
        for place, more in rows
    ]
    return written(path, lines)


def rounds(source, **options):
    summary = imported(source, **options)
    return [(item.round, item.n, item.em) for item in summary.by_round]


def test_a_column_that_counts_rows_backwards_is_asked_about(tmp_path):
    source = log(tmp_path / "log.jsonl", [(min(q, 1), {"nth": 3 - q}) for q in range(3)])
    found = asked(source)
    assert "'nth' counts the rows" in str(found)
    assert set(found.choices) == {"--column round=nth", "--column round="}
    assert rounds(source, columns={"round": "nth"}) == [(1, 20, 0.0), (2, 20, 0.0), (3, 20, 1.0)]
    assert rounds(source, columns={"round": ""}, expected=["falling-scores"])[0] == (1, 20, 1.0)


def test_a_column_that_counts_rows_as_they_come_is_not_asked_about(tmp_path):
    source = log(tmp_path / "log.jsonl", [(2 - q, {"nth": q + 1}) for q in range(3)])
    assert [item[2] for item in rounds(source)] == [0.0, 0.0, 1.0]


def test_the_same_agents_in_every_question_may_be_loops(tmp_path):
    rows = [(place, {"persona": name}) for name in ("planner", "baseline") for place in (1, 0)]
    source = log(tmp_path / "log.jsonl", rows)
    told = cli("import", source, "-o", tmp_path / "log.parquet", "--yes", code=2)
    assert "--column run=persona" in told.err
    assert cli("import", source, "-o", tmp_path / "log.parquet", "--yes", "--column", "run=persona").code == 0
    recording = read_recording(tmp_path / "log.parquet")
    assert (recording.answers.shape, len({*recording.clusters})) == ((40, 2), 20)
    assert len(rounds(source, columns={"round": ""})) == 4


@pytest.mark.parametrize(
    "rows",
    [
        [(2 - q, {"stage": name}) for q, name in enumerate(("draft", "revision", "final"))],
        [(2 - q, {"model": name}) for q, name in enumerate(("small", "large", "huge"))],
        [(2 - q, {"verdict": "weak"}) for q in range(3)],
        [(2 - q, {"note": f"{q} notes"}) for q in range(3)] + [(0, {"note": None})],
    ],
    ids=["steps", "models", "constant", "not everywhere"],
)
def test_other_labels_are_not_asked_about(rows, tmp_path):
    assert rounds(log(tmp_path / "log.jsonl", rows))


@pytest.mark.parametrize("values", [(1, 3, 5), (128, 256, 1024), (0.1, 0.1, 0.5)], ids=str)
def test_the_same_settings_in_every_question_may_be_loops(values, tmp_path):
    source = log(tmp_path / "log.jsonl", [(2 - q, {"top_k": value}) for q, value in enumerate(values)])
    found = asked(source)
    assert {"--column run=top_k", "--column round="} <= set(found.choices)
    assert "'top_k'" in str(found)
    rounds(source, columns={"run": "top_k"})
    assert len({*read_recording(source.with_suffix(".parquet")).question_ids}) == 20 * len({*values})
    assert [item[2] for item in rounds(source, columns={"round": ""})] == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("name", ["messages_so_far", "progress"])
def test_numbers_that_grow_evenly_are_not_asked_about(name, tmp_path):
    assert rounds(log(tmp_path / "log.jsonl", [(2 - q, {name: 2 * q + 1}) for q in range(3)]))


def test_settings_of_list_items_may_be_loops(tmp_path):
    items = [{"top_k": k, "answer": CITIES[k % 5]} for k in (1, 3, 5)]
    records = [{"id": f"q{q}", "gold": CITIES[q % 5], "results": items} for q in range(20)]
    source = tmp_path / "log.json"
    source.write_text(json.dumps(records), encoding="utf-8")
    assert set(offered(source)) == {"--column run=top_k", "--column rounds=results"}
    assert [n for _, n, _ in rounds(source, columns={"rounds": "results"})] == [20, 20, 20]


def test_kinds_of_unlike_frequency_can_be_chosen(tmp_path):
    rows = [(2 - q, {"step": "draft"}) for q in range(3)] + [(0, {"step": "final"})]
    source = log(tmp_path / "log.jsonl", rows)
    assert "--where step=draft" in offered(source)
    assert [item[2] for item in rounds(source, where={"step": "draft"})] == [0.0, 0.0, 1.0]


def test_few_questions_samples_and_counted_rows_are_not_asked_about(tmp_path):
    rows = [(place, {"persona": name}) for name in ("planner", "baseline") for place in (1, 0)]
    assert len(rounds(log(tmp_path / "few.jsonl", rows, n=5))) == 4
    source = log(tmp_path / "log.jsonl", rows)
    assert rounds(source, samples=True)
    counted = [(place, {**more, "round": r}) for r, (place, more) in enumerate(rows, start=1)]
    assert len(rounds(log(tmp_path / "counted.jsonl", counted))) == 4
