"""How long do the diagnostics of 100,000 recorded rounds take?

20,000 questions x 5 rounds with 21 signals, TASR calibrated on 200 other questions: everything that `diagnose` makes, tables
included, with 1,000 draws.  Asserted first: the area under the curve is scikit-learn's, and the sweep holds, at the policy's own
threshold, what `replay` says.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.metrics import roc_auc_score

from suffice.evaluation.replay import calibrate, replay
from suffice.evaluation.statistics import Resampling
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.verdicts.diagnostics import Diagnosis, diagnose

QUESTIONS, ROUNDS, EXTRA, SEED = 20_000, 5, 18, 42
TARGET_RATIO = 15.0


def recording(questions: int, seed: int, prefix: str) -> Recording:
    """Return synthetic rounds whose signals tell right from wrong to different degrees."""
    rng = np.random.default_rng(seed)
    n = questions * ROUNDS
    rounds, question = np.tile(np.arange(1, ROUNDS + 1), questions), np.repeat(np.arange(questions), ROUNDS)
    easy = rng.normal(size=questions)[question]
    right = (easy + rng.normal(size=n) > 0).astype(float)
    signals = {
        "answer_margin": np.abs(3 * rng.normal(size=n) + easy + right),
        "answer_stable": np.where(rounds == 1, np.nan, rng.integers(0, 2, n)),
        "verbal_confidence": rng.integers(1, 6, n).astype(float),
        **{f"signal_{i}": rng.normal(size=n) + 0.1 * i * right for i in range(EXTRA)},
    }
    columns: dict[str, Any] = {
        "question_id": [f"{prefix}{q}" for q in question],
        "round": rounds.astype(np.int16),
        "question_type": np.where(question % 3 == 0, "comparison", "bridge"),
        "answer": [f"answer {a}" for a in rng.integers(0, 3, n)],
        "em": right,
        "f1": np.maximum(right, 0.5 * rng.random(n)),
        "cost.generator.calls": np.ones(n),
        **signals,
    }
    fields = [
        pa.field(name, pa.array(values).type, metadata={"kind": "signal"} if name in signals else None)
        for name, values in columns.items()
    ]
    return Recording(pa.table(columns, schema=pa.schema(fields)))


def check(found: Diagnosis, kept: Recording, policy: Policy) -> None:
    """Compare one figure of each core with its reference."""
    em = kept.column("em").ravel()
    for name in ("answer_margin", "signal_9"):
        expected = roc_auc_score(em, kept.column(name).ravel())
        assert abs(found.parts["signals"].signal(name).auroc - expected) < 1e-9
    own = next(point for point in found.parts["sweep p_correct > 0.25"].points if point.own)
    row = replay(kept, [policy], resampling=Resampling(n_resamples=2)).row("tasr")
    assert (own.quality, own.calls) == (row.metrics["f1"], row.calls.mean)


def bare(kept: Recording) -> None:
    """Do what any diagnosis must, with scikit-learn: the AUROC of every signal, and of each round of it."""
    em = kept.column("em")
    for name in kept.names("signal"):
        values = kept.column(name)
        for round_values, right in [(values, em), *zip(values.T, em.T, strict=True)]:
            defined = ~np.isnan(round_values)
            if defined.any():
                roc_auc_score(right[defined], round_values[defined])


def run() -> dict[str, Any]:
    """Measure, print a table and return the figures."""
    tune, kept = recording(200, SEED + 1, "t"), recording(QUESTIONS, SEED, "q")
    policy, _ = calibrate(tune, rule="tasr")
    check(diagnose(kept, policy=policy, tune=tune), kept, policy)
    seconds, floors = [], []
    for _ in range(3):
        began = time.perf_counter()
        diagnose(kept, policy=policy, tune=tune).tables()
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        bare(kept)
        floors.append(time.perf_counter() - began)
    best, floor = min(seconds), min(floors)
    print(f"diagnostics of {QUESTIONS * ROUNDS:,} rounds, {EXTRA + 3} signals: {best:.2f} s")
    print(f"  AUROCs alone, with scikit-learn: {floor:.2f} s, ratio {best / floor:.2f} (target {TARGET_RATIO})")
    return {
        "name": "diagnose",
        "ours": best,
        "peer": floor,
        "ratio": best / floor,
        "target": {"ratio": TARGET_RATIO},
        "met": best <= TARGET_RATIO * floor,
        "sizes": {"questions": QUESTIONS, "rounds": ROUNDS, "signals": EXTRA + 3, "draws": 1000},
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
    }


if __name__ == "__main__":
    print(json.dumps(run()), file=sys.stdout)
