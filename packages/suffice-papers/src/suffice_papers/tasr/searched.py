"""Section 5.3 of TASR: an exhaustive search for rules that beat or dominate the published rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table
from suffice.errors import ConfigMismatchError, DataError, UnknownSignalError
from suffice.evaluation.search import SearchResult, search
from suffice.evaluation.statistics import ROUNDING, Resampling
from suffice_papers.published import FigureValue, Published
from suffice_papers.tasr.cells import CellRuns
from suffice_papers.tasr.frontier import with_runs
from suffice_papers.tasr.rows import Layout, interval_note

_TWO_PROMPTS = "tasr-381"
_SPACES = (_TWO_PROMPTS, "tasr-dnf-876")
_FALLBACK = "available"


def search_table(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Search in each cell as in section 5.3; thresholds and rules are chosen on tune, and figures are from eval.

    The published spaces of rules are searched if their signals were recorded.  Otherwise spaces of the same form are
    searched with the recorded signals.

    Raises:
        DataError: No cell has the necessary recordings.
    """
    used, notes = with_runs(cells)
    layout = Layout(
        key="section5.3",
        title="Section 5.3. Exhaustive search: thresholds and choice by tune questions, figures of eval questions",
        heads=("cell", "space", "chosen on tune"),
        columns={
            "rules": Column("rules", ",.0f"),
            "distinct": Column("different", ",.0f"),
            "winners": Column("above k=3", ",.0f"),
            "dominating": Column("dominate TASR", ",.0f"),
            "chosen": Column("chosen, ΔF1 vs k=3", "+.2f", scale=100, interval=True),
            "calls": Column("calls", ".2f"),
            "naive": Column("best on eval, ΔF1", "+.2f", scale=100, interval=True),
            "p": Column("its p, corrected", ".3f"),
        },
        published=published,
    )
    lines: list[tuple[Any, ...]] = []
    for item in used:
        searches = _searched(item, resampling, notes)
        for space, result in searches:
            rule, ours = search_summary(result)
            beside = space if item.cell.published == published.tables["section5.3"]["cell"] else None
            lines += layout.lines((item.cell.name, space, rule), ours, beside)
    if not lines:
        raise DataError("; ".join(notes))
    counted = (
        "above k=3: rules whose t interval of ΔF1 lies above zero, uncorrected; dominate TASR: rules with at most its calls "
        "and at least its F1 on eval, better in one, by the point estimates alone"
    )
    selected = (
        "the best on eval was selected there, within 3 calls: its lead is optimistic, its p corrected over those rules"
    )
    return layout.table(lines, [interval_note(resampling), counted, selected, *notes])


def _searched(item: CellRuns, resampling: Resampling, notes: list[str]) -> list[tuple[str, SearchResult]]:
    """Search each space of rules that the recordings allow; add notes on why other spaces are left out."""
    results: list[tuple[str, SearchResult]] = []
    for space in (*_SPACES, _FALLBACK):
        if space == _FALLBACK and any(name == _SPACES[-1] for name, _ in results):
            continue
        tune, evaluation = item.prompts if space == _TWO_PROMPTS else (item.tune, item.eval)
        try:
            result = search(evaluation, space, tune=tune, resampling=resampling)
        except (UnknownSignalError, ConfigMismatchError, DataError) as error:
            notes.append(f"{item.cell.name}, {space}: {error}")
            continue
        results.append((space, result))
    return results


def search_summary(result: SearchResult) -> tuple[str, dict[str, FigureValue]]:
    """Return the rule chosen on tune ("" if none meets the budget), and the figures of a search by key."""
    columns, members = result.columns, result.distinct.members
    figures: dict[str, FigureValue] = {"rules": float(result.n_rules), "distinct": float(len(result.distinct))}
    if "low" in columns:
        figures["winners"] = float(members[columns["low"] > 0].sum())
    tasr = next((named for named in result.named if named.name == "tasr"), None)
    if tasr is not None:
        better, cheaper = columns["quality"] - tasr.quality, tasr.calls - columns["calls"]
        ahead = (np.minimum(better, cheaper) >= -ROUNDING) & (np.maximum(better, cheaper) > ROUNDING)
        figures["dominating"] = float(members[ahead].sum())
    rule = ""
    if result.chosen is not None:
        rule = str(result.chosen.policy.rule)
        chosen = result.chosen.estimate
        figures |= {"chosen": (chosen.delta.delta, chosen.delta.low, chosen.delta.high), "calls": chosen.calls}
    if result.optimism is not None:
        naive = result.optimism.estimate("naive")
        figures["p"] = result.optimism.p_corrected
        if naive is not None:
            figures["naive"] = (naive.delta.delta, naive.delta.low, naive.delta.high)
    return rule, figures
