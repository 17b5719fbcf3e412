"""Figures of candidates and of their rivals, for tables, charts and JSON.

Rivals are policies that read no signal: fixed budgets, random mixtures of two budgets, and stopping at random.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from suffice.common.tables import Column, Table, counted, figure
from suffice.evaluation.replay.front import Mixture, best_mixture, upper_hull
from suffice.policy.rounds import Positions
from suffice.policy.session import Policy
from suffice.recordings.runs import ALONE
from suffice.verdicts.decisions.candidates import is_closed_book, is_fixed_budget, is_vote
from suffice.verdicts.decisions.gates import RETRIEVALS
from suffice.verdicts.decisions.losses import SLACK
from suffice.verdicts.losses import range_text

if TYPE_CHECKING:
    from suffice.verdicts.decisions.trial import Trial

_CENTS = 0.1
"""A cost below which two decimals do not show differences."""

_INTERVAL_LETTERS = 15
"""Letters of an interval that is drawn as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFigures:
    """Figures of one candidate on the questions of the verdict part.

    Attributes:
        state: `advised`, `proved`, `taken back` (a proof that later questions contradict), `open` (also if nothing can
            be judged), `loses more`, or `not tested` (because on tune questions another candidate costs less and loses
            no more).
        change: Mean change of the metric against the baseline, and the ends of its interval, see `change_of`.
        spent: Mean costs by name; NaN where unknown.
        saving: Share of the cost to save that the candidate saves; NaN where unknown.
        tested: Whether the candidate is in the sequence of tests.
        needed: Approximate numbers of further questions that would prove the candidate: the first in one of two cases,
            the second in four of five. None if no more are needed, or the numbers are unknown.
        waits_for: The first earlier candidate that must be proved before this one. It is only given if the evidence on
            this candidate would be enough at the whole risk; else empty.
        judged: False if nothing can be judged. Values and changes then count every unknown outcome at its worst. They
            may contradict each other, so no table shows them.
        evidence: The highest wealth so far of the bet that the candidate loses less than the largest accepted loss.
        twin: The metric of the random twin: it stops at random, and in each round as often as the candidate. NaN unless
            the candidate is a tested rule.
        gain: The candidate's mean gain over the twin, with the ends of its interval; NaN if `twin` is NaN.
    """

    policy: str
    state: str
    value: float
    change: tuple[float, float, float]
    spent: dict[str, float]
    saving: float
    tested: bool
    needed: tuple[int, int] | None
    evidence: float
    twin: float
    gain: tuple[float, float, float]
    waits_for: str = ""
    judged: bool = True

    @property
    def selected_here(self) -> bool:
        """True if the candidate was selected on these questions, so its change probably looks too good."""
        return self.state == "advised"

    def row(self, cost: str, max_loss: float) -> tuple[Any, ...]:
        """Return the candidate's cells for the columns of `candidate_columns`."""
        bar = interval_bar(self.change, max_loss)
        state = self.state
        if self.state == "open":
            more = f", about {self.needed[1]:,} more" if self.needed else ""
            state = f"{f'waits for {self.waits_for}' if self.waits_for else 'not proved yet'}{more}"
        change = self.change if self.tested else self.change[0]
        if not self.judged:
            return (self.policy, self.spent[cost], self.saving, np.nan, np.nan, state, "")
        return (self.policy, self.spent[cost], self.saving, self.value, change, state, bar)

    def to_dict(self, metric: str) -> dict[str, Any]:
        """Return JSON-ready values; a loss is a change with the opposite sign."""
        mean, low, high = (0.0 - end for end in self.change)
        return {
            "policy": self.policy,
            "loss": mean,
            "interval": [high, low],
            metric: self.value,
            "saving": self.saving,
            **self.spent,
            "tested": self.tested,
            "proved": self.state in ("advised", "proved"),
            "selected_here": self.selected_here,
            "waits_for": self.waits_for or None,
            "loses_more": self.state == "loses more",
            "needed": None if self.needed is None else self.needed[1],
            "needed_in_half": None if self.needed is None else self.needed[0],
            "evidence": self.evidence,
            "random_twin": None
            if np.isnan(self.twin)
            else {metric: self.twin, "gain": self.gain[0], "interval": list(self.gain[1:])},
        }


