"""Diagnostics of signals: against scikit-learn, scipy and pandas, plain loops, laws, and bad input."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings, strategies as st
from sklearn.metrics import roc_auc_score

from suffice.errors import DataError
from suffice.evaluation.statistics import Coded, Resampling, area_under_roc, keys_of, poisson_weights
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from suffice.verdicts.diagnostics import (
    Rows,
    cohens_d,
    correlate,
    diagnose,
    draw_d,
    entropy,
    kolmogorov_smirnov,
    measure_drift,
)
from suffice.verdicts.diagnostics.rows import ends

NAN = math.nan


def rows(seed: int = 0, *, n: int = 40, width: int = 4, effect: float = 1.0) -> Rows:
    """Rounds of n questions, whose rounds depend on each other; one signal with ties, one with gaps."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(n), width)
    hard = rng.normal(size=n)[unit]
    right = (hard + 0.5 * rng.normal(size=n * width) > 0).astype(float)
    smooth = hard + effect * right + 0.3 * rng.normal(size=n * width)
    gaps = np.where(rng.random(n * width) < 0.3, NAN, smooth)
    columns = {"smooth": smooth, "ties": np.round(smooth), "gaps": gaps, "noise": rng.normal(size=n * width)}
    return Rows(columns=columns, right=right, unit=unit, n_units=n, rounds=np.tile(np.arange(1, width + 1), n))


def recording(columns: dict[str, np.ndarray], *, end: str = "max_rounds", **fixed) -> Recording:
    """A recording of arrays of shape (n_questions, n_rounds)."""
    n, width = next(iter(columns.values())).shape
    listed = [
        {
            "question_id": f"q{q}",
            "round": r + 1,
            "end": end,
            "answer": "a",
            "cost.generator.calls": 1.0,
            **{name: float(column[q, r]) for name, column in columns.items()},
            **fixed,
        }
        for q in range(n)
        for r in range(width)
    ]
    return Recording(build_table(listed, kinds=dict.fromkeys(set(columns) - {"em", "f1"}, "signal")))


def area(data: Rows, name: str, level: float = 0.95) -> tuple[float, float, float]:
    result = area_under_roc(data.coded[name], data.right, unit=data.unit, level=level)
    return result.value, result.low, result.high


@pytest.mark.parametrize("name", ["smooth", "ties", "gaps", "noise"])
def test_the_area_is_scikit_learns(name):
    data = rows()
    defined = ~np.isnan(data.columns[name])
    expected = roc_auc_score(data.right[defined], data.columns[name][defined])
    assert area(data, name)[0] == pytest.approx(expected, abs=1e-12)


def delong_variance(values: np.ndarray, right: np.ndarray, unit: np.ndarray) -> float:
    """Obuchowski's variance from its definition, pair by pair; with one row for each question it is DeLong's."""
    pos, neg = np.flatnonzero(right == 1), np.flatnonzero(right == 0)
    psi = lambda x, y: 1.0 if x > y else 0.5 if x == y else 0.0  # noqa: E731
    v10 = {i: np.mean([psi(values[i], values[j]) for j in neg]) for i in pos}
    v01 = {j: np.mean([psi(values[i], values[j]) for i in pos]) for j in neg}
    theta = np.mean(list(v10.values()))
    s10 = s01 = s11 = 0.0
    clusters = sorted(set(unit[np.concatenate([pos, neg])]))
    for u in clusters:
        a = sum(v10[i] - theta for i in pos if unit[i] == u)
        b = sum(v01[j] - theta for j in neg if unit[j] == u)
        s10, s01, s11 = s10 + a * a, s01 + b * b, s11 + a * b
    m, n, k = len(pos), len(neg), len(clusters)
    i10, i01 = len({unit[i] for i in pos}), len({unit[j] for j in neg})
    s10, s01, s11 = s10 * i10 / ((i10 - 1) * m), s01 * i01 / ((i01 - 1) * n), s11 * k / (k - 1)
    return s10 / m + s01 / n + 2 * s11 / (m * n)


