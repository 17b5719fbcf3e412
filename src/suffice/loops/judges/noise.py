"""Agreement of a judge with itself when the same drafts are judged several times."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Agreement of a judge with itself on a sample of drafts.

    Attributes:
        drafts: Number of drafts with at least two marks.
        repeats: Number of judgements per draft.
        equal: Share of pairs of marks of one draft that are equal, in [0, 1].
        difference: Mean absolute difference of two marks of one draft, in [0, 1].
        sd: Standard deviation of a mark around its draft's mean, pooled over drafts, in the mark's unit.
        undefined: Share of requested marks that are undefined.
    """

    drafts: int
    repeats: int
    equal: float
    difference: float
    sd: float
    undefined: float


def noise_of(marks: npt.ArrayLike) -> Noise:
    """Measure the noise of repeated marks; pairs are averaged within a draft first, so that each draft counts once.

    >>> noise_of([[0.5, 0.5], [1.0, 0.5]])
    Noise(drafts=2, repeats=2, equal=0.5, difference=0.25, sd=0.25, undefined=0.0)

    Args:
        marks: Shape ``(n_drafts, n_repeats)``, NaN where undefined; drafts with fewer than two marks are ignored.

    Returns:
        The noise; NaN if no draft has two marks.

    Raises:
        DataError: There are fewer than two repeats.
    """
    table = np.asarray(marks, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2:  # noqa: PLR2004
        raise DataError(f"noise needs marks of shape (n_drafts, n_repeats) with two repeats, got {table.shape}")
    equal, difference, squares, freedom = [], [], 0.0, 0
    for row in table:
        defined = row[~np.isnan(row)]
        if len(defined) < 2:  # noqa: PLR2004
            continue
        # All pairs of marks of one draft: the differences above the diagonal.
        gaps = np.abs(defined[:, None] - defined[None, :])[np.triu_indices(len(defined), 1)]
        equal.append(float((gaps == 0).mean()))
        difference.append(float(gaps.mean()))
        # Pooled variance: squares and degrees of freedom are summed over drafts and divided once.
        squares += float(((defined - defined.mean()) ** 2).sum())
        freedom += len(defined) - 1
    return Noise(
        drafts=len(equal),
        repeats=table.shape[1],
        equal=math.fsum(equal) / len(equal) if equal else math.nan,
        difference=math.fsum(difference) / len(difference) if equal else math.nan,
        sd=math.sqrt(squares / freedom) if freedom else math.nan,
        undefined=float(np.isnan(table).mean()) if table.size else math.nan,
    )
