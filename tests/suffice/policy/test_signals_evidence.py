"""Signals of the evidence, and the state that they are fitted with."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from suffice.errors import DataError, NotFittedError
from suffice.policy.rounds import Passage, Round
from suffice.policy.seen import Seen
from suffice.policy.signals import Idf, ZScore, compute_signals, overlap_tokens, state_from_dict, top_score

TEXTS = [
    "the tempest is a play",
    "the tempest is a film by Jarman",
    "the sea",
    "A storm at sea",
    "x1 y_2 \u00e9t\u00e9",
]
IDF = Idf.fit(TEXTS)


def passages(*texts):
    return tuple(Passage(passage_id=str(i), title="", text=text) for i, text in enumerate(texts))


def overlap(*texts, index=None, idf=IDF):
    rounds = [Round(index=len(texts) if index is None else index, passages=passages(*texts))]
    return compute_signals(rounds, ["overlap"], state={"overlap": idf})["overlap"]


def retrieved(*scores, **signals):
    return [Round(index=1, pool_scores=scores, signals=signals)]


def signal(name, rounds, **state):
    return compute_signals(rounds, [name], state=state)[name]


def test_weights_equal_scikit_learn_s_smooth_idf():
    reference = TfidfVectorizer(token_pattern=r"\w+", lowercase=True).fit(TEXTS)
    for token, weight in zip(reference.get_feature_names_out(), reference.idf_, strict=True):
        assert IDF.weight(token) == pytest.approx(weight, rel=1e-12)
    assert set(reference.get_feature_names_out()) == set(IDF.df)


def test_an_unseen_token_weighs_most():
    assert IDF.weight("never") == pytest.approx(math.log(6) + 1)
    assert IDF.weight("never") > max(map(IDF.weight, IDF.df))


def test_overlap_is_the_weighted_jaccard_with_the_union_of_the_earlier_passages():
    shared = IDF.weight("tempest") + IDF.weight("sea")
    every = shared + IDF.weight("film") + IDF.weight("play") + IDF.weight("storm")
    assert overlap("tempest play", "sea storm", "sea tempest film") == pytest.approx(shared / every)


def test_overlap_runs_from_nothing_new_to_all_new():
    assert overlap("the sea", "sea THE sea") == 1
    assert overlap("the sea", "a storm") == 0
    assert overlap("the sea", "") == 0


def test_a_word_outside_the_fitted_texts_weighs_most():
    idf = Idf.fit(["sea storm", "sea"])
    weight = math.log1p(2) + 1
    assert idf.weight("calm") == pytest.approx(weight)
    assert overlap("sea calm", "sea", idf=idf) == pytest.approx(1 / (1 + weight))


def test_fitted_frequencies_keep_their_questions_in_json():
    seen = Seen.of(["q1"], ["Where?"])
    fitted = Idf.fit(["sea storm"], seen)
    assert state_from_dict(fitted.to_dict()).seen == seen


def test_overlap_reads_titles():
    pair = (
        Passage(passage_id="1", title="Jarman", text="a film"),
        Passage(passage_id="2", title="storm", text="by Jarman"),
    )
    assert signal("overlap", [Round(index=2, passages=pair)], overlap=IDF) > 0


def test_overlap_is_undefined_without_earlier_passages():
    assert math.isnan(overlap())
    assert math.isnan(overlap("the sea", index=2))
    assert math.isnan(overlap("the sea", "the sea", index=1))
    assert math.isnan(overlap("...", "!"))


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab \u00e9.", max_size=12), min_size=2, max_size=4))
def test_overlap_is_in_range_and_ignores_the_order_of_passages(texts):
    value = overlap(*texts)
    assert math.isnan(value) or 0 <= value <= 1
    np.testing.assert_equal(overlap(*texts[:-1][::-1], texts[-1]), value)


def test_tokens_are_lowercased_runs_of_word_characters():
    assert overlap_tokens("Z\u00dcRICH's x_1, 1,000!") == {"z\u00fcrich", "s", "x_1", "1", "000"}


def test_the_order_of_fitted_texts_does_not_matter():
    assert Idf.fit(TEXTS[::-1]) == IDF
    assert json.dumps(Idf.fit(TEXTS[::-1]).to_dict()) == json.dumps(IDF.to_dict())


def test_the_retriever_s_scores_are_read_best_first():
    rounds = retrieved(7.0, 4.5, 1.0, 0.5)
    assert signal("top_score", rounds) == 7
    assert signal("score_gap", rounds) == 2.5
    scores = np.array([7.0, 4.5, 1.0, 0.5])
    assert signal("top_score_z_pool", rounds) == pytest.approx((7 - scores.mean()) / scores.std())

    low, middle, high = np.percentile(scores, [25, 50, 75])
    assert signal("top_score_z_robust", rounds) == pytest.approx((7 - middle) / (high - low))


@pytest.mark.parametrize("name", ["top_score_z_pool", "top_score_z_robust"])
@pytest.mark.parametrize("scores", [(), (1.0,), (math.nan, math.nan), (math.inf, 1.0), (0.1,) * 3, (0.0, 0.0)])
def test_scores_that_cannot_be_compared_have_no_z(name, scores):
    assert math.isnan(signal(name, retrieved(*scores)))


def test_scores_whose_spread_is_no_number_have_no_z():
    for scores in ((1e308, -1e308), (1e-200, 0.0)):
        assert math.isnan(signal("top_score_z_pool", retrieved(*scores)))
    assert math.isnan(signal("top_score_z_robust", retrieved(1.7e308, 1.7e308, -1.7e308, -1.7e308)))


def test_the_robust_z_is_of_the_questions_own_pool_whatever_the_others():
    assert signal("top_score_z_robust", retrieved(9.0, 4.0, 3.0, 2.0, 1.0)) == 3.0  # (9 - 3) / (4 - 2)
    assert math.isnan(signal("top_score_z_robust", retrieved(9.0, 1.0, 1.0, 1.0, 1.0)))  # the quartiles do not differ


def test_unranked_rounds_have_no_score_signals():
    for name in ("top_score", "score_gap", "top_score_z_pool"):
        assert math.isnan(signal(name, retrieved()))
    assert math.isnan(signal("score_gap", retrieved(1.0)))
    assert math.isnan(signal("score_gap", retrieved(1.0, 2.0)))  # not best first: below its range
    assert math.isnan(signal("top_score", [Round(index=0, pool_scores=(1.0,))]))


def test_z_scores_are_fitted_by_moments():
    values = [1.0, 2.0, 3.0, 10.0, math.nan, math.inf]
    assert ZScore.fit(values) == ZScore(4.0, float(np.std([1, 2, 3, 10])))
    constant = ZScore.fit([0.1] * 100)  # whose mean is not 0.1 in floating point
    assert constant == ZScore(0.1, 0.0)
    assert np.isnan(constant.apply(np.array([0.1, 0.2]))).all()
    assert ZScore.fit(iter(values)).apply(np.array([[4.0, math.nan, math.inf]])).tolist() == [
        [0.0, pytest.approx(math.nan, nan_ok=True), pytest.approx(math.nan, nan_ok=True)]
    ]


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, -math.inf], [1e308, -1e308]])
def test_z_scores_need_finite_values(values):
    with pytest.raises(DataError):
        ZScore.fit(values)


def test_a_scale_of_zero_makes_every_z_undefined():
    z = ZScore.fit([3.0, 3.0])
    assert z.scale == 0
    assert np.isnan(z.apply(np.array([[3.0, 4.0]]))).all()
    assert math.isnan(signal("top_score_z", retrieved(3.0), top_score_z=z))


@settings(deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=4), st.floats(-1e308, 1e308), st.floats(0, 1e308))
def test_z_scores_of_a_column_equal_those_of_its_rounds(values, center, scale):
    z = ZScore(center, scale)
    column = z.apply(np.array(values))
    rounds = [retrieved(value) for value in values]
    np.testing.assert_equal([signal("top_score_z", item, top_score_z=z) for item in rounds], column)
    assert not np.isinf(column).any()


def test_a_measured_top_score_wins_in_the_z_score_too():
    assert top_score(retrieved(9.0, top_score=1.0)) == 1
    assert signal("top_score_z", retrieved(9.0, top_score=1.0), top_score_z=ZScore(0.0, 1.0)) == 1
    assert math.isnan(top_score(retrieved(9.0, top_score=None)))
    assert top_score(retrieved(9.0, top_score=np.float32(0.5))) == 0.5


@pytest.mark.parametrize("name", ["overlap", "top_score_z", "p_correct", "calibrated_confidence"])
def test_a_fitted_signal_without_state_is_refused_if_asked_for(name):
    rounds = [Round(index=2, answer="x", passages=passages("a", "b"), pool_scores=(1.0,))]
    with pytest.raises(NotFittedError, match="suffice calibrate"):
        compute_signals(rounds, [name], state={})
    assert name not in compute_signals(rounds, state={})
    measured = [Round(index=2, signals={name: 0.5})]
    assert compute_signals(measured, [name], state={}) == {name: 0.5}


def test_fitted_signals_with_their_state_are_among_all_signals():
    rounds = [Round(index=2, passages=passages("the sea", "the sea"), pool_scores=(3.0,))]
    values = compute_signals(rounds, state={"overlap": IDF, "top_score_z": ZScore(1.0, 2.0)})
    assert values["overlap"] == 1
    assert values["top_score_z"] == 1


@pytest.mark.parametrize("state", [IDF, ZScore(1.5, 0.0), ZScore(-2.0, 3.25)])
def test_state_survives_json(state):
    loaded = state_from_dict(json.loads(json.dumps(state.to_dict(), allow_nan=False)))
    assert loaded == state
    assert type(loaded) is type(state)


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"type": "pickle"},
        {"type": ["idf"]},
        {"type": "zscore", "center": 0.0},
        {"type": "zscore", "center": 0.0, "scale": 1.0, "more": 1},
        {"type": "zscore", "center": "0", "scale": 1.0},
        {"type": "zscore", "center": math.nan, "scale": 1.0},
        {"type": "zscore", "center": True, "scale": 1.0},
        {"type": "zscore", "center": 0.0, "scale": -1.0},
        {"type": "idf", "n": 0, "df": {}},
        {"type": "idf", "n": 2.0, "df": {}},
        {"type": "idf", "n": True, "df": {}},
        {"type": "idf", "n": 2, "df": {"a": 3}},
        {"type": "idf", "n": 2, "df": {"a": 0}},
        {"type": "idf", "n": 2, "df": ["a"]},
        {"type": "idf", "n": 2, "df": {1: 1}},
    ],
)
def test_state_of_another_shape_is_refused(data):
    with pytest.raises(DataError):
        state_from_dict(data)


def test_idf_needs_a_text():
    with pytest.raises(DataError, match="without texts"):
        Idf.fit([])
