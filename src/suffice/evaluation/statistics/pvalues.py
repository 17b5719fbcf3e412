"""p-values of the hypothesis "the expected loss is at least epsilon": a small value certifies a smaller loss.

All functions take independent losses of one distribution and guarantee ``P(p <= u) <= u`` if the expected loss is at
least epsilon, for every n and every distribution on the stated range: without normality, and without a large n.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Floats

_SUM_ERROR = 1e-9
"""Tolerance for rounding errors in sums of losses, because Bentkus' bound rounds the sum up to a whole number."""

_LARGEST_BET = 0.99
"""Largest stake, as a share of the stake at which a single loss of 1 would take the whole capital."""


def hoeffding_bentkus_p_value(
    mean: npt.ArrayLike, n: npt.ArrayLike, epsilon: npt.ArrayLike, *, binary: bool = False
) -> Floats:
    """Return the smaller of Hoeffding's and Bentkus' p-values of ``E[L] >= epsilon`` for losses in [0, 1].

    Hoeffding's p-value has its relative-entropy form; Bentkus' p-value is e times a binomial tail (Bates et al. 2021,
    "Distribution-free, risk-controlling prediction sets", section 3.1; Angelopoulos et al. 2021, "Learn then test").

    >>> hoeffding_bentkus_p_value(0.0, 149, 0.02).round(4).item()  # (1 - 0.02) ** 149: no loss in 149 questions
    0.0493

    Args:
        mean: Mean losses, any shape, each in [0, 1].
        n: Number of losses behind each mean.
        epsilon: The bound under test, in (0, 1).
        binary: Whether a loss can only be 0 or 1 by definition (not only in these data); the binomial tail is then
            exact, without the factor e.

    Returns:
        p-values in [0, 1], shape of the arguments broadcast.

    Raises:
        DataError: A mean outside [0, 1], or epsilon outside (0, 1).
    """
    from scipy.stats import binom

    mean, n, epsilon = (np.asarray(value, dtype=np.float64) for value in (mean, n, epsilon))
    _check_range(mean, 0.0, 1.0, "mean losses")
    _check_epsilon(epsilon)
    low = np.minimum(mean, epsilon)  # above epsilon Hoeffding's bound is trivial: p = 1
    some, rest = np.where(low > 0, low, 1.0), 1 - low
    divergence = np.where(low > 0, low * np.log(some / epsilon), 0.0) + rest * np.log(rest / (1 - epsilon))
    bentkus = binom.cdf(np.ceil(n * mean - _SUM_ERROR), n, epsilon)
    p = np.minimum(np.exp(-n * divergence), (1 if binary else np.e) * bentkus)
    return np.asarray(np.minimum(p, 1.0), dtype=np.float64)


def betting_p_value(losses: npt.ArrayLike, epsilon: float, *, level: float = 0.05) -> Floats:
    """Return p-values of ``E[L] >= epsilon`` for losses in [0, 1], by betting against this hypothesis.

    A gambler starts with a capital of 1 and bets part of it, before each loss, that the loss is below epsilon.  If the
    hypothesis is true, the capital is a non-negative supermartingale, so by Ville's inequality it ever reaches 1/u with
    probability at most u.  The p-value is 1 over the largest capital at any time (Waudby-Smith and Ramdas 2024,
    "Estimating means of bounded random variables by betting", section 4; Bates et al. 2021, section 3.1).

    The bets are predictable: the stake on loss i is set by losses 1 .. i-1 (their variance), n and `level` alone, and
    never exceeds the stake at which a single loss of 1 would ruin the gambler.  The order of the losses must be fixed
    without looking at them: the p-value depends on it.

    >>> betting_p_value([[0.0] * 149, [0.02] * 149], 0.02).round(3).tolist()
    [0.053, 1.0]

    Args:
        losses: Shape ``(..., n)``, in [0, 1], in the order of betting; one population or rule for each leading index.
        epsilon: The bound under test, in (0, 1).
        level: The significance level of the decision, for which the stakes are chosen; the p-value is valid for any
            value in (0, 1).

    Returns:
        p-values in (0, 1], shape ``(...)``.

    Raises:
        DataError: No losses, a loss outside [0, 1] or undefined, epsilon or level outside (0, 1).
    """
    losses = np.asarray(losses, dtype=np.float64)
    _check_range(losses, 0.0, 1.0, "losses")
    _check_epsilon(np.asarray(epsilon))
    if not 0 < level < 1:
        raise DataError(f"the level must lie between 0 and 1, both excluded, not {level!r}")
    n = losses.shape[-1]
    if n == 0:
        raise DataError("no losses: a certificate needs questions")
    return p_of_stakes(losses, stakes_on(losses, level), epsilon)


