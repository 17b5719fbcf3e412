"""Retrievers for users' own search engines and databases, each with the client library of its engine."""

from __future__ import annotations

from suffice_retrieval.stores.addresses import is_store_address, open_store, shown_address, store_variables
from suffice_retrieval.stores.elastic import ElasticsearchStore, OpenSearchStore, SearchEngineStore
from suffice_retrieval.stores.kinds import STORES, StoreAddress, StoreKind, register_store, store_kind, store_names
from suffice_retrieval.stores.lance import LanceDBStore
from suffice_retrieval.stores.postgres import PostgresStore
from suffice_retrieval.stores.qdrant import QdrantStore
from suffice_retrieval.stores.records import Content, Distance, Fields, Hit, QuestionEmbedder, StoreOptions
from suffice_retrieval.stores.store import Store

__all__ = [
    "STORES",
    "Content",
    "Distance",
    "ElasticsearchStore",
    "Fields",
    "Hit",
    "LanceDBStore",
    "OpenSearchStore",
    "PostgresStore",
    "QdrantStore",
    "QuestionEmbedder",
    "SearchEngineStore",
    "Store",
    "StoreAddress",
    "StoreKind",
    "StoreOptions",
    "is_store_address",
    "open_store",
    "register_store",
    "shown_address",
    "store_kind",
    "store_names",
    "store_variables",
]
