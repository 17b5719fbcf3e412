"""`suffice demo gate` and `suffice gate compare`: real answers, small files, and what a user may get wrong."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from docs.build import kept_gates

from suffice.recordings import read_recording, write_recording
from suffice_gates.gates import QUESTION_GATES, answered_recording, held_out_gates, load_answered, question_gates
from tests.support.cli_tools import cli

ROOT = Path(__file__).resolve().parents[2]


def close(one, other):
    """Return whether two JSON values are equal, numbers to six digits."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, float) and isinstance(other, int | float):
        return abs(one - other) <= 1e-6 * max(1.0, abs(one))
    return one == other


@pytest.fixture
def _torch_is_not_loaded(monkeypatch):
    """What a test before has loaded is out of the way, and the test loads none of it."""
    heavy = ("torch", "transformers")
    for name in [name for name in sys.modules if name.partition(".")[0] in heavy]:
        monkeypatch.delitem(sys.modules, name)
    yield
    assert not {*heavy}.intersection(sys.modules)


def only_features(monkeypatch):
    """Let the demo fit gates on features alone."""
    few = [kind for kind in QUESTION_GATES if kind.reads == "features"]
    for name, fit in (("question_gates", question_gates), ("held_out_gates", held_out_gates)):
        monkeypatch.setattr(f"suffice_papers.cbdr.demo.{name}", partial(fit, kinds=few))
    return few


@pytest.mark.whole
@pytest.mark.usefixtures("_torch_is_not_loaded", "remembered_windows")
def test_the_demo_prints_the_committed_figures_offline_and_without_torch(tmp_path):
    told = tmp_path / "gates.md"
    done = cli("demo", "gate", "--json", "--out", tmp_path / "out", f"--set=markdown={told}")
    assert (done.code, done.err) == (0, "")
    found = done.json
    committed = json.loads((ROOT / "docs" / "results" / "gates.json").read_text("utf-8"))
    assert close(committed, kept_gates(found))
    assert found["seconds"] > 0
    assert "Llama 3.1 Community License" in found["notice"]
    assert "none beats always retrieving" in found["hotpotqa"]["headline"]
    text = told.read_text("utf-8")
    for heading in range(1, 7):
        assert f"\n## {heading}. " in text
    recording = read_recording(tmp_path / "out" / "gate_hotpotqa_eval.parquet")
    assert recording.shape == (438, 2)
    column = next(name for name in recording.names("signal") if name.startswith("gate_"))
    rule = f"({column} > 0.8) & (round < 1)"  # what the demo wrote is a recording as any other
    replayed = ("replay", tmp_path / "out" / "gate_hotpotqa_eval.parquet", "--rule", rule, "--json")
    refused = cli(*replayed, code=2)
    assert "it has values at round 0, so start there (`--set start-round=0`)" in refused.err
    row = json.loads(cli(*replayed, "--set=start-round=0").out)["rows"][0]
    assert 0 < row["stop_rounds"]["0"] < 1


