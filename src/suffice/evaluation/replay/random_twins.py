"""The random twin of a policy: the same stops, assigned to questions at random, so that they carry no information."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.common.tables import counted
from suffice.evaluation.replay.baselines import Run, stop_shares
from suffice.evaluation.replay.outcomes import answers_by_stop, expected_by_stop
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules import Selector
from suffice.policy.session import Policy, Stops


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """Counts of a policy's stops by the number of rounds of the questions, for `random_stop`; counts of other questions can be added.

    Attributes:
        size: Number of questions with each number of rounds, shape ``(n_rounds + 1,)``; a question cut by a rule counts
            as if it had all rounds.
        paid: Number of these that stop at each round, shape ``(n_rounds + 1, n_rounds)``.
        known: Number of these stops that do not need rounds that never ran, same shape.
        unrun: Number of questions that need such rounds, shape ``(n_rounds + 1,)``.
        rounds: The sum of their stop rounds, same shape.
        cut: Whether a rule cut any question.
    """

    size: Positions
    paid: Positions
    known: Positions
    unrun: Positions
    rounds: Positions
    cut: bool

    @classmethod
    def of(cls, prepared: PreparedRecording, policy: Policy, stopped: Stops) -> Dealt:
        """Return the stops of some questions."""
        ends, width = prepared.recording.ends, len(stopped.view)
        code, unrun = _exchanged(prepared, policy, stopped), stopped.unrun(ends, policy.max_rounds)
        place = code * width + np.maximum(stopped.position, 0)
        shape = (width + 1, width)

        def counted_at(places: Positions) -> Positions:
            return np.bincount(places, minlength=shape[0] * shape[1]).reshape(shape)

        rounds = np.zeros(width + 1, dtype=np.int64)
        np.add.at(rounds, code, stopped.rounds)
        return cls(
            size=np.bincount(code, minlength=width + 1),
            paid=counted_at(place),
            known=counted_at(place[~unrun]),
            unrun=np.bincount(code[unrun], minlength=width + 1),
            rounds=rounds,
            cut=bool(stopped.cut(ends, policy.max_rounds).any()),
        )

    def __add__(self, other: Dealt) -> Dealt:
        return Dealt(
            size=self.size + other.size,
            paid=self.paid + other.paid,
            known=self.known + other.known,
            unrun=self.unrun + other.unrun,
            rounds=self.rounds + other.rounds,
            cut=self.cut or other.cut,
        )

    @property
    def strata(self) -> Strata:
        """The sizes of the non-empty strata."""
        return Strata(np.zeros(0, dtype=np.int64), self.size[self.size > 0])

    def shares(self, counts: Positions, code: Positions) -> Floats:
        """Return, for each question, the mean over its stratum of `counts`."""
        sizes = np.maximum(self.size, 1).reshape(-1, *([1] * (counts.ndim - 1)))
        shares: Floats = (counts / sizes)[code]
        return shares


def _exchanged(prepared: PreparedRecording, policy: Policy, stopped: Stops) -> Positions:
    """Return the number of rounds of each question, shape ``(n_questions,)``; stops are exchanged among questions of equal number."""
    cut = stopped.cut(prepared.recording.ends, policy.max_rounds)
    return np.where(cut, len(stopped.view), stopped.view.seen.sum(axis=-1)).astype(np.int64)


def random_stop(prepared: PreparedRecording, policy: Policy, stopped: Stops, dealt: Dealt | None = None) -> Run:
    """Return the exact expectation of `policy` if its stop rounds were assigned to the questions at random.

    Stops are exchanged among questions with the same number of rounds, since a question with two rounds cannot stop at
    round five; the stop rounds therefore remain exactly those of the rule.  Under a uniformly random permutation each
    question gets each stop round with its frequency among those questions, so the expectation is a mean over that
    distribution.  A question that a rule cut takes part as if it had all rounds, and is `unrun` in proportion to the
    stops at rounds that never ran.

    Args:
        prepared: The recording.
        policy: The policy.
        stopped: Its stops.
        dealt: The stops of all questions, if `prepared` holds only some of them; None = it holds all.
    """
    every = Dealt.of(prepared, policy, stopped) if dealt is None else dealt
    view, ends = stopped.view, prepared.recording.ends
    length, cut = view.seen.sum(axis=-1), stopped.cut(ends, policy.max_rounds)
    code = _exchanged(prepared, policy, stopped)
    # Shares of each question's stratum that stop at each round: all stops are paid, but only those at rounds that ran
    # are known.
    paid, shared = every.shares(every.paid, code), every.shares(every.known, code)
    ran = (np.arange(len(view)) < length[:, None]) | ~cut[:, None]
    known = np.where(ran, shared, 0.0)
    missing = every.shares(every.unrun, code) + np.where(ran, 0.0, shared).sum(axis=1)
    answers = answers_by_stop(policy.selector, view)
    worst = {
        name: np.where(
            known > 0, known * expected_by_stop(policy.selector, view, prepared.in_view(metric, view)), 0.0
        ).sum(1)
        for name, metric in prepared.metrics.items()
    }
    shares: dict[str, Floats] = {}
    support, weights = [], []
    last = length - 1
    # A question without rounds is charged nothing, wherever the others stop.
    for k in np.flatnonzero(paid.any(axis=0)).tolist():
        masks = _blind_masks(prepared, policy.selector, view, np.minimum(k, last), answers[:, k])
        for component, mask in masks.items():
            shares[component] = shares.get(component, 0.0) + paid[:, k, None] * mask
        support.append(prepared.costs.calls(masks, policy.max_rounds))
        weights.append(paid[:, k])
    return Run(
        label=f"random({policy.label})",
        kind="random",
        worst=worst,
        best={name: values + missing for name, values in worst.items()} if missing.any() else worst,
        unrun=missing > 0,
        ledger=prepared.costs.charge(shares, policy.max_rounds),
        calls=(np.concatenate(support), np.concatenate(weights)),
        # Over all questions the shares are the policy's own unless rounds are missing; over some of them they are
        # expected values.
        stop_rounds=stop_shares(stopped.rounds, stopped.unrun(ends, policy.max_rounds))
        if dealt is None and not missing.any()
        else _dealt_shares(view, known),
        reasons={},
        selector=str(policy.selector),
        rounds=every.shares(every.rounds, code),
        notes=twin_notes(every.strata, cut=every.cut),
    )


@dataclass(frozen=True, slots=True)
class Strata:
    """Groups of questions that may exchange their stops: the stratum of each question, and the size of each stratum."""

    code: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]

    def means(self, values: Mask | Positions) -> Floats:
        """Return, for each question, the mean over its stratum, shape of `values`, ``(n_questions, n)``."""
        totals = np.zeros((len(self.size), values.shape[1]))
        np.add.at(totals, self.code, values)
        means: Floats = (totals / self.size[:, None])[self.code]
        return means


def strata_of(length: Positions) -> Strata:
    """Group questions by their number of rounds."""
    _, code, size = np.unique(length, return_inverse=True, return_counts=True)
    return Strata(code, size)


def _dealt_shares(view: Rounds, known: Floats) -> dict[int, float]:
    return {int(r): float(known[:, k].mean()) for k, r in enumerate(view.index) if known[:, k].any()}


def twin_notes(strata: Strata, *, cut: bool) -> tuple[str, ...]:
    """Return the notes on a random twin."""
    notes = ["exact expectation over random permutations of the rule's own stop rounds"]
    if len(strata.size) > 1:
        notes[0] += ", among questions with as many recorded rounds"
    if cut:
        notes[0] += (
            "; questions that a rule cut take part at full width, and what they are dealt beyond that is unknown"
        )
    alone = int((strata.size == 1).sum())
    if alone:
        notes.append(
            f"in {counted(alone, 'question')} it stops as the rule does: no other question has as many recorded rounds"
        )
    return tuple(notes)


def _blind_masks(
    prepared: PreparedRecording, selector: Selector, view: Rounds, stop: Positions, answer: Positions
) -> Mapping[str, Mask]:
    """Return the rounds paid, by component, by a stop at `stop` that reads no signals except those of the selector."""
    blind = Stops(view=view, position=stop, answer_position=answer, fired=stop >= 0)
    policy = Policy(selector=selector, start_round=int(view.index[0]))
    return prepared.charging.policy_masks(prepared.costs, policy, blind)
