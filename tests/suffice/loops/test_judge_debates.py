"""The page of debates that are marked by their gold solutions: built from a folder, no text in it, its oracle labelled."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "results" / "debates.md"


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("judge_debates", ROOT / "scripts" / "judge_debates.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def debates(folder, n=8):
    """Three agents that come to agree: the third is wrong at first, and in every other question to the end."""
    entries = {}
    for q in range(n):
        agents = []
        for agent in range(3):
            wrong = agent == 2 and q % 2
            replies = [
                f"Secretword {q} and {r}: \\boxed{{{q if not wrong and (agent < 2 or r) else 99}}}" for r in range(3)
            ]
            agents.append(
                [
                    m
                    for text in replies
                    for m in ({"role": "user", "content": "?"}, {"role": "assistant", "content": text})
                ]
            )
        entries[f"What is {q} + 0?"] = [agents, f"It is {q}.\n#### {q}"]
    path = folder / "gsm_Tiny-1B_persona_plain_agents3_rounds3.json.gz"
    path.write_bytes(gzip.compress(json.dumps(entries).encode()))
    return path


def test_other_agents_are_the_critic_and_the_gold_is_hidden(script, tmp_path):
    rows = script.rows_of(debates(tmp_path, 2), script.MiniLM())
    assert len(rows) == 2 * 3 * 3
    by_agent = {(row["question_id"].rsplit("/", 1)[1], row["round"]): row for row in rows[:9]}
    assert by_agent["agent1", 1]["feedback"] == "The answers are 0; 0; 99."
    assert by_agent["agent1", 2]["feedback"] == "APPROVED"
    assert by_agent["agent1", 1]["critic_approved"] is None  # counts from round 2 on
    assert by_agent["agent1", 2]["critic_approved"] == 1
    assert rows[0]["golds"] == ["It is 0.\n#### 0"]
    assert rows[0]["em"] == 1
    assert {row["cost.critic.calls"] for row in rows} == {2.0}


def test_the_page_names_its_sources_and_oracle_and_holds_no_draft(script, tmp_path, monkeypatch):
    debates(tmp_path)
    out = tmp_path / "page.md"
    monkeypatch.setattr(sys, "argv", ["judge_debates.py", str(tmp_path), "-o", str(out)])
    script.main()
    page = out.read_text("utf-8")
    assert "Secretword" not in page
    for label in ("cascade", "no_critic", "no_convergence", "gain_only"):
        lines = [line for line in page.splitlines() if line.startswith(f"| {label} ")]
        assert lines
        assert all("(oracle: reads gold)" in line for line in lines[-1:])
    assert not any("(oracle" in line for line in page.splitlines() if line.startswith("| critic_only"))
    assert "information_gain reads the gold answer" in page
    assert "seed 42" in page
    assert "python scripts/judge_debates.py" in page


def test_the_kept_page_shows_every_cell_and_labels_the_oracle():
    page = PAGE.read_text("utf-8")
    assert "`python scripts/judge_debates.py FOLDER -o docs/results/debates.md`" in page
    for label in ("cascade", "no_critic", "no_convergence", "no_gain", "critic_only", "judge_free", "gain_only"):
        assert any(line.startswith(f"| {label} ") for line in page.split("**Table 2.")[1].splitlines())
    assert page.count("(oracle: reads gold)") >= 4
