"""What turns drafts into vectors: the seam, long drafts in pieces, and the embedder as a measurement of rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, ModelError
from suffice.rounds import Cost, Passage, Reply
from suffice.signals import EMBEDDER, Measurement

__all__ = ["DraftEmbedder", "Embedder", "Vectors", "checked_vectors", "identity", "pieces_of", "pooled"]

Vectors = npt.NDArray[np.float32]


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors; what it is called is what a policy pins."""

    @property
    def id(self) -> str:
        """The model's name."""
        ...

    @property
    def revision(self) -> str:
        """What tells two versions of the model apart: a hash of its weights, or the words of whoever serves it."""
        ...

    @property
    def pooling(self) -> str:
        """How the vectors of tokens, and of the pieces of a long text, become one."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector for each text, shape ``(len(texts), width)``; zero for a text without words.

        All of a text counts, however long.

        Raises:
            ModelError: The model failed, or gave no usable vectors.
        """
        ...

    def embed_costed(self, texts: Sequence[str]) -> tuple[Vectors, Cost]:
        """Like `embed`, with what it cost."""
        ...


def identity(embedder: Embedder) -> dict[str, str]:
    """Return what a policy pins of an embedder: id, revision and pooling."""
    return {"id": embedder.id, "revision": embedder.revision, "pooling": embedder.pooling}


def pieces_of(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Cut a text into pieces that each fit; together they are the text, blank ones left out.

    A piece that does not fit is halved, at a space where there is one near its middle.

    >>> pieces_of("to be or not to be", lambda piece: len(piece) <= 10)
    ['to be or', ' not to be']
    """
    if not text.strip():
        return []
    if len(text) == 1 or fits(text):
        return [text]
    half = len(text) // 2
    cut = text.rfind(" ", half // 2 + 1, half + 1)  # never near an end, so that halving stays halving
    cut = cut if cut > 0 else half
    return pieces_of(text[:cut], fits) + pieces_of(text[cut:], fits)


def checked_vectors(name: str, vectors: Any, n: int) -> npt.NDArray[np.float64]:
    """Return what a model gave as an array of shape ``(n, width)``; a row with an undefined number is kept as it is.

    Raises:
        ModelError: It is no table of numbers, or has another number of rows.
    """
    try:
        array = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelError(f"the embedder {name!r} gave no table of numbers for {n} texts") from None
    if array.ndim != 2 or len(array) != n or not array.shape[1]:  # noqa: PLR2004 - a table
        raise ModelError(
            f"the embedder {name!r} gave an array of shape {array.shape} for {n} texts; expected one row of numbers each"
        )
    return array


def pooled(vectors: npt.NDArray[np.float64], weights: Sequence[float], counts: Sequence[int]) -> Vectors:
    """Return one unit vector for each text: the weighted mean of its pieces' vectors.

    >>> pooled(np.array([[3.0, 0.0], [0.0, 4.0], [1.0, 0.0]]), [4, 3, 1], [2, 0, 1]).round(2)
    array([[0.71, 0.71],
           [0.  , 0.  ],
           [1.  , 0.  ]], dtype=float32)

    Args:
        vectors: Of all pieces, text after text, shape ``(n_pieces, width)``; a row that is not finite makes its text's
            vector NaN: undefined, never a direction.
        weights: How much each piece counts, > 0, length n_pieces.
        counts: How many pieces each text has; 0 gives the zero vector.
    """
    made = np.zeros((len(counts), vectors.shape[1]), dtype=np.float32)
    start = 0
    for row, count in enumerate(counts):
        part, weight = vectors[start : start + count], np.asarray(weights[start : start + count], dtype=np.float64)
        made[row] = _unit((weight[:, None] * _scaled(part)).sum(axis=0)) if np.isfinite(part).all() else np.nan
        start += count
    return made


def _scaled(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return finite values over the largest of them, so that no sum or square overflows or vanishes."""
    largest = np.abs(values).max(initial=0.0)
    return values / largest if largest > 0 else values


def _unit(vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    scaled = _scaled(vector)
    length = float(np.linalg.norm(scaled))
    return scaled / length if length > 0 else scaled


class DraftEmbedder:
    """Embeds the draft of every round: what the signal `semantic_distance` is read from.

    An enricher of a loop: `RetrievalLoop(..., enrichers=(DraftEmbedder(MiniLM()),))`.  A missing draft (None) has no
    embedding, an empty one the zero vector.  Its calls are booked under `embedder`.

    Args:
        embedder: What embeds.
    """

    name = EMBEDDER

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._width: int | None = None

    def __repr__(self) -> str:
        return f"DraftEmbedder({self.embedder!r})"

    @property
    def capabilities(self) -> frozenset[str]:
        """`embedding`."""
        return frozenset({"embedding"})

    def fingerprint(self) -> Mapping[str, Any]:
        """Id, revision and pooling: what a policy on distances depends on."""
        return identity(self.embedder)

    async def measure(self, question: str, passages: Sequence[Passage], reply: Reply) -> Measurement:
        """Return the draft's embedding, and what it cost.

        Raises:
            ModelError: The embedder failed, or gave another number or width of vectors than before.
        """
        del question, passages
        if reply.answer is None:
            return Measurement(signals={}, costs={EMBEDDER: Cost()})
        found, cost = await asyncio.to_thread(self.embedder.embed_costed, [reply.answer])
        vectors = checked_vectors(self.embedder.id, found, 1)
        width = vectors.shape[1]
        if self._width is None:
            self._width = width
        if width != self._width:
            raise ModelError(
                f"the embedder {self.embedder.id!r} gave {width} numbers for a draft and {self._width} for an earlier one"
            )
        return Measurement(signals={}, costs={EMBEDDER: cost}, embedding=vectors[0].astype(np.float32))


def required_texts(texts: Sequence[str]) -> list[str]:
    """Return texts as a list that any tokeniser takes: lone surrogates, which none does, become question marks.

    Raises:
        DataError: One of them is no text, or all of it is one text.
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise DataError(f"an embedder takes a list of texts, not {texts!r:.80}")
    return [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
