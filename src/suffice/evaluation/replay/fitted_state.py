"""Fit the state of signals that need statistics over tune questions: z-scores, allocations, scores of rationales."""

from __future__ import annotations

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.replay.orders import drawn_orders
from suffice.policy.calibration import CALIBRATED
from suffice.policy.calibration.logistic import fit_logistic
from suffice.policy.rounds import Floats
from suffice.policy.rules import thresholds
from suffice.policy.rules.named import DSC_WINDOW
from suffice.policy.session import Policy
from suffice.policy.signals import (
    FEATURES,
    RATIONALE_SCORE,
    RELEVANCE,
    SIGNALS,
    Allocation,
    FittedState,
    RationaleScore,
    ZScore,
    state_from_dict,
    vote_signal,
)
from suffice.policy.signals.state import DIFFICULTY
from suffice.policy.signals.votes import ALLOCATED, VOTES
from suffice.recordings.recording import Recording

_ALLOCATION_SEED = 0


def fitted_state(recording: Recording, policy: Policy, outcomes: Floats, notes: list[str]) -> dict[str, FittedState]:
    """Return the fitted state of the signals that the policy reads.

    Z-scores, allocations and scores of rationales are fitted here; other state is taken from the recording.

    Args:
        recording: The tune questions.
        policy: The policy.
        outcomes: The outcomes that scores of rationales are fitted to, shape ``(n_questions, n_rounds)``.
        notes: Notes for the summary are added here.
    """
    state: dict[str, FittedState] = {}
    stored = recording.metadata.get("state") or {}
    for name in policy.signals:
        known = SIGNALS.get(name)
        if known is None or not known.fitted or name in CALIBRATED or name in policy.state:
            continue
        if name == "top_score_z":
            state[name] = ZScore.fit(first_of_question(recording, "top_score"))
        elif name == ALLOCATED:
            state[name] = _allocation(recording, policy, notes)
        elif name == RATIONALE_SCORE:
            score = _rationale_score(recording, policy, outcomes)
            state[name] = score
            if RELEVANCE not in score.weights:
                notes.append(
                    f"{name} is fitted without {RELEVANCE}, which the recording does not hold: what a sample shares with its question"
                )
        elif name in stored:
            state[name] = state_from_dict(stored[name])
        else:
            notes.append(f"{name} needs fitted state that the recording does not hold: the policy cannot run live")
    return state


def _allocation(recording: Recording, policy: Policy, notes: list[str]) -> Allocation:
    """Fit the number of samples for each difficulty, on one random order of each question's samples."""
    difficulty = first_of_question(recording, DIFFICULTY)
    known = np.isfinite(difficulty)
    if not known.all():
        notes.append(f"{int((~known).sum())} questions without {DIFFICULTY} are left out of the allocation of samples")
    levels = [item.value for item in thresholds(policy.rule) if item.name == "posterior_majority"]
    if len(levels) != 1:
        raise DataError(f"{ALLOCATED!r} is fitted for the rule dsc(confidence), not for {policy.label!r}")
    (places,) = drawn_orders(recording, 1, _ALLOCATION_SEED)
    ids = recording.reordered(places).answer_ids(policy.normalizer)[:, : policy.max_rounds]
    decided = vote_signal("posterior_majority", ids) >= levels[0]
    needed = np.where(
        decided.any(axis=1), decided.argmax(axis=1) + 1, np.minimum(recording.seen.sum(axis=1), ids.shape[1])
    )
    agree = decided[:, min(DSC_WINDOW, ids.shape[1]) - 1]
    return Allocation.fit(difficulty[known], agree[known], needed[known], window=DSC_WINDOW)


def _rationale_score(recording: Recording, policy: Policy, outcomes: Floats) -> RationaleScore:
    """Fit the probability that a sample is right, given its reasoning and the earlier votes.

    The samples of each question are taken in one random order.
    """
    if recording.exchangeable:
        (places,) = drawn_orders(recording, 1, _ALLOCATION_SEED)
        rows = np.arange(len(places))[:, None]
        recording, shuffled = recording.reordered(places), np.empty_like(outcomes)
        shuffled[rows, places] = outcomes
        outcomes = shuffled
    ids = recording.answer_ids(policy.normalizer)
    columns = {
        name: vote_signal(name, ids) if name in VOTES else recording.column(name)
        for name in FEATURES
        if recording.gives(name) or name in VOTES
    }
    usable = np.logical_and.reduce([~np.isnan(column) for column in (*columns.values(), outcomes)])
    rights = outcomes[usable]
    if not np.isin(rights, (0.0, 1.0)).all() or np.unique(rights).size < 2:  # noqa: PLR2004
        raise DataError(
            f"{RATIONALE_SCORE} is fitted to samples that are right or wrong, and {len(rights)} samples with a text and an answer have "
            f"{np.unique(rights)[:4].tolist()}: give tune questions with both, and --target em or match"
        )
    values = np.column_stack([column[usable] for column in columns.values()])
    scale = np.where(values.std(axis=0) > 0, values.std(axis=0), 1.0)  # one penalty for features of all units
    fitted = fit_logistic(values / scale, rights, strength=1.0)
    weights = dict(zip(columns, (fitted.weights[0] / scale).tolist(), strict=True))
    return RationaleScore(weights, float(fitted.intercepts[0]))


def first_of_question(recording: Recording, name: str) -> Floats:
    """Return each question's first value of a column that is constant over rounds, shape ``(n_questions,)``.

    NaN if a question has no value.
    """
    values = recording.column(name)
    first: Floats = np.take_along_axis(values, np.argmax(np.isfinite(values), axis=1)[:, None], axis=1)[:, 0]
    return first