def candidate_figures(trial: Trial) -> list[CandidateFigures]:
    """Return the figures of all candidates, in the order of the candidates."""
    totals = trial.totals
    n = max(totals.n_recorded, 1)
    gain, least, most = totals.gain_interval()
    saving, hopeless, unjudged = totals.saving(trial.cost), trial.hopeless, bool(trial.unjudged)
    proved = trial.proved & (not unjudged)
    waiting, advised = {} if unjudged else trial.waiting_for, trial.chosen if trial.verdict == "do it" else None
    taken_back = trial.taken_back
    return [
        CandidateFigures(
            policy=policy.label,
            state="advised"
            if place == advised
            else "proved"
            if proved[place]
            else "taken back"
            if place in taken_back
            else "loses more"
            if hopeless[place]
            else "open"
            if place in trial.sequence
            else "not tested",
            value=float(totals.values[place] / n),
            change=change_of(trial, place),
            spent={
                name: float(sums[place] / n)
                for name, sums in totals.costs.items()
                if name != RETRIEVALS or np.isfinite(sums).all()  # most loops have no round 0
            },
            saving=float(saving[place]),
            tested=place in trial.sequence,
            needed=trial.questions_needed(place)
            if place in trial.sequence and place not in taken_back and not unjudged
            else None,
            evidence=float(np.exp(min(trial.below.log_highest[place], 700.0))),
            twin=float(totals.twins[place] / n) if trial.totals.n else np.nan,
            gain=(float(gain[place]), float(least[place]), float(most[place])),
            waits_for=trial.candidates[waiting[place][0]].label if place in waiting else "",
            judged=not unjudged,
        )
        for place, policy in enumerate(trial.candidates)
    ]


def change_of(trial: Trial, place: int) -> tuple[float, float, float]:
    """Return a candidate's mean change of the metric and the ends of the interval, which are NaN if it is not tested.

    The interval is a confidence sequence: with a risk of `alpha`, it holds for all tested candidates at once, however
    often one looks.  The tests can raise the lower end: for a proved candidate to -`max_loss`, for an open candidate to
    the bound that its share of the risk allows.  These are the simultaneous bounds that belong to such tests
    (Strassburger and Bretz 2008, "Compatible simultaneous lower confidence bounds for the Holm procedure and other
    Bonferroni-based closed tests").

    Wrong labels make each change look smaller. If a share of the labels is declared wrong, the figures are scaled up to
    correct for this. Fewer labels may be wrong than declared, so the interval covers both the unscaled and the scaled
    ends.
    """
    n, tested = trial.totals.n, place in trial.sequence
    mean = float(trial.totals.losses[place] / n) if n else np.nan
    most = least = np.nan
    if trial.losses is not None and n and tested:
        at = trial.sequence.index(place)
        shares, test, level = trial.below.shares[place], trial.tests[at], trial.alpha / (2 * len(trial.sequence))
        shown = trial.bound
        if not test.passed:
            shown = max(shown, trial.losses.bound(at, "below", shares, test.level))
        most = max(mean, min(shown, trial.losses.bound(at, "below", shares, level)))
        least = min(mean, trial.losses.bound(at, "above", trial.above.shares[place], level))
    shown_by_labels = 0.0 - np.array([mean, most, least])
    change, low, high = np.clip(shown_by_labels / trial.by_labels, -1.0, 1.0).tolist()
    return change, float(np.minimum(low, shown_by_labels[1])), float(np.maximum(high, shown_by_labels[2]))


def candidate_columns(trial: Trial) -> tuple[Column, ...]:
    """Return the columns of a table of candidates."""
    spent = trial.totals.costs[trial.cost][-1] / max(trial.totals.n_recorded, 1)
    return (
        Column("policy"),
        Column(trial.cost, ",.2f" if not spent < _CENTS else ".3g"),
        Column("saved", ".0f", scale=100),
        Column(trial.metric, ".1f", scale=100),
        Column("change", "+.1f", scale=100, interval=True),
        Column("verdict"),
        Column(bar_heading(trial.max_loss)),
    )


def range_notes(figures: Iterable[CandidateFigures], max_loss: float) -> tuple[str, ...]:
    """Return a note if the interval of a candidate that is shown to lose more than `max_loss` includes smaller losses.

    This can happen because the intervals of all candidates hold at once.
    """
    if not any(item.judged and item.state == "loses more" and item.change[2] > -max_loss for item in figures):
        return ()
    note = (
        f"a range may include losses below {100 * max_loss:g} points although its row is shown to lose more: all ranges hold together, so each is "
        "wider than a test of its row alone"
    )
    return (note,)


