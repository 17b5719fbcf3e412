"""The span reader as shipped: real weights, no network."""

from __future__ import annotations

import itertools
import json
import math
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import suffice_reader
from suffice.errors import DataError
from suffice.policy.metrics import answer_key
from suffice_reader._span_windows import _pieces
from suffice_reader.span_reader import PassageSpans, Reading, SpanReader, decode

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "span_reader.json"
GOLDEN_TOLERANCE = 0.25  # int8 weights against fp32 torch, absolute, on logits that span about 20
MODEL = Path(suffice_reader.__file__).parent / "models" / "span_reader"

QUESTION = "Who wrote the play The Tempest?"
PASSAGES = [
    (
        "Mount Zirkel",
        "Mount Zirkel is the highest summit of the Park Range in Colorado. It is 12,185 ft (3,714 m) high.",
    ),
    ("The Tempest", "The Tempest is a play by William Shakespeare, probably written in 1610 and 1611."),
    ("Ebro", "The Ebro is a river of the north and northeast of the Iberian Peninsula, in Spain."),
    ("Łódź", "Łódź is a city in central Poland; “Holly-Łódź” is one of its names — after its film school."),
    ("Harvest", "Harvest is the fourth studio album by the musician Neil Young, released in February 1972."),
]


@pytest.fixture(scope="module")
def reader() -> SpanReader:
    return SpanReader()


def fresh(**options) -> SpanReader:
    return SpanReader(**options)


def same(a: Reading, b: Reading) -> bool:
    return (
        a.answer == b.answer
        and math.isclose(a.answer_margin, b.answer_margin, abs_tol=1e-6)
        and math.isclose(a.answer_probability, b.answer_probability, abs_tol=1e-6)
    )


def test_it_answers_from_the_passage_that_holds_the_answer(reader):
    reading = reader.read(QUESTION, PASSAGES)
    assert answer_key(reading.answer) == "william shakespeare"
    assert reading.passage_index == 1
    assert 0 < reading.answer_margin <= 30
    assert 0 < reading.answer_probability <= 1


def test_logits_equal_those_of_torch_within_the_stated_tolerance(reader):
    for entry in json.loads(GOLDEN.read_text("utf-8"))["passages"]:
        windows = reader._featurizer.windows(entry["question"], entry["title"], entry["text"])
        assert len(windows) == len(entry["logits"])
        for window, expected in zip(windows, entry["logits"], strict=True):
            got = reader._score(window)[:, :2][window.allowed[:, :2]]
            assert got.shape == (len(expected),)
            assert np.abs(got - np.array(expected)).max() < GOLDEN_TOLERANCE


def test_the_margin_does_not_depend_on_the_order_of_passages(reader):
    expected = reader.read(QUESTION, PASSAGES)
    rng = np.random.default_rng(0)
    for _ in range(5):
        order = rng.permutation(len(PASSAGES))
        reading = fresh(threads=1, cache_size=0).read(QUESTION, [PASSAGES[i] for i in order])
        assert same(reading, expected)
        assert order[reading.passage_index] == expected.passage_index


def test_the_margin_does_not_depend_on_what_was_read_with_it(reader):
    expected = reader.read(QUESTION, PASSAGES)
    one_by_one = fresh(threads=1)
    for r in range(1, len(PASSAGES) + 1):
        reading = one_by_one.read(QUESTION, PASSAGES[:r])
    assert same(reading, expected)
    many = [(f"Filler {i}", "word " * (7 * i)) for i in range(6)]
    crowded = fresh(threads=3)
    crowded.read(QUESTION, [*many, *PASSAGES])
    assert same(crowded.read(QUESTION, PASSAGES), expected)


