"""Everything that a recording tells about its signals, calibrators and stops, in one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.calibration import CALIBRATED
from suffice.diagnostics.calibration import judge_calibrators
from suffice.diagnostics.cells import compare_cells
from suffice.diagnostics.correlations import correlate
from suffice.diagnostics.drift import measure_drift
from suffice.diagnostics.floor import compare_floor
from suffice.diagnostics.premature import look_at_stops
from suffice.diagnostics.question_types import by_type
from suffice.diagnostics.rows import has_metric, right_or_wrong, rows_of
from suffice.diagnostics.separation import draw_d
from suffice.diagnostics.signals import summarise_signals
from suffice.diagnostics.sweep import sweep_threshold
from suffice.replays import calibrate, check_policy, policy_for, seen_from, seen_in, selected_on
from suffice.replays.baselines import RECORDED, Run, recorded_run, run_policy
from suffice.replays.outcomes import choice_note, default_metrics
from suffice.replays.prepared import PreparedRecording
from suffice.replays.references import answering_like, baseline_policy
from suffice.results import Result
from suffice.rules import Rule, parse_rule, thresholds
from suffice.session import Policy, Stops
from suffice.signals import KNOWN
from suffice.statistics import ONE_UNIT, Resampling
from suffice.store.recording import Recording
from suffice.tables import Table, counted

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Result):
    """The diagnostics of one recording.

    Attributes:
        parts: By name, in the order of the report: `signals`, `correlations`, `drift`, `calibration`, one
            ``sweep LITERAL`` for each threshold that can move, `types`, `premature`, `floor`, `cells`; those whose
            inputs are missing are left out.
        metric: What counts as right.
        n: Questions.
        n_rounds: Recorded rounds of all questions.
        data_hash: Of the recording.
        notes: What is missing and why, and what a reader must know.
    """

    parts: Mapping[str, Result]
    metric: str
    n: int
    n_rounds: int
    data_hash: str
    notes: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        """Return the tables of all parts, in order."""
        return [table for part in self.parts.values() for table in part.tables()]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        values = Result.to_dict(self)
        parts = values.pop("parts")
        return {**values, **parts}


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
    """Diagnose a recording: its signals, and with a policy or a tune recording its calibrators and stops.

    Each part is there if its inputs are; where one is missing a note says which.

    >>> from suffice import diagnose
    >>> from suffice.store import bundled_recording
    >>> result = diagnose(bundled_recording("self_refine_dv3"), metric="target_sentiment", resampling=Resampling(n_resamples=20))
    >>> print(", ".join(result.parts))
    signals, correlations

    Args:
        recording: Recorded rounds.
        policy: Whose stops to look into; a rule or its text stands for a policy with the recording's own settings,
            calibrated on `tune` where it needs that.
        tune: The recording that calibrators are fitted on and that drift is measured from.
        cells: Other recordings by name, other models or corpora.
        metric: What counts as right: `em`, a threshold such as ``f1 > 0.5``, `agreement`, or a column of 0 and 1.
        quality: The metric of the policy's answers; None = `f1` where it was recorded (`em` for multiple choice), else `metric`.
        baseline: What differences of quality are taken against: a rule or its text, `full`, `recorded`, or a policy.
            None = `fixed_k(3)`, or `recorded` where a rule ended some recordings.
        type_column: Where the types of questions stand.
        name: What the recording is called among the cells.
        resampling: How intervals are made.

    Raises:
        DataError: `metric` takes other values than 0 and 1, or all questions failed.
        ConfigMismatchError: The policy was made for something else.
        NotFittedError: The policy needs calibrators, has none, and there is no `tune`.
        UnknownSignalError: The policy reads a signal that was not recorded.
    """
    prepared = PreparedRecording.of(recording)
    kept, n_failed = prepared.recording, prepared.n_failed
    tuned = None if tune is None else PreparedRecording.of(tune).recording
    made = None if policy is None else _policy(kept, tuned, policy, metric)
    settings = _Settings(
        metric=metric,
        quality=quality or next((name for name in default_metrics(kept)[:1] if has_metric(kept, name)), metric),
        baseline=baseline,
        type_column=type_column,
        resampling=resampling,
    )
    notes = [f"{counted(n_failed, 'question')} failed while recording: left out"] if n_failed else []
    notes += _input_notes(kept, tuned, made, settings)
    prepared = prepared.with_metrics([settings.quality] if has_metric(kept, settings.quality) else [])
    parts = _signal_parts(kept, tuned, made, settings)
    if has_metric(kept, metric):
        parts |= _calibration_part(prepared, tuned, made, settings, notes)
    if made is not None:
        parts |= _policy_parts(prepared, made, settings, notes)
    if cells:
        rule = None if made is None else made.rule
        table = compare_cells({name: kept, **cells}, rule=rule, metric=metric, quality=settings.quality)
        if table is None:
            notes.append(f"no {CALIBRATED['p_correct']} in {name}: cells are not compared")
        else:
            parts["cells"] = table
    return Diagnosis(
        parts=parts,
        metric=metric,
        n=len(kept.question_ids),
        n_rounds=int(kept.seen.sum()),
        data_hash=recording.data_hash,
        notes=tuple(notes),
    )


_GATED = f"{KNOWN} > 0.5"
"""A rule that reads the recorded gate, whose figures stand among those of the signals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What the parts share, as `diagnose` takes it."""

    metric: str
    quality: str
    baseline: str | Policy | None
    type_column: str
    resampling: Resampling


def _input_notes(
    kept: Recording, tune: Recording | None, policy: Policy | None, settings: _Settings
) -> tuple[str, ...]:
    """Refuse a policy that does not belong to the recording; return what is missing or must be known of the inputs."""
    notes = []
    cut = int((kept.ends == "rule").sum())
    if cut:
        notes.append(f"censored: a rule ended {cut} of {len(kept.ends)} recorded questions early")
    if not has_metric(kept, settings.metric):
        notes.append(
            f"no metric {settings.metric!r}, so nobody knows which answers are right; without gold answers use the metric "
            "'agreement'"
        )
    if tune is None:
        notes.append("no recording of tune questions (tune): no drift, and no forms of calibrators side by side")
    else:
        shared = int(seen_in(kept, seen_from(tune)).sum())
        if shared:
            notes.append(f"selected here: {shared} questions are in the tune recording too, so fits and drift flatter")
    read = [
        *([] if policy is None else [policy]),
        *([policy_for(kept, _GATED)] if KNOWN in kept.names("signal") else []),
    ]
    notes += selected_on(read, kept).notes
    notes += filter(None, [choice_note(kept)])
    notes += [ONE_UNIT] if len(set(kept.clusters.tolist())) == 1 else []
    if policy is None:
        return (*notes, "no policy: no threshold sweep, no types of questions, no premature stops")
    return (*notes, *check_policy(policy, kept))


def _signal_parts(
    kept: Recording, tune: Recording | None, policy: Policy | None, settings: _Settings
) -> dict[str, Result]:
    metric, how = settings.metric, settings.resampling
    rows = rows_of(kept, metric, policy)
    draws = draw_d(rows, list(rows.columns), n_resamples=how.n_resamples, rng=how.seed)
    parts: dict[str, Result] = {
        "signals": summarise_signals(kept, rows, draws, metric=metric, resampling=how),
        "correlations": correlate(rows),
    }
    if tune is not None:
        rng = np.random.default_rng([how.seed, 1])  # tune questions are drawn on their own
        parts["drift"] = measure_drift(
            rows_of(tune, metric, policy), rows, draws, metric=metric, level=how.level, rng=rng
        )
    return parts


def _calibration_part(
    prepared: PreparedRecording, tune: Recording | None, policy: Policy | None, settings: _Settings, notes: list[str]
) -> dict[str, Result]:
    fitted_on = tune if tune is not None and has_metric(tune, settings.metric) else None
    found = judge_calibrators(prepared, policy=policy, tune=fitted_on, target=settings.metric, quality=settings.quality)
    if found is None:
        notes.append(f"no calibrated signal ({', '.join(CALIBRATED)}): no reliability")
        return {}
    return {"calibration": found}


def _policy(kept: Recording, tune: Recording | None, policy: Policy | Rule | str, metric: str) -> Policy:
    """Return the policy; of a rule one with the recording's settings, calibrated on tune where it needs that."""
    if isinstance(policy, Policy):
        return policy
    rule = parse_rule(policy) if isinstance(policy, str) and policy != "full" else policy
    draft = policy_for(kept, rule, **({"name": policy} if isinstance(policy, str) else {}))
    lacking = [n for n in draft.signals if n in CALIBRATED and n not in kept.table.column_names]
    if tune is None or not lacking:
        return draft
    fitted, _ = calibrate(tune, rule=draft.rule, target=metric, unseen_round="nearest", max_rounds=draft.max_rounds)
    return replace(fitted, name=draft.name)


