"""Recordings in batches: the same rows as live, whatever breaks, and nothing paid twice."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError, ModelError, SufficeError
from suffice.evaluation.replay import Price
from suffice.loops import RetrievalLoop, SamplingLoop, record
from suffice.loops.judges import JudgeModel, Panel
from suffice.loops.models import ChatModel, EntailmentJudge
from suffice.loops.plan import RecordingPlan
from suffice.loops.record_run import LiveExecutor
from suffice.loops.retrieval import PoolBM25, load_questions
from suffice.policy.session import Policy
from suffice.recordings import ResponseCache, read_recording
from suffice.recordings.schema import BATCH_NOTE
from suffice_retrieval.methods import QueryLoop
from suffice_scale.batches import BatchQueue
from suffice_scale.batches.api import BatchApi
from suffice_scale.batches.state import BatchState
from tests.support.batches import BatchEndpoint, run_batch
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint, prompt_of

KEY = "sk-very-secret-0123456789"
QUESTIONS = load_questions("hotpotqa_tune", limit=4)
ROUNDS = 3
REQUESTS = len(QUESTIONS) * ROUNDS
TIMES = re.compile(r"seconds|latency|recorded_at")


def server(**settings):
    return BatchEndpoint(usage="plain", **settings)


def model_of(endpoint, **settings):
    return ChatModel("m", base_url=endpoint.url, api_key=KEY, max_retries=0, timeout_s=600.0, **settings)


def loop_of(endpoint, **settings):
    return RetrievalLoop(model=model_of(endpoint), retriever=PoolBM25(), policy=Policy(max_rounds=ROUNDS), **settings)


def queue_of(**settings):
    return BatchQueue(**{"first_poll_s": 0.001, "longest_poll_s": 0.002} | settings)


def in_batches(endpoint, path, loop=None, **settings):
    """Record, and return the summary; nothing stays beside a complete recording."""
    summary = record(QUESTIONS, loop or loop_of(endpoint), path, batches=queue_of(**settings))
    if not summary.pending:
        assert not Path(f"{path}.batches").exists()
    return summary


def rows_of(path):
    """Return the rows without times."""
    table = pq.read_table(path)
    return table.select([name for name in table.column_names if not TIMES.search(name)]).to_pylist()


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """The rows of the recording that is made live, and its metadata."""
    path = tmp_path_factory.mktemp("live") / "live.parquet"
    with server() as endpoint:
        record(QUESTIONS, loop_of(endpoint), path, parallel_rounds=True)
    return rows_of(path), read_recording(path).metadata


def without_address(metadata):
    return {**metadata["config"], "model": {**metadata["config"]["model"], "endpoint": ""}}


def test_a_recording_in_batches_is_the_live_one_but_for_times(tmp_path, live):
    path = tmp_path / "r.parquet"
    with server(looks=3) as endpoint:
        seen = []
        summary = in_batches(endpoint, path, most_requests=5, on_progress=seen.append)
        assert (summary.questions, summary.rounds, dict(summary.failed)) == (len(QUESTIONS), REQUESTS, {})
        assert rows_of(path) == live[0]
        assert set(endpoint.paid.values()) == {1}
        assert sum(endpoint.paid.values()) == REQUESTS
        assert len(endpoint.batches) == math.ceil(REQUESTS / 5)
        assert not [request for request in endpoint.requests if "completions" in request.path]
        assert {request.headers["authorization"] for request in endpoint.requests} == {f"Bearer {KEY}"}
    assert (seen[0].batches, seen[0].ended, seen[0].requests) == (3, 0, REQUESTS)
    assert (seen[-1].batches, seen[-1].ended, seen[-1].requests) == (3, 3, 0)
    metadata = read_recording(path).metadata
    assert without_address(metadata) == without_address(live[1])
    assert metadata["notes"] == [BATCH_NOTE]
    assert metadata["cache_state"] == "unknown"
    assert summary.cost.calls == REQUESTS
    table = pq.read_table(path)
    assert table["cost.generator.seconds"].null_count == REQUESTS
    assert table["cost.generator.output_tokens"].null_count == 0


STEPS = {
    "before the upload": ("upload", "before"),
    "after the upload": ("upload", "after"),
    "before it is created": ("create", "before"),
    "after it was created": ("create", "after"),
    "while it is awaited": ("retrieve", "after"),
    "before the download": ("download", "before"),
    "after the download": ("download", "after"),
}


class KilledError(BaseException):
    """What a killed process would not notice."""


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_process_goes_on_and_submits_nothing_twice(step, nth, tmp_path, live, monkeypatch):
    folder, saved = tmp_path / "work", tmp_path / "as it was"
    folder.mkdir()
    name, when = STEPS[step]
    calls = 0

    def kill_now():
        nonlocal calls
        calls += 1
        if calls == nth:
            shutil.copytree(folder, saved)  # what is on disk at this moment, without what the exception cleans up
            raise KilledError

    def killing(self, *arguments):
        if when == "before":
            kill_now()
        result = method(self, *arguments)
        if when == "after":
            kill_now()
        return result

    with server(looks=2) as endpoint:
        method = getattr(BatchApi, name)
        with monkeypatch.context() as patched:
            patched.setattr(BatchApi, name, killing)
            with pytest.raises(KilledError):
                in_batches(endpoint, folder / "r.parquet", most_requests=7)
        shutil.rmtree(folder)
        saved.rename(folder)
        in_batches(endpoint, folder / "r.parquet", most_requests=7)
        assert rows_of(folder / "r.parquet") == live[0]
        assert len(endpoint.batches) == 2
        assert set(endpoint.rows.values()) == {1}
        assert endpoint.calls.count("POST /v1/files") <= 3  # an upload alone costs nothing


def test_a_process_that_is_killed_while_it_takes_replies_in_loses_none(tmp_path, live, monkeypatch):
    folder, saved = tmp_path / "work", tmp_path / "as it was"
    folder.mkdir()
    taken = []

    def killing(self, key, body):
        method(self, key, body)
        taken.append(key)
        if len(taken) == 5:
            shutil.copytree(folder, saved)
            raise KilledError

    with server() as endpoint:
        method = BatchState.take_reply
        with monkeypatch.context() as patched:
            patched.setattr(BatchState, "take_reply", killing)
            with pytest.raises(KilledError):
                in_batches(endpoint, folder / "r.parquet")
        shutil.rmtree(folder)
        saved.rename(folder)
        in_batches(endpoint, folder / "r.parquet")
        assert rows_of(folder / "r.parquet") == live[0]
        assert set(endpoint.rows.values()) == {1}


def test_a_process_killed_while_writing_rows_repeats_no_request(tmp_path, live, monkeypatch):
    from suffice.recordings.journal import Journal

    finished = []

    def killing(self, question_id, rows):
        method(self, question_id, rows)
        finished.append(question_id)
        if len(finished) == 2:
            raise KilledError

    with server() as endpoint:
        method = Journal.finish
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "finish", killing)
            with pytest.raises(KilledError):
                in_batches(endpoint, tmp_path / "r.parquet")
        in_batches(endpoint, tmp_path / "r.parquet")
        assert rows_of(tmp_path / "r.parquet") == live[0]
        assert set(endpoint.rows.values()) == {1}


def test_whoever_does_not_wait_collects_later(tmp_path, live):
    path = tmp_path / "r.parquet"
    with server(looks=3) as endpoint:
        for _ in range(2):
            summary = in_batches(endpoint, path, wait=False)
            assert (summary.pending, summary.questions) == (len(QUESTIONS), 0)
            assert not path.exists()
            assert len(endpoint.batches) == 1
        assert not in_batches(endpoint, path, wait=False).pending
        assert rows_of(path) == live[0]
        assert len(endpoint.batches) == 1
        with pytest.raises(DataError, match="another configuration"):
            record(QUESTIONS, loop_of(endpoint), path)  # rounds that are sent one after another are another recording
        record(QUESTIONS, loop_of(endpoint), path, parallel_rounds=True)
        assert not [request for request in endpoint.requests if "completions" in request.path]


def some(endpoint, kinds):
    """Let rows have errors the first time they are submitted, in turn; return the ids with each."""
    given = {}

    def outcome(key, nth):
        if nth > 1:
            return None
        return given.setdefault(key, kinds[len(given) % len(kinds)])

    endpoint.outcome = outcome
    return given


@pytest.mark.parametrize("ending", ["completed", "expired", "cancelled"])
def test_only_failed_or_missing_rows_are_submitted_again(ending, tmp_path, live):
    with server(ending=lambda number: ending if number == 1 else "completed") as endpoint:
        given = some(endpoint, [None, "429", "expired", "missing", "twice"])
        in_batches(endpoint, tmp_path / "r.parquet")
        assert rows_of(tmp_path / "r.parquet") == live[0]
        assert set(endpoint.paid.values()) == {1}
        again = {key for key, times in endpoint.rows.items() if times == 2}
        assert again == {key for key, kind in given.items() if kind in ("429", "expired", "missing")}
        assert len(endpoint.batches) == 2


def test_a_refused_request_fails_its_question_alone_and_is_not_submitted_again(tmp_path, live):
    with server() as endpoint:
        refused = []
        endpoint.outcome = lambda key, _: "400" if not refused or key in refused else None

        def first_alone(key, nth):
            if not refused:
                refused.append(key)
            return "400" if key in refused else None

        endpoint.outcome = first_alone
        summary = in_batches(endpoint, tmp_path / "r.parquet")
        assert len(summary.failed) == 1
        (reason,) = summary.failed.values()
        assert "answered 400" in reason
        assert "no such parameter" in reason
        assert set(endpoint.rows.values()) == {1}
        complete = [row for row in rows_of(tmp_path / "r.parquet") if row["question_id"] not in summary.failed]
        assert complete == [row for row in live[0] if row["question_id"] not in summary.failed]
        endpoint.outcome = lambda key, nth: None
        assert not in_batches(endpoint, tmp_path / "r.parquet").failed  # run again, it is requested again
        assert rows_of(tmp_path / "r.parquet") == live[0]
        assert sorted(endpoint.rows.values()) == [1] * (REQUESTS - 1) + [2]


def test_what_fails_again_and_again_fails_its_question_with_the_reason(tmp_path):
    with server(ending=lambda _: "expired") as endpoint:
        unlucky = []

        def outcome(key, _):
            if not unlucky:
                unlucky.append(key)
            return "expired" if key in unlucky else None

        endpoint.outcome = outcome
        summary = in_batches(endpoint, tmp_path / "r.parquet")
        (reason,) = summary.failed.values()
        assert "batch_expired: the window has passed (in 3 batches)" in reason
        assert endpoint.rows[unlucky[0]] == 3
        assert summary.questions == len(QUESTIONS)
        assert sum(endpoint.paid.values()) == REQUESTS - 1


def test_a_batch_that_finds_no_room_waits_for_the_others(tmp_path, live):
    with server(ending=lambda number: "failed" if number in (2, 3) else "completed") as endpoint:
        in_batches(endpoint, tmp_path / "r.parquet", most_requests=5, attempts=1)
        assert rows_of(tmp_path / "r.parquet") == live[0]
        assert set(endpoint.paid.values()) == {1}
    with server(ending=lambda _: "failed") as endpoint, pytest.raises(ModelError, match="token_limit_exceeded"):
        in_batches(endpoint, tmp_path / "s.parquet", attempts=2)
    assert len(endpoint.batches) == 2


def test_a_lost_reply_to_creating_a_batch_creates_no_second(tmp_path, live):
    with server() as endpoint:
        created = endpoint._created

        def lost(body):
            created(body)
            endpoint._created = created
            raise ConnectionAbortedError

        endpoint._created = lost
        in_batches(endpoint, tmp_path / "r.parquet")
        assert len(endpoint.batches) == 1
        assert rows_of(tmp_path / "r.parquet") == live[0]


def test_a_server_that_is_busy_for_a_while_is_asked_again(tmp_path, live):
    busy = iter([True, True, True, False, True])
    with server() as endpoint:
        endpoint._fault = lambda about: (
            "503" if about.get("route") == "GET /v1/batches/ID" and next(busy, False) else None
        )
        in_batches(endpoint, tmp_path / "r.parquet")
        assert rows_of(tmp_path / "r.parquet") == live[0]


@pytest.mark.parametrize("missing", ["/v1/files", "/v1/batches"])
def test_an_endpoint_without_batches_says_what_to_do(missing, tmp_path):
    with server(without=(missing,)) as endpoint, pytest.raises(ModelError, match="interface") as raised:
        in_batches(endpoint, tmp_path / "r.parquet")
    assert "--batch-file" in str(raised.value)
    assert not endpoint.rows


def test_several_endpoints_and_dependent_rounds_are_refused(tmp_path):
    with server() as first, server() as second:
        model = ChatModel("m", base_url=[first.url, second.url])
        loop = RetrievalLoop(model=model, retriever=PoolBM25(), policy=Policy(max_rounds=2))
        with pytest.raises(DataError, match="name one"):
            in_batches(first, tmp_path / "r.parquet", loop)
        chain = QueryLoop(model=model_of(first), retriever=PoolBM25(), method="ircot")
        with pytest.raises(DataError, match="depend"):
            in_batches(first, tmp_path / "s.parquet", chain)
    assert not first.requests


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        ("another configuration", "another configuration"),
        ("several endpoints", "--base-url"),
        ("no interface", "interface"),
        ("a file of others", "there already"),
    ],
)
def test_a_recording_goes_on_without_batches_where_none_was_submitted(refusal, says, tmp_path):
    path, settings = tmp_path / "r.parquet", {}
    with server(without=("/v1/files",)) as endpoint, server() as other:
        loop = loop_of(endpoint)
        if refusal == "another configuration":
            record(QUESTIONS[:2], loop, path)
        elif refusal == "several endpoints":
            loop = replace(loop, model=ChatModel("m", base_url=[endpoint.url, other.url], api_key=KEY))
        elif refusal == "a file of others":
            (tmp_path / "in.jsonl").write_text("{}\n")
            settings["file"] = tmp_path / "in.jsonl"
        with pytest.raises(SufficeError, match=says):
            in_batches(endpoint, path, loop, **settings)
        assert not endpoint.batches
        assert not Path(f"{path}.batches").exists()
        assert record(QUESTIONS, loop, path).questions == len(QUESTIONS)


def test_requests_that_were_all_refused_are_made_anew_by_the_next_run(tmp_path, live):
    path = tmp_path / "r.parquet"
    with server(outcome=lambda _id, _nth: "400") as endpoint:
        with pytest.raises(ModelError, match="parameter"):
            in_batches(endpoint, path)
        endpoint.outcome = lambda _id, _nth: None
        assert in_batches(endpoint, path).questions == len(QUESTIONS)
    assert rows_of(path) == live[0]


def test_two_processes_do_not_submit_the_same(tmp_path):
    first = BatchState(tmp_path / "state.sqlite")
    with pytest.raises(DataError, match="another process"):
        BatchState(tmp_path / "state.sqlite")
    first.close()
    BatchState(tmp_path / "state.sqlite").close()


def test_a_recording_at_a_url_collects_its_batches_here(tmp_path, live):
    url, here = f"memory://{tmp_path.name}/r.parquet", tmp_path / "journals"
    with server(looks=2) as endpoint:
        for wait in (False, True):
            queue = queue_of(wait=wait)
            summary = record(QUESTIONS, loop_of(endpoint), url, batches=queue, journal_folder=here)
            assert bool(summary.pending) is not wait
        table = read_recording(url).table
        names = [name for name in table.column_names if not TIMES.search(name)]
        assert [{name: row[name] for name in names} for row in table.to_pylist()] == live[0]
        assert set(endpoint.rows.values()) == {1}
    assert not list(here.rglob("*.batches"))


def test_one_plan_runs_live_and_in_batches_to_the_same_rows(tmp_path):
    with server() as endpoint:
        plan = RecordingPlan(QUESTIONS, loop_of(endpoint), tmp_path / "a.parquet", parallel_rounds=True)
        for executor, path in [(LiveExecutor(), plan.path), (queue_of(), tmp_path / "b.parquet")]:
            assert asyncio.run(executor.run(replace(plan, path=path))).rounds == REQUESTS
        assert len(endpoint.batches) == 1
    assert rows_of(tmp_path / "a.parquet") == rows_of(tmp_path / "b.parquet")


def test_replies_in_batches_are_not_requested_live_besides(tmp_path):
    path = tmp_path / "r.parquet"
    with server(looks=9) as endpoint:
        in_batches(endpoint, path, wait=False)
        with pytest.raises(DataError, match="--batch"):
            record(QUESTIONS, loop_of(endpoint), path, parallel_rounds=True)
        assert not [request for request in endpoint.requests if "completions" in request.path]


def test_another_configuration_does_not_take_over_batches(tmp_path):
    path = tmp_path / "r.parquet"
    with server(looks=9) as endpoint:
        in_batches(endpoint, path, wait=False)
        other = RetrievalLoop(
            model=model_of(endpoint, max_tokens=7), retriever=PoolBM25(), policy=Policy(max_rounds=ROUNDS)
        )
        with pytest.raises(DataError, match="another configuration"):
            in_batches(endpoint, path, other, wait=False)
        assert len(endpoint.batches) == 1


def test_what_a_judge_is_asked_goes_into_the_next_batch(tmp_path):
    def reply(body):
        return "Mark: 4" if "Proposed answer" in prompt_of(body) else "Answer: yes"

    with server(reply=reply) as endpoint:
        judge = EntailmentJudge(model_of(endpoint))
        path = tmp_path / "r.parquet"
        summary = in_batches(endpoint, path, loop_of(endpoint, enrichers=(judge,)))
        assert len(endpoint.batches) == 2
        assert set(endpoint.paid.values()) == {1}
        assert summary.cost.calls == 2 * REQUESTS
        assert {row["judge_entailment"] for row in rows_of(path)} == {4.0}


def test_a_verdict_on_the_evidence_goes_into_the_next_batch(tmp_path):
    def reply(body):
        verdict = '{"needed": "n", "found": "f", "sufficient": true}'
        return verdict if "sufficient to answer" in prompt_of(body) else "Answer: yes"

    with server(reply=reply) as endpoint:
        path = tmp_path / "r.parquet"
        judge = Panel(JudgeModel(model_of(endpoint)), ["context_sufficient"])
        summary = in_batches(endpoint, path, loop_of(endpoint, enrichers=(judge,)))
        assert set(endpoint.paid.values()) == {1}
        assert summary.cost.calls == 2 * REQUESTS
        assert {row["context_sufficient"] for row in rows_of(path)} == {1.0}


def test_every_reminder_of_a_judge_is_a_request_of_its_own(tmp_path):
    with server(reply=lambda body: "hm" if "Proposed answer" in prompt_of(body) else "Answer: yes") as endpoint:
        judge = EntailmentJudge(model_of(endpoint), attempts=3)
        summary = in_batches(endpoint, tmp_path / "r.parquet", loop_of(endpoint, enrichers=(judge,)))
        assert summary.cost.calls == sum(endpoint.paid.values()) == (1 + 3) * REQUESTS
        assert set(endpoint.paid.values()) == {1}


def test_marks_from_a_cache_are_no_cost_of_the_run(tmp_path):
    def reply(body):
        return "Mark: 4" if "Proposed answer" in prompt_of(body) else "Answer: yes"

    with server(reply=reply) as endpoint, closing(ResponseCache(tmp_path / "cache.sqlite")) as cache:
        calls = []
        for name in ("a", "b"):
            loop = loop_of(endpoint, enrichers=(EntailmentJudge(model_of(endpoint, cache=cache)),))
            calls.append(record(QUESTIONS, loop, tmp_path / f"{name}.parquet").cost.calls)
        assert calls == [2 * REQUESTS, REQUESTS]  # the answers have no cache


def test_samples_go_into_one_batch(tmp_path):
    with server(reply=lambda body: f"Answer: {body['seed'] % 3}") as endpoint:
        loop = SamplingLoop(model=model_of(endpoint), policy=Policy(selector="majority_of_samples", max_rounds=4))
        record(QUESTIONS, loop, tmp_path / "live.parquet", parallel_rounds=True)
        in_batches(endpoint, tmp_path / "r.parquet", loop)
        assert rows_of(tmp_path / "r.parquet") == rows_of(tmp_path / "live.parquet")
        assert len(endpoint.batches) == 1


def test_an_engine_without_the_interface_takes_a_file(tmp_path, live):
    path, file = tmp_path / "r.parquet", tmp_path / "in.jsonl"
    with server() as endpoint:
        for _ in range(2):
            assert in_batches(endpoint, path, file=file).pending == len(QUESTIONS)
        lines = file.read_text().splitlines()
        assert len(lines) == REQUESTS
        row = json.loads(lines[0])
        assert (set(row), row["method"], row["url"]) == (
            {"custom_id", "method", "url", "body"},
            "POST",
            "/v1/chat/completions",
        )
        some(endpoint, [None, None, "429", "missing"])
        endpoint.rows.update(json.loads(line)["custom_id"] for line in lines)
        output, errors = run_batch(endpoint, file.read_bytes())
        (tmp_path / "in.output.jsonl").write_text("".join(output + errors))
        assert in_batches(endpoint, path, file=file).pending
        rest = (tmp_path / "in-2.jsonl").read_bytes()
        assert len(rest.splitlines()) == REQUESTS // 2
        endpoint.rows.update(json.loads(line)["custom_id"] for line in rest.splitlines())
        (tmp_path / "in-2.output.jsonl").write_text("".join(run_batch(endpoint, rest)[0]))
        assert not in_batches(endpoint, path, file=file).pending
        assert rows_of(path) == live[0]
        assert not endpoint.requests


@pytest.mark.parametrize(("logprobs", "says"), [("none", "log-probabilities"), ("processed", "after sampling")])
def test_a_batch_without_log_probabilities_is_a_failure_not_an_empty_column(logprobs, says, tmp_path):
    with server(logprobs=logprobs) as endpoint, pytest.raises(ModelError, match=says):
        in_batches(endpoint, tmp_path / "r.parquet")


def test_batches_cannot_continue_as_files_nor_files_as_batches(tmp_path):
    file = tmp_path / "in.jsonl"
    with server(looks=9) as endpoint:
        in_batches(endpoint, tmp_path / "r.parquet", wait=False)
        with pytest.raises(DataError, match="--batch, as"):
            in_batches(endpoint, tmp_path / "r.parquet", file=file)
        in_batches(endpoint, tmp_path / "s.parquet", file=file)
        with pytest.raises(DataError, match="--batch-file"):
            in_batches(endpoint, tmp_path / "s.parquet")
        assert len(endpoint.batches) == 1


@pytest.mark.parametrize("name", ["in.jsonl", "in.output.jsonl"])
def test_files_that_are_there_already_stay_as_they_are(name, tmp_path):
    (tmp_path / name).write_text("{}\n")
    with server() as endpoint, pytest.raises(DataError, match="there already"):
        in_batches(endpoint, tmp_path / "r.parquet", file=tmp_path / "in.jsonl")
    assert (tmp_path / name).read_text() == "{}\n"


def test_an_unrelated_output_file_is_refused(tmp_path):
    path, file = tmp_path / "r.parquet", tmp_path / "in.jsonl"
    foreign = {"custom_id": "another", "response": {"status_code": 200, "body": {}}, "error": None}
    with server() as endpoint:
        in_batches(endpoint, path, file=file)
        for content in ("", json.dumps(foreign) + "\n"):
            (tmp_path / "in.output.jsonl").write_text(content)
            with pytest.raises(DataError, match="answers none"):
                in_batches(endpoint, path, file=file)
        assert not (tmp_path / "in-2.jsonl").exists()
        with pytest.raises(DataError, match=r"\.jsonl"):
            in_batches(endpoint, tmp_path / "s.parquet", file=tmp_path / "s.parquet")


def test_requests_are_where_they_were_written_whatever_name_is_given_later(tmp_path):
    path, file = tmp_path / "r.parquet", tmp_path / "in.jsonl"
    with server() as endpoint:
        in_batches(endpoint, path, file=file)
        (note,) = in_batches(endpoint, path, file=tmp_path / "other.jsonl").notes
        assert f"vllm run-batch -i {file} -o {tmp_path / 'in.output.jsonl'}" in note
        (tmp_path / "in.output.jsonl").write_text("".join(run_batch(endpoint, file.read_bytes())[0]))
        assert not in_batches(endpoint, path, file=tmp_path / "other.jsonl").pending


def test_what_a_judge_is_asked_goes_into_the_next_file(tmp_path):
    path, file = tmp_path / "r.parquet", tmp_path / "in.jsonl"
    with server(reply=lambda body: "Mark: 4" if "Proposed answer" in prompt_of(body) else "Answer: yes") as endpoint:
        judge = ChatModel("judge", base_url=endpoint.url, api_key=KEY)
        loop = loop_of(endpoint, enrichers=(EntailmentJudge(judge),))
        for number in range(1, 10):
            if not in_batches(endpoint, path, loop, file=file).pending:
                break
            requests = file if number == 1 else tmp_path / f"in-{number}.jsonl"
            rows = [json.loads(line) for line in requests.read_text().splitlines()]
            assert len({row["body"]["model"] for row in rows}) == 1
            endpoint.rows.update(row["custom_id"] for row in rows)
            if number == 1:
                some(endpoint, [None, "429"])
            output, errors = run_batch(endpoint, requests.read_bytes())
            requests.with_name(f"{requests.stem}.output.jsonl").write_text("".join(output + errors))
        assert {row["judge_entailment"] for row in rows_of(path)} == {4.0}
        assert set(endpoint.paid.values()) == {1}


def test_odd_fields_in_a_batch_are_tolerated(tmp_path, live):
    with server() as endpoint:
        run = endpoint._run

        def odd(batch):
            run(batch)
            batch |= {"errors": "none", "request_counts": {"completed": None}, "error_file_id": ""}

        endpoint._run = odd
        in_batches(endpoint, tmp_path / "r.parquet")
        assert rows_of(tmp_path / "r.parquet") == live[0]


def test_something_that_answers_every_request_is_not_waited_for(tmp_path):
    with Endpoint() as endpoint, pytest.raises(ModelError, match="no status"):
        in_batches(endpoint, tmp_path / "r.parquet")


def test_an_output_that_is_cut_off_is_an_error_and_changes_nothing(tmp_path):
    path, file = tmp_path / "r.parquet", tmp_path / "in.jsonl"
    with server() as endpoint:
        in_batches(endpoint, path, file=file)
        output, _ = run_batch(endpoint, file.read_bytes())
        (tmp_path / "in.output.jsonl").write_text("".join(output)[:-40])
        with pytest.raises(DataError, match="in.output.jsonl"):
            in_batches(endpoint, path, file=file)
        (tmp_path / "in.output.jsonl").write_text("".join(output))
        assert not in_batches(endpoint, path, file=file).pending


# The command line


def recorded(endpoint, path, *more, code=0):
    result = cli(
        *("record", "hotpotqa_tune", "--limit", len(QUESTIONS), "--max-rounds", ROUNDS, "-o", path),
        *("--model", "m", "--base-url", endpoint.url, *more),
    )
    assert result.code == code, result.err
    return result


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("suffice_scale.batches.BatchQueue", queue_of)


@pytest.mark.usefixtures("quick")
def test_the_command_records_at_half_the_price(tmp_path, live):
    path, prices = tmp_path / "r.parquet", tmp_path / "prices.json"
    prices.write_text(json.dumps({"m": {"uncached": 2.0, "cached": 1.0, "output": 10.0}}))
    with server() as endpoint:
        batched = recorded(endpoint, path, "--batch", "--prices", prices, "--json").json
        assert rows_of(path) == live[0]
        assert sum("completions" in request.path for request in endpoint.requests) == 1  # that log-probabilities come
        dear = recorded(
            endpoint, tmp_path / "live.parquet", "--set=parallel-rounds=true", "--prices", prices, "--json"
        ).json
        assert batched["usd"] == pytest.approx(dear["usd"] / 2)
        assert "pending" not in dear
        assert batched["pending"] == 0
        prices.write_text(json.dumps({"m": {"uncached": 2.0, "cached": 1.0, "output": 10.0, "batch": 0.25}}))
        costs = cli("data", "costs", path, "--prices", prices, "--json").json
        paid = [row for row in costs["rows"] if row["billing"] == "as recorded, in batches"]
        assert sum(row["money"] for row in paid) * len(QUESTIONS) == pytest.approx(
            dear["usd"] / 4
        )  # as reported, not modelled
        assert not any(row["modelled"] for row in paid)
        shown = cli("data", "costs", path, "--prices", prices).out
        assert "as recorded, in batches" in shown
        assert "`batch`" in shown
        again = recorded(endpoint, tmp_path / "s.parquet", "--batch", "--prices", prices).out
        assert "at the prices of batches" in again
    replayed = cli("replay", path, "--rule", "answer_stable", "--set=resamples=20", code=0)
    assert "recorded in batches" in replayed.out + replayed.err
    assert "as recorded, in batches" not in cli("data", "costs", tmp_path / "live.parquet").out


@pytest.mark.usefixtures("quick")
def test_what_was_recorded_without_batches_cost_the_whole_price(tmp_path):
    prices, options = tmp_path / "prices.json", ["--prices", tmp_path / "prices.json", "--json"]
    prices.write_text(json.dumps({"m": {"uncached": 2.0, "cached": 1.0, "output": 10.0}}))
    with server() as endpoint:
        for name, ways in (
            ("a", ["--batch", "--set=parallel-rounds=true"]),
            ("b", ["--set=parallel-rounds=true", "--batch"]),
        ):
            paths = [tmp_path / f"{name}.parquet", tmp_path / name, tmp_path / name]
            shards = [[], ["--shard", "1/2"], ["--shard", "2/2"]]
            spent = [
                recorded(endpoint, paths[0], "--limit", n, way, *options).json["usd"]
                for n, way in zip((2, 4), ways, strict=True)
            ]
            spent_by_shards = [
                recorded(endpoint, path, *shard, way, *options).json["usd"]
                for path, shard, way in zip(paths[1:], shards[1:], ways, strict=True)
            ]
            for path, usd in ((paths[0], spent), (paths[1], spent_by_shards)):
                assert min(usd) > 0
                rows = cli("data", "costs", path, *options).json["rows"]
                paid = sum(row["money"] * row["n"] for row in rows if row["billing"] == "as recorded, in batches")
                assert paid == pytest.approx(sum(usd))


@pytest.mark.usefixtures("quick")
def test_the_command_goes_on_where_it_was_told_not_to_wait(tmp_path, live):
    path = tmp_path / "r.parquet"
    with server(looks=2) as endpoint:
        first = recorded(endpoint, path, "--batch", "--set=wait=false")
        assert "4 questions in batches, 0 questions complete" in first.words
        assert "run the same command again" in first.words
        recorded(endpoint, path, "--batch", "--set=wait=false")
        assert rows_of(path) == live[0]
        assert set(endpoint.rows.values()) == {1}
        assert "without --batch" in recorded(endpoint, path, "--set=wait=false", code=2).err


def test_the_command_hands_over_a_file(tmp_path, live):
    path, file = tmp_path / "r.parquet", tmp_path / "in.jsonl"
    with server() as endpoint:
        first = recorded(endpoint, path, "--batch-file", file)
        output = tmp_path / "in.output.jsonl"
        assert f"vllm run-batch -i {file} -o {output} --model m" in first.words
        output.write_text("".join(run_batch(endpoint, file.read_bytes())[0]))
        recorded(endpoint, path, "--batch-file", file)
        assert rows_of(path) == live[0]
        assert not endpoint.requests


def test_batches_need_a_model_at_an_endpoint(tmp_path):
    result = cli("record", "hotpotqa_tune", "--limit", 2, "-o", tmp_path / "r.parquet", "--batch", code=1)
    assert "--model" in result.err


def test_a_share_of_prices_is_checked():
    assert Price(uncached=2, cached=1, output=4, batch=0.25).in_batches == Price(
        uncached=0.5, cached=0.25, output=1.0, batch=1.0
    )
    with pytest.raises(DataError, match="price"):
        Price(uncached=2, cached=1, output=4, batch=-1)
