"""Vectors on disk: in shards, searched by blocks or by lists, and refused where they do not fit."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from suffice.errors import DataError, MissingExtraError, SchemaError
from suffice.recordings import read_recording
from suffice_retrieval.indexes import DenseRetriever, index_corpus, index_dense, open_dense
from suffice_retrieval.indexes.approximate import ApproximateSearch
from suffice_retrieval.indexes.storage import MANIFEST
from suffice_retrieval.indexes.vectors import StoredVectors
from tests.support.cli_tools import cli, dataset

N, DIMENSION = 37, 16


class Hashed:
    """Turns a text into a vector by its hash, and counts the texts; the same words are the same vector."""

    def __init__(self, calls=None):
        self.seen, self.calls = [], calls

    def encode(self, texts, **_):
        if self.calls is not None and len(self.seen) >= self.calls:
            raise KeyboardInterrupt
        self.seen.append(len(texts))
        return np.array([self.vector(text.split("\n")[-1]) for text in texts], dtype=np.float32)

    @staticmethod
    def vector(text):
        if text in ("", "none"):
            return np.zeros(DIMENSION)
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
        return np.random.default_rng(seed).standard_normal(DIMENSION)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    texts = [f"text {i}" if i % 9 else "text 1" for i in range(N - 1)] + ["none"]
    path.write_text("\n".join(json.dumps({"id": str(i), "title": "t", "text": text}) for i, text in enumerate(texts)))
    return path


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("suffice_retrieval.indexes.dense_index._BLOCK", 3)
    monkeypatch.setattr("suffice_retrieval.indexes.dense_index._FILE_ROWS", 6)
    monkeypatch.setattr("suffice_retrieval.indexes.dense_index._WAIT_S", 0.01)


def written(corpus, folder, encoder=None, **options):
    return index_dense(corpus, folder, "toy", encoder=encoder or Hashed(), **options)


def loaded(folder, **options):
    return DenseRetriever.load(folder, "toy", **{"encoder": Hashed(), **options})


def content(folder):
    """Return the files of an index."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def ids(passages):
    return [passage.passage_id for passage in passages]


# Search by blocks


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("numbers", [8, 40, 10**6])
def test_a_search_by_blocks_is_a_stable_sort_of_all_scores(dtype, numbers, monkeypatch):
    monkeypatch.setattr("suffice_retrieval.indexes.vectors._BLOCK_NUMBERS", numbers)
    rng = np.random.default_rng(0)
    rows = rng.integers(-2, 3, (60, 4)).astype(dtype)  # small whole numbers: many ties, and sums without rounding
    queries = rng.integers(-2, 3, (7, 4)).astype(np.float32)
    vectors = StoredVectors([rows[:11], rows[11:11], rows[11:50], rows[50:]], most=5.0)
    scores = np.clip(queries @ rows.T.astype(np.float32), -5, 5)
    for k in (1, 3, 59, 60, 100):
        places, best = vectors.search(queries, k)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(best, np.take_along_axis(scores, order, axis=1))
    some = rng.integers(0, 60, 20)
    np.testing.assert_array_equal(vectors.rows(some), rows[some].astype(np.float32))
    assert (len(vectors), vectors.search(queries, 0)[0].shape) == (60, (7, 0))


def test_no_vectors_give_no_results():
    assert StoredVectors([]).search(np.zeros((2, 3), np.float32), 5)[0].shape == (2, 0)


# Shards


def test_an_index_in_several_files_ranks_as_one_in_memory(corpus, tmp_path):
    index = written(corpus, tmp_path / "index")
    assert (index.n_passages, index.dimension, index.n_files, index.is_complete) == (N, DIMENSION, 7, True)
    on_disk = loaded(tmp_path / "index")
    in_memory = DenseRetriever("toy", list(on_disk.passages), encoder=Hashed())
    for question in ("text 1", "text 20", "none", "other"):
        ours, theirs = on_disk.rank(question, k=9), in_memory.rank(question, k=9)
        assert ids(ours) == ids(theirs)
        np.testing.assert_allclose([p.score for p in ours], [p.score for p in theirs], atol=1e-6)
    assert on_disk.fingerprint() == in_memory.fingerprint()
    assert open_dense(tmp_path / "index", "toy", encoder=Hashed()).rank("text 1", k=1)[0].score == pytest.approx(1)