def _policy_parts(
    prepared: PreparedRecording, policy: Policy, settings: _Settings, notes: list[str]
) -> dict[str, Result]:
    """Return the parts that look at a policy's stops; say in `notes` what is missing."""
    parts: dict[str, Result] = {}
    run, stopped = run_policy(prepared, policy)
    quality = settings.quality
    n = len(prepared.recording.question_ids)
    unmeasured = int(np.isnan(run.values[quality]).sum()) if quality in run.values else n
    if unmeasured:
        why = "" if run.exact else f" (a rule ended the recording of {int(run.unrun.sum())} before)"
        notes.append(
            f"{quality!r} is unknown where {policy.label} stops in {unmeasured} of {n} questions{why}: no sweep, no types"
        )
    else:
        for literal in thresholds(policy.rule):
            known = stopped.view[literal.name][stopped.view.seen]
            if literal.name != "round" and len(np.unique(known[np.isfinite(known)])) > 2:  # noqa: PLR2004
                parts[f"sweep {literal}"] = sweep_threshold(prepared, policy, literal, metric=quality)
        parts |= _types(prepared, run, settings, notes)
    if has_metric(prepared.recording, settings.metric):
        parts |= _stop_parts(prepared, policy, stopped, settings)
    return parts


def _types(prepared: PreparedRecording, run: Run, settings: _Settings, notes: list[str]) -> dict[str, Result]:
    kept, column, quality = prepared.recording, settings.type_column, settings.quality
    if column not in kept.table.column_names:
        notes.append(f"no column {column!r}: types of questions are unknown")
        return {}
    reference = _reference(prepared, run.policy or Policy(), settings)
    if np.isnan(reference.values[quality]).any():
        why = "" if reference.exact else ", because a rule had ended the recording of some questions"
        notes.append(f"{quality!r} is unknown where {reference.label} stops{why}: no types; choose another baseline")
        return {}
    found = by_type(
        run,
        reference,
        kept.per_question(column, []).tolist(),
        metric=quality,
        clusters=kept.clusters,
        column=column,
        resampling=settings.resampling,
    )
    return {"types": found}


