"""Conventions of charging: which recorded calls of judges, rerankers and embedders a policy pays for.

Every convention charges the loop and its evidence in each visited round (`loop_masks`).  Conventions differ on the
components that are only called because a rule or selector reads their signals, and on the critic's reply to the last
draft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from suffice.errors import NotFoundError
from suffice.evaluation.replay.costs import GATE, GENERATOR, CostTable
from suffice.policy.rounds import Mask, Positions, Rounds
from suffice.policy.rules.selectors import CALIBRATED
from suffice.policy.session import Policy, Stops
from suffice.policy.signals import CRITIC, CUMULATED, OF_ANSWERS, SIGNALS, TRIAL

_EMBEDDER = "embedder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Charging:
    """A convention of charging.

    Attributes:
        name: Its name in the setting `ledger`.
        note: A note to show with the figures; empty for the default convention.
        of_policy: A function that returns, by component, the mask of the rounds in which a policy pays for calls on
            demand.  A mask has the shape of the view.  A component without a mask is paid in every visited round if
            it belongs to the loop, otherwise never.
        of_oracle: A function that returns these masks for an oracle, given the metric that the oracle maximises and
            the rounds that it visits.
    """

    name: str
    note: str
    of_policy: Callable[[CostTable, Policy, Stops], dict[str, Mask]]
    of_oracle: Callable[[CostTable, str, Mask], dict[str, Mask]]

    def policy_masks(self, table: CostTable, policy: Policy, stopped: Stops) -> dict[str, Mask]:
        """Return masks of the rounds that a policy pays for, by component, each of shape ``(n_questions, n_rounds)``.

        The loop and its evidence are paid in every visited round.  Calls on demand depend on the convention: `live`
        charges them where the lazily evaluated rule or the selector reads the signal (SEMANTICS, Costs).  At a gated
        round 0, the answer is paid only where it is used.

        Args:
            table: The recorded costs.
            policy: The policy.
            stopped: Its stops.
        """
        masks = dict.fromkeys(table.components, np.zeros(table.seen.shape, dtype=np.bool_))
        masks |= dict.fromkeys(table.loop, widen(table, stopped.view, stopped.charged()))
        return masks | self.demanded(table, policy, stopped)

    def demanded(self, table: CostTable, policy: Policy, stopped: Stops) -> dict[str, Mask]:
        """Return the masks of the components whose paid rounds depend on more than the stop round.

        For example, the judge of a signal is paid only where a rule reads the signal.

        A component without a mask is paid in every visited round if it belongs to the loop, otherwise never.
        """
        needs = self.of_policy(table, policy, stopped)
        if table.gated and GENERATOR in table.components and stopped.view.index[0] == 0:
            answers = stopped.charged()
            answers[:, 0] &= (stopped.position == 0) | answered_closed_book(table, policy, stopped)
            needs = {GENERATOR: answers, **needs}
        if TRIAL in table.components:
            needs = {**needs, TRIAL: needs.get(TRIAL, False) | _returned(policy, stopped)}
        return {name: widen(table, stopped.view, mask) for name, mask in needs.items()}

    def oracle_masks(self, table: CostTable, view: Rounds, position: Positions, metric: str) -> dict[str, Mask]:
        """Return masks of the rounds that an oracle pays for if it stops at `position`, by component.

        The masks have the recording's shape.

        Args:
            table: The recorded costs.
            view: The rounds at which the oracle may stop.
            position: The position of each stop.
            metric: The metric that the oracle maximises; "" if no judge measures the metric.
        """
        masks = loop_masks(table, view, position)
        if TRIAL in table.components:
            masks[TRIAL] = widen(table, view, view.seen & (np.arange(len(view)) == position[:, None]))
        visited = view.seen & (np.arange(len(view)) <= position[:, None])
        needs = self.of_oracle(table, metric, visited)
        return masks | {name: widen(table, view, mask) for name, mask in needs.items()}


def loop_masks(table: CostTable, view: Rounds, position: Positions) -> dict[str, Mask]:
    """Return masks, by component, of the rounds that a policy pays for if it stops at `position` and reads no signal."""
    visited = view.seen & (np.arange(len(view)) <= position[:, None])
    masks = dict.fromkeys(table.loop, visited)
    if table.gated and GENERATOR in masks and view.index[0] == 0:
        answers = visited.copy()
        answers[:, 0] &= position == 0  # the closed-book answer is paid only if the gate returns it
        masks[GENERATOR] = answers
    return {component: widen(table, view, mask) for component, mask in masks.items()}


def widen(table: CostTable, view: Rounds, mask: Mask) -> Mask:
    """Extend a mask over the view's rounds to all recorded rounds, shape ``(n_questions, n_rounds)``."""
    if mask.shape == table.seen.shape:
        return mask
    wide = np.zeros(table.seen.shape, dtype=np.bool_)
    offset = int(view.index[0] - table.index[0])
    wide[:, offset : offset + len(view)] = mask
    return wide


