"""Calibrators: laws, and scikit-learn's numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.calibration import calibration_curve
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss

from suffice import Calibrator
from suffice.common.results import jsonable
from suffice.errors import DataError, NotFittedError, SchemaError
from suffice.policy.calibration import calibration_report

margins = st.floats(0, 30, allow_nan=False).map(lambda value: round(value, 3))
rows = st.lists(st.tuples(margins, st.booleans()), min_size=1, max_size=60)
methods = st.sampled_from(["isotonic", "platt"])
GRID = np.linspace(-5, 40, 91)[:, None]


def fit(data, method="isotonic", **options):
    x, y = np.array(data, dtype=float).T
    return Calibrator(method=method, **options).fit(x[:, None], y[:, None], index=[1])


@settings(max_examples=60, deadline=None)
@given(rows, methods)
def test_a_calibrator_is_monotone_and_a_probability(data, method):
    predicted = fit(data, method).predict(GRID, index=[1])[:, 0]
    assert (np.diff(predicted) >= -1e-12).all()
    assert predicted.min() >= 0
    assert predicted.max() <= 1


@settings(max_examples=40, deadline=None)
@given(rows, methods, st.randoms())
def test_the_order_of_rows_does_not_matter(data, method, random):
    shuffled = list(data)
    random.shuffle(shuffled)
    np.testing.assert_allclose(
        fit(data, method).predict(GRID, index=[1]), fit(shuffled, method).predict(GRID, index=[1]), atol=1e-5
    )


@settings(max_examples=40, deadline=None)
@given(rows, methods)
def test_weight_2_equals_the_row_given_twice(data, method):
    x, y = np.array(data, dtype=float).T
    weights = np.where(np.arange(len(x)) % 2 == 0, 2.0, 1.0)
    repeats = weights.astype(int)
    weighted = Calibrator(method=method).fit(x[:, None], y[:, None], index=[1], weights=weights[:, None])
    twice = Calibrator(method=method).fit(np.repeat(x, repeats)[:, None], np.repeat(y, repeats)[:, None], index=[1])
    np.testing.assert_allclose(weighted.predict(GRID, index=[1]), twice.predict(GRID, index=[1]), atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(rows)
def test_isotonic_equals_scikit_learn(data):
    x, y = np.array(data, dtype=float).T
    reference = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(x, y)
    np.testing.assert_allclose(fit(data).predict(GRID, index=[1])[:, 0], reference.predict(GRID[:, 0]), atol=1e-9)


def test_platt_equals_scikit_learn_on_the_raw_scale():
    rng = np.random.default_rng(0)
    x = rng.gamma(2.0, 2.0, size=400)
    y = rng.random(400) < 1 / (1 + np.exp(2 - x))
    reference = LogisticRegression(C=1e10, max_iter=5000, tol=1e-10).fit(x[:, None], y).predict_proba(GRID)[:, 1]
    ours = Calibrator(method="platt").fit(x[:, None], y[:, None], index=[1]).predict(GRID, index=[1])[:, 0]
    np.testing.assert_allclose(ours, reference, atol=2e-3)


def test_each_round_has_its_own_map_and_global_has_one():
    x, y = np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([[0, 1], [1, 1]])
    per_round = Calibrator().fit(x, y, index=[1, 2])
    assert per_round.predict([1.0, 1.0], index=[1, 2]).tolist() == [0.0, 1.0]
    pooled = Calibrator(per_round=False).fit(x, y, index=[1, 2])
    assert pooled.predict([1.0, 1.0, 1.0], index=[1, 2, 9]).tolist() == [0.5, 0.5, 0.5]


def test_a_degenerate_round_falls_back_to_its_mean():
    fitted = Calibrator().fit([[5.0], [5.0], [5.0], [5.0]], [[1], [0], [1], [1]], index=[4])
    assert fitted.predict([0.0, 5.0, 9.0], index=[4, 4, 4]).tolist() == [0.75] * 3
    one_class = Calibrator(method="platt").fit([[1.0], [2.0]], [[1], [1]], index=[1])
    assert one_class.predict([0.5], index=[1]).tolist() == [1.0]
    falling = Calibrator(method="platt").fit([[1.0], [2.0], [3.0]], [[1], [1], [0]], index=[1])
    assert falling.predict([0.5, 9.0], index=[1, 1]).tolist() == pytest.approx([2 / 3, 2 / 3])


def test_equal_values_are_degenerate_whatever_rounding_makes_of_their_mean():
    fitted = Calibrator(method="platt").fit(np.full((6, 1), 0.1), [[1], [0], [1], [1], [0], [1]], index=[1])
    assert fitted.predict([0.0, 0.1, 9.0], index=[1, 1, 1]).tolist() == pytest.approx([2 / 3] * 3)


def test_a_round_without_any_value_falls_back_to_its_mean_too():
    fitted = Calibrator().fit([[np.nan, 1.0], [np.nan, 2.0]], [[1, 0], [0, 1]], index=[1, 2])
    assert fitted.predict([3.0], index=[1]).tolist() == [0.5]
    assert fitted.rounds_fitted == {1: 0, 2: 2}


def test_values_out_of_the_fitted_range_are_clipped_and_undefined_stays_undefined():
    fitted = fit([(1.0, False), (2.0, True)])
    assert fitted.predict([[-9.0], [99.0], [np.nan]], index=[1])[:2, 0].tolist() == [0.0, 1.0]
    assert np.isnan(fitted.predict([np.nan], index=[1])).all()
    assert np.isnan(fit([(1.0, False), (2.0, True)], "platt").predict([np.nan], index=[1])).all()
    assert np.isnan(fit([(1.0, True)]).predict([np.nan], index=[1])).all()


def test_an_unseen_round_is_an_error_unless_told():
    fitted = fit([(1.0, False), (2.0, True)])
    with pytest.raises(NotFittedError, match="round 7"):
        fitted.predict([1.0], index=[7])
    assert np.isnan(fitted.predict([np.nan], index=[7])).all()
    told = fit([(1.0, False), (2.0, True)], unseen_round="nearest")
    assert told.predict([2.0], index=[7]).tolist() == [1.0]


def test_bad_input_is_refused():
    with pytest.raises(NotFittedError):
        Calibrator().predict([1.0], index=[1])
    with pytest.raises(NotFittedError):
        Calibrator().to_dict()
    with pytest.raises(DataError, match=r"\[0, 1\]"):
        Calibrator().fit([[1.0]], [[3.0]], index=[1])
    with pytest.raises(DataError, match="suffice doctor"):
        Calibrator().fit([[np.nan]], [[1.0]], index=[1])
    with pytest.raises(DataError, match="gold"):
        Calibrator().fit([[1.0]], [[np.nan]], index=[1])
    with pytest.raises(DataError, match="one shape"):
        Calibrator().fit([[1.0]], [[1.0, 0.0]], index=[1])
    with pytest.raises(SchemaError, match="fields"):
        Calibrator.from_dict({"output": "p_correct"})


@settings(max_examples=30, deadline=None)
@given(rows, methods)
def test_json_reads_back_to_the_same_numbers(data, method):
    fitted = fit(data, method)
    again = Calibrator.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again == fitted
    np.testing.assert_array_equal(again.predict(GRID, index=[1]), fitted.predict(GRID, index=[1]))


def test_fractional_targets_count_in_proportion():
    fitted = Calibrator(method="platt").fit([[0.0], [0.0], [4.0]], [[0.5], [0.5], [1.0]], index=[1])
    assert fitted.predict([0.0], index=[1])[0] == pytest.approx(0.5, abs=0.01)


def test_brier_and_reliability_equal_scikit_learn():
    rng = np.random.default_rng(3)
    p = rng.random(500)
    y = (rng.random(500) < p**2).astype(float)
    report = calibration_report(p, y)
    assert jsonable(calibration_report([0.95], [1.0]))["bins"][0]["predicted"] is None
    assert report.brier == pytest.approx(brier_score_loss(y, p), abs=1e-12)
    observed, predicted = calibration_curve(y, p, n_bins=10)
    np.testing.assert_allclose([b.observed for b in report.bins], observed)
    np.testing.assert_allclose([b.predicted for b in report.bins], predicted)
    shares = np.array([b.n for b in report.bins]) / 500
    assert report.ece == pytest.approx(float((shares * np.abs(observed - predicted)).sum()))
    assert json.dumps(jsonable(report), allow_nan=False)


def test_a_report_leaves_undefined_rows_out_and_refuses_nonsense():
    assert calibration_report([0.5, np.nan], [1, 1]).n == 1
    for p, y in (([np.nan], [1.0]), ([1.5], [1.0]), ([0.5], [2.0])):
        with pytest.raises(DataError):
            calibration_report(p, y)


@pytest.mark.parametrize("n", [50, 300])
def test_the_error_of_a_calibrated_signal_is_known_beforehand(n):
    rng = np.random.default_rng(n)
    reports = []
    for _ in range(200):
        p = rng.beta(2, 1.2, n)
        reports.append(calibration_report(p, (rng.random(n) < p).astype(float)))
    measured, said = (np.mean([getattr(one, name) for one in reports]) for name in ("ece", "ece_if_calibrated"))
    assert said == pytest.approx(measured, rel=0.1)
    assert measured > 0.05  # although nothing is wrong
