"""What `suffice record` says before it pays and about what it could not read."""

from __future__ import annotations

import pytest

from suffice.store import read_recording
from tests.cli_tools import cli, dataset, question
from tests.endpoint import Endpoint


def record(endpoint, questions, out, *more, command="record"):
    quiet = () if command == "record-drafts" else ("--no-logprobs",)
    address = ("--base-url", endpoint.url, "--model", "m", "--concurrency", "1")
    return cli(command, questions, "-o", out, *address, *quiet, *more)


def bare(number, **fields):
    return {name: value for name, value in question(number).items() if name != "answers"} | fields


@pytest.mark.parametrize("command", ["record", "record-drafts"])
def test_questions_without_gold_answers_are_told_before_the_first_paid_call(command, tmp_path):
    none = dataset(tmp_path / "none.jsonl", *(bare(i, anwser="Oslo") for i in range(3)))
    some = dataset(tmp_path / "some.jsonl", bare(0), bare(1, answer="Lima"))
    every = dataset(tmp_path / "every.jsonl", bare(0, answer="Oslo"), bare(1, gold=["Lima"]))
    with Endpoint(fault="401") as endpoint:
        told = record(endpoint, none, tmp_path / "a", command=command).error
        assert told.index("none of these 3 questions has a gold answer") < told.index("401")
        assert "agreement" in told
        assert "anwser (3)" in told
        assert "only 1 of these 2" in record(endpoint, some, tmp_path / "b", command=command).error
        told = record(endpoint, every, tmp_path / "c", command=command).error
    assert "gold" not in told
    assert "not read" not in told


def test_gold_answers_of_another_name_are_scored(tmp_path):
    questions = dataset(tmp_path / "q.jsonl", bare(0, answer="Oslo"), bare(1, target="Lima"))
    with Endpoint("Answer: Oslo\nConfidence: 3") as endpoint:
        done = record(endpoint, questions, tmp_path / "r.parquet", "--max-rounds", 1)
    assert (done.code, done.err) == (0, "")
    assert read_recording(tmp_path / "r.parquet").column("em")[:, 0].tolist() == [1.0, 0.0]
