"""Copies of questions that nobody declared are one unit, found by what was asked and never by what came of it."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.referee.made import made, sentences, three_caps
from hypothesis import given, strategies as st

from suffice import Claim, certify, decide
from suffice.recordings import Recording
from suffice.verdicts.copies import near_known, near_texts, unit_names, wordings_of
from suffice.verdicts.decisions import Advice

N, SIZE = 200, 10
SHARED = (
    "which of the two rivers that meet in Koblenz rises further south and passes more large towns before it flows north"
)
SOME_TEXTS = [
    *(f"{SHARED} {end}" for end in ("again", "then", "now, in 1984", "now, in 1985")),
    *("2 plus 3", "2 plus 4", "who sang it", "who wrote it", "Who wrote it?", "", None),
]
WAYS = ["near texts", "passages"]


def copied(way: str, rng, n: int = N):
    scores = np.repeat(three_caps(rng, n // SIZE, 0.05, 0.1), SIZE, axis=0)
    texts, ends = sentences(rng, n // SIZE, 24), sentences(rng, n, 1)
    if way == "near texts":
        return made(rng, scores, columns={"question": [f"{texts[place // SIZE]} {ends[place]}" for place in range(n)]})
    passages = np.empty(scores.shape, dtype=object)
    for place in range(n):
        for k in range(scores.shape[1]):
            passages[place, k] = [f"d{place // SIZE}-{k}"]
    return made(rng, scores, of_rounds={"passage_ids": passages})


@pytest.mark.parametrize("way", WAYS)
def test_copies_found_by_what_was_asked_count_once(way):
    recording = copied(way, np.random.default_rng(0))
    assert len(set(unit_names(recording))) == N // SIZE
    advice = decide(recording, metric="score", max_loss=0.05)
    assert any("questions count as 20" in note for note in advice.notes)
    found = certify(recording, ["fixed_k(1)"], Claim(epsilon=0.05, metric="score"))
    assert found.n == N // SIZE
    assert any("questions count as 20" in note for note in found.measured.notes)


@pytest.mark.parametrize("way", WAYS)
def test_copies_bring_no_false_advice(way):
    wrong = 0
    for seed in range(30):
        recording = copied(way, np.random.default_rng(seed))
        wrong += decide(recording, metric="score", max_loss=0.05).verdict == "do it"
    assert wrong <= 3  # 13 to 15 when each copy counted by itself


def part(recording: Recording, mask) -> Recording:
    return recording.select(np.asarray(mask, dtype=np.bool_))


@pytest.mark.parametrize("way", WAYS)
def test_copies_of_counted_questions_are_not_new(way):
    recording = copied(way, np.random.default_rng(0))
    n_copy = np.arange(N) % SIZE
    first = decide(part(recording, n_copy < 2), metric="score", max_loss=0.05)
    later = decide(recording, previous=first)
    assert later.n == first.n
    assert any("none is new" in note for note in later.notes)


def test_near_copies_in_another_file_are_not_new(tmp_path):
    recording = copied("near texts", np.random.default_rng(0))
    n_copy = np.arange(N) % SIZE
    decide(part(recording, n_copy < 2), metric="score", max_loss=0.05).save(tmp_path / "decision.json")
    first = Advice.load(tmp_path / "decision.json")
    later = decide(part(recording, n_copy >= 2), previous=first)  # no question of the first file is there
    assert later.n == first.n
    assert any("none is new" in note for note in later.notes)
    words = " ".join(str(text) for text in recording.texts).split()
    assert not any(len(word) > 4 and word in (tmp_path / "decision.json").read_text("utf-8") for word in words)


@given(st.lists(st.sampled_from(SOME_TEXTS), min_size=1, max_size=12), st.integers(1, 11))
def test_copies_in_two_files_are_those_in_one(texts, cut):
    known, new = texts[:cut], texts[cut:]
    labels = near_texts(texts)
    expected = [label is not None and label in labels[:cut] for label in labels[cut:]]
    assert near_known(new, wordings_of(known)).tolist() == expected


@pytest.mark.parametrize("way", WAYS)
def test_copies_of_tune_questions_do_not_judge(way):
    recording = copied(way, np.random.default_rng(0))
    place = np.arange(N)
    tune, rest = part(recording, place < SIZE * 5), part(recording, place >= 1)
    assert decide(rest, tune=tune, metric="score", max_loss=0.05).n == N // SIZE - 5
    near = part(recording, place % SIZE > 0)
    some = part(recording, (place < SIZE * 5) & (place % SIZE < 2))
    assert decide(near, tune=some, metric="score", max_loss=0.05).n == N // SIZE - 5


def test_equal_outcomes_join_no_questions():
    rng = np.random.default_rng(0)
    recording = made(rng, np.ones((50, 3)), columns={"question": sentences(rng, 50)})
    assert len(set(unit_names(recording))) == 50


def test_templates_and_other_numbers_are_no_copies():
    prompt = "Answer the question below in one word, and think step by step before you answer it"
    texts = [f"{prompt}: how old is {name}" for name in ("Ann", "Bob", "Eve", "Joe")]
    texts += [
        f"Tom has {k} apples and gives {k + 1} of them to his sister, how many apples does Tom have" for k in range(4)
    ]
    assert len(set(near_texts(texts))) == len(texts)


def test_passages_that_most_questions_share_join_nothing():
    rng = np.random.default_rng(0)
    passages = np.empty((30, 4), dtype=object)
    for place in np.ndindex(30, 4):
        passages[place] = ["the only document"]
    recording = made(rng, three_caps(rng, 30, 0.05, 0.1), of_rounds={"passage_ids": passages})
    assert len(set(unit_names(recording))) == 30


def test_labels_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(3)
    texts = [*sentences(rng, 40, 24)]
    texts += [f"{text} {end}" for text, end in zip(texts, sentences(rng, 40, 1), strict=True)]
    shuffled = rng.permutation(len(texts))
    again = near_texts([texts[place] for place in shuffled])
    assert [near_texts(texts)[place] for place in shuffled] == again
    assert len(set(again)) == 40


def test_a_missing_text_is_nobodys_copy():
    assert near_texts([None, "", "who sang it"])[:2] == [None, None]
