"""Prepare texts for messages: shorten them and remove secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_SHOWN_CHARACTERS = 300
_MIN_SECRET = 4
_REDACTED = "[redacted]"


class Redactor:
    """A function that replaces secrets in text.

    Args:
        secrets: Values that must never be shown; those shorter than four characters are ignored.
    """

    def __init__(self, secrets: Iterable[str | None]) -> None:
        spellings: set[str] = set()
        for secret in secrets:
            if secret is not None and len(secret) >= _MIN_SECRET:
                spellings |= {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
        # Replace the longest first: a secret that contains another must not remain in part.
        self._pattern = (
            re.compile("|".join(map(re.escape, sorted(spellings, key=len, reverse=True)))) if spellings else None
        )

    def __call__(self, text: str) -> str:
        """Return `text` without the secrets."""
        return text if self._pattern is None else self._pattern.sub(_REDACTED, text)

    def __repr__(self) -> str:
        return "Redactor(...)"


def shortened(text: str) -> str:
    """Return the text as one line of limited length, for a message."""
    line = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}... ({len(line)} characters)"
