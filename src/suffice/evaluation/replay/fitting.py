"""Fit a policy's calibrators and other state on tune questions, and report the fit."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from suffice._version import __version__
from suffice.common.display import Chart
from suffice.common.results import Result
from suffice.common.tables import Column, Table, figure
from suffice.errors import DataError
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.checks import check_recorded, policy_for
from suffice.evaluation.replay.fitted_state import fitted_state
from suffice.evaluation.replay.outcomes import agreement_note, choice_note, default_metrics, is_agreement, outcome
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.selected import seen_from, selected_on
from suffice.policy.calibration import CALIBRATED, CalibrationReport, Calibrator, calibration_report
from suffice.policy.calibration.calibrator import Method
from suffice.policy.rounds import Floats
from suffice.policy.rules import Never, Rule, Selector, parse_rule
from suffice.policy.session import Policy
from suffice.policy.signals import (
    RATIONALE_SCORE,
    AnswerPosition,
)
from suffice.policy.signals.votes import ALLOCATED
from suffice.recordings.recording import Recording
from suffice.recordings.runs import refuse_several_loops

P_CORRECT = "p_correct"
_CALIBRATOR_FORMS: tuple[tuple[Method, bool], ...] = (
    ("isotonic", True), ("isotonic", False), ("platt", True), ("platt", False)
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratorFit:
    """The quality of one calibrator's fit, on the questions that it was fitted on.

    Attributes:
        output: The calibrated signal.
        signal: The raw signal.
        rounds_fitted: Number of rows with a defined signal, by round; the key -1 means all rounds together.
        report: Brier score, expected calibration error and reliability bins, on the tune questions themselves.
    """

    output: str
    signal: str
    rounds_fitted: dict[int, int]
    report: CalibrationReport

    def table(self) -> Table:
        """Return predicted and observed probabilities by bin."""
        return Table(
            title=(
                f"Reliability of {self.output}: Brier {figure(self.report.brier, '.3f')}, "
                f"ECE {figure(self.report.ece, '.3f')} ({figure(self.report.ece_if_calibrated, '.3f')} if calibrated)"
            ),
            columns=(
                Column("bin"),
                Column("rows", ",.0f"),
                Column("predicted", ".3f"),
                Column("observed", ".3f"),
            ),
            rows=tuple((f"{b.low:.1f}-{b.high:.1f}", b.n, b.predicted, b.observed) for b in self.report.bins if b.n),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FitComparison:
    """One form of calibrators (such as isotonic per round), judged by quality and calls under the rule.

    Source: TASR section 6.3.

    Attributes:
        method: `isotonic` or `platt`.
        per_round: Whether each round has its own map, instead of one for all rounds.
        brier: Brier scores by calibrated signal; lower is better.
        quality: Mean of the quality metric under the rule, on the tune questions; NaN without that metric.
        calls: Mean calls under the rule.
        chosen: Whether the policy uses this form.
    """

    method: str
    per_round: bool
    brier: dict[str, float]
    quality: float
    calls: float
    chosen: bool

    @property
    def text(self) -> str:
        """The form of calibrators, in words."""
        return f"{'per-round' if self.per_round else 'global'} {self.method}{' (chosen)' if self.chosen else ''}"

    @property
    def brier_text(self) -> str:
        """The Brier score of each calibrated signal, as one text."""
        return ", ".join(f"{name} {figure(value, '.3f')}" for name, value in self.brier.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSummary(Result):
    """Summary of a calibration; every figure is from the tune questions ("selected here").

    Attributes:
        target: The outcome that the calibrators predict.
        quality_metric: The metric of `FitComparison.quality`.
        n: Number of questions.
        n_failed: Number of questions left out because their recording failed.
        fits: The fit of each calibrator.
        comparisons: All forms of calibrators: isotonic and Platt, each per round and global.  Empty if the rule needs
            no calibrator or if `compare` was False.
        state: Names of the signals whose fitted state the policy holds.
        notes: Notes for the reader.
    """

    target: str
    quality_metric: str
    n: int
    n_failed: int
    fits: tuple[CalibratorFit, ...]
    comparisons: tuple[FitComparison, ...]
    state: tuple[str, ...]
    notes: tuple[str, ...]

    def tables(self) -> list[Table]:
        """Return the comparison of calibrator forms, then the reliability of each fitted calibrator."""
        forms = Table(
            title=(
                f"Calibrators on {self.n} tune questions, target {self.target} (in sample: judge them on other questions)"
            ),
            columns=(
                Column("calibrator"),
                Column("Brier"),
                Column(f"rule's {self.quality_metric.upper()}", ".1f", scale=100),
                Column("rule's calls", ".2f"),
            ),
            rows=tuple((form.text, form.brier_text, form.quality, form.calls) for form in self.comparisons),
        )
        return [forms, *(fit.table() for fit in self.fits)]

    def plot(self, output: str = P_CORRECT) -> Chart:
        """Return the reliability diagram of a calibrated signal, computed on the tune questions themselves.

        Raises:
            DataError: No calibrator of that signal was fitted.
        """
        from suffice.evaluation.replay.charts import reliability_chart

        reports = {fit.output: fit.report for fit in self.fits}
        if output not in reports:
            raise DataError(f"no calibrator of {output!r} was fitted; there are: {', '.join(reports) or 'none'}")
        return Chart(reliability_chart({"all rounds": reports[output]}, output))


def calibrate(
    recording: Recording,
    *,
    rule: str | Rule = "tasr",
    method: Method = "isotonic",
    per_round: bool = True,
    target: str = "em",
    signals: Sequence[str] | None = None,
    source: str | None = None,
    unseen_round: Literal["error", "nearest"] = "error",
    selector: str | Selector | None = None,
    start_round: Literal[0, 1] | None = None,
    max_rounds: int | None = None,
    answer_position: AnswerPosition | None = None,
    abstain_patterns: tuple[str, ...] | None = None,
    name: str | None = None,
    provenance: Mapping[str, Any] | None = None,
    compare: bool = True,
) -> tuple[Policy, CalibrationSummary]:
    """Return a policy with all the fitted state that its rule needs, and a summary of the fit.

    The policy contains hashes of the tune questions' ids, so that a later replay on any of them is marked "selected
    here".

    >>> from suffice import calibrate
    >>> from suffice.recordings import bundled_recording
    >>> tune = bundled_recording("self_refine_dv3")
    >>> policy, fit = calibrate(tune, rule="p_correct > 0.9", source="lexical_support", target="target_sentiment")
    >>> policy.calibrators[0].signal, fit.n
    ('lexical_support', 273)

    Args:
        recording: Recorded rounds of tune questions.
        rule: The rule or its text.
        method: `isotonic` or `platt`.
        per_round: True for a map for each round (as in TASR), False for one map for all rounds.
        target: `em`, a threshold such as ``f1 > 0.5``, `agreement` (needs no gold answers), or a column in [0, 1].
        signals: Calibrated signals to fit in addition to those that the rule and selector read; None = none.
        source: The numeric column that `p_correct` is computed from, high when the model is sure; None =
            `answer_margin`.
        unseen_round: Behaviour at a round that was not fitted: raise an `error`, or use the `nearest` fitted round.
        selector: The selector of the answer; None = `last`.
        start_round: The policy's first round; None = 1, or 0 if the rule reads a signal that is known only at round 0.
        max_rounds: The policy's highest round; None = the recording's.
        answer_position: Position of the answer in the text; None = that of the recording.
        abstain_patterns: Patterns of refusals to answer; None = the default list.
        name: Name of the policy in reports; None = the text of the rule as given.
        provenance: Further entries of the policy's provenance.
        compare: Whether to also fit and replay every other form of calibrator, for the summary's comparisons.

    Raises:
        DataError: No row has both signal and target, a name in `signals` is not a calibrated signal, or `source` is
            given and the rule does not read `p_correct`.
        UnsettledError: The recording holds several loops, such as two models: the message names the filters that choose one.
        UnknownSignalError: The recording lacks a raw signal.
    """
    refuse_several_loops(recording)
    parsed = rule if isinstance(rule, Rule) else Never() if rule == "full" else parse_rule(rule)
    of_samples = bool(parsed.signals & {ALLOCATED, RATIONALE_SCORE}) and not parsed.signals & CALIBRATED.keys()
    prepared = PreparedRecording.of(recording, samples=of_samples)
    complete = prepared.recording
    if of_samples and target not in complete.table.column_names:
        target = default_metrics(complete)[0]
    fields: dict[str, Any] = {"selector": selector, "start_round": start_round, "max_rounds": max_rounds, "name": name}
    fields |= {"answer_position": answer_position, "abstain_patterns": abstain_patterns, "provenance": provenance}
    draft = policy_for(complete, rule, **{field: value for field, value in fields.items() if value is not None})
    sources, outcomes = _sources(draft, signals, source), outcome(complete, target)
    notes = [agreement_note(complete)] if is_agreement(target) else []
    draft = replace(draft, state={**fitted_state(complete, draft, outcomes, notes), **draft.state})
    notes += [*selected_on(draft, complete).notes, *filter(None, [choice_note(complete)])]
    fitting = _Fitting(
        prepared=prepared, draft=draft, sources=sources, target=target, outcomes=outcomes, unseen_round=unseen_round
    )
    calibrators = fitting.calibrators(method, per_round)
    policy = replace(draft, calibrators=calibrators)
    notes += check_recorded(policy, complete)
    summary = fitting.summary(calibrators, compare=compare, notes=notes)
    return replace(policy, provenance=fit_provenance(recording, complete, summary, draft)), summary


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fitting:
    """Fits calibrators of every form to the same questions.

    Attributes:
        sources: The raw signal of each calibrated signal that is fitted.
        outcomes: The target at every round, shape ``(n_questions, n_rounds)``.
    """

    prepared: PreparedRecording
    draft: Policy
    sources: Mapping[str, str]
    target: str
    outcomes: Floats
    unseen_round: Literal["error", "nearest"]

    def calibrators(self, method: Method, per_round: bool) -> tuple[Calibrator, ...]:
        """Return fitted calibrators of one form."""
        recording = self.prepared.recording
        unfitted = (
            Calibrator(
                output=output,
                signal=signal,
                method=method,
                per_round=per_round,
                target=self.target,
                unseen_round=self.unseen_round,
            )
            for output, signal in self.sources.items()
        )
        return tuple(c.fit(recording.column(c.signal), self.outcomes, index=recording.index) for c in unfitted)

    def summary(self, chosen: tuple[Calibrator, ...], *, compare: bool, notes: Sequence[str]) -> CalibrationSummary:
        """Summarise the fit of the chosen calibrators, and of every other form if `compare` is set."""
        metric = _quality_metric(self.prepared.recording, self.target)
        forms = _CALIBRATOR_FORMS if chosen and compare else ()
        return CalibrationSummary(
            target=self.target,
            quality_metric=metric,
            n=self.prepared.n,
            n_failed=self.prepared.n_failed,
            fits=tuple(map(self._fit_report, chosen)),
            comparisons=tuple(self._comparison(*form, chosen=chosen, metric=metric) for form in forms),
            state=tuple(sorted(self.draft.state)),
            notes=tuple(notes),
        )

    def _comparison(
        self, method: Method, per_round: bool, *, chosen: tuple[Calibrator, ...], metric: str
    ) -> FitComparison:
        """Evaluate one form of calibrators under the rule."""
        is_chosen = (method, per_round) == (chosen[0].method, chosen[0].per_round)
        calibrators = chosen if is_chosen else self.calibrators(method, per_round)
        run, _ = run_policy(self.prepared.with_metrics([metric]), replace(self.draft, calibrators=calibrators))
        return FitComparison(
            method=method,
            per_round=per_round,
            brier={item.output: self._fit_report(item).report.brier for item in calibrators},
            quality=float(run.values[metric].mean()),
            calls=float(run.ledger.calls.mean()),
            chosen=is_chosen,
        )

    def _fit_report(self, calibrator: Calibrator) -> CalibratorFit:
        recording, outcomes = self.prepared.recording, self.outcomes
        # No calibrator was fitted at a round without a target.
        usable = np.where(np.isnan(outcomes), np.nan, recording.column(calibrator.signal))
        return CalibratorFit(
            output=calibrator.output,
            signal=calibrator.signal,
            rounds_fitted=dict(calibrator.rounds_fitted or {}),
            report=calibration_report(calibrator.predict(usable, index=recording.index), outcomes),
        )


def _sources(draft: Policy, signals: Sequence[str] | None, source: str | None) -> dict[str, str]:
    """Return the raw signal of each calibrated signal to fit."""
    wanted = _wanted(draft, signals)
    if source is None:
        return {output: CALIBRATED[output] for output in wanted}
    if P_CORRECT not in wanted:
        raise DataError(
            f"the column {source!r} is what {P_CORRECT!r} would be fitted to, and the rule {draft.label!r} does not read "
            f"{P_CORRECT!r}: use a rule that does, as `{P_CORRECT} > 0.5`"
        )
    return {output: source if output == P_CORRECT else CALIBRATED[output] for output in wanted}


def _wanted(policy: Policy, extra: Sequence[str] | None) -> list[str]:
    unknown = sorted(set(extra or ()) - set(CALIBRATED))
    if unknown:
        raise DataError(f"{unknown!r} are not calibrated signals; there are: {', '.join(CALIBRATED)}")
    return sorted({name for name in policy.signals if name in CALIBRATED} | set(extra or ()))


def _quality_metric(recording: Recording, target: str) -> str:
    """Return F1 (EM for multiple choice) if it was measured, else the target of the calibrators."""
    first = default_metrics(recording)[0]
    if first in recording.names("metric") and not is_agreement(target) and np.isfinite(recording.column(first)).any():
        return first
    return "agreement_f1" if target in ("agreement", "agreement_f1") else target


def fit_provenance(recording: Recording, complete: Recording, summary: Result, draft: Policy) -> dict[str, Any]:
    """Return the provenance of a fitted policy: tune questions, data, versions and the figures of the fit.

    Args:
        recording: The recording as given.
        complete: The recording's questions that did not fail, on which the policy was fitted.
        summary: The summary of the fit.
        draft: The policy; its own provenance is included.
    """
    import scipy

    return {
        **draft.provenance,
        "data_hash": recording.data_hash,
        **seen_from(complete).to_dict(),
        "versions": {
            "suffice": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        "fit": summary.to_dict(),
    }
