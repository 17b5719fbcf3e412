"""Ranking by embeddings: cosine similarity of question and passage, over a pool or a corpus.

Any sentence-transformers model serves (extra `dense`), or any object with an `encode` method.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.embedding.sentence_transformers import Encoder, load_encoder, pooling_of, weights_hash
from suffice.errors import DataError, ModelError, SchemaError
from suffice.retrieval.base import checked_k, required_pool
from suffice.retrieval.corpus_bm25 import passages_hash
from suffice.retrieval.storage import open_stored, read_passages, write_passages, write_stored
from suffice.retrieval.tokens import passage_text
from suffice.rounds import Passage

__all__ = ["DenseRetriever", "Encoder"]

_KIND = "suffice-dense-index"
_VERSION = 1

_Vectors = npt.NDArray[np.float32]


class DenseRetriever:
    """Ranks passages by the cosine of their embedding with the question's, in [-1, 1]; a zero vector gives 0.

    >>> class Letters:
    ...     def encode(self, texts):
    ...         return [[text.count(letter) for letter in "abc"] for text in texts]
    >>> pool = [Passage(passage_id=text, title="", text=text) for text in ("aab", "ccc", "b")]
    >>> retriever = DenseRetriever("letters", encoder=Letters())
    >>> [(passage.text, round(passage.score, 3)) for passage in retriever.rank("ab", pool=pool)]
    [('aab', 0.949), ('b', 0.707), ('ccc', 0.0)]

    Args:
        model: Id or folder of a sentence-transformers model, loaded at the first use; with `encoder`, its name.
        passages: A corpus to search; None to rank the pool that comes with each question.
        encoder: What to encode with instead of loading `model`.
        revision: Revision of the model; with `encoder`, any words that tell two versions apart.
        question_prefix: Put before a question, where the model was trained so ("query: ").
        passage_prefix: Put before a passage.
        device: Where the model runs, as torch names it; None for the default.
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
        """Whether it searches a corpus of its own, and so takes no notice of a question's passages."""
        return self.passages is not None

    def fingerprint(self) -> dict[str, Any]:
        """Return model, revision, pooling, prefixes and, of a corpus, size and hash; loads the model.

        A model in a folder is named by the folder and the hash of its weights, not by its path.
        """
        values = {"name": self.name, **self._embedder()}
        if self.passages is not None:
            values |= {"passages": len(self.passages), "corpus_hash": passages_hash(self.passages)}
        return values

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:
        """Return the corpus, or else the pool, best first; ties keep their order.

        Args:
            question: Any text.
            pool: The question's own passages; not read if there is a corpus.
            k: At most this many, at least 1; None for all.

        Raises:
            DataError: There is neither corpus nor pool, or `k` is below 1.
            MissingExtraError: sentence-transformers is not installed.
            ModelError: The model cannot be loaded, or gives no usable vectors.
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
        asked = self._encode([self.question_prefix + question])[0]
        if asked.shape[0] != vectors.shape[1]:
            raise ModelError(
                f"{self.model!r} gives {asked.shape[0]} numbers for a question and {vectors.shape[1]} for a passage; use "
                "the model that the index was made with."
            )
        scores = np.clip(vectors @ asked, -1.0, 1.0)
        order = np.argsort(-scores, kind="stable")[:size]
        return [replace(passages[i], score=float(scores[i])) for i in order.tolist()]

    def save(self, directory: str | Path) -> Path:
        """Write corpus and vectors to a folder, which is created; an old index in it is replaced.

        Args:
            directory: The folder.

        Raises:
            DataError: There is no corpus, the folder holds other files, or it cannot be written.
        """
        if self.passages is None or self._vectors is None:
            raise DataError("this retriever ranks pools and has no corpus to save; give it passages.")
        with write_stored(Path(directory), _KIND, _VERSION) as stored:
            write_passages(stored.path("passages.jsonl"), self.passages)
            np.save(stored.path("vectors.npy"), self._vectors, allow_pickle=False)
            stored.meta = self._embedder()
        return Path(directory)

    @classmethod
    def load(
        cls,
        directory: str | Path,
        model: str | Path,
        *,
        encoder: Encoder | None = None,
        revision: str | None = None,
        question_prefix: str = "",
        passage_prefix: str = "",
        device: str | None = None,
    ) -> DenseRetriever:
        """Read an index that `save` wrote, for the same model; nothing in it is executed.

        Args:
            directory: The folder.
            model: As for the class; an index never names what is to be loaded.
            encoder: As for the class.
            revision: As for the class.
            question_prefix: As for the class.
            passage_prefix: As for the class.
            device: As for the class.

        Raises:
            SchemaError: The folder holds no such index, one of another version or model, or it is damaged.
        """
        stored = open_stored(Path(directory), _KIND, _VERSION)
        found = cls(
            model,
            encoder=encoder,
            revision=revision,
            question_prefix=question_prefix,
            passage_prefix=passage_prefix,
            device=device,
        )
        given = found._embedder()
        for key in sorted(given.keys() | stored.meta.keys()):
            if given.get(key) != stored.meta.get(key):
                raise SchemaError(
                    f"{directory}: the index was made with {key} {stored.meta.get(key)!r}, not {given.get(key)!r}; build "
                    "it again, or give what it was made with."
                )
        try:
            found.passages = read_passages(stored.path("passages.jsonl"))
            vectors = np.load(stored.path("vectors.npy"), allow_pickle=False)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise SchemaError(f"{directory}: the index is damaged ({error!r}); build it again.") from error
        if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != len(found.passages):  # noqa: PLR2004
            raise SchemaError(f"{directory}: the parts of the index do not fit together; build it again.")
        found._vectors = vectors
        return found

    def _texts(self, passages: Sequence[Passage]) -> list[str]:
        return [self.passage_prefix + passage_text(passage.title, passage.text) for passage in passages]

    def _encode(self, texts: list[str]) -> _Vectors:
        """Return unit vectors, shape ``(len(texts), dimension)``; a zero vector stays zero."""
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        with self._lock:  # loops rank in threads, and torch uses all cores for one call
            vectors = np.asarray(self._loaded().encode(texts), dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():  # noqa: PLR2004 - a table
            raise ModelError(
                f"{self.model!r} gave an array of shape {vectors.shape} for {len(texts)} texts; expected one row of finite "
                "numbers for each."
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
            local = folder.is_dir()
            self._identity = {
                "model": folder.resolve().parent.name + "/" + folder.resolve().name if local else self.model,
                "revision": weights_hash(folder) if local else self.revision,
                "pooling": pooling_of(self._loaded()),
                "similarity": "cosine",
                "question_prefix": self.question_prefix,
                "passage_prefix": self.passage_prefix,
                "fields": ["title", "text"],
            }
        return dict(self._identity)
