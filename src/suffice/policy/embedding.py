"""Embedders: their protocol, the pooling of long drafts, embeddings of rounds, and clusters of answers by meaning."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from suffice.common.provided import provided
from suffice.errors import DataError, ModelError
from suffice.policy.normalizers import Grouping, register_normalizer
from suffice.policy.rounds import Cost, Reply, Round
from suffice.policy.signals import EMBEDDER, embedded_text

Vectors = npt.NDArray[np.float32]


@runtime_checkable
class Embedder(Protocol):
    """A model that turns texts into vectors; a policy pins its id, revision and pooling."""

    @property
    def id(self) -> str:
        """The model's name."""
        ...

    @property
    def revision(self) -> str:
        """Version of the model: a hash of its weights, or a name given by its provider."""
        ...

    @property
    def pooling(self) -> str:
        """The method that combines the vectors of tokens, and the vectors of the pieces of a long text."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector for each text, shape ``(len(texts), width)``; zero for a text without words.

        Long texts are embedded completely.

        Raises:
            ModelError: The model failed, or returned no usable vectors.
        """
        ...

    def embed_costed(self, texts: Sequence[str]) -> tuple[Vectors, Cost]:
        """Return the vectors of `embed`, and the cost."""
        ...


def identity(embedder: Embedder) -> dict[str, str]:
    """Return the values that a policy pins: id, revision and pooling of an embedder."""
    return {"id": embedder.id, "revision": embedder.revision, "pooling": embedder.pooling}


