"""A dry run names every obstacle at once, and a cell that cannot be recorded fails alone."""

from __future__ import annotations

import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from suffice.errors import ConfigMismatchError, NotFoundError
from suffice_papers.experiments import read_experiment, run_experiment
from suffice_papers.experiments.checks import find_obstacles, find_problems
from suffice_papers.experiments.hub import at_hub, find_model
from suffice_papers.experiments.space import passages_in
from tests.support.cli_tools import cli, dataset, question
from tests.support.endpoint import Endpoint

pytestmark = pytest.mark.usefixtures("quick_runs", "few_tables")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

HEAD = """
max-rounds = 3
resamples = 20
tune-draws = 1

[[model]]
name = "script"
scripted = [0.2, 0.5, 0.7]
"""
DATA = """
[[data]]
name = "towers"
tune = "tune.jsonl"
eval = "eval.jsonl"
"""
ENCODERS = """
[[retriever]]
name = "bm25"

[[retriever]]
name = "dense"
dense = "nobody/encoder"
"""


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Forbid requests to the hub, as on a machine without a network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def written(folder, text, n=8):
    dataset(folder / "tune.jsonl", *(question(i) for i in range(n)))
    dataset(folder / "eval.jsonl", *(question(i) for i in range(100, 100 + n)))
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return folder / "run.toml"


def model_folder(folder, **config):
    """A folder of a model with a million weights in single precision."""
    folder.mkdir()
    save_file({"w": np.zeros(1_000_000, np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"hidden_size": 64, **config}))
    return folder


# Everything at once


@pytest.mark.parametrize(
    ("name", "names"),
    [
        (
            "tasr",
            [
                *(
                    "hotpotqa.jsonl",
                    "2wiki.jsonl",
                    "nq.jsonl",
                    "trivia.jsonl",
                    "fullwiki.jsonl",
                    "nq-corpus.jsonl",
                    "dpr.jsonl",
                ),
                *("'facebook/contriever-msmarco'", "'castorini/dkrr-dpr-tqa-retriever'"),
                *("http://localhost:8000", "http://localhost:8001", "http://localhost:8002"),
            ],
        ),
        (
            "cbdr",
            [
                *("nq.jsonl", "hotpotqa.jsonl", "'meta-llama/Meta-Llama-3-8B-Instruct'", "'Qwen/Qwen2.5-7B-Instruct'"),
                "'BAAI/bge-reranker-v2-m3'",
            ],
        ),
        ("rivals", ["hotpotqa.jsonl", "2wiki.jsonl", "'Qwen/Qwen2.5-7B-Instruct'"]),
    ],
)
def test_a_dry_run_of_an_example_names_every_obstacle_at_once(name, names, tmp_path):
    path = shutil.copy(EXAMPLES / f"{name}.toml", tmp_path)
    result = cli("run", path, "--dry-run", "--json", code=2)
    for part in names:
        assert any(part in problem for problem in result.json["problems"]), part
    for file in (part for part in names if part.endswith(".jsonl")):
        assert sum(f"/data/{file}'" in problem for problem in result.json["problems"]) == 1, file
    assert all(len(problem) <= 600 for problem in result.json["problems"])
    notes = [*result.json["notes"], *(note for table in result.json["stages"] for note in table["notes"])]
    assert any("cannot be loaded" in note for note in notes)
    shown = cli("run", path, "--dry-run", "--details")
    assert all(part.strip("'") in "".join(shown.out.split()) for part in names)


def test_a_run_without_its_files_does_not_begin(tmp_path):
    path = shutil.copy(EXAMPLES / "cbdr.toml", tmp_path)
    with pytest.raises(NotFoundError, match="'data/nq.jsonl'"):
        read_experiment(path)
    unchecked = read_experiment(path, check_files=False)
    assert len(unchecked.absent) == 2
    with pytest.raises(ConfigMismatchError, match="4 more problems"):
        run_experiment(unchecked, tmp_path / "out")


def test_all_kinds_of_missing_files_are_named(tmp_path):
    text = (
        'prices = "no-prices.toml"\n'
        + HEAD
        + DATA
        + '[[retriever]]\nname = "r"\ncorpus = "no-corpus.jsonl"\n'
        + '[[rival]]\nname = "g"\ngate = "no-gate"\ngate-model = "nobody/reader"\nrule = "p_known >= 0.5"\n'
    )
    result = cli("run", written(tmp_path, text), "--dry-run", "--json", code=2)
    for name in ("no-prices.toml", "no-corpus.jsonl", "no-gate"):
        assert any(f"{name}' does not exist" in problem for problem in result.json["problems"]), name


