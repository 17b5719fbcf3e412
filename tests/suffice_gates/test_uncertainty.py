"""How unsure a model is, against plain loops and reference libraries."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import entropy

from suffice.errors import DataError
from suffice.policy.rounds import Round, Token
from suffice.policy.signals import SIGNALS
from suffice.policy.signals.margins import HIGHEST_LOGPROB, LOWEST_LOGPROB, sequence_logprob, token_entropy
from suffice_gates.models.rind import query_words, rind
from suffice_gates.models.sampled import clusters, gram_uncertainty, semantic_entropy
from suffice_gates.models.uncertainty import contrast_directions

shares = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=8).map(lambda w: np.array(w) / sum(w))
words = st.lists(st.sampled_from(["Paris", "paris.", "the Paris", "Rome", "rome", "Bonn"]), min_size=1, max_size=10)


def token_of(p, n_listed: int) -> Token:
    listed = sorted(enumerate(p), key=lambda item: -item[1])[:n_listed]
    tops = tuple((str(i), math.log(value)) for i, value in listed)
    return Token(tops[0][0], tops[0][1], tops)


@given(shares)
def test_the_entropy_of_a_wholly_listed_distribution_is_the_entropy(p):
    assert token_entropy(token_of(p, len(p))) == pytest.approx(entropy(p), abs=1e-6)


@given(shares)
def test_a_cut_distribution_has_no_more_entropy_than_the_whole(p):
    cut = token_entropy(token_of(p, 2))
    rest = 1 - sum(sorted(p)[-2:])
    assert -1e-6 <= entropy(p) - cut <= rest * math.log(len(p) - 2) + 1e-6


def test_entropy_needs_two_known_values():
    assert math.isnan(token_entropy(Token("a", -0.1, (("a", -0.1),))))
    assert math.isnan(token_entropy(Token("a", -0.1, (("a", -0.1), ("b", -9999.0)))))
    assert math.isnan(token_entropy(Token("a", -0.1, (("a", -0.1), ("b", math.nan)))))
    assert math.isnan(token_entropy(Token("a", 3.0, (("a", 3.0), ("b", -1.0)))))


def test_one_unknown_value_among_several_leaves_the_entropy_unknown():
    known = (("a", math.log(0.5)), ("b", math.log(0.25)))
    assert token_entropy(Token("a", math.log(0.5), known)) > 0
    assert math.isnan(token_entropy(Token("a", math.log(0.5), (*known, ("c", math.nan)))))


def test_probabilities_from_the_lowest_to_1_are_known():
    sure = Token("a", HIGHEST_LOGPROB, (("a", HIGHEST_LOGPROB), ("b", math.log(1e-9))))
    assert token_entropy(sure) == pytest.approx(0.0, abs=1e-6)
    assert math.isnan(token_entropy(Token("a", -0.1, (("a", -0.1), ("b", LOWEST_LOGPROB)))))


def test_a_generated_token_that_is_not_listed_counts():
    drawn = Token("c", math.log(0.1), (("a", math.log(0.6)), ("b", math.log(0.3))))
    assert token_entropy(drawn) == pytest.approx(entropy([0.6, 0.3, 0.1]))


def test_signals_read_the_tokens_of_the_answer():
    tokens = (token_of([0.5, 0.5], 2), token_of([0.9, 0.1], 2))
    seen = [Round(index=0, answer="a b", answer_tokens=tokens)]
    both = [entropy([0.5, 0.5]), entropy([0.9, 0.1])]
    assert SIGNALS["answer_entropy_mean"].compute(seen) == pytest.approx(np.mean(both))
    assert SIGNALS["answer_entropy_max"].compute(seen) == pytest.approx(max(both))
    assert SIGNALS["answer_logprob_sum"].compute(seen) == pytest.approx(math.log(0.45))
    assert math.isnan(SIGNALS["answer_entropy_mean"].compute([Round(index=0, answer="a")]))


def test_a_sequence_with_an_unknown_token_has_no_log_probability():
    assert math.isnan(sequence_logprob([Token("a", -0.5), Token("b")]))
    assert math.isnan(sequence_logprob([]))
    assert math.isnan(sequence_logprob(None))


@given(words)
def test_semantic_entropy_is_that_of_the_counts_of_meanings(answers):
    keys = [answer.lower().replace("the ", "").strip(".") for answer in answers]
    counts = [keys.count(key) for key in set(keys)]
    assert semantic_entropy(answers) == pytest.approx(entropy(counts), abs=1e-9)


@given(words, st.randoms())
def test_semantic_entropy_does_not_depend_on_the_order_of_samples(answers, random):
    shuffled = list(answers)
    random.shuffle(shuffled)
    assert semantic_entropy(shuffled) == pytest.approx(semantic_entropy(answers))


def test_likely_meanings_weigh_more_and_a_wording_drawn_twice_counts_once():
    answers = ["Paris", "Paris", "paris.", "Rome"]
    logprobs = [math.log(p) for p in (0.4, 0.4, 0.2, 0.2)]
    assert semantic_entropy(answers, logprobs) == pytest.approx(entropy([0.6, 0.2]))
    assert math.isnan(semantic_entropy(answers, [math.nan, 0.0, 0.0, 0.0]))


def test_meanings_are_joined_only_if_each_implies_the_other():
    def implies(first, second):
        return second in first

    assert clusters(["in Paris", "Paris", "in Paris"], implies) == [0, 1, 0]
    assert clusters(["Paris", "in Paris"], implies) == [0, 1]


@pytest.mark.parametrize("call", [lambda: semantic_entropy([]), lambda: semantic_entropy(["a"], [0.0, 0.0])])
def test_semantic_entropy_without_samples_is_refused(call):
    with pytest.raises(DataError, match="needs samples"):
        call()


@given(st.integers(0, 100), st.integers(1, 6))
def test_the_gram_determinant_is_that_of_the_eigenvalues(seed, k):
    states = np.random.default_rng(seed).normal(size=(k, 9))
    gram = np.zeros((k, k))
    for i, j in itertools.product(range(k), range(k)):
        gram[i, j] = sum((states[i, a] - states[i].mean()) * (states[j, a] - states[j].mean()) for a in range(9))
    values = np.linalg.eigvalsh(gram)
    assert gram_uncertainty(states) == pytest.approx(sum(math.log(v + 1e-3) for v in values) / k, rel=1e-6)


def test_samples_that_agree_are_less_uncertain():
    rng = np.random.default_rng(0)
    one = rng.normal(size=(1, 16))
    assert gram_uncertainty(np.repeat(one, 5, axis=0)) < gram_uncertainty(rng.normal(size=(5, 16)))
    assert math.isnan(gram_uncertainty(np.full((2, 3), np.nan)))
    with pytest.raises(DataError, match="regularizer"):
        gram_uncertainty(one, regularizer=0.0)
    with pytest.raises(DataError, match="shape"):
        gram_uncertainty(one[0])


@given(st.integers(0, 50), st.integers(1, 9), st.integers(1, 3))
def test_rind_is_entropy_times_the_share_of_attention(seed, n, n_heads):
    """Computed word by word: of one sentence the mean is the entropy weighted by attention, whatever its length."""
    rng = np.random.default_rng(seed)
    entropies, attention = rng.random(n), rng.random((n_heads, n, n))
    words = np.cumsum(np.r_[0, rng.integers(0, 2, n - 1)])
    n_words = words[-1] + 1
    sentences, content = np.cumsum(np.r_[0, rng.integers(0, 2, n_words - 1)]), rng.random(n_words) < 0.7
    expected = []
    for word in range(n_words):
        mates = [i for i in range(n_words) if sentences[i] == sentences[word]]
        paid = [sum(max(head[:, i]) for head in attention) / n_heads for i in range(n)]
        total = sum(paid[i] for i in range(n) if words[i] in mates)
        own = [i for i in range(n) if words[i] == word]
        share = sum(paid[i] for i in own) / total
        expected.append(share * sum(entropies[i] for i in own) / len(own) * len(mates) * content[word])
    assert rind(entropies, attention, words, sentences, content) == pytest.approx(expected)


def test_a_word_of_average_attention_has_its_entropy():
    even = rind(np.array([1.0, 2.0]), np.ones((1, 2, 2)), np.arange(2), np.zeros(2, dtype=int), np.ones(2, dtype=bool))
    assert even.tolist() == [1.0, 2.0]


def test_words_of_a_query_are_those_with_most_attention():
    attention = np.array([[1.0, 0, 0, 0], [0.3, 0.7, 0, 0], [0.1, 0.2, 0.7, 0], [0.25] * 4])
    words, content = np.arange(4), np.array([True, True, True, True])
    assert query_words(attention, words, np.array([3]), content, 1) == [2]  # token 2 wrote the hit, and pays 2 most
    assert query_words(attention, words, np.array([3]), content, 2) == [1, 2]
    assert query_words(attention, words, np.array([2, 3]), content, 3) == [0, 1]  # a hit is never in a query
    assert query_words(attention, words, np.array([3]), ~content, 3) == []


def test_contrasts_find_the_planted_direction_and_its_sign():
    rng = np.random.default_rng(0)
    planted = rng.normal(size=(2, 8))
    planted /= np.linalg.norm(planted, axis=1, keepdims=True)
    base = rng.normal(size=(40, 2, 8))
    positive, negative = base + 3 * planted, base - 3 * planted + 0.1 * rng.normal(size=(40, 2, 8))
    found = contrast_directions(positive, negative)
    assert np.einsum("ld,ld->l", found.vectors, planted) == pytest.approx([1, 1], abs=0.01)
    assert (found.project(positive) > 0).mean() > 0.95
    assert (found.project(negative) < 0).mean() > 0.95
    swapped = contrast_directions(negative, positive)
    assert swapped.project(base) == pytest.approx(-found.project(base), abs=1e-9)


def test_contrasts_refuse_states_that_are_no_pairs():
    states = np.ones((3, 1, 4))
    for other in (np.ones((2, 1, 4)), np.full((3, 1, 4), np.nan)):
        with pytest.raises(DataError, match="contrast"):
            contrast_directions(states, other)
