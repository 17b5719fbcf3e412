"""Runs recorded elsewhere, and hosts that run our sessions."""

from __future__ import annotations

from suffice.adapters.base import ImportedRun, ImportedTrajectory
from suffice.adapters.importers import importer, importer_names
from suffice.adapters.tabular import read_tabular

__all__ = [
    "ImportedRun",
    "ImportedTrajectory",
    "importer",
    "importer_names",
    "read_tabular",
]
