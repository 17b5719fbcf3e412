"""Judges without a language model: how near a draft is to a gold answer, by words or by an embedding."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from suffice.errors import DataError
from suffice.metrics import f1

__all__ = ["Embed", "embedding_similarity", "rouge_l", "token_f1"]

_OTHER = re.compile(r"[^a-z0-9]+")

Embed = Callable[[list[str]], Any]
"""Any embedder: texts to an array of shape ``(n_texts, width)``."""


def token_f1(draft: str | None, golds: Sequence[str]) -> float:
    """Return the best token F1 of the official HotpotQA scorer, in [0, 1]; NaN without a gold answer.

    >>> round(token_f1("1979 film The Tempest", ["The Tempest"]), 3)
    0.5
    """
    return f1(draft, golds) if golds else math.nan


def rouge_l(draft: str | None, golds: Sequence[str]) -> float:
    """Return the best ROUGE-L F-measure against a gold answer (Lin, 2004), in [0, 1].

    The longest common subsequence of words, as the package `rouge-score` computes it without stemming.  Words are runs
    of ASCII letters and digits there, and so they are here: other scripts have none.  A missing draft scores 0.

    >>> rouge_l("the cat sat on the mat", ["the cat is on the mat"]) == 5 / 6
    True

    Returns:
        The score; NaN where no gold answer has a word.
    """
    wanted = [words for words in map(_lower_words, golds) if words]
    if not wanted:
        return math.nan
    words = _lower_words(draft or "")
    return max(_rouge_pair(words, gold) for gold in wanted)


def _lower_words(text: str) -> list[str]:
    return _OTHER.sub(" ", text.lower()).split()


def _rouge_pair(draft: Sequence[str], gold: Sequence[str]) -> float:
    common = _common_subsequence(draft, gold)
    return 2 * common / (len(draft) + len(gold))


def _common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, bit-parallel (Hyyro, 2004): long drafts cost milliseconds."""
    places: dict[str, int] = {}
    for place, word in enumerate(a):
        places[word] = places.get(word, 0) | 1 << place
    whole = (1 << len(a)) - 1
    free = whole
    for word in b:
        matched = free & places.get(word, 0)
        free = (free + matched) | (free - matched)
    return len(a) - (free & whole).bit_count()


def embedding_similarity(draft: str | None, golds: Sequence[str], embed: Embed) -> float:
    """Return the largest cosine of the draft's embedding and a gold answer's, in [-1, 1].

    Args:
        draft: The draft.
        golds: The gold answers.
        embed: Any embedder.

    Returns:
        The cosine; NaN without a draft or a gold answer, and where an embedding is zero or not finite.

    Raises:
        DataError: The embedder does not give one vector for each text.
    """
    wanted = [gold for gold in golds if gold.strip()]
    if not (draft or "").strip() or not wanted:
        return math.nan
    texts = [draft or "", *wanted]
    vectors = np.asarray(embed(texts), dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts):  # noqa: PLR2004
        raise DataError(f"the embedder gave an array of shape {vectors.shape} for {len(texts)} texts: one vector each")
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(vectors).all() or not (lengths > 0).all():
        return math.nan
    unit = vectors / lengths[:, None]
    return float(np.clip(unit[1:] @ unit[0], -1.0, 1.0).max())
