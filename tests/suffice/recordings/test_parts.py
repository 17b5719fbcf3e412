"""Recordings as folders of parts: any division into parts is the same recording, and every process writes its own."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import part_kills
from hypothesis import given, settings, strategies as st

from suffice import Audit, Policy, Recorder, Resampling, read_recording, replay
from suffice.errors import BusyError, ConfigMismatchError, DataError, NotFoundError, SchemaError
from suffice.recordings import (
    bundled_recording,
    compact_recording,
    merge_recordings,
    parts,
    parts_writing,
    write_recording,
)
from suffice.recordings.file_locks import try_lock
from suffice.recordings.merging import RUN
from suffice.recordings.opened import PartGoneError
from suffice.recordings.parts import part_paths
from suffice.recordings.recording import open_recording
from suffice.recordings.round_journal import RoundJournal, SealedError
from tests.support import children
from tests.support.cli_tools import cli
from tests.support.replayed import assert_same_replay, replay_in_blocks


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def play(recorder, question, answers="ab", **arguments):
    """Record one question whose loop ends by itself."""
    with recorder.question(question, **arguments) as run:
        for answer in answers:
            run.observe(answer)


def answers(path):
    """The answers of each question that did not fail."""
    recording = read_recording(path)
    rows = zip(recording.question_ids, recording.answers.tolist(), recording.ends.tolist(), strict=True)
    return {name: [answer for answer in row if answer is not None] for name, row, end in rows if end != "failed"}


def journals(log):
    return sorted(path.name for path in log.glob("*.rounds"))


def test_a_path_without_suffix_is_a_folder_of_each_processs_parts(log):
    recorder = Recorder(log, part_questions=2)
    assert not part_paths(log)
    for q in range(5):
        play(recorder, f"Who is {q}?", question_id=f"q{q}")
    assert len(part_paths(log)) == 3
    assert answers(log) == {f"q{q}": ["a", "b"] for q in range(5)}
    recorder.close()
    assert not journals(log)
    assert len(part_paths(log)) == 3
    assert answers(log) == {f"q{q}": ["a", "b"] for q in range(5)}
    with Recorder(log) as again:  # an existing folder
        play(again, "Who is 5?", question_id="q5")
    assert len(part_paths(log)) == 4
    assert [read_recording(part).shape[0] for part in part_paths(log)] == [2, 2, 1, 1]
    assert len(answers(log)) == 6


def test_threads_share_a_part_and_full_ones_are_sealed_beside(log):
    with Recorder(log, part_questions=4) as recorder:

        def work(worker):
            for q in range(4):
                play(recorder, f"{worker} {q}", question_id=f"w{worker}-{q}")

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(part_paths(log)) >= 4
    assert not journals(log)
    assert set(answers(log)) == {f"w{worker}-{q}" for worker in range(4) for q in range(4)}


def test_a_part_takes_no_more_questions_once_its_journal_is_large(log):
    with Recorder(log, part_bytes=1) as recorder:
        for q in range(3):
            play(recorder, f"Who is {q}?")
    assert len(part_paths(log)) == 3
    for wrong in ({"part_questions": 0}, {"part_bytes": 0}):
        with pytest.raises(DataError, match="least one"):
            Recorder(log, **wrong)


def test_a_question_stays_in_its_part_which_waits_for_it(log):
    recorder = Recorder(log, part_questions=1)
    run = recorder.question("slow", question_id="slow").__enter__()
    run.observe("a")
    play(recorder, "quick", question_id="quick")
    play(recorder, "last", question_id="last")
    recorder.save()
    assert len(part_paths(log)) == 3
    assert len(journals(log)) == 2  # of the first part, which waits, and of the last, which takes questions
    assert answers(log) == {"quick": ["a", "b"], "last": ["a", "b"]}
    assert read_recording(log).question_ids == ["slow", "quick", "last"]
    run.observe("b")
    run.end("exhausted")
    recorder.close()
    assert not journals(log)
    assert answers(log)["slow"] == ["a", "b"]


def test_a_full_part_is_sealed_while_another_is_being_sealed(log, monkeypatch):
    began, may_end, move = threading.Event(), threading.Event(), parts_writing.move_ended

    def held(path, journal, **options):
        began.set()
        assert may_end.wait(600)
        move(path, journal, **options)

    monkeypatch.setattr(parts_writing, "move_ended", held)
    with Recorder(log, part_questions=1) as recorder:
        play(recorder, "first")
        play(recorder, "second")
        assert began.wait(600)  # the thread that seals has seen the first part alone
        play(recorder, "third")
        may_end.set()
        recorder._log._sealing.join()
        assert len(part_paths(log)) == 3
        assert len(journals(log)) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_full_parts_are_sealed_after_an_attempt_that_failed(log, monkeypatch):
    def failing(_journals):
        raise MemoryError

    with Recorder(log, part_questions=1) as recorder:
        with monkeypatch.context() as patch:
            patch.setattr(parts_writing, "_seal_elsewhere", failing)
            play(recorder, "first")
            play(recorder, "second")
            recorder._log._sealing.join()
            assert len(journals(log)) == 2
        play(recorder, "third")
        recorder._log._sealing.join()
        assert len(journals(log)) == 1


@pytest.mark.whole
@pytest.mark.parametrize("works", [True, False])
def test_a_large_full_part_is_sealed_by_another_process_if_it_can(log, monkeypatch, works):
    moved, move = [], parts_writing.move_ended

    def noted(path, journal, **options):
        moved.append(journal.path.exists())
        move(path, journal, **options)

    monkeypatch.setattr(parts_writing, "LARGE_BYTES", 1)
    monkeypatch.setattr(parts_writing, "move_ended", noted)
    if not works:
        monkeypatch.setattr(sys, "executable", str(log.parent / "python-that-is-gone"))
    with Recorder(log, part_questions=2) as recorder:
        for q in range(3):
            play(recorder, f"Who is {q}?", question_id=f"q{q}")
        recorder._log._sealing.join()
        assert len(journals(log)) == 1
    assert moved[0] is not works
    assert answers(log) == {f"q{q}": ["a", "b"] for q in range(3)}


def test_a_part_sealed_during_listing_is_listed(log, monkeypatch):
    recorder = Recorder(log, part_questions=1)
    play(recorder, "Who?")
    glob, calls = Path.glob, []

    def sealing(folder, pattern):
        found = [*glob(folder, pattern)]
        calls.append(pattern)
        if len(calls) == 1:
            recorder.close()
        return found

    monkeypatch.setattr(Path, "glob", sealing)
    assert len(part_paths(log)) == 1
    assert len(calls) > 1
    assert not journals(log)


def test_ended_questions_leave_a_full_journal_despite_an_endless_one(log):
    recorder = Recorder(log, part_questions=2)
    lost = recorder.question("lost", question_id="lost").__enter__()
    lost.observe("a")
    for q in range(2):
        play(recorder, f"Who is {q}?", question_id=f"q{q}")
    recorder._log._sealing.join()
    (first, *_) = part_paths(log)
    assert read_recording(first).question_ids == ["q0", "lost"]
    assert [question.run for question in RoundJournal(first).content().questions] == [lost.run]
    recorder.close()
    assert len(journals(log)) == 1


def test_a_saved_part_is_read_with_its_journal(log):
    recorder = Recorder(log)
    play(recorder, "one", question_id="q1")
    recorder.save()
    play(recorder, "two", question_id="q2")
    (part,) = part_paths(log)
    assert read_recording(part).question_ids == ["q1", "q2"]
    assert answers(log) == {"q1": ["a", "b"], "q2": ["a", "b"]}
    recorder.close()


def test_a_repeated_question_is_numbered_in_order_of_time(log):
    recorder = Recorder(log, part_questions=1)
    for answer in "abc":
        play(recorder, "Who?", answer, question_id="q")
    play(recorder, "Who?", "d", question_id="q#2")
    recorder.close()
    assert answers(log) == {"q": ["a"], "q#2": ["b"], "q#3": ["c"], "q#2#2": ["d"]}
    assert read_recording(log).clusters.tolist() == ["q", "q", "q", "q#2"]
    streamed = replay_in_blocks(log, "full", metrics=(), baseline="fixed_k(1)")
    assert (streamed.n, streamed.n_clusters) == (4, 2)


def test_an_end_that_nobody_named_follows_from_the_lengths_in_all_parts(log):
    with Recorder(log, part_questions=1) as recorder:
        play(recorder, "one", "ab", question_id="q1")
        play(recorder, "two", "abc", question_id="q2")
    recording = read_recording(log)
    assert recording.ends.tolist() == ["rule", "max_rounds"]


def test_a_run_that_is_in_two_parts_counts_once(log):
    recorder = Recorder(log)
    play(recorder, "one", question_id="q1")
    run = recorder.question("two", question_id="q2").__enter__()
    run.observe("a")
    (part,) = part_paths(log)
    copied = part.with_name(part.name.replace("part-", "part-0"))
    for suffix in ("", ".rounds"):
        source = part.with_name(part.name + suffix)
        if source.exists():
            copied.with_name(copied.name + suffix).write_bytes(source.read_bytes())
    run.observe("b")
    run.end("exhausted")
    recorder.close()
    assert answers(log) == {"q1": ["a", "b"], "q2": ["a", "b"]}
    assert read_recording(log).table.num_rows == 4
    assert read_recording(log).metadata["failed"] == {}
    assert replay_in_blocks(log, "answer_stable", metrics=()).n == 2


def parts_of(folder, table, assigned, metadata=None):
    """Write the questions of a table into parts, by the number of each question's part."""
    folder.mkdir()
    ids = np.asarray(table.column("question_id").to_pylist())
    order = {name: i for i, name in enumerate(dict.fromkeys(ids.tolist()))}
    rows = np.asarray([assigned[order[name]] for name in ids])
    for number in sorted(set(assigned)):
        write_recording(folder / f"part-{number}.parquet", table.filter(pa.array(rows == number)), metadata)
    return folder