@pytest.mark.parametrize("order", [(1, 2, 3), (1, 3, 2)])
def test_shards_make_the_index_that_one_process_makes(corpus, tmp_path, order):
    written(corpus, tmp_path / "one")
    encoders = {number: Hashed() for number in order}
    complete = [written(corpus, tmp_path / "many", encoders[number], shard=(number, 3)).is_complete for number in order]
    assert complete == [False, False, True]
    assert content(tmp_path / "many") == content(tmp_path / "one")
    assert sum(sum(encoder.seen) for encoder in encoders.values()) == N
    assert min(sum(encoder.seen) for encoder in encoders.values()) >= 12
    again = Hashed()
    assert written(corpus, tmp_path / "many", again, shard=(2, 3)).is_complete
    assert again.seen == []


def test_a_corpus_smaller_than_a_file_is_divided_all_the_same(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("suffice_retrieval.indexes.dense_index._FILE_ROWS", 10**6)
    encoders = [Hashed(), Hashed()]
    for number, encoder in enumerate(encoders, start=1):
        written(corpus, tmp_path / "index", encoder, shard=(number, 2))
    assert [sum(encoder.seen) for encoder in encoders] == [21, 16]
    assert ids(loaded(tmp_path / "index").rank("text 30", k=1)) == ["30"]


def test_the_others_wait_for_the_passages_of_the_first(corpus, tmp_path, caplog):
    results = {}

    def encode(number):
        results[number] = written(corpus, tmp_path / "index", shard=(number, 3)).is_complete

    threads = {number: threading.Thread(target=encode, args=(number,)) for number in (3, 2, 1)}
    for number in (3, 2):
        threads[number].start()
    while "shard 2/3 waits until shard 1/3" not in caplog.text or "shard 3/3 waits" not in caplog.text:
        time.sleep(0.01)
    assert not (tmp_path / "index" / "passages.jsonl").exists()
    threads[1].start()
    for thread in threads.values():
        thread.join(600)
    assert any(results.values())
    assert ids(loaded(tmp_path / "index").rank("text 30", k=1)) == ["30"]


def test_an_interrupted_shard_goes_on_where_it_ended(corpus, tmp_path):
    written(corpus, tmp_path / "one")
    folder, moved = tmp_path / "index", []
    for number in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            written(corpus, folder, Hashed(calls=3), shard=(number, 2))
    with pytest.raises(SchemaError, match="complete index"):
        loaded(folder)
    encoders = [Hashed(), Hashed()]
    for number, encoder in enumerate(encoders, start=1):
        written(corpus, folder, encoder, shard=(number, 2), on_progress=lambda *at: moved.append(at))
    assert sum(sum(encoder.seen) for encoder in encoders) == N - 2 * 3 * 3
    assert content(folder) == content(tmp_path / "one")
    assert moved[-1] == (18, 18)
    assert all(before <= after for before, after in pairwise(done for done, total in moved if total == 19))


@pytest.mark.whole
def test_a_killed_process_loses_nothing_but_the_block_in_hand(corpus, tmp_path):
    written(corpus, tmp_path / "one")
    folder = tmp_path / "index"
    script = (
        "import os, sys, time; sys.path.insert(0, '.')\n"
        "from tests.suffice_retrieval.test_dense_index import Hashed\n"
        "from suffice_retrieval.indexes import dense_index\n"
        "dense_index._BLOCK, dense_index._FILE_ROWS = 3, 6\n"
        "class Slow(Hashed):\n"
        "    def encode(self, texts, **_):\n"
        f"        if os.path.exists({str(folder / 'vectors-00002.json')!r}): time.sleep(600)\n"
        "        return super().encode(texts)\n"
        f"dense_index.index_dense({str(corpus)!r}, {str(folder)!r}, 'toy', encoder=Slow())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=Path.cwd())
    while not (folder / "vectors-00002.json").exists():
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    encoder = Hashed()
    written(corpus, folder, encoder)
    assert sum(encoder.seen) <= N - 12
    assert content(folder) == content(tmp_path / "one")


def test_another_corpus_or_type_is_encoded_anew(corpus, tmp_path):
    written(corpus, tmp_path / "index")
    for change in ({"stored": "float16"}, {"passage_prefix": "p: "}):
        encoder = Hashed()
        written(corpus, tmp_path / "index", encoder, **change)
        assert sum(encoder.seen) == N
    corpus.write_text(json.dumps({"id": "new", "title": "t", "text": "new"}))
    assert written(corpus, tmp_path / "index").n_passages == 1
    assert {name for name in content(tmp_path / "index") if "vectors" in name} == {"vectors.npy"}


# Numbers in 16 bits


def test_vectors_in_16_bits_take_half_the_place_and_rank_alike(corpus, tmp_path):
    sizes = [written(corpus, tmp_path / dtype, stored=dtype).n_bytes for dtype in ("float32", "float16")]
    assert sizes[0] - sizes[1] == pytest.approx(N * DIMENSION * 2, abs=200)
    one, other = loaded(tmp_path / "float32"), loaded(tmp_path / "float16")
    for i in (2, 20, 30):
        ours, theirs = (retriever.rank(f"text {i}", k=3) for retriever in (one, other))
        assert ids(ours)[0] == ids(theirs)[0] == str(i)
        np.testing.assert_allclose([p.score for p in ours], [p.score for p in theirs], atol=2e-3)
    assert other.fingerprint() == one.fingerprint() | {"stored": "float16"}


def test_numbers_that_do_not_fit_are_refused(corpus, tmp_path):
    class Large(Hashed):
        def encode(self, texts, **_):
            return 1e5 * super().encode(texts)

    with pytest.raises(DataError, match="float16"):
        written(corpus, tmp_path / "index", Large(), stored="float16", similarity="dot")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stored": "int8"}, "float32 or float16"),
        ({"recall": 0.0}, "is 0.0"),
        ({"recall": 1.5}, "above 0"),
        ({"shard": (4, 3)}, "shard 4/3"),
    ],
)
def test_settings_that_mean_nothing_are_refused(corpus, tmp_path, options, said):
    with pytest.raises(DataError, match=said):
        written(corpus, tmp_path / "index", **options)


