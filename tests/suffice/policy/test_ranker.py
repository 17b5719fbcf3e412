"""The learned selector: its text, its score against plain loops, live against replayed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import RuleSyntaxError
from suffice.policy.metrics import answer_key
from suffice.policy.rounds import Rounds
from suffice.policy.rules import Ranked, Term, fixed_k, parse_selector
from suffice.policy.rules.selectors import answered, total
from suffice.policy.session import Policy, Session, stops
from tests.support import strategies as drawn

NAMES = (
    "votes",
    "is_last",
    "is_first",
    "answer_margin",
    "sum_answer_margin",
    "best_overlap",
    "p_correct",
    "sum_p_correct",
)
NAN = math.nan
WEIGHTS = st.sampled_from([-1.5, -0.1, 0.0, 0.1, 0.3, 1.0, 2.5])
TERMS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True).flatmap(
    lambda names: st.tuples(*(st.builds(Term, st.just(name), WEIGHTS, WEIGHTS) for name in names))
)
RANKERS = st.builds(Ranked, TERMS)


def score(ranker: Ranked, rows: list[dict], stop: int, r: int) -> float:
    """The weighted sum of one round, by plain loops."""
    given_ = [t for t in range(stop + 1) if rows[t]["answer"] is not None and answer_key(rows[t]["answer"])]
    same = [t for t in given_ if answer_key(rows[t]["answer"]) == answer_key(rows[r]["answer"])]
    total = 0.0
    for term in ranker.terms:
        name, prefix = term.name, ""
        for known in ("sum_", "best_"):
            if name.startswith(known):
                prefix, name = known, name[len(known) :]

        def value(t: int, name: str = name, fill: float = term.fill) -> float:
            return fill if math.isnan(rows[t][name]) else rows[t][name]

        if name == "votes":
            found = len(same) / len(given_)
        elif name == "is_last":
            found = float(r == given_[-1])
        elif name == "is_first":
            found = float(r == given_[0])
        elif prefix == "sum_":
            found = 0.0
            for t in same:
                found += value(t)
        else:
            found = max(map(value, same)) if prefix else value(r)
        total += term.weight * found
    return total


@settings(max_examples=25)
@given(drawn.recorded(start=1), RANKERS, st.integers(1, 5))
def test_the_ranker_chooses_live_and_replayed_what_plain_loops_choose(data, ranker, k):
    policy = Policy(rule=fixed_k(k), selector=ranker, max_rounds=5, calibrators=(drawn.CALIBRATOR,))
    replayed = stops(policy, data.recording.rounds())
    for q, item in enumerate(data.trajectories):
        rows = drawn.reference_rows(item, policy)
        stop = min(k, len(rows)) - 1
        usable = [r for r in range(stop + 1) if rows[r]["answer"] is not None and answer_key(rows[r]["answer"])]
        expected = max(usable, key=lambda r: (score(ranker, rows, stop, r), r), default=-1)
        assert replayed.answer_position[q] == expected
        session = Session(policy)
        decision = session.observe_all(item.rounds)
        if decision is None or not decision.stop:
            decision = session.end("exhausted")
        assert decision.answer_round == (None if expected < 0 else rows[expected]["round"])


@settings(max_examples=50)
@given(RANKERS)
def test_the_text_of_a_ranker_reads_back_equal(ranker):
    assert parse_selector(str(ranker)) == ranker
    assert Policy.from_dict(Policy(selector=ranker).to_dict()).selector == ranker


@settings(max_examples=25)
@given(drawn.recorded(start=1, complete=True))
def test_simple_rankers_equal_the_selectors_that_they_spell(data):
    raw = data.recording.rounds()
    for text, ranker in (
        ("last", "ranked(is_last=(1, 0))"),
        ("first", "ranked(is_first=(1, 0))"),
        ("majority", "ranked(votes=(1, 0))"),
    ):
        one, other = (
            stops(Policy(rule=fixed_k(3), selector=parse_selector(s), max_rounds=5), raw).answer_position
            for s in (text, ranker)
        )
        assert np.array_equal(one, other), text


@pytest.mark.parametrize(
    "text",
    [
        "ranked()",
        "ranked(1)",
        "ranked(a)",
        "ranked(a=1)",
        "ranked(a=(1,))",
        "ranked(a=(1, 2, 3))",
        "ranked(a=(1, 2), a=(1, 2))",
        "ranked(a=(True, 0))",
        "ranked(a=('1', 0))",
        "ranked(a=(1e999, 0))",
        "ranked(a=(1, __import__('os')))",
        "ranked(a=(1, 0), **{})",
        "ranked(sum_=(1, 0))",
        "ranked(a=(1, 0)).x",
        "ranked(a=(1, 0",
        f"ranked(a=({'9' * 400}, 0))",
        "ranked(" + "a" * 30_000 + "=(1, 0))",
        "ranked(a=(" + "-" * 9000 + "1, 0))",
    ],
)
def test_what_is_no_ranker_is_refused_by_its_text(text):
    with pytest.raises(RuleSyntaxError):
        parse_selector(text)


def test_a_term_that_no_text_can_spell_is_refused():
    for term in (Term("class", 1.0), Term("a b", 1.0), Term("a", math.nan), Term("a", 1.0, math.inf)):
        with pytest.raises(RuleSyntaxError, match="finite weight"):
            Ranked((term,))


def test_a_ranker_reads_the_signals_behind_its_features_and_no_others():
    ranker = parse_selector("ranked(sum_p_correct=(1, 0), best_overlap=(1, 0), votes=(1, 0), is_last=(2, 0))")
    assert ranker.signals == {"p_correct", "overlap"}
    assert set(Policy(selector=ranker, calibrators=(drawn.CALIBRATOR,)).raw_signals) == {"answer_margin", "overlap"}


def test_a_missing_signal_takes_its_fill_and_extremes_do_not_warn():
    rounds = Rounds.from_columns({"a": [0.5, np.nan, 1e300]}, answers=["x", "y", ""])
    assert int(parse_selector("ranked(a=(1, 0.6))").select(rounds, np.asarray(2))) == 1
    assert int(parse_selector("ranked(a=(1, 0.4))").select(rounds, np.asarray(2))) == 0
    loud = Rounds.from_columns({"a": [1e300, 1e300]}, answers=["x", "y"])
    assert int(parse_selector("ranked(a=(1e100, 0), sum_a=(-1e100, 0))").select(loud, np.asarray(1))) == 1


def test_an_answer_is_blank_exactly_where_its_key_is_empty():
    texts = ["x", " ", "", None, "The", "a an the", "\t\n", "\x1c", "\u3000", "\u200b", ".", math.nan]
    for answers in (texts, texts[:-1]):
        rounds = Rounds.from_columns({"a": [0.0] * len(answers)}, answers=answers)
        expected = [isinstance(answer, str) and answer_key(answer) != "" for answer in answers]
        assert answered(rounds).tolist() == expected
        stacked = Rounds(rounds.columns, rounds.index, np.ones((2, len(answers)), bool), rounds.answers)
        assert answered(stacked).tolist() == [expected, expected]


@pytest.mark.parametrize("name", ["votes", "sum_a", "best_a", "is_last", "is_first"])
def test_a_ranker_never_looks_past_the_stop(name):
    ranker = Ranked((Term(name, 1.0), Term("a", 0.01)))
    rounds = Rounds.from_columns({"a": [0.2, 0.3, 0.9, 0.8]}, answers=["x", "y", "x", "x"])
    for stop in range(4):
        seen = Rounds.from_columns({"a": rounds["a"][: stop + 1]}, answers=rounds.answers[: stop + 1])
        assert int(ranker.select(rounds, np.asarray(stop))) == int(ranker.select(seen, np.asarray(stop)))


def test_totals_do_not_depend_on_the_rounds_that_follow():
    values = np.random.default_rng(0).random((500, 9)) * 10.0 ** np.arange(-4, 5)
    for width in range(1, 9):
        padded = np.where(np.arange(9) < width, values, 0.0)
        assert np.array_equal(total(padded), total(values[:, :width]))


def test_features_count_each_question_by_itself():
    answers = [["a", "b", "A", "c"], ["b", "b", "b", None]]
    rounds = Rounds.from_columns({"x": [[1.0, 2.0, NAN, 4.0], [5.0, -1.0, 0.0, 9.0]]}, answers=answers)
    ranker = Ranked(tuple(Term(name, 1.0, 0.5) for name in ("votes", "x", "sum_x", "best_x", "is_last", "is_first")))
    found = dict(zip((term.name for term in ranker.terms), ranker.features(rounds, answered(rounds)), strict=True))
    assert {name: values.tolist() for name, values in found.items()} == {
        "votes": [[0.5, 0.25, 0.5, 0.25], [1.0, 1.0, 1.0, 0.0]],
        "x": [[1.0, 2.0, 0.5, 4.0], [5.0, -1.0, 0.0, 9.0]],
        "sum_x": [[1.5, 2.0, 1.5, 4.0], [4.0, 4.0, 4.0, 0.0]],
        "best_x": [[1.0, 2.0, 1.0, 4.0], [5.0, 5.0, 5.0, 0.5]],
        "is_last": [[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]],
        "is_first": [[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]],
    }
