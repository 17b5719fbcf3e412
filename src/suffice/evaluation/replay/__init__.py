"""Offline evaluation on recordings: replay, calibration, statistics and costs."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.evaluation.replay.charging import LEDGERS as LEDGERS
    from suffice.evaluation.replay.charging import LIVE as LIVE
    from suffice.evaluation.replay.charging import Charging as Charging
    from suffice.evaluation.replay.checks import (
        check_policy as check_policy,
    )
    from suffice.evaluation.replay.checks import (
        policy_for as policy_for,
    )
    from suffice.evaluation.replay.checks import (
        reads_round_0 as reads_round_0,
    )
    from suffice.evaluation.replay.costs import CostTable as CostTable
    from suffice.evaluation.replay.costs import Ledger as Ledger
    from suffice.evaluation.replay.costs_by_round import RoundCosts as RoundCosts
    from suffice.evaluation.replay.costs_by_round import round_costs as round_costs
    from suffice.evaluation.replay.evaluate import replay as replay
    from suffice.evaluation.replay.evaluate import replay_matrix as replay_matrix
    from suffice.evaluation.replay.fitting import (
        CalibrationSummary as CalibrationSummary,
    )
    from suffice.evaluation.replay.fitting import (
        CalibratorFit as CalibratorFit,
    )
    from suffice.evaluation.replay.fitting import (
        FitComparison as FitComparison,
    )
    from suffice.evaluation.replay.fitting import (
        calibrate as calibrate,
    )
    from suffice.evaluation.replay.outcomes import AGREEMENT as AGREEMENT
    from suffice.evaluation.replay.outcomes import outcome as outcome
    from suffice.evaluation.replay.panels import (
        OrderedPanel as OrderedPanel,
    )
    from suffice.evaluation.replay.panels import (
        PanelMember as PanelMember,
    )
    from suffice.evaluation.replay.panels import (
        order_panel as order_panel,
    )
    from suffice.evaluation.replay.prices import (
        ListPrice as ListPrice,
    )
    from suffice.evaluation.replay.prices import (
        Price as Price,
    )
    from suffice.evaluation.replay.prices import (
        component_prices as component_prices,
    )
    from suffice.evaluation.replay.prices import (
        list_price as list_price,
    )
    from suffice.evaluation.replay.prices import (
        list_prices as list_prices,
    )
    from suffice.evaluation.replay.prices import (
        load_prices as load_prices,
    )
    from suffice.evaluation.replay.prices import (
        prices_of as prices_of,
    )
    from suffice.evaluation.replay.replayed_rows import Row as Row
    from suffice.evaluation.replay.replayed_rows import Spread as Spread
    from suffice.evaluation.replay.replayer import ComparedRuns as ComparedRuns
    from suffice.evaluation.replay.replayer import Replayer as Replayer
    from suffice.evaluation.replay.result import ReplayResult as ReplayResult
    from suffice.evaluation.replay.selected import (
        Selected as Selected,
    )
    from suffice.evaluation.replay.selected import (
        dividing_names as dividing_names,
    )
    from suffice.evaluation.replay.selected import (
        seen_by as seen_by,
    )
    from suffice.evaluation.replay.selected import (
        seen_from as seen_from,
    )
    from suffice.evaluation.replay.selected import (
        seen_in as seen_in,
    )
    from suffice.evaluation.replay.selected import (
        selected_on as selected_on,
    )
    from suffice.evaluation.replay.selected import (
        tuned_on as tuned_on,
    )
    from suffice.evaluation.replay.stop_values import (
        RoundValues as RoundValues,
    )
    from suffice.evaluation.replay.stop_values import (
        StopValues as StopValues,
    )
    from suffice.evaluation.replay.stop_values import (
        learn_stop as learn_stop,
    )
    from suffice.evaluation.replay.sweep import (
        even_thresholds as even_thresholds,
    )

__getattr__, __dir__, __all__ = lazy_face(__name__)
