"""Offline evaluation on recordings: replay, calibration, statistics and costs."""

from suffice.replays.charging import LEDGERS, LIVE, Charging
from suffice.replays.checks import check_policy, policy_for, reads_round_0
from suffice.replays.costs import CostTable, Ledger
from suffice.replays.costs_by_round import RoundCosts, round_costs
from suffice.replays.evaluate import replay, replay_matrix
from suffice.replays.fitting import CalibrationSummary, CalibratorFit, FitComparison, calibrate
from suffice.replays.outcomes import AGREEMENT, outcome
from suffice.replays.panels import OrderedPanel, PanelMember, order_panel
from suffice.replays.prices import ListPrice, Price, component_prices, list_price, list_prices, load_prices, prices_of
from suffice.replays.replayer import ComparedRuns, Replayer
from suffice.replays.result import ReplayResult, Row, Spread
from suffice.replays.selected import Selected, dividing_names, seen_by, seen_from, seen_in, selected_on, tuned_on
from suffice.replays.stop_values import RoundValues, StopValues, learn_stop
from suffice.replays.streaming import StreamResult, replay_stream
from suffice.replays.sweep import equivalent_thresholds, even_thresholds
from suffice.seen import id_hash

__all__ = [
    "AGREEMENT",
    "LEDGERS",
    "LIVE",
    "CalibrationSummary",
    "CalibratorFit",
    "Charging",
    "ComparedRuns",
    "CostTable",
    "FitComparison",
    "Ledger",
    "ListPrice",
    "OrderedPanel",
    "PanelMember",
    "Price",
    "ReplayResult",
    "Replayer",
    "RoundCosts",
    "RoundValues",
    "Row",
    "Selected",
    "Spread",
    "StopValues",
    "StreamResult",
    "calibrate",
    "check_policy",
    "component_prices",
    "dividing_names",
    "equivalent_thresholds",
    "even_thresholds",
    "id_hash",
    "learn_stop",
    "list_price",
    "list_prices",
    "load_prices",
    "order_panel",
    "outcome",
    "policy_for",
    "prices_of",
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
