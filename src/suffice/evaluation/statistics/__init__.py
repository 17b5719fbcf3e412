"""Statistics of paired differences: the question is the unit, and every rule shares the same draws."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.evaluation.statistics.auroc import (
        Area as Area,
    )
    from suffice.evaluation.statistics.auroc import (
        Coded as Coded,
    )
    from suffice.evaluation.statistics.auroc import (
        area_under_roc as area_under_roc,
    )
    from suffice.evaluation.statistics.auroc import (
        areas_by_draw as areas_by_draw,
    )
    from suffice.evaluation.statistics.corrections import (
        MaxStatistic as MaxStatistic,
    )
    from suffice.evaluation.statistics.corrections import (
        holm as holm,
    )
    from suffice.evaluation.statistics.corrections import (
        max_statistic as max_statistic,
    )
    from suffice.evaluation.statistics.drawn_sums import (
        DrawnSums as DrawnSums,
    )
    from suffice.evaluation.statistics.drawn_sums import (
        check_streamed as check_streamed,
    )
    from suffice.evaluation.statistics.drawn_sums import (
        error_of_sums as error_of_sums,
    )
    from suffice.evaluation.statistics.drawn_sums import (
        p_of_largest as p_of_largest,
    )
    from suffice.evaluation.statistics.folds import (
        drawn_folds as drawn_folds,
    )
    from suffice.evaluation.statistics.folds import (
        hash_folds as hash_folds,
    )
    from suffice.evaluation.statistics.folds import (
        hash_order as hash_order,
    )
    from suffice.evaluation.statistics.folds import (
        hash_places as hash_places,
    )
    from suffice.evaluation.statistics.hypotheses import (
        SignFlip as SignFlip,
    )
    from suffice.evaluation.statistics.hypotheses import (
        cohens_d_z as cohens_d_z,
    )
    from suffice.evaluation.statistics.hypotheses import (
        paired_t_test as paired_t_test,
    )
    from suffice.evaluation.statistics.hypotheses import (
        permutation_tests as permutation_tests,
    )
    from suffice.evaluation.statistics.hypotheses import (
        sign_flip_test as sign_flip_test,
    )
    from suffice.evaluation.statistics.hypotheses import (
        wilcoxon_test as wilcoxon_test,
    )
    from suffice.evaluation.statistics.intervals import (
        DEFAULT_INTERVAL as DEFAULT_INTERVAL,
    )
    from suffice.evaluation.statistics.intervals import (
        INTERVALS as INTERVALS,
    )
    from suffice.evaluation.statistics.intervals import (
        Intervals as Intervals,
    )
    from suffice.evaluation.statistics.intervals import (
        paired_bootstrap as paired_bootstrap,
    )
    from suffice.evaluation.statistics.intervals import (
        paired_t as paired_t,
    )
    from suffice.evaluation.statistics.keyed import (
        KeyedWeights as KeyedWeights,
    )
    from suffice.evaluation.statistics.keyed import (
        Keys as Keys,
    )
    from suffice.evaluation.statistics.keyed import (
        keyed_bits as keyed_bits,
    )
    from suffice.evaluation.statistics.keyed import (
        keyed_numbers as keyed_numbers,
    )
    from suffice.evaluation.statistics.keyed import (
        keys_of as keys_of,
    )
    from suffice.evaluation.statistics.keyed import (
        poisson_weights as poisson_weights,
    )
    from suffice.evaluation.statistics.margins import (
        MarginTest as MarginTest,
    )
    from suffice.evaluation.statistics.margins import (
        both_margin_tests as both_margin_tests,
    )
    from suffice.evaluation.statistics.paired import (
        FEW_NONZERO as FEW_NONZERO,
    )
    from suffice.evaluation.statistics.paired import (
        ONE_UNIT as ONE_UNIT,
    )
    from suffice.evaluation.statistics.paired import (
        PairedResult as PairedResult,
    )
    from suffice.evaluation.statistics.paired import (
        paired_results as paired_results,
    )
    from suffice.evaluation.statistics.paired import (
        undefined_notes as undefined_notes,
    )
    from suffice.evaluation.statistics.pvalues import (
        betting_p_value as betting_p_value,
    )
    from suffice.evaluation.statistics.pvalues import (
        hoeffding_bentkus_p_value as hoeffding_bentkus_p_value,
    )
    from suffice.evaluation.statistics.pvalues import (
        net_p_value as net_p_value,
    )
    from suffice.evaluation.statistics.resampling import (
        Draws as Draws,
    )
    from suffice.evaluation.statistics.resampling import (
        Resampling as Resampling,
    )
    from suffice.evaluation.statistics.resampling import (
        holm_within as holm_within,
    )
    from suffice.evaluation.statistics.restarts import Alarm as Alarm
    from suffice.evaluation.statistics.rounding import ROUNDING as ROUNDING
    from suffice.evaluation.statistics.sequences import (
        ConfidenceSequence as ConfidenceSequence,
    )
    from suffice.evaluation.statistics.sequences import (
        window_sequences as window_sequences,
    )
    from suffice.evaluation.statistics.shares import share as share
    from suffice.evaluation.statistics.units import Clusters as Clusters
    from suffice.evaluation.statistics.units import Units as Units

__getattr__, __dir__, __all__ = lazy_face(__name__)
