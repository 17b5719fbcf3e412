"""Quality of a probe: discrimination and calibration, with bootstrap intervals over questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.results import jsonable
from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling
from suffice.policy.rounds import Floats

MEASURES = ("auroc", "auprc", "brier", "ece", "accuracy")
"""The measures, in the order of tables."""

ECE_BINS = 10
"""Number of bins, of equal width, for the expected calibration error."""

_RESAMPLING = Resampling(seed=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFigure:
    """A figure with its percentile interval; NaN if undefined."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeMeasures:
    """The figures of a probe on one set of questions.

    Attributes:
        n: Number of questions with a defined probability.
        n_known: Number of questions whose closed-book answer is right.
        n_undefined: Number of questions left out because their probability is NaN.
        figures: `auroc` and `auprc` (for known questions), `brier`, `ece` (10 bins of equal width) and `accuracy` (at 0.5).
    """

    n: int
    n_known: int
    n_undefined: int
    figures: Mapping[str, ProbeFigure]

    def __getitem__(self, name: str) -> ProbeFigure:
        return self.figures[name]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        counts = {"n": self.n, "n_known": self.n_known, "n_undefined": self.n_undefined}
        data: dict[str, Any] = jsonable({**counts, **self.figures})
        return data


def measure_probe(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    names: Sequence[str] | None = None,
    resampling: Resampling = _RESAMPLING,
) -> ProbeMeasures:
    """Measure how well probabilities separate known from unknown questions.

    AUROC counts ties as one half.  AUPRC is average precision, where equal probabilities form one step.  Both are NaN
    unless there are known and unknown questions.  The intervals are percentiles over resampled questions.

    >>> measured = measure_probe([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    >>> measured["auroc"].value, measured["accuracy"].value
    (0.75, 0.75)

    Args:
        probabilities: Shape ``(n,)``, in [0, 1]; NaN is left out and counted.
        labels: 0 or 1, same shape.
        names: Ids of the questions, which determine their bootstrap draws; None to use their positions.
        resampling: Settings of the resamples; its method of intervals is ignored, since intervals are always
            percentiles.

    Raises:
        DataError: The shapes differ, a value is out of range, or no probability is defined.
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if p.shape != y.shape or p.ndim != 1:
        raise DataError(
            f"probabilities and labels have shapes {p.shape} and {y.shape}; expected one of each per question"
        )
    if not np.isin(y, (0.0, 1.0)).all():
        raise DataError("labels must be 0 or 1: apply a threshold to graded outcomes")
    usable = ~np.isnan(p)
    n_undefined = int((~usable).sum())
    p, y = p[usable], y[usable]
    if not len(p):
        raise DataError(f"no question has a probability: {n_undefined} are undefined")
    if p.min() < 0 or p.max() > 1:
        raise DataError("probabilities must be in [0, 1]")
    named = np.arange(len(usable)) if names is None else np.asarray(names, dtype=object)
    draws = resampling.draws(named[usable])
    whole, resampled = _figures_by_draw(p, y, np.ones((1, len(p)))), _figures_by_draw(p, y, draws.by_row)
    figures = {}
    for name in MEASURES:
        defined = resampled[name][~np.isnan(resampled[name])]  # a resample may contain only one kind of question
        low, high = np.quantile(defined, resampling.ends) if len(defined) > 1 else (np.nan, np.nan)
        figures[name] = ProbeFigure(value=float(whole[name][0]), low=float(low), high=float(high))
    return ProbeMeasures(n=len(p), n_known=int(y.sum()), n_undefined=n_undefined, figures=figures)


def _figures_by_draw(p: Floats, y: Floats, weights: Floats) -> dict[str, Floats]:
    """Return the value of every figure in each draw, shape ``(n_resamples,)``.

    A row of `weights`, shape ``(n_resamples, n)``, contains the weights of one draw.
    """
    total = weights.sum(axis=1)
    bins = np.minimum((p * ECE_BINS).astype(np.int64), ECE_BINS - 1)
    # One-hot bins make the sum within each bin, for all resamples at once, a matrix product.
    one_hot = np.eye(ECE_BINS)[bins]
    ece = np.abs((weights * (p - y)) @ one_hot).sum(axis=1) / total
    roc, average_precision = areas_by_draw(p, y, weights)
    return {
        "auroc": roc,
        "auprc": average_precision,
        "brier": weights @ ((p - y) ** 2) / total,
        "ece": ece,
        "accuracy": weights @ ((p >= 0.5) == (y == 1)) / total,  # noqa: PLR2004 - the middle of [0, 1]
    }


def areas_by_draw(scores: Floats, labels: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return the areas under the ROC and precision-recall curves in each draw; equal scores form one step.

    The area under the precision-recall curve is the average precision.

    >>> roc, average_precision = areas_by_draw(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]), np.ones((1, 4)))
    >>> roc.round(3).tolist(), average_precision.round(3).tolist()
    ([0.75], [0.833])

    Args:
        scores: Scores of shape ``(n,)``, no NaN.
        labels: 0 or 1, same shape.
        weights: How often each row is drawn, shape ``(n_draws, n)``.

    Returns:
        Two arrays of shape ``(n_draws,)``; NaN where a draw lacks a positive or a negative.
    """
    # Sort once; a draw only changes the weights.  reduceat sums each run of equal scores into one step.
    order = np.argsort(-scores, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(scores[order]) != 0])
    ordered, positive = weights[:, order], labels[order]
    up = np.add.reduceat(ordered * positive, starts, axis=1)
    down = np.add.reduceat(ordered * (1 - positive), starts, axis=1)
    above_up, above_down = np.cumsum(up, axis=1), np.cumsum(down, axis=1)
    n_up, n_down = above_up[:, -1:], above_down[:, -1:]
    with np.errstate(invalid="ignore", divide="ignore"):
        # A positive beats the negatives below its step, and half of those in it.
        area = (up * (n_down - above_down + 0.5 * down)).sum(axis=1) / (n_up * n_down)[:, 0]
        precision = np.where(above_up + above_down > 0, above_up / (above_up + above_down), 0.0)
        average = (up * precision).sum(axis=1) / n_up[:, 0]
    both = ((n_up > 0) & (n_down > 0))[:, 0]
    return np.where(both, area, np.nan), np.where(both, average, np.nan)
