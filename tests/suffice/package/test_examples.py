"""Every file in examples/ runs, offline."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from suffice_scale.batches.api import rows_of_output
from tests.support.endpoint import Endpoint

pytestmark = pytest.mark.whole

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SAYS = {
    "custom_signal.py": "'shared_words': 1.0} stop",
    "own_loop.py": "answer 'The Danube' of draft 5; rule: (answer_stable >= 1) & (abstained < 1)",
    "tasr_live.py": "answer: The Tempest (round 3), because (answer_stable >= 1) & (p_correct > 0.25)",
}
"""Something that each of them prints."""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs an example in this process and returns its exit code, its output and its errors."""
    for variable in [variable for variable in os.environ if variable.startswith(("OPENAI_", "SUFFICE_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)

    def here(name, **variables):
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        try:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
            code = 0
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return here


def test_every_example_is_known_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        *(*SAYS, "record_and_replay.py", "own_endpoint.py", "drafting.py", "ray_data_llm.py")
    }


def test_what_an_engine_replies_becomes_a_line_of_a_batch(tmp_path):
    example = runpy.run_path(str(EXAMPLES / "ray_data_llm.py"))
    asked = {
        "messages": [{"role": "user", "content": "Where?"}],
        "temperature": 0.0,
        "logprobs": True,
        "top_logprobs": 2,
    }
    row = example["sampling"]({"custom_id": "a", "body": asked | {"max_tokens": 8, "seed": None}})
    assert row["sampling_params"] == {"temperature": 0.0, "max_tokens": 8, "logprobs": 2}
    tops = {
        "7": {"logprob": -0.1, "rank": 1, "decoded_token": "Oslo"},
        "9": {"logprob": -2.5, "rank": 2, "decoded_token": "Rome"},
    }
    reply = {"generated_text": "Oslo", "generated_tokens": [7], "logprobs": [tops], "num_input_tokens": 5}
    path = tmp_path / "requests.output.jsonl"
    path.write_text(example["output_line"](row | reply | {"num_generated_tokens": 1}) + "\n")
    (read,) = rows_of_output(path, "engine")
    assert (read.custom_id, read.error) == ("a", "")
    (token,) = json.loads(read.body)["choices"][0]["logprobs"]["content"]
    assert [(top["token"], top["logprob"]) for top in token["top_logprobs"]] == [("Oslo", -0.1), ("Rome", -2.5)]
    assert json.loads(read.body)["usage"] == {"prompt_tokens": 5, "completion_tokens": 1}


@pytest.mark.parametrize("name", sorted(SAYS))
def test_the_example_runs(name, run, tmp_path):
    code, said, errors = run(name)
    assert (code, errors) == (0, "")
    assert SAYS[name] in said
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


def test_the_example_of_recording_runs(quick_reader, run, tmp_path):
    assert "tasr: f1" in run("record_and_replay.py")[1]
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


def test_the_endpoint_example_runs_against_any_endpoint(run):
    with Endpoint(reply="Answer: Oslo\nConfidence: 4") as endpoint:
        code, said, errors = run("own_endpoint.py", SUFFICE_URL=endpoint.url, SUFFICE_MODEL="m")
    assert code == 0, errors
    assert said.count("'Oslo' (gold ") == 3
    assert said.count("rule at round 2") == 3
    assert len(endpoint.requests) == 6


def test_the_drafting_example_runs_against_any_endpoint(run):
    with Endpoint(reply="Approved") as endpoint:
        code, said, errors = run("drafting.py", SUFFICE_URL=endpoint.url, SUFFICE_MODEL="m")
    assert code == 0, errors
    assert said.count("stopped: rule, critic_approved >= 1") == 2
    assert len(endpoint.requests) == 8


@pytest.mark.parametrize("name", ["own_endpoint.py", "drafting.py"])
def test_the_endpoint_example_says_what_is_missing(name, run):
    code, said, _ = run(name)
    assert code == 2
    assert "set SUFFICE_URL" in said


def test_the_endpoint_example_fails_in_one_line(tmp_path):
    with Endpoint(fault="401") as endpoint:
        command = [sys.executable, "-W", "error", str(EXAMPLES / "own_endpoint.py")]
        environment = {**os.environ, "SUFFICE_URL": endpoint.url}
        done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
