"""Ids with names of their own, where the texts of questions are asked again."""

from __future__ import annotations

import pytest

from suffice.errors import UnsettledError
from tests.support.logs import asked, imported, offered, written

CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Bern")

N, TEXTS, ROUNDS = 30, 20, 3


def rows(key="review_id", *, gold=lambda q: CITIES[q % 5], text=lambda q: f"Where is tower {q % TEXTS}?", **more):
    """Return the rows of questions, each with an id and a text that others have as well; nothing counts them."""
    return [
        {
            key: f"R-{q:02}",
            "question": text(q),
            "prediction": CITIES[(q + (r == 0)) % 5],
            "gold": gold(q),
            **{name: own(q, r) for name, own in more.items()},
        }
        for q in range(N)
        for r in range(ROUNDS)
    ]


def shape_of(source, **options):
    summary = imported(source, **options)
    return summary.trajectories, summary.rounds


def test_an_id_names_questions_whose_texts_are_asked_again(tmp_path):
    source = written(tmp_path / "log.csv", rows())
    summary = imported(source)
    assert (summary.clusters, summary.trajectories, summary.rounds) == (TEXTS, N, ROUNDS)
    assert next(item.theirs for item in summary.readings if item.ours == "question_id") == "review_id"


def test_one_text_asked_again_is_enough(tmp_path):
    again = lambda q: f"Where is tower {q if q != 17 else 3}?"  # noqa: E731
    assert shape_of(written(tmp_path / "log.csv", rows(text=again))) == (N, ROUNDS)


@pytest.mark.parametrize("given", ["--column question_id=flight", "--column run=question"])
def test_an_id_of_any_name_is_offered_first(given, tmp_path):
    source = written(tmp_path / "log.csv", rows("flight"))
    choices = asked(source, "several places").choices
    assert [*choices] == ["--column question_id=flight", "--column run=question", "--column round="]
    assert shape_of(source, **choices[given][0]) == (N, ROUNDS)


