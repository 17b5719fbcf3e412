"""Draws computed from a seed and a question's name: counts in resamples, signs in permutation tests, and orders.

The draws of a question do not depend on other questions, so figures depend neither on the order of the rows, nor on
their division into parts, nor on the machine (Poisson bootstrap; Chamandy et al. 2012, "Estimating uncertainty for
massive data streams").  docs/results/weights.md compares the coverage of these weights with that of other weights.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Floats
from suffice.policy.seen import id_hash

Keys = npt.NDArray[np.uint64]
"""One number for each question: the first 64 bits of the sha256 of its name."""

_SIGNS = 0x51675
"""Added to a seed, so that signs do not depend on the weights of the same seed."""

_BITS = 64
_UNITS_AT_ONCE = 2**10
"""Units whose weights are generated at once, few enough for the cache of a processor."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def keys_of(names: Iterable[str]) -> Keys:
    """Return the keys of names, as 64-bit hashes.

    >>> [hex(key) for key in keys_of(["5a77e70f"]).tolist()]
    ['0x2dd53066e8421fa3']
    """
    return np.array([int(id_hash(name), 16) for name in names], dtype=np.uint64)


def keyed_numbers(keys: Keys, n: int, *, seed: int) -> npt.NDArray[np.uint64]:
    """Return `n` random 64-bit numbers for each key, shape ``(n_keys, n)``, independent of the other keys.

    SplitMix64 (Steele, Lea and Flood 2014): each number is the hash of a counter that starts from key and seed.

    >>> a, b = keys_of(["a", "b"])
    >>> numbers = keyed_numbers(np.array([a, b]), 2, seed=1)
    >>> (keyed_numbers(np.array([b]), 2, seed=1) == numbers[1:]).all().item()
    True
    """
    start = keys ^ _mixed(np.array([seed % 2**64], dtype=np.uint64))
    return _mixed(start[:, None] + _GOLDEN * np.arange(1, n + 1, dtype=np.uint64))


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values ^= values >> np.uint64(27)
    values *= _SECOND
    values ^= values >> np.uint64(31)
    return values


def _poisson_ends() -> npt.NDArray[np.uint16]:
    """Return the 16-bit thresholds at which a Poisson(1) count reaches 1, 2, ... (inversion, exact to 2**-17)."""
    probabilities = np.array([math.exp(-1) / math.factorial(k) for k in range(12)])
    ends = np.rint(np.cumsum(probabilities) * 2**16)
    return np.asarray(ends[ends < 2**16], dtype=np.uint16)


_ENDS = _poisson_ends()


def _counts(keys: Keys, n_resamples: int, seed: int) -> npt.NDArray[np.uint8]:
    """Return the number of times that each question is drawn, shape ``(n_questions, n_resamples)``."""
    numbers = keyed_numbers(keys, -(-n_resamples // 4), seed=seed).astype("<u8", copy=False)  # four from each number
    drawn = numbers.view("<u2")[:, :n_resamples]
    counts = np.zeros(drawn.shape, dtype=np.uint8)
    for end in _ENDS:
        counts += drawn >= end
    return counts


def poisson_weights(keys: Keys, n_resamples: int, *, seed: int) -> Floats:
    """Return how many times each question is drawn in each resample, shape ``(n_resamples, n_questions)``.

    The numbers have a Poisson distribution with mean 1.  The size of a resample therefore varies about the number of
    questions, and a resampled mean is a ratio of sums.

    >>> weights = poisson_weights(keys_of(map(str, range(1000))), 200, seed=42)
    >>> weights.shape, weights.mean().round(1).item(), weights.var().round(1).item()
    ((200, 1000), 1.0, 1.0)

    Args:
        keys: Keys of the questions, see `keys_of`.
        n_resamples: Number of draws.
        seed: Another seed gives other draws.

    Raises:
        DataError: Fewer than one draw.
    """
    if n_resamples < 1:
        raise DataError(f"a bootstrap needs resamples, not {n_resamples!r}; allowed: >= 1")
    weights = np.empty((n_resamples, len(keys)))
    for start in range(0, len(keys), _UNITS_AT_ONCE):
        part = slice(start, start + _UNITS_AT_ONCE)
        weights[:, part] = _counts(keys[part], n_resamples, seed).T
    return weights


def keyed_bits(keys: Keys, n: int, *, seed: int) -> npt.NDArray[np.uint8]:
    """Return `n` random bits for each key, shape ``(n_keys, n)``, independent of the other keys.

    >>> keyed_bits(keys_of(["a", "b"]), 3, seed=1).shape
    (2, 3)
    """
    numbers = keyed_numbers(keys, -(-n // _BITS), seed=seed + _SIGNS).astype("<u8", copy=False)
    return np.unpackbits(numbers.view(np.uint8), axis=1, bitorder="little")[:, :n]


@dataclass(frozen=True, slots=True, eq=False)
class KeyedWeights:
    """The weights of `poisson_weights` for more units than fit into memory, generated anew for each product.

    Generating them takes most of the time, so the sums of each row of values are cached and shared by intervals and
    margins.

    Attributes:
        keys: Keys of the units, see `keys_of`.
        n_resamples: Number of draws.
        seed: Seed of the draws.
    """

    keys: Keys
    n_resamples: int
    seed: int
    _known: dict[bytes, Floats] = field(default_factory=dict, repr=False)

    def sums(self, rows: Floats) -> Floats:
        """Return the weighted sum of each row of values in every draw, ``(..., n_units)`` to ``(..., n_resamples)``."""
        shape, flat = rows.shape[:-1], rows.reshape(-1, rows.shape[-1])
        names = [hashlib.sha256(np.ascontiguousarray(row).data).digest() for row in flat]
        new = [place for place, name in enumerate(names) if name not in self._known]
        rows, total = flat[new], np.zeros((len(new), self.n_resamples))
        for start in range(0, len(self.keys), _UNITS_AT_ONCE) if new else ():
            part = slice(start, start + _UNITS_AT_ONCE)
            total += rows[:, part] @ _counts(self.keys[part], self.n_resamples, self.seed).astype(np.float64)
        self._known.update({names[place]: sums for place, sums in zip(new, total, strict=True)})
        return np.stack([self._known[name] for name in names]).reshape(*shape, self.n_resamples)