def test_questions_that_cannot_be_read_are_one_problem_of_several(tmp_path):
    path = written(tmp_path, HEAD + DATA + ENCODERS)
    (tmp_path / "eval.jsonl").write_text('{"id": "1", "question": ')
    result = cli("run", path, "--dry-run", "--json", code=2)
    unread, encoder = result.json["problems"]
    assert unread.startswith("data 'towers': ")
    assert "'nobody/encoder'" in encoder


def test_endpoints_and_keys_of_every_part_are_checked(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    text = HEAD + DATA + '[signals]\njudge-model = "j"\njudge-base-url = "http://127.0.0.1:1/v1"\n'
    [problem] = find_problems(read_experiment(written(tmp_path, text)), tmp_path / "out")
    assert problem.startswith("judge 'j' cannot be reached at 'http://127.0.0.1:1/v1'")
    text = text.replace('judge-base-url = "http://127.0.0.1:1/v1"', 'judge-api-key-env = "NO_SUCH_KEY"')
    [problem] = find_problems(read_experiment(written(tmp_path, text)), tmp_path / "out")
    assert "'NO_SUCH_KEY'" in problem
    text = text.replace('judge-api-key-env = "NO_SUCH_KEY"', "")
    [problem] = find_problems(read_experiment(written(tmp_path, text)), tmp_path / "out")
    assert problem.startswith("judge 'j': give judge-base-url")


def test_a_missing_package_is_named_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setattr("suffice_papers.experiments.parts.find_spec", lambda name: None)
    path = written(tmp_path, HEAD + DATA + ENCODERS)
    problems = find_problems(read_experiment(path), tmp_path / "out")
    assert any("'sentence_transformers' is not installed" in text and "pip install" in text for text in problems)


def test_a_model_in_a_folder_needs_weights_and_no_code(tmp_path):
    (tmp_path / "empty").mkdir()
    model_folder(tmp_path / "coded", auto_map={"AutoModel": "modeling.Own"})
    model_folder(tmp_path / "plain")
    for name, why in (("empty", "contains no weights"), ("coded", "loads code of its repository"), ("plain", None)):
        path = written(tmp_path, HEAD + DATA + ENCODERS.replace("nobody/encoder", name))
        problems = find_problems(read_experiment(path), tmp_path / "out")
        assert [why in problem for problem in problems] == ([] if why is None else [True]), problems


# Disk and memory


def test_vectors_that_do_not_fit_on_the_disk_are_a_problem(tmp_path, monkeypatch):
    encoder = model_folder(tmp_path / "encoder")
    lines = [json.dumps({"id": str(i), "title": "A tower", "text": "It is tall."}) + "\n" for i in range(1000)]
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    assert passages_in(tmp_path / "corpus.jsonl") == 1000
    text = HEAD + DATA + f'[[retriever]]\nname = "d"\ncorpus = "corpus.jsonl"\ndense = "{encoder}"\n'
    experiment = read_experiment(written(tmp_path, text))
    assert find_problems(experiment, tmp_path / "out") == []
    needed = (tmp_path / "corpus.jsonl").stat().st_size + 1000 * 64 * 4
    usage = type(shutil.disk_usage(tmp_path))
    for free, fits in ((needed - 1, False), (needed, True)):
        monkeypatch.setattr(
            "suffice_papers.experiments.space.shutil.disk_usage", lambda _, free=free: usage(10**12, 0, free)
        )
        obstacles = find_obstacles(experiment, tmp_path / "out")
        assert (obstacles.estimates == ()) is fits
    assert (obstacles.shared, obstacles.by_cell) == ((), {})
    assert obstacles.notes == ("indexes beside corpora take about 0.0 GB of disk: the index of 'd' 0.0 GB",)


@pytest.mark.parametrize(("dtype", "memory", "fits"), [("float32", 3e6, False), ("float16", 3e6, True)])
def test_weights_that_do_not_fit_into_memory_are_a_problem(dtype, memory, fits, tmp_path, monkeypatch):
    encoder = model_folder(tmp_path / "encoder")
    monkeypatch.setattr("suffice_papers.experiments.space._SMALL", 0)
    monkeypatch.setattr("suffice_papers.experiments.space.device_memory", lambda _: ("cuda:0", int(memory)))
    text = HEAD + DATA + f'[[retriever]]\nname = "d"\ndense = "{encoder}"\ndense-dtype = "{dtype}"\n'
    problems = find_problems(read_experiment(written(tmp_path, text)), tmp_path / "out")
    assert ([problem[:7] for problem in problems] == []) is fits, problems
    assert all("an estimate" in problem for problem in problems)


@pytest.mark.whole
def test_a_device_that_is_not_here_is_a_problem(tmp_path):
    encoder = model_folder(tmp_path / "encoder")
    text = HEAD.replace("scripted = [0.2, 0.5, 0.7]", f'model = "{encoder}"\nlocal = true\ndevice = "cuda:9"') + DATA
    problems = find_problems(read_experiment(written(tmp_path, text)), tmp_path / "out")
    assert any("'cuda:9' is not here" in problem for problem in problems), problems


# The hub


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a check asks."""

    def do_GET(self):
        """Answer as the hub does."""
        name = "/".join(self.path.partition("?")[0].removeprefix("/api/models/").strip("/").split("/")[:2])
        files = [{"rfilename": "model.safetensors", "size": 5_000_000_000}, {"rfilename": "config.json", "size": 60}]
        if "auth-check" in self.path:
            return self.say(403, {"error": "gated"}, "GatedRepo")
        if name == "own/gated":
            return self.say(200, {"id": name, "gated": "manual", "siblings": files})
        if name == "own/open" and "/api/" in self.path:
            return self.say(200, {"id": name, "gated": False, "siblings": files[:1]})
        return self.say(404, {"error": "not found"}, "RepoNotFound")

    def say(self, code, value, error=None):
        """Write a JSON reply."""
        body = json.dumps(value).encode()
        self.send_response(code)
        if error is not None:
            self.send_header("X-Error-Code", error)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture
def hub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    at_hub.cache_clear()
    yield
    server.shutdown()
    server.server_close()
    at_hub.cache_clear()


def test_the_hub_says_whether_a_model_exists_and_its_size(hub):
    assert "own/gated' is gated: accept its terms" in find_model("own/gated").problem
    assert "the hub has no 'own/none'" in find_model("own/none").problem
    found = find_model("own/open")
    assert (found.problem, found.stored, found.download) == ("", 5_000_000_000, 5_000_000_000)
    assert found.in_memory("float16") == 2_500_000_000


def test_a_hub_that_cannot_be_reached_is_named_as_such(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert "'own/open' is not in the cache, and the hub cannot be reached" in find_model("own/open").problem


# A cell fails alone


def test_an_unreachable_encoder_leaves_the_other_cells_their_tables(tmp_path):
    path = written(tmp_path, HEAD + DATA + ENCODERS)
    result = cli("run", path, "--json", code=1)
    assert "the cell script/towers/dense/answer_first/seed-0 fails" in result.err
    assert [*result.json["failed"]] == ["script/towers/dense/answer_first/seed-0"]
    tables = {table["title"]: table for table in result.json["tables"]}
    assert [row["cell"] for row in tables["Cells"]["rows"]] == ["script/towers/bm25/answer_first"]
    assert any("nobody/encoder" in row["why"] for row in tables["Not made"]["rows"])
    assert any("left out: 1 of 2 cells" in note for note in tables["How these tables were made"]["notes"])
    assert (tmp_path / "run" / "tables.md").is_file()
    shown = cli("run", path)
    assert (shown.code, "nothing was asked" in shown.words, "1 cell failed" in shown.words) == (1, True, True)


def test_a_run_of_which_every_cell_would_fail_does_not_begin(tmp_path):
    text = HEAD + DATA + ENCODERS.replace('[[retriever]]\nname = "bm25"\n', "")
    with pytest.raises(ConfigMismatchError, match="nobody/encoder"):
        run_experiment(read_experiment(written(tmp_path, text)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_that_fails_while_it_is_asked_fails_alone(tmp_path):
    with Endpoint("Answer: nothing", fault="401") as endpoint:
        served = f'[[model]]\nname = "served"\nmodel = "m"\nbase-url = "{endpoint.url}"\n'
        path = written(tmp_path, HEAD + served + DATA)
        failing = []
        result = run_experiment(
            read_experiment(path), tmp_path / "out", on_failed=lambda cell, why: failing.append((cell, why))
        )
    assert [cell for cell, _ in failing] == ["served/towers/bm25/answer_first/seed-0"]
    assert [*result.failed.items()] == failing
    assert (tmp_path / "out" / "tables.json").is_file()


def test_a_cell_whose_calibration_failed_is_left_out_as_well(tmp_path):
    text = (
        HEAD + DATA + '[[data]]\nname = "other"\neval = "eval.jsonl"\ncalibrate-on = "towers"\nretrievers = ["bm25"]\n'
    )
    text = text.replace('eval = "eval.jsonl"\n', 'eval = "eval.jsonl"\nretrievers = ["dense"]\n', 1) + ENCODERS
    served = text + '[[data]]\nname = "third"\ntune = "tune.jsonl"\neval = "eval.jsonl"\nretrievers = ["bm25"]\n'
    result = run_experiment(read_experiment(written(tmp_path, served)), tmp_path / "out")
    assert [name.split("/")[1] for name in result.failed] == ["towers", "other"]
    assert "it needs the cell script/towers/dense" in [*result.failed.values()][1]
