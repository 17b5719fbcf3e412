"""Answers under names that no list of usual names has, beside replies or none."""

from __future__ import annotations

import pytest

from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES
from tests.support.logs import answer, asked, by_command, imported, offered, recorded, texts, written

N, ROUNDS = 30, 3


def rows(theirs, make=lambda own: own, *, golds=True, **more):
    """Return rounds with answers under a name, passages, tokens and further columns of an answer."""
    return [
        {
            "qid": f"q{q}",
            "round": r + 1,
            "question": f"Where is {q}?",
            "passages": f"The road from {q} to {r} runs along a river and turns north by the mill.",
            "tokens": 90 + 7 * q + r,
            theirs: make(answer(q, r)),
            **({"gold": make(CITIES[q % 4])} if golds else {}),
            **{name: own(q, r) for name, own in more.items()},
        }
        for q in range(N)
        for r in range(ROUNDS)
    ]


def reply(q, r):
    return f"Round {r} of a long think about caravan {q} says: it stops at {answer(q, r)}."


@pytest.mark.parametrize("theirs", ["final", "short_answer", "verdict_text", "stated"])
def test_golds_show_which_words_of_replies_are_the_answer(theirs, tmp_path):
    summary, recording = recorded(tmp_path, rows(theirs, reply=reply))
    assert texts(recording)["q1"] == [answer(1, r) for r in range(ROUNDS)]
    assert any(f"--column answer={theirs} --column text=reply" in note for note in summary.notes)
    assert recording.table.column("text").to_pylist()[0] == reply(0, 0)


@pytest.mark.parametrize("theirs", ["final", "short_answer", "stated"])
def test_words_of_replies_without_golds_are_asked_about(theirs, tmp_path):
    made = rows(theirs, golds=False, reply=reply)
    option = f"--column answer={theirs} --column text=reply"
    assert offered(written(tmp_path, made)) == [option, "--column answer=reply"]
    by_command(tmp_path, made, *option.split(), code=0)
    assert texts(tmp_path / "r.parquet")["q1"] == [answer(1, r) for r in range(ROUNDS)]


@pytest.mark.parametrize(
    "other",
    [
        {"tool": lambda q, r: ("river", "mill")[(q + r) % 2], "reply": lambda q, r: f"{reply(q, r)} A river, a mill."},
        {"article": answer, "reply": reply},
        {"confidence": lambda q, r: ("high", "low")[(q + r) % 2], "reply": lambda q, r: f"{reply(q, r)} high low"},
        {"origin": lambda q, r: CITIES[(q + r) % 2], "place": lambda q, r: CITIES[(q - r) % 2], "reply": lambda q, r: f"{reply(q, r)} {CITIES[:2]}"},
    ],
    ids=["tool", "article", "confidence", "several"],
)  # fmt: skip
def test_other_words_of_replies_are_not_asked_about(other, tmp_path):
    made = [{name: own for name, own in row.items() if name != "-"} for row in rows("-", golds=False, **other)]
    summary = imported(written(tmp_path, made))
    assert {item.ours: item.theirs for item in summary.readings}["answer"] == "reply"


def test_numbers_that_are_often_the_gold_answer_are_read(tmp_path):
    made = rows("extracted", lambda own: 3 * len(own) + CITIES.index(own), n_found=lambda q, r: q + r)
    summary = imported(written(tmp_path, made))
    assert any("--column answer=extracted" in note for note in summary.notes)
    assert read_recording(summary.path).column("em").mean() > 0.5


def test_flags_that_equal_golds_by_chance_are_asked_about(tmp_path):
    made = rows("fresh", lambda own: own == CITIES[0], golds=False, gold=lambda q, _: q % 4 == 0)
    flags = [{**row, "fresh": bool(i % 2)} for i, row in enumerate(made)]
    error = asked(written(tmp_path, flags), "called like an answer")
    assert (error.confirmed, next(iter(error.choices))) == ("", "--column answer=fresh")


@pytest.mark.parametrize(("theirs", "is_asked"), [("final", True), ("k", False), ("final_score", False)])
def test_numbers_beside_a_score_are_asked_about_by_their_name(theirs, is_asked, tmp_path):
    made = rows(theirs, len, golds=False, correct=lambda q, r: int((q + r) % 3 > 0))
    source = written(tmp_path / "log.csv", made)
    if is_asked:
        assert offered(source) == [f"--column answer={theirs}", "--column answer="]
    else:
        assert "answer" not in {item.ours for item in imported(source).readings}


def test_tokens_and_documents_are_not_offered_as_answers(tmp_path):
    made = rows("stated", len, golds=False, doc=lambda q, r: f"doc-{q + r}")
    assert offered(written(tmp_path, made)) == ["--column answer=stated", "--column answer="]
