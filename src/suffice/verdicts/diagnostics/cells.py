"""Compare a threshold on the raw margin with a threshold on the calibrated margin, across models and corpora."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import hash_folds
from suffice.policy.calibration import CALIBRATED, Calibrator
from suffice.policy.rounds import Floats, Mask, Rounds
from suffice.policy.rules import Rule, Threshold, tasr, thresholds
from suffice.policy.rules.algebra import find_threshold, substitute
from suffice.recordings.recording import Recording
from suffice.verdicts.diagnostics.rows import (
    column_or_nan,
    has_metric,
    mean_known,
    right_if_known,
    right_or_wrong,
    rule_figures,
)

CALIBRATED_NAME = "p_correct"
FOLDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """One cell (a model, a retriever, a corpus); NaN where a figure is undefined.

    Attributes:
        cell: The name of the cell.
        n: Number of questions.
        calibration: The origin of `p_correct`: `as recorded`, `cross-fitted`, or the reason why `p_correct` is missing.
        mean: Mean of the raw margin over rounds, nats.
        sd: Standard deviation of the raw margin over rounds, nats.
        separation: Mean of the raw margin over right answers minus its mean over wrong ones, nats.
        raw_stops: Share of questions that the rule on the raw margin stops before their last round.
        raw_quality: Mean quality under the rule on the raw margin.
        raw_calls: Mean calls under the rule on the raw margin.
        stops: Share of questions that the rule on `p_correct` stops before their last round.
        quality: Mean quality under the rule on `p_correct`.
        calls: Mean calls under the rule on `p_correct`.
    """

    cell: str
    n: int
    calibration: str
    mean: float
    sd: float
    separation: float
    raw_stops: float
    raw_quality: float
    raw_calls: float
    stops: float
    quality: float
    calls: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTable(Result):
    """Cells compared under one raw and one calibrated threshold.

    Attributes:
        cells: The cells. The raw threshold is chosen in the first cell, so that both rules fire in equally many rounds.
        rule: The rule on `p_correct`.
        raw_rule: The same rule with a threshold on the raw margin instead of `p_correct`.
        raw_threshold: The threshold of `raw_rule`, nats.
        metric: The metric that says which answers are right.
        quality_metric: The quality.
    """

    cells: tuple[CellRow, ...]
    rule: str
    raw_rule: str
    raw_threshold: float
    metric: str
    quality_metric: str

    def table(self) -> Table:
        """Return the margins and the figures of both rules by cell."""
        name = self.quality_metric.upper()
        return Table.of(
            f"Raw against calibrated margin: {self.rule}, and the same with a margin above {self.raw_threshold:.3g} nats",
            self.cells,
            {
                Column("cell"): "cell",
                Column("p_correct"): "calibration",
                Column("questions", ",.0f"): "n",
                Column("margin", ".2f"): "mean",
                Column("SD", ".2f"): "sd",
                Column("right - wrong", "+.2f"): "separation",
                Column("raw: stop early", ".0%"): "raw_stops",
                Column(f"raw: {name}", ".1f", scale=100): "raw_quality",
                Column("raw: calls", ".2f"): "raw_calls",
                Column("stop early", ".0%"): "stops",
                Column(name, ".1f", scale=100): "quality",
                Column("calls", ".2f"): "calls",
            },
            notes=(
                f"the raw threshold fires in as many rounds of {self.cells[0].cell} as the calibrated one; margins in nats",
                f"cross-fitted: each question's map comes from the other {FOLDS - 1} of {FOLDS} folds of its own cell",
            ),
        )


def cross_fitted_signal(recording: Recording, output: str = CALIBRATED_NAME, *, target: str = "em") -> Floats:
    """Return a cross-fitted calibrated signal, shape ``(n_questions, n_rounds)``.

    Each question's calibrator was fitted on other questions.

    Questions are divided into folds by the hash of their cluster, so that a recording always has the same folds.  The
    result is NaN where the raw signal is undefined, or where no calibrator can be fitted on the other folds.

    Args:
        recording: Recorded rounds with the raw signal and the target.
        output: The calibrated signal.
        target: The outcome that the signal predicts.
    """
    source = CALIBRATED[output]
    raw, goal = recording.column(source), right_or_wrong(recording, target)
    folds = hash_folds(recording.clusters.tolist(), FOLDS)
    usable = np.isfinite(raw) & np.isfinite(goal)
    result = np.full(recording.shape, np.nan)
    for fold in np.unique(folds).tolist():
        held = folds == fold
        if not usable[~held].any():
            continue
        fitted = Calibrator(output=output, signal=source, target=target, unseen_round="nearest")
        fitted = fitted.fit(raw[~held], goal[~held], index=recording.index)
        result[held] = fitted.predict(raw[held], index=recording.index)
    return result


def matching_threshold(raw: Floats, fires: Mask) -> float:
    """Return the threshold at which the raw signal fires in as many rounds as `fires` marks; NaN without the signal.

    >>> import numpy as np
    >>> matching_threshold(np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, False, True, True]))
    2.0

    Args:
        raw: The raw signal, any shape; NaN where undefined.
        fires: Mask of the rounds in which another rule fires, shape of `raw`.
    """
    ordered = np.sort(raw[np.isfinite(raw)])
    if not len(ordered):
        return math.nan
    # All values above the threshold fire, so the threshold is the largest value that does not fire.
    quiet = len(ordered) - int((fires & np.isfinite(raw)).sum())
    return float(ordered[quiet - 1]) if quiet else float(np.nextafter(ordered[0], -np.inf))


def compare_cells(
    cells: Mapping[str, Recording], *, rule: Rule | None = None, metric: str = "em", quality: str = "f1"
) -> CellTable | None:
    """Compare one raw threshold with one calibrated threshold in several cells.

    The margins of each model have their own scale (TASR section 6.2), so a threshold in nats that fits one cell stops
    too often or too rarely in another; a probability means the same everywhere.

    Args:
        cells: Recordings by name, of any sizes. The raw threshold is chosen in the first, see `matching_threshold`.
        rule: A rule with one lower bound on `p_correct`. TASR is used if `rule` is None or has no such bound.
        metric: The metric that says which answers are right.
        quality: The quality.

    Returns:
        The table; None if the first cell has no raw margins, so that no threshold can be chosen.
    """
    rule, literal = _with_floor(rule)
    source = CALIBRATED[CALIBRATED_NAME]
    recordings = {name: PreparedRecording.of(recording).recording for name, recording in cells.items()}
    calibrated = {name: _p_correct(recording, metric) for name, recording in recordings.items()}
    first, (probabilities, _) = next(iter(recordings.values())), next(iter(calibrated.values()))
    if not np.isfinite(probabilities).any():
        return None
    fires = literal.fires(Rounds({CALIBRATED_NAME: probabilities}, first.index, first.seen))
    threshold = matching_threshold(column_or_nan(first, source), fires)
    raw_rule = substitute(rule, literal, Threshold(source, ">", threshold))
    rows = []
    for name, recording in recordings.items():
        probabilities, calibration = calibrated[name]
        right, margin = right_if_known(recording, metric), column_or_nan(recording, source)
        known = margin[np.isfinite(margin)]
        raw_stops, raw_quality, raw_calls = _figures(recording, raw_rule, quality, {})
        early, mean_quality, calls = _figures(recording, rule, quality, {CALIBRATED_NAME: probabilities})
        rows.append(
            CellRow(
                cell=name,
                n=len(recording.question_ids),
                calibration=calibration,
                mean=mean_known(margin),
                sd=float(known.std(ddof=1)) if known.size > 1 else math.nan,
                separation=mean_known(margin[right == 1]) - mean_known(margin[right == 0]),
                raw_stops=raw_stops,
                raw_quality=raw_quality,
                raw_calls=raw_calls,
                stops=early,
                quality=mean_quality,
                calls=calls,
            )
        )
    return CellTable(
        cells=tuple(rows),
        rule=str(rule),
        raw_rule=str(raw_rule),
        raw_threshold=threshold,
        metric=metric,
        quality_metric=quality,
    )


def _with_floor(rule: Rule | None) -> tuple[Rule, Threshold]:
    """Return a rule and its only lower bound on `p_correct`; TASR and its bound if the rule has no such bound."""
    bounds = [] if rule is None else [item for item in thresholds(rule) if item.name == CALIBRATED_NAME]
    if rule is not None and len(bounds) == 1 and bounds[0].comparison in (">", ">="):
        return rule, bounds[0]
    rule = tasr()
    return rule, find_threshold(rule, CALIBRATED_NAME)


def _p_correct(recording: Recording, target: str) -> tuple[Floats, str]:
    """Return `p_correct` of a cell, and the origin of these values; see `CellRow.calibration`."""
    recorded = column_or_nan(recording, CALIBRATED_NAME)
    if np.isfinite(recorded).any():
        return recorded, "as recorded"
    if not np.isfinite(column_or_nan(recording, CALIBRATED[CALIBRATED_NAME])).any():
        return recorded, "no margin"
    if not has_metric(recording, target):
        return recorded, f"no {target} to fit to"
    fitted = cross_fitted_signal(recording, target=target)
    return fitted, "cross-fitted" if np.isfinite(fitted).any() else "too few questions"


def _figures(recording: Recording, rule: Rule, quality: str, added: Mapping[str, Floats]) -> tuple[float, float, float]:
    """Return the `rule_figures` of a rule; NaN if it reads a signal that is undefined in all rounds."""
    policy = policy_for(recording, rule)
    metrics = [quality] if has_metric(recording, quality) else []
    prepared = PreparedRecording.of(recording, metrics).with_columns(added)
    if any(np.isnan(column).all() for column in prepared.rounds(policy.raw_signals).columns.values()):
        return math.nan, math.nan, math.nan
    return rule_figures(prepared, policy, quality)
