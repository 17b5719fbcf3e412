"""Which weights should a resample give to questions: multinomial, Poisson or exponential ones?

`python -m benchmarks.weights -o docs/results/weights.md` writes the page.  Multinomial weights depend on the place of a
question among all others.  Poisson and exponential weights follow from the name of the question alone, so figures do not
depend on the order of the rows, nor on their division into parts; a resampled mean is then a ratio of sums.  The intervals
are those of `paired_bootstrap`, on populations whose mean is known.  Every 50 data sets share one matrix of weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.coverage import LEVEL, SEED, Population, clustered, intervals, normal, sparse, write_page
from suffice.common.tables import Column, Table, render
from suffice.evaluation.statistics import keyed_numbers, keys_of, poisson_weights
from suffice.policy.rounds import Floats
from suffice_papers.multinomial import bootstrap_weights

SIZES, DATASETS, DRAWS, BLOCK = (20, 60, 300), 4000, 1000, 50
METHODS = ("expanded", "percentile")
POPULATIONS: tuple[Population, ...] = (normal(0.02), sparse(0.9), sparse(0.97), clustered(0.02))
_UNIT = 2.0**-53


def exponential_weights(names: list[str], draws: int, seed: int) -> Floats:
    """Return weights of the Bayesian bootstrap (Rubin 1981) from the names, shape ``(draws, n)``: exponential, mean 1."""
    bits = keyed_numbers(keys_of(names), draws, seed=seed) >> np.uint64(11)
    return np.ascontiguousarray(-np.log((bits.astype(np.float64) + 0.5) * _UNIT).T)


def _poisson(names: list[str], draws: int, seed: int) -> Floats:
    weights = poisson_weights(keys_of(names), draws, seed=seed)
    return weights[weights.any(axis=1)]  # a resample of few questions may have none, and no mean


KINDS: Mapping[str, Callable[[list[str], int, int], Floats]] = {
    "multinomial": lambda names, draws, seed: bootstrap_weights(len(names), draws, rng=seed),
    "Poisson": _poisson,
    "exponential": exponential_weights,
}


def coverage(population: Population, n: int, *, datasets: int, draws: int, seed: int) -> dict[tuple[str, str], Floats]:
    """Return by kind of weights and method: the share of intervals that hold the mean, and their median width."""
    rng = np.random.default_rng(seed)
    ends: dict[tuple[str, str], list[tuple[Floats, Floats]]] = {}
    for start in range(0, datasets, BLOCK):
        sample = population.draw(rng, min(BLOCK, datasets - start), n)
        names = [f"{start}:{k}" for k in range(n)]  # new names are new draws
        for kind, drawn in KINDS.items():
            weights = drawn(names, draws, seed + start)
            for method in METHODS:
                made = intervals(method, sample, weights)
                ends.setdefault((kind, method), []).append((made.low, made.high))
    found = {}
    for key, blocks in ends.items():
        low, high = (np.concatenate(part) for part in zip(*blocks, strict=True))
        held = (low <= population.mean) & (population.mean <= high)
        found[key] = np.array([held.mean(), np.median(high - low)])
    return found


def tables(datasets: int = DATASETS, draws: int = DRAWS, seed: int = SEED) -> list[Table]:
    """Return coverage and width of every kind of weights."""
    found = {
        (population.name, n): coverage(population, n, datasets=datasets, draws=draws, seed=seed + 1000 * place + n)
        for place, population in enumerate(POPULATIONS)
        for n in SIZES
    }
    columns = (Column("population"), Column("n", ".0f"))
    columns += tuple(Column(f"{kind}, {method}", ".1f", scale=100) for method in METHODS for kind in KINDS)
    return [
        Table(
            title=title,
            columns=columns,
            rows=tuple(
                (*key, *(float(made[kind, method][place]) for method in METHODS for kind in KINDS))
                for key, made in found.items()
            ),
        )
        for place, title in enumerate(("Intervals that hold the mean, %", "Median width, points"))
    ]


PAGE = """\
# Weights of a resample: by place or by name

Written by `python -m benchmarks.weights -o docs/results/weights.md` (seed {seed}, {datasets:,} data sets for each population and
size, {draws:,} draws, 95 % intervals; numpy {numpy}, {seconds:.0f} s). One standard error of a coverage near 95 % is {error:.2f} points.
The populations are those of [the coverage page](coverage.md). *Multinomial* weights draw n of n questions by their place. *Poisson*
weights are independent counts with mean 1, *exponential* ones independent positive numbers with mean 1 (the Bayesian bootstrap); both
are a hash of the seed, the draw and the question's name. What follows stands in
[What the statistics promise](../explanation/statistics.md).

{tables}"""


def page(datasets: int, draws: int, seed: int) -> str:
    """Return the page."""
    began = time.perf_counter()
    made = render(tables(datasets, draws, seed), "md")
    return PAGE.format(
        seed=seed,
        datasets=datasets,
        draws=draws,
        numpy=np.__version__,
        seconds=time.perf_counter() - began,
        error=100 * (LEVEL * (1 - LEVEL) / datasets) ** 0.5,
        tables=made,
    )


def main() -> None:
    """Write the page."""
    write_page("weights", __doc__, page, DATASETS, DRAWS)


if __name__ == "__main__":
    main()
