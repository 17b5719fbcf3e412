"""All cases, and those that are known to be misread or not to be read, each with its reason: no other log may be."""

from __future__ import annotations

from benchmarks.readings import (
    agents,
    answer_forms,
    asked_again,
    files_and_speakers,
    graders,
    harnesses,
    items,
    left_over,
    loops,
    misled,
    misled_again,
    misled_by_order,
    misled_by_roles,
    misled_eleventh,
    misled_fifth,
    misled_ninth,
    misled_seventh,
    misled_sixth,
    misled_tenth,
    misled_thrice,
    misled_twelfth,
    numbered,
    plain,
    platforms,
    settled,
    spellings,
    thoughts,
    trees,
)
from benchmarks.readings.cases import CASES

__all__ = [
    "CASES",
    "KNOWN",
    "NOT_READ",
    "agents",
    "answer_forms",
    "asked_again",
    "files_and_speakers",
    "graders",
    "harnesses",
    "items",
    "left_over",
    "loops",
    "misled",
    "misled_again",
    "misled_by_order",
    "misled_by_roles",
    "misled_eleventh",
    "misled_fifth",
    "misled_ninth",
    "misled_seventh",
    "misled_sixth",
    "misled_tenth",
    "misled_thrice",
    "misled_twelfth",
    "numbered",
    "plain",
    "platforms",
    "settled",
    "spellings",
    "thoughts",
    "trees",
]

KNOWN: dict[str, str] = {}

NOT_READ: dict[str, str] = {}
