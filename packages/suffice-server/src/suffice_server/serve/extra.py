"""The check that the server's own requirements are installed."""

from __future__ import annotations

from importlib.util import find_spec

from suffice.errors import MissingExtraError

_PACKAGES = ("starlette", "uvicorn", "prometheus_client")


def check_extra(feature: str) -> None:
    """Raise if a package of the server is not installed.

    Raises:
        MissingExtraError: A package is missing.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"{feature} ({', '.join(missing)})", distribution="suffice-server")
