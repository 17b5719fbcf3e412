"""Runs recorded elsewhere, and question sets published elsewhere."""

from __future__ import annotations

from suffice.adapters.base import ImportedRun, ImportedTrajectory
from suffice.adapters.converting import Conversion, convert_questions
from suffice.adapters.corpora import CorpusConversion, convert_corpus
from suffice.adapters.importers import importer, importer_names, kind_of, register_importer
from suffice.adapters.importing import ImportSummary, import_recording
from suffice.adapters.question_sets import open_source
from suffice.adapters.tabular import read_tabular

__all__ = [
    "Conversion",
    "CorpusConversion",
    "ImportSummary",
    "ImportedRun",
    "ImportedTrajectory",
    "convert_corpus",
    "convert_questions",
    "import_recording",
    "importer",
    "importer_names",
    "kind_of",
    "open_source",
    "read_tabular",
    "register_importer",
]
