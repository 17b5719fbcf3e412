"""Addresses of stores, and functions, as `--corpus`."""

import dataclasses
import sys
import textwrap

import pytest
from psycopg.conninfo import conninfo_to_dict

from suffice.errors import DataError, ModelError
from suffice.loops.models import EndpointEmbedder
from suffice.loops.retrieval import ranked_now
from suffice_reader.minilm import MiniLM
from suffice_retrieval.indexes import DenseRetriever
from suffice_retrieval.stores import (
    Content,
    ElasticsearchStore,
    Fields,
    LanceDBStore,
    OpenSearchStore,
    PostgresStore,
    QdrantStore,
    Store,
    StoreKind,
    is_store_address,
    open_store,
    register_store,
    shown_address,
    store_kind,
    store_names,
    store_variables,
)
from tests.support.cli_tools import cli


class Short:
    id, revision, pooling = "short", "1", "none"


def test_an_address_of_postgres_names_everything():
    store = open_store(
        "postgresql://ann:p%40ss@db:6432/wiki?table=passages&schema=public&id=pid&title=&text=body&vector=v&distance=l2&exact=true"
        "&content=none&connections=3&timeout=2.5&retries=0&sslmode=require&version=7&identity=title"
        '&filter.language=en&filter.language=de&filter.year.gte=2000&filter.code="7"',
        Short(),
    )
    assert isinstance(store, PostgresStore)
    conninfo = {"user": "ann", "password": "p@ss", "host": "db", "port": "6432", "dbname": "wiki", "sslmode": "require"}
    assert store._parameters == conninfo
    fields = store.fields
    assert (fields.passage_id, fields.title, fields.text, fields.vector) == ("pid", None, "body", "v")
    assert (store.table, store.schema, store.distance, store.exact, store.content) == (
        "passages",
        "public",
        "l2",
        True,
        "none",
    )
    assert (store.connections, store.timeout_s, store.retries, store.version, store.identity) == (
        3,
        2.5,
        0,
        "7",
        "title",
    )
    assert store.filters == {"language": ["en", "de"], "year": {"gte": 2000}, "code": "7"}
    words = open_store("postgres:///wiki?table=p&host=/run/pg&tsvector=words&language=german&operator=and")
    assert words._parameters == conninfo_to_dict("host=/run/pg dbname=wiki")
    assert (words.tsvector, words.language, words.operator) == ("words", "german", "and")


def test_addresses_of_other_stores():
    qdrant = open_store("qdrant+https://host:6333/wiki?exact=true", Short())
    assert isinstance(qdrant, QdrantStore)
    assert (qdrant.collection, qdrant._options["url"], qdrant.exact) == ("wiki", "https://host:6333", True)
    assert str(open_store("qdrant:///a/folder?collection=wiki", Short())._path) == "/a/folder"
    lance = open_store("lancedb://./a/folder?table=wiki")
    assert isinstance(lance, LanceDBStore)
    assert (lance._uri, lance.table) == ("./a/folder", "wiki")
    assert open_store("lancedb+s3://bucket/base?table=wiki")._uri == "s3://bucket/base"
    elastic = open_store("elasticsearch+https://ann:p%40ss@host:9200/wiki?searched=title%5E2,text&operator=and")
    assert isinstance(elastic, ElasticsearchStore)
    assert (elastic._url, elastic.index, elastic._login) == ("https://host:9200", "wiki", ("ann", "p@ss"))
    assert (elastic.searched, elastic.operator) == (("title^2", "text"), "and")
    assert isinstance(open_store("opensearch://host/wiki"), OpenSearchStore)


