"""How fast is an exhaustive search?

Three sizes on 300 questions x 5 rounds, each from prepared columns to the figures of every rule:

- `tasr-dnf-876`;
- 114,003 rules (grids of 9 thresholds on four signals): how near the whole to a plain look-up of each rule's outcomes;
- 1,068,096 rules (grids of 16), in a process of its own for its peak memory.

Asserted first: stops equal plain loops on 50 random rules of each space; rules are merged where they stop alike and
nowhere else; means and intervals equal those of `replay_matrix` and `paired_t`.
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

from benchmarks.bench_replay import THRESHOLDS, data, interleaved
from suffice.evaluation.replay import replay_matrix
from suffice.evaluation.search import Block, Explorer, Literal, Space
from suffice.evaluation.search.data import Questions
from suffice.evaluation.search.estimates import difference_columns_of
from suffice.evaluation.search.optimism import Trials
from suffice.evaluation.search.sums import RuleSums
from suffice.evaluation.statistics import paired_t
from suffice.policy.rounds import Floats
from suffice.policy.rules import fixed_k, tasr
from suffice.policy.session import Policy
from suffice.recordings import Recording
from suffice.recordings.schema import build_table

FOLDS, LEVEL, SEED, BASELINE = 5, 0.95, 42, 3
SIGNALS = ("p_correct", "calibrated_confidence", "top_score_z", "score_gap")
TARGETS = {"whole_ratio": 1.5, "growth": 1.5, "gib": 4.0}


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


def whole(on: Questions, space: Space) -> dict[str, Floats]:
    """Return the means of every distinct rule, and intervals of its differences in F1 and calls."""
    sums = RuleSums.zero(space.count, FOLDS, tokens=True, errors=True)
    sums.add_questions(space, on, np.arange(len(on)) % FOLDS)
    explorer = Explorer(space, on)
    distinct = explorer.distinct_by(sums.hashes)
    trials = Trials(explorer=explorer, distinct=distinct, means=sums.means(distinct.number), budget=3.0)
    columns = {**trials.means, **difference_columns_of(sums, trials, LEVEL)}
    return columns | {"number": distinct.number, "members": distinct.members}


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
    found = whole(on, space)
    assert len(found["number"]) == len(np.unique(stops, axis=0))
    assert found["members"].sum() == space.count
    side = on.sides[""]
    rules = explorer.rules(found["number"])
    values = replay_matrix(side.view, rules, {"quality": side.tables["quality"]})["quality"]
    baseline = side.tables["quality"][:, BASELINE - 1]
    assert str(fixed_k(BASELINE)) == f"round >= {BASELINE}"
    expected = paired_t(values - baseline, level=LEVEL)
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


def million() -> None:
    """Print seconds and peak memory of the largest search; run in a process of its own."""
    on = questions()
    space = grids(on, 16)
    begin = time.perf_counter()
    found = whole(on, space)
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
    small_s = least(lambda: whole(on, small), 15)
    everything = np.arange(middle.count)
    looked_up = [lambda: whole(on, middle), lambda: Explorer(middle, on).means(everything)]
    (middle_s, _), (bare_s, _) = interleaved(looked_up, 3)
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_search", "--million"], capture_output=True, text=True, check=True
    )
    largest = json.loads(ran.stdout)
    growth = (largest["seconds"] / large.count) / (middle_s / middle.count)
    print("exhaustive search, 300 questions x 5 rounds: figures and intervals of F1 and calls")
    print(f"  876 rules                        {small_s:8.4f} s")
    print(
        f"  {middle.count:,} rules                    {middle_s:8.2f} s   ratio {middle_s / bare_s:.2f} to a look-up (1.5)"
    )
    print(
        f"  {large.count:,} rules                  {largest['seconds']:8.2f} s   {growth:.2f} times as long a rule (1.5), "
        f"{largest['gib']:.2f} GiB at most (4), {largest['distinct']:,} distinct"
    )
    met = {
        "whole_ratio": middle_s / bare_s < TARGETS["whole_ratio"],
        "growth": growth <= TARGETS["growth"],
        "gib": largest["gib"] < TARGETS["gib"],
    }
    return {
        "name": "search",
        "ours": middle_s,
        "peer": bare_s,
        "ratio": middle_s / bare_s,
        "876_s": small_s,
        "growth": growth,
        "million": largest,
        "target": TARGETS,
        "met": all(met.values()),
        "each_met": met,
        "sizes": {"questions": len(on), "rounds": 5, "rules": [876, middle.count, large.count]},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": version("scipy")},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--million", action="store_true")
    if parser.parse_args().million:
        million()
    else:
        print(json.dumps(run()))
