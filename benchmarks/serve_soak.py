"""Does a server that is killed, flooded and lied to ever decide wrongly or lose a row?  `python -m benchmarks.serve_soak`.

Two servers share one log and its sessions.  Clients run questions on them, in sessions and without, and send every
request again until it is answered.  Meanwhile servers are killed with SIGKILL and started again, bodies drip and are given
up, connections close before the answer, and bodies are too large or not JSON.  Asserted at the end: every decision is that
of `Policy.decide`; every decision that a client saw is in the log, as it was; each row has the draw of the audit that its
question's id has; and every audit that a client finished is there up to the last round.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import math
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from suffice import Audit, Policy, Round
from suffice.recordings import read_recording
from suffice_server.serve.guard import Limits

TOKEN = "0123456789abcdef0123456789abcdef"
POLICY = Policy(rule="answer_stable", max_rounds=4)
BODY_LIMIT = 20_000
GARBAGE = (
    (b"{", 422),
    (b'{"policy": "p"}', 422),
    (b"[" * 5000, 422),
    (b'{"policy": "p", "rounds": [{"answer": 1}]}', 422),
    (b"x" * (BODY_LIMIT + 1), 413),
    (b'{"policy": "../p", "rounds": []}', 404),
)
"""Bodies that no server may accept, with the status that they get."""


class Servers:
    """Some servers on one log; each has its port for good."""

    def __init__(self, folder: Path, n: int, rate: float) -> None:
        self.folder, self.rate = folder, rate
        self.processes: list[subprocess.Popen[str]] = []
        self.ports = [0] * n
        self.kills = 0
        for place in range(n):
            self.processes.append(self.start(place))

    def start(self, place: int) -> subprocess.Popen[str]:
        """Start a server and wait until it answers."""
        options = ["--port", self.ports[place], "--log", self.folder / "log", "--audit-rate", self.rate]
        options += [f"--set=max-body={BODY_LIMIT}"]
        command = [sys.executable, "-m", "suffice", "serve", str(self.folder / "policies"), *map(str, options)]
        environment = {**os.environ, "SUFFICE_TOKEN": TOKEN, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with (self.folder / f"server-{place}.log").open("a") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        assert process.stdout is not None
        match = re.search(r"at http://127.0.0.1:(\d+),", process.stdout.readline())
        assert match, (self.folder / f"server-{place}.log").read_text()
        self.ports[place] = int(match[1])
        return process

    def kill(self, place: int) -> None:
        """Kill a server, as the system does when memory is short, and start it again."""
        self.processes[place].kill()
        self.processes[place].communicate()
        self.kills += 1
        self.processes[place] = self.start(place)

    def end(self) -> None:
        """End all servers."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.communicate(timeout=120)