def test_a_round_pays_for_its_new_passage_only():
    reader = fresh()
    readings = [reader.read(QUESTION, PASSAGES[:r]) for r in range(1, 6)]
    whole = fresh().read(QUESTION, PASSAGES)
    assert sum(reading.new_tokens for reading in readings) == whole.new_tokens
    for before, after in itertools.pairwise(readings):
        assert after.cached_tokens == before.cached_tokens + before.new_tokens
    again = reader.read(QUESTION, PASSAGES)
    assert (again.new_tokens, again.cached_tokens) == (0, whole.new_tokens)
    assert again.answer_margin == readings[-1].answer_margin


def test_a_passage_given_twice_is_encoded_once():
    reader = fresh()
    twice = reader.read(QUESTION, [PASSAGES[1], PASSAGES[1]])
    assert twice.new_tokens == twice.cached_tokens == fresh().read(QUESTION, [PASSAGES[1]]).new_tokens
    assert twice.passage_index == 0


def test_the_cache_forgets_the_least_recently_read_and_may_be_off():
    reader = fresh(cache_size=2)
    reader.read(QUESTION, PASSAGES[:2])
    reader.read(QUESTION, PASSAGES[:1])
    reader.read(QUESTION, PASSAGES[2:3])
    assert reader.read(QUESTION, PASSAGES[:1]).new_tokens == 0
    assert reader.read(QUESTION, PASSAGES[1:2]).cached_tokens == 0
    off = fresh(cache_size=0)
    off.read(QUESTION, PASSAGES[:2])
    assert off.read(QUESTION, PASSAGES[:2]).cached_tokens == 0


def test_texts_that_join_to_the_same_string_are_different_passages():
    reader = fresh()
    reader.read("q", [("ab", "c")])
    assert reader.read("q", [("a", "bc")]).cached_tokens == 0


def test_reading_in_many_threads_gives_what_one_thread_gives(reader):
    shared, results = fresh(threads=2, cache_size=3), {}

    def work(i: int) -> None:
        results[i] = [shared.read(f"{QUESTION} {i % 3}", PASSAGES[: 1 + i % 5]) for _ in range(3)]

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for i, readings in results.items():
        expected = reader.read(f"{QUESTION} {i % 3}", PASSAGES[: 1 + i % 5])
        assert all(same(reading, expected) for reading in readings)


def test_no_passage_is_an_error(reader):
    with pytest.raises(DataError, match="without passages"):
        reader.read(QUESTION, [])


def test_passages_without_text_give_an_empty_answer_and_an_undefined_margin(reader):
    reading = reader.read(QUESTION, [("", ""), (" ", "\n")])
    assert (reading.answer, reading.passage_index, reading.new_tokens) == ("", -1, 0)
    assert math.isnan(reading.answer_margin)
    assert math.isnan(reading.answer_probability)
    assert reader.read(QUESTION, [("", ""), PASSAGES[1]]).passage_index == 1


@pytest.mark.parametrize(
    ("question", "title", "text"),
    [
        ("", "", "x"),
        ("?", "...", "!!! --- ((("),
        ("the", "The", "the a an The"),
        ("q" * 5000, "t " * 5000, "one two"),
        ("\ud800?", "a\udfffb", "lone \ud800 surrogate"),
        ("中国?", "中国", "北京是中国的首都。"),
        ("e\u0301", "cafe\u0301", "\u0000\u200b cafe\u0301 \U0001f600"),
        ("[SEP] [CLS]", "[SEP]", "[CLS] inside [SEP] text [MASK]"),
    ],
)
def test_odd_text_gives_an_answer_that_stands_in_the_passage(reader, question, title, text):
    reading = reader.read(question, [(title, text)])
    assert reading.answer
    assert reading.answer in {"yes", "no"} or reading.answer in (title + "\n" + text).encode(errors="replace").decode()
    assert 0 <= reading.answer_probability <= 1


def test_a_passage_of_a_megabyte_is_read_up_to_the_cap(reader):
    filler = "The river flows past the old mill and the orchard. "
    text = filler * 20 + "The Tempest was written by William Shakespeare. " + filler * 20_000
    reading = reader.read("Who wrote The Tempest?", [("A long page", text)])
    assert answer_key(reading.answer) == "william shakespeare"
    assert reading.new_tokens <= reader.config.max_windows * reader.config.max_length


