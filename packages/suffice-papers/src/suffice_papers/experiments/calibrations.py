"""Tables on calibration: fewer tune questions, other floors on the margin, and calibrators from other cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table, counted
from suffice.errors import DataError
from suffice.evaluation.replay import outcome
from suffice.evaluation.replay.baselines import Run, run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import ROUNDING, Resampling
from suffice.policy.rules import Threshold
from suffice.policy.rules.algebra import with_threshold
from suffice.policy.session import Policy
from suffice.verdicts.diagnostics.premature import without_floor
from suffice.verdicts.diagnostics.sweep import sweep_threshold
from suffice_papers.experiments.plan import FEWEST_TUNE
from suffice_papers.tasr.ablations import calibrated, calibration_error, refitted
from suffice_papers.tasr.cells import CellRuns

_SWEPT_METRIC = "f1"


def _policy_run(prepared: PreparedRecording, policy: Policy) -> Run:
    return run_policy(prepared, policy)[0]


def curve_table(cells: Sequence[CellRuns], sizes: Sequence[int], draws: int, resampling: Resampling) -> Table:
    """Return the learning curve: TASR on the eval questions when calibrated on fewer tune questions.

    Args:
        cells: One run of each configuration.
        sizes: Numbers of tune questions; if empty, a quarter and a half of all.  The last point always uses all tune
            questions.
        draws: Number of random sets of each size; the larger set of a draw contains its smaller sets.
        resampling: Seed of the draws and level of the spread.

    Raises:
        DataError: No cell is calibrated.
    """
    usable, notes = calibrated(cells)
    rows: list[tuple[Any, ...]] = []
    for cell in usable:
        assert cell.policy is not None
        prepared = PreparedRecording.of(cell.eval, [_SWEPT_METRIC])
        n = len(cell.tune.question_ids)
        whole = _policy_run(prepared, cell.policy)
        full_f1, full_calls = float(whole.values[_SWEPT_METRIC].mean()), float(whole.ledger.calls.mean())
        orders = np.random.default_rng(resampling.seed).permuted(np.tile(np.arange(n), (draws, 1)), axis=1)
        chosen = sorted({size for size in (sizes or (n // 4, n // 2)) if FEWEST_TUNE <= size < n})
        if beyond := [size for size in sizes if size > n]:
            few = ", ".join(f"{size:,}" for size in beyond)
            notes.append(f"{cell.cell.name}: no point at {few}, as there are {counted(n, 'tune question')}")
        for size in chosen:
            f1, calls = [], []
            for order in orders:
                fitted = refitted(cell, np.isin(np.arange(n), order[:size]))
                if fitted is not None:
                    run = _policy_run(prepared, fitted)
                    f1.append(float(run.values[_SWEPT_METRIC].mean()))
                    calls.append(float(run.ledger.calls.mean()))
            gains = [value - full_f1 for value in f1]
            spreads = [_with_spread(values, resampling) for values in (f1, calls, gains)]
            rows.append((cell.cell.name, size, len(f1), *spreads))
        rows.append((cell.cell.name, n, 1, full_f1, full_calls, 0.0))
    title = f"Learning curve: TASR on the eval questions by the number of tune questions, means over {draws} draws"
    columns = (
        Column("cell"),
        Column("tune questions", ",.0f"),
        Column("draws", ".0f"),
        Column("F1", ".2f", scale=100, interval=True),
        Column("calls", ".2f", interval=True),
        Column("ΔF1 vs all", "+.2f", scale=100, interval=True),
    )
    spread = (
        f"[low, high] holds {100 * resampling.level:g} % of the draws of tune questions: it is a spread, not an interval of the mean, and one set has none (n/a); "
        "with fewer draws than asked for, the other sets could not calibrate"
    )
    return Table(title=title, columns=columns, rows=tuple(rows), notes=(spread, *notes))


def _with_spread(values: Sequence[float], resampling: Resampling) -> Any:
    if not values:
        return None
    low, high = np.quantile(values, resampling.ends).tolist() if len(values) > 1 else (math.nan, math.nan)
    return float(np.mean(values)), low, high


def floor_table(cells: Sequence[CellRuns], resampling: Resampling) -> Table:
    """Compare the published threshold (floor) of the calibrated margin with two other floors, in each cell.

    Each of the two has the best quality among floors that need no more calls than the published floor.  The first is
    selected and measured on the eval questions, so its lead is optimistic.  The second is selected on the tune
    questions and measured on the eval questions.

    Args:
        cells: One run of each configuration.
        resampling: Settings of the intervals.

    Raises:
        DataError: No cell is calibrated.
    """
    usable, notes = calibrated(cells)
    rows = []
    for cell in usable:
        assert cell.policy is not None
        split = without_floor(cell.policy.rule)
        assert split is not None
        prepared, tune = (PreparedRecording.of(item, [_SWEPT_METRIC]) for item in (cell.eval, cell.tune))
        own, best = _floors(prepared, cell.policy, split[1])
        chosen = _floors(tune, cell.policy, split[1])[1]
        other = replace(cell.policy, rule=with_threshold(cell.policy.rule, split[1], chosen.value), name="")
        before, after = _policy_run(prepared, cell.policy), _policy_run(prepared, other)
        draws = prepared.draws(resampling)
        rows.append(
            (
                *(cell.cell.name, split[1].value, own.quality, own.calls, own.on_front),
                *(best.value, best.quality - own.quality, chosen.value),
                draws.paired(after.values[_SWEPT_METRIC] - before.values[_SWEPT_METRIC]).triple,
                draws.paired(after.ledger.calls - before.ledger.calls).triple,
            )
        )
    gaps = [row[6] for row in rows]
    notes.append(
        f"the best floor at no more calls gains {100 * max(gaps):.2f} points at most, {100 * float(np.mean(gaps)):.2f} on average over "
        f"{len(rows)} cells; it was selected on these questions, so this is an upper bound of what another floor would gain"
    )
    columns = (
        *(Column("cell"), Column("floor", ".3g"), Column("F1", ".2f", scale=100), Column("calls", ".2f")),
        Column("on the front"),
        *(Column("best floor here", ".3g"), Column("its lead", "+.2f", scale=100), Column("floor by tune", ".3g")),
        Column("its ΔF1", "+.2f", scale=100, interval=True),
        Column("its Δcalls", "+.2f", interval=True),
    )
    title = "Floor on p_correct: the published one, the best at no more calls, and the one selected on tune"
    return Table(title=title, columns=columns, rows=tuple(rows), notes=(resampling.text, *notes))


def _floors(prepared: PreparedRecording, policy: Policy, floor: Threshold) -> tuple[Any, Any]:
    """Return the points (quality and calls) of the policy's own floor and of the best floor that needs no more calls."""
    points = sweep_threshold(prepared, policy, floor, metric=_SWEPT_METRIC).points
    own = next(point for point in points if point.own)
    allowed = [point for point in points if point.calls <= own.calls + ROUNDING and not math.isnan(point.quality)]
    top = max(point.quality for point in allowed)
    return own, own if own.quality >= top - ROUNDING else next(p for p in allowed if p.quality >= top - ROUNDING)


