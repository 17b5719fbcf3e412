"""Diagnostics of signals, calibrators, stops and selectors."""

from suffice.diagnose.by_type import ByType, TypeRow, by_type
from suffice.diagnose.calibration import CalibratorForm, Reliability, judge_calibrators
from suffice.diagnose.cells import CellRow, CellTable, compare_cells, cross_fitted, matching_threshold
from suffice.diagnose.correlations import Correlations, correlate
from suffice.diagnose.diagnosis import Diagnosis, Part, diagnose
from suffice.diagnose.drift import Drift, SignalDrift, kolmogorov_smirnov, measure_drift
from suffice.diagnose.floor import FloorEffect, compare_floor, without_floor
from suffice.diagnose.judged import JudgedComparison, JudgedRow, compare_judged
from suffice.diagnose.judging import Halving, JudgeAll, JudgeDistinct, JudgeUntil, Procedure, Unjudged
from suffice.diagnose.premature import Group, PrematureStops, look_at_stops
from suffice.diagnose.ranking import RankerFit, fit_ranker
from suffice.diagnose.rows import Coded, Rows, right_or_wrong, rows_of
from suffice.diagnose.selection import SelectorComparison, compare_selectors
from suffice.diagnose.separation import auroc, cohens_d, draw_d
from suffice.diagnose.signals import SignalSummary, SignalTable, entropy, summarise_signals
from suffice.diagnose.sweep import SweepPoint, ThresholdSweep, pareto_knee, sweep_threshold

__all__ = [
    "ByType",
    "CalibratorForm",
    "CellRow",
    "CellTable",
    "Coded",
    "Correlations",
    "Diagnosis",
    "Drift",
    "FloorEffect",
    "Group",
    "Halving",
    "JudgeAll",
    "JudgeDistinct",
    "JudgeUntil",
    "JudgedComparison",
    "JudgedRow",
    "Part",
    "PrematureStops",
    "Procedure",
    "RankerFit",
    "Reliability",
    "Rows",
    "SelectorComparison",
    "SignalDrift",
    "SignalSummary",
    "SignalTable",
    "SweepPoint",
    "ThresholdSweep",
    "TypeRow",
    "Unjudged",
    "auroc",
    "by_type",
    "cohens_d",
    "compare_cells",
    "compare_floor",
    "compare_judged",
    "compare_selectors",
    "correlate",
    "cross_fitted",
    "diagnose",
    "draw_d",
    "entropy",
    "fit_ranker",
    "judge_calibrators",
    "kolmogorov_smirnov",
    "look_at_stops",
    "matching_threshold",
    "measure_drift",
    "pareto_knee",
    "right_or_wrong",
    "rows_of",
    "summarise_signals",
    "sweep_threshold",
    "without_floor",
]
