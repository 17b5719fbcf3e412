"""A server that speaks the interfaces of OpenAI and Anthropic, with scripted replies, streams and faults."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Reply = str | list[tuple[str, dict[str, Any]]]
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}


class Upstream:
    """The application; requests take the `faults` in turn: a status, `break`, `hang`, or None.

    Args:
        reply: What it answers to a request's JSON: a text, or tools with their arguments.
    """

    def __init__(self, reply: Callable[[dict[str, Any]], Reply]) -> None:
        self.reply, self.faults = reply, list[Any]()
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.sent: list[bytes] = []
        self.gate = threading.Event()
        self.gate.set()
        self.calls = 0
        self.packs = False
        methods = ["GET", "POST", "DELETE"]
        self.app = Starlette(routes=[Route("/{path:path}", self._answer, methods=methods)])

    async def _answer(self, request: Request) -> Response:
        raw = await request.body()
        body = json.loads(raw) if raw else {}
        self.requests.append(
            (request.url.path + ("?" + request.url.query if request.url.query else ""), dict(request.headers), body)
        )
        fault = self.faults.pop(0) if self.faults else None
        while fault == "hang" and not await request.is_disconnected():  # noqa: ASYNC110 - there is no event of it
            await asyncio.sleep(0.01)
        if isinstance(fault, int):
            return JSONResponse({"error": {"message": "scripted"}}, fault, {"retry-after": "0", "x-request-id": "r1"})
        for ending, form in (("/chat/completions", chat), ("/v1/responses", response), ("/v1/messages", message)):
            if request.url.path.endswith(ending):
                self.calls += 1
                whole, events = form(self.reply(body), body, self.calls)
                if not body.get("stream"):
                    await asyncio.to_thread(self.gate.wait, 60)
                    data = json.dumps(whole).encode()
                    self.sent.append(data)
                    if self.packs:
                        packed = {"content-encoding": "gzip"}
                        return Response(gzip.compress(data), media_type="application/json", headers=packed)
                    return Response(data, media_type="application/json", headers={"x-request-id": f"r{self.calls}"})
                if self.packs:
                    data = b"".join([chunk async for chunk in self._stream(events, fault)])
                    return Response(
                        gzip.compress(data), media_type="text/event-stream", headers={"content-encoding": "gzip"}
                    )
                return StreamingResponse(self._stream(events, fault), media_type="text/event-stream")
        return JSONResponse({"path": request.url.path, "method": request.method}, headers={"x-other": "kept"})

    async def _stream(self, events: list[tuple[str, Any]], fault: Any) -> Any:
        for place, (name, data) in enumerate(events):
            if place == 2:
                await asyncio.to_thread(self.gate.wait, 60)
                if fault == "break":
                    raise ConnectionError("scripted")
            text = data if isinstance(data, str) else json.dumps(data)
            chunk = (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()
            self.sent.append(chunk)
            yield chunk


def _pieces(text: str) -> Iterator[str]:
    yield from (text[at : at + 7] for at in range(0, len(text), 7))


def chat(reply: Reply, body: dict[str, Any], n: int) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """Return a chat completion, and the events of its stream."""
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    usage |= {"prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 12}}
    about = {"id": f"chat{n}", "created": 1, "model": body.get("model")}
    calls = [] if isinstance(reply, str) else [
        {"id": f"call{n}_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for i, (name, given) in enumerate(reply)
    ]  # fmt: skip
    said: dict[str, Any] = {"role": "assistant", "content": reply if isinstance(reply, str) else None, "refusal": None}
    reason = "tool_calls" if calls else "stop"
    choice = {
        "index": 0,
        "message": {**said, **({"tool_calls": calls} if calls else {})},
        "finish_reason": reason,
        "logprobs": None,
    }
    whole = {**about, "object": "chat.completion", "choices": [choice], "usage": usage}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(reply)] if isinstance(reply, str) else []
    for place, call in enumerate(calls):
        function = call["function"]
        deltas.append(
            {"tool_calls": [{**call, "index": place, "function": {"name": function["name"], "arguments": ""}}]}
        )
        deltas += [
            {"tool_calls": [{"index": place, "function": {"arguments": p}}]} for p in _pieces(function["arguments"])
        ]
    chunk = {**about, "object": "chat.completion.chunk"}
    events: list[tuple[str, Any]] = [
        ("", {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}]})
        for delta in deltas
    ]
    events.append(("", {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason, "logprobs": None}]}))
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append(("", {**chunk, "choices": [], "usage": usage}))
    return whole, [*events, ("", "[DONE]")]


def response(reply: Reply, body: dict[str, Any], n: int) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """Return a response, and the events of its stream."""
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    usage |= {"input_tokens_details": {"cached_tokens": 60}, "output_tokens_details": {"reasoning_tokens": 12}}
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": f"rs{n}", "summary": [], "encrypted_content": "c2VjcmV0"}
    ]
    if isinstance(reply, str):
        part = {"type": "output_text", "text": reply, "annotations": [], "logprobs": []}
        output.append({"type": "message", "id": f"m{n}", "role": "assistant", "status": "completed", "content": [part]})
    else:
        output += [
            {
                "type": "function_call",
                "id": f"f{n}_{i}",
                "call_id": f"call{n}_{i}",
                "name": name,
                "arguments": json.dumps(given),
            }
            for i, (name, given) in enumerate(reply)
        ]
    whole = {
        "id": f"resp{n}",
        "object": "response",
        "created_at": 1,
        "model": body.get("model"),
        "status": "completed",
        "output": output,
        "usage": usage,
        "error": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for place, item in enumerate(output):
        events.append({"type": "response.output_item.added", "output_index": place, "item": item})
        for piece in _pieces(reply) if isinstance(reply, str) and item["type"] == "message" else ():
            place_of = {"item_id": item["id"], "output_index": place, "content_index": 0, "logprobs": []}
            events.append({"type": "response.output_text.delta", **place_of, "delta": piece})
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return whole, [(event["type"], {**event, "sequence_number": i}) for i, event in enumerate(events)]


def message(reply: Reply, body: dict[str, Any], n: int) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """Return a message with a signed thought, and the events of its stream."""
    usage = {"input_tokens": 30, "output_tokens": 20, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 10}
    blocks: list[dict[str, Any]] = [THINKING]
    if isinstance(reply, str):
        blocks.append({"type": "text", "text": reply})
    else:
        blocks += [
            {"type": "tool_use", "id": f"call{n}_{i}", "name": k, "input": given} for i, (k, given) in enumerate(reply)
        ]
    reason = "end_turn" if isinstance(reply, str) else "tool_use"
    whole = {
        "id": f"msg{n}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": blocks,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage,
    }
    begun = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}
    for place, block in enumerate(blocks):
        kind = block["type"]
        events.append({"type": "content_block_start", "index": place, "content_block": {**block, **empty[kind]}})
        if kind == "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": "Hm."},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        elif kind == "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        else:
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in _pieces(json.dumps(block["input"]))
            ]
        events += [{"type": "content_block_delta", "index": place, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": place})
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 20},
        }
    )
    events.append({"type": "message_stop"})
    return whole, [(event["type"], event) for event in events]
