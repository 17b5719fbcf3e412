"""Convert a trial to the JSON of a decision file, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suffice.common.results import jsonable
from suffice.errors import SchemaError
from suffice.policy.seen import Seen
from suffice.policy.session import Policy
from suffice.recordings.schema import DOLLAR
from suffice.verdicts.decisions.answer_counts import AnswerCounts
from suffice.verdicts.decisions.losses import SAVABLE, SLACK, Totals, means_note
from suffice.verdicts.decisions.same_loop import LoopStops
from suffice.verdicts.decisions.trial import Trial
from suffice.verdicts.decisions.wealth import LossCounts, Wealth, bound_by_labels

_PLAIN = ("metric", "max_loss", "alpha", "cost", "baseline", "leave_out_failed", "prices")
"""Attributes of a trial that are stored unchanged."""


def trial_to_dict(trial: Trial) -> dict[str, Any]:
    """Return JSON-ready values."""
    return {
        **{name: getattr(trial, name) for name in _PLAIN},
        "orders": trial.orders,
        "loop": jsonable(trial.loop),
        "notes": list(trial.notes),
        "candidates": [policy.to_dict() for policy in trial.candidates],
        "sequence": list(trial.sequence),
        "shares": list(trial.shares),
        "tune": trial.tune.to_dict(),
        "tuned": trial.tuned,
        "counted": trial.counted.to_dict(),
        "marks": dict(trial.marks),
        "wordings": sorted(trial.wordings),
        "below": trial.below.to_dict(),
        "above": trial.above.to_dict(),
        "totals": trial.totals.to_dict(),
        "answers": jsonable(trial.answers),
        "losses": jsonable(trial.losses),
        **({} if trial.labels is None else {"labels": trial.labels, "label_noise": trial.label_noise}),
        **({"min_saving": trial.min_saving} if trial.min_saving else {}),
        **({} if trial.currency == DOLLAR else {"currency": trial.currency}),
        **({} if trial.drift is None else {"drift": trial.drift.to_dict()}),
    }


def trial_from_dict(data: Mapping[str, Any]) -> Trial:
    """Return the trial that `trial_to_dict` wrote.

    Raises:
        SchemaError: Fields are missing, have a wrong type, or contradict each other.
        RuleSyntaxError: A candidate's rule does not parse.
    """
    from suffice.verdicts.decisions.drift import DriftAlarm

    try:
        sequence = tuple(int(place) for place in data["sequence"])
        # Files from before there were shares used a fixed sequence of tests, with the whole risk on the first.
        shares = data.get("shares", [1.0, *[0.0] * (len(sequence) - 1)][: len(sequence)])
        totals, losses = Totals.from_dict(data["totals"]), data.get("losses")
        trial = Trial(
            **{name: data[name] for name in _PLAIN},
            shares=tuple(float(share) for share in shares),
            losses=None if losses is None else LossCounts.from_dict(losses, len(sequence), totals.n),
            orders=int(data.get("orders", 1)),
            loop=LoopStops.from_dict(data["loop"]),
            notes=(*map(str, data["notes"]), *means_note(data["totals"])),
            candidates=tuple(Policy.from_dict(item) for item in data["candidates"]),
            sequence=sequence,
            tune=Seen.from_dict(data["tune"]) or Seen(),
            tuned=None if data.get("tuned") is None else int(data["tuned"]),
            counted=Seen.from_dict(data["counted"]) or Seen(),
            wordings=frozenset(map(str, data.get("wordings", ()))),
            marks={str(name): str(mark) for name, mark in data["marks"].items()},
            below=Wealth.from_dict(data["below"]),
            above=Wealth.from_dict(data["above"]),
            totals=totals,
            answers=None if data.get("answers") is None else AnswerCounts.from_dict(data["answers"]),
            labels=None if data.get("labels") is None else int(data["labels"]),
            drift=DriftAlarm.from_dict(data.get("drift"), data["max_loss"], data["alpha"], len(data["sequence"])),
            label_noise=float(data.get("label_noise", 0.0)),
            min_saving=float(data.get("min_saving", 0.0)),
            currency=str(data.get("currency", DOLLAR)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SchemaError(f"the trial of a decision file does not read: {error!r}") from None
    _refuse_contradictions(trial)
    return trial


def _refuse_contradictions(trial: Trial) -> None:
    n = len(trial.candidates)
    bets = (trial.below, trial.above)
    shapes = {len(trial.totals.losses), *(len(bet.log_highest) for bet in bets)}
    bounds = (bound_by_labels(trial.max_loss, trial.label_noise), trial.max_loss)
    agreed = [(bound, trial.totals.n) for bound in bounds] == [(bet.bound, bet.n) for bet in bets]
    shared = (
        len(trial.shares) == len(trial.sequence)
        and min(trial.shares, default=0) >= 0
        and sum(trial.shares) <= 1 + SLACK
    )
    if (
        shapes != {n}
        or not agreed
        or not shared
        or not set(trial.sequence) <= set(range(n))
        or trial.cost not in SAVABLE
    ):
        raise SchemaError(
            f"the trial of a decision file contradicts itself: {n} candidates, evidence of {sorted(shapes)}, "
            f"max_loss {trial.max_loss}, label_noise {trial.label_noise}, after {trial.totals.n} questions, bets on {[(bet.bound, bet.n) for bet in bets]}, "
            f"sequence {trial.sequence} with shares {trial.shares}, cost {trial.cost!r}"
        )
