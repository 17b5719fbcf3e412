"""Tokenisation for lexical rankings of pools and corpora."""

from __future__ import annotations

import re

_LUCENE = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
)

STOP_WORDS = frozenset(_LUCENE.split())
"""Lucene's English stop words, also the default of bm25s (a test compares them)."""

TOKENS = "lower, two or more word characters, English stop words removed"
"""Description of `words` for fingerprints."""

_find = re.compile(r"\b\w\w+\b").findall


def words(text: str) -> list[str]:
    r"""Return lower-case runs of two or more word characters (Unicode) without English stop words.

    The same tokens as `bm25s.tokenize` with its default settings, in order, with repetitions and without stemming.
    Scripts without blanks between words give one token for each unbroken run.

    >>> words("The Tempest, 1979: it's Derek Jarman's film")
    ['tempest', '1979', 'derek', 'jarman', 'film']
    """
    return [word for word in _find(text.lower()) if word not in STOP_WORDS]


def passage_text(title: str, text: str) -> str:
    """Return the text of a passage to index: its title and its text."""
    return f"{title}\n{text}"
