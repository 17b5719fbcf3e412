"""Retrieval: corpora, indexes, dense encoders, stores, and methods that ask for their own evidence."""
