"""The tables and figures of TASR from recordings, compared with the published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from suffice.common.tables import Column, Table
from suffice.errors import DataError, UnknownSignalError
from suffice.evaluation.statistics import Resampling
from suffice_papers.paper import Paper, flags_table, narrow, not_made_table, origin_table
from suffice_papers.published import Published, published_tasr
from suffice_papers.tasr.ablations import calibrators_table, folds_table, negatives_table, seconds_table
from suffice_papers.tasr.cells import CellRuns, TasrCell, load_cell
from suffice_papers.tasr.drift import drift_table
from suffice_papers.tasr.figures import tasr_charts
from suffice_papers.tasr.fixed import fixed_table
from suffice_papers.tasr.frontier import cell_table, figure3, figure4, macro_table
from suffice_papers.tasr.searched import search_table
from suffice_papers.tasr.signal_tables import confidence_figure, margin_figure, models_table, reliability_figure

TablePart = Callable[[Sequence[CellRuns], Published, Resampling], Table]

PARTS: Mapping[str, TablePart] = {
    "Table 1": macro_table,
    "Table 2": lambda cells, published, resampling: cell_table(cells, published, resampling, "distractor"),
    "Section 3.3": calibrators_table,
    "Section 5.3": search_table,
    "Section 5.3, folds": folds_table,
    "Section 5.4": negatives_table,
    "Table 3": drift_table,
    "Table 4": lambda cells, published, resampling: cell_table(cells, published, resampling, "open"),
    "Table 5": lambda cells, published, resampling: cell_table(cells, published, resampling, "dense"),
    "Table 6": models_table,
    "Latency": seconds_table,
    "Figure 2, left": margin_figure,
    "Figure 2, right": reliability_figure,
    "Figure 3": figure3,
    "Figure 4": figure4,
    "Figure 5": confidence_figure,
}
"""The function for each table and figure, in the order of the paper; figure 1 is a drawing."""


_READER = "span-reader"
_SMALL = (
    "span-reader is the embedded extractive reader (22 M parameters): it points at a span and cannot reason over two "
    "passages, so its figures, and any macro over them, say nothing about the rule on a large language model"
)


def paper_tasr(
    cells: Sequence[TasrCell],
    *,
    resampling: Resampling = Resampling(),
    command: str = "",
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Paper:
    """Compute Tables 1 to 6 and the data of figures 2 to 5 of TASR from recordings, beside the published figures.

    If recordings for a part are missing, the part is left out, and `not_made` contains the reason.

    Args:
        cells: At least one cell, for example from `read_cells`.
        resampling: Settings of the intervals.  Questions are drawn in the order of their ids, whatever the order of the
            recording.  For one cell the intervals equal those of `suffice.evaluation.replay.replay` on a recording in
            the order of ids.
        command: The command that was run, for the provenance.
        on_progress: Called with the current part, the number of parts done and the number of all parts.

    Raises:
        DataError: `cells` is empty, a recording cannot be read, or a question is in both recordings of a cell.
    """
    if not cells:
        raise DataError("cells is empty: give at least one")
    report = on_progress or (lambda _name, _done, _total: None)
    total = len(cells) + len(PARTS)
    loaded = []
    for number, cell in enumerate(cells):
        report(cell.name, number, total)
        loaded.append(load_cell(cell, resampling=resampling))
    return paper_of_cells(
        loaded,
        resampling=resampling,
        command=command,
        on_progress=lambda name, done, _: report(name, len(cells) + done, total),
    )


def paper_of_cells(
    loaded: Sequence[CellRuns],
    *,
    resampling: Resampling = Resampling(),
    command: str = "",
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Paper:
    """Compute the tables of cells that are in memory; see `paper_tasr`.

    Args:
        loaded: At least one cell from `load_cell`.
        resampling: The same settings as for `load_cell`.
        command: The command that was run, for the provenance.
        on_progress: Called with the current part, the number of parts done and the number of all parts.
    """
    report = on_progress or (lambda _name, _done, _total: None)
    published = published_tasr()
    results: list[Table] = []
    not_made: dict[str, str] = {}
    ruled = [item for item in loaded if item.cell.tune is not None]
    for number, (name, part) in enumerate(PARTS.items() if ruled else ()):
        report(name, number, len(PARTS))
        try:
            results.append(part(ruled, published, resampling))
        except (DataError, UnknownSignalError) as error:
            not_made[name] = str(error)
    if not ruled:
        not_made["Tables 1 to 6 and the figures"] = (
            "they are about a rule, and no cell has a `tune` recording to calibrate it"
        )
    if len(ruled) < len(loaded):
        apart = [item for item in loaded if item.cell.tune is None]
        results.append(fixed_table(apart, published, resampling))
    report("done", len(PARTS), len(PARTS))
    facts = (
        ("paper", f"{published.title} (arXiv {published.arxiv})"),
        ("command", command or "suffice_papers.tasr.tasr_tables.paper_tasr"),
        ("draws", f"{resampling.n_resamples:,}, seed {resampling.seed}, {100 * resampling.level:g} % intervals"),
    )
    missing = not_made_table(not_made)
    return Paper(
        title="The tables of TASR",
        headline=_macro_headline(results) if ruled else _fixed_headline(results[0]),
        summary=narrow(results[0], ("method", "cell", "figures", "F1", "calls", "ΔF1 vs k=3"))
        if results
        else missing[0],
        parts=(
            origin_table(facts),
            _cells_table(loaded, published),
            *results,
            *missing,
            flags_table(published.flags),
        ),
        not_made=not_made,
        figures=tasr_charts(ruled, results, published) if ruled else (),
    )


def _macro_headline(results: Sequence[Table]) -> str:
    """Summarise Table 1 in one sentence about TASR, or report that it could not be computed."""
    macro = results[0] if results and results[0].title.startswith("Table 1") else None
    if macro is None:
        return "Table 1 could not be made from these recordings; --details prints why, and every other table."
    row = next(row for row in macro.rows if row[:2] == ("tasr", "here"))
    f1, calls, delta = (column.text(value) for column, value in list(zip(macro.columns, row, strict=True))[2:5])
    verdict = row[-1].partition(";")[0]
    dominated = verdict if verdict.startswith("dominated") else "not dominated by a fixed or random policy"
    return f"tasr reaches F1 {f1} at {calls} calls per question, {delta} points against fixed_k(3): {dominated}."


def _fixed_headline(table: Table) -> str:
    """Summarise the fixed budgets of the first cell in one sentence."""
    column, first = table.columns[3], table.rows[0][0]
    parts = [f"{row[1]} {column.text(row[3])}" for row in table.rows if row[0] == first]
    return f"{first}: F1 of {', '.join(parts)}. No rule was calibrated: there is no tune recording."


def _cells_table(cells: Sequence[CellRuns], published: Published) -> Table:
    rows = []
    for item in cells:
        cell, theirs = item.cell, published.cells.get(item.cell.published)
        beside = f"{cell.published}: {theirs['model']}, {theirs['retriever']}, {theirs['corpus']}" if theirs else None
        rows.append(
            (
                *(cell.name, cell.model, cell.retriever, cell.corpus, cell.setting, cell.prompt),
                *(
                    len(item.tune.question_ids) if cell.tune else 0,
                    len(item.eval.question_ids),
                    int(item.eval.index[-1]),
                ),
                *(item.tune.data_hash if cell.tune else None, item.eval.data_hash, beside),
            )
        )
    names = ("cell", "model", "retriever", "corpus", "setting", "prompt")
    counts = ("tune questions", "eval questions", "rounds")
    notes = []
    if any(item.cell.published for item in cells):
        notes.append("published figures are those of the paper's models: whether a cell repeats one is the list's word")
    if any(not item.cell.published for item in cells):
        notes.append("a cell without a published counterpart is compared with none of the paper's figures")
    notes += [f"{item.cell.name}: {identity}" for item in cells if (identity := _identity(item))]
    if any(_READER in (item.cell.model, (item.eval.metadata.get("depends") or {}).get("model")) for item in cells):
        notes.append(_SMALL)
    return Table(
        title="Cells",
        columns=(
            *map(Column, names),
            *(Column(name, ",.0f") for name in counts),
            *map(Column, ("tune data", "eval data", "published cell")),
        ),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _identity(item: CellRuns) -> str:
    """Return the model and the questions in a recording's metadata, as one text; "" if the metadata contains neither."""
    metadata = (item.tune.metadata, item.eval.metadata) if item.cell.tune else (item.eval.metadata,)
    sets = [entry["dataset"]["hash"] for entry in metadata if "hash" in (entry.get("dataset") or {})]
    depends = item.eval.metadata.get("depends") or {}
    parts = [f"{key} {value}" for key, value in sorted(depends.items()) if isinstance(value, str)]
    return ", ".join(
        [*parts, *([f"questions {' (tune) and '.join(sets)} (eval)"] if len(sets) == len(metadata) else [])]
    )
