"""Points among names, two providers as one, and replies that are read half right."""

from __future__ import annotations

import json

import pytest

from suffice.errors import UnsettledError
from suffice.policy.comparisons import chosen_normalizer
from tests.support.cli_tools import cli

TOWNS = ("Graz", "Bern", "Lyon", "Oslo")


def test_points_that_separate_thousands_are_asked_about_among_names():
    golds = [*TOWNS, "80.918", "12.500", "7.301"]
    pairs = [(gold, gold.replace(".", "")) for gold in golds] * 5
    with pytest.raises(UnsettledError, match="separate thousands"):
        chosen_normalizer(golds, pairs=pairs)
    decimals = [(gold, gold) for gold in (*TOWNS, "80.918", "12.5", "7.301")]
    assert chosen_normalizer(golds, pairs=decimals).normalizer in ("qa", "mixed")


def test_two_providers_of_promptfoo_are_two_loops(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": f"{q}{m}{r}", "question": f"Where is tower {q}?", "provider": {"id": model}, "promptIdx": m, "round": r, "answer": TOWNS[(q + r) % 4], "gold": TOWNS[q % 4]}
        for q in range(30)
        for m, model in enumerate(("openai:small", "anthropic:other"))
        for r in (1, 2, 3)
    ]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = ("--column", "question_id=question", "--column", "run=promptIdx")
    assert cli("import", tmp_path / "log.jsonl", "-o", tmp_path / "r.parquet", "--yes", *asked).code == 0
    decided = cli("decide", tmp_path / "r.parquet", code=2)
    assert "--where provider.id=openai:small" in decided.err


@pytest.mark.parametrize(("n", "noticed"), [(8, True), (2, False)])
def test_golds_that_are_stricter_than_the_own_score_are_asked_about(tmp_path, n, noticed):
    rows = []
    for q in range(60):
        for r in (1, 2, 3, 4):
            gold, answer = TOWNS[q % 4], TOWNS[(q + (r < 2)) % 4]
            is_longer = r > 1 and (q % 60) < n
            rows.append({"id": q, "round": r, "gold": gold, "answer": f"surely {answer}" if is_longer else answer, "success": int(answer == gold)})  # fmt: skip
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ("import", tmp_path / "log.jsonl", "-o", tmp_path / "r.parquet", "--yes", "--json")
    done = cli(*words)
    assert done.code == 2 * noticed, done.err
    if noticed:
        assert "'success' is 1 for 24 of 240 answers that differ from 'gold'" in done.err
        assert (
            "'success'" in json.loads(cli(*words, "--expected", "stricter-golds", code=0).out)["alarms"][0]["sentence"]
        )
        assert json.loads(cli(*words, "--column", "golds=", code=0).out)["judged_by"] == ["success"]


def test_the_printed_option_leaves_out_blank_rows_and_sums(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"Where is tower {q}?;{r};{TOWNS[(q + r) % 4]};{TOWNS[q % 4]}" for q in range(10) for r in (1, 2, 3, 4)]
    (tmp_path / "log.csv").write_text("\n".join(["question;round;answer;gold", *rows, ";;;", ";;Total;"]) + "\n")
    refused = cli("import", "log.csv", "-o", "r.parquet", "--yes", code=2)
    assert "--where 'question=*'" in refused.err
    read = cli("import", "log.csv", "-o", "r.parquet", "--yes", "--where", "question=*")
    assert "10 questions, 4 rounds each" in read.out
