"""Questions about a reading that the log itself answers: by its gold answers, where they leave no doubt."""

from __future__ import annotations

import json

import pytest

from suffice.errors import UnsettledError
from suffice.recordings import read_recording
from tests.support.logs import imported, offered, written

CITIES = ("Oslo", "Lima", "Rome", "Cairo")


def log(tmp_path, *, n=30, critic="That may be wrong.", kinds=("solver", "critic")):
    """Write a log in which two speak in turn, after a user's question; the first says the gold answer in the end."""
    records = [
        {
            "id": q,
            "gold": CITIES[q % 4],
            "messages": [
                {"source": "user", "content": f"Where is tower {q}?"},
                *(
                    {
                        "source": kind,
                        "content": CITIES[(q + (q % 5 > r)) % 4] if kind == kinds[0] else critic.format(CITIES[q % 4]),
                    }
                    for r in range(3)
                    for kind in kinds
                ),
            ],
        }
        for q in range(n)
    ]
    return written(tmp_path, records)


def test_only_those_who_say_gold_answers_are_read(tmp_path):
    path = log(tmp_path)
    summary = imported(path)
    assert {*read_recording(summary.path).answers.ravel()} == {*CITIES}
    said = "decided by the values of the log: those of 'solver' (--where source=solver): the items of a list"
    assert any(note.startswith(said) for note in summary.notes)
    assert json.loads(summary.mapping.read_text("utf-8"))["options"] == {"where": {"source": "solver"}}


@pytest.mark.parametrize("changed", [{"critic": "Oslo"}, {"n": 19}], ids=["critic is right", "few questions"])
def test_rows_are_asked_about_where_gold_answers_leave_doubt(tmp_path, changed):
    with pytest.raises(UnsettledError, match="say in turn"):
        imported(log(tmp_path, **changed))


def test_two_who_answer_are_asked_about(tmp_path):
    path = log(tmp_path, kinds=("solver", "user", "checker"), critic="Rome")
    assert len(offered(path)) == len(("solver", "checker"))


def test_replies_with_right_answers_inside_leave_doubt(tmp_path):
    path = log(tmp_path, kinds=("solver", "drafter"), critic="{} it is, I would say, as far as I remember the tower.")
    with pytest.raises(UnsettledError, match="say in turn"):
        imported(path)


def test_what_the_user_says_is_not_overruled(tmp_path):
    summary = imported(log(tmp_path), where={"source": "critic"}, expected=["never-right"])
    assert {*read_recording(summary.path).answers.ravel()} == {"That may be wrong."}