@pytest.mark.whole
@pytest.mark.usefixtures("_torch_is_not_loaded", "remembered_windows")
def test_the_demo_prints_one_screen_and_with_details_every_table(tmp_path, monkeypatch):
    few = {name: load_answered(name)[:24] for name in ("hotpotqa_llama31_tune", "2wiki_llama31_tune")}
    few["hotpotqa_llama31_eval"] = load_answered("hotpotqa_llama31_eval")[:24]
    monkeypatch.setattr("suffice_papers.cbdr.demo.load_answered", few.__getitem__)
    out = tmp_path / "out"
    screen = cli("demo", "gate", "--out", out)
    assert (screen.code, screen.err) == (0, "")
    lines = screen.out.splitlines()
    summary, _ = screen.out.split("\nGates on HotpotQA, 24 eval questions\n")
    assert summary.startswith("HotpotQA: ")
    assert "2WikiMultiHopQA: " in " ".join(summary.split())
    assert len(lines) <= 45
    assert "more: --details" in screen.out
    assert "Llama 3.1 Community License" in screen.words
    assert lines[-1].startswith(f"next: suffice gate compare {out}/gate_hotpotqa_eval.parquet --tune ")
    only_features(monkeypatch)
    whole = cli("demo", "gate", "--out", out, f"--set=markdown={tmp_path / 'page.md'}", "--details").out
    page = (tmp_path / "page.md").read_text("utf-8")
    titles = re.findall(r"^\*\*(.+)\*\*$", page, flags=re.MULTILINE)
    assert len(titles) > 8
    assert all(title in whole for title in titles)
    for heading in range(1, 7):
        assert f"\n{heading}. " in whole


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Parts of the bundled answers as parquet with columns, and as JSON lines."""
    folder = tmp_path_factory.mktemp("gates")
    rng = np.random.default_rng(0)
    for name, rows in (("tune", slice(0, 120)), ("eval", slice(120, 240))):
        questions = load_answered("2wiki_llama31_tune")[rows]
        recording = answered_recording(questions, {"p_known": rng.random(120), "doubt": rng.random(120)})
        write_recording(folder / f"{name}.parquet", recording.table, recording.metadata)
        lines = [
            {
                "id": item.question_id,
                "question": item.question,
                "answers": item.golds,
                "no_retrieval": item.closed_book,
                "one_retrieval": item.retrieved,
            }
            for item in questions
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


@pytest.mark.usefixtures("quick_reader")
def test_columns_and_question_gates_stand_in_one_table(files):
    arguments = ["--tune", files / "tune.parquet", "--column", "p_known", "--column", "doubt:low", "--set=resamples=50"]
    done = cli("gate", "compare", files / "eval.parquet", *arguments, "--no-questions", "--details")
    assert (done.code, done.err) == (0, "")
    for name in ("never retrieve", "always retrieve", "perfect gate", "p_known", "doubt"):
        assert name in done.out
    for word in ("retrieves", "labels", "to decide, ms", "fit, s", "closed book right"):
        assert word in done.out
    found = cli("gate", "compare", files / "eval.parquet", *arguments, "--json").json
    (only,) = found.values()
    names = [row["name"] for row in only["rows"]]
    assert names[:2] == ["p_known", "doubt"]
    assert {"features, known", "embedding, not needed", "adaptive-rag"} < set(names)
    assert only["n_tune"] == 120
    assert {row["price"]["n_labels"] for row in only["rows"]} == {None, 120}


def test_without_tune_everything_is_cross_fitted_with_a_table_per_set(files, tmp_path):
    page = tmp_path / "page.md"
    found = cli(
        "gate",
        "compare",
        files / "tune.jsonl",
        files / "eval.parquet",
        "--no-questions",
        "--column",
        "contains",
        "--set=resamples=20",
        f"--set=markdown={page}",
        "--set=rate=0.5",
        "--json",
    ).json
    assert len(found) == 2
    for item in found.values():
        assert "cross-fitted" in item["chosen"]
        assert item["rows"][0]["known"]["value"] == 1.0  # a gate that reads the gold answers
    assert page.read_text("utf-8").count("**Gates on ") == 2


@pytest.mark.usefixtures("quick_reader")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere.parquet"], 2, "does not exist"),
        (["nowhere"], 2, "bundled are"),
        (["{f}/eval.parquet", "--tune", "{f}/eval.jsonl"], 1, "among the tune questions"),
        (["{f}/eval.parquet", "--no-questions"], 2, "--column"),
        (["{f}/eval.parquet", "--column", "answer_entropy", "--no-questions"], 2, "no column 'answer_entropy'"),
        (["{f}/eval.parquet", "--column", "p_known:high"], 1, "NAME:low"),
        (["{f}/eval.parquet", "--metric", "bleu"], 2, "no metric 'bleu'"),
        (["{f}/eval.parquet", "--set=rate=2"], 2, "rate"),
        (["{f}/eval.parquet", "--set=markdown={f}/none/x.md", "--set=resamples=5"], 1, "does not exist"),
        ([], 2, "RECORDING"),
    ],
)
def test_what_is_wrong_is_told(files, arguments, code, message):
    done = cli("gate", "compare", *(argument.format(f=files) for argument in arguments))
    assert done.code == code
    assert message in done.error
