"""Draws of questions, and all comparisons on one set of draws: intervals, tests, margins and ratios."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from suffice.common.results import Inlined
from suffice.errors import DataError
from suffice.evaluation.statistics.bootstrap import Weights, products
from suffice.evaluation.statistics.corrections import holm
from suffice.evaluation.statistics.hypotheses import permutation_tests
from suffice.evaluation.statistics.intervals import DEFAULT_INTERVAL, INTERVALS, Intervals, paired_bootstrap
from suffice.evaluation.statistics.keyed import KeyedWeights, Keys, keys_of, poisson_weights
from suffice.evaluation.statistics.margins import MarginTest, bets_in_order, both_margin_tests
from suffice.evaluation.statistics.paired import PairedResult, paired_results
from suffice.evaluation.statistics.units import Clusters, Units, check_level
from suffice.policy.rounds import Floats

Key = TypeVar("Key", bound=Hashable)

_MOST_WEIGHTS = 2**23
"""Most weights that are kept in memory (64 MiB); more are generated anew for each product, which is then faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampling(Inlined):
    """Settings of the bootstrap; equal settings give the same questions the same draws in every comparison.

    >>> draws = Resampling(seed=1).draws(["q1", "q2", "q3", "q1"])
    >>> draws.units.n_units, round(draws.paired(np.array([1.0, 0.0, 0.0, 1.0])).high, 2)
    (3, 1.0)

    Attributes:
        n_resamples: Number of bootstrap draws; 0, which only a search accepts, means no draws.
        seed: Seed of the draws, and of random signs if a test needs them.
        level: Nominal coverage of intervals, in (0, 1).
        interval: Method of the intervals, see `paired_bootstrap`.

    Raises:
        DataError: A negative number of draws, a level outside (0, 1), or an unknown method.
    """

    n_resamples: int = 1000
    seed: int = 42
    level: float = 0.95
    interval: str = DEFAULT_INTERVAL

    def __post_init__(self) -> None:
        if self.n_resamples < 0:
            raise DataError(f"a bootstrap cannot have {self.n_resamples!r} resamples; allowed: >= 1")
        check_level(self.level)
        if self.interval not in INTERVALS:
            raise DataError(f"{self.interval!r} is not a method of intervals; allowed: {', '.join(INTERVALS)}")

    def draws(self, names: Iterable[Any]) -> Draws:
        """Return the draws of questions.

        The number of times that a question is drawn depends only on the seed and its name, not on other rows or their
        order.  The size of a resample varies about the number of questions, so a resampled mean is a ratio of sums;
        empty resamples are left out.

        Args:
            names: The name of each row's question or cluster; rows with the same name are drawn together.

        Raises:
            DataError: No rows, or no resamples.
        """
        named = [str(name) for name in names]
        units, keys = Units.of(len(named), named), keys_of(dict.fromkeys(named))
        # If every row is its own unit, tests need not look for clusters again.
        own = None if units.codes is None else named
        weights = self._weights(keys)
        return Draws(resampling=self, clusters=own, names=named, units=units, weights=weights, keys=keys)

    def _weights(self, keys: Keys) -> Weights:
        n = len(keys)
        if self.n_resamples * n > _MOST_WEIGHTS:
            return KeyedWeights(keys, self.n_resamples, self.seed)
        weights = poisson_weights(keys, self.n_resamples, seed=self.seed)
        weights = weights[weights.any(axis=1)]
        if (
            n == 1 or len(weights) <= 1
        ):  # one unit or one draw shows no spread: NaN weights keep intervals from having zero width
            return np.full((self.n_resamples, n), np.nan)
        return weights

    @property
    def ends(self) -> tuple[float, float]:
        """The two quantiles of an equal-tailed interval."""
        tail = (1 - self.level) / 2
        return tail, 1 - tail

    @property
    def text(self) -> str:
        """The intervals in words, for titles."""
        return f"{100 * self.level:g} % intervals, {self.n_resamples:,} paired bootstrap draws, seed {self.seed}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draws:
    """The draws of one set of questions; all comparisons on them share the same noise.

    Attributes:
        resampling: The settings of the draws.
        clusters: The unit of each row; None if each row is its own unit.
        names: The name of each row's unit, which is kept even if `clusters` is None; None = without names.
        units: The units.
        weights: Number of times that each unit is drawn, shape ``(n_resamples, n_units)``.
        keys: Keys of the units, from which signs of permutation tests are drawn; None = signs depend on the positions.
    """

    resampling: Resampling
    clusters: Clusters
    names: Clusters = None
    units: Units
    weights: Weights
    keys: Keys | None = None
    _known: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict, repr=False)

    @property
    def by_row(self) -> Floats:
        """Number of times that each row is drawn, shape ``(n_draws, n_rows)``."""
        weights = self.weights
        if isinstance(weights, KeyedWeights):
            weights = poisson_weights(weights.keys, weights.n_resamples, seed=weights.seed)
        return weights if self.units.codes is None else weights[:, self.units.codes]

    def intervals(self, deltas: Floats) -> Intervals:
        """Return mean differences with intervals, as arrays; see `paired_bootstrap`."""
        how = self.resampling
        return paired_bootstrap(deltas, self.weights, clusters=self.clusters, level=how.level, method=how.interval)

    def paired(self, delta: Floats) -> PairedResult:
        """Return the mean of one paired difference with its interval; `delta` has shape ``(n_rows,)`` and no NaN."""
        return self._results(delta)[0]

    def _results(self, deltas: Floats) -> list[PairedResult]:
        how = self.resampling
        return paired_results(deltas, self.weights, clusters=self.clusters, level=how.level, method=how.interval)

    def compare(
        self, deltas: Mapping[Key, Floats], *, family: Collection[Key] | None = None
    ) -> dict[Key, PairedResult]:
        """Return the mean of each paired difference with its interval; differences with NaN values are left out.

        Args:
            deltas: The paired differences by name, shape ``(n_rows,)``.
            family: Names of the differences that Holm's correction covers.  If it is given, every difference has a
                permutation test; None = no tests.
        """
        known = {name: delta for name, delta in deltas.items() if not np.isnan(delta).any()}
        if not known:
            return {}
        matrix = np.stack(list(known.values()))
        results = dict(zip(known, self._results(matrix), strict=True))
        if family is None:
            return results
        seed = self.resampling.seed
        n_resamples = self.resampling.n_resamples
        tests = permutation_tests(matrix, n_resamples=n_resamples, rng=seed, clusters=self.clusters, keys=self.keys)
        by_name = dict(zip(known, tests, strict=True))
        adjusted = holm_within({name: test.p for name, test in by_name.items()}, family)
        return {
            name: replace(result, p=by_name[name].p, p_holm=adjusted[name], test=by_name[name].test)
            for name, result in results.items()
        }

    def non_inferior(self, delta: Floats, margin: float) -> MarginTest:
        """Return the test of a loss below a margin; see `both_margin_tests`."""
        return self.margins(delta, [margin])[0][0]

    def margins(self, delta: Floats, margins: Sequence[float]) -> tuple[tuple[MarginTest, MarginTest], ...]:
        """Return non-inferiority and equivalence at each margin; see `both_margin_tests`."""
        how = self.resampling
        if "order" not in self._known:
            self._known["order"] = bets_in_order(self.clusters if self.names is None else self.names, len(delta))
        return both_margin_tests(
            delta,
            margins,
            weights=self.weights,
            clusters=self.clusters,
            level=how.level,
            order=self._known["order"],
        )

    def anticipate(self, deltas: Sequence[Floats]) -> None:
        """Compute and cache the resampled sums of differences that will be compared, all in one pass.

        Do nothing if the weights are in memory, since nothing has to be generated again then.
        """
        if isinstance(self.weights, KeyedWeights) and deltas:
            self.weights.sums(np.vstack([self.units.sizes, self.units.sums(np.stack(deltas))]))

    def sums(self, rows: Floats) -> Floats:
        """Return the resampled sum of each row of values, shape ``(..., n_rows)`` to ``(..., n_resamples)``."""
        return products(self.units.sums(rows), self.weights)

    def ratio(self, above: Floats, below: Floats, per: Floats | None = None) -> tuple[tuple[float, float, float], bool]:
        """Return the ratio of two means with its percentile interval, and whether it is defined in every draw.

        Args:
            above: The numerator, shape ``(n_rows,)``.
            below: The denominator, same shape.  The ratio is NaN if the mean of `below` is not above 0.  Draws in which
                that mean is not above 0 are left out.
            per: A further divisor, same shape.  The ratio is also divided by the mean of `per`; it is NaN if that mean
                is 0 or unknown.
        """
        mean = 1.0 if per is None else float(per.mean())
        if not (below.sum() > 0 and mean > 0):
            return (float("nan"),) * 3, True
        top, bottom = self.sums(np.stack([above, below]))
        if per is not None:
            bottom = bottom * self.sums(per) / products(self.units.sizes, self.weights)
        defined = bottom > 0
        low = high = float("nan")
        if defined.any():
            low, high = np.quantile(top[defined] / bottom[defined], self.resampling.ends).tolist()
        return (float(above.sum() / below.sum() / mean), low, high), bool(defined.all())


def holm_within(p: Mapping[Key, float], family: Collection[Key]) -> dict[Key, float]:
    """Return p-values adjusted by Holm over a family; NaN for names outside of it.

    >>> holm_within({"a": 0.01, "b": 0.04, "beside": 0.5}, {"a", "b"})
    {'a': 0.02, 'b': 0.04, 'beside': nan}
    """
    inside = np.array([name in family for name in p], dtype=np.bool_)
    return dict(zip(p, holm(np.where(inside, list(p.values()), np.nan)).tolist(), strict=True))
