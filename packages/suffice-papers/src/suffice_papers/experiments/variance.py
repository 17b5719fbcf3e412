"""Means over runs and questions, with intervals over questions, over runs and over both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling, Units, undefined_notes
from suffice.evaluation.statistics.units import Clusters
from suffice.policy.rounds import Floats
from suffice_papers.cells import CellDeltas, macro_bootstrap
from suffice_papers.multinomial import draws_by_place

METHOD = (
    "over questions: bootstrap of the questions' means over the runs; over runs: Student's t of the runs' means on the same "
    "questions; over both: a two-way model of random effects, runs crossed with questions, whose variance is that of the "
    "questions' means plus that of the runs' means less the residual, which both contain (degrees of freedom by Satterthwaite; "
    "never narrower than over either alone)"
)

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """A mean over runs and questions.

    Attributes:
        mean: The mean.
        n_runs: Number of runs.
        questions: Interval over questions, for these runs.
        runs: Interval over runs, for these questions; None if there is only one run.
        both: Interval over questions and runs; None if there is only one run.
    """

    mean: float
    n_runs: int
    questions: Interval
    runs: Interval | None
    both: Interval | None


def repeated(values: Floats, resampling: Resampling, clusters: Clusters = None) -> Repeated:
    """Return the mean of a figure over runs and questions, with its intervals; see `METHOD`.

    >>> repeated(np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]), Resampling()).runs  # the runs agree
    (0.6666666666666666, 0.6666666666666666)

    Args:
        values: Shape ``(n_runs, n_questions)``, no NaN.
        resampling: Draws of the intervals over questions, and the level of all intervals.
        clusters: The resampling unit of each question; None if each question is a unit.

    Raises:
        DataError: The values have another shape.
    """
    from scipy.stats import t

    if values.ndim != 2 or not values.size:  # noqa: PLR2004
        raise DataError(f"expected a figure for each run and question, got the shape {values.shape}")
    n_runs, n_questions = values.shape
    by_question, by_run, mean = values.mean(axis=0), values.mean(axis=1), float(values.mean())
    drawn = draws_by_place(resampling, n_questions, clusters).intervals(by_question[None])
    over_questions = float(drawn.low[0]), float(drawn.high[0])
    if n_runs == 1:
        return Repeated(mean=mean, n_runs=1, questions=over_questions, runs=None, both=None)

    def half(variance: float, freedom: float) -> float:
        return float(t.ppf(resampling.ends[1], freedom)) * variance**0.5 if variance > 0 else 0.0

    runs = float(by_run.var(ddof=1)) / n_runs
    questions = float(by_question.var(ddof=1)) / n_questions if n_questions > 1 else 0.0
    residual = values - by_question - by_run[:, None] + mean
    freedom = (n_runs - 1) * max(n_questions - 1, 1)
    shared = float((residual**2).sum()) / freedom / values.size
    parts = [(runs, n_runs - 1), (questions, max(n_questions - 1, 1)), (shared, freedom)]
    total = max(runs + questions - shared, 0.0)
    spread = sum(part**2 / free for part, free in parts)
    over_runs = half(runs, n_runs - 1)
    both = max(half(total, total**2 / spread if spread > 0 else freedom), over_runs, half(questions, parts[1][1]))
    if Units.of(n_questions, clusters).n_units == 1:  # a single question has no spread, so neither have both together
        both = math.nan
    return Repeated(
        mean=mean,
        n_runs=n_runs,
        questions=over_questions,
        runs=(mean - over_runs, mean + over_runs),
        both=(mean - both, mean + both),
    )


_MACRO = (
    "macro: each configuration weighs the same; its interval over both is the root of the summed squares of the two others' "
    "half widths, which counts the residual twice"
)

NOT_KNOWN = "unknown"
"""Shown in place of a figure that is not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunValues:
    """Figures of one run by question.

    Attributes:
        values: The figures by key, each of shape ``(n_questions,)``.
        questions: The ids of the questions.
        clusters: The resampling unit of each question.
    """

    values: Mapping[str, Floats]
    questions: tuple[str, ...]
    clusters: Clusters = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The heading, format and scale of a figure's column."""

    heading: str
    spec: str = ".2f"
    scale: float = 1.0


