"""A trial: what was declared, the evidence so far, and the verdict on it; more questions can be added at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from suffice.common.tables import counted
from suffice.errors import SchemaError
from suffice.evaluation.replay.front import Mixture
from suffice.policy.rounds import Floats, Mask
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.verdicts.decisions.answer_counts import AnswerCounts, why_blind
from suffice.verdicts.decisions.candidates import is_fixed_budget
from suffice.verdicts.decisions.losses import SAVABLE, SLACK, Measured, Totals, means_note
from suffice.verdicts.decisions.rivals import mixture_of, rival_of
from suffice.verdicts.decisions.same_loop import LoopStops
from suffice.verdicts.decisions.wealth import Wealth

AdviceKind = Literal["do it", "not enough data", "keep what you have", "cannot be judged"]

_ONE_SIDED_Z = 1.644854
_PLAIN = ("metric", "max_loss", "alpha", "cost", "baseline", "leave_out_failed", "prices")
"""Attributes of a trial that are stored in JSON unchanged."""


@dataclass(frozen=True, slots=False, kw_only=True)
class Trial:
    """A declared comparison: metric and largest loss, candidates in their order, the evidence on each, and the verdict.

    Attributes:
        metric: The metric that must not be lost, see `suffice.evaluation.replay.outcome`.
        max_loss: The largest mean loss against the baseline that one would accept, in (0, 1), unit of the metric.
        alpha: The risk of advice whose true loss is larger, in (0, 1).
        cost: The cost to save, one of `SAVABLE`.
        baseline: `recorded`, or the text of a rule.
        loop: The stops of the logged loop.
        candidates: All policies that may be advised.
        sequence: Positions of the tested candidates, from conservative to cheap, in the order that tune questions
            determine.
        tune: The questions that fixed candidates and sequence; the verdict never counts them.
        counted: The questions whose evidence was used; each counts once, however often it is recorded again.
        marks: Hashes of the answers and scores of the `tune` and `counted` questions, see `fingerprints`.
        below: The evidence that a candidate loses less than `max_loss`.
        above: The evidence that it loses more.
        totals: Sums behind the figures.
        leave_out_failed: Whether questions whose recording failed are left out; otherwise they count as lost.
        prices: The prices of tokens as text, see `prices_text`; empty if unknown.
        orders: Number of random orders of independent samples over which a loss is averaged; 1 is the stored order.
        answers: Counts of the answers behind the metric; None in a file from a release that did not count them.
        labels: Number of labels by hand that the evidence used; None if golds or a column judged.
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
    labels: int | None = None

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
        """Declare a trial without evidence; tune questions decide the order of the candidates and the stakes.

        Args:
            candidates: At least one.
            on_tune: Losses and costs of candidates and baseline on tune questions.
            max_loss: See the class.
            cost: See the class.
            fields: The other attributes of the declaration.
        """
        spent = on_tune.totals.costs[cost] / on_tune.n
        # Few questions say little about a mean.  A candidate that changes few answers is proved sooner than one that
        # changes many and happened to gain here, so candidates are ordered by how much each may lose.
        losses = on_tune.worst
        may_lose = losses.mean(axis=-1) + _ONE_SIDED_Z * losses.std(axis=-1) / np.sqrt(on_tune.n)
        return cls(
            candidates=tuple(candidates),
            sequence=frontier(may_lose, spent[:-1], float(spent[-1])),
            max_loss=max_loss,
            cost=cost,
            below=Wealth.start(max_loss, "below", len(candidates), on_tune.worst),
            above=Wealth.start(max_loss, "above", len(candidates), on_tune.best),
            totals=Totals.start(len(candidates)),
            **fields,
        )

    @property
    def twinned(self) -> frozenset[int]:
        """Positions of the tested candidates that do more than lower the cap; these must beat stopping at random."""
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
        """Add the evidence of further units; the trial bets on them in the order `units.order`."""
        both = [counts for counts in (self.answers, answers) if counts is not None]
        return replace(
            self,
            below=self.below.bet(units.worst[:, units.order]),
            above=self.above.bet(units.best[:, units.order]),
            totals=self.totals + units.totals,
            counted=self.counted | counted,
            marks={**self.marks, **(marks or {})},
            answers=sum(both[1:], both[0]) if both else None,
        )

    def begun_anew(self) -> Trial:
        """Return the same declaration without evidence."""
        return replace(
            self,
            below=self.below.begun_anew(),
            above=self.above.begun_anew(),
            totals=Totals.start(len(self.candidates)),
            counted=Seen(),
            answers=None,
        )

    @property
    def proved(self) -> Mask:
        """Mask of the candidates that are shown to lose less than `max_loss`, shape ``(n_candidates,)``.

        Candidates are tested in order, up to the first without complete evidence.  A false proof requires a false proof
        of the first bad candidate, so the risk of any is alpha (fixed-sequence testing; "Learn then test", section 4.1,
        with evidence that is valid at any time).  Candidates that later questions contradict are excluded, see
        `contradicted`.
        """
        return self._before_the_first_failure(self.below.shown(self.alpha) & ~self.contradicted)

    @property
    def proved_once(self) -> Mask:
        """Mask of the candidates that were proved to lose less than `max_loss` at some earlier time, same shape."""
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
        """Map the position of each candidate with complete evidence to the first open candidate before it.

        Their proof does not count until the earlier candidate is proved, too: the risk of any false advice is at most
        `alpha` only if the tests stop at the first candidate that is not proved.
        """
        shown = self.below.shown(self.alpha) & ~self.contradicted
        first = next((place for place in self.sequence if not shown[place]), None)
        if first is None:
            return {}
        later = self.sequence[self.sequence.index(first) + 1 :]
        return {place: first for place in later if shown[place]}

    @property
    def contradicted(self) -> Mask:
        """Mask of the candidates that were proved to lose less than `max_loss` but lose more by now.

        Shape ``(n_candidates,)``.

        Evidence remains valid if the loss does not change over time; here it seems to have changed.
        """
        losses = self.totals.losses
        if self.labels is not None:  # what has no label yet contradicts nothing
            losses = losses - self.totals.open
        losing: Mask = losses >= self.totals.n * self.max_loss
        return self.below.shown(self.alpha) & losing

    @property
    def hopeless(self) -> Mask:
        """Mask of the candidates that are shown to lose more than `max_loss`, each at alpha, shape ``(n_candidates,)``.

        As for `proved`, candidates that lost less on all questions so far are excluded.
        """
        losing: Mask = self.totals.losses > self.totals.n * self.max_loss
        return self.above.shown(self.alpha) & losing

    @cached_property
    def chosen(self) -> int | None:
        """The position of the candidate that the advice is about; None if there is none.

        The cheapest proved candidate that saves.  Without one, the candidate that the fewest further questions would
        prove, among the tested ones that save and seem to lose less than `max_loss`.
        """
        costs = self.totals.costs[self.cost][:-1]
        loss = self.totals.losses / max(self.totals.n, 1)
        tested = [place for place in self.sequence if self.saves[place]]
        proved = [place for place in tested if self.proved[place]]
        if proved:
            return min(proved, key=lambda place: costs[place])
        hopeful = [place for place in tested if loss[place] < self.max_loss]
        waiting = self.waiting_for
        return min(
            hopeful,
            key=lambda place: (self._needed_in_order(place) or np.inf, place not in waiting, costs[place]),
            default=None,
        )

    @property
    def saves(self) -> Mask:
        """Mask of the candidates that save on the verdict part; all False without questions."""
        saves: Mask = self.totals.saving(self.cost) > 0
        return saves

    @cached_property
    def verdict(self) -> AdviceKind:
        """The recommended action."""
        if self.unjudged:
            return "cannot be judged"
        if (self.proved & self.saves).any():
            return "do it"
        if self.totals.n and self.hopeless[self.saves].all():  # also if no candidate saves
            return "keep what you have"
        return "not enough data"

    @cached_property
    def unjudged(self) -> str:
        """The reason why nothing can be judged; empty if something can.

        The metric cannot show a loss, or too many outcomes are unknown under all candidates that save.
        """
        totals, n = self.totals, self.totals.n
        if self.answers is not None and (reason := self.answers.unreadable(self.metric)):
            return reason
        if reason := why_blind(self.answers, self.metric, totals.constant, totals.never_varied, n):
            return reason
        blocked = totals.blocked(self.max_loss) & ~self.hopeless & self.saves
        # Where labels judge, more of them settle what is unknown.
        if self.labels is not None or not blocked.any() or not (blocked | self.hopeless)[self.saves].all():
            return ""
        if totals.failed > n * self.max_loss:
            return (
                f"{totals.failed:,} of {counted(n, 'question')} failed while recording, and count as lost. Complete the "
                "recording, or leave them out if they failed by chance (leave_out_failed=True, --set leave-out-failed=true)"
            )
        if totals.unexplained > n * self.max_loss:
            return (
                f"{self.unexplained}. If your loop stopped there by itself, import the log again with --ended rule (ended='rule'; "
                "exhausted or max_rounds for other reasons); if rounds are missing, log all. Then decide anew (-o OTHER.json)"
            )
        return (
            f"{self.metric} is unknown where the candidates would stop in {100 * totals.unknown / n:.0f} % of the "
            f"questions. Score every round, or record {counted(n, 'question')} at full width"
        )

    @property
    def unexplained(self) -> str:
        """The number of questions with fewer rounds than others and no recorded reason, in words."""
        n = self.totals.unexplained
        have = "has" if n == 1 else "have"
        return f"{n:,} of {counted(self.totals.n, 'question')} {have} fewer than {self.loop.highest} rounds, and the log does not say why"

    @property
    def against(self) -> str:
        """The baseline in words; empty if it is the logged loop itself."""
        return "" if self.baseline == "recorded" else f" against {self.baseline}"

    def questions_needed(self, place: int) -> int | None:
        """Return the approximate number of further questions that would prove a tested candidate; None if its own evidence is complete."""
        return None if place in self.waiting_for else self._needed_in_order(place)

    def _needed_in_order(self, place: int) -> int | None:
        """Return the largest number of questions that this or an earlier candidate needs.

        The sequence of tests ends at the first failure, so earlier candidates must be proved first.
        """
        upto = self.sequence[: self.sequence.index(place) + 1]
        shown = self.below.shown(self.alpha) & ~self.contradicted
        numbers = [self.below.more_losses(self.alpha, before) for before in upto if not shown[before]]
        known = [number for number in numbers if number is not None]
        return max(known) if known and len(known) == len(numbers) else None

    @cached_property
    def rival(self) -> int | None:
        """The position of the chosen candidate's rival; None without one.

        The rival is the cheapest other fixed budget whose metric is at least as high and whose cost is no higher.

        A budget does not count if unknown outcomes allow a loss of more than `max_loss`.
        """
        return rival_of(self)

    @cached_property
    def mixture(self) -> Mixture | None:
        """The coin between two fixed budgets that scored more than the chosen candidate for as much; see `mixture_of`."""
        return mixture_of(self)

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
            **({} if self.labels is None else {"labels": self.labels}),
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
                notes=(*map(str, data["notes"]), *means_note(data["totals"])),
                candidates=tuple(Policy.from_dict(item) for item in data["candidates"]),
                sequence=tuple(int(place) for place in data["sequence"]),
                tune=Seen.from_dict(data["tune"]) or Seen(),
                counted=Seen.from_dict(data["counted"]) or Seen(),
                marks={str(name): str(mark) for name, mark in data["marks"].items()},
                below=Wealth.from_dict(data["below"]),
                above=Wealth.from_dict(data["above"]),
                totals=Totals.from_dict(data["totals"]),
                answers=None if data.get("answers") is None else AnswerCounts.from_dict(data["answers"]),
                labels=None if data.get("labels") is None else int(data["labels"]),
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


def frontier(losses: Floats, costs: Floats, baseline: float) -> tuple[int, ...]:
    """Return the positions of the candidates worth testing, from expensive to cheap.

    A candidate is worth testing if it is cheaper than the baseline, and no cheaper candidate loses as little.

    >>> frontier(np.array([0.0, 0.01, 0.02, 0.3]), np.array([4.0, 3.0, 3.5, 5.0]), 5.0)
    (0, 1)

    Args:
        losses: The loss of each candidate on tune questions, shape ``(n_candidates,)``.
        costs: Mean costs on tune questions, same shape.
        baseline: The mean cost of the baseline, which a candidate must undercut.
    """
    places: list[int] = []
    lowest = np.inf
    # From cheap to dear, a candidate is worth its cost only if it loses less than all cheaper ones.
    for place in np.lexsort((losses, costs)).tolist():
        if costs[place] < baseline - SLACK and losses[place] < lowest - SLACK:
            places.append(place)
            lowest = losses[place]
    return tuple(reversed(places))
