"""Tables 1, 2, 4 and 5 and figures 3 and 4 of TASR: F1 against calls, for each cell and over all cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from suffice.common.tables import Column, Table, counted
from suffice.errors import DataError
from suffice.evaluation.statistics import ROUNDING, Resampling
from suffice.policy.rounds import Floats
from suffice_papers.published import FigureValue, Published
from suffice_papers.tasr.cells import BUDGET, SETTINGS, CellRuns, main_prompt
from suffice_papers.tasr.rows import Layout, cell_means, interval_note, value_of

_BASE, _RULE, _CHANCE = "fixed_k(3)", "tasr", "random(tasr)"
_F1_COLUMN = Column("F1", ".2f", scale=100, interval=True)
_CALLS_COLUMN = Column("calls", ".2f", interval=True)
_DELTA_COLUMN = Column("ΔF1 vs k=3", "+.2f", scale=100, interval=True)
_OVER_CHANCE_COLUMN = Column("ΔF1 vs random stop", "+.2f", scale=100, interval=True)


def with_runs(cells: Sequence[CellRuns], setting: str = "") -> tuple[list[CellRuns], list[str]]:
    """Return the cells of a setting ("" for all cells) on which TASR could be replayed, and notes on the other cells.

    Raises:
        DataError: TASR could not be replayed on any of these cells; the message contains the reason.
    """
    main = main_prompt(cells)
    candidates = [c for c in cells if c.cell.prompt == main and setting in ("", c.cell.setting)]
    if not candidates:
        what = f"a cell with setting {setting!r} and" if setting else "a cell with"
        raise DataError(f"needs {what} the prompt {main!r}; the list has none")
    notes = [f"left out, {c.cell.name}: {c.problem}" for c in candidates if not c.runs]
    if main != "answer_first":
        notes.append(f"the prompt is {main!r}: no cell has the paper's 'answer_first'")
    used = [c for c in candidates if c.runs]
    if not used:
        raise DataError("; ".join(notes))
    for item in used:
        notes += [f"{item.cell.name}: {note}" for note in item.notes]
    sizes = {len(item.eval.question_ids) for item in used}
    if len(sizes) > 1:
        notes.append(
            f"the cells have {min(sizes)} to {max(sizes)} questions; a macro is the mean over cells, each weighing the same"
        )
    return used, notes


def tasr_figures(cell: CellRuns) -> dict[str, Floats]:
    """Return the figures of a cell by question: F1 of TASR and of fixed budgets, calls, differences."""
    f1 = cell.f1
    return {
        "k1": f1["fixed_k(1)"],
        "k3": f1[_BASE],
        **({"k5": f1["fixed_k(5)"]} if "fixed_k(5)" in f1 else {}),
        "f1": f1[_RULE],
        "calls": cell.calls[_RULE],
        "delta": f1[_RULE] - f1[_BASE],
        "chance": f1[_RULE] - f1[_CHANCE],
    }


def _common_labels(used: Sequence[CellRuns]) -> list[str]:
    """Return the labels of runs that every cell has, in the order of the first cell."""
    return [label for label in used[0].runs if all(label in item.runs for item in used)]


def _lacking(used: Sequence[CellRuns]) -> list[str]:
    short = [item.cell.name for item in used if item.eval.index[-1] < BUDGET]
    return [f"fixed_k({BUDGET}) is missing, for fewer rounds were recorded in: {', '.join(short)}"] if short else []


def _frontier(used: Sequence[CellRuns], resampling: Resampling) -> tuple[dict[str, dict[str, FigureValue]], list[str]]:
    """Return, for each run by label, the means over cells of F1, calls and difference; also return notes."""
    labels = _common_labels(used)

    def quantities(cell: CellRuns) -> dict[str, Floats]:
        values = {}
        for label in labels:
            values[f"f1 {label}"] = cell.f1[label]
            values[f"calls {label}"] = cell.calls[label]
            values[f"delta {label}"] = cell.f1[label] - cell.f1[_BASE]
        return values

    means, why = cell_means(resampling, used, quantities)
    rows = {label: {key: means[f"{key} {label}"] for key in ("f1", "calls", "delta")} for label in labels}
    return rows, [f"no intervals: {why}"] if why else []


def _dominated(rows: Mapping[str, Mapping[str, FigureValue]], label: str) -> str:
    """Return "dominated by ..." with the cheapest fixed or random policy that dominates a row; "" if no such policy does."""
    f1, calls = (value_of(rows[label][key]) for key in ("f1", "calls"))
    rivals = [
        (value_of(row["calls"]), name)
        for name, row in rows.items()
        if name != label
        and name.startswith(("fixed_k", "random", "closed_book"))
        and value_of(row["f1"]) >= f1 - ROUNDING
        and value_of(row["calls"]) <= calls + ROUNDING
        and (value_of(row["f1"]) > f1 + ROUNDING or value_of(row["calls"]) < calls - ROUNDING)
    ]
    return f"dominated by {min(rivals)[1]}" if rivals else ""


def _complete(used: Sequence[CellRuns], published: Published, setting: str) -> tuple[bool, list[str]]:
    """Return whether the cells are those that the paper averages over, and a note if they are not."""
    ours = {item.cell.published for item in used if item.cell.published}
    theirs = published.cells_of(setting)
    if ours == theirs and len(used) == len(theirs):
        return True, []
    note = (
        f"the paper's macro is over its {len(theirs)} {SETTINGS[setting]} cells, this one over {len(used)}, of which the "
        f"paper has {len(ours)}: not compared"
    )
    return False, [note]


def macro_table(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return Table 1: every baseline and TASR, as means over the distractor cells.

    Raises:
        DataError: No cell has the necessary recordings.
    """
    used, notes = with_runs(cells, "distractor")
    rows, missing = _frontier(used, resampling)
    same, why = _complete(used, published, "distractor")
    layout = Layout(
        key="table1",
        title=f"Table 1. Macro results over {counted(len(used), 'distractor cell')}",
        heads=("method",),
        columns={"f1": _F1_COLUMN, "calls": _CALLS_COLUMN, "delta": _DELTA_COLUMN},
        published=published,
    )
    lines = [
        line
        for label, row in rows.items()
        for line in layout.lines(
            (label,), row, label if same else None, remark=_dominated(rows, label) if label == _RULE else ""
        )
    ]
    extra = ["not in the paper: fixed_k(2), fixed_k(4), random(tasr), oracle_earliest (its oracle is oracle_best)"]
    return layout.table(lines, [interval_note(resampling), *notes, *_lacking(used), *missing, *why, *extra])


