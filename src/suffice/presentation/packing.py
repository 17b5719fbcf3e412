"""Data inside an HTML page: JSON that no text can break out of, and arrays without loss of a bit."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Pool", "json_in_html", "pack_bytes"]

_BREAKS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""What could end a script element or a line of script, as JSON escapes."""


def json_in_html(data: Any) -> str:
    r"""Return strict JSON that is safe inside a script element.

    >>> json_in_html("</script>")
    '"\\u003c/script\\u003e"'

    Raises:
        ValueError: A number is not finite.
    """
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_BREAKS)


def pack_bytes(data: bytes) -> str:
    """Return bytes compressed, as text of the alphabet of base64; the same bytes give the same text."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode("ascii")


class Pool:
    """The arrays of a page, each of them stored once.

    An array is stored as its little-endian bytes, first bytes of all numbers first, second bytes next: neighbours in
    such planes are alike, and compress.
    """

    def __init__(self) -> None:
        self.arrays: list[dict[str, Any]] = []
        self._known: dict[bytes, int] = {}

    def add(self, array: npt.NDArray[Any]) -> int:
        """Return the place of an array (float64 or int8) among `arrays`, storing it if it is new."""
        data = np.ascontiguousarray(array, dtype="<f8" if array.dtype.kind == "f" else "int8")
        key = hashlib.sha256(f"{data.dtype}{data.shape}".encode() + data.tobytes()).digest()
        if key not in self._known:
            planes = data.view(np.uint8).reshape(data.size, data.itemsize).T
            self._known[key] = len(self.arrays)
            self.arrays.append(
                {"bytes": data.itemsize, "shape": list(data.shape), "data": pack_bytes(planes.tobytes())}
            )
        return self._known[key]

    @property
    def size(self) -> int:
        """Characters that the arrays take in the page."""
        return sum(len(array["data"]) + 60 for array in self.arrays)

    def forget(self, n: int) -> None:
        """Keep the first `n` arrays only."""
        del self.arrays[n:]
        self._known = {key: place for key, place in self._known.items() if place < n}
