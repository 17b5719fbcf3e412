"""Selectors of drafts against plain loops, live against replayed, and what they do with nothing to go by."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice import record
from suffice.errors import RuleSyntaxError, UnknownSignalError
from suffice.policy.embedding import DraftEmbedder
from suffice.policy.metrics import answer_key
from suffice.policy.rounds import Passage, Round, Rounds
from suffice.policy.rules import Centroid, LongestRun, fixed_k, parse_selector, tasr
from suffice.policy.rules.parse import OWN_SELECTORS
from suffice.policy.rules.registered_selectors import DISTANCES, pairwise_distances
from suffice.policy.session import Policy, Session, stops
from suffice.policy.signals import compute_signals, critic_praise, lexical_support
from suffice.policy.signals.semantic import semantic_distance
from suffice.recordings import read_recording
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from tests.suffice.policy.test_semantic_signals import QUESTION, Axes, loop, replayed

NAN = math.nan
SELECTORS = (
    "centroid",
    "min_semantic_distance",
    "median_answer_length",
    "max_critic_praise",
    "longest_run(semantic_distance < 0.3)",
    "longest_run((semantic_distance < 0.3) | (answer_stable >= 1))",
    "longest_run(patience((semantic_distance < 0.6), 2))",
)
VECTORS = st.one_of(
    st.none(),
    st.sampled_from(
        [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.9, 0.1, 0.0), (0.0, 1.0, 0.2), (-1.0, 0.1, 0.0), (NAN, 1, 1)]
    ),
)
ANSWERS = st.sampled_from([None, "", " ", "a draft", "another draft", "the draft of drafts", "one more"])
FEEDBACK = st.sampled_from([None, "", "Good, but something is missing.", "Clear and correct.", "Not yet."])
DRAFTS = st.lists(st.tuples(ANSWERS, VECTORS, FEEDBACK), min_size=1, max_size=6)


def trajectory(drafts) -> tuple[Round, ...]:
    return tuple(
        Round(
            index=i,
            answer=answer,
            feedback=feedback,
            embedding=None if vector is None else np.array(vector, dtype=np.float32),
        )
        for i, (answer, vector, feedback) in enumerate(drafts, start=1)
    )


def recording(trajectories) -> Recording:
    rows = [
        {"question_id": f"q{q}", "round": r.index, "end": "exhausted", "answer": r.answer}
        | {
            name: None if math.isnan(value) else value
            for name, value in compute_signals(rounds[: i + 1], state={}).items()
        }
        for q, rounds in enumerate(trajectories)
        for i, r in enumerate(rounds)
    ]
    return Recording(build_table(rows))


def signals_of(rounds) -> list[dict[str, float]]:
    return [compute_signals(rounds[: i + 1], state={}) for i in range(len(rounds))]


def usable(rounds, stop) -> list[int]:
    return [i for i in range(stop + 1) if rounds[i].answer is not None and answer_key(rounds[i].answer)]


def distance(rounds, i, j) -> float:
    a, b = rounds[i], rounds[j]
    if a.embedding is None or b.embedding is None or a.answer is None or b.answer is None or abs(i - j) > 5:
        return NAN
    return semantic_distance(a.embedding, b.embedding)


def expected(selector: str, rounds, stop: int) -> int:
    seen = usable(rounds, stop)
    if not seen:
        return -1
    values: dict[int, float] = {}
    told = signals_of(rounds)
    if selector == "centroid":
        for i in seen:
            known = [distance(rounds, max(i, j), min(i, j)) for j in seen if j != i]
            known = [value for value in known if not math.isnan(value)]
            if known:
                total = 0.0
                for value in known:
                    total += value
                values[i] = total / len(known)
        return max(values, key=lambda i: (-values[i], i), default=seen[-1])
    if selector.startswith("longest_run"):
        lengths, length = {}, 0
        for i in range(stop + 1):
            near = told[i]["semantic_distance"] < 0.3
            if "|" in selector:
                near = near or told[i]["answer_stable"] >= 1
            if "patience" in selector:
                near = i > 0 and told[i]["semantic_distance"] < 0.6 and told[i - 1]["semantic_distance"] < 0.6
            if i not in seen:
                length = 0
            else:
                length = length + 1 if near and length else 1
                lengths[i] = length
        return max(lengths, key=lambda i: (lengths[i], i))
    kind, _, name = selector.partition("_")
    found = {i: told[i][name] for i in seen if not math.isnan(told[i][name])}
    if not found:
        return seen[-1]
    ordered = sorted(found.values())
    middle = ordered[(len(ordered) - 1) // 2] / 2 + ordered[len(ordered) // 2] / 2
    score = {"min": lambda v: -v, "max": lambda v: v, "median": lambda v: -abs(v - middle)}[kind]
    return max(found, key=lambda i: (score(found[i]), i))


@settings(max_examples=50, deadline=None)
@given(st.lists(DRAFTS, min_size=1, max_size=3), st.integers(1, 6), st.sampled_from(SELECTORS))
def test_selectors_choose_live_and_replayed_what_plain_loops_choose(listed, k, text):
    trajectories = [trajectory(drafts) for drafts in listed]
    policy = Policy(rule=fixed_k(k), selector=parse_selector(text), max_rounds=6)
    found = stops(policy, recording(trajectories).rounds())
    for q, rounds in enumerate(trajectories):
        stop = min(k, len(rounds)) - 1
        wanted = expected(text, rounds, stop)
        assert found.answer_position[q] == wanted
        session = Session(policy, missing="ignore")
        decision = session.observe_all(rounds)
        if decision is None or not decision.stop:
            decision = session.end("exhausted")
        assert decision.answer_round == (None if wanted < 0 else wanted + 1)


@pytest.mark.parametrize("seed", range(20))
def test_the_centroid_is_that_of_the_embeddings(seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(6, 8)) + 2 * rng.normal(size=8)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rounds = tuple(Round(index=i + 1, answer=str(i), embedding=v.astype(np.float32)) for i, v in enumerate(vectors))
    session = Session(Policy(selector=parse_selector("centroid"), max_rounds=6))
    decision = session.observe_all(rounds)
    assert decision is not None
    assert decision.answer_round == 1 + int(np.argmax(vectors @ vectors.mean(axis=0)))


def test_a_selector_never_looks_past_the_stop():
    columns = {name: [[NAN, 0.5, 0.0]] for name in DISTANCES} | {"x": [[1.0, 3.0, 0.0]]}
    whole = Rounds.from_columns(columns, answers=[["a", "b", "c"]])
    for text in ("centroid", "min_x", "median_x", "longest_run(semantic_distance < 0.1)"):
        assert parse_selector(text).select(whole, np.array([1]))[0] in (0, 1)
    assert parse_selector("min_x").select(whole, np.array([1]))[0] == 0
    assert parse_selector("min_x").select(whole, np.array([2]))[0] == 2


def test_one_draft_is_returned_whatever_the_selector():
    policy = {text: Policy(selector=parse_selector(text), max_rounds=6) for text in SELECTORS}
    for made in policy.values():
        session = Session(made, missing="ignore")
        session.observe(Round(index=1, answer="alone"))
        assert session.end("exhausted").answer == "alone"


def test_without_distances_the_centroid_is_refused_by_name():
    rounds = Rounds.from_columns({"semantic_distance": [NAN, 0.1]}, answers=["a", "b"])
    with pytest.raises(UnknownSignalError, match="semantic_distance_2"):
        parse_selector("centroid").select(rounds, np.asarray(1))


def test_a_draft_that_was_not_embedded_is_not_the_centroid():
    nan = {name: [NAN, NAN, NAN] for name in DISTANCES}
    rounds = Rounds.from_columns({**nan, "semantic_distance": [NAN, 0.2, NAN]}, answers=["a", "b", "c"])
    assert parse_selector("centroid").select(rounds, np.asarray(2)) == 1
    assert parse_selector("centroid").select(Rounds.from_columns(nan, answers=["a", "b", "c"]), np.asarray(2)) == 2


def test_drafts_with_fewer_known_distances_have_no_advantage():
    columns = {name: [NAN] * 4 for name in DISTANCES}
    columns |= {"semantic_distance": [NAN, 0.1, 0.1, 0.15], "semantic_distance_2": [NAN, NAN, 0.1, NAN]}
    rounds = Rounds.from_columns(columns, answers=["a", "b", "c", "d"])
    assert parse_selector("centroid").select(rounds, np.asarray(3)) == 1  # the mean counts: a sum would choose d


def test_a_run_counts_the_round_that_begins_it():
    rounds = Rounds.from_columns({"x": [0.0, 1.0, 0.0, 1.0]}, answers=["a", "b", None, "d"])
    assert parse_selector("longest_run(x >= 1)").select(rounds, np.asarray(3)) == 1


def test_a_distance_back_counts_round_indexes_not_positions():
    unit = np.array([1.0, 0.0], dtype=np.float32)
    rounds = [Round(index=i, answer="a", embedding=unit) for i in (1, 2, 4)]
    told = compute_signals(rounds, list(DISTANCES), state={})
    assert all(math.isnan(value) for value in told.values())
    whole = [Round(index=i, answer="a", embedding=unit) for i in range(1, 7)]
    assert set(compute_signals(whole, list(DISTANCES), state={}).values()) == {0.0}


def test_pairwise_distances_are_symmetric_and_told_by_the_later_draft():
    columns = {name: [NAN if r < back else 10.0 * r + back for r in range(6)] for back, name in enumerate(DISTANCES, 1)}
    matrix = pairwise_distances(Rounds.from_columns(columns))
    for i in range(6):
        for j in range(6):
            assert matrix[i, j] == (0 if i == j else 10.0 * max(i, j) + abs(i - j))


@pytest.mark.parametrize("text", [*SELECTORS, "min_x", "median_x", "max_x", "longest_run(tasr)"])
def test_the_text_of_a_selector_is_its_specification(text):
    made = parse_selector(text)
    assert parse_selector(str(made)) == made
    assert Policy.from_dict(Policy(selector=made).to_dict()).selector == made


@pytest.mark.parametrize(
    "text",
    [
        "min_",
        "median_a b",
        "centroid(1)",
        "longest_run(1)",
        "longest_run()",
        "longest_run(semantic_distance)",
        "longest_run(x > 1",
        "",
    ],
)
def test_what_is_no_selector_is_refused(text):
    with pytest.raises(RuleSyntaxError):
        parse_selector(text)


def test_the_selectors_for_drafts_are_registered_as_those_of_a_host_are():
    assert {"centroid", "longest_run", "ranked"} <= set(OWN_SELECTORS)
    assert parse_selector(" centroid() ") == parse_selector("centroid") == Centroid()
    named = parse_selector("longest_run(rule=tasr)")
    assert named == LongestRun(tasr())
    with pytest.raises(RuleSyntaxError, match="'centroid'"):
        parse_selector("centroids")


# Words


@pytest.mark.parametrize(
    ("feedback", "value"),
    [
        (None, NAN),
        ("", NAN),
        ("Rewrite it.", NAN),
        ("Good.", 1.0),
        ("Missing.", 0.0),
        ("It isn't clear.", 0.5),
        ("Good, but \u201cnot bad\u201d is quoted.", 0.5),
        ('"good good good" misses. However, fine.', 0.5),
    ],
)
def test_a_critic_s_words_are_counted_outside_of_quotes(feedback, value):
    assert critic_praise([Round(index=1, feedback=feedback)]) == pytest.approx(value, nan_ok=True)


def test_support_counts_content_words_once_in_title_and_text():
    shown = (
        Passage(passage_id="1", title="Oslo", text="A harbour."),
        Passage(passage_id="2", title="", text="Fjord's"),
    )
    draft = Round(index=1, answer="The harbour of OSLO, the fjord and the harbour: lovely", passages=shown)
    assert lexical_support([draft]) == 3 / 4
    for other in (
        Round(index=1, answer="Oslo"),
        Round(index=1, passages=shown),
        Round(index=1, answer="of the", passages=shown),
    ):
        assert math.isnan(lexical_support([other]))


# In a loop


@pytest.mark.parametrize(("k", "answer_round"), [(1, 1), (2, 2), (3, 3), (5, 4)])
def test_a_loop_embeds_for_the_centroid_what_replay_charges(tmp_path, k, answer_round):
    words = ["alpha", "beta", "beta", "beta", "gamma"]
    record([QUESTION], loop("never()", words, DraftEmbedder(Axes())), tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    live = loop(f"fixed_k({k})", words, DraftEmbedder(Axes()), selector=parse_selector("centroid"))
    outcome = live.run(QUESTION.question, QUESTION.passages)
    stop, charged = replayed(live.policy, recording)
    assert (outcome.decision.stop_round, outcome.decision.answer_round) == (stop, answer_round)
    assert [r.index for r in outcome.rounds if "embedder" in r.costs] == charged["embedder"]
    assert int(stops(live.policy, recording.rounds()).answer_rounds[0]) == answer_round
