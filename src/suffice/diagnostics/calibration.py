"""How well calibrators fit questions that they have not seen, by round and by form, with what the rule does beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from suffice.calibration import CALIBRATED, CalibrationReport, Calibrator, calibration_report
from suffice.calibration.calibrator import Method
from suffice.diagnostics.rows import right_or_wrong
from suffice.replays.baselines import run_policy
from suffice.replays.prepared import PreparedRecording
from suffice.results import Result
from suffice.rounds import Floats
from suffice.session import Policy
from suffice.store.recording import Recording
from suffice.tables import Column, Table

__all__ = ["CalibratorForm", "Reliability", "judge_calibrators"]

FORMS: Mapping[str, tuple[Method, bool]] = {
    "per-round isotonic": ("isotonic", True),
    "global isotonic": ("isotonic", False),
    "per-round Platt": ("platt", True),
    "global Platt": ("platt", False),
}
"""The forms that are fitted on tune: method, and whether each round has its own map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratorForm:
    """One calibrated signal in one form, judged on the recording.

    Attributes:
        output: The calibrated signal.
        form: How it was fitted: one of `FORMS` (on tune), `the policy's`, or `as recorded`.
        overall: Brier score, expected calibration error and reliability bins over all rounds.
        by_round: The same at each round that has both a probability and an outcome.
        quality: Mean quality under the rule with this form; NaN where no rule was given, or where the rule goes on past
            what another rule left of some questions.
        calls: Mean calls under it; NaN likewise.
    """

    output: str
    form: str
    overall: CalibrationReport
    by_round: Mapping[int, CalibrationReport]
    quality: float
    calls: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability(Result):
    """Every calibrated signal in every form.

    Attributes:
        forms: One for each; the first of each signal is the one in use: the policy's, else as recorded, else fitted.
        target: What the probabilities are of.
        quality_metric: The metric of `CalibratorForm.quality`.
        rule: The rule whose quality and calls stand beside the fit.
        notes: What a reader must know.
    """

    forms: tuple[CalibratorForm, ...]
    target: str
    quality_metric: str
    rule: str
    notes: tuple[str, ...]

    def table(self) -> Table:
        """Return Brier score and calibration error of each form, by round too, beside the rule's quality and calls."""
        rounds = sorted({r for form in self.forms for r in form.by_round})
        columns = (
            Column("signal"),
            Column("form"),
            Column("rounds", ",.0f"),
            Column("Brier", ".3f"),
            Column("uninformed", ".3f"),
            Column("ECE", ".3f"),
            *(Column(f"Brier@{r}", ".3f") for r in rounds),
            Column(f"rule's {self.quality_metric.upper()}", ".1f", scale=100),
            Column("rule's calls", ".2f"),
        )
        rows = tuple(
            (
                form.output,
                form.form,
                form.overall.n,
                form.overall.brier,
                form.overall.brier_uninformed,
                form.overall.ece,
                *(form.by_round[r].brier if r in form.by_round else math.nan for r in rounds),
                form.quality,
                form.calls,
            )
            for form in self.forms
        )
        return Table(title=f"Calibrators, target {self.target}", columns=columns, rows=rows, notes=self.notes)

    def reliability_table(self, output: str) -> Table:
        """Return predicted against observed shares of the form in use of one signal, over all rounds and by round."""
        form = next(item for item in self.forms if item.output == output)
        reports = {"all": form.overall, **{str(r): report for r, report in form.by_round.items()}}
        rows = [
            (where, f"{b.low:.1f}-{b.high:.1f}", b.n, b.predicted, b.observed, b.observed - b.predicted)
            for where, report in reports.items()
            for b in report.bins
            if b.n
        ]
        return Table(
            title=f"Reliability of {output} ({form.form})",
            columns=(
                Column("round"),
                Column("bin"),
                Column("rounds", ",.0f"),
                Column("predicted", ".3f"),
                Column("observed", ".3f"),
                Column("observed - predicted", "+.3f"),
            ),
            rows=tuple(rows),
        )

    def tables(self) -> list[Table]:
        """Return the forms, then the reliability of each signal."""
        outputs = dict.fromkeys(form.output for form in self.forms)
        return [self.table(), *(self.reliability_table(output) for output in outputs)]