def transfer_table(cells: Sequence[CellRuns], resampling: Resampling) -> Table:
    """Compare, in each cell, calibrators that were fitted in other cells with the cell's own calibrators.

    Args:
        cells: One run of each configuration.
        resampling: Settings of the intervals.

    Raises:
        DataError: There are no two calibrated cells with the same prompt.
    """
    usable, notes = calibrated(cells)
    rows: list[tuple[Any, ...]] = []
    for cell in usable:
        assert cell.policy is not None
        prepared = PreparedRecording.of(cell.eval, [_SWEPT_METRIC])
        right = outcome(cell.eval, "em")
        draws = prepared.draws(resampling)
        own, own_error = _policy_run(prepared, cell.policy), calibration_error(prepared, cell.policy, right)
        for other in usable:
            if other.cell.tune == cell.cell.tune or other.cell.prompt != cell.cell.prompt:
                continue
            assert other.policy is not None
            borrowed = replace(cell.policy, calibrators=other.policy.calibrators, name="")
            run, error = _policy_run(prepared, borrowed), calibration_error(prepared, borrowed, right)
            rows.append(
                (
                    *(other.cell.name, cell.cell.name, own_error[0], error[0], own_error[1], error[1]),
                    draws.paired(run.values[_SWEPT_METRIC] - own.values[_SWEPT_METRIC]).triple,
                    draws.paired(run.ledger.calls - own.ledger.calls).triple,
                )
            )
    if not rows:
        raise DataError("needs two cells of one prompt, each with tune questions of its own")
    columns = (
        *map(Column, ("calibrated on", "used in")),
        *(Column(name, ".3f") for name in ("Brier, own", "Brier, borrowed", "ECE, own", "ECE, borrowed")),
        Column("ΔF1 vs own", "+.2f", scale=100, interval=True),
        Column("Δcalls vs own", "+.2f", interval=True),
    )
    title = "Transferred calibration: calibrators of one cell in another, on its eval questions"
    return Table(title=title, columns=columns, rows=tuple(rows), notes=(resampling.text, *notes))
