"""Find the thresholds inside a rule, and replace their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from suffice.errors import RuleSyntaxError
from suffice.policy.rules.algebra import Threshold
from suffice.policy.rules.rule import Rule, inner_rules


def thresholds(rule: Rule) -> tuple[Threshold, ...]:
    """Return the different thresholds of a rule, in the order of its text.

    >>> from suffice.policy.rules import tasr
    >>> [str(threshold) for threshold in thresholds(tasr())]
    ['answer_stable >= 1', 'p_correct > 0.25']
    """
    if isinstance(rule, Threshold):
        return (rule,)
    members = [member for inner in inner_rules(rule).values() for member in inner]
    return tuple(dict.fromkeys(threshold for member in members for threshold in thresholds(member)))


def find_threshold(rule: Rule, signal: str) -> Threshold:
    """Return the only threshold of a rule on `signal`.

    Raises:
        RuleSyntaxError: The rule has no threshold on the signal, or more than one.
    """
    matches = [threshold for threshold in thresholds(rule) if threshold.name == signal]
    if len(matches) != 1:
        have = ", ".join(map(str, thresholds(rule))) or "none"
        raise RuleSyntaxError(f"{rule!s} has {len(matches)} thresholds on {signal!r}, one is needed; it has: {have}")
    return matches[0]


def with_threshold(rule: Rule, threshold: Threshold, value: float) -> Rule:
    """Return the rule with another number in `threshold`, wherever the threshold occurs.

    >>> from suffice.policy.rules import tasr
    >>> print(with_threshold(tasr(), find_threshold(tasr(), "p_correct"), 0.5))
    (answer_stable >= 1) & (p_correct > 0.5)

    Args:
        rule: Any rule.
        threshold: One of `thresholds(rule)`.
        value: The new number, finite.

    Raises:
        RuleSyntaxError: The value is not finite.
    """
    return substitute(rule, threshold, replace(threshold, value=value))


def substitute(rule: Rule, threshold: Threshold, other: Rule) -> Rule:
    """Return the rule with `threshold` replaced by another rule, wherever the threshold occurs."""
    if rule == threshold:
        return other
    inner = inner_rules(rule)
    if not inner:
        return rule
    changes: dict[str, Any] = {}
    for name, members in inner.items():
        changed = tuple(substitute(member, threshold, other) for member in members)
        changes[name] = changed if isinstance(getattr(rule, name), tuple) else changed[0]
    rebuild: Any = replace  # a rule with fields is a dataclass
    rebuilt: Rule = rebuild(rule, **changes)
    return rebuilt
