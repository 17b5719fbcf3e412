"""BM25 over a corpus of any size: built in a stream, kept on disk, searched without reading all of it.

An index contains the score of each term in each passage.  A search adds up those of a question's terms, in single
precision, and returns the best k; ties keep the order of the corpus, so that recordings can be repeated.  The scores are
those of bm25s, bit for bit (tested).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import SchemaError
from suffice.loops.retrieval.base import ScoreKind, checked_k
from suffice.loops.retrieval.bm25 import K1, B, bm25_fingerprint, check_parameters
from suffice.loops.retrieval.tokens import TOKENS, words
from suffice.policy.rounds import Passage
from suffice_retrieval.indexes.maxscore import TermLists, added_up, best_k, best_passages
from suffice_retrieval.indexes.postings import Inverter, counted_passages
from suffice_retrieval.indexes.storage import Stored, mapped_bytes, open_stored, passage_line, write_stored
from suffice_retrieval.indexes.vocabulary import WordList

__all__ = ["CorpusBM25", "best_k", "passages_hash"]

_BM25_KIND = "suffice-bm25-index"
_BM25_VERSION = 2
_SMALL = 2**15
"""Passages up to which adding up everything is fastest."""

_FULL_SORT = 128
"""Above this k a stable sort of all scores is faster than a search for the k-th best."""

_CHECKED = 2**22
"""Postings up to which all are examined when an index is opened; a search trusts none of a larger index."""


def passages_hash(passages: Iterable[Passage]) -> str:
    """Return 16 hexadecimal digits that identify passages (id, title, text) in their order."""
    digest = hashlib.sha256()
    for passage in passages:
        digest.update(passage_line(passage))
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
    score_kind: ScoreKind = "bm25"
    has_corpus = True
    is_pinned = True

    def __init__(self, passages: Iterable[Passage], *, k1: float = K1, b: float = B) -> None:
        check_parameters(k1, b)
        self.k1 = k1
        self.b = b
        self.passages: Sequence[Passage] = tuple(passages)
        self.corpus_hash = passages_hash(self.passages)
        inverter = Inverter()
        for chunk in counted_passages(self.passages):
            inverter.add(chunk)
        starts = inverter.starts()
        merged = list(inverter.merged(starts, k1, b))
        floats, ints = [np.empty(0, np.float32)], [np.empty(0, np.int32)]
        self._words = WordList.of(inverter.vocabulary)
        self._lists = TermLists(
            data=np.concatenate([*floats, *(part.scores for part in merged)]),
            indices=np.concatenate([*ints, *(part.rows for part in merged)]),
            starts=starts,
            maxima=np.concatenate([*floats, *(part.maxima for part in merged)]),
            size=len(self.passages),
        )
        self.n_tokens = inverter.n_tokens

    def __len__(self) -> int:
        return len(self.passages)

    @property
    def n_terms(self) -> int:
        """How many distinct words the passages have."""
        return len(self._words)

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

    def warm_up(self) -> None:
        """Compile the search of a large corpus, for which seconds of the first questions would be charged otherwise."""
        if self.n_terms and len(self.passages) > _SMALL:
            with suppress(IndexError):  # of a damaged index: a search says so
                best_passages(self._lists, [0], 1)

    def search(self, question: str, k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return positions in the corpus and scores of the `k` best passages.

        Args:
            question: Any text.
            k: Largest number of passages, at least 0.

        Returns:
            Positions and scores, each of shape ``(min(k, len(self)),)``; scores in [0, inf), descending.
        """
        numbers = map(self._words.number, words(question))
        terms = [number for number in numbers if number is not None]
        k = min(k, len(self.passages))
        if not terms or k == 0:
            return np.arange(k), np.zeros(k, dtype=np.float32)
        try:
            if len(self.passages) > max(_SMALL, _FULL_SORT * k):
                return best_passages(self._lists, terms, k)
            scores = added_up(self._lists, terms)
        except IndexError as error:
            raise SchemaError(f"the index is damaged ({error}); build it again") from error
        if k > _FULL_SORT:
            order = np.argsort(-scores, kind="stable")[:k]
            return order, scores[order]
        return best_k(scores, k)

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
            stored.stream_passages(self.passages)
            _write_words(stored, self._words)
            stored.write_array("starts.npy", self._lists.starts)
            for name, values in (
                ("data", self._lists.data),
                ("indices", self._lists.indices),
                ("maxima", self._lists.maxima),
            ):
                stored.write_array(f"{name}.npy", values)
            stored.meta = {**self.fingerprint(), "n_tokens": self.n_tokens, "source": source}
        return Path(directory)

    @classmethod
    def build(
        cls,
        directory: str | Path,
        passages: Iterable[Passage],
        *,
        k1: float = K1,
        b: float = B,
        source: str = "",
        jobs: int = 1,
        on_progress: Callable[[int, int | None], None] | None = None,
    ) -> CorpusBM25:
        """Write the index of a corpus of any size to a folder, and return it as `load` does.

        Passages are read once.  In memory are the vocabulary, a block of postings, and 20 bytes for each passage.  After an
        interruption the index is built from the beginning: until it is complete, there is none in the folder.

        Args:
            directory: The folder; its old index is replaced.
            passages: The corpus, in the order that breaks ties.
            k1: See the class.
            b: See the class.
            source: Description of the origin of the corpus, which `load` can check.
            jobs: Processes that read the words of passages; the index is the same with any number.
            on_progress: Called with the number of passages so far, and None.

        Raises:
            DataError: The folder contains other files, or cannot be written; or the corpus cannot be read.
        """
        check_parameters(k1, b)
        with write_stored(Path(directory), _BM25_KIND, _BM25_VERSION) as stored, stored.spilling() as folder:
            inverter = Inverter(folder)

            def lines() -> Iterator[list[bytes]]:
                for chunk in counted_passages(passages, jobs):
                    inverter.add(chunk)
                    yield chunk.lines
                    if on_progress is not None:
                        on_progress(len(inverter), None)

            corpus_hash = stored.stream_lines(lines())
            starts = inverter.starts()
            _write_words(stored, WordList.of(inverter.vocabulary))
            stored.write_array("starts.npy", starts)
            with (
                stored.writing_array("data.npy", np.float32, int(starts[-1])) as write_data,
                stored.writing_array("indices.npy", np.int32, int(starts[-1])) as write_indices,
                stored.writing_array("maxima.npy", np.float32, len(starts) - 1) as write_maxima,
            ):
                for part in inverter.merged(starts, k1, b):
                    write_data(part.scores)
                    write_indices(part.rows)
                    write_maxima(part.maxima)
            stored.meta = {
                **bm25_fingerprint(cls.name, k1, b),
                "passages": len(inverter),
                "corpus_hash": corpus_hash,
                "n_tokens": inverter.n_tokens,
                "source": source,
            }
        return cls.load(directory)

    @classmethod
    def load(cls, directory: str | Path, *, source: str | None = None) -> CorpusBM25:
        """Open an index written by `save` or `build`, without executing anything in it.

        Passages and postings stay on disk, and are read where they are needed.

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
            self.k1, self.b = float(stored.meta["k1"]), float(stored.meta["b"])
            self.corpus_hash = str(stored.meta["corpus_hash"])
            self.n_tokens = int(stored.meta["n_tokens"])
            self.passages = stored.passage_file()
            data, indices, starts, maxima, places, numbers = (
                np.asarray(stored.read_array(f"{name}.npy", mapped=stored.is_large(f"{name}.npy")))
                for name in ("data", "indices", "starts", "maxima", "word-starts", "word-terms")
            )
            self._words = WordList(mapped_bytes(stored.path("words.bin")), places, numbers)
            self._lists = TermLists(data, indices, starts, maxima, len(self.passages))
            fits = self._fits() and stored.meta["tokens"] == TOKENS and stored.meta["passages"] == len(self.passages)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SchemaError(f"{stored.directory}: the index is damaged ({error!r}); build it again") from error
        if not fits:
            raise SchemaError(f"{stored.directory}: the files of the index do not match; build it again")

    def _fits(self) -> bool:
        """Return whether the arrays belong together, and whether the places within them are within bounds."""
        data, indices, starts, maxima = (getattr(self._lists, name) for name in ("data", "indices", "starts", "maxima"))
        numbers = self._words.numbers
        whole = len(indices) <= _CHECKED
        return bool(
            data.dtype == maxima.dtype == np.float32
            and indices.dtype == numbers.dtype == np.int32
            and starts.dtype == np.int64
            and data.shape == indices.shape == (len(data),)
            and maxima.shape == numbers.shape == (len(numbers),)
            and starts.shape == (len(numbers) + 1,)
            and starts[0] == 0
            and starts[-1] == len(data)
            and np.all(np.diff(starts) > 0)
            and np.all((numbers >= 0) & (numbers < len(numbers)))
            and (not whole or (np.all((indices >= 0) & (indices < self._lists.size)) and np.all(np.isfinite(data))))
        )


def _write_words(stored: Stored, listed: WordList) -> None:
    with stored.writing("words.bin") as file:
        file.write(listed.text)
    stored.write_array("word-starts.npy", listed.starts)
    stored.write_array("word-terms.npy", listed.numbers)
