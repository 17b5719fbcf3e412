"""The comparison of a judge's marks with labels."""

import itertools

import numpy as np
import pytest
from benchmarks.judged_labels import CASES, PAGE, by_labels, by_marks, corrected, questions


@pytest.mark.parametrize("right", [0.6, 0.9, 1.0])
@pytest.mark.parametrize("labelled", [(1.0, 1.0, 1.0), (0.2, 0.7, 0.05)])
def test_the_mean_is_that_of_the_labels(right, labelled):
    for changes in CASES:
        values, chances, share = corrected(changes, right, dict(zip((-1, 0, 1), labelled, strict=True)))
        assert chances.sum() == pytest.approx(1)
        assert values @ chances == pytest.approx(changes.lost - changes.gained)
        assert share <= changes.lost + changes.gained + changes.equal + 1e-12


def test_labels_of_all_changes_need_the_known_number():
    n, labels = by_labels(CASES[0])
    assert n == pytest.approx(np.log(20) / np.log1p(0.02 * 0.99 / 0.98), rel=1e-3)  # nothing is lost, largest stake
    assert labels == pytest.approx(0.1 * n)


def test_the_best_constant_stake_is_found():
    values, chances = np.array([1.0, -1.0, 0.0]), np.array([0.03, 0.05, 0.92])
    growth = max(float(chances @ np.log1p(stake * (0.03 - values))) for stake in np.linspace(0.001, 1.02, 5000))
    assert questions(values, chances, 0.03) == pytest.approx(np.log(20) / growth, rel=1e-4)


def test_marks_that_never_err_save_labels_and_coins_do_not():
    _, labels = by_labels(CASES[4])
    assert by_marks(CASES[4], 0.99)[1] < 0.6 * labels
    assert by_marks(CASES[4], 0.5)[1] >= 0.97 * labels


def test_the_page_has_every_population():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for changes, right in itertools.product(CASES, ("with marks, 90 % right",)):
        assert any(right in line for line in lines)
        assert any(line.startswith(f"| {100 * changes.lost:g} | {100 * changes.gained:g} | ") for line in lines)
