"""Learn from recorded rounds a rule that stops if continuing is worth no more than stopping (Stop-RAG).

Stop-RAG (Park et al., 2025) models a retrieval loop as a Markov decision process with a finite horizon: stopping at a
round yields the quality of its answer, and the last round always stops.  Since a full-width recording contains every
round, the values of both actions can be learned from the same trajectories, with forward-view Q(lambda) targets. In the
paper a fine-tuned encoder predicts the values from the texts.  Here the values are linear in recorded signals, with one
set of weights for each round.  The difference of two linear values is again a weighted sum of signals, so the learned
policy is an ordinary rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, or_
from typing import Any

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.replay.checks import require_whole
from suffice.evaluation.replay.fitting import calibrate, fit_provenance
from suffice.evaluation.replay.outcomes import answers_by_stop, default_metrics, outcome, values_by_stop
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.rounds import Floats, Mask, Positions
from suffice.policy.rules import Never, Rule, signal as named
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording

_SAME = 1e-12
"""A column counts as constant if its spread is below this share of its magnitude."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundValues:
    """The values of stopping and continuing at one round, linear in the round's signals.

    Attributes:
        round: The round.
        signals: The signals that vary at this round.
        stop: Weights of Q(stop), one for each signal, then the intercept.
        go_on: Weights of Q(continue), in the same form.
        n: Number of questions that could stop or continue at this round and have all signals.
        n_undefined: Number of questions that could stop or continue at this round but lack a signal, so that the loop
            continues.
    """

    round: int
    signals: tuple[str, ...]
    stop: tuple[float, ...]
    go_on: tuple[float, ...]
    n: int
    n_undefined: int

    @property
    def advantage(self) -> tuple[float, ...]:
        """Weights of Q(stop) - Q(continue), one for each signal, then the intercept."""
        return tuple(stop - go_on for stop, go_on in zip(self.stop, self.go_on, strict=True))

    @property
    def rule(self) -> Rule | None:
        """Return the rule that fires at this round where Q(stop) >= Q(continue); None if it can never fire."""
        *weights, intercept = self.advantage
        here = (named("round") >= self.round) & (named("round") <= self.round)
        terms = [weight * named(name) for weight, name in zip(weights, self.signals, strict=True) if weight]
        if terms:
            return here & (reduce(add, terms) >= -intercept)
        return here if intercept >= 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopValues(Result):
    """The values of stopping and of continuing at each round, learned on tune questions.

    Attributes:
        rounds: The rounds at which the loop can stop or continue, in order.
        metric: The metric that measures the value of an answer.
        trace: The parameter lambda of the Q(lambda) targets.
        price: Cost of one more round, in units of the metric.
        n: Number of tune questions.
        notes: Notes for the reader.
    """

    rounds: tuple[RoundValues, ...]
    metric: str
    trace: float
    price: float
    n: int
    notes: tuple[str, ...] = ()

    @property
    def rule(self) -> Rule:
        """The rule that stops where Q(stop) >= Q(continue)."""
        rules = [item.rule for item in self.rounds]
        return reduce(or_, (rule for rule in rules if rule is not None), Never())

    def tables(self) -> list[Table]:
        """Return tables of the weights of Q(stop) and Q(continue) at each round."""
        rows = [
            (item.round, name, stop, go_on, stop - go_on, item.n, item.n_undefined)
            for item in self.rounds
            for name, stop, go_on in zip((*item.signals, "(intercept)"), item.stop, item.go_on, strict=True)
        ]
        columns = (
            Column("round", ".0f"),
            Column("signal"),
            *(Column(name, "+.4f") for name in ("Q(stop)", "Q(continue)", "advantage")),
            Column("questions", ",.0f"),
            Column("undefined", ",.0f"),
        )
        title = f"Values of {self.metric} on {self.n} tune questions: weight of each signal (lambda {self.trace:g})"
        return [Table(title=title, columns=columns, rows=tuple(rows))]


