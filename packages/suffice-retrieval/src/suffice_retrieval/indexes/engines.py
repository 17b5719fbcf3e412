"""Search a corpus by BM25 with one of two libraries: bm25s, with arrays of scores, or tantivy, with an index on disk.

Both get their words from `suffice.loops.retrieval.bm25`, as `PoolBM25` does.  Both return ties in the order of the
corpus: this module ensures that, since bm25s would choose among ties at random, and tantivy by the segment that
contains a passage.

bm25s has the formula of `PoolBM25` with any `k1` and `b`.  It stores a score for each word of each passage, and builds
the index in memory (3.5 GB for a million passages).  For a question it adds up all scores, so that its time grows with
the corpus. tantivy builds in bounded memory and skips passages that cannot be among the best.  Its `k1` and `b` are
constants, its scores are larger by the factor k1 + 1, and it rounds lengths above 40 words to fit into a byte.  The
number of passages above which tantivy is the default follows from measurements in `docs/results/index-sizes.md`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, MissingExtraError, SchemaError
from suffice.loops.retrieval.bm25 import K1, B

EngineName = Literal["bm25s", "tantivy"]
"""A library that builds and searches an index."""

IN_MEMORY = 500_000
"""Up to this many passages, bm25s is the default engine."""

TANTIVY_K1 = 1.2
"""tantivy's saturation of the term frequency, a constant of the library."""

TANTIVY_B = 0.75
"""tantivy's share of length normalisation, a constant of the library."""

_HEAP = 256 * 2**20
"""Bytes in which tantivy collects postings before it writes a segment."""

Ranking = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]
"""Positions in the corpus and their scores, each of shape ``(k,)``, best first, ties in the order of the corpus."""


class Engine(Protocol):
    """Protocol of an index that is open for searching."""

    def search(self, tokens: Sequence[str], k: int) -> Ranking:
        """Return the `k` best passages; a passage without any of the tokens scores 0.

        Args:
            tokens: The words of a question; a repeated word counts each time that it occurs.
            k: Number of passages, between 1 and the size of the corpus.

        Raises:
            SchemaError: The index is damaged.
        """
        ...


def library_of(engine: EngineName) -> str:
    """Return an engine's library with its release series, such as `bm25s 0.3`.

    An index must be searched by the release series that built it.

    Raises:
        MissingExtraError: The library is not installed.
    """
    try:
        return f"{engine} {'.'.join(version(engine).split('.')[:2])}"
    except PackageNotFoundError as error:
        raise _missing(engine) from error


def choose_engine(
    n: int, engine: EngineName | None, k1: float | None, b: float | None
) -> tuple[EngineName, float, float]:
    """Choose the engine and parameters for indexing a corpus.

    >>> choose_engine(1_000, None, None, None), choose_engine(1_000_000, None, None, None)
    (('bm25s', 1.5, 0.75), ('tantivy', 1.2, 0.75))

    Args:
        n: Number of passages.
        engine: The requested engine. None chooses bm25s for up to `IN_MEMORY` passages, and also if `k1` or `b` has a
            value that tantivy does not have; in all other cases None chooses tantivy.
        k1: The requested `k1`; None for the engine's default.
        b: The requested `b`; None for the engine's default.

    Raises:
        DataError: There is no such engine, or tantivy was requested with parameters that it does not have.
    """
    if engine is not None and engine not in get_args(EngineName):
        raise DataError(f"engine is {engine!r}; allowed: {', '.join(get_args(EngineName))}")
    is_fixed = k1 in {None, TANTIVY_K1} and b in {None, TANTIVY_B}
    if engine is None:
        engine = "tantivy" if n > IN_MEMORY and is_fixed else "bm25s"
    if engine == "bm25s":
        return engine, K1 if k1 is None else k1, B if b is None else b
    if not is_fixed:
        raise DataError(
            f"k1 is {TANTIVY_K1 if k1 is None else k1!r} and b is {TANTIVY_B if b is None else b!r}, but tantivy always uses "
            f"k1 = {TANTIVY_K1} and b = {TANTIVY_B}: leave them out, or choose the engine bm25s"
        )
    return engine, TANTIVY_K1, TANTIVY_B


