"""Try one rule on a recording: first figures, then intervals; a newer edit ends the computation."""

from __future__ import annotations

import json
import shlex
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from suffice.errors import DataError, SufficeError
from suffice.evaluation.replay import (
    Price,
    ReplayResult,
    Row,
    check_policy,
    list_price,
    policy_for,
    prices_of,
    seen_by,
    seen_from,
)
from suffice.evaluation.replay.outcomes import default_metrics
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.price_lists import LIST_PRICES
from suffice.evaluation.replay.replayer import ComparedRuns, Replayer
from suffice.evaluation.statistics import Resampling
from suffice.policy.rules import parse_rule, parse_selector
from suffice.policy.session import Policy
from suffice.policy.signals import SIGNALS
from suffice.policy.signals.votes import VOTES, weights_of
from suffice.recordings.recording import Recording
from suffice_server.studio.completion import Vocabulary

_FEW_ORDERS = 10
"""Orders of independent samples over which the first figures are averaged."""

_MANY_UNITS = 25_000
"""From this many questions on, intervals use fewer draws, because all draws stay in memory."""

_FEW_DRAWS = 200
_REPLAYERS = 2
"""Settings whose baselines and draws stay in memory."""

_TABS = 256
_TYPICAL = (0.1, 0.25, 0.5, 0.75, 0.9)


class SupersededError(Exception):
    """Raised when a newer edit in the same tab has made a computation useless."""


class Turns:
    """The number of the latest edit of each browser tab."""

    def __init__(self) -> None:
        self._latest: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, tab: str) -> Callable[[], None]:
        """Start an edit in a tab; return a function that raises `SupersededError` after a later edit."""
        with self._lock:
            turn = self._latest[tab] = self._latest.pop(tab, 0) + 1
            while len(self._latest) > _TABS:
                self._latest.popitem(last=False)

        def check() -> None:
            if self._latest.get(tab) != turn:
                raise SupersededError(tab)

        return check


@dataclass(frozen=True, kw_only=True)
class RuleDraft:
    """A rule and its settings, as typed on the page.

    Attributes:
        rule: Text of the rule.
        selector: Text of the selector; empty for the recording's own.
        start_round: First round of the policy; None for the recording's own.
        max_rounds: Last round of the policy; None for the recording's own.
        metric: Metric of quality; empty for the recording's own.
        cost: The cost by which "cheapest" and "dominated" compare.
        model: Model whose list price applies to all tokens.  Empty = each recorded model's own list price applies, if all
            recorded models are listed.
        baseline: Baseline of the differences, see `replay`.
        baseline_file: File of a policy that is the baseline.
        fitted: Policy whose fitted state the rule reads; None if nothing is fitted.
    """

    rule: str
    selector: str = ""
    start_round: int | None = None
    max_rounds: int | None = None
    metric: str = ""
    cost: str = "calls"
    model: str = ""
    baseline: str | Policy | None = None
    baseline_file: Path | None = None
    fitted: Policy | None = None

    def options(self) -> list[str]:
        """Return the command-line options for the settings of this draft, except baseline and fitted state."""
        words = ["--selector", self.selector] if self.selector else []
        words += [] if self.start_round is None else ["--set", f"start-round={self.start_round}"]
        return words + ([] if self.max_rounds is None else ["--max-rounds", str(self.max_rounds)])


@dataclass(frozen=True, kw_only=True)
class Tryout:
    """The results of a rule on a recording.

    Attributes:
        policy: The policy of the rule.
        result: The replay.
        highest: The highest recorded round.
        final: True if the results have intervals.  For a recording of samples, final results are means over all orders
            of the samples, other results are means over a few orders.
        deployable: Reason why the policy cannot run live as it is; empty if it can.
    """

    policy: Policy
    result: ReplayResult
    highest: int
    final: bool
    deployable: str

    @property
    def row(self) -> Row:
        """The policy's row in the table of the replay."""
        return self.result.rows[0]


