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


def run(name, folder, **variables):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "SUFFICE_"))}
    return subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        check=False,
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=1800,
    )


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
def test_the_example_runs(name, tmp_path):
    done = run(name, tmp_path)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert SAYS[name] in done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


def test_the_example_of_recording_runs(quick_reader, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "record_and_replay.py"), run_name="__main__")
    assert "tasr: f1" in capsys.readouterr().out
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


def test_the_endpoint_example_runs_against_any_endpoint(tmp_path):
    with Endpoint(reply="Answer: Oslo\nConfidence: 4") as endpoint:
        done = run("own_endpoint.py", tmp_path, SUFFICE_URL=endpoint.url, SUFFICE_MODEL="m")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("'Oslo' (gold ") == 3
    assert done.stdout.count("rule at round 2") == 3
    assert len(endpoint.requests) == 6


def test_the_drafting_example_runs_against_any_endpoint(tmp_path):
    with Endpoint(reply="Approved") as endpoint:
        done = run("drafting.py", tmp_path, SUFFICE_URL=endpoint.url, SUFFICE_MODEL="m")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("stopped: rule, critic_approved >= 1") == 2
    assert len(endpoint.requests) == 8


@pytest.mark.parametrize("name", ["own_endpoint.py", "drafting.py"])
def test_the_endpoint_example_says_what_is_missing(name, tmp_path):
    done = run(name, tmp_path)
    assert done.returncode == 2
    assert "set SUFFICE_URL" in done.stdout


def test_the_endpoint_example_fails_in_one_line(tmp_path):
    with Endpoint(fault="401") as endpoint:
        done = run("own_endpoint.py", tmp_path, SUFFICE_URL=endpoint.url)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