class Bm25sEngine:
    """An index of bm25s (`method="lucene"`), in memory or mapped from its files.

    Args:
        index: The `bm25s.BM25`; None if no passage has a word, which bm25s cannot index.
        n_passages: Passages of the corpus.
    """

    name: EngineName = "bm25s"

    def __init__(self, index: Any, n_passages: int) -> None:
        self._index, self._n = index, n_passages

    @classmethod
    def build(cls, texts: Iterable[Sequence[str]], k1: float, b: float) -> Bm25sEngine:
        """Index the words of passages, in the order of the corpus.

        Raises:
            MissingExtraError: bm25s is not installed.
        """
        bm25s = _bm25s()
        numbers: dict[str, int] = {}
        # Use arrays instead of lists of words: a tenth of the memory, with the same scores.
        rows = [array("i", [numbers.setdefault(word, len(numbers)) for word in words]) for words in texts]
        if not numbers:
            return cls(None, len(rows))
        index = bm25s.BM25(k1=k1, b=b, method="lucene", backend="numpy")
        index.index((rows, numbers), create_empty_token=False, show_progress=False)
        return cls(index, len(rows))

    @property
    def n_terms(self) -> int:
        """Number of distinct words of the passages."""
        return 0 if self._index is None else len(self._index.vocab_dict)

    def save(self, folder: Path) -> None:
        """Write the files of bm25s to a folder, which is created."""
        folder.mkdir()
        if self._index is not None:
            self._index.save(folder, show_progress=False)

    @classmethod
    def load(cls, folder: Path, n_passages: int, n_terms: int, *, mapped: bool) -> Bm25sEngine:
        """Open an index written by `save`.

        Args:
            folder: Its folder.
            n_passages: Passages of the corpus.
            n_terms: Distinct words of the corpus.
            mapped: True to leave the arrays on disk; the process crashes if such a file is truncated later.

        Raises:
            SchemaError: The files are damaged, or belong to another corpus.
            MissingExtraError: bm25s is not installed.
        """
        bm25s = _bm25s()
        if n_terms == 0:
            return cls(None, n_passages)
        try:
            index = bm25s.BM25.load(folder, mmap=mapped, allow_pickle=False, show_progress=False, backend="numpy")
            # Use plain views, since slices of a `numpy.memmap` are much slower.
            index.scores = {name: _plain(part) for name, part in index.scores.items()}
            starts = index.scores["indptr"]
            fits = index.scores["num_docs"] == n_passages and len(index.vocab_dict) == n_terms == len(starts) - 1
            fits = fits and starts[-1] == len(index.scores["data"]) == len(index.scores["indices"])
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise SchemaError(f"{folder}: the index is damaged ({error!r}); build it again") from error
        if not fits:
            raise SchemaError(f"{folder}: the files of the index do not match; build it again")
        return cls(index, n_passages)

    def search(self, tokens: Sequence[str], k: int) -> Ranking:
        """Return the `k` best passages; see `Engine.search`."""
        numbers = [] if self._index is None else self._index.get_tokens_ids(tokens)
        if not numbers:
            return _first(k)
        try:
            return best_k(self._index.get_scores_from_ids(numbers), k)
        except (IndexError, ValueError) as error:
            raise SchemaError(f"the index is damaged ({error}); build it again") from error


