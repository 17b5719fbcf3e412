"""Search over families of rules, and how much of the best rule's lead is luck."""

from suffice.searches.engine import search, split
from suffice.searches.equivalent import equivalent_intervals
from suffice.searches.explore import Distinct, Explorer
from suffice.searches.files import read_space, space_from_dict
from suffice.searches.optimism import Optimism, RuleEstimate
from suffice.searches.presets import PRESETS, available, preset
from suffice.searches.result import Chosen, Named, SearchResult, write_rules
from suffice.searches.space import FORMS, MOST_RULES, Block, Literal, Space
from suffice.searches.thresholds import Locked, lock

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
    "lock",
    "preset",
    "read_space",
    "search",
    "space_from_dict",
    "split",
    "write_rules",
]
