"""How large a search fits into the memory of one part plus the sums of its rules, and how long does it take?

Synthetic recordings are written as parts. Measured are seconds, rules times questions per second and the peak memory of every
process, at growing numbers of rules and questions, beside the same search of a recording in memory where that fits.

Asserted first, at the smallest size: the distinct rules, their figures and the choice of tune are those of a recording in memory.

    python -m benchmarks.bench_search_parts --rules 10000 100000 --questions 100000 1000000 --jobs 2

Each size runs in a process of its own, so that its peak is its own.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.evaluation.search import Block, Literal, Space, search
from suffice.evaluation.statistics import Resampling
from suffice.recordings import read_recording
from suffice.recordings.opened import write_tables
from suffice.recordings.schema import build_table

SEED, ROUNDS, PART = 42, 5, 10_000
SIGNALS = ("p_correct", "calibrated_confidence", "top_score_z", "score_gap")
GRIDS = {10_000: 5, 100_000: 9, 1_000_000: 16}
"""By the rules wanted, thresholds of each signal: 12,195, 114,003 and 1,068,096 normal forms."""


def grids(width: int) -> Space:
    """Return all normal forms over four signals with `width` thresholds each."""
    levels = np.round(np.linspace(0.3, 0.97, width), 6)
    literals = tuple(Literal(signal=name, thresholds=tuple(levels.tolist())) for name in SIGNALS)
    return Space(name=f"grids of {width}", blocks=(Block(form="dnf", literals=literals),))


def part_table(number: int, n: int) -> pa.Table:
    """Return the rounds of some questions: signals drift towards 1 as evidence comes in, and so does the answer's F1."""
    rng = np.random.default_rng([SEED, number])
    rows = n * ROUNDS
    rounds = np.tile(np.arange(1, ROUNDS + 1), n)
    ease = np.repeat(rng.normal(size=n), ROUNDS)
    f1 = np.round(np.clip(0.15 * rounds + 0.25 * ease + rng.normal(scale=0.3, size=rows), 0, 1), 3)
    schema = build_table([row_of(0.5)]).schema
    columns: dict[str, Any] = {
        "question_id": [f"q{number}-{i}" for i in np.repeat(np.arange(n), ROUNDS).tolist()],
        "round": rounds,
        "end": ["max_rounds"] * rows,
        "answer": ["an answer"] * rows,
        "f1": f1,
        "em": (f1 >= 1).astype(float),
        **{name: np.full(rows, value) for name, value in row_of(0.5).items() if name.startswith("cost.")},
    }
    for name in SIGNALS:
        latent = 0.3 * rounds + 0.8 * ease + rng.normal(size=rows) - 1
        columns[name] = np.round(1 / (1 + np.exp(-latent)), 6)
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def row_of(value: float) -> dict[str, Any]:
    """Return one recorded round."""
    return {
        "question_id": "q",
        "round": 1,
        "end": "max_rounds",
        "answer": "an answer",
        "f1": value,
        "em": value,
        **dict.fromkeys(SIGNALS, value),
        "cost.generator.calls": 1.0,
        "cost.generator.uncached_tokens": 100.0,
        "cost.generator.cached_tokens": 0.0,
        "cost.generator.output_tokens": 5.0,
        "cost.generator.seconds": 0.1,
    }


