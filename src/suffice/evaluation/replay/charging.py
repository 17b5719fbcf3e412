"""Conventions of charging: which recorded calls of judges, rerankers and embedders a policy pays for.

The loop and its evidence are charged alike under every convention (`loop_masks`): each visited round.  They differ in
the components that are called on demand, because a rule or a selector reads their signals, and in the critic's reply to
the last draft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from suffice.errors import NotFoundError
from suffice.evaluation.replay.costs import GATE, GENERATOR, CostTable, loop_masks, widen
from suffice.policy.calibration import CALIBRATED
from suffice.policy.rounds import Mask, Positions, Rounds
from suffice.policy.session import Policy, Stops
from suffice.policy.signals import CRITIC, CUMULATED, SIGNALS

_EMBEDDER = "embedder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Charging:
    """A convention of charging.

    Attributes:
        name: What `--ledger` calls it.
        note: What a reader of its figures must know; empty for the one that all figures have unless they say so.
        of_policy: Which rounds' calls on demand a policy pays for, by component, each of the view's shape; what it does
            not name is paid in every visited round if it belongs to the loop, and else nowhere.
        of_oracle: The same for an oracle that stops at some positions, by the metric that it maximises.
    """

    name: str
    note: str
    of_policy: Callable[[CostTable, Policy, Stops], dict[str, Mask]]
    of_oracle: Callable[[CostTable, str, Mask], dict[str, Mask]]

    def policy_masks(self, table: CostTable, policy: Policy, stopped: Stops) -> dict[str, Mask]:
        """Return which rounds a policy pays for, by component, each of shape ``(n_questions, n_rounds)``.

        The loop and its evidence in every visited round; what is called on demand by this convention, live where the
        lazily evaluated rule or the selector reads its signal (SEMANTICS, Costs); at a gated round 0 the answer only
        where it is used.

        Args:
            table: The recorded costs.
            policy: What decides.
            stopped: Where it stops.
        """
        view, visited = stopped.view, stopped.charged()
        masks = loop_masks(table, view, stopped.position, visited)
        needs = self.of_policy(table, policy, stopped)
        for component in table.components:
            if component in needs or component not in masks:
                masks[component] = widen(table, view, needs.get(component, np.zeros_like(visited)))
        if table.gated and GENERATOR in table.components and view.index[0] == 0:
            answered = answered_closed_book(table, policy, stopped)
            masks[GENERATOR] = masks[GENERATOR].copy()
            masks[GENERATOR][:, int(-table.index[0])] |= answered & visited[:, 0]
        return masks

    def oracle_masks(self, table: CostTable, view: Rounds, position: Positions, metric: str) -> dict[str, Mask]:
        """Return which rounds an oracle pays for that stops at `position`, by component, of the recording's shape.

        Args:
            table: The recorded costs.
            view: The rounds that it may stop at.
            position: Where it stops.
            metric: What it maximises; "" where no judge is behind it.
        """
        masks = loop_masks(table, view, position)
        visited = view.seen & (np.arange(len(view)) <= position[:, None])
        needs = self.of_oracle(table, metric, visited)
        return masks | {name: widen(table, view, mask) for name, mask in needs.items()}


def _component(name: str, policy: Policy | None, measured_by: Mapping[str, str]) -> tuple[str, str]:
    """Return the signal that is measured for `name`, and the component that measures it.

    Of the sums of what rounds cost that is the critic: a round's cost is known once it has replied.
    """
    sources = {} if policy is None else {calibrator.output: calibrator.signal for calibrator in policy.calibrators}
    raw = sources.get(name, CALIBRATED.get(name, name))
    known = SIGNALS.get(raw)
    if raw in CUMULATED:
        return raw, CRITIC
    return raw, measured_by.get(raw) or (known.component if known else f"judge:{raw}")


def _where_read(table: CostTable, policy: Policy, stopped: Stops) -> dict[str, Mask]:
    """Return which rounds' calls on demand are read by the lazily evaluated rule, by the selector, or by a next draft."""
    if CRITIC not in table.components and set(table.components) <= set(table.loop):
        return {}
    view, visited = stopped.view, stopped.charged()
    reads = [(name, mask & visited) for name, mask in policy.rule.reads(view, view.seen).items()]
    reads += [(name, visited) for name in policy.selector.signals]
    needs: dict[str, Mask] = {}
    if CRITIC in table.components:
        # Where the loop wanted another round and the trajectory ended, the critic had replied for it.
        exhausted = ~stopped.fired & (stopped.rounds < policy.max_rounds)
        needs[CRITIC] = _followed(visited) | visited & exhausted[:, None]
    for name, mask in reads:
        raw, component = _component(name, policy, table.measured_by)
        if component not in table.components or (component in table.loop and component != CRITIC):
            continue
        known = SIGNALS.get(raw)
        first, back = (known.first_round, known.lookback) if known else (0, 0)
        read = mask & (view.index >= first)
        # A signal that looks back (overlap: one round) is measured on the rounds before the one that reads it, too.
        for step in range(min(back, len(view) - 1) + 1):
            earlier = np.zeros_like(read)
            earlier[:, : len(view) - step] = read[:, step:]
            needs[component] = needs[component] | earlier if component in needs else earlier
    return needs


