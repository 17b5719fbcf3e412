"""An attack: a claim with its nominal rate, and one run after another in which the claim is true or false."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

LEVEL = 0.05
"""The risk that any bound of a table misses the rate of its attack."""

SHOWING = 3
"""Runs that can show a claim to fail: two of two that are false are still compatible with 5 % at the level of all attacks."""

HOLDS, REFUSED, WARNS, FAILS = "holds", "refused", "warns", "FAILS"


@dataclass(frozen=True, slots=True)
class Shot:
    """What came of one run of an attack.

    Attributes:
        false: Whether what was said is false.
        refused: Whether nothing was said, because the product refused the input.
        said: What was said, in which a warning is looked for.
    """

    false: bool
    refused: bool = False
    said: str = ""


Run = Callable[[np.random.Generator], Shot | None]
"""One run of an attack; None where the claim was not made, as an interval beside advice that was not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack.

    Attributes:
        name: Its name on the command line.
        item: The part of the product whose claim it is.
        claim: What is claimed, and against what it is tested.
        nominal: The rate at which the claim may be false.
        repetitions: How often it is run.
        run: One run.
        warning: Words that a reader is told where the claim may be false; empty if nothing excuses it.
        exact: Whether the claim must not be false less often, either: a risk that is far too small costs power.
    """

    name: str
    item: str
    claim: str
    nominal: float
    repetitions: int
    run: Run
    warning: str = ""
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Withstood:
    """How an attack ended.

    Attributes:
        attack: The attack.
        n: Runs in which the claim was made, or refused.
        n_false: Runs in which it was false.
        n_refused: Runs in which the product refused.
        n_warned: False runs in which the warning was given.
        low: Lower bound of the rate, simultaneous over all attacks.
        low_unwarned: The same of the rate of false runs without the warning.
        high: Upper bound of the rate, simultaneous over all attacks.
        said: What was said in the last run.
    """

    attack: Attack
    n: int
    n_false: int
    n_refused: int
    n_warned: int
    low: float
    low_unwarned: float
    high: float
    said: str

    @property
    def rate(self) -> float:
        """The measured rate; 0 if the claim was never made."""
        return self.n_false / max(self.n, 1)

    @property
    def verdict(self) -> str:
        """Whether the claim holds, was refused, came with a warning, or fails."""
        if self.n_refused == self.n > 0:
            return REFUSED
        nominal = self.attack.nominal
        if self.low <= nominal and (not self.attack.exact or nominal <= self.high):
            return HOLDS
        return WARNS if self.n_warned and self.low_unwarned <= nominal else FAILS


def bounds(n_false: int, n: int, level: float) -> tuple[float, float]:
    """Return the exact bounds of a share (Clopper and Pearson 1934), each wrong with a risk of half of `level`.

    >>> [round(end, 3) for end in bounds(0, 100, 0.05)]
    [0.0, 0.036]
    """
    low = float(beta.ppf(level / 2, n_false, n - n_false + 1)) if n_false else 0.0
    high = float(beta.ppf(1 - level / 2, n_false + 1, n - n_false)) if n_false < n else 1.0
    return low, high


def withstood(attack: Attack, seed: int, *, share: float = 1.0, n_attacks: int = 1) -> Withstood:
    """Run an attack.

    Args:
        attack: The attack.
        seed: Seed of its runs; each run has a generator of its own.
        share: Share of the repetitions.
        n_attacks: Number of attacks that the bounds hold for together.
    """
    repetitions = round(share * attack.repetitions)
    if repetitions < SHOWING:
        repetitions = 1  # which shows as much: that the attack runs, and whether what may never be false is
    name = int.from_bytes(attack.name.encode()[:16], "big")
    seeds = np.random.SeedSequence([seed, name]).spawn(repetitions)
    shots = [shot for one in seeds if (shot := attack.run(np.random.default_rng(one))) is not None]
    n_false = sum(shot.false for shot in shots)
    level = LEVEL / n_attacks
    low, high = bounds(n_false, len(shots), level)
    n_warned = sum(shot.false and bool(attack.warning) and attack.warning in shot.said for shot in shots)
    return Withstood(
        attack=attack,
        n=len(shots),
        n_false=n_false,
        n_refused=sum(shot.refused for shot in shots),
        n_warned=n_warned,
        low=low,
        low_unwarned=bounds(n_false - n_warned, len(shots), level)[0],
        high=high,
        said=_shown(shots),
    )


def _shown(shots: Sequence[Shot]) -> str:
    """Return what a false run said; without one, what the last run said."""
    false = [shot.said for shot in shots if shot.false]
    return (false or [shot.said for shot in shots] or [""])[-1]