_CELL_TABLES = {"distractor": ("table2", "Table 2"), "open": ("table4", "Table 4"), "dense": ("table5", "Table 5")}


def cell_table(cells: Sequence[CellRuns], published: Published, resampling: Resampling, setting: str) -> Table:
    """Return Table 2, 4 or 5: TASR in each cell of a setting, and the mean over these cells.

    Raises:
        DataError: No cell has the necessary recordings.
    """
    used, notes = with_runs(cells, setting)
    key, name = _CELL_TABLES[setting]
    columns = {"f1": _F1_COLUMN, "calls": _CALLS_COLUMN, "delta": _DELTA_COLUMN, "chance": _OVER_CHANCE_COLUMN}
    if setting != "distractor":
        fixed = {k: Column(f"k={k[1]} F1", ".2f", scale=100, interval=True) for k in ("k3", "k5")}
        columns = {**fixed, **columns}
    layout = Layout(
        key=key,
        title=f"{name}. TASR in each {SETTINGS[setting]} cell",
        heads=("cell",),
        columns=columns,
        published=published,
    )
    lines: list[tuple[Any, ...]] = []
    figures = [cell_means(resampling, [item], tasr_figures)[0] for item in used]
    for item, ours in zip(used, figures, strict=True):
        assert item.result is not None
        dominated = item.result.row(_RULE).dominated_by
        remark = "" if dominated is None else f"dominated by {dominated}"
        lines += layout.lines((item.cell.name,), ours, item.cell.published or None, remark=remark)
    same, why = _complete(used, published, setting)
    rows, missing = _frontier(used, resampling)
    macro, _ = cell_means(resampling, used, tasr_figures)
    lines += layout.lines(("macro",), macro, "macro" if same else None, remark=_dominated(rows, _RULE))
    verdict = _wins_and_losses([ours["delta"] for ours in figures])
    return layout.table(lines, [interval_note(resampling), *notes, *_lacking(used), *missing, *why, verdict])


