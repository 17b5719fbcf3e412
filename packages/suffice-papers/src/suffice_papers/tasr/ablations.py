"""TASR's ablations: forms of calibrators (section 3.3), thresholds tuned in folds (5.3), other signals (5.4), seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table
from suffice.errors import DataError, SufficeError
from suffice.evaluation.replay import calibrate, even_thresholds, outcome, policy_for
from suffice.evaluation.replay.baselines import Run, run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import ROUNDING, Resampling
from suffice.policy.calibration import calibration_report
from suffice.policy.calibration.calibrator import Method
from suffice.policy.rounds import Floats, Mask
from suffice.policy.rules import Rule, Threshold, margin, signal
from suffice.policy.rules.algebra import with_threshold
from suffice.policy.session import Policy
from suffice.recordings import Recording
from suffice.verdicts.diagnostics.premature import without_floor
from suffice.verdicts.diagnostics.sweep import sweep_threshold
from suffice_papers.published import FigureValue, Published
from suffice_papers.tasr.cells import CellRuns, defined
from suffice_papers.tasr.frontier import with_runs
from suffice_papers.tasr.rows import cell_means, interval_note, value_of

_FORMS: Mapping[str, tuple[Method, bool]] = {
    "isotonic, each round": ("isotonic", True),
    "isotonic, all rounds": ("isotonic", False),
    "Platt, each round": ("platt", True),
    "Platt, all rounds": ("platt", False),
}
_USUAL, _PLATT = "isotonic, each round", "Platt, each round"
_FOLDS = 5
_MOST_CALLS = 3.0
"""The largest mean calls of a threshold that section 5.3 may choose."""
_LARGE_GAP = 0.07
_THEIR_FORMS = (
    "published, means over 18 cells of model, data and prompt: isotonic in each round Brier .195, F1 59.0; isotonic over all rounds "
    ".192, 57.9; Platt .197, F1 +0.41, higher in 12 of 18. Which cells, and on which questions, it does not say: not compared"
)
_HOW_TUNED = (
    f"a threshold has the best F1 with at most {_MOST_CALLS:g} mean calls on the questions that it is tuned on, or the fewest calls; "
    "calibrators are fitted on the same questions"
)
_THEIR_FOLDS = "published: gaps of 7 to 9 points in four of six cells, and the locked threshold 0.18 macro F1 better than tuning by cell"
_STEPS = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Thresholds of a continuous stability, one of which is chosen on tune questions."""


def calibrated(cells: Sequence[CellRuns]) -> tuple[list[CellRuns], list[str]]:
    """Return the cells with a calibrated policy, and notes on all other cells.

    Raises:
        DataError: No cell has a calibrated policy.
    """
    usable = [cell for cell in cells if cell.policy is not None and cell.policy.calibrators]
    others = [cell for cell in cells if all(cell is not item for item in usable)]
    notes = [f"left out, {cell.cell.name}: {cell.problem or 'nothing is calibrated'}" for cell in others]
    if not usable:
        raise DataError("; ".join(notes) or "there are no cells")
    return usable, notes


def refitted(cell: CellRuns, keep: Mask | None = None, **form: Any) -> Policy | None:
    """Fit a cell's calibrators again, in another form or on some of the tune questions; return the policy with the new calibrators.

    Return None if a calibrator cannot be fitted.

    Args:
        cell: A cell with a calibrated policy.
        keep: Mask of the tune questions, shape ``(n_questions,)``; None for all.
        form: Fields of `Calibrator` to change.
    """
    assert cell.policy is not None
    tune = cell.tune if keep is None else cell.tune.select(keep)
    try:
        calibrators = tuple(
            replace(item, maps=None, rounds_fitted=None, **form).fit(
                tune.column(item.signal), outcome(tune, item.target), index=tune.index
            )
            for item in cell.policy.calibrators
        )
    except SufficeError:
        return None
    return replace(cell.policy, calibrators=calibrators)


def calibration_error(prepared: PreparedRecording, policy: Policy, right: Floats) -> tuple[float, float]:
    """Return the Brier score and the expected calibration error of `p_correct`, over all rounds where it is defined."""
    view = prepared.view(policy)
    probabilities, labels = view["p_correct"], prepared.in_view(right, view)
    known = view.seen & np.isfinite(probabilities) & np.isfinite(labels)
    if not known.any():
        return math.nan, math.nan
    report = calibration_report(probabilities[known], labels[known])
    return report.brier, report.ece


def _means(resampling: Resampling, cells: Sequence[CellRuns], values: Mapping[int, Floats]) -> FigureValue:
    """Return the mean of a quantity over cells; `values` contains, by `id(cell)`, the quantity of each question."""
    return cell_means(resampling, cells, lambda cell: {"value": values[id(cell)]})[0]["value"]


