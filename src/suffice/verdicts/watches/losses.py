"""The loss of each audited request compared with its own full run, in the order of requests."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffice.common.tables import counted
from suffice.errors import DataError, RuleSyntaxError
from suffice.evaluation.replay.outcomes import default_metrics, has_outcome, is_agreement, outcome
from suffice.evaluation.replay.prepared import PreparedRecording, answering_like
from suffice.evaluation.replay.references import baseline_policy
from suffice.policy.rounds import Floats, Mask
from suffice.policy.rules import Never
from suffice.policy.session import Policy, Stops, stops
from suffice.recordings.recording import Recording
from suffice.verdicts.certificates import Certificate
from suffice.verdicts.losses import LossAccount
from suffice.verdicts.watches.requests import Requests

LossKind = str
_WITHIN_BOUNDS = "for the alarm they lost as little as they can have lost, and for the upper end of an interval as much"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossClaim:
    """The claim that a watch checks on a log: the kind of loss, and the largest accepted loss.

    Attributes:
        metric: The quantity that may be lost: a metric, `agreement`, or `user signal`.
        kind: `net` or `harm`, see `suffice.verdicts.certificates.Claim`.
        baseline: The baseline of the loss, as the text of a rule.
        bound: The largest accepted mean loss; None if no bound was set.
        source: The origin of the bound: `certificate`, `decision`, `max_loss`, or empty.
        full_agrees: Whether the full run always returns the answer that agreement compares with, so that its own
            agreement is 1.
    """

    metric: str
    kind: LossKind = "net"
    baseline: str = "full"
    bound: float | None = None
    source: str = ""
    full_agrees: bool = False
    notes: tuple[str, ...] = ()

    @property
    def lowest(self) -> float:
        """The smallest possible loss of a request."""
        return -1.0 if self.kind == "net" and not self.never_gains else 0.0

    @property
    def never_gains(self) -> bool:
        """True if no policy can score above the baseline.

        This is so for user signals (a complaint or none), and for agreement with the full run.
        """
        return self.metric == USER_SIGNAL or (
            is_agreement(self.metric) and self.baseline == "full" and self.full_agrees
        )

    @property
    def text(self) -> str:
        """The loss in words."""
        if self.metric == USER_SIGNAL:
            return "loss by user signal"
        if self.never_gains and self.metric in {"agreement", "agreement_em"}:
            return "share of answers that differ from the full run's"
        against = "the full run" if self.baseline == "full" else self.baseline
        return f"{'loss' if self.kind == 'net' else 'harm'} of {self.metric} against {against}"

    @classmethod
    def of(
        cls, requests: Requests, certificate: Certificate | None, *, metric: str | None, max_loss: float | None
    ) -> LossClaim:
        """Choose the claim that a log allows one to check.

        Args:
            requests: The requests of the log.
            certificate: The certificate to check; None = none.
            metric: The metric that may be lost. None = the metric of the certificate, else of the policy's decision,
                provided the log has it; else a metric of gold answers, else agreement.
            max_loss: The largest mean loss that is accepted; None = the bound of the certificate, else of the decision.

        Raises:
            DataError: The log does not have the metric, or `max_loss` is outside (0, 1).
        """
        if max_loss is not None and not 0 < max_loss < 1:
            raise DataError(f"max_loss must lie between 0 and 1, both excluded, not {max_loss!r}: 0.02 is two points")
        audited = requests.recording.select(requests.complete) if requests.complete.any() else requests.recording
        notes: list[str] = []
        decided = decided_loss(requests.policy)
        if metric is None:
            metric = _best_metric(audited, certificate, decided)
        elif not has_outcome(audited, metric):
            outcome(audited, metric)  # raises an error that names the metrics of the log
        selector = "majority" if requests.recording.independent else "last"
        full_agrees = str(requests.policy.selector) == selector
        if certificate is None or certificate.metric != metric:
            if certificate is not None and max_loss is None:
                notes.append(
                    f"the certificate is about {certificate.metric}, and this is about {metric}: whether the certificate still holds "
                    f"cannot be seen here. Add {certificate.metric} to the log (--metric {certificate.metric}), or give the largest "
                    f"loss of {metric} (--max-loss)"
                )
            source = "" if max_loss is None else "max_loss"
            if max_loss is None and certificate is None and decided is not None:
                if decided[0] == metric:
                    max_loss, source = decided[1], "decision"
                else:
                    notes.append(
                        f"the decision accepted a loss of {100 * decided[1]:g} points of {decided[0]}, and this is about {metric}: add "
                        f"{decided[0]} to the log, or give the largest loss of {metric} (--max-loss)"
                    )
            return cls(metric=metric, bound=max_loss, source=source, full_agrees=full_agrees, notes=tuple(notes))
        # The text of a baseline ends with a remark if it uses the policy's selector.
        baseline = certificate.baseline.removesuffix(answering_like(requests.policy).name)
        question = cls(metric=metric, kind=certificate.loss, baseline=baseline, full_agrees=full_agrees)
        try:
            _reference(requests, question)
        except (RuleSyntaxError, DataError):
            notes.append(
                f"the certificate compares with {certificate.baseline!r}, which does not run in an audit: the loss here is against the full run"
            )
            return replace(
                question,
                baseline="full",
                bound=max_loss,
                source="" if max_loss is None else "max_loss",
                notes=tuple(notes),
            )
        if max_loss is not None:
            return replace(question, bound=max_loss, source="max_loss")
        return replace(question, bound=certificate.epsilon, source="certificate")


USER_SIGNAL = "user signal"


def decided_loss(policy: Policy) -> tuple[str, float] | None:
    """Return the metric and the largest accepted loss of the decision that advised a policy; None if there is none."""
    decision = policy.provenance.get("decision")
    match decision:
        case {"metric": str(metric), "max_loss": float(bound)} if 0 < bound < 1:
            return metric, bound
    return None


def _best_metric(audited: Recording, certificate: Certificate | None, decided: tuple[str, float] | None) -> str:
    declared = [certificate.metric] if certificate is not None else [decided[0]] if decided is not None else []
    wanted = [*declared, *default_metrics(audited)]
    return next((name for name in wanted if _is_known(audited, name)), "agreement")


def _is_known(audited: Recording, metric: str) -> bool:
    if not has_outcome(audited, metric) or (is_agreement(metric) and "answer" not in audited.table.column_names):
        return False
    return not np.isnan(outcome(audited, metric)[audited.seen]).all()


def _reference(requests: Requests, question: LossClaim) -> Policy:
    """Return the baseline policy of the loss; it has the same selector as the watched policy."""
    if question.baseline == "full":
        return replace(requests.policy, rule=Never(), certificate=None)
    return baseline_policy(requests.recording, question.baseline, requests.policy)


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditedBounds:
    """Bounds on the loss of each request, shape ``(n_requests,)``; NaN where no audit was drawn.

    Attributes:
        least: The smallest possible loss.
        most: The largest possible loss; equal to `least` where the loss is known.
        same: Mask of the requests that certainly returned the answer of their full run, so that they lost nothing.
    """

    least: Floats
    most: Floats
    same: Mask

    @classmethod
    def of(cls, requests: Requests, question: LossClaim) -> AuditedBounds:
        """Return the bounds of all requests that were drawn; if an audit was lost, the full run's answer is unknown."""
        least, most = np.full(len(requests), np.nan), np.full(len(requests), np.nan)
        same = np.zeros(len(requests), dtype=np.bool_)
        least[requests.drawn], most[requests.drawn] = question.lowest, 1.0
        judged = requests.complete
        # Agreement compares with the last answer, which is missing if the audit was lost.
        if not is_agreement(question.metric):
            judged = judged | (requests.lost & (requests.recording.ends == "rule"))
        if judged.any():
            least[judged], most[judged], same[judged] = _account(requests.at(judged), question)
        return cls(least=least, most=most, same=same)


