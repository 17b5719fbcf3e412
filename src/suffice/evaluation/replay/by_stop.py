"""Outcomes and costs of a stop at each round, shared by all policies with one selector and one start round.

A policy then only decides where it stops; its outcome and costs are looked up in these tables, and those of its random
twin are a weighted sum over them.  Only calls on demand, which depend on the signals that a rule reads, are charged
separately for each policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from suffice.evaluation.replay.costs import TOKEN_KINDS, CostTable, Ledger
from suffice.evaluation.replay.outcomes import expected_by_stop
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules import Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomesByStop:
    """Metrics of a stop at each round, by name, of shape ``(n_questions, n_rounds)``, from the start round on.

    Attributes:
        values: Metrics of the answer that the selector returns; the expected value if it draws among several answers.
        best: Metrics of the best round so far, which a perfect selector would return.
    """

    values: Mapping[str, Floats]
    best: Mapping[str, Floats]

    @classmethod
    def of(cls, selector: Selector, view: Rounds, metrics: Mapping[str, Floats]) -> OutcomesByStop:
        """Compute the outcomes of metrics at the rounds of a view."""
        # Without any round there is nothing to choose from.
        seen = {name: np.where(view.seen, metric, -np.inf) for name, metric in metrics.items()}
        for metric in seen.values():
            metric[~view.seen.any(axis=1)] = 0.0
        return cls(
            values={name: expected_by_stop(selector, view, metric) for name, metric in metrics.items()},
            best={name: np.maximum.accumulate(metric, axis=1) for name, metric in seen.items()},
        )


class CostsByStop:
    """Costs up to a stop at each round, for the components that every visited round calls.

    Args:
        table: The recorded costs.
        start: The start round.
        highest: The highest round that may be requested, see `CostTable.charge`.
    """

    def __init__(self, table: CostTable, start: int, highest: int) -> None:
        self._table, self._highest = table, highest
        self._first = max(0, start - int(table.index[0]))
        self._visited: Floats = table.seen[:, self._first :].cumsum(axis=1).astype(np.float64)
        self._sums: dict[tuple[str, str], Floats | None] = {}
        self._calls: dict[tuple[str, ...], Floats] = {}
        self._tokens: dict[tuple[str, ...], Floats] = {}

    def ledger(self, of: Callable[[Floats], Floats], masks: Mapping[str, Mask] | Mapping[str, Floats]) -> Ledger:
        """Return the ledger of a policy.

        Args:
            of: Maps costs up to a stop at each round, ``(n_questions, n_rounds)``, to the paid costs,
                ``(n_questions,)``.
            masks: The paid rounds of the components that are not called in every visited round, see `CostTable.charge`.
        """
        table = self._table
        rest = table.charge(masks, self._highest) if masks else None
        nothing, unknown = np.zeros(len(table.seen)), None
        costs: dict[str, dict[str, Floats]] = {}
        money = nothing
        for component, columns in table.columns.items():
            if rest is not None and component in masks:
                costs[component] = dict(rest.costs[component])
            else:
                costs[component] = dict.fromkeys(columns, nothing)
                for kind in columns if component in table.loop else ():
                    if table.is_unknown(component, kind):
                        unknown = np.where(of(self._visited) > 0, np.nan, 0.0) if unknown is None else unknown
                        costs[component][kind] = unknown
                    elif (sums := self._summed(component, kind)) is not None:
                        costs[component][kind] = of(sums)
            money = money + table.money_of(component, costs[component])
        calls = of(self.calls(masks))
        return Ledger(costs=costs, calls=calls if rest is None else calls + rest.calls, money=money)

    def calls(self, masks: Mapping[str, Mask] | Mapping[str, Floats] = {}) -> Floats:
        """Return the requests to language models up to each round, without those of the components in `masks`."""
        names = tuple(name for name in self._table.loop if name in self._table.call_columns and name not in masks)
        if names not in self._calls:
            columns = [self._table.call_columns[name] for name in names]
            total = sum((self._until(name, "calls", column) for name, column in zip(names, columns, strict=True)), 0.0)
            self._calls[names] = np.broadcast_to(total, self._visited.shape)
        return self._calls[names]

    def tokens(self, masks: Mapping[str, Mask] | Mapping[str, Floats] = {}) -> Floats:
        """Return the tokens up to each round, without those of the components in `masks`; NaN where unknown."""
        names = tuple(name for name in self._table.loop if name in self._table.columns and name not in masks)
        if names not in self._tokens:
            total = np.zeros(self._visited.shape)
            for name, kind in product(names, TOKEN_KINDS):
                if self._table.is_unknown(name, kind):
                    total = np.where(self._visited > 0, np.nan, total)
                elif (sums := self._summed(name, kind)) is not None:
                    total = total + sums
            self._tokens[names] = total
        return self._tokens[names]

    def _until(self, component: str, kind: str, column: Floats) -> Floats:
        until = self._table.until(self._table.index, self._highest)
        due = self._table.due(component, kind, column, until=until)
        return np.asarray(due[:, self._first :].cumsum(axis=1))

    def _summed(self, component: str, kind: str) -> Floats | None:
        """Return the sums of a cost up to each round; None if it is always 0."""
        if (component, kind) not in self._sums:
            column = self._table.columns[component][kind]
            self._sums[component, kind] = self._until(component, kind, column) if column.any() else None
        return self._sums[component, kind]


def looked_up(table: Floats, position: Positions) -> Floats:
    """Return the value of a table at each question's stop, shape ``(n_questions,)``; 0 for a question without rounds."""
    values = table[np.arange(len(position)), np.maximum(position, 0)]
    return values if (position >= 0).all() else np.where(position >= 0, values, 0.0)
