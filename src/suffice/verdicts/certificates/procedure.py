"""Certify the cheapest policy of a declared family whose expected loss is bounded with confidence."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import Any

import numpy as np

from suffice._version import __version__
from suffice.common.display import Chart
from suffice.common.results import Result, jsonable
from suffice.common.tables import Column, Table, figure
from suffice.errors import DataError
from suffice.evaluation.replay import seen_by, seen_from
from suffice.policy.rounds import Floats, Mask
from suffice.policy.rules import Rule
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.recordings.runs import refuse_several_loops
from suffice.verdicts.certificates.certificate import Certificate, family_chart, figures_text
from suffice.verdicts.certificates.family import Family, arranged, listed, refuse_used_questions
from suffice.verdicts.certificates.losses import COST_NAMES, Claim, MeasuredLosses, measure_losses
from suffice.verdicts.certificates.ltt import MOST_QUESTIONS, ProcedureName, level_of, questions_needed, rejected
from suffice.verdicts.losses import IF_INDEPENDENT, failed_text, open_text

_CLAIMED = ("epsilon", "confidence", "metric", "loss", "leave_out_failed")
"""Attributes of a claim that are stored in JSON unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The number of questions that certifying one more policy would take.

    Attributes:
        rule: The rule of that policy. In a fixed sequence it is the first policy that failed, otherwise the uncertified
            policy with the smallest p-value.
        p_value: The policy's p-value.
        loss: The policy's mean loss on the certification set.
        calls: The policy's mean calls on the certification set.
        questions: Approximate number of questions that would be enough in four of five cases, if losses stay
            distributed as observed; None if no number is enough, or more than `MOST_QUESTIONS` are needed.
    """

    rule: str
    p_value: float
    loss: float
    calls: float
    questions: int | None


@dataclass(frozen=True, kw_only=True)
class Certification(Result):
    """The result of a certification.

    Attributes:
        claim: The claim that was tested.
        family: The tested policies, in test order.
        procedure: The procedure by which several tests share delta.
        level: The largest p-value that still certifies a policy.
        p_values: The p-value of each policy, shape ``(n_policies,)``.
        reference: Hoeffding-Bentkus p-values. For net losses they are computed on (L + 1) / 2 and serve as a comparison
            only; for binary harm they equal `p_values`.
        certified: Mask of the certified policies, same shape.
        measured: Losses, values and calls on the certification set.
        policy: The cheapest certified policy with its certificate; None if no policy is certified.
        cheapest: The cost by which the policy was chosen, one of `COST_NAMES`.
    """

    claim: Claim
    family: Family
    procedure: ProcedureName
    level: float
    p_values: Floats
    reference: Floats
    certified: Mask
    measured: MeasuredLosses
    policy: Policy | None
    cheapest: str = "calls"

    @cached_property
    def need(self) -> Need | None:
        """The next policy to certify and the questions it would need, estimated at first access; None if all are certified."""
        if self.certified.all():
            return None
        # In a fixed sequence the first policy that failed, else the uncertified one with the smallest p-value.
        is_fixed = self.procedure == "fixed-sequence"
        place = int(np.argmin(self.certified if is_fixed else np.where(self.certified, np.inf, self.p_values)))
        member, losses = self.sequence[place], self.measured.losses[place]
        return Need(
            **{name: member[name] for name in ("rule", "p_value", "loss", "calls")},
            questions=questions_needed(losses, self.claim, self.level),
        )

    @property
    def certificate(self) -> Certificate | None:
        """The certificate of the chosen policy; None if no policy is certified."""
        return None if self.policy is None else Certificate.of(self.policy)

    @property
    def n(self) -> int:
        """Number of certification questions."""
        return len(self.measured.question_ids)

    @property
    def sequence(self) -> list[dict[str, Any]]:
        """One entry for each policy in test order: rule, p_value, certified, mean loss and mean calls."""
        losses, calls = _mean_by_policy(self.measured.losses), _mean_by_policy(self.measured.costs["calls"])
        return [
            {
                "rule": str(policy.rule),
                "p_value": float(self.p_values[place]),
                "certified": bool(self.certified[place]),
                "loss": losses[place],
                "calls": calls[place],
            }
            for place, policy in enumerate(self.family.policies)
        ]

    @property
    def headline(self) -> str:
        """The outcome, in one or two sentences."""
        certificate, claim = self.certificate, self.claim
        if self.policy is not None and certificate is not None:
            return (
                f"certified: {self.policy.rule!s}. {certificate.statement} (n = {self.n}, p = {certificate.p_value:.3g}, {IF_INDEPENDENT}). "
                f"Selected here: {figures_text(certificate.figures, claim.metric)}; "
                f"{self._rival_text(certificate.position)}.{self._open(certificate.position, ' ', '.')}"
            )
        return (
            f"not certifiable with n = {self.n} at eps = {claim.epsilon:g} ({claim.kind} against "
            f"{self.measured.baseline}, {100 * claim.confidence:g} % confidence); {self.missing}{self._failed}{self._open_of_next}"
        )

    def _open(self, place: int, before: str = "; ", after: str = "") -> str:
        """Return text on the unknown part of a policy's loss, enclosed by `before` and `after`; empty if nothing is unknown."""
        text = open_text(float(self.measured.open[place].mean()))
        return f"{before}{text}{after}" if text else ""

    @property
    def _open_of_next(self) -> str:
        """The unknown part of the first uncertified policy's loss, in words."""
        rules = [str(policy.rule) for policy in self.family.policies]
        return "" if self.need is None else self._open(rules.index(self.need.rule))

    @property
    def _failed(self) -> str:
        """Text on how failed questions are counted, to be appended after a semicolon; empty if none failed."""
        text = failed_text(self.measured.n_failed, left_out=self.claim.leave_out_failed)
        return f"; {text}" if text else ""

    @property
    def lead(self) -> str:
        """The headline."""
        return self.headline

    @property
    def dominated_by(self) -> str | None:
        """The name of the baseline that dominates the chosen policy on these questions; None if no baseline does.

        The baseline is a fixed budget, a mixture of two fixed budgets, or a random policy.
        """
        return None if self.certificate is None else self.measured.rivals[self.certificate.position].dominating

    def _rival_text(self, place: int) -> str:
        rival = self.measured.rivals[place]
        if rival.dominating is not None:
            return f"dominated by {rival.dominating}, which gives at least as much for no more {self.cheapest} here"
        if rival.undecided:
            does = "dominates it" if "dominated_by" in rival.undecided else f"has this {self.claim.metric} for less"
            return f"whether a fixed or random policy {does} here is unknown, because some rounds never ran"
        return f"cheapest fixed or random policy of at least this {self.claim.metric} here: {rival.match or 'none'}"

    @property
    def missing(self) -> str:
        """The questions that the next policy would need, in words; empty if all are certified."""
        need = self.need
        if need is None:
            return ""
        about = f"for {need.rule} ({figure(need.calls, '.2f')} calls, p = {need.p_value:.3g}, loss {figure(need.loss, '+.4f')})"
        if need.loss >= self.claim.epsilon:
            return f"no number of questions would do {about}: its estimated loss is not below epsilon"
        if need.questions is None:
            return f"more than {MOST_QUESTIONS:,} questions needed {about}: its estimated loss is close to epsilon"
        return f"about {need.questions:,} questions needed {about}"

    def plot(self) -> Chart:
        """Return the chart of the family: each policy's mean loss against its mean calls, with a line at epsilon."""
        chosen = None if self.certificate is None else self.certificate.position
        return family_chart(self.sequence, self.claim.epsilon, self.claim.kind, chosen)

    def table(self) -> Table:
        """Return a table of every policy of the family, in test order."""
        measured, claim, cheapest = self.measured, self.claim, self.cheapest
        chosen = None if self.certificate is None else self.certificate.position
        columns = {
            Column("policy"): [policy.label for policy in self.family.policies],
            Column("loss", "+.4f"): _mean_by_policy(measured.losses),
            Column("harmed", ".1f", scale=100): _mean_by_policy(measured.values < measured.baseline_values),
            Column(claim.metric, ".1f", scale=100): _mean_by_policy(measured.values),
            Column("calls", ".2f"): _mean_by_policy(measured.costs["calls"]),
            **({} if cheapest == "calls" else {Column(cheapest, ",.2f"): _mean_by_policy(measured.spent(cheapest)[0])}),
            Column("p", ".4f"): self.p_values.tolist(),
            Column("p (Hoeffding-Bentkus)", ".4f"): self.reference.tolist(),
            Column("certified"): [
                "chosen" if place == chosen else "yes" if certified else "no"
                for place, certified in enumerate(self.certified)
            ],
            Column("dominated by"): [
                rival.dominating or ("unknown" if "dominated_by" in rival.undecided else "-")
                for rival in measured.rivals
            ],
        }
        baseline = figure(measured.baseline_values.mean(), ".1f", 100)
        return Table(
            title=f"{claim.kind} against {measured.baseline} on {self.n} certification questions; "
            f"{self.procedure}, each p at most {self.level:.3g}",
            columns=tuple(columns),
            rows=tuple(zip(*columns.values(), strict=True)),
            notes=(
                "selected here: the figures of this table are of the certification questions themselves",
                f"{measured.baseline}: {baseline} at {figure(measured.baseline_costs['calls'].mean(), '.2f')} calls",
                self.family.text,
                *measured.notes,
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; if no policy is certified, `certificate` is None and `need` has the missing questions."""
        claim = {name: getattr(self.claim, name) for name in _CLAIMED}
        baseline = self.claim.baseline
        values = {
            "certified": self.certificate is not None,
            "headline": self.headline,
            "claim": {**claim, "baseline": baseline if isinstance(baseline, str) else self.measured.baseline},
            "n": self.n,
            "failed": self.measured.n_failed,
            "procedure": self.procedure,
            "level": self.level,
            "family": self.family.text,
            "sequence": [
                {
                    **member,
                    "cheapest_match": rival.match,
                    "dominated_by": rival.dominating,
                    "undecided": rival.undecided,
                }
                for member, rival in zip(self.sequence, self.measured.rivals, strict=True)
            ],
            "dominated_by": self.dominated_by,
            "reference_p_values": self.reference.tolist(),
            "need": self.need,
            "notes": self.measured.notes,
            "certificate": self.certificate,
        }
        return {name: jsonable(value) for name, value in values.items()}


def _mean_by_policy(rows: Floats | Mask) -> list[float]:
    return [float(row.mean()) for row in rows]


def certify(
    recording: Recording,
    family: Family | Sequence[Policy | Rule | str],
    claim: Claim,
    *,
    procedure: ProcedureName = "fixed-sequence",
    tune: Recording | None = None,
    cheapest: str = "calls",
) -> Certification:
    """Certify the cheapest policy of a declared family whose expected loss is at most epsilon.

    The claims for all certified policies hold jointly with the stated confidence, so the cheapest of them may be chosen
    by its mean cost on the certification set itself; ties go to the policy tested first.  The bound holds for this
    choice, but the reported savings are slightly optimistic ("selected here").

    >>> from suffice import Claim, certify
    >>> from suffice.recordings import bundled_recording
    >>> recording = bundled_recording("self_refine_gpt4")
    >>> claim = Claim(epsilon=0.03, metric="target_sentiment", leave_out_failed=True)
    >>> result = certify(recording, ["fixed_k(3)", "fixed_k(2)"], claim)
    >>> print(result.policy.rule)
    round >= 2

    Args:
        recording: Certification questions, recorded at full width and not used before.
        family: The policies in test order: a `Family`, or a list of policies or rules. A rule becomes a policy with the
            settings of the recording.
        claim: Loss, metric, baseline, epsilon and confidence.
        procedure: `fixed-sequence` or `bonferroni`.
        tune: Tune questions that arrange the family, see `arranged`; None = as declared.
        cheapest: The cost to choose by: `calls`, `tokens` or `retrievals`.

    Raises:
        ConfigMismatchError: Certification questions were used before, or policy and recording do not belong together.
        UnsettledError: The recording holds the loops of several models, prompts, temperatures or systems:
            `recording.where(model=...)` chooses one.
        CensoredError: A rule ended recorded questions before the baseline would have stopped.
        DataError: The metric is missing or leaves [0, 1], or the cost is unknown.
    """
    if cheapest not in COST_NAMES:
        raise DataError(f"unknown cost {cheapest!r}; allowed: {', '.join(COST_NAMES)}")
    if not isinstance(family, Family):
        family = listed(family, recording)
    refuse_several_loops(recording, tune)
    if tune is not None:
        family = arranged(family, tune, claim, cheapest)
    claim = claim.averaged_over(recording, family.policies)
    used = refuse_used_questions(family, claim, recording)
    measured = measure_losses(recording, family.policies, claim, rivals_by=cheapest)
    measured = replace(measured, notes=(*recording.reading_notes, *measured.notes, *used.notes))
    level = level_of(procedure, len(family.policies), claim.delta)
    p = claim.p_values(measured.losses, level)
    certified = rejected(p, claim.delta, procedure)
    costs = measured.spent(cheapest)[0].mean(axis=-1)
    result = Certification(
        claim=claim,
        family=family,
        procedure=procedure,
        level=level,
        p_values=p,
        reference=claim.reference_p_values(measured.losses),
        certified=certified,
        measured=measured,
        policy=None,
        cheapest=cheapest,
    )
    if not certified.any():
        return result
    position = int(np.argmin(np.where(certified, costs, np.inf)))
    member = family.policies[position]
    seen = reduce(or_, map(seen_by, claim.with_baseline(family.policies)), family.seen)
    provenance = {**member.provenance, **(seen.to_dict() if seen else {})}
    certificate = _issue(result, position, recording)
    return replace(result, policy=replace(member, provenance=provenance, certificate=certificate.to_dict()))


def _issue(result: Certification, position: int, recording: Recording) -> Certificate:
    measured, claim, seen = result.measured, result.claim, seen_from(recording)
    figures = {
        "loss": measured.losses[position],
        "value": measured.values[position],
        "baseline_value": measured.baseline_values,
    }
    for name in COST_NAMES:
        if name != "retrievals" or result.cheapest == name:  # the search is quick compared with the calls that it saves
            figures |= {name: measured.costs[name][position], f"baseline_{name}": measured.baseline_costs[name]}
    return Certificate(
        policy_digest=result.family.policies[position].digest,
        loss=claim.loss,
        metric=claim.metric,
        baseline=measured.baseline,
        epsilon=claim.epsilon,
        confidence=claim.confidence,
        method=claim.method,
        p_value=float(result.p_values[position]),
        level=result.level,
        procedure=result.procedure,
        family=result.family.text,
        family_size=len(result.family.policies),
        position=position,
        sequence=tuple(result.sequence),
        n=result.n,
        n_failed=measured.n_failed,
        leave_out_failed=claim.leave_out_failed,
        figures={name: jsonable(float(values.mean())) for name, values in figures.items()},
        data_hash=recording.data_hash,
        question_ids=tuple(sorted(seen.ids)),
        question_texts=tuple(sorted(seen.texts)),
        notes=measured.notes,
        versions=_versions(),
    )


def _versions() -> dict[str, str]:
    import scipy

    return {
        "suffice": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }
