"""Compare vectors of questions, block by block, with vectors of passages that are in memory or in files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_BLOCK_NUMBERS = 2**24
"""The most numbers compared with questions at a time: 64 MB in 32 bits."""

_Floats32 = npt.NDArray[np.float32]
_Ints = npt.NDArray[np.int64]


class StoredVectors:
    """Vectors in the order of the passages.

    >>> vectors = StoredVectors([np.eye(3, dtype=np.float32), np.ones((1, 3), dtype=np.float16)])
    >>> places, scores = vectors.search(np.array([[0, 2, 1]], dtype=np.float32), 2)
    >>> places.tolist(), scores.tolist()
    ([[3, 1]], [[3.0, 2.0]])

    Args:
        parts: Consecutive parts of the vectors, each of shape ``(n, dimension)``, in 32 or 16 bits; mapped arrays stay
            on disk.
        most: Largest absolute score; scores are clipped to ``[-most, most]``.
    """

    def __init__(self, parts: Sequence[npt.NDArray[np.floating]], *, most: float = np.inf) -> None:
        self.parts, self._most = tuple(parts), most
        self._starts = np.cumsum([0, *(len(part) for part in parts)])
        self.dimension = self.parts[0].shape[1] if self.parts else 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The number type in which the vectors are stored."""
        return self.parts[0].dtype if self.parts else np.dtype(np.float32)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def blocks(self) -> Iterator[tuple[int, _Floats32]]:
        """Yield all vectors in 32 bits, block by block, each with the position of its first vector."""
        rows = max(1, _BLOCK_NUMBERS // max(1, self.dimension))
        for start, part in zip(self._starts.tolist(), self.parts, strict=False):
            for first in range(0, len(part), rows):
                yield start + first, np.asarray(part[first : first + rows], dtype=np.float32)

    def rows(self, places: _Ints) -> _Floats32:
        """Return the vectors at given positions, shape ``(len(places), dimension)``."""
        rows = np.empty((len(places), self.dimension), dtype=np.float32)
        owners = np.searchsorted(self._starts, places, side="right") - 1
        for owner in np.unique(owners).tolist():
            own = owners == owner
            rows[own] = self.parts[owner][places[own] - self._starts[owner]]
        return rows

    def scores(self, queries: _Floats32, rows: _Floats32) -> _Floats32:
        """Return the clipped inner products of queries and rows, shape ``(len(queries), len(rows))``."""
        products: _Floats32 = queries @ rows.T
        return np.clip(products, -self._most, self._most, out=products)

    def search(self, queries: _Floats32, k: int) -> tuple[_Ints, _Floats32]:
        """Return the positions of the best vectors and their scores; ties keep their order.

        Args:
            queries: Shape ``(n, dimension)``.
            k: The largest number of vectors to return.

        Returns:
            Positions and scores, each of shape ``(n, min(k, len(self)))``, best first.
        """
        k = min(k, len(self))
        best: list[tuple[_Ints, _Floats32]] = [(np.empty(0, np.int64), np.empty(0, np.float32))] * len(queries)
        for start, block in self.blocks() if k else ():
            for i, scores in enumerate(self.scores(queries, block)):
                best[i] = _better(*best[i], start, scores, k)
        places = np.stack([places for places, _ in best]) if best else np.empty((0, k), np.int64)
        return places, np.stack([scores for _, scores in best]) if best else np.empty((0, k), np.float32)


def _better(places: _Ints, scores: _Floats32, start: int, more: _Floats32, k: int) -> tuple[_Ints, _Floats32]:
    """Merge the best vectors so far with the vectors of a later block; return the `k` best, best first."""
    if len(scores) == k:
        candidates = np.flatnonzero(more > scores[-1])  # on a tie, the earlier one stays
    elif len(more) > k:
        # Take every score above the k-th largest, then its first ties.
        least = np.partition(more, len(more) - k)[len(more) - k]
        candidates = np.flatnonzero(more >= least)
    else:
        candidates = np.arange(len(more))
    if not len(candidates):
        return places, scores
    joint = np.concatenate([scores, more[candidates]])
    order = np.argsort(-joint, kind="stable")[:k]
    return np.concatenate([places, candidates + start])[order], joint[order]
