"""A gate judged offline: what it gives and costs, beside never, always, perfect and random gates.

Never and always retrieving, the same share of questions at random, and a gate that knows the outcome are what a gate
has to be compared with (CBDR, section 4.4, has the first two).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from suffice.errors import CensoredError, DataError
from suffice.gates.answered import require_round_0, with_scores, without_gate
from suffice.gates.point import ALWAYS, NEVER, PERFECT, GatePoint
from suffice.replays import Price, check_policy, policy_for
from suffice.replays.baselines import Run, closed_book, run_policy
from suffice.replays.prepared import PreparedRecording
from suffice.rounds import Floats, Mask
from suffice.rules import Rule
from suffice.rules import signal as named
from suffice.session import Policy
from suffice.statistics import Resampling
from suffice.store.recording import Recording
from suffice.tables import figure

__all__ = ["GateEvaluation", "even_betas", "gate_rule"]

_SLACK = 1e-12
_SHUFFLES = 4999
_METRICS = ("contains", "em", "f1")


def gate_rule(signal: str, beta: float = 0.5, *, low: bool = False) -> Rule:
    """Return the rule of a gate: answer without retrieval where the signal is above beta (CBDR, section 3.4).

    >>> print(gate_rule("p_known", 0.9))
    (p_known > 0.9) & (round < 1)
    >>> print(gate_rule("entropy", 0.2, low=True))
    (entropy < 0.2) & (round < 1)

    Args:
        signal: What it reads at round 0.
        beta: The threshold; strict, so that beta = 1 always retrieves.
        low: Whether low values answer directly, as an uncertainty does.
    """
    chosen = named(signal) < beta if low else named(signal) > beta
    return chosen & (named("round") < 1)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a gate gave: its retrieval rate, the metrics of each question, mean costs, and how it compares with chance."""

    rate: float
    values: Mapping[str, Floats]
    costs: Mapping[str, float]
    p_random: float = math.nan


