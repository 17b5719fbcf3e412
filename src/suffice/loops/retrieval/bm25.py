"""BM25 over the pool that comes with a question.

The formula is the *Lucene* variant with accurate document lengths (Kamphuis, de Vries, Boytsov and Lin, ECIR 2020,
"Which BM25 do you mean?").  The defaults are those of bm25s, ``k1 = 1.5`` and ``b = 0.75``::

    score(q, d) = sum over tokens t of q of idf(t) * tf / (tf + k1 * (1 - b + b * len(d) / mean len))
    idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))

A token that is repeated in the question counts each time.  `suffice_retrieval.indexes.corpus_bm25` ranks a corpus in the same
way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from suffice.errors import DataError
from suffice.loops.retrieval.retriever import ScoreKind, best_first, required_pool
from suffice.policy.rounds import Passage

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

    These are the tokens of `bm25s.tokenize` with its default settings, in order, with repetitions and without stemming.
    In scripts without blanks between words, each unbroken run of characters is one token.

    >>> words("The Tempest, 1979: it's Derek Jarman's film")
    ['tempest', '1979', 'derek', 'jarman', 'film']
    """
    return [word for word in _find(text.lower()) if word not in STOP_WORDS]


def passage_text(title: str, text: str) -> str:
    """Return the text of a passage to index: its title and its text."""
    return f"{title}\n{text}"


K1 = 1.5
"""Saturation of the term frequency; the default of bm25s."""

B = 0.75
"""Share of length normalisation; the default of bm25s."""


def check_parameters(k1: float, b: float) -> None:
    """Raise if the formula is undefined for the parameters."""
    if not (math.isfinite(k1) and k1 >= 0 and 0 <= b <= 1):
        raise DataError(f"k1 is {k1!r} and b is {b!r}; allowed: a finite k1 >= 0 and 0 <= b <= 1")


def bm25_fingerprint(name: str, k1: float, b: float) -> dict[str, Any]:
    """Return the settings that identify a BM25 ranking, without the passages."""
    return {"name": name, "variant": "lucene", "k1": k1, "b": b, "tokens": TOKENS, "fields": ["title", "text"]}


class PoolBM25:
    """Ranks a question's own pool (the distractor setting), with the document frequencies of that pool.

    Ten passages take a quarter of a millisecond.  bm25s is not used here because setting up its index takes longer than
    the ranking; the scores agree to 1e-5 (tested).

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
    is_pinned = True
    score_kind: ScoreKind = "bm25"

    def __init__(self, *, k1: float = K1, b: float = B) -> None:
        check_parameters(k1, b)
        self.k1 = k1
        self.b = b

    def fingerprint(self) -> dict[str, Any]:
        """Return the variant, its parameters and the tokenisation, but not the pool, which differs between questions."""
        return bm25_fingerprint(self.name, self.k1, self.b)

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:
        """Return the pool, best first; see `Retriever.rank`.  Passages without any token of the question score 0.

        Raises:
            DataError: There is no pool, or `k` is below 1.
        """
        passages = required_pool(self.name, pool)
        return best_first(passages, self.scores(question, passages), k)

    def scores(self, question: str, pool: Sequence[Passage]) -> list[float]:
        """Return the score of each passage, in the order of the pool; range [0, inf)."""
        tokens = words(question)
        documents = [words(passage_text(passage.title, passage.text)) for passage in pool]
        mean = sum(map(len, documents)) / len(documents) if documents else 0.0
        scores = [0.0] * len(documents)
        if mean == 0.0:
            return scores
        # The part of the denominator that depends only on the passage.
        norms = [self.k1 * (1 - self.b + self.b * len(document) / mean) for document in documents]
        for token in tokens:
            counts = [document.count(token) for document in documents]
            present = sum(map(bool, counts))
            idf = math.log(1 + (len(documents) - present + 0.5) / (present + 0.5))
            for i, tf in enumerate(counts):
                if tf:
                    scores[i] += idf * tf / (tf + norms[i])
        return scores
