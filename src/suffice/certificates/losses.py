"""What each policy of a family loses against the baseline, question by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from suffice.certificates.pvalues import hoeffding_bentkus_p_value, net_p_value
from suffice.errors import CensoredError, ConfigMismatchError, DataError
from suffice.replays import check_policy, dividing_names, id_hash, outcome
from suffice.replays.baselines import Run, closed_book, fixed_policy, oracle_best, oracle_earliest
from suffice.replays.by_stop import run_all
from suffice.replays.orders import mean_runs, n_orders, order_note
from suffice.replays.outcomes import agreement_note, choice_notes, is_agreement
from suffice.replays.panels import best_single_note
from suffice.replays.prepared import PreparedRecording
from suffice.replays.references import baseline_policy, selectors_in_use
from suffice.replays.rivals import Rival, find_rival
from suffice.rounds import Floats
from suffice.session import Policy
from suffice.store.recording import Recording

__all__ = ["BINARY_METRICS", "COST_NAMES", "Claim", "MeasuredLosses", "measure_losses", "one_row_per_question"]

BINARY_METRICS = frozenset({"em", "contains", "agreement", "agreement_em"})
"""Metrics that can only be 0 or 1 by definition, as can a threshold on any metric, ``f1 > 0.5``."""

COST_NAMES = ("calls", "tokens", "retrievals")
"""The costs that a certified policy may save."""

Loss = Literal["net", "harm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What to certify: the expected loss against the baseline is at most epsilon, with confidence.

    Attributes:
        epsilon: The largest expected loss, in the unit of the metric, in (0, 1).
        confidence: 1 - delta, in (0, 1): at most a share delta of all certification sets leads to a false certificate.
        metric: A column in [0, 1], or `agreement` (see `suffice.replays.outcome`).
        loss: `net` is metric(baseline) - metric(policy), in [-1, 1]; `harm` is max(0, net), in [0, 1], which no gain
            on another question makes up for: its bound holds for `net` too.
        baseline: `full` for the whole budget or the text of another rule, both with the selector of the policies; a
            policy, `closed_book` or an oracle.
        seed: Of the order in which the betting goes through the questions: fix it before you see a result.
        orders: For independent samples, over how many random orders of its samples the loss of a question is averaged;
            None = 100, and for rounds that follow one another the recorded order.
    """

    epsilon: float
    confidence: float = 0.95
    metric: str = "f1"
    loss: Loss = "net"
    baseline: str | Policy = "full"
    seed: int = 42
    orders: int | None = None

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
        """Return the claim with the number of orders that policies are averaged over on a recording.

        Raises:
            DataError: A number of orders for rounds that have one, see `suffice.replays.orders.n_orders`.
        """
        orders = n_orders(recording, self.orders, self.with_baseline(policies))
        return replace(self, orders=orders if recording.exchangeable else None)

    def with_baseline(self, policies: Sequence[Policy]) -> list[Policy]:
        """Return policies, and the baseline if it is one."""
        return [*policies, *([self.baseline] if isinstance(self.baseline, Policy) else [])]

    @property
    def kind(self) -> str:
        """The loss in words."""
        return f"{'net loss' if self.loss == 'net' else 'harm'} of {self.metric}"

    @property
    def binary(self) -> bool:
        """Whether the harm can only be 0 or 1, by the definition of the metric; a mean over orders is neither."""
        return self.orders is None and (self.metric in BINARY_METRICS or ">" in self.metric)

    def reference_p_values(self, losses: Floats) -> Floats:
        """Return Hoeffding-Bentkus p-values of each row: what `harm` is tested by, and a comparison for `net`."""
        mean, n = losses.mean(axis=-1), losses.shape[-1]
        if self.loss == "net":  # shifted to [0, 1]
            return hoeffding_bentkus_p_value((mean + 1) / 2, n, (self.epsilon + 1) / 2)
        return hoeffding_bentkus_p_value(mean, n, self.epsilon, binary=self.binary)

    @property
    def method(self) -> str:
        """The test behind the p-values."""
        if self.loss == "net":
            return "betting (Waudby-Smith and Ramdas 2024)"
        return f"Hoeffding-Bentkus{', binary' if self.binary else ''} (Angelopoulos et al. 2021)"

    def p_values(self, losses: Floats, level: float) -> Floats:
        """Return the p-value of each row of losses, shape ``(n_policies, n_questions)``, in the order of betting."""
        if self.loss == "net":
            return net_p_value(losses, self.epsilon, level=level)
        return self.reference_p_values(losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLosses:
    """A family on recorded questions, in the order of betting.

    Attributes:
        losses: Of the claim's kind, shape ``(n_policies, n_questions)``.
        values: The metric under each policy, same shape.
        costs: Each of `COST_NAMES` under each policy, same shape; NaN where unknown.
        baseline_values: The metric under the baseline, shape ``(n_questions,)``.
        baseline_costs: Each of `COST_NAMES` under the baseline, shape ``(n_questions,)``.
        baseline: Its name.
        question_ids: Hashes of the questions' ids, in the same order.
        n_failed: Questions left out because their recording failed.
        notes: What a reader must know.
        rivals: For each policy the cheapest fixed_k or random policy of at least its quality on these questions, and
            whether one dominates it; empty if not requested.
    """

    losses: Floats
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
        """Return one of `COST_NAMES`: each policy's, shape ``(n_policies, n_questions)``, and the baseline's.

        Raises:
            DataError: It was not recorded everywhere.
        """
        ours, theirs = self.costs[cost], self.baseline_costs[cost]
        if np.isnan(ours).any() or np.isnan(theirs).any():
            raise DataError(f"the {cost} of some policies were not recorded: choose by calls")
        return ours, theirs


def measure_losses(
    recording: Recording, policies: Sequence[Policy], claim: Claim, *, rivals_by: str | None = None
) -> MeasuredLosses:
    """Return what policies lose against the baseline of a claim, one row for each question.

    Args:
        recording: Recorded rounds, full width.
        policies: At least one.
        claim: Metric, loss and baseline; its seed orders the questions.
        rivals_by: One of `COST_NAMES`: compare each policy with fixed budgets and its random twin by this cost, too.

    Raises:
        DataError: The metric is missing or leaves [0, 1], or is unknown where a policy stops.
        CensoredError: A policy or the baseline wanted rounds that a rule kept from being recorded.
        ConfigMismatchError: A policy belongs to another model, prompt or retriever than the recording.
        NotFittedError: A policy reads a calibrated signal and has no calibrator.
    """
    single, repeated = one_row_per_question(recording)
    prepared = PreparedRecording.of(single, [claim.metric], samples=True)
    complete, n_failed = prepared.recording, prepared.n_failed
    reference_policy = claim.baseline
    if isinstance(reference_policy, str) and reference_policy not in _SPECIAL:
        reference_policy = _rule_baseline(complete, reference_policy, policies)
    involved = [*policies, reference_policy] if isinstance(reference_policy, Policy) else list(policies)
    for policy in involved:
        policy.check()
    claim = claim.averaged_over(complete, policies)
    notes = [*repeated, *(note for policy in involved for note in check_policy(policy, complete))]
    n = claim.orders or 1
    special: list[Floats] = []

    def reference_of(one: PreparedRecording) -> list[Run]:
        run = _SPECIAL[str(reference_policy)](one, claim.metric)
        special.append(run.values[claim.metric])
        return [run]

    references = [] if isinstance(reference_policy, Policy) else mean_runs(prepared, n, claim.seed, reference_of)
    lost, n_orders_before = np.zeros((len(policies), prepared.n)), 0

    def add_losses(values: Floats) -> None:
        """Add what is lost in some orders: no order makes up for another."""
        nonlocal lost, n_orders_before
        orders = slice(n_orders_before, n_orders_before + values.shape[1])
        net = (np.stack(special[orders]) if special else values[len(policies)]) - values[: len(policies)]
        lost = lost + (net if claim.loss == "net" else np.maximum(net, 0.0)).sum(axis=1)
        n_orders_before = orders.stop

    rivals_of = [] if rivals_by is None else [*selectors_in_use(policies).values()]
    fixed = [fixed_policy(k, like) for like in rivals_of for k in range(1, prepared.highest + 1)]
    every, twins = run_all(
        prepared,
        [*involved, *fixed],
        n,
        claim.seed,
        kinds=["rule"] * len(involved) + ["fixed"] * len(fixed),
        twinned=() if rivals_by is None else range(len(policies)),
        each=add_losses,
    )
    runs, rivals = [*every[: len(involved)], *references], [*every[len(involved) :], *twins.values()]
    for run in runs:
        _check_run(run, claim, prepared)
    reference = runs[-1]
    hashes = [id_hash(question_id) for question_id in complete.question_ids]
    order = betting_order(hashes, claim.seed)
    # One row for each policy, and the last one for the baseline.
    values = np.stack([run.values[claim.metric] for run in runs])[:, order]
    costs = {name: np.stack([run.ledger.spent(name) for run in runs])[:, order] for name in COST_NAMES}
    notes += [order_note(n, claim.seed)] if n > 1 else []
    notes += [f"{run.label}: {note}" for run in runs for note in run.notes]
    notes += _loss_notes(complete, values[-1], claim, n_failed)
    return MeasuredLosses(
        losses=(lost / n)[:, order],
        values=values[:-1],
        costs={name: rows[:-1] for name, rows in costs.items()},
        baseline_values=values[-1],
        baseline_costs={name: rows[-1] for name, rows in costs.items()},
        baseline=reference.label,
        question_ids=tuple(hashes[place] for place in order.tolist()),
        n_failed=n_failed,
        notes=tuple(dict.fromkeys(notes)),
        rivals=() if rivals_by is None else _rivals(runs[:-1], rivals, claim.metric, rivals_by),
    )


def _rule_baseline(recording: Recording, rule: str, policies: Sequence[Policy]) -> Policy:
    """Return a rule as a baseline: its answers are selected as the policies' are, or the loss would be the selectors'.

    Raises:
        DataError: The policies have several selectors.
    """
    used = selectors_in_use(policies)
    if len(used) > 1:
        raise DataError(
            f"the baseline {rule!r} returns answers by the selector of the policies, and these have several: "
            f"{', '.join(used)}. Certify them one selector at a time, or name a policy file as the baseline"
        )
    return baseline_policy(recording, rule, policies[0])


def _rivals(runs: Sequence[Run], rivals: Sequence[Run], metric: str, cost: str) -> tuple[Rival, ...]:
    """Return what fixed budgets, and each policy's random twin, do for less."""
    fixed, twins = rivals[: len(rivals) - len(runs)], rivals[len(rivals) - len(runs) :]
    return tuple(find_rival(run, [*fixed, twin], (metric,), cost) for run, twin in zip(runs, twins, strict=True))


def betting_order(hashes: Sequence[str], seed: int) -> np.typing.NDArray[np.int64]:
    """Return the order in which the betting goes through questions: shuffled by the seed, whatever order they came in.

    >>> first, second = betting_order(["a", "b", "c"], 1), betting_order(["c", "b", "a"], 1)
    >>> ["abc"[place] for place in first] == ["cba"[place] for place in second]
    True
    """
    canonical = np.argsort(np.asarray(hashes), kind="stable")
    return np.asarray(np.random.default_rng(seed).permutation(canonical), dtype=np.int64)


def one_row_per_question(recording: Recording) -> tuple[Recording, tuple[str, ...]]:
    """Return the recording with the first row of each cluster and text only, and a note where that left rows out.

    Rows that repeat a question, under whatever id, are not independent, and a certificate counts independent questions.
    """
    clusters = np.array(dividing_names(recording), dtype=object)
    keep = np.zeros(len(clusters), dtype=np.bool_)
    keep[np.unique(clusters, return_index=True)[1]] = True
    if keep.all():
        return recording, ()
    note = f"{len(keep)} rows repeat {int(keep.sum())} questions, by cluster or text: the first row of each question counts, the others do not"
    return recording.select(keep), (note,)


def _check_run(run: Run, claim: Claim, prepared: PreparedRecording) -> None:
    metric = claim.metric
    if not run.exact:
        raise CensoredError(
            f"{run.label!r} goes on past what was recorded in {int(run.unrun.sum())} of {len(run.unrun)} "
            "questions, because a rule ended their recording: what it would lose there is unknown, and leaving those "
            "questions out would choose the easy ones. Record the certification questions at full width, without a rule"
        )
    unknown = np.isnan(run.values[metric])
    if unknown.any():
        q = int(np.argmax(unknown))
        raise DataError(
            f"{metric!r} was not measured where {run.label!r} stops in {int(unknown.sum())} of {len(unknown)} questions "
            f"(question {prepared.recording.question_ids[q]!r}): a certificate counts every question. Record answers and "
            "the metric at every round, or use another metric ('agreement' needs no gold answers)"
        )
    if claim.binary and not np.isin(run.values[metric], (0.0, 1.0)).all():
        raise DataError(
            f"the column {metric!r} has values between 0 and 1, and under this name it may only be 0 or 1, for which harm "
            "has a sharper test: give the column another name"
        )


def _loss_notes(recording: Recording, base: Floats, claim: Claim, n_failed: int) -> list[str]:
    notes = []
    if is_agreement(claim.metric):
        notes.append(agreement_note(recording))
    if n_failed:
        notes.append(
            f"{n_failed} questions failed while recording and are left out: the certificate does not cover such questions"
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
