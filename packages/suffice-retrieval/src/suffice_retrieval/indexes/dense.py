"""Rank passages of a pool or a corpus by the similarity of their embeddings to the embedding of the question.

The retriever works with any sentence-transformers model (extra `dense`) and any object with an `encode` method.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from suffice.common.identities import aligned, hub_folder, model_content
from suffice.errors import DataError, ModelError, SchemaError
from suffice.loops.models.sentence_transformers import Encoder, load_encoder, model_id, pooling_of, weights_hash
from suffice.loops.retrieval.bm25 import passage_text
from suffice.loops.retrieval.retriever import ScoreKind, checked_k, required_pool
from suffice.policy.rounds import Passage
from suffice_retrieval.indexes.approximate import ApproximateSearch, ApproximateSettings
from suffice_retrieval.indexes.corpus_bm25 import passages_hash
from suffice_retrieval.indexes.storage import Stored, open_stored, write_stored
from suffice_retrieval.indexes.vectors import StoredVectors

__all__ = ["DenseRetriever", "Encoder", "Similarity", "vector_files"]

DENSE_KIND = "suffice-dense-index"
DENSE_VERSION = 2
STORED, APPROXIMATE = "stored", "approximate"
"""Entries of an index's metadata: the type of its vectors unless float32, and settings of an approximate search."""

APPROXIMATE_FILE = "approximate.faiss"
_OF_THE_CORPUS = ("source", "corpus_hash", STORED, APPROXIMATE)
"""Entries of the metadata that do not describe the model."""

Similarity = Literal["cosine", "dot"]
"""Cosine, in [-1, 1], or the inner product, for models that were trained with it (DPR, Contriever)."""

_Vectors = npt.NDArray[np.float32]


