"""Marks for the rounds of a recording: once each, paid for once, complete or not written."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import zlib

import numpy as np
import pytest

from suffice import Passage, Round, read_recording
from suffice.errors import AuthenticationFailedError, DataError, ModelError
from suffice.loops.judges import JudgeModel, Panel, drafts_of, judge_recording, with_marks
from suffice.loops.models import ChatModel
from suffice.policy.signals import SIGNALS
from suffice.recordings import ResponseCache, write_recording
from tests.support.cli_tools import cli, dataset
from tests.support.endpoint import Endpoint, prompt_of

ANSWERS = {"q0": ["Oslo", "Bergen", "Oslo"], "q1": ["Lima", "Lima", None], "q2": ["Oslo"]}


def question(name):
    paragraphs = [{"title": f"T{i}", "text": f"Text {i} of {name}."} for i in range(3)]
    return {"id": name, "question": f"Where is {name}?", "answers": ["Oslo"], "paragraphs": paragraphs}


PASSAGES = {
    f"{name}#{i}": Passage(passage_id=f"{name}#{i}", title=f"T{i}", text=f"Text {i} of {name}.")
    for name in ANSWERS
    for i in range(3)
}


@pytest.fixture
def path(tmp_path):
    """Three questions with three rounds, two and one; the passages are the same in all rounds of a question."""
    rows = [
        {
            "question_id": name,
            "round": r,
            "question": f"Where is {name}?",
            "golds": ["Oslo"],
            "answer": answer,
            "passage_ids": [f"{name}#0", f"{name}#1"],
            "end": "max_rounds",
            "cost.writer.calls": 1.0,
        }
        for name, answers in ANSWERS.items()
        for r, answer in enumerate(answers, 1)
    ]
    write_recording(tmp_path / "r.parquet", rows, {"config": {"writer": "w"}})
    dataset(tmp_path / "q.jsonl", *map(question, ANSWERS))
    return tmp_path / "r.parquet"


def grade(body):
    """Reply in every shape at once, by a pure function of the prompt."""
    noise = zlib.crc32(prompt_of(body).encode())
    return json.dumps(
        {
            "statements": [{"statement": "s", "supported": bool(noise >> i & 1)} for i in range(4)],
            "mark": noise % 5,
            "passages": [{"number": i, "useful": bool(noise >> i & 1)} for i in (1, 2)],
        }
    )


def moody():
    """Return a judge that changes its mind with every call."""
    counter = itertools.count()
    return lambda body: json.dumps({"mark": next(counter) % 2 + 2, "reason": ""})


def run(path, endpoint, cache=None, marks=("faithfulness", "answer_relevancy"), passages=PASSAGES, **options):
    model = JudgeModel(ChatModel("j", base_url=endpoint.url, max_retries=0, timeout_s=600), cache=cache)
    panel = Panel(model, marks)
    recording = read_recording(path)
    options = {"rng": np.random.default_rng(0)} | options
    return recording, panel, asyncio.run(judge_recording(recording, panel, passages=passages, **options))


def test_each_distinct_draft_is_judged_once_and_paid_at_first(path):
    with Endpoint(grade) as endpoint:
        _, panel, judged = run(path, endpoint)
        prompts = [request.prompt for request in endpoint.requests]
    assert (
        len(prompts) == len(set(prompts)) == judged.requests_sent == 8
    )  # q0: Oslo, Bergen; q1: Lima; q2: Oslo; two marks
    assert judged.columns[f"cost.{panel.name}.calls"] == [2, 2, 0, 2, 0, 0, 2]
    marks = judged.columns["faithfulness"]
    assert marks[0] == marks[2]
    assert marks[3] == marks[4]
    assert math.isnan(marks[5])
    assert judged.parts[0].notes == {"no draft": 1}


def test_marks_are_recorded_metrics_and_rules_that_read_them_pay(path, tmp_path):
    with Endpoint(grade) as endpoint:
        recording, panel, judged = run(path, endpoint)
    table, metadata = with_marks(recording, judged, panel)
    write_recording(tmp_path / "out.parquet", table, metadata)
    read = read_recording(tmp_path / "out.parquet")
    assert set(read.names("metric")) >= {"faithfulness", "answer_relevancy", "information_score"}
    assert "information_gain" in read.names("signal")
    assert f"cost.{panel.name}.output_tokens" in read.names("cost")
    assert read.metadata["config"] == {"writer": "w"}
    assert read.metadata["signal_components"]["faithfulness"] == panel.name == "judge:information_score"
    assert read.metadata["judges"][panel.name]["fingerprint"]["model"] == "j"
    known = ~np.isnan(read.column("information_score"))
    mean = (read.column("faithfulness") + read.column("answer_relevancy")) / 2
    assert read.column("information_score")[known] == pytest.approx(mean[known])
    replayed = cli(
        "replay", tmp_path / "out.parquet", "--metric", "information_score",
        "--rule", "information_score >= 0.7", "--rule", "faithfulness >= 0.9", "--json",
    )  # fmt: skip
    assert replayed.code == 0, replayed


def test_the_gain_is_that_of_the_signal(path):
    with Endpoint(grade) as endpoint:
        recording, _, judged = run(path, endpoint)
    score, gain = judged.columns["information_score"], judged.columns["information_gain"]
    rows = recording.table.select(["question_id", "round"]).to_pylist()
    for name in ANSWERS:
        seen = []
        for place, row in enumerate(rows):
            if row["question_id"] == name:
                seen.append(Round(index=row["round"], answer="x", signals={"information_score": score[place]}))
                expected = SIGNALS["information_gain"].compute(tuple(seen))
                assert gain[place] == expected or (math.isnan(gain[place]) and math.isnan(expected))


def test_judging_again_replaces_the_columns_and_another_mark_adds_its_own(path, tmp_path):
    out = tmp_path / "out.parquet"
    with Endpoint(grade) as endpoint, ResponseCache(tmp_path / "c.sqlite") as cache:
        for source, marks in (
            (path, ("faithfulness", "answer_relevancy")),
            (out, ("faithfulness", "answer_relevancy")),
            (out, ("context_recall",)),
        ):
            recording, panel, judged = run(source, endpoint, cache, marks)
            write_recording(out, *with_marks(recording, judged, panel))
        assert len(endpoint.requests) == 8 + 3
    read = read_recording(out)
    assert len(set(read.table.column_names)) == len(read.table.column_names)
    assert set(read.metadata["judges"]) == {"judge:information_score", "judge:context_recall"}
    assert read.metadata["signal_components"]["context_recall"] == "judge:context_recall"
    assert read.column("cost.judge:context_recall.calls")[0].tolist() == [1, 0, 0]


def test_a_judge_that_replies_prose_leaves_marks_undefined_and_says_how_many(path):
    with Endpoint("Fine!") as endpoint:
        _, panel, judged = run(path, endpoint)
    assert all(math.isnan(mark) for mark in judged.columns["information_score"])
    assert judged.parts[0].notes == {"the judge's reply is not JSON": 6, "no draft": 1}
    assert math.isnan(judged.parts[0].mean)
    assert judged.failed == ()
    assert judged.columns[f"cost.{panel.name}.calls"][0] == 6, "prose is paid for, too"
    assert (judged.repeated, judged.unreadable) == (8, 1.0)


def sometimes_prose(body):
    """Reply as `grade` does, but in prose to some prompts that end without a reminder."""
    prompt = prompt_of(body)
    stubborn = "Lima" in prompt and not prompt.endswith("alone.")
    return "Looks fine." if stubborn else grade(body)


def test_a_judge_that_is_unreadable_now_and_then_loses_no_question(path, tmp_path):
    with Endpoint(sometimes_prose) as endpoint, ResponseCache(tmp_path / "c.sqlite") as cache:
        _, panel, judged = run(path, endpoint, cache)
        sent = len(endpoint.requests)
        run(path, endpoint, cache)
        assert len(endpoint.requests) == sent
    assert judged.repeated == sent - 8 > 0
    assert judged.unreadable == 0
    assert [part.notes for part in judged.parts[:2]] == [{"no draft": 1}] * 2
    assert sum(judged.columns[f"cost.{panel.name}.calls"]) == sent


def test_the_command_reports_questions_the_judge_lost_and_can_repeat_them(path, tmp_path):
    arguments = ("judge", "drafts", path, "--model", "j", "--set=marks=answer_relevancy", "-o", tmp_path / "o.parquet")
    moods = ["curt"]
    with Endpoint(lambda body: "Fine." if moods[-1] == "curt" else grade(body)) as endpoint:
        arguments += ("--base-url", endpoint.url, "--set=attempts=2")
        told = cli(*arguments)
        assert len(endpoint.requests) == 8
        assert "WARNING: in 100.0% of the questions" in told.out.replace("\n", " ")
        assert "--set retry-unreadable=true" in told.words
        assert "4 requests took more than one reply" in told.out
        moods.append("willing")
        assert cli(*arguments, "--json").json["asked"] == 0
        told = cli(*arguments, "--set=retry-unreadable=true", "--json").json
        assert (told["asked"], told["repeated"], told["unreadable"]) == (4, 4, 0.0)


def test_evidence_that_is_not_known_whole_is_none(path):
    partly = {name: text for name, text in PASSAGES.items() if name != "q0#1"}
    drafts = drafts_of(read_recording(path), partly)
    assert drafts[0].contexts == ()
    assert len(drafts[3].contexts) == 2
    with Endpoint(grade) as endpoint:
        _, _, judged = run(path, endpoint, passages=None)
    assert judged.parts[0].notes == {"no contexts": 6, "no draft": 1}
    assert judged.parts[1].rounds == 6
    assert judged.parts[2].notes == {"a mark is undefined": 7}


def test_a_failure_loses_nothing_that_was_paid_for(path, tmp_path):
    with (
        Endpoint(grade, fault=[None, "500", None, "503", "drop"]) as endpoint,
        ResponseCache(tmp_path / "c.sqlite") as c,
    ):
        recording, panel, judged = run(path, endpoint, c, concurrency=1)
        assert len(judged.failed) == 3
        with pytest.raises(DataError, match="3 calls"):
            with_marks(recording, judged, panel)
        assert len(c) == 5
        _, _, again = run(path, endpoint, c)
        assert len(endpoint.requests) == 8 + 3
    assert (again.failed, again.requests_sent) == ((), 3)
    with Endpoint(grade) as endpoint:
        _, _, whole = run(path, endpoint)
    assert again.columns["faithfulness"][:5] == whole.columns["faithfulness"][:5]


def test_one_refused_draft_is_undefined_and_all_refused_is_an_error(path, tmp_path):
    def picky(body):
        if "Bergen" in prompt_of(body):
            return {"error": {"code": 400, "message": "content filter"}}
        return grade(body)

    with Endpoint(picky) as endpoint, ResponseCache(tmp_path / "c.sqlite") as cache:
        for _ in range(2):
            _, _, judged = run(path, endpoint, cache)
            assert judged.failed == ()
            assert math.isnan(judged.columns["faithfulness"][1])
            assert judged.parts[0].notes == {"the endpoint refused": 1, "no draft": 1}
    with Endpoint(fault="404") as endpoint, pytest.raises(ModelError, match="such model"):
        run(path, endpoint)


def test_a_wrong_key_ends_the_run_at_once(path):
    with Endpoint(grade, fault="401") as endpoint:
        with pytest.raises(AuthenticationFailedError):
            run(path, endpoint, concurrency=1)
        assert len(endpoint.requests) <= 2


def test_repeats_measure_the_noise_and_are_paid_for_apart(path, tmp_path):
    with Endpoint(moody()) as endpoint, ResponseCache(tmp_path / "c.sqlite") as cache:
        recording, panel, judged = run(path, endpoint, cache, ("answer_relevancy",), repeats=3, sample=2, concurrency=1)
        assert len(endpoint.requests) == 4 + 2 * 2
        again = run(path, endpoint, cache, ("answer_relevancy",), repeats=3, sample=2)[2]
        assert len(endpoint.requests) == 8
    noise = judged.parts[0].noise
    assert (noise.drafts, noise.repeats) == (2, 3)
    assert 0 < noise.difference <= 0.25
    assert again.parts[0].noise == noise
    assert judged.repeats_cost.calls == 4
    assert sum(judged.columns[f"cost.{panel.name}.calls"]) == 4
    assert with_marks(recording, judged, panel)[1]["judges"][panel.name]["marks"][0]["noise"]["repeats"] == 3


def test_a_steady_judge_has_no_noise_and_the_score_has_its_own(path):
    with Endpoint(grade) as endpoint:
        judged = run(path, endpoint, repeats=2)[2]
    assert [part.mark for part in judged.parts] == ["faithfulness", "answer_relevancy", "information_score"]
    for part in judged.parts:
        assert (part.noise.equal, part.noise.difference, part.noise.sd, part.noise.drafts) == (1, 0, 0, 4)


@pytest.mark.parametrize("options", [{"repeats": 0}, {"sample": 0}, {"concurrency": 0}])
def test_numbers_out_of_range_are_refused(path, options):
    with Endpoint(grade) as endpoint, pytest.raises(DataError, match="least 1"):
        run(path, endpoint, **options)


# The command


def judge(path, endpoint, out, *more):
    dataset = ("--dataset", path.with_name("q.jsonl"))
    return cli("judge", "drafts", path, "--base-url", endpoint.url, "--model", "j", "-o", out, *dataset, *more)


def test_the_command_adds_the_marks_and_prints_the_noise_beside_them(path, tmp_path):
    out = tmp_path / "out.parquet"
    with Endpoint(grade) as endpoint:
        done = judge(path, endpoint, out, "--set=repeat=2", "--set=sample=3")
        assert done.code == 0, done
        count = len(endpoint.requests)
        told = judge(path, endpoint, out, "--set=repeat=2", "--set=sample=3", "--json").json
        assert len(endpoint.requests) == count, "nothing is asked twice"
    assert "information_score" in done.out
    assert "2 marks of one draft" in done.out
    assert (told["asked"], told["failed"]) == (0, [])
    assert told["marks"][0]["noise"]["equal"] == 1
    read = read_recording(out)
    assert np.isfinite(read.column("information_score")[0]).all()
    assert (tmp_path / "out.parquet.judged.sqlite").exists()


def test_the_command_says_that_noise_was_not_measured(path, tmp_path):
    with Endpoint(grade) as endpoint:
        done = judge(path, endpoint, tmp_path / "o.parquet", "--set=marks=answer_relevancy")
    assert "noise was not measured" in done.out


def test_the_command_goes_on_where_a_failure_stopped_it(path, tmp_path):
    out = tmp_path / "out.parquet"
    with Endpoint(grade, fault=["401"]) as endpoint:
        assert "key" in judge(path, endpoint, out, "--set=concurrency=1").error
    with Endpoint(grade, fault=[None, "half", None, "half"]) as endpoint:
        failed = judge(path, endpoint, out, "--set=marks=answer_relevancy")
        assert failed.code == 1
        assert "run the same command again" in failed.out.replace("\n", " ")
        assert not out.exists()
        assert judge(path, endpoint, out, "--set=marks=answer_relevancy").code == 0
        assert len(endpoint.requests) == 4 + 2
    assert out.exists()


def test_weights_of_ones_own_and_wrong_options(path, tmp_path):
    with Endpoint(grade) as endpoint:
        out = tmp_path / "o.parquet"
        two = ("--set=marks=faithfulness,answer_relevancy", "--set")
        assert judge(path, endpoint, out, *two, "weights=faithfulness=1").code == 0
        read = read_recording(out)
        assert read.column("information_score")[0].tolist() == read.column("faithfulness")[0].tolist()
        assert "MARK=WEIGHT" in judge(path, endpoint, out, *two, "weights=faithfulness").error
        assert "add up" in judge(path, endpoint, out, *two, "weights=faithfulness=2").error
        assert "unknown mark 'truth'" in judge(path, endpoint, out, "--set=marks=truth").error
    assert "reads spans" in cli("judge", "drafts", path, "--model", "span-reader", "-o", tmp_path / "o.parquet").error


@pytest.mark.parametrize("repeat", [1, 3])
def test_shards_judge_what_one_process_judges(path, tmp_path, repeat):
    more = (f"--set=repeat={repeat}", "--set=sample=2")
    with Endpoint(grade, usage="plain") as endpoint:
        one = judge(path, endpoint, tmp_path / "one.parquet", *more)
        alone = len(endpoint.requests)
        for shard in ("2/3", "1/3", "3/3", "2/3"):
            result = judge(path, endpoint, tmp_path / "many.parquet", *more, "--shard", shard)
            assert "the same command without --shard" in result.words
        assert len(endpoint.requests) == 2 * alone
        assert not (tmp_path / "many.parquet").exists()
        many = judge(path, endpoint, tmp_path / "many.parquet", *more)
        assert len(endpoint.requests) == 2 * alone
    assert (one.code, many.code) == (0, 0)
    marked, together = read_recording(tmp_path / "one.parquet"), read_recording(tmp_path / "many.parquet")
    assert together.metadata["judges"] == marked.metadata["judges"]
    for name in marked.table.column_names:
        if not name.endswith(".seconds"):
            assert together.table.column(name).to_pylist() == marked.table.column(name).to_pylist(), name
    assert not list(tmp_path.glob("many.parquet.part-*"))
    refused = judge(path, endpoint, tmp_path / "o.parquet", "--shard", "1/2", f"--set=cache={tmp_path / 'c.sqlite'}")
    assert "each shard" in refused.error


def test_a_shard_whose_calls_fail_says_so_and_goes_on(path, tmp_path):
    with Endpoint(grade, fault="503", retry_after="0.01") as endpoint:
        failed = judge(path, endpoint, tmp_path / "o.parquet", "--shard", "1/1")
        assert failed.code == 1
        assert "failed" in failed.words
        endpoint._fault = lambda _: None
        assert judge(path, endpoint, tmp_path / "o.parquet", "--shard", "1/1").code == 0
