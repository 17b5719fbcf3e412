"""Certify: the cheapest policy of a declared family whose expected loss is bounded with confidence."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from suffice._version import __version__
from suffice.certificates.certificate import Certificate, figures_text
from suffice.certificates.family import Family, arranged, check_disjoint, listed
from suffice.certificates.losses import COST_NAMES, Claim, MeasuredLosses, measure
from suffice.certificates.ltt import MOST_QUESTIONS, Procedure, level_of, questions_needed, rejected
from suffice.errors import DataError
from suffice.replays import seen_by, seen_from
from suffice.results import Result
from suffice.rounds import Floats, Mask
from suffice.rules import Rule
from suffice.session import Policy
from suffice.store.recording import Recording
from suffice.tables import Column, Table, figure

__all__ = ["Certification", "Need", "certify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What it would take to certify one more policy.

    Attributes:
        rule: The policy in question: the first that failed in a fixed sequence, the nearest to its level otherwise.
        p_value: What it reached.
        loss: Its mean loss on the certification set.
        calls: Its mean calls there.
        questions: About how many questions would do, four times in five, if losses stay distributed as observed; None
            if no number would, or too many.
    """

    rule: str
    p_value: float
    loss: float
    calls: float
    questions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Certification(Result):
    """What a certification run found.

    Attributes:
        claim: What was to be shown.
        family: What was tested, in this order.
        procedure: How several tests share delta.
        level: What each p-value had to reach.
        p_values: Of each policy, shape ``(n_policies,)``.
        reference: For net losses the p-values of Hoeffding-Bentkus on (L + 1) / 2, for comparison only; for harm the
            same as `p_values`.
        certified: Which policies are certified, same shape.
        measured: Losses, values and calls on the certification set.
        cheapest: What the chosen policy is the cheapest in.
        policy: The cheapest certified policy with its certificate; None if there is none.
        need: What the next policy lacks; None if all are certified.
    """

    claim: Claim
    family: Family
    procedure: Procedure
    level: float
    p_values: Floats
    reference: Floats
    certified: Mask
    measured: MeasuredLosses
    policy: Policy | None
    need: Need | None
    cheapest: str = "calls"

    @property
    def certificate(self) -> Certificate | None:
        """The certificate of the chosen policy; None if there is none."""
        return None if self.policy is None else Certificate.of(self.policy)

    @property
    def n(self) -> int:
        """Certification questions."""
        return len(self.measured.question_ids)

    @property
    def headline(self) -> str:
        """The outcome, in one or two sentences."""
        certificate, claim = self.certificate, self.claim
        if certificate is not None and self.policy is not None:
            chosen = f"certified: {self.policy.rule!s}. {certificate.statement} (n = {self.n}, p = {certificate.p_value:.3g})."
            return (
                f"{chosen} Selected here: {figures_text(certificate.figures, claim.metric)}; "
                f"{self._rival_text(certificate.position)}."
            )
        assert self.need is not None
        return (
            f"not certifiable with n = {self.n} at eps = {claim.epsilon:g} ({claim.kind} against "
            f"{self.measured.baseline}, {100 * claim.confidence:g} % confidence); {self.missing}"
        )

    @property
    def lead(self) -> str:
        """The headline."""
        return self.headline

    @property
    def dominated_by(self) -> str | None:
        """The fixed_k or random policy that dominates the chosen one on the certification questions; None if none does."""
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
        """What the next policy lacks, in words; empty if all are certified."""
        need = self.need
        if need is None:
            return ""
        about = f"for {need.rule} ({figure(need.calls, '.2f')} calls, p = {need.p_value:.3g}, loss {figure(need.loss, '+.4f')})"
        if need.loss >= self.claim.epsilon:
            return f"no number of questions would do {about}: its estimated loss is not below epsilon"
        if need.questions is None:
            return f"more than {MOST_QUESTIONS:,} questions needed {about}: its estimated loss is close to epsilon"
        return f"about {need.questions:,} questions needed {about}"

    def table(self) -> Table:
        """Return every policy of the family in test order."""
        measured, claim = self.measured, self.claim
        chosen = self.certificate.position if self.certificate is not None else -1
        columns = (
            Column("policy"),
            Column("loss", "+.4f"),
            Column("harmed", ".1f", scale=100),
            Column(claim.metric, ".1f", scale=100),
            Column("calls", ".2f"),
            *([] if self.cheapest == "calls" else [Column(self.cheapest, ",.2f")]),
            Column("p", ".4f"),
            Column("p (Hoeffding-Bentkus)", ".4f"),
            Column("certified"),
            Column("dominated by"),
        )
        rows = tuple(
            (
                policy.label,
                float(measured.losses[place].mean()),
                float((measured.values[place] < measured.baseline_values).mean()),
                float(measured.values[place].mean()),
                float(measured.calls[place].mean()),
                *([] if self.cheapest == "calls" else [float(measured.spent(self.cheapest)[0][place].mean())]),
                float(self.p_values[place]),
                float(self.reference[place]),
                "chosen" if place == chosen else "yes" if self.certified[place] else "no",
                measured.rivals[place].dominating
                or ("unknown" if "dominated_by" in measured.rivals[place].undecided else "-"),
            )
            for place, policy in enumerate(self.family.policies)
        )
        title = (
            f"{claim.kind} against {measured.baseline} on {self.n} certification questions; "
            f"{self.procedure}, each p at most {self.level:.3g}"
        )
        return Table(title=title, columns=columns, rows=rows, notes=self._notes())

    def _notes(self) -> tuple[str, ...]:
        base = self.measured
        told = (
            "selected here: the figures of this table are of the certification questions themselves",
            f"{base.baseline}: {figure(base.baseline_values.mean(), '.1f', 100)} at {figure(base.baseline_calls.mean(), '.2f')} calls",
            self.family.text,
        )
        return told + base.notes

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; without a certificate `certificate` is None and `need` says why."""
        certificate = self.certificate
        baseline = self.claim.baseline
        return {
            "certified": certificate is not None,
            "headline": self.headline,
            "claim": {
                **{name: getattr(self.claim, name) for name in ("epsilon", "confidence", "metric", "loss", "seed")},
                "baseline": baseline if isinstance(baseline, str) else self.measured.baseline,
            },
            "n": self.n,
            "procedure": self.procedure,
            "level": self.level,
            "family": self.family.text,
            "sequence": [
                {
                    **member,
                    "cheapest_match": rival.match,
                    "dominated_by": rival.dominating,
                    "undecided": list(rival.undecided),
                }
                for member, rival in zip(
                    sequence_of(self.family, self.measured, self.p_values, self.certified),
                    self.measured.rivals,
                    strict=True,
                )
            ],
            "dominated_by": self.dominated_by,
            "reference_p_values": self.reference.tolist(),
            "need": None if self.need is None else {n: getattr(self.need, n) for n in Need.__slots__},
            "notes": list(self.measured.notes),
            "certificate": None if certificate is None else certificate.to_dict(),
        }


def certify(
    recording: Recording,
    family: Family | Sequence[Policy | Rule | str],
    claim: Claim,
    *,
    procedure: Procedure = "fixed-sequence",
    tune: Recording | None = None,
    cheapest: str = "calls",
) -> Certification:
    """Certify, among a declared family, the cheapest policy whose expected loss is at most epsilon.

    All certified policies hold together with the stated confidence, so the cheapest of them is chosen by its mean cost
    on the certification set itself; ties go to the one tested first.  The figures of the chosen one are then
    "selected here": the bound holds, the savings flatter a little.

    >>> from suffice import Claim, certify
    >>> from suffice.store import bundled_recording
    >>> recording = bundled_recording("self_refine_gpt4")
    >>> result = certify(recording, ["fixed_k(3)", "fixed_k(2)"], Claim(epsilon=0.03, metric="target_sentiment"))
    >>> print(result.policy.rule)
    round >= 2

    Args:
        recording: Certification questions, recorded at full width and used for nothing before.
        family: What is tested, in which order; a list of policies, or of rules with the recording's own settings, will do.
        claim: Loss, metric, baseline, epsilon and confidence.
        procedure: `fixed-sequence` or `bonferroni`.
        tune: Tune questions that arrange the family, see `arranged`; None = as declared.
        cheapest: What is cheap: `calls`, `tokens` or `retrievals`.

    Raises:
        ConfigMismatchError: Certification questions were used before, or policy and recording do not belong together.
        CensoredError: A rule ended recorded questions before a policy would have.
        DataError: The metric is missing, leaves [0, 1], or is unknown where a policy stops; an unknown cost.
    """
    if cheapest not in COST_NAMES:
        raise DataError(f"{cheapest!r} is nothing to be cheap in; allowed: {', '.join(COST_NAMES)}")
    if not isinstance(family, Family):
        family = listed(family, recording)
    if tune is not None:
        family = arranged(family, tune, claim, cheapest)
    selected = check_disjoint(family, claim, recording)
    measured = measure(recording, family.policies, claim, rivals_by=cheapest)
    measured = replace(measured, notes=(*measured.notes, *selected.notes))
    level = level_of(procedure, len(family.policies), claim.delta)
    p = claim.p_values(measured.losses, level)
    certified = rejected(p, claim.delta, procedure)
    costs = measured.spent(cheapest)[0].mean(axis=-1)
    found = Certification(
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
        need=_need(family, measured, p, certified, claim=claim, procedure=procedure),
    )
    if not certified.any():
        return found
    position = int(np.argmin(np.where(certified, costs, np.inf)))
    certificate = _certificate(found, position, recording)
    member = family.policies[position]
    involved = [*family.policies, *([claim.baseline] if isinstance(claim.baseline, Policy) else [])]
    seen = reduce(or_, map(seen_by, involved), family.seen)
    provenance = {**member.provenance, **(seen.to_dict() if seen else {})}
    return replace(found, policy=replace(member, provenance=provenance, certificate=certificate.to_dict()))


def sequence_of(family: Family, measured: MeasuredLosses, p: Floats, certified: Mask) -> list[dict[str, Any]]:
    """Return the family in test order, JSON-ready."""
    return [
        {
            "rule": str(policy.rule),
            "p_value": float(p[place]),
            "certified": bool(certified[place]),
            "loss": float(measured.losses[place].mean()),
            "calls": float(measured.calls[place].mean()),
        }
        for place, policy in enumerate(family.policies)
    ]


def _need(
    family: Family, measured: MeasuredLosses, p: Floats, certified: Mask, *, claim: Claim, procedure: Procedure
) -> Need | None:
    """Return what the first policy that failed lacks; without an order, the one with the smallest p-value."""
    if certified.all():
        return None
    in_order = procedure == "fixed-sequence"
    place = int(np.argmin(certified) if in_order else np.argmin(np.where(certified, np.inf, p)))
    level = level_of(procedure, len(p), claim.delta)
    losses = measured.losses[place]
    return Need(
        rule=str(family.policies[place].rule),
        p_value=float(p[place]),
        loss=float(losses.mean()),
        calls=float(measured.calls[place].mean()),
        questions=questions_needed(losses, claim, level, rng=claim.seed),
    )


def _certificate(found: Certification, position: int, recording: Recording) -> Certificate:
    measured, claim = found.measured, found.claim
    figures = {
        "loss": measured.losses[position],
        "value": measured.values[position],
        "baseline_value": measured.baseline_values,
        "calls": measured.calls[position],
        "baseline_calls": measured.baseline_calls,
        "tokens": measured.tokens[position],
        "baseline_tokens": measured.baseline_tokens,
    }
    if found.cheapest == "retrievals":  # elsewhere a search is cheap beside the calls, and no part of the claim
        figures |= {"retrievals": measured.retrievals[position], "baseline_retrievals": measured.baseline_retrievals}
    means = {name: float(values.mean()) for name, values in figures.items()}
    return Certificate(
        policy_digest=found.family.policies[position].digest,
        loss=claim.loss,
        metric=claim.metric,
        baseline=measured.baseline,
        epsilon=claim.epsilon,
        confidence=claim.confidence,
        method=claim.method,
        p_value=float(found.p_values[position]),
        level=found.level,
        procedure=found.procedure,
        family=found.family.text,
        family_size=len(found.family.policies),
        position=position,
        sequence=tuple(sequence_of(found.family, measured, found.p_values, found.certified)),
        n=found.n,
        n_failed=measured.n_failed,
        seed=claim.seed,
        figures={name: None if math.isnan(value) else value for name, value in means.items()},
        data_hash=recording.data_hash,
        question_ids=tuple(sorted(measured.question_ids)),
        question_texts=tuple(sorted(seen_from(recording).texts)),
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
