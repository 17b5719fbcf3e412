"""Offline evaluation on recordings: replay, calibration, statistics and costs."""

from suffice.replay.calibrate import CalibrationSummary, CalibratorFit, FitComparison, calibrate
from suffice.replay.checks import check_policy, id_hash, policy_for, tuned_on
from suffice.replay.costs import CostTable, Ledger, operational_masks
from suffice.replay.evaluate import replay, replay_matrix
from suffice.replay.margins import MarginTest, equivalence, non_inferiority
from suffice.replay.outcomes import AGREEMENT, outcome
from suffice.replay.prices import PRICES, Price, component_prices, load_prices
from suffice.replay.result import ReplayResult, Row, Spread
from suffice.replay.statistics import (
    Intervals,
    PairedResult,
    bootstrap_weights,
    paired_bootstrap,
    paired_results,
    sign_flip_test,
)

__all__ = [
    "AGREEMENT",
    "PRICES",
    "CalibrationSummary",
    "CalibratorFit",
    "CostTable",
    "FitComparison",
    "Intervals",
    "Ledger",
    "MarginTest",
    "PairedResult",
    "Price",
    "ReplayResult",
    "Row",
    "Spread",
    "bootstrap_weights",
    "calibrate",
    "check_policy",
    "component_prices",
    "equivalence",
    "id_hash",
    "load_prices",
    "non_inferiority",
    "operational_masks",
    "outcome",
    "paired_bootstrap",
    "paired_results",
    "policy_for",
    "replay",
    "replay_matrix",
    "sign_flip_test",
    "tuned_on",
]
