"""The cascade of Semantic Early-Stopping as a plain loop, and random drafts for it (METHODS section 2).

Nothing here uses a rule: toggles, thresholds and reasons are written from the paper's definitions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.policy.rules import FirstOf, Never, Patience, Rule, signal
from suffice.recordings.recording import Recording

ROUNDS = 6
COMPONENTS = ("writer", "critic", "judge:information_score", "embedder")
TOGGLES = {
    "full": (True, True, True),
    "no_critic": (False, True, True),
    "no_entropy": (True, False, True),
    "no_isgain": (True, True, False),
    "critic_only": (True, False, False),
    "entropy_only": (False, True, False),
    "isgain_only": (False, False, True),
    "none": (False, False, False),
}
"""The 7 cells of the ablation by the paper's names, and what is left without any: critic, convergence, gain."""

EPSILONS = (0.0, 1 / 64, 4 / 64, 0.06, 8 / 64, 2.0)


@dataclass(frozen=True)
class Drafts:
    """Random trajectories; arrays of shape ``(n, ROUNDS)``, NaN past the end and where a value is missing."""

    approved: Any
    distance: Any
    score: Any
    gain: Any
    answered: Any
    length: Any
    ends: Any

    def recording(self) -> Recording:
        """Return them as a recording in which every call costs one call and ten tokens."""
        n = len(self.length)
        seen = np.arange(ROUNDS) < self.length[:, None]
        rows, columns = np.nonzero(seen)
        named = {
            "critic_approved": self.approved,
            "semantic_distance": self.distance,
            "information_score": self.score,
            "information_gain": self.gain,
        }
        names = np.array([f"q{i}" for i in range(n)], dtype=object)
        answers = np.where(self.answered, "a draft", None)
        data = {
            "question_id": pa.array(names[rows]),
            "round": pa.array(columns + 1, type=pa.int16()),
            "end": pa.array(self.ends[rows]),
            "answer": pa.array(answers[rows, columns]),
            **{name: pa.array(values[rows, columns], from_pandas=True) for name, values in named.items()},
        }
        for component in COMPONENTS:
            for kind, value in (("calls", 1.0), ("uncached_tokens", 10.0), ("cached_tokens", 0.0)):
                data[f"cost.{component}.{kind}"] = pa.array(np.full(len(rows), value))
            data[f"cost.{component}.output_tokens"] = pa.array(np.zeros(len(rows)))
            data[f"cost.{component}.seconds"] = pa.array(np.zeros(len(rows)))
        return Recording(pa.table(data))


def drafts(n: int, rng: np.random.Generator, *, odd: bool = True) -> Drafts:
    """Draw trajectories.

    Args:
        n: How many.
        rng: The generator.
        odd: With gaps, infinities, values out of range, signals before their first round, missing drafts and early
            ends; else complete ones.
    """
    shape = (n, ROUNDS)
    approved = (rng.random(shape) < 0.15).astype(float)
    distance = rng.integers(0, 12, shape) / 64  # exact in binary, so that ties with eps are ties
    score = rng.integers(0, 9, shape) / 8
    length = rng.integers(1, ROUNDS + 1, n) if odd else np.full(n, ROUNDS)
    ends = np.where(length == ROUNDS, "max_rounds", np.where(rng.random(n) < 0.5, "exhausted", "rule")).astype(object)
    answered = rng.random(shape) >= 0.05 if odd else np.ones(shape, dtype=bool)
    if odd:
        for column in (approved, distance, score):
            for value in (math.nan, math.inf, -math.inf, -0.5, 2.5):
                column[rng.random(shape) < 0.02] = value
    with np.errstate(invalid="ignore"):
        gain = np.diff(np.where((score >= 0) & (score <= 1), score, np.nan), axis=1, prepend=np.nan)
    if odd:
        gain[:, 0] = rng.choice([-1.0, 0.0, 1.0], n)  # whatever a host says there
    else:
        approved[:, 0] = distance[:, 0] = np.nan
    return Drafts(approved, distance, score, gain, answered, length, ends)


def rule_of(toggles: tuple[bool, bool, bool], eps: float, patience: int) -> Rule:
    """Return the same cascade as a rule, by the library's own words."""
    members: tuple[Rule, ...] = (
        signal("critic_approved") >= 1,
        Patience(signal("semantic_distance") < eps, patience),
        signal("information_gain") <= 0,
    )
    kept = tuple(member for member, on in zip(members, toggles, strict=True) if on)
    return FirstOf(kept) if kept else Never()


def cascade(
    approved: list[float],
    distance: list[float],
    score: list[float],
    length: int,
    *,
    max_rounds: int,
    eps: float,
    patience: int,
    toggles: tuple[bool, bool, bool],
) -> tuple[int, str, int, int]:
    """Return round and reason of the stop, and the rounds that were judged and embedded (bit t stands for round t).

    Undefined values (NaN, or outside of what the quantity can be) hold nothing.  The reason is `critic_approved`,
    `converged`, `no_gain`, `max_rounds`, or `ended` where the recorded drafts were fewer.
    """
    by_critic, by_meaning, by_gain = toggles
    judged = embedded = 0
    for t in range(1, min(length, max_rounds) + 1):
        here = t - 1
        if by_meaning and t >= 2 and (patience > 1 or not (by_critic and approved[here] == 1)):
            embedded |= 1 << t | 1 << t - 1  # a later round looks back on this one, so it is measured in any case
        if t >= 2 and by_critic and approved[here] == 1:
            return t, "critic_approved", judged, embedded
        if by_meaning and t >= patience + 1:
            near = 0
            for back in range(patience):
                near += 0 <= distance[here - back] < eps
            if near == patience:
                return t, "converged", judged, embedded
        if by_gain and t >= 2:
            judged |= 1 << t | 1 << t - 1
            if 0 <= score[here] <= 1 and 0 <= score[here - 1] <= 1 and score[here] - score[here - 1] <= 0:
                return t, "no_gain", judged, embedded
        if t >= max_rounds:
            return t, "max_rounds", judged, embedded
    return length, "ended", judged, embedded
