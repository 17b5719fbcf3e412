"""Diagnose the signals, calibrators and stops of a recording, in one result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from suffice.common.display import Chart
from suffice.common.results import BESIDE, Result
from suffice.common.tables import Table, counted
from suffice.errors import DataError
from suffice.evaluation.replay import calibrate, check_policy, policy_for, seen_from, seen_in, selected_on
from suffice.evaluation.replay.baselines import RECORDED, Run, recorded_run, run_policy
from suffice.evaluation.replay.outcomes import choice_note, default_metrics
from suffice.evaluation.replay.prepared import PreparedRecording, answering_like
from suffice.evaluation.replay.references import baseline_policy
from suffice.evaluation.results import Evaluation
from suffice.evaluation.statistics import Resampling, undefined_notes
from suffice.policy.calibration import CALIBRATED
from suffice.policy.rules import Rule, parse_rule, thresholds
from suffice.policy.session import Policy
from suffice.policy.signals import KNOWN
from suffice.recordings.recording import Recording
from suffice.recordings.stored_loops import refuse_loops_of
from suffice.verdicts.diagnostics.calibration import judge_calibrators
from suffice.verdicts.diagnostics.cells import compare_cells
from suffice.verdicts.diagnostics.drift import measure_drift
from suffice.verdicts.diagnostics.premature import compare_floor, look_at_stops
from suffice.verdicts.diagnostics.question_types import by_type
from suffice.verdicts.diagnostics.rows import Rows, draw_d, has_metric
from suffice.verdicts.diagnostics.signals import correlate, summarise_signals
from suffice.verdicts.diagnostics.sweep import sweep_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Evaluation):
    """The diagnostics of one recording.

    Attributes:
        parts: The results by name, in the order of the report: `signals`, `correlations`, `drift`, `calibration`, one
            ``sweep LITERAL`` for each threshold that can be varied, `types`, `premature`, `floor`, `cells`. Parts whose
            inputs are missing are left out.
        metric: The metric that says which answers are right.
        n_rounds: Recorded rounds of all questions.
    """

    parts: Mapping[str, Result] = field(metadata=BESIDE)
    metric: str
    n_rounds: int

    def plot(self, part: str = "signals") -> Chart:
        """Return the chart of a part: `signals`, `calibration`, or a ``sweep LITERAL``.

        Raises:
            DataError: The diagnosis has no such part, or the part has no chart.
        """
        charts: dict[str, Any] = {name: value for name, value in self.parts.items() if hasattr(value, "plot")}
        if part not in charts:
            raise DataError(f"nothing to plot for {part!r}; the parts with a chart are: {', '.join(charts)}")
        chart: Chart = charts[part].plot()
        return chart

    def tables(self) -> list[Table]:
        """Return the tables of all parts, in order."""
        return [table for part in self.parts.values() for table in part.tables()]


def diagnose(
    recording: Recording,
    *,
    policy: Policy | Rule | str | None = None,
    tune: Recording | None = None,
    cells: Mapping[str, Recording] | None = None,
    metric: str = "em",
    quality: str | None = None,
    baseline: str | Policy | None = None,
    type_column: str = "question_type",
    name: str = "this recording",
    resampling: Resampling = Resampling(),
) -> Diagnosis:
    """Diagnose the signals of a recording and, given a policy or a tune recording, calibrators and stops.

    A part is left out if its inputs are missing, and a note names the missing inputs.

    >>> from suffice import diagnose
    >>> from suffice.recordings import bundled_recording
    >>> result = diagnose(bundled_recording("self_refine_dv3"), metric="target_sentiment", resampling=Resampling(n_resamples=20))
    >>> print(", ".join(result.parts))
    signals, correlations

    Args:
        recording: Recorded rounds.
        policy: The policy whose stops are examined. A rule or its text becomes a policy with the settings of the
            recording; if it needs calibrators, these are fitted on `tune`.
        tune: The recording on which calibrators are fitted, and with which `recording` is compared for drift.
        cells: Recordings of other models or corpora, by name.
        metric: The metric of right answers: `em`, a threshold such as ``f1 > 0.5``, `agreement`, or a column of 0 and 1.
        quality: The metric of the policy's answers; None = `f1` where it was recorded (`em` for multiple choice), else `metric`.
        baseline: The reference of differences in quality: a rule or its text, `full`, `recorded`, or a policy.
            None = `fixed_k(3)`, or `recorded` where a rule ended some recordings.
        type_column: The column of question types.
        name: The name that the recording gets in the comparison of cells.
        resampling: Settings of the intervals.

    Raises:
        DataError: `metric` takes other values than 0 and 1, or all questions failed.
        ConfigMismatchError: The policy belongs to another model, prompt or retriever than the recording.
        NotFittedError: The policy needs calibrators, has none, and there is no `tune`.
        UnknownSignalError: The policy reads a signal that was not recorded.
        UnsettledError: A recording holds loops of several models, prompts or systems.
    """
    refuse_loops_of(recording, tune, *(cells or {}).values())
    prepared = PreparedRecording.of(recording)
    complete = prepared.recording
    tune = None if tune is None else PreparedRecording.of(tune).recording
    policy = None if policy is None else _resolved_policy(complete, tune, policy, metric)
    quality = quality or next((name for name in default_metrics(complete)[:1] if has_metric(complete, name)), metric)
    inputs = _Inputs(
        prepared=prepared.with_metrics([quality] if has_metric(complete, quality) else []),
        policy=policy,
        tune=tune,
        metric=metric,
        quality=quality,
        resampling=resampling,
    )
    if prepared.n_failed:
        inputs.notes.append(f"{counted(prepared.n_failed, 'question')} failed while recording: left out")
    inputs.check()
    parts = inputs.signals() | inputs.calibration()
    if policy is not None:
        parts |= inputs.thresholds(policy, baseline, type_column) | inputs.stops(policy)
    if cells:
        parts |= inputs.cells({name: complete, **cells})
    return Diagnosis(
        parts=parts,
        metric=metric,
        n=prepared.n,
        n_rounds=int(complete.seen.sum()),
        resampling=resampling,
        data_hash=recording.data_hash,
        notes=tuple(inputs.notes),
    )


_GATED = f"{KNOWN} > 0.5"
"""A rule that reads the recorded gate, whose figures are among those of the signals."""


def _resolved_policy(recording: Recording, tune: Recording | None, policy: Policy | Rule | str, metric: str) -> Policy:
    """Return the policy; a rule becomes a policy with the recording's settings and calibrators fitted on `tune`."""
    if isinstance(policy, Policy):
        return policy
    rule = parse_rule(policy) if isinstance(policy, str) and policy != "full" else policy
    draft = policy_for(recording, rule, **({"name": policy} if isinstance(policy, str) else {}))
    missing = [n for n in draft.signals if n in CALIBRATED and n not in recording.table.column_names]
    if tune is None or not missing:
        return draft
    fitted, _ = calibrate(tune, rule=draft.rule, target=metric, unseen_round="nearest", max_rounds=draft.max_rounds)
    return replace(fitted, name=draft.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """The inputs of `diagnose`; a part of the diagnosis adds a note if an input is missing."""

    prepared: PreparedRecording
    policy: Policy | None
    tune: Recording | None
    metric: str
    quality: str
    resampling: Resampling
    notes: list[str] = field(default_factory=list)

    @property
    def recording(self) -> Recording:
        """The recording without failed questions."""
        return self.prepared.recording

    def check(self) -> None:
        """Raise if the policy does not belong to the recording; add notes on the inputs."""
        recording, notes = self.recording, self.notes
        cut = int((recording.ends == "rule").sum())
        if cut:
            notes.append(f"censored: a rule ended {cut} of {len(recording.ends)} recorded questions early")
        if not has_metric(recording, self.metric):
            notes.append(
                f"no metric {self.metric!r}, so it is unknown which answers are right; without gold answers use the metric "
                "'agreement'"
            )
        if self.tune is None:
            notes.append("no recording of tune questions (tune): no drift, and no forms of calibrators side by side")
        elif shared := int(seen_in(recording, seen_from(self.tune)).sum()):
            notes.append(f"selected here: {shared} questions are in the tune recording too, so fits and drift flatter")
        readers = [] if self.policy is None else [self.policy]
        if KNOWN in recording.names("signal"):
            readers.append(policy_for(recording, _GATED))
        notes += selected_on(readers, recording).notes
        notes += filter(None, [choice_note(recording)])
        notes += undefined_notes(len(set(recording.clusters.tolist())), self.resampling.n_resamples)
        if self.policy is None:
            notes.append("no policy: no threshold sweep, no types of questions, no premature stops")
        else:
            notes += check_policy(self.policy, recording)

    def signals(self) -> dict[str, Result]:
        """Return the parts about signals."""
        metric, resampling = self.metric, self.resampling
        rows = Rows.of(self.recording, metric, self.policy)
        draws = draw_d(rows, list(rows.columns), resampling)
        parts: dict[str, Result] = {
            "signals": summarise_signals(self.recording, rows, draws, metric=metric, resampling=resampling),
            "correlations": correlate(rows),
        }
        if self.tune is not None:
            tune = Rows.of(self.tune, metric, self.policy)
            parts["drift"] = measure_drift(tune, rows, draws, metric=metric, resampling=resampling)
        return parts

    def calibration(self) -> dict[str, Result]:
        """Return the part about calibrators."""
        if not has_metric(self.recording, self.metric):
            return {}
        tune = self.tune if self.tune is not None and has_metric(self.tune, self.metric) else None
        judged = judge_calibrators(
            self.prepared, policy=self.policy, tune=tune, target=self.metric, quality=self.quality
        )
        if judged is None:
            self.notes.append(f"no calibrated signal ({', '.join(CALIBRATED)}): no reliability")
        return {} if judged is None else {"calibration": judged}

    def thresholds(self, policy: Policy, baseline: str | Policy | None, type_column: str) -> dict[str, Result]:
        """Return the sweep of each threshold that can be varied, and the part about question types."""
        run, stopped = run_policy(self.prepared, policy)
        n, quality = self.prepared.n, self.quality
        unmeasured = int(np.isnan(run.values[quality]).sum()) if quality in run.values else n
        if unmeasured:
            why = "" if run.exact else f" (a rule ended the recording of {int(run.unrun.sum())} before)"
            self.notes.append(
                f"{quality!r} is unknown where {policy.label} stops in {unmeasured} of {n} questions{why}: no sweep, no types"
            )
            return {}
        parts: dict[str, Result] = {}
        for literal in thresholds(policy.rule):
            known = stopped.view[literal.name][stopped.view.seen]
            if literal.name != "round" and len(np.unique(known[np.isfinite(known)])) > 2:  # noqa: PLR2004
                parts[f"sweep {literal}"] = sweep_threshold(self.prepared, policy, literal, metric=quality)
        return parts | self._types(policy, run, baseline, type_column)

    def _types(self, policy: Policy, run: Run, baseline: str | Policy | None, column: str) -> dict[str, Result]:
        if column not in self.recording.table.column_names:
            self.notes.append(f"no column {column!r}: types of questions are unknown")
            return {}
        reference = self._reference(baseline, policy)
        if np.isnan(reference.values[self.quality]).any():
            why = "" if reference.exact else ", because a rule had ended the recording of some questions"
            self.notes.append(
                f"{self.quality!r} is unknown where {reference.label} stops{why}: no types; choose another baseline"
            )
            return {}
        types = by_type(self.prepared, run, reference, metric=self.quality, column=column, resampling=self.resampling)
        return {"types": types}

    def _reference(self, baseline: str | Policy | None, policy: Policy) -> Run:
        """Return the baseline run for the table of question types; the baseline uses the policy's selector."""
        if baseline == RECORDED or (baseline is None and self.prepared.cut.any()):
            return recorded_run(self.prepared, answering_like(policy))
        if not isinstance(baseline, Policy):
            baseline = baseline_policy(self.recording, baseline or "fixed_k(3)", policy)
        check_policy(baseline, self.recording)
        return run_policy(self.prepared, baseline)[0]

    def stops(self, policy: Policy) -> dict[str, Result]:
        """Return the parts about early stops."""
        if not has_metric(self.recording, self.metric):
            return {}
        parts: dict[str, Result] = {"premature": look_at_stops(self.prepared, policy, self.metric)}
        floor = compare_floor(self.prepared, policy, self.metric, self.resampling)
        return parts if floor is None else {**parts, "floor": floor}

    def cells(self, cells: Mapping[str, Recording]) -> dict[str, Result]:
        """Return the part that compares cells; the first cell is the recording itself."""
        rule = None if self.policy is None else self.policy.rule
        table = compare_cells(cells, rule=rule, metric=self.metric, quality=self.quality)
        if table is None:
            self.notes.append(f"no {CALIBRATED['p_correct']} in {next(iter(cells))}: cells are not compared")
        return {} if table is None else {"cells": table}
