"""On disk: recordings, the journal of an unfinished one, the cache of responses."""

from suffice.store.cache import ResponseCache
from suffice.store.journal import Journal
from suffice.store.recording import Recording, read_recording, write_recording

__all__ = ["Journal", "Recording", "ResponseCache", "read_recording", "write_recording"]
