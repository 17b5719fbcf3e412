"""`suffice serve`: the decision as a service, for loops that are not Python."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from suffice.cli.console import say
from suffice.errors import DataError
from suffice.serve import check_extra
from suffice.tables import counted

__all__ = ["serve_command"]

_TOKEN = "SUFFICE_TOKEN"  # noqa: S105 - the name of a variable
_LOCAL = ("127.0.0.1", "::1", "localhost")


def serve_command(
    folder: Annotated[Path, Argument(metavar="POLICIES", help="A folder of policies, one .json file each.")],
    host: Annotated[str, Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, Option("--port", min=0, max=65535, help="The port; 0 = a free one.")] = 8080,
    token_file: Annotated[
        Path | None, Option("--token-file", help=f"A file with the token; default: the variable {_TOKEN}.")
    ] = None,
    no_token: Annotated[bool, Option("--no-token", help="Ask for no token; at 127.0.0.1 only.")] = False,
    sessions: Annotated[Path | None, Option("--sessions", help="A file that keeps sessions; default: memory.")] = None,
    max_body: Annotated[int, Option("--max-body", min=1, help="Largest body of a request, bytes.")] = 4 << 20,
    max_requests: Annotated[int, Option("--max-requests", min=1, help="Requests in flight.")] = 256,
    max_rounds: Annotated[int, Option("--max-rounds", min=1, help="Rounds in a request.")] = 1000,
    max_sessions: Annotated[int, Option("--max-sessions", min=1, help="Sessions that are open.")] = 10_000,
    ttl: Annotated[float, Option("--ttl", min=1, help="Seconds until an idle session is forgotten.")] = 3600.0,
) -> None:
    """Loops in any language send their rounds and get the decision; /openapi.json describes how.

    Example: suffice serve policies --no-token
    """
    check_extra("suffice serve")
    from suffice.serve.app import make_app
    from suffice.serve.guard import LOCAL_HOSTS, Limits, read_token
    from suffice.serve.policies import PolicyFolder
    from suffice.serve.running import bind, run_app, url_of
    from suffice.serve.service import Service
    from suffice.serve.sessions import SessionStore

    if no_token and host not in _LOCAL:
        raise DataError(
            f"--no-token is for this machine alone, not for --host {host}: set {_TOKEN}, or give --token-file"
        )
    token = None if no_token else read_token(_TOKEN, token_file)
    if token is None and not no_token:
        raise DataError(
            f"the server needs a token: set {_TOKEN}, or give --token-file; `openssl rand -hex 32` makes one. At 127.0.0.1 "
            "--no-token goes without"
        )
    limits = Limits(body=max_body, requests=max_requests, rounds=max_rounds, sessions=max_sessions, ttl=ttl)
    policies = PolicyFolder(folder)
    store = SessionStore(sessions, limits)
    with bind(host, port) as listener:
        app = make_app(Service(policies, store), limits, token=token, hosts=LOCAL_HOSTS if token is None else None)
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)

        def announce() -> None:
            url = url_of(listener)
            say(f"{counted(len(policies.policies), 'policy', 'policies')} at {url}, described by {url}/openapi.json")

        run_app(app, listener, ready=announce)
    store.close()
