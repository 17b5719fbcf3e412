"""Experiments with chains of thought: a small one over an endpoint, and the ready file for real models, whose servers are not here."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError, RuleSyntaxError
from suffice.recordings import read_recording
from suffice_papers.experiments import read_experiment
from suffice_papers.experiments.checks import find_problems
from suffice_papers.thinking.thinking_demo import ThinkingFigures
from tests.suffice.loops.test_boundaries import reply
from tests.suffice_papers.test_ready_experiments import EXAMPLES, LINE
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint

pytestmark = pytest.mark.usefixtures("quick_runs")

SMALL = """
protocol = "thinking"
max-rounds = 6
max-loss = 0.5
resamples = 20

[thinking]
rules = ["dynasor(2)", "deer(0.1)"]

[[model]]
name = "thinker"
model = "m"
base-url = "URL"
every = 4

[[data]]
name = "sevens"
tune = "tune.jsonl"
eval = "eval.jsonl"
"""


def written(folder, url: str, text: str = SMALL):
    for split, first, n in (("tune", 0, 8), ("eval", 8, 12)):
        rows = [{"id": f"q{i}", "question": f"6 times 7? ({i})", "answers": ["42"]} for i in range(first, first + n)]
        rows[0]["paragraphs"] = [{"title": "Sevens", "text": "Left out."}]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "small.toml").write_text(text.replace("URL", url))
    return folder / "small.toml"


def test_chains_of_thought_run_from_a_file_and_resume(tmp_path):
    with Endpoint(reply) as endpoint:
        path = written(tmp_path, endpoint.url)
        first = cli("run", path, "--json", code=0)
        asked = len(endpoint.requests)
        assert first.json["calls"] == asked
        assert not any("Left out" in str(request.body["prompt"]) for request in endpoint.requests)
        second = cli("run", path)
        assert "nothing was asked" in second.words
        assert len(endpoint.requests) == asked
    cell = tmp_path / "small" / "cells" / "thinker" / "sevens" / "bm25" / "answer_first" / "seed-0"
    tune, test = (read_recording(cell / f"{split}.parquet") for split in ("tune", "eval"))
    one = ThinkingFigures(tune=tune, test=test, rules={"dynasor(2)": "dynasor(2)", "deer(0.1)": "deer(0.1)"})
    ways = next(table for table in first.json["tables"] if "Right answers against all tokens" in table["title"])
    assert {row["stop at"]: row["tokens"] for row in ways["rows"] if row["stop at"] in one.rules} == {
        line.label: pytest.approx(line.tokens["cached"]) for line in one.lines.rules
    }
    assert "12 questions" in first.json["headline"]
    assert (tmp_path / "small" / "figures" / "thinker-sevens-bm25-answer_first-seed-0.svg").is_file()


def test_rules_of_thought_that_are_no_rules_are_refused_at_once(tmp_path):
    with pytest.raises(RuleSyntaxError):
        read_experiment(written(tmp_path, "http://localhost:1/v1", SMALL.replace("dynasor(2)", "dynasor(")))
    with pytest.raises(DataError, match="'thinking' has"):
        read_experiment(
            written(
                tmp_path,
                "http://localhost:1/v1",
                SMALL.replace('"thinking"', '"semantic"', 1).replace("every = 4\n", ""),
            )
        )


def test_of_the_file_of_real_models_only_servers_and_data_are_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    text = (EXAMPLES / "thinking.toml").read_text("utf-8")
    (tmp_path / "thinking.toml").write_text(text)
    dry = cli("run", tmp_path / "thinking.toml", "--dry-run", code=2)
    assert all(f"data/{name}.jsonl" in dry.words for name in ("math", "gpqa", "aime"))
    math = [
        {"problem": f"{i} + {i}?", "solution": f"\\boxed{{{2 * i}}}", "answer": f"{2 * i}", "unique_id": f"t/{i}"}
        for i in range(600)
    ]
    for name, rows in {
        "HuggingFaceH4/MATH-500/data/test-00000-of-00001": math,
        "HuggingFaceH4/aime_2024/data/train-00000-of-00001": [
            {"id": i, "problem": f"{i} * 7?", "answer": str(7 * i), "solution": "."} for i in range(30)
        ],
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    commands = LINE.findall(text)
    assert len(commands) == 2
    for words in commands:
        cli(*words.split(), code=0)
    gpqa = [
        {"id": f"g{i}", "question": f"Which {i}?", "answers": ["B"], "split": "tune" if i < 3 else "eval"}
        for i in range(6)
    ]
    (tmp_path / "data" / "gpqa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in gpqa))
    experiment = read_experiment(tmp_path / "thinking.toml")
    assert len(experiment.cells()) == 6
    problems = find_problems(experiment, tmp_path / "out")
    assert len(problems) == 2
    assert all("cannot be reached at 'http://localhost:800" in problem for problem in problems)
    assert "never run" in text
