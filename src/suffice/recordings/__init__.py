"""Recorded rounds on disk: the schema, parts, journals of unfinished recordings, merging, and the response cache.

Rounds become rows of a `Recording`, which every evaluation reads. If a process is killed, no paid reply is lost.
Reading a file of another version raises an error.
"""

from typing import TYPE_CHECKING

from suffice.common.lazy import lazy_face

if TYPE_CHECKING:
    from suffice.recordings.bundled import (
        BUNDLED_RECORDINGS as BUNDLED_RECORDINGS,
        bundled_recording as bundled_recording,
    )
    from suffice.recordings.cache import ResponseCache as ResponseCache
    from suffice.recordings.joining import MergeSummary as MergeSummary, merge_recordings as merge_recordings
    from suffice.recordings.journal import Journal as Journal
    from suffice.recordings.parts_compaction import (
        CompactSummary as CompactSummary,
        compact_recording as compact_recording,
    )
    from suffice.recordings.recording import (
        Recording as Recording,
        is_recording as is_recording,
        read_recording as read_recording,
        write_recording as write_recording,
    )

__getattr__, __dir__, __all__ = lazy_face(__name__)
