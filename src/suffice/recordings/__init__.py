"""Recorded rounds on disk: the schema, parts, journals of unfinished recordings, merging, and the response cache.

Rows of rounds become a `Recording`, which every evaluation reads.  A killed process loses no reply that was paid for,
and reading a file of another version raises an error.
"""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.recordings.bundled import BUNDLED_RECORDINGS, bundled_recording
    from suffice.recordings.cache import ResponseCache
    from suffice.recordings.joining import MergeSummary, merge_recordings
    from suffice.recordings.journal import Journal
    from suffice.recordings.parts_compaction import CompactSummary, compact_recording
    from suffice.recordings.recording import Recording, is_recording, read_recording, write_recording

__all__ = [
    "BUNDLED_RECORDINGS",
    "CompactSummary",
    "Journal",
    "MergeSummary",
    "Recording",
    "ResponseCache",
    "bundled_recording",
    "compact_recording",
    "is_recording",
    "merge_recordings",
    "read_recording",
    "write_recording",
]

__getattr__, __dir__ = lazy_face(
    __name__,
    {
        "bundled": ("BUNDLED_RECORDINGS", "bundled_recording"),
        "cache": ("ResponseCache",),
        "joining": ("MergeSummary", "merge_recordings"),
        "journal": ("Journal",),
        "parts_compaction": ("CompactSummary", "compact_recording"),
        "recording": ("Recording", "is_recording", "read_recording", "write_recording"),
    },
)
