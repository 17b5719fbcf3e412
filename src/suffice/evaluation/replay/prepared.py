"""A recording prepared for replay: metrics, costs and columns that all policies share.

Policies with the same selector and start round also share two tables: the outcomes and the costs of a stop at each
round.  A policy then only decides where it stops, and its outcome and costs are looked up in the tables.  The figures of
its random twin are weighted sums over the tables.  Only calls on demand are charged separately for each policy, since
they depend on the signals that its rule reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.replay.charging import LIVE, Charging, charging_of
from suffice.evaluation.replay.costs import TOKEN_KINDS, CostTable, Ledger
from suffice.evaluation.replay.outcomes import expected_by_stop, outcome
from suffice.evaluation.replay.prices import Price, with_priced_spend
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules import Never
from suffice.policy.rules.selectors import answered
from suffice.policy.session import Policy, Stops, stops
from suffice.policy.signals.votes import vote_signal
from suffice.recordings.recording import Recording

if TYPE_CHECKING:
    from suffice.evaluation.statistics import Draws, Resampling


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomesByStop:
    """Metrics of a stop at each round, by name, of shape ``(n_questions, n_rounds)``, from the start round on.

    Attributes:
        values: Metrics of the answer that the selector returns; if the selector draws among several answers, the
            expected metrics.
        best: Metrics of the best round so far, which a perfect selector would return.
    """

    values: Mapping[str, Floats]
    best: Mapping[str, Floats]


class CostsByStop:
    """Costs up to a stop at each round, for the components that every visited round calls.

    Args:
        table: The recorded costs.
        start: The start round.
        highest: The highest round that may be requested, see `CostTable.charge`.
    """

    def __init__(self, table: CostTable, start: int, highest: int) -> None:
        self._table, self._highest = table, highest
        self._first = max(0, start - int(table.index[0]))
        self._visited: Floats = table.seen[:, self._first :].cumsum(axis=1).astype(np.float64)
        self._sums: dict[tuple[str, str], Floats | None] = {}
        self._calls: dict[tuple[str, ...], Floats] = {}
        self._tokens: dict[tuple[str, ...], Floats] = {}

    def ledger(self, of: Callable[[Floats], Floats], masks: Mapping[str, Mask] | Mapping[str, Floats]) -> Ledger:
        """Return the ledger of a policy.

        Args:
            of: A function from the costs up to each round, shape ``(n_questions, n_rounds)``, to the costs that the
                policy pays, shape ``(n_questions,)``.
            masks: The paid rounds of the components that are not called in every visited round, see `CostTable.charge`.
        """
        table = self._table
        rest = table.charge(masks, self._highest) if masks else None
        nothing, unknown = np.zeros(len(table.seen)), None
        costs: dict[str, dict[str, Floats]] = {}
        money = nothing
        for component, columns in table.columns.items():
            if rest is not None and component in masks:
                costs[component] = dict(rest.costs[component])
            else:
                costs[component] = dict.fromkeys(columns, nothing)
                for kind in columns if component in table.loop else ():
                    if table.is_unknown(component, kind):
                        unknown = np.where(of(self._visited) > 0, np.nan, 0.0) if unknown is None else unknown
                        costs[component][kind] = unknown
                    elif (sums := self._summed(component, kind)) is not None:
                        costs[component][kind] = of(sums)
            money = money + table.money_of(component, costs[component])
        calls = of(self.calls(masks))
        return Ledger(costs=costs, calls=calls if rest is None else calls + rest.calls, money=money)

    def calls(self, masks: Mapping[str, Mask] | Mapping[str, Floats] = {}) -> Floats:
        """Return the requests to language models up to each round, without those of the components in `masks`."""
        names = tuple(name for name in self._table.loop if name in self._table.call_columns and name not in masks)
        if names not in self._calls:
            columns = [self._table.call_columns[name] for name in names]
            total = sum((self._until(name, "calls", column) for name, column in zip(names, columns, strict=True)), 0.0)
            self._calls[names] = np.broadcast_to(total, self._visited.shape)
        return self._calls[names]

    def tokens(self, masks: Mapping[str, Mask] | Mapping[str, Floats] = {}) -> Floats:
        """Return the tokens up to each round, without those of the components in `masks`; NaN where unknown."""
        names = tuple(name for name in self._table.loop if name in self._table.columns and name not in masks)
        if names not in self._tokens:
            total = np.zeros(self._visited.shape)
            for name, kind in product(names, TOKEN_KINDS):
                if self._table.is_unknown(name, kind):
                    total = np.where(self._visited > 0, np.nan, total)
                elif (sums := self._summed(name, kind)) is not None:
                    total = total + sums
            self._tokens[names] = total
        return self._tokens[names]

    def _until(self, component: str, kind: str, column: Floats) -> Floats:
        until = self._table.until(self._table.index, self._highest)
        due = self._table.due(component, kind, column, until=until)
        return np.asarray(due[:, self._first :].cumsum(axis=1))

    def _summed(self, component: str, kind: str) -> Floats | None:
        """Return the sums of a cost up to each round; None if it is always 0."""
        if (component, kind) not in self._sums:
            column = self._table.columns[component][kind]
            self._sums[component, kind] = self._until(component, kind, column) if column.any() else None
        return self._sums[component, kind]


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedRecording:
    """A recording without its failed questions; metrics, costs and columns are computed once, when they are first read.

    Attributes:
        recording: Recorded rounds without failed questions.
        n_failed: Number of questions left out because their recording failed.
        metric_names: The metrics of answers, see `outcome`.
        prices: One price for all language models, or prices by component.  None = take money from the log; NaN where the
            log has none.
        charging: The convention of charging, which determines the calls that a policy pays for.
        wave: Number of samples requested at once; None = as recorded.
        models: See `CostTable`.
        added: Further columns for policies to read, shape ``(n_questions, n_rounds)``; they replace recorded ones of
            the same name.
    """

    recording: Recording
    n_failed: int = 0
    metric_names: tuple[str, ...] = ()
    prices: Price | Mapping[str, Price] | None = None
    charging: Charging = LIVE
    wave: int | None = None
    models: tuple[str, ...] | None = None
    added: Mapping[str, Floats] = field(default_factory=dict)
    _columns: dict[str, Floats] = field(default_factory=dict, init=False, repr=False)
    _vote_columns: dict[tuple[str, str, int], Floats] = field(default_factory=dict, init=False, repr=False)
    _outcomes: list[tuple[Policy, int, OutcomesByStop]] = field(default_factory=list, init=False, repr=False)
    _costs: dict[tuple[int, int], CostsByStop] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        recording: Recording,
        metrics: Iterable[str] = (),
        *,
        prices: Price | Mapping[str, Price] | None = None,
        ledger: str = LIVE.name,
        samples: bool = False,
        wave: int | None = None,
    ) -> PreparedRecording:
        """Prepare a recording.

        Args:
            recording: Recorded rounds; failed questions are left out.
            metrics: See `outcome`.
            prices: See the class.
            ledger: Name of the convention of charging, see `suffice.evaluation.replay.charging`.
            samples: Whether the rounds may be independent samples; the caller must then average over their orders.
            wave: Number of samples requested at once; None = as recorded.

        Raises:
            DataError: All questions failed, the ledger is unknown, or rounds are independent samples and `samples` is
                False.
        """
        if recording.exchangeable and not samples:
            raise DataError(
                "this recording holds independent samples, and the order in which they are stored means nothing. `suffice replay`, "
                "`certify`, `decide` and `search` average over orders; this looks at rounds that follow one another"
            )
        failed = recording.failed
        if failed.all():
            raise DataError(f"all {len(failed)} recorded questions failed: run `suffice record` again to complete them")
        complete = recording.select(~failed) if failed.any() else recording
        return cls(
            recording=complete if prices is None else with_priced_spend(complete, prices),
            n_failed=int(failed.sum()),
            metric_names=tuple(metrics),
            prices=prices,
            charging=charging_of(ledger),
            wave=wave,
        )

    def with_metrics(self, metrics: Iterable[str]) -> PreparedRecording:
        """Return the same recording with `metrics` in place of its present metrics."""
        return replace(self, metric_names=tuple(metrics))

    def with_columns(self, columns: Mapping[str, Floats]) -> PreparedRecording:
        """Return the same recording with further columns for policies to read, shape ``(n_questions, n_rounds)``."""
        return replace(self, added={**self.added, **columns})

    @cached_property
    def metrics(self) -> Mapping[str, Floats]:
        """The metrics at every round, by name, shape ``(n_questions, n_rounds)``."""
        return {name: outcome(self.recording, name) for name in self.metric_names}

    @cached_property
    def costs(self) -> CostTable:
        """The recorded costs."""
        return CostTable(self.recording, self.prices, self.wave, self.models)

    def column(self, name: str) -> Floats:
        """Return a column for policies to read, shape ``(n_questions, n_rounds)``; cached."""
        if name not in self._columns:
            self._columns[name] = self.added[name] if name in self.added else self.recording.column(name)
        return self._columns[name]

    def gives(self, name: str) -> bool:
        """Return whether `column` can return a column of this name: added, recorded, or computed from the rounds."""
        return name in self._columns or name in self.added or self.recording.gives(name)

    def rounds(self, columns: Iterable[str], more: Mapping[str, Floats] = {}) -> Rounds:
        """Return columns in the form that policies read; columns that `gives` does not know are left out.

        Args:
            columns: The names of columns.
            more: Further columns by name, which are computed from others.
        """
        rounds = self.recording.view({name: self.column(name) for name in columns if self.gives(name)} | {**more})
        if rounds.answered is None and "answer" in self.recording.table.column_names:
            rounds.answered = self.answered  # looked up once for all policies
        return rounds

    @cached_property
    def answered(self) -> Mask:
        """Mask of the rounds with an answer, shape ``(n_questions, n_rounds)``."""
        return answered(self.recording.view({}))

    def answer_ids(self, normalizer: str) -> Floats:
        """Return a number for each answer, the same for equal answers to a question; see `Recording.answer_ids`."""
        return self.recording.answer_ids(normalizer)

    def raw(self, policy: Policy) -> Rounds:
        """Return the raw columns of a policy's view; comparisons of answers and votes are cached for all policies."""
        name = policy.answer_column
        if name is None or "answer" not in self.recording.table.column_names:
            return self.rounds(policy.raw_columns)
        if name not in self._columns:
            self._columns[name] = self.answer_ids(policy.normalizer)
        first = max(0, policy.start_round - int(self.recording.index[0]))
        votes = {column: self._votes(signal, name, first) for column, signal in policy.vote_columns.items()}
        return self.rounds((*policy.raw_columns, name), votes)

    def _votes(self, signal: str, answers: str, first: int) -> Floats:
        """Return a signal in `VOTES`, counted from position `first` on; NaN before."""
        key = (signal, answers, first)
        if key not in self._vote_columns:
            votes = np.full(self.recording.shape, np.nan)
            votes[:, first:] = vote_signal(signal, self._columns[answers][:, first:])
            self._vote_columns[key] = votes
        return self._vote_columns[key]

    def view(self, policy: Policy) -> Rounds:
        """Return the view of a policy, see `Policy.view`."""
        return policy.view(self.raw(policy))

    def stops(self, policy: Policy) -> Stops:
        """Return the stops of a policy, see `suffice.policy.session.stops`."""
        return stops(policy, self.raw(policy))

    def draws(self, resampling: Resampling) -> Draws:
        """Return the bootstrap draws of the questions, or of their clusters."""
        return resampling.draws(self.recording.clusters)

    @property
    def n(self) -> int:
        """The number of questions."""
        return self.recording.shape[0]

    @property
    def n_orders(self) -> int:
        """Number of orders that each question appears in; see `suffice.evaluation.replay.orders`."""
        return 1

    @property
    def highest(self) -> int:
        """The highest recorded round."""
        return int(self.recording.index[-1])

    @property
    def cut(self) -> Mask:
        """Mask of the questions that a rule ended before the recording's highest round, shape ``(n_questions,)``."""
        return self.recording.cut

    def in_view(self, metric: Floats, view: Rounds) -> Floats:
        """Return a metric restricted to the rounds of a view."""
        offset = int(view.index[0] - self.recording.index[0])
        return metric[:, offset : offset + len(view)]

    def outcomes_by_stop(self, policy: Policy) -> OutcomesByStop:
        """Return the metrics of a stop at each round, from the policy's start round on; cached for each selector."""
        like, start = replace(answering_like(policy), name=""), policy.start_round
        for other, first, outcomes in self._outcomes:
            if other == like and first == start:
                return outcomes
        view = self.view(replace(like, rule=Never(), start_round=start, max_rounds=max(self.highest, start, 1)))
        metrics = {name: self.in_view(metric, view) for name, metric in self.metrics.items()}
        seen = {name: np.where(view.seen, metric, -np.inf) for name, metric in metrics.items()}
        for metric in seen.values():
            metric[~view.seen.any(axis=1)] = 0.0  # without any round there is nothing to choose from
        outcomes = OutcomesByStop(
            values={name: expected_by_stop(like.selector, view, metric) for name, metric in metrics.items()},
            best={name: np.maximum.accumulate(metric, axis=1) for name, metric in seen.items()},
        )
        self._outcomes.append((like, start, outcomes))
        return outcomes

    def costs_by_stop(self, policy: Policy) -> CostsByStop:
        """Return the costs up to each round, from the policy's start round on."""
        # The highest round decides where the last wave of requests ends, and nothing else.
        key = (policy.start_round, policy.max_rounds if self.costs.wave > 1 else self.highest)
        if key not in self._costs:
            self._costs[key] = CostsByStop(self.costs, *key)
        return self._costs[key]

    def values(self, view: Rounds, stop: Positions, answer: Positions) -> dict[str, Floats]:
        """Return the metrics of stops at the positions `stop` with answers from the positions `answer`, by name."""
        position = np.where(answer >= 0, answer, stop)
        rows = np.arange(len(position))
        return {
            name: np.where(position >= 0, self.in_view(metric, view)[rows, np.maximum(position, 0)], 0.0)
            for name, metric in self.metrics.items()
        }


def looked_up(table: Floats, position: Positions) -> Floats:
    """Return the value of a table at each question's stop, shape ``(n_questions,)``; 0 for a question without rounds."""
    values = table[np.arange(len(position)), np.maximum(position, 0)]
    return values if (position >= 0).all() else np.where(position >= 0, values, 0.0)


def answering_like(policy: Policy) -> Policy:
    """Return a policy with the selector of `policy` and the fitted state that this selector reads.

    The returned policy's name is a suffix for the labels of baselines with this selector; it is empty for `last`.
    """
    names = policy.selector.signals
    text = str(policy.selector)
    return Policy(
        selector=policy.selector,
        calibrators=tuple(calibrator for calibrator in policy.calibrators if calibrator.output in names),
        state={name: state for name, state in policy.state.items() if name in names},
        normalizer=policy.normalizer,
        name="" if text == "last" else f", {text}",
    )
