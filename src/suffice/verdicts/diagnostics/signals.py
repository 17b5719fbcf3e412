"""Summaries of signals: how often each is defined, how well it separates right from wrong answers, and its collapse.

Also rank correlations between signals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.common.display import Chart
from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.evaluation.replay.charts import chart_of
from suffice.evaluation.statistics import ROUNDING, Coded, Resampling, area_under_roc
from suffice.policy.rounds import Floats, Mask
from suffice.recordings.recording import Recording
from suffice.verdicts.diagnostics.rows import Rows, cohens_d, ends, unit_of, with_ends

FEW_VALUES = 20
N_BINS = 10
_ROW = 22
"""Pixels of a signal in a chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSummary:
    """One signal over rounds; NaN where a figure is undefined.

    Attributes:
        name: The signal.
        unit: Its unit.
        n: Number of rounds.
        n_defined: Rounds in which it is defined.
        undefined: Share of rounds in which it is undefined.
        n_right: Rounds with a right answer and a defined signal.
        n_wrong: Rounds with a wrong answer and a defined signal.
        mean_right: Mean over rounds with a right answer, in the signal's unit.
        mean_wrong: Mean over rounds with a wrong answer.
        separation: `mean_right` - `mean_wrong`.
        d: Cohen's d: the separation divided by the pooled standard deviation.
        d_low: Lower end of its interval (bootstrap over questions); NaN in figures of one round.
        d_high: Upper end.
        auroc: Probability that a round with a right answer has a larger value than one with a wrong answer; ties count
            half.
        auroc_low: Lower end of its interval (clustered DeLong: the question is the unit).
        auroc_high: Upper end.
        entropy: Entropy of the distribution of its values, in nats; see `entropy`.
        n_values: Number of different values.
        mode: The most frequent value; if several are equally frequent, the smallest of them.
        collapse: Share of the defined rounds with the value `mode`: 1 for a constant.
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
        signals: The summaries over all recorded rounds.
        by_round: The summaries for each round.
        metric: The metric that says which answers are right.
        n_units: Number of questions (or clusters), which are the units of resampling.
        resampling: Settings of the intervals; the intervals of d are bootstrapped.
        notes: Notes for the reader.
    """

    signals: tuple[SignalSummary, ...]
    by_round: Mapping[int, tuple[SignalSummary, ...]]
    metric: str
    n_units: int
    resampling: Resampling
    notes: tuple[str, ...] = ()

    def signal(self, name: str) -> SignalSummary:
        """Return the summary of one signal over all rounds.

        Raises:
            KeyError: There is no signal of that name.
        """
        return {item.name: item for item in self.signals}[name]

    def plot(self) -> Chart:
        """Return the chart of each signal's AUROC with its interval."""
        return signals_chart(self)

    def table(self) -> Table:
        """Return separation, entropy and collapse of each signal that is defined somewhere."""
        n = self.signals[0].n if self.signals else 0
        return Table.of(
            f"Signals in {n:,} rounds of {self.n_units:,} questions, right by {self.metric}",
            [item for item in self.signals if item.n_defined],
            {
                Column("signal"): "name",
                Column("unit"): "unit",
                Column("undefined", ".0%"): "undefined",
                Column("right", ".3g"): "mean_right",
                Column("wrong", ".3g"): "mean_wrong",
                Column("separation", "+.3g"): "separation",
                Column("Cohen's d", "+.2f", interval=True): with_ends("d"),
                Column("AUROC", ".3f", interval=True): with_ends("auroc"),
                Column("entropy", ".3f"): "entropy",
                Column("values", ",.0f"): "n_values",
                Column("mode", ".4g"): "mode",
                Column("collapse", ".1%"): "collapse",
            },
            self.notes,
        )

    def round_table(self) -> Table:
        """Return the AUROC of each signal in each round, which shows where in the loop it separates right from wrong answers."""
        rounds, area = sorted(self.by_round), with_ends("auroc")
        return Table(
            title=f"AUROC of each signal by round, right by {self.metric}",
            columns=(Column("signal"), *(Column(f"round {r}", ".2f", interval=True) for r in rounds)),
            rows=tuple(
                (item.name, *(area(self.by_round[r][position]) for r in rounds))
                for position, item in enumerate(self.signals)
                if item.n_defined
            ),
        )

    def tables(self) -> list[Table]:
        """Return the table over all rounds, and the table by round if there is more than one round."""
        return [self.table(), *([self.round_table()] if len(self.by_round) > 1 else [])]


def entropy(signal: Coded, rows: Mask) -> float:
    """Return the entropy of a signal's distribution, nats; NaN if the signal is defined in no row.

    For up to 20 different values it is the entropy of the values themselves. For more values, it is the entropy of 10
    bins of equal width between the smallest and the largest value, so it is at most ln 10 = 2.303. A constant has
    entropy 0.

    >>> import numpy as np
    >>> round(entropy(Coded.of(np.array([1.0, 5.0, 5.0, np.nan])), np.ones(4, dtype=bool)), 3)
    0.637
    """
    counts = signal.counts(rows)
    values, counts = signal.values[counts > 0], counts[counts > 0]
    if not len(values):
        return math.nan
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
    """Summarise each signal, over all rounds and at each round.

    Args:
        recording: The recording, which names the unit of each signal.
        rows: The recorded rounds.
        d_draws: Result of `draw_d` for all signals in the order of `rows.columns`.
        metric: The metric that says which answers are right, for titles.
        resampling: The settings with which `d_draws` were drawn; their level applies to all intervals.
    """
    low, high = ends(d_draws, resampling.level)
    whole = _summaries(recording, rows, (low, high), resampling.level)
    undefined = np.full(len(rows.columns), np.nan)
    by_round = {
        int(r): _summaries(recording, rows.at(rows.rounds == r), (undefined, undefined), resampling.level)
        for r in np.unique(rows.rounds)
    }
    method = replace(resampling, n_resamples=len(d_draws), interval="percentile")
    return SignalTable(
        signals=whole,
        by_round=by_round,
        metric=metric,
        n_units=rows.n_units,
        resampling=method,
        notes=_signal_notes(whole, metric, method),
    )


