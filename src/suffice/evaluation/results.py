"""The base of evaluations: figures on the questions of a recording, with how their intervals were made."""

from __future__ import annotations

from dataclasses import dataclass

from suffice.common.results import Result
from suffice.evaluation.statistics import Resampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Result):
    """A result on the questions of a recording.

    Attributes:
        n: Questions.
        resampling: How intervals were made.
        data_hash: Of the recording.
        notes: What a reader must know.
    """

    n: int
    resampling: Resampling
    data_hash: str
    notes: tuple[str, ...] = ()
