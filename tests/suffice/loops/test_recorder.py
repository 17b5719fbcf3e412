"""The recorder for loops of one's own: threads, tasks, processes and kills; what it writes is a recording like any other."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal as signals
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from suffice import Audit, Cost, Passage, Policy, Recorder, Reply, Round, calibrate, decide, read_recording, replay
from suffice.errors import ConfigMismatchError, DataError, SchemaError, UnknownSignalError
from suffice.policy.signals import AnswerPosition, Idf
from suffice.recordings import journal_file, write_recording
from tests.suffice.policy.test_replies import PAYLOADS
from tests.support import children
from tests.support.strategies import NAN

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.parquet"


def play(recorder, question, answers, **arguments):
    """Record one question whose loop ends by itself."""
    with recorder.question(question, **arguments) as run:
        for answer in answers:
            run.observe(answer)
    return run


def raising(error):
    yield "a"
    raise error


def ends(path):
    recording = read_recording(path)
    return dict(zip(recording.question_ids, recording.ends.tolist(), strict=True))


@pytest.mark.parametrize("name", ["question", "text", "passage_ids", "team", "model", "f1", "shadow.x"])
def test_a_signal_named_like_another_column_is_refused_alone(path, name):
    recorder = Recorder(path, labels={"team": "a"})
    play(recorder, "Where?", ["a"])
    with recorder.question("Who?") as run:
        with pytest.raises(DataError, match=f"'{name}'"):
            run.observe(Reply(answer="a", signals={name: 1.0}))
        run.observe("b")
    recorder.close()
    assert read_recording(path).shape == (2, 1)
    with pytest.raises(DataError, match="label"):
        Recorder(path, labels={"passage_ids": "x"})


def test_a_loop_is_recorded_response_by_response(path):
    recorder = Recorder(path, max_rounds=2, labels={"model": "m"})
    with recorder.question("Which play has Prospero?", golds=["The Tempest"], question_id="q1") as run:
        while not run.done:
            run.observe(PAYLOADS["openai_chat"], seconds=0.5, passages=(Passage(passage_id="p", title="t", text="x"),))
    for recording in (read_recording(path), recorder.close(), read_recording(path)):
        if recording is None:
            continue
        assert recording.question_ids == ["q1"]
        assert recording.ends.tolist() == ["max_rounds"]
        assert recording.column("em").tolist() == [[1.0, 1.0]]
        assert recording.column("answer_margin").tolist() == [[1.5, 1.5]]
        assert recording.column("cost.generator.cached_tokens").tolist() == [[100.0, 100.0]]
        assert recording.column("cost.generator.seconds").tolist() == [[0.5, 0.5]]
        assert recording.objects("model").tolist() == [["m", "m"]]
        assert recording.metadata["depends"] == {"model": "m"}
    assert read_recording(path).table.num_rows == 2
    assert not recorder.journal.content().questions
    assert run.decision.answer == "The Tempest"


def test_a_response_whose_id_came_before_is_noted_once(path, caplog):
    def response(name, text):
        return {"id": name, "object": "chat.completion", "choices": [{"message": {"content": text}}]}

    recorder = Recorder(path)
    for names, n_noted in ((["1", "2"], 0), (["3", "2", "2"], 1)):
        with recorder.question(f"Who is {names}?") as run:
            for name in names:
                run.observe(response(name, "Oslo"))
            assert len(caplog.messages) == n_noted
            run.observe("a text has no id")
            run.observe({"role": "assistant", "content": "nor has this message"})
    (warning,) = caplog.messages
    assert "have the id '2'" in warning
    assert read_recording(path).table.num_rows == 9  # all of it is recorded


def test_a_recording_is_replayed_calibrated_and_decided_on(path):
    rng = np.random.default_rng(0)
    with Recorder(path, max_rounds=3) as recorder:
        for q in range(60):
            with recorder.question(f"Who is {q}?", golds="Oslo", question_id=f"q{q}") as run:
                while not run.done:
                    right = rng.random() < 0.6
                    signals = {"answer_margin": rng.random() + right}
                    run.observe("Oslo" if right else f"Lima {rng.random()}", signals=signals)
    recording = read_recording(path)
    assert replay(recording, ["answer_stable"], metrics=["em"]).rows
    policy, _ = calibrate(recording, rule="margin(0.7)", target="em")
    assert policy.answer_position == AnswerPosition("whole")
    assert decide(recording, metric="em").sentence


def test_a_policy_decides_and_what_it_cut_off_is_censored(path):
    policy = Policy(rule="answer_stable", max_rounds=3, selector="first")
    with Recorder(path, policy=policy) as recorder:
        with recorder.question("one", question_id="q1") as run:
            stops = [run.observe(answer).stop for answer in ("Rome", "Oslo", "Oslo")]
        assert (stops, run.done, run.decision.answer, run.decision.reason) == (
            [False, False, True],
            True,
            "Rome",
            "rule",
        )
        with recorder.question("two", question_id="q2") as run:
            while not run.done:
                run.observe(f"answer {run.next_round}")
        assert run.decision.reason == "max_rounds"
        assert play(recorder, "three", ["a"], question_id="q3").decision.reason == "cancelled"
        with recorder.question("four", question_id="q4") as run:
            run.observe("a")
            assert run.end("exhausted").answer == "a"
    assert ends(path) == {"q1": "rule", "q2": "max_rounds", "q3": "rule", "q4": "exhausted"}


def test_a_round_without_what_the_policy_reads_is_recorded_all_the_same(path):
    recorder = Recorder(path, policy="own > 0.5")
    with pytest.raises(UnknownSignalError):
        play(recorder, "one", ["a"], question_id="q1")
    assert ends(path) == {"q1": "failed"}
    warned = Recorder(path, policy="own > 0.5", missing="ignore")
    play(warned, "two", ["a"], question_id="q2")
    assert read_recording(path).shape == (2, 1)
    recorder.close()
    warned.close()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_a_question_that_raises_failed_with_the_rounds_it_had(path, error):
    with Recorder(path) as recorder:
        with pytest.raises(error):
            play(recorder, "one", raising(error("sk-secret")), question_id="q1")
        play(recorder, "two", ["a", "b"], question_id="q2")
    recording = read_recording(path)
    assert ends(path) == {"q1": "failed", "q2": "max_rounds"}
    assert recording.seen.tolist() == [[True, False], [True, True]]
    assert recording.metadata["failed"]["q1"].endswith(error.__name__)
    assert b"sk-secret" not in path.read_bytes()


def test_an_error_after_the_end_does_not_change_it(path):
    with Recorder(path, max_rounds=1) as recorder, pytest.raises(ValueError, match="later"):
        play(recorder, "one", raising(ValueError("later")), question_id="q1")
    assert ends(path) == {"q1": "max_rounds"}


def test_ends_that_nobody_named_follow_from_the_lengths(path):
    with Recorder(path) as recorder:
        play(recorder, "one", ["a", "b"], question_id="q1")
        play(recorder, "two", ["a", "b"], question_id="q2")
        assert ends(path) == {"q1": "max_rounds", "q2": "max_rounds"}  # all of one length: a cap
        recorder.save()
        play(recorder, "three", ["a", "b", "c"], question_id="q3")  # not a cap, then: the loop ended the others
        assert ends(path) == {"q1": "rule", "q2": "rule", "q3": "max_rounds"}
        recorder.save()
        with recorder.question("four", question_id="q4") as run:
            run.observe("a")
            run.end("exhausted")
        with recorder.question("five", question_id="q5") as run:
            for answer in "abcd":
                run.observe(answer)
            run.end("cancelled")  # and so is no cap
    assert ends(path) == {"q1": "rule", "q2": "rule", "q3": "max_rounds", "q4": "exhausted", "q5": "failed"}


def test_an_unfinished_question_counts_as_failed_until_it_ends(path):
    recorder = Recorder(path)
    play(recorder, "one", ["a"], question_id="q1")
    with recorder.question("two", question_id="q2") as run:
        run.observe("a")
        recording = read_recording(path)
        assert ends(path) == {"q1": "max_rounds", "q2": "failed"}
        assert "unfinished" in recording.metadata["failed"]["q2"]
        recorder.save()  # what has ended moves; what has not stays where it is
        assert path.exists()
        assert ends(path) == {"q1": "max_rounds", "q2": "failed"}
        run.observe("b")
    assert ends(path) == {"q1": "rule", "q2": "max_rounds"}
    assert read_recording(path).metadata["failed"] == {}
    recorder.close()
    assert not recorder.journal.content().questions


def test_gold_answers_may_be_given_once_for_all_questions(path):
    with Recorder(path, golds={"Where is it? ": "Oslo", "Who?": ["Ibsen", "Henrik Ibsen"]}) as recorder:
        for question, golds in (
            ("Where is it?", None),
            (" Who?", None),
            ("Who?", "Grieg"),
            ("Who?", ()),
            ("Why?", None),
        ):
            play(recorder, question, ["Oslo"], golds=golds)
    assert read_recording(path).objects("golds")[:, 0].tolist() == [
        ["Oslo"],
        ["Ibsen", "Henrik Ibsen"],
        ["Grieg"],
        [],
        [],
    ]


def test_a_question_recorded_again_is_the_same_unit(path):
    with Recorder(path) as recorder:
        play(recorder, "one", ["a"], question_id="q1")
        recorder.save()
        play(recorder, "one", ["b"], question_id="q1")
        play(recorder, "one", ["c"], question_id="q1#2")
        play(recorder, "one", ["d"])
    recording = read_recording(path)
    assert len(set(recording.question_ids)) == 4
    assert recording.question_ids[:2] == ["q1", "q1#2"]
    assert recording.clusters.tolist()[:2] == ["q1", "q1"]


def test_a_save_killed_before_emptying_the_journal_duplicates_nothing(path, tmp_path):
    recorder = Recorder(path)
    play(recorder, "one", ["a"], question_id="q1")
    shutil.copy(recorder.journal.path, tmp_path / "before")
    recorder.save()
    shutil.copy(tmp_path / "before", recorder.journal.path)
    assert read_recording(path).question_ids == ["q1"]
    play(recorder, "two", ["b"], question_id="q2")
    recorder.close()
    assert read_recording(path).question_ids == ["q1", "q2"]


@pytest.mark.parametrize("folder", [False, True])
def test_a_question_recorded_at_once_is_one_commit_or_none(tmp_path, monkeypatch, folder):
    path = tmp_path / ("log" if folder else "log.parquet")
    recorder = Recorder(path, policy="fixed_k(2)", audit=Audit(rate=1.0, seed="secret enough"))
    play(recorder, "before", ["a", "b"], question_id="before")
    syncs, sync = [], journal_file._sync_file
    monkeypatch.setattr(journal_file, "_sync_file", lambda file: [syncs.append(file), sync(file)])
    with pytest.raises(UnknownSignalError), recorder.at_once("Where?", question_id="a") as run:
        raise UnknownSignalError(run.observe("Oslo"))
    assert not syncs
    with recorder.at_once("Where?", question_id="b") as run:
        for answer in ("Oslo", "Bergen"):
            run.observe(answer)
    assert len(syncs) == 1
    assert run.auditing
    run.observe("Bergen")  # what its audit adds is committed round by round
    assert len(syncs) == 2
    assert read_recording(path).question_ids == ["before", "b"]
    assert read_recording(path).metadata["failed"] == {}
    recorder.close()


@pytest.mark.parametrize("folder", [False, True])
def test_rounds_recorded_together_are_committed_at_once_or_not_at_all(tmp_path, folder):
    path = tmp_path / ("log" if folder else "log.parquet")
    recorder = Recorder(path, policy="fixed_k(2)")
    with pytest.raises(UnknownSignalError), recorder.question("Where?", question_id="a").together() as run:
        raise UnknownSignalError(run.observe("Oslo"))
    with recorder.question("Where?", question_id="b").together() as run:
        assert not run.observe("Oslo").stop
        with pytest.raises(DataError, match="observed"):
            read_recording(path)
        assert run.observe("Bergen").stop
    run = recorder.question("Where?", question_id="c")
    assert not run.observe("Oslo").stop
    assert run.observe("Bergen").stop
    recording = read_recording(path)
    assert recording.answers.tolist() == [["Oslo", "Bergen"]] * 2
    assert list(recording.question_ids) == ["b", "c"]
    recorder.close()


def test_a_save_that_fails_loses_nothing(path, monkeypatch):
    recorder = Recorder(path)
    play(recorder, "one", ["a"], question_id="q1")
    with monkeypatch.context() as patch:
        patch.setattr(
            "suffice.recordings.parts_writing.write_tables", lambda *_, **__: (_ for _ in ()).throw(DataError("disk"))
        )
        with pytest.raises(DataError, match="disk"):
            recorder.save()
    assert ends(path) == {"q1": "max_rounds"}
    recorder.close()
    assert ends(path) == {"q1": "max_rounds"}


def test_threads_record_at_the_same_time(path):
    with Recorder(path, max_rounds=2) as recorder:

        def work(worker):
            for q in range(3):
                with recorder.question(f"{worker} {q}", question_id=f"w{worker}-{q}") as run:
                    while not run.done:
                        run.observe(f"{worker} {q} {run.next_round}")

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    recording = read_recording(path)
    assert recording.shape == (18, 2)
    for name, answers in zip(recording.question_ids, recording.answers.tolist(), strict=True):
        worker, q = name[1:].split("-")
        assert answers == [f"{worker} {q} 1", f"{worker} {q} 2"]


def test_tasks_record_at_the_same_time_and_a_cancelled_one_failed(path):
    async def work(recorder, q):
        async with recorder.question(f"Who is {q}?", question_id=f"q{q}") as run:
            while not run.done:
                run.observe(f"{q} {run.next_round}")
                await asyncio.sleep(3600 if q == 3 and run.next_round == 2 else 0)

    async def main(recorder):
        tasks = [asyncio.create_task(work(recorder, q)) for q in range(4)]
        await asyncio.wait(tasks[:3])
        tasks[3].cancel()
        await asyncio.wait(tasks)

    with Recorder(path, max_rounds=3) as recorder:
        asyncio.run(main(recorder))
    assert ends(path) == {"q0": "max_rounds", "q1": "max_rounds", "q2": "max_rounds", "q3": "failed"}
    assert read_recording(path).seen.sum(axis=1).tolist() in ([3, 3, 3, 1], [3, 3, 1, 3], [3, 1, 3, 3], [1, 3, 3, 3])


@pytest.mark.whole
def test_several_processes_write_to_one_recording_and_a_killed_one_loses_nothing(path):
    killed, *others = [
        children.told(children.log_rounds, str(path), name, n)
        for name, n in (("killed", 3), ("w0", 4), ("w1", 4), ("w2", 4))
    ]
    assert killed[1].recv() == "ready"
    children.killed(killed[0])
    for process, pipe in (killed, *others):
        process.join()
        pipe.close()
    assert [process.exitcode for process, _ in (killed, *others)] == [-signals.SIGKILL, 0, 0, 0]
    recording = read_recording(path)
    finished = {f"w{i}-{q}" for i in range(3) for q in range(4)} | {f"killed-{q}" for q in range(3)}
    assert {*recording.question_ids} == finished | {"last"}
    assert {name for name, end in ends(path).items() if end == "failed"} == {"last"}
    assert recording.answers[recording.question_ids.index("last")].tolist() == ["paid for", None]
    assert "unfinished" in recording.metadata["failed"]["last"]
    with Recorder(path) as again:  # the next program goes on, and the killed question stays visible
        play(again, "last", ["a", "b"], question_id="last")
    assert ends(path)["last"] == "max_rounds"
    assert ends(path)["last#2"] == "failed"


@pytest.mark.whole
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_goes_on_with_the_recorder_of_its_parent(path):
    recorder = Recorder(path)
    play(recorder, "one", ["a"], question_id="q1")
    child = os.fork()
    if not child:
        code = 1
        try:
            play(recorder, "two", ["a"], question_id="q2")
            code = 0
        finally:
            os._exit(code)
    play(recorder, "three", ["a"], question_id="q3")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    recorder.close()
    assert {*ends(path)} == {"q1", "q2", "q3"}


@pytest.mark.whole
def test_a_program_that_ends_saves_its_file_and_seals_its_part(path):
    code = (
        "import sys; from suffice import Recorder; kept = [Recorder(path) for path in sys.argv[1:]]\n"
        "for r in kept: run = r.question('q').__enter__(); run.observe('a'); run.end('rule')"
    )
    log = path.with_name("log")
    subprocess.run([sys.executable, "-c", code, str(path), str(log)], check=True, cwd=ROOT)
    path.with_name("runs.parquet.rounds").unlink()
    assert read_recording(path).answers.tolist() == [["a"]]
    assert not [*log.glob("*.rounds")]
    assert read_recording(log).answers.tolist() == [["a"]]


def test_only_the_fields_of_a_round_reach_the_disk(path):
    secret = "sk-0123456789abcdef"
    payload = {
        **PAYLOADS["openai_chat"],
        "headers": {"authorization": secret},
        "api_key": secret,
        "service_tier": secret,
    }
    recorder = Recorder(path)
    play(recorder, "one", [payload])
    assert secret.encode() not in recorder.journal.path.read_bytes()
    recorder.close()
    assert secret.encode() not in path.read_bytes()


def test_own_signals_metrics_labels_and_costs_have_columns_of_their_kind(path):
    with Recorder(path) as recorder:
        with recorder.question("one", question_id="q1", labels={"team": "red"}) as run:
            run.observe("a", signals={"own": 0.5}, metrics={"resolved": 1, "em": NAN})
        recorder.save()
        judge = {"generator": Cost(calls=1), "judge:own": Cost(calls=2)}
        with recorder.question("two", question_id="q2", labels={"team": "blue", "tier": "b"}) as run:
            run.observe("a", signals={"own": NAN}, costs=judge, metrics={"resolved": NAN})
            run.observe(Round(index=2, answer="b", costs={"generator": Cost(calls=1)}))
    recording = read_recording(path)
    assert "own" in recording.names("signal")
    assert "resolved" in recording.names("metric")
    np.testing.assert_equal(recording.column("own"), [[0.5, NAN], [NAN, NAN]])
    np.testing.assert_equal(recording.column("resolved"), [[1, NAN], [NAN, NAN]])
    np.testing.assert_equal(recording.column("cost.judge:own.calls"), [[0, NAN], [2, 0]])
    assert recording.objects("team")[:, 0].tolist() == ["red", "blue"]
    assert recording.objects("tier")[:, 0].tolist() == [None, "b"]


def test_a_fitted_signal_of_the_policy_is_recorded(path):
    policy = Policy(rule="overlap > 0.9", state={"overlap": Idf.fit(["a storm", "a sea"])})
    passages = tuple(Passage(passage_id=str(i), title="t", text="a storm") for i in range(2))
    with Recorder(path, policy=policy) as recorder, recorder.question("one") as run:
        assert not run.observe("x", passages=passages[:1]).stop
        assert run.observe("x", passages=passages).stop
    assert read_recording(path).column("overlap")[0, 1] == pytest.approx(1.0)
    assert list(read_recording(path).metadata["state"]) == ["overlap"]


def test_rounds_and_replies_of_ones_own_are_taken(path):
    with Recorder(path, start_round=0) as recorder, recorder.question("one") as run:
        assert run.observe(Round(index=0, answer="a")) is None
        run.observe(Reply(answer="b", text="B"), feedback="Say more.")
        with pytest.raises(DataError, match="round 1"):
            run.observe(Round(index=1, answer="c"))
        with pytest.raises(DataError, match="own fields"):
            run.observe(Round(index=2, answer="c"), feedback="x")
        with pytest.raises(DataError, match="accepted are"):
            run.observe(3)
    recording = read_recording(path)
    assert recording.index.tolist() == [0, 1]
    assert recording.objects("feedback").tolist() == [[None, "Say more."]]


def test_where_the_answer_is(path, tmp_path):
    texts = ["Answer: Oslo\nConfidence: 4", "It lies in Oslo."]

    def answers(name, **arguments):
        with Recorder(tmp_path / name, **arguments) as recorder:
            play(recorder, "one", texts)
        return read_recording(tmp_path / name).answers.tolist()[0]

    assert answers("whole") == texts
    assert answers("rule", policy="fixed_k(9)") == texts
    with pytest.warns(UserWarning, match="answer_position"):
        assert answers("policy", policy=Policy(rule="fixed_k(9)")) == ["Oslo", None]
    with pytest.warns(UserWarning, match="answer_position"):
        assert answers("given", answer_position=AnswerPosition()) == ["Oslo", None]


def test_a_call_of_tools_is_a_round_without_an_answer(path):
    with Recorder(path) as recorder:
        play(recorder, "one", [PAYLOADS["openai_chat_tools"], PAYLOADS["openai_chat"]])
    recording = read_recording(path)
    assert recording.answers.tolist() == [[None, "The Tempest"]]
    assert recording.objects("finish_reason").tolist() == [["tool_calls", "stop"]]


def test_a_question_without_rounds_is_counted_as_failed(path):
    with Recorder(path) as recorder:
        play(recorder, "nothing", [], question_id="q0")
        play(recorder, "one", ["a"], question_id="q1")
        with pytest.raises(OSError, match="down"), recorder.question("two", question_id="q2"):
            raise OSError("down")
    assert read_recording(path).metadata["failed"] == {"q0": "no round was observed", "q2": "OSError"}
    with Recorder(path) as recorder:
        play(recorder, "nothing", ["a"], question_id="q0")
    assert read_recording(path).question_ids == ["q1", "q0#2"]


def test_other_settings_are_refused(path):
    recorder = Recorder(path, labels={"model": "m"})
    with pytest.raises(ConfigMismatchError, match="model"):
        Recorder(path, labels={"model": "n"})
    play(recorder, "one", ["a"])
    recorder.close()
    with pytest.raises(ConfigMismatchError, match="answer_position"):
        Recorder(path, answer_position=AnswerPosition(), labels={"model": "m"})
    with pytest.raises(ConfigMismatchError, match="start_round"):
        Recorder(path, start_round=0, labels={"model": "m"})


def test_a_recording_of_something_else_is_refused(path, tmp_path):
    write_recording(path, [{"question_id": "q", "round": 1, "answer": "a"}])
    with pytest.raises(ConfigMismatchError):
        Recorder(path)
    other = Recorder(tmp_path / "other.parquet")
    play(other, "one", ["a"])
    shutil.copy(other.journal.path, path.with_name("runs.parquet.rounds"))
    with pytest.raises(SchemaError, match="no Recorder"):
        read_recording(path)
    other.close()


@pytest.mark.parametrize("damage", [b"no journal at all", None])
def test_a_damaged_journal_is_refused(path, damage):
    recorder = Recorder(path)
    play(recorder, "one", ["answer a"])
    data = recorder.journal.path.read_bytes()
    recorder.journal.path.write_bytes(damage or data.replace(b"answer a", b"answer b"))
    with pytest.raises(SchemaError, match="damaged"):
        read_recording(path)
    with pytest.raises(SchemaError, match="damaged"):
        recorder.close()


def test_nothing_recorded_is_said(path):
    recorder = Recorder(path)
    with pytest.raises(DataError, match="observed"):
        read_recording(path)
    recorder.close()
    assert not path.exists()
    recorder.journal.path.unlink()
    recorder.close()
    with pytest.raises(DataError, match="exist"):
        read_recording(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "fixed_k(1)", "max_rounds": 2}, "leave out"),
        ({"start_round": 2}, "start_round"),
        ({"labels": {"answer": "x"}}, "label"),
        ({"labels": {"model": 3}}, "label"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"answer_position": "marker"}, "AnswerPosition"),
        ({"policy": 3}, "a Policy"),
        ({"golds": ["Oslo"]}, "by the text"),
        ({"golds": {"Where?": [3]}}, "are texts"),
    ],
)
def test_contradicting_settings_are_refused(path, arguments, message):
    with pytest.raises(DataError, match=message):
        Recorder(path, **arguments)


def test_wrong_questions_and_ends_are_refused(path):
    with Recorder(path) as recorder:
        for question, arguments in (
            (" ", {}),
            (3, {}),
            ("q", {"golds": [3]}),
            ("q", {"question_id": ""}),
            ("q", {"labels": {"round": "x"}}),
        ):
            with pytest.raises(DataError):
                recorder.question(question, **arguments)
        with recorder.question("q") as run:
            for metrics in ({"resolved": 2}, {"answer": 1}, {"a b": 1}):
                with pytest.raises(DataError, match="metric"):
                    run.observe("a", metrics=metrics)
            run.observe("a")
            with pytest.raises(DataError, match="allowed: max_rounds"):
                run.end("bored")
            assert run.end("rule") is None
            with pytest.raises(DataError, match="has ended"):
                run.end("rule")
            with pytest.raises(DataError, match="has ended"):
                run.observe("b")
        assert (run.done, run.decision) == (True, None)
