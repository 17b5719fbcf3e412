"""Statistics of paired differences: the question is the unit, and every rule shares the same draws."""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.evaluation.statistics.auroc import Area, Coded, area_under_roc, areas_by_draw
    from suffice.evaluation.statistics.corrections import MaxStatistic, benjamini_hochberg, holm, max_statistic
    from suffice.evaluation.statistics.drawn_sums import DrawnSums, check_streamed, error_of_sums, p_of_largest
    from suffice.evaluation.statistics.folds import drawn_folds, hash_folds, hash_order, hash_places
    from suffice.evaluation.statistics.hypotheses import (
        SignFlip,
        cohens_d_z,
        paired_t_test,
        permutation_tests,
        sign_flip_test,
        wilcoxon_test,
    )
    from suffice.evaluation.statistics.intervals import (
        DEFAULT_INTERVAL,
        INTERVALS,
        Intervals,
        paired_bootstrap,
        paired_t,
    )
    from suffice.evaluation.statistics.keyed import (
        KeyedWeights,
        Keys,
        keyed_bits,
        keyed_numbers,
        keys_of,
        poisson_weights,
    )
    from suffice.evaluation.statistics.margins import MarginTest, equivalence, non_inferiority
    from suffice.evaluation.statistics.paired import (
        FEW_NONZERO,
        ONE_UNIT,
        PairedResult,
        paired_results,
        undefined_notes,
    )
    from suffice.evaluation.statistics.pvalues import betting_p_value, hoeffding_bentkus_p_value, net_p_value
    from suffice.evaluation.statistics.resampling import Draws, Resampling, holm_within
    from suffice.evaluation.statistics.restarts import Alarm
    from suffice.evaluation.statistics.rounding import ROUNDING
    from suffice.evaluation.statistics.sequences import ConfidenceSequence, window_sequences
    from suffice.evaluation.statistics.shares import share
    from suffice.evaluation.statistics.units import Clusters, Units

__all__ = [
    "DEFAULT_INTERVAL",
    "FEW_NONZERO",
    "INTERVALS",
    "ONE_UNIT",
    "ROUNDING",
    "Alarm",
    "Area",
    "Clusters",
    "Coded",
    "ConfidenceSequence",
    "DrawnSums",
    "Draws",
    "Intervals",
    "KeyedWeights",
    "Keys",
    "MarginTest",
    "MaxStatistic",
    "PairedResult",
    "Resampling",
    "SignFlip",
    "Units",
    "area_under_roc",
    "areas_by_draw",
    "benjamini_hochberg",
    "betting_p_value",
    "check_streamed",
    "cohens_d_z",
    "drawn_folds",
    "equivalence",
    "error_of_sums",
    "hash_folds",
    "hash_order",
    "hash_places",
    "hoeffding_bentkus_p_value",
    "holm",
    "holm_within",
    "keyed_bits",
    "keyed_numbers",
    "keys_of",
    "max_statistic",
    "net_p_value",
    "non_inferiority",
    "p_of_largest",
    "paired_bootstrap",
    "paired_results",
    "paired_t",
    "paired_t_test",
    "permutation_tests",
    "poisson_weights",
    "share",
    "sign_flip_test",
    "undefined_notes",
    "wilcoxon_test",
    "window_sequences",
]

__getattr__, __dir__ = lazy_face(
    __name__,
    {
        "auroc": ("Area", "Coded", "area_under_roc", "areas_by_draw"),
        "corrections": ("MaxStatistic", "benjamini_hochberg", "holm", "max_statistic"),
        "drawn_sums": ("DrawnSums", "check_streamed", "error_of_sums", "p_of_largest"),
        "folds": ("drawn_folds", "hash_folds", "hash_order", "hash_places"),
        "hypotheses": (
            "SignFlip",
            "cohens_d_z",
            "paired_t_test",
            "permutation_tests",
            "sign_flip_test",
            "wilcoxon_test",
        ),
        "intervals": ("DEFAULT_INTERVAL", "INTERVALS", "Intervals", "paired_bootstrap", "paired_t"),
        "keyed": ("KeyedWeights", "Keys", "keyed_bits", "keyed_numbers", "keys_of", "poisson_weights"),
        "margins": ("MarginTest", "equivalence", "non_inferiority"),
        "paired": ("FEW_NONZERO", "ONE_UNIT", "PairedResult", "paired_results", "undefined_notes"),
        "pvalues": ("betting_p_value", "hoeffding_bentkus_p_value", "net_p_value"),
        "resampling": ("Draws", "Resampling", "holm_within"),
        "restarts": ("Alarm",),
        "rounding": ("ROUNDING",),
        "sequences": ("ConfidenceSequence", "window_sequences"),
        "shares": ("share",),
        "units": ("Clusters", "Units"),
    },
)
