"""Can a client that means harm stop the decisions of others?  `python -m benchmarks.serve_hostile`.

One process runs `suffice serve` with a log of many rows.  A second one is the honest client: it asks for decisions at a constant
rate, on connections that it keeps.  This process attacks meanwhile, in one way after another, with the token, as a service
of one's own that went wrong would.  Latency counts from when a request was due.  Asserted after each attack: the server
lives, and decides what `Policy.decide` decides.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import os
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.serve_latency import TOKEN, measured, observed, request_of, serving
from suffice import Policy, Recorder, Round, read_recording
from suffice.policy.expressions import is_available
from suffice.recordings import write_recording

HONEST = Policy(rule="(answer_stable >= 1) & (answer_margin > 2)", selector="last", max_rounds=5)
SIMILAR = Policy(rule="answer_similarity_previous > 2", max_rounds=1000)
VOTES = Policy(rule="vote_share > 2", max_rounds=1000)
TOWERS = Policy(rule="answer_stable > 2", max_rounds=1000, normalizer="math")
LOGGED = Policy(rule="answer_stable", max_rounds=2, name="logged")
_ROUNDS = [observed(1), observed(2)]
_NUMBERS = itertools.count(3)

Attack = Callable[["Attacker"], Awaitable[None]]


class Attacker:
    """Sends requests without end, and counts the statuses that come back."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)
        self.counts: collections.Counter[str] = collections.Counter()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        self.is_ready = asyncio.Event()
        self.is_ready.set()
        headers = {"authorization": f"Bearer {TOKEN}"}
        self.http = httpx.AsyncClient(base_url=url, timeout=120, headers=headers, limits=limits)

    async def send(self, path: str, content: bytes, method: str = "POST") -> httpx.Response | None:
        """Send one request, and count its status."""
        try:
            response = await self.http.request(method, path, content=content)
        except httpx.TransportError:
            self.counts["connections lost"] += 1
            return None
        self.counts[f"status {response.status_code}"] += 1
        return response

    async def again(self, path: str, content: Callable[[], bytes], *, at_once: int, method: str = "POST") -> None:
        """Send requests one after the other, forever, several at a time."""

        async def one() -> None:
            while True:
                await self.send(path, content(), method)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(one())

    async def drip(self, pieces: bytes, *, every: float) -> None:
        """Open connections that send a byte at a time, or nothing, and open another one when it was closed."""
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                self.counts["connections opened"] += 1
                try:
                    for place in range(max(len(pieces), 1)):
                        writer.write(pieces[place : place + 1])
                        await asyncio.sleep(every)
                    await reader.read()
                finally:
                    writer.close()
            await asyncio.sleep(0.01)


def decide(policy: str, answers: list[str]) -> bytes:
    """Return the body of a request for a decision."""
    return json.dumps({"policy": policy, "rounds": [{"answer": answer} for answer in answers]}).encode()


async def _half_open(attacker: Attacker) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(500):
            group.create_task(attacker.drip(b"", every=60))


async def _slow(attacker: Attacker) -> None:
    head = f"POST /v1/decide HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 50\r\n\r\n"
    async with asyncio.TaskGroup() as group:
        for place in range(200):
            group.create_task(attacker.drip(head.encode() if place % 2 else request_of("POST", "/", b""), every=0.2))


async def _huge(attacker: Attacker) -> None:
    await attacker.again("/v1/decide", lambda: b"x" * (5 << 20), at_once=4)


async def _deep(attacker: Attacker) -> None:
    await attacker.again("/v1/decide", lambda: b"[" * (3 << 20), at_once=4)


async def _large(attacker: Attacker) -> None:
    body = decide("honest", ["word " * 700] * 1000)
    await attacker.again("/v1/decide", lambda: body, at_once=4)


async def _towers(attacker: Attacker) -> None:
    def towers() -> bytes:
        return decide("towers", [f"$2^{{9^{{9^{next(_NUMBERS)}}}}}$" for _ in range(6)])

    await attacker.again("/v1/decide", towers, at_once=40)


async def _similar(attacker: Attacker) -> None:
    def bombs() -> bytes:
        number = next(_NUMBERS)
        return decide("similar", [f"{number} " + ("ab" * 500 if r % 2 else "ba" * 500) for r in range(60)])

    await attacker.again("/v1/decide", bombs, at_once=40)


async def _votes(attacker: Attacker) -> None:
    body = decide("votes", [f"answer {r % 500}" for r in range(1000)])
    await attacker.again("/v1/decide", lambda: body, at_once=40)


async def _sessions(attacker: Attacker) -> None:
    some, opened = asyncio.Semaphore(100), list[str]()

    async def open_one() -> None:
        async with some:
            response = await attacker.send("/v1/sessions", json.dumps({"policy": "similar"}).encode())
        if response is not None and response.is_success:
            opened.append(response.json()["id"])

    async def go_on(name: str) -> None:
        for number in itertools.count():
            async with some:
                body = json.dumps({"answer": f"word {number} " * 80}).encode()
                await attacker.send(f"/v1/sessions/{name}/rounds", body)

    attacker.is_ready.clear()
    async with asyncio.TaskGroup() as group:
        for _ in range(2000):
            group.create_task(open_one())
    attacker.is_ready.set()
    async with asyncio.TaskGroup() as group:
        for name in opened:
            group.create_task(go_on(name))


