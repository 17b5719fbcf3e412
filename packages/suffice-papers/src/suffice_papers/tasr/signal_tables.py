"""Table 6 and figures 2 and 5 of TASR: the quality of the signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling
from suffice.policy.rounds import Floats
from suffice.recordings import Recording
from suffice_papers.published import FigureValue, Published
from suffice_papers.tasr.cells import SETTINGS, CellRuns, with_evidence
from suffice_papers.tasr.frontier import tasr_figures, with_runs
from suffice_papers.tasr.rows import Layout, cell_means, interval_note, macro_means, separation

_MARGIN = "answer_margin"
_BUCKETS = 5
_CONFIDENCES = (1, 2, 3, 4, 5)


def _column(recording: Recording, name: str) -> Floats:
    """Return a numeric column, all NaN if it was not recorded."""
    return recording.column(name) if name in recording.table.column_names else np.full(recording.shape, np.nan)


def _rows(recording: Recording, **columns: Floats) -> tuple[dict[str, Floats], list[Any]]:
    """Return the values in rounds where all columns are defined, and the question of each such round."""
    known = np.logical_and.reduce([np.isfinite(column) for column in columns.values()])
    questions = np.broadcast_to(recording.clusters[:, None], recording.shape)[known]
    return {name: column[known] for name, column in columns.items()}, questions.tolist()


def models_table(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return Table 6: raw and calibrated margins and the gain of TASR, by model and setting.

    Raises:
        DataError: No cell has the necessary recordings.
    """
    used, notes = with_runs(cells)
    layout = Layout(
        key="table6",
        title="Table 6. Margins, raw and calibrated, and what TASR gains, by model",
        heads=("model", "setting"),
        columns={
            "k1": Column("k=1 F1", ".2f", scale=100, interval=True),
            "margin": Column("raw margin, nats", ".2f", interval=True),
            "p_correct": Column("calibrated margin", ".2f", interval=True),
            "delta": Column("ΔF1 vs k=3", "+.2f", scale=100, interval=True),
        },
        published=published,
    )
    lines: list[tuple[Any, ...]] = []
    for model, setting in dict.fromkeys((item.cell.model, item.cell.setting) for item in used):
        group = [item for item in used if (item.cell.model, item.cell.setting) == (model, setting)]
        figures, _ = cell_means(resampling, group, tasr_figures)
        margins = _margins(group, resampling)
        if not margins:
            notes.append(f"{model}, {SETTINGS[setting]}: no raw margins were recorded")
        row, why = _published_model(group, published, setting)
        notes += why
        lines += layout.lines((model, SETTINGS[setting]), {**figures, **margins}, row)
    notes.append("margins are means over all recorded rounds of the eval questions, then over cells")
    return layout.table(lines, [interval_note(resampling), *notes])


def _margins(group: Sequence[CellRuns], resampling: Resampling) -> dict[str, FigureValue]:
    parts = []
    for item in group:
        assert item.policy is not None
        recording = with_evidence(item.eval)
        view = item.policy.view(recording.rounds(item.policy.raw_columns))
        rows, questions = _rows(recording, margin=_column(recording, _MARGIN), p_correct=view["p_correct"])
        if not questions:
            return {}
        parts.append((item.cell.name, rows, questions))
    return macro_means(resampling, parts)[0]


def _published_model(group: Sequence[CellRuns], published: Published, setting: str) -> tuple[str | None, list[str]]:
    """Return the name of the published row of a group's model, and notes.

    The name is None unless the group reproduces exactly the paper's cells of the model in the setting.
    """
    ours = {item.cell.published for item in group} - {""}
    if not ours:
        return None, []
    model = published.cells[min(ours)]["model"]
    theirs = {name for name in published.cells_of(setting) if published.cells[name]["model"] == model}
    if ours == theirs and len(group) == len(theirs):
        return f"{model} {setting}", []
    return None, [f"{model}: the paper's means are over {', '.join(sorted(theirs))}, these over others: not compared"]


def first_by_tune(cells: Sequence[CellRuns]) -> list[CellRuns]:
    """Return only the first cell of each tune recording, since cells with a transferred calibration share a recording."""
    return list({item.cell.tune: item for item in reversed(cells)}.values())[::-1]


