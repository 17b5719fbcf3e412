"""Live loops and the recorder, with the models, retrievers and judges that they ask.

Given questions and a policy, they return answers with the reason for stopping, or a recording of every round.
"""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.loops.batch_sending import BatchProgress
    from suffice.loops.batching import BatchQueue
    from suffice.loops.drafting_loop import DraftingLoop
    from suffice.loops.evidence import Evidence
    from suffice.loops.live import LiveLoop, Outcome
    from suffice.loops.open_question import OpenQuestion
    from suffice.loops.progress import Progress, RecordSummary
    from suffice.loops.recorder import Recorder
    from suffice.loops.recording import record, record_async
    from suffice.loops.retrieval_loop import RetrievalLoop
    from suffice.loops.sampling_loop import SamplingLoop

__all__ = [
    "BatchProgress",
    "BatchQueue",
    "DraftingLoop",
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

__getattr__, __dir__ = lazy_face(
    __name__,
    {
        "batch_sending": ("BatchProgress",),
        "batching": ("BatchQueue",),
        "drafting_loop": ("DraftingLoop",),
        "evidence": ("Evidence",),
        "live": ("LiveLoop", "Outcome"),
        "open_question": ("OpenQuestion",),
        "progress": ("Progress", "RecordSummary"),
        "recorder": ("Recorder",),
        "recording": ("record", "record_async"),
        "retrieval_loop": ("RetrievalLoop",),
        "sampling_loop": ("SamplingLoop",),
    },
)
