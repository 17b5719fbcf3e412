"""The loss of each audited request against its own full run, in the order of the requests."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffice.common.tables import counted
from suffice.errors import DataError, RuleSyntaxError
from suffice.evaluation.replay.outcomes import default_metrics, has_outcome, is_agreement, outcome
from suffice.evaluation.replay.references import answering_like, baseline_policy
from suffice.policy.rounds import Floats, Mask
from suffice.policy.rules import Never
from suffice.policy.session import Policy, Stops, stops
from suffice.recordings.recording import Recording
from suffice.verdicts.certificates import Certificate
from suffice.verdicts.losses import loss_bounds
from suffice.verdicts.watches.requests import Requests

LossKind = str
_WORST = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossClaim:
    """The question to a log: the kind of loss, and the largest that is accepted.

    Attributes:
        metric: What is lost: a metric, `agreement`, or `user signal`.
        kind: `net` or `harm`, see `suffice.verdicts.certificates.Claim`.
        baseline: What the loss is against; the text of a rule.
        bound: The largest accepted mean loss; None where there is none.
        source: Where the bound comes from: `certificate`, `max_loss`, or empty.
        full_agrees: Whether the full run always agrees with itself: it returns the answer that agreement compares with.
        notes: Notes for the reader.
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
        """True if no policy can score above its baseline, as for user signals (a complaint or none) and agreement with the full run."""
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
        """Choose the claim that a log allows to check.

        Args:
            requests: Of the log.
            certificate: What must hold; None = nothing.
            metric: What is lost; None = that of the certificate where the log has it, else gold answers, else agreement.
            max_loss: The largest mean loss that is accepted; None = that of the certificate.

        Raises:
            DataError: The log does not have the metric, or `max_loss` is outside (0, 1).
        """
        if max_loss is not None and not 0 < max_loss < 1:
            raise DataError(f"max_loss must lie between 0 and 1, both excluded, not {max_loss!r}: 0.02 is two points")
        audited = requests.recording.select(requests.complete) if requests.complete.any() else requests.recording
        notes: list[str] = []
        if metric is None:
            metric = _best_metric(audited, certificate)
        elif not has_outcome(audited, metric):
            outcome(audited, metric)  # which says what there is
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
            return cls(metric=metric, bound=max_loss, source=source, full_agrees=full_agrees, notes=tuple(notes))
        # A baseline that answers by the policy's selector says so at its end.
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


def _best_metric(audited: Recording, certificate: Certificate | None) -> str:
    wanted = [*([] if certificate is None else [certificate.metric]), *default_metrics(audited)]
    return next((name for name in wanted if _is_known(audited, name)), "agreement")


def _is_known(audited: Recording, metric: str) -> bool:
    if not has_outcome(audited, metric) or (is_agreement(metric) and "answer" not in audited.table.column_names):
        return False
    return not np.isnan(outcome(audited, metric)[audited.seen]).all()


def _reference(requests: Requests, question: LossClaim) -> Policy:
    """Return the policy that a loss is against; it returns answers by the same selector."""
    if question.baseline == "full":
        return replace(requests.policy, rule=Never(), certificate=None)
    return baseline_policy(requests.recording, question.baseline, requests.policy)


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """Losses in the order of requests; every array has shape ``(n,)``.

    If a gold answer is missing, a loss is only known within bounds: the alarm uses the smallest possible loss (a
    missing label is no evidence), and the upper end of an interval the largest.

    Attributes:
        places: Positions of the requests in the log: the audited ones or, if audit rates vary, all that could have been
            audited.
        loss: The smallest possible loss of each; NaN if it was not audited.
        rates: The probability of each audit; 1 where every loss is seen.
        lowest: The smallest possible loss, 0 or -1.
        most: The largest possible loss of each; None = as `loss`, because no label is missing.
        n_lost: Audits that got lost, whose loss counts as 1.
        notes: Notes for the reader.
    """

    places: npt.NDArray[np.int64]
    loss: Floats
    rates: Floats
    lowest: float
    most: Floats | None = None
    n_lost: int = 0
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
        return (
            self.audited if self.most is None else np.asarray(self.audited & (self.most <= self.loss), dtype=np.bool_)
        )

    @property
    def n_audited(self) -> int:
        """Number of known losses."""
        return int(self.known.sum())

    @property
    def n_missing(self) -> int:
        """Number of audited requests without the gold answer or mark that their loss needs."""
        return int((self.audited & ~self.known).sum())

    @property
    def gained(self) -> float:
        """The mean gain of requests, counting losses as 0; 0 before any audit."""
        return float(np.maximum(-self.values, 0.0).mean()) if len(self) else 0.0

    @property
    def least_rate(self) -> float | None:
        """The smallest rate where rates vary; None where the audited requests alone are a fair sample."""
        is_even = not len(self) or bool((self.rates == self.rates[0]).all())
        return None if is_even and self.audited.all() else float(self.rates.min())

    @property
    def values(self) -> Floats:
        """The smallest estimates of each loss: 0 where it was not audited, else the loss divided by the rate."""
        return self._weighed(self.loss)

    @property
    def upper_values(self) -> Floats:
        """The largest estimates of each loss."""
        return self._weighed(self.loss if self.most is None else self.most)

    @property
    def largest(self) -> float:
        """The largest possible value."""
        return 1 / (self.least_rate or 1.0)

    def mean(self, first: int = 0, last: int | None = None) -> float:
        """Return the mean loss from one place to another; NaN where none is known."""
        inside = (self.places >= first) & (self.places <= (math.inf if last is None else last))
        return float(self._means(inside)[-1]) if inside.any() else math.nan

    def means(self) -> Floats:
        """Return the mean loss after each; NaN before the first that is known."""
        return self._means(np.ones(len(self), dtype=np.bool_))

    def _means(self, inside: Mask) -> Floats:
        """Return running means that assume missing losses to be like the known ones, within their bounds."""
        low, high = self.values[inside], self.upper_values[inside]
        known, audited, weights = self.known[inside], self.audited[inside], 1 / self.rates[inside]
        n, seen = np.arange(1, len(low) + 1), np.cumsum(np.where(known, low, 0.0))
        weight, whole = np.cumsum(np.where(known, weights, 0.0)), np.cumsum(np.where(audited, weights, 0.0))
        scale = np.divide(whole, weight, out=np.full(len(low), np.nan), where=weight > 0)
        means: Floats = np.clip(seen / n * scale, np.cumsum(low) / n, np.cumsum(high) / n)
        return means

    def _weighed(self, loss: Floats) -> Floats:
        return loss if self.least_rate is None else np.where(self.audited, loss, 0.0) / self.rates


