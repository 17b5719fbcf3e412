"""Find the first sentence of a generated text, in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from suffice.common.sentences import sentence_end
from suffice.policy.rounds import Token
from suffice.policy.signals.text import token_bytes


def first_sentence(tokens: Sequence[Token]) -> int:
    """Return the number of tokens in the first sentence, see `sentence_end`; without a second sentence, count all tokens.

    >>> first_sentence([Token("It"), Token("Ġrained"), Token("."), Token("ĠThen")])
    3
    """
    pieces = [text_of([token]) for token in tokens]
    end = sentence_end("".join(pieces))
    return next((number for number, length in enumerate(accumulate(map(len, pieces)), 1) if length >= end), len(tokens))


def text_of(tokens: Sequence[Token]) -> str:
    """Join tokens to a text, decoding spellings of the vocabulary such as `Ġ` for a blank."""
    try:
        return b"".join(map(token_bytes, tokens)).decode()
    except UnicodeDecodeError:
        return "".join(token.text.replace("\u2581", " ") for token in tokens)
