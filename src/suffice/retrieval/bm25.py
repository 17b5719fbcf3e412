"""BM25 over the pool that comes with a question.

The *Lucene* variant (Kamphuis, de Vries, Boytsov and Lin, ECIR 2020, "Which BM25 do you mean?", accurate document
lengths), with the defaults of bm25s, ``k1 = 1.5`` and ``b = 0.75``::

    score(q, d) = sum over tokens t of q of idf(t) * tf / (tf + k1 * (1 - b + b * len(d) / mean len))
    idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))

A token that the question repeats counts each time.  `suffice.retrieval.corpus_bm25` ranks a whole corpus the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from suffice.errors import DataError
from suffice.retrieval.base import best_first, required_pool
from suffice.retrieval.tokens import TOKENS, passage_text, words
from suffice.rounds import Passage

__all__ = ["K1", "B", "PoolBM25", "bm25_fingerprint", "check_parameters"]

K1 = 1.5
"""Saturation of the term frequency; the default of bm25s."""

B = 0.75
"""Share of length normalisation; the default of bm25s."""


def check_parameters(k1: float, b: float) -> None:
    """Refuse parameters for which the formula is not defined.

    Raises:
        DataError: `k1` is negative or not finite, or `b` lies outside [0, 1].
    """
    if not (math.isfinite(k1) and k1 >= 0 and 0 <= b <= 1):
        raise DataError(f"k1 is {k1!r} and b is {b!r}; allowed are a finite k1 >= 0 and 0 <= b <= 1.")


def bm25_fingerprint(name: str, k1: float, b: float) -> dict[str, Any]:
    """Return what identifies a BM25 ranking, apart from the passages."""
    return {"name": name, "variant": "lucene", "k1": k1, "b": b, "tokens": TOKENS, "fields": ["title", "text"]}


class PoolBM25:
    """Ranks a question's own pool (the distractor setting), with the document frequencies of that pool.

    Ten passages take a quarter of a millisecond.  It needs no compiler: bm25s spends more on setting up an index than
    the ranking takes (equal to 1e-5, tested).

    >>> pool = [
    ...     Passage(passage_id="1", title="Jubilee", text="A film of 1978 by Derek Jarman."),
    ...     Passage(passage_id="2", title="The Tempest", text="A film of 1979 by Derek Jarman."),
    ... ]
    >>> [passage.title for passage in PoolBM25().rank("Who made The Tempest?", pool=pool)]
    ['The Tempest', 'Jubilee']

    Args:
        k1: Saturation of the term frequency, at least 0.
        b: Share of length normalisation, in [0, 1].
    """

    name = "bm25-pool"

    def __init__(self, *, k1: float = K1, b: float = B) -> None:
        check_parameters(k1, b)
        self.k1 = k1
        self.b = b

    def fingerprint(self) -> dict[str, Any]:
        """Return the variant, its parameters and the tokenisation; the pool belongs to the question."""
        return bm25_fingerprint(self.name, self.k1, self.b)

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:
        """Return the pool, best first; ties, and passages that share no token with the question, in their order.

        Args:
            question: Any text; without a known token every score is 0.
            pool: The question's own passages; an empty pool gives an empty list.
            k: At most this many, at least 1; None for all.

        Raises:
            DataError: There is no pool, or `k` is below 1.
        """
        passages = required_pool(self.name, pool)
        return best_first(passages, self.scores(question, passages), k)

    def scores(self, question: str, pool: Sequence[Passage]) -> list[float]:
        """Return the score of each passage of the pool, in its order; range [0, inf)."""
        asked = words(question)
        documents = [words(passage_text(passage.title, passage.text)) for passage in pool]
        mean = sum(map(len, documents)) / len(documents) if documents else 0.0
        found = [0.0] * len(documents)
        if mean == 0.0:
            return found
        # What a term frequency is set against, per passage.
        norms = [self.k1 * (1 - self.b + self.b * len(document) / mean) for document in documents]
        for token in asked:
            counts = [document.count(token) for document in documents]
            present = sum(map(bool, counts))
            idf = math.log(1 + (len(documents) - present + 0.5) / (present + 0.5))
            for i, tf in enumerate(counts):
                if tf:
                    found[i] += idf * tf / (tf + norms[i])
        return found
