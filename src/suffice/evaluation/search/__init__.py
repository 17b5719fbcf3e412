"""Search over families of rules, and estimate how much of the best rule's lead is luck."""

from suffice.evaluation.search.engine import search
from suffice.evaluation.search.equivalent import equivalent_intervals
from suffice.evaluation.search.explore import Distinct, Explorer
from suffice.evaluation.search.optimism import Optimism, RuleEstimate
from suffice.evaluation.search.result import Chosen, Named, SearchResult, write_rules
from suffice.evaluation.search.space import (
    FORMS,
    MOST_RULES,
    PRESETS,
    Block,
    Literal,
    Space,
    available,
    preset,
    read_space,
    space_from_dict,
)
from suffice.evaluation.search.thresholds import Locked

__all__ = [
    "FORMS",
    "MOST_RULES",
    "PRESETS",
    "Block",
    "Chosen",
    "Distinct",
    "Explorer",
    "Literal",
    "Locked",
    "Named",
    "Optimism",
    "RuleEstimate",
    "SearchResult",
    "Space",
    "available",
    "equivalent_intervals",
    "preset",
    "read_space",
    "search",
    "space_from_dict",
    "write_rules",
]
