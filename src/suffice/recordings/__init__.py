"""Files: recordings, journals of unfinished recordings, the response cache, hidden states."""

from suffice.store.bundled import BUNDLED_RECORDINGS, bundled_recording
from suffice.store.cache import ResponseCache
from suffice.store.joining import MergeSummary, merge_recordings
from suffice.store.journal import Journal
from suffice.store.parts_compaction import CompactSummary, compact_recording
from suffice.store.recording import Recording, is_recording, read_recording, write_recording
from suffice.store.states import StateWriter, StoredStates, read_states

__all__ = [
    "BUNDLED_RECORDINGS",
    "CompactSummary",
    "Journal",
    "MergeSummary",
    "Recording",
    "ResponseCache",
    "StateWriter",
    "StoredStates",
    "bundled_recording",
    "compact_recording",
    "is_recording",
    "merge_recordings",
    "read_recording",
    "read_states",
    "write_recording",
]
