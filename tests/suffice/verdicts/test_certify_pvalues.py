"""p-values of a bounded expected loss: exact validity, golden values, plain loops; and how often certificates are false."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks import violations
from hypothesis import given, settings, strategies as st
from mapie.risk_control.fwer_control import control_fwer
from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value

from suffice.errors import DataError
from suffice.evaluation.statistics.pvalues import betting_p_value, hoeffding_bentkus_p_value, net_p_value
from suffice.verdicts.certificates import Claim, rejected
from suffice.verdicts.certificates.ltt import PROCEDURES, level_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "violations.md"


def exact(values, chances, n):
    """Every sequence of n draws, shape (n_sequences, n), and its probability."""
    sequences = np.array(list(itertools.product(range(len(values)), repeat=n)))
    return np.array(values)[sequences], np.prod(np.array(chances)[sequences], axis=1)


def assert_valid(p, probability):
    """P(p <= u) <= u for every u that p attains, to the last sequence."""
    order = np.argsort(p)
    reached = np.cumsum(probability[order])
    last_of_equal = np.append(np.diff(p[order]) > 0, True)
    assert (reached[last_of_equal] <= p[order][last_of_equal] + 1e-12).all()


# Hoeffding-Bentkus


@pytest.mark.parametrize("binary", [False, True])
def test_hoeffding_bentkus_equals_mapie(binary):
    rng = np.random.default_rng(0)
    for n in (1, 7, 60, 500):
        means = np.concatenate([rng.random(50), rng.random(50) * 0.1])
        epsilons = np.array([0.02, 0.1, 0.5])
        theirs = compute_hoeffding_bentkus_p_value(means, n, epsilons, binary)
        ours = hoeffding_bentkus_p_value(means[:, None], n, epsilons, binary=binary)
        np.testing.assert_allclose(ours, np.minimum(theirs, 1.0), rtol=1e-9)


@pytest.mark.parametrize("epsilon", [0.02, 0.3])
@pytest.mark.parametrize("binary", [False, True])
def test_hoeffding_bentkus_is_valid_for_bernoulli_losses_exactly(epsilon, binary):
    n = 40
    counts = np.arange(n + 1)
    probability = np.array([math.comb(n, k) * epsilon**k * (1 - epsilon) ** (n - k) for k in counts])
    assert_valid(hoeffding_bentkus_p_value(counts / n, n, epsilon, binary=binary), probability)


def test_the_binomial_tail_needs_a_factor_e_for_graded_losses():
    means, n = np.array([0.01, 0.049]), 60
    plain, binary = (hoeffding_bentkus_p_value(means, n, 0.05, binary=kind) for kind in (False, True))
    assert (plain >= binary).all()
    assert plain[1] > binary[1]


def test_a_rounded_sum_of_losses_counts_as_the_whole_number():
    losses = np.full(30, 0.1)
    p = hoeffding_bentkus_p_value(losses.mean(), 30, 0.3)
    assert p == pytest.approx(hoeffding_bentkus_p_value(3 / 30, 30, 0.3))


# Betting


def by_loop(losses, epsilon, level):
    """The capital process, one bet at a time, from the definition."""
    n, capital, best = len(losses), 1.0, 1.0
    seen, squares = [], 0.0
    for loss in losses:
        variance = (0.25 + squares) / (len(seen) + 1)
        stake = min(math.sqrt(2 * math.log(1 / level) / (n * variance)), 0.99 / (1 - epsilon))
        capital *= 1 - stake * (loss - epsilon)
        best = max(best, capital)
        seen.append(loss)
        squares += (loss - (0.5 + sum(seen)) / (len(seen) + 1)) ** 2
    return 1 / best


@settings(max_examples=60, deadline=None)
@given(
    losses=st.lists(st.floats(0, 1), min_size=1, max_size=30), epsilon=st.floats(0.01, 0.9), level=st.floats(0.001, 0.5)
)
def test_betting_equals_a_plain_loop(losses, epsilon, level):
    p = betting_p_value(losses, epsilon, level=level)
    assert p == pytest.approx(by_loop(losses, epsilon, level), rel=1e-9)
    assert 0 < p <= 1


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("level", [0.05, 0.3])
def test_betting_is_valid_for_bernoulli_losses_exactly(epsilon, level):
    losses, probability = exact([0.0, 1.0], [1 - epsilon, epsilon], 12)
    assert_valid(betting_p_value(losses, epsilon, level=level), probability)


@pytest.mark.parametrize("gain", [0.0, 0.2, 0.4])
def test_betting_is_valid_for_gains_and_losses_exactly(gain):
    epsilon = 0.1
    losses, probability = exact([0.0, -1.0, 1.0], [1 - 2 * gain - epsilon, gain, gain + epsilon], 8)
    assert_valid(net_p_value(losses, epsilon), probability)


def test_a_bet_that_sees_its_loss_fails_the_validity_check():
    """The checks above tell a valid process from one that peeks: this one stakes by the present loss."""
    losses, probability = exact([0.0, 1.0], [0.7, 0.3], 10)
    stakes = np.where(losses < 0.3, 1.0, 0.0)
    capital = np.cumsum(np.log1p(-stakes * (losses - 0.3)), axis=1).max(axis=1)
    with pytest.raises(AssertionError):
        assert_valid(np.exp(-np.maximum(capital, 0)), probability)


@settings(max_examples=40, deadline=None)
@given(losses=st.lists(st.floats(-1, 1), min_size=2, max_size=20), epsilon=st.floats(0.01, 0.9), rows=st.integers(1, 3))
def test_p_values_of_many_populations_equal_those_of_each(losses, epsilon, rows):
    matrix = np.array([np.roll(losses, shift) for shift in range(rows)])
    together = net_p_value(matrix, epsilon)
    assert together.shape == (rows,)
    assert together.tolist() == [net_p_value(row, epsilon).item() for row in matrix]
    shifted = np.clip((matrix + 1) / 2, 0, 1)
    np.testing.assert_allclose(together, betting_p_value(shifted, (epsilon + 1) / 2))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: net_p_value([0.0, 1.5], 0.1), "lie in"),
        (lambda: betting_p_value([-0.1], 0.1), "lie in"),
        (lambda: betting_p_value([math.nan, 0.0], 0.1), "undefined"),
        (lambda: betting_p_value([], 0.1), "no losses"),
        (lambda: betting_p_value([0.1], 0.0), "epsilon"),
        (lambda: net_p_value([0.1], 1.0), "epsilon"),
        (lambda: betting_p_value([0.1], 0.1, level=1.0), "level"),
        (lambda: hoeffding_bentkus_p_value(1.2, 5, 0.1), "lie in"),
        (lambda: hoeffding_bentkus_p_value(0.2, 5, math.nan), "epsilon"),
    ],
)
def test_losses_and_bounds_outside_their_range_are_refused(call, said):
    with pytest.raises(DataError, match=said):
        call()


def test_a_policy_that_never_loses_needs_the_questions_that_the_documentation_says():
    sizes = range(140, 170)
    claims = {kind: Claim(epsilon=0.02, loss=kind) for kind in ("net", "harm")}
    claims["binary"] = Claim(epsilon=0.02, metric="em", loss="harm")
    first = {kind: next(n for n in sizes if c.p_values(np.zeros((1, n)), 0.05) <= 0.05) for kind, c in claims.items()}
    assert first == {"net": 159, "harm": 153, "binary": 149}
    page = (PAGE.parent.parent / "how-to" / "certify.md").read_text("utf-8")
    assert "needs 149 questions for `harm` of a metric of 0 and 1, 153 for `harm` of others and 159 for `net`" in page


# Several tests


@settings(max_examples=80, deadline=None)
@given(p=st.lists(st.floats(0, 0.1), min_size=1, max_size=12), delta=st.sampled_from([0.01, 0.05, 0.2]))
def test_both_procedures_equal_mapie(p, delta):
    for ours, theirs in zip(PROCEDURES, ("fixed_sequence", "bonferroni"), strict=True):
        assert np.flatnonzero(rejected(p, delta, ours)).tolist() == control_fwer(p, delta, theirs).tolist()


def test_an_unknown_procedure_is_refused():
    with pytest.raises(DataError, match="fixed-sequence, bonferroni"):
        level_of("holm", 3, 0.05)  # type: ignore[arg-type]


# Simulations: the fast version of docs/results/violations.md


def test_no_test_certifies_more_populations_at_epsilon_than_it_may():
    table = violations.violations(populations=600, sizes=(60, 300))
    assert [row for row in table.rows if row[-1] != "yes"] == []
    assert max(row[5] for row in table.rows) > 0.25  # where the t-test fails


def test_no_family_gets_a_false_certificate_more_often_than_it_may():
    table = violations.family_wise(populations=300, sizes=(100, 300))
    assert [row for row in table.rows if row[-1] != "yes"] == []
    assert all(row[4] > 0.1 for row in table.rows)  # and it does certify


def test_the_easy_cases_are_certified_four_times_in_five():
    rows = violations.power(populations=400).rows
    easy = {kind: next(row for row in rows if row[0] == kind) for kind in ("net", "harm", "harm, binary")}
    assert all(row[4] >= 0.8 for row in easy.values()), easy


def test_the_populations_have_the_loss_that_they_say():
    rng = np.random.default_rng(1)
    for kind, name, draw in violations.AT_EPSILON:
        for epsilon in violations.EPSILONS:
            losses = draw(rng, (400, 1000), epsilon)
            assert abs(losses.mean() - epsilon) < 5 * losses.std() / math.sqrt(losses.size), (kind, name)
            claim = violations.claim_of(kind, epsilon)
            assert losses.min() >= (-1 if claim.loss == "net" else 0)
            assert losses.max() <= 1


def test_the_committed_page_is_that_of_the_command(tmp_path):
    text = PAGE.read_text("utf-8")
    assert violations.COMMAND in text
    assert f"Seed {violations.SEED}, {violations.POPULATIONS:,} populations" in text
    assert "| NO |" not in text
    shown = re.findall(r"^\| net \| zero-inflated \| 0.02 \| (\d+) \| ([\d.]+) \|", text, re.MULTILINE)
    rng = np.random.default_rng(violations.SEED)
    losses = violations.zero_inflated(rng, (violations.POPULATIONS, 60), 0.02)
    claim = Claim(epsilon=0.02)
    assert shown[0] == ("60", f"{100 * (claim.p_values(losses, 0.05) <= 0.05).mean():.2f}")
    assert len(shown) == len(violations.SIZES)


def test_the_command_writes_the_page(tmp_path, monkeypatch):
    table = violations.power(20)
    for name in ("violations", "family_wise", "power"):
        monkeypatch.setattr(violations, name, lambda: table)
    assert violations.main(["--out", str(tmp_path / "page.md")]) == 0
    assert violations.COMMAND in (tmp_path / "page.md").read_text("utf-8")
