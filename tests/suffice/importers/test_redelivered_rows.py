"""Messages that are delivered twice, shuffled totals, second headers, sentences with numbers, and ids that name nothing."""

from __future__ import annotations

import random

import pytest

from suffice.errors import DataError, UnsettledError
from suffice.importers import import_recording
from suffice.importers.columns.merged_cells import refuse_second_header
from suffice.importers.files.records import Record
from suffice.importers.rows.failed_calls import without_repeated_calls
from suffice.policy.comparisons import chosen_normalizer
from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES
from tests.support.logs import answer, by_round, imported, offered, written


def delivered(copies=(5, 30), lost=()):
    """Return messages, of which some come again later, under other offsets."""
    sent = [
        {"seq": r + 1, "answer": answer(q, r), "gold": CITIES[q % 4], "key": q} for q in range(24) for r in range(3)
    ]
    again = [own for place, own in enumerate(sent) for own in [own] * (1 + (place in copies)) if place not in lost]
    return [{"offset": 70 + i, "ts": 1772438400000 + 4000 * i, **own} for i, own in enumerate(again)]


def shuffled(rows):
    random.Random(7).shuffle(rows)
    return rows


def counted(numbers, name):
    return shuffled(
        [
            {"id": q, name: numbers(q, r), "answer": answer(q, r), "gold": CITIES[q % 4]}
            for q in range(24)
            for r in range(3)
        ]
    )


def test_messages_delivered_twice_are_no_rounds(tmp_path):
    summary = imported(written(tmp_path, delivered()))
    assert (summary.rounds, summary.trajectories) == (3, 24)
    notes = " ".join(summary.notes)
    assert "2 numbers twice" in notes
    assert "2 rows without an answer, or with nothing new, left out" in notes
    assert [means.n for means in summary.by_round] == [24, 24, 24]


def test_many_copies_are_asked_about(tmp_path):
    path = written(tmp_path, delivered(copies=range(0, 60, 3)))
    assert offered(path) == ["--column round=seq", "--column round="]
    assert imported(path, columns={"round": "seq"}).rounds == 3
    assert imported(path, columns={"round": ""}).rounds == 4


def test_rows_with_other_content_are_no_copies(tmp_path):
    rows = delivered()
    rows[6]["answer"] = "Nowhere"
    assert imported(written(tmp_path, rows)).rounds == 4


def test_equal_answers_without_a_counter_stay_rounds(tmp_path):
    rows = [
        {"ts": 1772438400000 + 4000 * i, "id": i // 3, "answer": CITIES[i // 3 % 3 + i % 3 // 2]} for i in range(60)
    ]
    assert imported(written(tmp_path, rows)).rounds == 3


def test_copies_of_a_round_are_left_out_unless_others_differ():
    def rows(*answers):
        values = [{"q": 1, "round": 1, "a": text, "at": f"2026-03-02 08:0{i}:00"} for i, text in enumerate(answers)]
        return [Record("", "", i, own) for i, own in enumerate(values)]

    columns = {"question_id": "q", "round": "round", "answer": "a"}
    assert without_repeated_calls(rows("Oslo", "Oslo", "Oslo"), columns) == rows("Oslo")
    assert without_repeated_calls(rows("Oslo", "Oslo", "Rome"), columns) == rows("Oslo", "Oslo", "Rome")
    same = rows("Oslo") * 2
    assert without_repeated_calls(same, columns) == same


def test_a_latency_makes_rows_other_calls():
    values = [{"q": 1, "round": 1, "a": "Oslo", "latency": 1.5 + i} for i in range(2)]
    rows = [Record("", "", i, own) for i, own in enumerate(values)]
    assert without_repeated_calls(rows, {"question_id": "q", "round": "round", "answer": "a"}) == rows


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("think_tokens", lambda _, r: 512 * 2**r),
        ("elapsed_s", lambda q, r: 4.0 * r + q % 7 / 5 + 2),
        ("row", lambda q, r: 3 * q + r),
    ],
)
def test_shuffled_totals_are_asked_about(tmp_path, name, numbers):
    path = written(tmp_path, counted(numbers, name))
    assert offered(path) == [f"--column round={name}:ascending", "--column round="]
    assert by_round(path, columns={"round": f"{name}:ascending"})[-1] == 1.0
    assert by_round(path, columns={"round": ""})[-1] < 1.0


@pytest.mark.parametrize(("values", "asked"), [((900, 700, 800), False), ((900, 800, 700), True), ((9, 8), False)])
def test_one_order_in_all_questions_is_asked_about_if_it_falls(tmp_path, values, asked):
    rows = [{"id": q, "used_tokens": n, "answer": answer(q, r)} for q in range(40) for r, n in enumerate(values)]
    path = written(tmp_path, rows)
    if asked:
        assert offered(path)[0] == "--column round=used_tokens:ascending"
    else:
        assert imported(path).rounds == len(values)


