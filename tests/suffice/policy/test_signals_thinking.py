"""Signals of chains of thought, their rules, and rounds that hold what was thought."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from suffice import Policy, Round, Rounds, Session
from suffice.errors import RuleSyntaxError
from suffice.policy.rules import parse_rule
from suffice.policy.signals import HESITATION, SIGNALS, compute_signals, lacking, share_of_words

NAN = math.nan
words = st.lists(st.sampled_from(["wait", "two", "and", "three", "is", "five", "hmm"]), max_size=12).map(" ".join)


def value(name: str, *thoughts: str | None, text: str = "") -> float:
    rounds = [Round(index=i, thinking=thought, text=text) for i, thought in enumerate(thoughts, start=1)]
    return compute_signals(rounds, [name], state={})[name]


@given(words)
def test_hesitation_is_the_share_of_listed_words(thought):
    spoken = thought.split()
    expected = sum(word in ("wait", "hmm") for word in spoken) / len(spoken) if spoken else NAN
    assert value("thinking_hesitation", "earlier", thought) == pytest.approx(expected, nan_ok=True)


@given(st.lists(words, min_size=1, max_size=4))
def test_novelty_counts_sequences_not_seen_before(thoughts):
    seen: set[tuple[str, ...]] = set()
    new = total = 0
    for thought in thoughts:
        spoken = thought.split()
        new, total = 0, max(0, len(spoken) - 3)
        for i in range(total):
            sequence = tuple(spoken[i : i + 4])
            new += sequence not in seen
            seen.add(sequence)
    assert value("thinking_novelty", *thoughts) == pytest.approx(new / total if total else NAN, nan_ok=True)


def test_words_are_compared_regardless_of_case_and_marks():
    assert share_of_words("WAIT... Hmm!") == 1
    assert share_of_words("They waited.") == 0
    assert share_of_words("D'accord, mais", {"mais"}) == 0.5
    assert math.isnan(share_of_words("?!"))
    assert math.isnan(share_of_words(None))
    assert all(word == word.casefold() for word in HESITATION)


def test_a_trial_hesitates_by_one_word_of_its_reply():
    assert value("trial_hesitates", "thought", text="42, but wait") == 1
    assert value("trial_hesitates", "thought", text="42") == 0
    assert math.isnan(value("trial_hesitates", "thought", text=""))


def test_without_a_chain_nothing_is_known_of_it():
    for name in ("thinking_hesitation", "thinking_novelty", "trial_hesitates", "thinking_tokens"):
        assert math.isnan(value(name, None, text="Wait, 42"))
    assert lacking("thinking_hesitation", Round(index=1), NAN) == "thinking"


def test_a_round_keeps_what_was_thought():
    thought = Round(index=1, answer="4", thinking="two and two")
    assert Round.from_dict(thought.to_dict()) == thought
    assert "thinking" not in Round(index=1, answer="4").to_dict()


def test_signals_of_the_chain_are_free_and_those_of_trials_are_not():
    assert {
        name: SIGNALS[name].component for name in ("thinking_tokens", "thinking_hesitation", "thinking_novelty")
    } == {"thinking_tokens": "", "thinking_hesitation": "", "thinking_novelty": ""}
    assert SIGNALS["trial_hesitates"].component == "trial"


def fires(rule: str, **columns: list[float]) -> list[bool]:
    return parse_rule(rule).fires(Rounds.from_columns(columns)).tolist()


def test_dynasor_wants_equal_trials_without_hesitation():
    stable = [NAN, 1, 1, 1, 0, 1, 1]
    calm = [0.0] * 7
    assert fires("dynasor(3)", answer_stable=stable, trial_hesitates=calm) == [
        False,
        False,
        True,
        True,
        False,
        False,
        True,
    ]
    doubt = [0, 1, 0, 0, 0, 0, 0]
    assert fires("dynasor(2)", answer_stable=stable, trial_hesitates=doubt) == [
        *(False, False, False),
        *(True, False, True, True),
    ]


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4), st.floats(0.5, 0.99))
def test_deer_compares_the_geometric_mean_of_probabilities(probabilities, threshold):
    mean = math.prod(probabilities) ** (1 / len(probabilities))
    logprob = math.fsum(map(math.log, probabilities)) / len(probabilities)
    if abs(mean - threshold) > 1e-9:
        assert fires(f"deer({threshold!r})", answer_logprob_mean=[logprob]) == [mean > threshold]


def test_a_token_budget_ends_at_the_first_checkpoint_beyond_it():
    session = Session(Policy(rule="token_budget(200)", max_rounds=9))
    decisions = [
        session.observe(Round(index=r, answer="4", signals={"thinking_tokens": tokens}))
        for r, tokens in enumerate((120.0, 230.0), start=1)
    ]
    assert [decision.stop for decision in decisions] == [False, True]


@pytest.mark.parametrize(
    "rule",
    [
        "dynasor(1)",
        "dynasor(2.5)",
        "deer(1)",
        "deer(0)",
        "lynx(0)",
        "lynx(1)",
        "thought_calibrated(0)",
        "thought_calibrated(3)",
    ],
)
def test_rules_of_thought_refuse_numbers_out_of_range(rule):
    with pytest.raises(RuleSyntaxError, match="not"):
        parse_rule(rule)
