"""BM25 over a corpus: an index of bm25s or tantivy, stored with its passages; opening an index reads only a part of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from suffice.errors import SchemaError
from suffice.loops.retrieval.bm25 import K1, TOKENS, B, bm25_fingerprint, check_parameters, passage_text, words
from suffice.loops.retrieval.retriever import ScoreKind, checked_k
from suffice.policy.rounds import Passage
from suffice_retrieval.indexes.engines import (
    Bm25sEngine,
    Engine,
    EngineName,
    TantivyEngine,
    choose_engine,
    library_of,
)
from suffice_retrieval.indexes.storage import Stored, open_stored, passage_line, write_stored

_BM25_KIND = "suffice-bm25-index"
_BM25_VERSION = 3
_PROGRESS = 1_000
"""Number of passages between two reports of progress."""


def passages_hash(passages: Iterable[Passage]) -> str:
    """Return 16 hexadecimal digits that identify passages (id, title, text) in their order."""
    digest = hashlib.sha256()
    for passage in passages:
        digest.update(passage_line(passage))
    return digest.hexdigest()[:16]


class CorpusBM25:
    """BM25 search over the passages of a corpus, with the same words and formula as `PoolBM25`, in 32 bits.

    The constructor indexes passages in memory with bm25s; `build` writes the index of a corpus of any size to a folder.

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

    Raises:
        DataError: `k1` or `b` is outside its range.
        MissingExtraError: bm25s is not installed (extra `corpus`).
    """

    name = "bm25-corpus"
    score_kind: ScoreKind = "bm25"
    has_corpus = True
    is_pinned = True

    def __init__(self, passages: Iterable[Passage], *, k1: float = K1, b: float = B) -> None:
        check_parameters(k1, b)
        self.engine: EngineName = "bm25s"
        self.library = library_of("bm25s")
        self.k1 = k1
        self.b = b
        self.passages: Sequence[Passage] = tuple(passages)
        self.corpus_hash = passages_hash(self.passages)
        texts = _Words(self.passages)
        index = Bm25sEngine.build(texts, k1, b)
        self._index: Engine = index
        self.n_tokens = texts.n_tokens
        self.n_terms: int | None = index.n_terms

    def __len__(self) -> int:
        return len(self.passages)

    def fingerprint(self) -> dict[str, Any]:
        """Return the variant, its parameters, the tokenisation and the hash of the corpus."""
        own = {"passages": len(self.passages), "corpus_hash": self.corpus_hash}
        return _method(self.engine, self.k1, self.b) | own

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:  # noqa: ARG002 - a corpus retriever ignores pools
        """Return passages of the corpus, best first; see `Retriever.rank`.

        A passage without any token of the question scores 0.

        Raises:
            DataError: `k` is below 1.
        """
        positions, scores = self.search(question, checked_k(k, len(self.passages)))
        ranked = []
        for i, score in zip(positions.tolist(), scores.tolist(), strict=True):
            passage = self.passages[i]  # built directly, since dataclasses.replace would take as long as the search
            ranked.append(Passage(passage_id=passage.passage_id, title=passage.title, text=passage.text, score=score))
        return ranked

    def search(self, question: str, k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return positions in the corpus and scores of the `k` best passages.

        Args:
            question: Any text.
            k: Largest number of passages, at least 0.

        Returns:
            Positions and scores, each of shape ``(min(k, len(self)),)``; scores in [0, inf), descending, ties in the order
            of the corpus.

        Raises:
            SchemaError: The files of the index are damaged.
        """
        k = min(k, len(self.passages))
        if k == 0:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        positions, scores = self._index.search(words(question), k)
        if not 0 <= positions.min() <= positions.max() < len(self.passages):
            raise SchemaError("the index is damaged (it names a passage that does not exist); build it again")
        return positions, scores

    @classmethod
    def build(
        cls,
        directory: str | Path,
        passages: Iterable[Passage],
        *,
        engine: EngineName | None = None,
        k1: float | None = None,
        b: float | None = None,
        source: str = "",
        on_progress: Callable[[int, int | None], None] | None = None,
    ) -> CorpusBM25:
        """Write the index of a corpus of any size to a folder, and return it as `load` does.

        Passages are read once and stored in the folder, and then indexed from there.  An old index in the folder stays
        valid until the new index is complete, so that an interruption changes nothing.

        Args:
            directory: The folder, created if missing; an old index in it is replaced.
            passages: The corpus, in the order that breaks ties.
            engine: The library that builds and searches; None chooses by the number of passages, see `choose_engine`.
            k1: Saturation of the term frequency, at least 0; None for the engine's default.
            b: Share of length normalisation, in [0, 1]; None for the engine's default.
            source: Description of the origin of the corpus, which `load` can check.
            on_progress: Called with two numbers. While passages are stored, they are the number of passages stored so
                far, and None. Then they are the number of passages indexed so far, and the number of all passages.

        Raises:
            DataError: The folder contains other files or cannot be written, the corpus cannot be read, or the engine
                does not have the parameters.
            MissingExtraError: The library is not installed (extra `corpus`).
        """
        check_parameters(K1 if k1 is None else k1, B if b is None else b)
        choose_engine(0, engine, k1, b)  # raises for bad parameters before hours of reading
        with write_stored(Path(directory), _BM25_KIND, _BM25_VERSION) as stored:
            corpus_hash = stored.stream_passages(_Counted(passages, on_progress, None))
            held = stored.passage_file()
            chosen, k1, b = choose_engine(len(held), engine, k1, b)
            texts = _Words(_Counted(held, on_progress, len(held)))
            n_terms = None
            if chosen == "bm25s":
                index = Bm25sEngine.build(texts, k1, b)
                index.save(stored.directory / chosen)
                n_terms = index.n_terms
            else:
                TantivyEngine.build(texts, stored.directory / chosen)
            stored.adopt(chosen)
            stored.meta = {
                **_method(chosen, k1, b),
                "library": library_of(chosen),
                "passages": len(held),
                "corpus_hash": corpus_hash,
                "n_tokens": texts.n_tokens,
                "n_terms": n_terms,
                "source": source,
            }
        return cls.load(directory)

    @classmethod
    def load(cls, directory: str | Path, *, source: str | None = None) -> CorpusBM25:
        """Open an index written by `build`, without executing anything in it.

        Passages and postings stay on disk, and are read when needed.

        Args:
            directory: The folder.
            source: Description of the corpus's origin, which must be the same as in the index; None to accept any
                origin.

        Raises:
            SchemaError: The folder contains no index of this kind, version and source, or the index was built by
                another release of its library, or is damaged.
            MissingExtraError: The library that built the index is not installed (extra `corpus`).
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
        meta, directory = stored.meta, stored.directory
        try:
            self.k1, self.b = float(meta["k1"]), float(meta["b"])
            self.corpus_hash, self.library = str(meta["corpus_hash"]), str(meta["library"])
            self.engine, self.n_tokens = _engine_of(self.library), int(meta["n_tokens"])
            self.passages = stored.passage_file()
            fits = meta["tokens"] == TOKENS and meta["passages"] == len(self.passages)
            self.n_terms = int(meta["n_terms"]) if self.engine == "bm25s" else None
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(f"{directory}: the index is damaged ({error!r}); build it again") from error
        if not fits:
            raise SchemaError(f"{directory}: the files of the index do not match; build it again")
        if self.library != library_of(self.engine):
            raise SchemaError(
                f"{directory}: the index was built by {self.library}, and {library_of(self.engine)} is installed; "
                f"`suffice index {directory} -o NEW_FOLDER` builds it again from the passages in it"
            )
        if self.n_terms is None:
            self._index = TantivyEngine.load(directory / self.engine, len(self.passages))
        else:
            mapped = any(map(stored.is_large, stored.used))
            self._index = Bm25sEngine.load(directory / self.engine, len(self.passages), self.n_terms, mapped=mapped)


class _Words:
    """Iterates over passages, yields the words of each, and counts all words."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._passages, self.n_tokens = passages, 0

    def __iter__(self) -> Iterator[list[str]]:
        for passage in self._passages:
            tokens = words(passage_text(passage.title, passage.text))
            self.n_tokens += len(tokens)
            yield tokens


