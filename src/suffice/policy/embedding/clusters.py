"""Clusters of meaning: free texts with the same meaning, by the cosine of their embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from suffice.common.provided import provided
from suffice.errors import DataError
from suffice.policy.embedding.embedder import Embedder, checked_vectors
from suffice.policy.normalizers import Grouping, register_normalizer

MEANING_THRESHOLD = 0.8
"""The least cosine of one meaning, for the embedder in the package.  It is ours: look at clusters of your own answers."""

_MOST_VECTORS = 1 << 14


class MeaningClusters(Grouping):
    """A normalizer that treats answers with nearly the same embedding as one answer.

    An answer joins the most similar earlier cluster if the cosine with that cluster's first answer reaches the
    threshold, and begins a new cluster otherwise.  Clusters depend on the order of the answers, which is that of the
    requests, both live and in a recording.  Later answers do not change earlier clusters, so a live vote and its replay
    agree.  Texts without words cast no vote.

    Embeddings hardly distinguish negations and numbers: "safe" and "not safe" are close.  Use this for sentences, not
    for short facts.

    >>> import numpy as np
    >>> class Letters:
    ...     id = "letters"
    ...     def embed(self, texts):
    ...         return np.array([[text.count("a"), text.count("b")] / np.hypot(text.count("a"), text.count("b")) for text in texts])
    >>> MeaningClusters(Letters(), threshold=0.9).ids(["aaa", "bb", "aaaab", "b", None])
    [0.0, 1.0, 0.0, 1.0, nan]

    Args:
        embedder: The model for the embeddings; None = the one in the package, loaded when it is first needed.
        threshold: The smallest cosine at which two answers mean the same, in (0, 1].

    Raises:
        DataError: The threshold is out of range.
    """

    def __init__(self, embedder: Embedder | None = None, threshold: float = MEANING_THRESHOLD) -> None:
        if not 0 < threshold <= 1:
            raise DataError(f"the least cosine of one meaning must be above 0 and at most 1, not {threshold!r}")
        self.threshold = threshold
        self._given = embedder
        self._vectors: dict[str, npt.NDArray[np.float64]] = {}

    def __repr__(self) -> str:
        return f"MeaningClusters({self._given!r}, threshold={self.threshold!r})"

    @cached_property
    def embedder(self) -> Embedder:
        """The model for the embeddings."""
        return provided("reader.MiniLM")() if self._given is None else self._given

    def ids(self, answers: Sequence[str | None]) -> list[float]:
        """Return the cluster of each answer, numbered by first appearance; NaN for a text without words.

        Raises:
            MissingExtraError: The embedder needs a library that is not installed.
            ModelError: The embedder failed, or returned no usable vectors.
        """
        vectors = self._embedded([text for text in answers if text is not None and text.strip()])
        first: list[npt.NDArray[np.float64]] = []
        ids: list[float] = []
        for text in answers:
            vector = None if text is None else vectors.get(text)
            if vector is None or not vector.any() or not np.isfinite(vector).all():
                ids.append(math.nan)
                continue
            cosines = [float(vector @ other) for other in first]
            nearest = int(np.argmax(cosines)) if cosines else 0
            if not cosines or cosines[nearest] < self.threshold:
                nearest = len(first)
                first.append(vector)
            ids.append(float(nearest))
        return ids

    def _embedded(self, texts: Sequence[str]) -> dict[str, npt.NDArray[np.float64]]:
        """Return the vectors of texts; vectors of earlier texts are cached."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if missing:
            if len(self._vectors) > _MOST_VECTORS:
                self._vectors = {}
                missing = list(dict.fromkeys(texts))
            rows = checked_vectors(self.embedder.id, self.embedder.embed(missing), len(missing))
            self._vectors = {**self._vectors, **dict(zip(missing, rows, strict=True))}
        return self._vectors


register_normalizer("meaning")(MeaningClusters())