def test_rows_that_alternate_are_asked_about_and_are_no_runs(tmp_path):
    made = rows("order_no")
    order = sorted(range(len(made)), key=lambda place: (place // (4 * ROUNDS), place % ROUNDS))
    source = written(tmp_path / "log.csv", [made[place] for place in order])
    assert offered(source, "several places") == ["--column question_id=order_no", "--column round="]


def test_texts_in_one_place_with_other_golds_are_asked_about(tmp_path):
    made = sorted(rows("visit", gold=lambda q: CITIES[q // TEXTS]), key=lambda row: row["question"])
    assert offered(written(tmp_path / "log.csv", made), "other gold answers") == ["--column question_id=visit"]


def test_an_id_beside_texts_in_one_place_is_asked_about(tmp_path):
    made = sorted(rows("visit_id", gold=lambda q: "Oslo"), key=lambda row: row["question"])
    assert offered(written(tmp_path / "log.csv", made), "with one text")[0] == "--column question_id=visit_id"


def test_other_columns_are_no_ids(tmp_path):
    more = {
        "shelf": lambda q, r: f"s{q}-{r // 2}",
        "doc_id": lambda q, r: f"d{q}-{r // 2}",
        "customer_id": lambda q, r: f"c{q // 3}",
        "share": lambda q, r: q + 0.5,
        "note": lambda q, r: f"{q} " + "very long " * 9,
    }
    made = [
        {name: own for name, own in row.items() if name != "id"} for row in rows("id", text="Tower {}?".format, **more)
    ]
    assert shape_of(written(tmp_path / "log.csv", made)) == (N, ROUNDS)


def test_two_ids_that_divide_rows_otherwise_are_asked_about(tmp_path):
    made = rows("visit_id", case_key=lambda q, r: f"c{q}-{r // 2}")
    assert {*offered(written(tmp_path / "log.csv", made))} >= {
        "--column question_id=visit_id",
        "--column question_id=case_key",
    }


@pytest.mark.parametrize("gold", [lambda q: CITIES[q // 10], lambda q: "Oslo"], ids=["other golds", "one gold"])
def test_ids_with_the_text_of_another_one_are_said(gold, tmp_path):
    made = [
        {"id": f"A-{q}", "question": f"Is clause {q % 10} there?", "gold": gold(q), "tries": [CITIES[q % 5], "Oslo"]}
        for q in range(N)
    ]
    source = written(tmp_path, made)
    (note,) = [own for own in imported(source).notes if "text of another" in own]
    assert note.startswith("20 of 30 ids have the text of another")
    assert ("20 with other gold answers" in note) == (gold(0) != gold(10))
    assert "--column question=" in note
    assert (imported(source).clusters, imported(source, columns={"question": ""}).clusters) == (10, N)


def test_columns_that_name_a_question_together_are_offered_first(tmp_path):
    made = [
        {
            "candidate": f"C{q // 2}",
            "vacancy": f"V{q % 2}",
            "pass": r,
            "fit": CITIES[(q + (r == 0)) % 5],
            "judged": CITIES[q % 5],
        }
        for q in range(N)
        for r in range(ROUNDS)
    ]
    choices = offered(written(tmp_path / "log.csv", made), "rounds of a question")
    assert choices[0] == "--column question_id=candidate,vacancy --column round=pass"
    assert not any("rounds=" in own for own in choices)


MODELS = ("mini", "mini", "large")


@pytest.mark.parametrize("name", ["pass_no", "call_no", "level"])
def test_a_counter_across_models_may_count_one_loop(name, tmp_path):
    made = [
        {"id": q, name: r + 1, "model": MODELS[r], "answer": CITIES[(q + (r < 2)) % 5], "gold": CITIES[q % 5]}
        for q in range(N)
        for r in range(ROUNDS - q % 2)
    ]
    source = written(tmp_path / "log.csv", made)
    choices = asked(source, "asked in turn").choices
    assert [own for own, _ in choices.values()] == [{"columns": {"round": name}}, {"columns": {"run": "model"}}]
    assert shape_of(source, columns={"round": name}, ended="rule") == (N, ROUNDS)


def test_a_list_in_which_a_model_is_asked_twice_is_asked_about(tmp_path):
    calls = lambda q: [{"model": own, "output": CITIES[(q + (own == "mini")) % 5]} for own in MODELS]  # noqa: E731
    source = written(tmp_path, [{"id": q, "gold": CITIES[q % 5], "calls": calls(q)} for q in range(N)])
    assert offered(source, "asked in turn") == ["--column model=", "--column run=model"]
    assert shape_of(source, columns={"model": ""}) == (N, ROUNDS)


def with_stops(key, *, counter="attempt", gold=lambda q: CITIES[q % 5], n=N, **more):
    """Return rows of loops of one to three rounds, each row with an id of its own in front."""
    made = [
        {
            key: f"N-{7 * q + 100}",
            **({counter: r + 1} if counter else {}),
            "answer": CITIES[(q + (r == 0)) % 5],
            "gold": gold(q),
            **{name: own(q, r) for name, own in more.items()},
        }
        for q in range(n)
        for r in range(1 + q % ROUNDS)
    ]
    return [{"id": number, **row} for number, row in enumerate(made)]


@pytest.mark.parametrize("key", ["txn_id", "case_no", "ordernr", "ticket_ref", "sku"])
def test_an_id_whose_rows_are_counted_is_read_beside_ids_of_rows(key, tmp_path):
    made = with_stops(key, booked=lambda q, r: f"{q // 6}/1/2026")
    source = written(tmp_path / "log.csv", sorted(made, key=lambda row: row["attempt"]))
    summary = imported(source)
    assert (summary.trajectories, summary.rounds) == (N, ROUNDS)
    assert next(item.theirs for item in summary.readings if item.ours == "question_id") == key


@pytest.mark.parametrize("key", ["run_no", "batch_no", "worker_id", "seed_no"])
def test_a_number_of_runs_is_not_read_as_the_question(key, tmp_path):
    made = with_stops(key, item=lambda q, r: f"i{q // 3}", gold=lambda q: CITIES[q // 3 % 5])
    source = written(tmp_path / "log.csv", [{k: v for k, v in row.items() if k != "id"} for row in made])
    with pytest.raises(UnsettledError):
        imported(source)
    summary = imported(source, columns={"question_id": "item", "run": key})
    assert (summary.clusters, summary.trajectories) == (N // 3, N)


def test_an_odd_name_is_asked_about_where_all_golds_are_one(tmp_path):
    made = with_stops("sku", gold=lambda q: "Oslo")
    assert offered(written(tmp_path / "log.csv", made), "of its own") == ["--column question_id=sku"]


def test_rows_together_are_offered_where_loops_stop_early(tmp_path):
    made = with_stops("ordernr", counter="")
    assert offered(written(tmp_path / "log.csv", made), "of its own")[0] == "--column question_id=ordernr"


def test_several_columns_are_offered_beside_an_id_of_each_row(tmp_path):
    made = with_stops("name", batch=lambda q, r: f"b{q // 10}", item=lambda q, r: q % 10)
    rows_of_items = [{k: v for k, v in row.items() if k != "name"} for row in made]
    assert offered(written(tmp_path / "log.csv", rows_of_items), "of its own")[0] == "--column question_id=batch,item"


def test_other_golds_show_that_a_name_tells_one_text_apart(tmp_path):
    made = [{**row, "question": f"Where is tower {i % 2}?"} for i, row in enumerate(with_stops("mrn"))]
    for row in made:
        row["question"] = f"Where is tower {int(row['mrn'][2:]) // 7 % 4}?"
    assert shape_of(written(tmp_path / "log.csv", made)) == (N, ROUNDS)
    same = [{**row, "gold": CITIES[int(row["question"][-2])]} for row in made]
    assert "--column question_id=mrn" in offered(written(tmp_path / "same.csv", same), "already")
