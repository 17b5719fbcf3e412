"""Reduce a log to what its loop did by itself, without the rounds of audits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.policy.rounds import Floats
from suffice.recordings.recording import Recording


def stop_rounds(recording: Recording) -> Floats:
    """Return the round at which the policy stopped each question, shape ``(n_questions,)``; NaN if it was not recorded."""
    return np.array(recording.per_question("stop_round", [None] * len(recording.question_ids)), dtype=np.float64)


def without_audits(recording: Recording) -> Recording:
    """Return the recording without the rounds that ran after the answer; questions that had such rounds then end by `rule`."""
    rounds = recording.table.column("round").to_numpy()
    # A comparison with NaN is False: without a known stop, all rounds stay.
    later = rounds > stop_rounds(recording)[recording.row_question]
    if not later.any():
        return recording
    audited = np.zeros(len(recording.question_ids), dtype=np.bool_)
    audited[recording.row_question[later]] = True
    table = _with_ends(recording, np.where(audited, "rule", recording.ends))
    return Recording(table.filter(pa.array(~later)), recording.metadata)


def uncut(recording: Recording) -> Recording:
    """Return the recording as if no further rounds had been possible where the loop's own rule stopped.

    Policies then stop where the loop stopped or earlier, so every outcome is known. If no reason is recorded for the
    end of a question (`Recording.unexplained`), the loop may have continued, so this question is not changed.
    """
    own = (recording.ends == "rule") & ~recording.unexplained
    if not own.any():
        return recording
    return Recording(_with_ends(recording, np.where(own, "exhausted", recording.ends)), recording.metadata)


def _with_ends(recording: Recording, ends: npt.NDArray[np.object_]) -> pa.Table:
    """Return a recording's table with `ends` as the reasons for the ends of the questions."""
    table = recording.table
    place, field = table.column_names.index("end"), table.schema.field("end")
    return table.set_column(place, field, pa.array(ends[recording.row_question].tolist(), field.type))
