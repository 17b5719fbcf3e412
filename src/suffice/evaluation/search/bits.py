"""Rounds at which rules fire, as bits: one integer per rule and question, with bit r set if the rule fires at round r.

The integer is a byte for up to eight rounds, otherwise wider.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.search.families import FormFamily, RuleCodes
from suffice.evaluation.search.space import Literal
from suffice.policy.rounds import Mask, Rounds

Bits = npt.NDArray[Any]
"""Packed rounds, unsigned integers of 8 to 64 bits, shape ``(n_rules, n_questions)``."""

_WIDTHS = ((8, np.uint8), (16, np.uint16), (32, np.uint32), (64, np.uint64))
_FIRST = np.array([8, *((byte & -byte).bit_length() - 1 for byte in range(1, 256))], dtype=np.uint8)
_TABLE_ROWS = 4096
"""Most rows of a table of combined literals: with 300 questions it fits into the processor's cache."""


def pack_bits(fires: Mask) -> Bits:
    """Pack the rounds of a mask into integers, shape ``(..., n_rounds)`` to ``(...)``; the first round is the lowest bit.

    >>> pack_bits(np.array([[False, True, True], [False, False, False]])).tolist()
    [6, 0]
    """
    width = fires.shape[-1]
    dtype = next((dtype for most, dtype in _WIDTHS if width <= most), None)
    if dtype is None:
        raise DataError(f"a search packs at most 64 rounds, and these are {width}: search with a smaller max_rounds")
    packed: Bits = np.zeros(fires.shape[:-1], dtype=dtype)
    for r in range(width):
        packed[fires[..., r]] |= dtype(1 << r)
    return packed