def _reference(prepared: PreparedRecording, policy: Policy, settings: _Settings) -> Run:
    """Return the run that types of questions are compared with, by the policy's own selector."""
    given, kept = settings.baseline, prepared.recording
    if given == RECORDED or (given is None and prepared.cut.any()):
        return recorded_run(prepared, answering_like(policy))
    other = given if isinstance(given, Policy) else baseline_policy(kept, given or "fixed_k(3)", policy)
    check_policy(other, kept)
    return run_policy(prepared, other)[0]


def _stop_parts(prepared: PreparedRecording, policy: Policy, stopped: Stops, settings: _Settings) -> dict[str, Result]:
    kept, view = prepared.recording, stopped.view
    ids = np.array(kept.question_ids, dtype=object)
    right = prepared.in_view(right_or_wrong(kept, settings.metric), view)
    stable = prepared.rounds(["answer_stable"]).columns.get("answer_stable")
    parts: dict[str, Result] = {
        "premature": look_at_stops(
            stopped,
            right,
            policy=policy.label,
            metric=settings.metric,
            question_ids=ids,
            ends=kept.ends,
            stable=None if stable is None else prepared.in_view(stable, view),
        )
    }
    effect = compare_floor(
        policy,
        prepared.rounds(policy.raw_columns),
        right,
        metric=settings.metric,
        question_ids=ids,
        clusters=kept.clusters,
        ends=kept.ends,
        resampling=settings.resampling,
    )
    return parts if effect is None else {**parts, "floor": effect}
