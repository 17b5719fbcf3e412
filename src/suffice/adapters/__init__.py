"""Runs recorded elsewhere, and hosts that run our sessions."""

from __future__ import annotations

from suffice.adapters.base import ImportedRun, ImportedTrajectory
from suffice.adapters.importers import importer, importer_names, kind_of, register_importer
from suffice.adapters.importing import ImportSummary, import_recording
from suffice.adapters.tabular import read_tabular

__all__ = [
    "ImportSummary",
    "ImportedRun",
    "ImportedTrajectory",
    "import_recording",
    "importer",
    "importer_names",
    "kind_of",
    "read_tabular",
    "register_importer",
]
