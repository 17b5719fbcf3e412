"""What a run of CBDR's pipeline will take is said before it starts: its work, its memory, and its cost after a pilot."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from suffice.errors import DataError
from suffice.loops.retrieval import Question
from suffice.policy.rounds import Passage
from suffice_gates.models.transformers_model import TransformersModel
from suffice_gates.training.memory import GIB
from suffice_papers.cbdr.plan import CbdrSettings, divide
from suffice_papers.cbdr.tiny_reranker import write_tiny_reranker
from suffice_papers.cbdr.work import Sizes, count_work
from suffice_papers.experiments import read_experiment
from suffice_papers.experiments.cbdr_memory import plan_memory
from suffice_papers.experiments.checks import find_obstacles
from suffice_papers.experiments.extrapolation import total_of
from tests.suffice_papers.test_cbdr_crossed import CROSSED
from tests.support.cli_tools import cli, dataset, question

pytestmark = [
    pytest.mark.usefixtures("quick_runs"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cbdr.toml"

SMALL = CROSSED + "\n[cbdr.gpu]\nusd-per-hour = 3\n"


@pytest.fixture
def folder(tiny_model, tmp_path, no_model_cards):
    (tmp_path / "tiny").symlink_to(tiny_model)
    write_tiny_reranker(tmp_path / "reranker", tiny_model)
    (tmp_path / "run.toml").write_text(SMALL, encoding="utf-8")
    return tmp_path


def estimated(path, *options):
    result = cli("run", path, "--dry-run", "--json", *options)
    return result.json, {table["title"]: table for table in result.json["stages"]}


def work_of(tables):
    (table,) = (table for title, table in tables.items() if title.startswith("What each stage"))
    return {row["stage"]: row for row in table["rows"]}


# The work


def test_the_counted_work_is_what_a_run_does(folder, monkeypatch):
    path, done = folder / "run.toml", Counter()
    before, tables = estimated(path)
    counted = work_of(tables)["all"]
    answers, read = TransformersModel.answers, TransformersModel.read_batch

    def answer(model, questions, passages=None):
        done["calls"] += len(questions)
        return answers(model, questions, passages)

    def look(model, questions, passages=None):
        done["passes"] += len(questions)
        return read(model, questions, passages)

    def scoring(predict):
        def scored(encoder, pairs, *others, **named):
            done["pairs"] += len(pairs)
            return predict(encoder, pairs, *others, **named)

        return scored

    from sentence_transformers import CrossEncoder

    monkeypatch.setattr(TransformersModel, "answers", answer)
    monkeypatch.setattr(TransformersModel, "read_batch", look)
    monkeypatch.setattr(CrossEncoder, "predict", scoring(CrossEncoder.predict))
    assert cli("run", path).code == 0
    assert (counted["calls"], counted["passes"]) == (done["calls"], done["passes"])
    assert done["calls"] == before["cells"][-1]["calls left"] > 0
    ordered = work_of(tables)["answers with passages"]["pairs"]
    assert ordered < done["pairs"] <= counted["pairs"]
    steps = [json.loads(card.read_text())["steps"] for card in (folder / "run").rglob("work/reranker/reranker.json")]
    assert len(steps) == 2
    assert 0 < sum(steps) <= work_of(tables)["reranker"]["steps"]
    after, tables = estimated(path)
    assert (after["sentence"][:27], tables) == ("2 cells; left: 0 calls, 0 t", {})


def test_the_file_alone_says_the_papers_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result, tables = estimated(shutil.copy(EXAMPLE, tmp_path))
    work = work_of(tables)
    assert work["preference data"]["passes"] == 4 * 79_542
    assert work["closed-book answers"]["calls"] == "unknown"
    # Two depths; each reranker's order and BM25's: base and aligned, and in three cells another cell's.
    assert work["answers with passages"]["calls"] == 2 * 1216 * (4 * 3 + 3)
    assert work["reranker"]["steps"] == 4 * -(-7622 * 5 // 32)
    assert work["all"]["calls"] == {"low": 40_480, "high": None}
    assert "≥ 40,480 calls, unknown tokens" in result["sentence"]
    (memory,) = (table for title, table in tables.items() if title.startswith("Memory"))
    assert {row["fits"] for row in memory["rows"]} == {"unknown"}
    unknown = next(note for note in memory["notes"] if note.startswith("unknown: "))
    for name in ("meta-llama/Meta-Llama-3-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "BAAI/bge-reranker-v2-m3"):
        assert f"the size of {name!r} (not in the cache, and the hub is offline)" in unknown
    shown = cli("run", tmp_path / "cbdr.toml", "--dry-run").words
    for problem in ("nq.jsonl", "hotpotqa.jsonl", "'meta-llama", "'Qwen/Qwen2.5-7B", "'BAAI/bge"):
        assert problem in shown
    assert "318,168" in shown


def test_without_sizes_or_questions_the_work_is_unknown(tmp_path):
    text = EXAMPLE.read_text("utf-8").replace("test-size = 1216", "").replace("prefer-size = 7622", "")
    (tmp_path / "cbdr.toml").write_text(text, encoding="utf-8")
    result, tables = estimated(tmp_path / "cbdr.toml")
    assert work_of(tables) == {}
    assert {row["calls left"] for row in result["cells"]} == {"unknown"}
    assert any("4 cells are left out" in note for table in tables.values() for note in table["notes"])


def test_unknown_costs_make_a_sum_a_lower_bound():
    assert total_of([]) == "unknown"
    assert total_of(["unknown", "unknown"]) == "unknown"
    assert total_of([3, (1.0, float("inf"))]) == (4.0, float("inf"))
    assert total_of([(1.0, float("inf"))]) == (1.0, float("inf"))


def test_passages_that_repeat_or_are_empty_are_not_counted():
    texts = {"a": ["x", "y", "z"], "b": ["x", "x", ""], "c": ["x"], "d": []}
    questions = [
        Question(
            question_id=f"{name}{i}",
            question=f"{name} {i}?",
            answers=("x",),
            passages=tuple(Passage(passage_id=str(n), title="", text=text) for n, text in enumerate(listed)),
        )
        for name, listed in texts.items()
        for i in range(20)
    ]
    settings = CbdrSettings(k=5, depths=(1,), candidates=2, test_size=20, prefer_size=40)
    parts = divide(questions, settings)
    sizes = Sizes.of(parts, questions, settings)
    expected = {"a": 2, "b": 1, "c": 1, "d": 0}
    found = [expected[q.question_id[0]] for q in (*parts.prefer, *parts.test)]
    assert (sizes.scored, sizes.candidates) == (sum(map(bool, found)), sum(found))
    assert sizes.positives == sum(q.question_id[0] == "a" for q in parts.prefer)
    assert sizes.drawn == sum(q.question_id[0] != "d" for q in parts.test)
    assert sizes.pooled == sum(min(2, len(q.passages)) for q in parts.test)
    assert (sizes.asked, sizes.test, sizes.usable) == (40, 20, 20)
    work = count_work(sizes, settings, layers=3, rerankers=["a", "b"])
    steps = {task.stage: task.count for task in work if task.unit == "steps"}
    assert steps["probes"] == 3 * 130 * -(-len(parts.probe.train) // 32)
    assert sum(task.count for task in work if task.stage == "answers with passages" and task.unit == "calls") == 3 * 20


# A pilot


def test_a_pilot_says_tokens_time_and_money(folder, monkeypatch):
    path = folder / "run.toml"
    before, _ = estimated(path)
    assert (before["cells"][-1]["tokens"], before["cells"][-1]["minutes"]) == ("unknown", "unknown")
    assert "--pilot 5 --dry-run" in cli("run", path, "--dry-run").words
    after, tables = estimated(path, "--pilot", "3")
    total = after["cells"][-1]
    assert total["calls left"] == before["cells"][-1]["calls left"]
    assert total["USD"]["value"] == pytest.approx(3 * total["minutes"]["value"] / 60)
    rows = work_of(tables)
    named = ("tokens", "minutes")
    for name in named:
        assert rows["all"][name]["value"] == pytest.approx(total[name]["value"])
        parts = [row[name]["value"] for stage, row in rows.items() if stage != "all" and row[name] is not None]
        assert sum(parts) == pytest.approx(total[name]["value"])
        assert min(parts) > 0
    # Every prompt of the tiny world without passages has 11 tokens.
    assert rows["hidden states"]["tokens"]["value"] == 11 * rows["hidden states"]["passes"]
    assert any("a pilot of 3 questions on this machine's cpu" in note for t in tables.values() for note in t["notes"])
    assert not (folder / "run/index.html").exists()

    def refused(*_, **__):
        raise DataError("a model is opened")

    monkeypatch.setattr("suffice.cli.local.LocalRun.open", refused)
    assert estimated(path, "--pilot", "2")[0]["cells"] == after["cells"]
    assert "opened" in cli("run", path, "--pilot", 4).error
    path.write_text(SMALL.replace('model = "tiny"', 'model = "tiny"\nbatch-size = 2'), encoding="utf-8")
    assert estimated(path)[0]["cells"][-1]["tokens"] == "unknown"


@pytest.mark.parametrize("key", ["memory", "usd-per-hour"])
def test_a_gpu_has_memory_and_a_price_above_zero(key, tmp_path):
    text = EXAMPLE.read_text("utf-8") + f"\n[cbdr.gpu]\n{key} = 0\n"
    (tmp_path / "cbdr.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=f"gpu: {key}"):
        read_experiment(tmp_path / "cbdr.toml", check_files=False)


# Memory

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
BGE = {
    "model_type": "xlm-roberta",
    "num_hidden_layers": 24,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "torch_dtype": "float32",
}


def shaped(folder, config, size):
    """A folder with the shape of a model, and weights that take no place on the disk."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(size)
    return folder


