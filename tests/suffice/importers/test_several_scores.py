"""Logs with several scores of their own, or with one under another name than usual: which judges, and what the screen says of it."""

from __future__ import annotations

import pytest

from tests.support.cli_tools import cli
from tests.support.logs import imported, recorded, written

N = 30


def drafts(**scores):
    """Return rows of three drafts of 30 texts; `scores` has the mean of each score by draft."""
    return [
        {"id": q, "draft": r + 1, "answer": f"Summary {q} in version {r}."}
        | {name: round(means[r] + (q % 5) / 200, 3) for name, means in scores.items()}
        for q in range(N)
        for r in range(3)
    ]


PARTS = {
    "bertscore_precision": (0.93, 0.8, 0.6),
    "bertscore_recall": (0.7, 0.8, 0.9),
    "bertscore_f1": (0.8, 0.85, 0.89),
}


def screen(place, rows, *options):
    """Return what the import of a log shows, on one line."""
    path = written(place / "log.jsonl", rows)
    return " ".join(cli("import", path, "-o", path.with_suffix(".parquet"), *options, code=0).out.split())


def test_an_f1_judges_and_not_its_parts(tmp_path):
    summary, recording = recorded(tmp_path, drafts(**PARTS))
    assert summary.judged_by == ("bertscore_f1",)
    assert {*PARTS} <= {*recording.table.column_names}
    said = screen(tmp_path, drafts(**PARTS))
    assert "mean bertscore_f1, %" in said
    assert "'bertscore_f1' judges, and not its parts 'bertscore_precision', 'bertscore_recall'" in said


def test_of_several_scores_the_user_names_the_judge(tmp_path):
    rows = drafts(rouge1=(0.8, 0.82, 0.81), rougeL=(0.5, 0.6, 0.7))
    assert imported(written(tmp_path, rows)).judged_by == ("rouge1", "rougeL")
    said = screen(tmp_path, rows)
    assert "mean rouge1, % mean rougeL, %" in said
    assert "so name it: `suffice decide --metric rouge1` or `suffice decide --metric rougeL`" in said
    refused = cli("decide", tmp_path / "log.parquet", code=2)
    assert "log.parquet --metric rougeL" in refused.err


@pytest.mark.parametrize("name", ["f1", "em", "score"])
def test_a_score_of_a_usual_name_judges_alone(name, tmp_path):
    rows = drafts(**{name: (0.8, 0.85, 0.9)})
    assert imported(written(tmp_path, rows)).judged_by == (name,)
    said = screen(tmp_path, rows)
    assert "nothing in the log says which answers are right" not in said
    assert "--ask" not in said


def of_values(name, value_of):
    """Return three rounds of 30 questions with a number of any name in each."""
    return [
        {"id": q, "round": r + 1, "answer": "x" * (3 + (q + 2 * r) % 7), name: value_of(q, r)}
        for q in range(N)
        for r in range(3)
    ]


@pytest.mark.parametrize(
    ("name", "value_of", "scale"),
    [
        ("Sterne", lambda q, r: 1 + (3 * q + 2 * r * r) % 5, ":1..5"),
        ("étoiles", lambda q, r: f"{1 + (3 * q + 2 * r * r) % 9 / 2:g}".replace(".", ","), ":1..5"),
        ("puntuación", lambda q, r: (3 * q + 5 * r * r) % 11, ":0..10"),
        ("voto", lambda q, r: 5 * ((3 * q + 5 * r * r) % 21), ":0..100"),
        ("Güte", lambda q, r: (3 * q + 5 * r * r) % 97 / 100, ""),
    ],
)
def test_a_score_in_another_language_is_named_by_its_scale(name, value_of, scale, tmp_path):
    rows = of_values(name, value_of)
    said = screen(tmp_path, rows)
    option = f"{name}={name}{scale}"
    assert f"if {name!r}, from " in said
    assert option in said
    summary, recording = recorded(tmp_path, rows, metrics={name: f"{name}{scale}"})
    assert summary.judged_by == (name,)
    assert {*recording.table.column(name).to_pylist()} <= {i / 100 for i in range(101)} | {i / 8 for i in range(9)}


@pytest.mark.parametrize(
    ("name", "value_of"),
    [
        ("Sekunden", lambda q, r: 1 + (3 * q + 2 * r * r) % 37 / 10),
        ("Zeichen", lambda q, r: 3 + (q + 2 * r) % 7),
        ("Wörter", lambda q, r: (3 * q + 5 * r * r) % 97 + 3),
        ("Aufrufe", lambda q, r: 1 + 2 * r),
        ("Kosten", lambda q, r: (3 * q + 5 * r * r) % 97 / 10_000),
        ("n_docs", lambda q, r: 1 + (3 * q + 2 * r * r) % 5),
    ],
)
def test_times_and_counts_in_another_language_are_no_scores(name, value_of, tmp_path):
    assert "how good the answer" not in screen(tmp_path, of_values(name, value_of))


def test_no_score_is_guessed_by_its_scale_beside_one_that_judges(tmp_path):
    stars = of_values("Sterne", lambda q, r: 1 + (3 * q + 2 * r * r) % 5)
    assert "how good the answer" not in screen(tmp_path, [{**row, "stars": row["Sterne"]} for row in stars])
    assert "how good the answer" not in screen(tmp_path, [{**row, "gold": "xxx"} for row in stars])
