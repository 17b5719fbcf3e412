"""The threshold and patience of convergence: given, published, or selected on dev questions, never on test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import seen_from
from suffice.evaluation.replay.front import pareto_front
from suffice.evaluation.statistics import ROUNDING
from suffice.policy.rules.named import BGE_EPS, BGE_PATIENCE, converged
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice_papers.semantic.data import Drafts, embedder_of, read_drafts

PATIENCES = (1, 2, 3)
"""The patiences of the grid."""

_LEVELS = 40
_BGE = "bge-small-en-v1.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The results of one threshold and patience on dev.

    Attributes:
        eps: Threshold of the distance, in [0, 2].
        patience: Number of consecutive rounds below the threshold.
        rounds: Mean rounds.
        quality: Mean quality, in [0, 1].
    """

    eps: float
    patience: int
    rounds: float
    quality: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The parameters of convergence, and their origin.

    Attributes:
        eps: Threshold of the distance.
        patience: Number of consecutive rounds below the threshold.
        how: `selected on dev`, `published for bge-small-en-v1.5` or `given`.
        criterion: The criterion of the selection, in words; empty if nothing was selected.
        grid: The tried values, in words; empty if nothing was selected.
        metric: The metric of quality of the selection; empty if nothing was selected.
        curve: Every point of the grid.
        full: Mean quality of the full width on dev; NaN without a dev recording.
        n: Number of dev questions.
        data_hash: Data hash of the dev recording; empty without a dev recording.
        seen: The dev questions.
        embedder: Identity of the dev recording's embedder; None if it was not recorded.
        notes: Sentences about dev questions that were left out.
    """

    eps: float
    patience: int
    how: str
    criterion: str = ""
    grid: str = ""
    metric: str = ""
    curve: tuple[Point, ...] = ()
    full: float = float("nan")
    n: int = 0
    data_hash: str = ""
    seen: Seen = field(default_factory=Seen)
    embedder: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "eps": self.eps,
            "patience": self.patience,
            "how": self.how,
            "criterion": self.criterion,
            "grid": self.grid,
            "n_dev": self.n,
            "dev_data_hash": self.data_hash,
            "dev_full_width": self.full,
            "dev_curve": [asdict(point) for point in self.curve],
        }

    def sentence(self) -> str:
        """Describe the choice in one sentence."""
        choice = f"eps = {self.eps:g} and patience {self.patience}: {self.how}"
        if not self.curve:
            return f"{choice}."
        return f"{choice}, {self.n} questions (data {self.data_hash}), {self.criterion}; {self.grid}."

    def table(self) -> Table | None:
        """Return a table of the selected point and of points that no other point dominates on dev; None without dev."""
        if not self.curve:
            return None
        front = pareto_front(np.array([p.quality for p in self.curve]), np.array([p.rounds for p in self.curve]))
        selected = (self.eps, self.patience)
        points = [
            point
            for point, best in zip(self.curve, front.tolist(), strict=True)
            if best or (point.eps, point.patience) == selected
        ]
        return Table.of(
            f"Dev: rounds against {self.metric} for convergence alone, {self.n} questions",
            sorted(points, key=lambda point: (point.rounds, point.eps, point.patience)),
            {
                Column("eps", ".4g"): "eps",
                Column("patience", "d"): "patience",
                Column("rounds", ".2f"): "rounds",
                Column(self.metric, ".2f", scale=100): "quality",
                Column("against the full width", "+.2f", scale=100): lambda point: point.quality - self.full,
                Column(""): lambda p: "selected on dev" if (p.eps, p.patience) == selected else "",
            },
            (
                f"{self.criterion}; {self.grid}. Points that another dominates on dev are left out; --json holds all.",
                "These are dev figures: the selected one flatters itself here, and is reported on other questions.",
                *self.notes,
            ),
        )


def given(eps: float, patience: int = BGE_PATIENCE) -> Tuned:
    """Return a threshold and a patience that were fixed beforehand.

    Raises:
        DataError: A value is out of range.
    """
    _check_eps(eps, patience)
    return Tuned(eps=float(eps), patience=int(patience), how="given")


def published(recording: Recording) -> Tuned:
    """Return the published threshold and patience, 0.06 and 2, for drafts embedded with bge-small-en-v1.5.

    Raises:
        ConfigMismatchError: The recording has another embedder, or does not name its embedder.
    """
    embedder = embedder_of(recording)
    if embedder is None or _BGE not in str(embedder.get("id")):
        named = "no embedder" if embedder is None else f"the embedder {embedder.get('id')!r}"
        raise ConfigMismatchError(
            f"the published threshold {BGE_EPS} belongs to {_BGE}, and the recording names {named}: distances have "
            "another scale there. Select on dev questions (--dev, or a share: --set dev-share=0.3), or fix eps beforehand (--set eps=...)"
        )
    return Tuned(eps=BGE_EPS, patience=BGE_PATIENCE, how=f"published for {_BGE}", embedder=embedder)


def tune(dev: Recording, metric: str, *, tolerance: float = 0.02, patiences: Sequence[int] = PATIENCES) -> Tuned:
    """Select threshold and patience of convergence on dev questions.

    The grid combines quantiles of the dev distances with the patiences that the recorded rounds allow.  A point
    qualifies if its mean quality is at most `tolerance` below that of the full width.  The qualified point with the
    fewest mean rounds is selected; without a qualified point, the point with the best quality.  Among ties, the better
    quality wins, then the smaller threshold, then the shorter patience.

    Args:
        dev: Dev questions.
        metric: The metric of quality, as on test.
        tolerance: The largest accepted loss of mean quality, in [0, 1].
        patiences: Patiences to try.

    Raises:
        DataError: The tolerance is outside [0, 1], no patience >= 1 fits the rounds, or `read_drafts` refuses the recording.
    """
    if not 0 <= tolerance <= 1:
        raise DataError(f"a tolerance is a loss of mean quality in [0, 1], as 0.02, not {tolerance!r}")
    drafts = read_drafts(dev, metric)
    allowed = sorted({k for k in patiences if 1 <= k < drafts.highest})
    if not allowed:
        raise DataError(
            f"no patience of {list(patiences)!r} fits {drafts.highest} rounds; allowed: 1 to {drafts.highest - 1}"
        )
    grid = distance_thresholds(drafts.distance)
    curve = tuple(_point_of(drafts, eps, k) for k in allowed for eps in grid)
    full = _point_of(drafts, 0.0, 1).quality  # no distance is below zero: the full width
    best = select(curve, full, tolerance)
    return Tuned(
        eps=best.eps,
        patience=best.patience,
        how="selected on dev",
        criterion=f"fewest rounds among the points that lose at most {tolerance:g} of {metric} on dev, else the best",
        grid=f"{len(grid)} quantiles of the dev distances ({grid[0]:g} to {grid[-1]:g}) x patience {', '.join(map(str, allowed))}",
        metric=metric,
        curve=curve,
        full=full,
        n=drafts.n,
        data_hash=dev.data_hash,
        seen=seen_from(dev),
        embedder=embedder_of(dev),
        notes=tuple(f"dev: {note}" for note in drafts.notes),
    )


def distance_thresholds(distance: np.typing.NDArray[np.float64]) -> list[float]:
    """Return the thresholds to try: the positive quantiles of the defined distances, rounded up to three digits."""
    defined = distance[~np.isnan(distance)]
    levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
    grid = sorted({_three_digits_up(float(value)) for value in np.quantile(defined, levels) if value > 0})
    return grid or [0.001]  # if all drafts repeat, every threshold above zero is as good


def _three_digits_up(value: float) -> float:
    step = 10.0 ** (np.floor(np.log10(value)) - 2)
    return float(f"{(np.floor(value / step) + 1) * step:.3g}")


def select(curve: Sequence[Point], full: float, tolerance: float) -> Point:
    """Return the point of a curve that the criterion of `tune` selects."""
    near = [point for point in curve if point.quality >= full - tolerance - ROUNDING]
    if near:
        return min(near, key=lambda p: (p.rounds, -p.quality, p.eps, p.patience))
    return min(curve, key=lambda p: (-p.quality, p.rounds, p.eps, p.patience))


def _point_of(drafts: Drafts, eps: float, patience: int) -> Point:
    policy = Policy(rule=converged(eps, patience), max_rounds=drafts.highest)
    stopped = drafts.prepared.stops(policy)
    values = drafts.prepared.values(stopped.view, stopped.position, stopped.answer_position)[drafts.metric]
    return Point(eps=eps, patience=patience, rounds=float(stopped.rounds.mean()), quality=float(values.mean()))


def _check_eps(eps: float, patience: int) -> None:
    if not 0 < eps <= 2:  # noqa: PLR2004
        raise DataError(f"a threshold of the distance lies in (0, 2], not {eps!r}")
    if isinstance(patience, bool) or patience != int(patience) or patience < 1:
        raise DataError(f"a patience is a number of rounds >= 1, not {patience!r}")
