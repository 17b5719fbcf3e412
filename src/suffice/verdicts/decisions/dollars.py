"""Giving up in dollars: the money that a candidate saves, less the successes that it loses, at a price of a success."""

from __future__ import annotations

import math

import numpy as np

from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.replay.outcomes import abandoned
from suffice.verdicts.decisions.figures import change_of
from suffice.verdicts.decisions.losses import COST_REMEDIES
from suffice.verdicts.decisions.trial import Trial

_PER = 1000
"""Runs that amounts are given for."""


def refuse_success_price(price: float | None, trial: Trial) -> None:
    """Raise a `DataError` if a price of a success is none, or says nothing about a trial."""
    if price is None:
        return
    if not (price > 0 and math.isfinite(price)):
        raise DataError(
            f"success_price (--set success-price=USD) is the value of a success in dollars, above 0, not {price!r}"
        )
    if not abandoned(trial.metric):
        raise DataError(
            f"success_price values the successes that giving up loses, and the metric is {trial.metric}: name the success of a run "
            "(metric='abandon(NAME)', --metric 'abandon(NAME)'), or leave out success_price (--set success-price)"
        )
    spent = trial.totals.costs["money"]
    if trial.totals.n and not (np.isfinite(spent).all() and spent[-1] > 0):
        raise DataError(
            f"what giving up saves in dollars is unknown, since the recording does not say what the runs cost: {COST_REMEDIES['money']}, "
            "or leave out success_price (--set success-price)"
        )


def dollars_of(trial: Trial, place: int, price: float) -> tuple[float, float, tuple[float, float, float]]:
    """Return what a candidate saves and what the successes that it loses are worth, and the net, USD per 1,000 runs.

    The ends of the net are those of the interval of the successes, see `change_of`: NaN for a candidate that is not tested.
    """
    spent = trial.totals.costs["money"]
    saved = float(_PER * (spent[-1] - spent[place]) / max(trial.totals.n_recorded, 1))
    mean, low, high = (_PER * price * change for change in change_of(trial, place))
    return saved, 0.0 - mean, (saved + mean, saved + low, saved + high)


def best_place(trial: Trial, price: float) -> int | None:
    """Return the position of the candidate that the advice is about, or else of the tested one with the highest net; None without one."""
    if trial.chosen is not None:
        return trial.chosen
    return max(trial.sequence, key=lambda place: dollars_of(trial, place, price)[2][0], default=None)


def dollars_text(trial: Trial, price: float) -> str:
    """Return the dollars of one candidate as a sentence: of the advised one, or of the best on these questions; "" if none is tested."""
    place = best_place(trial, price)
    if place is None or not trial.totals.n:
        return ""
    saved, lost, net = dollars_of(trial, place, price)
    best = "" if place == trial.chosen else ", which nets most of those tested,"
    ends = f" ({_usd(net[1])} to {_usd(net[2])})" if np.isfinite(net).all() else ""
    until = f"it pays while a success is worth less than {_usd(price * saved / lost)}" if min(saved, lost) > 0 else ""
    until = until or ("it pays at any price" if saved > 0 else "it pays at no price")
    return (
        f"At {_usd(price)} a success, {trial.candidates[place].label}{best} saves {_usd(saved)} and loses successes worth {_usd(lost)} per "
        f"{_PER:,} runs, {_usd(net[0])} net{ends}: {until}."
    )


def dollars_table(trial: Trial, price: float, places: list[int]) -> Table:
    """Return the table of what candidates save and lose in dollars."""
    best = best_place(trial, price)
    wanted = dict.fromkeys([*([] if best is None else [best]), *places])
    rows = tuple((trial.candidates[place].label, *dollars_of(trial, place, price)) for place in wanted)
    return Table(
        title=f"Giving up in dollars per {_PER:,} runs, at {_usd(price)} a success",
        columns=(
            Column("policy"),
            Column("saved", ",.2f"),
            Column("successes lost", ",.2f"),
            Column("net", "+,.2f", interval=True),
        ),
        rows=rows,
        notes=("the interval of the net is that of the successes lost",),
    )


def _usd(amount: float) -> str:
    """Return an amount as text, with cents.

    >>> _usd(2000.0), _usd(-0.5)
    ('USD 2,000.00', 'USD -0.50')
    """
    return f"USD {amount:,.2f}"
