"""The list of slow tests, which `make check` leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import slow_tests

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def measure(no_collecting, tmp_path, monkeypatch):
    """Return a function that measures tests in a folder of their own."""
    monkeypatch.setattr(slow_tests, "LISTED", tmp_path / "slow.txt")

    def run(text):
        path = tmp_path / f"{tmp_path.name}.py"  # a module that no other test has imported
        path.write_text(text)
        return slow_tests.main([str(path), "-c", "/dev/null", f"--rootdir={tmp_path}"])

    return run


def test_every_slow_test_is_still_there():
    names = slow_tests.LISTED.read_text("utf-8").split()
    assert names == sorted({*names})
    gone = []
    for path, _, function in (name.partition("::") for name in names):
        text = (ROOT / path).read_text("utf-8") if (ROOT / path).is_file() else ""
        # The names of examples in docstrings are not looked up in their file.
        if not text or (path.startswith("tests/") and f"def {function.rpartition('::')[2]}(" not in text):
            gone.append(f"{path}::{function}")
    assert gone == [], "renamed or removed: drop the lines, or run `make slow PYTEST_ARGS=FILE`"


@pytest.mark.parametrize(("most", "slow"), [(-1.0, ["test_a", "test_b"]), (1e6, [])])
def test_cases_of_a_test_are_measured_together(most, slow, measure, tmp_path, monkeypatch):
    monkeypatch.setattr(slow_tests, "MOST_S", most)
    slow_tests.LISTED.write_text("tests/test_other.py::test_c\n")
    cases = "import pytest\n@pytest.mark.parametrize('case', [1, 2])\n"
    assert measure(f"{cases}def test_a(case): pass\n\ndef test_b(): pass\n") == 0
    names = slow_tests.LISTED.read_text().split()
    assert names == [*(f"{tmp_path.name}.py::{name}" for name in slow), "tests/test_other.py::test_c"]


def test_a_failing_run_leaves_the_list_as_it_is(measure):
    assert measure("def test_a(): assert False\n") == 1
    assert not slow_tests.LISTED.exists()
