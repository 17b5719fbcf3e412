"""`suffice reranker preferences`, `reranker train` and `paper transfer`, as a user calls them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from suffice.evaluation.statistics import Resampling
from suffice.loops.models.prompts import PROMPTS
from suffice.recordings import read_recording
from suffice_gates.models import TransformersModel
from suffice_gates.probes import Probe, ProbeCard, pinned_of
from suffice_gates.training.answers import compare_answers
from suffice_gates.training.preference_file import preference_lines, read_preferences
from tests.suffice_gates.support.tiny_reranker import overlap_preferences, tiny_cross_encoder
from tests.support import local_models
from tests.support.cli_tools import cli, dataset

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("no_collecting")]


def line(number, city, *others):
    """Return a question whose first paragraph holds the answer, beside a sentence that does not."""
    paragraphs = [
        {"title": f"Tower {number}", "text": f"It is tall. It stands in {city}.", "is_supporting": True},
        *({"title": f"Hut {number}.{i}", "text": text} for i, text in enumerate(others)),
    ]
    return {"id": f"q{number}", "question": f"Where is tower {number}?", "answers": [city], "paragraphs": paragraphs}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with a random model, a random probe on it, a cross-encoder and questions."""
    folder = tmp_path_factory.mktemp("aligning")
    local_models.save(folder / "llama")
    source = TransformersModel(folder / "llama", layers=("last",), prompt=PROMPTS["no_confidence"])
    card = ProbeCard(
        model=source.id, revision=source.revision, layer=source.layers[0], pinned=pinned_of(source.fingerprint())
    )
    weights = np.random.default_rng(0).normal(size=(1, local_models.WIDTH)).astype(np.float32)
    Probe([(weights, np.zeros(1, dtype=np.float32))], card).save(folder / "probe")
    cities = ("Oslo", "Lima", "Rome", "Cairo", "Bern", "Delhi")
    dataset(folder / "q.jsonl", *(line(i, city, "Huts.", "Sheds.", "Barns!") for i, city in enumerate(cities)))
    tiny_cross_encoder(folder / "cross-encoder")
    return folder


def model_of(here):
    return ("--model", here / "llama", "--probe", here / "probe", "--set=instructions=no_confidence")


def made(here, out, *more):
    return cli("reranker", "preferences", here / "q.jsonl", "-o", out, *model_of(here), "--set=allow-prompt=rag", *more)


def test_preferences_are_made_counted_and_not_made_again(here, tmp_path):
    done = made(here, tmp_path / "p.jsonl", "--json", "--set=shift=3")
    assert done.code == 0, done
    assert done.json["passes"] == {"qa": 6, "rag": 24}
    assert done.json["kept"] + sum(done.json["dropped"].values()) == 6
    assert done.json["shift"]["rag"]["n"] == 3
    assert len(read_preferences(tmp_path / "p.jsonl")) == done.json["kept"] > 0
    card = json.loads((tmp_path / "p.jsonl.card.json").read_text())
    assert card["shift"] == done.json["shift"]
    again = made(here, tmp_path / "p.jsonl", "--set=shift=3")
    assert again.code == 0, again
    assert "passes of this run: 0 of questions alone, 0 with a candidate" in again.words


def test_preferences_in_shards_are_those_of_one_process(here, tmp_path):
    assert made(here, tmp_path / "one.jsonl", "--set=shift=0").code == 0
    for shard in ("2/2", "1/2"):
        said = made(here, tmp_path / "many.jsonl", "--set=shift=0", "--shard", shard)
        assert "the same command without --shard" in said.words
    together = made(here, tmp_path / "many.jsonl", "--set=shift=0", "--json").json
    assert together["passes"] == {"qa": 0, "rag": 0}
    assert (tmp_path / "many.jsonl").read_text() == (tmp_path / "one.jsonl").read_text()


def test_a_probe_that_never_saw_passages_is_refused_unless_it_is_allowed(here, tmp_path):
    asked = ("reranker", "preferences", here / "q.jsonl", "-o", tmp_path / "p.jsonl", *model_of(here))
    assert "--set allow-prompt=rag" in cli(*asked).error
    assert "not a prompt" in cli(*asked, "--set=allow-prompt=rags").error
    assert "prompts qa" in cli(*asked, "--set=allow-prompt=qa").error
    other = cli(
        "reranker",
        "preferences",
        here / "q.jsonl",
        "-o",
        tmp_path / "p.jsonl",
        *model_of(here)[:4],
        "--set=allow-prompt=rag",
    )
    assert "another way" in other.error, "another prompt text is another state"
    assert list(tmp_path.iterdir()) == []


def test_questions_without_contexts_are_refused_with_what_to_do(here, tmp_path):
    dataset(tmp_path / "bare.jsonl", {"id": "a", "question": "Why?", "answers": ["x"]})
    done = cli(
        "reranker", "preferences", tmp_path / "bare.jsonl", "-o", tmp_path / "p.jsonl", *model_of(here), "--set=allow-prompt=rag",
        "--set=shift=0",
    )  # fmt: skip
    assert "has candidates" in done.error


