"""Search vectors approximately by FAISS: lists around centroids propose passages, which are scored exactly.

In small indexes the lists contain the vectors themselves.  In large indexes they contain product-quantised codes, with
a byte for eight numbers, and the proposed passages are scored again with the exact vectors, which stay on disk.  A
search visits the smallest number of lists that reaches the required recall.  The recall is measured against exact
search, with passages that were not used for training as queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from suffice.common.files import replacing
from suffice.common.identities import sha256_of
from suffice.errors import DataError, MissingExtraError, SchemaError
from suffice_retrieval.indexes.vectors import StoredVectors

_UNQUANTISED = 2**18
"""Up to this many vectors, the lists contain the vectors themselves: at most 1 GB at 1,024 numbers each."""

_NUMBERS_PER_BYTE = 8
_RESCORED = 10
"""In a search for k passages, the codes propose this many times k vectors."""

_MOST_RESCORED = 160
_GAIN = 0.01
"""If doubling the lists gains less recall than this, more proposals are compared exactly instead."""

_TRAINING, _FEWEST_TRAINING = 40, 2**14
"""FAISS trains on this many vectors per centroid, and on at least this many in total."""

_QUERIES = 256
RECALL_K = 10
"""The recall is measured for this many best passages."""

_EQUAL = 1e-6
_Floats32 = npt.NDArray[np.float32]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproximateSettings:
    """Settings by which an approximate index is built and searched; a recording stores them.

    Attributes:
        form: The name of the index type in FAISS: ``IVF1024,Flat`` has 1,024 lists of vectors; ``IVF1024,PQ48`` has
            1,024 lists of codes of 48 bytes.
        probes: Number of lists that a search visits.
        rescored: Factor of rescoring: a search for k passages scores `rescored` times k vectors exactly.
        seed: Seed of training.
        recall: Share of the ten best passages that the index finds, from 0 to 1.
        recall_queries: Number of passages that were used as queries to measure the recall.
        demanded: The required recall, for which `probes` was chosen.
        digest: First digits of the hash of the FAISS file.
    """

    form: str
    probes: int
    rescored: int
    seed: int
    recall: float
    recall_queries: int
    demanded: float
    digest: str

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build the settings from a dictionary of their fields."""
        return cls(**values)