def margin_figure(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return the data of figure 2, left: the margins of right and of wrong rounds on the tune questions.

    Raises:
        DataError: No cell has the necessary recordings.
    """
    layout = Layout(
        key="figure2",
        title="Figure 2, left. Margin of right and wrong rounds, tune questions",
        heads=("cell",),
        columns={
            "rows": Column("rounds", ",.0f"),
            "right": Column("right, nats", ".2f", interval=True),
            "wrong": Column("wrong, nats", ".2f", interval=True),
            "separation": Column("separation, nats", ".2f", interval=True),
            "confidence": Column("separation of stated confidence", ".2f", interval=True),
            "ratio": Column("ratio", ".0f"),
        },
        published=published,
    )
    lines: list[tuple[Any, ...]] = []
    notes = [
        interval_note(resampling),
        "a round is right where its exact match is 1; v3 takes the tune questions, and so do we",
    ]
    for item in first_by_tune(cells):
        ours, why = _separations(with_evidence(item.tune), resampling)
        if why:
            notes.append(f"left out, {item.cell.name}: {why}")
            continue
        beside = item.cell.published == published.tables["figure2"]["cell"] and item.cell.prompt == "answer_first"
        row = "v3" if beside else None
        lines += layout.lines((item.cell.name,), ours, row, earlier=("24 cells",))
    if not lines:
        raise DataError("; ".join(notes[2:]))
    return layout.table(lines, notes)


def _separations(recording: Recording, resampling: Resampling) -> tuple[dict[str, FigureValue], str]:
    em = _column(recording, "em")
    rows, questions = _rows(recording, margin=_column(recording, _MARGIN), em=em)
    right = rows["em"] >= 1
    if not right.any() or right.all():
        what = "only right or only wrong rounds" if len(right) else "no round has both answer_margin and em"
        return {}, what
    figures: dict[str, FigureValue] = {"rows": float(len(right))}
    figures |= separation(resampling, rows["margin"], right, questions)
    confidence, confidence_questions = _rows(recording, value=_column(recording, "verbal_confidence"), em=em)
    confidence_right = confidence["em"] >= 1
    if confidence_right.any() and not confidence_right.all():
        figures["confidence"] = separation(resampling, confidence["value"], confidence_right, confidence_questions)[
            "separation"
        ]
        margin_gap, confidence_gap = (abs(figures[key][0]) for key in ("separation", "confidence"))  # type: ignore[index]
        figures["ratio"] = margin_gap / confidence_gap if confidence_gap else float("nan")
    return figures, ""


def reliability_figure(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return the data of figure 2, right: the share of right rounds in five equally large buckets of the margin.

    Raises:
        DataError: No cell has the necessary recordings.
    """
    rows: list[tuple[Any, ...]] = []
    missing = []
    for item in first_by_tune(cells):
        tune = with_evidence(item.tune)
        values, questions = _rows(tune, margin=_column(tune, _MARGIN), em=_column(tune, "em"))
        if len(questions) < _BUCKETS:
            missing.append(f"left out, {item.cell.name}: too few rounds have both answer_margin and em")
            continue
        order = np.argsort(values["margin"], kind="stable")
        for number, bucket in enumerate(np.array_split(order, _BUCKETS), start=1):
            bucket_questions = [questions[i] for i in bucket.tolist()]
            share, _ = macro_means(resampling, [(item.cell.name, {"em": values["em"][bucket]}, bucket_questions)])
            low, high = values["margin"][bucket[0]], values["margin"][bucket[-1]]
            rows.append((item.cell.name, number, len(bucket), float(low), float(high), share["em"]))
    if not rows:
        raise DataError("; ".join(missing))
    columns = (
        Column("cell"),
        Column("bucket", ".0f"),
        Column("rounds", ",.0f"),
        Column("lowest margin, nats", ".2f"),
        Column("highest margin, nats", ".2f"),
        Column("P(EM = 1)", ".3f", interval=True),
    )
    title = "Figure 2, right. Share of right rounds by margin, five buckets of equal size, tune questions"
    note = f"published: - (plotted only; {published.title})"
    return Table(title=title, columns=columns, rows=tuple(rows), notes=(interval_note(resampling), note, *missing))


def confidence_figure(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return the data of figure 5: the shares of stated confidences from 1 to 5, by prompt.

    Raises:
        DataError: No cell has stated confidences.
    """
    layout = Layout(
        key="figure5",
        title="Figure 5. Stated confidence by prompt, eval questions",
        heads=("prompt", "cells"),
        columns={
            "rows": Column("rounds", ",.0f"),
            **{f"share_{mark}": Column(f"% {mark}", ".1f", scale=100, interval=True) for mark in _CONFIDENCES},
            "entropy": Column("entropy, nats", ".3f"),
        },
        published=published,
    )
    lines: list[tuple[Any, ...]] = []
    together = (
        "rounds of all cells of a prompt together (the paper does not say of which cells its shares are); a uniform "
        "choice has 20.0 % and 1.609 nats"
    )
    notes = [interval_note(resampling), together]
    for prompt, beside in dict.fromkeys((item.cell.prompt, bool(item.cell.published)) for item in cells):
        group = [c for c in cells if (c.cell.prompt, bool(c.cell.published)) == (prompt, beside)]
        recordings = [with_evidence(item.eval) for item in group]
        by_cell = [_rows(recording, said=_column(recording, "verbal_confidence")) for recording in recordings]
        silent = [item.cell.name for item, (_, questions) in zip(group, by_cell, strict=True) if not questions]
        if silent:
            notes.append(f"left out, {', '.join(silent)}: no stated confidence was recorded")
        stated = np.concatenate([rows["said"] for rows, _ in by_cell])
        if not len(stated):
            continue
        questions = [question for _, cell_questions in by_cell for question in cell_questions]
        shares, _ = macro_means(
            resampling, [(prompt, {f"share_{m}": (np.rint(stated) == m) * 1.0 for m in _CONFIDENCES}, questions)]
        )
        ours: Mapping[str, FigureValue] = {"rows": float(len(stated)), **shares, "entropy": _entropy(np.rint(stated))}
        lines += layout.lines((prompt, len(group) - len(silent)), ours, prompt if beside else None)
    if not lines:
        raise DataError("; ".join(notes[2:]))
    return layout.table(lines, notes)


def _entropy(values: Floats) -> float:
    """Return the entropy of a discrete sample, nats."""
    _, counts = np.unique(values, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum() + 0.0)
