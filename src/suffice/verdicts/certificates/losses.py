"""Measure the loss of each policy of a family against the baseline, question by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from suffice.common.tables import counted
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import check_policy, outcome
from suffice.evaluation.replay.baselines import Run, closed_book, fixed_policy, oracle_best, oracle_earliest
from suffice.evaluation.replay.orders import n_orders, order_note
from suffice.evaluation.replay.outcomes import (
    agreement_note,
    choice_notes,
    is_agreement,
    measured_metrics,
    other_metrics,
)
from suffice.evaluation.replay.panels import best_single_note
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.references import baseline_policy, selectors_in_use
from suffice.evaluation.replay.rivals import Rival, find_rivals
from suffice.evaluation.statistics import betting_p_value, hoeffding_bentkus_p_value, net_p_value
from suffice.policy.rounds import Floats
from suffice.policy.seen import id_hash
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.verdicts.copies import copies_note, unit_names
from suffice.verdicts.losses import Baseline, LossAccount, PolicyLoss, Questions, failed_text, unknown_text

BINARY_METRICS = frozenset({"em", "contains", "agreement", "agreement_em"})
"""Metrics that can only be 0 or 1 by definition, as can a threshold on any metric, ``f1 > 0.5``."""

COST_NAMES = ("calls", "tokens", "retrievals")
"""The costs that a certified policy may save."""

Loss = Literal["net", "harm"]

_ORDER_SALT = "certify, order:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claim to certify: the expected loss against the baseline is at most epsilon, with confidence.

    Attributes:
        epsilon: The largest expected loss, in the unit of the metric, in (0, 1).
        confidence: 1 - delta, in (0, 1): at most a share delta of all certification sets leads to a false certificate.
        metric: A column in [0, 1], or `agreement` (see `suffice.evaluation.replay.outcome`).
        loss: `net` is metric(baseline) - metric(policy), in [-1, 1]. `harm` is max(0, net), in [0, 1]: a gain on one
            question does not offset a loss on another. A bound on `harm` also holds for `net`.
        baseline: The text of a rule, such as `full` (the whole budget), which gets the selector of the policies; or a
            policy, `closed_book` or an oracle.
        orders: Number of random orders of a question's independent samples over which its loss is averaged; None = 100.
            Rounds that follow one another keep the recorded order.
        leave_out_failed: True to leave out questions whose recording failed, with a note; False to count each as a loss
            of 1, because the policy may change the cause of the failure.
        repeated: Whether several rows record the same question. The loss of such a question is a mean, so it need not
            be 0 or 1. `averaged_over` sets this field.
    """

    epsilon: float
    confidence: float = 0.95
    metric: str = "f1"
    loss: Loss = "net"
    baseline: str | Policy = "full"
    orders: int | None = None
    leave_out_failed: bool = False
    repeated: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < 1:
            raise DataError(
                f"the largest loss must lie between 0 and 1, both excluded, not {self.epsilon!r}: no number of questions "
                "shows a loss of exactly 0; 0.02 is two points of the metric"
            )
        if not 0 < self.confidence < 1:
            raise DataError(
                f"the confidence must lie between 0 and 1, both excluded, not {self.confidence!r} (delta is 1 minus it): "
                "0.95 is usual"
            )
        if self.loss not in ("net", "harm"):
            raise DataError(f"{self.loss!r} is not a loss; allowed: net, harm")

    @property
    def delta(self) -> float:
        """The risk of a false certificate."""
        return round(1 - self.confidence, 12)  # 1 - 0.95 is a little more than 0.05

    def averaged_over(self, recording: Recording, policies: Sequence[Policy]) -> Claim:
        """Return the claim with `orders` and `repeated` set for a recording.

        Raises:
            DataError: `orders` was given although the rounds follow one another, see
                `suffice.evaluation.replay.orders.n_orders`.
        """
        orders = n_orders(recording, self.orders, self.with_baseline(policies))
        repeated = len(set(unit_names(recording))) < len(recording.question_ids)
        return replace(self, orders=orders if recording.exchangeable else None, repeated=repeated)

    def with_baseline(self, policies: Sequence[Policy]) -> list[Policy]:
        """Return the policies, followed by the baseline if the baseline is a policy."""
        return [*policies, *([self.baseline] if isinstance(self.baseline, Policy) else [])]

    @property
    def kind(self) -> str:
        """The loss in words."""
        return f"{'net loss' if self.loss == 'net' else 'harm'} of {self.metric}"

    @property
    def binary(self) -> bool:
        """True if each question's harm is 0 or 1: the metric has no other values, and no mean over orders or rows is taken."""
        return self.orders is None and not self.repeated and (self.metric in BINARY_METRICS or ">" in self.metric)

    def reference_p_values(self, losses: Floats) -> Floats:
        """Return the Hoeffding-Bentkus p-value of each row.

        For binary harm these are the p-values of the test itself; otherwise they only serve as a comparison.
        """
        mean, n = losses.mean(axis=-1), losses.shape[-1]
        if self.loss == "net":  # shifted to [0, 1]
            return hoeffding_bentkus_p_value((mean + 1) / 2, n, (self.epsilon + 1) / 2)
        return hoeffding_bentkus_p_value(mean, n, self.epsilon, binary=self.binary)

    @property
    def method(self) -> str:
        """The test behind the p-values."""
        if self.loss == "harm" and self.binary:
            return "Hoeffding-Bentkus, binary (Angelopoulos et al. 2021)"
        return "betting (Waudby-Smith and Ramdas 2024)"

    def p_values(self, losses: Floats, level: float) -> Floats:
        """Return the p-value of each row of losses; the test bets on a row's losses from left to right.

        The losses have shape ``(n_policies, n_questions)``.
        """
        if self.loss == "net":
            return net_p_value(losses, self.epsilon, level=level)
        if self.binary:  # if the number of losses is binomial, the exact tail is the best possible test
            return self.reference_p_values(losses)
        return betting_p_value(losses, self.epsilon, level=level)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLosses:
    """Losses of a family's policies on recorded questions, in the order in which the test bets on the questions.

    Attributes:
        losses: Losses of the claim's kind, shape ``(n_policies, n_questions)``. An unknown loss counts at its largest
            possible value, a failed recording as 1, and a question with several rows as their mean.
        open: The part of `losses` that is due to unknown outcomes, same shape.
        values: The metric under each policy, shape ``(n_policies, n_recorded)``, 0 where unknown; failed questions are left out.
        costs: Each of `COST_NAMES` under each policy, shape of `values`; NaN where unknown.
        baseline_values: The metric under the baseline, shape ``(n_recorded,)``.
        baseline_costs: Each of `COST_NAMES` under the baseline, shape ``(n_recorded,)``.
        baseline: The name of the baseline.
        question_ids: Hash of each question's id, in the order of the losses; a repeated question has the id of its
            first row.
        n_failed: Questions whose recording failed: each counts as lost, unless the claim leaves them out.
        notes: Notes for the reader.
        rivals: The rival of each policy: the cheapest fixed_k or random policy whose quality on these questions is at
            least that of the policy. A `Rival` also names the baseline that dominates the policy, if one does. Empty if
            not requested.
    """

    losses: Floats
    open: Floats
    values: Floats
    costs: Mapping[str, Floats]
    baseline_values: Floats
    baseline_costs: Mapping[str, Floats]
    baseline: str
    question_ids: tuple[str, ...]
    n_failed: int
    notes: tuple[str, ...]
    rivals: tuple[Rival, ...] = ()

    def spent(self, cost: str) -> tuple[Floats, Floats]:
        """Return one of the `COST_NAMES` for each policy, shape ``(n_policies, n_questions)``, and for the baseline.

        Raises:
            DataError: The cost was not recorded for every question.
        """
        ours, theirs = self.costs[cost], self.baseline_costs[cost]
        if np.isnan(ours).any() or np.isnan(theirs).any():
            raise DataError(f"the {cost} of some policies were not recorded: choose by calls")
        return ours, theirs


