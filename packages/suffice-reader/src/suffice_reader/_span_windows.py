"""The input of the span reader: windows of token ids, with the spans that may be answers.

A window is `[CLS] question [SEP] yes no . title : text [SEP]`; a long passage is cut into several overlapping windows.
The runtime (`suffice_reader.span_reader`) and the training code share this module, so that both see the same input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ARTICLE_WORDS = frozenset({"a", "an", "the"})
_EDGE_SYMBOLS = frozenset("$£€¥%°")  # other non-alphanumeric pieces cannot begin or end an answer
YES, NO, TITLE, TEXT = 1, 2, 3, 4  # segments of a window; 0 = not part of any answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderConfig:
    """The lengths of inputs, in tokens, which are part of the trained model and stored beside the weights."""

    max_length: int = 256  # of one window, question included
    max_question: int = 64  # longer questions are cut
    max_title: int = 32
    max_span: int = 16
    overlap: int = 64  # of neighbouring windows of a long passage
    max_windows: int = 8  # the rest of a longer passage is not read
    max_chars: int = 32_768  # cut before tokenising, so that a huge passage costs bounded time
    candidates: int = 32  # spans kept per passage


@dataclass(frozen=True, slots=True)
class Window:
    """One input of the encoder: a passage, or a piece of a long passage.

    Attributes:
        ids: Token ids, int64, shape (t,).
        types: 0 for the question, 1 for the passage, int64, shape (t,).
        allowed: True at (i, l) if tokens i..i+l may be an answer, bool, shape (t, max_span).
        segment: Code of the segment of each token: yes, no, title, text or none, int8, shape (t,).
        offsets: Character range of each token in its title or text, int64, shape (t, 2).
        pieces: The word pieces, length t.
    """

    ids: NDArray[np.int64]
    types: NDArray[np.int64]
    allowed: NDArray[np.bool_]
    segment: NDArray[np.int8]
    offsets: NDArray[np.int64]
    pieces: list[str]


class Featurizer:
    """Cuts questions and passages into windows of token ids.

    Args:
        tokenizer: A `tokenizers.Tokenizer` without padding and truncation.
        config: The lengths used in training.
    """

    def __init__(self, tokenizer: Any, config: ReaderConfig) -> None:
        self.config = config
        self._encode = tokenizer.encode
        self._ids = {piece: int(tokenizer.token_to_id(piece)) for piece in ("[CLS]", "[SEP]", "yes", "no", ".", ":")}

    def windows(self, question: str, title: str, text: str) -> list[Window]:
        """Return the windows of one passage; an empty passage has none.

        Text past `max_windows` windows (about 1,000 tokens with the shipped configuration) is not read.
        """
        config = self.config
        title, text = clean(title, config.max_chars), clean(text, config.max_chars)
        if not (title.strip() or text.strip()):
            return []
        question_tokens = self._tokens(clean(question, config.max_chars), config.max_question, 0)
        title_tokens = self._tokens(title, config.max_title, TITLE)
        body = self._tokens(text, None, TEXT)
        cls, sep = self._special("[CLS]"), self._special("[SEP]")
        head = [
            self._special("yes", YES),
            self._special("no", NO),
            self._special("."),
            title_tokens,
            self._special(":"),
        ]
        # Yes, no and the title compete once per passage; in later windows they are context only.
        later = [tokens.silenced() for tokens in head]
        room = config.max_length - (len(question_tokens.ids) + len(title_tokens.ids) + 7)
        return [
            _window(
                [cls, question_tokens, sep],
                [*(later if start else head), body.cut(start, stop, owned), sep],
                config.max_span,
            )
            for start, stop, owned in _pieces(len(body.ids), room, config.overlap, config.max_windows)
        ]

    def _special(self, piece: str, segment: int = 0) -> _Tokens:
        may_answer = np.array([segment > 0])
        return _Tokens(
            [self._ids[piece]],
            [piece],
            np.zeros((1, 2), np.int64),
            np.array([segment], np.int8),
            may_answer,
            may_answer,
        )

    def _tokens(self, text: str, limit: int | None, segment: int) -> _Tokens:
        encoding = self._encode(text, add_special_tokens=False)
        pieces = list(encoding.tokens)
        inside = np.array([piece.startswith("##") for piece in pieces], bool)  # continues a word
        edge = np.array([_may_be_edge(piece) for piece in pieces], bool) & (segment > 0)
        ends = edge & ~np.append(inside[1:], False)
        tokens = _Tokens(
            list(encoding.ids),
            pieces,
            np.array(encoding.offsets, np.int64).reshape(-1, 2),
            np.full(len(pieces), segment, np.int8),
            edge & ~inside,
            ends,
        )
        return tokens if limit is None else tokens.cut(0, limit, (0, limit))


@dataclass(frozen=True, slots=True)
class _Tokens:
    """A run of tokens, with masks of the tokens that may begin or end an answer."""

    ids: list[int]
    pieces: list[str]
    offsets: NDArray[np.int64]
    segment: NDArray[np.int8]
    starts: NDArray[np.bool_]
    ends: NDArray[np.bool_]

    def cut(self, start: int, stop: int, owned: tuple[int, int]) -> _Tokens:
        """Return the tokens from `start` to `stop` (exclusive); only tokens in the range `owned` may begin an answer."""
        at = np.arange(len(self.ids))
        starts = self.starts & (at >= owned[0]) & (at < owned[1])
        s = slice(start, stop)
        return _Tokens(self.ids[s], self.pieces[s], self.offsets[s], self.segment[s], starts[s], self.ends[s])

    def silenced(self) -> _Tokens:
        """Return the same tokens as context only, so that none may be part of an answer."""
        none = np.zeros(len(self.ids), bool)
        return _Tokens(self.ids, self.pieces, self.offsets, self.segment * np.int8(0), none, none)


def clean(text: str, limit: int) -> str:
    # A lone surrogate (from a file read with surrogateescape) cannot be encoded; "?" keeps the offsets.
    return text[:limit].encode("utf-8", "replace").decode("utf-8")


def _may_be_edge(piece: str) -> bool:
    return piece in _EDGE_SYMBOLS or any(character.isalnum() for character in piece)


def _pieces(length: int, room: int, overlap: int, limit: int) -> list[tuple[int, int, tuple[int, int]]]:
    """Cut `length` tokens into overlapping pieces, and return ``(start, stop, (first, end))`` of each piece.

    Each token belongs to the range from `first` to `end` of exactly one piece, usually with context on both sides.  Only
    answers that begin in this range are read from the piece, so no span is counted twice.

    >>> _pieces(10, 6, 2, 9)
    [(0, 6, (0, 5)), (4, 10, (5, 10))]
    """
    if length <= room:
        return [(0, length, (0, length))]
    stride = room - overlap
    cuts: list[tuple[int, int, tuple[int, int]]] = []
    start = 0
    while len(cuts) < limit:
        stop = min(start + room, length)
        last = stop == length or len(cuts) == limit - 1
        first_owned = start + overlap // 2 if start else 0
        cuts.append((start, stop, (first_owned, stop if last else stop - overlap + overlap // 2)))
        if last:
            break
        start += stride
    return cuts


def _window(question: list[_Tokens], passage: list[_Tokens], max_span: int) -> Window:
    parts = [*question, *passage]
    ids = np.array([i for part in parts for i in part.ids], np.int64)
    types = np.zeros(len(ids), np.int64)
    types[sum(len(part.ids) for part in question) :] = 1
    segment = np.concatenate([part.segment for part in parts])
    starts = np.concatenate([part.starts for part in parts])
    ends = np.concatenate([part.ends for part in parts])
    pieces = [piece for part in parts for piece in part.pieces]
    # Element (i, l) is the span i..i+l: shifting the ends by l against the starts fills one column for all i at once.
    allowed = np.zeros((len(ids), max_span), bool)
    for extra in range(min(max_span, len(ids))):
        stop = len(ids) - extra
        allowed[:stop, extra] = starts[:stop] & ends[extra:] & (segment[:stop] == segment[extra:])
    allowed[[i for i, piece in enumerate(pieces) if piece in _ARTICLE_WORDS], 0] = (
        False  # an article alone normalises to nothing
    )
    return Window(ids, types, allowed, segment, np.concatenate([part.offsets for part in parts]), pieces)
