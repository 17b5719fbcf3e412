"""Write JSON files that tell whether somebody edited them: policies and decisions, which are evidence."""

from __future__ import annotations

import hashlib
import json
from typing import Any

FIELD = "sha256"


def sealed_text(data: dict[str, Any]) -> str:
    """Return data as an indented JSON text with the hash of its content in the field `sha256`.

    >>> was_edited(json.loads(sealed_text({"alpha": 0.05}))), was_edited({"alpha": 0.01, FIELD: _hash({"alpha": 0.05})})
    (False, True)
    """
    plain = json.loads(json.dumps(data, allow_nan=False))
    return json.dumps({**plain, FIELD: _hash(plain)}, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def was_edited(data: Any) -> bool:
    """Return whether the content of a file is not that of its hash; False without a hash, as in files of older releases."""
    return isinstance(data, dict) and FIELD in data and data[FIELD] != _hash(unsealed(data))


def unsealed(data: Any) -> Any:
    """Return the content of a file without its hash."""
    return {name: value for name, value in data.items() if name != FIELD} if isinstance(data, dict) else data


def _hash(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
