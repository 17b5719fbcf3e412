"""Rivals of a candidate that need no signal: fixed budgets, coins between two of them, and stopping at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from suffice.common.tables import counted, figure
from suffice.evaluation.replay.front import Mixture, best_mixture, upper_hull
from suffice.policy.rounds import Positions
from suffice.policy.session import Policy
from suffice.recordings.runs import ALONE
from suffice.verdicts.decisions.candidates import is_fixed_budget, is_vote
from suffice.verdicts.decisions.gates import is_closed_book
from suffice.verdicts.decisions.losses import SLACK
from suffice.verdicts.losses import range_text

if TYPE_CHECKING:
    from suffice.verdicts.decisions.trial import Trial


def rival_of(trial: Trial) -> int | None:
    """Return the position of the chosen candidate's rival, see `Trial.rival`; None without one."""
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
    """Return the coin between two budgets that scored more than the chosen candidate for as much; None without one.

    All fixed budgets count, also those that are not tested, and what the differences are taken against, if that is a
    budget or the logged loop itself.  A single budget that does as well needs no coin, see `rival_of`.  These questions
    choose the two, so nothing is claimed about others.  As there, unknown outcomes must not allow a loss of more than
    `max_loss`.
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
    """Return the largest sum of losses of what does as well as a candidate: an unknown score may be a part of a lower metric alone."""
    return min(trial.bound * trial.totals.n, float(trial.totals.losses[place]) + SLACK * trial.totals.n)


def budgets_hull(trial: Trial) -> list[tuple[float, float]]:
    """Return cost and change of the budgets on the upper hull, from cheap to expensive: no mixture of two other budgets is as good.

    What lies between two neighbours is what coins between them cost and change.
    """
    totals, budgets = trial.totals, _budgets(trial)
    if not totals.n_recorded or not np.isfinite(totals.costs[trial.cost]).all():
        return []
    change = 0.0 - np.append(totals.losses, 0.0)[budgets] / totals.n
    costs = totals.costs[trial.cost][budgets] / totals.n_recorded
    return [(float(costs[place]), float(change[place])) for place in upper_hull(change, costs)]


def dominating_label(trial: Trial) -> str | None:
    """Return the name of the budget, or mixture of two, that does as well as the chosen candidate; None without one."""
    if trial.rival is not None:
        return trial.candidates[trial.rival].label
    return None if trial.mixture is None else trial.mixture.label


def rivals_text(trial: Trial, place: int) -> str:
    """Return sentences on the signal-free policies that do as well as the chosen candidate; empty if there are none."""
    text = "" if trial.rival is None else f" {_rival_text(trial, place, trial.rival)}"
    text += "" if trial.mixture is None else f" {_mixture_text(trial, trial.mixture)}"
    gain = tuple(float(ends[place]) for ends in trial.totals.gain_interval())
    if place in trial.twinned and trial.labels is None and not gain[1] > 0:
        text += f" It is not shown to beat stopping at random as often: {figure(gain, '+.1f', 100)} points."
    return text


def _budgets(trial: Trial) -> Positions:
    """Return the positions of all fixed budgets in sums over candidates and baseline, which comes last."""
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
    between = f"{_budget_text(trial, one)} and {_budget_text(trial, other)}"
    capped = [policy for policy in (one, other) if policy is not None and _is_cap(policy)]
    if len(capped) == 2 and one is not None and other is not None:  # noqa: PLR2004
        samples = is_vote(one)
        between = (
            f"{one.max_rounds} and {other.max_rounds} samples"
            if samples
            else f"caps of {one.max_rounds} and {other.max_rounds}"
        )
    return f"A coin between {between} scored better here and costs no more: it needs no signal, but these questions chose the two."


def _budget_text(trial: Trial, policy: Policy | None) -> str:
    if policy is None:
        return trial.baseline if trial.against else "what you have"
    if is_closed_book(policy):
        return "never retrieving"
    if policy.name.endswith(ALONE):
        return policy.name
    return counted(policy.max_rounds, "sample") if is_vote(policy) else f"a cap of {policy.max_rounds}"


def _is_cap(policy: Policy) -> bool:
    """Return whether a fixed budget is neither the closed book nor a model alone."""
    return not (is_closed_book(policy) or policy.name.endswith(ALONE))


def _rival_text(trial: Trial, place: int, rival: int) -> str:
    """Return a rival's figures on these questions, and how much evidence is missing to prove it."""
    costs = trial.totals.costs[trial.cost]
    better = trial.totals.losses[rival] < trial.totals.losses[place] - SLACK * trial.totals.n
    cheaper = costs[rival] < costs[place]
    needed = trial.questions_needed(rival) if rival in trial.sequence else None
    proof = "but that is not proved yet" + (f" (about {range_text(needed)} more)" if needed else "")
    if trial.proved[rival]:
        proof = "and a larger loss by it is ruled out, too"
    elif rival not in trial.sequence:
        proof = (
            "but they cannot prove it: on the tune questions something cheaper seemed as good, and was tested instead"
        )
    return (
        f"In these questions {_budget_text(trial, trial.candidates[rival])} scored {'better' if better else 'as well'} "
        f"{'for less' if cheaper else 'at no higher cost'}, {proof}."
    )
