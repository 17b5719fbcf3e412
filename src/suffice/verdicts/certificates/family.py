"""A declared family of policies in test order, fixed before anybody looks at the certification set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import Selected, even_thresholds, policy_for, reads_round_0, seen_from, selected_on
from suffice.policy.rounds import Floats
from suffice.policy.rules import Rule, find_threshold, parse_rule, with_threshold
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.verdicts.certificates.losses import Claim, MeasuredLosses, measure_losses


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Policies in test order.

    Attributes:
        policies: The policies, at least one.
        kind: `path` if the policies differ in one threshold, from conservative to cheap; otherwise `list`.
        text: A description of the family and of its order, for the certificate.
        seen: The tune questions that determined the order.
    """

    policies: tuple[Policy, ...]
    kind: Literal["path", "list"]
    text: str
    seen: Seen = field(default_factory=Seen)

    def __post_init__(self) -> None:
        if not self.policies:
            raise DataError("no policies in the family: name at least one rule, or a path of thresholds")


def threshold_path(policy: Policy, signal: str, values: Iterable[float]) -> Family:
    """Return the family of one policy with different thresholds on a signal, from conservative to cheap.

    A rule whose threshold is easier to reach stops earlier, so the order is known without data.

    >>> from suffice.policy.rules import tasr
    >>> path = threshold_path(Policy(rule=tasr()), "p_correct", [0.25, 0.75, 0.5])
    >>> [member.label for member in path.policies][:2]
    ['(answer_stable >= 1) & (p_correct > 0.75)', '(answer_stable >= 1) & (p_correct > 0.5)']

    Args:
        policy: The policy that is varied; its calibrators stay unchanged.
        signal: The signal; the rule has exactly one threshold on it, which is varied.
        values: The thresholds, finite, in any order.

    Raises:
        RuleSyntaxError: The rule has no threshold on the signal or several, or a value is not finite.
        DataError: There are no values.
    """
    literal = find_threshold(policy.rule, signal)
    downwards = literal.comparison in (">", ">=")
    ordered = sorted(set(map(float, values)), reverse=downwards)
    if not ordered:
        raise DataError(f"no values for the threshold of {signal!r}: it is defined nowhere on the tune questions")
    members = tuple(replace(policy, rule=with_threshold(policy.rule, literal, value), name="") for value in ordered)
    text = (
        f"{len(members)} thresholds of {signal!r} in {policy.rule!s}, from {ordered[0]:g} (conservative) to "
        f"{ordered[-1]:g} (cheap)"
    )
    return Family(policies=members, kind="path", text=text)


def path_values(policy: Policy, signal: str, tune: Recording, n: int = 40) -> Floats:
    """Return evenly spaced thresholds over the values of a signal on tune questions.

    The thresholds are rounded to four digits, as in TASR's repository.

    Args:
        policy: The policy, whose calibrators compute the signal.
        signal: A signal that its rule reads.
        tune: Recorded tune questions.
        n: Number of thresholds.

    Raises:
        RuleSyntaxError: The rule has no threshold on the signal, or several.
        UnknownSignalError: The signal was not recorded.
    """
    find_threshold(policy.rule, signal)
    view = policy.view(tune.rounds(policy.raw_columns))
    spaced = even_thresholds(np.where(view.seen, view[signal], np.nan), n)
    return np.unique([float(f"{value:.4g}") for value in spaced.tolist()])


def listed(
    policies: Sequence[Policy | Rule | str], base: Policy | Recording, *, start_round: int | None = None
) -> Family:
    """Return a family from an explicit list, tested in the given order unless `arranged` reorders it by tune questions.

    Args:
        policies: Policies, rules, or texts of rules.
        base: Completes each rule to a policy. A recording does so by `policy_for`. A policy lends its calibrators,
            rounds and selector, but the new policy starts at round 0 if its rule reads a signal that is only known
            there (`p_known`).
        start_round: First round of the rules; None = as `base` says.

    Raises:
        RuleSyntaxError: Text is not a rule.
        DataError: There are no policies, or a policy is given twice.
    """
    members = [item if isinstance(item, Policy) else _completed(item, base, start_round) for item in policies]
    digests = [member.digest for member in members]
    if len(set(digests)) < len(digests):
        twice = next(m.label for place, m in enumerate(members) if digests[place] in digests[:place])
        raise DataError(f"the family has {twice!r} twice: each policy is tested once")
    text = f"{len(members)} listed policies, in the order of the list"
    return Family(policies=tuple(members), kind="list", text=text)


