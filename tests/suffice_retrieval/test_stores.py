"""Postgres, Qdrant and LanceDB against exact search over the passages of bundled questions, and live loops on each."""

import asyncio
import gc
import re
import time

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from suffice import Policy, RetrievalLoop, ScriptedModel, read_recording, record
from suffice.common.blocking import run_blocking
from suffice.errors import (
    AuthenticationFailedError,
    ConfigMismatchError,
    DataError,
    ModelError,
    ModelTimeoutError,
    NotFoundError,
)
from suffice.evaluation.replay import prices_of
from suffice.evaluation.replay.costs import CostTable
from suffice.loops.retrieval import AsyncRetriever, ranked_now, score_kind_of
from suffice.policy.rounds import Cost
from suffice.recordings import ResponseCache
from suffice_reader.model import SpanReaderModel
from suffice_retrieval.indexes import CachedRetriever, DenseRetriever
from suffice_retrieval.stores import LanceDBStore, PostgresStore, QdrantStore
from tests.suffice_retrieval.support.stores import (
    EMBEDDER,
    PASSAGES,
    QUESTIONS,
    assert_same_ranking,
    brute_force,
    filled_stores,
    postgres,
    stores,
    vectors,
)
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint

__all__ = ["filled_stores", "postgres", "stores", "vectors"]  # fixtures
pytestmark = pytest.mark.whole

KINDS = ("postgres", "qdrant", "lancedb")
WITH_WORDS = ("postgres", "lancedb")
SCORES = {"cosine": "cosine", "dot": "inner_product", "l2": "negative_distance"}


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect():
    """Only collecting garbage closes a folder of Qdrant: spare each collection what the modules before made."""
    gc.collect()
    gc.freeze()


def executed(stores, *statements):
    with psycopg.connect(stores.uri, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def containing(word, kind):
    """Return the passages with a word; LanceDB reads the text alone."""
    texts = {p.passage_id: p.text if kind == "lancedb" else f"{p.title} {p.text}" for p in PASSAGES}
    return {name for name, text in texts.items() if re.search(rf"\b{word}\b", text, re.IGNORECASE)}


@pytest.mark.parametrize("distance", SCORES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_ranking_is_that_of_exact_search(stores, vectors, kind, distance):
    store = stores.open(kind, distance)
    assert isinstance(store, AsyncRetriever)
    assert score_kind_of(store) == store.fingerprint()["score_kind"] == SCORES[distance]
    for question in QUESTIONS[:3]:
        hits = ranked_now(store, question.question, k=12)
        assert_same_ranking(hits, brute_force(vectors, question.question, distance), 12)
    everything = ranked_now(store, QUESTIONS[0].question)
    assert_same_ranking(everything, brute_force(vectors, QUESTIONS[0].question, distance), len(PASSAGES))
    assert ranked_now(store, " ") == []
    with pytest.raises(DataError, match="k is 0"):
        ranked_now(store, "Who?", k=0)
    with pytest.raises(DataError, match="its own"):
        ranked_now(store, "Who?", pool=PASSAGES)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        ({"kind": "it's"}, range(2, len(PASSAGES), 3)),
        ({"part": [0, 2], "kind": ["it's", "wiki"]}, range(2, len(PASSAGES), 3)),
        ({"part": {"gte": 1, "lt": 2}}, range(1, len(PASSAGES), 3)),
    ],
    ids=["equal", "one of several", "bounds"],
)
def test_filters_are_translated(stores, vectors, kind, filters, rows):
    store = stores.open(kind, filters=filters)
    question = QUESTIONS[1].question
    assert_same_ranking(ranked_now(store, question, k=50), brute_force(vectors, question, rows=rows), 50)
    assert store.fingerprint()["filters"] == filters
    assert {"rows", "points"} & store.fingerprint()["content"].keys()


