"""Logs with several scores of their own, or with one under another name than usual: which judges, and what the screen says of it."""

from __future__ import annotations

import json

import pytest

from suffice.errors import UnsettledError
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


def test_times_and_counts_in_another_language_are_no_scores(tmp_path):
    numbers = {
        "Sekunden": lambda q, r: 1 + (3 * q + 2 * r * r) % 37 / 10,
        "Zeichen": lambda q, r: 4 + (q + 2 * r) % 7,
        "Wörter": lambda q, r: (3 * q + 5 * r * r) % 97 + 3,
        "Aufrufe": lambda q, r: 1 + 2 * r,
        "Kosten": lambda q, r: (3 * q + 5 * r * r) % 97 / 10_000,
        "n_docs": lambda q, r: 1 + (3 * q + 2 * r * r) % 5,
    }
    columns = [of_values(name, value_of) for name, value_of in numbers.items()]
    rows = [{name: value for own in row for name, value in own.items()} for row in zip(*columns, strict=True)]
    assert "how good the answer" not in screen(tmp_path, rows)


def test_no_score_is_guessed_by_its_scale_beside_one_that_judges(tmp_path):
    stars = of_values("Sterne", lambda q, r: 1 + (3 * q + 2 * r * r) % 5)
    assert "how good the answer" not in screen(tmp_path, [{**row, "stars": row["Sterne"]} for row in stars])
    assert "how good the answer" not in screen(tmp_path, [{**row, "gold": "xxx"} for row in stars])


def labels(*, as_text, golds=True):
    """Return records with an object that was read in each of two passes, in cells as text or as they are."""
    rows = []
    for q in range(N):
        right = {"vintage": 1990 + q, "volume_ml": 375 + q % 4}
        said = {"pass1_output": right if q % 3 else {**right, "volume_ml": 1500}, "pass2_output": right}
        row = {"sku": f"W{q}", **said} | ({"expected": right} if golds else {})
        rows.append({name: json.dumps(own) if as_text and name != "sku" else own for name, own in row.items()})
    return rows


@pytest.mark.parametrize("as_text", [True, False])
def test_objects_by_pass_are_read_as_rounds_by_the_printed_command(as_text, tmp_path):
    path = written(tmp_path / ("log.csv" if as_text else "log.jsonl"), labels(as_text=as_text))
    with pytest.raises(UnsettledError) as error:
        imported(path)
    option, (choice, _) = next(iter(error.value.choices.items()))
    assert option == "--column rounds=pass1_output,pass2_output"
    summary = imported(path, **(choice if "columns" in choice else {"columns": choice}))
    assert [means.match for means in summary.by_round] == pytest.approx([20 / 30, 1])
    assert summary.preview.golds == ('{"vintage": 1990, "volume_ml": 375}',)


def test_columns_of_objects_that_the_user_names_are_rounds(tmp_path):
    path = written(tmp_path / "log.csv", labels(as_text=True, golds=False))
    summary = imported(path, columns={"rounds": "pass1_output,pass2_output"})
    assert (summary.clusters, summary.rounds) == (N, 2)
    assert [own.answer for own in summary.preview.rounds][1] == '{"vintage": 1990, "volume_ml": 375}'


def test_objects_in_numbered_columns_of_answers_are_read_without_a_question(tmp_path):
    rows = [
        {name.replace("pass1_output", "answer_1").replace("pass2_output", "answer_2"): own for name, own in row.items()}
        for row in labels(as_text=True)
    ]
    summary = imported(written(tmp_path / "log.csv", rows))
    assert [means.match for means in summary.by_round] == pytest.approx([20 / 30, 1])