def _completed(item: Rule | str, base: Policy | Recording, start_round: int | None) -> Policy:
    rule = parse_rule(item) if isinstance(item, str) else item
    name = item if isinstance(item, str) and item != str(rule) else ""
    if isinstance(base, Recording):
        return policy_for(base, rule, name=name, **({} if start_round is None else {"start_round": start_round}))
    start = 0 if reads_round_0(rule) else base.start_round
    return replace(base, rule=rule, name=name, start_round=start if start_round is None else start_round)


def arranged(family: Family, tune: Recording, claim: Claim, cheapest: str = "calls") -> Family:
    """Drop the policies that are idle on tune questions; order a family of kind `list` by p-values on tune questions.

    A policy is idle if it saves none of the cost `cheapest` compared with the baseline, or if it behaves like an
    earlier policy on every tune question.  A fixed sequence has more power if the most certain policies are tested
    first ("Learn then test", split fixed sequence).  Reordering by tune questions is allowed because the certificate is
    based on other questions.

    Args:
        family: The declared family.
        tune: Recorded tune questions, disjoint from the certification set.
        claim: The claim to certify.
        cheapest: The cost to save: `calls`, `tokens` or `retrievals`.

    Raises:
        DataError: No policy saves any of this cost on the tune questions.
    """
    claim = claim.averaged_over(tune, family.policies)
    measured = measure_losses(tune, family.policies, claim)
    places = _useful(measured, cheapest)
    if not places:
        raise DataError(
            f"no policy of the family saves {cheapest} against {measured.baseline!r} on the tune questions: move the "
            "thresholds, or name cheaper rules"
        )
    text = family.text
    if family.kind == "list":
        p = claim.p_values(measured.losses, claim.delta)
        places.sort(key=lambda place: (p[place], -measured.costs["calls"][place].mean()))
        text = f"{len(family.policies)} listed policies, in the order of their p-values on tune questions"
    if len(places) < len(family.policies):
        text += f"; {len(places)} of them differ on the tune questions and save {cheapest} there"
    seen = family.seen | seen_from(tune)
    return replace(family, policies=tuple(family.policies[place] for place in places), text=text, seen=seen)


def _useful(measured: MeasuredLosses, cheapest: str) -> list[int]:
    """Return the positions of the policies that save cost.

    A policy that acts on every question like an earlier policy is left out.
    """
    spent, baseline = measured.spent(cheapest)
    saving = [place for place, costs in enumerate(spent) if costs.mean() < baseline.mean()]
    first = {(measured.values[place].tobytes(), spent[place].tobytes()): place for place in reversed(saving)}
    return sorted(first.values())


def refuse_used_questions(family: Family, claim: Claim, recording: Recording) -> Selected:
    """Raise if a certification question was already used; return the checked questions.

    A question was used if the family, the baseline or a recorded model was fitted or chosen on it.
    """
    involved = claim.with_baseline(family.policies)
    for policy in involved:
        if (policy.calibrators or policy.state) and not policy.provenance.get("tune_ids"):
            raise ConfigMismatchError(
                f"the policy {policy.label!r} has fitted state and does not name the questions it was fitted on (provenance "
                "'tune_ids'), so they cannot be compared with the certification questions. Fit it with `suffice calibrate`"
            )
    selected = selected_on(involved, recording, {"the order of the family": family.seen} if family.seen else None)
    if selected.n:
        raise ConfigMismatchError(
            f"{selected.n} of the {len(recording.question_ids)} certification questions were used before, by id or text: "
            f"{selected.parts}. A certificate needs questions that nothing was fitted or chosen on. Record another set"
        )
    return selected
