"""Many replays of one recording: everything that does not depend on the policies is computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.by_stop import run_all
from suffice.evaluation.replay.charging import LIVE
from suffice.evaluation.replay.checks import check_policy, policy_for
from suffice.evaluation.replay.compared import ComparedRuns, Comparison, Replayed, companions, labelled, marked
from suffice.evaluation.replay.orders import mean_runs, n_orders
from suffice.evaluation.replay.outcomes import default_metrics
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.references import baseline_runs, fixed_policies, selectors_in_use
from suffice.evaluation.replay.selected import selected_on
from suffice.evaluation.replay.whole import Facts, Whole
from suffice.evaluation.statistics import Resampling
from suffice.policy.rules import Rule
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording

__all__ = ["ComparedRuns", "Replayer"]


class Replayer(Comparison):
    """Replays policies on one recording repeatedly; metrics, baselines and draws are cached.

    `replay` does one comparison with a new replayer; its documentation describes the arguments and errors.

    >>> from suffice.recordings import bundled_recording
    >>> replayer = Replayer(bundled_recording("self_refine_dv3"), metrics=["target_sentiment"])
    >>> for eps in (0.03, 0.06):
    ...     print(replayer.compare(f"semantic({eps})").result().headline(f"semantic({eps})"))
    semantic(0.03): target_sentiment 97.1 (-0.7 [-2.8, +1.4] vs fixed_k(3)); 7.37 calls; dominated by fixed_k(2)
    semantic(0.06): target_sentiment 97.8 (+0.0 [-1.5, +1.5] vs fixed_k(3)); 6.49 calls; dominated by fixed_k(2)

    Attributes:
        prepared: The recording without its failed questions.
        metrics: The metrics; the first one is the quality.
        resampling, margins, cost, ledger, data_hash: See `replay`.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        metrics: str | Sequence[str] | None = None,
        resampling: Resampling = Resampling(),
        prices: Price | Mapping[str, Price] | None = None,
        margins: Sequence[float] = (0.02,),
        cost: str = "calls",
        ledger: str = LIVE.name,
        orders: int | None = None,
        wave: int | None = None,
    ) -> None:
        prepared = PreparedRecording.of(recording, prices=prices, ledger=ledger, samples=True, wave=wave)
        metrics = [metrics] if isinstance(metrics, str) else metrics
        complete = prepared.recording
        self.metrics = companions(complete, default_metrics(complete) if metrics is None else metrics)
        self.prepared = prepared.with_metrics(self.metrics)
        self.resampling, self.margins, self.cost, self.ledger = resampling, tuple(margins), cost, ledger
        self.data_hash = recording.data_hash
        self._orders = orders
        self._runs: list[tuple[Policy, str, Run]] = []
        self._others: list[tuple[tuple[dict[str, Policy], int], list[Run]]] = []

    def compare(
        self,
        policies: Policy | Rule | str | Sequence[Policy | Rule | str],
        baseline: str | Policy | None = None,
        *,
        check: Callable[[], None] = lambda: None,
    ) -> ComparedRuns:
        """Replay policies beside every baseline.

        Args:
            policies: See `replay`, also for the errors.
            baseline: See `replay`.
            check: Called from time to time; an exception that it raises ends the comparison.
        """
        prepared, complete = self.prepared, self.prepared.recording
        items = [policies] if isinstance(policies, str | Rule | Policy) else policies
        replayed = labelled(
            [item if isinstance(item, Policy) else policy_for(complete, item, name=str(item)) for item in items]
        )
        notes = {policy.label: check_policy(policy, complete) for policy in replayed}
        selectors = selectors_in_use(replayed)
        n = n_orders(complete, self._orders, replayed)
        fixed = fixed_policies(prepared.highest, selectors)
        missing = [policy for _, policy in fixed if self._run_of(policy, "fixed") is None]
        kinds = ["rule"] * len(replayed) + ["fixed"] * len(missing)
        check()
        runs, twins = run_all(
            prepared,
            [*replayed, *missing],
            n,
            self.resampling.seed,
            kinds=kinds,
            twinned=range(len(replayed)),
            each=lambda _: check(),
        )
        self._runs += zip(missing, kinds[len(replayed) :], runs[len(replayed) :], strict=True)
        check()

        def run_of(policy: Policy, kind: str) -> Run:
            check_policy(policy, complete)
            return marked(self._run(policy, kind, n), complete)

        return self.compared(
            replayed,
            Replayed(
                policies=[marked(run, complete) for run in runs[: len(replayed)]],
                twins=[twins[place] for place in range(len(replayed))],
                others=[marked(run, complete) for run in self._other_baselines(replayed, selectors, n)],
                fixed=[
                    marked(replace(self._run(policy, "fixed", n), selector=name), complete) for name, policy in fixed
                ],
            ),
            baseline,
            notes=notes,
            run_of=run_of,
            selected=selected_on(replayed, complete),
            n_orders=n,
        )

    @cached_property
    def whole(self) -> Whole:
        """All questions."""
        facts = Facts.of(self.prepared, self.metrics)
        return Whole(
            recording=self.prepared.recording, facts=(facts,), charging=self.prepared.charging, metrics=self.metrics
        )

    def _run_of(self, policy: Policy, kind: str) -> Run | None:
        return next((run for other, of, run in self._runs if of == kind and other == policy), None)

    def _run(self, policy: Policy, kind: str, n: int) -> Run:
        """Return the run of a baseline; cached."""
        run = self._run_of(policy, kind)
        if run is None:
            run = run_all(self.prepared, [policy], n, self.resampling.seed, kinds=[kind])[0][0]
            self._runs.append((policy, kind, run))
        return run

    def _other_baselines(self, policies: Sequence[Policy], selectors: dict[str, Policy], n: int) -> list[Run]:
        """Return every baseline except fixed budgets, for these selectors and this first round."""
        start = min((policy.start_round for policy in policies), default=1)
        key, available = (selectors, start), self.whole.available(start)
        for other, runs in self._others:
            if other == key:
                return runs

        def runs_of(prepared: PreparedRecording) -> list[Run]:
            return baseline_runs(prepared, selectors, self.metrics, available, start)

        runs = mean_runs(self.prepared, n, self.resampling.seed, runs_of)
        self._others.append((key, runs))
        return runs
