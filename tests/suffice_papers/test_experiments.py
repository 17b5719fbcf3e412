"""A whole table by one file: read strictly, resumed without a call, with intervals over questions and over runs."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import weakref
import zlib
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from suffice.cli.local import LocalRun
from suffice.errors import ConfigMismatchError, DataError, NotFoundError, SchemaError
from suffice.evaluation.replay import calibrate, replay
from suffice.evaluation.statistics import Resampling
from suffice.loops import record
from suffice.loops.retrieval import Question, load_questions
from suffice.policy.rules.algebra import with_threshold
from suffice.recordings import read_recording
from suffice_papers.cbdr.plan import CbdrSettings, divide
from suffice_papers.cbdr.tiny_reranker import write_tiny_reranker
from suffice_papers.experiments import read_experiment, run_experiment, stages
from suffice_papers.experiments.building import Loaded, retrieval_loop, scripted_model
from suffice_papers.experiments.calibrations import curve_table, floor_table, transfer_table
from suffice_papers.experiments.checks import cell_prices
from suffice_papers.experiments.estimate import extrapolate
from suffice_papers.experiments.stages import CellFolder
from suffice_papers.experiments.tasr_cells import evaluate_tasr, tasr_cell
from suffice_papers.experiments.variance import RunValues, Shown, repeated, runs_tables
from suffice_papers.semantic import semantic_protocol, tune as select_eps
from suffice_papers.tasr import tasr_tables
from suffice_papers.tasr.cells import load_cell
from suffice_papers.tasr.tasr_tables import PARTS
from suffice_retrieval.indexes import CachedRetriever
from tests.support.cli_tools import cli, dataset, question, reply
from tests.support.endpoint import Endpoint, prompt_of

pytestmark = pytest.mark.usefixtures("quick_runs", "few_tables")

SMALL = """
seeds = [1, 2]
max-rounds = 4
max-loss = 0.2
resamples = 50
tune-draws = 2
tune-sizes = [8]

[[model]]
name = "lucky"
scripted = [0.2, 0.4, 0.6, 0.8]

[[model]]
name = "plain"
scripted = [0.3, 0.3, 0.5]

[[data]]
name = "towers"
tune = "tune.jsonl"
eval = "eval.jsonl"
"""

ONE_MODEL = SMALL.replace('[[model]]\nname = "plain"\nscripted = [0.3, 0.3, 0.5]\n\n', "")

ASKED = """
max-rounds = 3
resamples = 20
tune-draws = 1

[[model]]
name = "served"
model = "m"
base-url = "URL"
logprobs = {logprobs}
extra-body = {{ temperature = 0.7 }}