def measure_losses(
    recording: Recording, policies: Sequence[Policy], claim: Claim, *, rivals_by: str | None = None
) -> MeasuredLosses:
    """Measure the losses of policies against the baseline of a claim, for each question.

    Args:
        recording: Recorded rounds, full width.
        policies: The policies to measure, at least one.
        claim: Metric, loss and baseline, and the treatment of failed questions.
        rivals_by: One of `COST_NAMES`, the cost by which each policy is also compared with fixed budgets and with its
            random twin; None = no such comparison.

    Raises:
        DataError: The metric is missing, was measured in no round, or leaves [0, 1].
        CensoredError: The baseline needs rounds that were not recorded because a rule ended the question.
        ConfigMismatchError: A policy belongs to another model, prompt or retriever than the recording.
        NotFittedError: A policy reads a calibrated signal and has no calibrator.
    """
    prepared = PreparedRecording.of(recording, [claim.metric], samples=True)
    complete = prepared.recording
    _check_measured(complete, claim.metric)
    claim = claim.averaged_over(complete, policies)
    baseline = _baseline_of(complete, claim, policies)
    notes = [note for policy in policies for note in _checked(policy, complete)]
    if isinstance(baseline, Policy):
        notes += _checked(baseline, complete)
    account = LossAccount.of(
        prepared,
        baseline,
        orders=claim.orders or 1,
        harm=claim.loss == "harm",
        remedy="Record the certification questions at full width, without a rule",
    )
    likes = [] if rivals_by is None else [*selectors_in_use(policies).values()]
    fixed = [fixed_policy(k, like) for like in likes for k in range(1, prepared.highest + 1)]
    every = [
        *account.losses(
            [*policies, *fixed],
            kinds=["rule"] * len(policies) + ["fixed"] * len(fixed),
            twinned=() if rivals_by is None else range(len(policies)),
        )
    ]
    measured, budgets = every[: len(policies)], [loss.run for loss in every[len(policies) :]]
    runs = [*(loss.run for loss in measured), account.baseline]
    _check_binary(runs, claim)
    questions = Questions.of(recording, leave_out_failed=claim.leave_out_failed)
    order, first_ids, recorded = questions.order(_ORDER_SALT), questions.first_ids, questions.of_recorded()
    order_of_recorded = recorded.order(_ORDER_SALT)

    def in_order(rows: Sequence[Floats]) -> Floats:
        """Average the values of each run over the rows of a question, without failed rows; the questions are in the order of bets."""
        means: Floats = recorded.means(np.stack(rows), failed=np.nan)[..., order_of_recorded]
        return means

    values = in_order([np.nan_to_num(run.worst[claim.metric]) for run in runs])
    costs = {name: in_order([run.ledger.spent(name) for run in runs]) for name in COST_NAMES}
    notes += [order_note(account.orders)] if account.orders > 1 else []
    notes += [f"{run.label}: {note}" for run in runs for note in run.notes]
    notes += _missing_notes(measured, questions)
    notes += _loss_notes(complete, values[-1], claim, questions.n_failed)
    return MeasuredLosses(
        losses=questions.means(np.stack([loss.high for loss in measured]), failed=1.0)[:, order],
        open=questions.means(np.stack([loss.open for loss in measured]), failed=1.0)[:, order],
        values=values[:-1],
        costs={name: rows[:-1] for name, rows in costs.items()},
        baseline_values=values[-1],
        baseline_costs={name: rows[-1] for name, rows in costs.items()},
        baseline=account.baseline.label,
        question_ids=tuple(id_hash(first_ids[place]) for place in order.tolist()),
        n_failed=questions.n_failed,
        notes=tuple(dict.fromkeys([*_repeated_notes(questions), *copies_note(recording), *notes])),
        rivals=tuple(
            find_rivals([loss.run], [*budgets, loss.twin], (claim.metric,), str(rivals_by))[0]
            for loss in measured
            if loss.twin is not None
        ),
    )


