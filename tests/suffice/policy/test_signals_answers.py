"""Signals that read the answers."""

import math
import re

import pytest
from hypothesis import assume, given, settings, strategies as st

from suffice.errors import DataError
from suffice.policy.metrics import answer_key
from suffice.policy.rounds import Passage, Round
from suffice.policy.signals import ABSTAIN_PATTERNS, abstained_by
from suffice.policy.signals.answers import (
    abstained,
    answer_f1_previous,
    answer_in_evidence,
    answer_length,
    answer_similarity_previous,
    answer_stable,
)

COMPARISONS = (answer_stable, answer_f1_previous, answer_similarity_previous)


def loop(*answers, start=1):
    return [Round(index=start + i, answer=answer) for i, answer in enumerate(answers)]


def passage(title, text):
    return Passage(passage_id=title, title=title, text=text)


@pytest.mark.parametrize(
    ("previous", "answer", "stable"),
    [
        ("The Tempest", "tempest.", 1),
        ("The Tempest", "Titus", 0),
        ("The The", "The The", 1),
        ("The The", "A", 0),
        ("The", "the ", 1),
        ("...", "...", 1),
        ("yes", "no", 0),
    ],
)
def test_an_answer_is_stable_when_its_key_repeats(previous, answer, stable):
    assert answer_stable(loop(previous, answer)) == stable


@pytest.mark.parametrize("signal", COMPARISONS)
def test_comparisons_are_undefined_at_rounds_0_and_1(signal):
    rounds = loop("Tempest", "Tempest", "Tempest", start=0)
    assert math.isnan(signal(rounds[:1]))
    assert math.isnan(signal(rounds[:2]))
    assert signal(rounds) == 1


@pytest.mark.parametrize("signal", COMPARISONS)
@pytest.mark.parametrize(
    ("previous", "answer"), [(None, "a"), ("a", None), (None, None), ("", "a"), (" ", " "), ("a", "\n")]
)
def test_comparisons_are_undefined_when_an_answer_is_missing(signal, previous, answer):
    assert math.isnan(signal(loop(previous, answer)))


@pytest.mark.parametrize("signal", COMPARISONS)
def test_comparisons_need_the_round_right_before(signal):
    assert math.isnan(signal([Round(index=1, answer="a"), Round(index=3, answer="a")]))
    assert math.isnan(signal([Round(index=2, answer="a")]))


def test_text_stability_is_graded():
    rounds = loop("The Tempest film", "The Tempest")
    assert answer_f1_previous(rounds) == pytest.approx(2 / 3)
    assert answer_similarity_previous(rounds) == pytest.approx(2 * 7 / (12 + 7))
    assert answer_f1_previous(loop("The The", "The The")) == 1
    assert answer_f1_previous(loop("The The", "A")) == 0
    assert answer_f1_previous(loop("yes", "no")) == 0


def test_similarity_of_very_long_answers_compares_their_beginnings():
    assert answer_similarity_previous(loop("ab" * 500_000, "ab" * 500_000 + "c")) == 1


@settings(deadline=None)
@given(st.lists(st.text(max_size=6) | st.none(), min_size=2, max_size=5))
def test_comparisons_agree_on_equal_keys(answers):
    rounds = loop(*answers)
    stable, f1, similarity = (signal(rounds) for signal in COMPARISONS)
    assert math.isnan(stable) == math.isnan(f1) == math.isnan(similarity)
    if not math.isnan(stable):
        assert stable == (answer_key(answers[-1]) == answer_key(answers[-2]))
        assert (f1 == 1) >= (stable == 1)
        assert (similarity == 1) == (stable == 1)


@pytest.mark.parametrize(
    "answer",
    [
        "unknown",
        "Unknown.",
        "**Unknown**",
        "I don't know",
        "I don\u2019t know.",
        "i do not know",
        "Not mentioned",
        "not mentioned in text",
        "Not mentioned in the provided passages.",
        "not available",
        "Not available in the text",
        "The answer is not in the passages.",
        "The release year is not mentioned in the passage",
        "None of the passages mention this",
        "none",
        "N/A",
        "n.a.",
        "Cannot be determined from the passages",
        "It cannot be determined.",
        "No information",
        "no information available",
        "Insufficient information",
        "Not enough information to answer",
        "The provided passages do not say",
        "The passage does not mention it.",
        "I cannot answer this based on the context",
        "noanswer",
    ],
)
def test_refusals_abstain(answer):
    assert abstained(loop(answer)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "The Unknown Soldier",
        "Unknown Pleasures",
        "I Don't Know How She Does It",
        "None but the Lonely Heart",
        "Na",
        "no",
        "yes",
        "Nothing Compares 2 U",
        "Nunavut",
        "No Country for Old Men",
        "Known Unknowns",
        "...",
        "The Tempest",
    ],
)
def test_real_answers_do_not_abstain(answer):
    assert abstained(loop(answer)) == 0


