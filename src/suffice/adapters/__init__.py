"""Runs recorded elsewhere, and hosts that run our sessions."""

from __future__ import annotations

from suffice.adapters.base import ImportedRun, ImportedTrajectory
from suffice.adapters.debate import read_debate
from suffice.adapters.ircot import read_ircot
from suffice.adapters.reflexion import read_reflexion
from suffice.adapters.self_refine import read_self_refine
from suffice.adapters.tabular import read_tabular
from suffice.adapters.tasr import read_tasr

__all__ = [
    "ImportedRun",
    "ImportedTrajectory",
    "read_debate",
    "read_ircot",
    "read_reflexion",
    "read_self_refine",
    "read_tabular",
    "read_tasr",
]
