"""Words for lexical ranking, the same for pools and for corpora."""

from __future__ import annotations

import re

__all__ = ["STOP_WORDS", "TOKENS", "passage_text", "words"]

_LUCENE = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
)

STOP_WORDS = frozenset(_LUCENE.split())
"""Lucene's English stop words, which are bm25s's default too (a test compares them)."""

TOKENS = "lower, two or more word characters, English stop words removed"
"""What `words` does, for fingerprints."""

_find = re.compile(r"\b\w\w+\b").findall


def words(text: str) -> list[str]:
    r"""Return lower-case runs of two or more word characters (Unicode) without English stop words.

    The tokens of `bm25s.tokenize` with its default settings, in their order and with repetitions.  No stemming.
    Scripts without blanks between words give one token for each unbroken run.

    >>> words("The Tempest, 1979: it's Derek Jarman's film")
    ['tempest', '1979', 'derek', 'jarman', 'film']
    """
    return [word for word in _find(text.lower()) if word not in STOP_WORDS]


def passage_text(title: str, text: str) -> str:
    """Return what is indexed of a passage: its title and its text."""
    return f"{title}\n{text}"