def pieces_of(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Cut a text into consecutive pieces that fit; blank pieces are left out.

    A piece that does not fit is halved, at a space if there is one near its middle.

    >>> pieces_of("to be or not to be", lambda piece: len(piece) <= 10)
    ['to be or', ' not to be']
    """
    if not text.strip():
        return []
    if len(text) == 1 or fits(text):
        return [text]
    half = len(text) // 2
    cut = text.rfind(" ", half // 2 + 1, half + 1)  # never near an end, so that both parts stay small
    cut = cut if cut > 0 else half
    return pieces_of(text[:cut], fits) + pieces_of(text[cut:], fits)


def checked_vectors(name: str, vectors: Any, n: int) -> npt.NDArray[np.float64]:
    """Check the vectors that a model returned; return them as an array of shape ``(n, width)``, including NaN rows.

    Raises:
        ModelError: The output is not a table of numbers, or does not have `n` rows.
    """
    try:
        array = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"the embedder {name!r} did not return a table of numbers for {n} texts") from None
    if array.ndim != 2 or len(array) != n or not array.shape[1]:  # noqa: PLR2004 - a table
        raise ModelError(
            f"the embedder {name!r} returned an array of shape {array.shape} for {n} texts; expected one row of numbers each"
        )
    return array


def pooled(vectors: npt.NDArray[np.float64], weights: Sequence[float], counts: Sequence[int]) -> Vectors:
    """Return one unit vector for each text, the weighted mean of the vectors of its pieces.

    >>> pooled(np.array([[3.0, 0.0], [0.0, 4.0], [1.0, 0.0]]), [4, 3, 1], [2, 0, 1]).round(2)
    array([[0.71, 0.71],
           [0.  , 0.  ],
           [1.  , 0.  ]], dtype=float32)

    Args:
        vectors: Vectors of all pieces, in the order of the texts, shape ``(n_pieces, width)``. If a row is not finite,
            its text gets a vector of NaN.
        weights: Weight of each piece, > 0, length n_pieces.
        counts: Number of pieces of each text; 0 gives the zero vector.
    """
    units = np.zeros((len(counts), vectors.shape[1]), dtype=np.float32)
    start = 0
    for row, count in enumerate(counts):
        # Dividing by the largest number first changes no direction and keeps sums of huge or tiny vectors finite.
        pieces, weight = vectors[start : start + count], np.asarray(weights[start : start + count], dtype=np.float64)
        units[row] = (
            _unit_vector((weight[:, None] * _over_largest(pieces)).sum(axis=0)) if np.isfinite(pieces).all() else np.nan
        )
        start += count
    return units


def _over_largest(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Divide finite values by the largest absolute value, so that sums and squares neither overflow nor underflow."""
    largest = np.abs(values).max(initial=0.0)
    return values / largest if largest > 0 else values


def _unit_vector(vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    scaled = _over_largest(vector)
    length = float(np.linalg.norm(scaled))
    return scaled / length if length > 0 else scaled


def required_texts(texts: Sequence[str]) -> list[str]:
    """Return the texts; lone surrogates, which tokenizers do not accept, are replaced by question marks.

    Raises:
        DataError: `texts` is a single text, or an element is not a text.
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise DataError(f"an embedder needs a list of texts, not {texts!r:.80}")
    return [text.encode("utf-8", "replace").decode("utf-8") for text in texts]


class PieceEmbedder(ABC):
    """An embedder that cuts long texts into pieces and averages their vectors; each distinct text is embedded once."""

    @abstractmethod
    def _cut(self, texts: list[str]) -> list[list[Any]]:
        """Cut each text into pieces; a text without words has no pieces."""

    @abstractmethod
    def _embed_pieces(self, pieces: list[Any]) -> tuple[npt.NDArray[np.float64], Sequence[float], Cost]:
        """Return a vector and a weight for each piece, and the cost without seconds."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector for each text, shape ``(len(texts), width)``; zero for a text without words.

        Raises:
            DataError: `texts` is not a list of texts.
            MissingExtraError: A library that the model needs is not installed.
            ModelError: The model cannot be loaded, failed, or returned no usable vectors.
        """
        return self.embed_costed(texts)[0]

    def embed_costed(self, texts: Sequence[str]) -> tuple[Vectors, Cost]:
        """Return the vectors of `embed`, and the cost: calls, tokens (NaN if unknown) and seconds."""
        began = time.perf_counter()
        well_formed = required_texts(texts)
        row_of = {text: row for row, text in enumerate(dict.fromkeys(well_formed))}
        pieces = self._cut(list(row_of))
        vectors, weights, cost = self._embed_pieces([piece for of_text in pieces for piece in of_text])
        units = pooled(vectors, weights, [len(of_text) for of_text in pieces])
        return units[[row_of[text] for text in well_formed]], replace(cost, seconds=time.perf_counter() - began)


class DraftEmbedder:
    """An enricher of a loop that embeds the draft of every round, for the signals `semantic_distance` and `semantic_novelty`.

    Use it as `RetrievalLoop(..., enrichers=(DraftEmbedder(MiniLM()),))`.  A missing draft (None) has no embedding, and
    an empty draft has the zero vector.  In a `ThinkingLoop` it embeds the thinking since the previous checkpoint.
    Calls are charged to the component `embedder`.

    Args:
        embedder: The model for the embeddings.
    """

    name = EMBEDDER
    capabilities = frozenset({"embedding"})

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._width: int | None = None

    def __repr__(self) -> str:
        return f"DraftEmbedder({self.embedder!r})"

    def fingerprint(self) -> Mapping[str, Any]:
        """Id, revision and pooling; policies that read distances depend on these values."""
        return identity(self.embedder)

    async def measure(self, question: str, observed: Round) -> Reply:
        """Return the draft's embedding with its cost.

        Raises:
            ModelError: The embedder failed, or the number or width of its vectors is wrong.
        """
        del question
        text = embedded_text(observed)
        if text is None:
            return Reply(costs={EMBEDDER: Cost()})
        import asyncio  # a tenth of the time that `import suffice` takes

        rows, cost = await asyncio.to_thread(self.embedder.embed_costed, [text])
        vectors = checked_vectors(self.embedder.id, rows, 1)
        width = vectors.shape[1]
        if self._width is None:
            self._width = width
        if width != self._width:
            raise ModelError(
                f"the embedder {self.embedder.id!r} returned {width} numbers for a draft but {self._width} for an earlier one"
            )
        return Reply(costs={EMBEDDER: cost}, embedding=vectors[0].astype(np.float32))


MEANING_THRESHOLD = 0.8
"""The least cosine of one meaning, for the embedder in the package.  It is ours: look at clusters of your own answers."""

_MOST_VECTORS = 1 << 14


class MeaningClusters(Grouping):
    """A normalizer that treats answers with nearly the same embedding as one answer.

    An answer joins the most similar earlier cluster if the cosine with that cluster's first answer reaches the
    threshold, and begins a new cluster otherwise.  Clusters depend on the order of the answers. Live and in a recording
    this is the order of the requests.  Later answers do not change earlier clusters, so a live vote and its replay
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
        embedder: The model for the embeddings; None = the model in the package, loaded when it is first needed.
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
