"""Diagnostics of signals, calibrators, stops and selectors."""

from suffice.verdicts.diagnostics.calibration import CalibratorForm, Reliability, judge_calibrators
from suffice.verdicts.diagnostics.cells import (
    CellRow,
    CellTable,
    compare_cells,
    cross_fitted_signal,
    matching_threshold,
)
from suffice.verdicts.diagnostics.diagnosis import Diagnosis, diagnose
from suffice.verdicts.diagnostics.drift import Drift, SignalDrift, kolmogorov_smirnov, measure_drift
from suffice.verdicts.diagnostics.premature import (
    FloorEffect,
    PrematureStops,
    QuestionGroup,
    compare_floor,
    look_at_stops,
    without_floor,
)
from suffice.verdicts.diagnostics.question_types import ByType, TypeRow, by_type
from suffice.verdicts.diagnostics.rows import Rows, cohens_d, draw_d, right_or_wrong
from suffice.verdicts.diagnostics.selection import SelectorComparison, compare_selectors
from suffice.verdicts.diagnostics.signals import (
    Correlations,
    SignalSummary,
    SignalTable,
    correlate,
    entropy,
    summarise_signals,
)
from suffice.verdicts.diagnostics.sweep import SweepPoint, ThresholdSweep, pareto_knee, sweep_threshold

__all__ = [
    "ByType",
    "CalibratorForm",
    "CellRow",
    "CellTable",
    "Correlations",
    "Diagnosis",
    "Drift",
    "FloorEffect",
    "PrematureStops",
    "QuestionGroup",
    "Reliability",
    "Rows",
    "SelectorComparison",
    "SignalDrift",
    "SignalSummary",
    "SignalTable",
    "SweepPoint",
    "ThresholdSweep",
    "TypeRow",
    "by_type",
    "cohens_d",
    "compare_cells",
    "compare_floor",
    "compare_selectors",
    "correlate",
    "cross_fitted_signal",
    "diagnose",
    "draw_d",
    "entropy",
    "judge_calibrators",
    "kolmogorov_smirnov",
    "look_at_stops",
    "matching_threshold",
    "measure_drift",
    "pareto_knee",
    "right_or_wrong",
    "summarise_signals",
    "sweep_threshold",
    "without_floor",
]
