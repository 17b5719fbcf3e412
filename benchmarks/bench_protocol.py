"""How long does it take to replay every policy and ablation of the semantic protocol on 100,000 trajectories of 6 drafts?

Timed: from a recording in memory to the runs of six fixed budgets, the seven sets of members, random stopping and the
oracle, tokens by component included; statistics not.  Beside it the masks of the seven rules alone, what any replay must
compute.  Asserted first: every set of members stops as a plain loop says on 300 of the trajectories.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pyarrow as pa
from tests.support.protocol_tools import plain_cell

from suffice.recordings import Recording
from suffice_papers.semantic import given
from suffice_papers.semantic.data import read_drafts
from suffice_papers.semantic.policies import CELLS, replay_all

QUESTIONS, ROUNDS, SEED, TARGET_RATIO = 100_000, 6, 42, 20.0
EPS, PATIENCE = 0.03, 2
JUDGE = "judge:information_score"


def recording() -> Recording:
    """Return random drafts with distances, a critic, a judge, and the tokens of all three."""
    rng = np.random.default_rng(SEED)
    n = QUESTIONS * ROUNDS
    rounds = np.tile(np.arange(1, ROUNDS + 1), QUESTIONS)
    later, score = rounds > 1, rng.random(n)
    columns: dict[str, Any] = {
        "question_id": np.repeat(np.arange(QUESTIONS), ROUNDS).astype(str),
        "round": rounds.astype(np.int16),
        "answer": ["a draft"] * n,
        "semantic_distance": np.where(later, rng.gamma(2, 0.05, n) / rounds, np.nan),
        "critic_approved": np.where(later, (rng.random(n) < 0.05) * 1.0, np.nan),
        "information_score": score,
        "information_gain": np.where(later, score - np.roll(score, 1), np.nan),
    }
    for component in ("writer", "critic", JUDGE):
        for kind in ("calls", "uncached_tokens", "cached_tokens", "output_tokens", "seconds"):
            columns[f"cost.{component}.{kind}"] = rng.integers(1, 100, n).astype(float)
    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
    return Recording(table, {"signal_components": {"information_score": JUDGE, "information_gain": JUDGE}})


def check(drafts: Any, found: Any) -> None:
    """Compare the stops of every set of members with plain loops on 300 trajectories."""
    names = ("semantic_distance", "critic_approved", "information_gain")
    columns = list(drafts.prepared.rounds(names).columns.values())
    for label, members in CELLS.items():
        for q in range(0, QUESTIONS, QUESTIONS // 300):
            stop, *_ = plain_cell(members, EPS, PATIENCE, *(column[q].tolist() for column in columns))
            assert found.rounds[label][q] == stop, (label, q)


def run() -> dict[str, Any]:
    """Measure, print a table and return the figures."""
    recorded, tuned = recording(), given(EPS, PATIENCE)
    times, floors = [], []
    for _ in range(5):
        began = time.perf_counter()
        drafts = read_drafts(recorded, "information_score")
        found = replay_all(drafts, tuned)
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
        for policy in found.policies.values():
            np.argmax(policy.rule.fires(drafts.prepared.view(policy)), axis=1)
        floors.append(time.perf_counter() - began)
    check(drafts, found)
    mine, floor = min(times), min(floors)
    print(f"{len(found.runs)} policies and baselines x {QUESTIONS:,} trajectories x {ROUNDS} rounds")
    print(f"  read and replayed, with costs  {mine:6.3f} s")
    print(f"  the seven rules alone          {floor:6.3f} s   ratio {mine / floor:.1f} (target {TARGET_RATIO})")
    return {
        "name": "protocol",
        "ours": mine,
        "peer": floor,
        "ratio": mine / floor,
        "target": {"ratio": TARGET_RATIO},
        "met": mine <= TARGET_RATIO * floor,
        "sizes": {"questions": QUESTIONS, "rounds": ROUNDS, "policies": len(found.runs)},
    }


if __name__ == "__main__":
    print(json.dumps(run()))
