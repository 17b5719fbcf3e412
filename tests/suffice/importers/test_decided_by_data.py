"""Questions about a reading that the values of a log answer beyond doubt, and their neighbours that are asked about all the same."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.support.logs import asked, imported, offered, texts, written

CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Bern")
N, ROUNDS = 30, 3


def rows(**more):
    """Return rows of questions under usual names, with further columns."""
    return [
        {"id": f"{q}", "question": f"Where is tower {q}?", "round": r, "gold": CITIES[q % 5]}
        | {"answer": CITIES[(q + ((r == 1 and q % 3 > 0) or (r == 2 and q % 7 == 3))) % 5]}
        | {name: own(q, r) for name, own in more.items()}
        for q in range(N)
        for r in range(1, ROUNDS + 1)
    ]


def shown(source):
    """Return the size of what was read, and what the log itself showed."""
    summary = imported(source)
    said = [note for note in summary.notes if note.startswith("decided by the values of the log")]
    return summary.trajectories, summary.rounds, len(said)


def padded(q, r):
    return f"{q:03}" if r > 1 else f"{q}"


def test_ids_that_differ_in_zeros_are_joined_where_texts_are_the_same(tmp_path):
    assert shown(written(tmp_path / "log.csv", rows(id=padded))) == (N, ROUNDS, 1)
    without_texts = [{k: v for k, v in row.items() if k != "question"} for row in rows(id=padded)]
    assert shown(written(tmp_path / "golds.csv", without_texts)) == (N, ROUNDS, 1)
    alike = [{**row, "gold": "Oslo"} for row in without_texts]
    assert "--column question_id=id:alike" in offered(written(tmp_path / "alike.csv", alike), "differ in spaces")


def database(tmp_path, questions=N, tables=()):
    path = tmp_path / f"{questions}.sqlite"
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("CREATE TABLE calls (question_id, round, answer)")
        opened.execute("CREATE TABLE questions (id, question, gold)")
        for name in tables:
            opened.execute(f"CREATE TABLE {name} (name)")
        opened.executemany("INSERT INTO calls VALUES (?, ?, ?)", [(x["id"], x["round"], x["answer"]) for x in rows()])
        asked_once = [(x["id"], x["question"], x["gold"]) for x in rows() if x["round"] == 1]
        opened.executemany("INSERT INTO questions VALUES (?, ?, ?)", asked_once[:questions])
        opened.commit()
    return path


def test_a_join_that_only_adds_columns_is_read(tmp_path):
    source = database(tmp_path)
    assert shown(source) == (N, ROUNDS, 1)
    assert imported(source).judged_by == ("em",)
    assert asked(database(tmp_path, N - 1), "has the tables").confirmed == ""
    assert asked(database(tmp_path / "..", N, ["runs"]), "has the tables").confirmed == ""


@pytest.mark.parametrize(
    ("form", "is_read"),
    [
        ("Let me see {q}{r}.\n[[ ## answer ## ]]\n{a}", True),
        ("I think {q}{r} of it. <answer>{a}</answer>", True),
        ("I think {q}{r} of it. <value>{a}</value>", False),
    ],
)
def test_a_field_called_the_answer_is_read_without_gold_answers(form, is_read, tmp_path):
    made = [
        {"id": x["id"], "round": x["round"], "response": form.format(q=x["id"], r=x["round"], a=x["answer"])}
        for x in rows()
    ]
    source = written(tmp_path / "log.jsonl", made)
    if is_read:
        assert imported(source).preview.rounds[0].answer in CITIES
    else:
        assert asked(source, "inside replies").confirmed == ""


def test_rows_without_an_id_or_an_answer_are_left_out(tmp_path):
    made = [own for row in rows() for own in (row, {"level": f"line {row['id']}"})][: 2 * N * ROUNDS]
    assert shown(written(tmp_path / "log.jsonl", made)) == (N, ROUNDS, 1)
    made[1]["answer"] = "Oslo"
    assert asked(written(tmp_path / "answered.jsonl", made[: 4 * ROUNDS] + rows()[2 * ROUNDS :])).confirmed == ""


def test_rows_of_judges_of_the_same_answers_are_runs(tmp_path):
    made = [{**row, "judge": judge, "mark": len(judge)} for row in rows() for judge in ("large", "small one")]
    summary = imported(written(tmp_path / "log.jsonl", made))
    assert (summary.clusters, summary.trajectories) == (N, 2 * N)
    others = [{**row, "answer": CITIES[(i + i // 3) % 5]} for i, row in enumerate(made)]
    assert asked(written(tmp_path / "others.jsonl", others), "already").confirmed == ""


def wide(stem, make=lambda own: f"SELECT {own} FROM t"):
    families = {x["id"]: {"question": x["question"], "gold": make(x["gold"])} for x in rows()}
    for x in rows():
        families[x["id"]][f"{stem}_{x['round']}"] = make(x["answer"])
    return [*families.values()]


@pytest.mark.parametrize(("stem", "is_read"), [("pred_sql", True), ("model_round", True), ("sql_text", False)])
def test_numbered_columns_called_like_predictions_are_rounds(stem, is_read, tmp_path):
    source = written(tmp_path / "log.csv", wide(stem))
    if is_read:
        assert shown(source)[:2] == (N, ROUNDS)
        assert len(texts(imported(source).path)) == N
    else:
        assert asked(source).confirmed == ""


def test_columns_that_divide_rows_alike_name_the_question_either_way(tmp_path):
    made = [{**row, "id": f"{i}", "test": f"t{row['id']}", "prompt_idx": row["round"]} for i, row in enumerate(rows())]
    made = [{k: v for k, v in row.items() if k != "round"} for row in made]
    assert imported(written(tmp_path / "log.jsonl", made)).trajectories == N
