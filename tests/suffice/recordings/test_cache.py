from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading

import pytest

from suffice.errors import DataError, SchemaError
from suffice.recordings.cache import ResponseCache, request_key
from tests.support import children

REQUEST = {
    "endpoint": "http://localhost/v1",
    "api": "chat",
    "body": {
        "model": "m",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "max_tokens": 64,
        "temperature": 0.0,
        "seed": 1,
        "logprobs": True,
        "top_logprobs": 5,
        "extra": {"a": [1, 2]},
    },
}


def changes(value):
    """Every way to change one leaf, or to leave one key out."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield {k: v for k, v in value.items() if k != key}
            yield from ({**value, key: changed} for changed in changes(item))
    elif isinstance(value, list):
        yield value[:-1]
        yield value[::-1]
        for i, item in enumerate(value):
            yield from ([*value[:i], changed, *value[i + 1 :]] for changed in changes(item))
    else:
        yield {True: False, 0.0: 0.5}.get(value, f"{value} and more") if not isinstance(value, str) else value + "!"


def test_a_stored_response_comes_back_equal(tmp_path):
    with ResponseCache(tmp_path / "cache.sqlite") as cache:
        assert cache.get(REQUEST) is None
        response = {"body": '{"text": "é\\u0000 😀"}', "logprobs": [-0.5, -math.inf], "seconds": 0.25}
        cache.put(REQUEST, response)
        assert cache.get(REQUEST) == response
        assert len(cache) == 1


def test_a_response_survives_closing_and_opening(tmp_path):
    with ResponseCache(tmp_path / "c") as cache:
        cache.put(REQUEST, {"a": 1})
    with ResponseCache(tmp_path / "c") as cache:
        assert cache.get(REQUEST) == {"a": 1}


def test_changing_anything_in_the_request_changes_the_key():
    changed = list(changes(REQUEST))
    keys = {request_key(request) for request in changed}
    assert len(changed) > 25
    assert request_key(REQUEST) not in keys


def test_the_order_of_keys_does_not_change_the_key():
    turned = dict(reversed(REQUEST.items()))
    assert request_key(turned) == request_key(REQUEST)


def test_the_first_of_two_responses_stays(tmp_path):
    with ResponseCache(tmp_path / "c") as cache:
        cache.put(REQUEST, {"a": 1})
        cache.put(REQUEST, {"a": 2})
        assert cache.get(REQUEST) == {"a": 1}


def test_requests_and_responses_that_are_not_json_are_refused(tmp_path):
    with ResponseCache(tmp_path / "c") as cache:
        with pytest.raises(DataError, match="request"):
            cache.get({"a": math.nan})
        with pytest.raises(DataError, match="response"):
            cache.put({"a": 1}, {"b": object()})


def test_a_foreign_file_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"not a database, but long enough to be looked at as if it were one" * 20)
    before = path.read_bytes()
    with pytest.raises(SchemaError, match=r"notes\.txt"):
        ResponseCache(path)
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE responses (key TEXT)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaError, match="another program"):
        ResponseCache(path)
    assert path.read_bytes() == before


def test_a_newer_version_is_refused(tmp_path):
    ResponseCache(tmp_path / "c").close()
    connection = sqlite3.connect(tmp_path / "c")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(SchemaError, match="99"):
        ResponseCache(tmp_path / "c")


def test_damage_is_a_schema_error_not_a_wrong_response(tmp_path):
    path = tmp_path / "c"
    with ResponseCache(path) as cache:
        for number in range(200):
            cache.put({"n": number}, {"text": "x" * 500})
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)

    def read_all() -> None:
        with ResponseCache(path) as cache:
            for number in range(200):
                cache.get({"n": number})

    with pytest.raises(SchemaError):
        read_all()


def test_a_folder_as_path_or_a_missing_folder_is_named(tmp_path):
    for path in (tmp_path, tmp_path / "absent" / "c"):
        with pytest.raises(DataError, match=path.name):
            ResponseCache(path)


def test_a_closed_cache_says_so(tmp_path):
    cache = ResponseCache(tmp_path / "c")
    cache.close()
    cache.close()
    with pytest.raises(DataError, match="is closed$"):
        cache.get(REQUEST)


def test_a_file_just_created_by_another_process_is_not_foreign(tmp_path, monkeypatch):
    path, connect = tmp_path / "c", sqlite3.connect
    ResponseCache(tmp_path / "made").close()
    with contextlib.closing(connect(tmp_path / "made")) as source:
        table = source.execute("SELECT sql FROM sqlite_master WHERE name = 'responses'").fetchone()[0]
        kind, version = (source.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    script = f"BEGIN; {table}; PRAGMA application_id = {kind}; PRAGMA user_version = {version}; COMMIT"
    tried = []

    class Contended(sqlite3.Connection):
        def execute(self, statement, *values):
            if statement == "PRAGMA user_version" and not tried:
                # Refused because this connection is reading.
                with contextlib.closing(connect(path, timeout=0)) as other:
                    try:
                        tried.append(other.executescript(script))
                    except sqlite3.OperationalError as error:
                        tried.append(str(error))
            return super().execute(statement, *values)

    monkeypatch.setattr(sqlite3, "connect", lambda *a, **options: connect(*a, factory=Contended, **options))
    with ResponseCache(path) as cache:
        cache.put(REQUEST, {"a": 1})
        assert cache.get(REQUEST) == {"a": 1}
    assert tried == ["database is locked"]


@pytest.mark.whole
def test_two_processes_write_one_file_at_the_same_time(tmp_path):
    # Neither finds the file made: creation is contended as well.
    writers = [children.told(children.put_replies, str(tmp_path / "c"), name, 0, 150) for name in "ab"]
    for process, pipe in writers:
        process.join()
        pipe.close()
        assert process.exitcode == 0
    with ResponseCache(tmp_path / "c") as cache:
        assert len(cache) == 300
        for name in "ab":
            assert all(cache.get({"writer": name, "number": n})["number"] == n for n in range(150))


def test_threads_share_a_cache(tmp_path):
    with ResponseCache(tmp_path / "c") as cache:

        def work(name: str) -> None:
            for number in range(50):
                cache.put({"writer": name, "number": number}, {"number": number})
                assert cache.get({"writer": name, "number": number}) == {"number": number}

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(cache) == 200


@pytest.mark.whole
def test_a_killed_writer_leaves_a_readable_file_with_everything_it_had_put(tmp_path):
    path = tmp_path / "c"
    for kill in range(5):
        process, pipe = children.told(children.put_replies, str(path), f"w{kill}", 0, 10**6)
        with pipe:
            for put in range(1, 21 + 13 * kill):
                assert pipe.recv() == put - 1
            children.killed(process)
            with contextlib.suppress(EOFError):
                while True:
                    put = pipe.recv() + 1
        with ResponseCache(path) as cache:
            assert all(cache.get({"writer": f"w{kill}", "number": n}) is not None for n in range(put))
            assert cache.get({"writer": f"w{kill}", "number": put + 1}) is None


@pytest.mark.whole
def test_a_forked_child_may_use_its_parents_cache(tmp_path):
    with ResponseCache(tmp_path / "c") as cache:
        cache.put({"n": 0}, {"from": "parent"})
        parents = cache._connection
        pid = os.fork()
        if pid == 0:
            cache.put({"n": 1}, {"from": "child"})
            # sqlite forbids a connection to cross a fork, though it seldom shows.
            own = cache._connection is not parents
            os._exit(0 if own and cache.get({"n": 0}) == {"from": "parent"} else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        cache.put({"n": 2}, {"from": "parent"})
        assert cache.get({"n": 1}) == {"from": "child"}
        assert len(cache) == 3
