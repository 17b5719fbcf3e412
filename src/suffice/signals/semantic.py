"""How far apart two drafts are in meaning: the distance between their embeddings.

Definition: Semantic Early-Stopping, d_t = 1 - cos(e_t, e_{t-1}), in [0, 2].
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError

__all__ = ["semantic_distance"]


def semantic_distance(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return the cosine distance between two embeddings: 0 = the same direction, 1 = unrelated, 2 = opposite.

    A zero vector, what an embedder gives for an empty draft, is at distance 1.0 from everything: nothing has converged.

    >>> semantic_distance([1.0, 0.0], [0.0, 2.0]), semantic_distance([3.0, 4.0], [3.0, 4.0])
    (1.0, 0.0)
    >>> semantic_distance([0.0, 0.0], [1.0, 0.0]), semantic_distance([float("nan"), 0.0], [1.0, 0.0])
    (1.0, nan)

    Args:
        a: An embedding, shape ``(width,)``, of any length; NaN = undefined, and infinite counts as NaN.
        b: Another one by the same embedder, same shape.

    Returns:
        The distance in [0, 2]; NaN where an embedding has an undefined component.

    Raises:
        DataError: The embeddings are not two vectors of one width.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        raise DataError(
            f"a distance is between two embeddings of one width, not between shapes {first.shape!r} and "
            f"{second.shape!r}: embed both drafts with the same embedder"
        )
    # By their largest component first, so that squares of huge or tiny ones neither overflow nor vanish.
    largest, other_largest = float(np.abs(first).max()), float(np.abs(second).max())
    if not (math.isfinite(largest) and math.isfinite(other_largest)):
        return math.nan
    if largest == 0 or other_largest == 0:
        return 1.0
    first, second = first / largest, second / other_largest
    return _distance(float(first @ second), float(np.linalg.norm(first) * np.linalg.norm(second)))


def _distance(dot: float, norms: float) -> float:
    """Return 1 - dot / norms; the bounds, which hold by Cauchy and Schwarz, are kept against rounding."""
    return min(max(1.0 - dot / norms, 0.0), 2.0)
