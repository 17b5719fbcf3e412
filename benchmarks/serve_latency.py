"""Is a decision over HTTP as fast as an empty endpoint of the same server?  `python -m benchmarks.serve_latency`.

One process runs `suffice serve`; another sends requests at a constant rate, whether or not those before are answered, in
turn to `/v1/decide` and to `/health`, which does nothing.  Latency counts from when a request was due, so a server that
stalls is charged for all who wait.  Each decision has three rounds with log-probabilities of their tokens and passages.
Asserted first: the server decides what `Policy.decide` decides.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from suffice import Policy, Round
from suffice.policy.rounds import Passage, Token

TOKEN = "0123456789abcdef0123456789abcdef"
TARGET = 2.0
POLICY = Policy(rule="(answer_stable >= 1) & (answer_margin > 2)", selector="last", max_rounds=5)


def observed(index: int) -> Round:
    """Return a round with an answer of five tokens, each with five alternatives, and its passages."""
    tokens = tuple(
        Token(text, -0.1, ((text, -0.1), *((f" other{i}", -3.0 - i) for i in range(4))))
        for text in (" The", " Tem", "pest")
    )
    passages = tuple(
        Passage(passage_id=f"p{i}", title=f"Title {i}", text="It was written by Shakespeare. " * 20, score=9.0 - i)
        for i in range(index)
    )
    answer = "The Tempest" if index > 1 else "Hamlet"
    return Round(index=index, answer=answer, text=f"Answer: {answer}", answer_tokens=tokens, passages=passages)


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the address of a server, in a process of its own, and the process."""
    command = [sys.executable, "-m", "suffice", "serve", str(folder), "--port", "0", *options]
    environment = {**os.environ, "SUFFICE_TOKEN": TOKEN, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    match = re.search(r"at (http://\S+),", process.stdout.readline())
    assert match
    try:
        yield match[1], process
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


class Connections:
    """Keeps connections open, as a client of a service does, and sends whole requests."""

    def __init__(self, url: str) -> None:
        self.host, port = url.removeprefix("http://").split(":")
        self.port = int(port)
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, request: bytes) -> bytes:
        """Return the body of the response."""
        reader, writer = self.free.pop() if self.free else await asyncio.open_connection(self.host, self.port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = re.search(rb"content-length: (\d+)", head)
        assert length
        body = await reader.readexactly(int(length[1]))
        self.free.append((reader, writer))
        return body


async def load(url: str, requests: dict[str, bytes], *, rate: float, seconds: float) -> dict[str, list[float]]:
    """Return the latencies of each request, seconds, at `rate` of each per second; infinite for one without its answer."""
    connections = Connections(url)
    latencies: dict[str, list[float]] = {name: [] for name in requests}

    async def one(name: str, due: float) -> None:
        try:
            await connections.send(requests[name])
        except (OSError, EOFError, AssertionError):
            latencies[name].append(math.inf)
        else:
            latencies[name].append(time.perf_counter() - due)

    names, tasks, began = [*requests], set(), time.perf_counter() + 0.1
    for number in range(int(rate * seconds) * len(names)):
        due = began + number / (rate * len(names))
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(one(names[number % len(names)], due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    for _, writer in connections.free:
        writer.close()
    return latencies


def request_of(method: str, path: str, body: bytes = b"") -> bytes:
    """Return a whole request."""
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def measured(
    url: str, *, rate: float, seconds: float, body: dict[str, Any] | None = None
) -> dict[str, dict[str, float]]:
    """Return the quantiles of both endpoints, milliseconds, measured from another process; `body` is sent to `/v1/decide`."""
    code = "from benchmarks.serve_latency import main_load; main_load()"
    body = body or {"policy": "p", "rounds": [observed(r).to_dict() for r in (1, 2, 3)]}
    asked = json.dumps({"url": url, "rate": rate, "seconds": seconds, "body": body})
    root = Path(__file__).resolve().parent.parent  # where this module can be imported
    done = subprocess.run([sys.executable, "-c", code, asked], cwd=root, check=True, capture_output=True, text=True)
    figures: dict[str, dict[str, float]] = json.loads(done.stdout)
    return figures


def main_load() -> None:
    """Run the load that the arguments name, and print its quantiles."""
    asked = json.loads(sys.argv[1])
    body = json.dumps(asked["body"]).encode()
    requests = {"decide": request_of("POST", "/v1/decide", body), "empty": request_of("GET", "/health")}
    asyncio.run(load(asked["url"], requests, rate=50, seconds=1))
    latencies = asyncio.run(load(asked["url"], requests, rate=asked["rate"], seconds=asked["seconds"]))
    figures = {}
    for name, every in latencies.items():
        values = [value for value in every if value < math.inf]
        p10, p50, p90, p99 = np.quantile(values, [0.1, 0.5, 0.9, 0.99]) * 1000
        figures[name] = {"p10": p10, "p50": p50, "p90": p90, "p99": p99, "max": max(values) * 1000}
        figures[name] |= {"n": len(every), "failed": len(every) - len(values)}
    print(json.dumps({**figures, "bytes": len(body)}))


def main() -> None:
    """Print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0, help="requests per second, to each endpoint")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--log", action="store_true", help="let the server log each decision before it is handed out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        POLICY.save(folder / "policies" / "p.json")
        with serving(folder / "policies", *(["--log", str(folder / "log")] if arguments.log else [])) as (url, _):
            rounds = [observed(r) for r in (1, 2, 3)]
            response = httpx.post(
                f"{url}/v1/decide",
                json={"policy": "p", "rounds": [item.to_dict() for item in rounds]},
                headers={"authorization": f"Bearer {TOKEN}"},
            ).json()
            expected = POLICY.decide(rounds).to_dict()
            assert {key: response[key] for key in expected} == expected, response
            runs = [measured(url, rate=arguments.rate, seconds=arguments.seconds) for _ in range(arguments.runs)]
    print(
        f"{'run':>4} {'endpoint':>9} {'p10 ms':>8} {'p50 ms':>8} {'p90 ms':>8} {'p99 ms':>8} {'max ms':>8} {'requests':>9}"
    )
    for number, run in enumerate(runs, 1):
        for endpoint in ("decide", "empty"):
            row = run[endpoint]
            print(
                f"{number:>4} {endpoint:>9} {row['p10']:>8.2f} {row['p50']:>8.2f} {row['p90']:>8.2f} {row['p99']:>8.2f} {row['max']:>8.1f} {row['n']:>9}"
            )
    ratios = [run["decide"]["p99"] / run["empty"]["p99"] for run in runs]
    summary: dict[str, Any] = {
        "p99_ratio": sorted(ratios)[len(ratios) // 2],
        "p99_ratios": ratios,
        "target": TARGET,
        "rate": arguments.rate,
        "log": arguments.log,
        "body_bytes": runs[0]["bytes"],
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
