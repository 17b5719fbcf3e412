"""`suffice proxy`: record the model calls of programs in any language; only the address of the model changes in their code."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from typer import Argument, Option

from suffice.cli.console import say
from suffice.cli.parameters import Setting
from suffice.errors import DataError
from suffice_server.serve import check_extra

_KEYS = ("authorization", "x-api-key", "api-key", "cookie")


@dataclass(frozen=True, kw_only=True)
class ProxyLimits:
    """Options that limit requests, replies and open conversations; see `Forwarding` and `Bounds`."""

    panel: ClassVar[str] = "Limits"

    key_header: Annotated[
        str, Setting("proxy", "key-header", help="The header by which a client names its conversation.")
    ] = "x-suffice-conversation"
    idle: Annotated[
        float, Setting("proxy", "idle", min=0.1, help="Seconds without a reply until a conversation is recorded.")
    ] = 3600.0
    silence: Annotated[
        float, Setting("proxy", "reply-timeout", min=0.1, help="Longest silence of the endpoint, seconds.")
    ] = 600.0
    body: Annotated[int, Setting("proxy", "max-body", min=1, help="Largest body of a request, bytes.")] = 32 << 20
    reply: Annotated[int, Setting("proxy", "max-reply", min=1, help="Largest reply that is recorded, bytes.")] = (
        32 << 20
    )
    requests: Annotated[int, Setting("proxy", "max-requests", min=1, help="Requests in flight.")] = 256
    conversations: Annotated[int, Setting("proxy", "max-conversations", min=1, help="Conversations that are open.")] = (
        10_000
    )
    size: Annotated[
        int, Setting("proxy", "max-conversation-bytes", min=1, help="Bytes of a conversation's replies.")
    ] = 16 << 20


def proxy_command(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="The recording, a folder; `suffice decide` reads it.")],
    limit: ProxyLimits,
    upstream: Annotated[
        str, Option("--upstream", help="The endpoint; default: OpenAI's or Anthropic's own, by the request.")
    ] = "",
    enforce: Annotated[
        Path | None, Option("--enforce", help="A policy that ends conversations; default: only observe.")
    ] = None,
    prices: Annotated[
        str, Option("--prices", help="A file of prices by model; `list` = bundled list prices.")
    ] = "list",
    port: Annotated[int, Option("--port", min=0, max=65_535, help="The port on 127.0.0.1; 0 = a free one.")] = 8081,
) -> None:
    """Record each reply of a model as a round: OpenAI's and Anthropic's clients take the printed address as their base URL.

    Example: suffice proxy runs
    """
    check_extra("suffice proxy")
    from suffice.evaluation.replay.price_lists import load_prices
    from suffice.policy.session import Policy
    from suffice_server.proxy.app import Forwarding, Proxy
    from suffice_server.proxy.recorder import Bounds, ProxyRecorder
    from suffice_server.serve.running import bind, run_app, url_of

    if upstream and not upstream.startswith(("http://", "https://")):
        raise DataError(f"--upstream is {upstream!r}: give an address that begins with http:// or https://")
    if limit.key_header.lower() in _KEYS:
        raise DataError(
            f"key-header is {limit.key_header!r}, which holds a key: --set key-header=NAME names another header"
        )
    policy = None if enforce is None else Policy.load(enforce)
    bounds = Bounds(idle=limit.idle, conversations=limit.conversations, size=limit.size)
    forwarding = Forwarding(
        upstream=upstream,
        key_header=limit.key_header.lower(),
        seconds=limit.silence,
        body=limit.body,
        reply=limit.reply,
        requests=limit.requests,
    )
    with bind("127.0.0.1", port) as listener:
        recorder = ProxyRecorder(folder, load_prices(prices), policy=policy, bounds=bounds)
        url = url_of(listener)

        def announce() -> None:
            say(f"recording to {folder}: OPENAI_BASE_URL={url}/v1 ANTHROPIC_BASE_URL={url}\nCtrl-C ends it")

        for name in ("uvicorn.error", "httpx", "httpcore"):  # a connection that breaks off is counted, and no failure
            logging.getLogger(name).setLevel(logging.CRITICAL)
        run_app(Proxy(recorder, forwarding).guarded(), listener, ready=announce)