WRONG = {
    "documents/": "qdrant://HOST",
    "postgres://h/db": "it names no table",
    "postgres://h/db?table=p&tabel=p": "unknown parameter 'tabel' of postgres. Did you mean 'table'? Allowed: id, title",
    "postgres://h/db?table=p&table=q": "the parameter 'table' is given twice",
    "postgres://h/db?table=p&password=x": "no password or key is read from an address; set PGPASSWORD",
    "postgres://h/db?table=p&exact=yes": "'exact' is 'yes'; expected true or false",
    "postgres://h/db?table=p&retries=two": "'retries' is 'two'; expected a number",
    "postgres://h/db?table=p&retries=-1": "retries at least 0",
    "postgres://h/db?table=p&operator=xor": "operator is 'xor'; allowed: or, and",
    "postgres://h/db?table=p&filter.a=1&filter.a.gt=0": "the filters of 'a' contradict each other",
    "postgres://h/db?table=p&filter.a.gt=1&filter.a.gt=0": "the filters of 'a' contradict each other",
    "postgres://h:port/db?table=p": "host and port cannot be read",
    "postgres+https://h/db?table=p": "postgres+https is not known",
    "qdrant://h": "it names no collection",
    "qdrant:///folder": "it names no collection",
    "qdrant://ann:s3cret@h/c": "no user and password; set QDRANT_API_KEY",
    "qdrant://h/c?api_key=s3cret": "set QDRANT_API_KEY",
    "qdrant+ftp://h/c": "qdrant+ftp is not known; allowed: qdrant, qdrant+http, qdrant+https",
    "lancedb://folder": "it names no table",
    "opensearch://h": "it names no host, or no index",
}


@pytest.mark.parametrize("address", WRONG)
def test_a_wrong_address_says_what_is_allowed(address):
    with pytest.raises(DataError) as raised:
        open_store(address, Short())
    assert WRONG[address] in str(raised.value)
    assert "s3cret" not in str(raised.value)


class Shelf(Store):
    """A store in one file of one's own, without a client library."""

    name = "shelf"

    def __init__(self, books, **common):
        super().__init__("the shelf", Fields(passage_id="id", title="title", text="text", vector=None), **common)
        self.books, self.closed = books, 0

    async def open_client(self):
        return self

    def close(self):
        self.closed += 1

    async def look(self, client):
        return Content(facts={"rows": len(self.books)}, rows=len(self.books), score_kind="bm25")

    async def find(self, client, content, question, vector, k):
        if question == "broken":
            raise OSError("the shelf fell")
        return [(i, title, f"About {title}.", 1.0) for i, title in enumerate(self.books)][:k]


SHELF = StoreKind(
    name="shelf",
    form="shelf://BOOKS",
    build=lambda address: Shelf(address.path.split(","), **address.arguments),
    parameters={"books": ("books", str)},
)


@pytest.fixture
def shelf(monkeypatch):
    monkeypatch.setattr("suffice_retrieval.stores.kinds._REGISTERED", {})
    register_store(SHELF)


def test_a_registered_store_is_opened_by_its_address(shelf):
    assert is_store_address("shelf:///a,b")
    store = open_store("SHELF:///Emma,Ulysses?retries=0&version=1")
    assert [p.title for p in ranked_now(store, "Which book?", k=9)] == ["Emma", "Ulysses"]
    assert store.fingerprint()["content"] == {"rows": 2, "version": "1"}
    with pytest.raises(ModelError, match="reached"):
        ranked_now(store, "broken", k=1)
    with pytest.raises(DataError, match="passages up"):
        store.passages(["1"])
    with pytest.raises(DataError, match="no user"):
        open_store("shelf://ann@host/Emma")


@pytest.mark.parametrize("name", ["shelf", "qdrant"])
def test_the_name_of_a_store_is_taken_once(shelf, name):
    with pytest.raises(DataError, match="another name"):
        register_store(dataclasses.replace(SHELF, name=name))


def test_every_store_says_where_its_keys_belong():
    kinds = {name: store_kind(name) for name in store_names()}
    assert {*kinds} == {"elasticsearch", "lancedb", "opensearch", "postgres", "postgresql", "qdrant"}
    for name, kind in kinds.items():
        assert name.startswith(kind.name)
        assert is_store_address(kind.form)
        assert any(variable in kind.credentials for variable in kind.variables)
        assert store_variables(kind.form) == kind.variables


