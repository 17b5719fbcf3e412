"""What does a replay of 1.5 million recorded rounds from parquet take, and does it grow linearly?

300,000 questions x 5 rounds with answers, three signals, seven columns of costs and F1, in row groups of a million rows, with
checksums.  TASR is replayed beside every baseline by one process, whose peak memory is its own, at a fifth of the rows and at
all of them; "passes" is the same without intervals and tests.  Beside it, in the same process and by turns, pyarrow reads the
same columns of the same rows from the same file, and lays out every column of numbers as float64, one row for each question:
without a check, without a rule, with text left as it is ("bare"), and with answers and ends as arrays, too ("arrays").
Asserted first: on a small file the figures are those of a recording in memory.
"""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suffice.evaluation.replay import replay
from suffice.evaluation.replay.blocks import Source
from suffice.evaluation.statistics import Resampling
from suffice.recordings import read_recording
from suffice.recordings.opened import write_tables

QUESTIONS, ROUNDS, ANSWERS, SEED = 300_000, 5, 5_000, 42
GROUP = 60_000
"""Questions that are drawn and written at once."""
TARGET_MB, TARGET_GROWTH = 1000.0, 1.15

_CHILD = """
import json, resource, sys, time
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from suffice.evaluation.replay import Replayer, replay
from suffice.evaluation.replay.blocks import Source

path, rounds = sys.argv[1], int(sys.argv[2])
columns = Source(path).columns({"answer_stable", "p_correct"}, ("f1",))
numbers = [name for name in columns if pa.types.is_floating(pq.read_schema(path).field(name).type)]

def bare(texts=()):
    for batch in pq.ParquetFile(path).iter_batches(13_000 * rounds, columns=columns):
        tables = {name: batch.column(name).to_numpy(zero_copy_only=False).reshape(-1, rounds) for name in [*numbers, *texts]}
        tables["question_id"] = batch.column("question_id").take(pa.array(np.arange(0, batch.num_rows, rounds)))

def ours():
    return replay(Source(path), "tasr", metrics=("f1",), jobs=1)

def passes():
    Replayer(Source(path), metrics=("f1",), jobs=1).compare("tasr").result(intervals=False)

def arrays():
    bare(("answer", "end"))

result = ours()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
times = {}
for _ in range(2):
    for run in (ours, passes, bare, arrays):
        began = time.perf_counter(), time.process_time()
        run()
        now = time.perf_counter(), time.process_time()
        times.setdefault(run.__name__, []).append([now[0] - began[0], now[1] - began[1]])
best = {name: [min(figures) for figures in zip(*some)] for name, some in times.items()}
print(json.dumps({**best, "peak_kb": peak, "n_rows": Source(path).n_rows, "calls": result.rows[0].costs["calls"]}))
"""


def draw(rng: np.random.Generator, first: int, n: int) -> pa.Table:
    """Return the rows of `n` questions."""
    rows = n * ROUNDS
    numbers = pc.utf8_lpad(pa.array(np.arange(first, first + n)).cast(pa.string()), 9, "0")
    ids = pc.binary_join_element_wise("question", numbers, "-")
    words = pa.array([f"answer {i}" for i in range(ANSWERS)])
    stable = np.where(np.tile(np.arange(ROUNDS) == 0, n), np.nan, rng.random(rows) < 0.6)
    names = ids.take(pa.array(np.repeat(np.arange(n), ROUNDS)))
    columns = {
        "question_id": names,
        "cluster": names,
        "round": pa.array(np.tile(np.arange(1, ROUNDS + 1, dtype=np.int16), n)),
        "end": pa.array(["max_rounds"]).take(pa.array(np.zeros(rows, dtype=np.int8))),
        "answer": words.take(pa.array(rng.integers(0, ANSWERS, rows))),
        "answer_stable": stable,
        "answer_margin": rng.exponential(2, rows),
        "p_correct": rng.random(rows),
        "cost.generator.calls": np.ones(rows),
        "cost.generator.uncached_tokens": rng.integers(30, 300, rows).astype(float),
        "cost.generator.cached_tokens": rng.integers(0, 900, rows).astype(float),
        "cost.generator.output_tokens": rng.integers(1, 30, rows).astype(float),
        "cost.generator.seconds": rng.random(rows),
        "cost.retrieval.calls": np.zeros(rows),
        "cost.retrieval.seconds": rng.random(rows) / 100,
        "f1": rng.integers(0, 101, rows) / 100,
    }
    return pa.table(columns)