@pytest.fixture
def large(tmp_path):
    shaped(tmp_path / "llama", LLAMA, 16_060_522_496)
    shaped(tmp_path / "bge", BGE, 2_271_064_456)
    dataset(tmp_path / "q.jsonl", *(question(i) for i in range(60)))

    def planned(gpu, *changes):
        text = EXAMPLE.read_text("utf-8").replace("data/nq.jsonl", "q.jsonl").replace("data/hotpotqa.jsonl", "q.jsonl")
        text = text.replace("meta-llama/Meta-Llama-3-8B-Instruct", "llama").replace("Qwen/Qwen2.5-7B-Instruct", "llama")
        text = text.replace("BAAI/bge-reranker-v2-m3", "bge")
        text = text.replace("prefer-size = 7622", "prefer-size = 20").replace("test-size = 1216", "test-size = 10")
        for old, new in changes:
            text = text.replace(old, new)
        (tmp_path / "cbdr.toml").write_text(text + gpu, encoding="utf-8")
        return read_experiment(tmp_path / "cbdr.toml")

    return planned


def stages_of(experiment):
    plan = plan_memory(experiment.cells(), experiment)
    return plan, {item.stage: item for item in plan.stages if "llama3-8b" in item.models or "bge" in item.models}


def test_the_memory_of_each_stage_follows_from_the_shapes(large, tmp_path):
    plan, stages = stages_of(large("\n[cbdr.gpu]\nname = 'RTX 4090'\nmemory = 24\n"))
    assert [item.stage for item in plan.stages].count("answers") == 2  # models
    states, answers = stages["hidden states"], stages["answers"]
    assert states.weights == 16_060_522_496
    assert states.activations < stages["preference data"].activations < answers.activations < 2 * GIB
    training = stages["reranker training"]
    assert training.weights == pytest.approx(2_271_064_456)
    assert training.states == pytest.approx(2_271_064_456 / 4 * 14)
    assert 0 < training.activations <= 24 * 0.9 * GIB - training.weights - training.states
    compared = stages["comparison of rerankers"]
    assert compared.weights == pytest.approx(16_060_522_496 + 2_271_064_456)
    assert {item.verdict(plan.total) for item in plan.stages} == {"yes"}
    assert [*plan.problems()] == []
    table = plan.table()
    assert "on RTX 4090 (24 GiB)" in table.title
    assert not any("unknown" in note for note in table.notes)