class Workbench:
    """A recording on which rules are tried.

    Args:
        recording: Recorded rounds.
        metric: Default metric of quality; empty to show only costs and stops.

    Attributes:
        recording: The recording.
        metric: The default metric.
        turns: The latest edit of each tab.
    """

    def __init__(self, recording: Recording, metric: str) -> None:
        self.recording = recording
        self.metric = metric
        self.turns = Turns()
        self._computing = threading.Lock()  # one replay at a time: their shared caches are not thread-safe
        self._replayers: OrderedDict[tuple[Any, ...], Replayer] = OrderedDict()
        self._vocabularies: dict[str, Vocabulary] = {}

    def policy(self, draft: RuleDraft) -> Policy:
        """Return the policy of a draft.

        Raises:
            RuleSyntaxError: The rule or the selector does not parse.
            SufficeError: The rule cannot decide on this recording.
        """
        rule, changes = parse_rule(draft.rule), dict[str, Any]()
        if draft.selector:
            changes["selector"] = parse_selector(draft.selector)
        if draft.max_rounds is not None:
            changes["max_rounds"] = draft.max_rounds
        if draft.start_round is not None:
            changes["start_round"] = draft.start_round
        name = ", ".join(filter(None, [" ".join(draft.rule.split()), draft.selector]))
        if draft.fitted is None:
            policy = policy_for(self.recording, rule, name=name, **changes)
        else:
            policy = replace(draft.fitted, rule=rule, name=name, certificate=None, **changes)
        check_policy(policy, self.recording)
        return policy

    def stages(self, draft: RuleDraft, check: Callable[[], None]) -> Iterator[Tryout]:
        """Yield the results of a draft twice: first without and then with intervals.

        Args:
            draft: The rule and its settings.
            check: Called at intervals; an error that it raises ends the computation.

        Raises:
            SupersededError: A newer edit has come.
            SufficeError: The rule does not parse, or cannot decide on this recording.
        """
        policy = self.policy(draft)
        deployable = _deployable(policy)
        compared: ComparedRuns | None = None
        for few, intervals in ((self.recording.exchangeable, False), (False, True)):
            with self._computing:
                check()
                replayer = self._replayer(draft, few=few)
                if compared is None or compared.replayer is not replayer:
                    compared = replayer.compare(policy, draft.baseline, check=check)
                check()
                result = compared.result(intervals=intervals, tests=False)
            highest = replayer.whole.highest
            yield Tryout(policy=policy, result=result, highest=highest, final=intervals, deployable=deployable)

    def _replayer(self, draft: RuleDraft, *, few: bool) -> Replayer:
        key = (draft.metric, draft.cost, draft.model, few)
        if key not in self._replayers:
            metric = draft.metric or self.metric
            self._replayers[key] = Replayer(
                self.recording,
                metrics=(metric,) if metric else (),
                resampling=self._resampling,
                prices=self.prices(draft.model),
                cost=draft.cost,
                orders=_FEW_ORDERS if few else None,
            )
        self._replayers.move_to_end(key)
        while len(self._replayers) > _REPLAYERS:
            self._replayers.popitem(last=False)
        return self._replayers[key]

    def prices(self, model: str = "") -> Price | Mapping[str, Price] | None:
        """Return the list price of a model.

        Without a model, return the list prices of the recorded models, or None if one of them is not listed.

        Raises:
            NotFoundError: The model is not listed.
        """
        if model:
            return list_price(model).price
        try:
            return prices_of(LIST_PRICES, self.recording)
        except DataError:
            return None

    def vocabulary(self, fitted: Policy | None = None) -> Vocabulary:
        """Return the signals that rules can read on this recording; include those of the fitted state of `fitted`, if given."""
        key = "" if fitted is None else fitted.digest
        if key not in self._vocabularies:
            names = [*self.recording.names("signal"), *SIGNALS]
            names += [] if fitted is None else [calibrator.output for calibrator in fitted.calibrators]
            readable = [name for name in dict.fromkeys(names) if name not in VOTES and self._reads(name, fitted)]
            if self._reads("vote_lead", fitted):
                readable += [name for name in sorted(VOTES) if {*weights_of([name])} <= {*readable}]
            meanings = {
                name: SIGNALS[name].doc if name in SIGNALS else "a column of the recording" for name in readable
            }
            self._vocabularies[key] = Vocabulary(signals=meanings, values_of=lambda name: self._values(name, fitted))
        return self._vocabularies[key]

    def _reads(self, name: str, fitted: Policy | None) -> bool:
        try:
            self.policy(RuleDraft(rule=f"{name} > 0", fitted=fitted))
        except SufficeError:
            return False
        return True

    def _values(self, name: str, fitted: Policy | None) -> list[float]:
        """Return quantiles of a signal over all rounds, or its values if they are few."""
        try:
            policy = self.policy(RuleDraft(rule=f"{name} > 0", fitted=fitted))
        except SufficeError:
            return []
        with self._computing:
            view = self._prepared.view(policy)
        known = view[name][np.isfinite(view[name]) & view.seen]
        distinct = np.unique(known)
        values = distinct if len(distinct) <= len(_TYPICAL) else np.quantile(known, _TYPICAL)
        return [float(value) for value in values]

    @cached_property
    def _prepared(self) -> PreparedRecording:
        return PreparedRecording.of(self.recording, samples=True)

    @cached_property
    def _resampling(self) -> Resampling:
        many = len(set(self.recording.clusters.tolist())) > _MANY_UNITS
        return Resampling(n_resamples=_FEW_DRAWS) if many else Resampling()

    @cached_property
    def _default_metric(self) -> str:
        return default_metrics(self.recording)[0]

    def file(self, draft: RuleDraft) -> str:
        """Return the text of the draft's policy file; its provenance says that the rule was chosen on these questions.

        Raises:
            SufficeError: The policy cannot run live as it is, because something must be fitted first.
        """
        policy = self.policy(draft)
        policy.check()
        seen = (seen_by(policy) | seen_from(self.recording)).to_dict()
        provenance = {**policy.provenance, **seen, "chosen": "by its figures on these questions"}
        return json.dumps(replace(policy, provenance=provenance).to_dict(), indent=2, ensure_ascii=False) + "\n"

    def commands(self, draft: RuleDraft, path: Path) -> dict[str, str]:
        """Return commands to continue with a draft, by their purpose."""
        rule = ["--policy", "policy.json"] if draft.fitted is not None else ["--rule", draft.rule, *draft.options()]
        metric = draft.metric or self.metric
        named = [] if not metric or metric == self._default_metric else ["--metric", metric]
        baseline = draft.baseline if isinstance(draft.baseline, str) else draft.baseline_file
        more = [*named]
        more += ["--cost", draft.cost] if draft.cost != "calls" else []
        more += ["--model", draft.model] if draft.model else ["--prices", LIST_PRICES] if self.prices() else []
        more += ["--baseline", str(baseline)] if baseline else []
        draws = self._resampling.n_resamples
        more += [] if draws == Resampling().n_resamples else ["--set", f"resamples={draws}"]
        commands = {"These figures": shlex.join(["suffice", "replay", str(path), *rule, *more])}
        if draft.fitted is None:
            fit = [part for part in _pairs(draft.options()) if part[0] != "--max-rounds"]
            options = [text for pair in fit for text in pair]
            commands["Write the policy, fitted on tune questions where it must be"] = shlex.join(
                ["suffice", "calibrate", "TUNE.parquet", "--rule", draft.rule, *options, "-o", "policy.json"]
            )
        certify = ["suffice", "certify", "FRESH.parquet", "--policy", "policy.json", *named, "--max-loss", "0.02"]
        commands["Show on fresh questions that it loses little"] = shlex.join(certify)
        return commands


def _pairs(options: list[str]) -> list[tuple[str, str]]:
    return list(zip(options[::2], options[1::2], strict=True))


def _deployable(policy: Policy) -> str:
    try:
        policy.check()
    except SufficeError as error:
        return str(error)
    return ""