def _returned(policy: Policy, stopped: Stops) -> Mask:
    """Return a mask of the checkpoints whose trial answers a live loop requests because it must return an answer.

    The loop first requests the trial answer at the stop.  If this answer is blank, the loop requests the trial answer
    of the checkpoint before, and so on until an answer is not blank.  A selector that compares answers needs a trial
    answer at every visited checkpoint.
    """
    visited = stopped.charged()
    if policy.compares_answers:
        return visited
    from_answer: Mask = np.arange(visited.shape[1]) >= stopped.answer_position[:, None]
    return visited & from_answer


def component_of(name: str, policy: Policy | None, measured_by: Mapping[str, str]) -> tuple[str, str]:
    """Return the raw signal behind the signal `name`, and the component that measures it.

    A signal that sums up costs belongs to the critic, since the cost of a round is known only after the critic's reply.
    """
    sources = {} if policy is None else {calibrator.output: calibrator.signal for calibrator in policy.calibrators}
    raw = sources.get(name, CALIBRATED.get(name, name))
    known = SIGNALS.get(raw)
    if raw in CUMULATED:
        return raw, CRITIC
    return raw, measured_by.get(raw) or (known.component if known else f"judge:{raw}")


def _where_read(table: CostTable, policy: Policy, stopped: Stops) -> dict[str, Mask]:
    """Return masks, by component, of the rounds in which the result of a call on demand is read.

    The readers are the lazily evaluated rule, the selector, and the next draft (which reads the critic's reply).
    """
    if CRITIC not in table.components and set(table.components) <= set(table.loop):
        return {}
    view, visited = stopped.view, stopped.charged()
    reads = [(name, mask & visited) for name, mask in policy.rule.reads(view, view.seen).items()]
    reads += [(name, visited) for name in policy.selector.signals]
    needs: dict[str, Mask] = {}
    if CRITIC in table.components:
        # If the trajectory ended although the loop wanted another round, the critic had already replied to the last
        # draft.
        exhausted = ~stopped.fired & (stopped.rounds < policy.max_rounds)
        needs[CRITIC] = _followed(visited) | visited & exhausted[:, None]
    for name, mask in reads:
        component, first, back = read_from(name, policy, table)
        if component not in table.components or (component in table.loop and component != CRITIC):
            continue
        read = mask & (view.index >= first)
        # A signal that looks back (overlap: one round) also needs the rounds before the one that reads it.
        for step in range(min(back, len(view) - 1) + 1):
            earlier = np.zeros_like(read)
            earlier[:, : len(view) - step] = read[:, step:]
            needs[component] = needs[component] | earlier if component in needs else earlier
    return needs


