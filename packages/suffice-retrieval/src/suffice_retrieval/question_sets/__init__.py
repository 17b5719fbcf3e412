"""Published question sets: they are read from files or the hub, and converted to questions for recording."""

from suffice_retrieval.question_sets.converting import Conversion, convert_questions
from suffice_retrieval.question_sets.sources import open_source

__all__ = ["Conversion", "convert_questions", "open_source"]
