"""Does `suffice import` read a long table five times as large in the same memory, and at what cost beside a bare CSV reader?

Questions x 5 rounds as CSV, with an answer, a gold answer, tokens and a confidence, imported in a process of its own, so that
its peak memory is its own.  Asserted first: read in parts, a small file gives the figures that it gives in one piece.
"""

from __future__ import annotations

import json
import platform
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from suffice.adapters import import_recording, table_parts

SMALL, FACTOR, ROUNDS, SEED = 5_000, 5, 5, 42
TARGET_GROWTH, TARGET_MB = 1.25, 1000.0

_CHILD = """
import csv, json, resource, sys, time
from suffice.adapters import import_recording, table_parts
table_parts.LARGE = 0
began = time.process_time()
with open(sys.argv[1], newline="") as file:
    n = sum(1 for _ in csv.DictReader(file))
bare = time.process_time() - began
began = time.process_time()
import_recording(sys.argv[1], out=sys.argv[2])
seconds = time.process_time() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
print(json.dumps({"rows": n, "bare": bare, "seconds": seconds, "mb": peak}))
"""


def write(path: Path, questions: int) -> None:
    """Write the rows of so many questions."""
    draw = random.Random(SEED)
    with path.open("w", encoding="utf-8") as file:
        file.write("qid,step,prediction,target,prompt_tokens,cached_tokens,completion_tokens,confidence\n")
        for q in range(questions):
            for r in range(1, ROUNDS + 1):
                answers = f"answer {draw.randrange(5)},answer {q % 5}"
                file.write(f"q{q},{r},{answers},{100 * r},{90 * (r - 1)},{draw.randint(2, 9)},{draw.random():.3f}\n")


def check(folder: Path) -> None:
    """Compare the summaries of a small file, read in parts and in one piece."""
    path = folder / "small.csv"
    write(path, 1_000)
    whole = import_recording(path, out=folder / "whole.parquet")
    with mock.patch.object(table_parts, "LARGE", 0), mock.patch.object(table_parts, "PART", 700):
        parts = import_recording(path, out=folder / "parts.parquet")
    assert (whole.trajectories, whole.ends, whole.columns) == (parts.trajectories, parts.ends, parts.columns)
    assert [item.scored for item in whole.by_round] == [item.scored for item in parts.by_round]


def measured(folder: Path, questions: int) -> dict[str, float]:
    """Return rows, processor seconds and peak memory of an import."""
    path = folder / f"{questions}.csv"
    write(path, questions)
    command = [sys.executable, "-c", _CHILD, str(path), str(folder / "out.parquet")]
    figures: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return figures


def run() -> dict[str, Any]:
    """Return the figures of this machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check(folder)
        small, large = (measured(folder, questions) for questions in (SMALL, SMALL * FACTOR))
    growth = large["mb"] / small["mb"]
    print(f"{'rows':>10} {'rows/s':>8} {'x csv':>7} {'MB':>6}")
    for one in (small, large):
        print(
            f"{one['rows']:10,.0f} {one['rows'] / one['seconds']:8,.0f} {one['seconds'] / one['bare']:7.0f} {one['mb']:6.0f}"
        )
    print(f"memory of {FACTOR} times the rows: {growth:.2f} times (at most {TARGET_GROWTH})")
    return {
        "rows": [small["rows"], large["rows"]],
        "rows_per_second": [one["rows"] / one["seconds"] for one in (small, large)],
        "times_bare_csv": [one["seconds"] / one["bare"] for one in (small, large)],
        "mb": [small["mb"], large["mb"]],
        "memory_ratio": growth,
        "met": growth <= TARGET_GROWTH and large["mb"] <= TARGET_MB,
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    print(json.dumps(run()))
