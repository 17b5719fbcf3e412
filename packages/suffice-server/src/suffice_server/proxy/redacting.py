"""Find the secrets in a request, so that no file contains them."""

from __future__ import annotations

import base64
import json
import re
from functools import lru_cache
from typing import Any

from starlette.requests import Request

from suffice.common.json_text import load_json
from suffice.common.redaction import Redactor

_SECRET = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
_KEYS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key"})
"""Headers whose every value is a secret."""
_NO_KEYS = frozenset({"none", "empty", "null", "ollama"})
"""Placeholders, in lower or upper case, that clients send as keys to servers that need no key."""
_LEAST_SECRET, _SURELY_SECRET = 8, 20
"""Lengths from which on a value with a digit, and a value without one, is too long to be an ordinary word."""
_FORM = frozenset(
    {"id", "call_id", "type", "role", "object", "model", "name", "status", "finish_reason", "stop_reason"}
)
"""Fields that are needed to parse a reply."""


class Secrets:
    """Removes secrets from what is stored.

    Args:
        sure: Secrets that cannot be ordinary words; they are removed everywhere.
        words: Secrets that may be ordinary words; they are not removed from names and from the fields that parsing needs.
    """

    def __init__(self, sure: frozenset[str] = frozenset(), words: frozenset[str] = frozenset()) -> None:
        self._sure, self._words = Redactor(sure), Redactor(words)

    def __call__(self, text: str) -> str:
        """Return a text without secrets."""
        return self._words(self._sure(text))

    def clean(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a reply without its secrets; if it contains no secrets, return the given object itself."""
        plain = json.dumps(body)
        if self(plain) == plain:
            return body
        cleaned: dict[str, Any] = self._cleaned(load_json(self._sure(plain)))
        return cleaned

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: item if name in _FORM else self._cleaned(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._cleaned(item) for item in value]
        return self._words(value) if isinstance(value, str) else value


def secrets_of(request: Request) -> Secrets:
    """Return an object that removes all values of a request's headers and query that may be secrets."""
    sure, words = set[str](), set[str]()
    for name, value in [*request.headers.items(), *request.query_params.multi_items()]:
        if _SECRET.search(name):
            parts = {value, *(value.split()[1:] or [value]), *_basic(value)}
            surely = {
                part for part in parts if len(part) >= (_LEAST_SECRET if re.search(r"\d", part) else _SURELY_SECRET)
            }
            sure |= surely
            words |= {part for part in parts - surely if name in _KEYS and part.lower() not in _NO_KEYS}
    return _secrets(frozenset(sure), frozenset(words))


def _basic(value: str) -> list[str]:
    """Return `user:password` and the password of a basic authorization header; empty for other headers."""
    scheme, _, given = value.partition(" ")
    try:
        text = base64.b64decode(given).decode() if scheme.lower() == "basic" else ""
    except ValueError:
        return []
    return [text, text.partition(":")[2]] if text else []


_secrets = lru_cache(maxsize=256)(Secrets)