def write(path: Path, questions: int) -> None:
    """Write a recording, one group of questions at a time."""
    rng = np.random.default_rng(SEED)
    schema = draw(np.random.default_rng(SEED), 0, 1).schema
    groups = range(0, questions, GROUP)
    write_tables(path, schema, (draw(rng, first, min(GROUP, questions - first)) for first in groups))


def check(folder: Path) -> None:
    """Assert that streamed figures are those of `replay`, with blocks that cut trajectories."""
    path = folder / "small.parquet"
    write(path, 500)
    how: dict[str, Any] = {"metrics": ("f1",), "resampling": Resampling(n_resamples=10)}
    expected = replay(read_recording(path), ["tasr"], **how)
    found = replay(Source(path), "tasr", **how, block_rows=333, jobs=1)
    for mine, other in zip(found.rows, expected.rows, strict=True):
        assert mine.label == other.label
        assert math.isclose(mine.metrics["f1"], other.metrics["f1"], rel_tol=1e-12)
        assert mine.deltas["f1"].triple == other.deltas["f1"].triple or all(
            math.isclose(a, b, abs_tol=1e-12)
            for a, b in zip(mine.deltas["f1"].triple, other.deltas["f1"].triple, strict=True)
        )


def measured(path: Path) -> dict[str, Any]:
    """Replay a file in a process of its own; of the replay and of pyarrow alone the best run."""
    command = [sys.executable, "-c", _CHILD, str(path), str(ROUNDS)]
    best: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return best


def run() -> dict[str, Any]:
    """Measure, print a table and return the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check(folder)
        sizes = (QUESTIONS // 5, QUESTIONS)
        results = []
        for questions in sizes:
            path = folder / "large.parquet"
            write(path, questions)
            results.append(measured(path))
            (seconds, cpu), megabytes = results[-1]["ours"], results[-1]["peak_kb"] / 1000
            print(
                f"{questions * ROUNDS:>12,} rounds  {seconds:6.2f} s, {cpu:6.2f} s of processor, peak {megabytes:5.0f} MB"
            )
    small, large = results
    growth = large["ours"][1] / large["n_rows"] / (small["ours"][1] / small["n_rows"])
    print(f"processor time per round grows by {growth:.2f} from a fifth to all (target at most {TARGET_GROWTH})")
    peak, cpu = large["peak_kb"] / 1000, large["ours"][1]
    ratios = {name: cpu / large[name][1] for name in ("passes", "bare", "arrays")}
    print(f"both passes without intervals: {large['passes'][1]:.2f} s of processor, ratio {ratios['passes']:.2f}")
    for name in ("bare", "arrays"):
        print(f"pyarrow alone, {name}: {large[name][1]:.2f} s of processor, ratio {ratios[name]:.2f}")
    return {
        "name": "streaming",
        "ours": cpu,
        "peer": large["bare"][1],
        "ratio": ratios["bare"],
        "ratio_passes": ratios["passes"],
        "ratio_arrays": ratios["arrays"],
        "seconds": {name: large[name][0] for name in ("ours", "passes", "bare", "arrays")},
        "peak_mb": peak,
        "small": {"processor": small["ours"][1], "peak_mb": small["peak_kb"] / 1000, "rows": small["n_rows"]},
        "growth_per_row": growth,
        "target": {"peak_mb": TARGET_MB, "growth_per_row": TARGET_GROWTH},
        "met": peak < TARGET_MB and growth < TARGET_GROWTH,
        "sizes": {"questions": QUESTIONS, "rounds": ROUNDS, "rows": large["n_rows"]},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "pyarrow": pa.__version__},
    }


if __name__ == "__main__":
    print(json.dumps(run()))