def _followed(visited: Mask) -> Mask:
    """Return which visited rounds are followed by another one, whose draft reads the critic's reply."""
    followed = np.zeros_like(visited)
    followed[:, :-1] = visited[:, 1:]
    return followed & visited


def answered_closed_book(table: CostTable, policy: Policy, stopped: Stops) -> Mask:
    """Return at which questions a gated round 0 is answered live, shape ``(n_questions,)``.

    Where its answer is returned, or would have been had it been one; where the rule comes to a signal of the answer;
    everywhere if the policy looks back on all answers (the loop does the same, in `suffice.loops.gating`).
    """
    view = stopped.view
    answered: Mask = (stopped.answer_rounds <= 0) | policy.reads_every_answer
    for name, mask in policy.rule.reads(view, view.seen).items():
        if reads_closed_book(name, policy, table.measured_by):
            answered = answered | mask[:, 0]
    return answered


def reads_closed_book(name: str, policy: Policy, measured_by: Mapping[str, str]) -> bool:
    """Return whether a gated round 0 is answered where a rule comes to this signal there."""
    raw, component = _component(name, policy, measured_by)
    return component not in ("", GATE) and (raw not in SIGNALS or SIGNALS[raw].may_exist(0))


def _critic_alone(table: CostTable, metric: str, visited: Mask) -> dict[str, Mask]:
    """Return the calls of the critic alone, which the next draft needs: an oracle knows all metrics."""
    del metric
    return {CRITIC: _followed(visited)} if CRITIC in table.components else {}


def _every_visited_round(table: CostTable, policy: Policy, stopped: Stops) -> dict[str, Mask]:
    """Return every visited round for each component that measures one of the policy's signals, but for the embedder."""
    visited = stopped.charged()
    names = {
        _component(name, policy, table.measured_by)[1] for name in (*policy.rule.signals, *policy.selector.signals)
    }
    return {name: visited for name in table.components if name in names - {_EMBEDDER}}


def _up_to_the_choice(table: CostTable, metric: str, visited: Mask) -> dict[str, Mask]:
    """Return every round up to the chosen one for the judge of the metric."""
    component = _component(metric, None, table.measured_by)[1]
    return {component: visited} if component in table.components else {}


LIVE = Charging(name="live", note="", of_policy=_where_read, of_oracle=_critic_alone)
"""What the policy, run live, would have paid: calls on demand are lazy, oracles call no component for a signal (SEMANTICS, Costs).

The critic's reply is read by the next draft, and so paid in every visited round but the last; there it is paid where
the rule or the selector reads it.
"""

PUBLISHED = Charging(
    name="published",
    note=(
        "charged as Semantic Early-Stopping published it: a critic, and a judge whose signal a rule reads anywhere, is "
        "paid in every visited round, an oracle pays the judge of its metric up to the round that it chooses, and "
        "embeddings are free"
    ),
    of_policy=_every_visited_round,
    of_oracle=_up_to_the_choice,
)
"""How Semantic Early-Stopping counted: not what a run would have paid.

Its public harness adds up writer, critic and, for a rule that reads a mark, judge over all rounds up to the stop.  Its
published means agree: where the gain alone runs three rounds more than the whole cascade, tokens rise by about what
three more judged rounds cost; a lazy judge would besides save the rounds at which the drafts converged.
"""

LEDGERS: Mapping[str, Charging] = {charging.name: charging for charging in (LIVE, PUBLISHED)}
"""The conventions by name."""


def charging_of(name: str) -> Charging:
    """Return the convention of a name.

    >>> charging_of("live") is LIVE
    True

    Raises:
        DataError: There is none.
    """
    if name not in LEDGERS:
        raise NotFoundError(f"there is no ledger {name!r}; allowed: {', '.join(LEDGERS)}")
    return LEDGERS[name]
