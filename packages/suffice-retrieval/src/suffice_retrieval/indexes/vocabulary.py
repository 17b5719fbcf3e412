"""The words of an index and their numbers, found in a sorted file without reading all of it."""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

import numpy as np
import numpy.typing as npt

__all__ = ["WordList"]

_STEP = 64
"""Lines between two words that are kept in memory."""


class WordList:
    r"""Words and their numbers.

    >>> words = WordList.of({"tempest": 0, "film": 1})
    >>> words.text, words.number("film"), words.number("opera")
    (b'film\ntempest\n', 1, None)

    Args:
        text: The words, sorted, one on each line.
        starts: Where every 64th line begins, and the end of the text.
        numbers: The number of each word.
    """

    def __init__(self, text: bytes | mmap.mmap, starts: npt.NDArray[np.int64], numbers: npt.NDArray[np.int32]) -> None:
        self.text, self.starts, self.numbers = text, starts, numbers
        self._places = starts.tolist()
        self._heads = [text[start : text.find(b"\n", start)] for start in self._places[:-1]]

    @classmethod
    def of(cls, numbers: Mapping[str, int]) -> WordList:
        """Return words, which contain no line ends, with their numbers."""
        words = sorted(numbers)  # in the order of code points, which is that of their bytes in UTF-8
        lines = [word.encode() + b"\n" for word in words]
        ends = np.fromiter(accumulate(map(len, lines), initial=0), np.int64, len(lines) + 1)
        starts = np.append(ends[:-1:_STEP], ends[-1])
        return cls(b"".join(lines), starts, np.fromiter((numbers[word] for word in words), np.int32, len(words)))

    def __len__(self) -> int:
        return len(self.numbers)

    def number(self, word: str) -> int | None:
        """Return the number of a word; None if it is not there."""
        key = word.encode()
        block = bisect_right(self._heads, key) - 1
        if block < 0:
            return None
        lines = self.text[self._places[block] : self._places[block + 1]].split(b"\n")
        if key not in lines:
            return None
        return int(self.numbers[block * _STEP + lines.index(key)])
