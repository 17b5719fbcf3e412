"""Options that name a column as rounds or answers although it has something else."""

from __future__ import annotations

import pytest

from suffice.errors import DataError
from tests.support.cli_tools import CITIES
from tests.support.logs import asked, imported, offered, written

N = 30


def wide():
    """Return one row a question, with two guesses and what is right."""
    return [
        {"case": f"c{q}", "guess_1": CITIES[(q + q % 3 // 2) % 4], "guess_2": CITIES[(q + q % 5 // 4) % 4], "city_gold": CITIES[q % 4]}
        for q in range(N)
    ]  # fmt: skip


def long():
    """Return rows of rounds with answers under an unusual name, and what is right."""
    return [
        {"qid": f"q{q}", "question": f"Where is {q}?", "round": r, "said": CITIES[(q + (q + r) % 3 // 2) % 4], "gold": CITIES[q % 4], "kind": f"k{q % 3}"}
        for q in range(N)
        for r in range(1, 4)
    ]  # fmt: skip


def test_a_gold_answer_that_is_named_as_a_round_is_asked_about(tmp_path):
    source = written(tmp_path, wide())
    columns = {"rounds": "city_gold,guess_1,guess_2"}
    right = "--column rounds=guess_1,guess_2 --column golds=city_gold"
    choices = asked(source, "like gold answers", columns=columns).choices
    assert [*choices] == [right, "--expected named-golds"]
    assert imported(source, columns=choices[right][0]["columns"]).judged_by == ("em",)
    assert imported(source, columns=columns, expected=["named-golds", "unread-golds", "falling-scores"]).rounds == 3


def test_a_gold_answer_beside_one_round_names_what_rounds_are(tmp_path):
    error = asked(written(tmp_path, wide()), columns={"rounds": "city_gold,guess_1"})
    assert ("--column rounds=FIRST,SECOND" in error.question, [*error.choices]) == (True, ["--expected named-golds"])


@pytest.mark.parametrize("theirs", ["gold", "question", "qid"])
def test_what_no_round_changes_is_no_answer_although_it_is_named(theirs, tmp_path):
    options = offered(written(tmp_path, long()), "is named as the answer", columns={"answer": theirs})
    golds = " --column golds=gold" if theirs == "gold" else ""
    assert options == [f"--column answer=said{golds}", "--expected named-golds"]


@pytest.mark.parametrize(
    "columns",
    [
        {"answer": "gold", "golds": "gold"},
        {"answer": "said", "question": "said"},
        {"rounds": "guess_1,city_gold", "golds": "city_gold"},
        {"rounds": "guess_1,case", "question_id": "case"},
        {"rounds": "guess_1,guess_1"},
    ],
)
def test_a_column_has_one_role(columns, tmp_path):
    source = written(tmp_path, wide() if "rounds" in columns else long())
    with pytest.raises(DataError, match="is named as"):
        imported(source, columns=columns)


def test_a_file_of_golds_may_call_them_as_the_log_its_answers(tmp_path):
    golds = written(tmp_path / "golds.jsonl", [{"qid": f"q{q}", "said": CITIES[q % 4]} for q in range(N)])
    rows = [{name: own for name, own in row.items() if name not in ("gold", "kind")} for row in long()]
    columns = {"answer": "said", "golds": "said"}
    assert imported(written(tmp_path, rows), columns=columns, golds=golds).judged_by == ("em",)


def test_other_columns_are_answers_if_the_user_says_so(tmp_path):
    source = written(tmp_path, [{name: own for name, own in row.items() if name != "gold"} for row in long()])
    notes = " ".join(imported(source, columns={"answer": "kind"}).notes)
    assert "--expected equal-answers" in notes