class GateEvaluation:
    """A recording with round 0, ready to judge gates on: what never and always retrieving give each question.

    Args:
        recording: Rounds 0 and later; failed questions are left out.
        policy: What follows a gate that does not fire, from round 1 on: the whole budget unless told otherwise. A rule
            such as `tasr` puts the gate in front of it.
        metrics: Columns in [0, 1]; the first is what quality means.
        prices: For money; None = unknown.
        resampling: How intervals are made.
        margin: For non-inferiority to always retrieving.

    Raises:
        DataError: The recording has no round 0 or nothing after it, or lacks a metric.
        CensoredError: A rule ended the recording of some questions before what is compared here.
    """

    def __init__(
        self,
        recording: Recording,
        policy: Policy | None = None,
        *,
        metrics: Sequence[str] = _METRICS,
        prices: Price | Mapping[str, Price] | None = None,
        resampling: Resampling = Resampling(),
        margin: float = 0.02,
    ) -> None:
        require_round_0(recording)
        if not metrics:
            raise DataError("a gate is judged by its answers: name at least one metric")
        self.prepared = PreparedRecording.of(recording, metrics, prices=prices)
        self.metrics = tuple(metrics)
        self.margin, self.resampling = margin, resampling
        self.after = policy or policy_for(self.recording, "full", name="")
        check_policy(replace(self.after, start_round=1), self.recording)
        self.draws = self.prepared.draws(resampling)
        self.never = closed_book(self.prepared)
        self.always = run_policy(self.prepared, replace(self.after, start_round=1), label=ALWAYS)[0]
        self._refuse_unmeasured()

    def _refuse_unmeasured(self) -> None:
        if not self.always.exact:
            cut = self.always.unrun
            raise CensoredError(
                f"a rule ended the recording of {int(cut.sum())} of {self.n} questions (the first is "
                f"{self.recording.question_ids[int(np.argmax(cut))]!r}), so what retrieving would have given there is "
                "unknown, and the questions that are left were not left by chance. Record all of them at full width, "
                "without a policy"
            )
        retrieved = self.prepared.recording.seen[:, 1:].any(axis=1)
        for name in self.metrics:
            unknown = np.isnan(self.never.values[name]) | np.isnan(self.always.values[name]) | ~retrieved
            if unknown.any():
                raise DataError(
                    f"{name!r} is unknown without or with retrieval for {int(unknown.sum())} of {len(unknown)} questions, "
                    f"the first is {self.recording.question_ids[int(np.argmax(unknown))]!r}: a gate is judged on questions "
                    "that were answered both ways. Drop the others (Recording.select)"
                )

    def with_scores(self, scores: Mapping[str, npt.ArrayLike], *, component: str = "gate") -> GateEvaluation:
        """Return the evaluation with further signals at round 0, see `suffice.gates.answered.with_scores`; draws are shared."""
        return self._with(with_scores(self.recording, scores, component=component))

    def ungated(self) -> GateEvaluation:
        """Return the evaluation without what the recorded gate cost, for gates that are not it: see `without_gate`."""
        return self._with(without_gate(self.recording))

    def _with(self, recording: Recording) -> GateEvaluation:
        other = copy(self)
        other.prepared = replace(self.prepared, recording=recording)
        other.never = closed_book(other.prepared)
        other.always = run_policy(other.prepared, replace(self.after, start_round=1), label=ALWAYS)[0]
        return other

    @property
    def recording(self) -> Recording:
        """The questions, those that failed left out."""
        return self.prepared.recording

    @property
    def n(self) -> int:
        """Questions."""
        return self.prepared.n

    def right(self, *, retrieved: bool) -> Mask:
        """Return whether each answer without, or with, retrieval is right: at least half of the first metric."""
        values = (self.always if retrieved else self.never).values[self.metrics[0]]
        return np.asarray(values >= 0.5, dtype=np.bool_)  # noqa: PLR2004

    def gated(self, rule: Rule) -> Policy:
        """Return the policy of a gate in front of what follows it."""
        return replace(self.after, rule=rule | self.after.rule if self.after.rule.signals else rule, start_round=0)

    def run(self, rule: Rule, *, label: str = "") -> tuple[Run, Mask]:
        """Replay one gate; return its run and which questions go on to retrieval, shape ``(n_questions,)``."""
        policy = self.gated(rule)
        check_policy(policy, self.recording)
        run, stopped = run_policy(self.prepared, policy, label=label)
        return run, np.asarray(stopped.rounds > 0, dtype=np.bool_)

    def point(self, rule: Rule, beta: float, *, label: str = "") -> GatePoint:
        """Return what one gate gives and costs.

        Args:
            rule: What answers at round 0 where it fires.
            beta: Its threshold, for the table.
            label: What reports call it.

        Raises:
            UnknownSignalError: It reads a signal that was not recorded.
        """
        run, asked = self.run(rule, label=label)
        found = _Outcome(float(asked.mean()), run.values, _costs(run), self._p_random(~asked))
        return self._judged(label or str(rule), "gate", found, beta=beta)

    def reference(self, kind: str) -> GatePoint:
        """Return `never`, `always` or `perfect`.

        The perfect gate retrieves exactly where that raises the first metric: the best that any gate could do.
        """
        if kind == "never":
            return self._judged(NEVER, kind, _Outcome(0.0, self.never.values, _costs(self.never)))
        if kind == "always":
            return self._judged(ALWAYS, kind, _Outcome(1.0, self.always.values, _costs(self.always)))
        first = self.metrics[0]
        asked = self.always.values[first] > self.never.values[first]
        values = {name: np.where(asked, self.always.values[name], self.never.values[name]) for name in self.metrics}
        costs = {
            name: float(np.where(asked, _each(self.always, name), _each(self.never, name)).mean()) for name in _KINDS
        }
        return self._judged(PERFECT, "perfect", _Outcome(float(asked.mean()), values, costs))

    def random(self, rate: float) -> GatePoint:
        """Return the exact expectation of a gate that retrieves for a share of the questions, drawn blindly."""
        costs = {name: float(_mixed(_each(self.never, name), _each(self.always, name), rate).mean()) for name in _KINDS}
        return self._judged(
            f"random gate at {figure(rate, '.1f', 100)} %", "random", _Outcome(rate, self.blind(rate), costs)
        )

    def beside(self, other: GateEvaluation, label: str) -> GatePoint:
        """Return always retrieving in another evaluation of the same questions, judged on this one."""
        return self._judged(label, "other", _Outcome(1.0, other.always.values, _costs(other.always)))

    def blind(self, rate: float) -> dict[str, Floats]:
        """Return each question's expected metrics under a random gate, by name, shape ``(n_questions,)``."""
        return {name: _mixed(self.never.values[name], self.always.values[name], rate) for name in self.metrics}

    def _judged(self, label: str, kind: str, found: _Outcome, *, beta: float = math.nan) -> GatePoint:
        rate, values = found.rate, found.values
        always, blind = self.always.values, self.blind(rate)
        first = self.metrics[0]
        margin = None
        if kind != "always":
            margin = self.draws.non_inferior(values[first] - always[first], self.margin)
        needed, dominated = self.label_blind(float(values[first].mean()), rate)
        return GatePoint(
            label=label,
            kind=kind,
            beta=beta,
            retrieval_rate=rate,
            metrics={name: float(column.mean()) for name, column in values.items()},
            costs=found.costs,
            against_always=self.draws.compare({name: values[name] - always[name] for name in self.metrics}),
            against_random=self.draws.compare({name: values[name] - blind[name] for name in self.metrics}),
            p_random=found.p_random,
            margin=margin,
            label_blind_rate=needed,
            dominated_by=dominated if kind in ("gate", "always") else None,
        )

    def _p_random(self, direct: Mask) -> float:
        """Return how often as many direct answers at random gain or lose at least as much as these, two-sided."""
        k = int(direct.sum())
        if k in (0, self.n):
            return math.nan
        gain, dealt = self._dealt
        expected = k * float(gain.mean())
        away = np.abs(dealt[:, k - 1] - expected)
        reached = abs(float(gain[direct].sum()) - expected)
        return float((1 + (away >= reached - _SLACK * self.n).sum()) / (1 + len(away)))

    @cached_property
    def _dealt(self) -> tuple[Floats, Floats]:
        """What a direct answer gains each question, and its sum over the first k of shuffled questions, for every k."""
        first = self.metrics[0]
        gain = self.never.values[first] - self.always.values[first]
        shuffled = np.random.default_rng(self.resampling.seed).permuted(np.tile(gain, (_SHUFFLES, 1)), axis=1)
        return gain, np.cumsum(shuffled, axis=1)

    def label_blind(self, quality: float, rate: float) -> tuple[float | None, str | None]:
        """Return the lowest retrieval rate of a label-blind gate of at least this quality, and its name if it dominates.

        It dominates a gate that retrieves for a share `rate` where it retrieves no more and is better in one.

        Never, always and all random gates lie on one line from never (rate 0) to always (rate 1).
        """
        first = self.metrics[0]
        never, always = (float(run.values[first].mean()) for run in (self.never, self.always))
        if never >= quality - _SLACK:
            needed, reached = 0.0, never
        elif always >= quality - _SLACK:
            needed, reached = min(1.0, (quality - never) / (always - never)), quality
        else:
            return None, None
        if needed > rate + _SLACK or not (needed < rate - _SLACK or reached > quality + _SLACK):
            return needed, None
        blind = f"a random gate at {figure(needed, '.1f', 100)} %"
        return needed, NEVER if needed == 0 else ALWAYS if needed == 1 else blind