def test_a_stage_that_does_not_fit_is_a_problem_beside_all_others(large, tmp_path):
    experiment = large("\n[cbdr.gpu]\nname = 'a card'\nmemory = 16\n")
    obstacles = find_obstacles(experiment, tmp_path / "out")
    assert len(obstacles.estimates) == 2  # the comparison of rerankers, for each model
    assert all("comparison of rerankers" in text and "a card" in text for text in obstacles.estimates)
    assert all(len(text) <= 600 for text in obstacles.listed)
    plan, stages = stages_of(experiment)
    assert stages["hidden states"].verdict(plan.total) == "yes"
    assert stages["comparison of rerankers"].verdict(plan.total) == "no"
    shown = cli("run", tmp_path / "cbdr.toml", "--dry-run")
    assert shown.code == 2
    assert "comparison of rerankers with llama3-8b + bge needs at least 17" in shown.words
    result = cli("run", tmp_path / "cbdr.toml", "--dry-run", "--json").json
    (memory,) = (table for table in result["stages"] if table["title"].startswith("Memory"))
    assert {row["fits"] for row in memory["rows"] if "comparison" in row["stage"]} == {"no"}


def test_a_full_batch_that_does_not_fit_is_cut_and_said(large):
    plan, stages = stages_of(large("\n[cbdr.gpu]\nmemory = 15.2\n", ("batch-size = 32", "batch-size = 512")))
    assert stages["answers"].verdict(plan.total) == "in smaller batches"
    assert any(note.startswith("in smaller batches") for note in plan.table().notes)


def test_what_is_unknown_of_a_model_is_named(large, tmp_path):
    experiment = large("\n[cbdr.gpu]\nmemory = 80\n")
    (tmp_path / "llama/config.json").write_text(json.dumps({"torch_dtype": "bfloat16"}))
    plan, stages = stages_of(experiment)
    assert (stages["answers"].total, stages["answers"].verdict(plan.total)) == (None, "unknown")
    assert any("unknown: the sizes of the layers of" in note for note in plan.table().notes)
    (tmp_path / "llama/model.safetensors").unlink()
    plan, _ = stages_of(experiment)
    assert any("(see its problem)" in note for note in plan.table().notes)


@pytest.mark.whole
def test_a_device_that_is_not_here_is_named_although_another_is_planned(large, tmp_path):
    experiment = large("\n[cbdr.gpu]\nmemory = 80\n", ('dtype = "bfloat16"', 'dtype = "bfloat16"\ndevice = "cuda:9"'))
    obstacles = find_obstacles(experiment, tmp_path / "out")
    assert [text for text in obstacles.listed if "'cuda:9' is not here" in text]
