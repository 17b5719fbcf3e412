"""BM25 over a corpus: built by bm25s, searched by a small compiled kernel, saved without pickle.

The index of bm25s contains the score of each token in each passage.  A search adds up these scores and keeps the best k.
`bm25s.BM25.retrieve` uses a heap, which breaks ties at random; the kernel here keeps ties in the order of the corpus, so
that recordings can be repeated, and is as fast (`benchmarks/bench_bm25.py`).
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import SchemaError
from suffice.retrieval.base import checked_k
from suffice.retrieval.bm25 import K1, B, bm25_fingerprint, check_parameters
from suffice.retrieval.storage import Stored, open_stored, write_stored
from suffice.retrieval.tokens import TOKENS, passage_text, words
from suffice.rounds import Passage

__all__ = ["CorpusBM25", "best_k", "passages_hash"]

_BM25_KIND = "suffice-bm25-index"
_BM25_VERSION = 1
_FULL_SORT = 128
"""Above this k a stable sort of all scores is faster than inserting into a sorted list."""

_Floats32 = npt.NDArray[np.float32]
_Ints = npt.NDArray[np.int32]


def passages_hash(passages: Iterable[Passage]) -> str:
    """Return 16 hexadecimal digits that identify passages (id, title, text) in their order."""
    digest = hashlib.sha256()
    for passage in passages:
        digest.update(json.dumps([passage.passage_id, passage.title, passage.text]).encode() + b"\n")
    return digest.hexdigest()[:16]


class CorpusBM25:
    """Ranks the passages of a corpus; the same formula and tokens as `PoolBM25`, scores in 32 bits.

    >>> corpus = [
    ...     Passage(passage_id="1", title="Jubilee", text="A film of 1978 by Derek Jarman."),
    ...     Passage(passage_id="2", title="The Tempest", text="A film of 1979 by Derek Jarman."),
    ... ]
    >>> [passage.title for passage in CorpusBM25(corpus).rank("Who made The Tempest?", k=1)]
    ['The Tempest']

    Args:
        passages: The corpus, in the order that breaks ties; it may be empty.
        k1: Saturation of the term frequency, at least 0.
        b: Share of length normalisation, in [0, 1].
    """

    name = "bm25-corpus"
    has_corpus = True

    def __init__(self, passages: Sequence[Passage], *, k1: float = K1, b: float = B) -> None:
        check_parameters(k1, b)
        self.k1 = k1
        self.b = b
        self.passages = tuple(passages)
        self.corpus_hash = passages_hash(self.passages)
        self._vocabulary, self._data, self._indices, self._starts = _build(self.passages, k1, b)

    def __len__(self) -> int:
        return len(self.passages)

    def fingerprint(self) -> dict[str, Any]:
        """Return the variant, its parameters, the tokenisation and the hash of the corpus."""
        own = {"passages": len(self.passages), "corpus_hash": self.corpus_hash}
        return bm25_fingerprint(self.name, self.k1, self.b) | own

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:  # noqa: ARG002 - a corpus retriever ignores pools
        """Return passages of the corpus, best first; see `Retriever.rank`.  Passages without a common token score 0.

        Raises:
            DataError: `k` is below 1.
        """
        positions, scores = self.search(question, checked_k(k, len(self.passages)))
        ranked = []
        for i, score in zip(positions.tolist(), scores.tolist(), strict=True):
            passage = self.passages[i]  # dataclasses.replace would take as long as the search
            ranked.append(Passage(passage_id=passage.passage_id, title=passage.title, text=passage.text, score=score))
        return ranked

    def search(self, question: str, k: int) -> tuple[npt.NDArray[np.int64], _Floats32]:
        """Return positions in the corpus and scores of the `k` best passages.

        Args:
            question: Any text.
            k: Largest number of passages, at least 0.

        Returns:
            Positions and scores, each of shape ``(min(k, len(self)),)``; scores in [0, inf), descending.
        """
        known = [self._vocabulary[word] for word in words(question) if word in self._vocabulary]
        k = min(k, len(self.passages))
        if not known or k == 0:
            return np.arange(k), np.zeros(k, dtype=np.float32)
        add_up, best = _kernels()
        tokens = np.array(known, dtype=np.int32)
        scores = add_up(self._data, self._indices, self._starts, tokens, len(self.passages))
        if k > _FULL_SORT:
            order = np.argsort(-scores, kind="stable")[:k]
            return order, scores[order]
        return best(scores, k)  # type: ignore[no-any-return]

    def save(self, directory: str | Path, *, source: str = "") -> Path:
        """Write the index and its passages to a folder, which is created.

        Args:
            directory: The folder; its old index is replaced.
            source: Description of the origin of the corpus, which `load` can check.

        Returns:
            The folder.

        Raises:
            DataError: The folder contains other files, or cannot be written.
        """
        with write_stored(Path(directory), _BM25_KIND, _BM25_VERSION) as stored:
            stored.write_passages(self.passages)
            with stored.writing("vocabulary.json") as file:
                file.write(json.dumps(list(self._vocabulary)).encode())
            for name, array in (("data", self._data), ("indices", self._indices), ("starts", self._starts)):
                stored.write_array(f"{name}.npy", array)
            stored.meta = {**self.fingerprint(), "source": source}
        return Path(directory)

    @classmethod
    def load(cls, directory: str | Path, *, source: str | None = None) -> CorpusBM25:
        """Read an index written by `save`, without executing anything in it.

        Args:
            directory: The folder.
            source: Required description of the origin; None for any.

        Raises:
            SchemaError: The folder contains no index of this kind, version and source, or it is damaged.
        """
        stored = open_stored(Path(directory), _BM25_KIND, _BM25_VERSION)
        if source is not None and stored.meta.get("source") != source:
            raise SchemaError(
                f"{directory}: the index was made from {stored.meta.get('source')!r}, not {source!r}; build it again"
            )
        index = cls.__new__(cls)
        index._restore(stored)  # noqa: SLF001 - the class's own constructor
        return index

    def _restore(self, stored: Stored) -> None:
        try:
            vocabulary = json.loads(stored.path("vocabulary.json").read_text(encoding="utf-8"))
            self.k1, self.b = float(stored.meta["k1"]), float(stored.meta["b"])
            self.corpus_hash = str(stored.meta["corpus_hash"])
            self.passages = stored.read_passages()
            self._vocabulary = {word: i for i, word in enumerate(vocabulary)}
            self._data, self._indices, self._starts = (
                stored.read_array(f"{name}.npy") for name in ("data", "indices", "starts")
            )
            fits = self._fits() and stored.meta["tokens"] == TOKENS
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SchemaError(f"{stored.directory}: the index is damaged ({error!r}); build it again") from error
        if not fits:
            raise SchemaError(f"{stored.directory}: the files of the index do not match; build it again")

    def _fits(self) -> bool:
        """Return whether all indices are within bounds, which the compiled kernel does not check."""
        data, indices, starts = self._data, self._indices, self._starts
        return bool(
            data.dtype == np.float32
            and indices.dtype == np.int32
            and starts.dtype == np.int64
            and data.shape == indices.shape == (len(data),)
            and starts.shape == (len(self._vocabulary) + 1,)
            and starts[0] == 0
            and starts[-1] == len(data)
            and np.all(np.diff(starts) >= 0)
            and np.all((indices >= 0) & (indices < len(self.passages)))
            and np.all(np.isfinite(data))
        )


def _build(
    passages: Sequence[Passage], k1: float, b: float
) -> tuple[dict[str, int], _Floats32, _Ints, npt.NDArray[np.int64]]:
    """Return the vocabulary and, by token, the passages with it and their scores (a sparse matrix in CSC form)."""
    vocabulary: dict[str, int] = {}
    documents = [
        [vocabulary.setdefault(word, len(vocabulary)) for word in words(passage_text(passage.title, passage.text))]
        for passage in passages
    ]
    if not vocabulary:  # bm25s divides by the mean length
        return vocabulary, np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(1, np.int64)
    import bm25s

    index = bm25s.BM25(method="lucene", k1=k1, b=b)
    index.index((documents, vocabulary), create_empty_token=False, show_progress=False)
    scores = index.scores
    return vocabulary, scores["data"], scores["indices"].astype(np.int32), scores["indptr"].astype(np.int64)


@functools.cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the functions of a search: compiled ones with the extra `fast`, else NumPy's, which give the same.

    Compiling takes about half a second, once per process.
    """
    try:
        from numba import njit
    except ImportError:
        return _add_up_numpy, best_k
    return njit(nogil=True)(_add_up), njit(nogil=True)(_best_k)


