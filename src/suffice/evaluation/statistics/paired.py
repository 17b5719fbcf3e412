"""The mean paired difference of one rule, with its interval, test and limits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from suffice.common.results import jsonable
from suffice.evaluation.statistics.bootstrap import Weights
from suffice.evaluation.statistics.hypotheses import sign_flip_test
from suffice.evaluation.statistics.intervals import DEFAULT_INTERVAL, paired_bootstrap
from suffice.evaluation.statistics.units import Clusters, Units
from suffice.policy.rounds import Floats

FEW_NONZERO = 20
"""With fewer non-zero pairs, intervals may under-cover, above all for skewed differences, so an exact test is added."""


ONE_UNIT = "one question (or one cluster of them) shows no spread, so its intervals are not defined (n/a)"
"""The note on figures for a single unit."""

ONE_DRAW = "one bootstrap draw shows no spread, so intervals are not defined (n/a): draw more"
"""The note on figures with a single draw."""


def undefined_notes(n_units: int, n_resamples: int) -> list[str]:
    """Return notes that say why intervals are undefined; empty if they are defined.

    >>> undefined_notes(20, 1000)
    []
    """
    return [ONE_UNIT] if n_units == 1 else [ONE_DRAW] if n_resamples == 1 else []


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedResult:
    """The mean paired difference of one rule against a baseline.

    Attributes:
        delta: Mean difference, in the unit of the metric; positive = larger than the baseline.
        low: Lower end of the interval.
        high: Upper end.
        level: Nominal coverage of the interval.
        n: Number of rows (questions, or runs of questions).
        n_clusters: Number of resampled units; equals `n` unless several rows repeat a question.
        n_nonzero: Number of units whose difference is not zero.
        n_resamples: Number of draws.
        interval: Method of the interval, see `paired_bootstrap`.
        p_exact: Two-sided p-value of the exact sign-flip test; NaN if at least `FEW_NONZERO` pairs differ, because the
            exact test is not needed then.
        p: Two-sided p-value of `test`; NaN without a test.
        p_holm: `p`, adjusted by Holm over a family of rules; NaN outside a family.
        test: The test behind `p`, see `SignFlip`; empty without a test.
        warning: The limits of the interval, in words; empty if there are none.
    """

    delta: float
    low: float
    high: float
    level: float
    n: int
    n_clusters: int
    n_nonzero: int
    n_resamples: int
    interval: str = DEFAULT_INTERVAL
    p_exact: float = float("nan")
    p: float = float("nan")
    p_holm: float = float("nan")
    test: str = ""
    warning: str = ""

    @property
    def triple(self) -> tuple[float, float, float]:
        """The difference with its interval ends, as tables show it."""
        return self.delta, self.low, self.high

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN and infinities become None."""
        result: dict[str, Any] = jsonable(asdict(self))
        return result


def paired_results(
    deltas: Floats,
    weights: Weights,
    *,
    clusters: Clusters = None,
    level: float = 0.95,
    method: str = DEFAULT_INTERVAL,
) -> list[PairedResult]:
    """Return the interval of each rule, with an exact test if few pairs differ; arguments as in `paired_bootstrap`."""
    deltas = np.atleast_2d(np.asarray(deltas, dtype=np.float64))
    intervals = paired_bootstrap(deltas, weights, clusters=clusters, level=level, method=method)
    units = Units.of(deltas.shape[-1], clusters)
    results = []
    for position, sums in enumerate(units.sums(deltas)):
        nonzero = int(np.count_nonzero(sums))
        few = nonzero < FEW_NONZERO
        results.append(
            PairedResult(
                delta=float(intervals.delta[position]),
                low=float(intervals.low[position]),
                high=float(intervals.high[position]),
                level=level,
                n=units.n_rows,
                n_clusters=units.n_units,
                n_nonzero=nonzero,
                n_resamples=intervals.n_resamples,
                interval=method,
                p_exact=sign_flip_test(sums) if few else float("nan"),
                warning=few_warning(nonzero, units.n_units) if few else "",
            )
        )
    return results


def few_warning(nonzero: int, n_units: int) -> str:
    """Return the warning for intervals if only `nonzero` of `n_units` pairs differ."""
    if n_units == 1:
        return ONE_UNIT
    differ = "pair differs" if nonzero == 1 else "pairs differ"
    return (
        f"only {nonzero} {differ} (fewer than {FEW_NONZERO}): intervals and t tests of sparse differences promise more "
        "than they keep; read the exact test"
    )
