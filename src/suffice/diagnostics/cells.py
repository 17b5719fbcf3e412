"""Across models and corpora: one threshold on the raw margin against one on the calibrated margin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from suffice.calibration import CALIBRATED, Calibrator
from suffice.diagnostics.rows import has_metric, right_or_wrong
from suffice.replays import policy_for
from suffice.replays.baselines import run_policy
from suffice.replays.prepared import PreparedRecording
from suffice.results import Result
from suffice.rounds import Floats, Mask, Rounds
from suffice.rules import Rule, Threshold, tasr, thresholds
from suffice.rules.rethreshold import find_threshold, substitute
from suffice.statistics import hash_folds
from suffice.store.recording import Recording
from suffice.tables import Column, Table

__all__ = ["CellRow", "CellTable", "compare_cells", "cross_fitted", "matching_threshold"]

CALIBRATED_NAME = "p_correct"
FOLDS = 5
_NAN = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """One cell (a model, a retriever, a corpus); NaN where a figure is undefined.

    Attributes:
        cell: Its name.
        n: Questions.
        calibration: Where `p_correct` comes from: `as recorded`, `cross-fitted`, or why there is none.
        mean: Mean of the raw margin over rounds, nats.
        sd: Its standard deviation.
        separation: Mean when right minus mean when wrong, nats.
        raw_stops: Share of questions that the rule on the raw margin stops before their last round.
        raw_quality: Mean quality under it.
        raw_calls: Mean calls under it.
        stops: The same of the rule on `p_correct`.
        quality: Mean quality under that.
        calls: Mean calls under that.
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
    """Cells under one raw and one calibrated threshold.

    Attributes:
        cells: The first is the one that the raw threshold is matched in.
        rule: The rule on `p_correct`.
        raw_rule: The same with the raw margin in its place.
        raw_threshold: Its threshold, nats.
        metric: What counts as right.
        quality_metric: The quality.
    """

    cells: tuple[CellRow, ...]
    rule: str
    raw_rule: str
    raw_threshold: float
    metric: str
    quality_metric: str

    def table(self) -> Table:
        """Return margins, and what either rule does, by cell."""
        name = self.quality_metric.upper()
        return Table(
            title=f"Raw against calibrated margin: {self.rule}, and the same with a margin above {self.raw_threshold:.3g} nats",
            columns=(
                Column("cell"),
                Column("p_correct"),
                Column("questions", ",.0f"),
                Column("margin", ".2f"),
                Column("SD", ".2f"),
                Column("right - wrong", "+.2f"),
                Column("raw: stop early", ".0%"),
                Column(f"raw: {name}", ".1f", scale=100),
                Column("raw: calls", ".2f"),
                Column("stop early", ".0%"),
                Column(name, ".1f", scale=100),
                Column("calls", ".2f"),
            ),
            rows=tuple(
                (
                    row.cell,
                    row.calibration,
                    row.n,
                    row.mean,
                    row.sd,
                    row.separation,
                    row.raw_stops,
                    row.raw_quality,
                    row.raw_calls,
                    row.stops,
                    row.quality,
                    row.calls,
                )
                for row in self.cells
            ),
            notes=(
                f"the raw threshold fires in as many rounds of {self.cells[0].cell} as the calibrated one; margins in nats",
                f"cross-fitted: each question's map comes from the other {FOLDS - 1} of {FOLDS} folds of its own cell",
            ),
        )


