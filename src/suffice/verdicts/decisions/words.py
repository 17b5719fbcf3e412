"""The words of a piece of advice: one sentence with a verb, and what speaks for and against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from suffice.common.tables import counted, figure
from suffice.policy.rounds import Mask
from suffice.verdicts.decisions.candidates import change_text, is_vote
from suffice.verdicts.decisions.trial import Trial


class Advised(Protocol):
    """Protocol of the facts behind the words of an advice; `Advice` has them."""

    @property
    def trial(self) -> Trial:
        """The measured candidates."""

    @property
    def n(self) -> int:
        """Questions."""

    @property
    def chosen(self) -> int | None:
        """The place of the candidate that is advised, if one is."""

    @property
    def rival(self) -> int | None:
        """The place of the candidate that is named beside it, if one is."""

    @property
    def verdict(self) -> str:
        """The advice in two or three words."""

    @property
    def unjudged(self) -> str:
        """The reason why nothing can be judged; empty if it can."""

    @property
    def unexplained(self) -> str:
        """The share of the loss that nothing is known of, in words; empty if there is none."""

    @property
    def saves(self) -> Mask:
        """Mask of the candidates that cost less than the loop."""

    @property
    def against(self) -> str:
        """The loop that a change is compared with, in words."""

    def questions_needed(self, place: int) -> int | None:
        """Return how many more questions a candidate needs, if that can be said."""


@dataclass(frozen=True, slots=True)
class AdviceWords:
    """The sentences about an advice.

    Attributes:
        advice: The advice.
    """

    advice: Advised

    @property
    def verdict(self) -> str:
        """The advice, a verb first."""
        trial, verdict = self.advice.trial, self.advice.verdict
        points, judges = f"{100 * trial.max_loss:g} points", counted(self.advice.n, "question")
        do, show, rule = ("does", "shows", "rules") if self.advice.n == 1 else ("do", "show", "rule")
        if verdict == "cannot be judged":
            return f"This cannot be judged yet: {self.advice.unjudged}"
        if verdict == "keep what you have" and not self.advice.saves.any():
            return f"Keep what you have: nothing here would save {trial.cost}, as {judges} {show}."
        if verdict == "keep what you have":
            return (
                f"Keep what you have: everything that would save {trial.cost} loses more than {points} of {trial.metric}, "
                f"as {judges} {show}."
            )
        if self.advice.chosen is None:
            return (
                f"Not enough data: nothing that saved {trial.cost} on tune questions seems to stay within {points} of "
                f"{trial.metric}, and "
                f"{judges} {do} not rule it out either. Record more questions."
            )
        change = change_text(trial.candidates[self.advice.chosen], None if self.advice.against else trial.loop.highest)
        if verdict == "do it":
            return (
                f"{change[0].upper()}{change[1:]}: {self._taken('with ', ' ')}it saves {self._saved()} and changes {trial.metric} by {self._change()} "
                f"points{self.advice.against} (selected here: these questions also chose it); {judges} {rule} out a loss of {points} or more (risk "
                f"{100 * trial.alpha:g} %)."
                f"{self._rivals_text()}"
            )
        return self._open_sentence(
            change, f"{judges} {rule} out a loss of {points}", f"{judges} {do} not rule out a loss of {points}"
        )

    def _open_sentence(self, change: str, shown: str, open_: str) -> str:
        """Return the sentence about a candidate that is not proved.

        Args:
            change: The change in words.
            shown: That the questions rule out the loss.
            open_: That they do not.
        """
        assert self.advice.chosen is not None
        metric, needed = self.advice.trial.metric, self.advice.questions_needed(self.advice.chosen)
        if self.advice.chosen in self.advice.trial.waiting_for:
            rest = self._waiting_text(shown)
        elif needed:
            rest = f"{open_}. Record about {needed:,} more questions."
        else:
            rest = f"{open_}. Record more questions; how many more cannot be said yet."
        return (
            f"Not enough data: to {change} would {self._taken('take ', ', ')}save {self._saved()} and change {metric} by "
            f"{self._change()} points{self.advice.against}, but {rest}{self._rivals_text()}"
        )

    def _waiting_text(self, shown: str) -> str:
        """Return why a complete proof does not count yet, and what to do.

        Args:
            shown: What the questions show of the candidate alone.
        """
        assert self.advice.chosen is not None
        trial = self.advice.trial
        place = trial.waiting_for[self.advice.chosen]
        first, one = trial.candidates[place].label, trial.candidates[self.advice.chosen].label
        text = (
            f"its proof does not count yet: {shown} by {one} alone, but {one} is tested after {first}, which is not proved, and "
            f"the risk of {100 * trial.alpha:g} % holds only if the tests stop there. "
        )
        if trial.totals.losses[place] < self.advice.n * trial.max_loss:
            return f"{text}Record more questions."
        return f"{text}Here {first} lost more than that, so put new questions to a new decision (-o OTHER.json)."

    def _taken(self, before: str, after: str) -> str:
        """Return the number of samples that a vote with a stopping rule takes, between two texts; empty for other candidates."""
        place = self.advice.chosen
        if place is None or place not in self.advice.trial.twinned or not is_vote(self.advice.trial.candidates[place]):
            return ""
        calls = self.advice.trial.totals.costs["calls"] / self.advice.trial.totals.n_recorded
        if not np.isfinite(calls).all():
            return ""
        return f"{before}{calls[place]:.1f} of {calls[-1]:.3g} samples a question{after}"

    def _saved(self) -> str:
        assert self.advice.chosen is not None
        totals, cost = self.advice.trial.totals, self.advice.trial.cost
        more = []
        for name in ("calls", "tokens"):
            share = float(totals.saving(name)[self.advice.chosen])
            if name != cost and np.isfinite(share):
                more.append(f"{_percent(share)} of the {name}")
        spent = totals.costs["money"]
        if np.isfinite(spent).all() and spent[-1]:
            more.append(
                f"USD {1000 * (spent[-1] - spent[self.advice.chosen]) / totals.n_recorded:,.2f} per 1,000 questions"
            )
        text = f"{_percent(float(totals.saving(cost)[self.advice.chosen]))} of the {cost}"
        return f"{text} ({', '.join(more)})" if more else text

    def _change(self) -> str:
        assert self.advice.chosen is not None
        mean, low, high = self.advice.trial.totals.interval()
        place = self.advice.chosen
        # A change is a loss with its sign turned, and so are the ends of its interval.
        return figure((0.0 - mean[place], 0.0 - high[place], 0.0 - low[place]), "+.1f", 100)

    def _rivals_text(self) -> str:
        """Return the sentence on rivals that do as well as the chosen candidate without signals; empty if there are none."""
        if self.advice.chosen is None:
            return ""
        text = ""
        if self.advice.rival is not None:
            text += f" {self._rival_text(self.advice.rival)}"
        gain = tuple(float(ends[self.advice.chosen]) for ends in self.advice.trial.totals.gain_interval())
        if self.advice.chosen in self.advice.trial.twinned and not gain[1] > 0:
            text += f" It is not shown to beat stopping at random as often: {figure(gain, '+.1f', 100)} points."
        return text

    def _rival_text(self, rival: int) -> str:
        """Return what the rival gave in these questions, and how far that is from a proof."""
        assert self.advice.chosen is not None
        trial, costs = self.advice.trial, self.advice.trial.totals.costs[self.advice.trial.cost]
        better = trial.totals.values[rival] > trial.totals.values[self.advice.chosen]
        cheaper = costs[rival] < costs[self.advice.chosen]
        needed = self.advice.questions_needed(rival) if rival in trial.sequence else None
        proof = "but that is not proved yet" + (f" (about {needed:,} more)" if needed else "")
        if trial.proved[rival]:
            proof = "and a larger loss by it is ruled out, too"
        elif rival not in trial.sequence:
            proof = "but it is not tested: on the tune questions a cheaper candidate seemed to lose no more"
        policy = trial.candidates[rival]
        budget = counted(policy.max_rounds, "sample") if is_vote(policy) else f"a cap of {policy.max_rounds}"
        return (
            f"In these questions {budget} scored {'better' if better else 'as well'} and "
            f"{'is cheaper' if cheaper else 'costs no more'}, {proof}."
        )


def _percent(share: float) -> str:
    """Return a share in words; a small one is not nothing.

    >>> _percent(0.6), _percent(0.004), _percent(-0.12)
    ('60 %', '0.4 %', '-12 %')
    """
    return f"{100 * share:.0f} %" if abs(share) >= 0.01 or not share else f"{100 * share:.1g} %"  # noqa: PLR2004
