"""The one idea: a rule is a value that reads columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from suffice.rounds import Mask, Rounds

__all__ = ["Rule"]


class Rule(ABC):
    """A predicate over rounds; combine rules with ``&`` and ``|``.

    The text of a rule, ``str(rule)``, is its only specification: `parse_rule(str(rule)) == rule`.
    """

    __slots__ = ()

    @abstractmethod
    def fires(self, rounds: Rounds) -> Mask:
        """Return where the rule fires, shape ``(..., n_rounds)``.

        Causal: column r reads columns 0..r only.  A comparison with an undefined signal (NaN) is False, so missing
        evidence never stops the loop.
        """

    @property
    @abstractmethod
    def signals(self) -> frozenset[str]:
        """The signals that the rule may read."""

    @abstractmethod
    def reads(self, rounds: Rounds) -> Mapping[str, Mask]:
        """Return which signals a lazy evaluation reads at which rounds, each of shape ``(..., n_rounds)``.

        Members are evaluated in order, and a member is skipped where an earlier one has settled the outcome. What a
        policy pays for judges and gates follows from this.
        """

    def held(self, rounds: Rounds) -> str:
        """Return the text of the member that holds at the last of `rounds` (one question), else the rule's own."""
        del rounds
        return str(self)

    def __and__(self, other: Rule) -> Rule:
        from suffice.rules.algebra import AllOf

        return AllOf((self, other)) if isinstance(other, Rule) else NotImplemented

    def __or__(self, other: Rule) -> Rule:
        from suffice.rules.algebra import AnyOf

        return AnyOf((self, other)) if isinstance(other, Rule) else NotImplemented

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a Rule has no truth value: combine rules with & and |, not `and` or `or`; "
            "write (a > 1) & (a < 2), not 1 < a < 2"
        )

    def __invert__(self) -> NoReturn:
        raise TypeError(
            "a Rule cannot be negated: the negation of an undefined signal would fire. Write the opposite comparison."
        )


def merge_reads(reads: list[Mapping[str, Mask]]) -> dict[str, Mask]:
    """Return the union of several `Rule.reads`."""
    merged: dict[str, Mask] = {}
    for mapping in reads:
        for name, mask in mapping.items():
            merged[name] = np.logical_or(merged[name], mask) if name in merged else mask
    return merged
