"""How many calls are repeated when the processes of a Ray cluster are killed while they record, and whether anything else is lost.

A cluster of two nodes on this machine records questions in shards from a local endpoint, which counts what it is asked.  At
even distances the endpoint stops answering; `kill -9` then hits a worker, the raylet of a node, or the driver, and the
endpoint goes on.  A killed node is replaced by a new one, a killed driver by the same command.  At the end the recording must be that
of a single process.  Calls are those of rounds; each shard that is begun also examines the endpoint with one call.

    python -m benchmarks.ray_kills --kills 10
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.support.cli_tools import question, reply
from tests.support.endpoint import Endpoint

from suffice import read_recording

VICTIMS = ("worker", "node", "driver")
CONCURRENCY = 4
ROUNDS = 3
WORKERS = 2
_CLOCKS = ("recorded_at", "seconds")
_DEADLINE_S = 300.0
_PATIENCE = {
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_agent_register_timeout_ms": "600000",
    # A node whose process is gone is given up at once; one that is only slow has minutes to say that it lives.
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_timeout_ms": "120000",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "disabled",
    "OPENAI_API_KEY": "key",
}

_LEAN = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
"""Without processes that show or forward what happens, or add nodes."""


@dataclass
class Nodes:
    """A Ray cluster of nodes with one processor each, on this machine."""

    cluster: Any
    others: list[Any] = field(default_factory=list)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self) -> None:
        """Start another node, and wait until it is there."""
        self.others.append(self.cluster.add_node(num_cpus=1, object_store_memory=80_000_000))

    def workers(self) -> list[int]:
        """Return the processes that work, those of the first node first."""
        return [pid for node in (self.cluster.head_node, *self.others) for pid in _workers_of(_raylet(node))]

    def all_work(self) -> bool:
        """Return whether there is a worker on each node."""
        return all(_workers_of(_raylet(node)) for node in (self.cluster.head_node, *self.others))

    def kill_node(self) -> None:
        """End the raylet of a node other than the first at once, and what is left of that node."""
        node = self.others.pop()
        os.kill(_raylet(node), signal.SIGKILL)
        self.cluster.remove_node(node, allow_graceful=False)


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def _workers_of(raylet: int) -> list[int]:
    found = []
    with suppress(psutil.Error):  # it has ended
        for child in psutil.Process(raylet).children():
            with suppress(psutil.Error):
                if "".join(child.cmdline()[:1]).startswith("ray::Worker"):
                    found.append(child.pid)
    return sorted(found)


@contextmanager
def nodes() -> Iterator[Nodes]:
    """Start a cluster of two nodes, for processes that this one starts, too."""
    before = dict(os.environ)
    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
    os.environ.update(_PATIENCE | {"RAY_TMPDIR": folder})
    try:
        from ray.cluster_utils import Cluster

        cluster = Nodes(
            Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80_000_000, **_LEAN})
        )
        os.environ["RAY_ADDRESS"] = cluster.address
        try:
            cluster.add()
            yield cluster
        finally:
            cluster.cluster.shutdown()
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)


def columns_of(path: Path) -> dict[str, list[Any]]:
    """Return every column of a recording, but for what is measured by a clock."""
    table = read_recording(path).table
    names = sorted(name for name in table.column_names if name.rsplit(".", 1)[-1] not in _CLOCKS)
    return {name: table.column(name).to_pylist() for name in names}


def command(dataset: Path, url: str, out: Path, *more: str) -> list[str]:
    """Return the command that records."""
    asked = ["--model", "m", "--base-url", url, "--max-rounds", str(ROUNDS), f"--set=concurrency={CONCURRENCY}"]
    return [sys.executable, "-m", "suffice", "record", str(dataset), "-o", str(out), *asked, *more]


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {_DEADLINE_S:g} s: {what}")
        time.sleep(0.01)


def _settle(endpoint: Endpoint) -> None:
    """Wait until no call comes in or is given up; for the figures alone: without it, nothing is lost either."""
    state = None
    while state != (state := (len(endpoint.requests), endpoint.abandoned)):
        time.sleep(0.3)


class _Driver:
    """The command, as a process that is started again when it is killed."""

    def __init__(self, words: list[str], log: Path) -> None:
        self.words, self.log = words, log
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.words, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def check_alive(self) -> bool:
        """Return whether it runs; raise if it has failed."""
        if self.process.poll() not in (None, 0):
            raise AssertionError(self.log.read_text())
        return self.process.returncode is None


@dataclass(frozen=True, slots=True)
class Reference:
    """Questions, and their recording by a single process that nobody kills."""

    dataset: Path
    recording: Path
    questions: int
    requests: int


def record_alone(folder: Path, *, questions: int) -> Reference:
    """Record questions with one process; return what it wrote into an empty folder, and how often it asked."""
    folder.mkdir()
    dataset, recording = folder / "q.jsonl", folder / "one.parquet"
    dataset.write_text("".join(json.dumps(question(number)) + "\n" for number in range(questions)), "utf-8")
    with Endpoint(reply, usage="plain") as endpoint:
        subprocess.run(command(dataset, endpoint.url, recording), check=True, capture_output=True)
        return Reference(dataset, recording, questions, len(endpoint.requests))


def record_killed(folder: Path, cluster: Nodes, victims: Sequence[str], alone: Reference) -> dict[str, Any]:
    """Record while processes are killed; return how many calls that took.

    Args:
        folder: An empty folder.
        cluster: Where the workers run.
        victims: What is killed in turn: each `worker`, `node` or `driver`.
        alone: The questions, as one process recorded them.

    Raises:
        AssertionError: The recording is not that of a single process, or a call was repeated that was not in flight.
    """
    folder.mkdir()
    in_flight = killed_processes = 0
    with Endpoint(reply, usage="plain", allow=0) as endpoint:
        on_cluster = ("--on", "ray", f"--set=workers={WORKERS}", f"--set=shards={2 * WORKERS}")
        driver = _Driver(command(alone.dataset, endpoint.url, folder / "parts", *on_cluster), folder / "log")
        try:
            for place, victim in enumerate(victims, 1):
                endpoint.allow = len(endpoint.requests) + alone.requests // (
                    2 * len(victims)
                )  # in the first half all work
                _until(
                    lambda: driver.check_alive() and len(endpoint.requests) > endpoint.allow and cluster.all_work(),
                    "the endpoint holds calls, and each node works",
                )
                _settle(endpoint)
                _repeated(endpoint, killed_processes)
                workers = cluster.workers()
                if victim == "worker":
                    gone = [workers[place % len(workers)]]
                    os.kill(gone[0], signal.SIGKILL)
                elif victim == "node":
                    gone = workers[1:]
                    cluster.kill_node()
                else:
                    gone = workers
                    driver.kill()
                _until(lambda gone=gone: not any(map(_runs, gone)), "the workers have ended")
                _settle(endpoint)
                killed_processes += len(gone)
                if victim == "node":
                    cluster.add()
                if victim == "driver":
                    driver.start()
            endpoint.allow = None
            _until(lambda: not driver.check_alive(), "the command ends")
            in_flight = endpoint.abandoned
        finally:
            driver.process.kill()
            driver.process.wait()
        repeated = _repeated(endpoint, killed_processes)
    if columns_of(folder / "parts") != columns_of(alone.recording):
        raise AssertionError("the recording is not that of a single process")
    return {
        "victims": sorted({*victims}),
        "kills": len(victims),
        "workers_ended": killed_processes,
        "questions": alone.questions,
        "rounds": alone.questions * ROUNDS,
        "in_flight": in_flight,
        "repeated": repeated,
    }


def _repeated(endpoint: Endpoint, killed_processes: int) -> int:
    """Return how many calls were sent again; raise if they are more than were in flight when processes ended."""
    calls = Counter(request.prompt for request in endpoint.requests if "Where is tower" in request.prompt)
    repeated = sum(calls.values()) - len(calls)
    if repeated > CONCURRENCY * killed_processes:
        raise AssertionError(f"{repeated} calls repeated, of {killed_processes} processes with {CONCURRENCY} in flight")
    return repeated


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=VICTIMS)
    arguments = parser.parse_args()
    print("| killed | times | workers that ended | calls needed | calls repeated | calls in flight then |")
    print("|---|---:|---:|---:|---:|---:|")
    results = []
    with tempfile.TemporaryDirectory() as folder, nodes() as cluster:
        alone = record_alone(Path(folder) / "alone", questions=arguments.questions)
        for victim in arguments.victims:
            result = record_killed(Path(folder) / victim, cluster, [victim] * arguments.kills, alone)
            cells = [result[key] for key in ("kills", "workers_ended", "rounds", "repeated", "in_flight")]
            print(f"| {victim} | {' | '.join(map(str, cells))} |", flush=True)
            results.append(result)
    print(json.dumps({"benchmark": "ray_kills", "results": results}))


if __name__ == "__main__":
    main()
