"""All cases, and those that are known to be misread or not to be read, each with its reason: no other log may be."""

from __future__ import annotations

from benchmarks.readings import (
    graders,
    harnesses,
    items,
    loops,
    misled,
    misled_again,
    misled_thrice,
    numbered,
    plain,
    platforms,
    settled,
    trees,
)
from benchmarks.readings.cases import CASES

__all__ = [
    "CASES",
    "KNOWN",
    "NOT_READ",
    "graders",
    "harnesses",
    "items",
    "loops",
    "misled",
    "misled_again",
    "misled_thrice",
    "numbered",
    "plain",
    "platforms",
    "settled",
    "trees",
]

KNOWN: dict[str, str] = {}

NOT_READ: dict[str, str] = {}
