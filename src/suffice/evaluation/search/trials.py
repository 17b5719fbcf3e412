"""Trial answers of chains of thought in a search: rules with the same stops may pay for different ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from suffice.evaluation.replay.charging import read_from
from suffice.evaluation.replay.costs import TOKEN_KINDS
from suffice.evaluation.replay.outcomes import answers_by_stop
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.search.bits import Bits, pack_bits
from suffice.evaluation.statistics import Keys, keyed_numbers
from suffice.policy.rounds import Floats, Positions, Rounds
from suffice.policy.rules.selectors import Last
from suffice.policy.session import Policy
from suffice.policy.signals import TRIAL

_AT_ONCE = 4
"""Rounds whose costs are added up by one look-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCosts:
    """The trial answers of some chains of thought, charged as in `suffice.evaluation.replay.charging.LIVE`.

    Attributes:
        costs: Calls and tokens of each trial, by name, shape ``(n_questions, n_rounds)``.
        returned: Bits of the trials that a stop at each round pays for in order to return an answer, same shape.
        seen: Bits of the rounds of each question, shape ``(n_questions,)``.
        index: The index of each round.
        needed: For each signal that a trial measures, its first round and the number of rounds that it looks back.
    """

    costs: Mapping[str, Floats]
    returned: Bits
    seen: Bits
    index: npt.NDArray[np.int64]
    needed: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, prepared: PreparedRecording, view: Rounds, policy: Policy) -> Self:
        """Return the trials of recorded chains.

        Args:
            prepared: The recording.
            view: The recorded rounds from the policy's first round on.
            policy: A policy with the fitted state, whose rule reads every signal of the search.
        """
        costs = prepared.costs
        tokens = sum(costs.columns[TRIAL][kind] for kind in TOKEN_KINDS)
        calls = costs.call_columns.get(TRIAL, np.zeros(costs.seen.shape))
        place, answer = np.arange(len(view)), answers_by_stop(Last(), view)[:, :, None]
        from_answer = (place >= answer) & (place <= place[:, None]) & view.seen[:, None, :]
        readings = {name: read_from(name, policy, costs) for name in policy.rule.signals}
        return cls(
            costs={"calls": prepared.in_view(calls, view), "tokens": prepared.in_view(np.asarray(tokens), view)},
            returned=pack_bits(from_answer),
            seen=pack_bits(view.seen),
            index=view.index,
            needed={name: (first, back) for name, (component, first, back) in readings.items() if component == TRIAL},
        )

    def rows(self, rows: Positions) -> TrialCosts:
        """Return the trials of some of the questions."""
        costs = {name: column[rows] for name, column in self.costs.items()}
        return replace(self, costs=costs, returned=self.returned[rows], seen=self.seen[rows])

    def paid(self, reads: Iterable[tuple[str, Bits]], stops: Positions) -> Bits:
        """Return the trials that rules pay for, as bits of shape ``(n_rules, n_questions)``.

        Args:
            reads: Pairs of a signal and the rounds at which the rules read it, as bits of the same shape.
            stops: The positions at which the rules stop, same shape.
        """
        dtype, width = self.returned.dtype.type, len(self.index)
        up_to = np.array([(2 << stop) - 1 for stop in range(width)], dtype=dtype)
        visited = up_to.take(stops) & self.seen
        paid: Bits = np.ravel(self.returned).take(stops + width * np.arange(len(self.seen)))
        for name, bits in reads:
            if name in self.needed:
                first, back = self.needed[name]
                read = bits & visited & pack_bits(self.index >= first)
                for step in range(min(back, width - 1) + 1):
                    paid |= read >> dtype(step)
        return paid

    def total(self, name: str, paid: Bits) -> Floats:
        """Return the calls or tokens of paid trials, of the shape of `paid`."""
        return _sum_of_bits(self.costs[name], paid)

    def hashes(self, paid: Bits, keys: Keys, seed: int) -> npt.NDArray[np.uint64]:
        """Return a hash of the paid trials, of the shape of `paid`; trials that cost nothing do not count."""
        numbers = keyed_numbers(keys, len(self.index), seed=seed)
        free = (self.costs["calls"] == 0) & (self.costs["tokens"] == 0)
        return _sum_of_bits(np.where(free, np.uint64(0), numbers), paid)


def _sum_of_bits(values: npt.NDArray[Any], bits: Bits) -> npt.NDArray[Any]:
    """Return the sum of the values at the set bits.

    >>> _sum_of_bits(np.array([[1.0, 2.0, 4.0]]), np.array([[0b101], [0b000]], dtype=np.uint8)).tolist()
    [[5.0], [0.0]]

    Args:
        values: Shape ``(n_questions, n_rounds)``.
        bits: Shape ``(n_rules, n_questions)``.
    """
    n, width = values.shape
    total = np.zeros(bits.shape, dtype=values.dtype)
    combinations = np.arange(1 << _AT_ONCE)
    row = len(combinations) * np.arange(n)
    for begin in range(0, width, _AT_ONCE):
        table = np.zeros((n, len(combinations)), dtype=values.dtype)
        for r in range(begin, min(begin + _AT_ONCE, width)):
            table += np.where(combinations >> (r - begin) & 1, values[:, [r]], values.dtype.type(0))
        at = (bits >> bits.dtype.type(begin) & bits.dtype.type(len(combinations) - 1)).astype(np.int64)
        total += table.ravel().take(at + row)
    return total