def _wins_and_losses(deltas: Sequence[FigureValue]) -> str:
    """Return the wins, ties and losses of the cells against fixed_k(3), by their intervals."""
    known = [delta for delta in deltas if isinstance(delta, tuple)]
    wins, losses = sum(low > 0 for _, low, _ in known), sum(high < 0 for _, _, high in known)
    ties = len(known) - wins - losses
    return f"against fixed_k(3): {wins} wins, {ties} ties, {losses} losses by intervals that exclude zero"


def figure3(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return the points of figure 3: the macro frontier of each setting.

    Raises:
        DataError: No cell has the necessary recordings.
    """
    layout = Layout(
        key="figure3",
        title="Figure 3. F1 against calls, macro by setting",
        heads=("setting", "policy"),
        columns={"f1": _F1_COLUMN, "calls": _CALLS_COLUMN},
        published=published,
    )
    lines: list[tuple[Any, ...]] = []
    notes: list[str] = [interval_note(resampling)]
    for setting, label in SETTINGS.items():
        if not any(c.cell.setting == setting and c.runs for c in cells):
            continue
        used, cell_notes = with_runs(cells, setting)
        rows, missing = _frontier(used, resampling)
        same, why = _complete(used, published, setting)
        for name, row in rows.items():
            if not name.startswith("oracle"):
                lines += layout.lines((label, name), row, f"{setting} {name}" if same else None)
        notes += [*cell_notes, *missing, *why]
    if not lines:
        with_runs(cells)  # raises an error with the reason
    return layout.table(lines, notes)


def figure4(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return the points of figure 4: the fixed budgets and TASR in each cell.

    Raises:
        DataError: No cell has the necessary recordings.
    """
    used, notes = with_runs(cells)
    fixed = {f"k{k}": Column(f"k={k} F1", ".2f", scale=100, interval=True) for k in range(1, BUDGET + 1)}
    layout = Layout(
        key="figure4",
        title="Figure 4. F1 of fixed budgets and of TASR, by model and cell",
        heads=("model", "cell"),
        columns={**fixed, "f1": Column("TASR F1", ".2f", scale=100, interval=True), "calls": _CALLS_COLUMN},
        published=_with_points(published),
    )
    lines: list[tuple[Any, ...]] = []
    for item in sorted(used, key=lambda item: item.cell.model):
        here, _ = cell_means(resampling, [item], _budgets)
        lines += layout.lines((item.cell.model, item.cell.name), here, item.cell.published or None)
    return layout.table(lines, [interval_note(resampling), *notes, *_lacking(used)])


def _budgets(cell: CellRuns) -> dict[str, Floats]:
    fixed = {f"k{k}": cell.f1[f"fixed_k({k})"] for k in range(1, BUDGET + 1) if f"fixed_k({k})" in cell.runs}
    return {**fixed, "f1": cell.f1[_RULE], "calls": cell.calls[_RULE]}


def _with_points(published: Published) -> Published:
    """Derive the published points of figure 4 from the paper's tables.

    Table 2 does not state F1 at k=3, which is the F1 of TASR minus its gain.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    for key in ("table2", "table4"):
        for name, row in published.tables[key]["rows"].items():
            delta = row["delta"][0] if isinstance(row["delta"], list) else row["delta"]
            rows[name] = {
                "k3": round(row["f1"] - delta, 2),
                **{k: row[k] for k in ("k3", "k5", "f1", "calls") if k in row},
            }
    figure = {**published.tables["figure4"], "rows": rows}
    return replace(published, tables={**published.tables, "figure4": figure})