class TantivyEngine:
    """An index of tantivy, whose files are mapped into memory.

    Args:
        index: The `tantivy.Index`.
        n_passages: Passages of the corpus.
    """

    name: EngineName = "tantivy"

    def __init__(self, index: Any, n_passages: int) -> None:
        self._schema, self._searcher, self._n = index.schema, index.searcher(), n_passages

    @staticmethod
    def build(texts: Iterable[Sequence[str]], folder: Path) -> None:
        """Index the words of passages, in the order of the corpus; write the index to a folder, which is created.

        Raises:
            MissingExtraError: tantivy is not installed.
        """
        tantivy = _tantivy()
        folder.mkdir()
        schema = tantivy.SchemaBuilder()
        # Join the words with blanks: tantivy splits at blanks, which gives the same words.
        schema.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
        schema.add_integer_field("position", fast=True)
        index = tantivy.Index(schema.build(), path=str(folder))
        writer = index.writer(heap_size=_HEAP, num_threads=1)  # one thread, so that segments are the same every time
        for position, words in enumerate(texts):
            writer.add_document(tantivy.Document(words=" ".join(words), position=position))
        writer.commit()
        writer.wait_merging_threads()

    @classmethod
    def load(cls, folder: Path, n_passages: int) -> TantivyEngine:
        """Open an index written by `build`.

        Raises:
            SchemaError: The files are damaged, or belong to another corpus.
            MissingExtraError: tantivy is not installed.
        """
        tantivy = _tantivy()
        try:
            place, links = folder, None
            if not os.access(folder, os.W_OK):
                # Opening needs a lock file beside the index, even on a read-only disk.
                place = links = Path(tempfile.mkdtemp(prefix="suffice-"))
                for file in (item for item in folder.iterdir() if item.suffix != ".lock"):
                    (links / file.name).symlink_to(file.resolve())
            engine = cls(tantivy.Index.open(str(place)), n_passages)
            if links is not None:
                weakref.finalize(engine, shutil.rmtree, links, ignore_errors=True)
            n_indexed = engine._searcher.num_docs
        except (OSError, ValueError) as error:
            raise SchemaError(f"{folder}: the index is damaged ({error}); build it again") from error
        if n_indexed != n_passages:
            raise SchemaError(f"{folder}: the files of the index do not match; build it again")
        return engine

    def search(self, tokens: Sequence[str], k: int) -> Ranking:
        """Return the `k` best passages; see `Engine.search`."""
        tantivy = _tantivy()
        if not tokens:
            return _first(k)
        terms = [tantivy.Query.term_query(self._schema, "words", token, "freq") for token in tokens]
        query = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        try:
            positions, scores = self._best(query, k)
        except (OSError, ValueError) as error:
            raise SchemaError(f"the index is damaged ({error}); build it again") from error
        if len(positions) < k:  # fill up with the corpus's first passages without any of the words
            others = np.setdiff1d(np.arange(min(self._n, k + len(positions))), positions)[: k - len(positions)]
            positions = np.concatenate([positions, others])
            scores = np.concatenate([scores, np.zeros(len(others), dtype=np.float32)])
        return positions, scores

    def _best(self, query: Any, k: int) -> Ranking:
        """Return the best passages with at least one of the words, up to `k`; ties are in the order of the corpus."""
        limit = k + 1
        while True:
            hits = self._searcher.search(query, min(limit, self._n), count=False).hits
            if len(hits) < min(limit, self._n) or limit >= self._n or hits[-1][0] < hits[k - 1][0]:
                break
            limit *= 4
        scores = np.array([score for score, _ in hits], dtype=np.float32)
        found = self._searcher.fast_field_values("position", [address for _, address in hits])
        positions = np.array(found, dtype=np.int64)
        order = np.lexsort((positions, -scores))[:k]
        return positions[order], scores[order]


def best_k(scores: npt.NDArray[np.float32], k: int) -> Ranking:
    """Return the positions of the `k` best scores, best first; ties keep the order of the corpus.

    The result is that of a stable descending sort, but only the `k` best are sorted.

    Args:
        scores: A score for each passage, shape ``(n,)``.
        k: Number of passages, between 1 and n.
    """
    # Take every score above the k-th largest, then its ties in the order of the corpus until there are k.
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    above = np.flatnonzero(scores > least)
    candidates = np.concatenate([above, np.flatnonzero(scores == least)[: k - len(above)]])
    where = candidates[np.argsort(-scores[candidates], kind="stable")]
    return where, scores[where]


def _first(k: int) -> Ranking:
    """Return the ranking for a question without any known word: the first `k` passages of the corpus."""
    return np.arange(k), np.zeros(k, dtype=np.float32)


def _plain(part: Any) -> Any:
    return part.view(np.ndarray) if isinstance(part, np.memmap) else part


def _missing(engine: EngineName) -> MissingExtraError:
    return MissingExtraError(f"searching a corpus by BM25 ({engine})", distribution="suffice-retrieval")


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise _missing("bm25s") from error
    return bm25s


def _tantivy() -> Any:
    try:
        import tantivy
    except ImportError as error:
        raise _missing("tantivy") from error
    return tantivy