@pytest.mark.parametrize(("filters", "why"), [({"part": 7}, "no passage"), ({"part": []}, "a text")])
@pytest.mark.parametrize("kind", KINDS)
def test_filters_that_hold_for_nothing_or_say_nothing_are_errors(stores, kind, filters, why):
    with pytest.raises(DataError, match=why):
        stores.open(kind, filters=filters).fingerprint()


@pytest.mark.parametrize("kind", WITH_WORDS)
def test_words_are_found_as_often_as_they_occur(stores, kind):
    plain = {"language": "simple"} if kind == "postgres" else {}
    film, american = containing("film", kind), containing("American", kind)
    assert film - american
    assert film & american
    for operator, expected in (("or", film | american), ("and", film & american)):
        store = stores.open(kind, embedder=None, operator=operator, **plain)
        hits = ranked_now(store, "american FILM")
        found = {hit.passage_id for hit in hits}
        assert found == expected if kind == "postgres" else found >= expected  # LanceDB finds "films", too
        assert len(found) < len(PASSAGES)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert score_kind_of(store) == {"postgres": "text_rank", "lancedb": "bm25"}[kind]
    assert ranked_now(store, "xyzzy quux") == []


def test_a_question_is_never_read_as_sql(stores):
    executed(
        stores,
        """CREATE TABLE "od""d; DROP TABLE passages --%s" AS SELECT id, title AS "ti%tle", text, kind FROM passages""",
    )
    store = stores.open(
        "postgres", table='od"d; DROP TABLE passages --%s', title="ti%tle", embedder=None, filters={"kind": "it's"}
    )
    assert ranked_now(store, "'; DROP TABLE passages; -- film & | ! :* \\ %s", k=3)[0].title
    assert store.fingerprint()["content"] == {"rows": 33}


@pytest.mark.parametrize("kind", KINDS)
def test_a_live_loop_is_recorded_and_resumed(stores, kind, tmp_path, quick_reader):
    def loop():
        return RetrievalLoop(model=SpanReaderModel(), retriever=stores.open(kind), policy=Policy(max_rounds=2))

    outcome = loop().run(QUESTIONS[0].question)
    assert outcome.rounds[0].passages[0].text
    path = tmp_path / "run.parquet"
    first = record(QUESTIONS[:1], loop(), path)
    again = record(QUESTIONS[:3], loop(), path)
    assert (first.rounds, again.rounds, again.failed) == (2, 6, {})
    assert record(QUESTIONS[:3], loop(), path).cost.calls == 0
    metadata = read_recording(path).metadata
    assert metadata["score_kind"] == "cosine"
    assert metadata["config"]["retriever"]["name"] == kind
    assert metadata["config"]["retriever"]["identity"] == "passage_id"


class AtEndpoint:
    """The packaged embedder as if it were asked at an endpoint."""

    endpoint, id, revision, pooling = "http://127.0.0.1:9/v1", "embed-3", "1", "by the endpoint"

    def embed(self, texts):
        return EMBEDDER.embed(texts)

    def embed_costed(self, texts):
        return self.embed(texts), Cost(calls=1, uncached_tokens=7, seconds=0.25)


