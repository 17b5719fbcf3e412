"""Each signal by itself: how often it is defined, how well it separates right from wrong, whether it has collapsed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.diagnostics.rows import Rows, unit_of
from suffice.diagnostics.separation import cohens_d, ends
from suffice.results import Result
from suffice.rounds import Floats, Mask
from suffice.statistics import Coded, Resampling, area_under_roc
from suffice.store.recording import Recording
from suffice.tables import Column, Table

__all__ = ["SignalSummary", "SignalTable", "entropy", "summarise_signals"]

FEW_VALUES = 20
N_BINS = 10
_NAN = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSummary:
    """One signal over rounds; NaN where a figure is undefined.

    Attributes:
        name: The signal.
        unit: Its unit.
        n: Rounds.
        n_defined: Rounds in which it is defined.
        undefined: Share of rounds in which it is not.
        n_right: Rounds with a right answer and a defined signal.
        n_wrong: The same with a wrong one.
        mean_right: Mean when right, in its unit.
        mean_wrong: Mean when wrong.
        separation: `mean_right` - `mean_wrong`.
        d: Cohen's d: the separation over the pooled standard deviation.
        d_low: Lower end of its interval (bootstrap over questions); NaN in figures of one round.
        d_high: Upper end.
        auroc: Probability that a right round has the larger value than a wrong one, ties counting half.
        auroc_low: Lower end of its interval (clustered DeLong: the question is the unit).
        auroc_high: Upper end.
        entropy: Of the distribution of its values, nats; see `entropy`.
        n_values: Different values.
        mode: The most frequent value, the smallest among ties.
        collapse: Share of the defined rounds that have it: 1 for a constant.
    """

    name: str
    unit: str
    n: int
    n_defined: int
    undefined: float
    n_right: int
    n_wrong: int
    mean_right: float
    mean_wrong: float
    separation: float
    d: float
    d_low: float
    d_high: float
    auroc: float
    auroc_low: float
    auroc_high: float
    entropy: float
    n_values: int
    mode: float
    collapse: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalTable(Result):
    """All signals, over all rounds and by round.

    Attributes:
        signals: Over all recorded rounds.
        by_round: The same at each round.
        metric: What counts as right.
        n_units: Questions (or clusters): what intervals are taken over.
        resampling: How intervals are made, those of d by draws.
    """

    signals: tuple[SignalSummary, ...]
    by_round: Mapping[int, tuple[SignalSummary, ...]]
    metric: str
    n_units: int
    resampling: Resampling

    def signal(self, name: str) -> SignalSummary:
        """Return the summary of one signal over all rounds.

        Raises:
            KeyError: There is none of that name.
        """
        return {item.name: item for item in self.signals}[name]

    def table(self) -> Table:
        """Return separation, entropy and collapse of each signal that is defined somewhere."""
        columns = (
            Column("signal"),
            Column("unit"),
            Column("undefined", ".0%"),
            Column("right", ".3g"),
            Column("wrong", ".3g"),
            Column("separation", "+.3g"),
            Column("Cohen's d", "+.2f", interval=True),
            Column("AUROC", ".3f", interval=True),
            Column("entropy", ".3f"),
            Column("values", ",.0f"),
            Column("mode", ".4g"),
            Column("collapse", ".1%"),
        )
        rows = tuple(
            (
                item.name,
                item.unit,
                item.undefined,
                item.mean_right,
                item.mean_wrong,
                item.separation,
                _interval(item.d, item.d_low, item.d_high),
                _interval(item.auroc, item.auroc_low, item.auroc_high),
                item.entropy,
                item.n_values,
                item.mode,
                item.collapse,
            )
            for item in self.signals
            if item.n_defined
        )
        n = self.signals[0].n if self.signals else 0
        return Table(
            title=f"Signals in {n:,} rounds of {self.n_units:,} questions, right by {self.metric}",
            columns=columns,
            rows=rows,
            notes=self.notes(),
        )

    def notes(self) -> tuple[str, ...]:
        """Return what a reader of the table must know."""
        how = self.resampling
        intervals = (
            f"{100 * how.level:g} % intervals, the question being the unit; d: {how.n_resamples:,} bootstrap draws, "
            f"seed {how.seed}; "
            "AUROC: clustered DeLong"
        )
        notes = [
            intervals,
            f"entropy in nats: of the values themselves up to {FEW_VALUES} of them, else of {N_BINS} bins of equal width",
        ]
        if any(item.n_defined for item in self.signals):
            right, wrong = (max(getattr(item, name) for item in self.signals) for name in ("n_right", "n_wrong"))
            if not right and not wrong:
                notes.append(f"no round has the metric {self.metric!r}: separation is undefined")
            elif not right or not wrong:
                notes.append(f"all rounds are {'right' if right else 'wrong'}: separation is undefined")
        nowhere = [item.name for item in self.signals if not item.n_defined]
        constant = [item.name for item in self.signals if item.n_values == 1]
        notes += [f"defined in no round: {', '.join(nowhere)}"] if nowhere else []
        notes += [f"constant, so it decides nothing: {', '.join(constant)}"] if constant else []
        return tuple(notes)

    def round_table(self) -> Table:
        """Return the AUROC of each signal at each round: where in the loop a signal tells right from wrong."""
        rounds = sorted(self.by_round)
        rows = []
        for position, item in enumerate(self.signals):
            if not item.n_defined:
                continue
            found = [self.by_round[r][position] for r in rounds]
            rows.append((item.name, *(_interval(s.auroc, s.auroc_low, s.auroc_high) for s in found)))
        return Table(
            title=f"AUROC of each signal by round, right by {self.metric}",
            columns=(Column("signal"), *(Column(f"round {r}", ".2f", interval=True) for r in rounds)),
            rows=tuple(rows),
        )

    def tables(self) -> list[Table]:
        """Return the table over all rounds, and the one by round where there is more than one."""
        return [self.table(), *([self.round_table()] if len(self.by_round) > 1 else [])]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        return {**Result.to_dict(self), "notes": list(self.notes())}


def _interval(value: float, low: float, high: float) -> Any:
    return value if math.isnan(low) else (value, low, high)


def entropy(signal: Coded, rows: Mask) -> float:
    """Return the entropy of a signal's distribution, nats; NaN where it is defined in no row.

    Up to 20 different values it is that of the values themselves; above, that of 10 bins of equal width between the
    smallest and the largest, so at most ln 10 = 2.303.  A constant has 0.

    >>> import numpy as np
    >>> round(entropy(Coded.of(np.array([1.0, 5.0, 5.0, np.nan])), np.ones(4, dtype=bool)), 3)
    0.637
    """
    counts = signal.counts(rows)
    values, counts = signal.values[counts > 0], counts[counts > 0]
    if not len(values):
        return _NAN
    if len(values) > FEW_VALUES:
        low, high = values[0], values[-1]
        bins = np.minimum(((values - low) / (high - low) * N_BINS).astype(np.int64), N_BINS - 1)
        counts = np.bincount(bins, counts).astype(np.int64)
        counts = counts[counts > 0]
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum()) + 0.0  # no negative zero


def summarise_signals(
    recording: Recording,
    rows: Rows,
    d_draws: Floats,
    *,
    metric: str = "em",
    resampling: Resampling = Resampling(),
) -> SignalTable:
    """Return what each signal does, over all rounds and at each.

    Args:
        recording: Where the units stand.
        rows: Its rounds, from `rows_of`.
        d_draws: From `draw_d` of all signals in the order of `rows.columns`.
        metric: What counts as right, for titles.
        resampling: How `d_draws` were drawn; its level is that of all intervals.
    """
    names = list(rows.columns)
    units = {name: unit_of(recording, name) for name in names}
    low, high = ends(d_draws, resampling.level)
    everywhere = np.ones(len(rows.right), dtype=np.bool_)
    d = cohens_d(rows, names)
    whole = tuple(
        _summary(rows, name, units[name], where=everywhere, d=(d[i], low[i], high[i]), level=resampling.level)
        for i, name in enumerate(names)
    )
    by_round = {}
    for r in np.unique(rows.rounds).tolist():
        mask = np.asarray(rows.rounds == r, dtype=np.bool_)
        at = Rows(
            columns={name: column[mask] for name, column in rows.columns.items()},
            right=rows.right[mask],
            unit=rows.unit[mask],
            n_units=rows.n_units,
            rounds=rows.rounds[mask],
        )
        d = cohens_d(at, names)
        there = np.ones(len(at.right), dtype=np.bool_)
        by_round[int(r)] = tuple(
            _summary(at, name, units[name], where=there, d=(d[i], _NAN, _NAN), level=resampling.level)
            for i, name in enumerate(names)
        )
    return SignalTable(
        signals=whole,
        by_round=by_round,
        metric=metric,
        n_units=rows.n_units,
        resampling=replace(resampling, n_resamples=len(d_draws), interval="percentile"),
    )


def _summary(
    rows: Rows, name: str, unit: str, *, where: Mask, d: tuple[float, float, float], level: float
) -> SignalSummary:
    coded, column = rows.coded[name], rows.columns[name]
    counts = coded.counts(where)
    n, n_defined = int(where.sum()), int(counts.sum())
    right, wrong = (rows.labelled(label) & coded.defined & where for label in (1, 0))
    mean_right, mean_wrong = (float(column[mask].mean()) if mask.any() else _NAN for mask in (right, wrong))
    area = area_under_roc(coded, np.where(where, rows.right, np.nan), unit=rows.unit, level=level)
    top = int(np.argmax(counts)) if n_defined else -1
    return SignalSummary(
        name=name,
        unit=unit,
        n=n,
        n_defined=n_defined,
        undefined=1 - n_defined / n,
        n_right=int(right.sum()),
        n_wrong=int(wrong.sum()),
        mean_right=mean_right,
        mean_wrong=mean_wrong,
        separation=mean_right - mean_wrong,
        d=float(d[0]),
        d_low=float(d[1]),
        d_high=float(d[2]),
        auroc=area.value,
        auroc_low=area.low,
        auroc_high=area.high,
        entropy=entropy(coded, where),
        n_values=int((counts > 0).sum()),
        mode=float(coded.values[top]) if n_defined else _NAN,
        collapse=float(counts[top]) / n_defined if n_defined else _NAN,
    )