def calibrators_table(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return the ablation of section 3.3: Brier score and F1 of TASR for each form of calibrator, over all cells.

    Raises:
        DataError: No cell is calibrated.
    """
    del published
    usable, notes = calibrated(cells)
    fitted = {name: [refitted(c, method=m, per_round=by) for c in usable] for name, (m, by) in _FORMS.items()}
    rows: list[tuple[Any, ...]] = []
    f1: dict[str, list[Floats]] = {}
    briers: dict[str, list[float]] = {}
    for place, cell in enumerate(usable):
        prepared, right = PreparedRecording.of(cell.eval, ["f1"]), outcome(cell.eval, "em")
        for name, policies in fitted.items():
            policy = policies[place]
            if policy is None:
                raise DataError(f"{cell.cell.name}: {name} cannot be fitted to its tune questions")
            run = run_policy(prepared, policy)[0]
            f1.setdefault(name, []).append(run.values["f1"])
            briers.setdefault(name, []).append(calibration_error(prepared, policy, right)[0])
            rows.append(
                (
                    cell.cell.name,
                    name,
                    briers[name][-1],
                    float(run.values["f1"].mean()),
                    float(run.ledger.calls.mean()),
                    None,
                )
            )
    for name in _FORMS:
        deltas = {id(cell): own - usual for cell, own, usual in zip(usable, f1[name], f1[_USUAL], strict=True)}
        means = _means(resampling, usable, deltas)
        quality = float(np.mean([values.mean() for values in f1[name]]))
        rows.append((f"mean of {len(usable)}", name, float(np.mean(briers[name])), quality, None, means))
    wins = sum(a.mean() > b.mean() + ROUNDING for a, b in zip(f1[_PLATT], f1[_USUAL], strict=True))
    heading = (
        f"Platt scaling in each round has a higher F1 than isotonic regression in {wins} of {len(usable)} cells",
        _THEIR_FORMS,
    )
    columns = (
        *map(Column, ("cell", "calibrator")),
        Column("Brier, eval", ".3f"),
        Column("F1", ".2f", scale=100),
        Column("calls", ".2f"),
        Column("ΔF1 vs isotonic, each round", "+.2f", scale=100, interval=True),
    )
    return Table(
        title="Section 3.3. Forms of calibrators, fitted on tune questions",
        columns=columns,
        rows=tuple(rows),
        notes=(interval_note(resampling), *heading, *notes),
    )


def folds_table(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return the check of section 5.3, which tunes the margin's threshold in five folds and on all tune questions.

    Raises:
        DataError: No cell is calibrated.
    """
    del published
    usable, notes = calibrated(with_runs(cells, "distractor")[0])
    rows: list[tuple[Any, ...]] = []
    leads: dict[int, Floats] = {}
    for cell in usable:
        assert cell.policy is not None
        found = [fold for fold in _fold_results(cell, resampling) if fold is not None]
        if not found:
            notes.append(
                f"left out, {cell.cell.name}: its tune questions are too few to be calibrated in {_FOLDS} folds"
            )
            continue
        train, held, floors = zip(*found, strict=True)
        inside, outside = float(np.mean(train)), float(np.concatenate(held).mean())
        tuned = _tuned(PreparedRecording.of(cell.tune, ["f1"]), cell.policy)
        prepared = PreparedRecording.of(cell.eval, ["f1"])
        leads[id(cell)] = cell.f1["tasr"] - run_policy(prepared, tuned[1])[0].values["f1"]
        mean = _means(resampling, [cell], leads)
        span = f"{min(floors):.2f} to {max(floors):.2f}"
        rows.append((cell.cell.name, inside, outside, inside - outside, span, tuned[0], mean))
    if not rows:
        raise DataError("; ".join(notes))
    tried = [cell for cell in usable if id(cell) in leads]
    mean = _means(resampling, tried, leads)
    gaps = [row[3] for row in rows]
    rows.append(
        (
            f"mean of {len(tried)}",
            *(float(np.mean([row[place] for row in rows])) for place in (1, 2, 3)),
            None,
            None,
            mean,
        )
    )
    large = sum(gap > _LARGE_GAP for gap in gaps)
    heading = (
        _HOW_TUNED,
        f"the gap is above {100 * _LARGE_GAP:g} points in {large} of {len(gaps)} cells",
        _THEIR_FOLDS,
    )
    columns = (
        Column("cell"),
        *(Column(name, ".2f", scale=100) for name in ("F1, four fifths", "F1, other fifth", "gap")),
        Column("thresholds"),
        Column("threshold by tune", ".2f"),
        Column("eval ΔF1, locked minus tuned", "+.2f", scale=100, interval=True),
    )
    return Table(
        title="Section 5.3, folds. The threshold of p_correct tuned in five folds of the tune questions",
        columns=columns,
        rows=tuple(rows),
        notes=(interval_note(resampling), *heading, *notes),
    )


def _fold_results(cell: CellRuns, resampling: Resampling) -> list[tuple[float, Floats, float] | None]:
    """Tune the threshold for each fold on the other four folds.

    Return for each fold the mean F1 on the other folds, the F1 of each of its own questions, and the threshold; return
    None for a fold if TASR cannot be calibrated on the other folds.
    """
    n = len(cell.tune.question_ids)
    folds = np.random.default_rng(resampling.seed).permutation(np.arange(n) % _FOLDS)
    results: list[tuple[float, Floats, float] | None] = []
    for number in range(_FOLDS):
        apart = folds == number
        policy = refitted(cell, ~apart) if apart.any() else None
        if policy is None:
            results.append(None)
            continue
        train, held = (PreparedRecording.of(cell.tune.select(keep), ["f1"]) for keep in (~apart, apart))
        threshold, tuned = _tuned(train, replace(policy, calibrators=_nearest(policy)))
        inside = float(run_policy(train, tuned)[0].values["f1"].mean())
        results.append((inside, run_policy(held, tuned)[0].values["f1"], threshold))
    return results


def _nearest(policy: Policy) -> tuple[Any, ...]:
    """Return the policy's calibrators, set to use the nearest fitted round for a round that they were not fitted on.

    A fold may have such rounds.
    """
    return tuple(replace(item, unseen_round="nearest") for item in policy.calibrators)


def _tuned(prepared: PreparedRecording, policy: Policy) -> tuple[float, Policy]:
    """Return the best threshold of the margin within the budget of calls, and the policy with that threshold."""
    split = without_floor(policy.rule)
    assert split is not None
    points = sweep_threshold(prepared, policy, split[1], metric="f1").points
    best = _best([(point.quality, point.calls, point.value) for point in points])
    return best, replace(policy, rule=with_threshold(policy.rule, split[1], best), name="")


def _best(tried: Sequence[tuple[float, float, float]]) -> float:
    """Return the threshold with the best quality within the budget of calls.

    If every threshold exceeds the budget, return the threshold with the fewest calls.
    """
    allowed = [item for item in tried if item[1] <= _MOST_CALLS + ROUNDING]
    return max(allowed, key=lambda item: item[0])[2] if allowed else min(tried, key=lambda item: item[1])[2]


# Section 5.4


def negatives_table(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return the negative results of section 5.4: how F1 and calls of TASR change on eval questions with other signals.

    Raises:
        DataError: No cell has any of the signals.
    """
    del published
    used, notes = with_runs(cells)
    rows: list[tuple[Any, ...]] = []
    for name, (build, told) in _VARIANTS.items():
        runs = {id(cell): run for cell in used if (run := _variant_run(cell, build)) is not None}
        having = [cell for cell in used if id(cell) in runs]
        if not having:
            notes.append(f"not made, {name}: no cell has its signal on tune and eval questions")
            continue

        def changes(cell: CellRuns, runs: Mapping[int, Run] = runs) -> dict[str, Floats]:
            run = runs[id(cell)]
            return {"f1": run.values["f1"] - cell.f1["tasr"], "calls": run.ledger.calls - cell.calls["tasr"]}

        means, _ = cell_means(resampling, having, changes)
        each = [float(changes(cell)["f1"].mean()) for cell in having]
        ends: tuple[FigureValue, ...] = (min(each), max(each))
        rows.append((name, len(having), means["f1"], value_of(means["calls"]), *ends, told))
    if not rows:
        raise DataError("; ".join(notes))
    columns = (
        Column("variant of TASR"),
        Column("cells", ".0f"),
        Column("ΔF1 vs TASR", "+.2f", scale=100, interval=True),
        Column("Δcalls", "+.2f"),
        *(Column(name, "+.2f", scale=100) for name in ("lowest cell", "highest cell")),
        Column("published"),
    )
    chosen = (
        f"or ... > t: t as in section 5.3, one of 40 values with the best F1 within {_MOST_CALLS:g} calls of that signal alone; instead of answer_stable: t of "
        f"{', '.join(f'{step:g}' for step in _STEPS)} by F1; all on tune questions. Margins of all tokens are calibrated like the first"
    )
    return Table(
        title="Section 5.4. Negative results: other signals in TASR",
        columns=columns,
        rows=tuple(rows),
        notes=(interval_note(resampling), chosen, *notes),
    )


Build = Callable[[CellRuns], Policy | None]


def _variant_run(cell: CellRuns, build: Build) -> Run | None:
    """Return the run of a variant of TASR on the eval questions; None if the recordings lack its signal."""
    try:
        policy = build(cell)
        return None if policy is None else run_policy(PreparedRecording.of(cell.eval, ["f1"]), policy)[0]
    except SufficeError:
        return None


def _has(cell: CellRuns, name: str) -> bool:
    return all(defined(recording, name) for recording in (cell.tune, cell.eval))


def _or(name: str) -> Build:
    """Return a function that builds a policy that stops if TASR fires, or if another signal is above its threshold."""

    def build(cell: CellRuns) -> Policy | None:
        if cell.policy is None or not _has(cell, name):
            return None
        return replace(cell.policy, rule=cell.policy.rule | _alone(cell.tune, name), name="")

    return build


def _alone(tune: Recording, name: str) -> Rule:
    """Return the rule that reads only one signal, with a threshold chosen on tune questions as in section 5.3."""
    prepared = PreparedRecording.of(tune, ["f1"])
    tried = []
    for value in even_thresholds(tune.column(name)[tune.seen]):
        run = run_policy(prepared, policy_for(tune, Threshold(name, ">", float(value))))[0]
        tried.append((float(run.values["f1"].mean()), float(run.ledger.calls.mean()), float(value)))
    return Threshold(name, ">", _best(tried))


def _instead(name: str) -> Build:
    """Return a function that builds TASR with a continuous stability of the text in place of equal answers."""

    def build(cell: CellRuns) -> Policy | None:
        if cell.policy is None or not _has(cell, name):
            return None
        prepared = PreparedRecording.of(cell.tune, ["f1"])
        variants = [replace(cell.policy, rule=(signal(name) >= step) & margin(), name="") for step in _STEPS]
        quality = [float(run_policy(prepared, policy)[0].values["f1"].mean()) for policy in variants]
        return variants[int(np.argmax(quality))]

    return build


def _aggregate(name: str) -> Build:
    """Return a function that builds TASR with another margin in place of the margin of the first token."""

    def build(cell: CellRuns) -> Policy | None:
        if not _has(cell, name):
            return None
        highest = int(cell.eval.index[-1])
        return calibrate(cell.tune, rule="tasr", source=name, max_rounds=highest, compare=False)[0]

    return build


_VARIANTS: Mapping[str, tuple[Build, str]] = {
    "or rerank_score > t": (_or("rerank_score"), "-4 to -14 in all cells"),
    "or top_score_z_robust > t": (_or("top_score_z_robust"), "-3.5 to -17.9 at all thresholds"),
    "answer_f1_previous >= t": (_instead("answer_f1_previous"), "at most +0.10 [0.00, +0.38]"),
    "answer_similarity_previous >= t": (_instead("answer_similarity_previous"), "at most +0.10 [0.00, +0.38]"),
    **{
        f"p_correct by answer_margin_{kind}": (_aggregate(f"answer_margin_{kind}"), "within ±0.22")
        for kind in ("min", "p10", "mean", "median")
    },
}
"""The variants of section 5.4 with the published change of F1 in points."""


def seconds_table(cells: Sequence[CellRuns], published: Published, resampling: Resampling) -> Table:
    """Return the recorded seconds per question of TASR and of fixed budgets, in cells where all rounds were timed.

    Raises:
        DataError: No cell has the seconds of all rounds.
    """
    del published
    used, notes = with_runs(cells)
    rows: list[tuple[Any, ...]] = []
    for cell in used:
        spent = {
            label: run.ledger.total("seconds")
            for label, run in cell.runs.items()
            if label.startswith(("tasr", "fixed_k"))
        }
        if not all(np.isfinite(seconds).all() for seconds in spent.values()) or not any(map(np.any, spent.values())):
            notes.append(f"left out, {cell.cell.name}: the seconds of its calls were not all recorded")
            continue
        for label, seconds in spent.items():
            mean = _means(resampling, [cell], {id(cell): seconds})
            calls = float(cell.calls[label].sum())
            rows.append(
                (
                    cell.cell.name,
                    label,
                    mean,
                    float(np.quantile(seconds, 0.95)),
                    float(seconds.sum()) / calls,
                )
            )
    if not rows:
        raise DataError("; ".join(notes))
    columns = (
        *map(Column, ("cell", "policy")),
        Column("seconds", ".3f", interval=True),
        Column("seconds, P95", ".3f"),
        Column("seconds per call", ".3f"),
    )
    measured = (
        "seconds as recorded, of calls one after the other; energy is not recorded, and nothing is estimated from them"
    )
    return Table(
        title="Latency. Recorded seconds of a question",
        columns=columns,
        rows=tuple(rows),
        notes=(interval_note(resampling), measured, *notes),
    )
