"""Sentences end where the next one begins: not at an initial, an abbreviation, or in the middle of a stream."""

from __future__ import annotations

import math
import threading

import pytest
from hypothesis import example, given, strategies as st

from suffice import Passage, Policy, PoolBM25, ScriptedModel, Token
from suffice.common.sentences import sentence_end, sentences
from suffice.loops.models.sentences import first_sentence
from suffice_gates.models.rind import is_content
from suffice_retrieval.methods import IRCoT, QueryLoop
from suffice_retrieval.methods.chains import _last_sentence, answer_of_chain
from suffice_retrieval.methods.flare import flare_trigger

NAMES = [
    "Don S. Davis",
    "Don S.",
    "George W. Bush",
    "J. K. Rowling",
    "St. Louis",
    "the U.S. Army",
    "Dr. Smith",
    "Symphony No. 5",
    "Robert L. Stone",
    "Monsters vs. Aliens",
    "Acme Inc. of Oslo",
    "Mambo No. 5",
    "towns, e.g. Oslo",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_sentence_with_an_initial_or_an_abbreviation_is_whole(name):
    answer = f"So the answer is: {name}."
    assert sentence_end(answer) == len(answer)
    followed = f"It is about {name} in part. Then it snowed."
    assert followed[: sentence_end(followed)] == f"It is about {name} in part."
    assert sentences(followed) == [f"It is about {name} in part.", "Then it snowed."]


@pytest.mark.parametrize("name", NAMES)
def test_ircot_sentences_do_not_end_at_an_abbreviated_name(name):
    first, queries = f"It was made by {name} in 1999.", []

    class Logged:
        name = "logged"

        def fingerprint(self):
            return {"name": self.name}

        def rank(self, question, *, pool=None, k=None):
            queries.append(question)
            return PoolBM25().rank(question, pool=pool, k=k)

    def script(text, passages):
        if "Reasoning" not in text:
            return "the reader's"
        return f"So the answer is: {name}." if first in text else f"{first} So the answer is: {name}."

    loop = QueryLoop(
        method=IRCoT(k=1),
        model=ScriptedModel(script),
        retriever=Logged(),
        policy=Policy(max_rounds=3),
        every_round=False,
    )
    outcome = loop.run("Who made it?", [Passage(passage_id="1", title="It", text="It is old.")])
    assert queries == ["Who made it?", first]
    assert outcome.rounds[-1].text == f"{first} So the answer is: {name}."
    assert answer_of_chain(outcome.rounds[-1].text) == name.rstrip(".")


def test_a_list_number_belongs_to_its_sentence():
    assert sentences("1. It rained. 2. It snowed.") == ["1. It rained.", "2. It snowed."]


def test_a_line_break_ends_a_sentence():
    text = "\n It rained\nThen it snowed. And more"
    assert text[: sentence_end(text)] == "\n It rained\n"
    assert sentences(text) == ["It rained", "Then it snowed.", "And more"]
    assert _last_sentence(text) == "And more"
    assert _last_sentence(" \n") == ""


@pytest.mark.parametrize("text", ["", " ", "\n", "It rained", "It rained.", "...", "\x00", "\ud800"])
def test_a_text_without_a_second_sentence_is_whole(text):
    assert sentence_end(text) == len(text)
    assert sentences(text) == ([text.strip()] if text.strip() else [])


@given(st.text(alphabet=st.sampled_from("aZé。.!?\"'()[]1 \n\t\u2028\u00a0\ud800"), max_size=60))
@example("a. B. C. \n d.")
@example("Il pleut\u00a0! Il neige\u2028.")
def test_sentences_lose_no_text(text):
    end = sentence_end(text)
    assert 0 <= end <= len(text)
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


def test_the_first_sentences_tokens_reach_to_the_next_sentence():
    tokens = [
        Token(text, -0.1) for text in ("He", "Ġmet", "ĠDon", "ĠS", ".", "ĠDavis", ".", "ĠThen", "Ġhe", "Ġleft", ".")
    ]
    assert first_sentence(tokens) == 7
    assert [first_sentence(tokens[:n]) for n in range(8)] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_flare_reads_the_whole_sentence_around_an_initial():
    unsure = Token("ĠDavis", math.log(0.1))
    tokens = [Token("He", -0.1), Token("ĠS", -0.1), Token(".", -0.1), unsure, Token(".", -0.1)]
    assert flare_trigger(tokens, 0.5) == 0


@pytest.mark.parametrize(
    "text", ["a" * 20_000, "word " * 4_000, '"(' * 10_000, "A. " * 7_000, "." * 20_000, "\n" * 20_000]
)
def test_a_long_reply_without_sentences_is_segmented_whole(text):
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


def test_threads_segment_alike():
    text, results = "He met Don S. Davis. Then he left. " * 50, []
    threads = [threading.Thread(target=lambda: results.append(sentences(text))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result == sentences(text) for result in results)
    assert len(results) == 8


@pytest.mark.parametrize(
    "text", [",", ".", " (", '."', "Ġ,".replace("Ġ", " "), "the", " The", "'s", "\u2019s", "of,", "-", ""]
)
def test_punctuation_and_stop_words_are_no_content(text):
    assert not is_content(text)


@pytest.mark.parametrize("text", [" Oslo", "Oslo.", "1999", "é", "U.S."])
def test_words_and_numbers_are_content(text):
    assert is_content(text)
