"""How much later does a reply come through `suffice proxy` than without it?  `python -m benchmarks.proxy`.

One process is the endpoint, which answers each request after a fixed time; one is the proxy, which stores each reply durably before it
hands it out.  This process sends 100 requests a second to either, in turn, whether or not those before are answered: 300 conversations,
whose requests repeat all messages so far.  Latency counts from when a request was due.  Asserted: every reply is the endpoint's, and the
proxy has recorded each as a round.  `unsure` counts rounds whose conversation is doubtful, since its next request overtook a reply.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
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

from benchmarks.serve_latency import Connections
from suffice.recordings import read_recording

CONVERSATIONS = 300
TASK = (
    "Mend the function that fails for a list without items, run its tests, and say in a sentence what was wrong. " * 6
)
TEXT = "The file was read, and its second function divides by zero where the list is empty. " * 8


async def endpoint(wait_s: float) -> None:
    """Answer chat completions on a free port, whose number is printed, until the process is ended."""
    reply = {"role": "assistant", "content": TEXT}
    usage = {"prompt_tokens": 900, "completion_tokens": 120, "total_tokens": 1020}
    choice = {"index": 0, "message": reply, "finish_reason": "stop"}
    body = json.dumps({"id": "c", "model": "gpt-4o-mini", "choices": [choice], "usage": usage}).encode()
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head.lower())
                await reader.readexactly(int(length[1]) if length else 0)
                await asyncio.sleep(wait_s)
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def started(command: list[str], pattern: str) -> Iterator[tuple[str, int]]:
    """Yield the address that a process prints, and the process's id."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    match = re.search(pattern, process.stdout.readline())
    assert match
    try:
        yield match[1], process.pid
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def processor_s(process: int) -> float:
    """Return the processor seconds that a process has used, all threads together."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request_of(number: int, first: int = 0) -> bytes:
    """Return the next request of a conversation: all messages so far."""
    conversation, turn = first + number % CONVERSATIONS, number // CONVERSATIONS
    messages = [{"role": "user", "content": f"Task {conversation}: {TASK}"}]
    for past in range(turn):
        messages += [{"role": "assistant", "content": TEXT}, {"role": "user", "content": f"Go on, {past}."}]
    body = json.dumps({"model": "gpt-4o-mini", "messages": messages}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {'k' * 40}7\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def load(urls: dict[str, str], *, rate: float, seconds: float, first: int = 0) -> dict[str, list[float]]:
    """Return the latencies at each address, seconds, at `rate` requests per second to each; `first` = their first conversation."""
    connections = {name: Connections(url) for name, url in urls.items()}
    latencies: dict[str, list[float]] = {name: [] for name in urls}
    names, tasks, began = [*urls], [], time.perf_counter() + 0.2

    async def one(name: str, request: bytes, due: float) -> None:
        reply = json.loads(await connections[name].send(request))
        latencies[name].append(time.perf_counter() - due)
        assert reply["choices"][0]["message"]["content"] == TEXT

    for number in range(int(rate * seconds) * len(names)):
        request = request_of(number // len(names), first)
        due = began + number / (rate * len(names))
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(one(names[number % len(names)], request, due)))
    await asyncio.gather(*tasks)
    for connection in connections.values():
        for _, writer in connection.free:
            writer.close()
    return latencies


def main() -> None:
    """Print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rate", type=float, default=100.0, help="requests per second, through the proxy and beside it"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the run")
    parser.add_argument("--wait", type=float, default=0.2, help="seconds that the endpoint takes for a reply")
    options = parser.parse_args()
    serve = f"import asyncio; from benchmarks.proxy import endpoint; asyncio.run(endpoint({options.wait}))"
    with tempfile.TemporaryDirectory() as name, started(["-c", serve], r"(\d+)") as (port, _):
        folder, upstream = Path(name) / "runs", f"http://127.0.0.1:{port}"
        command = [
            "-m",
            "suffice",
            "proxy",
            str(folder),
            "--port",
            "0",
            "--upstream",
            upstream,
            "--set",
            "max-requests=4096",
        ]
        with started(command, r"ANTHROPIC_BASE_URL=(\S+)") as (url, process):
            warm = asyncio.run(load({"proxy": url}, rate=20, seconds=2, first=1_000_000))
            before = processor_s(process)
            latencies = asyncio.run(load({"proxy": url, "none": upstream}, rate=options.rate, seconds=options.seconds))
            status = httpx.get(f"{url}/suffice/status").json()
            assert status["fault"] is None, status
            used = processor_s(process) - before
        table = read_recording(folder).table
        assert table.num_rows == len(latencies["proxy"]) + len(warm["proxy"]), (table.num_rows, status)
        unsure = sum(key != "messages" for key in table.column("key").to_pylist())
    figures: dict[str, Any] = {}
    print(f"{'':>6} {'p10 ms':>8} {'p50 ms':>8} {'p90 ms':>8} {'p99 ms':>8} {'max ms':>8} {'requests':>9}")
    for way, values in latencies.items():
        quantiles = np.quantile(values, [0.1, 0.5, 0.9, 0.99, 1.0]) * 1000
        figures[way] = dict(zip(("p10", "p50", "p90", "p99", "max"), quantiles.round(2).tolist(), strict=True))
        print(f"{way:>6} {' '.join(f'{value:>8.1f}' for value in quantiles)} {len(values):>9}")
    figures |= {"unsure": unsure, "processor_ms": round(1000 * used / len(latencies["proxy"]), 2)}
    figures |= {"p99_overhead_ms": round(figures["proxy"]["p99"] - figures["none"]["p99"], 2)}
    figures |= {"p99_ratio": round(figures["proxy"]["p99"] / figures["none"]["p99"], 3), "load": os.getloadavg()[0]}
    about = {"benchmark": "proxy", "rate": options.rate, "seconds": options.seconds, "wait_s": options.wait}
    print(json.dumps({**about, **figures, "python": platform.python_version(), "cores": os.cpu_count()}))


if __name__ == "__main__":
    main()
