"""Learn-then-Test: reject several hypotheses jointly, and estimate how many questions further rejections would need.

Rejecting "the expected loss of policy j is at least epsilon" certifies policy j.  Both procedures bound the chance of
any false certificate in the family by delta (Angelopoulos et al. 2021), so any certified policy may be chosen
afterwards, by any criterion.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Floats, Mask
from suffice.verdicts.certificates.losses import Claim
from suffice.verdicts.losses import two_digits

ProcedureName = Literal["fixed-sequence", "bonferroni"]

PROCEDURES: tuple[ProcedureName, ...] = ("fixed-sequence", "bonferroni")
"""`fixed-sequence` tests one after the other, each at delta, and ends at the first that fails: the order must be fixed
without the certification set.  `bonferroni` tests each of m at delta / m, in no order."""

MOST_QUESTIONS = 200_000
"""The number of questions at which `questions_needed` gives up."""

_MOST_SETS = 64
_SUCCESS = 0.8
_MOST_LOSSES = 2**21  # number of losses that are resampled at once; it bounds memory


def level_of(procedure: ProcedureName, m: int, delta: float) -> float:
    """Return the level at which each of `m` hypotheses is tested."""
    if procedure not in PROCEDURES:
        raise DataError(f"{procedure!r} is not a procedure; allowed: {', '.join(PROCEDURES)}")
    return delta if procedure == "fixed-sequence" else delta / m


def rejected(p_values: npt.ArrayLike, delta: float, procedure: ProcedureName) -> Mask:
    """Return a mask of the hypotheses that are rejected, with family-wise error at most delta.

    >>> rejected([0.01, 0.04, 0.2, 0.01], 0.05, "fixed-sequence").tolist()
    [True, True, False, False]
    >>> rejected([0.01, 0.04, 0.2, 0.01], 0.05, "bonferroni").tolist()
    [True, False, False, True]

    Args:
        p_values: The p-values in test order, shape ``(..., m)``.
        delta: Family-wise error, in (0, 1).
        procedure: One of `PROCEDURES`.
    """
    p = np.asarray(p_values, dtype=np.float64)
    low = p <= level_of(procedure, p.shape[-1], delta)
    return np.logical_and.accumulate(low, axis=-1) if procedure == "fixed-sequence" else low


def questions_needed(losses: Floats, claim: Claim, level: float, *, rng: int = 0) -> int | None:
    """Estimate how many questions would lower the p-value to `level` in four of five cases.

    The estimate assumes that losses stay distributed as observed. Sets of other sizes are resampled from these losses,
    and the size is found by doubling and bisection.  This is a rough guide, because the observed losses are only a
    sample.

    >>> import numpy as np
    >>> questions_needed(np.zeros(50), Claim(epsilon=0.02, metric="em", loss="harm"), 0.05)  # 0.98 ** 149 < 0.05
    149

    Args:
        losses: Losses of one policy, shape ``(n_questions,)``.
        claim: The claim to certify.
        level: The largest p-value that certifies.
        rng: Seed of the resampling.

    Returns:
        The number, rounded up to two digits and larger than n; None if the mean loss is not below epsilon (no number
        would do) or more than `MOST_QUESTIONS` are needed.
    """
    if losses.mean() >= claim.epsilon:
        return None

    def enough(n: int) -> bool:
        draws = max(4, min(_MOST_SETS, _MOST_LOSSES // n))
        resampled = np.random.default_rng(rng).choice(losses, (draws, n))
        return float(np.quantile(claim.p_values(resampled, level), _SUCCESS)) <= level

    low = high = len(losses)
    while not enough(high):
        if high >= MOST_QUESTIONS:
            return None
        low, high = high, min(2 * high, MOST_QUESTIONS)
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return two_digits(max(high, len(losses) + 1))
