"""Audits and shadows: a share of questions goes on after the answer is out, and other policies decide beside it."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice import Audit, Policy, Round, Session, parse_rule
from suffice.errors import ConfigMismatchError, DataError, ModelError, RuleSyntaxError, SchemaError, UnknownSignalError
from suffice.policy.rules import Rule
from tests.support.strategies import policies, recorded

ALWAYS = Audit(rate=1.0, seed=1)


def stored(session):
    """The session after a queue: strict JSON and back."""
    return Session.from_state(json.loads(json.dumps(session.to_state(), allow_nan=False)))


def audited(policy, answers, **arguments):
    """A session that goes on after its stop, with these answers observed."""
    session = Session(policy, audit=ALWAYS, question_id="q1", **arguments)
    for answer in answers:
        session.observe(draft=answer)
    return session


class Broken(Rule):
    """A rule of a user that fails."""

    signals = frozenset()

    def fires(self, rounds):
        raise ZeroDivisionError("a mistake of its author")

    def __str__(self):
        return "broken()"


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2, 0.5])
def test_the_share_of_drawn_questions_is_the_rate(rate):
    n = 20_000
    audit = Audit(rate=rate, seed="test")
    share = np.mean([audit.draw(f"question {number}").audited for number in range(n)])
    assert abs(share - rate) < 4.5 * math.sqrt(rate * (1 - rate) / n)


def test_two_seeds_draw_independently_and_one_seed_draws_the_same():
    ids = [f"q{number}" for number in range(20_000)]
    first, again, other = (
        np.array([Audit(rate=0.3, seed=seed).draw(name).audited for name in ids]) for seed in (7, "7", 8)
    )
    assert (first == again).all()
    assert abs(np.mean(first & other) - 0.09) < 4.5 * math.sqrt(0.09 * 0.91 / len(ids))
    assert abs(np.mean(first[1:] & first[:-1]) - 0.09) < 4.5 * math.sqrt(0.09 * 0.91 / len(ids))


def test_a_higher_rate_draws_all_that_a_lower_one_draws():
    names = [f"caf\u00e9 {number} \ud800" for number in range(300)]
    low, high, all_of_them = ([Audit(rate=rate, seed=3).draw(n).audited for n in names] for rate in (0.1, 0.4, 1))
    assert 0 < sum(low) < sum(high) < sum(all_of_them) == len(names)
    assert all(b >= a for a, b in zip(low, high, strict=True))


@pytest.mark.parametrize("rate", [0, 0.0, -0.1, 1.01, math.nan, math.inf, True, "0.05", None])
def test_a_rate_that_is_no_probability_is_refused(rate):
    with pytest.raises(DataError, match="above 0"):
        Audit(rate=rate, seed=1)


@pytest.mark.parametrize("seed", [None, "", 1.5, True, b"x"])
def test_a_seed_that_is_no_key_is_refused_and_none_is_shown(seed):
    with pytest.raises(DataError, match="whole number"):
        Audit(rate=0.1, seed=seed)
    assert "secret" not in repr(Audit(rate=0.1, seed="secret"))


@pytest.mark.parametrize("name", [None, "", "  ", 7])
def test_an_audit_needs_the_name_of_the_question(name):
    with pytest.raises(DataError, match="give question_id="):
        Session("answer_stable", audit=ALWAYS, question_id=name)


def test_an_audit_is_an_audit():
    with pytest.raises(DataError, match=r"Audit\(rate=0\.05"):
        Session("answer_stable", audit=0.05, question_id="q1")


def test_an_audited_question_goes_on_and_its_decision_never_changes():
    session = audited(Policy(rule="answer_stable", selector="last", max_rounds=4), ["a", "a"])
    decision = session.decision
    assert (decision.stop_round, session.auditing, session.next_round) == (2, True, 3)
    assert (session.draw.rate, session.draw.audited) == (1.0, True)
    assert session.observe(draft="b") is decision
    assert session.observe(Round(index=4, answer="c")) is session.decision is decision
    assert not session.auditing
    assert [item.answer for item in session.rounds] == ["a", "a", "b", "c"]
    with pytest.raises(DataError, match="after max_rounds"):
        session.observe(draft="d")
    with pytest.raises(DataError, match="already stopped"):
        session.end("exhausted")


def test_a_question_that_was_not_drawn_ends_at_the_stop():
    audit = Audit(rate=0.5, seed=1)
    name = next(f"q{i}" for i in range(99) if not audit.draw(f"q{i}").audited)
    session = Session("fixed_k(1)", audit=audit, question_id=name)
    session.observe(draft="a")
    assert (session.auditing, session.draw.audited, session.draw.rate) == (False, False, 0.5)
    with pytest.raises(DataError, match="after the stop"):
        session.observe(draft="b")
    with pytest.raises(DataError, match="already stopped"):
        session.end("exhausted")
    assert Session("fixed_k(1)").draw is None


@pytest.mark.parametrize("reason", ["exhausted", "failed", "cancelled"])
def test_the_end_of_an_audit_leaves_the_decision_as_it_was(reason):
    session = audited("fixed_k(1)", ["a"])
    decision = session.decision
    session.observe(draft="b")
    with pytest.raises(DataError, match="ended"):
        session.end("rule")
    assert session.end(reason) is decision
    assert not session.auditing
    assert session.decision.reason == "rule"
    with pytest.raises(DataError, match="already stopped"):
        session.end("exhausted")
    with pytest.raises(DataError, match="after the stop"):
        session.observe(draft="c")


def test_stops_at_the_last_round_or_from_outside_need_no_audit():
    assert not audited(Policy(rule="never()", max_rounds=2), ["a", "b"]).auditing
    session = audited("never()", ["a"])
    session.end("exhausted")
    assert not session.auditing


def test_a_stop_without_an_answer_is_audited_too():
    session = audited("fixed_k(1)", [""])
    assert (session.decision.reason, session.auditing) == ("failed", True)


def test_no_decision_is_read_in_an_audit():
    session = audited("fixed_k(1)", ["a"])
    for ask in (session.reads, session.would_stop):
        with pytest.raises(DataError, match="after the stop"):
            ask(Round(index=2, answer="b"))
    with pytest.raises(DataError, match="round 2"):
        session.observe(Round(index=3, answer="b"))


@settings(max_examples=20)
@given(data=st.data())
def test_an_audit_survives_a_queue_and_shadows_decide_as_alone(data):
    drawn = data.draw(recorded(max_questions=1))
    deployed, *others = (data.draw(policies(drawn.recording)) for _ in range(3))
    others = [
        policy for policy in others if policy.start_round >= deployed.start_round and policy.label != deployed.label
    ][: 1 + data.draw(st.booleans())]
    others = list({policy.label: policy for policy in others}.values())
    arguments = {"missing": "ignore", "audit": ALWAYS, "shadow": others, "question_id": "q"}
    rounds = [item for item in drawn.trajectories[0].rounds if item.index >= deployed.start_round]
    session, plain = Session(deployed, **arguments), Session(deployed, missing="ignore")
    rebuilt = Session(deployed, **arguments)
    for item in rounds[: deployed.max_rounds - deployed.start_round + 1]:
        if plain.decision is None:
            plain.observe(item)
        rebuilt = stored(rebuilt)
        assert repr(rebuilt.observe(item)) == repr(session.observe(item))
        assert repr(session.decision) == repr(plain.decision)  # an audit and shadows change nothing
        assert repr(rebuilt.shadows) == repr(session.shadows)
    assert stored(session).to_state() == session.to_state()
    for policy in others:
        theirs = [item for item in session.rounds if item.index >= policy.start_round]
        alone = policy.decide(theirs, missing="ignore")
        assert repr(session.shadows[policy.label]) == repr(alone if alone.stop else None)


def test_shadows_decide_on_the_same_rounds_and_past_the_stop():
    shadow = ["fixed_k(1)", Policy(rule="fixed_k(3)", name="three"), "fixed_k(5)"]
    session = Session("fixed_k(2)", audit=ALWAYS, shadow=shadow, question_id="q1")
    assert session.shadows == {"round >= 1": None, "three": None, "round >= 5": None}
    for answer in "abc":
        session.observe(draft=answer)
    decisions = session.shadows
    assert (decisions["round >= 1"].answer, decisions["three"].answer, decisions["round >= 5"]) == ("a", "c", None)
    assert session.decision.answer == "b"
    session.end("exhausted")  # the shadow's loop would have ended there, too
    assert (session.shadows["round >= 5"].reason, session.shadows["round >= 5"].stop_round) == ("exhausted", 3)


def test_a_cancelled_loop_says_nothing_of_where_a_shadow_would_have_stopped():
    session = Session("fixed_k(2)", shadow="fixed_k(3)")
    session.observe(draft="a")
    session.end("cancelled")
    assert session.shadows == {"round >= 3": None}


def test_a_shadow_may_begin_later_than_the_loop_and_not_earlier():
    session = Session(Policy(rule="fixed_k(2)", start_round=0), shadow=Policy(rule="answer_stable", name="later"))
    for answer in "aaa":
        session.observe(Round(index=session.next_round, answer=answer))
    assert session.shadows["later"].stop_round == 2
    with pytest.raises(DataError, match="first round"):
        Session("fixed_k(2)", shadow=Policy(rule="fixed_k(1)", start_round=0))


def test_a_rule_alone_follows_with_everything_else_of_the_deployed_policy():
    deployed = Policy(rule="fixed_k(1)", selector="first", start_round=0, max_rounds=8, name="deployed")
    session = Session(deployed, audit=ALWAYS, shadow=["fixed_k(7)", parse_rule("never()")], question_id="q1")
    while session.decision is None or session.auditing:
        session.observe(Round(index=session.next_round, answer=str(session.next_round)))
    decisions = session.shadows
    assert [(item.stop_round, item.answer_round, item.reason) for item in decisions.values()] == [
        (7, 0, "rule"),
        (8, 0, "max_rounds"),
    ]


def test_shadows_that_cannot_be_told_apart_or_read_are_refused(tmp_path):
    with pytest.raises(DataError, match="'round >= 2'"):
        Session("answer_stable", shadow=["fixed_k(2)", "fixed_k(2)"])
    with pytest.raises(RuleSyntaxError):
        Session("answer_stable", shadow=["no rule"])
    with pytest.raises(DataError, match="be read"):
        Session("answer_stable", shadow=tmp_path / "none.json")
    path = tmp_path / "policy.json"
    Policy(rule="fixed_k(2)", name="filed").save(path)
    assert Session("answer_stable", shadow=path).shadows == {"filed": None}


def test_a_shadow_with_another_model_or_more_needs_is_refused():
    with pytest.raises(ConfigMismatchError, match="another model"):
        Session("answer_stable", depends={"model": "a"}, shadow=Policy(rule="fixed_k(2)", depends={"model": "b"}))
    with pytest.raises(ModelError, match="logprobs"):
        Session("answer_stable", capabilities=frozenset(), shadow="answer_margin > 1")


def test_a_shadow_that_lacks_a_signal_says_so_and_breaks_nothing():
    session = Session("answer_stable", shadow=["own > 0.5", "fixed_k(1)"])
    for answer in "aa":
        session.observe(draft=answer)
    assert session.decision.stop_round == 2
    with pytest.warns(UserWarning, match="decides nothing"):
        decisions = session.shadows
    assert (decisions["own > 0.5"], decisions["round >= 1"].stop_round) == (None, 1)
    assert session.shadows == decisions  # said once
    warned = Session("answer_stable", missing="warn", shadow="own > 0.5")
    warned.observe(draft="a")
    with pytest.warns(UserWarning, match="reads 'own'"):
        assert warned.shadows == {"own > 0.5": None}
    ignored = Session("answer_stable", missing="ignore", shadow="own > 0.5")
    ignored.observe(draft="a")
    assert ignored.shadows == {"own > 0.5": None}


def test_a_deployed_policy_lacking_a_signal_does_not_stop_its_shadows():
    session = Session("own > 0.5", shadow="fixed_k(2)")
    with pytest.raises(UnknownSignalError):
        session.observe(draft="a")
    session.observe(draft="b")
    assert session.shadows["round >= 2"].answer == "b"


def test_a_shadow_whose_rule_raises_breaks_nothing():
    session = Session("fixed_k(1)", shadow=Policy(rule=Broken(), name="broken"))
    assert session.observe(draft="a").answer == "a"
    with pytest.warns(UserWarning, match="ZeroDivisionError"):
        assert session.shadows == {"broken": None}


def test_states_without_audit_and_shadows_are_those_of_older_releases():
    session = Session("answer_stable")
    assert session.to_state()["version"] == 1
    assert not {"draw", "ended", "shadow"} & set(session.to_state())
    assert audited("answer_stable", ["a"]).to_state()["version"] == 2


def test_a_state_does_not_contain_the_seed():
    session = Session("fixed_k(1)", audit=Audit(rate=1, seed="a secret"), question_id="q1")
    assert "a secret" not in json.dumps(session.to_state())
    assert stored(session).draw == session.draw


@pytest.mark.parametrize(
    "changes",
    [
        {"draw": {"rate": 1}},
        {"draw": None},
        {"ended": "rule?"},
        {"shadow": None},
        {"shadow": [{}]},
        {"decision": {"stop": True, "stop_round": 9, "signals": {}}},
        {"decision": {"stop": True, "stop_round": "1", "signals": {}}},
    ],
)
def test_a_damaged_state_of_an_audit_is_refused(changes):
    state = audited("fixed_k(1)", ["a", "b"]).to_state()
    assert Session.from_state(state).auditing
    with pytest.raises(SchemaError):
        Session.from_state({**state, **changes})


def test_a_state_whose_audit_has_ended_takes_no_round():
    session = audited("fixed_k(1)", ["a", "b"], shadow="fixed_k(4)")
    session.end("exhausted")
    again = stored(session)
    assert not again.auditing
    assert again.shadows["round >= 4"].reason == "exhausted"


def test_an_audit_without_shadows_and_a_warning_for_nobody():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert audited("answer_stable", ["a", "a", "b"]).shadows == {}