def test_questions_embedded_at_an_endpoint_are_requests_of_their_own(stores, tmp_path, quick_reader):
    store = stores.open("lancedb", embedder=AtEndpoint())
    loop = RetrievalLoop(model=SpanReaderModel(), retriever=store, policy=Policy(max_rounds=2))
    path = tmp_path / "run.parquet"
    record(QUESTIONS[:3], loop, path)
    ledger = CostTable(read_recording(path)).recorded
    spent = {kind: ledger.costs["embedding"][kind].tolist() for kind in ("calls", "uncached_tokens", "seconds")}
    assert spent == {"calls": [1] * 3, "uncached_tokens": [7] * 3, "seconds": [0.25] * 3}
    assert "embedding" in CostTable(read_recording(path)).loop
    assert ledger.total("retrievals").tolist() == [1] * 3
    assert ledger.calls.tolist() == [2] * 3  # of the language model
    prices = tmp_path / "prices.toml"
    prices.write_text("[embed-3]\nuncached = 1\ncached = 1\noutput = 1\n")
    with pytest.raises(DataError, match="'generator'"):
        prices_of(prices, read_recording(path))
    prices.write_text(prices.read_text() + prices.read_text().replace("embed-3", "generator"))
    assert set(prices_of(prices, read_recording(path))) == {"generator", "embedding"}
    ranking = asyncio.run(stores.open("lancedb").costed_rank(QUESTIONS[0].question, k=1))
    assert {name: cost.calls for name, cost in ranking.costs.items()} == {"retrieval": 1}
    blank = asyncio.run(store.costed_rank(" ", k=1))
    assert {name: cost.calls for name, cost in blank.costs.items()} == {"retrieval": 0}


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_records_from_an_address_without_its_password(stores, kind, tmp_path, quick_reader):
    address = {
        "postgres": stores.uri.replace("postgres:@", "postgres:s3cret-word@")
        + "&table=passages&filter.part=0&filter.part=1",
        "qdrant": f"qdrant://{stores.folder / 'qdrant'}?collection=Cosine&id=id&filter.part.lte=1",
        "lancedb": f"lancedb://{stores.folder / 'lance'}?table=passages&filter.kind=news&filter.kind=wiki",
    }[kind]
    stores.close()
    path = tmp_path / "run.parquet"
    arguments = ("record", "hotpotqa_eval", "--limit", 2, "-o", path, "--corpus", address, "--max-rounds", 2)
    done = cli(*arguments, "--dense", "minilm", code=0)
    gc.collect()  # a folder of Qdrant is open until its retriever is gone
    again = cli(*arguments, "--dense", "minilm", "--json")
    assert (again.json["rounds"], again.json["calls"]) == (4, 0)
    recorded = read_recording(path)
    assert recorded.metadata["config"]["retriever"]["filters"]
    gc.collect()
    answer = cli("answer", QUESTIONS[0].question, "--corpus", address, "--dense", "minilm", "--max-rounds", 1, code=0)
    assert "--corpus" in answer.words
    shown = [done.out, done.err, answer.out, answer.err, str(recorded.metadata), path.read_bytes().decode("latin-1")]
    assert not any("s3cret" in text for text in shown)
    gc.collect()
    wrong = cli(*arguments, "--dense", "minilm", "--set=similarity=dot")
    assert "similarity is" in wrong.error
    missing = cli(
        "answer",
        "Who?",
        "--corpus",
        address.replace("passages", "nothing").replace("Cosine", "nothing"),
        "--dense",
        "minilm",
    )
    assert "'nothing'" in missing.error
    assert "s3cret" not in missing.error


@pytest.mark.parametrize("kind", KINDS)
def test_passages_are_looked_up_by_their_ids(stores, kind):
    wanted = [PASSAGES[7], PASSAGES[0], PASSAGES[99]]
    store = stores.open(kind, embedder=None)
    passages = store.passages([*(p.passage_id for p in wanted), "it's not there", "p007"])
    assert {name: (p.title, p.text) for name, p in passages.items()} == {
        p.passage_id: (p.title, p.text) for p in wanted
    }
    assert store.passages([]) == {}
    with_points = stores.open(kind, passage_id=None if kind == "qdrant" else "part", filters=None)
    if kind == "qdrant":
        numbered = with_points.passages(["0", "99"])
        assert {name: p.title for name, p in numbered.items()} == {
            name: PASSAGES[int(name)].title for name in ("0", "99")
        }
    else:
        with pytest.raises(DataError, match="two hits"):  # a column of numbers that is not unique
            with_points.passages(["1"])


