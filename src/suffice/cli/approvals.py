"""Approvals of keys that the `suffice.toml` of a folder may send to a host.

A folder may come from somebody else, and its file names an endpoint and an environment variable. The user approves both once;
approvals are kept in the user's configuration, outside all folders of data.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer

from suffice.cli.console import printable
from suffice.cli.parameters import URL, is_from_file
from suffice.cli.settings import DEFAULT_KEY, FILE, read_settings
from suffice.common.files import replacing
from suffice.errors import DataError

VARIABLE = "SUFFICE_APPROVE"
"""The environment variable with approvals for programs: ``NAME_API_KEY@https://host:443``, separated by blanks."""

_KEY = "api_key_env"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, order=True)
class Approval:
    """The user's permission that the `suffice.toml` of a folder may send a key to a host.

    Attributes:
        folder: The absolute path of the folder; empty for an approval by the environment, which holds in every folder.
        origin: Scheme, host and port.
    """

    folder: str
    origin: str
    variable: str

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.folder, self.origin, self.variable)):
            raise TypeError(self.folder, self.origin, self.variable)

    def __str__(self) -> str:
        return f"{self.variable}@{self.origin}"


def is_loopback(url: str) -> bool:
    """Return True if an address that `checked_url` returned certainly belongs to this machine.

    >>> is_loopback("http://127.0.0.1:8000/v1"), is_loopback("http://127.0.0.1.evil.com/v1")
    (True, False)
    """
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _origins(urls: str, *, loopback: bool) -> Iterator[str]:
    """Yield scheme, host and port of endpoints; endpoints on this machine only if `loopback`."""
    from suffice.loops.models._clients import checked_urls

    for url in checked_urls(urls):
        if loopback or not is_loopback(url):
            parts = urlsplit(url)
            host = str(parts.hostname).encode("ascii", "backslashreplace").decode()  # escapes look-alike letters
            yield f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{parts.port or _PORTS[parts.scheme]}"


def wanted(settings: Mapping[str, Any]) -> list[Approval]:
    """Return the approvals needed for the endpoints and environment variables that a file names."""
    tables = [table for table in settings.values() if isinstance(table, Mapping)]
    values = {key.replace("-", "_"): value for part in (settings, *tables) for key, value in part.items()}
    approvals: list[Approval] = []
    for url, key in _endpoints({URL: None, _KEY: None, **values}):
        if url in values or key in values:
            approvals += _wanted(values.get(url), {values.get(key) or DEFAULT_KEY: key in values})
    return list(dict.fromkeys(approvals))


def _wanted(urls: str | None, variables: Mapping[str, bool]) -> list[Approval]:
    """Return the approvals needed to send keys to endpoints.

    `variables` maps each environment variable to True if the file names it.
    """
    from suffice.loops.models._clients import OPENAI_URL

    urls = urls or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
    return [
        Approval(str(Path.cwd()), origin, variable)
        for variable, is_named in variables.items()
        for origin in _origins(urls, loopback=is_named)
    ]


def check_approved(context: Any) -> None:
    """Ask the user for the approval that the running command needs, or raise.

    An approval is needed if `suffice.toml` names the key, or names the endpoint to which a key is sent.  An endpoint on this
    machine needs no approval.

    Raises:
        BadParameter: An approval is missing, and either there is no user to ask or the user refuses.
    """
    values = context.params
    elsewhere = values.get("on") is not None  # nodes of a cluster may have keys that this process lacks
    missing: list[Approval] = []
    for url, key in _endpoints(values):
        named = values[key]
        if (is_from_file(context, url) or is_from_file(context, key)) and (os.environ.get(named) or elsewhere):
            missing += _wanted(values[url], {str(named): is_from_file(context, key)})
    missing = [one for one in dict.fromkeys(missing) if not is_approved(one)]
    if not missing:
        return
    sends = " and ".join(f"the key in {one.variable} to {one.origin}" for one in missing)
    if _is_terminal():
        text = f"{FILE} in {str(Path.cwd())!r} would send {sends}. Approve it for this folder, now and later?"
        if typer.confirm(printable(text), default=False, err=True):
            approve(missing)
            return
    once = "run `suffice init --approve` there once, or " if {*missing} <= {*wanted(read_settings())} else ""
    raise typer.BadParameter(
        f"{FILE} in {str(Path.cwd())!r} would send {sends}, which you have not approved. If you trust the host, {once}set "
        f"{VARIABLE}={shlex.quote(' '.join(map(str, missing)))}. To leave the file's endpoint alone, give --base-url and --model",
        ctx=context,
    )


def _endpoints(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names of two parameters for each endpoint: its address and its key.

    A judge uses the parameters of the model unless its own are set.
    """
    prefixes = {name.removesuffix(ending) for ending in (URL, _KEY) for name in values if name.endswith(ending)}
    for prefix in sorted(prefixes):
        url, key = (prefix + own if values.get(prefix + own) is not None else own for own in (URL, _KEY))
        yield url, key


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_approved(one: Approval) -> bool:
    """Return whether the environment or the user has given an approval."""
    return Approval("", one.origin, one.variable) in _from_environment() or one in _stored()


def approvals_file() -> Path:
    """Return the path of the stored approvals: ``$XDG_CONFIG_HOME/suffice/approved.json``, or below ``~/.config``."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or "")
    try:
        return (home if home.is_absolute() else Path.home() / ".config") / "suffice" / "approved.json"
    except RuntimeError:
        raise DataError(
            "approvals are kept in the home of the user, and this user has none: set HOME or XDG_CONFIG_HOME to a folder, "
            f"or approve by {VARIABLE}"
        ) from None


def approvals_here() -> list[Approval]:
    """Return the approvals for the current folder, from the user's file and the environment."""
    here = str(Path.cwd())
    return [*_from_environment(), *(one for one in _stored() if one.folder == here)]


def _from_environment() -> Iterator[Approval]:
    for word in os.environ.get(VARIABLE, "").split():
        variable, _, url = word.partition("@")
        try:
            for origin in _origins(url, loopback=True):
                yield Approval("", origin, variable)
        except DataError:
            raise DataError(
                f"the environment variable {VARIABLE} says {word!r}; expected NAME_API_KEY@https://host:443, several with "
                "blanks between them"
            ) from None


def _stored() -> list[Approval]:
    path = approvals_file()
    listed: Any = None
    try:
        listed = json.loads(path.read_text("utf-8"))
        stored = [Approval(**one) for one in listed]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError):
        stored = []
    if not isinstance(listed, list) or len(stored) < len(listed):
        raise DataError(f"{str(path)!r} is not a list of approvals: remove it, and approve again")
    return stored


def approve(approvals: Iterable[Approval]) -> None:
    """Store approvals for later commands, in a file that only the user can read."""
    path, new = approvals_file(), {*approvals}
    if not new:
        return
    listed = sorted({*_stored(), *new})
    with suppress(OSError):
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    with replacing(path) as temporary:
        temporary.touch(0o600)
        temporary.chmod(0o600)
        temporary.write_text(json.dumps([asdict(one) for one in listed], indent=1) + "\n", encoding="utf-8")
