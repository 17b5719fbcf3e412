"""Watch a deployed policy: one sentence about it from its production log."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.evaluation.replay import seen_from, seen_in
from suffice.evaluation.replay.outcomes import is_agreement
from suffice.evaluation.statistics import ConfidenceSequence
from suffice.policy.calibration import calibration_report
from suffice.policy.rounds import Floats, Mask
from suffice.policy.rules import Never
from suffice.policy.session import Policy
from suffice.recordings.merging import RUN
from suffice.recordings.recording import Recording
from suffice.recordings.runs import refuse_several_loops
from suffice.recordings.schema import DECISION_COLUMNS, SHADOW
from suffice.verdicts.certificates import Certificate
from suffice.verdicts.diagnostics.rows import right_if_known
from suffice.verdicts.watches.changes import changes_of
from suffice.verdicts.watches.charts import WatchPoint
from suffice.verdicts.watches.drift import drifts_of
from suffice.verdicts.watches.evidence import audits_to_notice, loss_alarm, loss_windows, sequence_of, whole_log
from suffice.verdicts.watches.losses import USER_SIGNAL, AuditedBounds, LossClaim, Losses, audited_losses
from suffice.verdicts.watches.policies import policy_number, risk_note, share_of_risk
from suffice.verdicts.watches.requests import Requests, others_text
from suffice.verdicts.watches.result import SignalFit, WatchResult
from suffice.verdicts.watches.shadows import shadow_figures
from suffice.verdicts.watches.user_signals import UserSignal, signalled_losses

_CHART_POINTS = 120
_AUDIT_DEADLINE = 3600.0
GOLD_DEADLINE = 7 * 86_400.0
"""Seconds that a gold answer may take: a week, so that labelling by people is over and the alarm is not later than that."""
_NO_CHANCE = 1e-6


def watch(
    log: Recording,
    policy: Policy,
    *,
    tune: Recording | None = None,
    metric: str | None = None,
    max_loss: float | None = None,
    signal: Iterable[UserSignal] | None = None,
    deadline: float | None = None,
    gold_deadline: float = GOLD_DEADLINE,
    now: float | None = None,
    since: float | None = None,
    window: int = 500,
    alpha: float = 0.05,
    number: int | None = None,
    rise: float = 0.05,
    effect: float = 0.1,
) -> WatchResult:
    """Judge a deployed policy by its production log: keep it, calibrate or certify it again, or fall back.

    Its loss is known only where an audit ran on after the answer.  Intervals and the alarm hold at every look.

    Args:
        log: Recorded by `Recorder` with this policy and an `Audit`.
        policy: The policy. The watch also checks the policy's certificate if both are about the same loss.
        tune: Recorded rounds on which the policy was fitted. The signals of the log are compared with a replay of these rounds.
        metric: A metric of the log, or `agreement`, which needs neither gold answers nor marks. None = the metric of
            the certificate if the log has it, else a metric of gold answers, else agreement with the full run.
        max_loss: The largest accepted mean loss; None = the bound of the certificate, else of the policy's decision.
        signal: Later signals from users. If given, they are the losses of all requests whose deadline has passed.
        deadline: Seconds that signals and audits may take. Until then a request and all later ones are pending;
            afterwards a signal is late and an audit is lost. None = an hour for audits; user signals need a deadline.
        gold_deadline: Seconds that a gold answer, or a judge's mark, may take; until then the request is pending.
            Afterwards the loss of the request counts within bounds, like the loss of a lost audit.  A later gold answer
            still counts and can only raise the evidence, so an alarm that has rung stays on.
        now: The time, seconds since 1970; None = the clock's.
        since: Leave out requests before this time.
        window: Number of requests in a window.
        alpha: The risk that a false alarm ever rings, over all policies of the loop; also the risk that an interval
            misses the true value.
        number: The number of the policy among all policies that the loop has had, from 1; it determines the share of
            the risk.  None = in the order of the policies' first requests in the log.
        rise: The rise of the loss above its bound that must be noticed; it determines how many audits are enough.
        effect: The smallest distance between distribution functions that counts as drift.

    Raises:
        DataError: The log does not say what was decided, has no request of this policy, or lacks the metric.
        UnsettledError: The policy decided requests of several models, prompts or systems. Choose one by
            `log.where(model=...)`, or the requests after a change by `since`.
    """
    _check_options(window, gold_deadline)
    requests = Requests.of(log, policy, since=since)
    refuse_several_loops(requests.recording)
    certificate, void = _valid_certificate(policy)
    notes = [*requests.recording.reading_notes, *requests.notes, *_request_notes(requests, tune), *void]
    moment = time.time() if now is None else now
    if signal is None:
        question = LossClaim.of(requests, certificate, metric=metric, max_loss=max_loss)
        losses, waiting = _due_losses(requests, question, audits=deadline, golds=gold_deadline, now=moment)
        notes += [*waiting, *losses.notes, *_draw_notes(requests)]
        shadows = tuple(shadow_figures(requests, question))
    else:
        question = _claim_of_signal(metric, max_loss)
        losses = signalled_losses(requests, signal, deadline=deadline or 0.0, now=moment, names=_names_of(log))
        notes, shadows = [*notes, *losses.notes], ()
    place = policy_number(log, policy) if number is None else number
    notes += [risk_note(alpha, place, counted=number is None)] * (question.bound is not None)
    return WatchResult(
        **_counts_of(requests, losses),
        **_evidence_of(requests, losses, question, window=window, alpha=alpha, number=place, rise=rise),
        question=question,
        gold_deadline=gold_deadline,
        rise=rise,
        alpha=alpha,
        drifts=drifts_of(requests, tune, window=window, alpha=alpha, effect=effect),
        reliability=tuple(_fits(requests, alpha, effect)),
        changes=tuple(changes_of(requests)),
        shadows=shadows,
        notes=tuple(dict.fromkeys(notes)),
    )


def _check_options(window: int, gold_deadline: float) -> None:
    if window < 1:
        raise DataError(f"a window has at least one request, not {window!r}")
    if not gold_deadline >= 0:  # also where it is undefined
        raise DataError(f"gold_deadline is in seconds, 0 or more, not {gold_deadline!r}: 7 * 86400 is a week")


def _claim_of_signal(metric: str | None, max_loss: float | None) -> LossClaim:
    """Return the claim that is checked by user signals."""
    if metric is not None:
        raise DataError("a user signal is judged instead of a metric: give one of them")
    return LossClaim(metric=USER_SIGNAL, kind="harm", bound=max_loss, source="max_loss" if max_loss else "")


def _names_of(log: Recording) -> set[str]:
    """Return the ids and runs of all requests of a log."""
    return {*log.question_ids, *map(str, log.per_question(RUN, log.question_ids))}


def _valid_certificate(policy: Policy) -> tuple[Certificate | None, list[str]]:
    """Return the certificate of a policy, and a note if the certificate is void."""
    certificate = Certificate.of(policy)
    if certificate is None or certificate.holds_for(policy):
        return certificate, []
    return None, ["the certificate is void: the policy was changed after it was certified"]


def _due_losses(
    requests: Requests, question: LossClaim, *, audits: float | None, golds: float, now: float
) -> tuple[Losses, list[str]]:
    """Return the losses of audited requests before the first pending request, and a note on the wait; see `_first_pending`."""
    bounds = AuditedBounds.of(requests, question)
    golds = -math.inf if is_agreement(question.metric) else golds
    until, why = _first_pending(requests, bounds, _AUDIT_DEADLINE if audits is None else audits, golds, now)
    waiting = int(requests.drawn[until:].sum())
    notes = [f"{counted(waiting, 'audited request')} not used yet: {why}, and requests count in their order"]
    return audited_losses(requests, question, until=until, bounds=bounds), notes if waiting else []


def _counts_of(requests: Requests, losses: Losses) -> dict[str, Any]:
    """Return the fields of the result that describe the policy, its requests and their audits."""
    policy, cut = requests.policy, requests.cut
    return {
        "policy": policy.label,
        "digest": policy.digest,
        "suspended": policy.suspended,
        "n": len(requests),
        "ids": requests.ids,
        "times": requests.times.tolist(),
        "n_audited": losses.n_audited,
        "n_missing": losses.n_missing,
        "n_unknown": losses.n_unknown,
        "n_drawn": int(requests.drawn.sum()),
        "n_lost": losses.n_lost,
        "rates_vary": len(np.unique(requests.rate[~np.isnan(requests.rate)])) > 1,
        "n_cut": int(cut.sum()),
        "stops": dict(Counter(map(str, requests.reasons.tolist()))),
        "rounds_saved": int((policy.max_rounds - requests.stop)[cut].sum()),
    }


def _evidence_of(
    requests: Requests, losses: Losses, question: LossClaim, *, window: int, alpha: float, number: int, rise: float
) -> dict[str, Any]:
    """Return the fields of the result about the loss: intervals, the alarm, and the audits needed to notice a rise.

    The risk of a false alarm is this policy's share of `alpha`; the risk that an interval misses the true value is
    `alpha`.
    """
    risk = share_of_risk(alpha, number)
    alarm, path = (None, np.array([]))
    whole = whole_log(requests, losses, alpha)
    needed, noticed = 0, None
    if question.bound is not None:
        if losses.n_audited:
            alarm, path = loss_alarm(losses, question.bound, len(requests), alpha=risk)
        enough, noticed = audits_to_notice(losses, question.bound, alpha=risk, rise=rise)
        needed = 0 if whole.high <= question.bound else max(0, enough - losses.n_audited)
    return {
        "number": number,
        "whole": whole,
        "windows": tuple(reversed(loss_windows(requests, losses, window=window, alpha=alpha))),
        "alarm": alarm,
        "needed": needed,
        "noticed": noticed if losses.least_rate is None else None,
        "certified": question.source == "certificate",
        "points": tuple(_watch_points(losses, path, alpha)),
    }


def _first_pending(
    requests: Requests, bounds: AuditedBounds, audits: float, golds: float, now: float
) -> tuple[int, str]:
    """Return the position of the first request that waits for its audit or gold answer, and a text that explains the wait.

    Later requests wait, too, because requests whose audits end early or whose gold answers come early are no fair
    sample of the losses.  If nothing waits, the position is the number of requests.

    Args:
        requests: The requests of the log.
        bounds: The bounds on their losses.
        audits: Seconds that an audit may take.
        golds: Seconds that a gold answer may take.
        now: The present time, seconds since 1970.
    """
    running: Mask = requests.lost & (requests.times + audits > now)
    missing: Mask = requests.complete & (bounds.least < bounds.most)
    missing &= requests.counting & (requests.times + golds > now)
    pending = running | missing
    if not pending.any():
        return len(requests), ""
    place = int(np.argmax(pending))
    name = requests.ids[place]
    if running[place]:
        return place, f"the audit of {name} may still run (deadline)"
    return place, f"{name} has no gold or mark yet, which may still come (gold deadline)"


def _draw_notes(requests: Requests) -> list[str]:
    """Return notes if no request was drawn, or if the number of drawn requests does not fit the audit rates."""
    from scipy.special import bdtr, bdtrc

    rates = requests.rate[requests.counting & ~np.isnan(requests.rate)]
    n_drawn = int(requests.drawn[requests.counting].sum())
    notes = []
    if not n_drawn:
        notes.append("no request of this log was audited: deploy with audit=Audit(rate=0.05, seed=...)")
    if not len(rates):
        return notes
    few, many = bdtr(n_drawn, len(rates), rates.mean()), bdtrc(n_drawn - 1, len(rates), rates.mean())
    if min(few, many) > _NO_CHANCE:
        return notes
    return [
        *notes,
        (
            f"{n_drawn:,} of {counted(len(rates), 'request')} were drawn, where the audit rates make {rates.sum():,.0f}: that is no chance. "
            f"{'Audited requests' if few < many else 'Requests that were not drawn'} are missing from the log, or the rates are wrong"
        ),
    ]


def _request_notes(requests: Requests, tune: Recording | None) -> list[str]:
    """Return notes on requests of other policies, and on requests that repeat a question of the log or a tune question."""
    notes = [*others_text(requests.others)]
    repeated = len(requests) - len(set(requests.questions))
    if repeated and requests.counting.all():
        notes.append(
            f"{counted(repeated, 'request')} repeat a question of the log, each drawn by itself: all of them count"
        )
    if tune is not None:
        shared = int(seen_in(requests.recording, seen_from(tune)).sum())
        if shared:
            notes.append(
                f"selected here: {counted(shared, 'request')} ask a question of the tune recording, which helped to choose the policy: of them "
                "one expects a smaller loss than of new questions"
            )
    return notes


def _fits(requests: Requests, alpha: float, effect: float) -> list[SignalFit]:
    """Return the fit of the policy's calibrated signals on audited requests, over all rounds."""
    calibrators = [item for item in requests.policy.calibrators if item.output in requests.policy.signals]
    complete = requests.complete & requests.counting
    if not calibrators or not complete.any():
        return []
    audited = requests.at(complete)
    view = requests.policy.view(audited.recording.rounds(requests.policy.raw_columns))
    first = int(view.index[0] - audited.recording.index[0])
    fits = []
    for calibrator in calibrators:
        right = right_if_known(audited.recording, calibrator.target)[:, first : first + len(view)]
        said: Floats = view[calibrator.output]
        gaps = np.where(view.seen, right - said, np.nan)
        known = np.isfinite(gaps)
        if not known.any():
            continue
        rows = known.any(axis=1)
        means = np.where(known, gaps, 0.0).sum(axis=1)[rows] / known.sum(axis=1)[rows]
        state = ConfidenceSequence.start(-1.0, 1.0, alpha).observe(np.clip(means, -1.0, 1.0))
        low, high = float(state.low_end), float(state.high_end)
        fits.append(
            SignalFit(
                signal=calibrator.output,
                report=calibration_report(said[known], right[known]),
                gap=(float(state.mean), low, high),
                is_off=low > effect or high < -effect,
            )
        )
    return fits


