"""Measure the loss and cost of each candidate, per question and in total; an unknown outcome counts at its worst."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from suffice.common.results import jsonable
from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.evaluation.replay import check_policy
from suffice.evaluation.replay.baselines import Run, recorded_run
from suffice.evaluation.replay.orders import n_orders
from suffice.evaluation.replay.prepared import PreparedRecording, answering_like
from suffice.evaluation.replay.prices import Price
from suffice.policy.rounds import Floats, Mask, Positions
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.recordings.runs import ALONE, begins_closed_book
from suffice.verdicts.decisions.gates import RETRIEVALS
from suffice.verdicts.losses import Baseline, LossAccount, Questions

SAVABLE = ("calls", "tokens", "money", RETRIEVALS)
SLACK = 1e-12
"""The difference up to which two means are equal, since they are sums in another order."""
_Z = 1.959964  # two-sided 95 %
_ORDER_SALT = "decide, order:"
_SUMS = ("losses", "open", "squares", "values", "twins", "gains", "squared_gains")
"""Attributes of totals that are sums over units."""
COST_REMEDIES = {
    "calls": "log every round",
    "tokens": "log cost.generator.uncached_tokens, cost.generator.cached_tokens and cost.generator.output_tokens (of prefixes of chains of thought: import with --trial-cost N)",
    "money": "log the tokens (cost.generator.uncached_tokens, ...), and give prices of every component (prices=..., --prices FILE)",
    RETRIEVALS: "record round 0, the model alone, beside the rounds with evidence",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the units of the verdict part.

    The last entry of `values` and of each cost belongs to the baseline.

    Attributes:
        n: Number of units.
        n_recorded: Units with at least one row that did not fail; quality and costs are means over these units.
        losses: Sum of the largest possible losses, shape ``(n_candidates,)``.
        open: The part of `losses` that is due to unknown outcomes, same shape.
        squares: Sum of the squares of the largest possible losses, same shape.
        values: Sum of the metric, shape ``(n_candidates + 1,)``.
        costs: Sums of each cost in `SAVABLE`, shape of `values`; NaN if the cost of some unit is unknown.
        twins: Sum of the metric of each candidate's random twin, shape ``(n_candidates,)``; NaN without a twin.
        gains: Sum of each candidate's smallest possible gains over its random twin, same shape.
        squared_gains: Sums of squares from which the variance of `gains` is estimated, see `_gain_sums`; same shape.
        squared: Sum of the squares of the baseline's metric.
        unknown: Units in which an outcome is unknown under some candidate.
        failed: Units in which a recording failed.
        unexplained: Units that have fewer rounds than other units, and no recorded reason for this.
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
        """Return the sums before any unit is added, all zero."""
        zeros = np.zeros(n_candidates + 1)
        sums: dict[str, Any] = dict.fromkeys(
            ("losses", "open", "squares", "twins", "gains", "squared_gains"), zeros[1:]
        )
        return cls(n=0, n_recorded=0, values=zeros, costs=dict.fromkeys(SAVABLE, zeros), **sums)

    def __add__(self, other: Totals) -> Totals:
        costs = {name: self.costs[name] + other.costs[name] for name in SAVABLE}
        sums = {
            item.name: getattr(self, item.name) + getattr(other, item.name)
            for item in fields(self)
            if item.name != "costs"
        }
        return Totals(costs=costs, **sums)

    def blocked(self, max_loss: float) -> Mask:
        """Return a mask of the candidates that more units like these could never prove, shape ``(n_candidates,)``.

        Unknown outcomes may cost such a candidate more than `max_loss`, and the known outcomes do not offset this loss.
        """
        blocked: Mask = np.minimum(self.open, self.losses) > self.n * max_loss
        return blocked

    @property
    def constant(self) -> float | None:
        """The score of every answer, if baseline and candidates score the same in all units; else None."""
        if self.n < 2 or self.squares.any():  # noqa: PLR2004 - one value varies from nothing
            return None
        mean = float(self.values[-1] / self.n_recorded)
        return mean if abs(self.squared / self.n_recorded - mean**2) < SLACK else None

    @property
    def never_varied(self) -> bool:
        """True if no candidate lost or gained anything in any unit."""
        return self.n > 1 and not self.squares.any()

    def saving(self, cost: str) -> Floats:
        """Return the share of a cost that each candidate saves, shape ``(n_candidates,)``; NaN where unknown."""
        spent = self.costs[cost]
        return 1 - spent[:-1] / spent[-1] if spent[-1] else np.full(len(spent) - 1, np.nan)

    def gain_interval(self) -> tuple[Floats, Floats, Floats]:
        """Return the mean gain over each random twin, with the ends of a normal 95 % interval.

        All are NaN for a candidate without a twin, or if there is only one unit.
        """
        mean = self.gains / self.n_recorded if self.n_recorded else np.full(len(self.gains), np.nan)
        half = np.full(len(self.gains), np.nan)
        if self.n_recorded > 1:
            variance = np.maximum(self.squared_gains / self.n_recorded - mean**2, 0.0)
            half = _Z * np.sqrt(variance / (self.n_recorded - 1))
        return mean, mean - half, mean + half

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; an unknown cost is None."""
        costs = {name: None if np.isnan(sums).any() else sums.tolist() for name, sums in self.costs.items()}
        if costs[RETRIEVALS] is None:  # most loops have no round 0
            del costs[RETRIEVALS]
        sums = {name: jsonable(getattr(self, name).tolist()) for name in _SUMS}
        counts = {"n": self.n, "squared": self.squared, "unknown": self.unknown, "failed": self.failed}
        counts["unexplained"] = self.unexplained
        if self.failed:  # else equal to `n`
            counts["n_recorded"] = self.n_recorded
        return {**counts, **sums, "costs": costs}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Totals:
        """Return the sums that `to_dict` wrote."""
        numbers: dict[str, Any] = {name: int(data[name]) for name in ("n", "unknown", "failed")}
        numbers["unexplained"] = int(data.get("unexplained", 0))  # absent in decisions from before 0.4
        numbers["n_recorded"] = int(data.get("n_recorded", numbers["n"]))  # see `means_note`
        sums: dict[str, Any] = {name: np.asarray(data[name], dtype=np.float64) for name in _SUMS}
        nothing_known = np.full(sums["values"].shape, np.nan)
        costs = {
            name: nothing_known if known is None else np.asarray(known, dtype=np.float64)
            for name in SAVABLE
            for known in [data["costs"].get(name)]
        }
        return cls(
            **numbers, **sums, squared=math.nan if data["squared"] is None else float(data["squared"]), costs=costs
        )