def test_a_judge_reads_the_passages_of_a_store(stores, tmp_path):
    path, out = tmp_path / "run.parquet", tmp_path / "judged.parquet"
    loop = RetrievalLoop(
        model=ScriptedModel(lambda question, passages: "an answer"),
        retriever=stores.open("postgres"),
        policy=Policy(max_rounds=1),
    )
    record(QUESTIONS[:2], loop, path)
    with Endpoint(reply='{"statements": [{"statement": "It is so.", "supported": true}]}') as endpoint:
        address = f"{stores.uri}&table=passages"
        options = ("--model", "m", "--base-url", endpoint.url, "--set=marks=faithfulness", "--corpus", address)
        cli("judge", "drafts", path, "-o", out, *options, code=0)
        ids = read_recording(path).table.column("passage_ids").to_pylist()
        texts = {p.passage_id: p.text for p in PASSAGES}
        prompts = "".join(request.prompt for request in endpoint.requests)
        assert all(texts[name] in prompts for (name,) in ids)
        assert read_recording(out).column("faithfulness").ravel().tolist() == [1.0, 1.0]


def test_a_store_that_changed_is_noticed(stores, tmp_path):
    executed(stores, "CREATE TABLE changing AS SELECT * FROM passages WHERE part = 0")

    def go(**settings):
        retriever = stores.open("postgres", table="changing", **settings)
        model = ScriptedModel(lambda question, passages: "an answer")
        record(QUESTIONS[:1], RetrievalLoop(model=model, retriever=retriever), tmp_path / f"{settings}.parquet")

    for content in ("rows", "text", "none"):
        go(content=content)
        go(content=content)
    executed(stores, "UPDATE changing SET text = text || '!' WHERE id = 'p000'")
    go(content="rows")
    with pytest.raises(ConfigMismatchError, match=r"retriever\.content\.text_hash"):
        go(content="text")
    executed(stores, "DELETE FROM changing WHERE id = 'p000'")
    with pytest.raises(ConfigMismatchError, match=r"retriever\.content\.rows"):
        go(content="rows")
    go(content="none")


def test_rankings_of_a_named_version_are_cached(stores, tmp_path):
    with pytest.raises(DataError, match="cached"):
        CachedRetriever(stores.open("lancedb"), ResponseCache(tmp_path / "cache.db"))
    for settings in ({"version": "2026-11"}, {"content": "text"}):
        cached = CachedRetriever(stores.open("postgres", **settings), ResponseCache(tmp_path / "cache.db"))
        assert ranked_now(cached, "Who?", k=2) == ranked_now(cached, "Who?", k=2)
        assert (cached.hits, cached.misses, cached.score_kind) == (1, 1, "cosine")


