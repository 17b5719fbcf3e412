"""How fast does `record` go beside a bare `AsyncOpenAI` loop that sends the same requests with the same concurrency?

Ours: `record_async`, full width, each reply committed before the next call.  Peer: `AsyncOpenAI` in 32 workers, one
question each, its rounds one after the other, replies kept in memory.  The endpoint is a process of its own with a fixed
latency.  Asserted first: both sent the same requests and got the same replies.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice import ChatModel, Policy, RetrievalLoop, load_questions, read_recording, record_async
from suffice.loops.models._wire import request_body
from suffice.loops.retrieval import PoolBM25, Question

CONCURRENCY = 32
ROUNDS = 5
# latency in seconds, questions, repeats, least ratio
SETTINGS = ((0.5, 64, 3, 0.90), (0.05, 128, 7, 0.75))
TOKENS = 12


@dataclass(frozen=True)
class Timing:
    """What one run took: wall-clock and CPU seconds of this process, and the replies by prompt."""

    wall_s: float
    cpu_s: float
    texts: dict[tuple[str, int], str]


class Canned(asyncio.Protocol):
    """Answers every POST after a while with five alternatives at each of a dozen tokens."""

    latency_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, separator, body = self.data.partition(b"\r\n\r\n")
        if not separator:
            return
        length = next(int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length"))
        if len(body) < length:
            return
        self.data = body[length:]
        # The reply depends on every field, in whatever order the client writes them.
        asked = json.dumps(json.loads(body[:length]), sort_keys=True).encode()
        asyncio.get_running_loop().call_later(Canned.latency_s, self.answer, zlib.crc32(asked))

    def answer(self, number: int) -> None:
        tokens = ["Answer", ":", f" word{number % 97}", "\n", "Confidence", ":", f" {number % 5 + 1}"]
        tokens += ["\n"] * (TOKENS - len(tokens))
        content = []
        for token in tokens:
            top = [
                {"token": f"{token}{i or ''}", "logprob": -0.1 - i * (1 + number % 7), "bytes": list(token.encode())}
                for i in range(5)
            ]
            content.append({**top[0], "top_logprobs": top})
        message = {"role": "assistant", "content": "".join(tokens)}
        choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": {"content": content}}
        usage = {"prompt_tokens": 500, "completion_tokens": TOKENS, "total_tokens": 500 + TOKENS}
        reply = {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }
        body = json.dumps(reply).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


async def serve(latency_s: float) -> None:
    """Serve until standard input ends; the first line of standard output is the address."""
    Canned.latency_s = latency_s
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Canned, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextmanager
def endpoint(latency_s: float) -> Iterator[str]:
    """Run the server in a process of its own, so that it does not share our interpreter lock."""
    command = [sys.executable, "-m", "benchmarks.bench_record", "serve", str(latency_s)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def chat(url: str) -> ChatModel:
    return ChatModel("m", base_url=url, api_key="none-at-all", max_retries=0)


def ours(url: str, questions: Sequence[Question]) -> Timing:
    """Record, and read the replies back from the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.parquet"
        loop = RetrievalLoop(model=chat(url), retriever=PoolBM25(), policy=Policy(max_rounds=ROUNDS))
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        asyncio.run(record_async(questions, loop, path, concurrency=CONCURRENCY))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        recording = read_recording(path)
    texts = recording.objects("text")
    ids = recording.question_ids
    return Timing(wall, cpu, {(q, r + 1): texts[i, r] for i, q in enumerate(ids) for r in range(ROUNDS)})


def bodies(questions: Sequence[Question]) -> dict[str, list[dict[str, Any]]]:
    """Return what `record` sends, by question, made before the clock starts."""
    model, retriever = chat("http://127.0.0.1:1/v1"), PoolBM25()
    settings = {"max_tokens": 64, "temperature": 0.0, "top_logprobs": 5, "seed": None, "extra_body": {}}
    made = {}
    for question in questions:
        ranked = retriever.rank(question.question, pool=question.passages)
        messages = [model.prompt.messages(question.question, ranked[:r]) for r in range(1, ROUNDS + 1)]
        made[question.question_id] = [request_body("chat", "m", each, settings) for each in messages]
    return made


