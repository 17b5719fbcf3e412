"""How often does a 95 % interval hold the truth, and a 5 % test reject one?

Differences are drawn from populations whose mean is known; `python -m benchmarks.coverage` prints the page
docs/results/coverage.md.  Every 100 data sets share one matrix of draws, so 4,000 data sets see 40 of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table, render
from suffice.evaluation.statistics import (
    INTERVALS,
    Intervals,
    Resampling,
    paired_bootstrap,
    paired_t,
    permutation_tests,
)
from suffice.policy.rounds import Floats
from suffice_papers.family_tests import max_statistic
from suffice_papers.paired_tests import paired_t_test, wilcoxon_test

SIZES, DATASETS, DRAWS, LEVEL, SEED = (60, 100, 300), 4000, 1000, 0.95, 42
BLOCK = 100
FEW = 10
"""With fewer pairs that differ than this every interval misses too often; from 20 on none is marked any more."""
METHODS = (*INTERVALS, "paired_t")
NAMES = {"expanded": "expanded", "percentile": "percentile", "bca": "BCa", "t": "bootstrap-t", "paired_t": "paired t"}


@dataclass(frozen=True)
class Sample:
    """Data sets of one size: differences ``(n_datasets, n_rows)`` and the question of each row (None: all differ)."""

    deltas: Floats
    clusters: Any = None


@dataclass(frozen=True)
class Population:
    """Differences whose mean is known."""

    name: str
    mean: float
    draw: Callable[[np.random.Generator, int, int], Sample]


def normal(mean: float) -> Population:
    return Population("normal", mean, lambda rng, sets, n: Sample(rng.normal(mean, 0.3, (sets, n))))


def sparse(zeros: float, share_won: float = 0.4) -> Population:
    """Return differences of F1: most are 0, half of the others 1 (right against wrong), the rest even in (0, 1)."""

    def draw(rng: np.random.Generator, sets: int, n: int) -> Sample:
        shape = (sets, n)
        size = np.where(rng.random(shape) < 0.5, 1.0, rng.random(shape))
        sign = np.where(rng.random(shape) < share_won, 1.0, -1.0)
        return Sample(np.where(rng.random(shape) < zeros, 0.0, sign * size))

    return Population(f"{100 * zeros:.0f} % zeros", (1 - zeros) * (2 * share_won - 1) * 0.75, draw)


def lopsided(zeros: float) -> Population:
    """Return many small gains and few large losses of the same mean: 0.25 four times as often as -1."""

    def draw(rng: np.random.Generator, sets: int, n: int) -> Sample:
        shape = (sets, n)
        value = np.where(rng.random(shape) < 0.8, 0.25, -1.0)
        return Sample(np.where(rng.random(shape) < zeros, 0.0, value))

    return Population(f"{100 * zeros:.0f} % zeros, lopsided", 0.0, draw)


def clustered(mean: float) -> Population:
    """Return 1 to 5 runs of each question: an effect of the question and one of the run, both normal."""

    def draw(rng: np.random.Generator, sets: int, n: int) -> Sample:
        clusters = np.repeat(np.arange(n), rng.integers(1, 6, n))
        question = rng.normal(0.0, 0.2, (sets, n))[:, clusters]
        return Sample(mean + question + rng.normal(0.0, 0.2, question.shape), clusters)

    return Population("clustered", mean, draw)


POPULATIONS = (normal(0.02), sparse(0.9), sparse(0.97), clustered(0.02))
NULLS = (normal(0.0), sparse(0.9, 0.5), sparse(0.97, 0.5), lopsided(0.9), clustered(0.0))


def intervals(method: str, sample: Sample, weights: Floats, level: float = LEVEL) -> Intervals:
    """Return the intervals of all data sets by one method."""
    if method == "paired_t":
        return paired_t(sample.deltas, clusters=sample.clusters, level=level)
    return paired_bootstrap(sample.deltas, weights, clusters=sample.clusters, level=level, method=method)


def drawn(n: int, draws: int, rng: np.random.Generator) -> Any:
    """Return the weights of n questions, by another seed each time."""
    return Resampling(n_resamples=draws, seed=int(rng.integers(2**62))).draws(range(n)).weights


def samples(
    population: Population, n: int, datasets: int, draws: int, rng: np.random.Generator
) -> Iterator[tuple[Sample, Floats]]:
    """Yield blocks of data sets, each with draws of its own."""
    for start in range(0, datasets, BLOCK):
        yield population.draw(rng, min(BLOCK, datasets - start), n), drawn(n, draws, rng)


@dataclass(frozen=True)
class Coverage:
    """Shares of data sets: whose interval holds the mean, lies above it, below it, or is unbounded; and its width."""

    covered: float
    above: float
    below: float
    unbounded: float
    width: float


def coverage(
    population: Population, n: int, *, datasets: int = DATASETS, draws: int = DRAWS, rng: np.random.Generator
) -> tuple[dict[str, Coverage], float]:
    """Return what each method does, all on the same data sets, and the share of those with few non-zero pairs."""
    found: dict[str, list[Intervals]] = {method: [] for method in METHODS}
    few: list[Any] = []
    for sample, weights in samples(population, n, datasets, draws, rng):
        few.append(np.count_nonzero(sample.deltas, axis=1) < FEW)
        for method, made in found.items():
            made.append(intervals(method, sample, weights))
    result = {}
    for method, made in found.items():
        low, high = np.concatenate([i.low for i in made]), np.concatenate([i.high for i in made])
        above, below = low > population.mean, high < population.mean
        result[method] = Coverage(
            covered=float(1 - above.mean() - below.mean()),
            above=float(above.mean()),
            below=float(below.mean()),
            unbounded=float((np.isinf(low) | np.isinf(high)).mean()),
            width=float(np.median(high - low)),
        )
    return result, float(np.concatenate(few).mean())


def rejections(
    population: Population, n: int, *, datasets: int = DATASETS, draws: int = DRAWS, rng: np.random.Generator
) -> dict[str, float]:
    """Return how often each test rejects the true mean of zero at 5 %."""
    found: dict[str, list[bool]] = {"permutation": [], "paired t": [], "Wilcoxon": []}
    for sample, _ in samples(population, n, datasets, 1, rng):
        tests = permutation_tests(sample.deltas, n_resamples=draws, rng=rng, clusters=sample.clusters)
        found["permutation"] += [test.p <= 1 - LEVEL for test in tests]
        found["paired t"] += (paired_t_test(sample.deltas, clusters=sample.clusters) <= 1 - LEVEL).tolist()
        found["Wilcoxon"] += [wilcoxon_test(row, clusters=sample.clusters) <= 1 - LEVEL for row in sample.deltas]
    return {name: float(np.mean(values)) for name, values in found.items()}


def family_errors(
    n: int, *, rules: int = 200, datasets: int = 1000, draws: int = DRAWS, rng: np.random.Generator
) -> dict[str, float]:
    """Return how often anything is claimed for a family of rules that are all no better than the baseline.

    Rules agree with a common one in 70 % of the questions, as the rules of a search do; differences are sparse.
    """
    population = sparse(0.7, 0.5)
    any_bound, any_naive = [], []
    for _ in range(datasets):
        common = population.draw(rng, 1, n).deltas
        deltas = np.where(rng.random((rules, n)) < 0.7, common, population.draw(rng, rules, n).deltas)
        weights = drawn(n, draws, rng)
        any_bound.append(bool((max_statistic(deltas, weights).low > 0).any()))
        any_naive.append(bool((paired_bootstrap(deltas, weights, level=0.90).low > 0).any()))
    return {"max-statistic": float(np.mean(any_bound)), "uncorrected": float(np.mean(any_naive))}


def tables(sizes: Sequence[int] = SIZES, datasets: int = DATASETS, draws: int = DRAWS, seed: int = SEED) -> list[Table]:
    """Return all tables."""
    found = {}
    for place, population in enumerate(POPULATIONS):
        for n in sizes:
            rng = np.random.default_rng([seed, 0, place, n])
            found[population.name, n] = coverage(population, n, datasets=datasets, draws=draws, rng=rng)
    rejected = {}
    for place, population in enumerate(NULLS):
        for n in sizes:
            rng = np.random.default_rng([seed, 1, place, n])
            rejected[population.name, n] = rejections(population, n, datasets=datasets, draws=draws, rng=rng)
    family = {
        n: family_errors(n, datasets=max(1, datasets // 4), draws=draws, rng=np.random.default_rng([seed, 2, n]))
        for n in sizes
    }
    head = (Column("population"), Column("n", ".0f"))

    def each(spec: str, value: Callable[[Coverage], Any], title: str) -> Table:
        columns = (*head, *(Column(NAMES[method], spec, scale=100) for method in METHODS))
        rows = tuple((*key, *(value(made[method]) for method in METHODS)) for key, (made, _) in found.items())
        return Table(title=title, columns=columns, rows=rows)

    first = each(".1f", lambda made: made.covered, "Intervals that hold the mean, %")
    few = tuple((*row, few) for row, (_, few) in zip(first.rows, found.values(), strict=True))
    column = Column(f"fewer than {FEW} differ", ".0f", scale=100)
    first = Table(title=first.title, columns=(*first.columns, column), rows=few)
    tests = tuple(next(iter(rejected.values())))
    return [
        first,
        each(
            "",
            lambda made: f"{100 * made.below:.1f} / {100 * made.above:.1f}",
            "Misses, %: all below / all above the mean",
        ),
        each(".1f", lambda made: made.width, "Median width, points"),
        each(".1f", lambda made: made.unbounded, "Intervals without an end, %"),
        Table(
            title="True hypotheses rejected at 5 %, %",
            columns=(*head, *(Column(name, ".1f", scale=100) for name in tests)),
            rows=tuple((*key, *shares.values()) for key, shares in rejected.items()),
        ),
        Table(
            title="Families of 200 rules without merit of which one seems better at 5 %, %",
            columns=(Column("n", ".0f"), *(Column(name, ".1f", scale=100) for name in family[sizes[0]])),
            rows=tuple((n, *shares.values()) for n, shares in family.items()),
        ),
    ]


PAGE = """\
# Coverage: how often the intervals are right

