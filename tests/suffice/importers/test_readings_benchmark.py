"""No log of the benchmark of readings is misread, and none that holds rounds is refused without a way on."""

from __future__ import annotations

import pytest
from benchmarks.readings.classes import ASKED, MISREAD, NO_WAY, NOTHING, outcome
from benchmarks.readings.drawn import drawn_cases, drawn_outcome
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


@pytest.mark.parametrize("seed", range(7001, 7021))
def test_no_drawn_log_is_misread(seed, tmp_path):
    result = drawn_outcome(seed, tmp_path)
    assert result.kind != MISREAD, result.said


def test_drawn_logs_hold_what_their_readings_say():
    for seed in range(30):
        first, *others = drawn_cases(seed)
        assert all(case.log().content == first.log().content for case in others)
        assert {len(loop.answers) for loop in first.log().loops} <= {1, 2, 3, 4, 5, 6}