@dataclass(kw_only=True)
class _Model:
    """A model that embeds texts, loaded on first use."""

    name: str
    revision: str | None
    encoder: Encoder | None
    device: str | None
    dtype: str
    batch_size: int

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._is_given = self.encoder is not None
        self._identity: dict[str, Any] | None = None

    def vectors(self, texts: list[str]) -> _Vectors:
        """Return one vector for each text, as the model returns it."""
        with self._lock:  # loops rank in several threads, while torch uses all cores for one call
            encoder = self._loaded()
            more = {} if self._is_given else {"batch_size": self.batch_size, "show_progress_bar": False}
            vectors = np.asarray(encoder.encode(texts, **more), dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():  # noqa: PLR2004 - a table
            raise ModelError(
                f"{self.name!r} returned an array of shape {vectors.shape} for {len(texts)} texts; expected one row of finite "
                "numbers per text"
            )
        return vectors

    def identity(self) -> dict[str, Any]:
        """Return the model's name, revision, content hash and pooling; loads the model."""
        if self._identity is None:
            with self._lock:
                pooling = pooling_of(self._loaded())
            folder = Path(self.name)
            is_folder = folder.is_dir()
            place = folder if is_folder else None if self._is_given else hub_folder(self.name, self.revision)
            self._identity = {
                "model": model_id(folder) if is_folder else self.name,
                "revision": weights_hash(folder) if is_folder else self.revision,
                **({} if place is None else {"content": model_content(place)}),
                "pooling": pooling,
                **({} if self.dtype == "auto" else {"dtype": self.dtype}),
            }
        return dict(self._identity)

    def _loaded(self) -> Any:
        if self.encoder is None:
            self.encoder = load_encoder(self.name, self.revision, self.device, self.dtype)
        return self.encoder


class DenseRetriever:
    """Ranks passages by the similarity of their embeddings to the embedding of the question.

    A zero vector has the similarity 0.

    >>> class Letters:
    ...     def encode(self, texts):
    ...         return [[text.count(letter) for letter in "abc"] for text in texts]
    >>> pool = [Passage(passage_id=text, title="", text=text) for text in ("aab", "ccc", "b")]
    >>> retriever = DenseRetriever("letters", encoder=Letters())
    >>> [(passage.text, round(passage.score, 3)) for passage in retriever.rank("ab", pool=pool)]
    [('aab', 0.949), ('b', 0.707), ('ccc', 0.0)]
    >>> by_product = DenseRetriever("letters", encoder=Letters(), similarity="dot")
    >>> [(passage.text, passage.score) for passage in by_product.rank("ab", pool=pool)]
    [('aab', 3.0), ('b', 1.0), ('ccc', 0.0)]

    Args:
        model: Id or folder of a sentence-transformers model, which is loaded on first use.  If `encoder` is given, a
            name for it.
        passages: A corpus to search, kept in memory; None to rank the pool of each question. For a corpus on disk, use
            `open_dense`.
        encoder: Encoder to use instead of loading `model`.
        revision: Revision of the model.  If `encoder` is given, any name for its version.
        question_model: Id or folder of a separate model for questions, as in DPR; None to use `model` for questions,
            too.
        question_revision: Revision of `question_model`.
        question_encoder: Encoder of questions to use instead of loading `question_model`.
        similarity: `cosine`, or `dot` for the inner product.
        question_prefix: Text before each question, for models that were trained with such a prefix ("query: ").
        passage_prefix: Text before each passage.
        device: A torch device; None for the default.
        dtype: Number type of the weights: `auto`, `float32`, `bfloat16` or `float16`.
        batch_size: Number of texts in one pass.

    Raises:
        DataError: The similarity is unknown, the batch is below 1, or `question_encoder` is given without
            `question_model`, its name.
    """

    name = "dense"

    def __init__(
        self,
        model: str | Path,
        passages: Sequence[Passage] | None = None,
        *,
        encoder: Encoder | None = None,
        revision: str | None = None,
        question_model: str | Path | None = None,
        question_revision: str | None = None,
        question_encoder: Encoder | None = None,
        similarity: Similarity = "cosine",
        question_prefix: str = "",
        passage_prefix: str = "",
        device: str | None = None,
        dtype: str = "auto",
        batch_size: int = 32,
    ) -> None:
        if similarity not in get_args(Similarity):
            raise DataError(f"similarity is {similarity!r}; allowed: {', '.join(get_args(Similarity))}")
        if batch_size < 1:
            raise DataError(f"batch_size must be at least 1, got {batch_size!r}")
        if question_encoder is not None and question_model is None:
            raise DataError("question_encoder needs a name: give question_model, too")
        run: dict[str, Any] = {"device": device, "dtype": dtype, "batch_size": batch_size}
        self.model, self.similarity = str(model), similarity
        self.question_prefix, self.passage_prefix = question_prefix, passage_prefix
        self._passage_model = _Model(name=self.model, revision=revision, encoder=encoder, **run)
        self._question_model = self._passage_model
        if question_model is not None:
            self._question_model = _Model(
                name=str(question_model), revision=question_revision, encoder=question_encoder, **run
            )
        self._corpus_hash: str | None = None
        self._vectors: StoredVectors | None = None
        self.lists: ApproximateSearch | None = None
        self.passages: Sequence[Passage] | None = None
        if passages is not None:
            self.passages = tuple(passages)
            self._vectors = self._compared(self._encode(self.passages))

    @property
    def has_corpus(self) -> bool:
        """True if the retriever searches its own corpus and ignores the passages of questions."""
        return self.passages is not None

    @property
    def is_pinned(self) -> bool:
        """True if the models are identified by content or revision; reading this loads the models."""
        models = (self._passage_model.identity(), self._question_model.identity())
        return all(model.get("content") or model["revision"] for model in models)

    @property
    def score_kind(self) -> ScoreKind:
        """The kind of the scores."""
        return "cosine" if self.similarity == "cosine" else "inner_product"

    def fingerprint(self) -> dict[str, Any]:
        """Return models, pooling, similarity, prefixes, and the size and hash of the corpus if there is one.

        A model in a folder is identified by the hash of its weights, not by its path.  The models are loaded.
        """
        values = {"name": self.name, **self.embedder(), "question_prefix": self.question_prefix}
        if self._question_model is not self._passage_model:
            values["question_model"] = self._question_model.identity()
        if self.passages is not None:
            if self._corpus_hash is None:
                self._corpus_hash = passages_hash(self.passages)
            values |= {"passages": len(self.passages), "corpus_hash": self._corpus_hash}
            if self.vectors.dtype != np.float32:
                values[STORED] = str(self.vectors.dtype)
            if self.approximate is not None:
                values[APPROXIMATE] = asdict(self.approximate)
        return values

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:
        """Return the passages of the corpus, or else of the pool, best first; see `Retriever.rank`.

        Raises:
            DataError: There is neither corpus nor pool, or `k` is below 1.
            MissingExtraError: sentence-transformers is not installed.
            ModelError: The model cannot be loaded, or returns no usable vectors.
        """
        if self.passages is not None and self._vectors is not None:
            passages, vectors = self.passages, self._vectors
        else:
            passages = required_pool(self.name, pool)
            vectors = self._compared(self._encode(passages))
        size = checked_k(k, len(passages))
        if not passages:
            return []
        query = self.encode_question(question)
        if query.shape[0] != vectors.dimension:
            raise ModelError(
                f"{self._question_model.name!r} returns {query.shape[0]} numbers for a question but {vectors.dimension} for a "
                "passage; use the model of the index"
            )
        search = vectors if self.lists is None else self.lists
        [places], [best] = search.search(query[None], size)
        return [replace(passages[i], score=score) for i, score in zip(places.tolist(), best.tolist(), strict=True)]

    @property
    def vectors(self) -> StoredVectors:
        """The vectors of the corpus.

        Raises:
            DataError: There is no corpus.
        """
        if self._vectors is None:
            raise DataError("the retriever has no corpus: give it passages, or open an index")
        return self._vectors

    @property
    def approximate(self) -> ApproximateSettings | None:
        """Settings of the approximate search; None if every vector is compared."""
        return None if self.lists is None else self.lists.settings

    def save(self, directory: str | Path) -> Path:
        """Write the corpus and its vectors to a folder, which is created if missing; an old index in it is replaced.

        Args:
            directory: The folder.

        Raises:
            DataError: There is no corpus, the folder contains other files, or it cannot be written.
        """
        if self.passages is None or self._vectors is None:
            raise DataError("cannot save a retriever without a corpus; give it passages")
        with write_stored(Path(directory), DENSE_KIND, DENSE_VERSION) as stored:
            stored.meta = {**self.embedder(), "corpus_hash": stored.stream_passages(self.passages)}
            stored.write_array("vectors.npy", np.concatenate(self._vectors.parts))
        return Path(directory)

    @classmethod
    def load(
        cls,
        directory: str | Path,
        model: str | Path,
        *,
        source: str | None = None,
        exact: bool = False,
        **options: Any,
    ) -> DenseRetriever:
        """Open an index that was written with the same model by `save`, `open_dense` or `index_dense`.

        Passages and vectors stay on disk, and are read when needed.  Nothing in the folder is executed.

        Args:
            directory: The folder.
            model: The model to load, see the class; it is never taken from the index.
            source: Description of the corpus, which must be the same as in the index; None to accept any corpus.
            exact: True to compare every vector even if the index has an approximate search.
            **options: Parameters of the class, which must be the same as those of the index.

        Raises:
            SchemaError: The folder contains no index of this kind, version and model, or it is damaged.
        """
        retriever = cls(model, **options)
        retriever.attach(directory, source=source, exact=exact)
        return retriever

    def attach(self, directory: str | Path, *, source: str | None = None, exact: bool = False) -> None:
        """Search the corpus of an index on disk from now on; see `load`.

        Raises:
            SchemaError: The folder contains no index of this kind, version and model, or it is damaged.
        """
        stored = open_stored(Path(directory), DENSE_KIND, DENSE_VERSION)
        if source is not None and stored.meta.get("source") != source:
            raise SchemaError(
                f"{directory}: the index was made from {stored.meta.get('source')!r}, not {source!r}; build it again"
            )
        self._require_model(stored)
        self._restore(stored, exact=exact)

    def embedder(self) -> dict[str, Any]:
        """Return all settings on which the vectors of passages depend; this loads the model of passages."""
        return {
            **self._passage_model.identity(),
            "similarity": self.similarity,
            "passage_prefix": self.passage_prefix,
            "fields": ["title", "text"],
        }

    def encode_passages(self, passages: Sequence[Passage]) -> _Vectors:
        """Encode passages for an index, shape ``(n, dimension)``.

        For cosine similarity, vectors are scaled to length one, except that zero vectors stay zero.
        """
        return self._encode(passages)

    def encode_question(self, question: str) -> _Vectors:
        """Encode a question for comparison with passages, shape ``(dimension,)``.

        For cosine similarity, the vector is scaled to length one.
        """
        vector: _Vectors = self._scaled(self._question_model.vectors([self.question_prefix + question]))[0]
        return vector

    def _require_model(self, stored: Stored) -> None:
        current = self.embedder()
        theirs = aligned({key: value for key, value in stored.meta.items() if key not in _OF_THE_CORPUS}, current)
        for key in sorted(current.keys() | theirs.keys()):
            if current.get(key) != theirs.get(key):
                raise SchemaError(
                    f"{stored.directory}: the index was made with {key} {theirs.get(key)!r}, not {current.get(key)!r}; build "
                    "it again, or use that value"
                )

    def _restore(self, stored: Stored, *, exact: bool) -> None:
        names = sorted(name for name in stored.used if name.startswith("vectors"))
        dtype = stored.meta.get(STORED, "float32")
        try:
            passages = stored.passage_file()
            parts = [stored.read_array(name, mapped=True) for name in names]
            settings = ApproximateSettings.from_dict(stored.meta[APPROXIMATE]) if APPROXIMATE in stored.meta else None
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise SchemaError(f"{stored.directory}: the index is damaged ({error!r}); build it again") from error
        forms = {(part.ndim, *part.shape[1:], str(part.dtype)) for part in parts}
        fits = len(forms) == 1 and parts[0].ndim == 2 and parts[0].dtype == dtype  # noqa: PLR2004 - a table
        if not fits or sum(map(len, parts)) != len(passages):
            raise SchemaError(f"{stored.directory}: the files of the index do not match; build it again")
        self.passages, self._vectors, self._corpus_hash = (
            passages,
            self._compared(*parts),
            stored.meta.get("corpus_hash"),
        )
        self.lists = None
        if settings is not None and not exact:
            self.lists = ApproximateSearch(stored.path(APPROXIMATE_FILE), self._vectors, settings)

    def _compared(self, *parts: npt.NDArray[np.floating]) -> StoredVectors:
        return StoredVectors(parts, most=1.0 if self.similarity == "cosine" else np.inf)

    def _encode(self, passages: Sequence[Passage]) -> _Vectors:
        if not passages:
            return np.zeros((0, 0), dtype=np.float32)
        texts = [self.passage_prefix + passage_text(passage.title, passage.text) for passage in passages]
        return self._scaled(self._passage_model.vectors(texts))

    def _scaled(self, vectors: _Vectors) -> _Vectors:
        if self.similarity == "dot":
            return vectors
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        units: _Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        return units


def vector_files(rows: int, file_rows: int) -> list[str]:
    """Return the names of the files for `rows` vectors, with at most `file_rows` in each."""
    if rows <= file_rows:
        return ["vectors.npy"] if rows else []
    return [f"vectors-{i:05d}.npy" for i in range(-(-rows // file_rows))]
