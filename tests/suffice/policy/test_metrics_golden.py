"""EM and F1 against the official HotpotQA scorer's definition, pair by pair."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from suffice.policy.metrics import METRICS, contains, exact_match, f1, normalize_answer, without_parts

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = json.loads((ROOT / "tests" / "data" / "hotpot_scorer_golden.json").read_text(encoding="utf-8"))


def test_the_metrics_are_those_built_in_whatever_an_example_registered_before():
    assert set(METRICS) == {"em", "f1", "contains"}


def test_there_are_at_least_two_hundred_distinct_pairs():
    assert len({(row["answer"], row["gold"]) for row in GOLDEN}) == len(GOLDEN) >= 200


def test_the_pairs_cover_every_branch_of_the_scorer():
    assert any(row["em"] == 1 and row["f1"] == 0 for row in GOLDEN), "both empty"
    assert any(0 < row["f1"] < 1 for row in GOLDEN), "partial overlap"
    assert any(row["f1"] == 1 and row["em"] == 0 for row in GOLDEN), "same words in another order"
    assert any(normalize_answer(row["gold"]) == "noanswer" and row["f1"] == 0 for row in GOLDEN)
    assert any(not row["answer"].isascii() for row in GOLDEN)


def test_exact_match_equals_the_official_scorer_on_every_pair():
    wrong = [row for row in GOLDEN if exact_match(row["answer"], [row["gold"]]) != row["em"]]
    assert wrong == []


def test_f1_equals_the_official_scorer_on_every_pair():
    wrong = [row for row in GOLDEN if f1(row["answer"], [row["gold"]]) != pytest.approx(row["f1"], abs=1e-12)]
    assert wrong == []


def test_several_gold_answers_give_the_best_of_the_golden_values():
    by_answer: dict[str, list[dict]] = {}
    for row in GOLDEN:
        by_answer.setdefault(row["answer"], []).append(row)
    several = {answer: rows for answer, rows in by_answer.items() if len(rows) > 1}
    assert several
    for answer, rows in several.items():
        golds = [row["gold"] for row in rows]
        assert exact_match(answer, golds) == max(row["em"] for row in rows)
        assert f1(answer, golds) == pytest.approx(max(row["f1"] for row in rows), abs=1e-12)


@pytest.mark.parametrize("metric", [exact_match, f1, contains])
def test_a_missing_answer_scores_zero(metric):
    assert metric(None, ["Oslo"]) == metric(None, []) == 0.0


def test_the_generator_reproduces_the_golden_file(tmp_path, monkeypatch):
    generator = runpy.run_path(str(ROOT / "scripts" / "make_scorer_golden.py"))
    target = tmp_path / "golden.json"
    monkeypatch.setitem(generator["main"].__globals__, "OUT", target)
    assert generator["main"]() == 0
    assert json.loads(target.read_text(encoding="utf-8")) == GOLDEN


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["P", "R", "F1"], ["F1"]),
        (["rouge1_precision", "rouge1_fmeasure", "rouge2_recall"], ["rouge1_fmeasure", "rouge2_recall"]),
        (["bertScorePrecision", "bert_score_f1"], ["bert_score_f1"]),
        (["rougeL-f", "rougeL-p"], ["rougeL-f", "rougeL-p"]),
        (["precision", "recall"], ["precision", "recall"]),
        (["precision_at_5", "f1"], ["precision_at_5", "f1"]),
    ],
)
def test_parts_are_left_out_beside_the_f1_of_the_same_name(names, kept):
    assert without_parts(names) == kept