class _Counted:
    """Iterates over passages, and reports how many have been read so far."""

    def __init__(
        self, passages: Iterable[Passage], on_progress: Callable[[int, int | None], None] | None, n: int | None
    ) -> None:
        self._passages, self._report, self._n = passages, on_progress, n

    def __iter__(self) -> Iterator[Passage]:
        done = 0
        for done, passage in enumerate(self._passages, start=1):
            yield passage
            if self._report is not None and done % _PROGRESS == 0:
                self._report(done, self._n)
        if self._report is not None and done % _PROGRESS:
            self._report(done, self._n)


def _method(engine: EngineName, k1: float, b: float) -> dict[str, Any]:
    """Return the settings that determine a ranking of given passages; for bm25s they equal those of `PoolBM25`."""
    fingerprint = bm25_fingerprint(CorpusBM25.name, k1, b)
    return fingerprint if engine == "bm25s" else fingerprint | {"variant": engine}


def _engine_of(library: str) -> EngineName:
    """Return the engine from a text with its library and release, such as `bm25s 0.3`.

    Raises:
        ValueError: The library is unknown.
    """
    for name in get_args(EngineName):
        if name == library.partition(" ")[0]:
            engine: EngineName = name
            return engine
    raise ValueError(f"unknown library {library!r}")
