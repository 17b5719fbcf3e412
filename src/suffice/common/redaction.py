"""Prepare texts for messages: shorten them and remove secrets."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable

_SHOWN_CHARACTERS = 300
_MIN_SECRET = 4
_MIN_IN_BASE64 = 8
_REDACTED = "[redacted]"


class Redactor:
    r"""A function that replaces secrets in text, even if they are escaped in JSON or encoded in base64.

    >>> Redactor(["sk-0123456789"])(r"sk-0123456789, \u0073k-0123456789, eCBzay0wMTIzNDU2Nzg5IHg=")
    '[redacted], [redacted], eCB[redacted]IHg='

    Args:
        secrets: Values that must never be shown; those shorter than four characters are ignored.
    """

    def __init__(self, secrets: Iterable[str | None]) -> None:
        spellings: set[str] = set()
        for secret in secrets:
            if secret is not None and len(secret) >= _MIN_SECRET:
                spellings |= {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
                spellings |= _in_base64(secret)
        # Replace the longest first: a secret that contains another must not remain in part.
        patterns = ["".join(map(_any_escape, text)) for text in sorted(spellings, key=len, reverse=True)]
        self._pattern = re.compile("|".join(patterns)) if patterns else None

    def __call__(self, text: str) -> str:
        """Return `text` without the secrets."""
        return text if self._pattern is None else self._pattern.sub(_REDACTED, text)

    def __repr__(self) -> str:
        return "Redactor(...)"


def _any_escape(character: str) -> str:
    """Return a pattern for a character or its `u` escape in JSON, even if the JSON is a text in another JSON text."""
    return rf"(?:{re.escape(character)}|\\{{1,4}}u(?i:{ord(character):04x}))"


def _in_base64(secret: str) -> set[str]:
    """Return every form that a secret can have in the base64 encoding of a longer text.

    The form depends on the position of the secret in that text.
    """
    raw, texts = secret.encode(), set[str]()
    if len(raw) < _MIN_IN_BASE64:
        return texts
    for before in range(3):
        text = base64.b64encode(bytes(before) + raw).decode()
        text = text[(8 * before + 5) // 6 : 8 * (before + len(raw)) // 6]
        texts |= {text, text.replace("+", "-").replace("/", "_")}
    return texts


def shortened(text: str) -> str:
    """Return the text as one line of limited length, for a message."""
    line = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}... ({len(line)} characters)"
