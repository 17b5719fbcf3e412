"""Find the secrets in a request, which no file may hold."""

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
"""What clients send, in any case of letters, to servers that ask for no key."""
_LEAST_SECRET, _SURELY_SECRET = 8, 20
"""Lengths from which a value with a digit, and any value, is no ordinary word."""
_FORM = frozenset(
    {"id", "call_id", "type", "role", "object", "model", "name", "status", "finish_reason", "stop_reason"}
)
"""Fields of a reply without which it cannot be read."""


class Secrets:
    """Removes secrets from what is stored.

    Args:
        sure: Values that are no ordinary words.
        words: Secrets that may be ordinary words, and then stay where they give a reply its form.
    """

    def __init__(self, sure: frozenset[str] = frozenset(), words: frozenset[str] = frozenset()) -> None:
        self._sure, self._words = Redactor(sure), Redactor(words)

    def __call__(self, text: str) -> str:
        """Return a text without secrets."""
        return self._words(self._sure(text))

    def clean(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a reply without secrets: the same object if it holds none."""
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
    """Return what removes the values in a request that may be secrets."""
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
    """Return the user with the password, and the password, of basic authorization."""
    scheme, _, given = value.partition(" ")
    try:
        text = base64.b64decode(given).decode() if scheme.lower() == "basic" else ""
    except ValueError:
        return []
    return [text, text.partition(":")[2]] if text else []


_secrets = lru_cache(maxsize=256)(Secrets)
