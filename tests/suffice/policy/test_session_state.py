"""Sessions as JSON: rebuilt after any round, they decide the rest as the original does."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice import Audit, Cost, Decision, Passage, Policy, Round, Session, Token
from suffice.errors import ConfigMismatchError, DataError, NotFittedError, SchemaError, UnknownSignalError
from suffice.policy.signals import AnswerPosition, Idf
from tests.support.strategies import INF, NAN, policies, recorded


def stored(session: Session) -> Session:
    """The session after a queue: strict JSON and back."""
    return Session.from_state(json.loads(json.dumps(session.to_state(), allow_nan=False)))


def observed(session: Session, item: Round):
    """The outcome of one round, also if it is an error or a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = session.observe(item)
        except (DataError, NotFittedError, UnknownSignalError) as error:
            outcome = error
    return repr(outcome), [str(warning.message) for warning in caught]


@settings(max_examples=30)
@given(data=st.data())
def test_a_session_rebuilt_after_any_round_decides_the_rest_as_the_original(data):
    drawn = data.draw(recorded(max_questions=1))
    policy = data.draw(policies(drawn.recording))
    missing = data.draw(st.sampled_from(["error", "warn", "ignore"]))
    original, rebuilt = Session(policy, missing=missing), Session(policy, missing=missing)
    rounds = [item for item in drawn.trajectories[0].rounds if item.index >= policy.start_round]
    for item in rounds:
        rebuilt = stored(rebuilt)
        assert observed(rebuilt, item) == observed(original, item)
        assert repr(rebuilt.decision) == repr(original.decision)
    rebuilt = stored(rebuilt)
    assert repr(rebuilt.decision) == repr(original.decision)
    assert rebuilt.to_state() == original.to_state()
    if original.decision is None:
        assert repr(rebuilt.end("exhausted")) == repr(original.end("exhausted"))


@settings(max_examples=30)
@given(data=st.data())
def test_a_policy_decides_rounds_as_a_session_does(data):
    drawn = data.draw(recorded(max_questions=1))
    policy = data.draw(policies(drawn.recording))
    rounds = [item for item in drawn.trajectories[0].rounds if item.index >= policy.start_round]
    for n in range(len(rounds) + 1):
        decision = Session(policy, missing="ignore").observe_all(rounds[:n])
        assert repr(policy.decide(rounds[:n], missing="ignore")) == repr(decision or Decision(stop=False))


WHOLE = Round(
    index=1,
    answer="Oslo",
    text="Answer: Oslo",
    answer_tokens=(
        Token("Os", -0.1, (("Os", -0.1), ("Ro", -INF)), b"Os"),
        Token("lo"),
        Token("\ufffd", NAN, (), b"\xc3"),
    ),
    passages=(Passage(passage_id="1", title="t", text="x", score=0.5), Passage(passage_id="2", title="t", text="y")),
    pool_scores=(0.5, 0.25, INF),
    signals={"own": 0.1, "gone": NAN, "margin": INF},
    costs={"generator": Cost(calls=1.0, uncached_tokens=7.0, cached_tokens=NAN, output_tokens=2.0, seconds=0.1)},
    finish_reason="stop",
    feedback="Say more.",
    reply_model="gpt-x-2026-01-01",
    system_fingerprint="fp_1",
    embedding=np.array([0.1, -3.5e-7], dtype=np.float32),
)


def test_a_round_survives_json_with_every_field():
    again = Round.from_dict(json.loads(json.dumps(WHOLE.to_dict(), allow_nan=False)))
    assert repr(again) == repr(WHOLE)
    assert again.embedding.dtype == np.float32
    np.testing.assert_array_equal(again.embedding, WHOLE.embedding)


def test_a_round_of_an_older_release_names_no_model_of_its_reply():
    data = Round(index=1, answer="Oslo").to_dict()
    assert not {"reply_model", "system_fingerprint"} & set(data)
    assert Round.from_dict(data).reply_model is None


def test_stored_embeddings_keep_their_precision_and_unusable_ones_are_dropped():
    for vector in ([0.1, 1e300], [0.1, 0.2]):  # float64 of a host, also beyond float32
        again = Round.from_dict(
            json.loads(json.dumps(Round(index=1, answer="a", embedding=np.array(vector)).to_dict()))
        )
        np.testing.assert_array_equal(again.embedding, vector)
    for vector in ([0.1, NAN], [[0.1]]):
        assert Round(index=1, answer="a", embedding=np.array(vector)).to_dict()["embedding"] is None


def test_a_state_has_fitted_signals_evidence_and_what_the_rounds_spent():
    policy = Policy(
        rule="(overlap > 0.3) & (tokens >= 40) & (semantic_distance < 0.1)",
        state={"overlap": Idf.fit(["a storm", "a sea"])},
    )
    passages = tuple(
        Passage(passage_id=str(i), title="t", text=text) for i, text in enumerate(["a storm", "sea", "a storm"])
    )
    original, rebuilt = Session(policy), Session(policy)
    for r in (1, 2, 3):
        item = Round(
            index=r,
            answer="x",
            passages=passages[:r],
            costs={"generator": Cost(calls=1, output_tokens=15)},
            embedding=np.array([1.0, 0.01 * r], dtype=np.float32),
        )
        rebuilt = stored(rebuilt)
        assert repr(rebuilt.observe(item)) == repr(original.observe(item))
    assert original.decision.reason == "rule"
    assert len(original.to_state()["passages"]) == 3  # each once, however many rounds hold it


