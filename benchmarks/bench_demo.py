"""What does the whole demo add to the reading that it does, and does it fit a gigabyte?

The process is the one that `make demo` starts; its peak memory is read from the kernel when it ends.  The peer is the
same number of passages through the reader alone: what is left is everything that Suffice adds to reading.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from suffice import load_questions
from suffice._version import __version__
from suffice.loops.retrieval import PoolBM25
from suffice_reader.model import SpanReaderModel

TARGET_RATIO, MEGABYTES = 2.0, 1024.0


def _demo(folder: Path) -> tuple[dict[str, Any], float, float]:
    """Return the demo's JSON, its wall-clock time (seconds) and its peak memory (MB)."""
    began = time.perf_counter()
    output = folder / "demo.json"
    with output.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "suffice", "demo", "--json", "--out", str(folder / "out")], stdout=out
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    assert child.returncode == 0, f"the demo ended with {child.returncode}"
    return json.loads(output.read_text(encoding="utf-8")), seconds, usage.ru_maxrss / 1024


def _reading(rounds: int) -> float:
    """Return how long the reader alone takes for `rounds` rounds of eval questions, seconds."""
    model, retriever = SpanReaderModel(), PoolBM25()
    done, began = 0, time.perf_counter()
    for question in load_questions("hotpotqa_eval"):
        ranked = retriever.rank(question.question, pool=question.passages, k=5)
        for r in range(1, len(ranked) + 1):
            model.answer(question.question, ranked[:r])
            done += 1
            if done >= rounds:
                return time.perf_counter() - began
    return (time.perf_counter() - began) * rounds / done


def run() -> dict[str, Any]:
    """Time the demo and return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        result, seconds, megabytes = _demo(Path(folder))
    live = result["live"]
    assert live["differences_from_replay"] == []
    rounds = 1500 + round(live["mean_calls"] * live["questions"])
    peer = _reading(rounds)
    print(f"demo           {seconds:6.1f} s, peak memory {megabytes:.0f} MB (limit {MEGABYTES:.0f})")
    print(
        f"reading alone  {peer:6.1f} s for the same {rounds} rounds, ratio {seconds / peer:.2f} (target {TARGET_RATIO})"
    )
    return {
        "name": "demo",
        "ours": {"seconds": round(seconds, 1), "peak_mb": round(megabytes)},
        "peer": {"name": "the reader alone, same rounds", "seconds": round(peer, 1)},
        "ratio": round(seconds / peer, 2),
        "target": {"ratio": TARGET_RATIO, "peak_mb": MEGABYTES},
        "met": seconds <= TARGET_RATIO * peer and megabytes < MEGABYTES,
        "sizes": {"rounds": rounds, "questions": 300},
        "versions": {"suffice": __version__},
    }


if __name__ == "__main__":
    print(json.dumps(run()))
