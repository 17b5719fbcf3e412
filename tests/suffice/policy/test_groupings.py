"""Votes over clusters of meaning: greedy by the cosine of embeddings, the same live and replayed, in every order."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice import Policy, Round, Session, replay
from suffice.errors import DataError
from suffice.evaluation.replay.orders import PreparedOrders, drawn_orders
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.embedding import MeaningClusters
from suffice.policy.normalizers import NORMALIZERS, Grouping, match, register_normalizer
from suffice.policy.signals import answer_ids
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table


class Angles:
    """Embeds ``17`` as the direction of 17 degrees, and a text without digits as the zero vector."""

    id = "angles"

    def __init__(self):
        self.asked: list[str] = []

    def embed(self, texts):
        self.asked += texts
        radians = [math.radians(int(text)) if text.isdigit() else None for text in texts]
        return np.array([[0, 0] if a is None else [math.cos(a), math.sin(a)] for a in radians], dtype=np.float32)


THRESHOLD = math.cos(math.radians(10.5))
register_normalizer("angles")(MeaningClusters(Angles(), threshold=THRESHOLD))


def plainly(texts):
    """The clusters, by degrees: the nearest first answer of a cluster at most 10.5 degrees away."""
    first: list[int] = []
    ids = []
    for text in texts:
        if text is None or not text.isdigit():
            ids.append(math.nan)
            continue
        away = [abs(int(text) - other) for other in first]
        if not away or min(away) > 10.5:
            away.append(0)
            first.append(int(text))
        ids.append(float(away.index(min(away))))
    return ids


samples = st.lists(st.one_of(st.none(), st.just("?"), st.integers(0, 89).map(str)), min_size=1, max_size=8)


@given(samples)
def test_clusters_are_those_of_a_plain_loop_and_later_answers_change_nothing(texts):
    ids = NORMALIZERS["angles"].ids(texts)
    np.testing.assert_array_equal(ids, plainly(texts))
    for n in range(1, len(texts) + 1):
        np.testing.assert_array_equal(NORMALIZERS["angles"].ids(texts[:n]), ids[:n])


@settings(max_examples=20)
@given(
    st.lists(samples, min_size=1, max_size=4),
    st.sampled_from(["lead(2)", "vote_share >= 0.6", "answer_stable >= 1", "vote_entropy <= 0.4"]),
    st.sampled_from(["majority_of_samples", "majority", "last"]),
    st.integers(0, 5),
)
def test_a_live_vote_over_clusters_is_its_replay_in_every_order(rows, rule, selector, seed):
    table = build_table(
        [
            {"question_id": f"q{q}", "round": r, "answer": text, "answer_stable": math.nan}
            for q, texts in enumerate(rows)
            for r, text in enumerate(texts, 1)
        ]
    )
    policy = Policy(rule=rule, selector=selector, normalizer="angles", max_rounds=8)
    prepared = PreparedRecording.of(Recording(table))
    prepared.stops(policy)  # what is kept of the stored order must not count in another one
    (places,) = drawn_orders(prepared.recording, 1, seed)
    moved = replace(prepared, recording=prepared.recording.reordered(places))
    both = PreparedOrders.of_base(prepared, [places, places])
    assert both.stops(policy).rounds.tolist() == 2 * moved.stops(policy).rounds.tolist()
    for other in (prepared, moved):
        stopped = other.stops(policy)
        for q, answers in enumerate(other.recording.answers.tolist()):
            session = Session(policy, missing="ignore")
            texts = answers[: len(rows[q])]
            decision = session.observe_all(Round(index=r, answer=text) for r, text in enumerate(texts, 1))
            if not decision.stop:
                decision = session.end("exhausted")
            assert decision.stop_round == stopped.rounds[q]
            assert (decision.answer_round or -1) == stopped.answer_rounds[q]


def test_a_gold_answer_matches_what_is_in_its_cluster():
    assert match("17", ["50", "20"], "angles") == 1
    assert match("17", ["50"], "angles") == match(None, ["50"], "angles") == match("?", ["?"], "angles") == 0
    assert math.isnan(match("17", [], "angles"))
    assert NORMALIZERS["angles"](" 17 ") == "17"
    assert NORMALIZERS["angles"](" ") is None


def test_texts_are_embedded_once_and_forgotten_when_there_are_too_many(monkeypatch):
    embedder = Angles()
    clusters = MeaningClusters(embedder, threshold=0.9)
    clusters.ids(["1", "2", "1", None, " "])
    clusters.ids(["2", "3"])
    assert embedder.asked == ["1", "2", "3"]
    monkeypatch.setattr("suffice.policy.embedding._MOST_VECTORS", 2)
    assert clusters.ids(["3", "80", "3"]) == [0, 1, 0]
    assert embedder.asked == ["1", "2", "3", "3", "80"]
    assert "threshold=0.9" in repr(clusters)
    for threshold in (0, 1.1, math.nan):
        with pytest.raises(DataError, match="cosine"):
            MeaningClusters(embedder, threshold=threshold)


def test_what_is_not_a_text_has_no_cluster():
    answers = np.array([["17", math.nan, 3, "18"]], dtype=object)
    np.testing.assert_array_equal(answer_ids(answers, NORMALIZERS["angles"]), [[0, math.nan, math.nan, 0]])


def test_the_packaged_embedder_votes_over_sentences():
    texts = [
        "Paris is the capital of France.",
        "The capital city of France is Paris.",
        "Lyon lies on the Rhone.",
        "It is Paris that is the capital of France.",
    ]
    assert isinstance(NORMALIZERS["meaning"], Grouping)
    policy = Policy(rule="lead(2)", selector="majority_of_samples", normalizer="meaning", max_rounds=4)
    decision = policy.decide([Round(index=r, answer=text) for r, text in enumerate(texts, 1)])
    assert decision.stop_round == 2
    rows = [{"question_id": "q", "round": r, "answer": text, "em": float(r != 3)} for r, text in enumerate(texts, 1)]
    recording = Recording(build_table(rows), {"exchangeable": True, "normalizer": "meaning"})
    result = replay(recording, "settled(4)", metrics="em", orders=5).rows[0]
    assert result.metrics["em"] == 1  # three against one, in every order
    assert 2 < result.calls.mean < 4
