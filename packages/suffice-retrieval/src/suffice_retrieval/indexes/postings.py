"""Passages as an inverted index, built in bounded memory: which passages contain a term, and the score of each.

Passages are read once.  Their terms are counted and collected in blocks, each sorted by term and written to a folder of
its own.  At the end, terms are merged range by range: every block contributes its part of the range, in the order of the
blocks, so that the passages of a term stay sorted.  In memory are the vocabulary, some copies of one block, and 12 bytes
for each passage, whatever the size of the corpus.

The scores are those of bm25s, bit for bit: inverse document frequencies in 32 bits, the rest of the formula in 64, and
their product in 32.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.processes import spawning_pool
from suffice.loops.retrieval.tokens import passage_text, words
from suffice.policy.rounds import Passage
from suffice_retrieval.indexes.storage import passage_line

__all__ = ["CountedPassages", "Inverter", "MergedTerms", "counted_passages"]

_POSTINGS_AT_ONCE = 2**22
"""Postings that are sorted at a time, and merged at a time."""

_PASSAGES_AT_ONCE = 1000
"""Passages whose terms are counted at a time."""

_Ints32 = npt.NDArray[np.int32]
_Ints64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CountedPassages:
    """Terms of consecutive passages, counted.

    Attributes:
        lines: The passages as an index stores them.
        lengths: Tokens of each passage.
        words: The distinct tokens, in the order of their first occurrence.
        terms: Of each posting, the place in `words`; sorted by passage.
        rows: Of each posting, the place of the passage.
        counts: Of each posting, how often the passage contains the token.
    """

    lines: list[bytes]
    lengths: _Ints32
    words: list[str]
    terms: _Ints32
    rows: _Ints32
    counts: npt.NDArray[np.unsignedinteger]


def counted_passages(passages: Iterable[Passage], jobs: int = 1) -> Iterator[CountedPassages]:
    """Yield the terms of passages, counted, in their order; several processes give the same as one.

    Args:
        passages: The corpus, which is read as far as it is needed.
        jobs: Processes that count.
    """
    stream = iter(passages)
    chunks = iter(lambda: list(islice(stream, _PASSAGES_AT_ONCE)), [])
    yield from map(_count, islice(chunks, 1 if jobs == 1 else jobs))  # a small corpus needs no processes
    if jobs == 1:
        yield from map(_count, chunks)
        return
    following = list(islice(chunks, 1))
    if not following:
        return
    with spawning_pool(jobs) as pool:
        running: deque[Future[CountedPassages]] = deque()
        for chunk in (chunk for source in (following, chunks) for chunk in source):
            running.append(pool.submit(_count, chunk))
            if len(running) > 2 * jobs:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _count(passages: Sequence[Passage]) -> CountedPassages:
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    tokens, lengths = array("i"), array("i")
    for passage in passages:
        before = len(tokens)
        tokens.extend(map(numbers.__getitem__, words(passage_text(passage.title, passage.text))))
        lengths.append(len(tokens) - before)
    sizes = np.frombuffer(lengths, np.int32)
    rows = np.repeat(np.arange(len(passages), dtype=np.int64), sizes)
    keys, counts = np.unique(rows * len(numbers) + np.frombuffer(tokens, np.int32), return_counts=True)
    rows, terms = np.divmod(keys, max(len(numbers), 1))
    return CountedPassages(
        lines=[passage_line(passage) for passage in passages],
        lengths=sizes,
        words=list(numbers),
        terms=terms.astype(np.int32),
        rows=rows.astype(np.int32),
        counts=_narrow(counts),
    )


def _narrow(counts: npt.NDArray[np.integer]) -> npt.NDArray[np.unsignedinteger]:
    """Return counts in the fewest bytes that hold them."""
    return counts.astype(np.min_scalar_type(counts.max(initial=0)))


@dataclass(frozen=True, slots=True)
class _SortedPostings:
    """Postings sorted by term, then by passage.

    Attributes:
        terms: The terms in it, sorted.
        starts: Where the postings of each begin, and the end of the last.
        rows: The passages.
        counts: How often each contains the term.
    """

    terms: _Ints32
    starts: _Ints64
    rows: _Ints32
    counts: npt.NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, terms: _Ints32, rows: _Ints32, counts: npt.NDArray[np.unsignedinteger]) -> _SortedPostings:
        """Return postings, which are sorted by passage, as a block."""
        keys = np.sort(
            terms.astype(np.int64) << 32 | np.arange(len(terms))
        )  # distinct: the order is that of a stable sort
        order = keys & 0xFFFFFFFF
        keys >>= 32
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        return cls(keys[starts].astype(np.int32), np.append(starts, len(keys)), rows[order], counts[order])

    def save(self, folder: Path, number: int) -> None:
        """Write the arrays of a block to files."""
        for part in fields(self):
            np.save(_file_of(folder, number, part.name), getattr(self, part.name))

    @classmethod
    def load(cls, folder: Path, number: int) -> _SortedPostings:
        """Return a block whose arrays are in files, which are open as long as it is in use."""
        parts: dict[str, npt.NDArray[Any]] = {
            part.name: np.load(_file_of(folder, number, part.name), mmap_mode="r") for part in fields(cls)
        }
        return cls(**parts)


def _file_of(folder: Path, number: int, part: str) -> Path:
    return folder / f"{number}-{part}.npy"


@dataclass(frozen=True, slots=True)
class MergedTerms:
    """Consecutive terms of an index.

    Attributes:
        rows: The passages of each term, sorted.
        scores: Their scores.
        maxima: The largest score of each term.
    """

    rows: _Ints32
    scores: npt.NDArray[np.float32]
    maxima: npt.NDArray[np.float32]


class Inverter:
    """Turns passages into the postings of each term.

    Args:
        folder: Where blocks are kept until they are merged; None for memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._lengths = array("i")
        self._pending: list[tuple[_Ints32, _Ints32, npt.NDArray[np.unsignedinteger]]] = []
        self._blocks: list[_SortedPostings] = []
        self._n_saved = 0

    @property
    def vocabulary(self) -> dict[str, int]:
        """The number of each word, in the order of its first occurrence."""
        return self._numbers

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def n_tokens(self) -> int:
        """How many tokens the passages have."""
        return int(np.frombuffer(self._lengths, np.int32).sum(dtype=np.int64))

    def add(self, passages: CountedPassages) -> None:
        """Take the next passages."""
        numbers = np.fromiter(map(self._numbers.__getitem__, passages.words), np.int32, len(passages.words))
        self._pending.append((numbers[passages.terms], passages.rows + np.int32(len(self)), passages.counts))
        self._lengths.frombytes(passages.lengths.tobytes())
        if sum(len(terms) for terms, _, _ in self._pending) >= _POSTINGS_AT_ONCE:
            self._close_block()

    def _close_block(self) -> None:
        terms, rows, counts = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
        self._pending = []
        block = _SortedPostings.of(terms, rows, counts)
        if self._folder is None:
            self._blocks.append(block)
        else:
            block.save(self._folder, self._n_saved)
            self._n_saved += 1

    def _each_block(self) -> Iterator[_SortedPostings]:
        """Yield the blocks in their order, one after the other: systems allow a few hundred open files, and a map is one."""
        if self._folder is None:
            yield from self._blocks
        else:
            yield from (_SortedPostings.load(self._folder, number) for number in range(self._n_saved))

    def starts(self) -> _Ints64:
        """Return where the postings of each term begin, and the end of the last; no passages can be added after it."""
        if self._pending:
            self._close_block()
        sizes = np.zeros(len(self._numbers) + 1, dtype=np.int64)
        for block in self._each_block():
            sizes[block.terms + 1] += np.diff(block.starts)
        return np.cumsum(sizes, out=sizes)

    def merged(self, starts: _Ints64, k1: float, b: float) -> Iterator[MergedTerms]:
        """Yield the postings of all terms with their scores, in ranges of terms.

        Args:
            starts: See `starts`.
            k1: Saturation of the term frequency.
            b: Share of length normalisation.
        """
        if len(starts) == 1:
            return
        with np.errstate(over="ignore"):  # of a huge k1: the scores are 0
            lengths = np.frombuffer(self._lengths, np.int32)
            # The part of the denominator that depends only on the passage.
            norms = k1 * ((1 - b) + b * lengths / (self.n_tokens / len(lengths)))
        idf = _idf(np.diff(starts), len(lengths))
        low = 0
        while low < len(starts) - 1:
            high = max(low + 1, int(np.searchsorted(starts, starts[low] + _POSTINGS_AT_ONCE, side="right")) - 1)
            bounds = starts[low : high + 1] - starts[low]
            rows, counts = self._gathered(low, high, bounds)
            values = counts.astype(np.float64)
            values /= norms[rows] + values
            values *= np.repeat(idf[low:high], np.diff(bounds))
            scores = values.astype(np.float32)
            yield MergedTerms(rows, scores, np.maximum.reduceat(scores, bounds[:-1]))
            low = high

    def _gathered(self, low: int, high: int, bounds: _Ints64) -> tuple[_Ints32, npt.NDArray[np.float32]]:
        """Return the passages of terms from `low` to `high`, and how often each contains its term."""
        rows = np.empty(int(bounds[-1]), dtype=np.int32)
        counts = np.empty(int(bounds[-1]), dtype=np.float32)
        heads = bounds[:-1].copy()
        for block in self._each_block():
            first, last = np.searchsorted(block.terms, [low, high])
            if first == last:
                continue
            terms, starts = block.terms[first:last] - low, block.starts[first : last + 1]
            part, sizes = slice(starts[0], starts[-1]), np.diff(starts)
            places = np.arange(len(block.rows[part])) + np.repeat(heads[terms] - (starts[:-1] - starts[0]), sizes)
            rows[places], counts[places] = block.rows[part], block.counts[part]
            heads[terms] += sizes
        return rows, counts


def _idf(frequencies: _Ints64, n_passages: int) -> npt.NDArray[np.float32]:
    """Return the inverse document frequency of each term, computed as bm25s does."""
    distinct, places = np.unique(frequencies, return_inverse=True)
    values = [math.log(1 + (n_passages - df + 0.5) / (df + 0.5)) for df in distinct.tolist()]
    return np.array(values, dtype=np.float32)[places]
