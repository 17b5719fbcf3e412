"""The live state of one question."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.rounds import COST_KINDS, Cost, Decision, Reason, Round, Rounds
from suffice.session.policy import CUMULATED, LOOP_COMPONENTS, Policy
from suffice.signals import SIGNALS, compute_signals

__all__ = ["Session"]

_NAN = float("nan")
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_FREE = Cost()
_UNKNOWN = Cost(**dict.fromkeys(COST_KINDS, _NAN))


class Session:
    """Decides one question, round by round, with the code that replays a recording.

    >>> from suffice import Policy, Round, fixed_k
    >>> session = Session(Policy(rule=fixed_k(2)))
    >>> session.observe(Round(index=1, answer="Titus")).stop
    False
    >>> session.observe(Round(index=2, answer="The Tempest")).answer
    'The Tempest'

    Args:
        policy: What decides.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rounds: list[Round] = []
        self._decision: Decision | None = None
        width = policy.max_rounds - policy.start_round + 1
        self._index = np.arange(policy.start_round, policy.max_rounds + 1, dtype=np.int64)
        self._columns = {name: np.full(width, np.nan) for name in policy.raw_columns}
        self._derived = {name: np.full(width, np.nan) for name in policy.signals}
        self._answers = np.full(width, None, dtype=object)
        self._seen = np.ones(width, dtype=np.bool_)

    @property
    def decision(self) -> Decision | None:
        """The final decision; None while the loop goes on."""
        return self._decision

    @property
    def next_round(self) -> int:
        """The index of the round that `observe` expects."""
        return self.policy.start_round + len(self.rounds)

    @overload
    def observe(self, observed: Round) -> Decision: ...

    @overload
    def observe(
        self,
        *,
        draft: str,
        feedback: str | None = None,
        signals: Mapping[str, float] = _NOTHING,
        costs: Mapping[str, Cost] = _NOTHING,
        embedding: npt.NDArray[np.float32] | None = None,
    ) -> Decision: ...

    def observe(
        self,
        observed: Round | None = None,
        *,
        draft: str | None = None,
        feedback: str | None = None,
        signals: Mapping[str, float] = _NOTHING,
        costs: Mapping[str, Cost] = _NOTHING,
        embedding: npt.NDArray[np.float32] | None = None,
    ) -> Decision:
        """Take in one round and decide.

        A loop that is not ours may give its draft instead of a `Round`: it becomes round `next_round`.

        >>> from suffice import Policy, parse_rule
        >>> session = Session(Policy(rule=parse_rule("answer_stable >= 1")))
        >>> session.observe(draft="It lies in Oslo.", feedback="Say where in Oslo.").stop
        False
        >>> session.observe(draft="It lies in Oslo.", feedback="APPROVED").stop_round
        2

        Args:
            observed: The round; its index must be `next_round`.
            draft: The text of the round; an empty one is no answer.
            feedback: A critic's reply to the draft; None if there is none.
            signals: Signals that the host measured, by name.
            costs: What the round spent, by component (`writer`, `critic`, ...).
            embedding: The draft's embedding, shape ``(width,)``; None if it was not embedded.

        Raises:
            DataError: Another index is expected, the loop has already stopped, or there is not exactly one of a round
                and a draft.
            NotFittedError: The rule reads a calibrated signal, and neither the policy nor the round has it.
        """
        if (observed is None) == (draft is None) or (
            observed is not None and (feedback or signals or costs or embedding is not None)
        ):
            raise DataError(
                "give either a Round or draft=, with its feedback=, signals=, costs= and embedding= if there are any; "
                'a round without a draft is draft=""'
            )
        if observed is None:
            text = draft or ""
            observed = Round(
                index=self.next_round,
                answer=text if text.strip() else None,
                text=text,
                signals=signals,
                costs=costs,
                feedback=feedback,
                embedding=embedding,
            )
        view = self._written(observed)
        self.rounds.append(observed)
        signals = _latest(view)
        if self.policy.rule.fires(view)[-1]:
            return self._stop("rule", view, signals, self.policy.rule.held(view))
        if observed.index == self.policy.max_rounds:
            return self._stop("max_rounds", view, signals)
        return Decision(stop=False, signals=signals)

    def reads(self, observed: Round) -> tuple[str, ...]:
        """Return the measured signals that deciding at `observed` reads, in the order in which it reads them.

        The rule's members are evaluated in order, a skipped one reads nothing, and a signal that the round does not
        bring counts as undefined: so the first one that is returned and missing is read whatever it turns out to be.
        The session does not move.

        Args:
            observed: The round, as far as it is known; its index must be `next_round`.

        Raises:
            DataError: Another index is expected, or the loop has already stopped.
        """
        policy = self.policy
        view = self._peek(observed)
        read = [name for name, mask in policy.rule.reads(view, view.seen).items() if mask[-1]]
        raw = dict.fromkeys(policy.raw_of(name) for name in (*read, *sorted(policy.selector.signals)))
        return tuple(n for n in raw if n not in SIGNALS or SIGNALS[n].may_exist(observed.index))

    def would_stop(self, observed: Round) -> bool:
        """Return whether the loop would stop at `observed`, as far as it is known; the session does not move.

        Args:
            observed: The round; its index must be `next_round`.  A signal that it does not bring counts as undefined.

        Raises:
            DataError: Another index is expected, or the loop has already stopped.
        """
        return bool(self.policy.rule.fires(self._peek(observed))[-1]) or observed.index == self.policy.max_rounds

    def observe_all(self, rounds: Iterable[Round]) -> Decision | None:
        """Observe rounds until the policy stops; return the last decision, None if there was no round."""
        decision = None
        for observed in rounds:
            decision = self.observe(observed)
            if decision.stop:
                break
        return decision

    def end(self, reason: Reason) -> Decision:
        """End the question from outside, with the best answer so far.

        Args:
            reason: `exhausted` (no evidence left), `failed` (the model failed) or `cancelled`.

        Raises:
            DataError: Another reason, or the loop has already stopped.
        """
        if reason not in ("exhausted", "failed", "cancelled"):
            raise DataError(f"a loop cannot be ended for the reason {reason!r}; allowed: exhausted, failed, cancelled")
        if self._decision is not None:
            raise DataError(f"the loop has already stopped ({self._decision.reason}): open a new Session")
        view = self._view(len(self.rounds))
        return self._stop(reason, view, _latest(view) if self.rounds else {})

    def _accept(self, observed: Round) -> None:
        if self._decision is not None:
            raise DataError(
                f"round {observed.index} came after the stop at round {self._decision.stop_round}: open a new Session"
            )
        if observed.index != self.next_round:
            raise DataError(f"round {observed.index} came where round {self.next_round} is expected")

    def _written(self, observed: Round) -> Rounds:
        """Write the columns of the next round and return the view of all rounds so far."""
        self._accept(observed)
        position = len(self.rounds)
        values = compute_signals([*self.rounds, observed], self.policy.raw_signals, state=self.policy.state)
        for name, value in values.items():
            self._columns[name][position] = value
        if len(self._columns) > len(values):
            self._write_costs(observed, position)
        self._answers[position] = observed.answer
        return self._view(position + 1)

    def _peek(self, observed: Round) -> Rounds:
        """Return the view with a round that is not all known: what a host has not measured yet counts as undefined."""
        foreign = dict.fromkeys((name for name in self.policy.raw_signals if name not in SIGNALS), _NAN)
        return self._written(replace(observed, signals={**foreign, **observed.signals}))

    def _write_costs(self, observed: Round, position: int) -> None:
        # A host that reports no cost at all has not said that the round was free.
        known = any(component in observed.costs for component in LOOP_COMPONENTS)
        absent = _FREE if known else _UNKNOWN
        for component in LOOP_COMPONENTS:
            cost = observed.costs.get(component, absent)
            for kind in COST_KINDS:
                column = self._columns.get(f"cost.{component}.{kind}")
                if column is not None:
                    column[position] = getattr(cost, kind)

    def _view(self, n: int) -> Rounds:
        """Return the view of the first `n` rounds; only the last of them is derived anew."""
        if n:
            last = slice(n - 1, n)
            raw = {name: column[last] for name, column in self._columns.items()}
            latest = self.policy.view(Rounds(raw, self._index[last], self._seen[last], self._answers[last]))
            for name, column in latest.columns.items():
                value = float(column[0])
                if name in CUMULATED and n > 1:
                    value += float(self._derived[name][n - 2])
                self._derived[name][n - 1] = _NAN if math.isinf(value) else value
        derived = {name: column[:n] for name, column in self._derived.items()}
        return Rounds(derived, self._index[:n], self._seen[:n], self._answers[:n])

    def _stop(self, reason: Reason, view: Rounds, signals: dict[str, float], fired: str | None = None) -> Decision:
        chosen = -1
        if self.rounds:
            chosen = int(self.policy.selector.select(view, np.asarray(len(self.rounds) - 1)))
        if chosen < 0:
            reason, fired = "failed", None
        self._decision = Decision(
            stop=True,
            stop_round=self.rounds[-1].index if self.rounds else None,
            answer_round=self.rounds[chosen].index if chosen >= 0 else None,
            answer=self.rounds[chosen].answer if chosen >= 0 else None,
            reason=reason,
            fired=fired,
            signals=signals,
        )
        return self._decision


def _latest(view: Rounds) -> dict[str, float]:
    return {name: float(column[-1]) for name, column in view.columns.items()}