[[data]]
name = "towers"
tune = "tune.jsonl"
eval = "eval.jsonl"
tune-limit = {n}
"""


def written(folder, text=SMALL, n=16):
    dataset(folder / "tune.jsonl", *(question(i) for i in range(n)))
    dataset(folder / "eval.jsonl", *(question(i) for i in range(100, 100 + n)))
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return folder / "run.toml"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """An experiment of scripted models that has run, and made all tables."""
    path = written(tmp_path_factory.mktemp("experiment"), SMALL.replace("[8]", "[8, 40]"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasr_tables, "PARTS", PARTS)
        result = cli("run", path, "--json", code=0)
    return path, result.json


def cells_of(path):
    experiment = read_experiment(path)
    folders = [CellFolder(path.with_suffix(""), cell, experiment) for cell in experiment.cells()]
    draws = experiment.resampling
    return [load_cell(tasr_cell(folder), resampling=draws) for folder in folders if folder.cell.seed == 1]


# Reading


@pytest.mark.parametrize(
    ("old", "new", "kind", "message"),
    [
        (
            "max-rounds",
            "max-round",
            SchemaError,
            "unknown key 'max-round'. Did you mean 'max-rounds'? Allowed: published, protocol",
        ),
        ("max-rounds = 4", 'max-rounds = "4"', DataError, "max-rounds is '4'; expected a whole number"),
        ("max-rounds = 4", "max-rounds = true", DataError, "max-rounds is True; expected a whole number"),
        ("max-rounds = 4", "max-rounds = 0", DataError, "max-rounds is 0; allowed: 1 or more"),
        ("seeds = [1, 2]", "seeds = [1, 1]", DataError, "seeds: 1 occurs twice"),
        ("seeds = [1, 2]", "seeds = 1", DataError, "seeds is 1; expected a list"),
        ("seeds", 'protocol = "tasrr"\nseeds', DataError, "protocol is 'tasrr'. Did you mean 'tasr'?"),
        ("seeds", 'prompts = ["answer_fist"]\nseeds', NotFoundError, "answer_first"),
        ('"tune.jsonl"', '"hotpot_tune"', NotFoundError, "Did you mean 'hotpotqa_tune'?"),
        ('name = "plain"', 'name = "lucky"', DataError, "'lucky' occurs twice"),
        ('name = "plain"', 'name = "Lucky"', DataError, "name, in small letters: 'lucky' occurs twice"),
        ('name = "plain"', 'name = "a/b"', DataError, "it also names a folder"),
        ("[0.3, 0.3, 0.5]", "[3]", DataError, "scripted is [3]; expected shares"),
        ("scripted = [0.3, 0.3, 0.5]", 'model = "m"\nbase-uri = "u"', SchemaError, "Did you mean 'base-url'?"),
        ("scripted = [0.3, 0.3, 0.5]", 'model = "m"\napi-key = "k"', SchemaError, "Keys are never written to files"),
        ("scripted = [0.3, 0.3, 0.5]", 'model = "m"\nmax-tokens = 0', DataError, "max-tokens is 0; allowed: 1 or more"),
        ("scripted = [0.3, 0.3, 0.5]", 'temperature = "m"', DataError, "the key 'model' is missing"),
        ('tune = "tune.jsonl"', 'calibrate-on = "other"', DataError, "calibrate-on is 'other'"),
        ('tune = "tune.jsonl"', "", DataError, "give either tune, or calibrate-on"),
        (
            'eval = "eval.jsonl"\n',
            'eval = "eval.jsonl"\nretrievers = ["a"]\n[[retriever]]\nname = "a"\n[[retriever]]\nname = "b"\n',
            DataError,
            "retriever 'b' is used by no data",
        ),
        ("[[data]]", "[data]", SchemaError, "write [[data]]"),
        (
            'tune = "tune.jsonl"',
            'source = "owner/towers"',
            SchemaError,
            "suffice convert owner/towers -o FILE --splits",
        ),
        ("[[data]]", "[[datum]]", SchemaError, "unknown key 'datum'"),
        ("seeds = [1, 2]", 'prices = "mine.toml"', NotFoundError, "mine.toml"),
        ("seeds = [1, 2]", "seeds = [1, 2", SchemaError, "is not TOML"),
        ("tune-sizes = [8]", "tune-sizes = [8, 1]", DataError, "tune-sizes: 1; allowed: 2 or more"),
        ("tune-sizes = [8]", "tune-sizes = [8, 8]", DataError, "tune-sizes: 8 occurs twice"),
        (
            "[[data]]",
            '[published]\n"plain/towers/bm25" = "qwen_pq"\n\n[[data]]',
            DataError,
            "is 'qwen_pq'. Did you mean",
        ),
        (
            "[[data]]",
            "[semantic]\ntolerance = 0.1\n\n[[data]]",
            DataError,
            "'semantic' has no meaning for the protocol",
        ),
        ("scripted = [0.3, 0.3, 0.5]", 'model = "m"\nextra-body = "{a"', DataError, "extra-body: '{a' is not JSON"),
        (
            "scripted = [0.3, 0.3, 0.5]",
            'model = "m"\nbase-url = "u"\nextra-body = { seed = 3 }',
            DataError,
            "model 'plain': extra-body has a seed: write it as seeds = [...]",
        ),
    ],
)
def test_every_wrong_key_value_and_file_is_named(old, new, kind, message, tmp_path):
    assert old in SMALL
    with pytest.raises(kind) as raised:
        read_experiment(written(tmp_path, SMALL.replace(old, new, 1)))
    assert message in str(raised.value)


def test_a_key_instead_of_its_variable_is_refused_and_not_repeated(tmp_path):
    secret = "sk-abcdefghijklmnop1234567890"
    path = written(tmp_path, SMALL.replace("scripted = [0.3, 0.3, 0.5]", f'model = "m"\napi-key-env = "{secret}"'))
    with pytest.raises(DataError) as raised:
        read_experiment(path)
    assert secret not in str(raised.value)


def test_a_greedy_model_has_one_run_and_sampling_one_per_seed(tmp_path):
    text = SMALL.replace("scripted = [0.3, 0.3, 0.5]", 'model = "span-reader"')
    cells = read_experiment(written(tmp_path, text)).cells()
    assert Counter(cell.model.name for cell in cells) == {"lucky": 2, "plain": 1}


def test_eval_questions_that_calibrate_are_refused_before_anything_is_recorded(tmp_path):
    path = written(tmp_path)
    dataset(tmp_path / "eval.jsonl", {**question(3), "id": "other"})
    assert "also a tune" in cli("run", path).error
    assert not (tmp_path / "run" / "cells").exists()


# Running


def test_the_second_run_asks_nothing_and_says_so(tmp_path):
    with Endpoint(reply) as endpoint:
        path = written(tmp_path, ASKED.format(logprobs="true", n=6).replace("URL", endpoint.url), n=6)
        first = cli("run", path, code=0)
        assert "36 calls for 2 of 2 recordings" in first.words
        asked = len(endpoint.requests)
        assert asked == 36 + 1  # the one that looks for log-probabilities
        assert {(request.body["seed"], request.body["temperature"]) for request in endpoint.requests[1:]} == {(0, 0.7)}
        second = cli("run", path, code=0)
        assert len(endpoint.requests) == asked
        assert "nothing was asked: all 2 recordings were complete." in second.words


def test_a_pilot_is_part_of_the_run_and_repeats_no_call(tmp_path):
    with Endpoint(reply) as endpoint:
        path = written(tmp_path, ASKED.format(logprobs="false", n=6).replace("URL", endpoint.url), n=6)
        cli("run", path, "--pilot", 2, code=0)
        assert len(endpoint.requests) == 2 * 2 * 3
        assert not (tmp_path / "run" / "index.html").exists()
        assert cli("run", path).code == 0
        assert len(endpoint.requests) == 2 * 6 * 3
        prompts = [request.prompt for request in endpoint.requests]
        assert len(set(prompts)) == len(prompts)


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("max-rounds = 4", "max-rounds = 3", "max-rounds: 4 -> 3"),
        ("[0.2, 0.4, 0.6, 0.8]", "[0.2, 0.4, 0.6, 0.7]", "model.scripted"),
        ('tune = "tune.jsonl"', 'tune = "tune.jsonl"\ntune-limit = 3', "13 tune questions that are not asked for now"),
    ],
)
def test_a_setting_that_mixes_recordings_is_refused_with_the_change(old, new, changed, small):
    path, _ = small
    other = path.with_name("other.toml")
    other.write_text(path.read_text().replace(old, new), encoding="utf-8")
    assert changed in cli("run", other, "--out", path.with_suffix("")).error


def test_questions_that_an_interrupted_run_finished_do_not_slip_into_the_tables(tmp_path, monkeypatch):
    path = written(tmp_path, SMALL.replace('"tune.jsonl"', '"tune.jsonl"\ntune-limit = 2'), n=3)

    def with_journal(questions, loop, recording, **more):
        del questions  # the journal holds all three
        name = f"{Path(recording).stem}.jsonl"
        return record(load_questions(tmp_path / name), loop, recording, **more)

    monkeypatch.setattr(stages, "record", with_journal)
    assert "'q2'" in cli("run", path).error
    assert not (tmp_path / "run/tables.json").exists()


def test_marks_by_contexts_need_contexts_before_a_draft_is_paid_for(tmp_path):
    with Endpoint(drafted) as endpoint:
        text = DRAFTED.replace("URL", endpoint.url).replace('embedder = "minilm"', 'judge = { judge-model = "j" }')
        path = written(tmp_path, text)
        for split in ("tune", "eval"):
            dataset(tmp_path / f"{split}.jsonl", {"id": split, "question": f"Who {split}?", "answers": ["a"]})
        assert "marks faithfulness" in cli("run", path).error
        assert endpoint.requests == []


def test_a_corrected_gold_answer_is_not_mixed_with_old_scores(tmp_path):
    # No script, and eval: a script is drawn from the golds and the overlap fitted on tune, and these settings would tell.
    path = written(tmp_path, SMALL.replace("scripted = [0.3, 0.3, 0.5]", 'model = "span-reader"'), n=3)
    cell = next(i for i, c in enumerate(read_experiment(path).cells()) if c.model.name == "plain")
    run_experiment(read_experiment(path), tmp_path / "run", pilot=1)
    CellFolder(tmp_path / "run", read_experiment(path).cells()[cell], read_experiment(path)).check()
    first, *others = map(json.loads, (tmp_path / "eval.jsonl").read_text("utf-8").splitlines())
    dataset(tmp_path / "eval.jsonl", {**first, "answers": ["Bonn"]}, *others)
    with pytest.raises(ConfigMismatchError, match="another form"):
        CellFolder(tmp_path / "run", read_experiment(path).cells()[cell], read_experiment(path)).check()


def test_a_change_of_the_statistics_alone_asks_nothing(small, tmp_path):
    path, _ = small
    shutil.copytree(path.with_suffix(""), tmp_path / "copy")
    other = path.with_name("loss.toml")
    other.write_text(path.read_text().replace("max-loss = 0.2", "max-loss = 0.3"), encoding="utf-8")
    for name in ("tables", "figures"):
        (tmp_path / "copy" / name / f"old.{'csv' if name == 'tables' else 'svg'}").write_text("of an earlier run")
    result = cli("run", other, "--out", tmp_path / "copy", "--json").json
    assert result["calls"] == 0
    assert {stage["done"] for stage in result["stages"]} == {False}
    cell = "cells/lucky/towers/bm25/answer_first/seed-1"
    assert json.loads((tmp_path / "copy" / cell / "certificate.json").read_text())["claim"]["epsilon"] == 0.3
    files = {name: {file.name for file in (tmp_path / "copy" / name).iterdir()} for name in ("tables", "figures")}
    assert {name[3:] for name in files["tables"]} < {
        file.name[3:] for file in (path.with_suffix("") / "tables").iterdir()
    }
    assert len(files["tables"]) == len(result["tables"])
    assert files["figures"] < {file.name for file in (path.with_suffix("") / "figures").iterdir()}


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_damaged_settings_of_a_cell_are_an_error_and_not_guessed(text, small, tmp_path):
    path, _ = small
    shutil.copytree(path.with_suffix("") / "cells", tmp_path / "copy/cells")
    (tmp_path / "copy/cells/lucky/towers/bm25/answer_first/seed-1/settings.json").write_text(text)
    assert "damaged" in cli("run", path, "--out", tmp_path / "copy").error


@pytest.mark.whole
def test_what_was_paid_for_before_a_kill_is_not_asked_again(tmp_path):
    with Endpoint(reply, allow=10) as endpoint:
        path = written(tmp_path, ASKED.format(logprobs="false", n=4).replace("URL", endpoint.url), n=4)
        command = [sys.executable, "-m", "suffice", "run", str(path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while len(endpoint.requests) < 11:  # ten were answered
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        time.sleep(0.2)  # the answers reach the disk; if some do not, more is asked below, and never less
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        endpoint.allow = None
        assert cli("run", path).code == 0
        repeats = Counter(request.prompt for request in endpoint.requests)
        assert len(repeats) == 2 * 4 * 3
        assert len(endpoint.requests) <= 2 * 4 * 3 + 4  # only what was in flight
        assert json.loads((tmp_path / "run" / "tables.json").read_text())["tables"]


def test_a_failed_question_ends_the_run_before_tables_and_is_repeated(tmp_path):
    with Endpoint(reply, fault=["400"]) as endpoint:
        path = written(tmp_path, ASKED.format(logprobs="false", n=4).replace("URL", endpoint.url), n=4)
        first = cli("run", path)
        assert "1 question failed" in first.error
        assert not (tmp_path / "run" / "tables.json").exists()
        asked = len(endpoint.requests)
        assert cli("run", path).code == 0
        assert len(endpoint.requests) == asked + 3


def test_cells_sharing_a_model_load_it_once_and_release_it():
    loaded, alive = Loaded(), weakref.WeakSet()

    class Model:
        def __init__(self):
            assert not alive
            alive.add(self)

    first = id(loaded.part("model", "a", Model))
    assert id(loaded.part("model", "a", Model)) == first
    loaded.part("model", "b", Model)
    assert len(alive) == 1


def test_the_cache_of_a_model_keeps_the_rankings_of_a_corpus_too(tmp_path):
    corpus = '[[retriever]]\nname = "c"\ncorpus = "corpus.jsonl"\n'
    text = ASKED.format(logprobs="false", n=4).replace("URL", "http://127.0.0.1:9") + corpus
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "title": "Oslo", "text": "A city."}\n')
    experiment = read_experiment(written(tmp_path, text.replace("[[data]]", 'cache = "c.sqlite"\n[[data]]'), n=4))
    loop = retrieval_loop(experiment.cells()[0], experiment, Loaded())
    assert isinstance(loop.retriever, CachedRetriever)
    assert loop.retriever.rank("Oslo", k=1) == loop.retriever.rank("Oslo", k=1)
    assert (loop.retriever.hits, loop.retriever.misses) == (1, 1)
    assert (tmp_path / "c.sqlite").exists()


def judging(body):
    return "Mark: 4" if "Proposed answer" in prompt_of(body) else reply(body)


def test_prompts_and_judge_are_recorded_for_every_published_signal(tmp_path):
    extra = 'prompts = ["answer_first", "confidence_first"]\nsignals = { judge-model = "judge" }\n'
    with Endpoint(judging) as endpoint:
        text = extra + ASKED.format(logprobs="false", n=3)
        path = written(tmp_path, text.replace("URL", endpoint.url), n=3)
        first = cli("run", path, "--json", code=0)
        assert Counter(request.body["model"] for request in endpoint.requests) == {"m": 36, "judge": 36}
        assert "nothing was asked" in cli("run", path).words
        assert len(endpoint.requests) == 72
    figure = next(table for table in first.json["tables"] if table["title"].startswith("Figure 5"))
    assert {row["prompt"] for row in figure["rows"]} == {"answer_first", "confidence_first"}
    both = read_recording(tmp_path / "run/prompts/served-towers-bm25-seed-0-eval.parquet")
    assert {str(prompt) for prompt in both.table["prompt_id"].to_pylist()} == {"answer_first@1", "confidence_first@1"}
    assert {"judge_entailment", "verbal_confidence"} <= set(both.table.column_names)


# What it will cost


def test_a_dry_run_asks_nothing_and_shows_unknown_not_zero(tmp_path):
    with Endpoint(reply) as endpoint:
        path = written(tmp_path, ASKED.format(logprobs="true", n=6).replace("URL", endpoint.url), n=6)
        result = cli("run", path, "--dry-run", code=0)
        assert endpoint.requests == []
        assert "1 cell; left: 36 calls, unknown tokens, unknown USD, unknown minutes; no problem was" in result.words
        assert not (tmp_path / "run").exists()


def test_a_dry_run_of_a_finished_experiment_has_no_notes(small):
    path, _ = small
    result = cli("run", path, "--dry-run", "--json", code=0)
    assert result.json["notes"] == []
    assert "left: 0 calls" in result.json["sentence"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('eval = "eval.jsonl"', 'eval = "eval.jsonl"\nsetting = "open"', "which has the setting 'distractor'"),
        ("seeds =", 'prompts = ["no_confidence"]\nseeds =', "'no_confidence'"),
    ],
)
def test_an_incomparable_cell_is_a_problem_before_the_run(old, new, why, tmp_path):
    text = SMALL.replace("[[model]]", '[published]\n"plain/towers/bm25" = "qwen_hp"\n\n[[model]]', 1)
    path = written(tmp_path, text.replace(old, new), n=3)
    result = cli("run", path, "--dry-run", "--json", code=2)
    assert [
        "cannot be compared with 'qwen_hp'" in problem and why in problem for problem in result.json["problems"]
    ] == [True]


def test_the_judge_of_a_model_that_runs_here_costs_money(tmp_path):
    (tmp_path / "prices.toml").write_text("[j]\nuncached = 1\ncached = 1\noutput = 1\n")
    text = SMALL.replace("seeds", 'prices = "prices.toml"\nseeds', 1) + '\n[signals]\njudge-model = "j"\n'
    path = written(tmp_path, text)
    experiment = read_experiment(path)
    prices = cell_prices(experiment.cells()[0], experiment)
    assert {name: price.output for name, price in prices.items()} == {"generator": 0, "judge:entailment": 1}
    path.write_text(text.replace('"j"', '"other"'))
    with pytest.raises(DataError, match="'other'"):
        cell_prices(experiment.cells()[0], read_experiment(path))


def test_a_certificate_does_not_outlive_the_policy_that_it_is_of(small, tmp_path, monkeypatch):
    path, _ = small
    shutil.copytree(path.with_suffix(""), tmp_path / "copy")
    experiment = read_experiment(path)
    folder = CellFolder(tmp_path / "copy", experiment.cells()[0], experiment)
    assert folder.file("certificate.json").exists()

    def fail(*_args, **_options):
        raise DataError("the outcome is constant")

    monkeypatch.setattr("suffice_papers.experiments.tasr_cells.calibrate", fail)
    evaluate_tasr(folder)
    assert json.loads(folder.file("policy.json").read_text()) == {"problem": "the outcome is constant"}
    assert not folder.file("certificate.json").exists()


def test_the_next_command_names_the_same_folder(tmp_path):
    path = written(tmp_path, n=3)
    then = f"next: suffice run {path} --out {tmp_path / 'pilot'}"
    for options, more in (("--dry-run", " --pilot 5 --dry-run"), ("--pilot=2", "")):
        words = cli("run", path, "--out", tmp_path / "pilot", options).words
        assert words.endswith(f"{then}{more}"), words


def test_a_limit_beyond_the_data_is_said(tmp_path):
    path = written(tmp_path, SMALL.replace('tune = "tune.jsonl"', 'tune = "tune.jsonl"\ntune-limit = 90'))
    assert (
        "data 'towers': tune-limit is 90, and there are 16 questions"
        in cli("run", path, "--dry-run", "--json").json["notes"]
    )
    path.write_text(path.read_text().replace("scripted = [0.3, 0.3, 0.5]", 'model = "span-reader"'))
    assert "one run of plain: no seed changes its answers" in cli("run", path, "--dry-run", "--json").json["notes"]


def test_a_point_beyond_the_tune_questions_is_said(small):
    table = next(table for table in small[1]["tables"] if table["title"].startswith("Learning curve"))
    assert "lucky/towers/bm25/answer_first: no point at 40, as there are 16 tune questions" in table["notes"]


def test_a_dry_run_after_a_pilot_extrapolates_with_the_prices(tmp_path):
    (tmp_path / "prices.toml").write_text("[m]\nuncached = 1\ncached = 1\noutput = 1\n")
    text = 'prices = "prices.toml"\n' + ASKED.format(logprobs="false", n=12)
    with Endpoint(reply) as endpoint:
        path = written(tmp_path, text.replace("URL", endpoint.url), n=12)
        result = cli("run", path, "--dry-run", "--pilot", 4, "--json").json
        assert len(endpoint.requests) == 2 * 4 * 3
        cli("run", path, "--json", code=0)
    cell, total = result["cells"]
    assert (cell["questions"], cell["recorded"], cell["calls left"]) == (24, 8, 48)
    folder = tmp_path / "run/cells/served/towers/bm25/answer_first/seed-0"
    recordings = [read_recording(folder / f"{split}.parquet") for split in ("tune", "eval")]
    kinds = [f"cost.generator.{kind}_tokens" for kind in ("uncached", "cached", "output")]
    tokens = [sum(recording.column(kind) for kind in kinds).sum(axis=1) for recording in recordings]
    known, rest = (np.concatenate([part[place] for part in tokens]) for place in (slice(0, 4), slice(4, None)))
    assert cell["tokens"]["value"] == pytest.approx(16 * known.mean())
    assert cell["tokens"]["low"] <= rest.sum() <= cell["tokens"]["high"]
    assert cell["USD"]["value"] == pytest.approx(cell["tokens"]["value"] / 1e6)
    assert cell["minutes"]["value"] > 0
    assert total["tokens"] == cell["tokens"]


def test_the_interval_of_an_estimate_covers_what_is_spent_later():
    rng = np.random.default_rng(3)
    inside = 0
    for _ in range(400):
        values = rng.normal(10, 3, 60)
        estimate = extrapolate(values[:10], 50, 0.9)
        inside += estimate[1] <= values[10:].sum() <= estimate[2]
    assert inside / 400 == pytest.approx(0.9, abs=0.04)


def test_one_recorded_question_gives_an_estimate_without_an_interval():
    value, low, high = extrapolate(np.array([5.0]), 3, 0.95)
    assert value == 15
    assert np.isnan([low, high]).all()
    assert extrapolate(np.array([5.0]), 0, 0.95) == (0, 0, 0)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("URL", "http://127.0.0.1:1/v1", "model 'served' cannot be reached at 'http://127.0.0.1:1/v1'"),
        ("URL", "127.0.0.1/v1", "expected http://HOST/... or https://HOST/..."),
        (
            'base-url = "URL"',
            'api-key-env = "SUFFICE_NO_SUCH_KEY"',
            "'SUFFICE_NO_SUCH_KEY', which is to hold the API key",
        ),
        ("max-rounds", 'prices = "list"\nmax-rounds', "prices neither 'generator' nor its model 'm'"),
        ('"eval.jsonl"', '"bare.jsonl"', "6 of 6 eval questions have no gold answer ('b0')"),
        ('"eval.jsonl"', '"bare.jsonl"', "6 of 6 eval questions have no passages ('b0')"),
        ('"eval.jsonl"', '"tune.jsonl"', "6 eval questions are also tune questions ('q0')"),
    ],
)
def test_a_dry_run_names_what_would_end_the_run(old, new, problem, tmp_path):
    dataset(tmp_path / "bare.jsonl", *({"id": f"b{i}", "question": f"Who is {i}?"} for i in range(6)))
    path = written(
        tmp_path, ASKED.format(logprobs="true", n=6).replace(old, new).replace("URL", "http://127.0.0.1:1/v1"), n=6
    )
    result = cli("run", path, "--dry-run", "--json", code=2)
    assert any(problem in text for text in result.json["problems"]), result.json["problems"]
    assert result.json["problems"][0].split(":")[0] in cli("run", path).error  # the run itself does not begin
    assert not (tmp_path / "run").exists()


# Tables


def test_tables_are_written_as_json_csv_markdown_and_offline_page(small):
    path, result = small
    out = path.with_suffix("")
    titles = [table["title"] for table in result["tables"]]
    page, markdown = (out / "index.html").read_text("utf-8"), (out / "tables.md").read_text("utf-8")
    for start in (
        "Table 1",
        "Table 2",
        "Certificates",
        "Runs: F1",
        "Learning curve",
        "Floor on p_correct",
        "Transferred",
    ):
        assert any(title.startswith(start) for title in titles), start
        assert start in page
        assert f"**{start}" in markdown
    assert not re.search(r"<script[^>]+src=", page)
    outside = re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)  # the charts' own library, and their data
    assert "http" not in outside.replace("http-equiv", "").replace("http://www.w3.org", "")
    files = sorted((out / "tables").glob("*.csv"))
    assert len(files) == len(titles)
    runs = next(file for file in files if "runs" in file.name)
    assert {row["runs"] for row in csv.DictReader(runs.read_text("utf-8").splitlines())} == {"2"}


def test_a_cells_files_are_a_policy_a_replay_and_a_certificate(small):
    path, _ = small
    folder = path.with_suffix("") / "cells/lucky/towers/bm25/answer_first/seed-1"
    assert cli("replay", folder / "eval.parquet", "--policy", folder / "policy.json").code == 0
    recorded = cli("replay", folder / "eval.parquet", "--policy", folder / "policy.json", "--json").json["rows"][0]
    stored = json.loads((folder / "replay.json").read_text())["rows"][0]
    assert stored["metrics"]["f1"] == recorded["metrics"]["f1"]
    assert json.loads((folder / "certificate.json").read_text())["claim"]["epsilon"] == 0.2


def test_the_interval_over_runs_is_students_t_and_over_both_wider():
    rng = np.random.default_rng(0)
    values = rng.random(40) + rng.normal(0, 0.1, (4, 1)) + rng.normal(0, 0.2, (4, 40))
    result = repeated(values, Resampling())
    means = values.mean(axis=1)
    t = stats.t.interval(0.95, 3, means.mean(), stats.sem(means))
    assert result.runs == pytest.approx(t)
    assert result.mean == pytest.approx(values.mean())
    width = {name: pairwise_width(getattr(result, name)) for name in ("questions", "runs", "both")}
    assert width["both"] >= max(width.values())
    one = repeated(values[:1], Resampling())
    assert (one.runs, one.both) == (None, None)


def test_one_question_or_draw_has_no_interval_and_tables_say_why(tmp_path):
    one = repeated(np.array([[0.0], [1.0]]), Resampling())
    assert np.isnan([*one.questions, *one.both]).all()
    assert one.runs[0] < 0.5 < one.runs[1]
    for limit, draws, why in ((1, 20, "one question (or one cluster"), (6, 1, "one bootstrap draw shows no spread")):
        text = ONE_MODEL.replace("resamples = 50", f"resamples = {draws}").replace("tune-draws = 2", "tune-draws = 1")
        path = written(tmp_path, text.replace('"eval.jsonl"', f'"eval.jsonl"\neval-limit = {limit}'), n=10)
        result = cli("run", path, "--out", tmp_path / str(limit), "--json", code=0)
        runs = next(table for table in result.json["tables"] if table["title"].startswith("Runs: F1"))
        assert any(why in note for note in runs["notes"])
        assert all(row["over questions"]["low"] is None for row in runs["rows"])
        curve = next(table for table in result.json["tables"] if table["title"].startswith("Learning curve"))
        assert all(row["F1"]["low"] is None for row in curve["rows"] if row["tune questions"] == 8)


def pairwise_width(interval):
    return next(high - low for low, high in pairwise(interval))


def test_an_interval_over_runs_and_questions_covers_the_mean_of_the_population():
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(300):
        effects = rng.normal(0, 0.3, 30) + rng.normal(0, 0.1, (4, 1)) + rng.normal(0, 0.3, (4, 30))
        low, high = repeated(effects, Resampling(n_resamples=2)).both
        inside += low <= 0 <= high
    assert inside / 300 > 0.92


def test_the_macro_over_runs_is_students_t_over_run_means():
    rng = np.random.default_rng(5)
    values = rng.random((3, 4, 20)) + rng.normal(0, 0.1, (1, 4, 1))
    ids = tuple(map(str, range(20)))
    runs = {str(i): [RunValues(values={"f1": run}, questions=ids) for run in part] for i, part in enumerate(values)}
    [table] = runs_tables(runs, {"f1": Shown(heading="F1")}, Resampling(n_resamples=200))
    *_, macro = table.rows
    means = values.mean(axis=(0, 2))
    assert (macro[0], macro[2][0]) == ("macro", pytest.approx(values.mean()))
    assert macro[3][1:] == pytest.approx(stats.t.interval(0.95, 3, means.mean(), stats.sem(means)))
    assert macro[4][1] < min(macro[2][1], macro[3][1])
    assert macro[4][2] > max(macro[2][2], macro[3][2])
    others = (*ids[:10], *map(str, range(20, 30)))
    partly = {**runs, "0": [RunValues(values=part.values, questions=others) for part in runs["0"]]}
    [table] = runs_tables(partly, {"f1": Shown(heading="F1")}, Resampling(n_resamples=20))
    assert len(table.rows) == 3
    assert any(note.startswith("no macro: ") for note in table.notes)
    uneven = {**runs, "0": runs["0"][:2]}
    assert [row[0] for row in runs_tables(uneven, {"f1": Shown(heading="F1")}, Resampling(n_resamples=20))[0].rows] == [
        "0",
        "1",
        "2",
    ]


def test_a_script_is_not_taken_for_a_model(small):
    cells = next(table for table in small[1]["tables"] if table["title"] == "Cells")
    assert sum("is a script and no model" in note for note in cells["notes"]) == 2


def test_one_run_leaves_the_interval_over_runs_unknown():
    run = RunValues(values={"f1": np.arange(8) / 8}, questions=tuple("abcdefgh"))
    [table] = runs_tables({"one": [run]}, {"f1": Shown(heading="F1")}, Resampling(n_resamples=50))
    [row] = table.to_dict()["rows"]
    assert row["over runs"] == row["over both"] == "unknown"
    assert row["over questions"]["low"] < row["over questions"]["value"] < row["over questions"]["high"]
    assert any("one run shows nothing about other runs" in note for note in table.notes)


def test_transferred_calibrators_do_what_a_policy_with_them_does_in_replay(small):
    first, second = cells_of(small[0])
    draws = Resampling(n_resamples=50)
    table = transfer_table([first, second], draws)
    row = next(row for row in table.rows if row[:2] == (second.cell.name, first.cell.name))
    borrowed = replace(first.policy, calibrators=second.policy.calibrators, name="borrowed")
    result = replay(first.eval, [borrowed], metrics="f1", baseline=first.policy, resampling=draws)
    assert row[6] == pytest.approx(result.row("borrowed").deltas["f1"].triple)


def test_a_floor_in_the_table_does_what_it_does_in_replay(small):
    cells = cells_of(small[0])
    for cell, row in zip(cells, floor_table(cells, Resampling(n_resamples=50)).rows, strict=True):
        floor = cell.policy.rule.rules[1]
        other = replace(cell.policy, rule=with_threshold(cell.policy.rule, floor, row[5]), name="other")
        swept = [  # no floor at no more calls is better
            replace(cell.policy, rule=with_threshold(cell.policy.rule, floor, float(value)), name=f"swept {value}")
            for value in np.linspace(0, 1, 21)
        ]
        policies = [cell.policy, other, *swept]
        own, best, *found = replay(cell.eval, policies, metrics="f1", resampling=Resampling(n_resamples=2)).rows[:23]
        assert [row.label for row in found] == [policy.name for policy in swept]
        assert (row[2], row[3]) == pytest.approx((own.metrics["f1"], own.calls.mean))
        assert row[6] == pytest.approx(best.metrics["f1"] - own.metrics["f1"])
        assert best.calls.mean <= own.calls.mean + 1e-9
        assert all(
            row.calls.mean > own.calls.mean + 1e-9 or row.metrics["f1"] <= best.metrics["f1"] + 1e-9 for row in found
        )


def test_the_last_point_of_the_learning_curve_is_the_policy_itself(small):
    cells = cells_of(small[0])
    table = curve_table(cells, (8,), 3, Resampling(n_resamples=50))
    for cell, (part, whole) in zip(cells, zip(table.rows[::2], table.rows[1::2], strict=True), strict=True):
        assert part[:2] == (cell.cell.name, 8)
        assert whole[3] == pytest.approx(cell.f1["tasr"].mean())
    order = np.random.default_rng(42).permuted(np.tile(np.arange(16), (1, 1)), axis=1)[0]
    [first, *_] = curve_table(cells[:1], (8,), 1, Resampling(n_resamples=50)).rows
    keep = np.isin(np.arange(16), order[:8])
    policy, _ = calibrate(cells[0].tune.select(keep), rule="tasr", max_rounds=4)
    assert first[3][0] == pytest.approx(replay(cells[0].eval, [policy], metrics="f1").rows[0].metrics["f1"])


def test_a_scripted_model_is_as_accurate_as_stated_and_seeded():
    questions = [Question(question_id=str(i), question=f"q {i}?", answers=(f"a{i}",)) for i in range(800)]
    models = [scripted_model("s", (0.2, 0.6), questions, seed) for seed in (1, 2)]
    said = [[[model._script[q.question][r].answer for q in questions] for r in (1, 2)] for model in models]
    right = [np.mean([a == q.answers[0] for a, q in zip(answers, questions, strict=True)]) for answers in said[0]]
    assert right == pytest.approx([0.2, 0.6], abs=0.06)
    differ = np.mean([a != b for a, b in zip(said[0][1], said[1][1], strict=True)])
    assert 0.01 < differ < 0.2


# Other protocols

DRAFTED = """
protocol = "semantic"
seeds = [1, 2]
max-rounds = 3
resamples = 20