async def _watch(attacker: Attacker) -> None:
    await attacker.again("/v1/watch/logged", lambda: b"", at_once=1, method="GET")


async def _watches(attacker: Attacker) -> None:
    await attacker.again("/v1/watch/logged", lambda: b"", at_once=40, method="GET")


ATTACKS: dict[str, Attack] = {
    "500 half-open connections": _half_open,
    "200 slow heads and bodies": _slow,
    "bodies of 5 MB": _huge,
    "JSON 3 million levels deep": _deep,
    "1,000 rounds of 3.5 kB": _large,
    "towers of exponents, 40 at once": _towers,
    "60 answers to compare by similarity, 40 at once": _similar,
    "votes over 1,000 rounds, 40 at once": _votes,
    "2,000 sessions, 100 at once": _sessions,
    "a look at the log": _watch,
    "looks at the log, 40 at once": _watches,
}


def large_log(folder: Path, rows: int) -> None:
    """Write a log of the policy `logged` with about so many rows."""
    with Recorder(folder / "few", policy=LOGGED) as recorder:
        for number in range(500):
            with recorder.at_once(f"Question {number}?", question_id=f"q{number}") as run:
                for r in (1, 2):
                    run.observe(Round(index=r, answer="Oslo", text="Answer: Oslo"))
    few = read_recording(folder / "few")
    pieces = []
    for number in range(-(-rows // few.table.num_rows)):
        piece = few.table
        for name in ("question_id", "cluster", "run"):
            place = piece.column_names.index(name)
            piece = piece.set_column(
                place, piece.schema.field(name), pc.binary_join_element_wise(piece[name], f"-{number}", "")
            )
        pieces.append(piece)
    path = folder / "log" / f"logged-{LOGGED.digest}" / "part-20260101T000000000000-a-00000000-1-000000.parquet"
    path.parent.mkdir(parents=True)
    write_recording(path, pa.concat_tables(pieces), few.metadata)


async def attacked(url: str, attack: Attack | None, honest: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the honest client during an attack, and what the attacker was told."""
    attacker = Attacker(url)
    task = None if attack is None else asyncio.ensure_future(attack(attacker))
    await asyncio.sleep(1 if attack else 0)
    await attacker.is_ready.wait()
    figures = await asyncio.to_thread(honest)
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
            await task
    await attacker.http.aclose()
    return {**figures, "attacker": dict(attacker.counts)}


def campaign(folder: Path, *, seconds: float, rate: float, rows: int, attacks: list[str]) -> list[dict[str, Any]]:
    """Run attacks on one server and return a row of figures for each, the first and the last without an attack."""
    for name, policy in (("honest", HONEST), ("similar", SIMILAR), ("votes", VOTES), ("logged", LOGGED)):
        policy.save(folder / "policies" / f"{name}.json")
    if is_available():
        TOWERS.save(folder / "policies" / "towers.json")
    large_log(folder, rows)
    body = {"policy": "honest", "rounds": [item.to_dict() for item in _ROUNDS]}
    expected = HONEST.decide(_ROUNDS).to_dict()
    results = []
    options = ("--log", str(folder / "log"), "--set=watch-every=0")
    with serving(folder / "policies", *options) as (url, process):
        for name in ("none", *attacks, "none, afterwards"):
            figures = asyncio.run(
                attacked(url, ATTACKS.get(name), lambda: measured(url, rate=rate, seconds=seconds, body=body))
            )
            headers = {"authorization": f"Bearer {TOKEN}"}
            decided = httpx.post(f"{url}/v1/decide", json=body, headers=headers, timeout=300).json()
            assert {key: decided[key] for key in expected} == expected, (name, decided)
            assert process.poll() is None
            for policy in ("similar", "towers" if is_available() else "votes"):  # what is left of the attack is over
                while httpx.post(
                    f"{url}/v1/decide", content=decide(policy, ["a"]), headers=headers, timeout=300
                ).is_error:
                    time.sleep(0.5)
            results.append({"attack": name, **figures["decide"], "attacker": figures["attacker"]})
    return results


def main() -> None:
    """Print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of an attack")
    parser.add_argument("--rate", type=float, default=50.0, help="decisions per second of the honest client")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the log that is watched")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results = campaign(Path(name), **vars(arguments), attacks=[*ATTACKS])
    print(
        "| attack | p50 ms | p99 ms | max ms | unanswered | what the attacker got |\n| --- | ---: | ---: | ---: | ---: | --- |"
    )
    for row in results:
        got = ", ".join(f"{n:,} {what}" for what, n in sorted(row["attacker"].items()))
        print(
            f"| {row['attack']} | {row['p50']:.1f} | {row['p99']:.1f} | {row['max']:.0f} | {row['failed']} of {row['n']:,} | {got} |",
            flush=True,
        )
    print(
        json.dumps(
            {**vars(arguments), "results": results, "python": platform.python_version(), "cores": os.cpu_count()}
        )
    )


if __name__ == "__main__":
    main()