def logged(draw):
    """Draw rows as a recorder leaves them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    rows = []
    n = draw(st.integers(2, 9))
    for q, time in enumerate(rng.permutation(n)):
        length = int(rng.integers(1, 4))
        inferred = rng.random() < 0.5
        for r in range(1, length + 1):
            rows.append(
                {
                    "question_id": f"q{q}",
                    "cluster": f"q{q // 2}",
                    RUN: f"{rng.integers(2**32):08x}{q}",
                    "round": r,
                    "end": "max_rounds" if length == 3 else "rule" if inferred else "exhausted",
                    "end_inferred": float(inferred),
                    "question": f"Who is {q // 2}?",
                    "answer": str(rng.integers(3)),
                    "answer_margin": rng.random(),
                    "cost.generator.calls": 1.0,
                    "f1": float(rng.integers(2)),
                    "recorded_at": float(time // 2 * 10 + r),
                }
            )
            rows[-1][RUN] = rows[-r][RUN]
    return rows


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_any_division_into_parts_gives_the_same_recording_and_the_same_replay(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("split")
    rows = logged(data.draw)
    write_recording(folder / "all.parquet", rows)
    table = read_recording(folder / "all.parquet").table
    n = len({row["question_id"] for row in rows})
    assigned = data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    one = read_recording(parts_of(folder / "one", table, [0] * n))
    some = read_recording(parts_of(folder / "some", table, assigned))
    assert some.table.to_pylist() == one.table.to_pylist()
    assert some.data_hash == one.data_hash
    assert {name.split("#")[0] for name in one.question_ids} == set(one.clusters.tolist())
    rules = ["answer_margin > 0.5", "fixed_k(2)"]
    results = [
        replay(recording, rules, metrics=["f1"], baseline="fixed_k(1)", resampling=Resampling(n_resamples=50))
        for recording in (one, some)
    ]
    assert results[0].to_dict() == results[1].to_dict()


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_a_stream_over_parts_sums_what_one_file_does(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("stream")
    rows = [
        {**row, "cluster": row["question_id"], "end": "max_rounds", "end_inferred": 0.0} for row in logged(data.draw)
    ]
    extra = data.draw(st.booleans())
    n = len({row["question_id"] for row in rows})
    assigned = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    write_recording(folder / "all.parquet", rows)
    table = read_recording(folder / "all.parquet").table
    parts = parts_of(folder / "parts", table, assigned)
    if extra:  # a part may have columns of its own
        last = part_paths(parts)[-1]
        own = read_recording(last)
        write_recording(last, own.table.append_column("tier", pa.array(["a"] * own.table.num_rows)), own.metadata)
    whole = parts_of(folder / "whole", table, [0] * n)
    block_rows = data.draw(st.integers(1, 9))
    one, some = (
        replay_in_blocks(path, "answer_margin > 0.5", metrics=["f1"], baseline="fixed_k(1)", block_rows=block_rows)
        for path in (whole, parts)
    )
    assert_same_replay(some, one, apart=("data_hash",))  # the hash tells the order of the rows


def test_parts_may_differ_in_columns_and_not_in_settings(log):
    with Recorder(log, labels={"model": "m"}) as recorder:
        play(recorder, "one", question_id="q1")
    recorder = Recorder(log, policy="answer_stable", labels={"model": "m"})
    with recorder.question("two", question_id="q2", labels={"team": "red"}) as run:
        run.observe("a", signals={"own": 0.5}, metrics={"resolved": 1})
    recorder.close()
    recording = read_recording(log)
    assert recording.objects("team")[:, 0].tolist() == [None, "red"]
    assert recording.column("resolved")[1, 0] == 1
    assert "resolved" in recording.names("metric")
    with pytest.raises(ConfigMismatchError, match="another folder"):
        Recorder(log, labels={"model": "other"})
    other = Recorder(log.with_name("other"), labels={"model": "other"})
    play(other, "three")
    other.close()
    (part,) = part_paths(log.with_name("other"))
    part.rename(log / part.name)
    with pytest.raises(ConfigMismatchError, match="-> 'other'"):
        read_recording(log)


def test_a_question_of_no_recorder_is_in_one_part(log):
    log.mkdir()
    row = {"question_id": "q1", "round": 1, "answer": "a"}
    write_recording(log / "part-1.parquet", [row])
    write_recording(log / "part-2.parquet", [{**row, "question_id": "q2"}, {**row, "round": 2, "question_id": "q2"}])
    assert read_recording(log).question_ids == ["q1", "q2"]
    assert read_recording(log).ends.tolist() == ["max_rounds", "max_rounds"]
    write_recording(log / "part-3.parquet", [row])
    with pytest.raises(DataError, match="'q1'"):
        read_recording(log)


def test_a_damaged_part_is_named_and_the_others_are_read_without_it(log):
    with Recorder(log, part_questions=1) as recorder:
        for q in range(3):
            play(recorder, f"Who is {q}?", question_id=f"q{q}")
    part = part_paths(log)[1]
    intact = part.read_bytes()
    values = intact.index(b"q1")  # in the first page
    for content in (intact[:-20], b"", intact[:values] + bytes([intact[values] ^ 0xFF]) + intact[values + 1 :]):
        part.write_bytes(content)
        with pytest.raises(SchemaError, match=part.name) as raised:
            read_recording(log)
        assert "move it away" in str(raised.value)
    part.rename(log / "damaged")
    assert set(answers(log)) == {"q0", "q2"}


def test_a_damaged_journal_is_named(log):
    recorder = Recorder(log)
    play(recorder, "one")
    (part,) = part_paths(log)
    RoundJournal(part).path.write_bytes(b"no journal" * 500)
    with pytest.raises(SchemaError, match=f"{part.name}.rounds"):
        read_recording(log)
    RoundJournal(part).path.unlink()
    recorder.close()


def test_a_folder_without_a_recording_is_said(log, tmp_path):
    log.mkdir()
    with pytest.raises(NotFoundError, match="without a recording"):
        read_recording(log)
    write_recording(log / "runs.parquet", [{"question_id": "q", "round": 1}])
    with pytest.raises(NotFoundError, match=r"runs\.parquet"):
        read_recording(log)
    recorder = Recorder(tmp_path / "empty")
    run = recorder.question("one").__enter__()
    with pytest.raises(DataError, match="observed"):
        read_recording(tmp_path / "empty")
    run.end("cancelled")
    recorder.close()
    with pytest.raises(NotFoundError, match="without a recording"):
        read_recording(tmp_path / "empty")


def test_a_sealed_part_takes_nothing_and_its_process_begins_another(log):
    recorder = Recorder(log)
    play(recorder, "one", question_id="q1")
    (part,) = part_paths(log)
    recorder.save()
    assert RoundJournal(part, is_part=True).seal()
    play(recorder, "two", question_id="q2")
    assert len(part_paths(log)) == 2
    with pytest.raises(SealedError):
        RoundJournal(part, is_part=True).put("run", 1, {})
    assert not RoundJournal(part).path.exists()
    recorder.close()
    assert set(answers(log)) == {"q1", "q2"}


def test_a_question_continues_in_its_own_process_or_as_a_copy(log, monkeypatch):
    recorder = Recorder(log, max_rounds=3)
    run = recorder.question("one", question_id="q1").__enter__()
    run.observe("a")
    other = Recorder(log, max_rounds=3)
    again = other.resume(run.to_state())
    assert again.run == run.run
    again.observe("b")
    assert len(part_paths(log)) == 1
    with monkeypatch.context() as patch:
        patch.setattr("suffice.recordings.parts_writing._machine", lambda: "0" * 8)
        elsewhere = other.resume(again.to_state())
        assert elsewhere.run == run.run
        elsewhere.observe("c")
    assert len(part_paths(log)) == 2
    assert elsewhere.done
    for each in (recorder, other):
        each.close()
    assert list(answers(log).values()) == [["a", "b", "c"]]
    assert read_recording(log).metadata["failed"] == {}
    assert other.resume({**run.to_state(), "run": "no such run"}).run != run.run
    other.close()


def small_parts(log, n=4):
    with Recorder(log, part_questions=1) as recorder:
        for q in range(n):
            play(recorder, f"Who is {q % 3}?", question_id=f"q{q % 3}")
    return read_recording(log)


def test_ended_parts_are_joined_in_place_while_others_append(log):
    before = small_parts(log)
    recorder = Recorder(log)
    play(recorder, "late", question_id="late")
    summary = compact_recording(log)
    assert (summary.before, summary.after, summary.open) == (5, 2, 1)
    assert [pq.ParquetFile(path).num_row_groups for path in log.glob("*-merged.parquet")] == [1]
    play(recorder, "later", question_id="later")
    recorder.close()
    after = read_recording(log)
    assert after.select(np.arange(6) < 4).table.equals(before.table)
    assert after.question_ids == ["q0", "q1", "q2", "q0#2", "late", "later"]
    assert (compact_recording(log).after, compact_recording(log).before) == (1, 1)
    assert read_recording(log).table.equals(after.table)
    assert read_recording(part_paths(log)[0]).shape == (6, 2)


def test_a_compaction_that_was_killed_before_it_removed_parts_is_taken_up(log, monkeypatch):
    before = small_parts(log)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda path, **_: (_ for _ in ()).throw(KeyboardInterrupt(path)))
        with pytest.raises(KeyboardInterrupt):
            compact_recording(log)
    assert len(part_paths(log)) == 5
    assert read_recording(log).table.equals(before.table)
    part_paths(log)[2].unlink()  # or after some of them
    assert read_recording(log).table.equals(before.table)
    small_parts(log, 2)
    assert compact_recording(log).after == 1
    assert read_recording(log).shape[0] == 6


def test_a_joined_part_is_not_read_again_where_runs_are_unnamed(log, monkeypatch):
    log.mkdir()
    for q in range(3):
        write_recording(log / f"part-{q}.parquet", [{"question_id": f"q{q}", "round": 1, "answer": "a"}])
    before = read_recording(log)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda path, **_: (_ for _ in ()).throw(KeyboardInterrupt(path)))
        with pytest.raises(KeyboardInterrupt):
            compact_recording(log)
    assert len(part_paths(log)) == 4
    assert read_recording(log).table.equals(before.table)
    assert compact_recording(log).after == 1
    assert read_recording(log).table.equals(before.table)


def test_a_killed_process_leaves_what_a_compaction_seals(log, monkeypatch):
    recorder = Recorder(log)
    play(recorder, "one", question_id="q1")
    run = recorder.question("two", question_id="q2").__enter__()
    run.observe("a")
    assert compact_recording(log).open == 1  # its process runs
    (part,) = part_paths(log)
    assert not part.exists()
    with monkeypatch.context() as patch:
        patch.setattr("suffice.recordings.parts_compaction.writer_ended", lambda _: True)
        assert compact_recording(log).open == 1
        assert read_recording(log).ends.tolist() == ["max_rounds", "failed"]
        run.observe("b")  # it was only believed to be dead
        run.end("exhausted")
        assert compact_recording(log).open == 0
    assert answers(log) == {"q1": ["a", "b"], "q2": ["a", "b"]}
    recorder.close()


def test_an_idle_journal_is_sealed_with_its_open_questions(log, monkeypatch):
    recorder = Recorder(log, max_rounds=3)
    run = recorder.question("one", question_id="q1").__enter__()
    run.observe("a")
    assert compact_recording(log, idle_s=0).open == 0
    assert "unfinished" in read_recording(log).metadata["failed"]["q1"]
    with pytest.raises(SealedError, match="question again"):
        run.observe("b")
    monkeypatch.setattr("suffice.recordings.parts_writing._machine", lambda: "0" * 8)
    assert recorder._log.holding(run.run) is None
    recorder.close()


def test_large_parts_stay_as_they_are(log):
    small_parts(log)
    assert compact_recording(log, large_rows=4).after == 2
    assert compact_recording(log, large_rows=4).after == 2
    assert read_recording(log).shape[0] == 4


def test_one_compaction_at_a_time(log):
    small_parts(log, 2)
    with (log / ".compaction").open("wb") as other:
        assert try_lock(other)
        with pytest.raises(BusyError, match="another process"):
            compact_recording(log)
    assert compact_recording(log).after == 1
    with pytest.raises(NotFoundError, match="folder of parts"):
        compact_recording(log.parent)


def test_a_damaged_part_is_not_joined(log):
    small_parts(log)
    part = part_paths(log)[1]
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(SchemaError, match=part.name):
        compact_recording(log)
    assert len(part_paths(log)) == 4


def test_merge_makes_one_file_of_a_folder_and_joins_it_with_others(log, tmp_path):
    before = small_parts(log)
    whole = tmp_path / "whole.parquet"
    assert "4 questions, 8 rounds, from 1 recording" in cli("merge", log, "-o", whole).words
    assert read_recording(whole).table.equals(before.table)
    assert merge_recordings(whole, [log]).questions == 4
    with Recorder(tmp_path / "other.parquet") as recorder:
        play(recorder, "other", question_id="other")
    assert merge_recordings(tmp_path / "all.parquet", [log, tmp_path / "other.parquet"]).questions == 5
    assert "4 parts before, 1 part now" in cli("merge", log, "--compact").words
    assert "-o FILE.parquet, or --compact" in cli("merge", log).error
    for wrong in ((log, "--compact", "-o", whole), (log, log, "--compact")):
        assert "folder alone" in cli("merge", *wrong).error


@pytest.mark.whole
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_begins_its_own_part_with_open_questions(log):
    recorder = Recorder(log)
    play(recorder, "one", question_id="q1")
    run = recorder.question("open", question_id="open").__enter__()
    run.observe("a")
    child = os.fork()
    if not child:
        code = 1
        try:
            run.observe("b")
            run.end("exhausted")
            play(recorder, "two", question_id="q2")
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    play(recorder, "three", question_id="q3")
    recorder.close()
    assert len(part_paths(log)) == 2
    assert len(journals(log)) == 1  # the child ended without a word
    assert answers(log) == {name: ["a", "b"] for name in ("q1", "open", "q2", "q3")}
    assert (compact_recording(log).after, journals(log)) == (1, [])
    assert answers(log) == {name: ["a", "b"] for name in ("q1", "open", "q2", "q3")}


@pytest.mark.whole
def test_kill_9_of_loggers_and_of_a_compaction_loses_no_committed_round(tmp_path):
    result = part_kills.run(tmp_path, kills=2, loggers=2, seed=1)
    assert result["recorded_rounds"] >= result["committed_rounds"] > 10
    assert result["parts"] == 1


@pytest.mark.parametrize(
    "command",
    [
        ("replay", "--rule", "semantic(0.03)", "--metric", "target_sentiment"),
        ("decide", "--metric", "target_sentiment", "-o", "decision.json"),
        ("diagnose", "--metric", "target_sentiment"),
    ],
)
def test_commands_read_a_folder_as_the_file_into_which_it_is_merged(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    recording = bundled_recording("self_refine_dv3")
    n = len(recording.question_ids)
    parts_of(Path("log"), recording.table, [q * 7 % 3 for q in range(n)], recording.metadata)
    merge_recordings("log.parquet", ["log"])
    outputs = []
    for path in ("log", "log.parquet"):
        result = cli(command[0], path, *command[1:], "--json", code=0)
        outputs.append(result.out.replace("log.parquet", "log"))
        Path("decision.json").unlink(missing_ok=True)
    assert outputs[0] == outputs[1]
    assert cli("replay", "log", "--rule", "semantic(0.03)", "--metric", "target_sentiment").code == 0


@pytest.mark.parametrize("command", ["replay", "decide", "diagnose", "report"])
def test_a_folder_without_a_recording_is_a_one_line_error(tmp_path, command):
    assert "without a recording" in cli(command, tmp_path).error


def test_a_compaction_while_the_parts_are_opened_and_read_changes_nothing(log, monkeypatch):
    before = small_parts(log)
    original, calls = parts._part_with_rows, []

    def compacting(path):
        calls.append(path)
        if len(calls) == 2:
            compact_recording(log)  # the parts that were listed are gone, but the first one is open
        return original(path)

    monkeypatch.setattr(parts, "_part_with_rows", compacting)
    assert read_recording(log).table.equals(before.table)
    assert len(calls) == 5
    small_parts(log, 2)
    with open_recording(log) as opened:
        compact_recording(log)
        assert sum(table.num_rows for table in opened.tables()) == 12
    monkeypatch.setattr(parts, "_OPEN_FILES", 0)
    small_parts(log, 2)
    with open_recording(log) as opened:
        compact_recording(log)
        with pytest.raises(NotFoundError, match="try again"):
            [*opened.tables()]
    (log / "part-0.parquet").symlink_to(log / "nowhere")
    with pytest.raises(DataError, match=r"'part-0\.parquet'"):
        read_recording(log)


def test_a_recording_compacted_while_it_is_read_is_read_again(log, monkeypatch):
    before = small_parts(log)
    monkeypatch.setattr(parts, "_OPEN_FILES", 0)
    monkeypatch.setattr(parts, "_SMALL_ROWS", 0)  # so that their rows are not kept
    original, calls = parts.OpenFolder.table, []

    def compacting(opened):
        calls.append(opened)
        if len(calls) == 1:
            compact_recording(log)
        return original(opened)

    monkeypatch.setattr(parts.OpenFolder, "table", compacting)
    assert read_recording(log).table.equals(before.table)
    assert len(calls) == 2

    def vanishing(opened):
        raise PartGoneError(opened.path)

    monkeypatch.setattr(parts.OpenFolder, "table", vanishing)
    with pytest.raises(NotFoundError, match="try again"):
        read_recording(log)


def test_more_parts_than_files_stay_open_are_replayed_in_blocks(log, monkeypatch):
    before = small_parts(log, 6)
    options = {"metrics": ["agreement"], "resampling": Resampling(n_resamples=50)}
    expected = replay(before, ["answer_stable >= 1"], **options)
    monkeypatch.setattr(parts, "_OPEN_FILES", 1)
    assert_same_replay(replay(log, ["answer_stable >= 1"], jobs=1, **options), expected, apart=("data_hash",))


def test_a_part_that_links_out_of_its_folder_is_refused(log, tmp_path):
    small_parts(log, 1)
    (part,) = log.glob("*.parquet")
    (log / "part-1.parquet").symlink_to(part.name)
    part.rename(tmp_path / part.name)
    (log / part.name).symlink_to(tmp_path / part.name)
    with pytest.raises(DataError, match="outside of this"):
        read_recording(log)


def test_an_audit_that_ended_on_another_machine_is_not_lost(log, monkeypatch):
    settings = {"policy": Policy(rule="answer_stable", max_rounds=4), "audit": Audit(rate=1.0, seed=7)}
    recorder, other = Recorder(log, **settings), Recorder(log, **settings)
    run = recorder.question("one", question_id="q1").__enter__()
    for _ in range(2):
        run.observe("a")
    assert run.auditing
    recorder.save()
    recording = read_recording(log)
    assert (recording.ends.tolist(), recording.column("audited")[0, 0]) == (["rule"], 1)
    with monkeypatch.context() as patch:
        patch.setattr("suffice.recordings.parts_writing._machine", lambda: "0" * 8)
        again = other.resume(run.to_state())
        again.end("exhausted")  # as many rounds as the copy that stays open where the question began
    other.close()
    assert len(part_paths(log)) == 2
    recording = read_recording(log)
    assert (recording.question_ids, recording.ends.tolist()) == (["q1"], ["exhausted"])
    assert recording.column("stop_round")[0, 0] == 2
    assert replay_in_blocks(log, "answer_stable", metrics=(), baseline="fixed_k(1)").n == 1
    run.observe("a")  # the loop of the first machine goes on, and is killed: what ended counts, however short
    recorder.close()
    assert replay_in_blocks(log, "full", metrics=(), baseline="fixed_k(1)").rows[0].stop_rounds == {2: 1.0}
    compact_recording(log, idle_s=0)
    assert read_recording(log).ends.tolist() == ["exhausted"]


@pytest.mark.whole
@pytest.mark.parametrize("low", [False, True])
def test_a_process_that_seals_waits_for_others_unless_a_question_is_open(log, low):
    recorder = Recorder(log)
    play(recorder, "Who is 0?")
    (part,) = part_paths(log)
    code = f"import os, sys; from suffice.recordings import parts_writing as w; w.seal_parts(sys.argv[1:], low={low}); print(os.nice(0))"
    ended, out, error = children.output_of(code, part)
    assert (ended, error) == (0, "")
    assert int(out) == (min(os.nice(0) + 10, 19) if low else os.nice(0))  # 19 is the lowest priority
    assert not journals(log)
    recorder.close()


def test_a_journal_knows_how_many_questions_are_open(tmp_path):
    journal = RoundJournal(tmp_path / "log.parquet")
    for number in range(2):
        journal.begin(f"run{number}", {"cluster": "q"})
    assert journal.n_open == 2
    journal.end("run0", {"end": "rule", "inferred": False, "why": ""})
    assert journal.n_open == 1
    assert journal.size == len(journal.path.read_bytes().rstrip(b"\0"))