[semantic]
metric = "f1"
tolerance = 0.5

[[model]]
name = "writer"
model = "m"
base-url = "URL"
embedder = "minilm"

[[data]]
name = "towers"
tune = "tune.jsonl"
eval = "eval.jsonl"
"""


def drafted(body):
    """Write something nearer to the gold answer with each revision; the seed decides how near."""
    prompt = prompt_of(body)
    if "Task: review" in prompt:
        return "Say more about the harbour." * (1 + body["seed"])
    noise = zlib.crc32(f"{body['seed']} {prompt}".encode()) % 3
    return ("It is in Oslo", "Oslo", "Lima, by the harbour")[noise]


def test_the_semantic_protocol_runs_from_a_file_and_resumes(tmp_path):
    with Endpoint(drafted) as endpoint:
        path = written(tmp_path, DRAFTED.replace("URL", endpoint.url), n=3)
        dry = cli("run", path, "--dry-run", "--json").json
        assert dry["cells"][0]["calls left"] == "unknown"
        first = cli("run", path, "--json", code=0)
        asked = len(endpoint.requests)
        assert first.json["calls"] >= asked == 2 * 2 * 3 * 3 * 2  # seeds, splits, questions, rounds, writer and critic
        second = cli("run", path)
        assert "nothing was asked" in second.words
        assert len(endpoint.requests) == asked
    titles = [table["title"] for table in first.json["tables"]]
    assert any(title.startswith("Runs: f1 of judge_free") for title in titles)
    assert any("Policies on identical drafts" in title for title in titles)
    page = (tmp_path / "run/index.html").read_text("utf-8")
    assert "Semantic early stopping" in page
    assert page.count("data-chart=") == len(list((tmp_path / "run/figures").glob("*.svg"))) >= 2
    tune, test = (
        read_recording(tmp_path / f"run/cells/writer/towers/bm25/answer_first/seed-1/{split}.parquet")
        for split in ("tune", "eval")
    )
    here = semantic_protocol(
        test, select_eps(tune, "f1", tolerance=0.5), metric="f1", resampling=Resampling(n_resamples=20)
    )
    summary = next(table for table in first.json["tables"] if "Policies on identical drafts" in table["title"])
    row = next(row for row in summary["rows"] if row["policy"] == "judge_free")
    assert row["rounds"] == pytest.approx(here.replayed.rounds["judge_free"].mean())


@pytest.mark.parametrize(
    "key", ["round-zero = true", "prompts = ['confidence_first']", "[[retriever]]\nname = 'r'\ncandidates = 3\n"]
)
def test_what_only_tasr_has_is_an_error_in_another_protocol(key, tmp_path):
    text = DRAFTED.replace("max-rounds = 3", f"max-rounds = 3\n{key}") if "[[" not in key else DRAFTED + key
    with pytest.raises(DataError, match="'semantic'"):
        read_experiment(written(tmp_path, text))


CBDR = """
protocol = "cbdr"
prompts = ["prefilled"]
seeds = [0]
resamples = 20