def test_a_changed_table_of_lancedb_has_another_version(stores):
    import lancedb

    before = stores.open("lancedb").fingerprint()["content"]
    table = lancedb.connect(stores.folder / "lance").open_table("passages")
    table.update("id = 'p000'", {"kind": "changed"})
    after = stores.open("lancedb").fingerprint()["content"]
    assert after["rows"] == before["rows"]
    assert after["table_version"] > before["table_version"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_retriever_serves_many_event_loops_and_questions_at_once(stores, vectors, kind):
    store = stores.open(kind)
    expected = [brute_force(vectors, question.question) for question in QUESTIONS[:8]]

    async def all_at_once():
        rankings = await asyncio.gather(*(store.rank(question.question, k=5) for question in QUESTIONS[:8]))
        for ranking, scores in zip(rankings, expected, strict=True):
            assert_same_ranking(ranking, scores, 5)
        assert ranked_now(store, QUESTIONS[0].question, k=1)  # from synchronous code within a loop
        return store.fingerprint()

    # Each call runs, and closes, a loop of its own.
    assert asyncio.run(all_at_once()) == run_blocking(all_at_once()) == store.fingerprint()
    store.close()
    assert len(ranked_now(store, QUESTIONS[0].question, k=5)) == 5  # opened again


def test_connections_are_bounded_reused_and_closed_with_the_retriever(stores):
    def connections():
        with psycopg.connect(stores.uri) as connection:
            query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'suffice'"
            return {pid for (pid,) in connection.execute(query)}

    def until(condition):
        deadline = time.monotonic() + 600
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert condition()

    until(lambda: not connections())  # those of the tests before
    store = PostgresStore(stores.uri, table="passages", embedder=EMBEDDER, connections=2)

    async def many(store):
        await asyncio.gather(*(store.rank(question.question, k=5) for question in QUESTIONS))

    asyncio.run(many(store))
    first = connections()
    assert 1 <= len(first) <= 2
    asyncio.run(many(store))
    both = connections()
    assert first <= both
    assert len(both) <= 2
    executed(stores, *(f"SELECT pg_terminate_backend({pid})" for pid in both))  # as a restart does
    until(lambda: not connections())
    asyncio.run(many(store))
    assert connections()
    del store
    gc.collect()
    until(lambda: not connections())


def test_a_search_that_takes_too_long_ends(stores):
    executed(stores, "CREATE VIEW slow AS SELECT passages.* FROM passages, pg_sleep(30)")
    with pytest.raises(ModelTimeoutError, match="'slow'"):
        stores.open("postgres", table="slow", timeout_s=0.2).fingerprint()


def test_an_approximate_index_returns_as_many_hits_as_asked_for(stores, vectors):
    executed(
        stores,
        "CREATE TABLE indexed AS SELECT * FROM passages",
        "CREATE INDEX ON indexed USING hnsw (embedding vector_cosine_ops)",
        "ALTER DATABASE postgres SET enable_seqscan = off",  # 100 rows are otherwise scanned
        "ALTER TABLE indexed ADD COLUMN half halfvec",
        "UPDATE indexed SET half = embedding::halfvec",
    )
    try:
        question = QUESTIONS[2].question
        store = stores.open("postgres", table="indexed")
        assert_same_ranking(ranked_now(store, question, k=70), brute_force(vectors, question), 70)
        few = stores.open("postgres", table="indexed", filters={"part": 1})
        assert_same_ranking(ranked_now(few, question, k=30), brute_force(vectors, question, rows=range(1, 100, 3)), 30)
        exact = stores.open("postgres", table="indexed", exact=True, vector="half")
        assert_same_ranking(ranked_now(exact, question, k=9), brute_force(vectors, question), 9, tolerance=2e-3)
    finally:
        executed(stores, "ALTER DATABASE postgres RESET enable_seqscan")


MISSING = {
    "table": ({"table": "pasages", "collection": "pasages"}, "'pasages'.*(passages|Cosine)"),
    "text": ({"text": "body"}, "'body'.*text"),
    "title": ({"title": "heading"}, "'heading'.*title=None"),
    "vector": ({"vector": "vectors"}, "'vectors'"),
}


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_name_is_an_error_that_lists_what_is_there(stores, kind, missing):
    settings, message = MISSING[missing]
    other = "table" if kind == "qdrant" else "collection"
    store = stores.open(kind, **{name: value for name, value in settings.items() if name != other})
    with pytest.raises(NotFoundError, match=message):
        store.fingerprint()
    with pytest.raises(NotFoundError, match=message):
        ranked_now(store, "Who?", k=1)


def test_lancedb_searches_words_with_an_index_only(stores):
    with pytest.raises(DataError, match="table.create_index"):
        stores.open("lancedb", embedder=None, text="title").fingerprint()


def test_folders_that_do_not_exist_are_not_created(tmp_path):
    for store in (
        LanceDBStore(tmp_path / "none", table="p"),
        QdrantStore("p", path=tmp_path / "none", embedder=EMBEDDER),
    ):
        with pytest.raises(NotFoundError, match="exist"):
            store.fingerprint()
    assert not (tmp_path / "none").exists()


class Short:
    id, revision, pooling = "short", "1", "none"

    def embed(self, texts):
        return np.ones((len(texts), 7), np.float32)

    def embed_costed(self, texts):
        raise NotImplementedError


@pytest.mark.parametrize("kind", KINDS)
def test_the_dimension_is_compared_before_anything_is_paid(stores, kind, tmp_path):
    model = ScriptedModel(lambda question, passages: pytest.fail("the model was asked"))
    loop = RetrievalLoop(model=model, retriever=stores.open(kind, embedder=Short()), policy=Policy(start_round=0))
    with pytest.raises(DataError, match="returns 7"):
        record(QUESTIONS[:1], loop, tmp_path / "run.parquet")


def test_a_dense_retriever_encodes_questions_with_its_own_prefix(stores):
    class Encoder:
        def encode(self, texts):
            return [EMBEDDER.embed([text.removeprefix("query: ")])[0] * 3 for text in texts]

    dense = DenseRetriever("tripled", encoder=Encoder(), similarity="dot", question_prefix="query: ")
    question = QUESTIONS[0].question
    tripled = ranked_now(stores.open("postgres", "dot", embedder=dense), question, k=3)
    plain = ranked_now(stores.open("postgres", "dot"), question, k=3)
    assert [hit.score for hit in tripled] == pytest.approx([3 * hit.score for hit in plain], rel=1e-5)
    assert stores.open("postgres", "dot", embedder=dense).fingerprint()["embedder"]["question_prefix"] == "query: "


def test_rows_without_passages_are_errors_and_a_missing_title_is_the_id(stores):
    executed(
        stores,
        "CREATE TABLE odd (id int, title text, text text, embedding vector(3), words text[])",
        "CREATE TABLE empty (LIKE odd)",
        "INSERT INTO odd VALUES (1, NULL, 'apple pear', NULL), (2, 'two', NULL, NULL), (3, 'three', 'plum', NULL), (3, '', 'fig', NULL)",
    )
    with pytest.raises(DataError, match="'empty'"):
        stores.open("postgres", table="empty", embedder=None).fingerprint()
    with pytest.raises(DataError, match="4 rows"):
        stores.open("postgres", table="odd").fingerprint()
    with pytest.raises(DataError, match="'words'"):
        stores.open("postgres", table="odd", vector="words").fingerprint()
    words = stores.open("postgres", table="odd", embedder=None)
    assert [(hit.passage_id, hit.title) for hit in ranked_now(words, "apple", k=5)] == [("1", "1")]
    with pytest.raises(DataError, match="passage '2'"):
        ranked_now(words, "two", k=5)
    with pytest.raises(DataError, match="two hits"):
        ranked_now(words, "plum or fig", k=5)
    with pytest.raises(DataError, match="filters"):
        stores.open("postgres", table="odd", embedder=None, filters={"id": "x"}).fingerprint()
    with pytest.raises(DataError, match="klingon"):
        stores.open("postgres", table="odd", embedder=None, language="klingon").fingerprint()
    with pytest.raises(DataError, match="ts_rank_cd"):
        stores.open("postgres", table="odd", embedder=None, tsvector="words").fingerprint()


def test_equals_are_in_the_order_of_their_ids_also_after_an_update(stores):
    executed(
        stores,
        "CREATE TABLE equals AS SELECT i AS id, 'T' AS title, 'x' AS text, embedding FROM passages, generate_series(1, 40) i "
        "WHERE passages.id = 'p000'",
        "UPDATE equals SET text = 'y' WHERE id % 3 = 1",
    )
    assert [hit.passage_id for hit in ranked_now(stores.open("postgres", table="equals"), "film", k=12)] == [
        str(i) for i in range(1, 13)
    ]


def test_rows_of_lancedb_without_a_vector_are_counted(stores, caplog):
    import lancedb

    database = lancedb.connect(stores.folder / "lance")
    vectors = pa.array([None, [1.0] * 384, None], pa.list_(pa.float32(), 384))
    table = pa.table({"id": ["a", "b", "c"], "title": ["t"] * 3, "text": ["x"] * 3, "vector": vectors})
    database.create_table("partly", table, on_bad_vectors="null")
    assert stores.open("lancedb", table="partly").fingerprint()["content"]["with_vector"] == 1
    assert "2 of 3 rows have no vector, so they are never found" in caplog.text
    with pytest.raises(DataError, match="2 rows"):
        stores.open("lancedb", table="partly", filters={"id": ["a", "c"]}).fingerprint()


def test_a_database_without_the_extension_is_an_error(stores):
    executed(stores, "CREATE DATABASE bare")
    uri = stores.uri.replace("/postgres?", "/bare?")
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE passages AS SELECT 1 AS id, 'a' AS title, 'b' AS text, '{1}'::real[] AS embedding"
        )
    with pytest.raises(DataError, match="CREATE EXTENSION vector"):
        PostgresStore(uri, table="passages", embedder=EMBEDDER).fingerprint()
    with pytest.raises(DataError, match="nowhere"):
        PostgresStore(uri.replace("/bare?", "/nowhere?"), table="passages").fingerprint()


