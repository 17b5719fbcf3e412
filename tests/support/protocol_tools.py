"""Recordings of drafts whose winner, trend and members are known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from suffice.recordings import Recording
from suffice.recordings.schema import build_table

EMBEDDER = {"id": "planted", "revision": "1", "pooling": "mean"}
NAN = math.nan


def row(q: str, r: int, *, distance: float = NAN, score: float = 0.5, gain: float = NAN, **more: Any) -> dict[str, Any]:
    """One draft: a writer's call of 100 tokens, a critic's of 50, a judge's of 1,000."""
    costs = {"writer": 100.0, "critic": 50.0, "judge:information_score": 1000.0}
    found = {
        "question_id": q,
        "round": r,
        "end": "max_rounds",
        "question": f"Question {q}?",
        "answer": f"draft {r} of {q}",
        "text": f"draft {r} of {q}",
        "feedback": "Say more.",
        "semantic_distance": distance,
        "critic_approved": 0.0 if r > 1 else NAN,
        "information_score": score,
        "information_gain": gain,
    }
    for component, tokens in costs.items():
        found |= {
            f"cost.{component}.calls": 1.0,
            f"cost.{component}.uncached_tokens": tokens,
            f"cost.{component}.cached_tokens": 0.0,
            f"cost.{component}.output_tokens": 10.0,
            f"cost.{component}.seconds": 0.1,
        }
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in (found | more).items()}


def table(rows: list[dict[str, Any]], **metadata: Any) -> Recording:
    kinds = {"information_score": "metric", "information_gain": "signal", "flag": "metric"}
    components = {"information_score": "judge:information_score", "information_gain": "judge:information_score"}
    told = {"depends": {"embedder": EMBEDDER}, "signal_components": components}
    return Recording(build_table(rows, kinds=kinds), told | metadata)


def drafts(
    n: int,
    *,
    rounds: int = 6,
    seed: int = 0,
    prefix: str = "q",
    quality: tuple[float, ...] | None = None,
    approve: float = 0.0,
    shorter: float = 0.0,
    **metadata: Any,
) -> Recording:
    """Drafts of `n` questions whose distances fall noisily; scores vary about `quality` by round, level by default."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(n):
        last = int(rng.integers(1, rounds)) if rng.random() < shorter else rounds
        level, before = rng.uniform(0.35, 0.65), NAN
        for r in range(1, last + 1):
            score = float(np.clip((level if quality is None else quality[r - 1]) + rng.normal(0, 0.08), 0, 1))
            rows.append(
                row(
                    f"{prefix}{q}",
                    r,
                    distance=float(rng.gamma(2, 0.05) / r) if r > 1 else NAN,
                    score=score,
                    gain=score - before,
                    critic_approved=float(rng.random() < approve) if r > 1 else None,
                    end="max_rounds" if last == rounds else "exhausted",
                )
            )
            before = score
    return table(rows, **metadata)


def plain_cell(members, eps, patience, distance, approved=(), gain=()):  # noqa: PLR0917
    """Where a cascade stops on one question (rounds from 1), the rounds whose judge it asks, and the critiques it reads.

    The critic is the first member, so it is read from round 2 on where it is on; else the next draft reads it: the
    recorded loop made none after round 6, and a shorter one found its end by its critic's reply.
    """
    asked = set()
    for t in range(1, len(distance) + 1):
        read = t if "critic" in members and t >= 2 else t - 1
        if "critic" in members and t >= 2 and approved[t - 1] == 1:
            return t, asked, t
        window = [distance[t - 1 - back] for back in range(patience)] if t >= patience + 1 else [NAN]
        if "convergence" in members and all(d < eps for d in window):
            return t, asked, read
        if "gain" in members and t >= 2:
            asked |= {t - 1, t}
            if gain[t - 1] <= 0:
                return t, asked, read
    return len(distance), asked, len(distance) if len(distance) < 6 else read