def judge_calibrators(
    prepared: PreparedRecording,
    *,
    policy: Policy | None = None,
    tune: Recording | None = None,
    target: str = "em",
    quality: str = "f1",
) -> Reliability | None:
    """Judge calibrated signals on a recording: the policy's, those recorded, and each form fitted on tune questions.

    A lower Brier score does not promise a better rule (TASR section 6.3), so the rule's quality and calls stand beside
    it: the policy's rule where it reads the signal, else the signal is judged by its fit alone.

    Args:
        prepared: The recording, with the columns of the policy and the raw signals of `CALIBRATED`.
        policy: Its calibrators are judged, and its rule is run with every form.
        tune: What the forms are fitted on.
        target: What the probabilities are of, 0 or 1.
        quality: One of the metrics of `prepared`.

    Returns:
        None where there is no calibrated signal to judge.
    """
    outcomes = right_or_wrong(prepared.recording, target)
    forms, notes = [], []
    for output in CALIBRATED:
        found = _candidates(prepared.recording, output, policy=policy, tune=tune, target=target)
        for form, (probabilities, calibrator) in found.items():
            judged = _judged(prepared.recording, probabilities, outcomes)
            if judged is None:
                continue
            quality_, calls = _downstream(prepared, policy, output, calibrator, quality)
            forms.append(
                CalibratorForm(
                    output=output, form=form, overall=judged[0], by_round=judged[1], quality=quality_, calls=calls
                )
            )
    if not forms:
        return None
    if tune is None:
        notes.append("without a recording of tune questions (tune) the forms of calibrators are not compared")
    elif missing := sorted(set(prepared.recording.index.tolist()) - set(tune.index.tolist())):
        notes.append(f"tune has no round {', '.join(map(str, missing))}: the nearest round's map is used there")
    return Reliability(
        forms=tuple(forms),
        target=target,
        quality_metric=quality,
        rule="" if policy is None else str(policy.rule),
        notes=tuple(notes),
    )


def _candidates(
    recording: Recording, output: str, *, policy: Policy | None, tune: Recording | None, target: str
) -> dict[str, tuple[Floats, Calibrator | None]]:
    """Return the probabilities by form, the one in use first."""
    source = CALIBRATED[output]
    found: dict[str, tuple[Floats, Calibrator | None]] = {}
    own = [calibrator for calibrator in (policy.calibrators if policy else ()) if calibrator.output == output]
    if own and source in recording.table.column_names:
        calibrator = replace(own[0], unseen_round="nearest")
        found["the policy's"] = (calibrator.predict(recording.column(source), index=recording.index), calibrator)
    if output in recording.table.column_names:
        found["as recorded"] = (recording.column(output), None)
    if tune is None or not all(source in item.table.column_names for item in (tune, recording)):
        return found
    raw, goal = tune.column(source), right_or_wrong(tune, target)
    if not (np.isfinite(raw) & np.isfinite(goal)).any():
        return found
    for form, (method, per_round) in FORMS.items():
        fitted = Calibrator(
            output=output, signal=source, method=method, per_round=per_round, target=target, unseen_round="nearest"
        ).fit(raw, goal, index=tune.index)
        found[form] = (fitted.predict(recording.column(source), index=recording.index), fitted)
    return found


def _judged(
    recording: Recording, probabilities: Floats, outcomes: Floats
) -> tuple[CalibrationReport, dict[int, CalibrationReport]] | None:
    usable = np.isfinite(probabilities) & np.isfinite(outcomes)
    if not usable.any():
        return None
    by_round = {
        int(r): calibration_report(probabilities[:, k], outcomes[:, k])
        for k, r in enumerate(recording.index)
        if usable[:, k].any()
    }
    return calibration_report(probabilities, outcomes), by_round


def _downstream(
    prepared: PreparedRecording, policy: Policy | None, output: str, calibrator: Calibrator | None, quality: str
) -> tuple[float, float]:
    """Return the mean quality and calls of the policy's rule with another calibrator of one signal."""
    if policy is None or output not in policy.signals or quality not in prepared.metrics:
        return math.nan, math.nan
    others = tuple(item for item in policy.calibrators if item.output != output)
    changed = replace(policy, calibrators=(*others, *(() if calibrator is None else (calibrator,))))
    if not set(changed.raw_signals) <= set(prepared.rounds(changed.raw_signals).columns):
        return math.nan, math.nan
    run, _ = run_policy(prepared, changed)
    if not run.exact:
        return math.nan, math.nan
    return float(run.values[quality].mean()), float(run.ledger.calls.mean())
