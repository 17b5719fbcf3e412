"""Vary one threshold of a policy over a range; find the stops, answers and costs of each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffice.evaluation.replay.baselines import Run, run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.rounds import Floats, Mask, Rounds
from suffice.policy.rules import Rule, Threshold
from suffice.policy.rules.algebra import substitute
from suffice.policy.session import Policy, Stops


def even_thresholds(column: Floats, n: int = 40) -> Floats:
    """Return `n` evenly spaced values between a signal's smallest and largest value (as in TASR's repository).

    >>> import numpy as np
    >>> even_thresholds(np.array([0.0, np.nan, 1.0]), 3).tolist()
    [0.0, 0.5, 1.0]

    Args:
        column: A signal, any shape, NaN where undefined.
        n: Number of values.

    Returns:
        Shape ``(n,)``; ``(1,)`` if the signal has one value, ``(0,)`` if it is defined nowhere.
    """
    known = column[np.isfinite(column)]
    if known.size == 0:
        return np.empty(0)
    low, high = float(known.min()), float(known.max())
    return np.linspace(low, high, n) if low < high else np.array([low])


@dataclass(frozen=True, slots=True)
class Held(Rule):
    """A rule that takes the place of a threshold and fires where `mask` is True; it still declares the same signal.

    Attributes:
        name: The signal of the threshold.
        mask: True where the rule fires, shape of the rounds.
    """

    name: str
    mask: Mask
    text: str = "held"

    def fires(self, rounds: Rounds) -> Mask:
        """Return the mask."""
        del rounds
        return self.mask

    @property
    def signals(self) -> frozenset[str]:
        """The signal that the threshold compares."""
        return frozenset({self.name})

    def reads(self, rounds: Rounds, asked: Mask) -> Mapping[str, Mask]:
        """Return the rounds at which the threshold would read its signal."""
        return {self.name: rounds.seen & asked}

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """All distinct outcomes of each question as one threshold of a policy varies.

    The stop of a question can only change when the threshold passes a value that the signal has in one of the question's
    rounds.  Region j of a question contains all thresholds with exactly j of these values below them (for ``>`` and
    ``<=``, at or below them).  So one run for each region covers every threshold.

    Attributes:
        values: The signal of each question's rounds, ascending, NaN last, shape ``(n_questions, n_rounds)``.
        closed: Whether a value equal to the threshold counts as below it: for ``>`` and ``<=``.
        runs: The run of the policy in each of the ``n_rounds + 1`` regions.
    """

    values: Floats
    closed: bool
    runs: tuple[tuple[Run, Stops], ...]


def region_of(values: Floats, threshold: float, *, closed: bool) -> npt.NDArray[np.int64]:
    """Return, for each question, the region that contains a threshold, shape ``(n_questions,)``; see `Regions`."""
    below = values <= threshold if closed else values < threshold
    return np.asarray(below.sum(axis=1), dtype=np.int64)


def regions(prepared: PreparedRecording, policy: Policy, literal: Threshold) -> Regions:
    """Replay a policy once in each region of one of its thresholds."""
    view = prepared.view(policy)
    column = np.where(view.seen, view[literal.name], np.nan)
    order = np.argsort(column, axis=1, kind="stable")  # NaN last
    rank = np.argsort(order, axis=1, kind="stable")  # the rank of each round's value among those of its question
    known = ~np.isnan(column)
    upward = literal.comparison in (">", ">=")
    # In region j the threshold lies above j values: an upward comparison holds from rank j on, a downward one before it.
    runs = []
    for j in range(len(view) + 1):
        held = Held(literal.name, known & (rank >= j if upward else rank < j))
        moved = replace(policy, rule=substitute(policy.rule, literal, held))
        runs.append(run_policy(prepared, moved, label=policy.label))
    return Regions(
        values=np.take_along_axis(column, order, axis=1), closed=literal.comparison in (">", "<="), runs=tuple(runs)
    )
