"""Numbered rules of a block, which are decoded from their numbers without creating `Rule` objects.

A rule of a block is a row of *digits*, one for each literal (0 = not in this rule, d = its d-th threshold), and for
`dnf` and `k_of_n` a *shape*: which literals are joined by ``&``, or how many must fire.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.evaluation.search.space import Block, bell
from suffice.policy.rules import AllOf, AnyOf, KOf, Rule

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCodes:
    """Rules of a block, encoded as arrays.

    Attributes:
        digits: The threshold of each literal, counted from 1; 0 if the literal is not in the rule; shape
            ``(n_rules, n_literals)``.
        labels: For `dnf`, the conjunction of each literal, counted from 1; 0 if it is not in the rule; same shape.
        votes: For `k_of_n`, the number of literals that must fire, shape ``(n_rules,)``.
    """

    digits: Ints
    labels: Bytes | None = None
    votes: Bytes | None = None


class FormFamily:
    """All rules of a block, or those with a gate, numbered from 0.

    Args:
        block: A block whose literals have their thresholds.
        gates: 0 for the family of all rules.  A number n above 0 says that the first n literals of the block are its
            gates, and selects the family of all rules with at least one gate.
    """

    def __init__(self, block: Block, gates: int = 0) -> None:
        self.block = block
        self.widths = [len(literal.thresholds) for literal in block.literals]
        self._gates = gates
        # Rules without a gate have the lowest numbers; they are skipped.
        self._first = replace(block, literals=block.literals[gates:]).count if gates else 0
        self.count = block.count - self._first

    @classmethod
    def of(cls, block: Block) -> list[FormFamily]:
        """Divide the rules of a block by start round: those with a gate start at round 0, all others at round 1.

        Gates come first in their rules, so that a lazy evaluation reads them before it needs an answer.
        """
        gates = tuple(literal for literal in block.literals if literal.is_gate)
        others = tuple(literal for literal in block.literals if not literal.is_gate)
        gated = [cls(replace(block, literals=(*gates, *others)), len(gates))] if gates else []
        return [cls(replace(block, literals=others)), *gated]

    @property
    def is_gated(self) -> bool:
        """True if the family's rules start at round 0."""
        return self._gates > 0

    @cached_property
    def _shapes(self) -> tuple[Bytes, Ints]:
        """The shapes of `dnf` and `k_of_n`, and the number of the first rule of each."""
        n = len(self.widths)
        labels = _partitions(n) if self.block.form == "dnf" else self._gates_first(_vote_shapes(n))
        widths = np.array(self.widths, dtype=np.int64)
        sizes = np.where(labels[:, :n] > 0, widths, 1).prod(axis=1)
        return labels, np.concatenate([[0], np.cumsum(sizes)[:-1]])

    @cached_property
    def _lengths(self) -> list[Ints]:
        """The text length of each literal by digit, including parentheses and the operator that joins it."""
        return [
            np.array([0, *(len(str(literal.threshold(d))) + len("() & ") for d in range(len(literal.thresholds)))])
            for literal in self.block.literals
        ]

    def _gates_first(self, columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Move the columns of gates from the end to the front, as in the order of the block."""
        n = len(self.widths)
        return np.concatenate([np.roll(columns[:, :n], self._gates, axis=1), columns[:, n:]], axis=1)

    def decode(self, numbers: Ints) -> RuleCodes:
        """Return the rules with these numbers, each in ``0..count - 1``."""
        numbers = numbers + self._first
        if self.block.form in ("or", "and"):
            radices = [1 + width for width in (*self.widths[self._gates :], *self.widths[: self._gates])]
            return RuleCodes(digits=self._gates_first(_mixed_radix(numbers + 1, radices)))
        # Rules of one shape have consecutive numbers: the shape is decoded first, then the digits of its literals.
        labels, first = self._shapes
        shape = np.searchsorted(first, numbers, side="right") - 1
        n, rest = len(self.widths), numbers - first[shape]
        chosen = labels[shape]
        digits = np.zeros((len(numbers), n), dtype=np.int64)
        for i, width in enumerate(self.widths):
            present = chosen[:, i] > 0
            if width == 1:
                digits[:, i] = present
                continue
            digits[:, i] = np.where(present, 1 + rest % width, 0)
            rest = np.where(present, rest // width, rest)
        if self.block.form == "dnf":
            return RuleCodes(digits=digits, labels=chosen)
        return RuleCodes(digits=digits, votes=chosen[:, n])

    def sizes(self, codes: RuleCodes) -> Ints:
        """Return the text length of each rule's literals, to find the shortest of several rules."""
        total = np.zeros(len(codes.digits), dtype=np.int64)
        for i, lengths in enumerate(self._lengths):
            total += lengths[codes.digits[:, i]]
        return total

    def rule(self, codes: RuleCodes, row: int) -> Rule:
        """Convert one of the rules to a `Rule`."""
        digits = codes.digits[row].tolist()
        members: list[Rule] = [
            literal.threshold(d - 1) for literal, d in zip(self.block.literals, digits, strict=True) if d
        ]
        if len(members) == 1:
            return members[0]
        if self.block.form == "and":
            return AllOf(tuple(members))
        if codes.votes is not None:
            return KOf(int(codes.votes[row]), tuple(members))
        if codes.labels is None:
            return AnyOf(tuple(members))
        labels = [label for label in codes.labels[row].tolist() if label]
        joined: list[Rule] = []
        for label in dict.fromkeys(labels):
            part = tuple(member for member, of in zip(members, labels, strict=True) if of == label)
            joined.append(part[0] if len(part) == 1 else AllOf(part))
        return joined[0] if len(joined) == 1 else AnyOf(tuple(joined))


def _mixed_radix(numbers: Ints, radices: list[int]) -> Ints:
    digits = np.empty((len(numbers), len(radices)), dtype=np.int64)
    rest = numbers
    for i, radix in enumerate(radices):
        rest, digits[:, i] = np.divmod(rest, radix)
    return digits


@lru_cache(maxsize=4)
def _partitions(n: int) -> Bytes:
    """Return every set partition of every non-empty subset of n things, shape ``(bell(n + 1) - 1, n)``.

    Each thing gets the label 0 (left out), one of the labels so far, or the next new one.
    """
    rows, highest = np.zeros((1, 0), dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    # Each pass extends every row by all of its possible next labels at once, so the loop runs over things, not
    # partitions.
    for _ in range(n):
        children = highest.astype(np.int64) + 2  # 0, 1..highest, highest + 1
        parent = np.repeat(np.arange(len(rows)), children)
        label = (np.arange(len(parent)) - np.repeat(np.cumsum(children) - children, children)).astype(np.uint8)
        rows = np.column_stack([rows[parent], label])
        highest = np.maximum(highest[parent], label)
    assert len(rows) == bell(n + 1)
    return rows[1:]


@lru_cache(maxsize=4)
def _vote_shapes(n: int) -> Bytes:
    """Return all pairs of a non-empty subset of n things and a k up to its size; the last column holds k."""
    subsets = _mixed_radix(np.arange(1, prod([2] * n)), [2] * n).astype(np.uint8)
    sizes = subsets.sum(axis=1, dtype=np.int64)
    parent = np.repeat(np.arange(len(subsets)), sizes)
    # k counts from 1 within each subset: the position of the row less that of the subset's first row.
    k = np.arange(len(parent)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    return np.column_stack([subsets[parent], k.astype(np.uint8)])
