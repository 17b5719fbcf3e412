"""What a decision declares where the user says nothing else, which depends on what was recorded."""

from __future__ import annotations

from typing import Any

from suffice.evaluation.replay.outcomes import abandoned
from suffice.recordings.attempts import ALONE, attempts_of, refuse_untried
from suffice.recordings.recording import Recording
from suffice.verdicts.decisions.candidates import CHECK_ERROR
from suffice.verdicts.decisions.gates import RETRIEVALS, is_whether_to_retrieve
from suffice.verdicts.decisions.steps import LEAST_SAVING, is_of_steps, knows_spending


def declared_defaults(recording: Recording, metric: str | None, *, priced: bool) -> dict[str, Any]:
    """Return the default of each declared option.

    Args:
        recording: The logged loop.
        metric: The metric that the user names.
        priced: Whether prices are given.

    Raises:
        DataError: The models of an escalation did not answer the same questions.
    """
    result: dict[str, Any] = {
        "max_loss": 0.02,
        "alpha": 0.05,
        "cost": "calls",
        "baseline": "recorded",
        "selector": "majority_of_samples" if recording.independent else "last",
        "leave_out_failed": False,
        "label_noise": 0.0,
        "min_saving": 0.0,
    }
    if CHECK_ERROR in recording.names("signal") and not recording.independent:
        result["selector"] = f"min_{CHECK_ERROR}"
    if is_of_steps(recording) or abandoned(metric or ""):
        result["min_saving"] = LEAST_SAVING
    if is_of_steps(recording) and (priced or knows_spending(recording)):
        result["cost"] = "money"
    if attempts := attempts_of(recording):
        refuse_untried(recording)
        result |= {"cost": "money", "baseline": f"{attempts[-1]}{ALONE}"}
    if is_whether_to_retrieve(recording):
        result["cost"] = RETRIEVALS
    return result
