"""The comparison of procedures that share the risk among candidates."""

import numpy as np
import pytest
from benchmarks.procedures import ALPHA, PAGE, PROCEDURES, blocked, measured, of_recording


def test_only_a_fixed_sequence_is_blocked_by_a_losing_neighbour():
    found = measured(*blocked(), runs=5, most=400)
    assert {name for name, (until, _) in found.items() if np.isinf(until)} == {"fixed sequence"}


@pytest.mark.parametrize("name", PROCEDURES)
def test_a_procedure_rarely_proves_a_bad_candidate(name):
    """Three independent bad candidates whose evidence is as large as it may be: 1 / U for a uniform U."""
    rng = np.random.default_rng(1)
    evidence = -np.log(rng.random((4000, 3)))
    false = np.mean([PROCEDURES[name](row, row).any() for row in evidence])
    # A uniform p-value is a worse case for e-values, whose mean would be infinite: only those of p-values are tested here.
    assert name == "e-Holm" or false <= ALPHA + 0.012


def test_the_losses_are_those_of_the_tested_candidates():
    wealth, losses, saves = of_recording("self_refine_dv3", "target_sentiment", 0.03)
    assert len(losses) == len(saves) == len(wealth.shares) > 1
    assert wealth.n == 0
    assert (np.diff(saves) > 0).all()  # from cautious to cheap
    assert PAGE.is_file()
