"""The live session, which decides one question round by round."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, get_args, overload

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, SchemaError
from suffice.policy.normalizers import normalizer_of
from suffice.policy.rounds import Cost, Decision, Reason, Round, Rounds
from suffice.policy.session.audits import Audit, Draw
from suffice.policy.session.observed import check_round, lack_error, write_costs
from suffice.policy.session.policy import Missing
from suffice.policy.session.shadows import Shadows
from suffice.policy.session.sources import PolicySource, as_policy, shadow_policies
from suffice.policy.session.state import SessionState, pack, unpack
from suffice.policy.signals import CUMULATED, FREE, SIGNALS, compute_signals, cost_columns, lacking

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_FIRST_WIDTH = 16
"""Number of rounds that a new session has room for; it doubles when they are full."""


class Session:
    """Decides one question, round by round, with the same code that replays a recording.

    >>> from suffice import Round
    >>> session = Session("fixed_k(2)")
    >>> session.observe(Round(index=1, answer="Titus")).stop
    False
    >>> session.observe(Round(index=2, answer="The Tempest")).answer
    'The Tempest'

    A policy that lacks its signals would never stop the loop, so the session reports a missing signal. It reports the
    signal at the first round with an answer at which the signal may exist. A signal that needs an extra call (of a
    judge, an embedder or a critic) is reported at the round where the rule reads it. The round still counts: `end`
    returns the best answer, and the loop may continue. A signal that was present once may later be undefined without an
    error, because single replies may lack data that most replies have.

    Args:
        policy: A policy, a policy file (a path, or text that ends in ``.json``), a rule, or the text of a rule.
        missing: The reaction if a round lacks a signal that the policy reads: raise an `error`, `warn`, or `ignore`.
        depends: The present configuration (`model`, `prompt_id`, ...), which is compared with the configuration of the
            policy's fit; None = unknown.
        capabilities: The capabilities of the model and the measurements, as named in `Signal.needs`. `Policy.check`
            checks the capabilities at once, so rounds are only checked for signals of the host. None = unknown.
        audit: The share of questions that continue after the stop; None = no audit.
        shadow: Policies that decide on the same rounds and change nothing, see `shadows`.
        question_id: The id of the question, by which an audit draws.

    Attributes:
        policy: The policy.
        rounds: The rounds so far, including those of an audit.
        draw: The audit's draw of this question, with its probability; None without an audit.

    Raises:
        DataError: `missing` has an unknown value, the policy file cannot be read, there is an audit but no
            `question_id`, or two shadows have the same name.
        RuleSyntaxError: The text is neither a rule nor the name of a policy file.
        ConfigMismatchError: The policy was fitted with another configuration than `depends`.
        ModelError: `capabilities` lack a capability that the policy needs.
    """

    def __init__(
        self,
        policy: PolicySource,
        *,
        missing: Missing = "error",
        depends: Mapping[str, Any] | None = None,
        capabilities: frozenset[str] | None = None,
        audit: Audit | None = None,
        shadow: PolicySource | Iterable[PolicySource] = (),
        question_id: str | None = None,
    ) -> None:
        if missing not in get_args(Missing):
            raise DataError(f"missing is {missing!r}; allowed: {', '.join(get_args(Missing))}")
        policy = as_policy(policy)
        policy.check_depends(depends or {})
        if capabilities is not None:
            policy.check(capabilities)
        self.policy = policy
        self._missing = missing
        # Only the host can provide these: signals of its own, and fitted ones for which the policy has no state.
        self._hosts = [n for n in policy.raw_signals if n not in SIGNALS or policy.unfitted(n)]
        expected = policy.signals if capabilities is None else self._hosts
        self._unproven = set() if missing == "ignore" else set(expected) - {"round"}
        ranged = {n: raw for n in policy.signals if (raw := policy.raw_of(n)) in SIGNALS and raw in policy.raw_signals}
        self._ranged = {} if missing == "ignore" else ranged
        self.rounds: list[Round] = []
        self._decision: Decision | None = None
        self._columns = {name: np.empty(0) for name in policy.raw_columns}
        self._derived = {name: np.empty(0) for name in policy.signals}
        self._answers = np.empty(0, dtype=object)
        self._votes = policy.running_votes()
        self._widen(min(policy.max_rounds - policy.start_round + 1, _FIRST_WIDTH))
        if not isinstance(audit, Audit | None):
            raise DataError(f"an audit is an Audit, such as Audit(rate=0.05, seed=...), not {audit!r}")
        self.draw: Draw | None = None if audit is None else audit.draw(question_id or "")
        self._ended: Reason | None = None
        others = shadow_policies(shadow, policy)
        self._shadows = Shadows(
            {
                name: Session(other, missing=missing, depends=depends, capabilities=capabilities)
                for name, other in others.items()
            }
        )

    @property
    def auditing(self) -> bool:
        """True while an audit continues after the final decision; `observe` then accepts rounds up to the policy's last."""
        is_drawn = self.draw is not None and self.draw.audited
        return (
            is_drawn
            and self._decision is not None
            and self._ended is None
            and self.next_round <= self.policy.max_rounds
        )

    @property
    def shadows(self) -> dict[str, Decision | None]:
        """The decision of each shadow policy on the rounds so far, by label; None if it would continue.

        The decision is also None, with a warning, if the shadow cannot decide, for instance because a signal is missing
        and `missing` is `error`.
        """
        return self._shadows.decisions(self.rounds, self._ended)

    @property
    def decision(self) -> Decision | None:
        """The final decision; None while the loop continues."""
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
        """Observe one round and decide; during an audit, observe one more round and return the final decision again.

        A loop of a library other than Suffice may pass its draft instead of a `Round`; the draft becomes round `next_round`.

        >>> from suffice import Policy, parse_rule
        >>> session = Session(Policy(rule=parse_rule("answer_stable >= 1")))
        >>> session.observe(draft="It lies in Oslo.", feedback="Say where in Oslo.").stop
        False
        >>> session.observe(draft="It lies in Oslo.", feedback="APPROVED").stop_round
        2

        Args:
            observed: The round; its index must be `next_round`.
            draft: The text of the round; an empty text does not count as an answer.
            feedback: A critic's reply to the draft; None without a critic.
            signals: Signals that the host measured, by name.
            costs: Costs of the round by component (`writer`, `critic`, ...).
            embedding: The draft's embedding, shape ``(width,)``; None if it was not embedded.

        Raises:
            DataError: Another index is expected, the loop has already stopped, a value has the wrong type, or not
                exactly one of a round and a draft was given.
            UnknownSignalError: The round lacks a signal that the policy reads, see `Session`; the round still counts.
            NotFittedError: The round lacks a calibrated signal, and the policy has no calibrator for it; the round
                still counts.
        """
        if (observed is None) == (draft is None) or (
            observed is not None and (feedback or signals or costs or embedding is not None)
        ):
            raise DataError(
                "give either a Round or draft=, with its feedback=, signals=, costs= and embedding= if there are any; "
                'a round without a draft is draft=""'
            )
        if observed is None:
            if not isinstance(draft, str):
                raise DataError(f"a draft is a text, not {draft!r}")
            observed = Round(
                index=self.next_round,
                answer=draft if draft.strip() else None,
                text=draft,
                signals=signals,
                costs=costs,
                feedback=feedback,
                embedding=embedding,
            )
        if self._decision is not None and self.auditing:
            self._accept(observed)
            self.rounds.append(observed)
            return self._decision
        view = self._written(observed)
        self.rounds.append(observed)
        if self._unproven or self._ranged:
            self._prove(view)
        signals = _latest(view)
        if self.policy.rule.fires(view)[-1]:
            return self._stop("rule", view, signals, self.policy.rule.held(view))
        if observed.index == self.policy.max_rounds:
            return self._stop("max_rounds", view, signals)
        return Decision(stop=False, signals=signals)

    def reads(self, observed: Round) -> tuple[str, ...]:
        """Return the measured signals that a decision at `observed` reads, in the order in which it reads them.

        The rule's members are evaluated in order, and skipped members read nothing. A signal that the round lacks
        counts as undefined. Its later value may change the signals that are read after it. So only the first signal in
        the result that the round lacks is certain to be read. The state of the session does not change.

        Args:
            observed: The round, as far as it is known; its index must be `next_round`.

        Raises:
            DataError: Another index is expected, or the loop has already stopped.
        """
        policy = self.policy
        raw = dict.fromkeys(map(policy.raw_of, self._read(self._written(observed))))
        return tuple(n for n in raw if n not in SIGNALS or SIGNALS[n].may_exist(observed.index))

    def would_stop(self, observed: Round) -> bool:
        """Return True if the loop would stop at `observed`, as far as this round is known; the session does not change.

        Args:
            observed: The round; its index must be `next_round`.  A signal that it lacks counts as undefined.

        Raises:
            DataError: Another index is expected, or the loop has already stopped.
        """
        return bool(self.policy.rule.fires(self._written(observed))[-1]) or observed.index == self.policy.max_rounds

    def observe_all(self, rounds: Iterable[Round]) -> Decision | None:
        """Observe rounds until the policy stops; return the last decision, or None if there are no rounds."""
        decision = None
        for observed in rounds:
            decision = self.observe(observed)
            if decision.stop:
                break
        return decision

    def end(self, reason: Reason) -> Decision:
        """End the question before its policy stops it, or end its audit; return the decision, with the best answer so far.

        Args:
            reason: `exhausted` (no evidence left), `failed` (the model failed) or `cancelled`.

        Raises:
            DataError: The reason is none of these, or the loop has already stopped.
        """
        if reason not in ("exhausted", "failed", "cancelled"):
            raise DataError(f"a loop cannot be ended for the reason {reason!r}; allowed: exhausted, failed, cancelled")
        if self.auditing and self._decision is not None:
            self._ended = reason
            return self._decision
        if self._decision is not None:
            raise DataError(f"the loop has already stopped ({self._decision.reason}): open a new Session")
        self._ended = reason
        view = self._view(len(self.rounds))
        return self._stop(reason, view, _latest(view) if self.rounds else {})

    def to_state(self) -> dict[str, Any]:
        """Return the whole session as JSON-ready values, for checkpointers, queues and stateless servers.

        >>> session = Session("answer_stable")
        >>> decision = session.observe(draft="It lies in Oslo.")
        >>> Session.from_state(session.to_state()).observe(draft="It lies in Oslo.").stop_round
        2

        Raises:
            DataError: The answer position of the policy is a Python callable, which has no text.
        """
        return pack(
            SessionState(
                policy=self.policy,
                missing=self._missing,
                unproven=self._unproven,
                rounds=tuple(self.rounds),
                decision=self._decision,
                draw=self.draw,
                ended=self._ended,
                shadow=tuple(session.policy for session in self._shadows.sessions.values()),
            )
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Any], policy: PolicySource | None = None) -> Session:
        """Restore the session that `to_state` wrote; it continues as the original would.

        Args:
            state: The values.
            policy: The policy that the state must belong to; None = the policy in the state.

        Raises:
            SchemaError: The values are not a session's state that this release reads.
            ConfigMismatchError: The state belongs to another policy than `policy`.
            RuleSyntaxError: The rule does not parse: load the extension that registers it.
        """
        stored = unpack(state, None if policy is None else as_policy(policy))
        session = cls(stored.policy, missing=stored.missing, shadow=stored.shadow)
        session.draw = stored.draw
        try:
            for observed in stored.rounds[: stored.n_decided]:
                session._written(observed)
                session.rounds.append(observed)
            session._decision = stored.decision
            for observed in stored.rounds[stored.n_decided :]:
                session.observe(observed)
        except DataError as error:
            raise SchemaError(f"the state of a session has rounds that no session observes: {error}") from None
        session._unproven, session._ended = stored.unproven, stored.ended
        return session

    def _accept(self, observed: Round) -> None:
        check_round(observed)
        if observed.index != self.next_round:
            raise DataError(f"round {observed.index} came where round {self.next_round} is expected")
        if observed.index > self.policy.max_rounds:
            raise DataError(
                f"round {observed.index} came after max_rounds={self.policy.max_rounds}: end the loop (end)"
            )

    def _widen(self, more: int) -> None:
        """Give every column room for `more` rounds, so that memory grows with the observed rounds, not with `max_rounds`."""
        undefined, width = np.full(more, np.nan), len(self._answers) + more
        self._columns = {name: np.concatenate([column, undefined]) for name, column in self._columns.items()}
        self._derived = {name: np.concatenate([column, undefined]) for name, column in self._derived.items()}
        self._answers = np.concatenate([self._answers, np.full(more, None, dtype=object)])
        self._index = np.arange(self.policy.start_round, self.policy.start_round + width, dtype=np.int64)
        self._seen = np.ones(width, dtype=np.bool_)

    def _written(self, observed: Round) -> Rounds:
        """Write the columns of the next round and return the view of all rounds so far."""
        self._accept(observed)
        if self._decision is not None:
            raise DataError(
                f"round {observed.index} came after the stop at round {self._decision.stop_round}: open a new Session"
            )
        position = len(self.rounds)
        if position == len(self._index):
            self._widen(position)
        if self._hosts:  # signals that the host has not measured count as undefined
            observed = replace(observed, signals={**dict.fromkeys(self._hosts, math.nan), **observed.signals})
        values = compute_signals([*self.rounds, observed], self.policy.raw_signals, state=self.policy.state)
        for name, value in values.items():
            self._columns[name][position] = value
        if len(self._columns) > len(values):
            write_costs(self._columns, observed, position)
        self._answers[position] = observed.answer
        return self._view(position + 1)

    def _read(self, view: Rounds) -> list[str]:
        """Return the signals that the decision at a view's last round reads, in the order in which it reads them."""
        read = [name for name, mask in self.policy.rule.reads(view, view.seen).items() if mask[-1]]
        return [*read, *sorted(self.policy.selector.signals)]

    def _prove(self, view: Rounds) -> None:
        """Check the signals that the policy now reads for the first time: the last round must have valid values of them."""
        observed = self.rounds[-1]
        if not (observed.answer or "").strip():  # a failed reply does not show what the host can provide
            return
        position, missing = len(self.rounds) - 1, dict[str, str]()
        for name, raw in self._ranged.items() if observed.signals else ():
            if raw in observed.signals and math.isnan(self._columns[raw][position]):
                outside = lacking(raw, observed, math.nan)
                missing |= {} if outside is None else {name: outside}
        for name in sorted(self._unproven):
            raw = self.policy.raw_of(name)
            known = SIGNALS.get(raw)
            if known is not None and not known.may_exist(observed.index):
                continue
            if known is not None and known.component not in FREE and name not in self._read(view):
                continue
            self._unproven.discard(name)
            columns = [raw] if raw in self._columns else cost_columns(raw)
            lack = lacking(raw, observed, sum(float(self._columns[c][position]) for c in columns))
            if lack is not None:
                missing[name] = lack
        if not missing:
            return
        error = lack_error(self.policy, observed.index, missing)
        if self._missing == "error":
            raise error
        warnings.warn(str(error), stacklevel=3)

    def _view(self, n: int) -> Rounds:
        """Return the view of the first `n` rounds; only the last is computed, earlier rounds and their votes are cached."""
        if n:
            last = slice(0 if self.policy.answer_column else n - 1, n)
            columns = {name: column[last] for name, column in self._columns.items()}
            raw = Rounds(columns, self._index[last], self._seen[last], self._answers[last])
            weights = self.policy.vote_weights(raw) if self._votes.counts_weights else None
            columns |= self._votes.columns(self._answers[last], weights)
            latest = self.policy.view(raw)
            for name, column in latest.columns.items():
                value = float(column[-1])
                if name in CUMULATED and last.start:
                    value += float(self._derived[name][n - 2])
                self._derived[name][n - 1] = math.nan if math.isinf(value) else value
        derived = {name: column[:n] for name, column in self._derived.items()}
        return Rounds(
            derived, self._index[:n], self._seen[:n], self._answers[:n], normalizer_of(self.policy.normalizer)
        )

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