def test_what_a_round_had_to_bring_once_is_not_asked_for_again():
    session = Session("own > 0.5")
    with pytest.raises(UnknownSignalError):
        session.observe(draft="a")
    assert not stored(session).observe(draft="b").stop
    assert stored(Session("own > 0.5", missing="ignore")).observe(draft="a").signals["own"] is not None
    with pytest.raises(UnknownSignalError):
        stored(Session("own > 0.5")).observe(draft="a")


def test_the_state_of_another_policy_is_refused():
    state = Session("answer_stable").to_state()
    assert Session.from_state(state, "answer_stable").next_round == 1
    with pytest.raises(ConfigMismatchError, match="belongs"):
        Session.from_state(state, "fixed_k(2)")


@pytest.mark.parametrize(
    ("change", "word"),
    [({"version": 3}, "version 3"), ({"format": "suffice.policy"}, r"suffice\.session"), (None, "a session")],
)
def test_the_state_of_another_version_or_form_is_refused(change, word):
    with pytest.raises(SchemaError, match=word):
        Session.from_state([] if change is None else {**Session("answer_stable").to_state(), **change})


@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": [{"index": 1}]},
        {"rounds": 3},
        {"missing": "never"},
        {"version": True},
        {"unproven": [3]},
        {"unproven": "answer_stable"},
        {"passages": {}},
        {"policy": None},
        {"decision": {"stop": True}},
        {"decision": {"stop": True, "signals": {}, "more": 1}},
    ],
)
def test_a_damaged_state_is_refused(changes):
    state = Session("answer_stable").to_state()
    with pytest.raises(SchemaError):
        Session.from_state({**state, **changes})
    with pytest.raises(SchemaError):
        Session.from_state({name: value for name, value in state.items() if name not in changes})


@pytest.mark.parametrize("changes", [{"index": 2}, {"index": "1"}, {"answer": 3}])
def test_a_state_with_rounds_that_no_session_observes_is_refused(changes):
    session = Session("answer_stable")
    session.observe(draft="Oslo")
    state = session.to_state()
    (stored,) = state["rounds"]
    for rounds in ([{**stored, **changes}], [stored, stored], [{**stored, "index": r} for r in range(1, 7)]):
        with pytest.raises(SchemaError, match="observes|allowed"):
            Session.from_state({**state, "rounds": rounds})


@pytest.mark.parametrize(
    "changes",
    [{"text": None}, {"passages": {}}, {"embedding": [1.0, True]}, {"embedding": 3.0}, {"signals": {"a": "3"}}],
)
def test_a_round_with_a_value_of_another_type_is_refused(changes):
    session = Session("answer_stable")
    session.observe(Round(index=1, answer="Oslo", passages=(Passage(passage_id="p", title="t", text="Oslo."),)))
    state = session.to_state()
    with pytest.raises(SchemaError, match="Error"):
        Session.from_state({**state, "rounds": [{**state["rounds"][0], **changes}]})


def test_a_draw_with_a_value_of_another_type_is_refused():
    state = Session("answer_stable", audit=Audit(rate=1.0, seed=1), question_id="q").to_state()
    assert Session.from_state(state).draw.audited
    with pytest.raises(SchemaError, match="rate"):
        Session.from_state({**state, "draw": {**state["draw"], "rate": True}})


def test_a_position_that_is_code_has_no_state():
    policy = Policy(rule="answer_stable", answer_position=AnswerPosition("callable", span=lambda text: (0, len(text))))
    with pytest.raises(DataError, match="saved"):
        Session(policy).to_state()


def test_a_decision_without_rounds_goes_on():
    assert Policy(rule="fixed_k(1)").decide([]) == Decision(stop=False)
    decision = Policy(rule="fixed_k(1)").decide([Round(index=1, answer="a"), Round(index=2, answer="b")])
    assert (decision.stop_round, decision.answer) == (1, "a")
    assert math.isnan(Policy(rule="own > 1").decide([Round(index=1, answer="a")], missing="ignore").signals["own"])


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"index": 1},
        None,
        "round",
        {"index": 1, "signals": 3},
        {**Round(index=1).to_dict(), "signals": {"x": 10**400}},
    ],
)
def test_what_is_no_round_is_refused(damage):
    with pytest.raises(SchemaError, match="Round.to_dict"):
        Round.from_dict(damage)


@pytest.mark.parametrize("damage", [{}, {"stop": True}, {"stop": True, "signals": 3}, {"signals": {}, "why": "x"}])
def test_what_is_no_decision_is_refused(damage):
    with pytest.raises(SchemaError, match="Decision.to_dict"):
        Decision.from_dict(damage)
