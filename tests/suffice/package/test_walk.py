"""The walk from `suffice decide` to its sentence stays short enough to be read."""

import re

import pytest
from scripts.walk import by_room, walked

import suffice.verdicts.decisions

MOST = {"modules": 100, "files": 58, "functions": 469}


@pytest.mark.whole  # in a process of its own
def test_a_decision_passes_through_little_code():
    functions = walked()
    _, modules, files, ran = by_room(functions)[0]
    assert modules <= MOST["modules"], sorted(functions)
    assert files <= MOST["files"]
    assert ran <= MOST["functions"]
    steps = re.findall(r"`(suffice\.[\w.]+)`", suffice.verdicts.decisions.__doc__)
    assert len(steps) == 10
    assert [step for step in steps if not functions[step]] == []