def _check_measured(recording: Recording, metric: str) -> None:
    """Raise if no round has the metric, because every loss would then count at its largest possible value."""
    if not np.isfinite(outcome(recording, metric)).any():
        raise DataError(
            f"{metric!r} was not measured in any round of this recording, so no loss of it can be bounded. Use another "
            f"metric: {other_metrics(measured_metrics(recording), metric)}"
        )


def _checked(policy: Policy, recording: Recording) -> tuple[str, ...]:
    policy.check()
    return check_policy(policy, recording)


def _baseline_of(recording: Recording, claim: Claim, policies: Sequence[Policy]) -> Baseline:
    if isinstance(claim.baseline, Policy):
        return claim.baseline
    if claim.baseline in _SPECIAL:
        return partial(_SPECIAL[claim.baseline], metric=claim.metric)
    return _rule_baseline(recording, claim.baseline, policies)


def _rule_baseline(recording: Recording, rule: str, policies: Sequence[Policy]) -> Policy:
    """Return a rule as a baseline policy with the selector of the policies, so that the loss does not compare selectors."""
    used = selectors_in_use(policies)
    if len(used) > 1:
        raise DataError(
            f"the baseline {rule!r} returns answers by the selector of the policies, and these have several: "
            f"{', '.join(used)}. Certify them one selector at a time, or name a policy file as the baseline"
        )
    return baseline_policy(recording, rule, policies[0])