class Client:
    """Runs questions, and keeps what it was told of each."""

    def __init__(self, servers: Servers, seed: int) -> None:
        self.servers, self.rng = servers, random.Random(seed)
        self.name = f"client{seed}"
        self.decisions: dict[str, dict[str, Any]] = {}
        self.audited: dict[str, int] = {}
        self.ways: dict[str, str] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self.http = httpx.AsyncClient(timeout=30, headers={"authorization": f"Bearer {TOKEN}"})

    def url(self, path: str) -> str:
        """Return the address of a path at any server."""
        return f"http://127.0.0.1:{self.rng.choice(self.servers.ports)}{path}"

    async def post(self, path: str, **content: Any) -> httpx.Response:
        """Send a request; only a body that came too late, as that of a client at a standstill does, may be given up."""
        began = time.monotonic()
        response = await self.http.post(self.url(path), **content)
        took = time.monotonic() - began
        assert response.status_code != httpx.codes.REQUEST_TIMEOUT or took >= Limits().seconds, (path, took)
        return response

    async def send(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request until it is answered; some answers are thrown away."""
        while True:
            await self.misbehave()
            try:
                response = await self.post(path, json=body)
            except httpx.TransportError:
                self.counts["connections lost"] += 1
                await asyncio.sleep(0.05)
                continue
            if response.status_code in (200, 201):
                if self.rng.random() < 0.05:
                    self.counts["answers thrown away"] += 1
                    continue
                answer: dict[str, Any] = response.json()
                return answer
            assert response.status_code in (408, 409, 429, 503), (path, body, response.status_code, response.text)
            assert response.status_code != 409 or "at the same time" in response.text, response.text
            self.counts[f"status {response.status_code}"] += 1
            await asyncio.sleep(0.05)

    async def misbehave(self) -> None:
        """Sometimes be a bad client first."""
        draw = self.rng.random()
        with contextlib.suppress(httpx.TransportError, OSError):
            if draw < 0.1:
                content, status = self.rng.choice(GARBAGE)
                response = await self.post("/v1/decide", content=content)
                assert response.status_code in (status, 408, 503), (content[:50], response.text)
                self.counts["bad bodies"] += 1
            elif draw < 0.2:
                port = self.rng.choice(self.servers.ports)
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                head = f"POST /v1/decide HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 50\r\n\r\n"
                for byte in head.encode()[: self.rng.randrange(20, 200)], b"{", b'"':
                    writer.write(byte)
                    await writer.drain()
                    await asyncio.sleep(0.005)
                writer.close()
                del reader
                self.counts["bodies given up"] += 1

    async def question(self, number: int) -> None:
        """Run one question to its stop, and its audit to the end."""
        name = f"{self.name}-{number}"
        answers = [self.rng.choice(["Oslo", "Bergen", "Narvik"]) for _ in range(POLICY.max_rounds)]
        rounds = [{"index": r, "answer": answer} for r, answer in enumerate(answers, 1)]
        expected = POLICY.decide([Round(index=r, answer=answer) for r, answer in enumerate(answers, 1)]).to_dict()
        names = {"policy": "p", "question": f"Question {name}?", "question_id": name}
        if self.rng.random() < 0.5:
            session = (await self.send("/v1/sessions", names))["id"]
            for body in rounds:
                decided = await self.send(f"/v1/sessions/{session}/rounds", body)
                if decided["stop"]:
                    break
            self.ways[name] = "in sessions"
        else:
            for n in range(1, len(rounds) + 1):
                decided = await self.send("/v1/decide", {**names, "rounds": rounds[:n]})
                if decided["stop"]:
                    break
            session = decided["session"]
            self.ways[name] = "stateless"
        assert {key: decided[key] for key in expected} == expected, (decided, expected)
        self.decisions[name] = decided
        self.counts[f"questions {self.ways[name]}"] += 1
        while decided["audit"]:
            at = decided["stop_round"] + 1 + self.audited.get(name, 0)
            again = await self.send(f"/v1/sessions/{session}/rounds", rounds[at - 1])
            assert {key: again[key] for key in expected} == expected, (again, expected)
            self.audited[name] = self.audited.get(name, 0) + 1
            decided = again

    async def run(self, seconds: float) -> None:
        """Run questions one after the other, at least two."""
        end = time.monotonic() + seconds
        number = 0
        while number < 2 or time.monotonic() < end:
            await self.question(number)
            number += 1
        await self.http.aclose()


async def killing(servers: Servers, seconds: float, every: float, rng: random.Random) -> None:
    """Kill servers at random times, on average one in `every` seconds, and at least one."""
    end = time.monotonic() + seconds
    while True:
        await asyncio.sleep(rng.expovariate(1 / every))
        if servers.kills and time.monotonic() >= end:
            break
        await asyncio.to_thread(servers.kill, rng.randrange(len(servers.ports)))


def verify(folder: Path, clients: list[Client], rate: float) -> dict[str, int]:
    """Compare the log with what the clients saw; return how many rows it has of what kind."""
    recording = read_recording(folder / "log" / f"p-{POLICY.digest}")
    audit = Audit(rate=rate, seed=(folder / "log" / "audit.seed").read_text().strip())
    by_question: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in recording.table.to_pylist():
        name = row["question_id"].partition("#")[0]
        by_question.setdefault(name, {}).setdefault(row["question_id"], []).append(row)
    counts: collections.Counter[str] = collections.Counter()
    for client in clients:
        for name, decided in client.decisions.items():
            requests = [*by_question.get(name, {}).values()]
            complete = [rows for rows in requests if rows[0]["stop_round"] == decided["stop_round"]]
            assert complete, f"{name} is not in the log: {requests}"
            for rows in complete:
                for row in rows:
                    for ours, theirs in (("stop_round", "stop_round"), ("answer_round", "answer_round")):
                        assert row[ours] == decided[theirs], (row, decided)
                    assert row["stop_reason"] == decided["reason"], (row, decided)
                    assert row["policy_digest"] == decided["policy"], (row, decided)
                    assert math.isclose(row["audit_rate"], rate), row
                    assert row["audited"] == audit.draw(name).audited, row
            n = decided["stop_round"] + client.audited.get(name, 0)
            assert max(map(len, complete)) >= n, (name, n, complete)
            if audit.draw(name).audited:
                counts["audited"] += 1
                assert max(map(len, complete)) == POLICY.max_rounds, (name, complete)
            counts["questions"] += 1
            counts[f"logged again, {client.ways[name]}"] += len(complete) - 1
            counts["begun in the log and begun again"] += len(requests) - len(complete)
    return dict(counts)


def soak(
    folder: Path, *, seconds: float, every: float, clients: int, rate: float = 0.2, seed: int = 0
) -> dict[str, Any]:
    """Run a soak in a folder and return its counts.

    Args:
        folder: An empty folder.
        seconds: How long questions begin.
        every: Seconds between two kills, on average.
        clients: How many clients run at a time.
        rate: Of the audit.
        seed: Of answers, faults and kills.
    """
    (folder / "policies").mkdir()
    POLICY.save(folder / "policies" / "p.json")
    servers = Servers(folder, 2, rate)
    people = [Client(servers, 1000 * seed + number) for number in range(clients)]

    async def everything() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(killing(servers, seconds, every, random.Random(seed)))
            for client in people:
                group.create_task(client.run(seconds))

    try:
        asyncio.run(everything())
    finally:
        servers.end()
    counts: collections.Counter[str] = collections.Counter()
    for client in people:
        counts.update(client.counts)
    return {"kills": servers.kills, **counts, **verify(folder, people, rate)}


def main() -> None:
    """Print the counts and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two kills, on average")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        counts = soak(Path(name), **vars(arguments))
    for what, n in counts.items():
        print(f"{what:>34} {n:>8,}")
    print(json.dumps({**vars(arguments), **counts, "python": platform.python_version(), "cores": os.cpu_count()}))


if __name__ == "__main__":
    main()