def bar_heading(max_loss: float) -> str:
    """Return the heading of the column with the output of `interval_bar`.

    A page that shows the chart leaves this column out.
    """
    return f"{-100 * max_loss:g} and 0 are |"


def twin_table(figures: Iterable[CandidateFigures], trial: Trial) -> Table | None:
    """Return the table that compares tested rules with stopping at random; None if no rule is tested."""
    rows = tuple(
        (item.policy, item.value, item.twin, item.gain) for item in figures if item.judged and not np.isnan(item.twin)
    )
    if not rows:
        return None
    columns = (
        Column("policy"),
        Column(trial.metric, ".1f", scale=100),
        Column("at random", ".1f", scale=100),
        Column("gain", "+.1f", scale=100, interval=True),
    )
    title = "Tested rules beside their own stops, dealt out to the questions at random"
    return Table(title=title, columns=columns, rows=rows)


def interval_bar(change: tuple[float, float, float], max_loss: float) -> str:
    """Draw a mean change and its interval as a line of text, with a bar at the largest accepted loss and one at 0.

    The line is empty where the change is undefined.

    >>> interval_bar((0.0, -0.04, 0.03), 0.02)
    '....[|.o..]....'
    >>> interval_bar((0.2, 0.14, 0.25), 0.02), interval_bar((-0.16, -0.23, -0.05), 0.02)
    ('.....|.|......>', '<..].|.|.......')
    """
    middle, low, high = change
    if not np.isfinite(change).all():
        return ""
    scale = 4 * max_loss  # half of the width
    places = [round((value / scale + 1) / 2 * (_INTERVAL_LETTERS - 1)) for value in (-max_loss, 0.0, low, middle, high)]
    line = ["."] * _INTERVAL_LETTERS
    for place, sign in zip(places, "||[o]", strict=True):
        beyond = "<" if place < 0 else ">" if place >= _INTERVAL_LETTERS else sign
        line[min(max(place, 0), _INTERVAL_LETTERS - 1)] = beyond
    return "".join(line)


def rival_of(trial: Trial) -> int | None:
    """Return the position of the chosen candidate's rival; None if there is no rival.

    A rival is a fixed budget whose metric is at least as high as the candidate's, at no higher cost.  The candidate
    itself is no rival.  Of several rivals, the cheapest is returned.

    A budget does not count if unknown outcomes allow it to lose more than `max_loss`, or more than the candidate.
    """
    me = trial.chosen
    if me is None:
        return None
    values, costs = trial.totals.values, trial.totals.costs[trial.cost]
    most = _most_lost(trial, me)
    others = [
        place
        for place, policy in enumerate(trial.candidates)
        if place != me
        and is_fixed_budget(policy)
        and trial.totals.losses[place] <= most
        and values[place] >= values[me]
        and costs[place] <= costs[me]
        and (values[place], -costs[place]) != (values[me], -costs[me])
    ]
    return min(others, key=lambda place: costs[place]) if others else None


def mixture_of(trial: Trial) -> Mixture | None:
    """Return the random mixture of two budgets that scored higher than the chosen candidate at the same cost, or None.

    All fixed budgets count, tested or not, and so does the baseline if it is a budget or the logged loop itself. The
    result is None if a single budget does as well, see `rival_of`. A mixture does not count if unknown outcomes allow
    it to lose more than `max_loss`, or more than the candidate. The two budgets are chosen on these questions, so
    nothing is claimed about other questions.
    """
    me, totals = trial.chosen, trial.totals
    if me is None or trial.rival is not None or not totals.n_recorded:
        return None
    budgets = _budgets(trial)
    budgets = budgets[budgets != me]
    values, costs = (sums / totals.n_recorded for sums in (totals.values, totals.costs[trial.cost]))
    if not np.isfinite([values[budgets], costs[budgets]]).all() or not np.isfinite(values[me]):
        return None
    names = [*(policy.label for policy in trial.candidates), trial.baseline]
    labels = [names[place] for place in budgets.tolist()]
    mixture = best_mixture(labels, values[budgets], costs[budgets], float(costs[me]))
    if mixture is None or not mixture.share or mixture.quality <= values[me] + SLACK:
        return None
    losses = np.append(totals.losses, 0.0)
    cheap, dear = (losses[budgets[labels.index(label)]] for label in (mixture.cheap, mixture.dear))
    may_lose = (1 - mixture.share) * cheap + mixture.share * dear
    return mixture if may_lose <= _most_lost(trial, me) else None


