"""Signals and presets of writer/critic loops: definitions, bad values, live = replay, what is paid, what is pinned."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from suffice import Policy, RetrievalLoop, Round, Rounds, ScriptedModel, Session, parse_rule, record
from suffice.errors import ConfigMismatchError, DataError, ModelError, RuleSyntaxError
from suffice.evaluation.replay import LIVE, CostTable
from suffice.evaluation.replay.checks import check_policy
from suffice.loops.retrieval import InMemoryRetriever, Question
from suffice.policy.embedding import DraftEmbedder
from suffice.policy.rounds import Cost, Passage, Reply
from suffice.policy.rules.named import converged, critic_only, semantic_full
from suffice.policy.session import stops
from suffice.policy.signals import JUDGE, SIGNALS, clean_column, compute_signals
from suffice.recordings import read_recording

NAN = math.nan
MARKS = ("faithfulness", "answer_relevancy", "context_precision", "context_recall")


def drafts(*embeddings):
    return [
        Round(index=t, answer=f"draft {t}", embedding=None if given is None else np.array(given, np.float32))
        for t, given in enumerate(embeddings, start=1)
    ]


def value(name, rounds):
    return compute_signals(rounds, [name], state={})[name]


# Signals


def test_the_distance_is_defined_from_the_second_draft_on():
    rounds = drafts([1, 0], [0, 1])
    assert math.isnan(value("semantic_distance", rounds[:1]))
    assert value("semantic_distance", rounds) == 1.0


def test_a_host_gives_the_embedding_beside_its_draft():
    session = Session(Policy(rule=parse_rule("semantic(0.05, 1)"), max_rounds=9))
    assert not session.observe(draft="a", embedding=np.array([1, 0], np.float32)).stop
    with pytest.raises(DataError, match="draft"):
        session.observe(Round(index=2), embedding=np.array([1, 0], np.float32))
    assert session.observe(draft="b", embedding=np.array([2, 0], np.float32)).stop_round == 2


def test_an_empty_draft_is_far_from_everything_and_never_converges():
    rounds = drafts([0, 0], [0, 0], [0, 0], [0, 0])
    assert value("semantic_distance", rounds) == 1.0
    assert Session(Policy(rule=converged(), max_rounds=9)).observe_all(rounds).stop is False


@pytest.mark.parametrize(
    "second",
    [None, [NAN, 1.0], [math.inf, 1.0], [1.0], [], [[1.0, 0.0]]],
    ids=["none", "nan", "infinite", "narrow", "nothing", "table"],
)
def test_a_missing_or_broken_embedding_is_undefined_and_stops_nothing(second):
    rounds = drafts([1, 0], second, [1, 0])
    assert math.isnan(value("semantic_distance", rounds[:2]))
    assert math.isnan(value("semantic_distance", rounds))
    session = Session(Policy(rule=converged(2.0, 1), max_rounds=9), missing="error" if second else "ignore")
    assert session.observe_all(rounds).stop is False


def test_a_missing_draft_is_undefined_whatever_its_embedding():
    first, second = drafts([1, 0], [1, 0])
    assert math.isnan(value("semantic_distance", [first, Round(index=2, embedding=second.embedding)]))


def test_rounds_that_do_not_follow_each_other_have_no_distance():
    first, _, third = drafts([1, 0], [1, 0], [1, 0])
    assert math.isnan(value("semantic_distance", [first, third]))


def test_identical_drafts_have_converged():
    rounds = drafts(*[[0.6, 0.8]] * 3)
    decision = Session(Policy(rule=parse_rule("semantic_bge"), max_rounds=9)).observe_all(rounds)
    assert (decision.stop_round, decision.fired) == (3, "patience((semantic_distance < 0.06), 2)")


@pytest.mark.parametrize(
    ("said", "approved"),
    [
        ("APPROVED", 1),
        ("approved: nothing to add", 1),
        ("  Approved.\nOne remark", 1),
        ("**APPROVED**", 1),
        ("Not approved", 0),
        ("DISAPPROVED", 0),
        ("approvedly", 0),
        ("I would have APPROVED", 0),
        ("", 0),
        ("\ud800", 0),
    ],
)
def test_a_critic_approves_by_its_first_word(said, approved):
    rounds = [Round(index=1, answer="a"), Round(index=2, answer="b", feedback=said)]
    assert value("critic_approved", rounds) == approved


@pytest.mark.parametrize("before", ["\u00a0", "\u2003\n", "\x0b", "<think>Is it good? NOT yet.</think>", "> **"])
@pytest.mark.parametrize(
    ("said", "approved"),
    [
        ("APPROVED", 1),
        ("Approved, with no changes.", 1),
        ("APPROVED. If you like, add a date.", 1),
        ("APPROVED. However, shorten it.", 0),
        ("APPROVED if the year is right", 0),
        ("APPROVED with changes: name the year", 0),
        ("Approved with some minor revisions", 0),
        ("Approved? No.", 0),
        ("APPROVED, but shorten it", 0),
        ("Approved once the year is right", 0),
        ("APPROVED without changes", 1),
        ("APPROVEDLY", 0),
    ],
)
def test_an_approval_is_not_a_question_or_a_condition(before, said, approved):
    rounds = [Round(index=1, answer="a"), Round(index=2, answer="b", feedback=before + said)]
    assert value("critic_approved", rounds) == approved


def test_a_thought_without_a_reply_is_no_approval():
    rounds = [Round(index=1, answer="a"), Round(index=2, answer="b", feedback="<think>APPROVED")]
    assert value("critic_approved", rounds) == 0


@pytest.mark.parametrize(("given", "read"), [(-3.6e-7, 0.0), (2.0000005, 2.0), (-2e-6, NAN), (0.3, 0.3)])
def test_a_distance_out_of_range_by_rounding_is_its_bound(given, read):
    assert SIGNALS["semantic_distance"].clean(given) == pytest.approx(read, abs=0, nan_ok=True)
    assert clean_column("semantic_distance", np.array([[given]]))[0, 0] == pytest.approx(read, abs=0, nan_ok=True)


def test_approval_needs_feedback_and_ignores_the_first_draft():
    assert math.isnan(value("critic_approved", [Round(index=1, feedback="APPROVED")]))
    assert math.isnan(value("critic_approved", [Round(index=1), Round(index=2)]))


def test_the_score_is_the_marks_mean_and_the_gain_its_rise():
    first = Round(index=1, signals=dict.fromkeys(MARKS, 0.5))
    second = Round(index=2, signals=dict(zip(MARKS, (1.0, 1.0, 0.5, 0.5), strict=True)))
    assert value("information_score", [first]) == 0.5
    assert value("information_gain", [first, second]) == 0.25
    assert math.isnan(value("information_gain", [first]))


def test_a_judge_s_own_score_wins_over_equal_weights():
    rounds = [
        Round(index=t, signals={"information_score": s} | dict.fromkeys(MARKS, 1)) for t, s in ((1, 0.2), (2, 0.1))
    ]
    assert value("information_score", rounds) == 0.1
    assert value("information_gain", rounds) == pytest.approx(-0.1)


@pytest.mark.parametrize("mark", [None, NAN, math.inf, -0.1, 1.5, "high"])
def test_a_missing_or_impossible_mark_makes_score_and_gain_undefined(mark):
    whole = dict.fromkeys(MARKS, 0.5)
    for rounds in ([whole, {**whole, "faithfulness": mark}], [{**whole, "faithfulness": mark}, whole]):
        both = [Round(index=t, signals=signals) for t, signals in enumerate(rounds, 1)]
        assert math.isnan(value("information_gain", both))
    assert math.isnan(value("information_score", [Round(index=1, signals={"information_score": mark})]))
    assert math.isnan(value("information_score", [Round(index=1, signals={"faithfulness": 1.0})]))


def test_draft_tokens_are_the_writer_s_alone():
    costs = {"writer": Cost(calls=1, output_tokens=40), "critic": Cost(calls=1, output_tokens=7)}
    assert value("draft_tokens", [Round(index=1, costs=costs)]) == 40
    assert value("draft_tokens", [Round(index=1, costs={"generator": Cost(output_tokens=5)})]) == 5
    assert math.isnan(value("draft_tokens", [Round(index=1)]))


# Presets


def test_presets_spell_themselves_out_and_eps_is_published_for_one_embedder_only():
    assert parse_rule("semantic(0.02)") == parse_rule("patience((semantic_distance < 0.02), 2)")
    assert parse_rule("semantic(0.02, 3)") == converged(0.02, 3)
    assert parse_rule("semantic_bge") == converged(0.06, 2)
    assert parse_rule("semantic_full(0.06)") == parse_rule("semantic_full_bge") == semantic_full()
    assert parse_rule("critic_only") == critic_only()
    for text in ("semantic", "semantic_full", "semantic(0.1, 1.5)", "semantic(0.1, 0)"):
        with pytest.raises(RuleSyntaxError):
            parse_rule(text)


signal_values = st.one_of(st.just(NAN), st.floats(0, 0.2), st.floats(-1, 1))


@given(
    st.lists(st.tuples(st.sampled_from([NAN, 0.0, 1.0]), signal_values, signal_values), min_size=1, max_size=6),
    st.sampled_from([0.03, 0.06, 0.2]),
    st.integers(1, 3),
)
def test_the_cascade_is_the_published_one(rows, eps, k):
    def plain():
        run = 0
        for t, (approved, distance, gain) in enumerate(rows, 1):
            run = run + 1 if distance < eps else 0
            if approved >= 1:
                return t, "critic_approved >= 1"
            if run >= k:
                return t, str(converged(eps, k))
            if gain <= 0:
                return t, "information_gain <= 0"
        return None, None

    columns = dict(
        zip(("critic_approved", "semantic_distance", "information_gain"), zip(*rows, strict=True), strict=True)
    )
    rule = semantic_full(eps, k)
    fires = rule.fires(Rounds.from_columns(columns)).tolist()
    stop, reason = plain()
    assert (fires.index(True) + 1 if any(fires) else None) == stop
    if stop is not None:
        seen = Rounds.from_columns({name: column[:stop] for name, column in columns.items()})
        assert rule.held(seen) == reason


# Loops, recordings, costs


class Axes:
    """An embedder of single words: one axis for each."""

    id, revision, pooling = "axes", "1", "none"
    words = ("alpha", "beta", "gamma")

    def embed(self, texts):
        return self.embed_costed(texts)[0]

    def embed_costed(self, texts):
        made = np.array([[float(text == word) for word in self.words] for text in texts], np.float32)
        return made, Cost(calls=1, uncached_tokens=len(texts))


class Judge:
    """Marks a draft by its length, and counts."""

    name, capabilities = JUDGE, frozenset({"information_score"})

    def __init__(self, scores):
        self.scores, self.asked = scores, []

    def fingerprint(self):
        return {"judge": "by table"}

    async def measure(self, question, observed):
        self.asked.append(observed.answer)
        return Reply(signals={"information_score": self.scores[observed.answer]}, costs={JUDGE: Cost(calls=1)})


POOL = tuple(Passage(passage_id=str(i), title=f"t{i}", text="text") for i in range(6))
QUESTION = Question(question_id="q", question="Which?", answers=("beta",), passages=POOL)


def loop(rule, answers, *enrichers, **changes):
    return RetrievalLoop(
        model=ScriptedModel({QUESTION.question: ["closed book", *answers]}),
        retriever=InMemoryRetriever(),
        policy=Policy(rule=parse_rule(rule), max_rounds=len(answers), **changes),
        enrichers=enrichers,
    )


def replayed(policy, recording):
    """Where a policy stops on the only question, and at which rounds each component is charged."""
    check_policy(policy, recording)
    stopped = stops(policy, recording.rounds(policy.raw_columns))
    masks = LIVE.policy_masks(CostTable(recording), policy, stopped)
    return int(stopped.rounds[0]), {name: recording.index[mask[0]].tolist() for name, mask in masks.items()}


def paid(outcome, component):
    return [observed.costs.get(component, Cost()).calls for observed in outcome.rounds]


def test_a_live_loop_embeds_each_draft_once(tmp_path):
    live = loop("semantic(0.05)", ["alpha", "beta", "beta", "beta", "gamma"], DraftEmbedder(Axes()))
    outcome = live.run(QUESTION.question, QUESTION.passages)
    assert (outcome.decision.stop_round, outcome.decision.reason) == (4, "rule")
    assert paid(outcome, "embedder") == [1, 1, 1, 1]


def test_distances_and_embeddings_are_recorded_and_replay_as_live(tmp_path):
    live = loop("semantic(0.05)", ["alpha", "beta", "beta", "beta", "gamma"], DraftEmbedder(Axes()))
    record([QUESTION], live, tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    assert np.array_equal(recording.column("semantic_distance"), [[NAN, 1, 0, 0, 1]], equal_nan=True)
    assert recording.table.column("embedding").to_pylist()[0] == [1, 0, 0]
    assert recording.metadata["depends"]["embedder"] == {"id": "axes", "revision": "1", "pooling": "none"}
    policy = Policy(rule=live.policy.rule, max_rounds=5, depends=recording.metadata["depends"])
    assert replayed(policy, recording) == (
        4,
        {"generator": [1, 2, 3, 4], "retrieval": [1, 2, 3, 4], "embedder": [1, 2, 3, 4]},
    )


def test_a_policy_refuses_another_embedder_live_and_replayed(tmp_path):
    pinned = {"embedder": {"id": "axes", "revision": "0", "pooling": "none"}}
    with pytest.raises(ConfigMismatchError, match="fitted with"):
        loop("semantic(0.05)", ["alpha"], DraftEmbedder(Axes()), depends=pinned).run(QUESTION.question, POOL)
    record([QUESTION], loop("never()", ["alpha", "beta"], DraftEmbedder(Axes())), tmp_path / "r.parquet")
    with pytest.raises(ConfigMismatchError, match="embedder"):
        check_policy(Policy(rule=converged(), max_rounds=2, depends=pinned), read_recording(tmp_path / "r.parquet"))


def test_a_distance_rule_without_an_embedder_is_refused_before_calls():
    with pytest.raises(ModelError, match="needs embedding"):
        loop("semantic(0.05)", ["alpha"]).run(QUESTION.question, POOL)


def test_a_failing_embedder_ends_the_loop_with_the_answer_so_far():
    class Broken(Axes):
        def embed_costed(self, texts):
            raise ModelError("the embedder is gone")

    outcome = loop("semantic(0.05)", ["alpha", "beta", "gamma"], DraftEmbedder(Broken())).run(QUESTION.question, POOL)
    assert (outcome.decision.reason, outcome.answer) == ("failed", "beta")
    assert "gone" in str(outcome.error)


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        ("information_gain <= 0", ["alpha", "beta", "gamma"]),
        ("(round >= 3) & (information_gain <= 0)", ["beta", "gamma"]),
        ("first_of((round >= 2), (information_gain <= 0))", []),
        ("information_score >= 0.9", ["alpha", "beta", "gamma"]),
    ],
)
def test_a_judge_is_asked_where_its_marks_are_read_and_charged(tmp_path, rule, asked):
    scores = {"alpha": 0.1, "beta": 0.4, "gamma": 0.9}
    judge = Judge(scores)
    live = loop(rule, ["alpha", "beta", "gamma"], judge)
    outcome = live.run(QUESTION.question, POOL)
    assert judge.asked == asked
    record([QUESTION], live, tmp_path / "r.parquet")
    stop_round, charged = replayed(live.policy, read_recording(tmp_path / "r.parquet"))
    assert stop_round == outcome.decision.stop_round
    assert charged[JUDGE] == [observed.index for observed in outcome.rounds if JUDGE in observed.costs]
