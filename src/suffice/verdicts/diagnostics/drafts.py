"""The usual ways to choose among drafts, limited to those whose signals a recording has."""

from __future__ import annotations

import numpy as np

from suffice.policy.rules.parse import parse_selector
from suffice.policy.rules.selectors import Last
from suffice.recordings.recording import Recording
from suffice.verdicts.diagnostics.judging import Halving, JudgeAll, JudgeDistinct, JudgeUntil, Procedure, Unjudged

DRAFT_SELECTORS = (
    "last",
    "first",
    "majority",
    "centroid",
    "min_semantic_distance",
    "max_critic_praise",
    "max_answer_length",
    "min_answer_length",
    "median_answer_length",
    "max_lexical_support",
)
"""Selectors without a judge and without a threshold."""

EPS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3)
"""Distances below which drafts may count as near; they were fixed before any comparison on marks."""


def usable_selectors(recording: Recording) -> list[str]:
    """Return those of `DRAFT_SELECTORS` whose signals the recording has."""
    return [name for name in DRAFT_SELECTORS if _has_values(recording, parse_selector(name).signals)]


def draft_families(recording: Recording, *, judged: bool = True) -> dict[str, tuple[Procedure, ...]]:
    """Return families of ways to choose, by name: without a judge, and with few calls of one; see `suffice.verdicts.diagnostics.judging`.

    Args:
        recording: The recording; families whose signals it lacks are left out.
        judged: Whether to include those that ask a judge.
    """
    names = usable_selectors(recording)
    families: dict[str, tuple[Procedure, ...]] = {name: (Unjudged(parse_selector(name)),) for name in names}
    apart = "centroid" in names
    if apart:
        runs = (f"longest_run(semantic_distance < {eps:g})" for eps in EPS)
        families["longest_run"] = tuple(Unjudged(parse_selector(text)) for text in runs)
    if not judged:
        return families
    middle = parse_selector("centroid" if apart else "majority")
    families["judge_all"] = (JudgeAll(),)
    families["judge_distinct"] = tuple(JudgeDistinct(eps) for eps in (0.0, *(EPS if apart else ())))
    for order in (Last(), middle):
        families[f"judge_until({order})"] = (JudgeUntil(order),)
        families[f"halving({order})"] = (Halving(order),)
    return families


def _has_values(recording: Recording, names: frozenset[str]) -> bool:
    """Return whether all columns are there, and the nearest of them has a value (drafts five rounds apart may not exist)."""
    if not names <= set(recording.table.column_names):
        return False
    return not names or any(np.isfinite(recording.column(name)).any() for name in names)