def _account(requests: Requests, question: LossClaim) -> tuple[Floats, Floats, Mask]:
    """Return the smallest and largest losses of requests, and a mask of those that returned the baseline's answer."""
    prepared = PreparedRecording(recording=requests.recording, metric_names=(question.metric,))
    account = LossAccount.of(prepared, _reference(requests, question), harm=question.lowest == 0, censored=True)
    return account.of_answers(requests.policy, requests.stop, requests.answer)


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """Losses in the order of requests; every array has shape ``(n,)``.

    If a gold answer is missing or an audit was lost, a loss is only known within bounds. The alarm and the lower end of
    an interval use the smallest possible loss; the upper end uses the largest.

    Attributes:
        places: Positions of the requests in the log: the audited requests or, if audit rates vary, all requests that
            could have been audited.
        loss: The smallest possible loss of each request; NaN if it was not audited.
        most: The largest possible loss of each request; NaN if it was not audited.
        same: Mask of the requests that returned the answer of their full run.
        lost: Mask of the requests whose audit was lost.
        rates: The probability of each audit; 1 where every loss is seen.
        lowest: The smallest possible loss, 0 or -1.
    """

    places: npt.NDArray[np.int64]
    loss: Floats
    most: Floats
    same: Mask
    lost: Mask
    rates: Floats
    lowest: float
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.loss)

    @property
    def audited(self) -> Mask:
        """Mask of the audited requests."""
        return ~np.isnan(self.loss)

    @property
    def known(self) -> Mask:
        """Mask of the known losses."""
        return np.asarray(self.audited & (self.most <= self.loss), dtype=np.bool_)

    @property
    def n_audited(self) -> int:
        """Number of known losses."""
        return int(self.known.sum())

    @property
    def n_missing(self) -> int:
        """Number of audited requests whose loss is unknown because a gold answer or mark is missing."""
        return int((self.audited & ~self.known & ~self.lost).sum())

    @property
    def n_unknown(self) -> int:
        """Number of audited requests whose loss is unknown."""
        return int((self.audited & ~self.known).sum())

    @property
    def n_lost(self) -> int:
        """The number of audits that were lost."""
        return int(self.lost.sum())

    @property
    def gained(self) -> float:
        """The mean gain of requests, counting losses as 0; 0 before any audit."""
        return float(np.maximum(-self.values, 0.0).mean()) if len(self) else 0.0

    @property
    def least_rate(self) -> float | None:
        """The smallest audit rate; None if the audited requests alone are a fair sample, since all rates are equal."""
        is_even = not len(self) or bool((self.rates == self.rates[0]).all())
        return None if is_even and self.audited.all() else float(self.rates.min())

    @property
    def values(self) -> Floats:
        """An estimate of each smallest possible loss: `loss` divided by the audit rate, or 0 for a request without an audit."""
        return self._weighed(self.loss)

    @property
    def upper_values(self) -> Floats:
        """An estimate of each largest possible loss: `most` divided by the audit rate, or 0 for a request without an audit."""
        return self._weighed(self.most)

    @property
    def largest(self) -> float:
        """The largest value that an estimate of a loss can have."""
        return 1 / (self.least_rate or 1.0)

    def mean(self, first: int = 0, last: int | None = None) -> float:
        """Return the mean loss between two positions; NaN if no loss is known there."""
        inside = (self.places >= first) & (self.places <= (math.inf if last is None else last))
        return float(self._means(inside)[-1]) if inside.any() else math.nan

    def means(self) -> Floats:
        """Return the mean loss after each request; NaN before the first known loss."""
        return self._means(np.ones(len(self), dtype=np.bool_))

    def _means(self, inside: Mask) -> Floats:
        """Return running means, in which unknown losses are assumed to be like known ones, within their bounds.

        A loss that lacks its gold answer is assumed to be like the known losses of answers that differ from the full
        run's, because equal answers need no gold answer. Without any such loss, the largest possible loss is assumed. A
        lost audit reveals nothing, so its loss is assumed to be like the losses of all other audits.
        """
        low, high, weights = self.values[inside], self.upper_values[inside], 1 / self.rates[inside]
        known, audited, lost = self.known[inside], self.audited[inside], self.lost[inside] & ~self.known[inside]

        def up_to(mask: Mask, values: Floats = weights) -> Floats:
            """Return the running sum over the requests in a mask."""
            return np.cumsum(np.where(mask, values, 0.0))

        missing, differ = up_to(audited & ~known & ~lost), up_to(known & ~self.same[inside])
        sums = up_to(known, low) * (1 + np.divide(missing, differ, out=np.zeros(len(low)), where=differ > 0))
        sums = np.where((missing > 0) & (differ == 0), np.inf, sums)
        ended = up_to(audited & ~lost)
        sums = sums * np.divide(up_to(audited), ended, out=np.ones(len(low)), where=ended > 0)
        n = np.arange(1, len(low) + 1)
        means: Floats = np.clip(sums / n, np.cumsum(low) / n, np.cumsum(high) / n)
        return np.where(up_to(known) > 0, means, np.nan)

    def _weighed(self, loss: Floats) -> Floats:
        return loss if self.least_rate is None else np.where(self.audited, loss, 0.0) / self.rates