@pytest.mark.parametrize("width", [1, 4])
def test_the_areas_interval_is_the_clustered_delong_interval_on_the_logit_scale(width):
    data = rows(3, n=24, width=width, effect=0.0)
    got, low, high = area(data, "ties", level=0.9)
    spread = math.sqrt(delong_variance(data.columns["ties"], data.right, data.unit)) / (got * (1 - got))
    reach = scipy.stats.norm.ppf(0.95) * spread
    logit = scipy.special.logit(got)
    assert (low, high) == pytest.approx(tuple(scipy.special.expit([logit - reach, logit + reach])), abs=1e-12)


def test_the_areas_interval_covers_dependent_rounds_where_independent_rows_fail():
    """600 sets of 60 questions with five equal rounds: about 95 % with questions as units, far fewer with rows."""
    rng = np.random.default_rng(0)
    truth, n, width = scipy.stats.norm.cdf(1 / math.sqrt(2)), 60, 5
    hits = {"questions": 0, "rows": 0}
    for _ in range(600):
        right = np.repeat(rng.random(n) < 0.4, width).astype(float)
        values = np.repeat(rng.normal(size=n), width) + right
        unit = np.repeat(np.arange(n), width)
        for kind, units in (("questions", unit), ("rows", None)):
            interval = area_under_roc(values, right, unit=units)
            hits[kind] += interval.low <= truth <= interval.high
    assert 0.92 <= hits["questions"] / 600 <= 0.98
    assert hits["rows"] / 600 < 0.75


def test_the_interval_agrees_with_a_bootstrap_over_questions():
    data = rows(5, n=150)
    got, low, high = area(data, "smooth")
    rng = np.random.default_rng(1)
    drawn = []
    for _ in range(150):
        take = np.concatenate([np.flatnonzero(data.unit == u) for u in rng.integers(0, data.n_units, data.n_units)])
        drawn.append(roc_auc_score(data.right[take], data.columns["smooth"][take]))
    assert (high - low) / (4 * 0.98 * np.std(drawn)) == pytest.approx(1, abs=0.15)
    assert low < got < high


def hand_d(one: np.ndarray, zero: np.ndarray) -> float:
    one, zero = one[~np.isnan(one)], zero[~np.isnan(zero)]
    pooled = ((len(one) - 1) * one.var(ddof=1) + (len(zero) - 1) * zero.var(ddof=1)) / (len(one) + len(zero) - 2)
    return (one.mean() - zero.mean()) / math.sqrt(pooled)


def test_cohens_d_is_the_difference_over_the_pooled_deviation():
    data = rows(2)
    names = list(data.columns)
    expected = [hand_d(data.columns[n][data.right == 1], data.columns[n][data.right == 0]) for n in names]
    assert cohens_d(data, names).tolist() == pytest.approx(expected, abs=1e-12)


def test_draws_of_d_are_d_of_the_drawn_questions():
    data = rows(2, n=12)
    names = ["smooth", "gaps"]
    drawn = draw_d(data, names, Resampling(n_resamples=30, seed=7))
    counts = poisson_weights(keys_of(map(str, range(12))), 30, seed=7).astype(int)
    for row, questions in zip(drawn, [np.repeat(np.arange(12), count) for count in counts], strict=True):
        take = np.concatenate([np.flatnonzero(data.unit == u) for u in questions])
        right = data.right[take]
        for got, name in zip(row, names, strict=True):
            column = data.columns[name][take]
            assert got == pytest.approx(hand_d(column[right == 1], column[right == 0]), abs=1e-9)


def test_ends_are_percentiles_of_enough_defined_draws():
    draws = np.random.default_rng(0).normal(size=(200, 3))
    draws[:5, 1] = NAN
    draws[:20, 2] = NAN
    low, high = ends(draws, 0.9)
    assert [low[0], high[0]] == pytest.approx(np.quantile(draws[:, 0], [0.05, 0.95]).tolist())
    assert [low[1], high[1]] == pytest.approx(np.nanquantile(draws[:, 1], [0.05, 0.95]).tolist())
    assert math.isnan(low[2])
    assert math.isnan(high[2])