def stakes_on(losses: Floats, level: float) -> Floats:
    """Return the stakes of `betting_p_value` before the cap, shape of the losses; only the cap depends on epsilon."""
    n = losses.shape[-1]
    count = np.arange(1, n + 1) + 1
    # Running mean and variance, shrunk towards 1/2 and 1/4 as if one such loss had come before.  The stake on loss i may
    # only read losses before it, so the variances are shifted by one place.
    means = (0.5 + np.cumsum(losses, axis=-1)) / count
    variances = np.full(losses.shape, 0.25)
    variances[..., 1:] = ((0.25 + np.cumsum((losses - means) ** 2, axis=-1)) / count)[..., :-1]
    return np.asarray(np.sqrt(2 * np.log(1 / level) / (n * variances)), dtype=np.float64)


def p_of_stakes(losses: Floats, stakes: Floats, epsilon: float) -> Floats:
    """Return the p-value of `betting_p_value`, given valid losses and their stakes from `stakes_on`."""
    capped = np.minimum(stakes, _LARGEST_BET / (1 - epsilon))
    # In logarithms, because a product of thousands of factors would underflow.
    capital = np.cumsum(np.log1p(-capped * (losses - epsilon)), axis=-1).max(axis=-1)
    return np.asarray(np.exp(-np.maximum(capital, 0.0)), dtype=np.float64)


def net_p_value(losses: npt.ArrayLike, epsilon: float, *, level: float = 0.05) -> Floats:
    """Return `betting_p_value` of losses in [-1, 1], where gains are negative losses, after rescaling them to [0, 1].

    >>> import numpy as np
    >>> gains_and_losses = np.tile([0.0, -1.0, 0.0, 1.0, 0.0, -1.0, 0.0, 0.0], 50)
    >>> net_p_value(gains_and_losses, 0.02).item() < 0.05, net_p_value(-gains_and_losses, 0.02).item() < 0.05
    (True, False)

    Args:
        losses: Shape ``(..., n)``, in [-1, 1], in the order of betting.
        epsilon: The bound under test, in (0, 1).
        level: The significance level of the decision.

    Raises:
        DataError: See `betting_p_value`.
    """
    losses = np.asarray(losses, dtype=np.float64)
    _check_range(losses, -1.0, 1.0, "losses")
    _check_epsilon(np.asarray(epsilon))
    return betting_p_value((losses + 1) / 2, (epsilon + 1) / 2, level=level)


def _check_range(values: Floats, low: float, high: float, what: str) -> None:
    if np.isnan(values).any():
        raise DataError(
            f"{int(np.isnan(values).sum())} of {values.size} {what} are undefined: every question must count"
        )
    if values.size and (values.min() < low or values.max() > high):
        raise DataError(
            f"{what} must lie in [{low:g}, {high:g}], these run from {values.min():g} to {values.max():g}: rescale them"
        )


def _check_epsilon(epsilon: Floats) -> None:
    if not ((epsilon > 0) & (epsilon < 1)).all():
        raise DataError(
            f"epsilon, the largest expected loss, must lie between 0 and 1, both excluded, not {epsilon.tolist()!r}: no "
            "number of questions can show a loss of exactly 0, and every loss is at most 1"
        )
