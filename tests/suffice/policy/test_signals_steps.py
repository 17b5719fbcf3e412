"""Signals of an agent's steps: checks that are run, not looked at, repeated commands, failures and what was spent."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.policy.rounds import Cost, Round
from suffice.policy.signals import StepSignals, compute_signals

RUN = [
    "pytest -q",
    "cd /testbed && python -m pytest tests/x.py::test_a",
    "python3 tests/runtests.py sitemaps_tests",
    "./tests/runtests.py x --parallel 1",
    "python reproduce_issue.py",
    "python3 test_typeerror.py",
    "python test.py > out.txt 2>&1",
    "python manage.py test app",
    "timeout 60 python -W ignore repro.py",
    "PYTHONPATH=. python -m unittest -v",
    "uv run pytest",
    "poetry run mypy src",
    "coverage run -m pytest",
    "npx jest --ci",
    "npm test",
    "npm run lint",
    "node test.js",
    "cargo test --all",
    "go test ./...",
    "make test",
    "tox -e py39",
    "bash run_tests.sh",
    "ruff check .",
    "python -m py_compile a.py",
    "cd x && ./bin/test a",
    "ls && pytest && git diff",
]
LOOKED_AT = [
    "ls tests/runtests.py",
    "cat test_x.py",
    "grep -rn pytest .",
    "git diff tests/test_a.py",
    "git log --oneline -- test_a.py",
    "sed -n 1,5p test_a.py",
    "head -50 tests/test_runner.py",
    "find . -name test_a.py",
    "rm test_x.py",
    "which pytest",
    "pip install pytest",
    "echo 'python test_x.py'",
    "cat > test_x.py <<'EOF'\npytest\nEOF",
    "python app.py",
    "python -c 'import pytest'",
    "make",
    "",
]
HIDDEN = [
    "pytest -q | tail -5",
    "pytest; ls",
    "pytest || true",
    "python repro.py &",
    "for t in a b; do pytest $t; done",
]
"""Checks whose outcome is not that of the whole command."""


def check_of(command, **told):
    return StepSignals().add(command, failed=False, **told)["check_passed"]


@pytest.mark.parametrize("command", RUN)
def test_a_check_that_is_run_passes_or_fails(command):
    assert check_of(command) == 1
    assert StepSignals().add(command, failed=True)["check_passed"] == 0
    assert math.isnan(StepSignals().add(command)["check_passed"])


@pytest.mark.parametrize("command", LOOKED_AT + HIDDEN)
def test_what_is_looked_at_or_hidden_is_no_check(command):
    assert math.isnan(check_of(command))
    assert check_of(command, check=True) == 1


def test_several_tools_of_a_step_count_each_for_itself():
    steps = StepSignals()
    mixed = steps.add(["cat nothing.py", "pytest -q"], failed=[True, False], dollars=0.5)
    assert mixed == {"command_repeated": 0.0, "tool_failed": 1.0, "check_passed": 1.0, "spend": 0.5}
    again = steps.add(["cat  nothing.py", "pytest -q"], failed=[None, None], dollars=0.25)
    assert (again["command_repeated"], again["spend"]) == (1, 0.75)
    assert math.isnan(again["tool_failed"])
    assert math.isnan(again["check_passed"])
    assert steps.add(["pytest a", "pytest b"], failed=[False, True])["check_passed"] == 0


def test_no_tool_and_an_unknown_price_are_unknown():
    steps = StepSignals()
    none = steps.add(None, failed=None, dollars=0.1)
    assert math.isnan(none["command_repeated"])
    assert none["spend"] == 0.1
    steps.add("ls")
    assert math.isnan(steps.add("ls", dollars=0.1)["spend"])


def test_states_and_checks_are_counted_since_the_last_change():
    given = [
        (None, math.nan),
        ("a", math.nan),
        ("a", 1.0),
        ("a", 0.0),
        ("a", 1.0),
        ("b", math.nan),
        ("b", 1.0),
        ("a", 1.0),
    ]
    costs = {"generator": Cost(calls=1, uncached_tokens=30, cached_tokens=70, output_tokens=5, seconds=1)}
    rounds, values = [], []
    for index, (state, check) in enumerate(given, start=1):
        rounds.append(Round(index=index, answer=state, signals={"check_passed": check}, costs=costs))
        values.append(
            compute_signals(rounds, ("since_change", "checks_green_since_change", "context_tokens"), state={})
        )
    assert [value["since_change"] for value in values[1:]] == [0, 1, 2, 3, 0, 1, 0]
    assert [value["checks_green_since_change"] for value in values[1:]] == [0, 1, 0, 1, 0, 1, 1]
    assert math.isnan(values[0]["since_change"])
    assert {value["context_tokens"] for value in values} == {100}


def test_rounds_without_an_answer_change_nothing():
    states = [None, "a1", None, None, "a1", "b2", None, "a1", None]
    rounds = [Round(index=i, answer=state, signals={"check_passed": 1.0}) for i, state in enumerate(states, start=1)]
    for name, expected in (
        ("since_change", [math.nan, 0, 1, 2, 3, 0, 1, 0, 1]),
        ("checks_green_since_change", [math.nan, 1, 2, 3, 4, 1, 2, 1, 2]),
    ):
        values = [compute_signals(rounds[:n], (name,), state={})[name] for n in range(1, len(rounds) + 1)]
        np.testing.assert_equal(values, expected)
