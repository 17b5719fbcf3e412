"""Compute the diagnostics of a report: tables under headings, and notes on those that cannot be computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from suffice.common.tables import Table
from suffice.errors import SufficeError
from suffice.evaluation.replay.outcomes import is_agreement
from suffice.evaluation.statistics import Resampling
from suffice.policy.rules import Selector, parse_selector
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.verdicts.diagnostics import diagnose
from suffice.verdicts.diagnostics.selection import compare_selectors

_TITLES = {
    "signals": "Signals: what separates right from wrong answers",
    "correlations": "Signals: correlations",
    "drift": "Signals: drift from tune to these questions",
    "calibration": "Calibrators side by side",
    "sweep": "Threshold sweep",
    "types": "By type of question",
    "premature": "Premature stops",
    "floor": "What the margin floor rescued",
    "cells": "The recordings side by side",
}
_SELECTORS = ("last", "first", "majority")


def diagnostics(
    recording: Recording,
    policy: Policy,
    tune: Recording | None,
    metrics: Sequence[str],
    *,
    name: str,
    others: Mapping[str, Recording],
    baseline: str | Policy | None,
    resampling: Resampling,
) -> tuple[dict[str, list[Table]], list[str]]:
    """Return the tables of `diagnose` by heading, and notes on tables that are missing.

    Answers are judged by exact match if it was recorded, else by the first metric.
    """
    metric = "em" if "em" in recording.table.column_names else metrics[0]
    if metric != "em" and not is_agreement(metric) and ">" not in metric:
        metric = f"{metric} > 0.5"
    try:
        diagnosis = diagnose(
            recording,
            policy=policy,
            tune=tune,
            cells=others or None,
            name=name,
            metric=metric,
            quality=metrics[0],
            baseline=baseline,
            resampling=resampling,
        )
    except SufficeError as error:
        return {}, [f"no diagnostics: {error}"]
    tables = {_TITLES.get(name, name.capitalize()): [*part.tables()] for name, part in diagnosis.parts.items()}
    return {title: listed for title, listed in tables.items() if listed}, list(diagnosis.notes)


def which_round(
    recording: Recording, policies: Sequence[Policy], metric: str, *, resampling: Resampling
) -> tuple[dict[str, list[Table]], list[str]]:
    """Compare selectors, which choose the round whose answer is returned, under the policies' rules."""
    if "answer" not in recording.table.column_names:
        return {}, []
    selectors: list[Selector] = [parse_selector(name) for name in _SELECTORS]
    if all(any(c.output == "p_correct" for c in policy.calibrators) for policy in policies):
        selectors += [parse_selector(name) for name in ("max_p_correct", "weighted_majority")]
    own = {str(policy.selector): policy.selector for policy in policies}
    selectors += [selector for text, selector in own.items() if text not in set(map(str, selectors))]
    try:
        comparison = compare_selectors(recording, policies, selectors, metric=metric, resampling=resampling)
    except SufficeError as error:
        return {}, [f"no comparison of selectors: {error}"]
    return {"Which round's answer to return": [comparison.table()]}, []
