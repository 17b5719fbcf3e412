"""Damaged files, full disks and odd folders: an error that says what to do, or the right data; never anything else."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save

from suffice import Policy, Reply, RetrievalLoop, ScriptedModel, read_recording, record
from suffice.errors import AuthenticationFailedError, DataError, ModelError, SchemaError, SufficeError
from suffice.loops.retrieval import InMemoryRetriever
from suffice.recordings import Journal, ResponseCache, write_recording
from suffice.recordings.file_checks import ColumnDigest, header_digest
from suffice.recordings.schema import META_KEY
from suffice_gates.models import StateWriter, read_states
from tests.support import children
from tests.support.cli_tools import cli, dataset, reply
from tests.support.endpoint import Endpoint
from tests.support.recording import scripted
from tests.support.replayed import replay_in_blocks

VOLATILE = ("recorded_at", "cost.generator.seconds", "cost.retrieval.seconds")
HUGE = 10**400


def mutated(rng, data):
    """Return bytes with one of the faults that disks and copies have."""
    out = bytearray(data)
    kind = rng.choice(["bit", "byte", "bytes", "cut", "zeros", "swap"])
    at = rng.randrange(len(out))
    length = rng.randrange(1, min(400, len(out)))
    if kind == "bit":
        out[at] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        out[at] = rng.randrange(256)
    elif kind == "bytes":
        out[at : at + length] = rng.randbytes(len(out[at : at + length]))
    elif kind == "cut":
        del out[at:]
    elif kind == "zeros":
        out[at : at + length] = bytes(len(out[at : at + length]))
    else:
        other = rng.randrange(len(out) - length + 1)
        at = rng.randrange(len(out) - length + 1)
        first, second = out[at : at + length], out[other : other + length]
        out[at : at + length], out[other : other + length] = second, first
    return bytes(out)


def damage(path, data, seed, n, read):
    """Read `n` damaged copies of a file; return how many were errors of ours, the others being the same data."""
    rng = random.Random(seed)
    errors = 0
    for _ in range(n):
        path.write_bytes(mutated(rng, data))
        try:
            read()
        except SufficeError:
            errors += 1
    return errors


def recorded(path):
    """Write a recording with every kind of column."""
    rng = np.random.default_rng(5)
    rows = [
        {
            "question_id": f"q{q}",
            "round": r,
            "answer": None if rng.random() < 0.1 else f"answer {rng.integers(30)}",
            "golds": [f"answer {q % 30}", "é"],
            "passage_ids": [f"p{q}.{i}" for i in range(r)],
            "answer_margin": rng.exponential() if r else None,
            "cost.generator.calls": 1.0,
            "em": float(rng.random() < 0.5),
            "embedding": rng.random(8).tolist(),
            "question_type": "bridge",
            "own": float("nan"),
        }
        for q in range(40)
        for r in range(3)
    ]
    write_recording(path, rows, {"config": {"model": "m"}, "depends": {"model": "m"}})


def test_of_800_damaged_recordings_none_reads_as_other_data(tmp_path):
    path = tmp_path / "r.parquet"
    recorded(path)
    whole = read_recording(path)

    def read():
        recording = read_recording(path)
        assert recording.metadata == whole.metadata
        assert recording.table.column_names == whole.table.column_names
        assert recording.table.equals(whole.table)
        assert all(recording.names(kind) == whole.names(kind) for kind in ("signal", "cost", "metric", "label"))

    assert 400 < damage(path, path.read_bytes(), 11, 800, read) < 800


def test_a_damaged_recording_is_streamed_as_it_was_or_not_at_all(tmp_path):
    path = tmp_path / "r.parquet"
    recorded(path)

    def figures():
        result = replay_in_blocks(path, "answer_margin > 0.5", metrics=["em"], baseline="fixed_k(2)")
        return repr([(row.metrics, row.costs, row.stop_rounds) for row in result.rows])

    right = figures()

    def read():
        assert figures() == right

    # More of the damage than in a whole reading hits what nobody reads here.
    assert 20 < damage(path, path.read_bytes(), 12, 60, read) < 60


def test_recordings_without_checksums_still_read_but_invalid_utf8_is_damage(tmp_path):
    path, old = tmp_path / "r.parquet", tmp_path / "old.parquet"
    recorded(path)
    table = pq.read_table(path)
    header = json.loads(table.schema.metadata[META_KEY])
    pq.write_table(table.replace_schema_metadata({META_KEY: json.dumps(header)}), old, compression="none")
    assert read_recording(old).table.to_pylist() == read_recording(path).table.to_pylist()
    old.write_bytes(old.read_bytes().replace(b"answer", b"answe\xff"))
    with pytest.raises(SchemaError, match="old"):
        read_recording(old)


def test_a_columns_checksum_does_not_depend_on_its_pieces():
    columns = [
        pa.array(["a", None, "", "é", "b"]),
        pa.array(["a", None, "", "é", "b"]).dictionary_encode(),
        pa.array([1.5, None, float("nan"), 0.0, -0.0]),
        pa.array([1, 2, None, 4, 5], pa.int16()),
        pa.array([True, None, False, True, True]),
        pa.array([["a"], [], None, ["b", None], ["c"]]),
        pa.array([[1.0], [], None, [2.0, float("nan")], [3.0]], pa.list_(pa.float32())),
        pa.array([None] * 5, pa.string()),
        pa.array([dt.date(2026, 1, day) for day in range(1, 6)]),
    ]
    seen = []
    for column in columns:
        whole = ColumnDigest()
        whole.update(column)
        for cut in range(6):
            parts = ColumnDigest()
            parts.update(pa.chunked_array([column.slice(0, cut), column.slice(cut)]))
            assert parts.value == whole.value
        seen.append(whole.value)
        changed = ColumnDigest()
        changed.update(column.take(pa.array([1, 0, 2, 3, 4])))
        assert (changed.value == whole.value) == (column.null_count == 5)
    assert seen[0] == seen[1]
    assert len(set(seen)) == len(seen) - 1


def test_of_300_damaged_state_stores_none_reads_as_other_states(tmp_path):
    folder = tmp_path / "s"
    rng = np.random.default_rng(2)
    with_layers = {"model": "m", "layers": [3, 5]}
    writer = StateWriter(folder, with_layers)
    for start in (0, 4):
        writer.append([f"q{start + i}" for i in range(4)], rng.normal(size=(4, 2, 16)), ["d"] * 4)
    whole = read_states(folder)

    def read():
        for states in (read_states(folder), read_states(folder)):
            assert (states.ids, states.header) == (whole.ids, whole.header)
            np.testing.assert_array_equal(states.values, whole.values)
        assert StateWriter(folder, with_layers).done == dict.fromkeys(whole.ids, "d")

    for name, n in (("shard-000000.safetensors", 240), ("states.json", 60)):
        data = (folder / name).read_bytes()
        assert n // 2 < damage(folder / name, data, 4, n, read)
        (folder / name).write_bytes(data)


def test_states_that_cannot_be_written_are_an_error_of_ours(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="free space"):
        StateWriter(tmp_path / "file" / "s", {"model": "m"})


def test_state_stores_without_digests_still_read_and_go_on_with_them(tmp_path):
    folder = tmp_path / "s"
    states = np.random.default_rng(2).normal(size=(4, 1, 8)).astype(np.float16)
    StateWriter(folder, {"model": "m"}).append(list("abcd"), states)
    (folder / "states.json").write_text(
        json.dumps({"format": "suffice.states", "version": 1, "header": {"model": "m"}})
    )
    old = {"ids": json.dumps(list("abcd")), "digests": json.dumps([""] * 4)}
    (folder / "shard-000000.safetensors").write_bytes(save({"states": states}, metadata=old))
    StateWriter(folder, {"model": "m"}).append(["e"], states[:1])
    read = read_states(folder)
    assert read.ids == tuple("abcde")
    np.testing.assert_array_equal(read.values, np.concatenate([states, states[:1]]))


def test_what_a_kill_left_beside_a_recording_goes_with_the_next_run(tmp_path):
    left = tmp_path / ".r.parquet.123.tmp"
    left.write_bytes(b"half")
    record(*scripted(n=1), tmp_path / "r.parquet")
    assert [file.name for file in tmp_path.iterdir()] == ["r.parquet"]


def rows_of(path):
    table = read_recording(path).table
    return [{name: value for name, value in row.items() if name not in VOLATILE} for row in table.to_pylist()]


def interrupted(path, **options):
    """Leave a journal that holds finished questions, and one with some replies."""
    questions, loop = scripted(failures={11: AuthenticationFailedError("401")}, **options)
    with pytest.raises(AuthenticationFailedError):
        record(questions, loop, path, concurrency=1)


def test_a_damaged_journal_gives_right_rows_or_an_error(tmp_path):
    path, whole = tmp_path / "r.parquet", tmp_path / "whole.parquet"
    journal = tmp_path / "r.parquet.journal"
    interrupted(path)
    data = journal.read_bytes()
    record(*scripted(), whole)
    right = rows_of(whole)
    rng = random.Random(7)
    outcomes = {"error": 0, "right": 0}
    for _ in range(120):
        for left in tmp_path.glob("r.parquet*"):
            left.unlink()
        journal.write_bytes(mutated(rng, data))
        try:
            record(*scripted(), path)
        except SufficeError as error:
            assert "r.parquet.journal" in str(error)  # noqa: PT017 - either outcome is right
            outcomes["error"] += 1
        else:
            assert rows_of(path) == right
            outcomes["right"] += 1
    assert all(outcomes.values())


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_an_unfinished_journal_of_an_older_release_is_refused(tmp_path, suffix):
    """A killed process of 0.4.0 left an empty file and all replies in the one beside it, or a file of sqlite."""
    path, left = tmp_path / "r.parquet", tmp_path / f"r.parquet.journal{suffix}"
    (tmp_path / "r.parquet.journal").touch()
    left.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(SchemaError, match=r"suffice 0\.4\.0"):
        record(*scripted(), path)
    assert left.read_bytes().startswith(b"SQLite")


def test_a_damaged_response_cache_answers_rightly_or_says_so(tmp_path):
    path = tmp_path / "c"
    with ResponseCache(path) as cache:
        for number in range(40):
            cache.put({"n": number}, {"body": f"text {number}", "seconds": 0.5})
    data = path.read_bytes()
    rng = random.Random(3)
    errors = 0
    for _ in range(150):
        for left in tmp_path.glob("c*"):
            left.unlink()
        path.write_bytes(mutated(rng, data))
        try:
            with ResponseCache(path) as cache:
                for number in range(40):
                    stored = cache.get({"n": number})
                    assert stored in (None, {"body": f"text {number}", "seconds": 0.5})
                cache.put({"n": "new"}, {"body": "x", "seconds": 0.0})
        except DataError:
            errors += 1
    assert 0 < errors < 150


def test_a_cache_that_holds_something_else_is_an_error_of_ours(tmp_path):
    from suffice import ChatModel

    with Endpoint() as endpoint, ResponseCache(tmp_path / "c") as cache:
        model = ChatModel("m", base_url=endpoint.url, cache=cache)
        model.answer("Where?")
        body = endpoint.requests[0].body
        other = ResponseCache(tmp_path / "other")
        other.put({"endpoint": endpoint.url, "api": "chat", "body": body}, {"text": "x"})
        with pytest.raises(DataError, match="new cache"):
            ChatModel("m", base_url=endpoint.url, cache=other).answer("Where?")


FULL = """
import json, resource, sys, tempfile
from pathlib import Path
from suffice import record
from suffice.errors import SufficeError
from suffice.recordings import ResponseCache
from tests.support.recording import scripted
told = {}
for kib in (1, 9, 33, 80, 2000):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.parquet"
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib * 1024, resource.RLIM_INFINITY))
        questions, loop = scripted(n=12)
        try:
            record(questions, loop, path, concurrency=1)
            told[kib] = "ok"
        except SufficeError as error:
            told[kib] = str(error)
        try:
            with ResponseCache(Path(folder) / "c") as cache:
                for number in range(40):
                    cache.put({"n": number}, {"body": "x" * 3000, "seconds": 0.0})
        except SufficeError as error:
            assert "c'" in str(error), error
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        before = loop.model.calls
        if not path.exists():
            record(questions, loop, path)
            assert loop.model.calls <= 12 * 3 + 1, (kib, before, loop.model.calls)
        assert sorted(file.name for file in Path(folder).glob("*r.parquet*")) == ["r.parquet"]