def test_the_numbers_of_an_order_stay_costs(tmp_path):
    path = written(tmp_path, counted(lambda q, r: 4.0 * r + q % 7 / 5 + 2, "elapsed_s"))
    summary = imported(path, columns={"round": "elapsed_s:ascending"})
    seconds = read_recording(summary.path).column("cost.generator.seconds")
    assert (seconds[:, 1:] > seconds[:, :-1]).all()


@pytest.mark.parametrize("name", ["elapsed_s", "prompt_tokens", "similarity"])
def test_numbers_of_each_row_are_no_order(tmp_path, name):
    draw = random.Random(3)
    assert imported(written(tmp_path, counted(lambda *_: draw.randint(10, 900), name))).rounds == 3


def test_totals_in_the_order_of_the_file_are_not_asked_about(tmp_path):
    rows = sorted(counted(lambda _, r: 512 * 2**r, "think_tokens"), key=lambda row: (row["id"], row["think_tokens"]))
    assert by_round(written(tmp_path, rows))[-1] == 1.0


def table(tmp_path, *head):
    path = tmp_path / "sheet.csv"
    rows = [f"{q},Where is {q}?,{CITIES[q % 4]},{answer(q, 0)},0.5,{answer(q, 2)},1" for q in range(24)]
    path.write_text("\n".join([*head, *rows]) + "\n", "utf-8")
    return path


def test_values_of_several_columns_without_a_name_are_refused(tmp_path):
    path = table(tmp_path, "item,,,round 1,,round 2,", "no,text,gold,answer,mark,answer,mark")
    with pytest.raises(DataError, match="without a name"):
        imported(path)
    joined = table(tmp_path, "no,question,gold,round 1 answer,round 1 mark,round 2 answer,round 2 mark")
    assert imported(joined).trajectories == 24


def test_a_second_line_of_names_is_refused(tmp_path):
    names = "id,question,gold,answer_1,mark_1,answer_2,mark_2"
    with pytest.raises(DataError, match="second line"):
        imported(table(tmp_path, names, "number,text,right one,said first,mark,said last,mark"))
    assert imported(table(tmp_path, names)).trajectories == 24


@pytest.mark.parametrize("first", ["n/a", "true", "x1", 3, None])
def test_a_first_row_without_some_values_is_no_header(first):
    values = [{"name": "Oslo", "mark": own} for own in (first, *range(20))]
    refuse_second_header([Record("", "", i, own) for i, own in enumerate(values)])


def sentences(*forms):
    return [form.format(20 + i % 3) for i, form in enumerate(forms * 8)]


def test_sentences_that_share_a_number_are_asked_about():
    golds = sentences("The bridge was closed for {} days.", "A council approved {} trees along our park.")
    pairs = [*zip(golds, golds[3:], strict=False)]
    with pytest.raises(UnsettledError, match="other words") as error:
        chosen_normalizer(golds, golds, pairs)
    assert [*error.value.choices] == ["--set normalizer=qa", "--set normalizer=number"]


def test_sentences_of_the_same_words_are_compared_by_number():
    golds = sentences("The right answer is then {} apples.", "So the right answer is {} apples.")
    assert chosen_normalizer(golds, golds, [*zip(golds, golds[3:], strict=False)]).normalizer == "number"


def hits(**more):
    source = [{"trace": {"id": f"t{i // 3}"}, "draft": answer(i // 3, i % 3), **more} for i in range(72)]
    return [{"index": "bot", "_id": f"x{i}", "_source": own} for i, own in enumerate(source)]


@pytest.mark.parametrize("options", [{}, {"log_golds": "drop"}])
def test_a_constant_is_no_id(tmp_path, options):
    path = written(tmp_path, hits())
    assert offered(path, **options) == ["--column question_id=_source.trace.id", "--column question_id=index"]
    assert imported(path, columns={"question_id": "_source.trace.id"}, **options).trajectories == 24
    assert imported(path, columns={"question_id": "index"}, **options).rounds == 72


def test_a_computed_id_is_no_option(tmp_path):
    path = written(tmp_path, [{"rounds": [{"case": f"c{i // 3}", "answer": answer(i // 3, i % 3)} for i in range(72)]}])
    assert offered(path) == ["--column question_id=case"]


def test_one_question_with_few_other_values_is_read(tmp_path):
    rows = [{"id": "q", "round": r, "answer": CITIES[r % 4]} for r in range(1, 41)]
    assert import_recording(written(tmp_path, rows), out=tmp_path / "one.parquet").rounds == 40
