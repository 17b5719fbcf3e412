"""A real local HTTP server that speaks chat and legacy completions, and can misbehave.

::

    with Endpoint(reply=lambda body: "Answer: Oslo", latency_s=0.05) as endpoint:
        ChatModel("m", base_url=endpoint.url, ...)
    assert len(endpoint.requests) == 1

`reply` is a text, or a function of the request's JSON that returns a text, `(text, margin)`, or a whole JSON object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

FAULTS = {
    "400": (400, "application/json", '{"error": {"message": "no such parameter"}}'),
    "401": (401, "application/json", '{"error": {"message": "bad key"}}'),
    "403": (403, "application/json", '{"error": {"message": "not for you"}}'),
    "404": (404, "application/json", '{"error": {"message": "no such model"}}'),
    "429": (429, "application/json", '{"error": {"message": "slow down"}}'),
    "quota": (429, "application/json", '{"error": {"code": "insufficient_quota", "message": "pay first"}}'),
    "500": (500, "application/json", '{"error": {"message": "it broke"}}'),
    "503": (503, "text/html", "<html>busy</html>"),
    "logprobs": (400, "application/json", '{"error": {"message": "logprobs are not supported"}}'),
    "html": (200, "text/html", "<!doctype html><html><body>Sign in</body></html>"),
    "half": (200, "application/json", '{"id": "1", "choices": [{"message": {"content": "Answ'),
    "list": (200, "application/json", "[1, 2]"),
    "empty": (200, "application/json", '{"id": "1", "choices": []}'),
    "gateway": (200, "application/json", '{"error": {"code": 502, "message": "the server behind is down"}}'),
    "null": (200, "application/json", '{"choices": [{"message": {"content": null}, "logprobs": null}], "usage": null}'),
}
"""What the endpoint sends instead of a reply; also known: `hang` (never answers), `drop` (closes the connection),
`echo` (400 with the request's own headers, as some gateways do)."""


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """Yield an address that refuses connections, and that no other server gets meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/v1"


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    method: str = "POST"
    content: bytes = b""

    @property
    def prompt(self) -> str:
        """The text of all messages."""
        return prompt_of(self.body)


def prompt_of(body: dict[str, Any]) -> str:
    """Return the text of all messages of a request."""
    if "messages" in body:
        return "\n".join(message["content"] for message in body["messages"])
    return str(body.get("prompt", ""))


class Endpoint:
    """A server on a free port of the loopback.

    Args:
        reply: What it answers.
        latency_s: How long each answer takes, seconds.
        holds: Whether the answer to a request, by its JSON, still waits; asked again and again.
        fault: A key of `FAULTS`, `hang`, `drop` or `echo` for every request; or one (or None) for each of the first; or
            a function of the request's JSON that returns one.
        logprobs: `raw`, `processed` (0 and -9999), `null` (0 and null), `none`, or `refused` (400).
        usage: `full` with cached tokens (a prefix cache of words), `plain` without, or `none`.
        allow: How many requests are answered; those after them wait until this attribute is raised, or None.
        retry_after: Value of that header in 429 and 503; None sends none.
        api_key: If given, any other key is refused with 401.
        tokenizer: What `/tokenize` divides texts by, or a function that returns one of `FAULTS`; None = there is none (404).
    """

    def __init__(
        self,
        reply: str | Callable[[dict[str, Any]], Any] = "Answer: yes\nConfidence: 3",
        *,
        latency_s: float = 0.0,
        holds: Callable[[dict[str, Any]], bool] = lambda _: False,
        fault: str | Iterable[str | None] | Callable[[dict[str, Any]], str | None] | None = None,
        logprobs: str = "raw",
        usage: str = "full",
        allow: int | None = None,
        retry_after: str | None = None,
        api_key: str | None = None,
        tokenizer: Callable[[str], Any] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.stream_gap_s = 0.0  # before each token of a streamed reply
        self.reply, self.latency_s, self.logprobs, self.usage = reply, latency_s, logprobs, usage
        self.allow, self.retry_after, self.api_key, self.holds = allow, retry_after, api_key, holds
        first = iter(() if fault is None or isinstance(fault, str) or callable(fault) else fault)
        always = fault if isinstance(fault, str) else None
        self._fault = fault if callable(fault) else lambda _: always or next(first, None)
        self.requests: list[Request] = []
        self.connections = 0
        self.abandoned = 0  # requests whose client went away before the answer
        self.running = self.most_running = 0
        self._seen: list[list[str]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(started)), daemon=True)
        self._thread.start()
        assert started.wait(600)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(600)

    async def _main(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=1 << 26)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        started.set()
        await self._stop.wait()
        for _ in range(5):  # a server that closes while it accepts leaves a socket that nobody closes
            await asyncio.sleep(0)
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while (request := await self._read(reader)) is not None:
                if request.path == "/tokenize":  # beside the interface, and no request to the model
                    known = FAULTS["404"] if self.tokenizer is None else self.tokenizer(request.body["prompt"])
                    answer = (
                        known if isinstance(known, tuple) else (200, "application/json", json.dumps({"tokens": known}))
                    )
                    writer.write(self._bytes(*answer))
                    await writer.drain()
                    continue
                self.requests.append(request)
                self.running += 1
                self.most_running = max(self.most_running, self.running)
                try:
                    answer = await self._while_connected(self._in_turn(request, len(self.requests)), reader)
                finally:
                    self.running -= 1
                if answer is None:
                    break
                if request.body.get("stream") and answer.startswith(b"HTTP/1.1 200"):
                    await self._stream(json.loads(answer.partition(b"\r\n\r\n")[2]), reader, writer)
                    break
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await writer.wait_closed()

    async def _stream(self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send a completion token by token, with the usage so far, until its client goes away."""
        choice, usage = body["choices"][0], body["usage"]
        logprobs, ids = choice["logprobs"], choice.get("token_ids")
        writer.write(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        gone = asyncio.ensure_future(reader.read(1))
        for n, token in enumerate(logprobs["tokens"]):
            await asyncio.wait({gone}, timeout=self.stream_gap_s)
            if gone.done():
                self.abandoned += 1
                return
            is_last = n == len(logprobs["tokens"]) - 1
            part = {name: [values[n]] for name, values in logprobs.items()}
            chunk = {"text": token, "finish_reason": choice["finish_reason"] if is_last else None, "logprobs": part}
            chunk |= {} if ids is None else {"token_ids": [ids[n]]}
            sent = {**body, "choices": [chunk], "usage": {**usage, "completion_tokens": n + 1}}
            writer.write(f"data: {json.dumps(sent)}\n\n".encode())
            await writer.drain()
        gone.cancel()
        writer.write(b"data: [DONE]\n\n")

    async def _while_connected(self, answer: Any, reader: asyncio.StreamReader) -> bytes | None:
        work = asyncio.ensure_future(answer)
        gone = asyncio.ensure_future(reader.read(1))
        done, _ = await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work in done:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone
            return work.result()
        work.cancel()
        self.abandoned += 1
        return None

    async def _read(self, reader: asyncio.StreamReader) -> Request | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        is_json = headers.get("content-type", "").startswith("application/json")
        method, path, _ = first.split()
        return Request(path, headers, json.loads(body or b"{}") if is_json else {}, method, body)

    async def _in_turn(self, request: Request, number: int) -> bytes | None:
        while (self.allow is not None and number > self.allow) or self.holds(request.body):  # noqa: ASYNC110 - from another thread
            await asyncio.sleep(0.002)
        return await self._answer(request)

    async def _answer(self, request: Request) -> bytes | None:
        fault = self._fault(request.body)
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            fault = "401"
        if self.logprobs == "refused" and request.body.get("logprobs"):
            fault = "logprobs"
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "drop":
            return None
        if fault == "echo":
            # Short, so that the end of a shortened message does not hide what must be redacted.
            sent = {name: value for name, value in request.headers.items() if name in ("authorization", "x-token")}
            return self._bytes(400, "application/json", json.dumps({"error": {"message": str(sent)}}))
        if fault is not None:
            return self._bytes(*FAULTS[fault])
        return self._bytes(200, "application/json", json.dumps(self._body(request)))

    def _bytes(self, status: int, kind: str, text: str) -> bytes:
        data = text.encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        if status in (429, 503) and self.retry_after is not None:
            head += f"Retry-After: {self.retry_after}\r\n"
        return f"{head}\r\n".encode() + data

    def _body(self, request: Request) -> dict[str, Any]:
        reply = self.reply(request.body) if callable(self.reply) else self.reply
        if isinstance(reply, dict):
            return reply
        prompt = request.prompt
        text, margin = reply if isinstance(reply, tuple) else (reply, zlib.crc32(prompt.encode()) % 500 / 100)
        tokens = re.findall(r"\s?\w+|\W", text)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "logprobs": None}
        if request.path.endswith("/chat/completions"):
            choice["message"] = {"role": "assistant", "content": text}
            if request.body.get("logprobs") and self.logprobs != "none":
                count = request.body.get("top_logprobs", 0)
                choice["logprobs"] = {"content": [self._chat_token(token, margin, count) for token in tokens]}
        else:
            choice["text"] = text
            if request.body.get("logprobs") and self.logprobs != "none":
                tops = [self._alternatives(token, margin, request.body["logprobs"]) for token in tokens]
                choice["logprobs"] = {
                    "tokens": tokens,
                    "token_logprobs": [top[0][1] for top in tops],
                    "top_logprobs": [dict(top) for top in tops],
                }
        body = {
            "id": uuid.uuid4().hex,
            "object": "chat.completion",
            "model": request.body.get("model"),
            "choices": [choice],
        }
        if self.usage != "none":
            body["usage"] = self._usage(prompt, len(tokens))
        return body

    def _alternatives(self, token: str, margin: float, count: int) -> list[tuple[str, float | None]]:
        if self.logprobs == "raw":
            values: list[float | None] = [-0.05 - (margin + i - 1 if i else 0) for i in range(count)]
        else:
            values = [0.0] + [None if self.logprobs == "null" else -9999.0] * (count - 1)
        return list(zip([token, *(f" other{i}" for i in range(1, count))], values, strict=True))

    def _chat_token(self, token: str, margin: float, count: int) -> dict[str, Any]:
        top = self._alternatives(token, margin, max(count, 1))
        items = [{"token": other, "logprob": value, "bytes": list(other.encode())} for other, value in top]
        return {**items[0], "top_logprobs": items[:count]}

    def _usage(self, prompt: str, output: int) -> dict[str, Any]:
        words = prompt.split()
        usage: dict[str, Any] = {"prompt_tokens": len(words), "completion_tokens": output}
        if self.usage == "full":
            cached = 0
            for seen in self._seen[-64:]:
                same = next(
                    (i for i, (a, b) in enumerate(zip(words, seen, strict=False)) if a != b), min(len(words), len(seen))
                )
                cached = max(cached, same)
            self._seen.append(words)
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return usage