def audited_losses(
    requests: Requests, question: LossClaim, *, until: int | None = None, bounds: tuple[Floats, Floats] | None = None
) -> Losses:
    """Return the losses of audited requests, in the order of requests.

    Args:
        requests: Of the log.
        question: Which loss.
        until: The place of the first request that does not count yet; None = all count.
        bounds: `audited_bounds` of both; None = they are found here.
    """
    notes: list[str] = []
    counting = requests.counting & (np.arange(len(requests)) < (len(requests) if until is None else until))
    least, most = audited_bounds(requests, question) if bounds is None else bounds
    drawn = requests.drawn & counting
    repeats = int((~requests.counting).sum())
    if repeats:
        notes.append(
            f"{counted(repeats, 'request')} repeat a question of the log and share its draw: each question counts once, at its first request "
            "(question(..., request_id=...) draws each request by itself)"
        )
    n_lost = int((requests.lost & drawn).sum())
    if n_lost:
        notes.append(
            f"{counted(n_lost, 'audit')} of {int(drawn.sum()):,} got lost (drawn, and never run to the end): their loss counts as 1"
        )
    missing = int((drawn & (least < most)).sum())
    if missing:
        notes.append(
            f"{question.metric} is unknown in {missing:,} of {int(drawn.sum()):,} audited requests: for the alarm they lost as little as they can "
            "have lost, and for the upper end of an interval as much"
        )
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
        loss=least[places],
        most=most[places],
        rates=requests.rate[places],
        lowest=question.lowest,
        n_lost=n_lost,
        notes=tuple(notes),
    )


def audited_bounds(requests: Requests, question: LossClaim) -> tuple[Floats, Floats]:
    """Return the smallest and the largest loss that each audited request can have had; NaN where none was audited.

    They are equal if the loss is known.  A lost audit counts as 1, also for the alarm; otherwise crashes on long
    questions would improve the figures.
    """
    least, most = np.full(len(requests), np.nan), np.full(len(requests), np.nan)
    complete = requests.complete
    if complete.any():
        least[complete], most[complete] = _bounds_of(requests.at(complete), question)
    least[requests.lost] = most[requests.lost] = _WORST
    return least, most


def _bounds_of(requests: Requests, question: LossClaim) -> tuple[Floats, Floats]:
    recording = requests.recording
    metric, reference = outcome(recording, question.metric), reference_stops(recording, _reference(requests, question))
    mine = _value_at(recording, metric, requests.answer, requests.stop)
    full = _value_at(recording, metric, reference.answer_rounds, reference.rounds)
    # An equal answer loses nothing even without a gold answer.  But the printed mean assumes missing losses to be like
    # the known ones, and would be too small if all harmless losses were known.
    return loss_bounds(mine, full, lowest=question.lowest)


def full_run_losses(requests: Requests, question: LossClaim) -> Floats:
    """Return the loss against the baseline of requests that ran on, shape ``(n_requests,)``; NaN where it is unknown."""
    low, high = _bounds_of(requests, question)
    return np.where(low < high, np.nan, low)


def reference_stops(recording: Recording, policy: Policy) -> Stops:
    """Return where a policy stops on the rounds of requests."""
    raw = recording.rounds(policy.raw_columns)
    return stops(policy, raw)


def _value_at(
    recording: Recording, metric: Floats, answer: npt.NDArray[np.int64], stop: npt.NDArray[np.int64]
) -> Floats:
    """Return a metric at the answered round, or at the stop where no round has an answer."""
    position = np.where(answer >= 0, answer, stop) - int(recording.index[0])
    rows = np.arange(len(position))
    inside = (position >= 0) & (position < metric.shape[1])
    return np.where(inside, metric[rows, np.clip(position, 0, metric.shape[1] - 1)], np.nan)
