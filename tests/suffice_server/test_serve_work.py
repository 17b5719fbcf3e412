"""Requests that take long take turns."""

import threading

import pytest

from suffice_server.serve import work
from suffice_server.serve.answers import RefusedError
from suffice_server.serve.work import WorkLimit

LARGE = 1 << 20


def test_large_bodies_are_read_in_turn_and_too_many_are_refused(monkeypatch):
    monkeypatch.setattr(work, "_PLACES", 4)
    limit = WorkLimit(60.0)
    reading, most = [], []

    def read():
        with limit.reading(LARGE):
            reading.append(1)
            most.append(len(reading))
            reading.pop()

    others = [threading.Thread(target=read) for _ in range(3)]
    with limit.reading(LARGE):
        for thread in others:
            thread.start()
        while limit._places.acquire(blocking=False):  # until all of them wait
            limit._places.release()
        with pytest.raises(RefusedError, match="too many") as raised, limit.reading(LARGE):
            pass
        assert raised.value.status == 503
        with limit.reading(100):  # a small one waits for nobody
            assert not most
    for thread in others:
        thread.join()
    assert most == [1, 1, 1]
    read()
