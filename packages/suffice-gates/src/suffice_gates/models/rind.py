"""Decide whether a text in progress needs evidence, and build the query: DRAGIN's RIND and QFS."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_NO_CONTENT_WORDS = """
a an the of in on at to for from by with as and or but not no is are was were be been being it its this that these those
he she they his her their them him i you we my your our who whom which what when where how there here do does did has
have had will would can could may might shall should also then than so such
"""
NO_CONTENT_WORDS = frozenset(_NO_CONTENT_WORDS.split())
"""Words without content: like punctuation, their tokens never trigger retrieval."""


def rind(
    entropies: npt.NDArray[np.floating], attention: npt.NDArray[np.floating], is_content: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """Return the need for retrieval at each generated token: ``entropy * strongest later attention * content``.

    Retrieval is triggered at the first token whose value is above a threshold.  Source: DRAGIN (Su et al., 2024,
    section 3.1, equations 1 to 4: RIND).

    Args:
        entropies: Entropies of the tokens' distributions, nats, shape ``(n,)``.
        attention: Attention of token j (row) to token i (column), averaged over heads; shape ``(m, n)`` with ``m >= n``,
            since tokens at the end of a reply attend, too.
        is_content: False for stop words and punctuation, shape ``(n,)``.

    Returns:
        Shape ``(n,)``; 0 for the last token.
    """
    n = len(entropies)
    # Below the diagonal: only later tokens count, not a token's attention to itself.
    later = np.tril(np.asarray(attention, dtype=np.float64), k=-1)[:, :n]
    strongest = later.max(axis=0) if len(later) else np.zeros(n)
    scores: npt.NDArray[np.float64] = np.asarray(entropies, dtype=np.float64) * strongest * np.asarray(is_content)
    return scores


def attended(attention: npt.NDArray[np.floating], words: npt.NDArray[np.integer], n: int) -> list[int]:
    """Return the words of the n tokens with most attention, each once, in the order of the text.

    Source: DRAGIN (Su et al., 2024, section 3.2: QFS).

    >>> attended(np.array([0.1, 0.5, 0.3, 0.1]), np.array([0, 2, 1, -1]), 2)
    [1, 2]

    Args:
        attention: Attention of the token that needs evidence to each earlier one, shape ``(m,)``.
        words: The word that each token belongs to, shape ``(m,)``; -1 for tokens that a query leaves out.
        n: Number of tokens to take; among ties, earlier tokens first.
    """
    order = [place for place in np.argsort(-np.asarray(attention), kind="stable") if words[place] >= 0]
    return sorted({int(words[place]) for place in order[:n]})
