"""Errors: what they say, and what a caller reads from them."""

import pickle

import pytest

from suffice.errors import (
    MissingExtraError,
    ModelError,
    ModelTimeoutError,
    SufficeError,
    UnansweredError,
    UnsettledError,
)


def test_an_optional_dependency_is_named_with_the_command_that_installs_it():
    error = MissingExtraError("hidden states", "torch")
    assert isinstance(error, ImportError)
    assert isinstance(error, SufficeError)
    assert (error.feature, error.extra) == ("hidden states", "torch")
    assert "hidden states" in str(error)
    assert "from a checkout, run  pip install '.[torch]'" in str(error)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (
            "torch",
            "needs an optional dependency of suffice-gates: from a checkout, run  pip install . './packages/suffice-gates[torch]'",
        ),
        ("", "is in suffice-gates: from a checkout, run  pip install . './packages/suffice-gates'"),
    ],
)
def test_a_missing_package_is_installed_with_the_main_one(extra, says):
    error = MissingExtraError("a probe", extra, "suffice-gates")
    assert str(error) == f"a probe {says}"
    assert error.distribution == "suffice-gates"


def test_a_missing_extra_keeps_its_message_in_another_process():
    error = MissingExtraError("a probe", "torch", "suffice-gates")
    error.args = (f"part-3: {error}",)
    rebuilt = pickle.loads(pickle.dumps(error))
    assert (str(rebuilt), rebuilt.extra, rebuilt.distribution) == (str(error), "torch", "suffice-gates")


def test_a_silent_endpoint_may_be_asked_again():
    assert ModelTimeoutError("no reply").retryable
    assert not ModelError("no such model").retryable


def test_what_can_be_read_in_two_ways_names_both():
    error = UnsettledError(
        "Rounds count from 0.", "first_round", {"--first-round 0": (0, "closed book"), "--first-round 1": (1, "open")}
    )
    assert str(error).endswith("(first_round): --first-round 0 (closed book); or --first-round 1 (open).")
    assert (error.question, error.parameter) == ("Rounds count from 0.", "first_round")


def test_what_a_run_did_is_kept_in_another_process():
    error = pickle.loads(pickle.dumps(UnansweredError("no reply is a Plan", {"stop_round": 2}, ["a", "b"])))
    assert (str(error), error.decision, error.rounds) == ("no reply is a Plan", {"stop_round": 2}, ("a", "b"))
