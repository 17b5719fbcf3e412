"""Recording: nothing paid for is lost, nothing is asked twice, nothing is mixed."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import time
from collections import Counter
from dataclasses import MISSING, fields

import numpy as np
import pytest

from suffice import Passage, Policy, Reply, RetrievalLoop, ScriptedModel, read_recording, record
from suffice.errors import AuthenticationFailedError, ConfigMismatchError, DataError, ModelError, SchemaError
from suffice.loops.plan import RecordingPlan
from suffice.loops.retrieval import InMemoryRetriever, PoolBM25, Question
from suffice.recordings import Journal
from suffice.recordings.journal_file import read_records
from tests.support import children, recording as run
from tests.support.endpoint import Endpoint, prompt_of
from tests.support.recording import scripted

KILLS, QUESTIONS = 10, 40
VOLATILE = ("recorded_at", "cost.generator.seconds", "cost.retrieval.seconds")


def table_of(path):
    table = read_recording(path).table
    columns = {name: table.column(name).to_pylist() for name in sorted(table.column_names) if name not in VOLATILE}
    cached = np.array(columns.pop("cost.generator.cached_tokens"), dtype=float)
    columns["prompt_tokens"] = (cached + np.array(columns.pop("cost.generator.uncached_tokens"), dtype=float)).tolist()
    return columns


def committed(journal):
    """Return the (question, round) pairs whose reply a killed run had committed."""
    if not journal.exists():
        return set()
    records = [record for record in read_records(journal) if record[0] == "replies"]
    return {(question_id, r) for _, question_id, replies in records for r, _, _ in replies}


def key_of(prompt):
    """Return the question and round that a prompt belongs to."""
    number = prompt.split("Where is fact")[1].split("?")[0]
    return f"q{number}", prompt.count("Answer: a trap")


@pytest.mark.whole
def test_kills_lose_nothing_repeat_little_and_change_nothing(tmp_path):
    rng = random.Random(0)
    killed, whole = tmp_path / "killed.parquet", tmp_path / "whole.parquet"
    kills = 0
    with Endpoint(run.reply, latency_s=0.02) as endpoint:
        while True:
            began = len(endpoint.requests)
            endpoint.allow = began + 9 if kills < KILLS else None  # so many times 9 replies are not the whole recording
            child = run.started(endpoint.url, str(killed), None, QUESTIONS)
            if kills >= KILLS:
                child.join()
                assert child.exitcode == 0
                break
            while len(endpoint.requests) < began + run.CONCURRENCY + 3:  # so three replies are committed
                assert child.is_alive()
                time.sleep(0.002)
            time.sleep(rng.uniform(0.0, 0.04))
            children.killed(child)
            kills += 1
            while endpoint.running:  # what the dead child had sent is no reply of the next one
                time.sleep(0.002)
            before = Counter(key_of(prompt_of(request.body)) for request in endpoint.requests)
            safe = {key: before[key] for key in committed(tmp_path / "killed.parquet.journal")}
        sent = Counter(key_of(prompt_of(request.body)) for request in endpoint.requests)
    with Endpoint(run.reply) as endpoint:
        record(run.questions(QUESTIONS), run.loop(endpoint.url), whole, concurrency=2)
        needed = len(endpoint.requests)
    assert kills == KILLS
    assert len(sent) == needed == 3 * QUESTIONS - 4  # every tenth question has two passages only
    assert len(safe) >= KILLS * 3  # the kills came while calls were going out
    assert {key: sent[key] for key in safe} == safe
    assert sum(sent.values()) - needed <= kills * run.CONCURRENCY
    assert table_of(killed) == table_of(whole)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["killed.parquet", "whole.parquet"]


def test_a_recording_holds_what_happened_and_what_it_cost(tmp_path):
    questions, loop = scripted()
    summary = record(questions, loop, tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    assert (summary.questions, summary.rounds, dict(summary.failed)) == (6, 18, {})
    assert recording.question_ids == [q.question_id for q in questions]
    assert recording.column("em").tolist() == [[0, 1, 1]] * 6
    assert recording.column("answer_stable")[0].tolist()[1:] == [0, 1]
    assert np.isnan(recording.column("answer_stable")[:, 0]).all()
    assert recording.objects("passage_ids")[2, 1] == ["2#0", "2#1"]
    assert recording.column("cost.generator.calls").sum() == 18
    assert recording.column("cost.retrieval.calls").tolist() == [[1, 0, 0]] * 6
    assert set(recording.ends) == {"max_rounds"}
    assert recording.metadata["depends"]["model"] == "scripted"
    field = recording.table.schema.field("cost.generator.seconds")
    assert field.metadata == {b"kind": b"cost", b"unit": b"seconds"}


@pytest.mark.filterwarnings("ignore:some questions have fewer rounds than passages")
def test_evidence_that_runs_out_is_exhausted_and_titles_count_once(tmp_path):
    questions, loop = scripted(n=1, rounds=3)
    twins = (*questions[0].passages[:2], Passage(passage_id="z", title="T1 ", text="again"))
    lone = [Question(question_id="q", question="What is 0?", passages=twins)]
    record(lone, loop, tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.ends.tolist() == ["exhausted"]
    assert recording.shape == (1, 2)
    assert np.isnan(recording.column("em")).all()  # no gold answers


def test_a_finished_recording_asks_nothing_and_larger_sets_only_new_questions(tmp_path):
    questions, loop = scripted()
    path = tmp_path / "r.parquet"
    record(questions[:4], loop, path)
    assert loop.model.calls == 12
    record(questions[:4], loop, path)
    assert loop.model.calls == 12
    record(questions, loop, path)
    assert loop.model.calls == 18
    assert read_recording(path).question_ids == [q.question_id for q in questions]
    record(questions[:1], loop, path)
    assert len(read_recording(path).question_ids) == 6  # nothing recorded before is lost


def test_two_configurations_are_never_mixed(tmp_path):
    questions, loop = scripted()
    path = tmp_path / "r.parquet"
    record(questions, loop, path)
    wider = RetrievalLoop(model=loop.model, retriever=loop.retriever, policy=Policy(max_rounds=2))
    with pytest.raises(ConfigMismatchError, match="max_rounds"):
        record(questions, wider, path)
    other = [Question(question_id="q0", question="Another?", passages=questions[0].passages)]
    with pytest.raises(ConfigMismatchError, match="Another"):
        record(other, loop, path)
    with pytest.raises(DataError, match="distinct ids"):
        record([questions[0], questions[0]], loop, path)
    with pytest.raises(DataError, match="concurrency"):
        record(questions, loop, path, concurrency=0)


def test_an_unfinished_run_of_another_configuration_is_refused(tmp_path):
    questions, loop = scripted(failures={5: ModelError("boom")})
    path = tmp_path / "r.parquet"
    record(questions, loop, path, concurrency=1)  # one by one, so that an earlier round of the question is committed
    assert (tmp_path / "r.parquet.journal").exists()
    other = RetrievalLoop(model=loop.model, retriever=PoolBM25(), policy=loop.policy)
    path.unlink()
    with pytest.raises(ConfigMismatchError, match="retriever"):
        record(questions, other, path)


def test_a_rerun_completes_a_recorded_failure_without_repeating_calls(tmp_path):
    questions, loop = scripted(failures={5: ModelError("the endpoint broke", retryable=True)})
    path = tmp_path / "r.parquet"
    summary = record(questions, loop, path, concurrency=1)
    assert dict(summary.failed) == {"q1": "the endpoint broke"}
    first = read_recording(path)
    assert first.ends.tolist() == ["max_rounds", "failed", *["max_rounds"] * 4]
    assert first.seen[1].tolist() == [True, False, False]
    assert first.metadata["failed"] == {"q1": "the endpoint broke"}
    calls = loop.model.calls
    assert dict(record(questions, loop, path).failed) == {}
    assert loop.model.calls == calls + 2
    assert read_recording(path).ends.tolist() == ["max_rounds"] * 6
    assert not (tmp_path / "r.parquet.journal").exists()


def test_refused_credentials_end_the_run_at_once_and_keep_what_was_paid(tmp_path):
    questions, loop = scripted(failures={5: AuthenticationFailedError("401: the key was refused")})
    path = tmp_path / "r.parquet"
    with pytest.raises(AuthenticationFailedError):
        record(questions, loop, path, concurrency=1)
    calls = loop.model.calls
    record(questions, loop, path, concurrency=1)
    assert loop.model.calls == calls + 14
    assert read_recording(path).shape == (6, 3)


def test_when_nothing_was_answered_there_is_no_file(tmp_path):
    questions, loop = scripted(failures=lambda call: ModelError("down"))
    with pytest.raises(ModelError, match="down"):
        record(questions, loop, tmp_path / "r.parquet")
    assert not (tmp_path / "r.parquet").exists()


def test_a_question_without_passages_is_a_recorded_failure(tmp_path):
    questions, loop = scripted(n=2)
    questions.append(Question(question_id="bare", question="What is 1?"))
    summary = record(questions, loop, tmp_path / "r.parquet")
    assert "passage" in summary.failed["bare"]
    assert len(read_recording(tmp_path / "r.parquet").question_ids) == 2


def test_parallel_rounds_record_the_same_with_unknown_cache_state(tmp_path):
    questions, loop = scripted()
    record(questions, loop, tmp_path / "a.parquet")
    record(questions, loop, tmp_path / "b.parquet", parallel_rounds=True)
    a, b = (read_recording(tmp_path / f"{name}.parquet") for name in "ab")
    assert a.answers.tolist() == b.answers.tolist()
    np.testing.assert_array_equal(a.column("answer_stable"), b.column("answer_stable"))
    assert (a.metadata["cache_state"], b.metadata["cache_state"]) == ("live", "unknown")


def test_round_0_is_recorded_when_the_policy_starts_there(tmp_path):
    questions, loop = scripted(n=2)
    loop = RetrievalLoop(model=loop.model, retriever=loop.retriever, policy=Policy(start_round=0, max_rounds=2))
    record(questions, loop, tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.index.tolist() == [0, 1, 2]
    assert recording.objects("passage_ids")[0, 0] == []
    assert np.isnan(recording.column("answer_stable")[:, :2]).all()


@pytest.mark.whole
def test_a_second_process_cannot_write_into_the_same_recording(tmp_path):
    journal = Journal(tmp_path / "r.parquet.journal", {"a": 1})
    code = "import sys; from suffice.recordings import Journal; Journal(sys.argv[1], {'a': 1})"
    _, _, error = children.output_of(code, tmp_path / "r.parquet.journal")
    assert "another process" in error
    journal.close()
    assert children.output_of(code, tmp_path / "r.parquet.journal") == (0, "", "")


def test_a_foreign_journal_is_refused_and_left_alone(tmp_path):
    journal = tmp_path / "r.parquet.journal"
    journal.write_bytes(b"not a database at all, but long enough to look like one" * 50)
    questions, loop = scripted()
    with pytest.raises(SchemaError, match="journal"):
        record(questions, loop, tmp_path / "r.parquet")
    assert journal.read_bytes().startswith(b"not a database")


def test_enrichers_measure_once_and_survive_an_interruption(tmp_path):
    from suffice.policy.rounds import Cost, Reply

    class Judge:
        name = "judge:entailment"
        capabilities = frozenset({"judge"})
        calls = 0

        def fingerprint(self):
            return {"judge": 1}

        async def measure(self, question, observed):
            self.calls += 1
            if self.calls == 4:
                raise ModelError("judge down")
            return Reply(signals={"judge_entailment": 4.0}, costs={self.name: Cost(calls=1)})

    questions, loop = scripted(n=2)
    judge = Judge()
    loop = RetrievalLoop(model=loop.model, retriever=loop.retriever, policy=loop.policy, enrichers=(judge,))
    path = tmp_path / "r.parquet"
    assert len(record(questions, loop, path, concurrency=1).failed) == 1
    record(questions, loop, path, concurrency=1)
    recording = read_recording(path)
    assert loop.model.calls == 6
    assert judge.calls == 7
    assert (recording.column("judge_entailment") == 4).all()
    assert recording.column("cost.judge:entailment.calls").sum() == 6


def test_both_ways_to_record_take_the_settings_of_a_plan(tmp_path):
    from suffice import record_async

    signature = inspect.signature(record)
    assert inspect.signature(record_async) == signature
    of_a_plan = {field.name: field.default for field in fields(RecordingPlan)}
    for name, parameter in signature.parameters.items():
        default = MISSING if parameter.default is parameter.empty else parameter.default
        assert name == "batches" or of_a_plan[name] == default, name
    questions, loop = scripted(n=1)
    with pytest.raises(TypeError, match="unknown"):
        asyncio.run(record_async(questions, loop, tmp_path / "r.parquet", unknown=1))


def test_progress_is_told_and_a_cancelled_run_resumes(tmp_path):
    questions, loop = scripted(latency_s=0.01)
    seen = []
    from suffice import record_async

    async def interrupted():
        def cancel(progress):
            seen.append(progress.done)
            task.cancel()

        task = asyncio.create_task(record_async(questions, loop, tmp_path / "r.parquet", on_progress=cancel))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    assert 0 < len(seen) < 18
    record(questions, loop, tmp_path / "r.parquet")
    assert read_recording(tmp_path / "r.parquet").shape == (6, 3)


def test_infinite_logprobs_and_odd_text_survive_the_journal(tmp_path):
    from suffice import Token

    tokens = (Token("x", 0.0, (("x", 0.0), ("y", float("-inf"))), b"x"), Token("\ud83d", -1.0))
    reply = Reply(answer="x\u2028\x00y", text="Answer: x", answer_tokens=tokens)
    questions, _ = scripted(n=1, rounds=1)
    loop = RetrievalLoop(
        model=ScriptedModel(lambda question, passages: reply),
        retriever=InMemoryRetriever(),
        policy=Policy(max_rounds=1),
    )
    record(questions, loop, tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.answers[0, 0] == "x\u2028\x00y"
    assert np.isnan(recording.column("answer_margin")).all()


def test_secrets_reach_neither_file_nor_journal(tmp_path):
    questions = run.questions(3)
    with Endpoint(run.reply, fault=[None] * 4 + ["401"]) as endpoint:
        loop = run.loop(endpoint.url)
        loop = RetrievalLoop(
            model=type(loop.model)("tiny", base_url=endpoint.url, api_key="sk-secret-value", max_retries=0),
            retriever=loop.retriever,
            policy=loop.policy,
        )
        with pytest.raises(AuthenticationFailedError):
            record(questions, loop, tmp_path / "r.parquet", concurrency=1)
        for file in tmp_path.iterdir():
            assert b"sk-secret" not in file.read_bytes()
        record(questions, loop, tmp_path / "r.parquet", concurrency=1)
    assert b"sk-secret" not in (tmp_path / "r.parquet").read_bytes()
    assert "sk-secret" not in json.dumps(read_recording(tmp_path / "r.parquet").metadata)