@given(st.integers(0, 10**6), st.sampled_from(["increasing", "decreasing"]))
@settings(max_examples=25, deadline=None)
def test_the_area_reads_ranks_alone_and_turns_round_with_the_signal(seed, kind):
    data = rows(seed, n=8)
    got, low, high = area(data, "ties")
    turned = np.exp(data.columns["ties"]) * (1 if kind == "increasing" else -1)
    other = Rows(columns={"ties": turned}, right=data.right, unit=data.unit, n_units=data.n_units, rounds=data.rounds)
    again = area(other, "ties")
    expected = (got, low, high) if kind == "increasing" else (1 - got, 1 - high, 1 - low)
    assert again == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_entropy_is_scipys_over_values_and_over_ten_bins():
    every = np.ones(100, dtype=bool)
    few = np.repeat([1.0, 3.0, 5.0], [10, 20, 70])
    assert entropy(Coded.of(few), every) == pytest.approx(scipy.stats.entropy([10, 20, 70]), abs=1e-12)
    many = np.random.default_rng(0).normal(size=100)
    counts, _ = np.histogram(many, bins=10)
    assert entropy(Coded.of(many), every) == pytest.approx(scipy.stats.entropy(counts), abs=1e-12)


def test_the_papers_collapsed_confidence_has_an_entropy_that_its_share_allows():
    """96.5 % of rounds at 5 and .182 nats (TASR section 6.5): between the rest on one value and on four."""
    width = {}
    for others in (1, 4):
        counts = np.append(np.full(others, 140 // others), 3860)
        values = np.repeat(np.arange(1.0, len(counts) + 1), counts)
        data = recording({"verbal_confidence": values.reshape(-1, 5), "em": np.zeros((800, 5))})
        found = diagnose(data).parts["signals"].signal("verbal_confidence")
        assert found.collapse == pytest.approx(0.965)
        width[others] = found.entropy
    assert width[1] < 0.182 < width[4]


def test_correlations_are_spearmans_over_the_rounds_that_have_both():
    data = rows(4)
    found = correlate(data)
    frame = pd.DataFrame(data.columns)
    assert np.array(found.rho) == pytest.approx(frame.corr(method="spearman").to_numpy(), abs=1e-12)
    assert found.n[found.names.index("gaps")][0] == int(frame["gaps"].notna().sum())


def test_the_distance_of_distributions_is_kolmogorov_smirnovs():
    first, second = rows(0), rows(1, n=25)
    for name in first.columns:
        x, y = first.columns[name], second.columns[name]
        expected = scipy.stats.ks_2samp(x[~np.isnan(x)], y[~np.isnan(y)]).statistic
        assert kolmogorov_smirnov(first.coded[name], second.coded[name]) == pytest.approx(expected, abs=1e-12)


def test_drift_is_eval_minus_tune_with_an_interval_of_independent_sets():
    tune, evaluation = rows(0, effect=0.0), rows(1, n=80, effect=2.0)
    resampling = Resampling(n_resamples=400, seed=1)
    draws = draw_d(evaluation, list(evaluation.columns), resampling)
    found = {item.name: item for item in measure_drift(tune, evaluation, draws, resampling=resampling).signals}
    smooth = found["smooth"]
    assert smooth.delta == pytest.approx(smooth.d_eval - smooth.d_tune)
    assert smooth.delta_low < smooth.delta < smooth.delta_high
    widths = [high - low for low, high in (
        (smooth.d_tune_low, smooth.d_tune_high), (smooth.d_eval_low, smooth.d_eval_high),
        (smooth.delta_low, smooth.delta_high),
    )]  # fmt: skip
    assert widths[2] == pytest.approx(math.hypot(widths[0], widths[1]), rel=0.2)


def test_a_set_drawn_from_itself_rarely_drifts():
    """60 pairs of sets from one population: the interval of the drift holds 0 in most."""
    held = 0
    for seed in range(60):
        tune, evaluation = rows(seed), rows(1000 + seed)
        resampling = Resampling(n_resamples=300, seed=seed)
        draws = draw_d(evaluation, list(evaluation.columns), resampling)
        item = measure_drift(tune, evaluation, draws, resampling=resampling).signals[0]
        held += item.delta_low <= 0 <= item.delta_high
    assert held >= 51


def test_figures_by_round_are_those_of_the_round_alone():
    em = (np.random.default_rng(0).random((30, 3)) < 0.5).astype(float)
    margin = np.abs(np.random.default_rng(1).normal(size=(30, 3))) + em
    found = diagnose(recording({"answer_margin": margin, "em": em}), resampling=Resampling(n_resamples=50)).parts[
        "signals"
    ]
    for r in (1, 2, 3):
        alone = found.by_round[r][0]
        assert alone.auroc == pytest.approx(roc_auc_score(em[:, r - 1], margin[:, r - 1]))
        assert alone.n == 30
        assert alone.separation == pytest.approx(
            margin[em[:, r - 1] == 1, r - 1].mean() - margin[em[:, r - 1] == 0, r - 1].mean()
        )
    assert len(found.tables()) == 2


def test_repeated_rows_of_a_question_are_one_unit():
    data = recording({"answer_margin": np.random.default_rng(0).random((10, 2)), "em": np.ones((10, 2))})
    table = data.table.append_column(
        "cluster", [[f"c{int(q[1:]) // 2}" for q in data.table["question_id"].to_pylist()]]
    )
    assert Rows.of(Recording(table)).n_units == 5


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 1.0, NAN])
def test_without_both_classes_separation_is_undefined_and_a_note_says_so(value):
    data = recording({"answer_margin": np.arange(8.0).reshape(4, 2), "em": np.full((4, 2), value)})
    found = diagnose(data)
    item = found.parts["signals"].signal("answer_margin")
    assert all(math.isnan(x) for x in (item.auroc, item.d, item.separation, item.auroc_low))
    said = " ".join(found.parts["signals"].notes)
    assert {0.0: "all rounds are wrong", 1.0: "all rounds are right"}.get(value, "no round has the metric 'em'") in said
    json.dumps(found.to_dict(), allow_nan=False)


