"""Check the calibration of fitted signals on new questions, by round and calibrator, and its effect on the rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from suffice.common.display import Chart
from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.replay.charts import reliability_chart
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.calibration import CALIBRATED, CalibrationReport, Calibrator, calibration_report
from suffice.policy.calibration.calibrator import Method
from suffice.policy.rounds import Floats
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.verdicts.diagnostics.rows import right_or_wrong, rule_figures

CALIBRATOR_FORMS: Mapping[str, tuple[Method, bool]] = {
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
        form: The form: one of `CALIBRATOR_FORMS`, fitted on tune questions; or `the policy's`, or `as recorded`.
        overall: Brier score, expected calibration error and reliability bins over all rounds.
        by_round: The report for each round that has both a probability and an outcome.
        quality: Mean quality under the rule if its signal is calibrated in this form. NaN without a rule, or if the
            rule needs rounds that were not recorded because another rule ended the questions.
        calls: Mean calls under the same rule; NaN if `quality` is NaN.
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
        forms: All forms. For each signal, the form in use comes first: the policy's form, else the recorded one, else a
            fitted one.
        target: The outcome that the probabilities predict.
        quality_metric: The metric of `CalibratorForm.quality`.
        rule: The rule whose quality and calls are shown beside the fit.
        notes: Notes for the reader.
    """

    forms: tuple[CalibratorForm, ...]
    target: str
    quality_metric: str
    rule: str
    notes: tuple[str, ...]

    def table(self) -> Table:
        """Return Brier score and calibration error of each form, also by round, with the rule's quality and calls."""
        rounds = sorted({r for form in self.forms for r in form.by_round})

        return Table.of(
            f"Calibrators, target {self.target}",
            self.forms,
            {
                Column("signal"): "output",
                Column("form"): "form",
                Column("rounds", ",.0f"): "overall.n",
                Column("Brier", ".3f"): "overall.brier",
                Column("uninformed", ".3f"): "overall.brier_uninformed",
                Column("ECE", ".3f"): "overall.ece",
                Column("if calibrated", ".3f"): "overall.ece_if_calibrated",
                **{Column(f"Brier@{r}", ".3f"): partial(_brier_at, r) for r in rounds},
                Column(f"rule's {self.quality_metric.upper()}", ".1f", scale=100): "quality",
                Column("rule's calls", ".2f"): "calls",
            },
            self.notes,
        )

    def in_use(self, output: str) -> CalibratorForm:
        """Return the form in use of one signal.

        Raises:
            DataError: The signal is not calibrated here.
        """
        for form in self.forms:
            if form.output == output:
                return form
        outputs = dict.fromkeys(form.output for form in self.forms)
        raise DataError(f"no calibrated signal {output!r}; there are: {', '.join(outputs)}")

    def plot(self, output: str = "") -> Chart:
        """Return the reliability chart of a signal's form in use; if `output` is empty, for the first signal.

        Raises:
            DataError: The signal is not calibrated here.
        """
        form = self.in_use(output or self.forms[0].output)
        return Chart(reliability_chart(named_reports(form.overall, form.by_round), form.output))

    def reliability_table(self, output: str) -> Table:
        """Return a table of predicted and observed shares for a signal's form in use, over all rounds and by round."""
        form = self.in_use(output)
        reports = {"all": form.overall, **{str(r): report for r, report in form.by_round.items()}}
        return bins_table(f"Reliability of {output} ({form.form})", reports, {Column("round"): lambda item: item[0]})

    def tables(self) -> list[Table]:
        """Return the table of forms, then the reliability table of each signal."""
        outputs = dict.fromkeys(form.output for form in self.forms)
        return [self.table(), *(self.reliability_table(output) for output in outputs)]


def bins_table(
    title: str,
    reports: Mapping[str, CalibrationReport],
    first: Mapping[Column, Callable[[Any], Any]],
    notes: Sequence[str] = (),
) -> Table:
    """Tabulate predicted and observed shares for each bin of each report.

    The table begins with the columns of `first`, each with a function that computes a cell from (name of the report,
    bin).

    Bins without rounds are left out.
    """
    columns: dict[Column, Callable[[Any], Any]] = {
        **first,
        Column("bin"): lambda item: f"{item[1].low:.1f}-{item[1].high:.1f}",
        Column("rounds", ",.0f"): lambda item: item[1].n,
        Column("predicted", ".3f"): lambda item: item[1].predicted,
        Column("observed", ".3f"): lambda item: item[1].observed,
        Column("observed - predicted", "+.3f"): lambda item: item[1].observed - item[1].predicted,
    }
    bins = [(name, bin_) for name, report in reports.items() for bin_ in report.bins if bin_.n]
    return Table.of(title, bins, columns, notes)


