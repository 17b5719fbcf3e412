"""Rules, which are predicates over rounds, and selectors, which choose one of the rounds."""

from suffice.policy.rules.algebra import (
    FirstOf,
    KOf,
    Never,
    Patience,
    Threshold,
    WeightedSum,
    find_threshold,
    signal,
    thresholds,
    with_threshold,
)
from suffice.policy.rules.named import (
    NAMED_RULES,
    NamedRule,
    answer_stable,
    error_of_lead,
    fixed_k,
    margin,
    round_aware,
    tasr,
)
from suffice.policy.rules.parse import parse_rule, parse_selector, register_rule, register_selector
from suffice.policy.rules.ranker import Ranked, Term
from suffice.policy.rules.registered_selectors import Centroid, LongestRun, MajorityOfSamples
from suffice.policy.rules.rule import AllOf, AnyOf, Rule
from suffice.policy.rules.selectors import SELECTORS, Selector, last_of

__all__ = [
    "NAMED_RULES",
    "SELECTORS",
    "AllOf",
    "AnyOf",
    "Centroid",
    "FirstOf",
    "KOf",
    "LongestRun",
    "MajorityOfSamples",
    "NamedRule",
    "Never",
    "Patience",
    "Ranked",
    "Rule",
    "Selector",
    "Term",
    "Threshold",
    "WeightedSum",
    "answer_stable",
    "error_of_lead",
    "find_threshold",
    "fixed_k",
    "last_of",
    "margin",
    "parse_rule",
    "parse_selector",
    "register_rule",
    "register_selector",
    "round_aware",
    "signal",
    "tasr",
    "thresholds",
    "with_threshold",
]
