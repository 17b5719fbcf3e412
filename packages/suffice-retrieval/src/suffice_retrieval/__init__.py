"""Retrieval: corpora, indexes, dense encoders, stores, published question sets, and methods that write queries."""
