"""How fast is an exhaustive search?

Four sizes on 300 questions x 5 rounds, each from recorded columns to the figures of every rule:

- `tasr-dnf-876`, 1,000 paired draws, F1 and calls;
- 114,003 rules (grids of 9 thresholds on four signals) with draws: how near the matrix product comes to this machine's
  GEMM peak, and the whole to the bare product and partition;
- 1,068,096 rules (grids of 16) without draws, and once with 1,000, in a process of its own for its peak memory.

Asserted first: stops equal plain loops on 50 random rules of each space; rules are merged where they stop alike and
nowhere else; means and intervals equal those of `replay_matrix` and `paired_bootstrap`.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from tests.support import reference
from threadpoolctl import threadpool_limits

from benchmarks.bench_replay import THRESHOLDS, data, interleaved
from suffice.evaluation.replay import replay_matrix
from suffice.evaluation.search import Block, Explorer, Literal, Space
from suffice.evaluation.search.data import Questions
from suffice.evaluation.search.engine import difference_columns
from suffice.evaluation.search.optimism import Trials
from suffice.evaluation.statistics import Resampling, bootstrap_weights, paired_bootstrap
from suffice.evaluation.statistics.bootstrap import quantiles
from suffice.policy.rounds import Floats
from suffice.policy.rules import fixed_k, tasr
from suffice.policy.session import Policy
from suffice.recordings import Recording
from suffice.recordings.schema import build_table

DRAWS, SEED, BASELINE = 1000, 42, 3
SIGNALS = ("p_correct", "calibrated_confidence", "top_score_z", "score_gap")
TARGETS = {"small_ratio": 3.0, "gemm_share": 0.6, "whole_ratio": 2.0, "growth": 1.5, "growth_draws": 1.5, "gib": 4.0}


def questions() -> Questions:
    """Return the recorded questions of the replay benchmark, ready for a search."""
    view, f1, calls = data()
    rows = [
        {
            "question_id": f"q{q}",
            "round": r + 1,
            "answer": "an answer",
            "f1": f1[q, r],
            "cost.generator.calls": calls[q, r],
            **{name: column[q, r] for name, column in view.columns.items()},
        }
        for q in range(len(f1))
        for r in range(len(view))
    ]
    reads = tasr()
    for name in THRESHOLDS:
        reads = reads | Literal(signal=name, thresholds=(0.5,)).threshold(0)
    return Questions.of(
        {"": Recording(build_table(rows))}, {"": Policy(rule=reads)}, metric="f1", baseline=f"fixed_k({BASELINE})"
    )


def published() -> Space:
    """Return `tasr-dnf-876` with locked thresholds."""
    literals = tuple(Literal(signal=name, thresholds=(value,)) for name, value in THRESHOLDS.items())
    return Space(name="tasr-dnf-876", blocks=(Block(form="dnf", literals=literals),))


def grids(on: Questions, width: int) -> Space:
    """Return all normal forms over four signals with `width` thresholds each."""
    view = on.sides[""].view
    levels = np.linspace(0.3, 0.97, width)
    literals = tuple(
        Literal(signal=name, thresholds=tuple(np.nanquantile(view[name], levels).tolist())) for name in SIGNALS
    )
    return Space(name=f"grids of {width}", blocks=(Block(form="dnf", literals=literals),))


def whole(on: Questions, space: Space, draws: int) -> dict[str, Floats]:
    """Return the means of every distinct rule, and intervals of its differences in F1 and calls."""
    trials = Trials.of(Explorer(space, on), budget=3.0)
    columns = dict(trials.means)
    if draws:
        columns |= difference_columns(trials, Resampling(n_resamples=draws, seed=SEED).draws(len(on)))
    return columns | {"number": trials.distinct.number, "members": trials.distinct.members}


def check(on: Questions, space: Space) -> None:
    """Compare stops with plain loops, and figures with those of replay, on 50 random rules."""
    explorer = Explorer(space, on)
    side = on.sides[""]
    numbers = np.sort(np.random.default_rng(SEED).choice(space.count, 50, replace=False))
    rules = explorer.rules(numbers)
    stops = np.concatenate([position for _, _, position in explorer.positions(numbers)])
    for rule, stopped in zip(rules, stops, strict=True):
        for q in range(len(on)):
            rows = [{name: column[q, t] for name, column in side.view.columns.items()} for t in range(len(side.view))]
            assert stopped[q] == reference.stop(rule, rows)[0], (str(rule), q)
    outcomes = replay_matrix(side.view, rules, {name: side.tables[name] for name in ("quality", "calls")})
    means = explorer.means(numbers)
    for name, values in outcomes.items():
        assert np.allclose(means[name], values.mean(axis=1), rtol=0, atol=1e-12)


def check_merged(on: Questions, space: Space) -> None:
    """Compare what is merged, and the intervals, with all rules one by one."""
    explorer = Explorer(space, on)
    everything = np.arange(space.count)
    stops = np.concatenate([position for _, _, position in explorer.positions(everything)])
    found = whole(on, space, DRAWS)
    assert len(found["number"]) == len(np.unique(stops, axis=0))
    assert found["members"].sum() == space.count
    side = on.sides[""]
    rules = explorer.rules(found["number"])
    values = replay_matrix(side.view, rules, {"quality": side.tables["quality"]})["quality"]
    weights = bootstrap_weights(len(on), DRAWS, rng=SEED)
    baseline = side.tables["quality"][:, BASELINE - 1]
    assert str(fixed_k(BASELINE)) == f"round >= {BASELINE}"
    expected = paired_bootstrap(values - baseline, weights)
    assert np.allclose(found["low"], expected.low, rtol=0, atol=1e-12)
    assert np.allclose(found["high"], expected.high, rtol=0, atol=1e-12)


def least(call: Callable[[], Any], times: int) -> float:
    """Return the least wall seconds."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return min(found)


