"""Giving up runs, in dollars: the money that a candidate saves, minus the price of the successes that it loses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.replay.outcomes import abandoned
from suffice.recordings.schema import DOLLAR
from suffice.verdicts.decisions.figures import change_of
from suffice.verdicts.decisions.losses import COST_REMEDIES
from suffice.verdicts.decisions.trial import Trial

_PER = 1000
"""Runs that amounts are given for."""

_MOST_ROWS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The dollars that giving up saves and loses, on the runs of the verdict part.

    Attributes:
        trial: The trial, whose metric is the success of runs that are given up.
        price: The value of a success, in the currency of the trial (dollars, unless the log names another currency).

    Raises:
        DataError: The price is not above 0, the metric is not the success of runs that are given up, or the cost of the runs is unknown.
    """

    trial: Trial
    price: float

    def __post_init__(self) -> None:
        if not (self.price > 0 and math.isfinite(self.price)):
            raise DataError(
                f"success_price (--set success-price=AMOUNT) is the value of a success in {self.trial.currency}, above 0, not {self.price!r}"
            )
        if not abandoned(self.trial.metric):
            raise DataError(
                f"success_price values the successes that giving up loses, and the metric is {self.trial.metric}: name the success of a run "
                "(metric='abandon(NAME)', --metric 'abandon(NAME)'), or leave out success_price (--set success-price)"
            )
        spent = self.trial.totals.costs["money"]
        if self.trial.totals.n and not (np.isfinite(spent).all() and spent[-1] > 0):
            raise DataError(
                "what giving up saves in money is unknown, since the recording does not say what the runs cost: "
                f"{COST_REMEDIES['money']}, or leave out success_price (--set success-price)"
            )

    def of(self, place: int) -> tuple[float, float, tuple[float, float, float]]:
        """Return a candidate's saving, the worth of its lost successes, and the net saving with its interval.

        All amounts are per 1,000 runs.

        The interval of the net saving comes from the interval of the lost successes, see `change_of`. Its ends are NaN
        if the candidate is not tested.
        """
        totals = self.trial.totals
        spent = totals.costs["money"]
        saved = float(_PER * (spent[-1] - spent[place]) / max(totals.n_recorded, 1))
        mean, low, high = (_PER * self.price * change for change in change_of(self.trial, place))
        return saved, 0.0 - mean, (saved + mean, saved + low, saved + high)

    @property
    def places(self) -> list[int]:
        """The positions of the candidates to report.

        First comes the candidate that the advice is about, if there is one, then the tested candidates by decreasing
        net saving.
        """
        tested = sorted(self.trial.sequence, key=lambda place: -self.of(place)[2][0])
        chosen = self.trial.chosen
        return tested if chosen is None else [chosen, *(place for place in tested if place != chosen)]

    @property
    def sentence(self) -> str:
        """A sentence on the dollars that the advised candidate saves and loses.

        Without an advised candidate, the sentence is about the best tested candidate; it is empty if none is tested.
        """
        if not (self.places and self.trial.totals.n):
            return ""
        place = self.places[0]
        saved, lost, net = self.of(place)
        best = "" if place == self.trial.chosen else ", which nets most of those tested,"
        ends = f" ({self._amount(net[1])} to {self._amount(net[2])})" if np.isfinite(net).all() else ""
        pays = "at any price" if saved > 0 else "at no price"
        if min(saved, lost) > 0:
            pays = f"while a success is worth less than {self._amount(self.price * saved / lost)}"
        return (
            f"At {self._amount(self.price)} a success, {self.trial.candidates[place].label}{best} saves {self._amount(saved)} and loses successes worth "
            f"{self._amount(lost)} per {_PER:,} runs, {self._amount(net[0])} net{ends}: it pays {pays}."
        )

    def _amount(self, amount: float) -> str:
        """Return an amount as text, with cents: ``USD -0.50``."""
        return f"{self.trial.currency} {amount:,.2f}"

    def table(self) -> Table:
        """Return a table of the savings and losses of the advised candidate and the best tested ones."""
        money = "dollars" if self.trial.currency == DOLLAR else self.trial.currency
        return Table(
            title=f"Giving up in {money} per {_PER:,} runs, at {self._amount(self.price)} a success",
            columns=(
                Column("policy"),
                Column("saved", ",.2f"),
                Column("successes lost", ",.2f"),
                Column("net", "+,.2f", interval=True),
            ),
            rows=tuple((self.trial.candidates[place].label, *self.of(place)) for place in self.places[:_MOST_ROWS]),
            notes=("the interval of the net is that of the successes lost",),
        )
