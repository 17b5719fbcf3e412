"""Planted recordings: questions whose answers settle, with a known share of traps that a stopping rule falls into."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from suffice.policy.metrics import exact_match, f1
from suffice.policy.rounds import COST_KINDS
from suffice.recordings import Recording, write_recording
from suffice.recordings.schema import build_table

ROUNDS = 5


def rows(n: int, *, seed: int, prefix: str = "q", traps: float = 0.0, hopeless: float = 0.3, **columns) -> list[dict]:
    """Return rows of `n` questions.

    An answer wanders, settles at round 1 to 3 and is then right and sure, except for a share `hopeless`, which wanders to
    the end.  A share `traps` is stable, sure and wrong at rounds 1 to 3 and right after: every early stop loses there.
    """
    rng = np.random.default_rng(seed)
    out = []
    for q in range(n):
        settles, kind = int(rng.integers(1, 4)), rng.random()
        before = None
        for r in range(1, ROUNDS + 1):
            right = r >= settles and kind >= hopeless
            answer = "gold" if right else f"wrong {r}"
            margin = (3.0 if right else 0.3) + rng.random()
            if kind > 1 - traps:
                right, answer, margin = r > 3, "gold" if r > 3 else "wrong", 3.0 + rng.random()
            row = {
                "question_id": f"{prefix}{q}",
                "round": r,
                "end": "max_rounds",
                "answer": answer,
                "answer_margin": margin,
                "answer_stable": math.nan if before is None else float(answer == before),
                "em": exact_match(answer, ["gold"]),
                "f1": f1(answer, ["gold"]),
                **{f"cost.generator.{kind_}": 100.0 if kind_ == "uncached_tokens" else 0.0 for kind_ in COST_KINDS},
                "cost.generator.calls": 1.0,
            }
            out.append(row | {name: value(q, r) if callable(value) else value for name, value in columns.items()})
            before = answer
    return out


def planted(n: int, *, seed: int, **options) -> Recording:
    """Return the recording of `rows`."""
    return Recording(build_table(rows(n, seed=seed, **options)))


def write(path: Path, made: list[dict], **metadata) -> Path:
    """Write rows as a recording."""
    write_recording(path, made, metadata)
    return path