# Lists


def clustered(n=3000, dimension=32, seed=0):
    """Return vectors around centres, as embeddings of texts are."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).standard_normal((40, dimension))
    rows = centres[rng.integers(0, 40, n)] + 0.6 * rng.standard_normal((n, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(params=["lists", "codes"])
def form(request, monkeypatch):
    if request.param == "codes":
        monkeypatch.setattr("suffice_retrieval.indexes.approximate._UNQUANTISED", 100)
    return {"lists": "IVF128,Flat", "codes": "IVF128,PQ4"}[request.param]


def test_lists_reach_the_requested_recall_and_seeds_are_reproducible(form, tmp_path):
    rows = clustered()
    vectors, queries = StoredVectors([rows[:1000], rows[1000:]], most=1.0), clustered(50, seed=1)
    settings = ApproximateSearch.build(tmp_path / "a.faiss", vectors, recall=0.95)
    assert (settings.form, settings.recall_queries, settings.demanded) == (form, 256, 0.95)
    assert settings.recall >= 0.95
    assert settings.probes <= 16
    search = ApproximateSearch(tmp_path / "a.faiss", vectors, settings)
    places, scores = search.search(queries, 10)
    exact, best = vectors.search(queries, 10)
    assert np.mean([len(set(ours) & set(theirs)) / 10 for ours, theirs in zip(places, exact, strict=True)]) > 0.9
    np.testing.assert_allclose(scores[:, 0], best[:, 0], atol=0.05)
    np.testing.assert_allclose(scores, np.einsum("qd,qkd->qk", queries, rows[places]), atol=1e-6)
    assert (np.diff(scores, axis=1) <= 0).all()
    assert ApproximateSearch.build(tmp_path / "b.faiss", vectors, recall=0.95) == settings
    assert ApproximateSearch.build(tmp_path / "c.faiss", vectors, recall=0.95, seed=1).digest != settings.digest
    few = ApproximateSearch.build(tmp_path / "d.faiss", vectors, recall=0.3)
    assert few.probes <= settings.probes


def test_inexact_codes_are_remedied_by_rescoring_more_vectors_not_more_lists(tmp_path, monkeypatch):
    monkeypatch.setattr("suffice_retrieval.indexes.approximate._UNQUANTISED", 100)
    monkeypatch.setattr("suffice_retrieval.indexes.approximate._RESCORED", 2)
    settings = ApproximateSearch.build(tmp_path / "a.faiss", StoredVectors([clustered()], most=1.0), recall=0.97)
    assert settings.recall >= 0.97
    assert settings.rescored > 2
    assert settings.probes <= 16


def test_a_visit_to_all_lists_that_compares_all_is_exact(form, tmp_path):
    vectors, queries = StoredVectors([clustered(1500)], most=1.0), clustered(20, seed=1)
    settings = ApproximateSearch.build(tmp_path / "a.faiss", vectors, recall=0.5)
    everything = replace(settings, probes=10**6, rescored=1500)
    places, scores = ApproximateSearch(tmp_path / "a.faiss", vectors, everything).search(queries, 10)
    exact, best = vectors.search(queries, 10)
    np.testing.assert_array_equal(places, exact)
    np.testing.assert_allclose(scores, best, atol=1e-6)


def test_more_lists_are_visited_where_a_few_contain_too_little(form, tmp_path):
    vectors = StoredVectors([clustered(600)], most=1.0)
    settings = ApproximateSearch.build(tmp_path / "a.faiss", vectors, recall=0.2)
    search = ApproximateSearch(tmp_path / "a.faiss", vectors, replace(settings, probes=1))
    assert sorted(search.search(clustered(3, seed=1), 600)[0][0].tolist()) == list(range(600))
    assert search.search(clustered(3, seed=1), 10**6)[0].shape == (3, 600)


@pytest.mark.parametrize("n", [1, 2, 3, 15])
def test_a_few_vectors_are_enough(n, tmp_path):
    vectors = StoredVectors([clustered(n)], most=1.0)
    settings = ApproximateSearch.build(tmp_path / "a.faiss", vectors, recall=1.0)
    places, _ = ApproximateSearch(tmp_path / "a.faiss", vectors, settings).search(clustered(4, seed=1), n)
    assert np.sort(places, axis=1).tolist() == [list(range(n))] * 4


def test_codes_that_cannot_reach_the_demand_say_what_they_reach(tmp_path, monkeypatch):
    monkeypatch.setattr("suffice_retrieval.indexes.approximate._UNQUANTISED", 100)
    monkeypatch.setattr("suffice_retrieval.indexes.approximate._MOST_RESCORED", 1)
    rng = np.random.default_rng(0)
    vectors = StoredVectors([rng.standard_normal((1000, 16)).astype(np.float32)])
    monkeypatch.setattr("suffice_retrieval.indexes.approximate._RESCORED", 2)
    settings = ApproximateSearch.build(tmp_path / "a.faiss", vectors, recall=1.0)
    assert 0.2 < settings.recall < 1
    assert settings.probes == int(settings.form[3:].split(",")[0])


def test_an_index_is_searched_by_its_lists_and_its_fingerprint_says_so(corpus, tmp_path):
    folder = tmp_path / "index"
    index = written(corpus, folder, recall=0.9)
    assert index.approximate.recall >= 0.9
    assert f"{index.approximate.recall:.3f}" in str(index)
    by_lists, exactly = loaded(folder), loaded(folder, exact=True)
    assert ids(by_lists.rank("text 20", k=1)) == ids(exactly.rank("text 20", k=1)) == ["20"]
    assert by_lists.fingerprint() == exactly.fingerprint() | {"approximate": by_lists.fingerprint()["approximate"]}
    assert by_lists.fingerprint()["approximate"]["demanded"] == 0.9
    before, encoder = content(folder), Hashed()
    written(corpus, folder, encoder, recall=0.9)
    assert content(folder) == before, "the same lists are kept"
    other = written(corpus, folder, encoder, recall=0.9, seed=3)
    assert other.approximate.seed == 3
    assert encoder.seen == [], "the vectors are kept"
    assert written(corpus, folder, encoder).approximate.seed == 3


def test_without_faiss_the_command_to_install_it_is_named(corpus, tmp_path, monkeypatch):
    written(corpus, tmp_path / "index", recall=0.9)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"suffice-retrieval\[faiss\]"):
        loaded(tmp_path / "index")
    assert len(loaded(tmp_path / "index", exact=True).rank("text 1", k=2)) == 2


# Damage


def edited(folder, name, data):
    """Write a file of an index, and its digest."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][name] = hashlib.sha256(data).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_damaged_files_are_refused(corpus, tmp_path):
    folder = tmp_path / "index"
    written(corpus, folder, recall=0.9)
    for name in ("vectors-00001.npy", "approximate.faiss"):
        whole = (folder / name).read_bytes()
        for data in (whole[:-4], whole[:-1] + bytes([whole[-1] ^ 1])):
            (folder / name).write_bytes(data)
            with pytest.raises(SchemaError, match=f"{name} is missing"):
                loaded(folder)
        (folder / name).write_bytes(whole)
    edited(folder, "approximate.faiss", b"not an index")
    with pytest.raises(SchemaError, match="damaged"):
        loaded(folder)


