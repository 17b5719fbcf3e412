"""Waves of samples that are requested together: the rounds at which costs are incurred, and each wave's seconds."""

from __future__ import annotations

import numpy as np

from suffice.errors import DataError
from suffice.policy.rounds import Floats
from suffice.recordings.recording import Recording


def due_in_waves(column: Floats, kind: str, width: int, before: int = 0, until: int | None = None) -> Floats:
    """Assign costs to the rounds in which they are incurred, if rounds are requested `width` at a time.

    All requests of a wave are sent with its first round.  The policy decides in the order of the requests, so a round adds
    only the time by which it ends later than all earlier rounds of its wave (see the second example).

    >>> due_in_waves(np.array([[1.0, 1.0, 1.0, 1.0]]), "calls", 3).tolist()
    [[3.0, 0.0, 0.0, 1.0]]
    >>> due_in_waves(np.array([[2.0, 5.0, 3.0, 1.0]]), "seconds", 3).tolist()
    [[2.0, 3.0, 0.0, 1.0]]

    Args:
        column: The costs, shape ``(n_questions, n_rounds)``.
        kind: The kind of cost.
        width: Number of rounds in a wave.
        before: Number of rounds before the first wave, which are requested one by one.
        until: Number of rounds that may be requested; None = all.
    """
    if width == 1:
        return column
    due = np.zeros_like(column)
    due[:, :before] = column[:, :before]
    for first in range(before, column.shape[1], width):
        wave = column[:, first : first + width][:, : None if until is None else max(until - first, 0)]
        if kind == "seconds":
            due[:, first : first + wave.shape[1]] = np.diff(np.maximum.accumulate(wave, axis=1), axis=1, prepend=0.0)
        else:
            due[:, first] = wave.sum(axis=1)
    return due


def wave_of(recording: Recording, wave: int | None) -> int:
    """Return the number of samples requested together: `wave`, or the recorded number of choices of each request.

    Raises:
        DataError: `wave` is not a whole number of at least 1, or it is above 1 although the rounds follow one another.
            Or each recorded request was for several choices, and their number is not `wave`.
    """
    config = recording.metadata.get("config")
    recorded = (config or {}).get("n", 1) if recording.independent else 1
    if wave is None:
        return int(recorded)
    if isinstance(wave, bool) or not isinstance(wave, int) or wave < 1:
        raise DataError(f"wave is {wave!r}; allowed: a whole number of at least 1")
    if wave > 1 and not recording.independent:
        raise DataError(
            f"wave={wave}: the rounds of this recording follow one another, and cannot be requested together"
        )
    if recorded not in (1, wave):
        raise DataError(
            f"wave={wave}: these samples were recorded as {recorded} choices of one request each, and what other requests "
            "would have cost is unknown"
        )
    return wave


def wave_note(width: int) -> tuple[str, ...]:
    """Return the note on costs in waves of several samples."""
    note = (
        f"samples are requested {width} at once: a stop pays for its whole wave, an upper bound where the rest is cancelled, and "
        "seconds are those of the slowest sample up to the stop"
    )
    return (note,)
