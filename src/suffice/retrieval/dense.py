"""Ranking by embeddings: cosine similarity of question and passage, over a pool or a corpus.

It works with any sentence-transformers model (extra `dense`) and any object with an `encode` method.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.embedding.sentence_transformers import Encoder, load_encoder, model_id, pooling_of, weights_hash
from suffice.errors import DataError, ModelError, SchemaError
from suffice.retrieval.base import checked_k, required_pool
from suffice.retrieval.corpus_bm25 import passages_hash
from suffice.retrieval.storage import open_stored, write_stored
from suffice.retrieval.tokens import passage_text
from suffice.rounds import Passage

__all__ = ["DenseRetriever", "Encoder"]

_DENSE_KIND = "suffice-dense-index"
_DENSE_VERSION = 1

_Vectors = npt.NDArray[np.float32]


class DenseRetriever:
    """Ranks passages by the cosine between their embedding and that of the question, in [-1, 1]; 0 for a zero vector.

    >>> class Letters:
    ...     def encode(self, texts):
    ...         return [[text.count(letter) for letter in "abc"] for text in texts]
    >>> pool = [Passage(passage_id=text, title="", text=text) for text in ("aab", "ccc", "b")]
    >>> retriever = DenseRetriever("letters", encoder=Letters())
    >>> [(passage.text, round(passage.score, 3)) for passage in retriever.rank("ab", pool=pool)]
    [('aab', 0.949), ('b', 0.707), ('ccc', 0.0)]

    Args:
        model: Id or folder of a sentence-transformers model, loaded on first use; with `encoder`, its name.
        passages: A corpus to search; None to rank the pool of each question.
        encoder: Encoder to use instead of loading `model`.
        revision: Revision of the model; with `encoder`, any name of its version.
        question_prefix: Text before a question, for models trained with one ("query: ").
        passage_prefix: Text before a passage.
        device: A torch device; None for the default.
    """

    name = "dense"

    def __init__(
        self,
        model: str | Path,
        passages: Sequence[Passage] | None = None,
        *,
        encoder: Encoder | None = None,
        revision: str | None = None,
        question_prefix: str = "",
        passage_prefix: str = "",
        device: str | None = None,
    ) -> None:
        self.model = str(model)
        self.revision = revision
        self.question_prefix = question_prefix
        self.passage_prefix = passage_prefix
        self.passages = None if passages is None else tuple(passages)
        self._encoder = encoder
        self._device = device
        self._identity: dict[str, Any] | None = None
        self._lock = threading.Lock()
        self._vectors = None if self.passages is None else self._encode(self._texts(self.passages))

    @property
    def has_corpus(self) -> bool:
        """Whether it searches its own corpus and ignores the passages of questions."""
        return self.passages is not None

    def fingerprint(self) -> dict[str, Any]:
        """Return model, revision, pooling, prefixes and, of a corpus, size and hash; loads the model.

        A model in a folder is identified by the folder name and the hash of its weights, not by its path.
        """
        values = {"name": self.name, **self._embedder()}
        if self.passages is not None:
            values |= {"passages": len(self.passages), "corpus_hash": passages_hash(self.passages)}
        return values

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:
        """Return the passages of the corpus, or else of the pool, best first; see `Retriever.rank`.

        Raises:
            DataError: There is neither corpus nor pool, or `k` is below 1.
            MissingExtraError: sentence-transformers is not installed.
            ModelError: The model cannot be loaded, or returns no usable vectors.
        """
        if self.passages is not None and self._vectors is not None:
            passages: Sequence[Passage] = self.passages
            vectors = self._vectors
        else:
            passages = required_pool(self.name, pool)
            vectors = self._encode(self._texts(passages))
        size = checked_k(k, len(passages))
        if not passages:
            return []
        query = self._encode([self.question_prefix + question])[0]
        if query.shape[0] != vectors.shape[1]:
            raise ModelError(
                f"{self.model!r} returns {query.shape[0]} numbers for a question but {vectors.shape[1]} for a passage; use "
                "the model of the index"
            )
        scores = np.clip(vectors @ query, -1.0, 1.0)
        order = np.argsort(-scores, kind="stable")[:size]
        return [replace(passages[i], score=float(scores[i])) for i in order.tolist()]

    def save(self, directory: str | Path) -> Path:
        """Write corpus and vectors to a folder, which is created; an old index in it is replaced.

        Args:
            directory: The folder.

        Raises:
            DataError: There is no corpus, the folder contains other files, or it cannot be written.
        """
        if self.passages is None or self._vectors is None:
            raise DataError("cannot save a retriever without a corpus; give it passages")
        with write_stored(Path(directory), _DENSE_KIND, _DENSE_VERSION) as stored:
            stored.write_passages(self.passages)
            stored.write_array("vectors.npy", self._vectors)
            stored.meta = self._embedder()
        return Path(directory)

    @classmethod
    def load(
        cls,
        directory: str | Path,
        model: str | Path,
        **options: Any,
    ) -> DenseRetriever:
        """Read an index written by `save` for the same model, without executing anything in it.

        Args:
            directory: The folder.
            model: See the class; the index itself does not decide what is loaded.
            **options: Parameters of the class, which must be those of the index.

        Raises:
            SchemaError: The folder contains no index of this kind, version and model, or it is damaged.
        """
        stored = open_stored(Path(directory), _DENSE_KIND, _DENSE_VERSION)
        retriever = cls(model, **options)
        current = retriever._embedder()
        for key in sorted(current.keys() | stored.meta.keys()):
            if current.get(key) != stored.meta.get(key):
                raise SchemaError(
                    f"{directory}: the index was made with {key} {stored.meta.get(key)!r}, not {current.get(key)!r}; build "
                    "it again, or use that value"
                )
        try:
            retriever.passages = stored.read_passages()
            vectors = stored.read_array("vectors.npy")
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise SchemaError(f"{directory}: the index is damaged ({error!r}); build it again") from error
        if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != len(retriever.passages):  # noqa: PLR2004
            raise SchemaError(f"{directory}: the files of the index do not match; build it again")
        retriever._vectors = vectors
        return retriever

    def _texts(self, passages: Sequence[Passage]) -> list[str]:
        return [self.passage_prefix + passage_text(passage.title, passage.text) for passage in passages]

    def _encode(self, texts: list[str]) -> _Vectors:
        """Return unit vectors, shape ``(len(texts), dimension)``; zero vectors stay zero."""
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        with self._lock:  # loops rank in threads, and torch uses all cores for one call
            vectors = np.asarray(self._loaded().encode(texts), dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():  # noqa: PLR2004 - a table
            raise ModelError(
                f"{self.model!r} returned an array of shape {vectors.shape} for {len(texts)} texts; expected one row of finite "
                "numbers per text"
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        units: _Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        return units

    def _loaded(self) -> Encoder:
        if self._encoder is None:
            self._encoder = load_encoder(self.model, self.revision, self._device)
        return self._encoder

    def _embedder(self) -> dict[str, Any]:
        if self._identity is None:
            folder = Path(self.model)
            self._identity = {
                "model": model_id(folder) if folder.is_dir() else self.model,
                "revision": weights_hash(folder) if folder.is_dir() else self.revision,
                "pooling": pooling_of(self._loaded()),
                "similarity": "cosine",
                "question_prefix": self.question_prefix,
                "passage_prefix": self.passage_prefix,
                "fields": ["title", "text"],
            }
        return dict(self._identity)