def test_files_of_another_index_are_refused(corpus, tmp_path):
    folder = tmp_path / "index"
    written(corpus, folder, recall=0.9)
    other = tmp_path / "other.faiss"
    ApproximateSearch.build(other, StoredVectors([clustered(50, DIMENSION)]), recall=0.5)
    edited(folder, "approximate.faiss", other.read_bytes())
    with pytest.raises(SchemaError, match="50 vectors"):
        loaded(folder)
    np.save(tmp_path / "wide.npy", np.zeros((6, 3), np.float32))
    edited(folder, "vectors-00001.npy", (tmp_path / "wide.npy").read_bytes())
    with pytest.raises(SchemaError, match="not match"):
        loaded(folder)


def test_numbers_that_are_not_finite_make_no_lists(tmp_path):
    rows = clustered(50)
    rows[7, 3] = np.nan
    with pytest.raises(SchemaError, match="not finite"):
        ApproximateSearch.build(tmp_path / "a.faiss", StoredVectors([rows]), recall=0.9)
    with pytest.raises(DataError, match="are none"):
        ApproximateSearch.build(tmp_path / "a.faiss", StoredVectors([]), recall=0.9)


def test_an_index_does_not_replace_the_passages_that_it_is_made_of(corpus, tmp_path):
    folder = tmp_path / "index"
    index_corpus(corpus, folder)
    before = content(folder)
    for write in (written, index_corpus):
        with pytest.raises(DataError, match="corpus itself"):
            write(folder, tmp_path / "other" / ".." / "index")
    assert content(folder) == before
    assert written(folder, tmp_path / "vectors").n_passages == N


