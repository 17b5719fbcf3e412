"""Statistics of paired differences: the question is the unit, and every rule shares the same draws."""

from suffice.statistics.bootstrap import (
    FEW_NONZERO,
    Clusters,
    Intervals,
    PairedResult,
    Units,
    bootstrap_weights,
    paired_bootstrap,
    paired_results,
    sign_flip_test,
)
from suffice.statistics.margins import MarginTest, equivalence, non_inferiority

__all__ = [
    "FEW_NONZERO",
    "Clusters",
    "Intervals",
    "MarginTest",
    "PairedResult",
    "Units",
    "bootstrap_weights",
    "equivalence",
    "non_inferiority",
    "paired_bootstrap",
    "paired_results",
    "sign_flip_test",
]
