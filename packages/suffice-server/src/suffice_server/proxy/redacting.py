"""Find the secrets in a request, which no file may hold."""

from __future__ import annotations

import re
from functools import lru_cache

from starlette.requests import Request

from suffice.common.redaction import Redactor

_SECRET = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
_LEAST_SECRET, _SURELY_SECRET = 8, 20
"""Lengths from which a value with a digit, and any value, is no ordinary word."""


def redactor_of(request: Request) -> Redactor:
    """Return what removes the values in a request that may be secrets."""
    fields = [*request.headers.items(), *request.query_params.multi_items()]
    words = {word for name, value in fields if _SECRET.search(name) for word in (value, value.split(" ")[-1])}
    least = {word: _LEAST_SECRET if any(map(str.isdigit, word)) else _SURELY_SECRET for word in words}
    return _redactor(tuple(sorted(word for word in words if len(word) >= least[word])))


@lru_cache(maxsize=256)
def _redactor(secrets: tuple[str, ...]) -> Redactor:
    return Redactor(secrets)
