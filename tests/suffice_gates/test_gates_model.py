"""`suffice gate compare --model`: gates of a local model's own passes beside those of recorded columns."""

from __future__ import annotations

import pytest

from tests.support.cli_tools import cli

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

LOCAL = ("--prompt", "prefilled", "--set=max-tokens=4")


def test_gates_of_the_models_own_passes_know_and_tell_what_they_cost(tiny_model, tmp_path):
    for split in ("tune", "eval"):
        rounds = ("--local", "--model", tiny_model, *LOCAL, "--round-zero", "--max-rounds", "1", "--limit", "28")
        cli("record", tiny_model / f"{split}.jsonl", "-o", tmp_path / f"{split}.parquet", *rounds, code=0)
    arguments = (
        "--tune",
        tmp_path / "tune.parquet",
        "--no-questions",
        "--column",
        "answer_margin",
        "--model",
        tiny_model,
    )
    asked = (*arguments, *LOCAL, "--set=samples=2", "--metric", "em", "--set=resamples=50", "--json")
    (found,) = cli("gate", "compare", tmp_path / "eval.parquet", *asked).json.values()
    rows = {row["name"]: row for row in found["rows"]}
    assert {
        "answer_margin",
        "entropy, mean",
        "semantic entropy",
        "seakr",
        "ctrla, honesty",
        "ctrla, confidence",
        "flare",
        "dragin",
        "probing-rag",
    } <= set(rows)
    for name in ("answer_margin", "entropy, mean", "sequence log-probability", "probing-rag"):
        assert rows[name]["known"]["value"] > 0.8
        rate = rows[name]["point"]["retrieval_rate"]
        # The answer is made to decide, and not made again where it is let out.
        calls = 2 if name == "probing-rag" else 1  # a second pass reads the answer
        assert rows[name]["point"]["costs"]["calls"] + rows[name]["price"]["calls"] == pytest.approx(calls + rate)
    assert rows["semantic entropy"]["price"]["calls"] == 2.0


def test_the_models_gates_need_tune_questions_and_a_known_prompt(tmp_path):
    alone = cli("gate", "compare", "hotpotqa_llama31_eval", "--no-questions", "--model", tmp_path, code=2)
    assert "give --tune" in alone.error
    pair = ("hotpotqa_llama31_eval", "--tune", "hotpotqa_llama31_tune", "--no-questions", "--set=resamples=5")
    odd = cli("gate", "compare", *pair, "--model", tmp_path, "--prompt", "odd", code=2)
    assert "'odd'" in odd.error
