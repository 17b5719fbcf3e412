"""Logistic regression against scikit-learn's, which the package itself does without."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from suffice.policy.calibration.logistic import _log_sums, fit_logistic


def planted(n: int, width: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, width))
    raw = rows @ rng.normal(size=(width, classes)) + rng.gumbel(size=(n, classes))
    return rows, raw.argmax(axis=1), rng.random(n) + 0.1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("strength", [0.01, 1.0, 1e4])
@pytest.mark.parametrize("kind", [{"weighted": True}, {"balanced": True}, {"weighted": True, "intercept": False}])
def test_a_fit_is_that_of_scikit_learn(seed, classes, strength, kind):
    intercept, balanced = kind.get("intercept", True), kind.get("balanced", False)
    rows, labels, shares = planted(80, 1 if seed == 0 else 5, classes, seed)
    given = shares if "weighted" in kind else None
    theirs = LogisticRegression(
        C=strength, max_iter=2000, fit_intercept=intercept, class_weight="balanced" if balanced else None
    ).fit(rows, labels, sample_weight=given)
    ours = fit_logistic(rows, labels, strength=strength, shares=given, balanced=balanced, intercept=intercept)
    assert ours.classes.tolist() == theirs.classes_.tolist()
    assert ours.weights == pytest.approx(theirs.coef_, rel=1e-6, abs=1e-9)
    assert ours.intercepts == pytest.approx(
        np.broadcast_to(theirs.intercept_, ours.intercepts.shape), rel=1e-6, abs=1e-9
    )


def test_classes_keep_their_names_and_many_columns_are_fitted_too():
    rows, labels, _ = planted(60, 300, 2, 5)
    names = np.array(["known", "unknown"])[labels]
    theirs = LogisticRegression(C=0.1, max_iter=2000).fit(rows, names)
    ours = fit_logistic(rows, names, strength=0.1)
    assert ours.classes.tolist() == ["known", "unknown"]
    assert ours.weights == pytest.approx(theirs.coef_, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("scale", [0.0, 1.0, 50.0, 1e5])
def test_sums_of_exponentials_are_those_of_scipy(scale):
    logits = scale * np.random.default_rng(7).normal(size=(200, 4)).round(1)
    assert _log_sums(logits) == pytest.approx(logsumexp(logits, axis=1, keepdims=True), rel=1e-14)
