"""`make stress`: what it runs, and that a failure is shown with the command that repeats it."""

import pytest
from scripts.stress import Run, outcome

TESTS = """
import os

def test_the_setting_arrives():
    assert os.environ["OMP_NUM_THREADS"] == "2" and os.environ["PYTHONHASHSEED"] == "7"

def test_one_fails():
    assert False
"""


@pytest.mark.whole
def test_a_failing_test_is_named_and_the_run_fails(tmp_path):
    (tmp_path / "test_made.py").write_text(TESTS, encoding="utf-8")
    done = outcome(Run("", 2, False, 7), [str(tmp_path)], tmp_path / "log")
    assert done.code == 1
    assert [name.partition("::")[2] for name in done.failed] == ["test_one_fails"]
    assert done.closing.startswith("1 failed, 1 passed in ")