class ApproximateSearch:
    """Approximate search of an index's vectors with a FAISS file; the lists of the file stay on disk.

    Args:
        path: The file that `build` wrote.
        vectors: The exact vectors.
        settings: The settings that `build` returned.

    Raises:
        MissingExtraError: FAISS is not installed.
        SchemaError: The file is damaged, or belongs to other vectors.
    """

    def __init__(self, path: Path, vectors: StoredVectors, settings: ApproximateSettings) -> None:
        faiss = _faiss()
        try:
            self._index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
        except RuntimeError as error:
            raise SchemaError(f"{path}: the approximate index is damaged ({error!s:.200}); build it again") from error
        self._path, self._vectors, self.settings = path, vectors, settings
        if (self._index.ntotal, self._index.d) != (len(vectors), vectors.dimension):
            raise SchemaError(
                f"{path}: the approximate index has {self._index.ntotal:,} vectors of {self._index.d} numbers, and the "
                f"passages have {len(vectors):,} of {vectors.dimension}; build it again"
            )

    @classmethod
    def build(cls, path: Path, vectors: StoredVectors, *, recall: float, seed: int = 0) -> ApproximateSettings:
        """Write the file of an approximate search; the same vectors and seed give the same file.

        Args:
            path: The file.
            vectors: All vectors; they are read in blocks.
            recall: The share of the ten best passages to find. If this share cannot be reached, the index finds the
                highest share that is possible.
            seed: Seed of training and of the passages by which the recall is measured.

        Raises:
            DataError: `recall` is not in (0, 1], or there are no vectors.
            MissingExtraError: FAISS is not installed.
            SchemaError: A vector is not finite.
        """
        if not 0 < recall <= 1:
            raise DataError(f"the recall of an approximate index is {recall!r}; allowed: above 0, up to 1")
        if not len(vectors):
            raise DataError("an approximate index needs passages, and there are none")
        faiss = _faiss()
        order = np.random.default_rng(seed).permutation(len(vectors))
        held_out = min(_QUERIES, len(order) // 2)
        asked, others = np.sort(order[:held_out]), order[held_out:]
        lists = min(2 ** round(math.log2(2 * math.sqrt(len(vectors)))), len(others))
        quantised = len(vectors) > _UNQUANTISED
        form = f"IVF{lists},{f'PQ{_code_size(vectors.dimension)}' if quantised else 'Flat'}"
        index = faiss.index_factory(vectors.dimension, form, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed, index.cp.min_points_per_centroid = seed, 1
        if quantised:
            index.pq.cp.seed, index.pq.cp.min_points_per_centroid = seed, 1
            index.do_polysemous_training = False  # needed only for searches by Hamming distance
        training = np.sort(others[: max(_TRAINING * lists, _FEWEST_TRAINING)])
        index.train(_finite(path, vectors.rows(training)))
        for _, block in vectors.blocks():
            index.add(_finite(path, block))
        with replacing(path) as temporary:
            faiss.write_index(index, str(temporary))
        settings = ApproximateSettings(
            form=form,
            probes=lists,
            rescored=_RESCORED if quantised else 1,
            seed=seed,
            recall=1.0,
            recall_queries=held_out,
            demanded=recall,
            digest=sha256_of(path).hex()[:16],
        )
        return _tuned(cls(path, vectors, settings), vectors, asked) if held_out else settings

    def search(self, queries: _Floats32, k: int) -> tuple[_Ints, _Floats32]:
        """Return the positions and exact scores of the vectors that are probably best; see `StoredVectors.search`.

        Raises:
            SchemaError: The file is damaged.
        """
        k = min(k, len(self._vectors))
        places, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        for i, proposals in enumerate(self._proposals(queries, k, self.settings.probes)):
            query, probes = queries[i : i + 1], self.settings.probes
            while len(proposals) < k:  # the visited lists contain too few vectors
                probes *= 4
                [proposals] = self._proposals(query, k, probes)  # noqa: PLW2901
            exact = self._vectors.scores(query, self._vectors.rows(proposals))[0]
            order = np.argsort(-exact, kind="stable")[:k]
            places[i], scores[i] = proposals[order], exact[order]
        return places, scores

    def _proposals(self, queries: _Floats32, k: int, probes: int) -> list[_Ints]:
        """Return, for each query, the positions that the visited lists propose, in ascending order."""
        visits = _faiss().SearchParametersIVF(nprobe=min(probes, self._index.nlist))
        size = min(max(1, k * self.settings.rescored), len(self._vectors))
        _, labels = self._index.search(queries, size, params=visits)
        if labels.max(initial=-1) >= len(self._vectors):
            raise SchemaError(f"{self._path}: the approximate index names passages that do not exist; build it again")
        return [np.sort(row[row >= 0]) for row in labels]


def _tuned(search: ApproximateSearch, vectors: StoredVectors, asked: _Ints) -> ApproximateSettings:
    """Return the settings of the cheapest search with the required recall; the passages `asked` are the queries."""
    queries, size = vectors.rows(asked), min(RECALL_K + 1, len(vectors))
    # Any passage with the same score as the last of the best counts as found.
    least = _others(asked, *vectors.search(queries, size))[:, -1] - _EQUAL
    lists, settings, before = search.settings.probes, replace(search.settings, probes=1), 0.0
    while True:
        search.settings = settings
        scores = _others(asked, *search.search(queries, size))
        settings = replace(settings, recall=float((scores >= least[:, None]).mean()))
        if settings.recall >= settings.demanded:
            return settings
        is_coarse = 1 < settings.rescored < _MOST_RESCORED
        if settings.probes < lists and not (is_coarse and settings.recall < before + _GAIN):
            before, settings = settings.recall, replace(settings, probes=min(2 * settings.probes, lists))
        elif is_coarse:  # more lists do not help, since the codes are too coarse: score more proposals exactly
            before = 0.0
            settings = replace(settings, rescored=4 * settings.rescored, probes=max(1, settings.probes // 4))
        else:
            return settings


def _others(asked: _Ints, places: _Ints, scores: _Floats32) -> _Floats32:
    """Return the best scores for each passage used as a query, without the passage itself, ``(len(asked), k - 1)``."""
    own = places == asked[:, None]
    own[~own.any(axis=1), -1] = True
    others: _Floats32 = scores[~own].reshape(len(asked), -1)
    return others


def _code_size(dimension: int) -> int:
    """Return the bytes of a code: the largest divisor of the dimension that leaves at least eight numbers for each byte.

    For fewer than eight dimensions, the result is 1.
    """
    return next((n for n in range(dimension // _NUMBERS_PER_BYTE, 0, -1) if dimension % n == 0), 1)


def _finite(path: Path, vectors: _Floats32) -> _Floats32:
    if not np.isfinite(vectors).all():
        raise SchemaError(f"{path.parent}: a vector is not finite: the index is damaged; build it again")
    contiguous: _Floats32 = np.ascontiguousarray(vectors)
    return contiguous


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("an approximate index", "faiss", "suffice-retrieval") from error
    return faiss
