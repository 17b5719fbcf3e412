"""Offline evaluation on recordings: replay, calibration, statistics and costs."""

from suffice.replay.calibrate import CalibrationSummary, CalibratorFit, FitComparison, calibrate
from suffice.replay.charging import LEDGERS, Charging, operational_masks
from suffice.replay.checks import check_policy, policy_for, reads_round_0
from suffice.replay.costs import CostTable, Ledger
from suffice.replay.evaluate import replay, replay_matrix
from suffice.replay.outcomes import AGREEMENT, outcome
from suffice.replay.prices import ListPrice, Price, component_prices, list_price, list_prices, load_prices
from suffice.replay.result import ReplayResult, Row, Spread
from suffice.replay.round_costs import RoundCosts, round_costs
from suffice.replay.selected import Selected, dividing_names, seen_by, seen_from, seen_in, selected_on, tuned_on
from suffice.replay.streaming import StreamResult, replay_stream
from suffice.replay.sweep import equivalent_thresholds, even_thresholds
from suffice.seen import id_hash

__all__ = [
    "AGREEMENT",
    "LEDGERS",
    "CalibrationSummary",
    "CalibratorFit",
    "Charging",
    "CostTable",
    "FitComparison",
    "Ledger",
    "ListPrice",
    "Price",
    "ReplayResult",
    "RoundCosts",
    "Row",
    "Selected",
    "Spread",
    "StreamResult",
    "calibrate",
    "check_policy",
    "component_prices",
    "dividing_names",
    "equivalent_thresholds",
    "even_thresholds",
    "id_hash",
    "list_price",
    "list_prices",
    "load_prices",
    "operational_masks",
    "outcome",
    "policy_for",
    "reads_round_0",
    "replay",
    "replay_matrix",
    "replay_stream",
    "round_costs",
    "seen_by",
    "seen_from",
    "seen_in",
    "selected_on",
    "tuned_on",
]
