"""One threshold of a policy moved over a range: what each value stops, returns and pays."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffice.evaluation.replay.baselines import Run, run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.rounds import Floats, Mask, Rounds
from suffice.policy.rules import Rule, Threshold
from suffice.policy.rules.rethreshold import substitute, with_threshold
from suffice.policy.session import Policy, Stops, stops


def even_thresholds(column: Floats, n: int = 40) -> Floats:
    """Return `n` evenly spaced values between the smallest and the largest defined one (as TASR's repository does).

    >>> import numpy as np
    >>> even_thresholds(np.array([0.0, np.nan, 1.0]), 3).tolist()
    [0.0, 0.5, 1.0]

    Args:
        column: A signal, any shape, NaN where undefined.
        n: How many.

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
    """A threshold whose comparisons are made already: it fires where `mask` says, and reads what the threshold reads.

    Attributes:
        name: The signal of the threshold.
        mask: Where it fires, shape of the rounds.
        text: What stands for it in the text of a rule.
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
        """The signal of the threshold."""
        return frozenset({self.name})

    def reads(self, rounds: Rounds, asked: Mask) -> Mapping[str, Mask]:
        """Return what the threshold would read."""
        return {self.name: rounds.seen & asked}

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """All that one threshold of a policy can do to each question, without loss.

    A question's stop changes only where the threshold passes one of the values that its own rounds hold.  So with the
    values in ascending order, region j is all thresholds that j of them stay below (for ``>`` and ``<=``: do not
    exceed), and one run for each region says all there is.

    Attributes:
        values: The signal of each question's rounds, ascending, NaN last, shape ``(n_questions, n_rounds)``.
        closed: Whether a value equal to the threshold counts as below it: for ``>`` and ``<=``.
        runs: What the policy does in each region, ``n_rounds + 1`` of them.
    """

    values: Floats
    closed: bool
    runs: tuple[tuple[Run, Stops], ...]


def region_of(values: Floats, threshold: float, *, closed: bool) -> npt.NDArray[np.int64]:
    """Return the region of each question at a threshold, shape ``(n_questions,)``; see `Regions`."""
    below = values <= threshold if closed else values < threshold
    return np.asarray(below.sum(axis=1), dtype=np.int64)


def regions(prepared: PreparedRecording, policy: Policy, literal: Threshold) -> Regions:
    """Run a policy once in each region of one of its thresholds.

    Args:
        prepared: The recording.
        policy: What is varied.
        literal: One of the thresholds of its rule.
    """
    view = prepared.view(policy)
    column = np.where(view.seen, view[literal.name], np.nan)
    order = np.argsort(column, axis=1, kind="stable")  # NaN last
    rank = np.argsort(order, axis=1, kind="stable")  # the place of each round's value among those of its question
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


def equivalent_thresholds(policy: Policy, raw: Rounds, literal: Threshold) -> tuple[float, float]:
    """Return the interval of thresholds that stop every question where the literal's own value does.

    Between two neighbouring values of the signal nothing changes, and a rule's stops move one way as one threshold
    does; so the ends are found by bisection over the values of the signal.  For ``>`` and ``<=`` the lower end belongs
    to the interval and the upper does not, for ``>=`` and ``<`` the other way round.

    Args:
        policy: The policy.
        raw: Raw columns, shape ``(n_questions, n_rounds)``, with answers.
        literal: One of the thresholds of its rule.

    Returns:
        ``(low, high)``; infinite where no value on that side changes a stop.
    """
    view = policy.view(raw)
    column = view[literal.name]
    places = np.unique(column[np.isfinite(column) & view.seen])
    reference = stops(policy, raw).position
    upper_closed = literal.comparison in (">=", "<")

    def same(region: int) -> bool:
        """Whether a threshold between ``places[region - 1]`` and ``places[region]`` stops alike."""
        if upper_closed:
            value = places[region] if region < len(places) else np.nextafter(places[-1], np.inf)
        else:
            value = places[region - 1] if region > 0 else np.nextafter(places[0], -np.inf)
        moved = replace(policy, rule=with_threshold(policy.rule, literal, float(value)))
        return bool(np.array_equal(stops(moved, raw).position, reference))

    if len(places) == 0:
        return -np.inf, np.inf
    # Regions alike lie together around the literal's own: the first of them below it, and the first after them.
    here = int(np.searchsorted(places, literal.value, side="left" if upper_closed else "right"))
    first = bisect_left(range(here), x=True, key=same)
    last = here + bisect_left(range(here + 1, len(places) + 1), x=True, key=lambda region: not same(region))
    return (
        float(places[first - 1]) if first > 0 else -np.inf,
        float(places[last]) if last < len(places) else np.inf,
    )
