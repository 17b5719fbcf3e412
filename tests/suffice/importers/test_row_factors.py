"""Rows that nothing counts: a column that counts them in another order, or divides them into loops, is a question."""

from __future__ import annotations

import json

import pytest

from suffice.errors import UnsettledError
from suffice.importers import import_recording
from suffice.recordings import read_recording
from tests.support.cli_tools import cli

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
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def asked(source, **options):
    with pytest.raises(UnsettledError) as caught:
        import_recording(source, out=source.with_suffix(".parquet"), **options)
    return caught.value


def rounds(source, **options):
    summary = import_recording(source, out=source.with_suffix(".parquet"), **options)
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
    told = cli("import", source, "-o", tmp_path / "log.parquet", "--yes")
    assert told.code == 2
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


def test_few_questions_samples_and_counted_rows_are_not_asked_about(tmp_path):
    rows = [(place, {"persona": name}) for name in ("planner", "baseline") for place in (1, 0)]
    assert len(rounds(log(tmp_path / "few.jsonl", rows, n=5))) == 4
    source = log(tmp_path / "log.jsonl", rows)
    assert rounds(source, samples=True)
    counted = [(place, {**more, "round": r}) for r, (place, more) in enumerate(rows, start=1)]
    assert len(rounds(log(tmp_path / "counted.jsonl", counted))) == 4
