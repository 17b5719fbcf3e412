"""The fallback procedure: candidates share the risk of false advice, and a proved candidate passes on its risk to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_FIRST = 0.8
"""The first candidate's share of the risk; see docs/results/procedures.md."""

_PARTS = 10**12
"""The parts of the risk that a share is a number of, so that files hold it exactly."""


@dataclass(frozen=True, slots=True)
class CandidateTest:
    """The test of one candidate.

    Attributes:
        level: The risk at which the candidate is tested.
    """

    place: int
    level: float
    passed: bool


def risk_shares(n: int) -> tuple[float, ...]:
    """Divide the risk among n candidates in the order of their tests: four fifths to the first, the rest evenly.

    >>> risk_shares(1), risk_shares(3)
    ((1.0,), (0.8, 0.1, 0.1))
    """
    # Rounded down: rounded up, the shares would add up to more than the risk.
    share = round((1 - _FIRST) * _PARTS) // max(n - 1, 1) / _PARTS
    return (1.0 if n == 1 else _FIRST, *[share] * (n - 1))[:n]


def fallback(
    sequence: Sequence[int], shares: Sequence[float], alpha: float, is_shown: Callable[[int, float], bool]
) -> list[CandidateTest]:
    """Test candidates in order; each has its own share of the risk, plus the risk that the previous candidate passes on.

    A proved candidate passes on its whole level; any other candidate passes on nothing.  The probability of any false
    proof is at most `alpha`, however the tests depend on each other. In a stretch of consecutive proved candidates, the
    first false proof occurs at a level of at most the sum of the shares of the stretch, and the shares of all stretches
    add up to at most `alpha` (Wiens 2003, "A fixed sequence Bonferroni procedure for testing multiple endpoints"; Wiens
    and Dmitrienko 2005).  With the whole risk on the first candidate, this is the fixed-sequence test, in which one
    unproved candidate blocks all later ones.

    >>> shown = {7: 0.01, 4: 0.2, 5: 0.001}
    >>> [(test.place, round(test.level, 4), test.passed) for test in fallback([7, 4, 5], risk_shares(3), 0.05, lambda place, level: shown[place] <= level)]
    [(7, 0.04, True), (4, 0.045, False), (5, 0.005, True)]

    Args:
        sequence: Positions of the candidates, in the order of their tests.
        shares: Their shares of the risk; these add up to at most 1.
        alpha: The risk of any false proof.
        is_shown: A function that returns True if the evidence on a candidate is enough at a level, which may be 0.
    """
    done, passed_on = [], 0.0
    for place, share in zip(sequence, shares, strict=True):
        level = min(alpha * share + passed_on, alpha)
        test = CandidateTest(place, level, is_shown(place, level))
        passed_on = level if test.passed else 0.0
        done.append(test)
    return done


def fewest(
    done: Sequence[CandidateTest],
    shares: Sequence[float],
    alpha: float,
    place: int,
    more: Callable[[int, float], int | None],
) -> int | None:
    """Return the smallest number of further questions that would prove a candidate, alone or together with candidates just before it.

    Args:
        done: The present tests of all candidates.
        shares: See `fallback`.
        alpha: See `fallback`.
        place: The candidate to prove.
        more: A function that estimates how many further questions would prove a candidate at a level, which may be
            above the candidate's present level. It returns 0 if the evidence is already enough at that level, None if
            no number would be enough.
    """
    at = next(number for number, test in enumerate(done) if test.place == place)
    if done[at].passed:
        return None
    numbers: list[int] = []
    for first in range(at + 1):
        level, most = (done[first - 1].level if first and done[first - 1].passed else 0.0), 0
        for test, share in zip(done[first : at + 1], shares[first : at + 1], strict=True):
            level = min(level + alpha * share, alpha)
            needed = 0 if test.passed else more(test.place, level)
            if needed is None:
                break
            most = max(most, needed)
        else:
            numbers.append(most)
    return min(numbers, default=None)
