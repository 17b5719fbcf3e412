"""How long does it take to replay 876 rules and put bootstrap intervals on F1 and calls?

300 questions x 5 rounds, the family of all disjunctive normal forms over six signals in which each signal appears at
most once (every set partition of every subset: 876), 1,000 paired draws.  Ours is timed from the raw columns to the
intervals; beside it the bare matrix product and partition that the bootstrap needs, and a pandas version of the whole.
Asserted first: stops equal plain loops on 50 random rules, and the pandas version finds the same intervals.
"""

from __future__ import annotations

import json
import platform
import random
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from tests.support import reference

from suffice.evaluation.replay import replay_matrix
from suffice.evaluation.replay.outcomes import answers_by_stop, values_by_stop
from suffice.evaluation.search import Block, Literal
from suffice.evaluation.search.families import FormFamily
from suffice.evaluation.statistics import Intervals, paired_bootstrap
from suffice.policy.rounds import Floats, Rounds
from suffice.policy.rules import AllOf, AnyOf, Rule
from suffice.policy.rules.selectors import Last
from suffice_papers.multinomial import bootstrap_weights

QUESTIONS, ROUNDS, DRAWS, SEED = 300, 5, 1000, 42
THRESHOLDS = {
    "p_correct": 0.6,
    "answer_stable": 0.5,
    "calibrated_confidence": 0.55,
    "overlap": 0.4,
    "top_score_z": 0.8,
    "score_gap": 1.2,
}
TARGET_RATIO = 1.5


def dnf_family() -> list[Rule]:
    """Return one rule for each set partition of each non-empty subset: blocks are joined by &, then by |."""
    literals = tuple(Literal(signal=name, thresholds=(value,)) for name, value in THRESHOLDS.items())
    family = FormFamily(Block(form="dnf", literals=literals))
    codes = family.decode(np.arange(family.count))
    return [family.rule(codes, row) for row in range(family.count)]


def data() -> tuple[Rounds, Floats, Floats]:
    """Return signals with NaN where TASR's are undefined, F1 and calls of every round."""
    rng = np.random.default_rng(SEED)
    shape = (QUESTIONS, ROUNDS)
    columns = {
        "p_correct": rng.random(shape),
        "answer_stable": rng.integers(0, 2, shape).astype(float),
        "calibrated_confidence": rng.random(shape),
        "overlap": rng.random(shape),
        "top_score_z": rng.normal(size=shape),
        "score_gap": rng.exponential(size=shape),
    }
    columns["answer_stable"][:, 0] = columns["overlap"][:, 0] = np.nan
    columns["p_correct"][rng.random(shape) < 0.05] = np.nan
    answers = np.full(shape, "an answer", dtype=object)
    view = Rounds(columns, np.arange(1, ROUNDS + 1), np.ones(shape, dtype=bool), answers)
    return view, np.round(rng.random(shape), 2), np.ones(shape)


def ours(view: Rounds, rules: list[Rule], f1: Floats, calls: Floats, baseline: int) -> dict[str, Intervals]:
    """Return the intervals of F1 and calls of every rule against `fixed_k(baseline)`."""
    by_stop = {
        "f1": values_by_stop(answers_by_stop(Last(), view), view.seen, f1),
        "calls": np.cumsum(calls, axis=1),
    }
    outcomes = replay_matrix(view, rules, by_stop)
    weights = bootstrap_weights(QUESTIONS, DRAWS, rng=SEED)
    return {
        name: paired_bootstrap(outcomes[name] - by_stop[name][:, baseline - 1], weights, method="percentile")
        for name in ("f1", "calls")
    }


def with_pandas(view: Rounds, rules: list[Rule], f1: Floats, calls: Floats, baseline: int) -> dict[str, pd.DataFrame]:
    """Do the same in pandas: one frame a literal, boolean algebra, idxmax, and a resampled mean for each draw."""
    held = {name: pd.DataFrame(view[name]) > value for name, value in THRESHOLDS.items()}
    frames = {"f1": pd.DataFrame(f1), "calls": pd.DataFrame(calls).cumsum(axis=1)}
    values: dict[str, dict[int, Any]] = {"f1": {}, "calls": {}}
    for number, rule in enumerate(rules):
        blocks = rule.rules if isinstance(rule, AnyOf) else (rule,)
        fires = None
        for block in blocks:
            members = block.rules if isinstance(block, AllOf) else (block,)
            both = held[members[0].name]
            for member in members[1:]:
                both = both & held[member.name]
            fires = both if fires is None else fires | both
        stop = fires.idxmax(axis=1).where(fires.any(axis=1), ROUNDS - 1)
        for name, frame in frames.items():
            values[name][number] = frame.to_numpy()[np.arange(QUESTIONS), stop.to_numpy()]
    drawn = np.random.default_rng(SEED).integers(0, QUESTIONS, size=(DRAWS, QUESTIONS))
    result = {}
    for name, columns in values.items():
        deltas = pd.DataFrame(columns).sub(frames[name][baseline - 1], axis=0)
        means = pd.DataFrame([deltas.take(rows).mean() for rows in drawn])
        result[name] = means.quantile([0.025, 0.975])
    return result


