"""`make stress`: what it runs, and that a failure is shown with the command that repeats it."""

import pytest
from scripts.stress import WORKERS, Run, outcome

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


CHILD = """
import os, subprocess, sys, time

def test_a_child_stands_still():
    code = "import time\\nlast = time.monotonic()\\nwhile True: now = time.monotonic(); now - last > 0.1 and exit(); last = now"
    assert subprocess.call([sys.executable, "-c", code]) == 0
"""


@pytest.mark.whole
def test_processes_that_tests_start_are_paused_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.stress.RUNNING_S", 0.2)
    monkeypatch.setitem(WORKERS, True, 2)  # there is one test, and starting six takes six times as long
    (tmp_path / "test_made.py").write_text(CHILD, encoding="utf-8")
    done = outcome(Run("", 2, True, 7), [str(tmp_path)], tmp_path / "log")
    assert (done.code, done.failed) == (0, ())