def write_parts(folder: Path, n: int, part: int = PART) -> Path:
    """Write `n` questions into parts."""
    folder.mkdir(parents=True)
    for number in range(-(-n // part)):
        table = part_table(number, min(part, n - number * part))
        write_tables(folder / f"part-{number:05}.parquet", table.schema, [table])
    return folder


def peak_mib(who: int = resource.RUSAGE_SELF) -> int:
    """Return the peak memory of this process, or of the largest that it started and that has ended."""
    return round(resource.getrusage(who).ru_maxrss / 1024)


def one(folder: Path, width: int, jobs: int, draws: int) -> dict[str, Any]:
    """Search once and return seconds and peaks; `jobs` 0 = of a recording in memory."""
    space, resampling = grids(width), Resampling(n_resamples=draws, seed=SEED)
    begin = time.perf_counter()
    result = (
        search(folder, space, resampling=resampling, jobs=jobs)
        if jobs
        else search(read_recording(folder), space, resampling=resampling)
    )
    seconds = time.perf_counter() - begin
    pairs = result.n_rules * (result.n + result.n_tune)
    return {
        "rules": result.n_rules,
        "questions": result.n + result.n_tune,
        "jobs": jobs,
        "draws": draws,
        "distinct": len(result.distinct),
        "seconds": round(seconds, 1),
        "million_pairs_per_s": round(pairs / seconds / 1e6, 1),
        "first_mib": peak_mib(),
        "others_mib": peak_mib(resource.RUSAGE_CHILDREN),
    }


def check() -> None:
    """Compare a search over parts with that of a recording in memory."""
    with tempfile.TemporaryDirectory() as place:
        folder = write_parts(Path(place) / "run", 2_000, part=300)
        resampling = Resampling(n_resamples=20, seed=SEED)
        ours = search(folder, grids(2), resampling=resampling)
        memory = search(read_recording(folder), grids(2), resampling=resampling)
    assert np.array_equal(ours.distinct.number, memory.distinct.number)
    assert np.array_equal(ours.distinct.members, memory.distinct.members)
    assert np.array_equal(ours.distinct.hash, memory.distinct.hash)
    for name in ("quality", "calls", "tokens", "low", "high"):
        assert np.allclose(ours.columns[name], memory.columns[name], rtol=0, atol=1e-12, equal_nan=True)
    assert ours.chosen is not None
    assert memory.chosen is not None
    assert str(ours.chosen.policy.rule) == str(memory.chosen.policy.rule)


def in_process_of_its_own(arguments: Sequence[str]) -> dict[str, Any] | None:
    """Return what one search in a fresh process prints; None where it was killed, as for want of memory."""
    command = [sys.executable, "-m", "benchmarks.bench_search_parts", "--one", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        print(ran.stderr[-500:], file=sys.stderr)
        return None
    figures: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return figures


def run() -> dict[str, Any]:
    """Measure the sizes of which a run takes a few minutes."""
    return measure((10_000, 100_000), (10_000, 100_000), 2, 1000, (10_000,))


def measure(
    rules: Sequence[int], questions: Sequence[int], jobs: int, draws: int, memory: Sequence[int]
) -> dict[str, Any]:
    """Measure every size, print a table and return the figures."""
    check()
    rows = []
    print(f"{'rules':>10} {'questions':>10} {'jobs':>7} {'s':>8} {'M pairs/s':>10} {'first process':>14} {'others':>8}")
    with tempfile.TemporaryDirectory() as place:
        for n in questions:
            folder = write_parts(Path(place) / str(n), n)
            for wanted in rules:
                for how in (jobs, *([0] if n in memory else [])):
                    figures = in_process_of_its_own([str(folder), str(GRIDS[wanted]), str(how), str(draws)])
                    if figures is None:
                        print(f"{wanted:>10,} {n:>10,} {how or 'memory':>7}   was killed")
                        continue
                    rows.append(figures)
                    print(
                        f"{figures['rules']:>10,} {n:>10,} {how or 'memory':>7} {figures['seconds']:>8.1f} "
                        f"{figures['million_pairs_per_s']:>10.0f} {figures['first_mib']:>10,} MiB {figures['others_mib']:>4,} MiB",
                        flush=True,
                    )
    return {
        "name": "search_parts",
        "rows": rows,
        "part": PART,
        "seed": SEED,
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rules", type=int, nargs="+", default=[10_000, 100_000], choices=[*GRIDS])
    parser.add_argument("--questions", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument(
        "--memory", type=int, nargs="*", default=[10_000], help="numbers of questions also searched in memory"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--one", nargs=4, metavar=("FOLDER", "WIDTH", "JOBS", "DRAWS"))
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(Path(given.one[0]), *map(int, given.one[1:]))))
    else:
        print(json.dumps(measure(given.rules, given.questions, given.jobs, given.draws, given.memory)))