def cross_fitted(recording: Recording, output: str = CALIBRATED_NAME, *, target: str = "em") -> Floats:
    """Return a calibrated signal whose map never saw the question, shape ``(n_questions, n_rounds)``.

    Questions fall into folds by the hash of their cluster, so that a recording always has the same ones.  NaN where the
    raw signal is undefined, or where the other folds have nothing to fit on.

    Args:
        recording: Recorded rounds with the raw signal and the target.
        output: The calibrated signal.
        target: What it is a probability of.
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
    """Return the raw threshold that as many rounds exceed as another rule fires in; NaN where no round has the signal.

    >>> import numpy as np
    >>> matching_threshold(np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, False, True, True]))
    2.0

    Args:
        raw: The raw signal, any shape; NaN where undefined.
        fires: Where the other rule fires, same shape.
    """
    ordered = np.sort(raw[np.isfinite(raw)])
    if not len(ordered):
        return _NAN
    quiet = len(ordered) - int((fires & np.isfinite(raw)).sum())
    return float(ordered[quiet - 1]) if quiet else float(np.nextafter(ordered[0], -np.inf))


def compare_cells(
    cells: Mapping[str, Recording], *, rule: Rule | None = None, metric: str = "em", quality: str = "f1"
) -> CellTable | None:
    """Compare the same raw threshold with the same calibrated one in several cells.

    A model's margins have a scale of their own (TASR section 6.2), so a threshold in nats that fits one cell stops too
    often or too seldom in another; a probability means the same everywhere.

    Args:
        cells: Recordings by name, of any sizes; the raw threshold is matched in the first.
        rule: A rule with one lower bound on `p_correct`; None, or a rule without: TASR.
        metric: What counts as right.
        quality: The quality.

    Returns:
        None where the first cell has no margin to match a threshold in.
    """
    rule, literal = _with_floor(rule)
    source = CALIBRATED[CALIBRATED_NAME]
    kept = {name: PreparedRecording.of(recording).recording for name, recording in cells.items()}
    margins = {name: _column(recording, source) for name, recording in kept.items()}
    calibrated = {name: _calibrated(recording, metric) for name, recording in kept.items()}
    first = next(iter(kept))
    probabilities = calibrated[first][0]
    if not np.isfinite(probabilities).any():
        return None
    fires = literal.fires(Rounds({CALIBRATED_NAME: probabilities}, kept[first].index, kept[first].seen))
    threshold = matching_threshold(margins[first], fires)
    raw_rule = substitute(rule, literal, Threshold(source, ">", threshold))
    rows = []
    for name, recording in kept.items():
        probabilities, how = calibrated[name]
        right = right_or_wrong(recording, metric) if has_metric(recording, metric) else np.full(recording.shape, np.nan)
        margin = margins[name]
        known = margin[np.isfinite(margin)]
        added = {CALIBRATED_NAME: probabilities}
        raw_stops, raw_quality, raw_calls = _outcome(recording, raw_rule, quality, {})
        stops, quality_, calls = _outcome(recording, rule, quality, added)
        rows.append(
            CellRow(
                cell=name,
                n=len(recording.question_ids),
                calibration=how,
                mean=float(known.mean()) if known.size else _NAN,
                sd=float(known.std(ddof=1)) if known.size > 1 else _NAN,
                separation=_mean(margin[right == 1]) - _mean(margin[right == 0]),
                raw_stops=raw_stops,
                raw_quality=raw_quality,
                raw_calls=raw_calls,
                stops=stops,
                quality=quality_,
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
    """Return a rule and its one lower bound on `p_correct`; TASR and its own where it has none."""
    found = [] if rule is None else [item for item in thresholds(rule) if item.name == CALIBRATED_NAME]
    if rule is None or len(found) != 1 or found[0].comparison not in (">", ">="):
        rule = tasr()
        found = [find_threshold(rule, CALIBRATED_NAME)]
    return rule, found[0]


def _column(recording: Recording, name: str) -> Floats:
    return recording.column(name) if name in recording.table.column_names else np.full(recording.shape, np.nan)


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else _NAN


def _calibrated(recording: Recording, target: str) -> tuple[Floats, str]:
    """Return `p_correct` of a cell, and where it comes from."""
    recorded = _column(recording, CALIBRATED_NAME)
    if np.isfinite(recorded).any():
        return recorded, "as recorded"
    margin = _column(recording, CALIBRATED[CALIBRATED_NAME])
    if not np.isfinite(margin).any():
        return recorded, "no margin"
    if not has_metric(recording, target):
        return recorded, f"no {target} to fit to"
    found = cross_fitted(recording, target=target)
    return found, "cross-fitted" if np.isfinite(found).any() else "too few questions"


def _outcome(recording: Recording, rule: Rule, quality: str, added: Mapping[str, Floats]) -> tuple[float, float, float]:
    """Return the share of early stops, the mean quality and the mean calls of a rule.

    NaN where it cannot run, or goes on past what another rule left of some questions.
    """
    policy = policy_for(recording, rule)
    has = has_metric(recording, quality)
    prepared = PreparedRecording.of(recording, [quality] if has else []).with_columns(added)
    columns = prepared.rounds(policy.raw_signals).columns
    if not set(policy.raw_signals) <= set(columns) or any(np.isnan(columns[name]).all() for name in policy.raw_signals):
        return _NAN, _NAN, _NAN
    run, stopped = run_policy(prepared, policy)
    if not run.exact:
        return _NAN, _NAN, _NAN
    early = stopped.position < stopped.view.seen.sum(axis=1) - 1
    return float(early.mean()), float(run.values[quality].mean()) if has else _NAN, float(run.ledger.calls.mean())
