"""The tolerance within which figures count as equal."""

from __future__ import annotations

import numpy as np

from suffice.policy.rounds import Floats

ROUNDING = 1e-12
"""Largest difference between figures of size 1 that differ only by rounding, as sums in another order do."""


def difference(values: Floats, others: Floats) -> Floats:
    """Return the differences of values; 0 where they differ only by rounding.

    Means over orders and those of twins add the same numbers in different orders; without this, equal questions would
    count as pairs that differ.

    >>> difference(np.array([0.1 + 0.2, 0.5]), np.array([0.3, 0.25])).tolist()
    [0.0, 0.25]
    """
    found = values - others
    found[np.abs(found) <= ROUNDING * np.maximum(1.0, np.abs(others))] = 0.0
    return found