print(json.dumps(told))
"""


@pytest.mark.whole
def test_text_under_a_missing_value_does_not_count():
    plain = pa.array(["ab", None, "ef"])
    hidden = pa.StringArray.from_buffers(3, *pa.array(["ab", "cd", "ef"]).buffers()[1:], plain.buffers()[0])
    assert hidden.to_pylist() == plain.to_pylist()
    digests = ColumnDigest(), ColumnDigest()
    for digest, column in zip(digests, (plain, hidden), strict=True):
        digest.update(column)
    assert digests[0].value == digests[1].value


def test_a_header_is_checked_while_another_thread_checks_its_own():
    schema = pa.schema([("question_id", pa.string())])
    others = [b"other"]

    class Compared(bytes):
        """A header during whose first comparison another one is checked."""

        __hash__ = bytes.__hash__

        def __eq__(self, other):
            if others:
                header_digest(schema, others.pop())
            return super().__eq__(other)

    first = header_digest(schema, b"first")
    assert header_digest(schema, Compared(b"header")) == header_digest(schema, b"header") != first
    assert not others


@pytest.mark.whole
def test_a_full_disk_is_our_error_and_keeps_paid_replies():
    code, out, error = children.output_of(FULL)
    assert code == 0, error
    told = json.loads(out)
    assert told["2000"] == "ok"
    said = [text for text in told.values() if text != "ok"]
    assert len(said) > 2
    assert all("free space" in text and "r.parquet" in text for text in said), said


def test_an_unwritable_place_is_never_an_internal_error(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.parquet").mkdir()
    data = dataset(tmp_path / "q.jsonl")
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"question_id": "q", "round": r, "answer": "a"}) + "\n" for r in (1, 2)))
    assert cli("import", log, "-o", tmp_path / "i.parquet").code == 0
    with Endpoint(reply) as endpoint:
        at = ("--base-url", endpoint.url, "--model", "m")
        assert cli("record", data, "-o", tmp_path / "r.parquet", *at).code == 0
        asked = len(endpoint.requests)
        for out in (tmp_path / "file" / "x.parquet", tmp_path / "folder.parquet", tmp_path / ("x" * 300)):
            for command in (
                ("record", data, "-o", out, *at),
                ("record", data, "-o", tmp_path / "r2.parquet", *at, f"--set=cache={out}"),
                ("import", log, "-o", out),
                ("calibrate", tmp_path / "r.parquet", "-o", out, "--rule", "tasr"),
                ("report", tmp_path / "r.parquet", "-o", out),
                ("replay", out),
                ("data", "show", out),
            ):
                assert cli(*command).error, command
    assert len(endpoint.requests) <= asked + 6  # whether there are log-probabilities, at most


def test_one_reply_with_an_absurd_number_costs_nothing_but_that_number(tmp_path):
    def odd(body):
        if "tower 1?" not in str(body):
            return reply(body)
        text, _ = reply(body)
        usage = {"prompt_tokens": HUGE, "completion_tokens": 3}
        tokens = [{"token": word, "logprob": HUGE, "top_logprobs": []} for word in ("Answer", ":")]
        choice = {"message": {"content": text}, "logprobs": {"content": tokens}, "finish_reason": "stop"}
        return {"choices": [choice], "usage": usage}

    data = dataset(tmp_path / "q.jsonl")
    with Endpoint(odd) as endpoint:
        at = ("--base-url", endpoint.url, "--model", "m", "--max-rounds", "2")
        assert cli("record", data, "-o", tmp_path / "r.parquet", *at).code == 0
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.shape == (4, 2)
    tokens = recording.column("cost.generator.uncached_tokens")
    assert [bool((row > 0).all()) for row in tokens] == [True, False, True, True]


def test_whatever_one_reply_makes_a_component_raise_fails_its_question_only(tmp_path):
    path = tmp_path / "r.parquet"
    questions, loop = scripted(failures={5: OverflowError("int too large"), 8: ModelError("down")})
    summary = record(questions, loop, path, concurrency=1)
    assert dict(summary.failed) == {"q1": "OverflowError: int too large", "q2": "down"}
    assert read_recording(path).seen.sum(axis=1).tolist() == [3, 1, 2, 3, 3, 3]
    before = loop.model.calls
    assert not record(questions, loop, path).failed
    assert loop.model.calls == before + 2 + 1


def surrogate_loop():
    """Return a loop whose second question's replies hold half a character."""
    questions, _ = scripted()
    halves = {"What is 1?": "cut \ud83d"}
    model = ScriptedModel(lambda question, passages: Reply(answer=halves.get(question, "x"), text="\udc80"))
    return questions, RetrievalLoop(model=model, retriever=InMemoryRetriever(), policy=Policy(max_rounds=3))