Written by `python -m benchmarks.coverage -o docs/results/coverage.md` (seed {seed}, {datasets:,} data sets for each population and
size, {draws:,} draws, 95 % intervals; numpy {numpy}, scipy {scipy}, {seconds:.0f} s). One standard error of a coverage near 95 % is
{error:.2f} points. What follows from it stands in [What the statistics promise](../explanation/statistics.md).

The populations, each with a known mean:

- **normal**: mean 0.02, standard deviation 0.3.
- **90 % zeros, 97 % zeros**: differences of F1 between two rules that mostly stop alike. Of the others, half have size 1 (right
  against wrong) and the rest are even in (0, 1); 40 % are won, 60 % lost. The means are -0.015 and -0.0045.
- **clustered**: n questions with 1 to 5 runs each, even. A run differs by 0.02 on average, plus a normal effect of the question and
  one of the run (0.2 each). Questions are drawn, not runs.
- For the tests, the same with a mean of zero: half of the sparse differences won. **Lopsided**: 0.25 four times as often as -1, so the
  mean is zero and the differences are not symmetric, which is what permutation and Wilcoxon ask for.
- For families: 200 rules, sparse (70 % zeros), symmetric; each agrees with a common one in 70 % of the questions.

{tables}"""


def page(datasets: int, draws: int, seed: int) -> str:
    """Return the page."""
    import scipy

    began = time.perf_counter()
    made = render(tables(datasets=datasets, draws=draws, seed=seed), "md")
    return PAGE.format(
        seed=seed,
        datasets=datasets,
        draws=draws,
        numpy=np.__version__,
        scipy=scipy.__version__,
        seconds=time.perf_counter() - began,
        error=100 * (LEVEL * (1 - LEVEL) / datasets) ** 0.5,
        tables=made,
    )


def write_page(name: str, about: str | None, page: Callable[[int, int, int], str], datasets: int, draws: int) -> None:
    """Write the page of a simulation, with the sizes and the seed that the command line gives."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--datasets", type=int, default=datasets)
    parser.add_argument("--draws", type=int, default=draws)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("-o", "--out", type=Path)
    asked = parser.parse_args()
    text = page(asked.datasets, asked.draws, asked.seed)
    if asked.out is None:
        sys.stdout.write(text)
    else:
        asked.out.write_text(text, "utf-8")


def main() -> None:
    """Write the page."""
    write_page("coverage", __doc__, page, DATASETS, DRAWS)


if __name__ == "__main__":
    main()
