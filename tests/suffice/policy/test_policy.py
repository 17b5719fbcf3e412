"""Policies: one JSON file, read strictly, that names what it depends on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from suffice import AnswerPosition, Calibrator, Policy, parse_rule, parse_selector, tasr
from suffice.errors import DataError, LogprobsUnavailableError, ModelError, NotFittedError, RuleSyntaxError, SchemaError
from suffice.policy.session.sources import capped_policy
from suffice.policy.signals import Idf, ZScore


@pytest.fixture
def fitted() -> Policy:
    margins = [[0.1, 0.4], [2.0, 3.0], [5.0, 1.0]]
    return Policy(
        rule=parse_rule("first_of((tasr_guarded), (patience((overlap > 0.15), 2)), (top_score_z > 3))"),
        selector=parse_selector("weighted_majority"),
        start_round=0,
        max_rounds=4,
        calibrators=(Calibrator().fit(margins, [[0, 0], [1, 0], [1, 1]], index=[1, 2]),),
        state={"overlap": Idf.fit(["one two", "two three"]), "top_score_z": ZScore.fit([1.0, 2.0, 4.0])},
        answer_position=AnswerPosition("json", "answer"),
        abstain_patterns=("pass",),
        depends={"model": "m"},
        provenance={"data": "abc"},
        name="mine",
    )


def test_a_policy_reads_back_equal(fitted, tmp_path):
    path = tmp_path / "deep" / "policy.json"
    fitted.save(path)
    assert Policy.load(path) == fitted
    assert Policy.load(path).label == "mine"
    assert [item.name for item in path.parent.iterdir()] == ["policy.json"]
    assert path.read_text("utf-8").startswith('{\n  "format": "suffice.policy",\n')  # for people, too


def test_a_certificate_is_saved_with_the_policy_that_it_belongs_to(fitted, tmp_path):
    certified = replace(fitted, certificate={"policy_digest": fitted.digest})
    certified.save(tmp_path / "policy.json")
    loaded = Policy.load(tmp_path / "policy.json")
    assert loaded == certified
    assert loaded.certified
    assert not replace(loaded, max_rounds=3).certified


def test_a_suspended_certificate_warns_on_reading_without_changing_decisions(fitted, tmp_path):
    certified = replace(fitted, certificate={"policy_digest": fitted.digest})
    assert not certified.suspended
    suspended = certified.suspended_because("the loss rose at request r7")
    assert suspended.digest == certified.digest
    assert certified.certified
    assert not suspended.certified
    suspended.save(tmp_path / "policy.json")
    with pytest.warns(UserWarning, match="request r7"):
        loaded = Policy.load(tmp_path / "policy.json")
    assert loaded == suspended
    assert ("certificate", "suspended: the loss rose at request r7") in loaded.tables()[0].rows
    with pytest.raises(DataError, match="no certificate"):
        fitted.suspended_because("anything")


def change(data, path, value):
    *parents, last = path
    for key in parents:
        data = data[key]
    if value is KeyError:
        del data[last]
    else:
        data[last] = value


@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        (["format"], "other", SchemaError),
        (["version"], 99, SchemaError),
        (["version"], True, SchemaError),
        (["surprise"], 1, SchemaError),
        (["name"], KeyError, SchemaError),
        (["rule"], "import os", RuleSyntaxError),
        (["rule"], 5, SchemaError),
        (["selector"], "nicest", RuleSyntaxError),
        (["start_round"], -1, DataError),
        (["start_round"], 9, DataError),
        (["start_round"], True, SchemaError),
        (["max_rounds"], 0, DataError),
        (["max_rounds"], 1_000_000_000, DataError),
        (["max_rounds"], 2.5, SchemaError),
        (["calibrators", 0, "maps", "1"], {"map": "python", "code": "1"}, SchemaError),
        (["calibrators", 0, "maps", "1", "x"], [3.0, 1.0], SchemaError),
        (["calibrators", 0, "maps", "1", "y"], [0.0, 7.0], SchemaError),
        (["calibrators", 0, "maps", "one"], {"map": "constant", "value": 0.5}, SchemaError),
        (["calibrators", 0, "method"], "magic", SchemaError),
        (["calibrators", 0, "surprise"], 1, SchemaError),
        (["calibrators", 0, "maps"], {}, SchemaError),
        (["calibrators", 0, "per_round"], False, SchemaError),
        (["calibrators"], {}, SchemaError),
        (["state", "top_score_z"], {"kind": "pickle"}, DataError),
        (["answer_position"], {"kind": "callable"}, DataError),
        (["abstain_patterns"], 3, SchemaError),
        (["abstain_patterns"], ["unknown", ["none"]], SchemaError),
        (["calibrators", 0, "signal"], 3, SchemaError),
        (["calibrators", 0, "rounds_fitted", "1"], 0.5, SchemaError),
        (["calibrators", 0, "maps", "1", "y"], [0.0, True], SchemaError),
        (["calibrators"], [1], SchemaError),
        (["calibrators", 0, "maps", "1"], {"map": "piecewise_linear", "x": [2.0, 1.0], "y": [0.1, 0.5]}, SchemaError),
        (["calibrators", 0, "maps", "1"], {"map": "piecewise_linear", "x": [1.0], "y": [0.5]}, SchemaError),
        (["calibrators", 0, "maps", "1"], {"map": "sigmoid", "slope": -1.0, "intercept": 0.0}, SchemaError),
        (["calibrators", 0, "maps", "1"], {"map": "sigmoid", "slope": "x", "intercept": 0.0}, SchemaError),
    ],
)
def test_a_file_with_anything_unexpected_is_refused(fitted, tmp_path, path, value, error):
    data = fitted.to_dict()
    change(data, path, value)
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(data))
    with pytest.raises(error):
        Policy.load(file)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"NaN", b'{"format": "suffice.policy"}'])
def test_a_file_that_is_no_policy_is_refused(tmp_path, content):
    file = tmp_path / "policy.json"
    file.write_bytes(content)
    with pytest.raises(SchemaError):
        Policy.load(file)
    with pytest.raises(DataError, match="be read"):
        Policy.load(tmp_path / "absent.json")


def test_state_of_a_signal_that_needs_none_is_refused():
    with pytest.raises(DataError, match="'top_score_z_robust'"):
        Policy(rule=parse_rule("top_score_z_robust > 1"), state={"top_score_z_robust": ZScore(1.0, 2.0)})
    Policy(state={"a_signal_of_ones_own": ZScore(1.0, 2.0)})


def test_two_calibrators_of_one_signal_are_refused():
    one = Calibrator().fit([[1.0, 2.0]], [[0, 1]], index=[1, 2])
    with pytest.raises(DataError, match="two calibrators"):
        Policy(calibrators=(one, one))


def test_a_policy_the_model_cannot_serve_is_refused_before_calls():
    calibrated = Policy(rule=tasr(), calibrators=(Calibrator().fit([[1.0, 2.0]], [[0, 1]], index=[1, 2]),))
    calibrated.check(frozenset({"logprobs"}))
    with pytest.raises(LogprobsUnavailableError, match="answer_stable"):
        calibrated.check(frozenset())
    Policy(rule=parse_rule("answer_stable_guarded")).check(frozenset())


@pytest.mark.parametrize(
    ("rule", "error", "word"),
    [
        ("stable_and_entailed", ModelError, "judge"),
        ("tasr", NotFittedError, "suffice calibrate"),
        ("stable_and_overlap", NotFittedError, "overlap"),
    ],
)
def test_a_policy_without_what_its_rule_reads_is_refused(rule, error, word):
    with pytest.raises(error, match=word):
        Policy(rule=parse_rule(rule)).check(frozenset({"logprobs"}))


@pytest.mark.parametrize(
    ("rule", "selector", "reads"),
    [
        ("p_known > 0.9", "last", False),
        ("(p_known > 0.9) | (answer_stable >= 1)", "last", False),
        ("(p_known > 0.9) | (calls > 2)", "last", True),
        ("p_known > 0.9", "majority", True),
    ],
)
def test_a_policy_that_looks_back_on_every_answer_says_so(rule, selector, reads):
    assert Policy(rule=rule, selector=selector, start_round=0).reads_every_answer is reads


def test_a_callable_position_works_but_cannot_be_saved(tmp_path):
    policy = Policy(answer_position=AnswerPosition("callable", span=lambda text: (0, len(text))))
    with pytest.raises(DataError):
        policy.save(tmp_path / "policy.json")
    assert list(tmp_path.iterdir()) == []


def test_nothing_half_written_stays_when_saving_fails(fitted, tmp_path):
    broken = Policy(provenance={"value": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        broken.save(tmp_path / "policy.json")
    assert list(tmp_path.iterdir()) == []


def test_a_mere_rule_has_the_cap_at_which_it_surely_fires():
    assert capped_policy("(spend > 0.2) | (round >= 50)").max_rounds == 50
    assert capped_policy(Policy(rule="spend > 0.2", max_rounds=7)).max_rounds == 7  # a policy has said its own
    with pytest.raises(DataError, match="may never fire"):
        capped_policy("spend > 0.2")
