"""Data classes of stores: options, fields, hits, and a report of the content."""

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
    """Fields of a store that contain the parts of a passage.

    Attributes:
        passage_id: The field of the id; None for the store's own id, if it has one.
        title: The field of the title; None if there is none, so that the id is used.
        text: The field of the text.
        vector: The field of the vector; None if the store has only one, or is searched by words.
    """

    passage_id: str | None
    title: str | None
    text: str
    vector: str | None

    @property
    def parts(self) -> tuple[str | None, str | None, str]:
        """The fields of id, title and text; None for a missing one."""
        return self.passage_id, self.title, self.text

    @property
    def read(self) -> list[str]:
        """The fields to read from a hit."""
        return [name for name in self.parts if name is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A report of a store's passages, created when the store is opened.

    Attributes:
        facts: JSON-ready values that identify the passages, on any server; a recording stores them.
        rows: Number of passages that can be found; an upper bound if they are not counted.
        score_kind: The kind of the scores.
        dimension: Numbers of a stored vector; None for a search by words.
        most: Largest number of hits in a search; None without a limit.
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
        embedder: Turns questions into vectors that are comparable with the store's; None to search by words.
        filters: Conditions on the passages to search: values, lists or bounds by field, see `conditions_of`.
        identity: The field that identifies a passage, `passage_id` if not given.
        version: Your name for the present version of the passages, which a recording stores; rankings of a named
            version may be cached.
        timeout_s: Longest time of one search, 30 seconds if not given.
        retries: Largest number of repetitions of a search after a lost connection or an overload, 2 if not given.
    """

    embedder: QuestionEmbedder | None
    filters: Mapping[str, Any] | None
    identity: Identity
    version: str | None
    timeout_s: float
    retries: int