def test_constant_and_empty_signals_have_no_d_and_are_named():
    em = np.array([[0.0, 1.0], [1.0, 0.0]])
    data = recording({"em": em, "score_gap": np.full((2, 2), 0.1), "overlap": np.full((2, 2), NAN)})
    signals = diagnose(data).parts["signals"]
    constant, empty = signals.signal("score_gap"), signals.signal("overlap")
    assert (constant.auroc, constant.collapse, constant.entropy, constant.n_values) == (0.5, 1.0, 0.0, 1)
    assert math.isnan(constant.d)
    assert math.isnan(constant.auroc_low)
    assert empty.undefined == 1
    assert math.isnan(empty.entropy)
    said = " ".join(signals.notes)
    assert "defined in no round: overlap" in said
    assert "constant, so it decides nothing: score_gap" in said
    assert [row[0] for row in signals.table().rows] == ["score_gap"]


def test_a_signal_constant_within_the_classes_has_no_d():
    em = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    item = diagnose(recording({"em": em, "score_gap": em / 3})).parts["signals"].signal("score_gap")
    assert math.isnan(item.d)
    assert item.auroc == 1
    assert math.isnan(item.auroc_low)


def test_one_question_is_described_without_intervals():
    data = recording({"em": np.array([[0.0, 1.0, 1.0]]), "answer_margin": np.array([[0.1, 2.0, 0.05]])})
    found = diagnose(data, policy="answer_margin > 1")
    item = found.parts["signals"].signal("answer_margin")
    assert item.auroc == 0.5
    assert math.isnan(item.auroc_low)
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_metric_between_0_and_1_is_refused_with_the_way_out():
    data = recording({"em": np.zeros((2, 2)), "f1": np.full((2, 2), 0.5), "answer_margin": np.ones((2, 2))})
    with pytest.raises(DataError, match=r"'f1 > 0.5'"):
        diagnose(data, metric="f1")
    assert diagnose(data, metric="f1 > 0.4").parts["signals"].signal("answer_margin").n_right == 4


def test_a_missing_metric_leaves_what_needs_no_labels():
    data = recording({"answer_margin": np.arange(6.0).reshape(3, 2)})
    found = diagnose(data)
    assert "no metric 'em'" in " ".join(found.notes)
    assert found.parts["signals"].signal("answer_margin").n_values == 6
    assert "calibration" not in found.parts
