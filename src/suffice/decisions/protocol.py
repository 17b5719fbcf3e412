"""Decide: whether to change a loop, judged on questions that chose nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from suffice.decisions.advice import Advice, more_questions
from suffice.decisions.candidates import candidates
from suffice.decisions.losses import SAVABLE, Measured, measure_candidates, uncut
from suffice.decisions.trial import Trial
from suffice.errors import ConfigMismatchError, DataError
from suffice.replays import dividing_names, seen_from, seen_in
from suffice.replays.outcomes import agreement_note, choice_notes, default_metrics, is_agreement, outcome
from suffice.replays.prepared import PreparedRecording
from suffice.replays.prices import Price
from suffice.rules import Selector, parse_selector
from suffice.statistics import hash_places
from suffice.store.recording import Recording

__all__ = ["decide"]

_SALT = "decide:"
_DEFAULTS: Mapping[str, Any] = {"max_loss": 0.02, "alpha": 0.05, "cost": "calls", "baseline": "recorded"}


def decide(
    recording: Recording,
    *,
    metric: str | None = None,
    max_loss: float | None = None,
    alpha: float | None = None,
    cost: str | None = None,
    baseline: str | None = None,
    selector: str | Selector | None = None,
    tune: Recording | None = None,
    tune_share: float = 0.3,
    prices: Price | Mapping[str, Price] | None = None,
    leave_out_failed: bool = False,
    previous: Advice | None = None,
) -> Advice:
    """Return whether to change a loop: keep it, lower its cap, or stop by a rule.

    Tune questions fix the candidates and their order; the other questions judge them, by bets that may be looked at
    after every question.  So it is allowed to come back with more questions, every week if you like: the risk of advice
    that loses more than `max_loss` stays `alpha`.

    >>> from suffice import decide
    >>> from suffice.store import bundled_recording
    >>> recording = bundled_recording("self_refine_gpt4")
    >>> advice = decide(recording, metric="target_sentiment", leave_out_failed=True)
    >>> advice.verdict, advice.policy.label
    ('do it', 'fixed_k(2)')

    Args:
        recording: Recorded rounds.
        metric: What must not be lost: a column in [0, 1], or `agreement` with the log's own last answer.  None = F1 (EM for
            multiple choice) where it was measured, else `agreement`.
        max_loss: The largest mean loss that you would accept, in (0, 1), in the unit of the metric; None = 0.02.
        alpha: The risk of false advice, in (0, 1); None = 0.05.
        cost: What is to be saved: `calls` (None), `tokens` or `money`.
        baseline: What differences are taken against: `recorded` (None), what the log did itself, or a rule (`fixed_k(5)`).
        selector: How candidates, and the baseline, return answers; None = `last`.
        tune: Tune questions, recorded alike; None = `tune_share` of the recording's, by the hash of their names.
        tune_share: In (0, 1).
        prices: For money, one for all language models or by component.
        leave_out_failed: Leave out the questions whose recording failed, and say so; otherwise they count as lost, because
            they may have failed for what a candidate would have changed.
        previous: An earlier advice on the same loop: its declaration holds, and questions that are new add to its evidence.
            What is given here must be as it was declared.

    Raises:
        DataError: There is nothing to decide, a metric is missing, or an option is outside its range.
        CensoredError: The baseline goes on past what was recorded.
        ConfigMismatchError: The recording belongs to another loop than the earlier advice.
    """
    declared: dict[str, Any] = {
        "metric": metric,
        "max_loss": max_loss,
        "alpha": alpha,
        "cost": cost,
        "baseline": baseline,
    }
    whole = uncut(recording)
    notes: list[str] = []
    if leave_out_failed and (whole.ends == "failed").any():
        prepared = PreparedRecording.of(whole)
        whole = prepared.recording
        notes.append(
            f"{prepared.n_failed} questions failed while recording and are left out: the advice is silent on such"
        )
    if previous is not None:
        trial = previous.trial
        if tune is not None:
            raise ConfigMismatchError("the earlier decision has its tune questions: give none, or decide anew")
        _refuse_other_declaration(trial, declared, selector)
        verdict_part, unused = _new_questions(whole, trial)
        notes += unused
    else:
        declared = {**_DEFAULTS, **{name: value for name, value in declared.items() if value is not None}}
        _check_options(declared["max_loss"], declared["alpha"], declared["cost"], tune_share)
        metric = declared.pop("metric", None) or _default_metric(whole)
        if int(whole.index[-1]) <= 1:
            raise DataError("every question has a single round: there is nothing to stop earlier. Log every round")
        chooser = parse_selector(selector or "last") if not isinstance(selector, Selector) else selector
        first, verdict_part = _divided(whole, tune, tune_share, notes)
        policies, untried = candidates(first, metric, chooser)
        notes += untried
        trial = Trial.declare(
            policies,
            measure_candidates(first, policies, declared["baseline"], metric, prices),
            metric=metric,
            highest=int(whole.index[-1]),
            tune=seen_from(first),
            **declared,
        )
    units: Measured | None = None
    if verdict_part is not None:
        units = measure_candidates(verdict_part, trial.candidates, trial.baseline, trial.metric, prices)
        trial = trial.extended(units, seen_from(verdict_part))
        notes += _unit_notes(verdict_part, units, trial)
    needed = (
        {} if units is None else {place: more_questions(trial, place, units.worst[place]) for place in trial.sequence}
    )
    return Advice(
        trial=trial,
        unjudged=_unjudged(trial, units, whole),
        rounds_text=_rounds_text(recording),
        needed=needed if units is not None or previous is None else previous.needed,
        notes=tuple(dict.fromkeys(notes)),
    )


def _refuse_other_declaration(trial: Trial, declared: Mapping[str, Any], selector: str | Selector | None) -> None:
    """Raise a `ConfigMismatchError` where an option contradicts what an earlier decision declared."""
    given = {**declared, "selector": None if selector is None else str(selector)}
    before = {**{name: getattr(trial, name) for name in declared}, "selector": str(trial.candidates[0].selector)}
    for name, value in given.items():
        if value is not None and value != before[name]:
            raise ConfigMismatchError(
                f"the earlier decision declared {name} {before[name]!r}, not {value!r}: what is declared once holds for all "
                "questions that come later. Leave the option out, or begin another decision in another file"
            )


def _check_options(max_loss: float, alpha: float, cost: str, tune_share: float) -> None:
    for name, value in (("max_loss", max_loss), ("alpha", alpha), ("tune_share", tune_share)):
        if not 0 < value < 1:
            raise DataError(f"{name} must lie between 0 and 1, both excluded, not {value!r}")
    if cost not in SAVABLE:
        raise DataError(f"{cost!r} cannot be saved here; allowed: {', '.join(SAVABLE)}")


def _default_metric(recording: Recording) -> str:
    """Return F1, or EM for multiple choice, where answers can be scored; else agreement."""
    columns = set(recording.table.column_names)
    for name in default_metrics(recording):
        if (name in columns or {"answer", "golds"} <= columns) and np.isfinite(outcome(recording, name)).any():
            return name
    measured_here = recording.names("metric")
    return measured_here[0] if measured_here else "agreement"


def _divided(
    recording: Recording, tune: Recording | None, share: float, notes: list[str]
) -> tuple[Recording, Recording | None]:
    """Return tune questions and the verdict part; questions of the tune recording are no part of the verdict."""
    if tune is not None:
        shared = seen_in(recording, seen_from(tune))
        if shared.any():
            notes.append(
                f"{int(shared.sum())} questions are among the tune questions, and do not count for the verdict"
            )
        return uncut(tune), recording.select(~shared) if not shared.all() else None
    first = hash_places(dividing_names(recording), salt=_SALT) < share
    if first.all() or not first.any():
        raise DataError(
            f"{len(set(dividing_names(recording)))} different questions are too few to divide into tune questions and a "
            "verdict: record at least 20"
        )
    return recording.select(first), recording.select(~first)


def _new_questions(recording: Recording, trial: Trial) -> tuple[Recording | None, list[str]]:
    """Return the questions that an earlier trial has not seen, in their order; None where there are none."""
    if int(recording.index[-1]) > trial.highest:
        raise ConfigMismatchError(
            f"the earlier decision was about a cap of {trial.highest}, and this log goes to round "
            f"{int(recording.index[-1])}: decide anew, without the earlier decision"
        )
    known = seen_in(recording, trial.tune | trial.counted)
    notes = (
        [f"{int(known.sum())} questions were counted before, or are tune questions: the others are added"]
        if known.any()
        else []
    )
    return (recording.select(~known) if not known.all() else None), notes


def _unit_notes(recording: Recording, units: Measured, trial: Trial) -> list[str]:
    notes = []
    if is_agreement(trial.metric):
        notes.append(
            f"{agreement_note(recording)}. A policy can lose at most the share of answers that differ, on any metric; for "
            "rules on stability the comparison is circular"
        )
    notes += choice_notes(recording, [trial.metric])
    if units.n_failed:
        notes.append(f"{units.n_failed} questions failed while recording, and count as lost")
    if units.unknown:
        notes.append(f"in {100 * units.unknown:.1f} % of the questions an outcome is unknown, and counts at its worst")
    repeated = len(recording.question_ids) - units.worst.shape[-1]
    if repeated:
        notes.append(f"{repeated} rows repeat a question: each question counts once, with its mean")
    return notes


def _unjudged(trial: Trial, units: Measured | None, recording: Recording) -> str:
    """Return why nothing can be said; empty where something can."""
    if units is None or trial.proved.any():
        return ""
    width = units.worst - units.best
    if (
        width[list(trial.sequence) or slice(None)].mean() > trial.max_loss
        and (width.mean(axis=-1) > trial.max_loss).all()
    ):
        if units.n_failed > len(units.worst[0]) * trial.max_loss:
            return (
                f"{units.n_failed} of {units.worst.shape[-1]:,} questions failed while recording, and count as lost. Complete "
                "the recording, or leave them out if they failed by chance (leave_out_failed=True, --leave-out-failed)"
            )
        return (
            f"{trial.metric} is unknown where the candidates would stop in {100 * units.unknown:.0f} % of the questions. "
            f"Score every round, or record {recording.shape[0]:,} questions at full width"
        )
    return ""


def _rounds_text(recording: Recording) -> str:
    """Return what the log did by itself, in words."""
    lengths = recording.seen[:, recording.index >= 1].sum(axis=1)
    low, high = int(lengths.min()), int(lengths.max())
    if low == high:
        return f"cap {high}"
    if (recording.ends == "rule").any():
        return f"your own stops, {low} to {high} rounds"
    return f"{low} to {high} rounds"