def _most_lost(trial: Trial, place: int) -> float:
    """Return the largest sum of losses that a rival of a candidate may have.

    This limit is needed because the metric alone does not show how much unknown outcomes may lose.
    """
    return min(trial.bound * trial.totals.n, float(trial.totals.losses[place]) + SLACK * trial.totals.n)


def budgets_hull(trial: Trial) -> list[tuple[float, float]]:
    """Return cost and change of each budget on the upper hull, from cheap to expensive.

    A budget is on the hull if no mixture of two other budgets reaches its change at its cost.

    The line between two neighbours shows the cost and change of their random mixtures.
    """
    totals, budgets = trial.totals, _budgets(trial)
    if not totals.n_recorded or not np.isfinite(totals.costs[trial.cost]).all():
        return []
    change = 0.0 - np.append(totals.losses, 0.0)[budgets] / totals.n
    costs = totals.costs[trial.cost][budgets] / totals.n_recorded
    return [(float(costs[place]), float(change[place])) for place in upper_hull(change, costs)]


def dominating_label(trial: Trial) -> str | None:
    """Name a budget or a mixture of two budgets that does as well as the chosen candidate; None without one."""
    if trial.rival is not None:
        return trial.candidates[trial.rival].label
    return None if trial.mixture is None else trial.mixture.label


def rivals_text(trial: Trial, place: int) -> str:
    """Return sentences on the policies without signals that do as well as the chosen candidate; empty if there are none."""
    text = "" if trial.rival is None else f" {_rival_text(trial, place, trial.rival)}"
    text += "" if trial.mixture is None else f" {_mixture_text(trial, trial.mixture)}"
    gain = tuple(float(ends[place]) for ends in trial.totals.gain_interval())
    if place in trial.twinned and trial.labels is None and not gain[1] > 0:
        text += f" It is not shown to beat stopping at random as often: {figure(gain, '+.1f', 100)} points."
    return text


def _budgets(trial: Trial) -> Positions:
    """Return the positions of all fixed budgets in an array that holds the candidates and, last, the baseline."""
    budgets = [place for place, policy in enumerate(trial.candidates) if is_fixed_budget(policy)]
    if (
        trial.baseline in ("recorded", "full")
        or trial.baseline.startswith("fixed_k(")
        or trial.baseline.endswith(ALONE)
    ):
        budgets.append(len(trial.candidates))
    return np.array(budgets, dtype=np.int64)


def _mixture_text(trial: Trial, mixture: Mixture) -> str:
    """Return a sentence on a mixture that scored more than the chosen candidate."""
    by_label = {policy.label: policy for policy in trial.candidates}
    one, other = by_label.get(mixture.cheap), by_label.get(mixture.dear)
    some, others = (_budget_text(trial, policy) for policy in (one, other))
    return (
        f"With no signal at all, {some} for some questions, drawn at random, and {others} for the others scored better here and costs no "
        "more; but the two were picked on these same questions."
    )


def _budget_text(trial: Trial, policy: Policy | None) -> str:
    if policy is None:
        return trial.baseline if trial.against else "what you have"
    if is_closed_book(policy):
        return "never retrieving"
    if policy.name.endswith(ALONE):
        return policy.name
    return counted(policy.max_rounds, "sample") if is_vote(policy) else f"at most {counted(policy.max_rounds, 'round')}"


def _rival_text(trial: Trial, place: int, rival: int) -> str:
    """Return text on a rival: its figures on these questions, and the evidence that is still missing to prove it."""
    costs = trial.totals.costs[trial.cost]
    better = trial.totals.losses[rival] < trial.totals.losses[place] - SLACK * trial.totals.n
    cheaper = costs[rival] < costs[place]
    needed = trial.questions_needed(rival) if rival in trial.sequence else None
    proof = "but that is not proved yet" + (f": it takes about {range_text(needed)} more questions" if needed else "")
    if trial.proved[rival]:
        proof = "and a larger loss by it is ruled out, too"
    elif rival not in trial.sequence:
        proof = "but that was not tested: the other questions, which choose what is tested, favoured something cheaper"
    return (
        f"Here {_budget_text(trial, trial.candidates[rival])} scored {'better' if better else 'as well'} "
        f"{'for less' if cheaper else 'at no higher cost'}, {proof}."
    )
