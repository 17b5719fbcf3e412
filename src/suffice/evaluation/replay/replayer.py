"""Replays of one recording, in memory or on disk; results that do not depend on the policies are computed once.

There are two passes over the questions.  The first pass collects facts that the second one needs about all
questions.  These are the recorded figures and the stops of each policy, since a random twin exchanges stops between
questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import chain
from operator import add
from pathlib import Path

from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.blocks import Source
from suffice.evaluation.replay.charging import LIVE, charging_of
from suffice.evaluation.replay.checks import check_policy, policy_for
from suffice.evaluation.replay.compared import (
    companions,
    labelled,
    margin_tests,
    mean_differences,
    paired_differences,
    row_of,
)
from suffice.evaluation.replay.joining import joined_run
from suffice.evaluation.replay.orders import n_orders, order_note
from suffice.evaluation.replay.outcomes import MultipleChoice, default_metrics
from suffice.evaluation.replay.parts import (
    BLOCK_ROWS,
    FileParts,
    MemoryParts,
    Parts,
    Progress,
    check_block_rows,
    opened,
    usable_jobs,
)
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price, currency_of
from suffice.evaluation.replay.random_twins import Dealt
from suffice.evaluation.replay.references import (
    fixed_policies,
    refuse_unmeasured,
    selector_names,
    selectors_in_use,
    with_references,
)
from suffice.evaluation.replay.replay_passes import BaselinePass, Looked, LookPass, RowsPass, joined_groups, nothing
from suffice.evaluation.replay.result import ReplayResult
from suffice.evaluation.replay.rivals import Rival, check_cost, find_rivals
from suffice.evaluation.replay.selected import Selected
from suffice.evaluation.replay.whole import Facts, Whole
from suffice.evaluation.statistics import Draws, Resampling, Units, undefined_notes
from suffice.policy.normalizers import MATCH
from suffice.policy.rules import Rule
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording

__all__ = ["ComparedRuns", "Replayer"]

_LOOKED_AT = ("question", "cluster", "golds", "em", "f1")
"""Columns that notes on all questions need, besides those that policies and metrics read."""

Policies = Policy | Rule | str | Sequence[Policy | Rule | str]


class Replayer:
    """Replays policies on one recording repeatedly; metrics, baselines and draws are cached.

    `replay` does a single comparison with a new replayer; its documentation describes arguments and errors.

    >>> from suffice.recordings import bundled_recording
    >>> replayer = Replayer(bundled_recording("self_refine_dv3"), metrics=["target_sentiment"])
    >>> for eps in (0.03, 0.06):
    ...     print(replayer.compare(f"semantic({eps})").result().headline(f"semantic({eps})"))
    semantic(0.03): target_sentiment 97.1 (-0.7 [-2.8, +1.4] vs fixed_k(3)); 7.37 calls; dominated by fixed_k(2)
    semantic(0.06): target_sentiment 97.8 (+0.0 [-1.5, +1.5] vs fixed_k(3)); 6.49 calls; dominated by fixed_k(2)

    Attributes:
        metrics: The metrics; the first one is the quality.  For a file, default metrics are known only after a
            comparison.
        resampling, margins, cost, ledger: See `replay`.
    """

    def __init__(
        self,
        recording: Recording | Source | str | Path,
        *,
        metrics: str | Sequence[str] | None = None,
        resampling: Resampling = Resampling(),
        prices: Price | Mapping[str, Price] | None = None,
        margins: Sequence[float] = (0.02,),
        cost: str = "calls",
        ledger: str = LIVE.name,
        orders: int | None = None,
        wave: int | None = None,
        block_rows: int = BLOCK_ROWS,
        jobs: int | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        check_block_rows(block_rows)
        charging_of(ledger)
        self.resampling, self.margins, self.cost, self.ledger = resampling, tuple(margins), cost, ledger
        self._orders, self._prices = orders, prices
        self._runs: list[tuple[Policy, str, int, Run]] = []
        self._others: list[tuple[tuple[dict[str, Policy], int, int], list[Run]]] = []
        source = recording
        if isinstance(source, str | Path):
            source = opened(source, in_blocks=jobs is not None)
        named = [metrics] if isinstance(metrics, str) else metrics
        self._parts: Parts
        if isinstance(source, Recording):
            prepared = PreparedRecording.of(source, prices=prices, ledger=ledger, samples=True, wave=wave)
            complete = prepared.recording
            self.metrics = companions(complete, default_metrics(complete) if named is None else named)
            self._parts = MemoryParts(prepared=prepared.with_metrics(self.metrics), whole=source)
            return
        head = source.empty()
        candidates = (MATCH,) if MATCH in head.names("metric") else ("f1", "em")
        self.metrics = candidates if named is None else companions(head, named)
        self._parts = FileParts(
            source=source,
            metrics=self.metrics,
            prices=prices,
            ledger=ledger,
            wave=wave,
            block_rows=block_rows,
            jobs=usable_jobs(jobs, source),
            on_progress=on_progress,
            undecided=named is None,
        )

    def compare(
        self, policies: Policies, baseline: str | Policy | None = None, *, check: Callable[[], None] = nothing
    ) -> ComparedRuns:
        """Replay policies together with every baseline.

        Args:
            policies: See `replay`, also for the errors.
            baseline: See `replay`.
            check: Called from time to time; an exception that it raises ends the comparison.
        """
        replayed, n, looked = self._looked(policies)
        whole, head = self.whole, self._parts.head
        notes = {
            policy.label: check_policy(policy, head, definedness=known)
            for policy, known in zip(replayed, looked.definedness, strict=True)
        }
        selectors, own = selectors_in_use(replayed), selector_names(replayed)
        check()
        runs, twins, others = self._replayed(replayed, selectors, n, looked.dealt, check)
        check()
        fixed = [
            replace(self._run(policy, "fixed", n), selector=name) for name, policy in fixed_policies(whole, selectors)
        ]
        for run in runs:
            refuse_unmeasured(whole, run, self.metrics)
        ordered, references = with_references(
            whole,
            [
                *(
                    replace(run, selector=name, notes=run.notes + notes[run.label])
                    for run, name in zip(runs, own, strict=True)
                ),
                *(replace(run, selector=name) for run, name in zip(twins, own, strict=True)),
                *(run for run in others if run.kind != "oracle"),
                *fixed,
                *(run for run in others if run.kind == "oracle"),
            ],
            selectors,
            baseline=baseline,
            metrics=self.metrics,
            run_of=partial(self._run, n=n),
        )
        check_cost(ordered, self.cost)
        return ComparedRuns(
            replayer=self,
            policies=replayed,
            runs=tuple(ordered),
            references=tuple(references),
            rivals=tuple(find_rivals(ordered, ordered, self.metrics, self.cost)),
            selected=Selected.joined(looked.selected),
            n_orders=n,
        )

    @cached_property
    def whole(self) -> Whole:
        """All questions."""
        if isinstance(self._parts, MemoryParts):
            facts: tuple[Facts, ...] = (Facts.of(self._parts.prepared, self.metrics),)
        else:
            facts = self._facts
        return Whole(recording=self._parts.head, facts=facts, charging=charging_of(self.ledger), metrics=self.metrics)

    @property
    def currency(self) -> str:
        """The currency of money."""
        return currency_of(self._parts.head, self._prices)

    @cached_property
    def data_hash(self) -> str:
        """Hash of the recording."""
        return self._parts.data_hash

    @cached_property
    def draws(self) -> Draws:
        """The bootstrap draws that all comparisons share."""
        return self.resampling.draws(self.whole.clusters)

    @cached_property
    def units(self) -> Units:
        """The units of resampling: questions, or their clusters."""
        return Units.of(self.whole.n, self.whole.clusters)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes on the recording, for every replay of it."""
        return (*self.whole.notes, *undefined_notes(len(set(self.whole.clusters)), self.resampling.n_resamples))

    def _asked(self, policies: Policies) -> tuple[Policy, ...]:
        """Convert the given policies and rules to policies for the recording."""
        head = self._parts.head
        items = [policies] if isinstance(policies, str | Rule | Policy) else policies
        asked = labelled(
            [item if isinstance(item, Policy) else policy_for(head, item, name=str(item)) for item in items]
        )
        for policy in asked:
            check_policy(policy, head, part=True)
        return tuple(asked)

    def _looked(self, policies: Policies) -> tuple[tuple[Policy, ...], int, Looked]:
        """Do the first pass; return the policies, the number of orders, and the collected facts."""
        asked, parts = self._asked(policies), self._parts
        n = n_orders(parts.head, self._orders, asked)
        look = LookPass(policies=asked, metrics=self.metrics, n_orders=n, seed=self.resampling.seed)
        if not isinstance(parts, FileParts):
            (blocked,) = parts.over(look, asked)
            assert blocked.result is not None
            return asked, n, blocked.result
        look = replace(look, of_part=True)
        charged = any(name.startswith("cost.retrieval.") for name in parts.source.schema.names)
        done = parts.over(look, asked, more=(*_LOOKED_AT, *([] if charged else ["passage_ids"])))
        looked = reduce(add, (each.result for each in done if each.result is not None), Looked())
        if looked.facts and looked.highest < int(parts.head.index[-1]):
            # The highest rounds belong only to questions that failed, and are left out like them.
            self._parts = replace(parts, highest=looked.highest)
            return self._looked(policies)
        models = tuple(dict.fromkeys(chain.from_iterable(part.models for part in looked.facts)))
        if parts.models is None and any(set(part.models) != {*models} for part in looked.facts):
            # Costs are split by model if the whole recording has several models, but some blocks lack some of them.
            self._parts = replace(parts, models=models)
            return self._looked(policies)
        parts.source.check_grouped([each.keys for each in done], parts.block_rows)
        if parts.undecided:
            choice = reduce(add, (part.choice for part in looked.facts), MultipleChoice())
            self.metrics = companions(parts.head, default_metrics(parts.head, choice))
            self._parts = replace(parts, metrics=self.metrics, undecided=False)
        self._facts = (*looked.facts, *(Facts(n_failed=each.n_failed) for each in done if each.result is None))
        n_orders(parts.head, self._orders, asked, cut=self.whole.cut)  # raises if a rule ended samples
        return asked, n, looked

    def _replayed(
        self,
        policies: Sequence[Policy],
        selectors: Mapping[str, Policy],
        n: int,
        dealt: Sequence[Dealt],
        check: Callable[[], None],
    ) -> tuple[list[Run], list[Run], list[Run]]:
        """Return the runs of the policies, those of their twins, and those of all baselines except fixed budgets.

        The runs of fixed budgets are only cached, not returned.
        """
        fixed = [policy for _, policy in fixed_policies(self.whole, selectors)]
        start = min((policy.start_round for policy in policies), default=1)
        key = (dict(selectors), start, n)
        known = next((runs for other, runs in self._others if other == key), None)
        rows = RowsPass(
            policies=tuple(policies),
            fixed=tuple(policy for policy in fixed if self._known(policy, "fixed", n) is None),
            selectors=None if known is not None else key[0],
            metrics=self.metrics,
            available=self.whole.available(start),
            start=start,
            n_orders=n,
            seed=self.resampling.seed,
            dealt=tuple(dealt),
            check=check if isinstance(self._parts, MemoryParts) else nothing,
        )
        runs, twins, others, new = joined_groups(self._parts.over(rows, policies, part=1))
        self._runs += [(policy, "fixed", n, run) for policy, run in zip(rows.fixed, new, strict=True)]
        if known is None:
            self._others.append((key, others))
        if dealt:
            # A twin that needs no unrun rounds stops exactly as often at each round as its policy.
            twins = [
                twin if twin.unrun.any() else replace(twin, stop_rounds=run.stop_rounds)
                for twin, run in zip(twins, runs, strict=True)
            ]
        return runs, twins, others if known is None else known

    def _known(self, policy: Policy, kind: str, n: int) -> Run | None:
        return next((run for other, *of, run in self._runs if of == [kind, n] and other == policy), None)

    def _run(self, policy: Policy, kind: str, n: int) -> Run:
        run = self._known(policy, kind, n)
        if run is None:
            head = self._parts.head
            check_policy(policy, head, part=True)
            one = BaselinePass(policy=policy, kind=kind, n_orders=n, seed=self.resampling.seed)
            done = [each.result for each in self._parts.over(one, [policy], part=1) if each.result is not None]
            check_policy(policy, head, definedness=reduce(add, (definedness for _, definedness in done)))
            run = joined_run([run for run, _ in done])
            self._runs.append((policy, kind, n, run))
        return run


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """Replayed policies and baselines with means, costs and stops, before intervals are computed.

    Attributes:
        replayer: The settings that all rows share.
        policies: The policies.
        runs: The runs of the policies, in their order, then those of the baselines.
        references: For each run, the run that it is compared with.
        rivals: For each run, the cheapest fixed_k or random run of at least its quality.
        selected: The questions that parts of the policies or of the recording were fitted on.
        n_orders: Number of orders over which figures are averaged.
    """

    replayer: Replayer
    policies: tuple[Policy, ...]
    runs: tuple[Run, ...]
    references: tuple[Run, ...]
    rivals: tuple[Rival, ...]
    selected: Selected
    n_orders: int

    def result(self, *, intervals: bool = True, tests: bool = True) -> ReplayResult:
        """Compute the result.

        Args:
            intervals: Whether to compute intervals of differences, which takes most of the time.  If False, the ends of
                intervals are NaN and nothing is tested.
            tests: Whether to test differences and margins.
        """
        replayer, metrics = self.replayer, self.replayer.metrics
        whole = replayer.whole
        resampling = replayer.resampling
        if intervals:
            deltas = paired_differences(
                self.runs, self.references, replayer.draws, n_policies=len(self.policies), tests=tests
            )
        else:
            resampling = replace(resampling, n_resamples=0)
            deltas = mean_differences(self.runs, self.references, replayer.units, level=resampling.level)
        rows = [
            row_of(
                whole,
                run,
                other,
                deltas=differences,
                tests=margin_tests(run, other, metrics, replayer.margins, replayer.draws)
                if intervals and tests
                else (),
                rival=rival,
            )
            for run, other, differences, rival in zip(self.runs, self.references, deltas, self.rivals, strict=True)
        ]
        return ReplayResult(
            rows=tuple(rows),
            metrics=metrics,
            baseline=self.references[0].label,
            n=whole.n,
            n_clusters=replayer.units.n_units,
            n_failed=whole.n_failed,
            resampling=resampling,
            cost=replayer.cost,
            ledger=replayer.ledger,
            currency=replayer.currency,
            data_hash=replayer.data_hash,
            notes=(
                *([order_note(self.n_orders, resampling.seed)] if self.n_orders > 1 else ()),
                *replayer.notes,
                *self.selected.notes,
            ),
        )
