"""A trial: the declaration made before the verdict, and the evidence so far; more questions can be added at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from suffice.common.results import jsonable
from suffice.errors import SchemaError
from suffice.policy.rounds import Floats, Mask
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.verdicts.decisions.answer_counts import AnswerCounts
from suffice.verdicts.decisions.candidates import is_fixed_budget
from suffice.verdicts.decisions.losses import SAVABLE, Measured
from suffice.verdicts.decisions.same_loop import LoopStops
from suffice.verdicts.decisions.wealth import Wealth

_Z = 1.959964  # two-sided 95 %
_ONE_SIDED_Z = 1.644854
_PLAIN = ("metric", "max_loss", "alpha", "cost", "baseline", "leave_out_failed", "prices")
"""Attributes of a trial that are stored in JSON unchanged."""
_SUMS = ("losses", "open", "squares", "values", "twins", "gains", "squared_gains")
"""Attributes of totals that are sums over units."""
_SLACK = 1e-12  # means are sums in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the units of the verdict part; the baseline is the last row of all but the losses.

    Attributes:
        n: Units.
        n_recorded: Units with a row that did not fail: quality and costs are means over these.
        losses: Sum of the largest possible losses, shape ``(n_candidates,)``.
        open: The part of that sum in which something is unknown, same shape.
        squares: Sum of the squares of the largest, same shape.
        values: Sum of the metric, shape ``(n_candidates + 1,)``.
        costs: Sums by name in `SAVABLE`, same shape; NaN where some were unknown.
        twins: Sum of the metric of the random twins, shape ``(n_candidates,)``; NaN where there are none.
        gains: Sum of the smallest possible gains over them, same shape.
        squared_gains: Sum of the squares of these, same shape.
        squared: Sum of the squares of the baseline's metric.
        unknown: Units in which an outcome is unknown under some candidate.
        failed: Units in which a recording failed.
        unexplained: Units in which nothing says why there are fewer rounds than in others.
    """

    n: int
    n_recorded: int
    losses: Floats
    open: Floats
    squares: Floats
    values: Floats
    costs: Mapping[str, Floats]
    twins: Floats
    gains: Floats
    squared_gains: Floats
    squared: float = 0.0
    unknown: int = 0
    failed: int = 0
    unexplained: int = 0

    @classmethod
    def start(cls, n_candidates: int) -> Totals:
        """Return the sums of nothing."""
        zeros = np.zeros(n_candidates + 1)
        sums: dict[str, Any] = dict.fromkeys(
            ("losses", "open", "squares", "twins", "gains", "squared_gains"), zeros[1:]
        )
        return cls(n=0, n_recorded=0, values=zeros, costs=dict.fromkeys(SAVABLE, zeros), **sums)

    def plus(self, units: Measured) -> Totals:
        """Return the sums with further units."""
        return Totals(
            n=self.n + units.n,
            n_recorded=self.n_recorded + units.n_recorded,
            losses=self.losses + units.worst.sum(axis=-1),
            open=self.open + (units.worst * (units.worst != units.best)).sum(axis=-1),
            squares=self.squares + (units.worst**2).sum(axis=-1),
            values=self.values + units.values,
            costs={name: self.costs[name] + units.costs[name] for name in SAVABLE},
            twins=self.twins + units.twins,
            gains=self.gains + units.gains,
            squared_gains=self.squared_gains + units.squared_gains,
            squared=self.squared + units.squared,
            unknown=self.unknown + int(units.unknown.sum()),
            failed=self.failed + int(units.failed.sum()),
            unexplained=self.unexplained + int(units.unexplained.sum()),
        )

    def blocked(self, max_loss: float) -> Mask:
        """Return a mask of the candidates that no number of such units could prove, shape ``(n_candidates,)``.

        The unknown outcomes alone may lose more than `max_loss`, and the known ones do not make up for that.
        """
        blocked: Mask = np.minimum(self.open, self.losses) > self.n * max_loss
        return blocked

    @property
    def constant(self) -> float | None:
        """The score, if the answers of the baseline and of all candidates score the same in every unit; else None."""
        if self.n < 2 or self.squares.any():  # noqa: PLR2004 - one value varies from nothing
            return None
        mean = float(self.values[-1] / self.n_recorded)
        return mean if abs(self.squared / self.n_recorded - mean**2) < _SLACK else None

    @property
    def never_varied(self) -> bool:
        """True if no candidate lost or gained anything in any unit."""
        return self.n > 1 and not self.squares.any()

    def saving(self, cost: str) -> Floats:
        """Return the share of a cost that each candidate saves, shape ``(n_candidates,)``; NaN where unknown."""
        spent = self.costs[cost]
        return 1 - spent[:-1] / spent[-1] if spent[-1] else np.full(len(spent) - 1, np.nan)

    def interval(self) -> tuple[Floats, Floats, Floats]:
        """Return mean losses and the ends of their normal 95 % intervals, NaN for fewer than two units.

        They are only for information: valid in large samples whose size was fixed beforehand.  The verdict rests on the
            wealth.
        """
        return _normal_interval(self.losses, self.squares, self.n)

    def gain_interval(self) -> tuple[Floats, Floats, Floats]:
        """Return mean gains over the random twins and the ends of their intervals, as `interval` does; NaN without one."""
        return _normal_interval(self.gains, self.squared_gains, self.n_recorded)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; an unknown cost is None."""
        costs = {name: None if np.isnan(sums).any() else sums.tolist() for name, sums in self.costs.items()}
        sums = {name: jsonable(getattr(self, name).tolist()) for name in _SUMS}
        counts = {"n": self.n, "squared": self.squared, "unknown": self.unknown, "failed": self.failed}
        counts["unexplained"] = self.unexplained
        if self.n_recorded != self.n - self.failed:  # some rows of a question failed, and others did not
            counts["n_recorded"] = self.n_recorded
        return {**counts, **sums, "costs": costs}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Totals:
        """Return the sums that `to_dict` wrote."""
        numbers: dict[str, Any] = {name: int(data[name]) for name in ("n", "unknown", "failed")}
        numbers["unexplained"] = int(data.get("unexplained", 0))  # decisions from before 0.4 have none
        numbers["n_recorded"] = int(data.get("n_recorded", numbers["n"] - numbers["failed"]))
        sums: dict[str, Any] = {name: np.asarray(data[name], dtype=np.float64) for name in _SUMS}
        nothing_known = np.full(sums["values"].shape, np.nan)
        costs = {
            name: nothing_known if known is None else np.asarray(known, dtype=np.float64)
            for name, known in data["costs"].items()
        }
        return cls(**numbers, **sums, squared=float(data["squared"]), costs=costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A declared comparison: metric and largest loss, candidates in their order, and the evidence for and against each.

    Attributes:
        metric: The metric that must not be lost, see `suffice.evaluation.replay.outcome`.
        max_loss: The largest mean loss against the baseline that one would accept, in (0, 1), unit of the metric.
        alpha: The risk of advice whose true loss is larger, in (0, 1).
        cost: The cost to save, one of `SAVABLE`.
        baseline: `recorded`, or the text of a rule.
        loop: The stops of the logged loop.
        candidates: All policies that may be advised.
        sequence: Places of the candidates that are tested, from conservative to cheap, as tune questions order them.
        tune: The questions that fixed candidates and sequence; the verdict never counts them.
        counted: The questions that the evidence is made of; each counts once, whenever it returns.
        marks: Hashes of answers and scores of both kinds of questions, see `fingerprints`.
        below: The evidence that a candidate loses less than `max_loss`.
        above: The evidence that it loses more.
        totals: Sums behind the figures.
        leave_out_failed: Whether questions whose recording failed are left out; otherwise they count as lost.
        prices: What tokens cost, see `prices_text`; empty if that is unknown.
        orders: Of independent samples, over how many random orders a loss is averaged; 1 is the stored order.
        answers: Counts of the answers behind the metric; None in a file of a release that did not count them.
        notes: Notes on the declaration.
    """

    metric: str
    max_loss: float
    alpha: float
    cost: str
    baseline: str
    loop: LoopStops
    candidates: tuple[Policy, ...]
    sequence: tuple[int, ...]
    tune: Seen
    below: Wealth
    above: Wealth
    totals: Totals
    counted: Seen = field(default_factory=Seen)
    marks: Mapping[str, str] = field(default_factory=dict)
    leave_out_failed: bool = False
    prices: str = ""
    orders: int = 1
    notes: tuple[str, ...] = ()
    answers: AnswerCounts | None = None

    @classmethod
    def declare(
        cls,
        candidates: Sequence[Policy],
        on_tune: Measured,
        *,
        max_loss: float,
        cost: str,
        **fields: Any,
    ) -> Trial:
        """Declare a trial without evidence; tune questions decide the order of the candidates.

        Args:
            candidates: At least one.
            on_tune: Losses and costs of candidates and baseline on tune questions.
            max_loss: See the class.
            cost: See the class.
            fields: The other attributes of the declaration.
        """
        spent = on_tune.costs[cost] / on_tune.n
        # Few questions say little about a mean.  A candidate that changes few answers is proved sooner than one that
        # changes many and happened to gain here, so candidates are ordered by how much each may lose.
        losses = on_tune.worst
        may_lose = losses.mean(axis=-1) + _ONE_SIDED_Z * losses.std(axis=-1) / np.sqrt(on_tune.n)
        return cls(
            candidates=tuple(candidates),
            sequence=frontier(may_lose, spent[:-1], float(spent[-1])),
            max_loss=max_loss,
            cost=cost,
            below=Wealth.start(max_loss, "below", len(candidates)),
            above=Wealth.start(max_loss, "above", len(candidates)),
            totals=Totals.start(len(candidates)),
            **fields,
        )

    @property
    def twinned(self) -> frozenset[int]:
        """Positions of the tested candidates that are more than a smaller cap, and must beat stopping at random."""
        return frozenset(place for place in self.sequence if not is_fixed_budget(self.candidates[place]))

    @property
    def selector(self) -> str:
        """The selector of all candidates."""
        return str(self.candidates[0].selector)

    def extended(
        self,
        units: Measured,
        counted: Seen,
        marks: Mapping[str, str] | None = None,
        answers: AnswerCounts | None = None,
    ) -> Trial:
        """Return the trial with the evidence of further units, which must come in the order of betting."""
        both = [counts for counts in (self.answers, answers) if counts is not None]
        return replace(
            self,
            below=self.below.bet(units.worst),
            above=self.above.bet(units.best),
            totals=self.totals.plus(units),
            counted=self.counted | counted,
            marks={**self.marks, **(marks or {})},
            answers=sum(both[1:], both[0]) if both else None,
        )

    @property
    def proved(self) -> Mask:
        """Mask of the candidates that are shown to lose less than `max_loss`, shape ``(n_candidates,)``.

        Candidates are tested in order until one is not shown.  A false proof requires a false proof of the first bad
        candidate, so the risk of any is alpha (fixed-sequence testing; "Learn then test", section 4.1, with evidence
        that is valid at any time).  Candidates that later questions contradict are excluded, see `contradicted`.
        """
        return self._before_the_first_failure(self.below.shown(self.alpha) & ~self.contradicted)

    @property
    def proved_once(self) -> Mask:
        """Mask of the candidates that were shown to lose less than `max_loss` after some question so far, same shape."""
        return self._before_the_first_failure(self.below.shown(self.alpha))

    def _before_the_first_failure(self, shown: Mask) -> Mask:
        proved = np.zeros(len(self.candidates), dtype=np.bool_)
        for place in self.sequence:
            if not shown[place]:
                break
            proved[place] = True
        return proved

    @property
    def waiting_for(self) -> dict[int, int]:
        """Positions of the candidates whose own evidence is complete, each with the position of the first open candidate before it.

        Their proof does not count until the earlier candidate is proved, too: the order keeps the risk of any false
        advice at `alpha` only if the tests stop at the first candidate that is not shown.
        """
        shown = self.below.shown(self.alpha) & ~self.contradicted
        first = next((place for place in self.sequence if not shown[place]), None)
        if first is None:
            return {}
        later = self.sequence[self.sequence.index(first) + 1 :]
        return {place: first for place in later if shown[place]}

    @property
    def contradicted(self) -> Mask:
        """Mask of the candidates that were shown to lose less than `max_loss` and have lost more by now, shape ``(n_candidates,)``.

        Evidence remains valid if the loss does not change over time; here it seems to have changed.
        """
        losing: Mask = self.totals.losses >= self.totals.n * self.max_loss
        return self.below.shown(self.alpha) & losing

    @property
    def hopeless(self) -> Mask:
        """Mask of the candidates that are shown to lose more than `max_loss`, each at alpha, shape ``(n_candidates,)``.

        As for `proved`, candidates that lost less on all questions so far are excluded.
        """
        losing: Mask = self.totals.losses > self.totals.n * self.max_loss
        return self.above.shown(self.alpha) & losing

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "orders": self.orders,
            "loop": self.loop.to_dict(),
            "notes": list(self.notes),
            "candidates": [policy.to_dict() for policy in self.candidates],
            "sequence": list(self.sequence),
            "tune": self.tune.to_dict(),
            "counted": self.counted.to_dict(),
            "marks": dict(self.marks),
            "below": self.below.to_dict(),
            "above": self.above.to_dict(),
            "totals": self.totals.to_dict(),
            "answers": None if self.answers is None else self.answers.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trial:
        """Return the trial that `to_dict` wrote.

        Raises:
            SchemaError: Fields are missing, of another kind, or contradict each other.
            RuleSyntaxError: A candidate's rule does not parse.
        """
        try:
            trial = cls(
                **{name: data[name] for name in _PLAIN},
                orders=int(data.get("orders", 1)),
                loop=LoopStops.from_dict(data["loop"]),
                notes=tuple(map(str, data["notes"])),
                candidates=tuple(Policy.from_dict(item) for item in data["candidates"]),
                sequence=tuple(int(place) for place in data["sequence"]),
                tune=Seen.from_dict(data["tune"]) or Seen(),
                counted=Seen.from_dict(data["counted"]) or Seen(),
                marks={str(name): str(mark) for name, mark in data["marks"].items()},
                below=Wealth.from_dict(data["below"]),
                above=Wealth.from_dict(data["above"]),
                totals=Totals.from_dict(data["totals"]),
                answers=None if data.get("answers") is None else AnswerCounts.from_dict(data["answers"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaError(f"the trial of a decision file does not read: {error!r}") from None
        n = len(trial.candidates)
        bets = (trial.below, trial.above)
        shapes = {len(trial.totals.losses), *(len(bet.log_highest) for bet in bets)}
        agreed = {(trial.max_loss, trial.totals.n)} == {(bet.bound, bet.n) for bet in bets}
        if shapes != {n} or not agreed or not set(trial.sequence) <= set(range(n)) or trial.cost not in SAVABLE:
            raise SchemaError(
                f"the trial of a decision file contradicts itself: {n} candidates, evidence of {sorted(shapes)}, "
                f"max_loss {trial.max_loss} after {trial.totals.n} questions, bets on {[(bet.bound, bet.n) for bet in bets]}, "
                f"sequence {trial.sequence}, cost {trial.cost!r}"
            )
        return trial


def _normal_interval(sums: Floats, squares: Floats, n: int) -> tuple[Floats, Floats, Floats]:
    """Return means with the ends of their normal 95 % intervals, from sums and sums of squares over n units."""
    undefined = np.full(len(sums), np.nan)
    if not n:
        return undefined, undefined, undefined
    mean = sums / n
    if n == 1:
        return mean, undefined, undefined
    half = _Z * np.sqrt(np.maximum(squares / n - mean**2, 0.0) / (n - 1))
    return mean, mean - half, mean + half


def frontier(losses: Floats, costs: Floats, baseline: float) -> tuple[int, ...]:
    """Return the positions of the candidates worth testing, from expensive to cheap: no other one loses as little for the same cost.

    >>> frontier(np.array([0.0, 0.01, 0.02, 0.3]), np.array([4.0, 3.0, 3.5, 5.0]), 5.0)
    (0, 1)

    Args:
        losses: What each may lose, as tune questions show, shape ``(n_candidates,)``.
        costs: Mean costs there, same shape.
        baseline: The mean cost of the baseline, which a candidate must undercut.
    """
    places: list[int] = []
    lowest = np.inf
    # From cheap to dear, a candidate is worth its cost only if it loses less than all cheaper ones.
    for place in np.lexsort((losses, costs)).tolist():
        if costs[place] < baseline - _SLACK and losses[place] < lowest - _SLACK:
            places.append(place)
            lowest = losses[place]
    return tuple(reversed(places))