def test_windows_of_a_long_passage_own_each_token_once():
    for length, room, overlap in [(10, 10, 4), (11, 10, 4), (500, 200, 64), (200, 65, 64), (3, 9, 2)]:
        cuts = _pieces(length, room, overlap, 10_000)
        owned = [i for _, _, (first, end) in cuts for i in range(first, end)]
        assert owned == list(range(length))
        assert all(start <= first and end <= stop <= start + room for start, stop, (first, end) in cuts)


def test_answers_are_words_of_the_passage_not_pieces_of_them(reader):
    for passage in reader.spans(QUESTION, PASSAGES):
        for answer in passage.answers:
            assert answer == answer.strip()
            joined = " ".join(f"{title} {text}" for title, text in PASSAGES)
            assert answer in {"yes", "no"} or re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", joined)


def spans_of(*pairs: tuple[float, str]) -> PassageSpans:
    logits = np.array([logit for logit, _ in pairs])
    answers = tuple(answer for _, answer in pairs)
    return PassageSpans(logits, answers, tuple(map(answer_key, answers)), float(np.log(np.exp(logits).sum())), 1)


def test_the_margin_is_to_the_best_span_with_another_normalised_answer():
    passages = [spans_of((2.0, "the Tempest"), (1.5, "Hamlet")), spans_of((2.5, "Tempest"), (1.0, "yes"))]
    answer, margin, probability, index = decode(passages)
    assert (answer, index) == ("Tempest", 1)
    assert margin == pytest.approx(1.0)
    weights = np.exp([2.0, 1.5, 2.5, 1.0, 0.0])  # the last: "the answer is not here"
    assert probability == pytest.approx((weights[0] + weights[2]) / weights.sum())


def test_that_the_answer_is_not_here_counts_as_a_different_answer():
    answer, margin, probability, _ = decode([spans_of((2.0, "x"), (1.0, "The x"), (-3.0, "y"))])
    assert (answer, margin) == ("x", pytest.approx(2.0))
    weights = np.exp([2.0, 1.0, -3.0, 0.0])
    assert probability == pytest.approx(weights[:2].sum() / weights.sum())
    assert decode([spans_of((-2.0, "x"), (-3.0, "y"))])[:2] == ("x", 0.0)


def test_margins_are_clipped_and_ties_go_to_the_first_passage():
    assert decode([spans_of((90.0, "x"), (1.0, "y"))])[1] == 30.0
    assert decode([spans_of((1.0, "y")), spans_of((1.0, "x"))])[::3] == ("y", 0)


def test_the_revision_is_the_hash_of_the_weights_and_differs_with_them(reader, tmp_path):
    assert len(reader.revision) == 16
    assert reader.revision == fresh(path=MODEL).revision
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes((MODEL / name).read_bytes())
    (tmp_path / "model.onnx").write_bytes((MODEL / "model.onnx").read_bytes()[:-1000])
    with pytest.raises(DataError, match="span reader"):
        SpanReader(tmp_path)


def test_a_folder_without_a_model_and_bad_options_are_errors(tmp_path):
    with pytest.raises(DataError, match="span reader"):
        SpanReader(tmp_path)
    with pytest.raises(DataError, match="threads"):
        SpanReader(threads=0)


def test_the_shipped_model_is_small_and_documented():
    size = sum(path.stat().st_size for path in MODEL.iterdir())
    assert size <= 30 * 2**20
    card = (MODEL / "MODEL_CARD.md").read_text("utf-8")
    for word in ("HotpotQA", "2WikiMultiHopQA", "MuSiQue", "Natural Questions", "all-MiniLM-L6-v2", "Seed"):
        assert word in card
    assert f"`{SpanReader().revision}`" in card
    assert "CC BY-SA" in (MODEL / "LICENSE_NOTES.md").read_text("utf-8")
