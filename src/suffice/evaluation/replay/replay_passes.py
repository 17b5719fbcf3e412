"""The passes of a replay over its questions; a pass is a function that is called on one block after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add

from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.checks import Definedness
from suffice.evaluation.replay.compared import marked
from suffice.evaluation.replay.joining import joined_run
from suffice.evaluation.replay.orders import dealt_in_orders, mean_runs, run_all
from suffice.evaluation.replay.parts import Blocked
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.random_twins import Dealt
from suffice.evaluation.replay.references import Available, baseline_runs
from suffice.evaluation.replay.selected import Selected, selected_on
from suffice.evaluation.replay.whole import Facts
from suffice.policy.session import Policy


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Facts from the first pass over some questions; the facts of two sets of questions can be added.

    Attributes:
        facts: Facts about the questions; empty for a recording in memory.
        dealt: Counts of the stops of each policy; empty for a recording in memory.
        definedness: Counts of defined signals, for each policy.
        selected: By block, the questions that parts of the policies or of the recording were fitted on.
    """

    facts: tuple[Facts, ...] = ()
    dealt: tuple[Dealt, ...] = ()
    definedness: tuple[Definedness, ...] = ()
    selected: tuple[Selected, ...] = ()
    highest: int = 0

    def __add__(self, other: Looked) -> Looked:
        return Looked(
            facts=(*self.facts, *other.facts),
            dealt=tuple(map(add, self.dealt, other.dealt)) if self.dealt else other.dealt,
            definedness=tuple(map(add, self.definedness, other.definedness)) if self.definedness else other.definedness,
            selected=(*self.selected, *other.selected),
            highest=max(self.highest, other.highest),
        )


@dataclass(frozen=True, kw_only=True)
class LookPass:
    """The first pass: collects facts about the questions and the policies' stops.

    Attributes:
        of_part: Whether each call gets only some of the questions.  The call then also returns stops and facts, which
            are added up over the parts.
    """

    policies: tuple[Policy, ...]
    metrics: tuple[str, ...]
    n_orders: int
    seed: int
    of_part: bool = False

    def __call__(self, prepared: PreparedRecording) -> Looked:
        """Collect the facts about some questions."""
        recording, definedness = prepared.recording, []
        for policy in self.policies:
            definedness.append(Definedness(policy))
            definedness[-1].add(prepared.view(policy))
        selected = (selected_on(self.policies, recording),)
        if not self.of_part:
            return Looked(definedness=tuple(definedness), selected=selected)
        return Looked(
            facts=(Facts.of(prepared, self.metrics),),
            dealt=tuple(dealt_in_orders(prepared, policy, self.n_orders, self.seed) for policy in self.policies),
            definedness=tuple(definedness),
            selected=selected,
            highest=int(recording.index[recording.seen.any(axis=0)][-1]),
        )


@dataclass(frozen=True, kw_only=True)
class RowsPass:
    """The second pass: replays every row of the table.

    Attributes:
        policies: The policies.
        fixed: The fixed budgets.
        selectors, metrics, available, start: See `baseline_runs`.  If `selectors` is None, the only baselines are the
            fixed budgets.
        dealt: Counts of the stops of each policy on all questions; empty if one call gets all questions.
    """

    policies: tuple[Policy, ...]
    fixed: tuple[Policy, ...]
    selectors: Mapping[str, Policy] | None
    metrics: tuple[str, ...]
    available: Available
    start: int
    n_orders: int
    seed: int
    dealt: tuple[Dealt, ...]
    check: Callable[[], None]

    def __call__(self, prepared: PreparedRecording) -> list[list[Run]]:
        """Return the runs of policies, twins, other baselines and fixed budgets on some questions."""
        n, recording, selectors = len(self.policies), prepared.recording, self.selectors
        runs, twins = run_all(
            prepared,
            [*self.policies, *self.fixed],
            self.n_orders,
            self.seed,
            kinds=["rule"] * n + ["fixed"] * len(self.fixed),
            twinned=range(n),
            dealt=dict(enumerate(self.dealt)) if self.dealt else None,
            each=lambda _: self.check(),
        )
        others: list[Run] = []
        if selectors is not None:
            others = mean_runs(
                prepared,
                self.n_orders,
                self.seed,
                lambda block: baseline_runs(block, selectors, self.metrics, self.available, self.start),
            )
        groups = (runs[:n], [twins[place] for place in range(n)], others, runs[n:])
        return [[marked(run, recording) for run in some] for some in groups]


@dataclass(frozen=True, kw_only=True)
class BaselinePass:
    """A further pass: replays one more baseline."""

    policy: Policy
    kind: str
    n_orders: int
    seed: int

    def __call__(self, prepared: PreparedRecording) -> tuple[Run, Definedness]:
        """Return the baseline's run on some questions, and the counts of its defined signals."""
        definedness = Definedness(self.policy)
        definedness.add(prepared.view(self.policy))
        runs, _ = run_all(prepared, [self.policy], self.n_orders, self.seed, kinds=[self.kind])
        return marked(runs[0], prepared.recording), definedness


def joined_groups(blocks: Sequence[Blocked[list[list[Run]]]]) -> list[list[Run]]:
    """Join the runs of all blocks, group by group; blocks in which all questions failed have no runs."""
    known = [block.result for block in blocks if block.result is not None]
    return [[joined_run(parts) for parts in zip(*some, strict=True)] for some in zip(*known, strict=True)]