def runs_tables(
    runs: Mapping[str, Sequence[RunValues]],
    shown: Mapping[str, Shown],
    resampling: Resampling,
    notes: Sequence[str] = (),
    *,
    macro: bool = True,
) -> list[Table]:
    """Return a table for each figure, with all configurations and intervals over questions, over runs, and over both.

    Args:
        runs: The runs of each configuration, by its name; at least one run for each.
        shown: The figures, by key of the values.
        resampling: Settings of the intervals.
        notes: Further notes, for example on runs that were left out.
        macro: True to add the mean over configurations.

    Raises:
        DataError: There are no runs, or runs of one configuration have different questions.
    """
    if not runs:
        raise DataError("; ".join(notes) or "there are no runs")
    fewest = min(Units.of(len(run.questions), run.clusters).n_units for parts in runs.values() for run in parts)
    listed = [METHOD, *undefined_notes(fewest, resampling.n_resamples), *notes]
    figures: dict[str, dict[str, Repeated]] = {}
    for name, parts in runs.items():
        if len({part.questions for part in parts}) > 1:
            raise DataError(f"the runs of {name} have different questions: run the experiment again to complete them")
        figures[name] = {
            key: repeated(np.stack([part.values[key] for part in parts]), resampling, parts[0].clusters)
            for key in shown
        }
    if macro and len(runs) > 1 and len({len(parts) for parts in runs.values()}) == 1:
        try:
            figures["macro"] = {key: _macro(runs, key, resampling) for key in shown}
            listed.append(_MACRO)
        except DataError as error:  # configurations that share only some of their questions
            listed.append(f"no macro: {error}")
    if any(len(parts) == 1 for parts in runs.values()):
        listed.append(
            f"{NOT_KNOWN}: one run shows nothing about other runs; give seeds. Models that run here are greedy, a seed changes "
            "none of their answers"
        )
    return [_figure_runs(figures, key, how, resampling, listed) for key, how in shown.items()]


def _macro(runs: Mapping[str, Sequence[RunValues]], key: str, resampling: Resampling) -> Repeated:
    """Return the mean of a figure over configurations; configurations with the same questions share their draws."""
    cells = []
    for name, parts in runs.items():
        units = parts[0].questions if parts[0].clusters is None else parts[0].clusters
        mean = np.stack([part.values[key] for part in parts]).mean(axis=0)
        cells.append(CellDeltas(name=name, deltas=mean[None], questions=list(units)))
    drawn = macro_bootstrap(cells, n_resamples=resampling.n_resamples, rng=resampling.seed, level=resampling.level)
    mean, low, high = (float(part[0]) for part in (drawn.delta, drawn.low, drawn.high))
    by_run = np.mean([[part.values[key].mean() for part in parts] for parts in runs.values()], axis=0)
    if len(by_run) == 1:
        return Repeated(mean=mean, n_runs=1, questions=(low, high), runs=None, both=None)
    over_runs = repeated(by_run[:, None], resampling).runs
    assert over_runs is not None
    below, above = (math.hypot(mean - ends[0], mean - ends[1]) for ends in ((low, over_runs[0]), (high, over_runs[1])))
    return Repeated(
        mean=mean, n_runs=len(by_run), questions=(low, high), runs=over_runs, both=(mean - below, mean + above)
    )


def _figure_runs(
    figures: Mapping[str, Mapping[str, Repeated]], key: str, how: Shown, resampling: Resampling, notes: Sequence[str]
) -> Table:
    def part(name: str) -> Any:
        def value(item: tuple[str, Mapping[str, Repeated]]) -> Any:
            figure = item[1][key]
            ends = getattr(figure, name)
            return NOT_KNOWN if ends is None else (figure.mean, *ends)

        return value

    return Table.of(
        f"Runs: {how.heading}, {100 * resampling.level:g} % intervals over questions, over runs and over both",
        figures.items(),
        {
            Column("configuration"): lambda item: item[0],
            Column("runs", ".0f"): lambda item: item[1][key].n_runs,
            **{
                Column(f"over {name}", how.spec, how.scale, interval=True): part(name)
                for name in ("questions", "runs", "both")
            },
        },
        notes,
    )