@pytest.mark.parametrize("answer", [None, "", " \n"])
def test_a_missing_answer_neither_abstains_nor_answers(answer):
    assert math.isnan(abstained(loop(answer)))


def test_a_policy_brings_its_own_patterns():
    refuses = abstained_by(["keine *", "* unbekannt"])
    assert [refuses(text) for text in ("Keine Angabe", "keine", "Das ist  unbekannt!", "unknown", "Keinesfalls")] == [
        1,
        1,
        1,
        0,
        0,
    ]
    assert abstained_by([])("unknown") == 0


@pytest.mark.parametrize("pattern", ["", " ", "*", "* *", "..."])
def test_a_pattern_that_matches_anything_is_refused(pattern):
    with pytest.raises(DataError, match="one word"):
        abstained_by(["unknown", pattern])


def test_every_default_pattern_matches_itself():
    refuses = abstained_by(ABSTAIN_PATTERNS)
    assert all(refuses(pattern.replace("*", "something")) == 1 for pattern in ABSTAIN_PATTERNS)
    assert len(set(ABSTAIN_PATTERNS)) == len(ABSTAIN_PATTERNS)


@settings(deadline=None)
@given(st.text())
def test_abstaining_never_raises(answer):
    value = abstained_by(ABSTAIN_PATTERNS)(answer)
    assert value in {0, 1} or not answer.strip()


def test_a_megabyte_of_refusal_is_read_by_its_beginning():
    assert abstained(loop("not mentioned " + "x " * 500_000)) == 1
    assert abstained(loop("x " * 500_000 + "is not mentioned")) == 0


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("The Tempest", 1),
        ("tempest!", 1),
        ("derek jarman", 1),
        ("Temp", 0),
        ("Jarman 1979", 0),
        ("film Derek", 0),
        ("", None),
        (None, None),
        ("The", None),
        ("yes", None),
        ("No.", None),
    ],
)
def test_an_answer_is_in_evidence_at_word_boundaries_of_title_or_text(answer, found):
    passages = (passage("The Tempest (film)", "Directed by Derek Jarman in 1979, a film."),)
    value = answer_in_evidence([Round(index=1, answer=answer, passages=passages)])
    assert math.isnan(value) if found is None else value == found


def test_answers_without_evidence_have_no_value():
    passages = (passage("a", "b"),)
    assert math.isnan(answer_in_evidence([Round(index=0, answer="b", passages=passages)]))
    assert math.isnan(answer_in_evidence([Round(index=1, answer="b")]))


def test_the_length_counts_words():
    assert answer_length(loop("The  Tempest\n1979")) == 3
    assert math.isnan(answer_length(loop(None)))
    assert math.isnan(answer_length(loop(" ")))


_WORDS = st.sampled_from(["a", "b", "not", "*", "known", "A.", "(b)", "**", "..."])


@given(st.lists(_WORDS, min_size=1, max_size=6), st.lists(_WORDS, max_size=8))
@settings(max_examples=120)
def test_a_pattern_matches_what_the_same_regular_expression_matches(pattern, answer):
    edges = ".,;:!?\"'()[]{}*_`<>\u2026"
    words = [word if word == "*" else word.lower().strip(edges) for word in pattern]
    assume(any(word not in ("", "*") for word in words))
    expected = "".join(r"(?:\S+ )*" if word == "*" else re.escape(f"{word} ") for word in words if word)
    said = "".join(f"{word} " for word in (w.lower().strip(edges) for w in answer) if word)
    found = abstained_by([" ".join(pattern)])(" ".join(answer))
    if answer:
        assert found == float(re.fullmatch(expected, said) is not None)
    else:
        assert math.isnan(found)


def test_a_pattern_of_many_stars_takes_no_longer_than_one_of_few():
    # A regular expression of these would try some 10^30 ways to split the answer, and never end.
    refuses = abstained_by(["* a " * 12 + "* z"])
    assert refuses("a " * 499 + "b") == 0
    assert refuses("a " * 498 + "z") == 1
