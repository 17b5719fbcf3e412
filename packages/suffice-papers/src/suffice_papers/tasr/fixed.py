"""Fixed budgets in cells without a tune recording, where no rule can be calibrated.

Such cells are made from TASR's published predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from suffice.common.tables import Column, Table
from suffice.evaluation.replay.baselines import Run, fixed_budget
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import Resampling
from suffice.policy.rounds import Floats
from suffice.recordings import Recording
from suffice_papers.published import Published
from suffice_papers.tasr.cells import CellRuns
from suffice_papers.tasr.rows import Layout, cell_means, interval_note

TITLE = "Fixed budgets"
_BASE = "fixed_k(3)"


def fixed_runs(recording: Recording) -> dict[str, Run]:
    """Return the run of each budget for which every question was answered."""
    prepared = PreparedRecording.of(recording, ["f1"])
    answered: dict[int, bool] = {}
    for k, answer in zip(*(recording.table.column(name).to_pylist() for name in ("round", "answer")), strict=True):
        answered[k] = answered.get(k, True) and answer is not None
    runs = [fixed_budget(prepared, k) for k, known in sorted(answered.items()) if known and k > 0]
    return {run.label: run for run in runs}


def fixed_table(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return a table of each budget's F1, calls and difference to a budget of three, for cells without a rule."""
    columns = {
        "f1": Column("F1", ".2f", scale=100, interval=True),
        "calls": Column("calls", ".2f", interval=True),
        "delta": Column("ΔF1 vs k=3", "+.2f", scale=100, interval=True),
    }
    layout = Layout(key=TITLE, title=TITLE, heads=("cell", "method"), columns=columns, published=published)
    lines, notes = [], [interval_note(resampling)]
    for item in cells:
        runs = fixed_runs(item.eval)
        notes.append(f"{item.cell.name}: {item.problem}")
        for label, run in runs.items():
            figures, _ = cell_means(resampling, [item], partial(_figures, run, runs))
            lines += layout.lines((item.cell.name, label), figures)
    return layout.table(lines, notes)


def _figures(run: Run, runs: Mapping[str, Run], _: CellRuns) -> dict[str, Floats]:
    values = {"f1": run.values["f1"], "calls": run.ledger.calls}
    return {**values, "delta": run.values["f1"] - runs[_BASE].values["f1"]} if _BASE in runs else values
