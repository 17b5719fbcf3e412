"""Recordings of an escalation: each round is the attempt of another model, the cheapest first, and to stop is to accept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suffice.common.tables import counted
from suffice.errors import DataError

if TYPE_CHECKING:
    from suffice.recordings.recording import Recording

ATTEMPTS = "attempts"
"""The name in `depends`, of recordings and policies, of the list with the model of each round, from round 1 on."""

ALONE = " alone"
"""The end of the names of policies that ask one model, and none before it."""


def attempts_of(recording: Recording) -> tuple[str, ...]:
    """Return the model of each round of an escalation, from round 1 on; empty for other recordings."""
    return tuple(map(str, (recording.metadata.get("depends") or {}).get(ATTEMPTS) or ()))


def refuse_untried(recording: Recording) -> None:
    """Raise a `DataError` if a question of an escalation lacks the answer of a model.

    What that model alone would answer is then unknown, and the questions that went on to it are the hard ones.
    """
    models, tried = attempts_of(recording), recording.seen[~recording.failed]
    for model, asked in zip(models[::-1], tried.T[::-1], strict=False):
        if not asked.all():
            raise DataError(
                f"{model!r} was not asked {counted(int((~asked).sum()), 'question')} of {len(asked):,}, so what it alone would answer there is "
                "unknown, and an escalation cannot be compared with it. Record every model on the same questions "
                "(suffice sample record --set escalate=true), without a rule that stops"
            )
