"""Live loops: answer one question under a policy, or record every round of many."""

from suffice.loop.batch_sending import BatchProgress
from suffice.loop.batching import BatchQueue
from suffice.loop.chains import CHAIN_METHODS, ChainMethod, Dragin, Flare, IRCoT, SelfAsk, parse_method
from suffice.loop.drafting import DraftingLoop
from suffice.loop.evidence import Evidence
from suffice.loop.live import LiveLoop, Outcome
from suffice.loop.open_question import OpenQuestion
from suffice.loop.progress import Progress, RecordSummary
from suffice.loop.querying import QueryLoop
from suffice.loop.recorder import Recorder
from suffice.loop.recording import record, record_async
from suffice.loop.retrieval import RetrievalLoop
from suffice.loop.sampling import SamplingLoop
from suffice.signals import Enricher

__all__ = [
    "CHAIN_METHODS",
    "BatchProgress",
    "BatchQueue",
    "ChainMethod",
    "DraftingLoop",
    "Dragin",
    "Enricher",
    "Evidence",
    "Flare",
    "IRCoT",
    "LiveLoop",
    "OpenQuestion",
    "Outcome",
    "Progress",
    "QueryLoop",
    "RecordSummary",
    "Recorder",
    "RetrievalLoop",
    "SamplingLoop",
    "SelfAsk",
    "parse_method",
    "record",
    "record_async",
]
