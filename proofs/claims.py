"""What a claim is, and what became of one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from proofs.solver import Refuted

__all__ = ["Claim", "Method", "Verdict", "demand", "settle"]

Method = Literal["proved for all", "up to a bound", "tested"]


@dataclass(frozen=True)
class Claim:
    """Something that is said to hold.

    Attributes:
        name: The claim, in words.
        method: How it is known: by a proof over every case, by one over every case up to a bound, or by examples.
        scope: Over what: what ranges freely, and the bounds.
        check: Raises `Refuted`, or any other error, where it does not hold.
    """

    name: str
    method: Method
    scope: str
    check: Callable[[], None]


def demand(held: bool, what: str) -> None:
    """Go on if `held`.

    Raises:
        Refuted: Not so.
    """
    if not held:
        raise Refuted(what)


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        claim: The claim.
        failure: Why it does not hold; None if it does.
        seconds: How long that took.
    """

    claim: Claim
    failure: str | None
    seconds: float

    @property
    def status(self) -> str:
        """``holds`` or ``FAILS``."""
        return "holds" if self.failure is None else "FAILS"


def settle(claim: Claim) -> Verdict:
    """Check a claim; whatever goes wrong meanwhile counts against it."""
    began = time.perf_counter()
    failure = None
    try:
        claim.check()
    except Refuted as refuted:
        failure = str(refuted)
    except Exception as error:  # noqa: BLE001 - a proof that breaks proves nothing
        failure = f"{type(error).__name__}: {error}"
    return Verdict(claim, failure, time.perf_counter() - began)
