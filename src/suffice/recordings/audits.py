"""Leave the audits out of a deployed policy's log: only the rounds up to the returned answers remain."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from suffice.policy.rounds import Floats
from suffice.recordings.recording import Recording


def stop_rounds(recording: Recording) -> Floats:
    """Return the round at which each question's policy stopped, shape ``(n_questions,)``; NaN if the log does not say."""
    return np.array(recording.per_question("stop_round", [None] * len(recording.question_ids)), dtype=np.float64)


def without_audits(recording: Recording) -> Recording:
    """Return the recording without rounds that ran after the answer; their questions then end by `rule`."""
    rounds = recording.table.column("round").to_numpy()
    later = (
        rounds > stop_rounds(recording)[recording.row_question]
    )  # comparison with NaN is False: without a known stop, all rounds stay
    if not later.any():
        return recording
    audited = np.unique(recording.row_question[later])
    ends = recording.ends.copy()
    ends[audited] = "rule"
    table = recording.table
    place = table.column_names.index("end")
    column = pa.array(ends[recording.row_question].tolist(), table.schema.field("end").type)
    table = table.set_column(place, table.schema.field("end"), column)
    return Recording(table.filter(pa.array(~later)), recording.metadata)
