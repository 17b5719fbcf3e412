"""The result of a watch: one sentence with a verb, a status, and the tables behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from suffice.common.display import Chart
from suffice.common.results import NOT_IN_JSON, Result
from suffice.common.tables import Column, Table, counted, facts_table, figure
from suffice.policy.calibration import CalibrationReport
from suffice.verdicts.diagnostics.calibration import bins_table
from suffice.verdicts.watches.changes import MODEL, ReplyChange, changes_table
from suffice.verdicts.watches.charts import WatchPoint, watch_chart
from suffice.verdicts.watches.drift import Drifts, Movement
from suffice.verdicts.watches.evidence import LossAlarm, LossWindow
from suffice.verdicts.watches.losses import USER_SIGNAL, LossClaim
from suffice.verdicts.watches.policies import risk_text, share_of_risk
from suffice.verdicts.watches.requests import moment
from suffice.verdicts.watches.shadows import ShadowFigures, shadows_table

WatchStatus = Literal[
    "keep", "recalibrate", "re-certify", "fall back", "missing golds", "lost audits", "not enough audits"
]

STATUSES: Mapping[WatchStatus, str] = {
    "keep": "nothing shows that the loss is above its bound; the sentence says how long a rise must have lasted to be noticed",
    "recalibrate": "a signal that the rule reads has moved, or its probabilities are off",
    "re-certify": "another model replies, the certificate is suspended, or there is no bound to judge by",
    "fall back": "the loss was above its bound for a while, which its mean since deployment need not be: let the loop run at full width",
    "missing golds": "too many audited requests have no gold answer or mark after the gold deadline: the alarm cannot see their loss",
    "lost audits": "too many audits never ran to the end: the alarm cannot see their loss",
    "not enough audits": "there are too few audits to notice a loss above the bound",
}
"""What each status says."""

_MOST_WINDOWS = 10
_MOST_UNKNOWN = 0.05
"""The largest share of audited requests whose loss may be unknown after the deadlines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalFit:
    """One calibrated signal on audited requests.

    Attributes:
        report: Predicted and observed shares, in bins.
        gap: The mean of observed minus predicted share over audited requests, with an interval that is valid at every
            look.
        is_off: Whether the whole interval of the gap lies beyond the effect size.
    """

    signal: str
    report: CalibrationReport
    gap: tuple[float, float, float]
    is_off: bool


