"""What `suffice record` says before it pays and about what it could not read."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.recordings import read_recording
from tests.support import local_models
from tests.support.cli_tools import cli, dataset, question
from tests.support.endpoint import Endpoint


def record(endpoint, questions, out, *more, command=("record",)):
    quiet = () if command == ("draft", "record") else ("--set=logprobs=false",)
    address = ("--base-url", endpoint.url, "--model", "m", "--set=concurrency=1")
    return cli(*command, questions, "-o", out, *address, *quiet, *more)


def bare(number, **fields):
    return {name: value for name, value in question(number).items() if name != "answers"} | fields


@pytest.mark.parametrize("command", [("record",), ("draft", "record")])
def test_questions_without_gold_answers_are_told_before_the_first_paid_call(command, tmp_path):
    none = dataset(tmp_path / "none.jsonl", *(bare(i, anwser="Oslo") for i in range(3)))
    some = dataset(tmp_path / "some.jsonl", bare(0), bare(1, answer="Lima"))
    every = dataset(tmp_path / "every.jsonl", bare(0, answer="Oslo"), bare(1, gold=["Lima"]))
    with Endpoint(fault="401") as endpoint:
        told = record(endpoint, none, tmp_path / "a", command=command).error
        assert told.index("none of these 3 questions has a gold answer") < told.index("answered 401")
        assert "agreement" in told
        assert "anwser (3)" in told
        assert "only 1" in record(endpoint, some, tmp_path / "b", command=command).error
        told = record(endpoint, every, tmp_path / "c", command=command).error
    assert "gold" not in told
    assert "not read" not in told


def test_gold_answers_of_another_name_are_scored(tmp_path):
    questions = dataset(tmp_path / "q.jsonl", bare(0, answer="Oslo"), bare(1, target="Lima"))
    with Endpoint("Answer: Oslo\nConfidence: 3") as endpoint:
        done = record(endpoint, questions, tmp_path / "r.parquet", "--max-rounds", 1)
    assert (done.code, done.err) == (0, "")
    assert read_recording(tmp_path / "r.parquet").column("em")[:, 0].tolist() == [1.0, 0.0]


PROSE = "The city is Oslo, I think."
THINKING = {"choices": [{"message": {"content": "<think>Answer: Rome? Let me"}, "finish_reason": "length"}]}


@pytest.mark.parametrize(("said", "shown"), [(PROSE, PROSE), (lambda body: THINKING, "Let me")])
def test_record_stops_after_eight_questions_of_which_nothing_was_read(said, shown, tmp_path):
    questions, out = dataset(tmp_path / "q.jsonl", n=12), tmp_path / "r.parquet"
    with Endpoint(said) as endpoint:
        told = record(endpoint, questions, out, "--max-rounds", 2).error
        assert len(endpoint.requests) == 16
        for part in (
            "16 replies",
            "8 questions",
            shown,
            "--prompt",
            "answer-position",
            "max-tokens",
            "--set allow-unread=true",
        ):
            assert part in told
        assert "enable_thinking" in told
        assert not out.exists()
        # The same command goes on: what was paid for is not asked again.
        record(endpoint, questions, out, "--max-rounds", 2)
        assert len(endpoint.requests) == 16 + 8
    assert not out.exists() or read_recording(out).shape == (12, 2)


def test_the_same_command_goes_on_once_the_endpoint_answers_as_it_should(tmp_path):
    questions, out = dataset(tmp_path / "q.jsonl", n=12), tmp_path / "r.parquet"
    with Endpoint(lambda body: PROSE if len(endpoint.requests) <= 8 else "Answer: Oslo") as endpoint:
        assert "no answer" in record(endpoint, questions, out, "--max-rounds", 1).error
        done = record(endpoint, questions, out, "--max-rounds", 1, "--json")
        assert len(endpoint.requests) == 12
    assert (done.code, done.json["unread"], done.json["rounds"]) == (0, 8, 12)


def test_unread_replies_are_counted_at_the_end(tmp_path):
    questions, out = dataset(tmp_path / "q.jsonl", n=4), tmp_path / "r.parquet"
    with Endpoint(lambda body: PROSE if "tower 2" in str(body) else "Answer: Oslo") as endpoint:
        done = record(endpoint, questions, out, "--max-rounds", 3)
        assert done.code == 0
        assert "3 of 12 replies hold no answer that could be read" in done.out
        again = record(endpoint, questions, out, "--max-rounds", 3, "--json").json
    assert (again["calls"], again["unread"]) == (0, 3)


def choice(text, finish_reason, **others):
    return {"choices": [{"message": {"content": text}, "finish_reason": finish_reason, **others}]}


def test_cut_replies_are_rounds_without_an_answer_and_are_counted(tmp_path):
    def reply(body):
        prompt = str(body)
        if "tower 1" in prompt:
            return choice("Answer: Os", "length")
        if "tower 2" in prompt:
            return choice("Answer: Oslo\nConfidence: 5", "content_filter")
        if "tower 3" in prompt:
            return {**choice("Answer: Oslo\nConfidence: 5", "stop"), "error": {"code": 502, "message": "went away"}}
        return "Answer: Oslo\nConfidence: 5"

    questions, out = dataset(tmp_path / "q.jsonl", n=5), tmp_path / "r.parquet"
    with Endpoint(reply) as endpoint:
        done = record(endpoint, questions, out, "--max-rounds", 2)
        again = record(endpoint, questions, out, "--max-rounds", 2, "--json").json
    assert done.code == 0
    assert "6 replies were cut (content_filter: 2, error: 2, length: 2): a cut reply is no answer" in done.out
    assert "--set max-tokens=512" in done.out
    assert (again["unread"], again["cut"]) == (6, {"content_filter": 2, "error": 2, "length": 2})
    recording = read_recording(out)
    by_question = dict(zip(recording.question_ids, recording.answers.tolist(), strict=True))
    answers = [by_question[name] for name in sorted(by_question)]
    assert answers == [["Oslo"] * 2, [None] * 2, [None] * 2, [None] * 2, ["Oslo"] * 2]
    reasons = dict(zip(recording.question_ids, recording.objects("finish_reason").tolist(), strict=True))
    assert [reasons[name][0] for name in sorted(reasons)][1:4] == ["length", "content_filter", "error"]
    cut = recording.objects("answer") == None  # noqa: E711 - an array
    assert np.isnan(recording.column("verbal_confidence")[cut]).all()
    assert np.isnan(recording.column("answer_stable")[cut]).all()
    assert (recording.column("em")[cut] == 0).all()


def test_a_short_recording_of_which_nothing_was_read_is_not_a_success(tmp_path):
    questions = dataset(tmp_path / "q.jsonl", n=3)
    with Endpoint(PROSE) as endpoint:
        done = record(endpoint, questions, tmp_path / "r.parquet")
        assert len(endpoint.requests) == 15
        assert (done.code, "15 of 15 replies hold no answer" in done.out) == (1, True)
        assert "--prompt" in done.out
        meant = record(endpoint, questions, tmp_path / "r.parquet", "--set=allow-unread=true")
    assert (meant.code, "15 of 15" in meant.out) == (0, True)


def test_nothing_stops_a_recording_that_is_meant_to_go_on(tmp_path):
    questions = dataset(tmp_path / "q.jsonl", n=12)
    with Endpoint(PROSE) as endpoint:
        done = record(endpoint, questions, tmp_path / "r.parquet", "--max-rounds", 1, "--set=allow-unread=true")
    assert (done.code, read_recording(tmp_path / "r.parquet").shape) == (0, (12, 1))


def test_drafts_that_are_never_written_stop_a_recording_too(tmp_path):
    questions = dataset(tmp_path / "q.jsonl", n=12)
    with Endpoint(lambda body: THINKING) as endpoint:
        told = record(endpoint, questions, tmp_path / "d.parquet", "--max-rounds", 1, command=("draft", "record")).error
    assert "8 questions" in told
    assert "--set max-tokens=512" in told
    assert "--prompt" not in told


@pytest.mark.parametrize(
    ("position", "said"),
    [
        ("marker:City:", "City: Oslo"),
        ("json", '{"answer": "Oslo"}'),
        ("json:city", '{"city": "Oslo"}'),
        ("start", "Oslo"),
    ],
)
def test_the_answers_position_is_an_option(position, said, tmp_path):
    questions = dataset(tmp_path / "q.jsonl", n=2)
    with Endpoint(said) as endpoint:
        done = record(
            endpoint, questions, tmp_path / "r.parquet", "--max-rounds", 1, f"--set=answer-position={position}"
        )
    assert done.code == 0
    assert set(read_recording(tmp_path / "r.parquet").objects("answer")[:, 0]) == {"Oslo"}
    wrong = record(endpoint, questions, tmp_path / "x.parquet", "--set=answer-position=xml:answer")
    assert "marker, json, tool, start" in wrong.error


def test_the_doctor_shows_two_replies_and_what_was_read(tmp_path):
    with Endpoint("Answer: Oslo\nConfidence: 4") as endpoint:
        address = ("doctor", "--base-url", endpoint.url, "--model", "m", "--set=repeats=3")
        shown = cli(*address, "--details")
        assert shown.out.count("Answer: Oslo\\nConfidence: 4") == 2
        found = cli(*address, "--json").json
    assert found["samples"][1] | {"question": ""} == {
        "question": "",
        "reply": "Answer: Oslo\nConfidence: 4",
        "finish_reason": "stop",
        "answer": "Oslo",
        "confidence": 4,
    }
    assert len(found["samples"]) == 2


def test_the_doctor_promises_nothing_where_nothing_could_be_read():
    with Endpoint(PROSE) as endpoint:
        address = ("doctor", "--base-url", endpoint.url, "--model", "m", "--set=repeats=3")
        shown, found = cli(*address, "--details"), cli(*address, "--json").json
    assert PROSE in shown.out
    assert "verbal_confidence" not in found["capabilities"]
    assert set(found["rules"].values()) == {"no: no answer could be read out of the replies"}
    (note,) = [note for note in found["notes"] if "no answer" in note]
    assert "--prompt" in note
    with Endpoint("Answer: Oslo") as endpoint:
        found = cli("doctor", "--base-url", endpoint.url, "--model", "m", "--set=repeats=3", "--json").json
    assert "verbal_confidence" not in found["capabilities"]
    assert any("no reply states a confidence" in note for note in found["notes"])


@pytest.mark.whole
def test_a_local_model_reads_only_template_variables_from_extra_body(tmp_path):
    folder = local_models.save(tmp_path / "llama", max_position_embeddings=4096)
    words = local_models.tokenizer()
    words.chat_template = local_models.TEMPLATE + "{% if not enable_thinking %}{{ nothing.at.all }}{% endif %}"
    words.save_pretrained(folder)
    questions = dataset(tmp_path / "q.jsonl", n=1)
    local = ("record", questions, "-o", tmp_path / "r.parquet", "--local", "--model", folder, "--max-rounds", 1)
    assert "chat_template_kwargs" in cli(*local, '--set=extra-body={"top_k": 1}').error
    told = cli(*local, '--set=extra-body={"chat_template_kwargs": {"enable_thinkin": true}}').error
    assert "does not use 'enable_thinkin'" in told
    on = ('--set=extra-body={"chat_template_kwargs": {"enable_thinking": true}}', "--set=max-tokens=2")
    assert cli(*local, *on, "--set=answer-position=start", "--set=allow-unread=true").code == 0


def test_options_that_a_model_does_not_have_are_refused(tmp_path):
    questions = dataset(tmp_path / "q.jsonl", n=2)
    for options, said in (
        (("--prompt", "nosuch"), "unknown prompt 'nosuch'; choose one of answer_first, "),
        (("--set=extra-body={bad",), "is not JSON"),
        (('--set=extra-body={"a": 1}',), "has no request"),
        (("--set=answer-position=json",), "has no request"),
    ):
        assert said in cli("record", questions, "-o", tmp_path / "r.parquet", *options).error
