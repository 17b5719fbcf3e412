"""Weights of a panel's marks: non-negative with sum 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.metrics import information_score
from suffice.policy.rounds import Floats

_RANDOM_INDEX = (0.0, 0.0, 0.0, 0.58, 0.90, 1.12, 1.24, 1.32, 1.41, 1.45, 1.49)
"""Saaty's random index: the mean consistency index of random matrices, by their size."""
_RECIPROCAL_TOLERANCE = 1e-6


def equal_weights(marks: Sequence[str]) -> dict[str, float]:
    """Return the same weight for every mark.

    >>> equal_weights(["faithfulness", "context_recall"])
    {'faithfulness': 0.5, 'context_recall': 0.5}

    Raises:
        DataError: `marks` is empty.
    """
    if not marks:
        raise DataError("weights need at least one mark")
    return dict.fromkeys(marks, 1 / len(marks))


def checked_weights(weights: Mapping[str, float], marks: Sequence[str]) -> dict[str, float]:
    """Return given weights in the order of the marks; missing ones are 0.

    Raises:
        DataError: The weights are negative, their sum is not 1, or a mark is unknown.
    """
    unknown = [name for name in weights if name not in marks]
    if unknown:
        raise DataError(f"unknown mark {unknown[0]!r} in the weights; allowed: {', '.join(marks)}")
    information_score({}, weights)
    return {name: float(weights.get(name, 0.0)) for name in marks}


def entropy_weights(columns: Mapping[str, npt.ArrayLike]) -> dict[str, float]:
    """Return weights that grow with the variation of each mark between drafts (the entropy weight method).

    A mark's shares ``p = x / sum(x)`` have the entropy ``-sum(p log p) / log n``; the weights are proportional to 1
    minus that.  A mark that is the same for all drafts gets weight 0.  Rows with an undefined mark are left out.

    Args:
        columns: Marks in [0, 1] by name, shape ``(n_drafts,)``.

    Raises:
        DataError: Fewer than two drafts, marks out of range, or no mark varies.
    """
    names, matrix = _matrix(columns)
    total = matrix.sum(axis=0)
    # A mark that is always 0 has no shares; equal shares give it the largest entropy, so weight 0.
    shares = np.divide(matrix, total, out=np.full_like(matrix, 1 / len(matrix)), where=total > 0)
    terms = np.where(shares > 0, shares * np.log(np.where(shares > 0, shares, 1.0)), 0.0)
    # The entropy of a constant mark equals log n only up to rounding, but its weight must be exactly 0.
    varies = np.ptp(matrix, axis=0) > 0
    information = np.where(varies, np.maximum(1 + terms.sum(axis=0) / np.log(len(matrix)), 0.0), 0.0)
    if not information.sum() > 0:
        raise DataError("no mark varies between drafts, so entropy weights are undefined: use equal weights")
    return _weights_by_name(names, information / information.sum())


def ahp_weights(marks: Sequence[str], comparisons: npt.ArrayLike) -> tuple[dict[str, float], float]:
    """Return weights from pairwise judgements of importance with their consistency ratio (AHP, Saaty 1980).

    Args:
        marks: The marks, 1 to 10.
        comparisons: Shape ``(n_marks, n_marks)``: importance of the row's mark relative to the column's; mirrored
            entries are reciprocal.

    Returns:
        The principal eigenvector scaled to sum 1, and the consistency ratio: 0 is consistent; above 0.1 the
        comparisons are too inconsistent to be used (Saaty).

    Raises:
        DataError: The matrix has the wrong shape, or is not positive and reciprocal.
    """
    matrix = np.asarray(comparisons, dtype=np.float64)
    n = len(marks)
    if not 1 <= n < len(_RANDOM_INDEX) or matrix.shape != (n, n):
        raise DataError(f"AHP compares 1 to 10 marks by a square matrix; got {n} marks and the shape {matrix.shape}")
    if not (
        np.isfinite(matrix).all()
        and (matrix > 0).all()
        and np.allclose(matrix * matrix.T, 1, rtol=_RECIPROCAL_TOLERANCE)
    ):
        raise DataError("AHP needs positive comparisons with a[j][i] = 1 / a[i][j] and ones on the diagonal")
    # A positive matrix has one largest eigenvalue, real and with a positive vector (Perron); eig returns complex types.
    values, vectors = np.linalg.eig(matrix)
    principal = int(np.argmax(values.real))
    vector = np.abs(vectors[:, principal].real)
    random = _RANDOM_INDEX[n]
    ratio = max(float(values[principal].real) - n, 0.0) / (n - 1) / random if random else 0.0
    return _weights_by_name(list(marks), vector / vector.sum()), ratio


def least_squares_weights(columns: Mapping[str, npt.ArrayLike], target: npt.ArrayLike) -> dict[str, float]:
    """Return the weights whose score is closest to a target, by exact constrained least squares.

    For weights that sum to 1, ``Xw - y = (X - y)w``, and the w that minimises ``|(X - y)w|`` is proportional to the
    solution of a non-negative least-squares problem with a row of ones appended.

    Args:
        columns: Marks in [0, 1] by name, shape ``(n_drafts,)``.
        target: Target of the score (a human mark, a gold metric), in [0, 1], shape ``(n_drafts,)``.  Fit on tune
            questions, never on reported ones.

    Raises:
        DataError: Fewer than two drafts are fully defined, or values are out of range.
    """
    if "target" in columns:
        raise DataError("a mark may not be called 'target'")
    from scipy.optimize import nnls

    names, matrix = _matrix({**columns, "target": target})
    off = matrix[:, :-1] - matrix[:, -1:]
    # The row of ones only fixes the scale, which the division removes again; without it 0 would solve the problem.
    solution, _ = nnls(np.vstack([off, np.ones(off.shape[1])]), np.append(np.zeros(len(off)), 1.0))
    return _weights_by_name(names[:-1], solution / solution.sum())


def _matrix(columns: Mapping[str, npt.ArrayLike]) -> tuple[list[str], Floats]:
    arrays = [np.asarray(column, dtype=np.float64) for column in columns.values()]
    if not arrays or any(array.ndim != 1 or array.shape != arrays[0].shape for array in arrays):
        raise DataError(f"marks must be columns of one length; got {[array.shape for array in arrays]}")
    matrix = np.stack(arrays, axis=1)
    matrix = matrix[~np.isnan(matrix).any(axis=1)]
    if len(matrix) < 2 or not ((matrix >= 0) & (matrix <= 1)).all():  # noqa: PLR2004
        raise DataError(
            f"weights need at least two drafts with all marks in [0, 1]; got {len(matrix)} drafts, or marks out of range"
        )
    return list(columns), matrix


def _weights_by_name(names: Sequence[str], weights: Floats) -> dict[str, float]:
    return dict(zip(names, weights.tolist(), strict=True))
