"""Search over families of rules, and how much of the best rule's lead is luck."""

from suffice.search.equivalent import equivalent_intervals
from suffice.search.explore import Distinct, Explorer
from suffice.search.files import read_space, space_from_dict
from suffice.search.optimism import Estimate, Optimism
from suffice.search.presets import PRESETS, available, preset
from suffice.search.result import Chosen, Named, SearchResult, search_tables, write_rules
from suffice.search.search import search, split
from suffice.search.space import FORMS, LARGEST, Block, Literal, Space
from suffice.search.thresholds import Locked, lock

__all__ = [
    "FORMS",
    "LARGEST",
    "PRESETS",
    "Block",
    "Chosen",
    "Distinct",
    "Estimate",
    "Explorer",
    "Literal",
    "Locked",
    "Named",
    "Optimism",
    "SearchResult",
    "Space",
    "available",
    "equivalent_intervals",
    "lock",
    "preset",
    "read_space",
    "search",
    "search_tables",
    "space_from_dict",
    "split",
    "write_rules",
]
