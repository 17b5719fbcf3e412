"""No log of the benchmark of readings is misread, and none that holds rounds is refused without a way on."""

from __future__ import annotations

import pytest
from benchmarks.readings.classes import ASKED, MISREAD, NO_WAY, NOTHING, outcome
from benchmarks.readings.known import CASES, KNOWN, NOT_READ

LEAST, LEAST_PUBLIC = 60, 30


def test_the_benchmark_has_enough_logs_of_both_kinds():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) >= LEAST
    assert sum(bool(case.source) for case in CASES) >= LEAST_PUBLIC
    assert (KNOWN.keys() | NOT_READ.keys()) <= set(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_log_is_misread(case, tmp_path):
    result = outcome(case, tmp_path)
    assert result.kind != MISREAD or case.name in KNOWN, result.said
    assert result.kind != NO_WAY or case.name in NOT_READ, result.said
    assert (result.kind == NOTHING) <= (not case.log().loops)
    assert (result.kind == ASKED) <= bool(result.typed)


def test_the_same_log_is_written_each_time(tmp_path):
    for case in CASES:
        assert case.log() == case.log(), case.name