def gemm_share(block: int, rows: int) -> tuple[float, float]:
    """Return the speed of the search's matrix product as a share of this machine's GEMM peak, and that peak.

    A block of rules times all draws, and square products of as many operations and of more, in turns and on one core, so
    that a busy machine slows all alike; operations a second, the best of each.
    """
    rng = np.random.default_rng(SEED)
    n = round((block * rows * DRAWS) ** (1 / 3))
    deltas, weights = rng.random((block, rows)), rng.random((DRAWS, rows))
    equal, large = rng.random((n, n)), rng.random((2 * n, 2 * n))
    with threadpool_limits(1):
        times = interleaved([lambda: deltas @ weights.T, lambda: equal @ equal, lambda: large @ large], 30)
    speed = 2 * block * rows * DRAWS / times[0][0]
    peak = max(2 * n**3 / times[1][0], 2 * (2 * n) ** 3 / times[2][0])
    return speed / peak, peak


def bare(on: Questions, space: Space) -> Callable[[], None]:
    """Return the bare products with partition that the same distinct rules need."""
    explorer = Explorer(space, on)
    number = explorer.distinct().number
    weights = bootstrap_weights(len(on), DRAWS, rng=SEED)
    deltas = {name: np.empty((len(number), len(on))) for name in ("quality", "calls")}
    for part, found in explorer.deltas(number):
        for name, values in found.items():
            deltas[name][part] = values

    def call() -> None:
        for values in deltas.values():
            for start in range(0, len(values), explorer.step):
                quantiles(values[start : start + explorer.step] @ weights.T, (0.025, 0.975))

    return call


def million_with_draws() -> None:
    """Print seconds and peak memory of the largest search; run in a process of its own."""
    on = questions()
    space = grids(on, 16)
    begin = time.perf_counter()
    found = whole(on, space, DRAWS)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "gib": peak, "rules": space.count, "distinct": len(found["number"])}))


def run() -> dict[str, Any]:
    """Measure, print a table and return the figures."""
    on = questions()
    small, middle, large = published(), grids(on, 9), grids(on, 16)
    assert (small.count, middle.count, large.count) == (876, 114_003, 1_068_096)
    for space in (small, middle, large):
        check(on, space)
    check_merged(on, small)
    (small_s, _), (small_bare_s, _) = interleaved([lambda: whole(on, small, DRAWS), bare(on, small)], 15)
    share, peak = gemm_share(Explorer(middle, on).step, len(on))
    (middle_s, _), (bare_s, _) = interleaved([lambda: whole(on, middle, DRAWS), bare(on, middle)], 3)
    large_s, plain_s = least(lambda: whole(on, large, 0), 3), least(lambda: whole(on, middle, 0), 3)
    growth = (large_s / large.count) / (plain_s / middle.count)
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_search", "--million"], capture_output=True, text=True, check=True
    )
    million = json.loads(ran.stdout)
    distinct = len(Explorer(middle, on).distinct().number)
    growth_draws = (million["seconds"] / million["distinct"]) / (middle_s / distinct)
    print("exhaustive search, 300 questions x 5 rounds")
    print(
        f"  876 rules x {DRAWS} draws, F1 and calls     {small_s:8.4f} s   ratio {small_s / small_bare_s:.2f} to the bare products (target 3)"
    )
    print(
        f"  {middle.count:,} rules: matrix product      {share:8.0%}     of GEMM peak ({peak / 1e9:.0f} GF/s a core; target 60%)"
    )
    print(f"      bare product + partition          {bare_s:8.2f} s")
    print(f"      whole                             {middle_s:8.2f} s   ratio {middle_s / bare_s:.2f} (target 2)")
    print(
        f"  {large.count:,} rules without draws      {large_s:8.2f} s   {growth:.2f} times as long a rule as {middle.count:,} (target 1.5)"
    )
    print(
        f"      with {DRAWS} draws                   {million['seconds']:8.2f} s   {million['gib']:.2f} GiB at most, "
        f"{million['distinct']:,} distinct, {growth_draws:.2f} times as long each (targets 4 GiB, 1.5)"
    )
    met = {
        "small_ratio": small_s / small_bare_s <= TARGETS["small_ratio"],
        "gemm_share": share >= TARGETS["gemm_share"],
        "whole_ratio": middle_s / bare_s < TARGETS["whole_ratio"],
        "growth": growth <= TARGETS["growth"],
        "growth_draws": growth_draws <= TARGETS["growth_draws"],
        "gib": million["gib"] < TARGETS["gib"],
    }
    return {
        "name": "search",
        "ours": middle_s,
        "peer": bare_s,
        "ratio": middle_s / bare_s,
        "876_s": small_s,
        "small_ratio": small_s / small_bare_s,
        "growth": growth,
        "growth_draws": growth_draws,
        "gemm_share": share,
        "gemm_peak": peak,
        "million_s": large_s,
        "million_with_draws": million,
        "target": TARGETS,
        "met": all(met.values()),
        "each_met": met,
        "sizes": {"questions": len(on), "rounds": 5, "draws": DRAWS, "rules": [876, middle.count, large.count]},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": version("scipy")},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--million", action="store_true")
    if parser.parse_args().million:
        million_with_draws()
    else:
        print(json.dumps(run()))