def learn_stop(
    recording: Recording,
    signals: Sequence[str],
    *,
    metric: str | None = None,
    trace: float = 0.0,
    price: float = 0.0,
    ridge: float = 1.0,
    **calibration: Any,
) -> tuple[Policy, StopValues]:
    """Learn from full-width recorded rounds when to stop, and return a policy (Stop-RAG, Park et al., 2025).

    Rounds are learned backwards from the last, each with two ridge regressions on the round's signals. The target of
    ``Q(stop)`` is the quality of the round's answer. The target of ``Q(continue)`` is ``G[t] = (1 - trace) *
    max(Q(stop), Q(continue))[t + 1] + trace * G[t + 1]``; at the last choice, it is the quality of the last round. With
    trace 0 this is dynamic programming; with trace 1 the target is the quality of the last round. The rule stops where
    ``Q(stop) >= Q(continue)``, and continues where a signal is undefined.

    >>> from suffice.recordings import bundled_recording
    >>> policy, values = learn_stop(bundled_recording("self_refine_dv3"), ["lexical_support"], metric="target_sentiment")
    >>> values.n, policy.name, policy.selector
    (273, 'stop_rag', Last())

    Args:
        recording: Recorded rounds of tune questions; no trajectory may have been ended by a rule.
        signals: Names of the signals that the values may read: recorded signals, or calibrated signals, which are
            fitted on the same questions.
        metric: The metric that measures the value of an answer, in [0, 1]; None for F1 (EM for multiple choice).
        trace: The parameter lambda, in [0, 1].
        price: Cost of one more round, in units of the metric.
        ridge: Penalty of the squared weights of standardised signals, above 0.
        calibration: Further arguments of `calibrate`: `selector`, `start_round`, `max_rounds`, `name`, ...; calibrated
            signals are fitted to the metric unless `target` is given.

    Raises:
        DataError: There are no signals, a setting is out of range, the metric is unknown at some round, or it never
            differs between rounds.
        CensoredError: A rule ended the recording of some questions.
        UnknownSignalError: A signal was not recorded, or is undefined everywhere.
    """
    if not signals or len(set(signals)) < len(signals):
        raise DataError(f"the values need signals to read, each named once, not {list(signals)!r}")
    if not (0 <= trace <= 1 and 0 <= price < math.inf and 0 < ridge < math.inf):
        raise DataError(
            f"trace lies in [0, 1], price is at least 0 and ridge above 0; got {trace!r}, {price!r} and {ridge!r}"
        )
    draft = reduce(add, map(named, signals)) >= 0
    complete = PreparedRecording.of(recording).recording
    name = metric or default_metrics(complete)[0]
    calibration = {"name": "stop_rag", "target": name, **calibration}
    policy, summary = calibrate(recording, rule=draft, **calibration)
    require_whole(complete, "the value of going on is learned from the rounds that follow")
    view = policy.view(complete.rounds(policy.raw_columns))
    first = int(view.index[0] - complete.index[0])
    scores = outcome(complete, name)[:, first : first + len(view)]
    unknown: Mask = np.asarray((np.isnan(scores) & view.seen).any(axis=1) | ~view.seen.any(axis=1), dtype=np.bool_)
    if unknown.any():
        raise DataError(
            f"{name!r} is unknown at a round of {int(unknown.sum())} of {len(scores)} questions, the first is "
            f"{complete.question_ids[int(np.argmax(unknown))]!r}: leave them out (Recording.select), or name another metric"
        )
    last = view.seen.sum(axis=1) - 1
    worth = values_by_stop(answers_by_stop(policy.selector, view), view.seen, scores)
    if (worth == worth[:, :1]).all():
        raise DataError(
            f"{name!r} is the same at all rounds of every question, so there is nothing to learn: stop at round "
            f"{int(view.index[0])} (fixed_k({int(view.index[0])}))"
        )
    rewards = worth - price * np.minimum(np.arange(len(view)), last[:, None])
    columns = np.stack([view[name] for name in signals], axis=-1)
    walks = _Walks(
        index=view.index.tolist(), signals=tuple(signals), columns=columns, rewards=rewards, last=last, ridge=ridge
    )
    rounds = walks.values(trace)
    notes = [*summary.notes, *_undefined_notes(rounds)]
    values = StopValues(
        rounds=rounds, metric=name, trace=trace, price=price, n=len(worth), notes=tuple(dict.fromkeys(notes))
    )
    learned = replace(policy, rule=values.rule)
    return replace(learned, provenance=fit_provenance(recording, complete, values, learned)), values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walks:
    """The rounds of the tune questions, as arrays.

    Attributes:
        columns: The signals, shape ``(n_questions, n_rounds, n_signals)``.
        rewards: Reward of stopping at each round, shape ``(n_questions, n_rounds)``; after the end of a trajectory, the
            reward of its last round.
        last: Position of each question's last round.
    """

    index: Sequence[int]
    signals: tuple[str, ...]
    columns: Floats
    rewards: Floats
    last: Positions
    ridge: float

    def values(self, trace: float) -> tuple[RoundValues, ...]:
        """Return the values of each round except the last; they are learned backwards."""
        learned: list[RoundValues] = []
        target = best = self.rewards[:, -1]  # G and max(Q) of the round after the one that is learned
        for position in range(len(self.index) - 2, -1, -1):
            going_on = (1 - trace) * best + trace * target
            round_values, rows, inputs = self._fitted(position, going_on)
            learned.append(round_values)
            # After the end of a trajectory there is no choice; if a signal is undefined the loop goes on.
            target = np.where(self.last > position, going_on, self.rewards[:, position])
            best = target.copy()
            best[rows] = np.maximum(inputs @ round_values.stop, inputs @ round_values.go_on)
        return tuple(reversed(learned))

    def _fitted(self, position: int, going_on: Floats) -> tuple[RoundValues, Mask, Floats]:
        """Fit the values at one position; return the values, a mask of the questions used for the fit, and the inputs."""
        columns, has_choice = self.columns[:, position], self.last > position
        defined = np.isfinite(columns)
        listed = [i for i in range(len(self.signals)) if 2 * defined[has_choice, i].sum() > has_choice.sum()]
        rows = has_choice & defined[:, listed].all(axis=1)
        if not rows.any():
            raise DataError(
                f"no question has all of {', '.join(self.signals)} at round {self.index[position]}: name fewer signals"
            )
        varies = columns[rows].std(axis=0) > _SAME * (1 + np.abs(columns[rows].mean(axis=0)))
        read = [i for i in listed if varies[i]]
        rows = has_choice & defined[:, read].all(axis=1)
        inputs = columns[rows][:, read]
        centre, spread = inputs.mean(axis=0), inputs.std(axis=0)
        standard = (inputs - centre) / spread
        gram = standard.T @ standard + self.ridge * np.eye(len(read))
        solved = []
        for wanted in (self.rewards[rows, position], going_on[rows]):
            mean = float(wanted.mean())
            weights = np.linalg.solve(gram, standard.T @ (wanted - mean)) / spread
            solved.append((*weights.tolist(), mean - float(weights @ centre)))
        values = RoundValues(
            round=self.index[position],
            signals=tuple(self.signals[i] for i in read),
            stop=solved[0],
            go_on=solved[1],
            n=int(rows.sum()),
            n_undefined=int((has_choice & ~rows).sum()),
        )
        return values, rows, np.column_stack([inputs, np.ones(len(inputs))])


def _undefined_notes(rounds: Sequence[RoundValues]) -> list[str]:
    return [
        f"round {item.round}: a signal is undefined for {item.n_undefined} of {item.n + item.n_undefined} questions; the "
        "loop goes on there"
        for item in rounds
        if item.n_undefined
    ]
