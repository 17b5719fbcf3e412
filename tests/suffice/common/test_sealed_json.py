"""Policies and decisions say whether somebody edited their files."""

import json
import re
import warnings

import numpy as np
import pytest

from suffice import Policy, decide
from suffice.common.json_text import sealed_text, was_edited
from suffice.errors import SchemaError
from suffice.policy.session.policy import POLICY_FORMAT
from suffice.verdicts.decisions import Advice
from tests.support.shared import recording_of


@pytest.fixture(scope="module")
def advice():
    recording = recording_of([["a", "a", "a"], ["b", "c", "c"]] * 20, em=[[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]] * 20)
    return decide(recording, metric="em", max_loss=0.05)


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:  # a number that begins with a zero
        return None


def test_every_changed_digit_of_a_decision_is_noticed(advice, tmp_path):
    path = tmp_path / "decision.json"
    advice.save(path)
    text = path.read_text(encoding="utf-8")
    assert Advice.load(path).sentence == advice.sentence
    digits = [match.start() for match in re.finditer(r"\d", text)]
    for place in np.random.default_rng(0).choice(digits, 60, replace=False):
        edited = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
        if parsed(edited) == json.loads(text) or '"sha256":' not in edited:
            continue  # the same double; or no hash, which the test below reads
        path.write_text(edited, encoding="utf-8")
        with pytest.raises(SchemaError, match="edited|JSON"):
            Advice.load(path)


def test_layout_and_order_of_fields_are_no_edit(advice, tmp_path):
    path = tmp_path / "decision.json"
    advice.save(path)
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(dict(reversed(data.items()))), encoding="utf-8")
    assert Advice.load(path).sentence == advice.sentence


def test_a_decision_without_a_hash_still_reads(advice, tmp_path):
    path = tmp_path / "decision.json"
    path.write_text(json.dumps(advice.to_dict()), encoding="utf-8")
    assert Advice.load(path).sentence == advice.sentence


def test_an_edited_policy_says_so_and_loses_its_certificate(tmp_path):
    path, policy = tmp_path / "policy.json", Policy(rule="answer_stable", max_rounds=4)
    policy = Policy(rule="answer_stable", max_rounds=4, certificate={"policy_digest": policy.digest, "epsilon": 0.01})
    policy.save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Policy.load(path).certified
        assert Policy.from_dict(json.loads(path.read_text(encoding="utf-8"))).certified
    edited = path.read_text(encoding="utf-8").replace('"epsilon": 0.01', '"epsilon": 0.001')
    path.write_text(edited, encoding="utf-8")
    with pytest.warns(UserWarning, match="edited"):
        loaded = Policy.load(path)
    assert (loaded.certified, loaded.suspended) == (False, "its file was edited")
    Policy(rule="answer_stable", max_rounds=4).save(path)
    path.write_text(path.read_text(encoding="utf-8").replace('"max_rounds": 4', '"max_rounds": 3'), encoding="utf-8")
    with pytest.warns(UserWarning, match="edited"):
        assert Policy.load(path).max_rounds == 3


@pytest.mark.parametrize("data", [{}, {"text": "caf\u00e9 \ud800", "number": 1e-300}, {"1": [True, None, -0.0]}])
def test_a_text_knows_its_own_content(data):
    read = json.loads(sealed_text(data))
    assert not was_edited(read)
    assert was_edited({**read, "more": 1})
    assert not was_edited([POLICY_FORMAT])
