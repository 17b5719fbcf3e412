"""How often intervals hold the truth: a fast version of docs/results/coverage.md, and that page itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks.coverage import (
    DATASETS,
    DRAWS,
    NAMES,
    NULLS,
    POPULATIONS,
    SEED,
    SIZES,
    coverage,
    family_errors,
    lopsided,
    normal,
    rejections,
    sparse,
    tables,
)

from suffice.evaluation.statistics import DEFAULT_INTERVAL, Units

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "coverage.md"
FAST = {"datasets": 600, "draws": 400}


def error(share: float, n: int = 600) -> float:
    return (share * (1 - share) / n) ** 0.5


def cells(title: str) -> dict[tuple[str, int], dict[str, float]]:
    """Return a table of the page: its figures by population, size and column."""
    _, _, after = PAGE.read_text("utf-8").partition(f"**{title}**\n\n")
    head, _, *rows = [re.findall(r"[^|]+", line[1:-1]) for line in after.partition("\n\n")[0].strip().splitlines()]
    names = [name.strip() for name in head]
    return {(row[0].strip(), int(row[1])): dict(zip(names[2:], map(float, row[2:]), strict=True)) for row in rows}


@pytest.mark.parametrize("population", [*POPULATIONS, *NULLS], ids=lambda p: f"{p.name} {p.mean:+.3f}")
def test_a_population_has_the_mean_that_it_states(population):
    sample = population.draw(np.random.default_rng(0), 400, 200)
    means = sample.deltas.mean(axis=1)
    assert abs(means.mean() - population.mean) < 4 * means.std() / 20
    if sample.clusters is not None:
        assert set(Units.of(sample.deltas.shape[1], sample.clusters).sizes) == {1, 2, 3, 4, 5}


def test_normal_intervals_hold_the_mean_as_often_as_they_say():
    found, few = coverage(normal(0.02), 60, **FAST, rng=np.random.default_rng(SEED))
    for method in ("expanded", "t", "paired_t"):
        assert abs(found[method].covered - 0.95) < 0.01 + 3 * error(0.95), method
    assert found["expanded"].covered >= found["percentile"].covered
    assert few == 0


def test_clustered_intervals_cover_the_mean_and_unclustered_ones_do_not():
    population = POPULATIONS[3]
    found, _ = coverage(population, 100, **FAST, rng=np.random.default_rng(SEED))
    assert abs(found[DEFAULT_INTERVAL].covered - 0.95) < 0.01 + 3 * error(0.95)
    from benchmarks.coverage import Sample, intervals

    sample = population.draw(np.random.default_rng(SEED), 600, 100)
    blind = intervals("paired_t", Sample(sample.deltas), np.empty(0))
    assert np.mean((blind.low <= population.mean) & (blind.high >= population.mean)) < 0.85


def test_sparse_intervals_cover_from_100_questions_and_the_page_warns_below():
    found, _ = coverage(sparse(0.9), 100, **FAST, rng=np.random.default_rng(SEED))
    assert found[DEFAULT_INTERVAL].covered > 0.92 - 3 * error(0.92)
    found, few = coverage(sparse(0.97), 60, **FAST, rng=np.random.default_rng(SEED))
    assert found[DEFAULT_INTERVAL].covered < 0.75
    assert few > 0.99


def test_the_permutation_test_keeps_its_level_where_differences_are_symmetric():
    for population in (normal(0.0), sparse(0.9, 0.5)):
        found = rejections(population, 100, datasets=600, draws=200, rng=np.random.default_rng(SEED))
        assert found["permutation"] < 0.05 + 3 * error(0.05), population.name
    found = rejections(lopsided(0.9), 300, datasets=300, draws=200, rng=np.random.default_rng(SEED))
    assert found["Wilcoxon"] > 0.2  # not a test of the mean


def test_the_max_statistic_bounds_the_error_of_a_whole_family():
    found = family_errors(300, rules=40, datasets=300, draws=300, rng=np.random.default_rng(SEED))
    assert found["max-statistic"] < 0.05 + 3 * error(0.05, 300)
    assert found["uncorrected"] > 0.25


def test_the_default_interval_meets_its_limits_on_the_committed_page():
    found = cells("Intervals that hold the mean, %")
    assert set(found) == {(population.name, n) for population in POPULATIONS for n in SIZES}
    name = NAMES[DEFAULT_INTERVAL]
    for n in SIZES:
        assert 94 <= found["normal", n][name] <= 96
        assert n < 100 or found["90 % zeros", n][name] >= 92


def test_the_committed_page_is_what_its_command_writes():
    text = PAGE.read_text("utf-8")
    assert "python -m benchmarks.coverage -o docs/results/coverage.md" in text
    assert f"(seed {SEED}, {DATASETS:,} data sets for each population and\nsize, {DRAWS:,} draws" in text
    found, few = coverage(POPULATIONS[1], 60, rng=np.random.default_rng([SEED, 0, 1, 60]))
    row = cells("Intervals that hold the mean, %")[POPULATIONS[1].name, 60]
    expected = {NAMES[method]: 100 * made.covered for method, made in found.items()}
    assert row == pytest.approx({**expected, "fewer than 10 differ": 100 * few}, abs=0.51)
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, abs=0.11)  # other machines add in another order


def test_the_explanation_quotes_the_page():
    text = " ".join((PAGE.parent.parent / "explanation" / "statistics.md").read_text("utf-8").split())
    held = cells("Intervals that hold the mean, %")
    normal_60, sparse_100, bare = held["normal", 60], held["90 % zeros", 100], held["97 % zeros", 60]
    rejected = cells("True hypotheses rejected at 5 %, %")["90 % zeros, lopsided", 300]
    for quoted in (
        f"`percentile` contains the mean in {normal_60['percentile']} % and `expanded` in {normal_60['expanded']} %",
        f"`expanded` contains it in {sparse_100['expanded']} %, bootstrap-t in {sparse_100['bootstrap-t']} %",
        f"and BCa in {sparse_100['BCa']} %",
        f"({bare['expanded']} % for the default, {bare['paired t']} % for the paired t)",
        f"in {rejected['Wilcoxon']:.0f} % of data sets at n = 300",
        f"tolerates its absence as n grows ({rejected['permutation']} %)",
    ):
        assert quoted in text, quoted
    assert all(row["paired t"] >= row["expanded"] - 0.2 for row in held.values())  # about as often, or more often


def test_small_tables_have_every_part():
    made = tables(sizes=(8,), datasets=4, draws=20, seed=1)
    titles = re.findall(r"^\*\*(.+)\*\*$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert [table.title for table in made] == titles
    assert all(table.rows for table in made)
