"""What each policy of a family loses against the baseline, question by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from suffice.common.tables import counted
from suffice.errors import CensoredError, ConfigMismatchError, DataError
from suffice.evaluation.replay import check_policy, dividing_names, outcome
from suffice.evaluation.replay.baselines import Run, closed_book, fixed_policy, oracle_best, oracle_earliest
from suffice.evaluation.replay.by_stop import run_all
from suffice.evaluation.replay.orders import mean_runs, n_orders, order_note, seed_of_names
from suffice.evaluation.replay.outcomes import agreement_note, choice_notes, is_agreement
from suffice.evaluation.replay.panels import best_single_note
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.references import baseline_policy, selectors_in_use
from suffice.evaluation.replay.rivals import Rival, find_rival
from suffice.evaluation.statistics import Units, hash_order, hoeffding_bentkus_p_value, net_p_value
from suffice.policy.rounds import Floats, Mask
from suffice.policy.seen import id_hash
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording

__all__ = ["BINARY_METRICS", "COST_NAMES", "Claim", "MeasuredLosses", "failed_text", "measure_losses"]

BINARY_METRICS = frozenset({"em", "contains", "agreement", "agreement_em"})
"""Metrics that can only be 0 or 1 by definition, as can a threshold on any metric, ``f1 > 0.5``."""

COST_NAMES = ("calls", "tokens", "retrievals")
"""The costs that a certified policy may save."""

Loss = Literal["net", "harm"]

_ORDER_SALT = "certify, order:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What to certify: the expected loss against the baseline is at most epsilon, with confidence.

    Attributes:
        epsilon: The largest expected loss, in the unit of the metric, in (0, 1).
        confidence: 1 - delta, in (0, 1): at most a share delta of all certification sets leads to a false certificate.
        metric: A column in [0, 1], or `agreement` (see `suffice.evaluation.replay.outcome`).
        loss: `net` is metric(baseline) - metric(policy), in [-1, 1]; `harm` is max(0, net), in [0, 1], which no gain
            on another question makes up for: its bound holds for `net` too.
        baseline: `full` for the whole budget or the text of another rule, both with the selector of the policies; a
            policy, `closed_book` or an oracle.
        orders: For independent samples, over how many random orders of its samples the loss of a question is averaged;
            None = 100, and for rounds that follow one another the recorded order.
        leave_out_failed: Leave out the questions whose recording failed, and say so; otherwise each counts as lost (a loss
            of 1), because it may have failed for what a policy would have changed.
        repeated: Whether rows repeat questions, whose loss is then a mean and not 0 or 1; `averaged_over` sets it.
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
        """Return the claim with what the loss of a question is averaged over on a recording: orders, and rows.

        Raises:
            DataError: A number of orders for rounds that have one, see `suffice.evaluation.replay.orders.n_orders`.
        """
        orders = n_orders(recording, self.orders, self.with_baseline(policies))
        repeated = len(set(dividing_names(recording))) < len(recording.question_ids)
        return replace(self, orders=orders if recording.exchangeable else None, repeated=repeated)

    def with_baseline(self, policies: Sequence[Policy]) -> list[Policy]:
        """Return policies, and the baseline if it is one."""
        return [*policies, *([self.baseline] if isinstance(self.baseline, Policy) else [])]

    @property
    def kind(self) -> str:
        """The loss in words."""
        return f"{'net loss' if self.loss == 'net' else 'harm'} of {self.metric}"

    @property
    def binary(self) -> bool:
        """Whether the harm can only be 0 or 1, by the definition of the metric; a mean over orders or rows is neither."""
        return self.orders is None and not self.repeated and (self.metric in BINARY_METRICS or ">" in self.metric)

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
        losses: Of the claim's kind, shape ``(n_policies, n_questions)``; 1 where the recording failed, a mean where rows
            repeat a question.
        values: The metric under each policy, shape ``(n_policies, n_recorded)``: failed questions have none.
        costs: Each of `COST_NAMES` under each policy, shape of `values`; NaN where unknown.
        baseline_values: The metric under the baseline, shape ``(n_recorded,)``.
        baseline_costs: Each of `COST_NAMES` under the baseline, shape ``(n_recorded,)``.
        baseline: Its name.
        question_ids: Hashes of the questions' ids, in the order of the losses; of repeated ones that of the first row.
        n_failed: Questions whose recording failed: each counts as lost, unless the claim leaves them out.
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
        claim: Metric, loss and baseline, and what becomes of failed questions.
        rivals_by: One of `COST_NAMES`: compare each policy with fixed budgets and its random twin by this cost, too.

    Raises:
        DataError: The metric is missing or leaves [0, 1], or is unknown where a policy stops.
        CensoredError: A policy or the baseline wanted rounds that a rule kept from being recorded.
        ConfigMismatchError: A policy belongs to another model, prompt or retriever than the recording.
        NotFittedError: A policy reads a calibrated signal and has no calibrator.
    """
    prepared = PreparedRecording.of(recording, [claim.metric], samples=True)
    complete = prepared.recording
    places = _Places.of(recording, leave_out_failed=claim.leave_out_failed)
    reference_policy = claim.baseline
    if isinstance(reference_policy, str) and reference_policy not in _SPECIAL:
        reference_policy = _rule_baseline(complete, reference_policy, policies)
    involved = [*policies, reference_policy] if isinstance(reference_policy, Policy) else list(policies)
    for policy in involved:
        policy.check()
    claim = claim.averaged_over(complete, policies)
    notes = [*places.repeated_notes, *(note for policy in involved for note in check_policy(policy, complete))]
    n, seed = claim.orders or 1, seed_of_names(complete)
    special: list[Floats] = []

    def reference_of(one: PreparedRecording) -> list[Run]:
        run = _SPECIAL[str(reference_policy)](one, claim.metric)
        special.append(run.values[claim.metric])
        return [run]

    references = [] if isinstance(reference_policy, Policy) else mean_runs(prepared, n, seed, reference_of)
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
        seed,
        kinds=["rule"] * len(involved) + ["fixed"] * len(fixed),
        twinned=() if rivals_by is None else range(len(policies)),
        each=add_losses,
    )
    runs, rivals = [*every[: len(involved)], *references], [*every[len(involved) :], *twins.values()]
    for run in runs:
        _check_run(run, claim, prepared)
    reference = runs[-1]
    # One row for each policy, and the last one for the baseline.
    values = places.recorded_means(np.stack([run.values[claim.metric] for run in runs]))
    costs = {name: places.recorded_means(np.stack([run.ledger.spent(name) for run in runs])) for name in COST_NAMES}
    notes += [order_note(n)] if n > 1 else []
    notes += [f"{run.label}: {note}" for run in runs for note in run.notes]
    notes += _loss_notes(complete, values[-1], claim, places.n_failed)
    return MeasuredLosses(
        losses=places.means(lost / n, failed=1.0),
        values=values[:-1],
        costs={name: rows[:-1] for name, rows in costs.items()},
        baseline_values=values[-1],
        baseline_costs={name: rows[-1] for name, rows in costs.items()},
        baseline=reference.label,
        question_ids=places.hashes,
        n_failed=places.n_failed,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """The questions in the order of betting: rows that repeat one, under whatever id, are one with their mean.

    The order is that of a hash of the questions' names, as in `decide`: the highest capital on the way counts, so neither
    the order of a file nor a seed may decide which losses come first.

    Attributes:
        kept: Which rows count and did not fail, shape ``(n_rows,)``.
        names: The question of each row.
        units: The questions of the rows.
        recorded: Those of the rows that did not fail.
        hashes: Hash of the id of each question's first row, in the order of betting.
        n_failed: Questions of which a row failed.
    """

    kept: Mask
    names: Sequence[str]
    units: Units
    recorded: Units
    hashes: tuple[str, ...]
    n_failed: int

    @classmethod
    def of(cls, recording: Recording, *, leave_out_failed: bool) -> _Places:
        """Return the places of the questions of a recording."""
        kept, names, ids = ~recording.failed, dividing_names(recording), recording.question_ids
        n_failed = len({name for name, counts in zip(names, kept, strict=True) if not counts})
        recorded = [name for name, counts in zip(names, kept, strict=True) if counts]
        if leave_out_failed:
            ids = [question_id for question_id, counts in zip(ids, kept, strict=True) if counts]
            names, kept = recorded, np.ones(len(recorded), dtype=np.bool_)
        first = dict(zip(reversed(names), reversed(ids), strict=True))
        hashes = [id_hash(first[name]) for name in dict.fromkeys(names)]
        return cls(
            kept=kept,
            names=names,
            units=Units.of(len(names), names),
            recorded=Units.of(len(recorded), recorded),
            hashes=tuple(hashes[place] for place in hash_order(names, salt=_ORDER_SALT).tolist()),
            n_failed=n_failed,
        )

    def means(self, rows: Floats, *, failed: float) -> Floats:
        """Return the mean of each question, of values of the rows that did not fail, and of `failed` for the others."""
        everywhere = np.full((*rows.shape[:-1], len(self.kept)), failed)
        everywhere[..., self.kept] = rows
        means: Floats = (self.units.sums(everywhere) / self.units.sizes)[..., hash_order(self.names, salt=_ORDER_SALT)]
        return means

    def recorded_means(self, rows: Floats) -> Floats:
        """Return the mean of each question with a row that did not fail, over these rows."""
        names = [name for name, counts in zip(self.names, self.kept, strict=True) if counts]
        means: Floats = (self.recorded.sums(rows) / self.recorded.sizes)[..., hash_order(names, salt=_ORDER_SALT)]
        return means

    @property
    def repeated_notes(self) -> list[str]:
        """A note where rows repeat questions."""
        if self.units.n_units == len(self.names):
            return []
        rows, questions = len(self.names), self.units.n_units
        return [
            f"{rows} rows repeat {questions} questions, by cluster or text: each counts once, with the mean of its rows"
        ]


def failed_text(n_failed: int, *, left_out: bool) -> str:
    """Return what becomes of failed questions, in words; empty without any.

    >>> failed_text(7, left_out=False), failed_text(1, left_out=True), failed_text(0, left_out=True)
    ('7 questions failed while recording and count as lost', '1 question failed while recording and is left out', '')
    """
    if not n_failed:
        return ""
    many = n_failed > 1
    what = ("are left out" if many else "is left out") if left_out else ("count as lost" if many else "counts as lost")
    return f"{counted(n_failed, 'question')} failed while recording and {what}"


def _check_run(run: Run, claim: Claim, prepared: PreparedRecording) -> None:
    metric = claim.metric
    if not run.exact:
        open_ends = prepared.recording.unexplained.any()
        why = "nothing says why they ended" if open_ends else "a rule ended their recording"
        said = ", or say how they ended when you import them (--ended exhausted, max_rounds)" if open_ends else ""
        raise CensoredError(
            f"{run.label!r} goes on past what was recorded in {int(run.unrun.sum())} of {len(run.unrun)} "
            f"questions, because {why}: what it would lose there is unknown, and leaving those "
            f"questions out would choose the easy ones. Record the certification questions at full width, without a rule{said}"
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
    if n_failed and claim.leave_out_failed:
        notes.append(
            f"{failed_text(n_failed, left_out=True)}, as declared: the certificate does not cover such questions"
        )
    elif n_failed:
        notes.append(
            f"{failed_text(n_failed, left_out=False)}, with a loss of 1 each; quality and costs are means over the others. If "
            "they failed by chance, complete the recording or leave them out (leave_out_failed=True, --leave-out-failed)"
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
