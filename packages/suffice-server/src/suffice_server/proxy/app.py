"""The proxy over HTTP: forward every request unchanged, and pass the replies of models to the recorder."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from suffice.common.json_text import load_json
from suffice.errors import NotFoundError, SufficeError
from suffice.policy.rounds import Decision
from suffice_server.proxy.asked import Asked
from suffice_server.proxy.conversations import Branch, Conversation, Replied
from suffice_server.proxy.protocol import Called, Protocol, events_in
from suffice_server.proxy.recorder import PROTOCOLS, ProxyRecorder
from suffice_server.proxy.redacting import secrets_of
from suffice_server.serve.answers import RefusedError, json_response, refused, responding
from suffice_server.serve.guard import LOCAL_HOSTS, Guard, Limits, read_body

_LOG = logging.getLogger(__name__)
_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"host", b"accept-encoding", b"content-length"),
    )
)
"""Headers that are not forwarded: those of one connection, and `accept-encoding`, since the proxy must read the replies."""
_OURS = b"x-suffice-"
_RETRY = "x-stainless-retry-count"
_SWEEP_S = 1.0
_CONNECT_S = 10.0
_LONG = 1 << 16
OPENAI, ANTHROPIC = "https://api.openai.com", "https://api.anthropic.com"


@dataclass(frozen=True, kw_only=True)
class Forwarding:
    """The endpoint that requests are forwarded to, and limits of requests and replies.

    Attributes:
        upstream: The address of the endpoint; "" = that of OpenAI or of Anthropic, depending on the request.
        key_header: The header in which a client names its conversation.
        seconds: Longest time without data from the endpoint, seconds.
        body: Largest body of a request, bytes.
        reply: Largest reply that is recorded, bytes; a larger one is only forwarded.
        requests: Largest number of requests in flight.
    """

    upstream: str = ""
    key_header: str = "x-suffice-conversation"
    seconds: float = 600.0
    body: int = 32 << 20
    reply: int = 32 << 20
    requests: int = 256


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """A forwarded request to a model, with the bytes of its reply so far."""

    asked: Asked
    conversation: Conversation
    branch: Branch
    number: int
    began: float = field(default_factory=time.perf_counter)
    encoding: str = ""
    is_stream: bool = False
    is_passed: bool = False
    parts: list[bytes] = field(default_factory=list)
    finishing: asyncio.Task[None] | None = None

    @property
    def is_answered(self) -> bool:
        """True if the conversation already has a reply for this round, perhaps one that did not reach the client."""
        return any(replied.number == self.number for replied in self.conversation.replies)


class Proxy:
    """The application, which serves `/suffice/status` and `/suffice/outcomes`, and forwards all other requests.

    Args:
        recorder: Records the conversations.
        forwarding: The endpoint and the limits.
    """

    def __init__(self, recorder: ProxyRecorder, forwarding: Forwarding) -> None:
        self.recorder, self.forwarding = recorder, forwarding
        self.fault: str | None = None
        self._limits = Limits(body=forwarding.body, seconds=60.0)
        self._tasks, self._ending = set[asyncio.Task[Any]](), set[Conversation]()
        self._idle, self._tls = list[httpx.AsyncClient](), httpx.create_ssl_context()
        routes = [
            Route("/suffice/status", responding(self._status), methods=["GET"]),
            Route("/suffice/outcomes", responding(self._outcome), methods=["POST"]),
        ]
        self._own = Starlette(routes=routes, lifespan=self._lifespan)

    def guarded(self) -> ASGIApp:
        """Return the application behind a guard, which admits programs on this machine but no web pages."""
        return Guard(self, token=None, hosts=LOCAL_HOSTS, requests=self.forwarding.requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or forward one request."""
        if scope["type"] != "http" or scope["path"].startswith("/suffice/"):
            await self._own(scope, receive, send)
            return
        try:
            await self._answer(Request(scope, receive), receive, send)
        except RefusedError as refusal:
            await refused(refusal)(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        ending = asyncio.Event()
        sweeping = asyncio.create_task(self._sweep(ending))
        try:
            yield
        finally:
            ending.set()
            await asyncio.gather(sweeping, *self._tasks, return_exceptions=True)
            for client in self._idle:
                await client.aclose()
            for conversation in [*self.recorder.conversations.open.values()]:
                if conversation.is_over:
                    await self._end(conversation)
            await asyncio.to_thread(self.recorder.close)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        """Yield an HTTP client for one request, because a shared client would search all its connections for every request."""
        timeout = httpx.Timeout(self.forwarding.seconds, connect=_CONNECT_S)
        client = self._idle.pop() if self._idle else httpx.AsyncClient(timeout=timeout, verify=self._tls)
        try:
            yield client
        finally:
            self._idle.append(client)

    async def _answer(self, request: Request, receive: Receive, send: Send) -> None:
        raw = await read_body(request, self._limits)
        exchange = await self._opened(request, raw)
        if exchange is None:
            await self._while_connected(self._relay(request, raw, None, send), receive)
            return
        conversation, branch = exchange.conversation, exchange.branch
        conversation.busy[branch] += 1
        try:
            decision = await self._decision(exchange)
            exchange.is_passed = decision is not None and bool(exchange.asked.form)
            if decision is not None and not exchange.is_passed:
                await self._stop(exchange, decision)(request.scope, receive, send)
            else:
                await self._while_connected(self._relay(request, raw, exchange, send), receive)
        finally:
            if exchange.finishing is not None:
                await exchange.finishing
            conversation.busy[branch] -= 1
            conversation.calm.set()
            if branch == "main" and conversation.begun == exchange.number and not exchange.is_answered:
                conversation.unanswered()

    async def _opened(self, request: Request, raw: bytes) -> _Exchange | None:
        """Parse a request to a model and find its conversation; return None for any other request."""
        path = request.url.path
        protocol = next((one for one in PROTOCOLS if path.endswith(one.path) and request.method == "POST"), None)
        if protocol is None:
            return None
        key = request.headers.get(self.forwarding.key_header, "")[:200]
        is_retry = request.headers.get(_RETRY, "0") != "0"
        given = {"key": key, "is_retry": is_retry, "redact": secrets_of(request)}
        is_long = len(raw) > _LONG  # for a short one a thread takes longer than the work
        asked = await asyncio.to_thread(_asked, protocol, raw, **given) if is_long else _asked(protocol, raw, **given)
        if asked is None:
            return None
        conversation, branch = self.recorder.conversations.find(asked)
        return _Exchange(asked=asked, conversation=conversation, branch=branch, number=conversation.begun)

    async def _decision(self, exchange: _Exchange) -> Decision | None:
        if self.recorder.policy is None or exchange.branch == "side" or exchange.is_answered:
            return None
        try:
            async with exchange.conversation.storing:
                return await asyncio.to_thread(self.recorder.decide, exchange.conversation, exchange.asked)
        except SufficeError as error:
            self._unrecorded(error)
            return None

    def _stop(self, exchange: _Exchange, decision: Decision) -> Response:
        """Build the reply that ends the client's loop."""
        text = self.recorder.text_of(exchange.conversation, decision)
        body, kind = exchange.asked.protocol.stopped(text, exchange.asked.body)
        self.recorder.counts["stopped requests"] += 1
        fired = (decision.fired or "").encode("ascii", "replace").decode()
        about = {"x-suffice-stop": str(decision.reason), "x-suffice-rule": fired, "content-type": kind}
        return Response(body, 200, {**about, "x-suffice-conversation": exchange.conversation.id})

    async def _relay(self, request: Request, raw: bytes, exchange: _Exchange | None, send: Send) -> None:
        """Forward a request and stream the reply to the client; if the endpoint's reply breaks off, break off the client's."""
        counts = self.recorder.counts
        async with self._client() as client:
            try:
                response = await client.send(self._forwarded(request, raw), stream=True)
            except httpx.HTTPError as error:
                is_late = isinstance(error, httpx.TimeoutException)
                counts["endpoint timeouts" if is_late else "endpoint failures"] += 1
                what = "did not answer in time" if is_late else "cannot be reached, or dropped the connection"
                message = f"suffice proxy: the endpoint {what} ({type(error).__name__})"
                error_body = {"type": "api_error", "message": message}
                body = {"type": "error", "error": error_body}  # both interfaces know this form
                await json_response(body, 504 if is_late else 502)(request.scope, request.receive, send)
                return
            try:
                await self._pass_on(response, exchange, send)
            except httpx.HTTPError:
                counts["broken replies"] += 1
                raise
            finally:
                await response.aclose()

    async def _pass_on(self, response: httpx.Response, exchange: _Exchange | None, send: Send) -> None:
        if response.is_error:
            self.recorder.counts[f"status {response.status_code}"] += 1
        exchange = exchange if response.is_success else None
        left_out = _HOP - {b"content-length"} | {b"date"}
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in left_out]
        if exchange is not None:
            headers.append((b"x-suffice-conversation", exchange.conversation.id.encode()))
            unknown = self.recorder.unknown(exchange.conversation)
            headers += [(b"x-suffice-unknown", ", ".join(unknown).encode())] if unknown else []
            headers += [(b"x-suffice-passed", exchange.asked.form.encode())] if exchange.is_passed else []
            exchange.encoding = response.headers.get("content-encoding", "")
            exchange.is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        held: list[bytes] = []  # a whole reply, or the last event of a stream, is stored before it is handed out
        size = 0
        try:
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            async for chunk in response.aiter_raw():
                size += len(chunk)
                held.append(chunk)
                if exchange is not None and size <= self.forwarding.reply:
                    exchange.parts.append(chunk)
                    if exchange.is_stream and exchange.asked.protocol.ending.search(chunk):
                        await asyncio.shield(self._finishing(exchange))
                    elif not exchange.is_stream:
                        continue
                await send({"type": "http.response.body", "body": b"".join(held), "more_body": True})
                held.clear()
            if exchange is not None:
                await asyncio.shield(self._finishing(exchange, is_read=size <= self.forwarding.reply))
        finally:
            if exchange is not None:
                self._finishing(exchange)
        await send({"type": "http.response.body", "body": b"".join(held)})

    def _finishing(self, exchange: _Exchange, *, is_read: bool = True) -> asyncio.Task[None]:
        """Return the task that stores a reply; the first call starts the task, which continues if the client disconnects."""
        if exchange.finishing is None:
            if not is_read:
                exchange.parts.clear()
            exchange.finishing = asyncio.create_task(self._finish(exchange))
            self._tasks.add(exchange.finishing)
            exchange.finishing.add_done_callback(self._tasks.discard)
        return exchange.finishing

    async def _finish(self, exchange: _Exchange) -> None:
        """Store a received reply if it is complete."""
        seconds, conversation = time.perf_counter() - exchange.began, exchange.conversation
        async with conversation.storing:
            try:
                replied = await asyncio.to_thread(self._stored, exchange, seconds)
            except SufficeError as error:
                self._unrecorded(error)
                return
            if replied is not None:
                self.recorder.conversations.note(conversation, replied)
                self.fault = None

    def _stored(self, exchange: _Exchange, seconds: float) -> Replied | None:
        called = _called(exchange)
        if called is None:
            self.recorder.counts["replies that are not whole"] += 1
            return None
        facts: dict[str, Any] = {"branch": exchange.branch, "number": exchange.number, "asked": exchange.asked}
        return self.recorder.store(exchange.conversation, called=called, seconds=seconds, **facts)

    def _unrecorded(self, error: SufficeError) -> None:
        """Count and log a failure to record a reply; the client still gets the reply."""
        self.recorder.counts["unrecorded replies"] += 1
        self.fault = str(error)
        _LOG.warning("a reply cannot be recorded: %s", error)

    def _forwarded(self, request: Request, raw: bytes) -> httpx.Request:
        """Return the request to send to the endpoint.

        Body, path and headers stay the same, but headers for the connection or for the proxy are left out.
        """
        is_anthropic = "anthropic-version" in request.headers or request.url.path.startswith("/v1/messages")
        upstream = self.forwarding.upstream or (ANTHROPIC if is_anthropic else OPENAI)
        path = request.scope["raw_path"] + (b"?" + query if (query := request.scope["query_string"]) else b"")
        base = httpx.URL(upstream.rstrip("/").removesuffix("/v1"))
        headers = [(n, v) for n, v in request.scope["headers"] if n not in _HOP and not n.startswith(_OURS)]
        headers.append((b"accept-encoding", b"identity"))
        url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + path)
        return httpx.Request(request.method, url, headers=headers, content=raw)

    async def _while_connected(self, work: Any, receive: Receive) -> None:
        """Run a coroutine until it ends, or cancel it when the client disconnects."""
        task, gone = asyncio.create_task(work), asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.recorder.counts["clients gone"] += 1
        finally:
            gone.cancel()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _status(self, _: Request) -> Response:
        recorder = self.recorder
        open_ = recorder.conversations.open.values()
        unsure = sum(bool(conversation.why) for conversation in open_)
        counts = {"open conversations": len(open_), "open and unsure": unsure, **dict(sorted(recorder.counts.items()))}
        return json_response({"counts": counts, "dollars": round(recorder.dollars, 6), "fault": self.fault})

    async def _outcome(self, request: Request) -> Response:
        try:
            body = load_json((await read_body(request, self._limits)).decode())
        except ValueError:
            raise RefusedError(422, "the body is not JSON") from None
        name, grade = (body.get("conversation"), body.get("resolved")) if isinstance(body, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(grade, int | float) or not 0 <= grade <= 1:
            what = 'the body must be {"conversation": ID, "resolved": R} with true, false or a number in [0, 1] as R'
            raise RefusedError(422, what)
        conversation = await self._calm(name)
        if conversation is not None and not conversation.replies:
            raise RefusedError(404, "the conversation has no reply yet: send the outcome after its last one")
        try:
            if conversation is not None:
                done = conversation.id, await self._ended(conversation, float(grade)), float(grade)
            else:
                for ending in [one for one in self._ending if name in (one.id, one.key)]:
                    async with ending.storing:  # it is being recorded without an outcome
                        pass
                done = await asyncio.to_thread(self.recorder.amend, name, float(grade))
        except NotFoundError as error:
            raise RefusedError(404, str(error)) from None
        except SufficeError as error:
            raise RefusedError(
                503, f"the outcome is not recorded; start the proxy again and send it again: {error}"
            ) from None
        if done[2] != grade:
            raise RefusedError(
                409, f"the conversation has another outcome already, resolved = {done[2]:g}, which stays"
            )
        return json_response({"conversation": done[0], "rounds": done[1]})

    async def _calm(self, name: str) -> Conversation | None:
        """Wait until a conversation has no request in flight, and return the conversation.

        Return None if no open conversation has this id or key.
        """
        open_ = self.recorder.conversations
        while (found := open_.open.get(name) or open_.keyed(name)) is not None and found.is_busy:
            found.calm.clear()
            await found.calm.wait()
        return found

    async def _end(self, conversation: Conversation) -> None:
        """Record an open conversation that has no request in flight.

        If recording fails, the conversation stays in the journal and is loaded at the next start.
        """
        try:
            if conversation.id in self.recorder.conversations.open and not conversation.is_busy:
                await self._ended(conversation)
        except SufficeError as error:
            self._unrecorded(error)

    async def _ended(self, conversation: Conversation, grade: float | None = None) -> int:
        """Close a conversation, record it, and return the number of its rounds.

        Raises:
            DataError: The recording cannot be written.
        """
        self.recorder.conversations.remove(conversation)
        self._ending.add(conversation)
        try:
            async with conversation.storing:
                return await asyncio.to_thread(self.recorder.record, conversation, grade)
        finally:
            self._ending.discard(conversation)

    async def _sweep(self, ending: asyncio.Event) -> None:
        """Record idle conversations at intervals, until the proxy ends; if too many are open, record further ones."""
        bounds, conversations = self.recorder.bounds, self.recorder.conversations
        while not ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), _SWEEP_S)
            idle = [*conversations.idle(time.time() - bounds.idle)]
            spare = max(0, len(conversations.open) - len(idle) - bounds.conversations)
            others = [one for one in conversations.idle(math.inf) if one not in idle]
            for conversation in [*idle, *others[:spare]]:
                await self._end(conversation)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _asked(protocol: Protocol, raw: bytes, **more: Any) -> Asked | None:
    try:
        body = load_json(raw.decode())
    except ValueError:
        return None
    return Asked.of(protocol, body, **more) if isinstance(body, dict) else None


def _called(exchange: _Exchange) -> Called | None:
    """Parse the bytes of a reply; return None if the reply is incomplete."""
    headers = {"content-encoding": exchange.encoding} if exchange.encoding else {}
    protocol = exchange.asked.protocol
    try:
        text = httpx.Response(200, headers=headers, content=b"".join(exchange.parts)).content.decode("utf-8", "replace")
        body = protocol.assembled(events_in(text)) if exchange.is_stream else load_json(text)
    except (ValueError, httpx.HTTPError):
        return None
    return protocol.reply(body) if isinstance(body, dict) else None
