"""Recordings of two to four rounds with a known loss, for attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.policy.rounds import Floats, Mask
from suffice.recordings import Recording

WORDS = np.array([f"{a}{b}{c}a" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"])


def names(rng, n: int) -> list[str]:
    """Return ids that say nothing."""
    return [f"{value:x}" for value in rng.integers(1 << 60, size=n)]


def sentences(rng, n: int, length: int = 12) -> list[str]:
    """Return texts of random words."""
    return [" ".join(row) for row in rng.choice(WORDS, (n, length)).tolist()]


def made(
    rng,
    scores: Floats,
    *,
    seen: Mask | None = None,
    ends: Sequence[str] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    of_rounds: Mapping[str, Any] | None = None,
    ids: Sequence[str] | None = None,
    metric: str = "score",
) -> Recording:
    """Return a recording of scores, whose answers differ where scores do.

    Args:
        rng: Source of the ids.
        scores: Shape ``(n, n_rounds)``; NaN where unknown.
        seen: Mask of the recorded rounds, same shape; None = all.
        ends: Why each question ended; None = after the last round.
        columns: Further columns, a value for each question.
        of_rounds: Further columns of the shape of `scores`.
        ids: Ids of the questions; None = random ones.
        metric: Name of the scores.
    """
    n = len(scores)
    question, position = np.nonzero(np.ones(scores.shape, dtype=bool) if seen is None else seen)

    def rows(values: Sequence[Any]) -> pa.Array:
        return pa.array(np.array(values, dtype=object)[question].tolist())

    table = {
        "question_id": rows(names(rng, n) if ids is None else ids),
        "round": pa.array(position + 1),
        metric: pa.array(scores[question, position], from_pandas=True),
        "answer": pa.array(np.round(scores, 6).astype(str)[question, position].tolist()),
        "end": rows(["max_rounds"] * n if ends is None else ends),
        "cost.generator.calls": pa.array(np.ones(len(question))),
    }
    table |= {name: rows(values) for name, values in (columns or {}).items()}
    for name, values in (of_rounds or {}).items():
        cells = values[question, position]
        plain = cells.dtype != object
        table[name] = pa.array(cells, from_pandas=True) if plain else pa.array(cells.tolist())
    return Recording(pa.table(table), {})


def three_caps(rng, n: int, gain: float, lose: float) -> Floats:
    """Return scores of four rounds: each cap of one to three rounds gains and loses by itself, against the fourth."""
    right = (rng.random(n) < 0.5)[:, None]
    drawn = rng.random((n, 3))
    losses = np.where(right & (drawn < 2 * lose), 1.0, np.where(~right & (drawn < 2 * gain), -1.0, 0.0))
    return np.concatenate([right - losses, right.astype(float)], axis=1)


def nested_caps(rng, n: int, gain: float, lose: Sequence[float]) -> Floats:
    """Return scores of rounds whose caps lose `lose` on the same questions, and gain the same."""
    right, drawn = rng.random(n) < 0.5, rng.random(n)
    caps = [
        right - np.where(right & (drawn < 2 * share), 1.0, np.where(~right & (drawn < 2 * gain), -1.0, 0.0))
        for share in lose
    ]
    return np.stack([*caps, right.astype(float)], axis=1)


def graded(rng, n: int, loss: float) -> Floats:
    """Return scores in which many questions gain a little under each cap, and few lose nearly everything."""
    base = 0.9
    drawn = rng.random((n, 3))
    losses = np.where(drawn < (loss + 0.03) / base, base, np.where(drawn > 0.7, -0.1, 0.0))
    return np.concatenate([base - losses, np.full((n, 1), base)], axis=1)


def one_cap(rng, n: int, lose: float, n_rounds: int = 2) -> Floats:
    """Return scores of 1, except that all rounds before the last are wrong in a share of the questions."""
    scores = np.ones((n, n_rounds))
    scores[rng.random(n) < lose, :-1] = 0.0
    return scores


def sorted_reruns(rng) -> Recording:
    """Return three runs of each question, declared as clusters, sorted by what the first round loses: 5 points in all."""
    n, runs = 200, 3
    chance = rng.choice([0.0, 0.25], n, p=[0.8, 0.2])
    losses = np.sort(rng.random((n, runs)) < chance[:, None], axis=1).ravel()
    scores = np.stack([1.0 - losses, np.ones(n * runs)], axis=1)
    clusters = np.repeat([f"c{place}" for place in range(n)], runs).tolist()
    return made(rng, scores, columns={"cluster": clusters})
