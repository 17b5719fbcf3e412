"""Corrections for many rules on one data set: p-values that hold for all rules together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Floats


def holm(p: npt.ArrayLike) -> Floats:
    """Return p-values adjusted so that the chance of any false rejection is bounded (Holm 1979).

    Valid under any dependence between the tests.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]

    Args:
        p: p-values, shape ``(n_tests,)``; NaN = not tested; these stay NaN and are not counted.

    Raises:
        DataError: A value outside [0, 1].
    """
    values = np.asarray(p, dtype=np.float64).ravel()
    outside = values[(values < 0) | (values > 1)]
    if outside.size:
        raise DataError(f"a p-value lies in [0, 1], not {float(outside[0])!r}")
    n = int((~np.isnan(values)).sum())
    order = np.argsort(values, kind="stable")[:n]  # NaN sorts last
    adjusted = np.full(len(values), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * np.arange(n, 0, -1)), 1.0)
    return adjusted