def test_a_qdrant_payload_may_be_nested_and_the_point_is_the_id(stores):
    hits = ranked_now(stores.open("qdrant", passage_id=None, title="meta.title"), QUESTIONS[0].question, k=3)
    assert [hit.title for hit in hits] == [PASSAGES[int(hit.passage_id)].title for hit in hits]


def test_qdrant_with_a_name_for_each_vector(tmp_path):
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(tmp_path / "q"))
    size = models.VectorParams(size=7, distance=models.Distance.MANHATTAN)
    client.create_collection("named", {"short": size, "other": size})
    client.create_collection("empty", size)
    points = [
        models.PointStruct(id=i, vector={"short": [1.0] * 6 + [float(i)]}, payload={"text": "t"} if i < 3 else {})
        for i in (1, 2, 3)
    ]
    client.upsert("named", points)
    client.close()

    def opened(name, **settings):
        return QdrantStore(name, path=tmp_path / "q", embedder=Short(), title=None, **settings)

    store = opened("named", vector="short")
    assert [(hit.title, hit.score) for hit in ranked_now(store, "Who?", k=2)] == [("1", 0.0), ("2", -1.0)]
    with pytest.raises(DataError, match="passage '3'"):
        ranked_now(store, "Who?", k=3)
    store.close()
    for bad, message in ((opened("named"), "other, short"), (opened("empty"), "'empty'")):
        with pytest.raises(DataError, match=message):
            bad.fingerprint()
        bad.close()
    with pytest.raises(DataError, match="or path"):
        QdrantStore("named", embedder=Short())


