"""Scores beside numbered answers, stages in words, percentages, variants of a prompt, and letters of options."""

from __future__ import annotations

import pytest

from suffice.errors import DataError, UnsettledError
from suffice.recordings import read_recording
from suffice.recordings.runs import refuse_several_loops
from tests.support.cli_tools import CITIES
from tests.support.logs import answer, asked, by_round, imported, offered, written


def queries(q, names=("pred_sql_0", "pred_sql_1"), scores=("exec_acc_0", "exec_acc_1")):
    gold = f"SELECT name FROM cities WHERE id = {q}"
    said = ("SELECT id FROM cities", (gold, gold.replace("name", "c.name"))[q % 2])
    return {
        "": q,
        "gold_sql": gold,
        **dict(zip(names, said, strict=True)),
        **dict(zip(scores, (0, 1), strict=True)),
        "ex_final": 1,
    }


@pytest.mark.parametrize("scores", [("exec_acc_0", "exec_acc_1"), ("is correct (r0)", "is correct (r1)")])
def test_scores_beside_numbered_answers_judge(tmp_path, scores):
    path = written(tmp_path / "log.csv", [queries(q, scores=scores) for q in range(60)])
    rounds = {"rounds": "pred_sql_0,pred_sql_1"}
    assert by_round(path, columns=rounds) == [0.0, 1.0]
    assert offered(path, columns={**rounds, "golds": "gold_sql"})[0] == "--column golds="


def test_scores_are_called_as_drafts_are(tmp_path):
    names = ("draft", "final")
    path = written(tmp_path / "log.csv", [queries(q, names, ("draft_correct", "final_correct")) for q in range(60)])
    assert by_round(path, columns={"rounds": "draft,final"}) == [0.0, 1.0]


@pytest.mark.parametrize(("column", "said"), [("exec_acc_0", "a single round"), ("ex_final", "known once")])
def test_one_score_does_not_judge_all_rounds(tmp_path, column, said):
    path = written(tmp_path / "log.csv", [queries(q) for q in range(60)])
    with pytest.raises(DataError, match=said):
        imported(path, columns={"rounds": "pred_sql_0,pred_sql_1"}, metrics={"exec_acc": column})


STAGES = ("initial", "revised", "final")


def staged(order, words=STAGES, name="stage"):
    return [{"qid": q, name: words[r], "answer": answer(q, r), "gold": CITIES[q % 4]} for q in range(30) for r in order]


@pytest.mark.parametrize(
    ("words", "name"), [(STAGES, "stage"), (("draft_0", "draft_1", "final"), "phase"), (STAGES, "node")]
)
def test_stages_in_words_are_asked_about(tmp_path, words, name):
    path = written(tmp_path / "log.csv", staged((2, 0, 1), words, name))
    option = f"round={name}:{','.join(words)}"
    assert offered(path)[0] == f"--column {option}"
    assert by_round(path, columns={"round": option.removeprefix("round=")})[-1] == 1.0
    if name != "stage":
        return
    assert offered(path, columns={"round": name})[0] == f"--column {option}"
    with pytest.raises(DataError, match="order has only"):
        imported(path, columns={"round": f"{name}:{words[0]},{words[2]}"})


def test_stages_in_their_order_are_not_asked_about(tmp_path):
    assert by_round(written(tmp_path / "log.csv", staged((0, 1, 2))))[-1] == 1.0
    assert by_round(written(tmp_path / "log.csv", staged((0, 1, 2), ("plan", "check", "write"))))[-1] == 1.0


@pytest.mark.parametrize("key", ["id", "sample_id"])
def test_with_and_without_retrieval_is_asked_about(tmp_path, key):
    rows = [
        {
            key: q,
            "user_input": f"Where is {q}?",
            "use_retrieval": bool(r),
            "response": answer(q, 2 * r),
            "gold": CITIES[q % 4],
        }
        for q in range(30)
        for r in (1, 0)
    ]
    found = asked(written(tmp_path / "log.csv", rows))
    option, (value, _) = next(iter(found.choices.items()))
    assert option == "--column round=use_retrieval --first-round 0"
    summary = imported(written(tmp_path / "log.csv", rows), **value)
    assert [means.round for means in summary.by_round] == [0, 1]
    assert summary.by_round[1].em == 1.0


def shares(tmp_path, gold, said):
    return written(
        tmp_path / "log.csv",
        [{"id": q, "step": r, "gold": gold(q), "answer": said(q, r)} for q in range(30) for r in (1, 2)],
    )


def test_percentages_equal_fractions(tmp_path):
    path = shares(tmp_path, lambda q: f"0.{q + 11}", lambda q, r: f"{q + 11} %" if r == 2 else f"0.{q + 12}")
    assert by_round(path) == [0.0, 1.0]
    path = shares(tmp_path, lambda q: f"0.{q + 11}" if q % 2 else str(q + 11), lambda q, r: f"{q + 10 + r} %")
    assert offered(path) == ["--set normalizer=percent", "--set normalizer=number"]
    path = shares(tmp_path, lambda q: str(q + 11), lambda q, r: f"{q + 9 + r} %")
    assert by_round(path) == [0.0, 1.0]


@pytest.mark.parametrize("values", [("concise", "control"), (1, 2)])
def test_variants_of_a_prompt_are_judged_apart(tmp_path, values):
    rows = [
        {"id": q, "step": r, "prompt_variant": value, "answer": answer(q, r), "gold": CITIES[q % 4]}
        for q in range(30)
        for value in values
        for r in (1, 2)
    ]
    path = written(tmp_path, rows)
    summary = imported(path)
    assert summary.loops == tuple(f"prompt_variant={value}" for value in values)
    recording = read_recording(summary.path)
    with pytest.raises(UnsettledError, match="judge one"):
        refuse_several_loops(recording)
    refuse_several_loops(recording.where(prompt_variant=str(values[1])))


def test_a_letter_is_read_before_a_distractor(tmp_path):
    letters = "ABCD"
    records = [
        {
            "doc_id": q,
            "target": letters[q % 4],
            "generations": [
                {
                    "text": f"{letters[(q + (r < 3 or q % 5 == 0)) % 4]}. That is it, but option {letters[(q + 2) % 4]} (Rome) is not."
                }
                for r in range(6)
            ],
        }
        for q in range(60)
    ]
    path = written(tmp_path, records)
    assert offered(path)[0] == "--samples"
    assert by_round(path, samples=True)[-1] == 0.8
    assert read_recording(tmp_path / "log.parquet").metadata["config"]["answer_position"]["text"].startswith("^")


def test_answers_that_are_all_empty_stop(tmp_path):
    rows = [{"id": q, "step": r, "answer": None, "gold": "Rome"} for q in range(30) for r in (1, 2)]
    assert "no answer in any round" in asked(written(tmp_path, rows)).question


def test_the_numbers_of_options_are_no_answers(tmp_path):
    rows = [{"id": q, "step": r, "answer": "ABCD"[(q + r) % 4], "gold": q % 4} for q in range(30) for r in (1, 2)]
    assert "number of an option" in asked(written(tmp_path, rows)).question


def test_words_that_tell_no_order_may_be_loops(tmp_path):
    found = asked(written(tmp_path / "log.csv", staged((1, 0, 2), ("plain", "chain", "vote"), "strategy")))
    assert [*found.choices][:2] == ["--column run=strategy", "--column round=strategy:chain,plain,vote"]