def check(view: Rounds, rules: list[Rule], f1: Floats) -> None:
    """Compare stops with plain loops on 50 random rules."""
    rng = random.Random(SEED)
    for rule in rng.sample(rules, 50):
        found = replay_matrix(view, [rule], {"f1": f1})["f1"][0]
        for q in range(QUESTIONS):
            rows = [{name: column[q, t] for name, column in view.columns.items()} for t in range(ROUNDS)]
            assert found[q] == f1[q, reference.stop(rule, rows)[0]], (str(rule), q)


def interleaved(measured: Sequence[Callable[[], Any]], times: int) -> list[tuple[float, float]]:
    """Return the least wall and the least processor seconds of each, run in turns so that a busy machine slows all."""
    wall, processor = [[[] for _ in measured] for _ in range(2)]
    for _ in range(times):
        for position, call in enumerate(measured):
            begin, used = time.perf_counter(), time.process_time()
            call()
            wall[position].append(time.perf_counter() - begin)
            processor[position].append(time.process_time() - used)
    return [(min(w), min(p)) for w, p in zip(wall, processor, strict=True)]


def run() -> dict[str, Any]:
    """Measure, print a table and return the figures."""
    rules = dnf_family()
    assert len(rules) == len(set(map(str, rules))) == 876
    view, f1, calls = data()
    check(view, rules, f1)
    baseline = 3
    weights = bootstrap_weights(QUESTIONS, DRAWS, rng=SEED)
    tables = {"f1": f1, "calls": np.cumsum(calls, axis=1)}
    outcomes = replay_matrix(view, rules, tables)
    deltas = [outcomes[name] - table[:, baseline - 1] for name, table in tables.items()]
    places = [24, 25, 974, 975]

    def bare() -> None:
        for rows in deltas:
            (rows @ weights.T).partition(places, axis=-1)

    found = ours(view, rules, f1, calls, baseline)
    start = time.perf_counter()
    peer = with_pandas(view, rules, f1, calls, baseline)
    pandas_s = time.perf_counter() - start
    for name, intervals in found.items():
        assert np.allclose(intervals.low, peer[name].loc[0.025], rtol=0, atol=1e-12)
        assert np.allclose(intervals.high, peer[name].loc[0.975], rtol=0, atol=1e-12)
    (mine, mine_cpu), (floor, floor_cpu) = interleaved([lambda: ours(view, rules, f1, calls, baseline), bare], 25)
    print(
        f"replay + bootstrap of {len(rules)} rules x {QUESTIONS} questions x {ROUNDS} rounds x {DRAWS} draws, 2 metrics"
    )
    print(f"  ours                      {mine:8.4f} s")
    print(f"  bare product + partition  {floor:8.4f} s   ratio {mine / floor:.2f} (target {TARGET_RATIO})")
    print(
        f"  processor time            {mine_cpu:8.4f} s   against {floor_cpu:.4f} s, ratio {mine_cpu / floor_cpu:.2f}"
    )
    print(f"  pandas, checked equal     {pandas_s:8.4f} s   {pandas_s / mine:.0f} times ours")
    return {
        "name": "replay",
        "ours": mine,
        "peer": floor,
        "ratio": mine / floor,
        "processor": {"ours": mine_cpu, "peer": floor_cpu, "ratio": mine_cpu / floor_cpu},
        "pandas": pandas_s,
        "target": {"ratio": TARGET_RATIO},
        "met": mine / floor < TARGET_RATIO,
        "sizes": {"rules": len(rules), "questions": QUESTIONS, "rounds": ROUNDS, "draws": DRAWS, "metrics": 2},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "pandas": version("pandas")},
    }


if __name__ == "__main__":
    print(json.dumps(run()))
