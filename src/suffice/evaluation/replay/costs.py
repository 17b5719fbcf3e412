"""Costs that a policy would have had live (operational), and further costs of measuring it (evaluation)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from suffice.evaluation.replay.cost_gaps import ASKED_NOTE, CostGaps, price_notes
from suffice.evaluation.replay.prices import Price, currency_note
from suffice.evaluation.replay.waves import due_in_waves, wave_note, wave_of
from suffice.policy.rounds import COST_KINDS, WRITTEN_KINDS, Floats, Mask
from suffice.policy.signals import EMBEDDING, LOOP_COMPONENTS, RERANKING, RETRIEVAL, SIGNALS, member_component
from suffice.recordings.recording import Recording
from suffice.recordings.runs import attempts_of
from suffice.recordings.schema import ASKED, BATCH_NOTE, SPEND, TRIALS, cost_column

COSTS = ("calls", "tokens", "seconds", "money", "retrievals")
"""The costs that policies can be compared by."""

TOKEN_KINDS = ("uncached_tokens", "cached_tokens", "output_tokens")
GATE, GENERATOR = "gate", "generator"
DOLLARS = "dollars"
"""The kind of cost for the money that the log says was spent; used if no prices are given."""

_CENTS = 1e-9
"""Tolerance for rounding errors of sums, in dollars."""

NOT_LANGUAGE_MODELS = frozenset({RETRIEVAL, EMBEDDING, RERANKING, "reranker", "embedder"})
"""Components that are not language models: their requests are not `calls`, and they need not report tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The costs of each question, by component and kind.

    Attributes:
        costs: Costs by component, then kind: shape ``(n_questions,)``, in the unit of the kind; NaN where unknown.
        calls: Requests to language models (loop, judges, gate), shape ``(n_questions,)``, count.
        money: Money in the currency of `currency_of`, shape ``(n_questions,)``; NaN where a price or a token count is unknown.
    """

    costs: Mapping[str, Mapping[str, Floats]]
    calls: Floats
    money: Floats

    def total(self, kind: str) -> Floats:
        """Return one kind of cost over all components, ``(n_questions,)``; `tokens` sums the three kinds of tokens.

        `retrievals` are the calls of the retriever; NaN where these were not recorded.
        """
        if kind == "retrievals":
            unknown: Floats = np.full(self.calls.shape, np.nan)
            return self.costs[RETRIEVAL]["calls"] if RETRIEVAL in self.costs else unknown
        kinds = TOKEN_KINDS if kind == "tokens" else (kind,)
        total: Floats = np.zeros(self.calls.shape)
        for component in self.costs.values():
            for name in kinds:
                total = total + component[name]
        return total

    def spent(self, cost: str) -> Floats:
        """Return one of the costs in `COSTS`, shape ``(n_questions,)``; NaN where unknown."""
        own = {"calls": self.calls, "money": self.money}
        return own[cost] if cost in own else self.total(cost)

    def scaled(self, weight: float) -> Ledger:
        """Return all costs multiplied by `weight`, to compute expectations."""
        costs = {c: {kind: weight * values for kind, values in kinds.items()} for c, kinds in self.costs.items()}
        return Ledger(costs=costs, calls=weight * self.calls, money=weight * self.money)

    def plus(self, other: Ledger) -> Ledger:
        """Return the sum of two ledgers of the same components."""
        costs = {
            c: {kind: values + other.costs[c][kind] for kind, values in kinds.items()}
            for c, kinds in self.costs.items()
        }
        return Ledger(costs=costs, calls=self.calls + other.calls, money=self.money + other.money)


def is_on_demand(component: str, measuring: set[str]) -> bool:
    """Return whether a component is called only when a rule reads its signal, and not by the loop itself."""
    if component in (*LOOP_COMPONENTS, RETRIEVAL, EMBEDDING, RERANKING, GATE):
        return False
    measuring = measuring | {signal.component for signal in SIGNALS.values()} | {"reranker", "embedder"}
    return component.startswith("judge:") or component in measuring


def gate_signals(recording: Recording) -> list[str]:
    """Return the recorded signals of gates.  In an import without costs, only these show that there was a gate."""
    components = {name: signal.component for name, signal in SIGNALS.items()} | recording.signal_components
    return [name for name in recording.names("signal") if components.get(name) == GATE]


def _has_passages(recording: Recording) -> bool:
    """Return whether any round has passages, so that something was retrieved."""
    if "passage_ids" not in recording.table.column_names:
        return False
    return bool(pc.max(pc.list_value_length(recording.table.column("passage_ids"))).as_py())


class CostTable:
    """The recorded costs of all rounds, prepared once for every policy.

    Args:
        recording: Recorded rounds.
        prices: One price for all language models, or prices by component.  None = money of the log (`spend`), or NaN.
        wave: Number of samples requested at once; None = as recorded.
        models: The models of the whole panel, if `recording` has only some questions; None = the models in `recording`.

    Attributes:
        components: Components in the recording, sorted.
        loop: Components that every visited round calls; other components are called when a rule reads their signals.
        columns: Costs by component and kind, shape ``(n_questions, n_rounds)``; 0 after a last round, NaN where unknown.
        measured_by: The component that produces a signal, for signals that are not in `SIGNALS`.
        gated: Whether a gate decides at round 0, as a recorded cost or signal of a gate shows.  The closed-book answer
            is then paid only where the policy uses it.
        modelled: Whether cached tokens are modelled from shared prompt tokens instead of measured.
        reported_inputs: The uncached and cached tokens that the endpoint reported, by component; the tokens in
            `columns` may be modelled instead.
        price_notes: Notes on tokens without a price, dates of list prices, and inexact matches of a model's name.
        gaps: Costs that are missing or modelled.
        models: The models of a panel, in the order of their first answers; empty for other recordings.
    """

    def __init__(
        self,
        recording: Recording,
        prices: Price | Mapping[str, Price] | None = None,
        wave: int | None = None,
        models: Sequence[str] | None = None,
    ) -> None:
        self.seen = recording.seen
        self.index = recording.index
        self._prices = prices
        recorded_wave = wave_of(recording, None) if recording.independent else 1
        self.wave, self._whole = recorded_wave if wave is None else wave_of(recording, wave), recorded_wave > 1
        unknown: dict[tuple[str, str], int | None] = {}
        names = [name.split(".", 1)[1].rsplit(".", 1) for name in recording.names("cost")]
        charged = {component for component, _ in names}
        self.components = tuple(sorted(charged if charged & set(LOOP_COMPONENTS) else charged | {GENERATOR}))
        recorded = {
            (component, kind): recording.column(cost_column(component, kind))
            for component, kind in sorted(map(tuple, names))
        }
        self.measured_by = recording.signal_components
        self.loop = tuple(c for c in self.components if not is_on_demand(c, set(self.measured_by.values())))
        self.gated = GATE in charged or bool(gate_signals(recording))
        self._nothing: Floats = np.zeros(self.seen.shape)
        self._unknown: dict[tuple[str, str], bool] = {}
        self._everywhere: Mask = np.ones(self.seen.shape, dtype=np.bool_)
        self._due = self._when_called(recorded)
        self.modelled = recording.metadata.get("cache_state") == "unknown" and GENERATOR in self.components
        self.columns = {component: self._kinds(component, recorded, unknown) for component in self.components}
        of_components, of_figures = [], []
        timed = any(kind == "seconds" and component in LOOP_COMPONENTS for component, kind in names)
        if timed and RETRIEVAL not in charged and _has_passages(recording):
            of_components.append(f"{RETRIEVAL}: calls, seconds not recorded; the seconds are without them")
        if self.gated and GATE not in charged:
            of_components.append("the gate's own cost was not recorded, and counts as nothing")
        if prices is None and GENERATOR in self.columns and SPEND in recording.names("signal"):
            spent = np.where(self.seen, np.diff(recording.column(SPEND), axis=1, prepend=0.0), 0.0)
            if (spent < -_CENTS).any():
                of_figures.append(
                    f"{SPEND!r} falls from one round to the next, so it is not what was spent so far: money is unknown"
                )
            else:
                self.columns[GENERATOR][DOLLARS] = spent
        self.call_columns, uncounted = self._call_columns()
        self.models: tuple[str, ...] = ()
        if attempts_of(recording) or (recording.independent and not recording.exchangeable):
            self._by_model(recording, models)
        self.reported_inputs = {
            component: (columns["uncached_tokens"], columns["cached_tokens"])
            for component, columns in self.columns.items()
        }
        if self.modelled:
            columns = self.columns[GENERATOR]
            prompt = columns["uncached_tokens"] + columns["cached_tokens"]
            columns["uncached_tokens"], columns["cached_tokens"] = shared_prefix(prompt, self.index)
            of_figures.append(
                "cached and uncached tokens are modelled: rounds were recorded in parallel, so each round is taken to "
                "share the prompt tokens of the one before"
            )
        self.batched = BATCH_NOTE in recording.metadata.get("notes", ())
        if self.batched:
            of_figures.append(
                "recorded in batches: seconds are unknown, and money is that of live calls, which a policy makes"
            )
        of_figures += [ASKED_NOTE] if recording.metadata.get(TRIALS) == ASKED else []
        of_figures += wave_note(self.wave) if self.wave > 1 else ()
        self.price_notes = () if prices is None else price_notes(prices, self.columns, self._price_of)
        self.price_notes += currency_note(recording, prices)
        of_figures += self.price_notes
        self.gaps = CostGaps(
            n_rounds=int(np.count_nonzero(self.seen)),
            unknown=unknown,
            uncounted=uncounted,
            of_components=tuple(of_components),
            of_figures=tuple(of_figures),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on costs that are missing or modelled."""
        return self.gaps.notes

    @cached_property
    def recorded(self) -> Ledger:
        """The costs of all recorded rounds."""
        return self.charge(dict.fromkeys(self.components, self.seen))

    def _when_called(self, recorded: Mapping[tuple[str, str], Floats]) -> dict[str, Mask]:
        """Return the rounds in which each component may have been called.

        A component was not called in a round that has costs of the loop but none of this component.  A live session
        follows the same convention: if the host reports some costs of a round, all other components cost nothing.
        """
        known: dict[str, Mask] = {}
        for component in self.components:
            known[component] = np.zeros(self.seen.shape, dtype=np.bool_)
            for (owner, _), column in recorded.items():
                if owner == component:
                    known[component] |= ~np.isnan(column)
                    if known[component].all():
                        break
        reported = np.logical_or.reduce([known[component] for component in LOOP_COMPONENTS if component in known])
        due = {component: self.seen & (mask | ~reported) for component, mask in known.items()}
        return {component: self._everywhere if mask.all() else mask for component, mask in due.items()}

    def _kinds(
        self, component: str, recorded: Mapping[tuple[str, str], Floats], gaps: dict[tuple[str, str], int | None]
    ) -> dict[str, Floats]:
        """Return a component's costs by kind; tokens written to a cache count as 0 where they were not recorded."""
        kinds = {kind: self._load(component, kind, recorded, gaps) for kind in COST_KINDS}
        written = [kind for kind in WRITTEN_KINDS if (component, kind) in recorded]
        if self.modelled and component == GENERATOR:
            return kinds
        return kinds | {kind: np.nan_to_num(recorded[component, kind]) for kind in written}

    def _load(
        self,
        component: str,
        kind: str,
        recorded: Mapping[tuple[str, str], Floats],
        gaps: dict[tuple[str, str], int | None],
    ) -> Floats:
        if (component, kind) in recorded:
            column, due = recorded[component, kind], self._due[component]
            column = column if due is self._everywhere else np.where(due, column, 0.0)
            unknown = np.isnan(column)
            if component in NOT_LANGUAGE_MODELS and kind in TOKEN_KINDS:
                return np.where(unknown, 0.0, column)
            if unknown.any():
                gaps[component, kind] = int(unknown.sum())
            return column
        if component in NOT_LANGUAGE_MODELS and kind in TOKEN_KINDS:
            return self._nothing
        if component not in LOOP_COMPONENTS or kind != "calls":  # missing calls of the loop are counted below
            gaps[component, kind] = None
        return np.where(self._due[component], np.nan, 0.0)

    def _call_columns(self) -> tuple[dict[str, Floats], int]:
        """Return the calls of each language model, and the number of rounds whose unknown calls count as one call."""
        columns = {c: kinds["calls"] for c, kinds in self.columns.items() if c not in NOT_LANGUAGE_MODELS}
        loop = [component for component in LOOP_COMPONENTS if component in columns]
        unknown = np.logical_and.reduce([np.isnan(columns[component]) for component in loop])
        if unknown.any():
            for component in loop:
                columns[component] = np.where(unknown, 1.0 if component == loop[0] else 0.0, columns[component])
        return columns, int(unknown.sum())

    def _by_model(self, recording: Recording, known: Sequence[str] | None) -> None:
        """Split the generator of a panel or an escalation into one component for each model, since their prices and calls differ."""
        attempts = np.array(attempts_of(recording), dtype=np.object_)
        if GENERATOR not in self.columns or not (attempts.size or "model" in recording.names("label")):
            return
        models = np.broadcast_to(attempts, self.seen.shape) if attempts.size else recording.objects("model")
        names = dict.fromkeys(models.reshape(-1).tolist() if known is None else known)
        self.models = tuple(name for name in names if name is not None)
        if len(self.models) < 2:  # noqa: PLR2004
            return
        columns, calls = self.columns.pop(GENERATOR), self.call_columns.pop(GENERATOR)
        for name in self.models:
            component, own = member_component(name), models == name
            self.columns[component] = {kind: np.where(own, column, 0.0) for kind, column in columns.items()}
            self.call_columns[component] = np.where(own, calls, 0.0)
        self.components = tuple(sorted(self.columns))
        self.loop = (*(name for name in self.loop if name != GENERATOR), *map(member_component, self.models))

    @cached_property
    def loop_seconds(self) -> Floats:
        """The seconds of each round over all components of the loop, shape ``(n_questions, n_rounds)``."""
        return np.asarray(np.sum([self.columns[component]["seconds"] for component in self.loop], axis=0))

    def charge(self, masks: Mapping[str, Mask] | Mapping[str, Floats], highest: int | None = None) -> Ledger:
        """Return the costs of the rounds in `masks` (by component, shape ``(n_questions, n_rounds)``).

        A mask may hold probabilities instead of truth values; the result is then the expected cost.

        Args:
            masks: The rounds that are paid.
            highest: The highest round that may be requested, at which the last wave ends; None = the last recorded
                round.
        """
        until = self.until(self.index, highest)
        # Many components often share one mask object, so each object is converted once.
        shares = {id(mask): np.asarray(mask, dtype=np.float64) for mask in masks.values()}
        costs: dict[str, dict[str, Floats]] = {}
        money = np.zeros(len(self.seen))
        for component, columns in self.columns.items():
            share = shares[id(masks[component])] if component in masks else self._nothing
            costs[component] = {
                kind: np.zeros(len(column))
                if share is self._nothing or column is self._nothing
                else over_rounds(share, self.due(component, kind, column, until=until))
                for kind, column in columns.items()
            }
            money = money + self.money_of(component, costs[component])
        own = {
            c: costs[c]["calls"] for c in masks if c in costs and self.call_columns.get(c) is self.columns[c]["calls"]
        }
        return Ledger(costs=costs, calls=self.calls(masks, highest, own), money=money)

    def calls(
        self,
        masks: Mapping[str, Mask] | Mapping[str, Floats],
        highest: int | None = None,
        known: Mapping[str, Floats] | None = None,
    ) -> Floats:
        """Return the requests to language models in the rounds in `masks`, shape ``(n_questions,)``; see `charge`.

        Args:
            masks: The rounds that are paid, by component.
            highest: See `charge`.
            known: Calls that were already summed, by component, shape ``(n_questions,)``.
        """
        until = self.until(self.index, highest)
        calls = np.zeros(len(self.seen))
        for component, column in self.call_columns.items():
            if known is not None and component in known:
                calls = calls + known[component]
            elif component in masks:
                calls = calls + over_rounds(
                    np.asarray(masks[component], dtype=np.float64), self.due(component, "calls", column, until=until)
                )
        return calls

    def until(self, index: npt.NDArray[np.int64], highest: int | None) -> int | None:
        """Count the rounds in `index` up to `highest`; return None if the number is not limited.

        The number is not limited if `highest` is None.  It is not limited either if a recorded request was for several
        choices, since the cost of a request for fewer choices is unknown.
        """
        return None if highest is None or self._whole else int((index <= highest).sum())

    def due(
        self,
        component: str,
        kind: str,
        column: Floats,
        *,
        before: int | None = None,
        until: int | None = None,
        together: Floats | None = None,
    ) -> Floats:
        """Return a component's cost, assigned to the rounds in which it is incurred; see `due_in_waves`.

        Args:
            component: The component.  Components of the loop are called in waves, others when their signal is read.
            kind: The kind of cost.
            column: The cost by round, shape ``(n_questions, n_rounds)``.
            before: Number of rounds before the first wave; default: the number of rounds before round 1.
            until: Number of rounds that may be requested; None = all.
            together: Seconds of each round over all components of the loop, shape of `column`; default `loop_seconds`.
                They determine by how much a round prolongs its wave; each component gets its share of that time.
        """
        if self.wave == 1 or component not in self.loop:
            return column
        before = int(self.index[0] == 0) if before is None else before
        if kind != "seconds":
            return due_in_waves(column, kind, self.wave, before, until)
        together = self.loop_seconds if together is None else together
        added = due_in_waves(together, kind, self.wave, before, until)
        return np.asarray(np.where(column == 0, 0.0, column * (added / np.where(together == 0, 1.0, together))))

    def is_unknown(self, component: str, kind: str) -> bool:
        """Return whether a cost is unknown in every recorded round."""
        if (component, kind) not in self._unknown:
            self._unknown[component, kind] = bool(np.isnan(self.columns[component][kind][self.seen]).all())
        return self._unknown[component, kind]

    def money_of(self, component: str, costs: Mapping[str, Floats]) -> Floats:
        """Return the money for a component's tokens, in the currency of `currency_of`, shape of the costs; NaN if unknown."""
        uncached, cached, output = (costs[kind] for kind in TOKEN_KINDS)
        if self._prices is None:
            return costs.get(DOLLARS, np.full(uncached.shape, 0.0 if component in NOT_LANGUAGE_MODELS else np.nan))
        price = self._price_of(component)
        if price is not None:
            return price.of(uncached, cached, output, **{kind: costs[kind] for kind in WRITTEN_KINDS if kind in costs})
        return np.where(uncached + cached + output == 0, 0.0, np.nan)

    def paid_share(self, component: str) -> Floats:
        """Return the share of the list price that was paid for each round of a component; below 1 in a batch.

        A round with unknown seconds was recorded in a batch; other rounds of the recording need not be.
        """
        price, seconds = self._price_of(component), self.columns[component]["seconds"]
        share = 1.0 if price is None or component == GATE else price.batch
        return np.where(np.isnan(seconds), share, 1.0)

    def _price_of(self, component: str) -> Price | None:
        """Return a component's price, or None; for a panel's model without a price, return the generator's price."""
        if self._prices is None or isinstance(self._prices, Price):
            return self._prices
        names = [component]
        if component.startswith(member_component("")):
            names += [component.removeprefix(member_component("")), GENERATOR]
        return next((self._prices[name] for name in names if name in self._prices), None)


def over_rounds(share: Floats, column: Floats) -> Floats:
    """Sum a column over rounds, weighted by `share`, shape ``(n_questions,)``; NaN if a weighted value is unknown."""
    # A product is several times as fast as summing np.where, but NaN times 0 is NaN: unknown values outside of the mask
    # are handled below.
    total: Floats = np.einsum("qr,qr->q", share, column)
    unknown = np.isnan(total)
    if unknown.any():
        part = share[unknown]
        total[unknown] = np.where(part > 0, part * column[unknown], 0.0).sum(axis=1)
    return total


def shared_prefix(prompt: Floats, index: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the uncached and cached tokens, assuming that the previous round's whole prompt was always cached.

    Args:
        prompt: Input tokens, shape ``(n_questions, n_rounds)``.
        index: The rounds.
    """
    # Two prompts can share at most the length of the shorter one.
    shared = np.zeros_like(prompt)
    shared[:, 1:] = np.minimum(prompt[:, 1:], prompt[:, :-1])
    # The closed-book prompt shares no prefix with the next one, and a first round finds nothing in the cache.
    shared[:, index <= 1] = 0.0
    return prompt - shared, shared
