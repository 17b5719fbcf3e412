"""Live loops and the recorder, with the models, retrievers and judges that they ask.

Given questions and a policy, they return answers with the reason for stopping, or a recording of every round.
"""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.loops.drafting_loop import DraftingLoop as DraftingLoop
    from suffice.loops.escalation_loop import EscalationLoop as EscalationLoop
    from suffice.loops.evidence import Evidence as Evidence
    from suffice.loops.live import LiveLoop as LiveLoop, Outcome as Outcome
    from suffice.loops.open_question import OpenQuestion as OpenQuestion
    from suffice.loops.progress import (
        BatchProgress as BatchProgress,
        Progress as Progress,
        RecordSummary as RecordSummary,
    )
    from suffice.loops.recorder import Recorder as Recorder
    from suffice.loops.recording import record as record, record_async as record_async
    from suffice.loops.retrieval_loop import RetrievalLoop as RetrievalLoop
    from suffice.loops.sampling_loop import SamplingLoop as SamplingLoop
    from suffice.loops.thinking_loop import ThinkingLoop as ThinkingLoop

__getattr__, __dir__, __all__ = lazy_face(__name__)
