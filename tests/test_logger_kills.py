"""Loggers that are killed at random lose no committed round and no draw; the full run is `python -m benchmarks.logger_kills`."""

import pytest


@pytest.mark.whole
def test_killed_loggers_lose_nothing_that_was_returned():
    from benchmarks.logger_kills import run

    for counts in run(kills=12, seed=3):
        assert counts["kills"] == 6
        assert counts["rounds"] >= counts["rounds_returned"] >= 6
        assert counts["decided"] >= counts["drawn"] >= counts["audits_lost"]