def means_note(totals: Mapping[str, Any]) -> list[str]:
    """Return a note if the sums come from release 0.4, which counted failed rows as 0 in all means."""
    n, failed = int(totals["n"]), int(totals["failed"])
    if not failed or "n_recorded" in totals:
        return []
    note = (
        f"an earlier release judged {counted(n, 'question')}, of which {failed:,} failed at least once: in the printed means of "
        "quality and costs their failed recordings count as 0. Losses and the verdict are not affected"
    )
    return [note]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitParts:
    """The contributions of each unit to `Totals`, except for losses.

    Attributes:
        costs: Costs by name, shape ``(n_candidates + 1, n_units)``; NaN where unknown, 0 where all rows failed.
        places: Positions of the units with at least one row that did not fail, in the order of `Questions.of_recorded`.
        failed: Mask of the units with a failed row, shape ``(n_units,)``.
        unexplained: Mask of the units that have fewer rounds than other units, and no recorded reason for this; same
            shape.
    """

    costs: Mapping[str, Floats]
    places: Positions
    failed: Mask
    unexplained: Mask

    @classmethod
    def begin(cls, questions: Questions, n_runs: int, open_ends: Mask) -> UnitParts:
        """Return the parts without any costs yet.

        Args:
            questions: The questions.
            n_runs: Number of candidates, plus one for the baseline.
            open_ends: Mask of the rows with an open end, see `LossAccount`.
        """
        codes = np.arange(len(questions.names)) if questions.units.codes is None else questions.units.codes
        of_rows = codes[questions.recorded]
        first = np.sort(np.unique(of_rows, return_index=True)[1])
        return cls(
            costs={name: np.zeros((n_runs, questions.units.n_units)) for name in SAVABLE},
            places=of_rows[first],
            failed=questions.units.sums((~questions.recorded).astype(np.float64)) > 0,
            unexplained=questions.means(open_ends, failed=0.0) > 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Losses of candidates against the baseline on units, and the sums that the figures are computed from.

    Attributes:
        worst: The largest possible loss of each candidate, shape ``(n_candidates, n_units)``, in [-1, 1].
        best: The smallest possible loss, same shape; equal to `worst` where everything is known.
        order: The order in which the units are bet on, shape ``(n_units,)``; it does not depend on the losses.
        totals: Sums over the units; an unknown outcome counts at its worst.
        unpriced: The number of units in which each cost is unknown.
        parts: The contributions of each unit to the totals; None unless requested, because they take much memory.
    """

    worst: Floats
    best: Floats
    order: Positions
    totals: Totals
    unpriced: Mapping[str, int]
    parts: UnitParts | None = None

    @property
    def n(self) -> int:
        """The number of units."""
        return self.totals.n

    def within(self, differing: Floats) -> Measured:
        """Clip the losses to bounds that hold for any metric.

        Quality and random twins need a metric, so they become undefined.

        Args:
            differing: The largest possible loss of each candidate in each unit under any metric, shape of `worst`.
        """
        return self.with_losses(np.minimum(self.worst, differing), np.maximum(self.best, -differing))

    def with_losses(self, worst: Floats, best: Floats) -> Measured:
        """Replace the losses but keep the costs; quality and random twins become undefined."""
        nothing = np.full(len(worst), np.nan)
        totals = replace(
            self.totals,
            **_sums_of(worst[:, self.order], best[:, self.order]),
            values=np.full(len(worst) + 1, np.nan),
            squared=np.nan,
            twins=nothing,
            gains=nothing,
            squared_gains=nothing,
            unknown=int((worst != best).any(axis=0).sum()),
        )
        return replace(self, worst=worst, best=best, totals=totals)

    def require_cost(self, name: str) -> None:
        """Raise a `DataError` if the cost to save is unknown in some unit."""
        if self.unpriced[name]:
            raise DataError(
                f"{name} {'is' if name == 'money' else 'are'} unknown in {self.unpriced[name]:,} of {counted(self.n, 'question')}, so what a change would "
                f"save is unknown: {COST_REMEDIES[name]}, or decide about calls (cost='calls', --cost calls)"
            )


def prices_text(prices: Price | Mapping[str, Price] | None) -> str:
    """Return prices as text, so that two price lists can be compared; empty without prices."""
    if prices is None:
        return ""
    if isinstance(prices, Price):
        writes = (prices.written, prices.written_1h)
        return repr(prices) if writes == (None, None) else f"{prices!r}, written {writes}"
    return "; ".join(f"{component}: {prices_text(price)}" for component, price in sorted(prices.items()))


def measure_candidates(
    recording: Recording,
    policies: Sequence[Policy],
    baseline: str,
    metric: str,
    *,
    prices: Price | Mapping[str, Price] | None = None,
    with_twins: Collection[int] = (),
    orders: int = 1,
    start_round: int = 1,
    by_unit: bool = False,
) -> Measured:
    """Measure the losses of candidates against the baseline.

    Args:
        recording: Recorded rounds, failed questions included.
        policies: The candidates, all with one selector.
        baseline: `recorded` for the logged loop itself, or a rule (`fixed_k(5)`, `full`).
        metric: See `suffice.evaluation.replay.outcome`.
        prices: Prices, to compute money; None = unknown.
        with_twins: Positions of the candidates that are compared with stopping at random.
        orders: Number of random orders of a question's independent samples over which its loss is averaged.
        start_round: The first round of the logged loop.
        by_unit: Whether to compute `Measured.parts`, too.

    Raises:
        CensoredError: The baseline needs rounds that were not recorded.
        DataError: The baseline is a budget that is larger than the budget of any question.
    """
    account = account_of(recording, policies, baseline, metric, prices=prices, orders=orders, start_round=start_round)
    of_retrieval = begins_closed_book(recording)
    questions, n_candidates = Questions.of(recording), len(policies)
    recorded, n_units = questions.of_recorded(), questions.units.n_units
    parts = UnitParts.begin(questions, n_candidates + 1, account.open_ends) if by_unit else None
    worst, best = (np.empty((n_candidates, n_units)) for _ in range(2))
    values, costs = np.empty(n_candidates + 1), {name: np.empty(n_candidates + 1) for name in SAVABLE}
    unpriced = {name: np.zeros(recorded.units.n_units, dtype=np.bool_) for name in SAVABLE}
    twins, gains, squared_gains = (np.full(n_candidates, np.nan) for _ in range(3))
    unknown = np.zeros(n_units, dtype=np.bool_)

    def add(place: int, run: Run) -> Floats:
        """Add the metric and costs of a run to the sums; return the metric of each recorded unit."""
        scores = recorded.means(np.nan_to_num(run.worst[metric]), failed=np.nan)
        values[place] = scores.sum()
        for name in SAVABLE:
            spent = recorded.means(_spent(run, name, of_retrieval=of_retrieval), failed=np.nan)
            costs[name][place] = spent.sum()
            unpriced[name] |= np.isnan(spent)
            if parts is not None:
                parts.costs[name][place, parts.places] = spent
        return scores

    for place, loss in enumerate(account.losses(policies, twinned=with_twins)):
        add(place, loss.run)
        best[place], worst[place] = questions.means(loss.low, failed=-1.0), questions.means(loss.high, failed=1.0)
        unknown |= questions.means(loss.low != loss.high, failed=1.0) > 0
        if loss.twin is not None:
            twins[place] = recorded.means(np.nan_to_num(loss.twin.worst[metric]), failed=np.nan).sum()
            least = np.nan_to_num(loss.run.worst[metric]) - np.nan_to_num(loss.twin.best[metric], nan=1.0)
            gains[place], squared_gains[place] = _gain_sums(recorded, least, loss.twin, metric)
        del loss  # large if there are a million rounds
    squared = float((add(n_candidates, account.baseline) ** 2).sum())
    order = questions.order(_ORDER_SALT)
    totals = Totals(
        n=n_units,
        n_recorded=recorded.units.n_units,
        **_sums_of(worst[:, order], best[:, order]),
        values=values,
        costs=costs,
        twins=twins,
        gains=gains,
        squared_gains=squared_gains,
        squared=squared,
        unknown=int(unknown.sum()),
        failed=int((questions.units.sums((~questions.recorded).astype(np.float64)) > 0).sum()),
        unexplained=int((questions.means(account.open_ends, failed=0.0) > 0).sum()),
    )
    lacking = {name: int(without.sum()) for name, without in unpriced.items()}
    return Measured(worst=worst, best=best, order=order, totals=totals, unpriced=lacking, parts=parts)


def _sums_of(worst: Floats, best: Floats) -> dict[str, Any]:
    """Return sums of losses.

    The losses must be in the order of bets, so that not even the last digit of a sum depends on the order of the file.
    """
    open_ = (worst * (worst != best)).sum(axis=-1)
    return {"losses": worst.sum(axis=-1), "open": open_, "squares": (worst**2).sum(axis=-1)}


def _gain_sums(recorded: Questions, rows: Floats, twin: Run, metric: str) -> tuple[float, float]:
    """Return the sum of gains over a random twin, and a sum of squares from which its variance is estimated.

    The twin's shares of stops are estimated from the same questions, which changes the variance of a gain, see
    `EstimatedShares`. Because the shares fit these n questions best, the squares are too small by a factor of (n - 1) /
    n. This is corrected, so sums over many small batches are right, too, even though each batch has its own shares.

    Args:
        recorded: The units of the rows that did not fail.
        rows: The smallest possible gain of each of these rows, shape ``(n_recorded,)``.
        twin: The random twin on these rows.
        metric: The metric.
    """
    gain, units = recorded.means(rows, failed=np.nan), recorded.units
    if twin.estimated is None:
        raise TypeError("a random twin must come with the stops from which its shares were estimated")
    n = len(rows)
    varying = gain - units.sums(twin.estimated.influence(metric)) * units.n_units / n
    return float(gain.sum()), float((varying**2).sum()) * n / max(n - 1, 1)


def _spent(run: Run, cost: str, *, of_retrieval: bool) -> Floats:
    """Return a cost of each question, shape ``(n_questions,)``; retrievals are NaN if the loop has no round 0."""
    if cost != RETRIEVALS:
        return run.ledger.spent(cost)
    if run.rounds is None or not of_retrieval:
        return np.full(len(run.unrun), np.nan)
    return np.maximum(run.rounds, 0).astype(np.float64)


def account_of(
    recording: Recording,
    policies: Sequence[Policy],
    baseline: str,
    metric: str,
    *,
    prices: Price | Mapping[str, Price] | None,
    orders: int,
    start_round: int,
) -> LossAccount:
    """Replay the baseline and return the account of losses against it; for the arguments see `measure_candidates`."""
    like, of_log = replace(policies[0], start_round=start_round), baseline == "recorded"
    prepared = PreparedRecording.of(recording, [metric], prices=prices, samples=True)
    reference: Baseline = partial(recorded_run, like=answering_like(like), start_round=like.start_round)
    replayed = [*policies]
    if not of_log:
        from suffice.evaluation.replay.references import baseline_policy

        reference = baseline_policy(recording, baseline, like)
        check_policy(reference, prepared.recording)
        replayed.append(reference)
    account = LossAccount.of(
        prepared,
        reference,
        orders=n_orders(prepared.recording, orders, replayed),
        open_ends=of_log,
        remedy="Use the baseline 'recorded', what the log did itself, or record at full width",
    )
    if not of_log:
        _refuse_endless(account.baseline, prepared)
    return account


def _refuse_endless(run: Run, prepared: PreparedRecording) -> None:
    """Raise if the baseline is a budget of more rounds than the recording allowed."""
    policy = run.policy
    if policy is None or policy.rule.signals != {"round"} or run.reasons.get("rule") or policy.name.endswith(ALONE):
        return
    if (prepared.recording.ends == "max_rounds").any():
        raise DataError(
            f"the baseline {policy.label!r} stops nowhere up to round {prepared.highest}, where the recording ends: what it "
            "would have answered later is unknown. Use 'recorded' or a smaller budget"
        )
