"""How long does it take to replay every policy of Semantic Early-Stopping on 100,000 trajectories of six rounds?

Policies: the seven cells of the ablation, among them the full cascade, the judge-free rule and the critic alone; every
fixed budget; the exact random twin of each of these three; the oracle.  For each: where every question stops and why,
which draft it returns, its score, and the whole ledger by component and kind (calls on demand charged lazily).  Timed
from a recording in memory, its columns laid out anew each time; not timed: reading the file, and drawing intervals,
whose time is that of a matrix product of questions by draws.  Asserted first, on every trajectory and cell: stops and
judged rounds equal a plain loop, which is timed as well.
"""

from __future__ import annotations

import json
import platform
import time
from typing import Any

import numpy as np
from tests.support.cascade import ROUNDS, TOGGLES, cascade, drafts, rule_of

from suffice.evaluation.replay.baselines import Run, fixed_budget, oracle_best, run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.random_twins import random_stop
from suffice.policy.session import Policy
from suffice.recordings import Recording

TRAJECTORIES, EPS, PATIENCE, SEED = 100_000, 0.06, 2, 42
NAMED = ("full", "entropy_only", "critic_only")
SCORE = "information_score"
TARGET_RATIO = 1.0
REPEATS = 5


def policies() -> dict[str, Policy]:
    """Return the cells of the ablation by name."""
    cells = {name: toggles for name, toggles in TOGGLES.items() if name != "none"}
    return {
        name: Policy(rule=rule_of(toggles, EPS, PATIENCE), max_rounds=ROUNDS, name=name)
        for name, toggles in cells.items()
    }


def replayed(recording: Recording, listed: dict[str, Policy]) -> tuple[PreparedRecording, list[Run]]:
    """Replay everything."""
    prepared = PreparedRecording.of(recording, [SCORE])
    runs, twins = [], []
    for name, policy in listed.items():
        run, stopped = run_policy(prepared, policy)
        runs.append(run)
        if name in NAMED:
            twins.append(random_stop(prepared, policy, stopped))
    fixed = [fixed_budget(prepared, k) for k in range(1, ROUNDS + 1)]
    return prepared, [*runs, *twins, *fixed, oracle_best(prepared, prepared.metrics[SCORE], name=SCORE)]


def check(recording: Recording, drawn: Any) -> float:
    """Compare every cell with a plain loop; return the loop's seconds."""
    _, runs = replayed(recording, policies())
    columns = [array.tolist() for array in (drawn.approved, drawn.distance, drawn.score)]
    seconds = 0.0
    for run in runs[: len(policies())]:
        options = {"max_rounds": ROUNDS, "eps": EPS, "patience": PATIENCE, "toggles": TOGGLES[run.label]}
        began = time.perf_counter()
        told = [cascade(a, d, s, ROUNDS, **options) for a, d, s in zip(*columns, strict=True)]
        seconds += time.perf_counter() - began
        assert run.rounds is not None
        assert run.rounds.tolist() == [stop for stop, _, _, _ in told], run.label
        judged = run.ledger.costs[f"judge:{SCORE}"]["calls"]
        assert judged.tolist() == [float(bits.bit_count()) for _, _, bits, _ in told], run.label
    return seconds


def run() -> dict[str, Any]:
    """Assert, measure, print a table and return the figures."""
    drawn = drafts(TRAJECTORIES, np.random.default_rng(SEED), odd=False)
    recording = drawn.recording()
    _ = recording.answers, recording.ends
    loop_s = check(recording, drawn)
    listed = policies()
    wall, processor, n_runs = [], [], 0
    for _ in range(REPEATS):
        began, used = time.perf_counter(), time.process_time()
        n_runs = len(replayed(recording, listed)[1])
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    best, cpu = min(wall), min(processor)
    print(f"replay of {n_runs} policies x {TRAJECTORIES:,} trajectories x {ROUNDS} rounds")
    print(f"  wall      {best:7.3f} s, least of {REPEATS}")
    print(f"  processor {cpu:7.3f} s")
    print(
        f"  a plain loop over the {len(listed)} cells, stops and judged rounds alone: {loop_s:.3f} s, ratio {best / loop_s:.2f} (target {TARGET_RATIO})"
    )
    return {
        "name": "trajectories",
        "ours": best,
        "processor": cpu,
        "peer": loop_s,
        "ratio": best / loop_s,
        "unit": "seconds",
        "met": best <= TARGET_RATIO * loop_s,
        "target": {"ratio": TARGET_RATIO},
        "sizes": {"trajectories": TRAJECTORIES, "rounds": ROUNDS, "policies": n_runs, "kinds": 5, "components": 4},
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }


if __name__ == "__main__":
    print(json.dumps(run()))