def test_half_a_character_is_replaced_wherever_it_comes_in(tmp_path):
    data = tmp_path / "q.jsonl"
    lines = [
        {"id": f"q{i}\ud800", "question": f"Where\ud800 is tower {i}?", "answers": ["Oslo\udfff"], "type": "a\ud800"}
        | {"paragraphs": [{"title": f"T{p}\ud800", "text": f"Text {p}\ud800 of tower {i}"} for p in range(2)]}
        for i in range(2)
    ]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with Endpoint(lambda body: {"choices": [{"message": {"content": "Answer: Oslo \ud800"}}]}) as endpoint:
        at = ("--base-url", endpoint.url, "--model", "m", "--set=logprobs=false", "--max-rounds", "2")
        cli("record", data, "-o", tmp_path / "r.parquet", *at, f"--set=cache={tmp_path / 'c'}", code=0)
        cli("answer", "Where\udce4 is it?", "--corpus", corpus_of(tmp_path), *at, code=0)
        assert cli("answer", "Where\udce4 is it?", "--corpus", corpus_of(tmp_path), *at, "--json").code == 0
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.answers.tolist() == [["Oslo \ufffd"] * 2] * 2
    assert recording.question_ids == ["q0\ufffd", "q1\ufffd"]
    assert recording.objects("golds")[0, 0] == ["Oslo\ufffd"]