def read_from(name: str, policy: Policy, table: CostTable) -> tuple[str, int, int]:
    """Return the component that measures a signal, the signal's first round, and how many rounds the signal looks back."""
    raw, component = component_of(name, policy, table.measured_by)
    of_own = raw not in SIGNALS and raw not in table.measured_by  # it may need an answer
    if TRIAL in table.components and (component in OF_ANSWERS or of_own):
        component = TRIAL  # on a chain of thought, answers and signals of answers come from trial answers
    known = SIGNALS.get(raw)
    return component, *((known.first_round, known.lookback) if known else (0, 0))


def _followed(visited: Mask) -> Mask:
    """Return the visited rounds that are followed by another round, whose draft reads the critic's reply."""
    followed = np.zeros_like(visited)
    followed[:, :-1] = visited[:, 1:]
    return followed & visited


def answered_closed_book(table: CostTable, policy: Policy, stopped: Stops) -> Mask:
    """Return a mask of the questions that a live loop would answer at a gated round 0, shape ``(n_questions,)``.

    The loop answers there if this answer is returned (even a blank one), if the rule reads a signal of the answer, or
    if the policy's selector uses all answers.  `suffice.loops.live` follows the same condition.
    """
    view = stopped.view
    answered: Mask = (stopped.answer_rounds <= 0) | policy.reads_every_answer
    for name, mask in policy.rule.reads(view, view.seen).items():
        if reads_closed_book(name, policy, table.measured_by):
            answered = answered | mask[:, 0]
    return answered


def reads_closed_book(name: str, policy: Policy, measured_by: Mapping[str, str]) -> bool:
    """Return whether reading this signal at a gated round 0 requires the closed-book answer."""
    raw, component = component_of(name, policy, measured_by)
    return component not in ("", GATE) and (raw not in SIGNALS or SIGNALS[raw].may_exist(0))


def _critic_alone(table: CostTable, metric: str, visited: Mask) -> dict[str, Mask]:
    """Return the rounds in which an oracle pays for the critic, whose reply the next draft needs.

    Judges are not charged: an oracle knows metrics for free.
    """
    del metric
    return {CRITIC: _followed(visited)} if CRITIC in table.components else {}


def _every_visited_round(table: CostTable, policy: Policy, stopped: Stops) -> dict[str, Mask]:
    """Return every visited round, for each component (except the embedder) that measures a signal of the policy."""
    visited = stopped.charged()
    names = {
        component_of(name, policy, table.measured_by)[1] for name in (*policy.rule.signals, *policy.selector.signals)
    }
    return {name: visited for name in table.components if name in names - {_EMBEDDER}}


def _up_to_the_choice(table: CostTable, metric: str, visited: Mask) -> dict[str, Mask]:
    """Charge the judge of the metric in every round up to the chosen one; return the mask by component."""
    component = component_of(metric, None, table.measured_by)[1]
    return {component: visited} if component in table.components else {}


LIVE = Charging(name="live", note="", of_policy=_where_read, of_oracle=_critic_alone)
"""The costs of a live run: calls on demand are lazy, and oracles call no component for a signal (SEMANTICS, Costs).

The next draft reads the critic's reply, so the reply is paid in every visited round except the last; in the last round
it is paid only where the rule or the selector reads it.
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
"""The costs as Semantic Early-Stopping counted them, which are not what a live run would have paid.

Its public harness adds up writer, critic and, for a rule that reads a mark, judge over all rounds up to the stop.  Its
published means agree: the rule on the gain alone runs three rounds longer than the whole cascade, and its tokens are
higher by about the cost of three judged rounds.  A lazy judge would also skip the rounds at which the drafts converged.
"""

LEDGERS: Mapping[str, Charging] = {charging.name: charging for charging in (LIVE, PUBLISHED)}
"""The conventions by name."""


def charging_of(name: str) -> Charging:
    """Return the convention with this name.

    >>> charging_of("live") is LIVE
    True
    """
    if name not in LEDGERS:
        raise NotFoundError(f"there is no ledger {name!r}; allowed: {', '.join(LEDGERS)}")
    return LEDGERS[name]
