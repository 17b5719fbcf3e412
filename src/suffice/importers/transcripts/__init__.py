"""Transcripts of agents: every step of a run is a round, and its answer is the state of the files that the run changes."""

from suffice.importers.transcripts.visible import VisibleFiles

__all__ = ["VisibleFiles"]
