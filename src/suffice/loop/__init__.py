"""Live loops: answer one question under a policy, or record every round of many."""

from suffice.loop.evidence import Enricher, Evidence, Measurement
from suffice.loop.record import Progress, RecordSummary, record, record_async
from suffice.loop.retrieval import Outcome, RetrievalLoop

__all__ = [
    "Enricher",
    "Evidence",
    "Measurement",
    "Outcome",
    "Progress",
    "RecordSummary",
    "RetrievalLoop",
    "record",
    "record_async",
]
