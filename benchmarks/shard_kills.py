"""What is left of a recording in shards whose processes are killed at random: the recording of a single process, and few calls twice.

Processes take the shards of one data set in turn and record them from an endpoint.  `kill -9` hits one of them at random, again and
again, and another takes its shard up.  Then processes are killed while they write parts and manifest.  At the end the folder must be
the recording that a single process makes, with at most the calls in flight repeated at each kill; and whenever it can be read before
that, it must be the same.

    python -m benchmarks.shard_kills --kills 100
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.support import recording
from tests.support.endpoint import Endpoint, prompt_of

from suffice import read_recording, record
from suffice.errors import DataError
from suffice.recordings.shards import MANIFEST_FILE, Shard

_REPLIES_BETWEEN_KILLS = 12
_REPLIES_BEFORE_A_KILL = 3
_WAIT_S = 600.0
_CLOCKS = ("recorded_at", "seconds", "cached_tokens", "uncached_tokens")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a recording without what depends on the clock, or on the endpoint's prefix cache."""
    table = read_recording(path).table
    names = sorted(name for name in table.column_names if name.rsplit(".", 1)[-1] not in _CLOCKS)
    return table.select(names).to_pylist()


class _Cast:
    """The processes: some shards at a time, each taken up again when its process was killed."""

    def __init__(self, url: str, folder: Path, questions: int, n: int, processes: int) -> None:
        self.folder, self.n = folder, n
        self._url, self._questions, self._most = url, questions, processes
        self._waiting = deque(Shard(index, n) for index in range(1, n + 1))
        self.running: dict[Shard, BaseProcess] = {}

    def start(self, shard: Shard) -> BaseProcess:
        """Start the process of a shard."""
        return recording.started(self._url, str(self.folder), shard, self._questions)

    def fill(self) -> None:
        """Start shards, and let go of those that have ended."""
        for shard, process in [*self.running.items()]:
            if process.exitcode is not None:
                if process.exitcode:
                    raise AssertionError(f"shard {shard} ended by itself: {process.exitcode}")
                del self.running[shard]
        while self._waiting and len(self.running) < self._most:
            shard = self._waiting.popleft()
            self.running[shard] = self.start(shard)

    def kill(self, shard: Shard) -> None:
        """Kill the process of a shard, which another one takes up."""
        process = self.running.pop(shard)
        process.kill()
        process.join()
        self._waiting.append(shard)

    def finish(self) -> None:
        """Let all shards end."""
        while self.running or self._waiting:
            self.fill()
            for process in self.running.values():
                process.join()


def run(
    folder: Path,
    *,
    kills: int,
    shards: int,
    processes: int,
    seed: int = 0,
    endings: int | None = None,
    questions: int | None = None,
) -> dict[str, Any]:
    """Kill processes at random; return what they asked for.

    Args:
        folder: An empty folder.
        kills: How many are killed while they ask.
        shards: The number of shards.
        processes: How many record at a time.
        seed: Which are killed, and when.
        endings: How many are killed while they write part and manifest; None = as many as `kills`.
        questions: How many are recorded; None = enough that the recording goes on until the last kill.

    Raises:
        AssertionError: The recording differs from that of a single process, or too many calls were repeated.
    """
    numbers = random.Random(seed)
    items = recording.questions(questions or max(recording.QUESTIONS, kills * _REPLIES_BETWEEN_KILLS // 2))
    with Endpoint(recording.reply) as endpoint:
        record(items, recording.loop(endpoint.url), folder / "one.parquet", concurrency=2)
        needed = len(endpoint.requests)
    one = rows_of(folder / "one.parquet")
    target = folder / "shards"
    with Endpoint(recording.reply, latency_s=0.02) as endpoint:
        cast = _Cast(endpoint.url, target, len(items), shards, processes)
        for _ in range(kills):
            began = len(endpoint.requests)
            endpoint.allow = began + _REPLIES_BETWEEN_KILLS  # so that the recording goes on until the last kill
            cast.fill()
            _wait(lambda began=began: len(endpoint.requests) >= began + _REPLIES_BEFORE_A_KILL)
            time.sleep(numbers.uniform(0.0, 0.04))
            cast.kill(numbers.choice(sorted(cast.running)))
        endpoint.allow = None
        cast.finish()
        sent = Counter(prompt_of(request.body) for request in endpoint.requests)
        if rows_of(target) != one:
            raise AssertionError("the shards are not the recording of a single process")
        repeated = sum(sent.values()) - needed
        if len(sent) != needed or repeated > kills * recording.CONCURRENCY:
            raise AssertionError(f"{repeated} of {needed} calls were repeated, by {kills} kills")
        at_the_end = kills if endings is None else endings
        readable = _kill_endings(cast, one, at_the_end, numbers)
        if len(endpoint.requests) != sum(sent.values()):
            raise AssertionError("shards that had ended asked again")
    return {
        "kills": kills,
        "questions": len(items),
        "shards": shards,
        "calls": needed,
        "repeated": repeated,
        "most_in_flight": kills * recording.CONCURRENCY,
        "kills_at_the_end": at_the_end,
        "readable_after_them": readable,
    }


def _kill_endings(cast: _Cast, one: Sequence[dict[str, Any]], kills: int, numbers: random.Random) -> int:
    """Kill processes that have nothing left to ask, while they write; return after how many kills the folder could be read."""
    readable = 0
    began = time.monotonic()
    cast.start(Shard(1, cast.n)).join()
    whole_s = time.monotonic() - began
    for _ in range(kills):
        (cast.folder / MANIFEST_FILE).unlink(missing_ok=True)
        process = cast.start(Shard(numbers.randint(1, cast.n), cast.n))
        time.sleep(numbers.uniform(0.0, whole_s))
        process.kill()
        process.join()
        try:
            if rows_of(cast.folder) != one:
                raise AssertionError("a folder that can be read is not the recording")
            readable += 1
        except DataError as error:
            if MANIFEST_FILE not in str(error):
                raise
    process = cast.start(Shard(cast.n, cast.n))
    process.join()
    if process.exitcode or rows_of(cast.folder) != one:
        raise AssertionError("kills at the end changed the recording")
    return readable


def _wait(is_so: Any) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError("the processes ask for nothing")
        time.sleep(0.002)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        result = run(
            Path(folder), kills=options.kills, shards=options.shards, processes=options.processes, seed=options.seed
        )
        print(json.dumps({"benchmark": "shard_kills", **result, "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