def _add_up_numpy(
    data: _Floats32, indices: _Ints, starts: npt.NDArray[np.int64], tokens: _Ints, size: int
) -> _Floats32:
    """Add in the order of the compiled loop, so that sums in single precision, and so ties, are the same."""
    scores = np.zeros(size, dtype=np.float32)
    for token in tokens.tolist():
        held = slice(starts[token], starts[token + 1])
        scores[indices[held]] += data[held]  # a token lists each passage once
    return scores


def best_k(scores: _Floats32, k: int) -> tuple[npt.NDArray[np.int64], _Floats32]:
    """Return the first k of a stable descending sort without sorting the rest."""
    # Everything above the k-th largest score is in; of its ties only the first in the corpus's order fill the rest.
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > least)
    candidates = np.concatenate([above, np.flatnonzero(scores == least)[: k - len(above)]])
    where = candidates[np.argsort(-scores[candidates], kind="stable")]
    return where, scores[where]


def _add_up(data: _Floats32, indices: _Ints, starts: npt.NDArray[np.int64], tokens: _Ints, size: int) -> _Floats32:
    scores = np.zeros(size, dtype=np.float32)
    for token in tokens:
        for j in range(starts[token], starts[token + 1]):
            scores[indices[j]] += data[j]
    return scores


def _best_k(scores: _Floats32, k: int) -> tuple[npt.NDArray[np.int64], _Floats32]:
    """Return the first k of a stable descending sort, by insertion into a sorted list of length k."""
    best = np.empty(k, dtype=np.float32)
    where = np.empty(k, dtype=np.int64)
    length = 0
    for i in range(len(scores)):
        score = scores[i]
        if length < k:
            slot = length
            length += 1
        elif score > best[k - 1]:
            slot = k - 1
        else:
            continue
        while slot > 0 and best[slot - 1] < score:
            best[slot] = best[slot - 1]
            where[slot] = where[slot - 1]
            slot -= 1
        best[slot] = score
        where[slot] = i
    return where, best
