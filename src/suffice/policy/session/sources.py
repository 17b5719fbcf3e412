"""Convert a caller's value to a policy; the value is a policy, a rule, the text of a rule, or a policy file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from suffice.errors import DataError, RuleSyntaxError
from suffice.policy.rounds import Rounds
from suffice.policy.rules import Rule
from suffice.policy.session.policy import Policy

PolicySource = Policy | Rule | str | Path
"""A policy, a rule or its text, or a policy file: a path, or text that ends in ``.json``."""


def as_policy(value: PolicySource) -> Policy:
    """Convert a value to a policy; the value is a policy, a rule, the text of a rule, or a policy file.

    Raises:
        DataError: The value is none of these four, or the policy file cannot be read.
        RuleSyntaxError: The text is neither a rule nor the name of a policy file.
    """
    if isinstance(value, Policy):
        return value
    if isinstance(value, Rule):
        return Policy(rule=value)
    if not isinstance(value, str | Path):
        raise DataError(f"a policy is a Policy, a rule or its text, or a policy file, not {value!r}")
    if not isinstance(value, str) or value.endswith(".json"):
        return Policy.load(value)
    try:
        return Policy(rule=value)
    except RuleSyntaxError as error:
        raise RuleSyntaxError(f"{error}. A policy file whose name does not end in .json: Policy.load(path)") from None


def is_rule(value: PolicySource) -> bool:
    """Return True if a value is only a rule or the text of a rule, without other settings of a policy."""
    return isinstance(value, Rule) or (isinstance(value, str) and not value.endswith(".json"))


_FAR = 10_000  # a rule's own cap is searched up to this round


def capped_policy(value: PolicySource) -> Policy:
    """Convert a value to a policy like `as_policy`; if the value is only a rule, the rule must contain a cap on the rounds.

    The cap is the first round at which the rule fires even if every signal except `round` is undefined.

    >>> capped_policy("answer_stable | (round >= 20)").max_rounds
    20

    Raises:
        DataError: The value is only a rule, and the rule contains no cap; or `as_policy` raises this error.
        RuleSyntaxError: The text is neither a rule nor the name of a policy file.
    """
    policy = as_policy(value)
    if not is_rule(value):
        return policy
    index = np.arange(1, _FAR + 1)
    unknown = dict.fromkeys(policy.rule.signals, np.full(_FAR, np.nan))
    fires = policy.rule.fires(Rounds({**unknown, "round": index.astype(float)}, index, np.ones(_FAR, dtype=bool)))
    if not fires.any():
        raise DataError(
            f"the rule '{policy.rule!s:.120}' may never fire, and no cap on the rounds is given: add one to the rule, "
            f"'({policy.rule!s:.120}) | (round >= 20)'; or give Policy(rule=..., max_rounds=20)"
        )
    return replace(policy, max_rounds=max(policy.max_rounds, int(index[fires][0])))


def shadow_policies(shadow: PolicySource | Iterable[PolicySource], deployed: Policy) -> dict[str, Policy]:
    """Return the shadow policies that decide beside a deployed policy, by label.

    A shadow that is only a rule gets all other settings, such as rounds, calibrators and selector, from the deployed
    policy.

    Raises:
        DataError: Two shadows have the same label, or one begins before the loop does.
        RuleSyntaxError: A text is neither a rule nor the name of a policy file.
    """
    values = [shadow] if isinstance(shadow, PolicySource) else list(shadow)
    policies = [
        replace(deployed, rule=as_policy(value).rule, name="", provenance={}, certificate=None)
        if is_rule(value)
        else as_policy(value)
        for value in values
    ]
    by_label = {policy.label: policy for policy in policies}
    if len(by_label) < len(policies):
        labels = [policy.label for policy in policies]
        twice = next(label for label in labels if labels.count(label) > 1)
        raise DataError(f"two shadow policies are called {twice!r}: name them, Policy(rule=..., name=...)")
    early = next((label for label, policy in by_label.items() if policy.start_round < deployed.start_round), None)
    if early is not None:
        raise DataError(
            f"the shadow policy {early!r} starts at round {by_label[early].start_round}, and the loop of "
            f"{deployed.label!r} at round {deployed.start_round}: it would lack its first round"
        )
    return by_label