def test_passwords_appear_nowhere(caplog, monkeypatch):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("PGPASSWORD", "hunter-twelve")
    unsafe = QdrantStore(
        "p", url="http://bob:s3cret-word@127.0.0.1:1", api_key="s3cret-word", embedder=EMBEDDER, retries=1
    )
    stores = [
        PostgresStore("postgresql://bob:s3cret-word@127.0.0.1:1/db", table="p", retries=0),
        PostgresStore("postgresql://bob:s3cret-word@hunter-twelve.invalid/db?connect_timeout=2", table="p", retries=0),
    ]
    with pytest.warns(UserWarning, match="insecure"), pytest.raises(ModelError, match="reached"):
        unsafe.fingerprint()
    shown = [repr(store) for store in (*stores, unsafe)]
    for store in (*stores, unsafe):
        with pytest.raises(ModelError, match="reached") as raised:
            store.fingerprint()
        assert raised.value.retryable
        assert raised.value.__context__ is None
        shown.append(str(raised.value))
    with pytest.raises(DataError, match="postgresql://") as raised:
        PostgresStore("postgresql://bob:s3cret-word@[", table="p")
    shown += [str(raised.value), caplog.text]
    assert not any("s3cret" in text or "hunter" in text for text in shown)


def test_a_wrong_password_is_named_as_such(stores):
    executed(stores, "CREATE ROLE reader LOGIN")
    store = PostgresStore(stores.uri.replace("//postgres:", "//reader:"), table="passages")
    with pytest.raises(AuthenticationFailedError, match="permission denied"):
        store.fingerprint()
