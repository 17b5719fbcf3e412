"""Write `tests/data/replies/*.json`: what the clients of OpenAI, Anthropic and LiteLLM make of a server's replies.

A local server sends what the providers document; the clients parse it, and their objects are written by `model_dump`.

    pip install openai anthropic litellm
    python scripts/make_replies.py
"""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "replies"


def logprob(token: str, value: float, *others: tuple[str, float]) -> dict[str, Any]:
    """Return a token as chat completions and responses have it."""
    top = [{"token": t, "logprob": v, "bytes": list(t.encode())} for t, v in ((token, value), *others)]
    return {"token": token, "logprob": value, "bytes": list(token.encode()), "top_logprobs": top}


TOKENS = [logprob("The", -0.25, ("A", -1.75)), logprob(" Temp", -0.5, (" Tit", -1.0)), logprob("est", -0.01)]
CALL = {"id": "c1", "type": "function", "function": {"name": "final_answer", "arguments": '{"answer": "The Tempest"}'}}
USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": 3,
    "total_tokens": 123,
    "prompt_tokens_details": {"cached_tokens": 100, "audio_tokens": 0},
}


def chat(message: dict[str, Any], finish_reason: str, logprobs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return a chat completion."""
    given = None if logprobs is None else {"content": logprobs, "refusal": None}
    choice = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "logprobs": given,
        "finish_reason": finish_reason,
    }
    return {"id": "x1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": USAGE}


def response(output: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a response of the responses interface."""
    usage = {
        "input_tokens": 120,
        "output_tokens": 3,
        "total_tokens": 123,
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    fixed = {"id": "r1", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True, "tools": []}
    usage["input_tokens_details"] = {"cached_tokens": 100}
    return {
        **fixed,
        "tool_choice": "auto",
        "status": "completed",
        "error": None,
        "usage": usage,
        "output": output,
        **more,
    }


def said(text: str) -> dict[str, Any]:
    """Return a message of the responses interface."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": TOKENS}
    return {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [part]}


def message(content: list[dict[str, Any]], stop_reason: str) -> dict[str, Any]:
    """Return a message of Anthropic's interface."""
    usage = {"input_tokens": 20, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 7, "output_tokens": 3}
    fixed = {"id": "a1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None, "usage": usage}
    return {**fixed, "content": content, "stop_reason": stop_reason}


TEXT = {"role": "assistant", "content": "The Tempest", "refusal": None}
SERVED = {
    "chat": chat(TEXT, "stop", TOKENS),
    "chat_tools": chat({"content": None, "tool_calls": [CALL]}, "tool_calls"),
    "chat_refusal": chat({"content": None, "refusal": "I can't help with that."}, "stop"),
    "chat_two": {**chat(TEXT, "stop"), "choices": chat(TEXT, "stop")["choices"] * 2},
    "completion": {
        "id": "l1",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "usage": USAGE,
        "choices": [
            {
                "index": 0,
                "text": "The Tempest",
                "finish_reason": "length",
                "logprobs": {
                    "tokens": ["The", " Temp", "est"],
                    "token_logprobs": [-0.25, -0.5, -0.01],
                    "top_logprobs": [{"The": -0.25, "A": -1.75}, {" Temp": -0.5, " Tit": -1.0}, {"est": -0.01}],
                    "text_offset": [0, 3, 8],
                },
            }
        ],
    },
    "response": response([{"type": "reasoning", "id": "t1", "summary": []}, said("The Tempest")]),
    "response_tools": response(
        [
            {
                "type": "function_call",
                "id": "f1",
                "call_id": "c1",
                "name": "final_answer",
                "arguments": '{"answer": "Oslo"}',
            }
        ]
    ),
    "response_cut": response(
        [{**said("The Tempest"), "status": "incomplete"}],
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    ),
    "anthropic": message(
        [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "The Tempest"}], "end_turn"
    ),
    "anthropic_tools": message(
        [{"type": "tool_use", "id": "u1", "name": "final_answer", "input": {"answer": "The Tempest"}}], "tool_use"
    ),
}


class Handler(BaseHTTPRequestHandler):
    """Sends what the model's name asks for."""

    def do_POST(self) -> None:
        """Answer a request."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps(SERVED[asked["model"]]).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Write the files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    os.environ |= {"NO_PROXY": "127.0.0.1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

    import anthropic
    import litellm
    import openai

    ours = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    theirs = anthropic.Anthropic(base_url=url, api_key="none")
    asked: list[Any] = [{"role": "user", "content": "Which play?"}]
    written = {}
    for name in SERVED:
        if name.startswith("chat"):
            written[f"openai_{name}"] = ours.chat.completions.create(model=name, messages=asked)
        elif name == "completion":
            written["openai_completion"] = ours.completions.create(model=name, prompt="Which play?")
        elif name.startswith("response"):
            written[f"openai_{name}"] = ours.responses.create(model=name, input="Which play?")
        else:
            written[name] = theirs.messages.create(model=name, messages=asked, max_tokens=9)
    litellm.suppress_debug_info = True
    for name in ("chat", "chat_tools"):
        called = litellm.completion(model=f"openai/{name}", messages=asked, api_base=f"{url}/v1", api_key="none")
        written[f"litellm_{name}"] = called
    called = litellm.completion(model="anthropic/anthropic", messages=asked, api_base=url, api_key="none", max_tokens=9)
    written["litellm_anthropic"] = called
    OUT.mkdir(parents=True, exist_ok=True)
    for name, item in written.items():
        text = json.dumps(item.model_dump(mode="json", warnings=False), indent=1, sort_keys=True)
        (OUT / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    versions = ", ".join(f"{package} {version(package)}" for package in ("openai", "anthropic", "litellm"))
    (OUT / "DATA.md").write_text(
        f"Written by `scripts/make_replies.py` with {versions}: the objects that these clients make of a local server's\n"
        "replies, by `model_dump`. The texts are ours.\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
