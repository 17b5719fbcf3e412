"""A trial: the declaration, the evidence so far, and the verdict; more questions can be added at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from suffice.common.tables import counted
from suffice.evaluation.replay.outcomes import abandoned, is_agreement
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import Floats, Mask
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.recordings.schema import DOLLAR
from suffice.verdicts.decisions.answer_counts import AnswerCounts, why_blind
from suffice.verdicts.decisions.candidates import is_fixed_budget
from suffice.verdicts.decisions.fallback import CandidateTest, fallback, fewest, risk_shares
from suffice.verdicts.decisions.figures import mixture_of, rival_of
from suffice.verdicts.decisions.losses import SLACK, Measured, Totals
from suffice.verdicts.decisions.same_loop import LoopStops
from suffice.verdicts.decisions.wealth import FOUR_OF_FIVE, LossCounts, Wealth, bound_by_labels

if TYPE_CHECKING:
    from suffice.verdicts.decisions.drift import DriftAlarm

AdviceKind = Literal["do it", "not enough data", "keep what you have", "cannot be judged"]

_ONE_SIDED_Z = 1.644854


@dataclass(frozen=True, slots=False, kw_only=True)
class Trial:
    """A declared comparison of candidates with a baseline: the declaration, the evidence so far, and the verdict.

    Attributes:
        metric: The metric that must not be lost, see `suffice.evaluation.replay.outcome`.
        max_loss: The largest acceptable mean loss against the baseline, in (0, 1), in the unit of the metric.
        alpha: The risk of advice whose true loss is above `max_loss`, in (0, 1).
        cost: The cost to save, one of `SAVABLE`.
        baseline: `recorded`, or the text of a rule.
        loop: The stops of the logged loop.
        candidates: All policies that may be advised.
        sequence: Positions of the tested candidates, from conservative to cheap, in the order that tune questions
            determine.
        shares: The share of `alpha` that each tested candidate has, see `suffice.verdicts.decisions.fallback`.
        tune: The questions that determined candidates and sequence; they never count for the verdict.
        tuned: Number of `tune` questions; a question with several runs counts once. None in a file from a release that
            did not count them.
        counted: The questions whose evidence was used; each counts once, however often it is recorded again.
        marks: Hashes of the answers and scores of the `tune` and `counted` questions, see `fingerprints`.
        wordings: Hashes of the words in these questions' texts, see `suffice.verdicts.copies.near_known`.
        below: The evidence that a candidate loses less than `max_loss`.
        above: The evidence that a candidate loses more than `max_loss`.
        totals: Sums behind the figures.
        leave_out_failed: Whether questions whose recording failed are left out; otherwise they count as lost.
        prices: The prices of tokens as text, see `prices_text`; empty if unknown.
        orders: Number of random orders of independent samples over which a loss is averaged; 1 is the stored order.
        answers: Counts of the answers behind the metric; None in a file from a release that did not count them.
        losses: How often each loss of the tested candidates occurred; None in a file from a release that did not count
            them.
        labels: Number of labels by hand that the evidence used; None if gold answers or a column were used instead.
        drift: The alarm on the tested candidates; None before the second call of `decide`, because the hashed order of
            the questions within a call hides any drift. Always None if labels are used: then each call judges the
            questions of the first call anew.
        label_noise: The declared largest share of labels that are wrong at random, in [0, 0.5).
        min_saving: The smallest saving that is worth a change, as a share of the cost, in [0, 1); 0 = any.
        notes: Notes on the declaration.
        currency: The currency of the money.
    """

    metric: str
    max_loss: float
    alpha: float
    cost: str
    baseline: str
    loop: LoopStops
    candidates: tuple[Policy, ...]
    sequence: tuple[int, ...]
    shares: tuple[float, ...]
    tune: Seen
    below: Wealth
    above: Wealth
    totals: Totals
    counted: Seen = field(default_factory=Seen)
    marks: Mapping[str, str] = field(default_factory=dict)
    wordings: frozenset[str] = frozenset()
    leave_out_failed: bool = False
    prices: str = ""
    orders: int = 1
    notes: tuple[str, ...] = ()
    answers: AnswerCounts | None = None
    losses: LossCounts | None = None
    tuned: int | None = None
    labels: int | None = None
    drift: DriftAlarm | None = None
    label_noise: float = 0.0
    min_saving: float = 0.0
    currency: str = DOLLAR

    @classmethod
    def declare(
        cls,
        candidates: Sequence[Policy],
        on_tune: Measured,
        *,
        max_loss: float,
        cost: str,
        label_noise: float = 0.0,
        min_saving: float = 0.0,
        **fields: Any,
    ) -> Trial:
        """Declare a trial without evidence; tune questions decide the order of the candidates and the stakes.

        Args:
            candidates: The candidates, at least one.
            on_tune: Losses and costs of candidates and baseline on tune questions.
            max_loss: See the class.
            cost: See the class.
            label_noise: See the class.
            min_saving: See the class.
            fields: The other attributes that belong to the declaration.
        """
        n = on_tune.totals.n
        spent = on_tune.totals.costs[cost] / n
        # A few questions determine a mean poorly.  A candidate that changes few answers is proved sooner than one that
        # changes many and happened to gain on them, so candidates are ordered by how much each may lose.
        losses = on_tune.worst
        bound = bound_by_labels(max_loss, label_noise)
        may_lose = losses.mean(axis=-1) + _ONE_SIDED_Z * losses.std(axis=-1) / np.sqrt(n)
        sequence = frontier(may_lose, spent[:-1], float(spent[-1]) * (1 - min_saving))
        return cls(
            candidates=tuple(candidates),
            sequence=sequence,
            shares=risk_shares(len(sequence)),
            losses=LossCounts(worst=({},) * len(sequence), best=({},) * len(sequence)),
            max_loss=max_loss,
            cost=cost,
            label_noise=label_noise,
            min_saving=min_saving,
            below=Wealth.start(bound, "below", len(candidates), on_tune.worst),
            above=Wealth.start(max_loss, "above", len(candidates), on_tune.best),
            totals=Totals.start(len(candidates)),
            tuned=n,
            **fields,
        )

    @property
    def n_tune(self) -> int:
        """Number of questions that fixed the candidates and their sequence."""
        return len(self.tune.ids) if self.tuned is None else self.tuned

    @property
    def bound(self) -> float:
        """The mean loss that is observed if the true loss is `max_loss`; below `max_loss` if some labels are declared wrong."""
        return self.below.bound

    @property
    def by_labels(self) -> float:
        """The observed change as a share of the true change; 1 unless some labels are declared wrong."""
        return self.bound / self.max_loss

    @property
    def twinned(self) -> frozenset[int]:
        """Positions of the tested candidates that do more than lower the cap; they must do better than stopping at random."""
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
        both, tested = [counts for counts in (self.answers, answers) if counts is not None], list(self.sequence)
        return replace(
            self,
            below=self.below.bet(units.worst[:, units.order]),
            above=self.above.bet(units.best[:, units.order]),
            totals=self.totals + units.totals,
            losses=None
            if self.losses is None
            else self.losses + LossCounts.of(units.worst[tested], units.best[tested]),
            counted=self.counted | counted,
            marks={**self.marks, **(marks or {})},
            answers=sum(both[1:], both[0]) if both else None,
            drift=self._drift_after(units) if self.totals.n else None,  # from the second visit on
        )

    def _drift_after(self, units: Measured) -> DriftAlarm:
        from suffice.verdicts.decisions.drift import DriftAlarm

        drift = self.drift
        if drift is None:
            drift = DriftAlarm.start(self.max_loss, self.alpha, len(self.sequence))
        return drift.observe(units.best[list(self.sequence)][:, units.order])

    def begun_anew(self) -> Trial:
        """Return a trial with the same declaration and no evidence."""
        return replace(
            self,
            below=self.below.begun_anew(),
            above=self.above.begun_anew(),
            totals=Totals.start(len(self.candidates)),
            counted=Seen(),
            answers=None,
            losses=LossCounts(worst=({},) * len(self.sequence), best=({},) * len(self.sequence)),
            drift=None,
        )

    @property
    def proved(self) -> Mask:
        """Mask of the candidates that are shown to lose less than `max_loss`, shape ``(n_candidates,)``.

        The risk that any proved candidate loses more is at most `alpha`, see `suffice.verdicts.decisions.fallback`.
        Candidates that later questions contradict are excluded, see `contradicted`.
        """
        return self._passed(self.tests)

    @property
    def proved_once(self) -> Mask:
        """Mask of the candidates that were proved to lose less than `max_loss` at some earlier time, same shape."""
        return self._passed(self._tested(np.zeros(len(self.candidates), dtype=np.bool_)))

    @cached_property
    def tests(self) -> list[CandidateTest]:
        """The tests of the candidates, in test order; proofs that later questions contradict do not count."""
        return self._tested(self.contradicted)

    def _tested(self, excluded: Mask) -> list[CandidateTest]:
        return fallback(
            self.sequence,
            self.shares,
            self.alpha,
            lambda place, level: level > 0 and bool(self.below.shown(level)[place] and not excluded[place]),
        )

    def _passed(self, done: Sequence[CandidateTest]) -> Mask:
        proved = np.zeros(len(self.candidates), dtype=np.bool_)
        proved[[test.place for test in done if test.passed]] = True
        return proved

    @property
    def waiting_for(self) -> dict[int, tuple[int, ...]]:
        """Map each candidate that waits for others to the open candidates before it, by position.

        A candidate waits if its evidence would be enough at the whole risk `alpha` but not at its present share.

        Such a candidate gets the whole risk only after all candidates before it are proved. A contradicted candidate
        will never be proved, so later candidates wait neither for it nor for any candidate before it.
        """
        alone = self.below.shown(self.alpha) & ~self.contradicted
        waiting: dict[int, tuple[int, ...]] = {}
        before: tuple[int, ...] = ()
        for test in self.tests:
            if alone[test.place] and not test.passed and before:
                waiting[test.place] = before
            before = () if self.contradicted[test.place] else (*before, *[test.place] * (not test.passed))
        return waiting

    @property
    def contradicted(self) -> Mask:
        """Mask of the candidates that now seem to lose more than `max_loss`, even if proved before, shape ``(n_candidates,)``.

        A proof stays valid as long as the loss does not change.  For these candidates the loss seems to have changed:
        all questions together contradict the proof, or the alarm has rung.
        """
        return self.lost_more | self.rung

    @property
    def lost_more(self) -> Mask:
        """Mask of the candidates that were shown to lose less than `max_loss` but lost more on all questions, same shape."""
        losses = self.totals.losses
        if self.labels is not None:  # questions without a label contradict nothing
            losses = losses - self.totals.open
        losing: Mask = losses >= self.totals.n * self.bound
        return self.below.shown(self.alpha) & losing

    @property
    def rung(self) -> Mask:
        """Mask of the candidates whose alarm has rung, shape ``(n_candidates,)``."""
        places = [] if self.drift is None else [*np.array(self.sequence)[self.drift.rings]]
        return np.isin(np.arange(len(self.candidates)), places)

    @property
    def taken_back(self) -> tuple[int, ...]:
        """Positions of the candidates that save and were proved, but are now contradicted, in the order of tests."""
        places = self.proved_once & self.contradicted & self.saves
        return tuple(place for place in self.sequence if places[place])

    @property
    def hopeless(self) -> Mask:
        """Mask of the candidates that are shown to lose more than `max_loss`, each with risk `alpha`, shape ``(n_candidates,)``.

        Candidates that lost less than `max_loss` on all questions so far are excluded.  The declared share of wrong
        labels plays no role here, because wrong labels make a loss look smaller, never larger.
        """
        losing: Mask = self.totals.losses > self.totals.n * self.above.bound
        return self.above.shown(self.alpha) & losing

    @cached_property
    def chosen(self) -> int | None:
        """The position of the candidate that the advice is about; None if there is none.

        It is the cheapest proved candidate that saves. Without a proved one, it is the candidate that needs the fewest
        further questions among the tested candidates that save and seem to lose less than `max_loss`.
        """
        costs = self.totals.costs[self.cost][:-1]
        loss = self.totals.losses / max(self.totals.n, 1)
        tested = [place for place in self.sequence if self.saves[place]]
        proved = [place for place in tested if self.proved[place]]
        if proved:
            return min(proved, key=lambda place: costs[place])
        hopeful = [place for place in tested if loss[place] < self.bound and not self.contradicted[place]]
        waiting = self.waiting_for
        return min(
            hopeful,
            key=lambda place: ((self.questions_needed(place) or (0, np.inf))[1], place not in waiting, costs[place]),
            default=None,
        )

    @property
    def saves(self) -> Mask:
        """Mask of the candidates that save enough on the verdict part; all False without questions."""
        saving = self.totals.saving(self.cost)
        saves: Mask = saving >= self.min_saving if self.min_saving else saving > 0
        return saves

    @property
    def tested_savers(self) -> Mask:
        """Mask of the tested candidates that save enough, because only tested candidates can be proved.

        If no tested candidate saves enough, it is the mask of all candidates that save enough.
        """
        tested: Mask = self.saves & np.isin(np.arange(len(self.candidates)), self.sequence)
        return tested if tested.any() else self.saves

    @cached_property
    def verdict(self) -> AdviceKind:
        """The recommended action."""
        if self.unjudged:
            return "cannot be judged"
        if (self.proved & self.saves).any():
            return "do it"
        if self.taken_back:
            return "keep what you have"
        if self.totals.n and self.hopeless[self.tested_savers].all():  # also if no candidate saves
            return "keep what you have"
        if self.totals.n and self.min_saving and self.chosen is None:
            return "keep what you have"
        return "not enough data"

    @cached_property
    def unjudged(self) -> str:
        """The reason why nothing can be judged; empty if something can be judged.

        Nothing can be judged if the metric cannot show a loss, or if too many outcomes are unknown under all candidates that save.
        """
        totals, n = self.totals, self.totals.n
        if self.answers is not None and (reason := self.answers.unreadable(self.metric)):
            return reason
        blind = why_blind(self.answers, self.metric, totals.constant, totals.never_varied, n)
        if self.labels is None and blind:  # labels judge answers one by one, so they can show a loss
            return blind
        blocked = totals.blocked(self.max_loss) & ~self.hopeless & self.saves
        # If labels are used, more labels settle the unknown outcomes.
        if self.labels is not None or not blocked.any() or not (blocked | self.hopeless)[self.saves].all():
            return ""
        if totals.failed > n * self.max_loss:
            return (
                f"{totals.failed:,} of {counted(n, 'question')} failed while recording, and count as lost. Complete the "
                "recording, or leave them out if they failed by chance (leave_out_failed=True, --set leave-out-failed=true)"
            )
        if totals.unexplained > n * self.max_loss:
            return (
                f"{self.unexplained}. If your loop stopped there by itself, import the log again with --ended rule; if rounds "
                "are missing, log all. Then decide anew (-o OTHER.json)"
            )
        remedy = f"Score every round, or record {counted(n, 'question')} at full width"
        given_up = f"abandon({self.metric})"
        if totals.unknown == n and abandoned(given_up) and self.metric not in METRICS and not is_agreement(self.metric):
            remedy = (
                "Score what each round would return; if only a whole run has an outcome, as an agent's has, judge what giving it up "
                f"loses (metric={given_up!r}, --metric '{given_up}')"
            )
        return f"{self.metric} is unknown where the candidates would stop in {100 * totals.unknown / n:.0f} % of the questions. {remedy}"

    @property
    def unexplained(self) -> str:
        """The number of questions with fewer rounds than others and no recorded reason, in words."""
        n = self.totals.unexplained
        have = "has" if n == 1 else "have"
        what = "no round 1" if self.loop.highest == 1 else f"fewer than {self.loop.highest} rounds"
        return f"{n:,} of {counted(self.totals.n, 'question')} {have} {what}, and the log does not say why"

    @property
    def against(self) -> str:
        """The baseline in words; empty if it is the logged loop itself."""
        return "" if self.baseline == "recorded" else f" against {self.baseline}"

    def questions_needed(self, place: int) -> tuple[int, int] | None:
        """Return the approximate numbers of further questions that would prove a tested candidate.

        The first number is enough in one of two cases, the second in four of five. The result is None if the candidate
        is already proved, or if a number cannot be estimated.
        """
        done, contradicted = self.tests, self.contradicted

        def more(z: float, one: int, level: float) -> int | None:
            if contradicted[one] or not level:
                return None
            return 0 if self.below.shown(level)[one] else self.below.more_losses(level, one, z)

        half, most = (fewest(done, self.shares, self.alpha, place, partial(more, z)) for z in (0.0, FOUR_OF_FIVE))
        return None if half is None or most is None else (half, most)

    rival = cached_property(rival_of)
    mixture = cached_property(mixture_of)


def frontier(losses: Floats, costs: Floats, baseline: float) -> tuple[int, ...]:
    """Return the positions of the candidates worth testing, from expensive to cheap.

    A candidate is worth testing if it is cheaper than the baseline, and loses less than every cheaper candidate.

    >>> frontier(np.array([0.0, 0.01, 0.02, 0.3]), np.array([4.0, 3.0, 3.5, 5.0]), 5.0)
    (0, 1)

    Args:
        losses: The loss of each candidate on tune questions, shape ``(n_candidates,)``.
        costs: Mean costs on tune questions, same shape.
        baseline: The mean cost of the baseline, which a candidate must undercut.
    """
    places: list[int] = []
    lowest = np.inf
    # From cheap to expensive, a candidate is worth its cost only if it loses less than all cheaper ones.
    for place in np.lexsort((losses, costs)).tolist():
        if costs[place] < baseline - SLACK and losses[place] < lowest - SLACK:
            places.append(place)
            lowest = losses[place]
    return tuple(reversed(places))
