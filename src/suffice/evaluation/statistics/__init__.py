"""Statistics of paired differences: the question is the unit, and every rule shares the same draws."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.evaluation.statistics.auroc import (
        Area as Area,
        Coded as Coded,
        area_under_roc as area_under_roc,
    )
    from suffice.evaluation.statistics.corrections import holm as holm
    from suffice.evaluation.statistics.drawn_sums import (
        DrawnSums as DrawnSums,
        check_streamed as check_streamed,
        error_of_sums as error_of_sums,
        p_of_largest as p_of_largest,
    )
    from suffice.evaluation.statistics.hypotheses import (
        SignFlip as SignFlip,
        cohens_d_z as cohens_d_z,
        permutation_tests as permutation_tests,
        sign_flip_test as sign_flip_test,
    )
    from suffice.evaluation.statistics.intervals import (
        DEFAULT_INTERVAL as DEFAULT_INTERVAL,
        INTERVALS as INTERVALS,
        Intervals as Intervals,
        paired_bootstrap as paired_bootstrap,
        paired_t as paired_t,
    )
    from suffice.evaluation.statistics.keyed import (
        KeyedWeights as KeyedWeights,
        Keys as Keys,
        keyed_bits as keyed_bits,
        keyed_numbers as keyed_numbers,
        keys_of as keys_of,
        poisson_weights as poisson_weights,
    )
    from suffice.evaluation.statistics.margins import MarginTest as MarginTest, both_margin_tests as both_margin_tests
    from suffice.evaluation.statistics.paired import (
        FEW_NONZERO as FEW_NONZERO,
        ONE_UNIT as ONE_UNIT,
        PairedResult as PairedResult,
        paired_results as paired_results,
        undefined_notes as undefined_notes,
    )
    from suffice.evaluation.statistics.pvalues import (
        betting_p_value as betting_p_value,
        hoeffding_bentkus_p_value as hoeffding_bentkus_p_value,
        net_p_value as net_p_value,
    )
    from suffice.evaluation.statistics.resampling import (
        Draws as Draws,
        Resampling as Resampling,
        holm_within as holm_within,
    )
    from suffice.evaluation.statistics.restarts import Alarm as Alarm, share as share
    from suffice.evaluation.statistics.sequences import (
        ConfidenceSequence as ConfidenceSequence,
        window_sequences as window_sequences,
    )
    from suffice.evaluation.statistics.units import (
        ROUNDING as ROUNDING,
        Clusters as Clusters,
        Units as Units,
        drawn_folds as drawn_folds,
        hash_folds as hash_folds,
        hash_order as hash_order,
        hash_places as hash_places,
    )

__getattr__, __dir__, __all__ = lazy_face(__name__)