@dataclass(frozen=True, slots=False, kw_only=True)
class WatchResult(Result):
    """The result of watching the policy that decided a production log.

    Attributes:
        policy: Label of the policy.
        digest: Digest of the policy.
        question: The checked claim: the kind of loss, and its bound.
        n: Number of requests that the policy decided.
        ids: Ids of these requests, in the order of time.
        times: Start time of each request, seconds since 1970.
        n_audited: Requests whose loss is known.
        n_missing: Audited requests whose loss needs a gold answer or a mark that is missing after the gold deadline.
        n_unknown: Audited requests whose loss is unknown: a gold answer or mark is missing, or the audit was lost.
        gold_deadline: Seconds after a request within which its gold answer or mark must arrive.
        n_drawn: Requests that were drawn for an audit.
        n_lost: Audits that were lost.
        rates_vary: Whether requests were drawn with different probabilities.
        n_cut: Requests that the rule stopped before the last round.
        stops: Requests by the reason of their stop.
        rounds_saved: Rounds that requests did not run because the rule stopped them.
        whole: The loss since the first request.
        windows: The loss by window, the latest first.
        alarm: Evidence against the bound; None without a bound or an audit.
        needed: Approximate number of further audits needed to notice a loss that exceeds the bound by `rise`; 0 if
            there are enough.
        noticed: Approximate number of latest audits within which a loss that exceeds the bound by `rise` would have
            rung the alarm, in at least four of five cases; None if there are too few audits, or audit rates vary.
        rise: The size of a rise above the bound that must be noticed.
        number: The number of the policy among all policies of its loop, from 1.
        alpha: The risk of a false alarm over all policies of the loop, and also the risk that an interval misses the
            true value.
        drifts: Numbers compared for drift.
        reliability: The fit of calibrated signals.
        changes: New model ids and fingerprints.
        shadows: Figures of shadow policies.
        suspended: The reason why the certificate is already suspended; empty if it is not.
        certified: Whether there is a certificate for this loss.
        points: Points of the chart.
        notes: Notes for the reader.
    """

    json_first: ClassVar[tuple[str, ...]] = ("status", "sentence", "rang_at", "risk")

    policy: str
    digest: str
    question: LossClaim
    n: int
    ids: list[str] = field(metadata=NOT_IN_JSON)
    times: list[float] = field(metadata=NOT_IN_JSON)
    n_audited: int
    n_missing: int
    n_unknown: int
    gold_deadline: float
    n_drawn: int
    n_lost: int
    rates_vary: bool
    n_cut: int
    stops: Mapping[str, int]
    rounds_saved: int
    whole: LossWindow
    windows: tuple[LossWindow, ...]
    alarm: LossAlarm | None
    needed: int
    noticed: int | None
    rise: float
    number: int
    alpha: float
    drifts: Drifts
    reliability: tuple[SignalFit, ...]
    changes: tuple[ReplyChange, ...]
    shadows: tuple[ShadowFigures, ...]
    suspended: str
    certified: bool
    points: tuple[WatchPoint, ...]
    notes: tuple[str, ...] = ()

    @property
    def risk(self) -> float:
        """The risk of a false alarm of this policy: its share of `alpha`."""
        return share_of_risk(self.alpha, self.number)

    @property
    def rang(self) -> bool:
        """True if the alarm rang."""
        return self.alarm is not None and self.alarm.rang is not None

    @property
    def rang_at(self) -> dict[str, Any] | None:
        """The request at which the alarm rang, and its time; None while it is silent."""
        place = None if self.alarm is None else self.alarm.rang
        return None if place is None else {"request": self.ids[place], "time": self.times[place]}

    @property
    def new_model(self) -> ReplyChange | None:
        """The last new model id in the replies; None if the model id never changed."""
        return next((change for change in reversed(self.changes) if change.column == MODEL), None)

    @property
    def off(self) -> list[str]:
        """The calibrated signals whose predictions no longer match the observed shares."""
        return [item.signal for item in self.reliability if item.is_off]

    @property
    def status(self) -> WatchStatus:
        """The status, one of `STATUSES`."""
        if self.rang:
            return "fall back"
        if self.question.bound is None or self.suspended or (self.certified and self.new_model):
            return "re-certify"
        if self.n_cut and self.n_unknown > _MOST_UNKNOWN * (self.n_audited + self.n_unknown):
            return "missing golds" if 2 * self.n_missing >= self.n_unknown else "lost audits"
        if self.drifts.of_rule or self.off or self.new_model:
            return "recalibrate"
        return "not enough audits" if self.needed and self.n_cut else "keep"

    @property
    def lead(self) -> str:
        """The sentence that leads the result."""
        return self.sentence

    @property
    def sentence(self) -> str:
        """The recommended action and its reason, beginning with a verb."""
        return {
            "fall back": self._fall_back,
            "re-certify": self._certify_again,
            "recalibrate": self._recalibrate,
            "missing golds": self._ask_for_golds,
            "lost audits": self._ask_for_audits,
            "not enough audits": self._wait,
            "keep": self._keep,
        }[self.status]()

    def _loss_text(self) -> str:
        """Return the loss since deployment in words, with the number of audits whose loss is unknown."""
        if not self.whole.n_audited:
            if self.n_unknown:
                return f"not known: the outcome of each audit so far ({self.n_unknown:,}) is unknown"
            return "not known: no request was audited"
        is_signal = self.question.metric == USER_SIGNAL
        noun, plural = (
            ("request past its deadline", "requests past their deadline") if is_signal else ("audited request", "")
        )
        text = f"{figure(self.whole.interval, '.1f', 100)} points on {counted(self.whole.n_audited, noun, plural)}"
        unknown = f" (of {self.n_unknown:,} more it is unknown, and the interval has room for the worst)"
        return text + unknown * bool(self.n_unknown)

    @property
    def _bound(self) -> str:
        return "" if self.question.bound is None else f"{100 * self.question.bound:g} points"

    def place_text(self, place: int) -> str:
        """Return a request in words: its id and its time."""
        return f"request {self.ids[place]}{moment(self.times[place], ' of ')}"

    def _moved_text(self, movement: Movement) -> str:
        since = "" if movement.since is None else f" since {self.place_text(movement.since)}"
        return f"{movement.name} moved{since} ({figure(movement.before, ',.3g')} before, {figure(movement.now, ',.3g')} now)"

    def _causes(self) -> str:
        """Return other findings that may explain the loss, in words; empty if there are none."""
        texts = [self._moved_text(movement) for movement in self.drifts.moved[:1]]
        if self.new_model is not None:
            texts.append(f"{self.new_model.value} replies since {self.place_text(self.new_model.place)}")
        if self.n_lost:
            texts.append(f"{counted(self.n_lost, 'audit')} of {self.n_drawn:,} got lost")
        return f" Look at this first: {'; '.join(texts)}." if texts else ""

    def _fall_back(self) -> str:
        assert self.alarm is not None
        assert self.alarm.rang is not None
        after = self.alarm.after
        assert after is not None
        since = f", and about {figure(after.mean, '.1f', 100)} on the {after.n_audited:,} since {self.place_text(after.first)}"
        return (
            f"Fall back to full width: the {self.question.text} was above {self._bound} for a while. The alarm rang at "
            f"{self.place_text(self.alarm.rang)} (risk {risk_text(self.alpha, self.number)}); the mean since deployment is {self._loss_text()}{since}."
            f"{self._causes()}"
        )

    def _certify_again(self) -> str:
        if self.suspended:
            return f"Certify again: the certificate is suspended: {self.suspended}. The {self.question.text} is {self._loss_text()}."
        if self.question.bound is None:
            return (
                f"Certify the policy, or give the largest loss of {self.question.metric} that you accept (max_loss, --max-loss): "
                f"without it nothing can alarm. The {self.question.text} is {self._loss_text()}."
            )
        assert self.new_model is not None
        return (
            f"Certify again: {self.new_model.value} replies since {self.place_text(self.new_model.place)}, and the certificate assumes the "
            f"model that it was given for. Nothing shows yet that the loss has passed {self._bound}: it is {self._loss_text()}."
        )

    def _recalibrate(self) -> str:
        causes = [self._moved_text(movement) for movement in self.drifts.of_rule[:2]]
        causes += [
            f"{item.signal} says {figure(-item.gap[0], '+.1f', 100)} points too much"
            for item in self.reliability
            if item.is_off
        ]
        if self.new_model is not None:
            causes.append(f"{self.new_model.value} replies since {self.place_text(self.new_model.place)}")
        return (
            f"Recalibrate the policy: {'; '.join(causes)}. Nothing shows yet that the loss has passed {self._bound}: it is "
            f"{self._loss_text()}."
        )

    def _ask_for_golds(self) -> str:
        hours = f"{self.gold_deadline / 3600:,.4g} hours"
        return (
            f"Add the missing golds: {self.question.metric} is unknown in {self.n_missing:,} of "
            f"{counted(self.n_audited + self.n_unknown, 'audit')} after the gold deadline of {hours}, and the alarm cannot see what these lost. Add "
            "their gold answers or marks to the log, or judge by agreement with the full run, which needs none (metric, --metric agreement)."
        )

    def _ask_for_audits(self) -> str:
        n = self.n_unknown - self.n_missing
        return (
            f"Find out why audits get lost: {counted(n, 'audit')} of {self.n_audited + self.n_unknown:,} never ran to the end, and the alarm "
            "cannot see what these lost. Run audits in a process that outlives a deploy, or resume them from their state."
        )

    def _wait(self) -> str:
        is_signal = self.question.metric == USER_SIGNAL
        noun, plural = (
            ("request past its deadline", "requests past their deadline") if is_signal else ("audit", "audits")
        )
        few = f"{counted(self.n_audited, noun, plural)} {'is' if self.n_audited == 1 else 'are'} too few"
        return (
            f"Not enough {plural} yet: {few} to notice a {self.question.text} above {self._bound}. Keep the policy, and wait for about "
            f"{self.needed:,} more {plural}{self._requests_needed()}: they would show one of {self._risen} in four of five cases."
        )

    @property
    def _risen(self) -> str:
        return f"{100 * (self.rise + (self.question.bound or 0)):g} points"

    def _requests_needed(self) -> str:
        if not self.n_drawn or self.question.metric == USER_SIGNAL:
            return ""
        return f" (about {math.ceil(self.needed * self.n / self.n_drawn):,} requests at this rate)"

    def _keep(self) -> str:
        if not self.n_cut:
            return (
                f"Keep the policy, or replace it: it stopped none of {counted(self.n, 'request')} early, so it loses nothing and saves "
                "nothing."
            )
        assert self.alarm is not None
        return (
            f"Keep the policy: the {self.question.text} is {self._loss_text()}, and nothing shows that it has passed {self._bound} "
            f"(evidence {figure(self.alarm.e_value, ',.2g')}; {1 / self.risk:,.3g} would ring). {self._noticed_text()}"
        )

    def _noticed_text(self) -> str:
        if self.noticed is not None:
            audits = "requests" if self.question.metric == USER_SIGNAL else "audits"
            return (
                f"A loss of {self._risen} that has lasted for the latest {self.noticed:,} {audits} would have rung in four of five cases; a "
                "younger one may not show yet."
            )
        if self.rates_vary:
            return "How soon a rise would show is not estimated for audits of several rates."
        return "That is the mean since deployment: a rise among the latest requests may not show yet."

    def tables(self) -> list[Table]:
        """Return the tables: the loss, then drift, calibration, changes and shadows if there are any, and the facts."""
        tables = [self.table()]
        if self.drifts.movements:
            tables.append(self.drifts.table(self.ids))
        if self.changes:
            tables.append(changes_table(self.changes))
        if self.shadows:
            tables.append(shadows_table(self.shadows, self.question))
        for item in self.reliability:
            gap = f"observed less predicted, by request: {figure(item.gap, '+.1f', 100)} points (valid at every look)"
            title = f"{item.signal} on audited requests, at every round"
            tables.append(bins_table(title, {"all": item.report}, {}, notes=(gap,)))
        return [*tables, self._facts()]

    def table(self) -> Table:
        """Return the loss since deployment, then that of the last windows, the latest first."""
        shown = self.windows[:_MOST_WINDOWS]
        named = [(f"{place} before" if place else "latest", window) for place, window in enumerate(shown)]
        notes = [
            f"intervals hold at every look, {100 * (1 - self.alpha):g} %: that of all requests for their running mean, those of all windows together"
        ]
        if len(self.windows) > len(shown):
            notes.append(f"{counted(len(self.windows) - len(shown), 'older window')} not shown")
        if not self.drifts.movements:
            notes += self.drifts.notes
        return Table.of(
            f"{self.question.text}, points{f'; at most {self._bound}' if self._bound else ''}",
            [("all", self.whole), *named],
            {
                Column("window"): lambda row: row[0],
                Column("since"): lambda row: self._span(row[1]),
                Column("requests", ",.0f"): lambda row: row[1].n,
                Column("due" if self.question.metric == USER_SIGNAL else "audited", ",.0f"): lambda row: (
                    row[1].n_audited
                ),
                Column("loss", "+.1f", scale=100, interval=True): lambda row: row[1].interval,
            },
            notes=(*self.question.notes, *self.notes, *notes),
        )

    def _span(self, window: LossWindow) -> str:
        return moment(self.times[window.first]) or f"request {window.first + 1:,}"

    def _facts(self) -> Table:
        drawn = f"{self.n_drawn:,}, {self.n_lost:,} of them got lost"
        facts = {
            "policy": f"{self.policy} ({self.digest})",
            "status": f"{self.status}: {STATUSES[self.status]}",
            "requests": f"{self.n:,}",
            "stopped early by the rule": f"{self.n_cut:,}, which saved {self.rounds_saved:,} rounds",
            "stops": ", ".join(f"{reason} {n:,}" for reason, n in self.stops.items()),
            "drawn for an audit": drawn,
            "bound": f"{self._bound} ({self.question.source})" if self._bound else "none",
        }
        if self.alarm is not None:
            facts["risk of a false alarm"] = f"{risk_text(self.alpha, self.number)}; this is number {self.number:,}"
            facts["evidence"] = (
                f"{self.alarm.e_value:.3g} now, {self.alarm.highest:.3g} at most; the alarm rings at {1 / self.risk:,.3g}"
            )
        return facts_table("The log", facts)

    def plot(self) -> Chart:
        """Return the running loss with its interval, the bound, the alarm, and the start of each new model."""
        marks = [(change.place + 1, f"{change.column} {change.value}") for change in self.changes]
        if self.alarm is not None and self.alarm.rang is not None:
            marks.append((self.alarm.rang + 1, "alarm"))
        return watch_chart(self.points, self.windows, self.question, marks)