def test_an_index_of_another_model_is_not_opened(corpus, tmp_path):
    written(corpus, tmp_path / "index", revision="1")
    with pytest.raises(SchemaError, match="not '2'"):
        open_dense(tmp_path / "index", "toy", encoder=Hashed(), revision="2")


# On the command line


def test_an_index_of_vectors_is_made_and_searched_on_the_command_line(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("suffice_retrieval.indexes.dense.load_encoder", lambda *_: Hashed())
    folder = tmp_path / "index"
    index = ("index", corpus, "-o", folder, "--dense", "toy", "--set=dense-store=float16")
    first = cli(*index, "--shard", "1/2")
    assert "shard 1/2 of the vectors is complete; others are not yet" in " ".join(first.out.split())
    done = cli(*index, "--shard", "2/2", "--set=approximate=0.9", "--json")
    assert (done.json["n_passages"], done.json["is_complete"], done.json["dtype"]) == (N, True, "float16")
    assert done.json["approximate"]["recall"] >= 0.9
    questions = dataset(tmp_path / "q.jsonl", n=2)
    record = ("record", questions, "--corpus", folder, "--max-rounds", 1, "-o", tmp_path / "r.parquet")
    assert cli(*record, "--dense", "toy").code == 0
    retriever = read_recording(tmp_path / "r.parquet").metadata["config"]["retriever"]
    assert (retriever["stored"], retriever["approximate"]["form"]) == ("float16", done.json["approximate"]["form"])
    assert "--dense" in cli(*record).error


def test_options_of_the_other_kind_of_index_are_refused(corpus, tmp_path):
    index = ("index", corpus, "-o", tmp_path / "index")
    assert "approximate is" in cli(*index, "--set=approximate=0.9").error
    assert "--shard" in cli(*index, "--shard", "1/2").error
    assert "is for BM25" in cli(*index, "--dense", "toy", "--set=k1=2.0").error


@pytest.mark.parametrize("how", [open_dense, index_dense])
def test_of_several_processes_one_encodes_a_corpus_and_the_others_wait(corpus, tmp_path, caplog, how):
    class Slow(Hashed):
        def encode(self, texts, **options):
            is_encoding.set()
            assert waits.wait(600), "nobody waits for the lock"
            return super().encode(texts, **options)

    place = {open_dense: "index_dir", index_dense: "directory"}
    is_encoding, waits, other = threading.Event(), threading.Event(), Hashed()
    caplog.handler.addFilter(lambda record: waits.set() or True if "waiting for" in record.getMessage() else True)
    with ThreadPoolExecutor(2) as pool:  # a lock belongs to an opened file, so that threads wait as processes do
        run = partial(pool.submit, how, corpus)
        first = run(**{place[how]: tmp_path / "index", "model": "toy", "encoder": Slow()})
        assert is_encoding.wait(600)
        second = run(**{place[how]: tmp_path / "index", "model": "toy", "encoder": other})
        assert first.result()
        assert second.result()
    assert not other.seen
    assert len(loaded(tmp_path / "index").vectors) == N


def test_a_full_disk_is_an_error_and_the_call_can_continue(corpus, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    encoder = Hashed()
    with monkeypatch.context() as patch:
        patch.setattr("suffice_retrieval.indexes.dense_index.os.fsync", full)
        with pytest.raises(DataError, match="same command"):
            written(corpus, tmp_path / "index", encoder)
    written(corpus, tmp_path / "index", encoder)
    written(corpus, tmp_path / "one")
    assert content(tmp_path / "index") == content(tmp_path / "one")