def test_the_transfer_check_gives_verdicts_by_type_and_names_omissions(here, tmp_path):
    lines = [json.loads(text) for text in (here / "q.jsonl").read_text().splitlines()]
    dataset(tmp_path / "q.jsonl", *lines, {**line(9, "yes"), "answers": ["no"]})
    asked = ("paper", "transfer", tmp_path / "q.jsonl", *model_of(here), "--set=allow-prompt=rag")
    done = cli(*asked, "--json", code=0)
    assert [change["type"] for change in done.json["changes"]] == ["A", "B", "C"]
    assert done.json["n"] == 6
    assert done.json["left_out"] == {"no supporting passage with the answer in it": 1}
    screen = cli(*asked).out.splitlines()
    assert re.match(r"(llama (prefers|rejects|neither) [ABC](; |\. )){3}", " ".join(screen).replace(f"{here}/", ""))
    assert screen[-1].startswith("next: suffice reranker preferences ")
    whole = cli(*asked, "--details")
    assert "no supporting passage with the answer in it" in whole.out
    assert whole.out.count("llama: ") == 3


def test_a_model_needs_a_probe_of_its_own(here):
    asked = ("paper", "transfer", here / "q.jsonl", *model_of(here))
    assert "1 probes" in cli(*asked, "--model", "another").error
    assert "occurs twice" in cli(*asked, "--model", here / "llama", "--probe", here / "probe").error


@pytest.fixture(scope="module")
def preferred(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preferred")
    data = overlap_preferences(30, seed=0)
    for name, part in (("train", data[:20]), ("dev", data[20:25]), ("test", data[25:])):
        (folder / f"{name}.jsonl").write_text(preference_lines(part))
    return folder


def trained(here, preferred, out, *more):
    files = ("--dev", preferred / "dev.jsonl", "--test", preferred / "test.jsonl")
    return cli(
        "reranker", "train", preferred / "train.jsonl", "-o", out, "--base", here / "cross-encoder", *files,
        "--set=device=cpu", "--set=lr=1e-3", *more,
    )  # fmt: skip


def test_a_reranker_is_trained_reported_on_and_plugged_into_a_recording(here, preferred, tmp_path):
    done = trained(here, preferred, tmp_path / "r", "--questions", here / "q.jsonl", "--set=candidates=3", "--details")
    assert done.code == 0, done
    assert "on test" in done.out
    assert "MRR@5" in done.out
    assert "answers from the first passages in each order" in done.out
    assert "hardly carry over" in done.out
    before, after = (read_recording(tmp_path / f"r.{name}.parquet") for name in ("before", "after"))
    report = compare_answers(before, after, resampling=Resampling(seed=0))
    assert report.n == 6
    cli("record", here / "q.jsonl", "-o", tmp_path / "q.parquet", "--reranker", tmp_path / "r", code=0)
    config = read_recording(tmp_path / "q.parquet").metadata["config"]
    assert config["retriever"]["reranker"]["model"].endswith("/r")


def test_the_report_is_json_for_programs(here, preferred, tmp_path):
    done = trained(here, preferred, tmp_path / "r", "--json")
    assert done.code == 0, done
    assert done.json["reported_on"] == "test"
    assert done.json["answers"] is None
    assert set(done.json["report"]["metrics"]) >= {"P@1", "R@3", "MRR@5"}


RANKS = """
import gc, os, socket, sys
import sentence_transformers, torch  # once for both
from transformers import BertForSequenceClassification, Trainer
from suffice.cli.main import run
from suffice_gates.commands import train_reranker

gc.freeze()  # what is imported: else each looks for garbage in it

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
processes = []
for rank in "01":
    processes.append(os.fork())
    if not processes[-1]:
        of_launcher = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update(of_launcher)
        sys.exit(run(sys.argv[1:]))
sys.exit(any(os.waitpid(process, 0)[1] for process in processes))
"""
"""What `torch.distributed.run` does: two processes of one command."""


def test_two_processes_train_one_reranker_and_one_of_them_prints(here, preferred, tmp_path):
    arguments = [
        sys.executable, "-c", RANKS, "reranker", "train", preferred / "train.jsonl", "-o", tmp_path / "r", "--base",
        here / "cross-encoder", "--dev", preferred / "dev.jsonl", "--set=device=cpu", "--set=batch=8",
        "--set=evaluations=1", "--json",
    ]  # fmt: skip
    done = subprocess.run(
        list(map(str, arguments)),
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["steps"] == 3, "60 rows, 8 on each of two processes, what is left over dropped"
    assert told["best_step"] == 3
    assert (tmp_path / "r" / "model.safetensors").is_file()


def test_wrong_preferences_are_named_by_file_and_line(here, preferred, tmp_path):
    (tmp_path / "bad.jsonl").write_text(
        (preferred / "train.jsonl").read_text() + '{"query": "q", "pos": [], "neg": ["a"]}\n'
    )
    asked = ("-o", tmp_path / "r", "--base", here / "cross-encoder")
    assert "line 21" in cli("reranker", "train", tmp_path / "bad.jsonl", *asked).error
    assert "cannot be read" in cli("reranker", "train", tmp_path / "none.jsonl", *asked).error
    (tmp_path / "short.jsonl").write_text(preference_lines(overlap_preferences(1, seed=0)))
    assert "at least 2" in cli("reranker", "train", tmp_path / "short.jsonl", *asked).error
    same = cli("reranker", "train", preferred / "train.jsonl", *asked, "--dev", preferred / "train.jsonl")
    assert "need different questions" in same.error
    assert "temperature is 0.0" in trained(here, preferred, tmp_path / "r", "--set=temperature=0").error
    assert not (tmp_path / "r").exists()


def test_a_card_that_is_none_is_refused(here, preferred, tmp_path):
    (tmp_path / "p.jsonl").write_text((preferred / "train.jsonl").read_text())
    (tmp_path / "p.jsonl.card.json").write_text("[]")
    done = cli("reranker", "train", tmp_path / "p.jsonl", "-o", tmp_path / "r", "--base", here / "cross-encoder")
    assert "preference data" in done.error
