"""Hash whole columns of texts, without a Python object for each text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_WORD = 8
_BITS = 8
_ONES = np.uint64(2**64 - 1)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def text_bytes(texts: pa.Array | pa.ChunkedArray) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return the offsets of texts in their joined bytes, shape ``(n + 1,)``, and these bytes; copy only if necessary.

    >>> ends, content = text_bytes(pa.array(["Oslo", "Lima"]))
    >>> content[ends[1] : ends[2]].tobytes()
    b'Lima'
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.chunk(0) if texts.num_chunks == 1 else texts.combine_chunks()
    texts = texts if pa.types.is_string(texts.type) else texts.cast(pa.large_string())
    _, offsets, data = texts.buffers()
    if offsets is None:  # no texts
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    kind = np.int32 if pa.types.is_string(texts.type) else np.int64
    ends = np.frombuffer(offsets, dtype=kind)[texts.offset : texts.offset + len(texts) + 1]
    return ends, np.frombuffer(data or b"", dtype=np.uint8)


def text_keys(texts: pa.Array | pa.ChunkedArray, rows: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each text, the same in every process.

    The probability that any two of n texts share a hash is n^2 / 2^65, which is 0.03 % for 10^8 texts. If that matters,
    compare the texts themselves. Words of eight bytes are mixed in one after the other; the finaliser of SplitMix64
    follows.

    >>> keys = text_keys(pa.array(["Oslo", "Lima", "Oslo", ""]))
    >>> (keys[0] == keys[2]).item(), len(set(keys.tolist()))
    (True, 3)

    Args:
        texts: Text without missing values.
        rows: Positions of the texts to hash; None = all.
    """
    ends, content = text_bytes(texts)
    starts = (ends[:-1] if rows is None else ends[rows]).astype(np.int64)
    lengths = (ends[1:] if rows is None else ends[rows + 1]) - starts
    if len(content) < _WORD:
        content = np.concatenate([content, np.zeros(_WORD, dtype=np.uint8)])
    highest = len(content) - _WORD
    words = np.ndarray(
        highest + 1, dtype="<u8", buffer=content, strides=(1,)
    )  # overlapping words, one from each byte on
    keys = _mixed(lengths.astype(np.uint64) + _STEP)
    length, step = (int(lengths[0]), int(starts[1] - starts[0])) if len(keys) > 1 else (0, 0)
    if length and step > 0 and (lengths == length).all() and (np.diff(starts) == step).all():
        # Texts of equal length, such as ids with leading zeros, form a table of words.
        table = np.zeros((len(keys), -(-length // _WORD) * _WORD), dtype=np.uint8)
        table[:, :length] = np.lib.stride_tricks.as_strided(content[starts[0] :], (len(keys), length), (step, 1))
        for word in table.view("<u8").T:
            keys = _after(keys, word)
        return _mixed(keys)
    rest = np.flatnonzero(lengths > 0)
    state, place, left = keys[rest], starts[rest], lengths[rest]
    while len(rest):
        word = _words(words, place)
        if left.min() < _WORD:
            word &= _ONES >> (_BITS * (_WORD - np.minimum(left, _WORD))).astype(np.uint64)
        state = _after(state, word)
        place, left = place + _WORD, left - _WORD
        more = left > 0
        if not more.all():
            keys[rest[~more]] = _mixed(state[~more])
            rest, state, place, left = rest[more], state[more], place[more], left[more]
    return keys


def _after(state: npt.NDArray[np.uint64], word: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the next word of each text into its state."""
    state = (state ^ word) * _FIRST
    state ^= state >> np.uint64(32)
    return state


def _words(words: npt.NDArray[np.uint64], place: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return the eight bytes from each position on; beyond the last byte they are 0."""
    highest = len(words) - 1
    if place.max() <= highest:
        return words[place].astype(np.uint64, copy=False)
    over = np.maximum(place - highest, 0)
    return words[place - over].astype(np.uint64) >> (_BITS * over).astype(np.uint64)


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
