"""`suffice search` on the command line."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from suffice.evaluation.search import search
from suffice.evaluation.statistics import Resampling
from suffice.policy.session import Policy
from suffice.recordings import read_recording, write_recording
from tests.suffice.evaluation.test_search import rows_of
from tests.support.cli_tools import cli


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    for name, seed in (("tune", 1), ("eval", 2)):
        write_recording(folder / f"{name}.parquet", rows_of(40, seed=seed, prefix=name))
    return folder


def test_the_command_prints_what_the_function_finds(recordings, tmp_path):
    arguments = ["search", recordings / "eval.parquet", "--tune", recordings / "tune.parquet", "--set=resamples=50"]
    files = ["-o", tmp_path / "rules.parquet", "--policy", tmp_path / "policy.json"]
    found = cli(*arguments, "--json", *files)
    assert (found.code, found.err) == (0, "")
    result = search(
        read_recording(recordings / "eval.parquet"),
        tune=read_recording(recordings / "tune.parquet"),
        resampling=Resampling(n_resamples=50),
    )
    assert found.json == json.loads(json.dumps(result.to_dict()))
    assert pq.read_table(tmp_path / "rules.parquet").num_rows == found.json["n_distinct"] == len(result.distinct)
    assert str(Policy.load(tmp_path / "policy.json").rule) == found.json["selected_on_tune"]["rule"]
    plain = cli(*arguments, *files, "--details", code=0)
    for words in ("selected here", "nested, selected on 40 tune", "cross-fitted", "tasr", "written to"):
        assert words in plain.out


def test_a_policy_says_selected_here_on_tune_and_not_on_eval(recordings, tmp_path):
    cli("search", recordings / "eval.parquet", "--tune", recordings / "tune.parquet", "--policy", tmp_path / "p.json")
    for name, selected in (("tune", True), ("eval", False)):
        replayed = cli("replay", recordings / f"{name}.parquet", "--policy", tmp_path / "p.json", "--json")
        assert replayed.json["rows"][0]["selected_here"] is selected
    about = Policy.load(tmp_path / "p.json").provenance["search"]
    assert about["n_rules"] == 202  # Bell(6) - 1, five signals
    assert about["selected_on"] == "tune"


def test_patience_and_rounds_replace_those_of_the_space(recordings, tmp_path):
    (tmp_path / "one.toml").write_text(
        '[[blocks]]\nform = "or"\n[[blocks.literals]]\nsignal = "overlap"\nthresholds = [0.3, 0.5]\n'
    )
    arguments = ["search", recordings / "eval.parquet", "--space", tmp_path / "one.toml", "--json", "--set=resamples=0"]
    assert cli(*arguments).json["n_rules"] == 2
    assert cli(*arguments, "--set=patience=1", "--set=patience=2", "--max-rounds", 3).json["n_rules"] == 4
    assert "round 9" in cli(*arguments, "--max-rounds", 9).error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--space", "nothing"], "there is no space 'nothing'"),
        (["--space", "nothing.toml"], "cannot be read"),
        (["--space", "tasr-dnf-876"], "needs the columns calibrated_confidence, and"),
        (["--set=tune-share=1.5"], "allowed: between 0 and 1"),
        (["--metric", "rouge"], "no metric 'rouge'"),
        (["--baseline", "nonsense"], "is not a rule"),
        (["--budget", "0.1", "--policy", "p.json"], "no rule needs at most 0.1 mean calls on tune"),
    ],
)
def test_wrong_input_says_what_is_wrong(recordings, arguments, message):
    assert message in cli("search", recordings / "eval.parquet", *arguments).error


def test_a_search_is_the_same_every_time_and_another_with_another_seed(recordings):
    arguments = ["search", recordings / "eval.parquet", "--set=resamples=50", "--json"]
    first = cli(*arguments)
    assert first.out == cli(*arguments).out
    assert np.array_equal(first.json["n"], 40 - first.json["n_tune"])
    assert first.out != cli(*arguments, "--set=seed=1").out
