"""Offline evaluation of a gate: its quality and cost, compared with reference gates.

The references are never and always retrieving (CBDR, section 4.4), a random gate at the same retrieval rate, and a perfect
gate that knows the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from suffice.common.tables import figure
from suffice.errors import CensoredError, DataError
from suffice.evaluation.replay import Price, check_policy, policy_for
from suffice.evaluation.replay.baselines import Run, closed_book, run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import ROUNDING, Resampling
from suffice.policy.rounds import Floats, Mask
from suffice.policy.rules import Rule, signal as named
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice_gates.gates.answered import require_round_0, with_scores, without_gate
from suffice_gates.gates.point import ALWAYS, NEVER, PERFECT, GatePoint
from suffice_gates.gates.threshold import BothWays

_SHUFFLES = 4999
_DEFAULT_METRICS = ("contains", "em", "f1")


def gate_rule(signal: str, beta: float = 0.5, *, low: bool = False) -> Rule:
    """Return the rule of a gate: answer without retrieval if the signal is above beta (CBDR, section 3.4).

    >>> print(gate_rule("p_known", 0.9))
    (p_known > 0.9) & (round < 1)
    >>> print(gate_rule("entropy", 0.2, low=True))
    (entropy < 0.2) & (round < 1)

    Args:
        signal: The signal that the rule reads at round 0.
        beta: The threshold, which the signal must exceed; with beta = 1 a probability never does, so the gate always
            retrieves.
        low: True if low values answer directly, as for an uncertainty.
    """
    chosen = named(signal) < beta if low else named(signal) > beta
    return chosen & (named("round") < 1)


class GateEvaluation:
    """Judges gates on a recording with round 0, by replay.

    Args:
        recording: Rounds 0 and later; failed questions are left out.
        policy: The policy from round 1 on, for questions that the gate retrieves for; by default it uses the whole budget.
        metrics: Columns in [0, 1]; the first one measures quality.
        prices: Prices of tokens; None if unknown.
        resampling: Settings of the intervals.
        margin: Margin of non-inferiority to always retrieving.

    Raises:
        DataError: The recording has no round 0 or nothing after it, or lacks a metric.
        CensoredError: A rule ended the recording of some questions before the rounds that are compared.
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
        # The copies of `_with` share it, since they have the same answers and so the same gains.
        self._sums: dict[bytes, Floats] = {}
        self._refuse_unmeasured()

    def _refuse_unmeasured(self) -> None:
        if not self.always.exact:
            cut = self.always.unrun
            raise CensoredError(
                f"a rule ended the recording of {int(cut.sum())} of {self.n} questions (the first is "
                f"{self.recording.question_ids[int(np.argmax(cut))]!r}), so the answers with retrieval are "
                "unknown, and the other questions are not a random sample. Record all of them at full width, "
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
        """Return an evaluation with further signals at round 0; it uses the same resamples as this evaluation.

        See `suffice_gates.gates.answered.with_scores`.
        """
        return self._with(with_scores(self.recording, scores, component=component))

    def ungated(self) -> GateEvaluation:
        """Return an evaluation without the cost of the recorded gate, to judge other gates; see `without_gate`."""
        return self._with(without_gate(self.recording))

    def _with(self, recording: Recording) -> GateEvaluation:
        other = copy(self)
        other.prepared = replace(self.prepared, recording=recording)
        other.never = closed_book(other.prepared)
        other.always = run_policy(other.prepared, replace(self.after, start_round=1), label=ALWAYS)[0]
        return other

    @property
    def recording(self) -> Recording:
        """The recording without failed questions."""
        return self.prepared.recording

    @property
    def n(self) -> int:
        """Number of questions."""
        return self.prepared.n

    @property
    def answers(self) -> BothWays:
        """The first metric of each question without and with retrieval."""
        first = self.metrics[0]
        return BothWays(self.never.values[first], self.always.values[first])

    def gated(self, rule: Rule) -> Policy:
        """Return the policy from round 1 on, with a gate in front of it."""
        return replace(self.after, rule=rule | self.after.rule if self.after.rule.signals else rule, start_round=0)

    def run(self, rule: Rule, *, label: str = "") -> tuple[Run, Mask]:
        """Replay one gate; return its run and a mask of the questions that it retrieves for, shape ``(n_questions,)``."""
        policy = self.gated(rule)
        check_policy(policy, self.recording)
        run, stopped = run_policy(self.prepared, policy, label=label)
        return run, np.asarray(stopped.rounds > 0, dtype=np.bool_)

    def point(self, rule: Rule, beta: float, *, label: str = "") -> GatePoint:
        """Measure the quality and cost of one gate.

        Args:
            rule: Rule of the gate; a question is answered at round 0 if it fires.
            beta: Its threshold, for the table.
            label: Name in reports.

        Raises:
            UnknownSignalError: The rule reads a signal that was not recorded.
        """
        run, retrieved = self.run(rule, label=label)
        p = self._p_random(~retrieved)
        rate = float(retrieved.mean())
        return self._point(label or str(rule), "gate", rate, run.values, _mean_costs(run), beta=beta, p_random=p)

    def reference(self, kind: str) -> GatePoint:
        """Measure the reference gate `never`, `always` or `perfect`.

        The perfect gate retrieves exactly where that raises the first metric: no gate can do better.
        """
        answers = self.answers
        helpful = (answers.retrieved > answers.direct).astype(np.float64)
        shares: dict[str, float | Floats] = {"never": 0.0, "always": 1.0, "perfect": helpful}
        labels = {"never": NEVER, "always": ALWAYS, "perfect": PERFECT}
        return self._mixture(labels[kind], kind, shares[kind])

    def random(self, rate: float) -> GatePoint:
        """Return the exact expected quality and cost of a gate that retrieves for a random share of the questions."""
        return self._mixture(f"random gate at {figure(rate, '.1f', 100)} %", "random", rate)

    def _mixture(self, label: str, kind: str, share: float | Floats) -> GatePoint:
        """Return the expected quality and cost of a gate that retrieves with probability `share`.

        `share` is one number for all questions, or one number for each question, shape ``(n_questions,)``.
        """
        values = self._expected(share)
        costs = {
            name: float(_blend(_each(self.never, name), _each(self.always, name), share).mean()) for name in _GATE_COSTS
        }
        return self._point(label, kind, float(np.mean(share)), values, costs)

    def beside(self, other: GateEvaluation, label: str) -> GatePoint:
        """Measure the policy that always retrieves in `other`, another evaluation of the same questions.

        Its quality is compared with the reference gates of this evaluation, not of `other`.
        """
        return self._point(label, "other", 1.0, other.always.values, _mean_costs(other.always))

    def _expected(self, share: float | Floats) -> dict[str, Floats]:
        """Return each question's expected metrics by name, if retrieval happens with probability `share`."""
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
        """Test whether direct answers help the questions in `direct` more than equally many random questions.

        Return the two-sided p-value; NaN if all questions or none are in `direct`.
        """
        k = int(direct.sum())
        if k in (0, self.n):
            return math.nan
        gain, sums = self._shuffled_gains
        expected = k * float(gain.mean())
        distances = np.abs(sums[:, k - 1] - expected)
        observed = abs(float(gain[direct].sum()) - expected)
        return float((1 + (distances >= observed - ROUNDING * self.n).sum()) / (1 + len(distances)))

    @property
    def _shuffled_gains(self) -> tuple[Floats, Floats]:
        """The gain of each question, and cumulative sums of the gains in random orders.

        A gain is the metric without retrieval minus the metric with retrieval.
        """
        gain = self.answers.direct - self.answers.retrieved
        key = gain.tobytes()
        if key not in self._sums:
            shuffled = np.random.default_rng(self.resampling.seed).permuted(np.tile(gain, (_SHUFFLES, 1)), axis=1)
            self._sums[key] = np.cumsum(shuffled, axis=1)
        return gain, self._sums[key]

    def label_blind(self, quality: float, rate: float) -> tuple[float | None, str | None]:
        """Return the lowest retrieval rate at which a label-blind gate reaches `quality`; also return its name if it dominates.

        Label-blind gates retrieve never, always or at random. The quality of a random gate is linear in its retrieval
        rate, between the quality of never retrieving (rate 0) and of always retrieving (rate 1). The label-blind gate
        with the lowest rate dominates a gate with `quality` and `rate` if its rate is lower than `rate`, or if the
        rates are equal and its quality is higher. The rate is None if no label-blind gate reaches `quality`. The name
        is None if the label-blind gate does not dominate.
        """
        # Quality is linear in the rate of a random gate, so the lowest sufficient rate is where the line meets `quality`.
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
    return np.where(
        share == 0, never, np.where(share == 1, always, mixed)
    )  # exact at both ends, even if the other end is undefined


def even_betas(scores: npt.ArrayLike, n: int = 11) -> list[float]:
    """Return ascending thresholds that split scores into equal shares.

    The lowest threshold answers every question directly; the highest one retrieves for every question.

    >>> even_betas([0.1, 0.2, 0.3, 0.4], 3)
    [0.0999, 0.2, 0.4]

    Args:
        scores: Scores of tune questions; NaN is left out.
        n: Number of thresholds; fewer if scores are equal.
    """
    values = np.asarray(scores, dtype=np.float64)
    known = np.sort(values[np.isfinite(values)])
    if not len(known):
        return []
    places = np.ceil(np.linspace(0, len(known), n)).astype(np.int64) - 1
    below = float(known[0]) - 1e-4
    return sorted({below if place < 0 else float(known[place]) for place in places.tolist()})