def bare(url: str, requests: dict[str, list[dict[str, Any]]]) -> Timing:
    """Send the same requests with `AsyncOpenAI` alone."""
    from openai import AsyncOpenAI

    texts: dict[tuple[str, int], str] = {}

    async def run() -> None:
        queue = iter(requests.items())
        async with AsyncOpenAI(base_url=url, api_key="none-at-all", max_retries=0) as client:

            async def worker() -> None:
                for question_id, rounds in queue:
                    for r, body in enumerate(rounds, 1):
                        reply = await client.chat.completions.create(**body)
                        texts[question_id, r] = reply.choices[0].message.content or ""

            await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))

    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    asyncio.run(run())
    return Timing(time.perf_counter() - wall, time.process_time() - cpu, texts)


def measure(latency_s: float, n: int, repeats: int) -> dict[str, Any]:
    """Run both, side by side, after one run of each to warm up."""
    questions = (load_questions("hotpotqa_eval") + load_questions("hotpotqa_tune"))[:n]
    requests = bodies(questions)
    calls = n * ROUNDS
    with endpoint(latency_s) as url:
        recorded, sent = ours(url, questions[:16]), bare(url, dict(list(requests.items())[:16]))
        assert recorded.texts == sent.texts
        pairs = []
        for i in range(repeats):
            both = {}
            for name in ("ours", "bare") if i % 2 else ("bare", "ours"):
                both[name] = ours(url, questions) if name == "ours" else bare(url, requests)
            assert both["ours"].texts == both["bare"].texts
            assert len(both["ours"].texts) == calls
            pairs.append((both["ours"], both["bare"]))
    rate = [statistics.median(calls / timing.wall_s for timing in side) for side in zip(*pairs, strict=True)]
    cpu = [statistics.median(1000 * timing.cpu_s / calls for timing in side) for side in zip(*pairs, strict=True)]
    return {
        "latency_s": latency_s,
        "calls": calls,
        "repeats": repeats,
        "ours_calls_per_s": rate[0],
        "bare_calls_per_s": rate[1],
        "ceiling_calls_per_s": CONCURRENCY / latency_s,
        "ratio": statistics.median(b.wall_s / a.wall_s for a, b in pairs),
        "ours_cpu_ms_per_call": cpu[0],
        "bare_cpu_ms_per_call": cpu[1],
        "recorder_cpu_ms_per_call": statistics.median(1000 * (a.cpu_s - b.cpu_s) / calls for a, b in pairs),
    }


def run() -> dict[str, Any]:
    """Run the benchmark and return its JSON line."""
    print(f"record against a bare AsyncOpenAI loop, {CONCURRENCY} at once (median of paired runs)")
    print("latency  calls  ours/s  bare/s  ceiling/s  ratio  at least  CPU ms/call: ours  bare  recorder")
    results = []
    for latency_s, n, repeats, least in SETTINGS:
        found = {**measure(latency_s, n, repeats), "target": least}
        found["met"] = found["ratio"] >= least
        results.append(found)
        print(
            f"{latency_s:7.2f}{found['calls']:7d}{found['ours_calls_per_s']:8.1f}{found['bare_calls_per_s']:8.1f}"
            f"{found['ceiling_calls_per_s']:11.1f}{found['ratio']:7.3f}{least:10.2f}"
            f"{found['ours_cpu_ms_per_call']:19.2f}{found['bare_cpu_ms_per_call']:6.2f}"
            f"{found['recorder_cpu_ms_per_call']:10.2f}"
        )
    return {
        "name": "record",
        "ratio": results[0]["ratio"],
        "ratio_50ms": results[1]["ratio"],
        "concurrency": CONCURRENCY,
        "rounds": ROUNDS,
        "settings": results,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in ("openai", "httpx", "pyarrow")},
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(float(sys.argv[2])))
    else:
        print(json.dumps(run()))