_KINDS = ("calls", "tokens", "seconds", "retrievals")


def _each(run: Run, kind: str) -> Floats:
    return run.ledger.calls if kind == "calls" else run.ledger.total(kind)


def _costs(run: Run) -> dict[str, float]:
    return {kind: float(_each(run, kind).mean()) for kind in _KINDS}


def _mixed(never: Floats, always: Floats, rate: float) -> Floats:
    mixed: Floats = (1 - rate) * never + rate * always
    return np.where(rate == 0, never, np.where(rate == 1, always, mixed))  # exact at both ends, whatever is undefined


def even_betas(scores: npt.ArrayLike, n: int = 11) -> list[float]:
    """Return thresholds that split scores into equal shares, ascending: from answering all to retrieving for all.

    >>> even_betas([0.1, 0.2, 0.3, 0.4], 3)
    [0.0999, 0.2, 0.4]

    Args:
        scores: Of tune questions; NaN is left out.
        n: How many; fewer where scores are equal.
    """
    values = np.asarray(scores, dtype=np.float64)
    known = np.sort(values[np.isfinite(values)])
    if not len(known):
        return []
    places = np.ceil(np.linspace(0, len(known), n)).astype(np.int64) - 1
    below = float(known[0]) - 1e-4
    return sorted({below if place < 0 else float(known[place]) for place in places.tolist()})
