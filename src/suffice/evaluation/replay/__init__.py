"""Offline evaluation on recordings: replay, calibration, statistics and costs."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.evaluation.replay.charging import LEDGERS, LIVE, Charging
    from suffice.evaluation.replay.checks import check_policy, policy_for, reads_round_0
    from suffice.evaluation.replay.costs import CostTable, Ledger
    from suffice.evaluation.replay.costs_by_round import RoundCosts, round_costs
    from suffice.evaluation.replay.evaluate import replay, replay_matrix
    from suffice.evaluation.replay.fitting import CalibrationSummary, CalibratorFit, FitComparison, calibrate
    from suffice.evaluation.replay.outcomes import AGREEMENT, outcome
    from suffice.evaluation.replay.panels import OrderedPanel, PanelMember, order_panel
    from suffice.evaluation.replay.prices import (
        ListPrice,
        Price,
        component_prices,
        list_price,
        list_prices,
        load_prices,
        prices_of,
    )
    from suffice.evaluation.replay.replayed_rows import Row, Spread
    from suffice.evaluation.replay.replayer import ComparedRuns, Replayer
    from suffice.evaluation.replay.result import ReplayResult
    from suffice.evaluation.replay.selected import (
        Selected,
        dividing_names,
        seen_by,
        seen_from,
        seen_in,
        selected_on,
        tuned_on,
    )
    from suffice.evaluation.replay.stop_values import RoundValues, StopValues, learn_stop
    from suffice.evaluation.replay.sweep import equivalent_thresholds, even_thresholds

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
    "calibrate",
    "check_policy",
    "component_prices",
    "dividing_names",
    "equivalent_thresholds",
    "even_thresholds",
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
    "round_costs",
    "seen_by",
    "seen_from",
    "seen_in",
    "selected_on",
    "tuned_on",
]

__getattr__, __dir__ = lazy_face(
    __name__,
    {
        "charging": ("LEDGERS", "LIVE", "Charging"),
        "checks": ("check_policy", "policy_for", "reads_round_0"),
        "costs": ("CostTable", "Ledger"),
        "costs_by_round": ("RoundCosts", "round_costs"),
        "evaluate": ("replay", "replay_matrix"),
        "fitting": ("CalibrationSummary", "CalibratorFit", "FitComparison", "calibrate"),
        "outcomes": ("AGREEMENT", "outcome"),
        "panels": ("OrderedPanel", "PanelMember", "order_panel"),
        "prices": ("ListPrice", "Price", "component_prices", "list_price", "list_prices", "load_prices", "prices_of"),
        "replayed_rows": ("Row", "Spread"),
        "replayer": ("ComparedRuns", "Replayer"),
        "result": ("ReplayResult",),
        "selected": ("Selected", "dividing_names", "seen_by", "seen_from", "seen_in", "selected_on", "tuned_on"),
        "stop_values": ("RoundValues", "StopValues", "learn_stop"),
        "sweep": ("equivalent_thresholds", "even_thresholds"),
    },
)