def audited_losses(
    requests: Requests, question: LossClaim, *, until: int | None = None, bounds: AuditedBounds | None = None
) -> Losses:
    """Return the losses of audited requests, in the order of requests.

    Args:
        requests: The requests of the log.
        question: The kind of loss.
        until: Position of the first request that does not count yet; None = all count.
        bounds: The bounds on the losses; None = compute them.
    """
    notes: list[str] = []
    counting = requests.counting & (np.arange(len(requests)) < (len(requests) if until is None else until))
    bounds = bounds or AuditedBounds.of(requests, question)
    drawn, lost = requests.drawn & counting, requests.lost & counting
    n_drawn, n_lost = int(drawn.sum()), int(lost.sum())
    repeats = int((~requests.counting).sum())
    if repeats:
        notes.append(
            f"{counted(repeats, 'request')} repeat a question of the log and share its draw: each question counts once, at its first request "
            "(question(..., request_id=...) draws each request by itself)"
        )
    if n_lost:
        notes.append(
            f"{counted(n_lost, 'audit')} of {n_drawn:,} got lost (drawn, and never run to the end): {_WITHIN_BOUNDS}"
        )
    missing = int((drawn & ~lost & (bounds.least < bounds.most)).sum())
    if missing:
        notes.append(f"{question.metric} is unknown in {missing:,} of {n_drawn:,} audited requests: {_WITHIN_BOUNDS}")
    without = int(np.isnan(requests.rate).sum())
    if without:
        notes.append(
            f"{counted(without, 'request')} without an audit rate: they could not be drawn, and say nothing here"
        )
    rated = ~np.isnan(requests.rate) & counting
    rates = requests.rate[rated]
    varies = len(np.unique(rates)) > 1
    if varies:
        notes.append(
            f"audit rates vary ({rates.min():g} to {rates.max():g}): the loss of each audited request is divided by its rate; intervals are as "
            "wide as the smallest rate demands, and each time that it falls they begin anew, with a risk of their own"
        )
    places = np.flatnonzero(rated if varies else drawn)
    return Losses(
        places=places,
        loss=bounds.least[places],
        most=bounds.most[places],
        same=bounds.same[places],
        lost=lost[places],
        rates=requests.rate[places],
        lowest=question.lowest,
        notes=tuple(notes),
    )


def full_run_losses(requests: Requests, question: LossClaim) -> Floats:
    """Return the loss of each request against the baseline, shape ``(n_requests,)``; NaN where unknown.

    All requests must have run to the end of their budget.
    """
    low, high, _ = _account(requests, question)
    return np.where(low < high, np.nan, low)


def reference_stops(recording: Recording, policy: Policy) -> Stops:
    """Return the stops of a policy on the rounds of requests."""
    raw = recording.rounds(policy.raw_columns)
    return stops(policy, raw)
