"""Offline evaluation on recordings: replay, calibration, statistics and costs."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.evaluation.replay.charging import LEDGERS as LEDGERS, LIVE as LIVE, Charging as Charging
    from suffice.evaluation.replay.checks import (
        check_policy as check_policy,
        policy_for as policy_for,
        reads_round_0 as reads_round_0,
    )
    from suffice.evaluation.replay.costs import CostTable as CostTable, Ledger as Ledger
    from suffice.evaluation.replay.costs_by_round import RoundCosts as RoundCosts, round_costs as round_costs
    from suffice.evaluation.replay.evaluate import replay as replay, replay_matrix as replay_matrix
    from suffice.evaluation.replay.fitting import (
        CalibrationSummary as CalibrationSummary,
        CalibratorFit as CalibratorFit,
        FitComparison as FitComparison,
        calibrate as calibrate,
    )
    from suffice.evaluation.replay.outcomes import AGREEMENT as AGREEMENT, outcome as outcome
    from suffice.evaluation.replay.panels import (
        OrderedPanel as OrderedPanel,
        PanelMember as PanelMember,
        order_panel as order_panel,
    )
    from suffice.evaluation.replay.price_lists import (
        ListPrice as ListPrice,
        PriceFile as PriceFile,
        component_prices as component_prices,
        list_price as list_price,
        list_prices as list_prices,
        load_prices as load_prices,
        prices_of as prices_of,
    )
    from suffice.evaluation.replay.prices import Price as Price
    from suffice.evaluation.replay.replayed_rows import Row as Row, Spread as Spread
    from suffice.evaluation.replay.replayer import ComparedRuns as ComparedRuns, Replayer as Replayer
    from suffice.evaluation.replay.result import ReplayResult as ReplayResult
    from suffice.evaluation.replay.selected import (
        Selected as Selected,
        dividing_names as dividing_names,
        seen_by as seen_by,
        seen_from as seen_from,
        seen_in as seen_in,
        selected_on as selected_on,
        tuned_on as tuned_on,
    )
    from suffice.evaluation.replay.sweep import even_thresholds as even_thresholds

__getattr__, __dir__, __all__ = lazy_face(__name__)