def _brier_at(r: int, form: CalibratorForm) -> float:
    return form.by_round[r].brier if r in form.by_round else math.nan


def judge_calibrators(
    prepared: PreparedRecording,
    *,
    policy: Policy | None = None,
    tune: Recording | None = None,
    target: str = "em",
    quality: str = "f1",
) -> Reliability | None:
    """Judge calibrated signals on a recording, in each form: the policy's, the recorded one, and forms fitted on tune.

    A lower Brier score does not promise a better rule (TASR section 6.3), so quality and calls under the policy's rule
    are shown beside the score. If the rule does not read the signal, only the fit is judged.

    Args:
        prepared: The recording.
        policy: The policy; its calibrators are judged, and its rule is replayed with every form.
        tune: Tune questions to fit the forms on.
        target: The outcome that the probabilities predict, 0 or 1.
        quality: One of the metrics of `prepared`.

    Returns:
        None if there is no calibrated signal to judge.
    """
    outcomes = right_or_wrong(prepared.recording, target)
    forms: list[CalibratorForm] = []
    notes: list[str] = []
    for output in CALIBRATED:
        candidates = _candidates(prepared.recording, output, policy=policy, tune=tune, target=target)
        for form, (probabilities, calibrator) in candidates.items():
            reports = reports_by_round(probabilities, outcomes, prepared.recording.index.tolist())
            if reports is None:
                continue
            mean_quality, calls = _rule_figures(prepared, policy, output, calibrator, quality)
            forms.append(
                CalibratorForm(
                    output=output,
                    form=form,
                    overall=reports[0],
                    by_round=reports[1],
                    quality=mean_quality,
                    calls=calls,
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
    """Return the probabilities of each form, with the form in use first."""
    source, columns = CALIBRATED[output], recording.table.column_names
    candidates: dict[str, tuple[Floats, Calibrator | None]] = {}
    own = [calibrator for calibrator in (policy.calibrators if policy else ()) if calibrator.output == output]
    if own and source in columns:
        calibrator = replace(own[0], unseen_round="nearest")
        candidates["the policy's"] = (calibrator.predict(recording.column(source), index=recording.index), calibrator)
    if output in columns:
        candidates["as recorded"] = (recording.column(output), None)
    if tune is None or source not in columns or source not in tune.table.column_names:
        return candidates
    raw, goal = tune.column(source), right_or_wrong(tune, target)
    if not (np.isfinite(raw) & np.isfinite(goal)).any():
        return candidates
    for form, (method, per_round) in CALIBRATOR_FORMS.items():
        fitted = Calibrator(
            output=output, signal=source, method=method, per_round=per_round, target=target, unseen_round="nearest"
        ).fit(raw, goal, index=tune.index)
        candidates[form] = (fitted.predict(recording.column(source), index=recording.index), fitted)
    return candidates


def reports_by_round(
    probabilities: Floats, outcomes: Floats, rounds: Sequence[int]
) -> tuple[CalibrationReport, dict[int, CalibrationReport]] | None:
    """Return a calibration report over all rounds, and one for each round that has both a probability and an outcome.

    Args:
        probabilities: Shape ``(n_questions, n_rounds)``; NaN where undefined.
        outcomes: 0 or 1, same shape; NaN where unknown.
        rounds: The round of each column.

    Returns:
        The reports; None if no round has both a probability and an outcome.
    """
    usable = np.isfinite(probabilities) & np.isfinite(outcomes)
    if not usable.any():
        return None
    by_round = {
        r: calibration_report(probabilities[:, k], outcomes[:, k]) for k, r in enumerate(rounds) if usable[:, k].any()
    }
    return calibration_report(probabilities, outcomes), by_round


def named_reports(
    overall: CalibrationReport, by_round: Mapping[int, CalibrationReport]
) -> dict[str, CalibrationReport]:
    """Name the reports of `reports_by_round` for tables and charts."""
    return {"all rounds": overall, **{f"round {r}": report for r, report in by_round.items()}}


def _rule_figures(
    prepared: PreparedRecording, policy: Policy | None, output: str, calibrator: Calibrator | None, quality: str
) -> tuple[float, float]:
    """Return mean quality and mean calls of the policy's rule if `calibrator` computes the signal `output`."""
    if policy is None or output not in policy.signals or quality not in prepared.metrics:
        return math.nan, math.nan
    others = tuple(item for item in policy.calibrators if item.output != output)
    changed = replace(policy, calibrators=(*others, *(() if calibrator is None else (calibrator,))))
    return rule_figures(prepared, changed, quality)[1:]