[cbdr]
cross-encoder = "reranker"

[cbdr.settings]
epochs = [3]
label = "em"
candidates = 4
depths = [1]
betas = [0.5, 1.0]

[cbdr.settings.probe]
hidden = [16]
lr = 1e-3

[cbdr.settings.reranker]
batch = 8

[[model]]
name = "tiny"
model = "tiny"
max-tokens = 8

[[data]]
name = "known"
eval = "tiny/tune.jsonl"
eval-limit = 60
"""


def test_pipeline_settings_come_from_the_file_or_the_defaults(tmp_path):
    for name in ("tiny", "reranker"):
        (tmp_path / name).mkdir()
    (tmp_path / "tiny/tune.jsonl").write_text("{}")
    chosen = read_experiment(written(tmp_path, CBDR)).cbdr
    assert chosen.settings == replace(
        CbdrSettings(),
        epochs=(3,),
        label="em",
        candidates=4,
        depths=(1,),
        betas=(0.5, 1.0),
        probe=replace(CbdrSettings().probe, hidden=(16,), lr=1e-3),
        reranker=replace(CbdrSettings().reranker, batch=8),
    )
    with pytest.raises(SchemaError, match="'hidden'"):
        read_experiment(written(tmp_path, CBDR.replace("hidden", "hiden")))
    with pytest.raises(SchemaError, match="'seed'"):
        read_experiment(written(tmp_path, CBDR.replace('label = "em"', "seed = 3")))
    with pytest.raises(DataError, match="lr is '1'"):
        read_experiment(written(tmp_path, CBDR.replace("1e-3", "'1'")))


def test_a_small_cbdr_set_is_divided_without_unused_parts():
    for n in (12, 20, 40, 80):
        questions = [Question(question_id=str(i), question=f"who made number {i}") for i in range(n)]
        parts = divide(questions, CbdrSettings())
        assert len(parts.probe.train | parts.probe.dev | parts.probe.test) + len(parts.prefer) == n


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*")
@pytest.mark.usefixtures("no_model_cards")
def test_cbdr_runs_from_a_file_and_its_second_run_opens_no_model(tiny_model, tmp_path, monkeypatch):
    (tmp_path / "tiny").symlink_to(tiny_model)
    write_tiny_reranker(tmp_path / "reranker", tiny_model)
    path = written(tmp_path, CBDR)
    before = cli("run", path, "--dry-run", "--json").json["cells"][0]
    first = cli("run", path, "--json", code=0)
    assert (before["recorded"], before["tokens"]) == (0, "unknown")
    assert before["calls left"] > before["questions"] / 2
    titles = [table["title"] for table in first.json["tables"]]
    assert all(any(title.startswith(f"Table {n}") for title in titles) for n in (1, 2, 3))
    assert any(title.startswith("Runs: accuracy") for title in titles)

    def refused(*_, **__):
        raise DataError("a model is opened")

    monkeypatch.setattr(LocalRun, "open", refused)
    second = cli("run", path, code=0)
    assert "nothing was asked: all 1 pipeline were complete" in second.words
    after = cli("run", path, "--dry-run", "--json").json
    assert (after["cells"][0]["calls left"], after["notes"], after["problems"]) == (0, [], [])
    assert after["cells"][0]["recorded"] == after["cells"][0]["questions"] == 60
    changed = path.read_text().replace("betas = [0.5, 1.0]", "betas = [0.7, 1.0]")
    path.write_text(changed, encoding="utf-8")
    assert "opened" in cli("run", path).error  # the gate is evaluated again
    left = cli("run", path, "--dry-run", "--json").json
    assert left["cells"][0]["calls left"] == before["calls left"]
    assert any("1 pipeline was interrupted" in note for table in left["stages"] for note in table["notes"])


@pytest.mark.usefixtures("quick_reader")
def test_the_example_runs_offline(tmp_path):
    text = (Path(__file__).resolve().parents[2] / "examples/small.toml").read_text("utf-8")
    quick = {"max-rounds = 5": "max-rounds = 3\nresamples = 20\ntune-draws = 1", "seeds = [1, 2]": "seeds = [1]"}
    for old, new in quick.items():
        assert old in text
        text = text.replace(old, new)
    few = re.sub(r"-limit = \d+", "-limit = 4", text)
    (tmp_path / "small.toml").write_text(few, encoding="utf-8")
    run = cli("run", tmp_path / "small.toml", "--json", code=0)
    assert "96 calls for 8 of 8 recordings" in run.json["sentence"]
    assert any("22 M parameters" in note for table in run.json["tables"] for note in table["notes"])
    assert any(table["title"].startswith("Transferred calibration") for table in run.json["tables"])
