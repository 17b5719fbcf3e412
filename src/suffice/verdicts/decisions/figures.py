"""Figures of each candidate, for tables, charts and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table
from suffice.verdicts.decisions.gates import RETRIEVALS
from suffice.verdicts.decisions.trial import Trial

_CENTS = 0.1
"""A cost below which two decimals do not show differences."""

_INTERVAL_LETTERS = 15
"""Letters of an interval that is drawn as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFigures:
    """Figures of one candidate on the questions of the verdict part.

    Attributes:
        state: `advised`, `proved`, `taken back` (proved, and contradicted since), `open` (also where nothing can be judged),
            `loses more`, or `not tested` (on tune questions another candidate loses no more and costs less).
        change: Mean change of the metric against the baseline, and the ends of its interval, see `change_of`.
        spent: Mean costs by name; NaN where unknown.
        saving: Share of the cost to save that the candidate saves; NaN where unknown.
        tested: Whether it is in the sequence of tests.
        needed: Approximate numbers of further questions that would prove the candidate in one of two cases and in four of
            five; None if no more are needed, or the number is unknown.
        waits_for: The first of the earlier candidates that are still open and delay this one, which has only a share of the risk until
            then, though its evidence would do for all of it; empty if there is none.
        judged: False if nothing can be judged: values and changes are then bounds in which everything unknown is at its worst, which no
            table shows, since together they can be impossible.
        evidence: The highest wealth so far of the bet that the candidate loses less than the largest accepted loss.
        twin: The metric of the random twin, which stops at random, as often at each round as the candidate; NaN unless
            the candidate is a tested rule.
        gain: The candidate's mean gain over the twin, with the ends of its interval; NaN where `twin` is.
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
        """True if these questions also selected the candidate, so that its change probably looks too good."""
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
    """Return the figures of all candidates, in their order."""
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
    """Return a candidate's mean change of the metric and the ends of its interval, NaN for one that is not tested.

    The interval is a confidence sequence: its ends hold for all tested candidates at once and however often one looks, with
    a risk of `alpha`.  Its lower end is not below what the tests show with the risk of theirs: -`max_loss` of a proved
    candidate, and of an open one what its share of the risk excludes.  These are the simultaneous bounds that belong to such
    tests (Strassburger and Bretz 2008, "Compatible simultaneous lower confidence bounds for the Holm procedure and other
    Bonferroni-based closed tests").

    Where a share of the labels is declared wrong, they show a part of each change, and the figures are those of the whole.
    Fewer of them may be wrong than declared: then the ends are between those that labels show and those that are scaled.
    """
    by_labels = np.array(_change_by_labels(trial, place))
    mean, low, high = np.clip(by_labels / trial.by_labels, -1.0, 1.0).tolist()
    return mean, float(np.minimum(low, by_labels[1])), float(np.maximum(high, by_labels[2]))


def _change_by_labels(trial: Trial, place: int) -> tuple[float, float, float]:
    """Return the mean change that the labels or golds show, and the ends of its interval."""
    mean = float(trial.totals.losses[place] / trial.totals.n) if trial.totals.n else np.nan
    if trial.losses is None or not trial.totals.n or place not in trial.sequence:
        return 0.0 - mean, np.nan, np.nan
    at = trial.sequence.index(place)
    shares, test, level = trial.below.shares[place], trial.tests[at], trial.alpha / (2 * len(trial.sequence))
    shown = trial.bound
    if not test.passed:
        shown = max(shown, trial.losses.bound(at, "below", shares, test.level))
    most = min(shown, trial.losses.bound(at, "below", shares, level))
    least = trial.losses.bound(at, "above", trial.above.shares[place], level)
    return 0.0 - mean, 0.0 - max(most, mean), 0.0 - min(least, mean)


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


def bar_heading(max_loss: float) -> str:
    """Return the heading of the column with `interval_bar`; a page that has the chart leaves the column out."""
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
    """Draw a mean change and its interval as a line of text; bars mark the largest accepted loss and no change.

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
