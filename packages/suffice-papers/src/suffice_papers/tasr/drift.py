"""Table 3 of TASR: how well each signal separates right from wrong rounds, on tune questions and on eval questions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.replay import calibrate
from suffice.evaluation.statistics import Resampling
from suffice.policy.calibration import CALIBRATED
from suffice.policy.session import Policy
from suffice.verdicts.diagnostics.drift import Drift, measure_drift
from suffice.verdicts.diagnostics.rows import Rows, draw_d
from suffice_papers.published import FigureValue, Published
from suffice_papers.tasr.cells import CellRuns, defined, main_prompt, with_evidence
from suffice_papers.tasr.rows import Layout, interval_note

_ADDED = ("p_correct", "answer_margin")
"""Signals of the rule that the paper's table leaves out."""


def drift_table(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return Table 3: Cohen's d of each signal on tune and on eval, in the distractor cells.

    Raises:
        DataError: No cell has both right and wrong rounds in both recordings.
    """
    layout = Layout(
        key="table3",
        title="Table 3. Cohen's d of right against wrong rounds, tune and eval",
        heads=("cell", "signal"),
        columns={
            "tune": Column("tune d", ".3f", interval=True),
            "eval": Column("eval d", ".3f", interval=True),
            "drift": Column("Δ", "+.3f", interval=True),
        },
        published=published,
    )
    names = (*published.tables["table3"]["rows"], *_ADDED)
    lines: list[tuple[Any, ...]] = []
    in_sample = (
        "a round is right where its exact match is 1; calibrated signals are fitted on tune, where their d is in sample"
    )
    round_1 = (
        "answer_stable and overlap are undefined in round 1 here; the authors' columns are 0 there, and count in the "
        "published d"
    )
    notes = [f"{interval_note(resampling)}; tune and eval are drawn independently", in_sample, round_1]
    main = main_prompt(cells)
    for item in cells:
        if item.cell.setting != "distractor" or item.cell.prompt != main:
            continue
        measured, why = _drift(item, resampling)
        rows = {signal.name: signal for signal in measured.signals} if measured else {}
        known = [name for name in names if name in rows and not math.isnan(rows[name].d_eval + rows[name].d_tune)]
        if not known:
            notes.append(
                f"left out, {item.cell.name}: {why or 'no signal has right and wrong rounds in both recordings'}"
            )
            continue
        beside = item.cell.published == published.tables["table3"]["cell"]
        for name in known:
            signal_drift = rows[name]
            ours: dict[str, FigureValue] = {
                "tune": (signal_drift.d_tune, signal_drift.d_tune_low, signal_drift.d_tune_high),
                "eval": (signal_drift.d_eval, signal_drift.d_eval_low, signal_drift.d_eval_high),
                "drift": (signal_drift.delta, signal_drift.delta_low, signal_drift.delta_high),
            }
            lines += layout.lines((item.cell.name, name), ours, name if beside else None)
        absent = [name for name in names if name not in known]
        if absent:
            notes.append(f"{item.cell.name}: undefined or not recorded: {', '.join(absent)}")
    if not lines:
        raise DataError("; ".join(notes[3:]) or f"needs a cell with setting 'distractor' and the prompt {main!r}")
    return layout.table(lines, notes)


def _drift(item: CellRuns, resampling: Resampling) -> tuple[Drift | None, str]:
    recordings = {"tune": with_evidence(item.tune), "eval": with_evidence(item.eval)}
    unlabelled = [name for name, recording in recordings.items() if not defined(recording, "em")]
    if unlabelled:
        return None, f"no em was recorded ({', '.join(unlabelled)})"
    policy = _calibrated_policy(item)
    tune, evaluation = (Rows.of(recording, "em", policy) for recording in recordings.values())
    resampled = draw_d(evaluation, list(evaluation.columns), resampling)
    return measure_drift(tune, evaluation, resampled, resampling=resampling), ""


def _calibrated_policy(item: CellRuns) -> Policy | None:
    """Return a policy, fitted on tune, with every calibrated signal whose raw signal is in both recordings."""
    names = [name for name, raw in CALIBRATED.items() if defined(item.tune, raw) and defined(item.eval, raw)]
    if not names:
        return None
    rule = " | ".join(f"({name} > 0.5)" for name in names)
    return calibrate(item.tune, rule=rule, max_rounds=int(item.eval.index[-1]), compare=False)[0]
