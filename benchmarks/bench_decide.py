"""What does a decision on a million recorded rounds cost, as a multiple of one replay of the same file?

200,000 questions x 5 rounds of the streaming benchmark, with F1, three signals and costs.  In a process of its own, so that
the peak memory is its own, the file is read and decided on; in another one it is read and `tasr` is replayed with the whole
frontier of fixed budgets, as `suffice replay` does.  Asserted first: on a small file the figures of the advised candidate
are those of `replay` on the questions of the verdict.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_streaming import write
from suffice.evaluation.replay import replay
from suffice.evaluation.replay.selected import seen_in
from suffice.recordings import read_recording
from suffice.verdicts.decisions import decide

QUESTIONS, RUNS = 200_000, 3
TARGET_RATIO, TARGET_MB = 5.0, 1000.0

_CHILD = """
import json, resource, sys, time
from suffice.{module} import {name}
from suffice.recordings import read_recording
began = time.perf_counter()
result = {call}
seconds = time.perf_counter() - began
print(json.dumps({{"seconds": seconds, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}}))
"""
CALLS = {
    "replay": ("replays", "replay(read_recording(sys.argv[1]), 'tasr', metrics='f1')"),
    "decide": ("decisions", "decide(read_recording(sys.argv[1]), metric='f1')"),
}


def check(folder: Path) -> None:
    """Compare a decision on a small file with a replay of the questions that it counted."""
    path = folder / "small.parquet"
    write(path, 2_000)
    recording = read_recording(path)
    advice = decide(recording, metric="f1")
    judged = replay(recording.select(seen_in(recording, advice.trial.counted)), "fixed_k(2)", metrics="f1")
    row = next(row for row in judged.rows if row.label == "fixed_k(2)")
    place = [policy.label for policy in advice.trial.candidates].index("fixed_k(2)")
    totals = advice.trial.totals
    assert row.n == totals.n
    np.testing.assert_allclose(totals.values[place] / totals.n, row.metrics["f1"], rtol=1e-9)
    np.testing.assert_allclose(totals.costs["calls"][place] / totals.n, row.calls.mean, rtol=1e-9)


def measured(name: str, path: Path) -> dict[str, float]:
    """Return seconds and peak memory of a process that reads the file and calls the function."""
    module, call = CALLS[name]
    code = _CHILD.format(module=module, name=name, call=call)
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def run() -> dict[str, Any]:
    """Return the figures of this machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check(folder)
        path = folder / "large.parquet"
        write(path, QUESTIONS)
        # In turn, so that both see the same machine.
        runs = [{name: measured(name, path) for name in CALLS} for _ in range(RUNS)]
    seconds = {name: min(run[name]["seconds"] for run in runs) for name in CALLS}
    mb = {name: max(run[name]["mb"] for run in runs) for name in CALLS}
    ratio = seconds["decide"] / seconds["replay"]
    print(f"{'':8} {'seconds':>8} {'MB':>7}")
    for name in CALLS:
        print(f"{name:8} {seconds[name]:8.1f} {mb[name]:7.0f}")
    print(f"decide / replay {ratio:.2f} (at most {TARGET_RATIO}), memory at most {TARGET_MB:.0f} MB")
    return {
        "rounds": QUESTIONS * 5,
        "seconds": seconds,
        "mb": mb,
        "ratio": ratio,
        "met": ratio <= TARGET_RATIO and mb["decide"] <= TARGET_MB,
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    print(json.dumps(run()))
