"""The protocol of a recording's columns, for functions that the class `Recording` itself calls."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.policy.rounds import Floats, Mask


class RecordedColumns(Protocol):
    """Protocol of recorded rounds by column; implemented by `suffice.recordings.Recording`.

    Attributes:
        table: One row for each question and round.
        index: The rounds, shape ``(n_rounds,)``.
        seen: Mask of the rounds that each question has, shape ``(n_questions, n_rounds)``.
    """

    table: pa.Table
    metadata: dict[str, Any]
    question_ids: list[str]
    index: npt.NDArray[np.int64]
    seen: Mask

    def names(self, kind: str) -> list[str]:
        """Return the columns of one kind."""

    def column(self, name: str) -> Floats:
        """Return a numeric column, shape ``(n_questions, n_rounds)``."""

    def objects(self, name: str) -> npt.NDArray[np.object_]:
        """Return a text or list column, shape ``(n_questions, n_rounds)``."""

    @property
    def independent(self) -> bool:
        """True if the rounds of a question are independent answers that vote."""

    @property
    def clusters(self) -> npt.NDArray[np.object_]:
        """The resampling unit of each question, shape ``(n_questions,)``."""
