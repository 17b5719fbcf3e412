"""`suffice sample answer` and `suffice sample record`, against a scripted endpoint."""

from __future__ import annotations

import json

import pytest

from suffice import Policy, read_recording
from tests.support.cli_tools import cli, corpus, dataset
from tests.support.endpoint import Endpoint
from tests.support.sampling import SAMPLES, TOWER, VOTES, reply, sample_of, several


@pytest.fixture
def endpoint():
    with Endpoint(reply, usage="plain") as running:
        yield running


def at(endpoint, model="m"):
    return ("--model", model, "--base-url", endpoint.url)


def tower(path, n=3):
    """Write questions that bring no passages."""
    lines = [{"id": f"q{i}", "question": f"Where is tower {i}?", "answers": ["Oslo"]} for i in range(n)]
    return dataset(path, *lines)


def test_one_question_is_sampled_until_the_vote_is_settled(endpoint):
    shown = cli("sample", "answer", TOWER, *at(endpoint), "--rule", "lead(2)", "--json").json
    assert (shown["stop_round"], shown["reason"], shown["fired"]) == (5, "rule", "vote_lead >= 2")
    assert [r["answer"] for r in shown["rounds"]] == list(VOTES[:5])
    assert shown["costs"]["generator"]["calls"] == len(endpoint.requests) == 5
    assert shown["cancelled"] == 0
    shown = cli("sample", "answer", TOWER, *at(endpoint), "--samples", 3, "--rule", "never()")
    assert "answer   Oslo" in shown.out
    assert "cost     calls: 3 generator" in shown.out
    assert "next: suffice sample record" in shown.out


def test_what_a_wave_requested_beyond_the_stop_is_shown():
    with Endpoint("Answer: Oslo", holds=lambda body: sample_of(body)[1] == 3) as endpoint:
        told = cli("sample", "answer", TOWER, *at(endpoint), "--rule", "lead(2)", "--set=wave=3")
        shown = cli("sample", "answer", TOWER, *at(endpoint), "--rule", "lead(2)", "--set=wave=3", "--json").json
    assert "note: requested beyond the stop: 1 sample, 1 cancelled in flight, whose tokens are unknown" in told.words
    assert "calls: 2 generator, 1 surplus; - tokens" in told.out
    assert shown["cancelled"] == 1
    assert shown["costs"]["surplus"] == {
        "calls": 1.0,
        "uncached_tokens": None,
        "cached_tokens": None,
        "output_tokens": None,
        "seconds": 0.0,
    }


def test_a_policy_file_decides_and_says_everything_else(endpoint, tmp_path):
    policy = Policy(rule="lead(2)", selector="majority_of_samples", max_rounds=SAMPLES)
    policy.save(tmp_path / "p.json")
    arguments = ("sample", "answer", TOWER, *at(endpoint), "--policy", tmp_path / "p.json")
    assert cli(*arguments, "--json").json["stop_round"] == 5
    for name, *words in (
        ("--rule", "--rule", "lead(3)"),
        ("--selector", "--selector", "last"),
        ("--samples", "--samples", 3),
        ("normalizer", "--set=normalizer=number"),
        ("answer-position", "--set=answer-position=start"),
    ):
        refused = cli(*arguments, *words, code=2)
        assert name in refused.error


def test_contexts_choices_seeds_and_temperature_reach_the_endpoint(tmp_path):
    folder = corpus(tmp_path / "docs")
    with Endpoint(several) as endpoint:
        told = cli(
            *("sample", "answer", TOWER, *at(endpoint), "--contexts", folder, "--samples", 6, "--rule", "never()"),
            *("--set=wave=3", "--set=use-n=true", "--set=temperature=1.1", "--json"),
        ).json
        assert [request.body["n"] for request in endpoint.requests] == [3, 3]
        assert {request.body["temperature"] for request in endpoint.requests} == {1.1}
        assert all("Passage 1" in request.prompt for request in endpoint.requests)
        assert told["costs"]["generator"]["calls"] == pytest.approx(2)
    with Endpoint("Answer: Oslo") as endpoint:
        arguments = (*at(endpoint, "a,b"), "--prompt", "answer_first,no_confidence", "--set=no-seed=true", "--json")
        shown = cli("sample", "answer", TOWER, *arguments).json
        assert [r["labels"]["model"] for r in shown["rounds"]] == ["a", "b", "a"]
        assert [r["labels"]["prompt_id"] for r in shown["rounds"]] == ["answer_first@1"] * 2 + ["no_confidence@1"]
        assert [request.body["model"] for request in endpoint.requests] == ["a", "b", "a"]
        assert all("seed" not in request.body for request in endpoint.requests)
        assert endpoint.requests[0].prompt == endpoint.requests[1].prompt != endpoint.requests[2].prompt


def test_what_cannot_work_is_refused_before_the_first_call(endpoint, tmp_path):
    for arguments, message in (
        (("--set=temperature=0",), "10 samples at temperature 0, which are all equal"),
        (("--selector", "last"), "returns the last sample"),
        (("--set=use-n=true",), "give wave=N"),
        (("--set=normalizer=nubmer",), "did you mean 'number'"),
        (("--rule", "weighted_vote_lead >= 2"), "calibrator"),
        (("--set=wave=0",), "wave"),
    ):
        refused = cli("sample", "answer", TOWER, *at(endpoint), *arguments)
        assert refused.code in (1, 2), arguments
        assert message.lower() in " ".join(refused.error.split()).lower(), arguments
    assert "same answer" in cli("sample", "answer", TOWER, "--model", "span-reader").error
    assert "needs an endpoint" in cli("sample", "answer", TOWER, "--model", "m").error
    out = tmp_path / "r.parquet"
    file = tower(tmp_path / "q.jsonl")
    assert "at temperature 0" in cli("sample", "record", file, "-o", out, *at(endpoint), "--set=temperature=0").error
    assert endpoint.requests == []


