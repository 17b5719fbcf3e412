"""Search engines and databases that users have, as retrievers: each through its own client."""

from __future__ import annotations

from suffice_retrieval.stores.addresses import (
    STORE_FORMS,
    is_store_address,
    open_store,
    shown_address,
    store_variables,
)
from suffice_retrieval.stores.base import Distance, QuestionEmbedder, Store
from suffice_retrieval.stores.elastic import ElasticsearchStore, OpenSearchStore, SearchEngineStore
from suffice_retrieval.stores.lance import LanceDBStore
from suffice_retrieval.stores.postgres import PostgresStore
from suffice_retrieval.stores.qdrant import QdrantStore

__all__ = [
    "STORE_FORMS",
    "Distance",
    "ElasticsearchStore",
    "LanceDBStore",
    "OpenSearchStore",
    "PostgresStore",
    "QdrantStore",
    "QuestionEmbedder",
    "SearchEngineStore",
    "Store",
    "is_store_address",
    "open_store",
    "shown_address",
    "store_variables",
]