def _repeated_notes(questions: Questions) -> list[str]:
    """Return a note if rows repeat questions."""
    n_rows, n_questions = len(questions.names), questions.units.n_units
    if n_rows == n_questions:
        return []
    said = f"{n_rows} rows repeat {n_questions} questions, by cluster or text"
    return [f"{said}: each counts once, with the mean of its rows"]


def _missing_notes(measured: Sequence[PolicyLoss], questions: Questions) -> list[str]:
    """Return notes on the number of unknown outcomes, and on policies that need more rounds than were recorded."""
    unknown = np.any([loss.low < loss.high for loss in measured], axis=0)
    n_unknown = int((questions.means(unknown, failed=0.0) > 0).sum())
    notes = [unknown_text(n_unknown, questions.units.n_units)] if n_unknown else []
    for loss in measured:
        if not loss.run.exact:
            many = counted(int(loss.run.unrun.sum()), "question")
            notes.append(
                f"{loss.run.label}: it goes on past what was recorded in {many}: there it counts as lost, and its costs are "
                "those of the recorded rounds alone, so they are unknown beyond these"
            )
    return notes


def _check_binary(runs: Sequence[Run], claim: Claim) -> None:
    """Raise if a metric has values between 0 and 1 although its name, such as `em`, only allows 0 and 1."""
    values = [run.values[claim.metric] for run in runs]
    if claim.binary and not all(np.isin(known[~np.isnan(known)], (0.0, 1.0)).all() for known in values):
        raise DataError(
            f"the column {claim.metric!r} has values between 0 and 1, and under this name it may only be 0 or 1, for which harm "
            "has a sharper test: give the column another name"
        )


def _loss_notes(recording: Recording, base: Floats, claim: Claim, n_failed: int) -> list[str]:
    notes = []
    if is_agreement(claim.metric):
        notes.append(agreement_note(recording))
    if n_failed and claim.leave_out_failed:
        notes.append(
            f"{failed_text(n_failed, left_out=True)}, as declared: the certificate does not cover such questions"
        )
    elif n_failed:
        notes.append(
            f"{failed_text(n_failed, left_out=False)}, with a loss of 1 each; quality and costs are means over the others. If "
            "they failed by chance, complete the recording or leave them out (leave_out_failed=True, --set leave-out-failed=true)"
        )
    notes += choice_notes(recording, [claim.metric]) + best_single_note(recording, claim.metric)
    if not base.any():
        notes.append(f"the baseline scores 0 {claim.metric} on every question: there is nothing to lose")
    return notes


def _earliest_oracle(prepared: PreparedRecording, metric: str) -> Run:
    del metric
    if "em" not in prepared.recording.table.column_names:
        raise DataError("oracle_earliest needs the metric 'em', and the recording has no such column")
    return oracle_earliest(prepared, outcome(prepared.recording, "em"))


def _closed_book_run(prepared: PreparedRecording, metric: str) -> Run:
    del metric
    if int(prepared.recording.index[0]) != 0:
        raise ConfigMismatchError(
            "closed_book needs round 0, and this recording starts at round 1: record with round 0"
        )
    return closed_book(prepared)


_SPECIAL = {
    "closed_book": _closed_book_run,
    "oracle_best": lambda prepared, metric: oracle_best(prepared, prepared.metrics[metric]),
    "oracle_earliest": _earliest_oracle,
}
