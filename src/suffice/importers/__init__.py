"""Logs that somebody else recorded, and question sets as published, as recordings and questions.

Files enter in the shapes that people have; a recording leaves, with how each column was read.  An importer of one's own is one
function, registered by name.
"""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.importers.base import ImportedRun, ImportedTrajectory
    from suffice.importers.converting import Conversion, convert_questions
    from suffice.importers.importers import importer, importer_names, kind_of, register_importer
    from suffice.importers.importing import ImportSummary, import_recording
    from suffice.importers.question_sets import open_source
    from suffice.importers.tabular import read_tabular

_LAZY = {
    "Conversion": "suffice.importers.converting",
    "ImportSummary": "suffice.importers.importing",
    "ImportedRun": "suffice.importers.base",
    "ImportedTrajectory": "suffice.importers.base",
    "convert_questions": "suffice.importers.converting",
    "import_recording": "suffice.importers.importing",
    "importer": "suffice.importers.importers",
    "importer_names": "suffice.importers.importers",
    "kind_of": "suffice.importers.importers",
    "open_source": "suffice.importers.question_sets",
    "read_tabular": "suffice.importers.tabular",
    "register_importer": "suffice.importers.importers",
}

__all__ = [
    "Conversion",
    "ImportSummary",
    "ImportedRun",
    "ImportedTrajectory",
    "convert_questions",
    "import_recording",
    "importer",
    "importer_names",
    "kind_of",
    "open_source",
    "read_tabular",
    "register_importer",
]

__getattr__, __dir__ = lazy_face(__name__, _LAZY)
