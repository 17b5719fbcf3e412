"""Retrieval: corpora, indexes, dense encoders, stores, published question sets, and methods that ask for their own evidence."""
