"""Search engines and databases that users have, as retrievers: each through its own client."""

from __future__ import annotations

from suffice.retrieval.stores.addresses import STORE_FORMS, is_store_address, open_store, shown_address, store_variables
from suffice.retrieval.stores.base import Distance, QuestionEmbedder, Store
from suffice.retrieval.stores.elastic import ElasticsearchStore, OpenSearchStore, SearchEngineStore
from suffice.retrieval.stores.lance import LanceDBStore
from suffice.retrieval.stores.postgres import PostgresStore
from suffice.retrieval.stores.qdrant import QdrantStore

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
