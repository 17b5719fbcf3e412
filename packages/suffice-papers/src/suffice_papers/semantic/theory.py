"""Table 3: the claims of the theory, checked on one recording; `make prove` proves them for all recordings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from suffice.common.tables import Column, Table
from suffice.policy.rounds import Round, Rounds
from suffice.policy.session import Policy, Session, Stops
from suffice.recordings import Recording
from suffice_papers.semantic.data import DISTANCE, SCORE, Drafts
from suffice_papers.semantic.policies import Replayed

_SAMPLE = 200
"""Number of questions that are run through live sessions."""

PROVED = {
    "termination": "a replay ends by max_rounds, at the round where its rule fires first",
    "score": "the information score lies in [0, 1] or is undefined; weights off the simplex are refused",
    "distance": "a distance lies in [0, 2] or is undefined",
    "undefined": "what is undefined never stops",
    "reason": "each question ends for one reason, the same live and replayed",
}
"""Statements that `make prove` proves, by their names there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One claim of the theory, checked on this recording.

    Attributes:
        claim: The claim in words.
        seen: The check that was made, and its outcome, in words.
        holds: True if the claim held throughout.
        proved: The statement that `make prove` proves for all recordings; empty if it proves nothing about this claim.
    """

    claim: str
    seen: str
    holds: bool
    proved: str


def check_theory(drafts: Drafts, replayed: Replayed) -> tuple[Checked, ...]:
    """Check the claims that a recording can test.

    These are termination, ranges of values, no stop on NaN, and equality of live and replayed stops.
    """
    stopped = {label: drafts.prepared.stops(policy) for label, policy in replayed.policies.items()}
    return (
        _termination(drafts, replayed),
        _score(drafts),
        _distance(drafts),
        _undefined(drafts, replayed, stopped),
        _reasons(drafts, replayed, stopped),
    )


def _termination(drafts: Drafts, replayed: Replayed) -> Checked:
    most = max(float(replayed.rounds[label].max()) for label in replayed.policies)
    in_time = all((replayed.rounds[label] <= drafts.last).all() for label in replayed.policies)
    return Checked(
        claim="termination within max_rounds, whichever members are on",
        seen=f"{len(replayed.policies)} sets of members x {drafts.n} questions: the latest stop is round {most:.0f} of {drafts.highest}",
        holds=bool(in_time),
        proved=PROVED["termination"],
    )


def _score(drafts: Drafts) -> Checked:
    recording = drafts.prepared.recording
    name = SCORE if SCORE in recording.table.column_names else drafts.metric
    values = drafts.prepared.metrics[name] if name in drafts.prepared.metrics else recording.column(name)
    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (math.nan, math.nan)
    return Checked(
        claim=f"{name} in [0, 1]",
        seen=f"{known.size} drafts: {low:.3f} to {high:.3f}",
        holds=bool(known.size and low >= 0 and high <= 1),
        proved=PROVED["score"] if name == SCORE else "",
    )


def _distance(drafts: Drafts) -> Checked:
    recording = drafts.prepared.recording
    known = drafts.distance[~np.isnan(drafts.distance)]
    later = int((recording.seen & (recording.index >= 2)).sum())  # noqa: PLR2004
    return Checked(
        claim="distance total and bounded: in [0, 2], or undefined",
        seen=f"{later} revisions: {known.size} distances of {known.min():.3f} to {known.max():.3f}, {later - known.size} undefined",
        holds=bool(known.min() >= 0 and known.max() <= 2),  # noqa: PLR2004
        proved=PROVED["distance"],
    )


def _undefined(drafts: Drafts, replayed: Replayed, stopped: dict[str, Stops]) -> Checked:
    """Check that the rule of convergence fired at no round whose distance is undefined."""
    wrong = 0
    if "judge_free" in replayed.policies:
        outcome = stopped["judge_free"]
        rows = np.flatnonzero(outcome.fired)
        wrong = int(np.isnan(outcome.view[DISTANCE][rows, outcome.position[rows]]).sum())
    return Checked(
        claim="an undefined distance never stops",
        seen=f"{int(np.isnan(drafts.distance).sum())} undefined values, first drafts included: {wrong} stops on one",
        holds=wrong == 0,
        proved=PROVED["undefined"],
    )


def _reasons(drafts: Drafts, replayed: Replayed, stopped: dict[str, Stops]) -> Checked:
    recording = drafts.prepared.recording
    # Only trajectories that a live session would end alike: at the full width, or because the evidence ran out.
    complete = np.flatnonzero((recording.ends == "exhausted") | (drafts.last == drafts.highest))
    sample = complete[np.unique(np.linspace(0, len(complete) - 1, min(_SAMPLE, len(complete))).astype(np.int64))]
    differ = 0
    for label, policy in replayed.policies.items():
        reasons = stopped[label].reasons(recording.ends, policy.max_rounds)
        raw = drafts.prepared.rounds(policy.raw_columns)
        for q in sample.tolist():
            differ += _live_stop(recording, raw, policy, q) != (int(stopped[label].rounds[q]), reasons[q])
    total = len(sample) * len(replayed.policies)
    return Checked(
        claim="the round and the reason of a stop, replayed, are those of a live session",
        seen=f"{total} sessions over {len(sample)} questions: {differ} differ",
        holds=differ == 0,
        proved=PROVED["reason"],
    )


def _live_stop(recording: Recording, raw: Rounds, policy: Policy, q: int) -> tuple[int | None, str | None]:
    """Run a live session on the recorded drafts of a question; return the round and the reason of its stop."""
    session = Session(policy)
    for position in np.flatnonzero(recording.seen[q] & (recording.index >= policy.start_round)).tolist():
        signals = {name: float(raw.columns[name][q, position]) for name in policy.raw_signals}
        answer = None if raw.answers is None else raw.answers[q, position]
        decision = session.observe(Round(index=int(recording.index[position]), answer=answer, signals=signals))
        if decision.stop:
            return decision.stop_round, decision.reason
    decision = session.end("exhausted")
    return decision.stop_round, decision.reason


def theory_table(checked: tuple[Checked, ...]) -> Table:
    """Tabulate the claims, one row each."""
    return Table.of(
        "Table 3. Claims of the theory, on this recording",
        checked,
        {
            Column("claim"): "claim",
            Column("checked here"): "seen",
            Column("status"): lambda one: "holds" if one.holds else "FAILS",
            Column("what `make prove` says of it"): lambda one: one.proved or "-",
        },
        ("A check on recorded rounds is not a proof; `make prove` runs the proofs of the same code.",),
    )
