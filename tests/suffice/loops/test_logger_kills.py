"""Loggers of one file that are killed at random; the full run is `python -m benchmarks.logger_kills`."""

import pytest


@pytest.mark.whole
def test_killed_loggers_lose_no_committed_round_and_no_draw(tmp_path):
    from benchmarks.logger_kills import run

    result = run(tmp_path, kills=10, seed=3)
    assert result["recorded_rounds"] >= result["committed_rounds"] >= result["kills"]
    assert result["audited"] >= result["audits_lost"]