def _watch_points(losses: Losses, path: Floats, alpha: float) -> list[WatchPoint]:
    """Return the loss and the evidence after some of the requests, evenly spaced, including the last one."""
    if not len(losses):
        return []
    start, means = sequence_of(losses, alpha), losses.means()
    lower, upper = (start.looks(values) for values in (losses.values, losses.upper_values))
    chosen = np.unique(np.linspace(0, len(losses) - 1, min(_CHART_POINTS, len(losses))).round().astype(np.int64))
    lows, highs = (np.clip(end, losses.lowest, 1.0)[chosen] for end in (lower.low_end, upper.high_end))
    evidence = np.exp(np.minimum(path[chosen], 700.0)) if len(path) else np.full(len(chosen), np.nan)
    return [
        WatchPoint(
            request=int(losses.places[at]) + 1, mean=float(mean), low=float(low), high=float(high), e_value=float(e)
        )
        for at, mean, low, high, e in zip(chosen, means[chosen], lows, highs, evidence, strict=True)
    ]


def full_width(policy: Policy) -> Policy:
    """Return the safe policy to fall back to: it never stops early, and it selects answers like the given policy."""
    return replace(policy, rule=Never(), certificate=None, name=f"full width instead of {policy.label}")


def audited_recording(log: Recording, policy: Policy, *, since: float | None = None) -> Recording:
    """Return a full-width recording of the audited requests that ran to the end, without the columns of decisions.

    Audited requests are a fair sample of all requests, so a policy can be calibrated and certified on them.  The
    questions are the units: rows that repeat a question are kept, as one cluster.

    Raises:
        DataError: No audited request ran to the end.
    """
    requests = Requests.of(log, policy, since=since)
    if not requests.complete.any():
        raise DataError("no audited request of this log ran to its end, so there is nothing to calibrate or certify on")
    audited = requests.at(requests.complete).recording
    dropped = [name for name in audited.table.column_names if name in DECISION_COLUMNS or name.startswith(SHADOW)]
    return Recording(audited.table.drop_columns(dropped), audited.metadata)