def test_qdrant_needs_an_embedder():
    store = open_store("qdrant://host/wiki")
    for call in (store.fingerprint, lambda: ranked_now(store, "Who?", k=1)):
        with pytest.raises(DataError, match="--dense"):
            call()


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgres://ann:s3cret@h:1/db?table=p", "postgres://h:1/db?table=p"),
        ("postgres://ann:s3/cr@et@h:1/db?table=p", "postgres://.../db?table=p"),
        ("qdrant+https://h/c?api_key=s3cret&exact=true", "qdrant+https://h/c?exact=true"),
        ("mine.py:search", "mine.py:search"),
    ],
)
def test_an_address_is_shown_without_secrets(address, shown):
    assert shown_address(address) == shown


def test_paths_and_other_addresses_are_no_stores():
    assert not any(map(is_store_address, ("docs", "postgres", "C:\\x", "s3://bucket/x.jsonl", "postgres:/x")))
    assert "'postgres:/x'" in cli("answer", "Who?", "--corpus", "postgres:/x").error


def test_dense_says_what_embeds_the_questions_of_a_store(monkeypatch):
    embedders = []

    def opened(address, embedder):
        embedders.append(embedder)
        raise DataError("stop here")

    monkeypatch.setattr("suffice_retrieval.commands.stores.open_store", opened)
    for more in (
        [],
        ["--dense", "minilm"],
        ["--dense", "endpoint:e5"],
        ["--dense", "org/e5@v1", "--set=question-prefix=query: "],
    ):
        assert "stop here" in cli("answer", "Who?", "--corpus", "postgres://h/db?table=p", *more).error
    words, packaged, endpoint, dense = embedders
    assert words is None
    assert isinstance(packaged, MiniLM)
    assert isinstance(endpoint, EndpointEmbedder)
    assert isinstance(dense, DenseRetriever)
    assert (dense.model, dense.similarity, dense.question_prefix) == ("org/e5", "dot", "query: ")
    for more, message in (
        (["--dense", "minilm", "--set=question-prefix=q"], "question-prefix is for a model of sentence-transformers"),
        (["--dense", "org/e5", "--set=passage-prefix=p"], "passage-prefix is for passages that are encoded here"),
        (["--set=question-prefix=q"], "question-prefix is for --dense, and there is none"),
    ):
        assert message in cli("answer", "Who?", "--corpus", "postgres://h/db?table=p", *more).error


MINE = """
from suffice import Passage


def search(question, k):
    return [Passage(passage_id=str(i), title=f"T{i}", text="Munch was born in Norway.", score=1 / (i + 1)) for i in range(k)]


class Fixed:
    name, has_corpus = "fixed", True

    def fingerprint(self):
        return {"name": self.name}

    def rank(self, question, *, pool=None, k=None):
        return search(question, k)
"""


@pytest.mark.parametrize("corpus", ["mine_search.py:search", "mine_search:search", "mine_search:Fixed"])
def test_a_function_or_retriever_of_a_module_is_a_corpus(tmp_path, monkeypatch, corpus):
    (tmp_path / "mine_search.py").write_text(textwrap.dedent(MINE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_search", raising=False)
    done = cli("answer", "Where was Munch born?", "--corpus", corpus, "--max-rounds", 2, code=0)
    assert "Norway" in done.words
    assert "no function 'nothing'" in cli("answer", "Who?", "--corpus", "mine_search:nothing").error
    assert "'nowhere'" in cli("answer", "Who?", "--corpus", "nowhere:search").error
    assert "function" in cli("answer", "Who?", "--corpus", corpus, "--dense", "minilm").error
    monkeypatch.delitem(sys.modules, "mine_search", raising=False)


def test_the_code_of_a_function_is_part_of_its_fingerprint(tmp_path, monkeypatch):
    from suffice_retrieval.commands.stores import open_engine

    fingerprints = []
    for code in (MINE, MINE + "\n# changed"):
        (tmp_path / "mine_search.py").write_text(code)
        monkeypatch.delitem(sys.modules, "mine_search", raising=False)
        retriever = open_engine(f"{tmp_path}/mine_search.py:search", None, {}, ())
        assert len(ranked_now(retriever, "Who?", k=2)) == 2
        fingerprints.append(retriever.fingerprint())
    monkeypatch.delitem(sys.modules, "mine_search", raising=False)
    assert fingerprints[0]["name"] == fingerprints[1]["name"] == "mine_search:search"
    assert fingerprints[0] != fingerprints[1]
