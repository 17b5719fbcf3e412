"""Similarity of a draft to gold answers by words or embeddings, without a language model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from suffice.errors import DataError
from suffice.policy.metrics import f1

_OTHER = re.compile(r"[^a-z0-9]+")

Embed = Callable[[list[str]], Any]
"""An embedder that maps texts to an array of shape ``(n_texts, width)``."""


def token_f1(draft: str | None, golds: Sequence[str]) -> float:
    """Return the best token F1 of the official HotpotQA scorer, in [0, 1]; NaN without a gold answer.

    >>> round(token_f1("1979 film The Tempest", ["The Tempest"]), 3)
    0.5
    """
    return f1(draft, golds) if golds else math.nan


def rouge_l(draft: str | None, golds: Sequence[str]) -> float:
    """Return the best ROUGE-L F-measure against a gold answer (Lin, 2004), in [0, 1].

    It uses the longest common subsequence of words, like the package `rouge-score` without stemming.  As there, words are
    runs of ASCII letters and digits, so other scripts have none.  A missing draft scores 0.

    >>> rouge_l("the cat sat on the mat", ["the cat is on the mat"]) == 5 / 6
    True

    Returns:
        The score; NaN where no gold answer has a word.
    """
    gold_words = [words for words in map(_lower_words, golds) if words]
    if not gold_words:
        return math.nan
    words = _lower_words(draft or "")
    return max(2 * _common_subsequence(words, gold) / (len(words) + len(gold)) for gold in gold_words)


def _lower_words(text: str) -> list[str]:
    return _OTHER.sub(" ", text.lower()).split()


def _common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, bit-parallel (Hyyro, 2004), in milliseconds."""
    positions: dict[str, int] = {}
    for position, word in enumerate(a):
        positions[word] = positions.get(word, 0) | 1 << position
    all_bits = (1 << len(a)) - 1
    free = all_bits
    # Bit i of `free` is cleared once word i of a extends the subsequence; the carry of the sum picks the next free match.
    for word in b:
        matched = free & positions.get(word, 0)
        free = (free + matched) | (free - matched)
    return len(a) - (free & all_bits).bit_count()


def embedding_similarity(draft: str | None, golds: Sequence[str], embed: Embed) -> float:
    """Return the largest cosine of the draft's embedding and a gold answer's, in [-1, 1].

    Args:
        draft: The draft.
        golds: The gold answers.
        embed: Any embedder.

    Returns:
        The cosine; NaN without a draft or a gold answer, and where an embedding is zero or not finite.

    Raises:
        DataError: The embedder does not return one vector per text.
    """
    usable = [gold for gold in golds if gold.strip()]
    if not (draft or "").strip() or not usable:
        return math.nan
    texts = [draft or "", *usable]
    vectors = np.asarray(embed(texts), dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts):  # noqa: PLR2004
        raise DataError(
            f"the embedder returned an array of shape {vectors.shape} for {len(texts)} texts; expected one vector per text"
        )
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(vectors).all() or not (lengths > 0).all():
        return math.nan
    unit = vectors / lengths[:, None]
    return float(np.clip(unit[1:] @ unit[0], -1.0, 1.0).max())