def test_samples_are_recorded_and_replayed(endpoint, tmp_path):
    file, out = tower(tmp_path / "q.jsonl"), tmp_path / "r.parquet"
    arguments = ("sample", "record", file, "-o", out, *at(endpoint), "--samples", SAMPLES, "--set=wave=4")
    told = cli(*arguments, "--json")
    assert (told.json["questions"], told.json["rounds"], told.json["calls"]) == (3, 24, 24)
    assert "answers are compared as 'qa', which reads all gold answers" in told.err
    assert cli(*arguments, "--json").json["calls"] == 0
    recording = read_recording(out)
    assert recording.exchangeable
    shown = cli("replay", out, "--baseline", "full", "--json").json
    assert {"lead(3)", "adaptive_consistency"} <= {row["label"] for row in shown["rows"]}
    waves = cli("replay", out, "--baseline", "full", "--set=wave=4", "--json").json
    calls = [{row["label"]: row["calls"]["mean"] for row in rows["rows"]} for rows in (shown, waves)]
    assert calls[0]["lead(3)"] < calls[1]["lead(3)"] <= SAMPLES
    assert any("4 at once" in note for note in waves["notes"])


def test_a_panel_is_recorded_and_replayed_with_the_prices_of_its_models(endpoint, tmp_path):
    file, out, prices = tower(tmp_path / "q.jsonl"), tmp_path / "r.parquet", tmp_path / "prices.json"
    price = {"uncached": 1.0, "cached": 1.0, "output": 1.0}
    prices.write_text(json.dumps({"gpt-1.5": price, "org/dear": dict.fromkeys(price, 10.0)}))
    arguments = ("-o", out, *at(endpoint, "gpt-1.5,gpt-1.5,org/dear"), "--samples", 6)
    told = cli("sample", "record", file, *arguments, "--prices", prices, "--json").json
    recording = read_recording(out)
    tokens = sum(
        recording.column(f"cost.generator.{kind}") for kind in ("uncached_tokens", "cached_tokens", "output_tokens")
    )
    usd = (tokens * [1, 1, 10, 1, 1, 10]).sum() / 1e6
    assert told["usd"] == pytest.approx(usd)
    shown = cli("replay", out, "--rule", "never()", "--prices", prices, "--baseline", "full", "--json").json
    row = next(row for row in shown["rows"] if row["label"] == "never()")
    assert row["costs"]["money"] == pytest.approx(usd / 3)
    assert "majority_of_samples" in str(row)
    assert "'generator:gpt-1.5'" in cli("replay", out, "--prices", "list").error


def test_samples_reason_before_they_answer_unless_another_prompt_is_given():
    thought = "The tower has a name.\nThe name is of a city in Norway.\nAnswer: Oslo"
    with Endpoint(thought) as endpoint:
        shown = cli("sample", "answer", TOWER, *at(endpoint), "--samples", 1, "--json").json
        assert "step by step" in endpoint.requests[0].prompt
        assert endpoint.requests[0].body["max_tokens"] == 512
    assert (shown["answer"], shown["rounds"][0]["labels"]["prompt_id"]) == ("Oslo", "step_by_step@1")


def test_a_data_sets_passages_are_contexts_unless_closed_book(tmp_path):
    file = dataset(tmp_path / "q.jsonl", n=1)
    with Endpoint("Answer: Oslo") as endpoint:
        cli("sample", "record", file, "-o", tmp_path / "a.parquet", *at(endpoint), "--samples", 1)
        assert "Passage 5" in endpoint.requests[0].prompt
        cli(
            "sample",
            "record",
            file,
            "-o",
            tmp_path / "b.parquet",
            *at(endpoint),
            "--samples",
            1,
            "--set=closed-book=true",
        )
        assert "Passage" not in endpoint.requests[1].prompt.partition("Question:")[2]


def test_each_model_of_a_panel_may_have_an_endpoint_of_its_own(tmp_path):
    data = tower(tmp_path / "q.jsonl", n=2)
    with Endpoint("Answer: Oslo") as first, Endpoint("Answer: Lima") as second:
        models = f"a,b@{second.url},a"
        arguments = ("-o", tmp_path / "s.parquet", "--samples", 3, "--json")
        cli("sample", "record", data, "--model", models, "--base-url", first.url, *arguments, code=0)
        assert [{request.body["model"] for request in at.requests} for at in (first, second)] == [{"a"}, {"b"}]
        assert (len(first.requests), len(second.requests)) == (4, 2)
        answers = read_recording(tmp_path / "s.parquet").table["answer"].to_pylist()
        assert answers == ["Oslo", "Lima", "Oslo"] * 2
        one = ("sample", "answer", TOWER, "--samples", 2, "--model")
        alone = cli(*one, f"b@{second.url}", "--json")
        assert alone.json["answer"] == "Lima"
        refused = cli(*one, f"a@{first.url},a@{second.url}")
        assert "two endpoints" in refused.error