def corpus_of(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"id": "1\ud800", "title": "T\ud800", "text": "It is\ud800 in Oslo."}) + "\n")
    return path


def test_a_journal_with_half_a_character_in_it_becomes_a_recording(tmp_path):
    path = tmp_path / "r.parquet"
    questions, loop = surrogate_loop()
    broken = replace(loop, model=ScriptedModel(loop.model._script, failures={11: AuthenticationFailedError("401")}))
    with pytest.raises(AuthenticationFailedError):
        record(questions, broken, path, concurrency=1)
    assert b"ud83d" in (tmp_path / "r.parquet.journal").read_bytes()
    record(questions, loop, path)
    assert loop.model.calls == 18 - 10
    assert read_recording(path).answers[1].tolist() == ["cut \ufffd"] * 3


@contextlib.contextmanager
def held(journal, wait_s=None):
    """Let another process hold a journal until the block ends; or, after so many seconds, delete it."""
    child, pipe = children.told(children.hold_journal, str(journal), {"a": 1}, wait_s)
    with pipe:
        assert pipe.recv() == "held"
        yield
    child.join()


@pytest.mark.whole
def test_the_lock_is_taken_before_the_recording_that_is_there_is_read(tmp_path):
    path = tmp_path / "r.parquet"
    path.write_bytes(b"another process is about to replace this")
    with held(tmp_path / "r.parquet.journal"), pytest.raises(DataError, match="another process"):
        record(*scripted(), path)
    (tmp_path / "r.parquet.journal").unlink()
    with pytest.raises(SchemaError, match="parquet"):
        record(*scripted(), path)
    assert not list(tmp_path.glob("*.journal*"))  # nothing was in it


@pytest.mark.whole
def test_who_waited_for_a_journal_that_is_gone_gets_a_new_one(tmp_path, monkeypatch):
    monkeypatch.setattr("suffice.recordings.journal._JOURNAL_BUSY_S", 600.0)
    path = tmp_path / "r.parquet.journal"
    with held(path, 0.3):
        journal = Journal(path, {"a": 2})
        journal.put("q", {(1, "generator"): {"answer": "x"}})
    journal.close()
    journal = Journal(path, {"a": 2})
    assert journal.replies("q") == {(1, "generator"): {"answer": "x"}}
    journal.close()
