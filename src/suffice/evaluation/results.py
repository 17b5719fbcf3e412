"""The base class of evaluations: figures for the questions of a recording, with the settings of their intervals."""

from __future__ import annotations

from dataclasses import dataclass

from suffice.common.results import Result
from suffice.evaluation.statistics import Resampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Result):
    """A result on the questions of a recording.

    Attributes:
        n: Number of questions.
        resampling: The settings of the intervals.
        data_hash: Hash of the recording.
        notes: Notes for the reader.
    """

    n: int
    resampling: Resampling
    data_hash: str
    notes: tuple[str, ...] = ()