def first_bit(bits: Bits, none: int, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """Return the position of the lowest set bit; `none` if no bit is set.

    >>> first_bit(np.array([6, 1, 0], dtype=np.uint8), 5).tolist()
    [1, 0, 5]
    """
    if bits.dtype == np.uint8:
        table = np.where(np.arange(256) == 0, none, _FIRST).astype(dtype)
        return table.take(bits)
    lowest = bits & (~bits + bits.dtype.type(1))  # x & -x keeps the lowest set bit
    position = np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1  # a power of two is exact
    return np.where(bits == 0, none, position).astype(dtype, copy=False)


def in_a_row(bits: Bits, n: int) -> Bits:
    """Return the rounds at which a rule has fired in each of the last `n` rounds (`Patience`).

    >>> in_a_row(np.array([0b10110], dtype=np.uint8), 2).tolist() == [0b00100]
    True
    """
    fires = bits.copy()
    for back in range(1, n):
        fires &= bits << bits.dtype.type(back) if back < 8 * bits.itemsize else bits.dtype.type(0)
    return fires


class LiteralBits:
    """The rounds at which the literals of a block fire, as bits.

    Args:
        literals: The literals, with their thresholds.
        view: The signals that they read, shape ``(n_questions, n_rounds)``.

    Attributes:
        rows: The bits of each literal, one row per threshold, shape ``(1 + n_thresholds, n_questions)``; row 0 never
            fires.
    """

    def __init__(self, literals: tuple[Literal, ...], view: Rounds) -> None:
        self.n_questions = view.shape[0]
        self.never: Bits = pack_bits(np.zeros((1, *view.shape), dtype=np.bool_))
        self.rows: list[Bits] = []
        for literal in literals:
            fired = [pack_bits(literal.threshold(d).fires(view) & view.seen) for d in range(len(literal.thresholds))]
            self.rows.append(np.concatenate([self.never, *(row[None] for row in fired)]))

    def tables(self, neutral: Bits, join: Callable[[Bits, Bits], Bits]) -> list[tuple[slice, list[int], Bits]]:
        """Return tables of all combinations of neighbouring literals, with as many literals per table as fit in memory.

        Args:
            neutral: The bits of an absent literal, shape ``(1, n_questions)``.
            join: The bitwise operation that joins literals.

        Returns:
            For each table: its literals, the row stride of each literal (1 for the first), and the bits.
        """
        tables: list[tuple[slice, list[int], Bits]] = []
        start = 0
        while start < len(self.rows):
            table, stop, places = neutral, start, list[int]()
            while stop < len(self.rows) and (stop == start or len(table) * len(self.rows[stop]) <= _TABLE_ROWS):
                options = np.concatenate([neutral, self.rows[stop][1:]])
                places.append(len(table))
                table = join(options[:, None], table[None]).reshape(-1, self.n_questions)
                stop += 1
            tables.append((slice(start, stop), places, table))
            start = stop
        return tables


def evaluator(family: FormFamily, view: Rounds) -> Callable[[RuleCodes], Bits]:
    """Return a function that maps a family's rules to the rounds where they fire, as bits, ``(n_rules, n_questions)``.

    Args:
        family: The family.
        view: The signals that its literals read, shape ``(n_questions, n_rounds)``.
    """
    literals = LiteralBits(family.block.literals, view)
    if family.block.form == "k_of_n":
        return lambda codes: _fires_by_votes(literals, codes)
    if family.block.form == "or":
        either = literals.tables(literals.never, np.bitwise_or)
        return lambda codes: _joined(either, codes.digits, np.bitwise_or)
    both = literals.tables(~literals.never, np.bitwise_and)
    if family.block.form == "and":
        return lambda codes: _joined(both, codes.digits, np.bitwise_and)
    return lambda codes: _normal_form(both, codes)


def reader(family: FormFamily, view: Rounds) -> Callable[[RuleCodes], list[Bits]]:
    """Return a function that maps rules to the rounds at which they read each literal, as bits.

    As in `Rule.reads`, literals are evaluated in order and skipped once the outcome of the round is settled.

    Args:
        family: The family.
        view: The signals that its literals read, shape ``(n_questions, n_rounds)``.

    Returns:
        A function that returns bits of shape ``(n_rules, n_questions)`` for each literal.
    """
    literals = LiteralBits(family.block.literals, view)

    def read(codes: RuleCodes) -> list[Bits]:
        present = codes.digits > 0
        if codes.labels is None:
            k = {"or": np.ones(len(present)), "and": present.sum(axis=1)}.get(family.block.form, codes.votes)
            assert k is not None
            return _in_order(literals, codes.digits, present, k)[0]
        settled = np.repeat(literals.never, len(present), axis=0)
        every: list[Bits] = [settled] * len(literals.rows)
        for label in range(1, int(codes.labels.max(initial=1)) + 1):
            term = codes.labels == label
            reads, holds = _in_order(literals, codes.digits, term, term.sum(axis=1))
            every = [earlier | read_here & ~settled for earlier, read_here in zip(every, reads, strict=True)]
            settled = settled | np.where(term.any(axis=1)[:, None], holds, literals.never)
        return every

    return read


def _in_order(
    literals: LiteralBits, digits: npt.NDArray[np.int64], member: Mask, k: npt.NDArray[Any]
) -> tuple[list[Bits], Bits]:
    """Evaluate the literals of each rule in order; a rule holds in a round if at least `k` of its literals fire.

    Return, as bits, the rounds at which each literal is evaluated, and the rounds at which the rule holds.  A literal is
    not evaluated in a round where the earlier ones have already decided.
    """
    least, open_members, rules = k.astype(np.int64), member.sum(axis=1), np.arange(len(digits))
    # fired[j] has the rounds at which at least j of the members so far have fired.
    fired = np.zeros((int(least.max(initial=0)) + 1, len(digits), literals.n_questions), dtype=literals.never.dtype)
    fired[0] = ~fired[0]
    reads: list[Bits] = []
    for i, rows in enumerate(literals.rows):
        here = member[:, i]
        # A member is read only while the outcome is open: not yet enough votes, and enough members left.
        comes = ~fired[least, rules] & fired[np.maximum(least - open_members, 0), rules]
        comes[~here] = 0
        reads.append(comes)
        fires = rows.take(np.where(here, digits[:, i], 0), axis=0)
        for j in range(len(fired) - 1, 0, -1):
            fired[j] |= fired[j - 1] & fires
        open_members = open_members - here
    return reads, fired[least, rules]


def _joined(
    tables: list[tuple[slice, list[int], Bits]],
    digits: npt.NDArray[np.int64],
    join: Callable[[Bits, Bits], Bits],
) -> Bits:
    looked_up = (table.take(digits[:, part] @ np.array(places), axis=0) for part, places, table in tables)
    return reduce(join, looked_up)


def _normal_form(tables: list[tuple[slice, list[int], Bits]], codes: RuleCodes) -> Bits:
    assert codes.labels is not None
    fires: Bits | None = None
    for label in range(1, int(codes.labels.max(initial=1)) + 1):
        member = codes.labels == label
        term = _joined(tables, np.where(member, codes.digits, 0), np.bitwise_and)
        term[~member.any(axis=1)] = 0  # an empty conjunction would always hold
        fires = term if fires is None else fires | term
    assert fires is not None
    return fires


def _fires_by_votes(literals: LiteralBits, codes: RuleCodes) -> Bits:
    assert codes.votes is not None
    # at_least[k] has the rounds in which more than k of the literals so far fired: a bitwise counter for all rules at
    # once.
    most = int(codes.votes.max(initial=1))
    shape = (len(codes.digits), literals.n_questions)
    at_least = [np.zeros(shape, dtype=literals.never.dtype) for _ in range(most)]
    for i, rows in enumerate(literals.rows):
        fired = rows.take(codes.digits[:, i], axis=0)
        for k in range(most - 1, 0, -1):
            at_least[k] |= at_least[k - 1] & fired
        at_least[0] |= fired
    return np.stack(at_least)[codes.votes.astype(np.int64) - 1, np.arange(shape[0])]
