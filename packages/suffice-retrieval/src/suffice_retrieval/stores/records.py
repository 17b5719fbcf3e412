"""Data classes of stores: their options, fields and hits, and a report on their content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from suffice.loops.retrieval.retriever import Identity, ScoreKind
from suffice.policy.embedding import Embedder
from suffice_retrieval.indexes.dense import DenseRetriever

Distance = Literal["cosine", "dot", "l2"]
"""Comparison of vectors: by cosine, inner product, or Euclidean distance."""

SCORE_OF: Mapping[str, ScoreKind] = {"cosine": "cosine", "dot": "inner_product", "l2": "negative_distance"}

QuestionEmbedder = Embedder | DenseRetriever
"""Turns a question into the vector with which a store is searched.

An `Embedder` (`MiniLM`, `SentenceTransformersEmbedder`, `EndpointEmbedder`) returns vectors of length one; if it has an
attribute `endpoint`, its requests are counted.  A `DenseRetriever` without passages may use a separate prefix and model for
questions; with `similarity="dot"` its vectors have any length.
"""

Hit = tuple[Any, Any, Any, float]
"""Id, title, text and score of a passage as a store returns them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of a store that contain the parts of a passage.

    Attributes:
        passage_id: The field of the id; None for the store's own id, if it has one.
        title: The field of the title; None to use the id as the title.
        text: The field of the text.
        vector: The field of the vector; None if the store has only one, or is searched by words.
    """

    passage_id: str | None
    title: str | None
    text: str
    vector: str | None

    @property
    def parts(self) -> tuple[str | None, str | None, str]:
        """The fields of id, title and text; None for a part without a field."""
        return self.passage_id, self.title, self.text

    @property
    def read(self) -> list[str]:
        """The fields to read from a hit."""
        return [name for name in self.parts if name is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A report on a store's passages, which is made when the store is opened.

    Attributes:
        facts: JSON-ready values that identify the passages, whatever the server; a recording stores them.
        rows: Number of passages that can be found, or an upper bound if they are not counted.
        score_kind: The kind of the scores.
        dimension: Number of components of a stored vector; None for a search by words.
        most: Largest number of hits that the store allows in a search; None without a limit.
        details: Values that only a search needs.
    """

    facts: Mapping[str, Any]
    rows: int
    score_kind: ScoreKind
    dimension: int | None = None
    most: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class StoreOptions(TypedDict, total=False):
    """Arguments of every store.

    Attributes:
        embedder: Turns questions into vectors that are comparable with the store's vectors; None to search by words.
        filters: Conditions on the passages to search, as values, lists or bounds for each field; see `conditions_of`.
        identity: The field that identifies a passage; default: `passage_id`.
        version: Your name for the present version of the passages, which a recording stores.  With a version, rankings
            may be cached.
        timeout_s: Longest time of one search; default: 30 seconds.
        retries: Largest number of repetitions of a search after a lost connection or an overload; default: 2.
    """

    embedder: QuestionEmbedder | None
    filters: Mapping[str, Any] | None
    identity: Identity
    version: str | None
    timeout_s: float
    retries: int
