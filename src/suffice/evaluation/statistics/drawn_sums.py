"""A bootstrap for questions that need not fit into memory: draws per question, and sums that add up over parts.

The number of times that a question is drawn depends only on its key and the seed (Poisson bootstrap; Chamandy et al.
2012, "Estimating uncertainty for massive data streams"), so any division of the questions into parts, in any order,
gives the same draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.statistics.bootstrap import quantiles
from suffice.evaluation.statistics.hypotheses import sign_flip_test
from suffice.evaluation.statistics.intervals import expanded_tail
from suffice.evaluation.statistics.keyed import Keys, keyed_numbers, keys_of, poisson_weights
from suffice.evaluation.statistics.paired import FEW_NONZERO, PairedResult, few_warning
from suffice.evaluation.statistics.resampling import Resampling
from suffice.evaluation.statistics.units import ROUNDING
from suffice.policy.rounds import Floats

__all__ = [
    "DrawnSums",
    "Keys",
    "check_streamed",
    "error_of_sums",
    "keyed_numbers",
    "keys_of",
    "p_of_largest",
    "poisson_weights",
]

_TIE = 1e-9
"""Tolerance, in standard errors, for a draw to count as reaching a mean; sums in another order differ by less."""

_STREAMED_INTERVALS = ("expanded", "percentile")


def error_of_sums(n: int, sums: Floats, squares: Floats) -> Floats:
    """Return standard errors of means, from sums and sums of squares; 0 without variance, NaN for one question.

    >>> error_of_sums(3, np.array([0.0, 3.0]), np.array([2.0, 3.0])).round(4).tolist()
    [0.5774, 0.0]
    """
    if n < 2:  # noqa: PLR2004
        return np.full(len(sums), np.nan)
    spread = squares - sums**2 / n
    spread[spread <= ROUNDING * squares] = 0.0  # equal numbers may differ by rounding
    errors: Floats = np.sqrt(spread / (n - 1) / n)
    return errors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnSums:
    """Sums of several paired differences over some questions, in total and in every draw; parts can be added.

    Attributes:
        n: Number of questions.
        sums: Sum of each difference, shape ``(n_differences,)``.
        squares: Sum of the squares of each difference.
        nonzero: Number of values that are not 0.
        few: For each difference, the first `FEW_NONZERO` values that are not 0.
        drawn: Sums in every draw, shape ``(n_differences, n_resamples)``.
        sizes: Number of questions in every draw, shape ``(n_resamples,)``.
    """

    n: int
    sums: Floats
    squares: Floats
    nonzero: npt.NDArray[np.int64]
    few: tuple[tuple[float, ...], ...]
    drawn: Floats
    sizes: Floats

    @classmethod
    def of(cls, deltas: Floats, weights: Floats) -> Self:
        """Return the sums of one part, given its differences: shape ``(n_differences, n_questions)``, no NaN."""
        return cls(
            n=deltas.shape[1],
            sums=deltas.sum(axis=1),
            squares=np.einsum("dq,dq->d", deltas, deltas),
            nonzero=np.count_nonzero(deltas, axis=1),
            few=tuple(tuple(row[row != 0][:FEW_NONZERO].tolist()) for row in deltas),
            drawn=deltas @ weights.T,
            sizes=weights.sum(axis=1),
        )

    def __add__(self, other: Self) -> Self:
        return type(self)(
            n=self.n + other.n,
            sums=self.sums + other.sums,
            squares=self.squares + other.squares,
            nonzero=self.nonzero + other.nonzero,
            few=tuple((*a, *b)[:FEW_NONZERO] for a, b in zip(self.few, other.few, strict=True)),
            drawn=self.drawn + other.drawn,
            sizes=self.sizes + other.sizes,
        )

    @property
    def errors(self) -> Floats:
        """The standard error of each mean, shape ``(n_differences,)``."""
        return error_of_sums(self.n, self.sums, self.squares)

    def paired(self, resampling: Resampling) -> list[PairedResult]:
        """Return the mean of each difference with its bootstrap interval.

        Raises:
            DataError: The method of intervals needs all differences at once.
        """
        check_streamed(resampling)
        n_resamples, tail = len(self.sizes), (1 - resampling.level) / 2
        if resampling.interval == "expanded":
            tail = expanded_tail(tail, self.n)
        if self.n == 1:
            ends = (np.full(len(self.sums), np.nan),) * 2
        else:
            some = self.sizes > 0  # with few questions, a draw may be empty and have no mean
            ends = quantiles(self.drawn[:, some] / self.sizes[some], (tail, 1 - tail))
        return [
            PairedResult(
                delta=float(self.sums[i] / self.n),
                low=float(ends[0][i]),
                high=float(ends[1][i]),
                level=resampling.level,
                n=self.n,
                n_clusters=self.n,
                n_nonzero=int(nonzero),
                n_resamples=n_resamples,
                interval=resampling.interval,
                p_exact=sign_flip_test(self.few[i]) if nonzero < FEW_NONZERO else math.nan,
                warning=few_warning(int(nonzero), self.n) if nonzero < FEW_NONZERO else "",
            )
            for i, nonzero in enumerate(self.nonzero.tolist())
        ]

    def p_of_largest(self, position: int) -> float:
        """Return the p-value of the difference at `position`, selected as the best; see the function `p_of_largest`."""
        return p_of_largest(position, self.sums / self.n, self.errors, self.drawn, self.sizes)


def p_of_largest(position: int, delta: Floats, errors: Floats, drawn: Floats, sizes: Floats) -> float:
    """Return the one-sided p-value of a mean difference that was selected as the best of all.

    The statistic of this difference is compared, in each draw, with the largest statistic of all differences (see
    `suffice_papers.family_tests`).

    Args:
        position: Position of the selected difference.
        delta: Mean differences, shape ``(n_differences,)``.
        errors: Standard errors of the mean differences.
        drawn: Sums in every draw, shape ``(n_differences, n_resamples)``.
        sizes: Number of questions in every draw, shape ``(n_resamples,)``.
    """
    if not errors[position] > 0:
        return 1.0 if math.isnan(errors[position]) or delta[position] <= ROUNDING else 0.0
    some = sizes > 0  # with few questions, a draw may be empty and have no mean
    largest = np.full(len(sizes), -np.inf)
    for row in np.flatnonzero(errors > 0).tolist():
        np.maximum(largest, (drawn[row] - delta[row] * sizes) / errors[row], out=largest)
    largest = largest[some] / sizes[some]
    reached = largest >= delta[position] / errors[position] - _TIE
    return float((1 + reached.sum()) / (1 + len(largest)))


def check_streamed(resampling: Resampling) -> None:
    """Raise a `DataError` for a method of intervals that needs all differences at once."""
    if resampling.interval not in _STREAMED_INTERVALS:
        raise DataError(
            f"the interval {resampling.interval!r} needs the differences of all questions at once; over parts there are "
            f"{' and '.join(_STREAMED_INTERVALS)}"
        )
