"""Live loops: answer one question under a policy, or record every round of many."""

from suffice.loop.drafting import DraftingLoop
from suffice.loop.evidence import Evidence
from suffice.loop.live import LiveLoop, Outcome
from suffice.loop.progress import Progress, RecordSummary
from suffice.loop.recorder import OpenQuestion, Recorder
from suffice.loop.recording import record, record_async
from suffice.loop.retrieval import RetrievalLoop
from suffice.loop.sampling import SamplingLoop
from suffice.signals import Enricher

__all__ = [
    "DraftingLoop",
    "Enricher",
    "Evidence",
    "LiveLoop",
    "OpenQuestion",
    "Outcome",
    "Progress",
    "RecordSummary",
    "Recorder",
    "RetrievalLoop",
    "SamplingLoop",
    "record",
    "record_async",
]