def _signal_notes(signals: Sequence[SignalSummary], metric: str, resampling: Resampling) -> tuple[str, ...]:
    notes = [
        (
            f"{100 * resampling.level:g} % intervals, the question being the unit; d: {resampling.n_resamples:,} bootstrap draws, "
            f"seed {resampling.seed}; AUROC: clustered DeLong"
        ),
        f"entropy in nats: of the values themselves up to {FEW_VALUES} of them, else of {N_BINS} bins of equal width",
    ]
    if any(item.n_defined for item in signals):
        right, wrong = (max(getattr(item, name) for item in signals) for name in ("n_right", "n_wrong"))
        if not right and not wrong:
            notes.append(f"no round has the metric {metric!r}: separation is undefined")
        elif not right or not wrong:
            notes.append(f"all rounds are {'right' if right else 'wrong'}: separation is undefined")
    nowhere = [item.name for item in signals if not item.n_defined]
    constant = [item.name for item in signals if item.n_values == 1]
    notes += [f"defined in no round: {', '.join(nowhere)}"] if nowhere else []
    notes += [f"constant, so it decides nothing: {', '.join(constant)}"] if constant else []
    return tuple(notes)


def _summaries(
    recording: Recording, rows: Rows, d_ends: tuple[Floats, Floats], level: float
) -> tuple[SignalSummary, ...]:
    figures = zip(
        rows.columns, cohens_d(rows, list(rows.columns)).tolist(), *(end.tolist() for end in d_ends), strict=True
    )
    return tuple(
        _signal_summary(rows, name, unit_of(recording, name), d=(d, low, high), level=level)
        for name, d, low, high in figures
    )


def _signal_summary(rows: Rows, name: str, unit: str, *, d: tuple[float, float, float], level: float) -> SignalSummary:
    coded, column = rows.coded[name], rows.columns[name]
    counts = coded.counts(coded.defined)
    n, n_defined = len(column), int(counts.sum())
    right, wrong = (rows.labelled(label) & coded.defined for label in (1, 0))
    mean_right, mean_wrong = (float(column[mask].mean()) if mask.any() else math.nan for mask in (right, wrong))
    area = area_under_roc(coded, rows.right, unit=rows.unit, level=level)
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
        d=d[0],
        d_low=d[1],
        d_high=d[2],
        auroc=area.value,
        auroc_low=area.low,
        auroc_high=area.high,
        entropy=entropy(coded, coded.defined),
        n_values=int((counts > 0).sum()),
        mode=float(coded.values[top]) if n_defined else math.nan,
        collapse=float(counts[top]) / n_defined if n_defined else math.nan,
    )


def signals_chart(table: SignalTable) -> Chart:
    """Chart the AUROC of each signal with its interval, the largest first, with a line at chance."""
    known = sorted((item for item in table.signals if not math.isnan(item.auroc)), key=lambda item: -item.auroc)
    data = [
        {
            "signal": item.name,
            "auroc": item.auroc,
            "rounds": item.n_defined,
            **({} if math.isnan(item.auroc_low) else {"low": item.auroc_low, "high": item.auroc_high}),
        }
        for item in known
    ]
    y = {"field": "signal", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 220}}
    scale = {"type": "quantitative", "scale": {"domain": [0, 1]}}
    title = f"AUROC of right answers by {table.metric}, {100 * table.resampling.level:g} % intervals; 0.5 is chance"
    x = {"field": "auroc", **scale, "axis": {"title": title, "tickCount": 6}}
    tooltip = [
        {"field": "signal"},
        *({"field": name, "format": ".3f"} for name in ("auroc", "low", "high")),
        {"field": "rounds", "format": ",.0f"},
    ]
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": [{"chance": 0.5}]},
            "mark": {"type": "rule", "color": "var(--muted)", "strokeDash": [4, 4]},
            "encoding": {"x": {"field": "chance", **scale}},
        },
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "color": "var(--accent)", "opacity": 0.55},
            "encoding": {"x": {"field": "low", **scale}, "x2": {"field": "high"}, "y": y},
        },
        {
            "mark": {"type": "point", "filled": True, "color": "var(--accent)", "size": 70, "opacity": 1},
            "encoding": {"x": x, "y": y, "tooltip": tooltip},
        },
    ]
    return Chart(chart_of(data, layers, _ROW * len(data) + 8, f"AUROC of {len(data)} signals", []))


SHOWN = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations(Result):
    """Spearman's rank correlations of all pairs of signals, each over the rounds in which both are defined.

    Attributes:
        names: The signals.
        rho: The correlations in [-1, 1], as a square matrix. NaN if fewer than two rounds have both signals, or if one
            of them does not vary in these rounds.
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
    """Scale ranks to mean 0 and norm 1; NaN if the ranks do not vary."""
    if not len(ranks):
        return np.full(1, np.nan)
    centred = ranks - ranks.mean()
    length = math.sqrt(float(centred @ centred))
    return centred / length if length > ROUNDING * len(ranks) else np.full(len(ranks), np.nan)
