"""Elasticsearch, OpenSearch and a server of Qdrant by their wire: replies of the published form, every request compared word for word.

No server of these can run here, so what is tested is the client code.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from suffice import Policy, RetrievalLoop, ScriptedModel, load_questions, read_recording, record
from suffice.errors import AuthenticationFailedError, DataError, ModelError, ModelTimeoutError
from suffice.loops.retrieval import ranked_now, score_kind_of
from suffice_retrieval.stores import ElasticsearchStore, OpenSearchStore, QdrantStore, open_store
from tests.support.cli_tools import cli

ENGINES = {"elasticsearch": ElasticsearchStore, "opensearch": OpenSearchStore}

INDEX = {
    "passages-000001": {
        "aliases": {"passages": {}},
        "mappings": {
            "properties": {
                "title": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
                "text": {"type": "text"},
                "year": {"type": "long"},
                "meta": {"properties": {"name": {"type": "keyword"}}},
            }
        },
        "settings": {
            "index": {
                "creation_date": "1783065600000",
                "number_of_shards": "1",
                "number_of_replicas": "1",
                "uuid": "xHkPWrUTQ5yNnpnBDH9zzg",
                "version": {"created": "8505000"},
                "provided_name": "passages-000001",
            }
        },
    }
}
VECTORS = {
    "elasticsearch": {"type": "dense_vector", "dims": 3, "index": True, "similarity": "cosine"},
    "opensearch": {
        "type": "knn_vector",
        "dimension": 3,
        "method": {"name": "hnsw", "space_type": "cosinesimil", "engine": "lucene"},
    },
}
COUNT = {"count": 3, "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0}}


def hit(name, score, **source):
    return {"_index": "passages-000001", "_id": name, "_score": score, "_source": source}


def hits(*items, timed_out=False, failed=0):
    return {
        "took": 4,
        "timed_out": timed_out,
        "_shards": {"total": 1, "successful": 1 - failed, "skipped": 0, "failed": failed},
        "hits": {
            "total": {"value": len(items), "relation": "eq"},
            "max_score": max((item["_score"] for item in items), default=None),
            "hits": list(items),
        },
    }


FOUND = hits(
    hit("a", 7.25, title="Munch", text="Munch was born in Norway.", year=1863, meta={"name": "one"}),
    hit("b", 1.5, title="Oslo", text="Oslo is the capital of Norway.", year=1624, meta={"name": "two"}),
)


def failure(status, kind, reason):
    cause = {"type": kind, "reason": reason, "index": "passages", "index_uuid": "_na_"}
    return status, {"error": {"root_cause": [cause], **cause}, "status": status}


class Wire:
    """A server that sends stored replies, and keeps the requests."""

    def __init__(self, engine: str) -> None:
        self.engine, self.requests, self.headers = engine, [], []
        mapping = json.loads(json.dumps(INDEX))
        mapping["passages-000001"]["mappings"]["properties"]["embedding"] = VECTORS.get(engine)
        self.replies = {
            "/passages": (200, mapping),
            "/passages/_count": (200, COUNT),
            "/passages/_search": (200, FOUND),
        }
        self.instead = []  # replies to the next searches

        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                size = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                wire.requests.append((self.command, self.path, body))
                wire.headers.append(dict(self.headers))
                path = self.path.partition("?")[0]
                missing = failure(404, "index_not_found_exception", "no such index [passages]")
                status, reply = wire.replies.get(path, missing)
                if path.endswith(("/_search", "/query")) and wire.instead:
                    status, reply = wire.instead.pop(0)
                if status == "drop":
                    self.close_connection = True
                    self.connection.close()
                    return
                content = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                if wire.engine == "elasticsearch":
                    self.send_header("X-Elastic-Product", "Elasticsearch")
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = handle_any

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.address = f"127.0.0.1:{self.server.server_port}"

    def open(self, **settings):
        url = settings.pop("url", f"http://{self.address}")
        self.store = ENGINES[self.engine](url, settings.pop("index", "passages"), **settings)
        return self.store

    def close(self):
        self.store.close()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(params=ENGINES)
def wire(request):
    wire = Wire(request.param)
    wire.open()
    yield wire
    wire.close()


class Short:
    id, revision, pooling = "short", "1", "none"

    def __init__(self, width=3):
        self.width = width

    def embed(self, texts):
        return np.array([[1.0, 0.5, 0.25, 0.0][: self.width]] * len(texts), np.float32)


SEARCH = "/passages/_search?allow_partial_search_results=false"


def test_a_search_by_words_is_one_request_of_this_form(wire):
    hits = ranked_now(wire.store, "Where was Munch born?", k=2)
    assert [(p.passage_id, p.title, p.text, p.score) for p in hits] == [
        ("a", "Munch", "Munch was born in Norway.", 7.25),
        ("b", "Oslo", "Oslo is the capital of Norway.", 1.5),
    ]
    query = {"query": "Where was Munch born?", "operator": "or", "fields": ["title", "text"]}
    assert wire.requests == [
        ("GET", "/passages", None),
        ("POST", "/passages/_count", {"query": {"match_all": {}}}),
        ("POST", SEARCH, {"size": 2, "_source": ["title", "text"], "query": {"multi_match": query}}),
    ]
    ranked_now(wire.store, "Who?", k=1)
    assert len(wire.requests) == 4  # it is opened once
    fingerprint = wire.store.fingerprint()
    assert fingerprint["content"] == {"rows": 3, "uuids": ["xHkPWrUTQ5yNnpnBDH9zzg"]}
    assert (fingerprint["index"], fingerprint["operator"], score_kind_of(wire.store)) == ("passages", "or", "bm25")
    assert wire.address not in json.dumps(fingerprint)


def test_passages_are_looked_up_by_their_ids_in_one_request(wire):
    assert list(wire.store.passages(["a", "b", "a", "c"])) == ["a", "b"]
    query = {"ids": {"values": ["a", "b", "c"]}}
    assert wire.requests == [("POST", SEARCH, {"size": 3, "_source": ["title", "text"], "query": query})]
    assert wire.open(passage_id="meta.name").passages(["one"])["one"].title == "Munch"
    assert wire.requests[-1][2]["query"] == {"terms": {"meta.name": ["one"]}}


def test_settings_and_filters_become_a_query(wire):
    store = wire.open(
        passage_id="meta.name",
        title=None,
        searched=["text"],
        operator="and",
        filters={"year": {"gte": 1800}, "title.keyword": ["Munch", "Oslo"]},
    )
    assert [(p.passage_id, p.title) for p in ranked_now(store, "Who?", k=5)] == [("one", "one"), ("two", "two")]
    clauses = [{"range": {"year": {"gte": 1800}}}, {"terms": {"title.keyword": ["Munch", "Oslo"]}}]
    match = {"match": {"text": {"query": "Who?", "operator": "and"}}}
    assert wire.requests[1][2] == {"query": {"bool": {"must": [{"match_all": {}}], "filter": clauses}}}
    assert wire.requests[2][2] == {
        "size": 5,
        "_source": ["meta.name", "text"],
        "query": {"bool": {"must": [match], "filter": clauses}},
    }


def test_a_search_by_vectors_has_the_form_of_each_engine(wire):
    store = wire.open(embedder=Short(), filters={"year": 1863})
    assert len(ranked_now(store, "Who?", k=2)) == 2
    clauses = [{"terms": {"year": [1863]}}]
    expected = {
        "elasticsearch": {
            "knn": {
                "field": "embedding",
                "query_vector": [1.0, 0.5, 0.25],
                "k": 2,
                "num_candidates": 100,
                "filter": clauses,
            }
        },
        "opensearch": {
            "query": {
                "knn": {"embedding": {"vector": [1.0, 0.5, 0.25], "k": 2, "filter": {"bool": {"filter": clauses}}}}
            }
        },
    }[wire.engine]
    assert wire.requests[-1] == ("POST", SEARCH, {"size": 2, "_source": ["title", "text"], **expected})
    assert score_kind_of(store) == "similarity"
    with pytest.raises(DataError, match="returns 4"):
        wire.open(embedder=Short(4)).fingerprint()
    with pytest.raises(DataError, match="'year'"):
        wire.open(embedder=Short(), vector="year").fingerprint()


def test_what_is_missing_is_an_error_that_lists_what_is_there(wire):
    with pytest.raises(DataError, match="'body'"):
        wire.open(text="body").fingerprint()
    with pytest.raises(DataError, match="index_not_found_exception"):
        wire.open(index="nothing").fingerprint()
    wire.replies["/passages/_count"] = (200, {**COUNT, "count": 0})
    with pytest.raises(DataError, match="fill it"):
        wire.open().fingerprint()
    with pytest.raises(DataError, match="filters hold"):
        wire.open(filters={"year": 3}).fingerprint()


def test_more_hits_than_the_index_allows_are_an_error_before_the_request(wire):
    with pytest.raises(DataError, match="10,000 hits"):
        ranked_now(wire.store, "Who?", k=10_001)
    assert len(wire.requests) == 2
    wire.replies["/passages"][1]["passages-000001"]["settings"]["index"]["max_result_window"] = "2"
    with pytest.raises(DataError, match="2 hits"):
        ranked_now(wire.open(), "Who?")


OVERLOAD = failure(429, "es_rejected_execution_exception", "rejected execution of coordinating operation")


@pytest.mark.parametrize(
    "fault", [OVERLOAD, ("drop", None), failure(503, "no_shard_available_action_exception", "none")]
)
def test_an_overload_or_a_lost_connection_is_tried_again(wire, fault):
    wire.instead = [fault]
    assert len(ranked_now(wire.store, "Who?", k=2)) == 2
    wire.instead = [fault] * 9
    with pytest.raises(ModelError) as raised:
        ranked_now(wire.open(retries=1), "Who?", k=2)
    assert raised.value.retryable
    assert len(wire.instead) == 7


def test_replies_that_are_not_whole_or_no_passages_are_errors(wire):
    for reply, error, message in (
        (hits(timed_out=True), ModelTimeoutError, "time limit"),
        (hits(failed=1), ModelError, "shards"),
        (hits(hit("a", 1.0, title="No text")), DataError, "passage 'a'"),
        (hits(hit("a", 2.0, text="x"), hit("a", 1.0, text="y")), DataError, "two hits"),
    ):
        wire.instead = [(200, reply)]
        with pytest.raises(error, match=message):
            ranked_now(wire.open(), "Who?", k=2)
    wire.instead = [failure(400, "query_shard_exception", "failed to create query")]
    with pytest.raises(DataError, match="query_shard_exception"):
        ranked_now(wire.store, "Who?", k=2)


def test_users_and_keys_are_sent_and_shown_nowhere(wire, monkeypatch, caplog):
    caplog.set_level("DEBUG")
    store = wire.open(url=f"http://ann:s3cret-word@{wire.address}")
    store.fingerprint()
    assert wire.headers[-1]["authorization"] == "Basic YW5uOnMzY3JldC13b3Jk"
    logged = caplog.text  # before a server echoes the password, which clients log at this level
    wire.instead = [failure(401, "security_exception", "unable to authenticate user [ann] with s3cret-word")]
    with pytest.raises(AuthenticationFailedError, match="password") as raised:
        ranked_now(store, "Who?", k=1)
    shown = [str(raised.value), repr(store), json.dumps(store.fingerprint())]
    variable = wire.engine.upper()
    monkeypatch.setenv(f"{variable}_USERNAME", "ann")
    monkeypatch.setenv(f"{variable}_PASSWORD", "s3cret-word")
    wire.open().fingerprint()
    assert wire.headers[-1]["authorization"] == "Basic YW5uOnMzY3JldC13b3Jk"
    if wire.engine == "elasticsearch":
        monkeypatch.setenv("ELASTICSEARCH_API_KEY", "s3cret-key")
        wire.open().fingerprint()
        assert wire.headers[-1]["authorization"] == "ApiKey s3cret-key"
    else:
        with pytest.raises(DataError, match="API keys"):
            wire.open(api_key="s3cret-key")
    with pytest.raises(DataError, match="host:9200") as raised:
        wire.open(url="ann:s3cret-word@host")
    shown += [str(raised.value), logged]
    assert not any("s3cret" in text for text in shown)


def test_another_product_than_elasticsearch_is_named():
    wire = Wire("opensearch")
    try:
        wire.store = ElasticsearchStore(f"http://{wire.address}", "passages")
        with pytest.raises(DataError, match="not Elasticsearch"):
            wire.store.fingerprint()
    finally:
        wire.close()


def test_a_server_that_is_not_there_is_an_error():
    for engine in ENGINES.values():
        store = engine("http://127.0.0.1:1", "passages", retries=0)
        with pytest.raises(ModelError, match="reached") as raised:
            store.fingerprint()
        assert raised.value.retryable
        store.close()


def test_a_live_loop_and_a_command_record_from_an_index(wire, tmp_path):
    model = ScriptedModel(lambda question, passages: passages[-1].title)
    questions = load_questions("hotpotqa_eval", limit=2)
    path = tmp_path / "run.parquet"
    summary = record(questions, RetrievalLoop(model=model, retriever=wire.store, policy=Policy(max_rounds=2)), path)
    assert (summary.rounds, summary.failed) == (4, {})
    assert (
        record(
            questions, RetrievalLoop(model=model, retriever=wire.open(), policy=Policy(max_rounds=2)), path
        ).cost.calls
        == 0
    )
    assert read_recording(path).metadata["score_kind"] == "bm25"
    done = cli(
        "record", "hotpotqa_eval", "--limit", 1, "-o", tmp_path / "cli.parquet", "--max-rounds", 1,
        "--corpus", f"{wire.engine}://ann:s3cret-word@{wire.address}/passages",
    )  # fmt: skip
    assert done.code == 0, done
    assert "s3cret" not in done.out + done.err


def qdrant(result):
    return 200, {"result": result, "status": "ok", "time": 0.0004}


COLLECTION = {
    "status": "green",
    "optimizer_status": "ok",
    "indexed_vectors_count": 0,
    "points_count": 2,
    "segments_count": 2,
    "config": {
        "params": {
            "vectors": {"size": 3, "distance": "Euclid"},
            "shard_number": 1,
            "replication_factor": 1,
            "write_consistency_factor": 1,
            "on_disk_payload": True,
        },
        "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000},
        "optimizer_config": {
            "deleted_threshold": 0.2,
            "vacuum_min_vector_number": 1000,
            "default_segment_number": 0,
            "flush_interval_sec": 5,
        },
        "wal_config": {"wal_capacity_mb": 32, "wal_segments_ahead": 0},
    },
    "payload_schema": {},
}
POINTS = [
    {"id": 7, "version": 0, "score": 0.25, "payload": {"title": "Munch", "text": "Munch was born in Norway."}},
    {
        "id": "5c56c793-69f3-4fbf-87e6-c4bf54c28c26",
        "version": 0,
        "score": 2.0,
        "payload": {"text": "Oslo is in Norway."},
    },
]


@pytest.fixture
def server():
    wire = Wire("qdrant")
    wire.replies = {
        "/collections": qdrant({"collections": [{"name": "wiki"}]}),
        "/collections/wiki": qdrant(COLLECTION),
        "/collections/wiki/points/count": qdrant({"count": 2}),
        "/collections/wiki/points/scroll": qdrant({"points": [POINTS[0]], "next_page_offset": 7}),
        "/collections/wiki/points/query": qdrant({"points": POINTS}),
    }
    wire.store = QdrantStore(
        "wiki", url=f"http://{wire.address}", embedder=Short(), filters={"year": {"gte": 1800}}, exact=True
    )
    yield wire
    wire.close()


def test_a_server_of_qdrant_is_asked_in_its_form(server):
    hits = ranked_now(server.store, "Who?", k=2)
    assert [(p.passage_id, p.title, p.score) for p in hits] == [
        ("7", "Munch", -0.25),
        (POINTS[1]["id"], POINTS[1]["id"], -2.0),
    ]
    conditions = {"must": [{"key": "year", "range": {"gte": 1800.0}}]}
    root = "/collections/wiki"
    paths = ["/collections", root, f"{root}/points/count", f"{root}/points/scroll", f"{root}/points/query"]
    assert [request[1].partition("?")[0] for request in server.requests] == paths
    assert server.requests[2][2] == {"filter": conditions, "exact": True}
    assert server.requests[4][2] == {
        "query": {"nearest": [1.0, 0.5, 0.25]},
        "filter": conditions,
        "params": {"exact": True},
        "limit": 2,
        "with_payload": ["title", "text"],
        "with_vector": False,
    }
    content = {"points": 2, "distance": "Euclid", "dimension": 3}
    assert server.store.fingerprint()["content"] == content
    assert server.address not in json.dumps(server.store.fingerprint())


def test_failures_of_a_server_of_qdrant(server, monkeypatch, recwarn):
    monkeypatch.setenv("QDRANT_API_KEY", "s3cret-key")
    store = server.store = open_store(f"qdrant://{server.address}/wiki?retries=1", Short())
    store.fingerprint()
    assert {name.lower(): value for name, value in server.headers[-1].items()}["api-key"] == "s3cret-key"
    recwarn.clear()  # the client warns about a key without encryption
    wrong = {"status": {"error": "Wrong input: no such index"}, "time": 0.0}
    for reply, error, message in (
        ((400, wrong), DataError, "answered 400"),
        ((401, {"status": {"error": "s3cret-key is invalid"}}), AuthenticationFailedError, "answered 401"),
        ((404, wrong), DataError, "answered 404"),
    ):
        server.instead = [reply]
        with pytest.raises(error, match=message) as raised:
            ranked_now(store, "Who?", k=2)
        assert "s3cret" not in str(raised.value)
    for fault in ((429, wrong), (503, wrong), ("drop", None)):
        server.instead = [fault]
        assert len(ranked_now(store, "Who?", k=2)) == 2
        server.instead = [fault] * 2
        with pytest.raises(ModelError) as raised:
            ranked_now(store, "Who?", k=2)
        assert raised.value.retryable
