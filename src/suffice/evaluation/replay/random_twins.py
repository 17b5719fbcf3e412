"""The random twin of a policy: its stops, assigned to questions at random, so that they carry no information."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.common.tables import counted
from suffice.evaluation.replay.baselines import Run, stop_shares
from suffice.evaluation.replay.costs import over_rounds
from suffice.evaluation.replay.estimated_shares import EstimatedShares
from suffice.evaluation.replay.outcomes import answers_by_stop
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.session import Policy, Stops
from suffice.policy.signals import TRIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """Counts of a policy's stops for `random_stop`; the counts of several parts can be added.

    Questions are counted in groups: one group for each order and each number of recorded rounds.  A question that was
    cut by a rule counts as if it had all rounds.

    Attributes:
        size: Number of questions in each group, shape ``(n_orders * (n_rounds + 1),)``.
        paid: Number of a group's questions that stop at each round, shape ``(n_orders * (n_rounds + 1), n_rounds)``.
        known: As `paid`, without the stops that need rounds that never ran.
        unrun: Number of a group's questions whose stop needs rounds that never ran, shape of `size`.
        rounds: Sum of the stop rounds of a group's questions, shape of `size`.
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
        """Count the stops of some questions."""
        ends, width = prepared.recording.ends, len(stopped.view)
        code, unrun = _exchanged(prepared, policy, stopped), stopped.unrun(ends, policy.max_rounds)
        place = code * width + np.maximum(stopped.position, 0)
        n = prepared.n_orders * (width + 1)

        def counted_at(places: Positions) -> Positions:
            return np.bincount(places, minlength=n * width).reshape(n, width)

        return cls(
            size=np.bincount(code, minlength=n),
            paid=counted_at(place),
            known=counted_at(place[~unrun]),
            unrun=np.bincount(code[unrun], minlength=n),
            rounds=np.bincount(code, weights=stopped.rounds, minlength=n).astype(np.int64),
            cut=bool(stopped.cut(ends, policy.max_rounds).any()),
        )

    @classmethod
    def in_turn(cls, blocks: Sequence[Dealt]) -> Dealt:
        """Concatenate counts of the same questions in different orders."""
        names = ("size", "paid", "known", "unrun", "rounds")
        return cls(
            **{name: np.concatenate([getattr(block, name) for block in blocks]) for name in names},
            cut=any(block.cut for block in blocks),
        )

    def of_orders(self, orders: slice) -> Dealt:
        """Return the counts in some of the orders."""
        n = self.paid.shape[1] + 1
        part = slice(orders.start * n, orders.stop * n)
        return replace(
            self,
            size=self.size[part],
            paid=self.paid[part],
            known=self.known[part],
            unrun=self.unrun[part],
            rounds=self.rounds[part],
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
    def sizes(self) -> Positions:
        """The sizes of the non-empty groups of questions with equally many rounds, the same in every order."""
        size = self.size[: self.paid.shape[1] + 1]
        return size[size > 0]

    def shares(self, counts: Positions, code: Positions) -> Floats:
        """Return, for each question, the mean of `counts` over its group."""
        sizes = np.maximum(self.size, 1).reshape(-1, *([1] * (counts.ndim - 1)))
        shares: Floats = (counts / sizes)[code]
        return shares


def _exchanged(prepared: PreparedRecording, policy: Policy, stopped: Stops) -> Positions:
    """Return the number of each question's group, shape ``(n_questions,)``.

    A group contains the questions of one order with equally many rounds; stops are exchanged within a group.
    """
    cut, width = stopped.cut(prepared.recording.ends, policy.max_rounds), len(stopped.view)
    length = np.where(cut, width, stopped.view.seen.sum(axis=-1)).astype(np.int64)
    if prepared.n_orders == 1:
        return length
    return length + (width + 1) * np.repeat(np.arange(prepared.n_orders), len(length) // prepared.n_orders)


def random_stop(prepared: PreparedRecording, policy: Policy, stopped: Stops, dealt: Dealt | None = None) -> Run:
    """Return the exact expectation of `policy` if its stop rounds were assigned to questions at random.

    Stop rounds are exchanged only within a group of questions with equally many rounds, since a question with two rounds
    cannot stop at round five.  If the policy stops 30 % of a group at round 2, each question of the group stops there
    with probability 30 %.  So a question's expected metric is the mean over rounds, weighted by these shares.  A
    question that a rule cut takes part as if it had all rounds; it is `unrun` with the probability of a stop at a round
    that never ran.

    Args:
        prepared: The recording.
        policy: The policy.
        stopped: The policy's stops.
        dealt: Counts of the stops of all questions, if `prepared` holds only some questions; None = it holds all.
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
    outcomes = prepared.outcomes_by_stop(policy).values
    worst = {name: over_rounds(known, values[:, : len(view)]) for name, values in outcomes.items()}
    masks, calls, tokens = _blind_masks(prepared, policy, view, paid)
    by_stop = prepared.costs_by_stop(policy)
    ledger = by_stop.ledger(lambda sums: over_rounds(paid, sums[:, : len(view)]), masks)
    calls = by_stop.calls(masks)[:, : len(view)] + calls
    tokens = by_stop.tokens(masks)[:, : len(view)] + tokens
    some = np.flatnonzero(paid.any(axis=0))
    return Run(
        label=f"random({policy.label})",
        kind="random",
        worst=worst,
        best={name: values + missing for name, values in worst.items()} if missing.any() else worst,
        unrun=missing > 0,
        ledger=ledger,
        calls=(calls[:, some].ravel(), paid[:, some].ravel()),
        # Over all questions the shares are the policy's own unless rounds are missing; over some of them they are
        # expected values.
        stop_rounds=stop_shares(stopped.rounds, stopped.unrun(ends, policy.max_rounds))
        if dealt is None and not missing.any()
        else _dealt_shares(view, known),
        reasons={},
        selector=str(policy.selector),
        rounds=every.shares(every.rounds, code),
        estimated=EstimatedShares.of(
            np.where(cut, len(view), length)[: prepared.n // prepared.n_orders],
            np.where(stopped.unrun(ends, policy.max_rounds), len(view), np.maximum(stopped.position, 0)),
            metrics={name: _most(values[:, : len(view)], known, ran) for name, values in outcomes.items()},
            costs={"calls": calls, "tokens": tokens},
        ),
        notes=twin_notes(every.sizes, cut=every.cut),
    )


def _most(values: Floats, known: Floats, ran: Mask) -> Floats:
    """Return the largest possible metric of a stop at each round, shape ``(n_questions, n_rounds)``.

    The metric of a round that never ran may be 1.  If a question's metric is NaN at a round where the question may
    stop, the metric counts as 1 at every round of the question.

    Args:
        values: The metric of a stop at each round, shape ``(n_questions, n_rounds)``; NaN where unknown.
        known: Probability of a stop at each round that ran, same shape.
        ran: Mask of the rounds that ran, same shape.
    """
    unknown = (np.isnan(values) & (known > 0)).any(axis=1, keepdims=True)
    return values if ran.all() and not unknown.any() else np.where(ran & ~unknown, values, 1.0)


def _dealt_shares(view: Rounds, known: Floats) -> dict[int, float]:
    return {int(r): float(known[:, k].mean()) for k, r in enumerate(view.index) if known[:, k].any()}


def twin_notes(sizes: Positions, *, cut: bool) -> tuple[str, ...]:
    """Return the notes on a random twin."""
    notes = ["exact expectation over random permutations of the rule's own stop rounds"]
    if len(sizes) > 1:
        notes[0] += ", among questions with as many recorded rounds"
    if cut:
        notes[0] += (
            "; questions that a rule cut take part at full width, and what they are dealt beyond that is unknown"
        )
    alone = int((sizes == 1).sum())
    if alone:
        notes.append(
            f"in {counted(alone, 'question')} it stops as the rule does: no other question has as many recorded rounds"
        )
    return tuple(notes)


def _blind_masks(
    prepared: PreparedRecording, policy: Policy, view: Rounds, paid: Floats
) -> tuple[dict[str, Floats], Floats, Floats]:
    """Return the expected calls on demand of random stops.  Random stops read no signals except the selector's.

    Args:
        prepared: The recording.
        policy: The policy.
        view: The policy's view.
        paid: Probability of a stop at each round, shape ``(n_questions, n_rounds)``.

    Returns:
        By component, the probability that each round is paid.  Then the calls, and the tokens, of these components
        together up to a stop at each round.
    """
    blind = Policy(selector=policy.selector, start_round=int(view.index[0]))
    last, answers = view.seen.sum(axis=-1) - 1, None
    masks: dict[str, Floats] = {}
    calls, tokens = np.zeros((2, *paid.shape))
    # A question without rounds is charged nothing, wherever the others stop.
    for k in np.flatnonzero(paid.any(axis=0)).tolist():
        stop = np.minimum(k, last)
        if answers is None and (prepared.costs.gated or TRIAL in prepared.costs.components):
            answers = answers_by_stop(policy.selector, view)
        answer = stop if answers is None else answers[:, k]  # else costs do not depend on the answer
        stopped = Stops(view=view, position=stop, answer_position=answer, fired=stop >= 0)
        demanded = prepared.charging.demanded(prepared.costs, blind, stopped)
        for component, mask in demanded.items():
            masks[component] = masks.get(component, 0.0) + paid[:, k, None] * mask
        if demanded:
            calls[:, k] = prepared.costs.calls(demanded, policy.max_rounds)
            tokens[:, k] = prepared.costs.charge(demanded, policy.max_rounds).total("tokens")
    return masks, calls, tokens
