"""Embed data in an HTML page: JSON that cannot close its script element, and lossless arrays."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt

_BREAKS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""JSON escapes of the characters that could end a script element or a line of script."""


def json_in_html(data: Any) -> str:
    r"""Return strict JSON that is safe inside a script element.

    >>> json_in_html("</script>")
    '"\\u003c/script\\u003e"'

    Raises:
        ValueError: A number is not finite.
    """
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_BREAKS)


def pack_bytes(data: bytes) -> str:
    """Compress bytes and encode them in base64; equal bytes give equal text."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode("ascii")


class Pool:
    """The arrays of a page, each of them stored once.

    An array is stored in byte planes: the first bytes of all its little-endian numbers, then the second bytes, and so
    on.  Neighbouring bytes in a plane are similar, so it compresses well.
    """

    def __init__(self) -> None:
        self.arrays: list[dict[str, Any]] = []
        self._known: dict[bytes, int] = {}

    def add(self, array: npt.NDArray[Any]) -> int:
        """Store an array (float64 or int8) unless it is stored already; return its position in `arrays`."""
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
        """Number of characters of the arrays in the page."""
        return sum(len(array["data"]) + 60 for array in self.arrays)

    def forget(self, n: int) -> None:
        """Drop all arrays after the first `n`."""
        del self.arrays[n:]
        self._known = {key: place for key, place in self._known.items() if place < n}
