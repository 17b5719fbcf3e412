"""Spearman's rank correlation of each pair of signals, to find signals with the same information."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.evaluation.statistics import ROUNDING
from suffice.policy.rounds import Floats
from suffice.verdicts.diagnostics.rows import Rows

SHOWN = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations(Result):
    """Spearman's rank correlations of all pairs of signals, each over the rounds in which both are defined.

    Attributes:
        names: The signals.
        rho: The correlations in [-1, 1], as a square matrix; NaN if a signal does not vary in the common rounds, or
            fewer than two rounds have both.
        n: Number of rounds in which both signals are defined.
    """

    names: tuple[str, ...]
    rho: tuple[tuple[float, ...], ...]
    n: tuple[tuple[int, ...], ...]

    def of(self, first: str, second: str) -> float:
        """Return the correlation of two signals."""
        return self.rho[self.names.index(first)][self.names.index(second)]

    def table(self) -> Table:
        """Return the table of the most strongly correlated pairs."""
        pairs = [
            (first, second, self.rho[i][j], self.n[i][j])
            for i, first in enumerate(self.names)
            for j, second in enumerate(self.names[:i])
            if not math.isnan(self.rho[i][j])
        ]
        pairs.sort(key=lambda pair: -abs(pair[2]))
        hidden = len(pairs) - SHOWN
        return Table(
            title="Signals that rank rounds alike (Spearman's rho)",
            columns=(Column("signal"), Column("with", ""), Column("rho", "+.2f"), Column("rounds", ",.0f")),
            rows=tuple(pairs[:SHOWN]),
            notes=(f"{hidden} weaker pairs are not shown; the JSON has all",) if hidden > 0 else (),
        )

    def tables(self) -> list[Table]:
        """Return the table of the strongest pairs, if there are any."""
        table = self.table()
        return [table] if table.rows else []


def correlate(rows: Rows) -> Correlations:
    """Return the rank correlations of all signals; ties share their average rank.

    >>> import numpy as np
    >>> columns = {"a": np.array([1.0, 2.0, 3.0, np.nan]), "b": np.array([3.0, 1.0, 0.0, 9.0])}
    >>> some = np.arange(4)
    >>> round(correlate(Rows(columns=columns, right=some, unit=some, n_units=4, rounds=some)).of("a", "b"), 6)
    -1.0
    """
    names = list(rows.columns)
    # Signals that are defined in the same rounds share their ranks, so a pair of such groups is one matrix product.
    groups: dict[bytes, list[int]] = {}
    for position, name in enumerate(names):
        groups.setdefault(rows.coded[name].defined.tobytes(), []).append(position)
    members = list(groups.values())
    rho = np.full((len(names), len(names)), np.nan)
    n = np.zeros((len(names), len(names)), dtype=np.int64)
    for a, first in enumerate(members):
        for second in members[: a + 1]:
            both = rows.coded[names[first[0]]].defined & rows.coded[names[second[0]]].defined
            n[np.ix_(first, second)] = n[np.ix_(second, first)] = int(both.sum())
            left = np.stack([_standardised(rows.coded[names[i]].ranks(both)) for i in first])
            right = left
            if second is not first:
                right = np.stack([_standardised(rows.coded[names[i]].ranks(both)) for i in second])
            products = np.clip(left @ right.T, -1.0, 1.0)
            rho[np.ix_(first, second)], rho[np.ix_(second, first)] = products, products.T
    return Correlations(names=tuple(names), rho=tuple(map(tuple, rho.tolist())), n=tuple(map(tuple, n.tolist())))


def _standardised(ranks: Floats) -> Floats:
    """Scale ranks to mean 0 and length 1; NaN where they do not vary."""
    if not len(ranks):
        return np.full(1, np.nan)
    centred = ranks - ranks.mean()
    length = math.sqrt(float(centred @ centred))
    return centred / length if length > ROUNDING * len(ranks) else np.full(len(ranks), np.nan)
