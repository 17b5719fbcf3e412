"""`suffice serve`: decide over HTTP when a loop stops, for loops that are not written in Python."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from typer import Argument, Option

from suffice.cli.console import say
from suffice.cli.parameters import Setting
from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.policy.session import Audit
from suffice_server.serve import check_extra

_TOKEN = "SUFFICE_TOKEN"  # noqa: S105 - the name of a variable
_LOCAL = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class Access:
    """Options for the server's address and token."""

    panel: ClassVar[str] = "Access"

    host: Annotated[str, Option("--host", help="The address to listen at.")] = "127.0.0.1"
    port: Annotated[int, Option("--port", min=0, max=65535, help="The port; 0 = a free one.")] = 8080
    token_file: Annotated[
        Path | None, Option("--token-file", help=f"A file with the token; default: the variable {_TOKEN}.")
    ] = None
    no_token: Annotated[bool, Option("--no-token", help="Require no token; only on this machine.")] = False


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Options for the log, its audit and the stored sessions."""

    panel: ClassVar[str] = "What is kept"

    log: Annotated[Path | None, Option("--log", help="A folder for the rounds of each question that stopped.")] = None
    audit_rate: Annotated[
        float | None, Option("--audit-rate", help="Share of questions that go on after the stop; needs --log.")
    ] = None
    watch_every: Annotated[
        float, Setting("service", "watch-every", min=0, help="Seconds between judgements of the log; 0 = on request.")
    ] = 300.0
    sessions: Annotated[
        Path | None, Setting("service", "sessions", help="A file for sessions; default: in --log, else in memory.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Priced:
    """Options for the cost of rounds."""

    panel: ClassVar[str] = "Prices"

    prices: Annotated[
        Path | None, Setting("service", "price-file", help="A file of prices by model, for policies that read spend.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Options that limit requests and sessions; see `Limits`."""

    panel: ClassVar[str] = "Limits"

    body: Annotated[int, Setting("service", "max-body", min=1, help="Largest body of a request, bytes.")] = 4 << 20
    requests: Annotated[int, Setting("service", "max-requests", min=1, help="Requests in flight.")] = 256
    rounds: Annotated[int, Setting("service", "max-rounds", min=1, help="Rounds in a request or session.")] = 1000
    sessions_open: Annotated[int, Setting("service", "max-sessions", min=1, help="Sessions that are open.")] = 10_000
    session: Annotated[int, Setting("service", "max-session-bytes", min=1, help="Bytes of a stored session.")] = (
        16 << 20
    )
    work: Annotated[
        float, Setting("service", "max-seconds", min=0.001, help="Seconds for comparing the answers of a request.")
    ] = 10.0
    ttl: Annotated[float, Setting("service", "ttl", min=1, help="Seconds until an idle session is forgotten.")] = 3600.0


def serve_command(
    folder: Annotated[Path, Argument(metavar="POLICIES", help="A folder of policies, one .json file each.")],
    access: Access,
    kept: Kept,
    limit: LimitOptions,
    priced: Priced,
) -> None:
    """Serve decisions over HTTP: loops in any language send their rounds; /openapi.json describes the interface.

    Example: suffice serve policies --no-token
    """
    check_extra("suffice serve")
    from suffice.evaluation.replay import load_prices
    from suffice_server.serve.app import make_app
    from suffice_server.serve.guard import LOCAL_HOSTS, Limits
    from suffice_server.serve.log import DecisionLog, audit_seed
    from suffice_server.serve.policies import PolicyFolder
    from suffice_server.serve.running import bind, run_app, url_of
    from suffice_server.serve.service import Service
    from suffice_server.serve.sessions import SessionStore

    token = _token_for(access)
    values = asdict(limit)
    limits = Limits(sessions=values.pop("sessions_open"), **values)
    policies = PolicyFolder(folder)
    if priced.prices is not None:
        load_prices(priced.prices)
    log, sessions = None, kept.sessions
    if kept.log is not None:
        try:
            kept.log.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"the folder {str(kept.log)!r} for the log cannot be created: {error.strerror}") from None
        audit = None if kept.audit_rate is None else Audit(rate=kept.audit_rate, seed=audit_seed(kept.log))
        log, sessions = DecisionLog(kept.log, audit), sessions or kept.log / "sessions.sqlite"
    elif kept.audit_rate is not None:
        raise DataError("--audit-rate needs a log, because the audited questions are judged from it: give --log FOLDER")
    with bind(access.host, access.port) as listener:
        service = Service(policies, SessionStore(sessions, limits), log, watch_s=kept.watch_every, prices=priced.prices)
        app = make_app(service, limits, token=token, hosts=LOCAL_HOSTS if token is None else None)

        def announce() -> None:
            url = url_of(listener)
            say(f"{counted(len(policies.policies), 'policy', 'policies')} at {url}, described by {url}/openapi.json")

        _log_to_stderr()
        try:
            run_app(app, listener, ready=announce)
        finally:
            service.close()


def _log_to_stderr() -> None:
    """Write the server's log messages to stderr, with times and tracebacks; clients never get tracebacks."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name, level in (("suffice_server.serve", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.handlers, logger.propagate = [handler], False


def _token_for(access: Access) -> str | None:
    """Return the token that requests need; None if no token is needed.

    A server without a token is allowed only at an address of this machine.
    """
    from suffice_server.serve.guard import read_token

    if access.no_token and access.token_file is not None:
        raise DataError("--no-token and --token-file contradict each other: give one of the two")
    if access.no_token and access.host not in _LOCAL:
        raise DataError(
            f"--no-token is allowed on this machine only, not with --host {access.host}: set {_TOKEN}, or give --token-file"
        )
    token = None if access.no_token else read_token(_TOKEN, access.token_file)
    if token is None and not access.no_token:
        raise DataError(
            f"the server needs a token: set {_TOKEN}, or give --token-file; `openssl rand -hex 32` makes one. At 127.0.0.1 "
            "--no-token goes without"
        )
    return token
