"""A gate judged offline: what it gives and costs, beside never, always, perfect and random gates.

Never and always retrieving, the same share of questions at random, and a gate that knows the outcome are what a gate
has to be compared with (CBDR, section 4.4, has the first two).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from suffice.common.tables import figure
from suffice.errors import CensoredError, DataError
from suffice.evaluation.replay import Price, check_policy, policy_for
from suffice.evaluation.replay.baselines import Run, closed_book, run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import ROUNDING, Resampling
from suffice.policy.rounds import Floats, Mask
from suffice.policy.rules import Rule
from suffice.policy.rules import signal as named
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice_gates.gates.answered import require_round_0, with_scores, without_gate
from suffice_gates.gates.point import ALWAYS, NEVER, PERFECT, GatePoint
from suffice_gates.gates.threshold import BothWays

__all__ = ["GateEvaluation", "even_betas", "gate_rule"]

_SHUFFLES = 4999
_DEFAULT_METRICS = ("contains", "em", "f1")


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


class GateEvaluation:
    """A recording with round 0, ready to judge gates on: what never and always retrieving give each question.

    Args:
        recording: Rounds 0 and later; failed questions are left out.
        policy: What follows a gate that does not fire, from round 1 on: the whole budget by default. A rule
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
        metrics: Sequence[str] = _DEFAULT_METRICS,
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
        """Return the evaluation with further signals at round 0, see `suffice_gates.gates.answered.with_scores`; draws are shared."""
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

    @property
    def answers(self) -> BothWays:
        """The first metric of each question without and with retrieval."""
        first = self.metrics[0]
        return BothWays(self.never.values[first], self.always.values[first])

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
        run, retrieved = self.run(rule, label=label)
        p = self._p_random(~retrieved)
        rate = float(retrieved.mean())
        return self._point(label or str(rule), "gate", rate, run.values, _mean_costs(run), beta=beta, p_random=p)

    def reference(self, kind: str) -> GatePoint:
        """Return `never`, `always` or `perfect`.

        The perfect gate retrieves exactly where that raises the first metric: the best that any gate could do.
        """
        answers = self.answers
        helpful = (answers.retrieved > answers.direct).astype(np.float64)
        shares: dict[str, float | Floats] = {"never": 0.0, "always": 1.0, "perfect": helpful}
        labels = {"never": NEVER, "always": ALWAYS, "perfect": PERFECT}
        return self._mixture(labels[kind], kind, shares[kind])

    def random(self, rate: float) -> GatePoint:
        """Return the exact expectation of a gate that retrieves for a share of the questions, drawn blindly."""
        return self._mixture(f"random gate at {figure(rate, '.1f', 100)} %", "random", rate)

    def _mixture(self, label: str, kind: str, share: float | Floats) -> GatePoint:
        """Return a gate that retrieves for each question with a probability, 0 or 1 if it knows, shape ``(n_questions,)``."""
        values = self._expected(share)
        costs = {
            name: float(_blend(_each(self.never, name), _each(self.always, name), share).mean()) for name in _GATE_COSTS
        }
        return self._point(label, kind, float(np.mean(share)), values, costs)

    def beside(self, other: GateEvaluation, label: str) -> GatePoint:
        """Return always retrieving in another evaluation of the same questions, judged on this one."""
        return self._point(label, "other", 1.0, other.always.values, _mean_costs(other.always))

    def _expected(self, share: float | Floats) -> dict[str, Floats]:
        """Return each question's expected metrics where retrieval has a probability, by name, shape ``(n_questions,)``."""
        return {name: _blend(self.never.values[name], self.always.values[name], share) for name in self.metrics}

    def _point(
        self,
        label: str,
        kind: str,
        rate: float,
        values: Mapping[str, Floats],
        costs: Mapping[str, float],
        *,
        beta: float = math.nan,
        p_random: float = math.nan,
    ) -> GatePoint:
        always, blind = self.always.values, self._expected(rate)
        first = self.metrics[0]
        margin = None
        if kind != "always":
            margin = self.draws.non_inferior(values[first] - always[first], self.margin)
        blind_rate, dominated = self.label_blind(float(values[first].mean()), rate)
        return GatePoint(
            label=label,
            kind=kind,
            beta=beta,
            retrieval_rate=rate,
            metrics={name: float(column.mean()) for name, column in values.items()},
            costs=costs,
            against_always=self.draws.compare({name: values[name] - always[name] for name in self.metrics}),
            against_random=self.draws.compare({name: values[name] - blind[name] for name in self.metrics}),
            p_random=p_random,
            margin=margin,
            label_blind_rate=blind_rate,
            dominated_by=dominated if kind in ("gate", "always") else None,
        )

    def _p_random(self, direct: Mask) -> float:
        """Return how often as many direct answers at random gain or lose at least as much as these, two-sided."""
        k = int(direct.sum())
        if k in (0, self.n):
            return math.nan
        gain, sums = self._shuffled_gains
        expected = k * float(gain.mean())
        distances = np.abs(sums[:, k - 1] - expected)
        observed = abs(float(gain[direct].sum()) - expected)
        return float((1 + (distances >= observed - ROUNDING * self.n).sum()) / (1 + len(distances)))

    @cached_property
    def _shuffled_gains(self) -> tuple[Floats, Floats]:
        """What a direct answer gains each question, and its sum over the first k of shuffled questions, for every k."""
        gain = self.answers.direct - self.answers.retrieved
        shuffled = np.random.default_rng(self.resampling.seed).permuted(np.tile(gain, (_SHUFFLES, 1)), axis=1)
        return gain, np.cumsum(shuffled, axis=1)

    def label_blind(self, quality: float, rate: float) -> tuple[float | None, str | None]:
        """Return the lowest retrieval rate of a label-blind gate of at least this quality, and its name if it dominates.

        It dominates a gate that retrieves for a share `rate` where it retrieves no more and is better in one.

        Never, always and all random gates lie on one line from never (rate 0) to always (rate 1).
        """
        never, always = float(self.answers.direct.mean()), float(self.answers.retrieved.mean())
        if never >= quality - ROUNDING:
            lowest, reached = 0.0, never
        elif always >= quality - ROUNDING:
            lowest, reached = min(1.0, (quality - never) / (always - never)), quality
        else:
            return None, None
        if lowest > rate + ROUNDING or not (lowest < rate - ROUNDING or reached > quality + ROUNDING):
            return lowest, None
        random = f"a random gate at {figure(lowest, '.1f', 100)} %"
        return lowest, NEVER if lowest == 0 else ALWAYS if lowest == 1 else random


_GATE_COSTS = ("calls", "tokens", "seconds", "retrievals")


def _each(run: Run, kind: str) -> Floats:
    return run.ledger.spent(kind)


def _mean_costs(run: Run) -> dict[str, float]:
    return {kind: float(_each(run, kind).mean()) for kind in _GATE_COSTS}


def _blend(never: Floats, always: Floats, share: float | Floats) -> Floats:
    mixed: Floats = (1 - share) * never + share * always
    return np.where(share == 0, never, np.where(share == 1, always, mixed))  # exact at both ends, whatever is undefined


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
