"""Drift from tune to eval questions: changes in the separation and in the distribution of each signal."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.evaluation.statistics import Coded, Resampling
from suffice.policy.rounds import Floats
from suffice.verdicts.diagnostics.rows import Rows, cohens_d, draw_d, ends, with_ends


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalDrift:
    """One signal on tune and on eval; NaN where a figure is undefined.

    Attributes:
        name: The signal.
        d_tune: Cohen's d on the tune questions.
        d_tune_low: Lower end of its interval.
        d_tune_high: Upper end.
        d_eval: Cohen's d on the eval questions.
        d_eval_low: Lower end of its interval.
        d_eval_high: Upper end.
        delta: `d_eval` - `d_tune`.
        delta_low: Lower end of its interval; both sets are resampled independently.
        delta_high: Upper end of its interval.
        ks: Largest distance between the two distribution functions of the signal, in [0, 1].
        ks_p: Probability of a distance at least as large as `ks` between two samples of one distribution, if each
            question gives one independent value.
        undefined_tune: Share of tune rounds in which the signal is undefined.
        undefined_eval: Share of eval rounds in which the signal is undefined.
    """

    name: str
    d_tune: float
    d_tune_low: float
    d_tune_high: float
    d_eval: float
    d_eval_low: float
    d_eval_high: float
    delta: float
    delta_low: float
    delta_high: float
    ks: float
    ks_p: float
    undefined_tune: float
    undefined_eval: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift(Result):
    """Drift of every signal that both recordings contain (TASR, Table 3).

    Attributes:
        signals: The drift of each signal.
        metric: The metric that says which answers are right.
        n_tune: Questions of tune.
        n_eval: Questions of eval.
        level: Nominal coverage.
    """

    signals: tuple[SignalDrift, ...]
    metric: str
    n_tune: int
    n_eval: int
    level: float

    def table(self) -> Table:
        """Return a table with Cohen's d on both sets, the difference of the two, and the distance between the distributions."""
        return Table.of(
            f"Drift from tune ({self.n_tune:,} questions) to eval ({self.n_eval:,}), right by {self.metric}",
            [item for item in self.signals if item.undefined_tune < 1 or item.undefined_eval < 1],
            {
                Column("signal"): "name",
                Column("tune d", "+.3f", interval=True): with_ends("d_tune"),
                Column("eval d", "+.3f", interval=True): with_ends("d_eval"),
                Column("Δ", "+.3f", interval=True): with_ends("delta"),
                Column("KS", ".3f"): "ks",
                Column("p(KS)", ".3f"): "ks_p",
                Column("undefined tune", ".0%"): "undefined_tune",
                Column("undefined eval", ".0%"): "undefined_eval",
            },
            notes=(
                f"{100 * self.level:g} % bootstrap intervals over questions, the two sets drawn independently",
                "a positive Δ means that the signal separates better on eval",
                "p(KS) counts questions, not rounds, as independent values, and is not corrected for many signals",
            ),
        )


def kolmogorov_smirnov(first: Coded, second: Coded) -> float:
    """Return the largest distance between the distribution functions of two columns; NaN if one of them has no value.

    Source: Smirnov (1948).

    >>> import numpy as np
    >>> kolmogorov_smirnov(Coded.of(np.array([1.0, 2.0])), Coded.of(np.array([2.0, 3.0])))
    0.5
    """
    if not len(first.values) or not len(second.values):
        return math.nan
    places = np.union1d(first.values, second.values)
    return float(np.abs(_distribution(first, places) - _distribution(second, places)).max())


def _distribution(column: Coded, places: Floats) -> Floats:
    # Counts of the values up to each distinct value, with a 0 for positions below the first.
    reached = np.concatenate([[0], np.cumsum(column.counts(column.defined))])
    shares: Floats = reached[np.searchsorted(column.values, places, side="right")] / reached[-1]
    return shares


def kolmogorov_p(distance: float, n_first: int, n_second: int) -> float:
    """Return the probability of at least this distance between two samples of one distribution; NaN where undefined.

    >>> round(kolmogorov_p(0.2, 100, 100), 4)
    0.0366
    """
    from scipy.special import kolmogorov

    return float(kolmogorov(math.sqrt(n_first * n_second / (n_first + n_second)) * distance))


def measure_drift(
    tune: Rows,
    evaluation: Rows,
    eval_draws: Floats,
    *,
    metric: str = "em",
    resampling: Resampling = Resampling(),
) -> Drift:
    """Measure the change from tune to eval of each signal that both sets have.

    Args:
        tune: Rounds of tune questions.
        evaluation: Rounds of eval questions.
        eval_draws: Result of `draw_d` for all signals of `evaluation`.
        metric: The metric of right answers, for titles.
        resampling: Settings of `eval_draws`. Tune is resampled with the next seed, so that questions of the same name
            in both sets do not get equal draws.
    """
    places = {name: place for place, name in enumerate(evaluation.columns) if name in tune.columns}
    names = list(places)
    d_eval, d_tune = cohens_d(evaluation, names), cohens_d(tune, names)
    eval_part = eval_draws[:, list(places.values())]
    tune_part = draw_d(tune, names, replace(resampling, seed=resampling.seed + 1))
    n_draws = min(len(eval_part), len(tune_part))  # draws without any question are left out
    eval_part, tune_part = eval_part[:n_draws], tune_part[:n_draws]
    figures = {
        "d_tune": (d_tune, tune_part),
        "d_eval": (d_eval, eval_part),
        "delta": (d_eval - d_tune, eval_part - tune_part),
    }
    columns = {name: values for name, (values, _) in figures.items()}
    for name, (_, draws) in figures.items():
        columns[f"{name}_low"], columns[f"{name}_high"] = ends(draws, resampling.level)
    distances = {name: kolmogorov_smirnov(tune.coded[name], evaluation.coded[name]) for name in names}
    signals = tuple(
        SignalDrift(
            name=name,
            **{column: float(values[i]) for column, values in columns.items()},
            ks=distances[name],
            ks_p=kolmogorov_p(
                distances[name], tune.n_units, evaluation.n_units
            ),  # rounds of a question depend on each other
            undefined_tune=float(np.isnan(tune.columns[name]).mean()),
            undefined_eval=float(np.isnan(evaluation.columns[name]).mean()),
        )
        for i, name in enumerate(names)
    )
    return Drift(signals=signals, metric=metric, n_tune=tune.n_units, n_eval=evaluation.n_units, level=resampling.level)
