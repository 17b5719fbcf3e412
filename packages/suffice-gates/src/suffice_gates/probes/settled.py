"""A probe on a chain of thought as a signal of its checkpoints: the probability that the trial answer is right."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from suffice.policy.rounds import Cost, Reply, Round
from suffice.policy.seen import Seen
from suffice.policy.signals import PROBER, SETTLED
from suffice_gates.models.chain_states import THOUGHTS, ChainStates
from suffice_gates.probes.gate import combined, pin_of, rows_of, seen_by_probes
from suffice_gates.probes.probe import Probe


class SettledProbe:
    """Measures `p_settled`: the probability that the trial answer is right, before it is asked, from the chain's states.

    It is an enricher of a `ThinkingLoop`.  Probes of several layers vote by the mean of their log-odds.  Each checkpoint is one
    pass over the chain so far, whose tokens the component `prober` is charged.

    Args:
        probes: One, or one for each of several layers, trained on `ChainStates`.
        source: The states of the model that thinks.

    Raises:
        ConfigMismatchError: A probe belongs to another model, layer, template or kind of states.
        DataError: There is no probe.
    """

    name = PROBER
    capabilities = frozenset({SETTLED})

    def __init__(self, probes: Probe | Sequence[Probe], source: ChainStates) -> None:
        self.probes = (probes,) if isinstance(probes, Probe) else tuple(probes)
        self.source = source
        self._rows = rows_of(self.probes, source, (THOUGHTS,))

    def __repr__(self) -> str:
        return f"SettledProbe({list(self.probes)!r})"

    @property
    def seen(self) -> Seen | None:
        """The questions that the probes were fitted on; None if those of one were not recorded."""
        return seen_by_probes(self.probes)

    def fingerprint(self) -> Mapping[str, Any]:
        """The pins of the probes."""
        return pin_of(self.probes)

    async def measure(self, question: str, observed: Round) -> Reply:
        """Measure a chain of a single checkpoint; see `measure_chain`."""
        return await self.measure_chain(question, [observed])

    async def measure_chain(self, question: str, rounds: Sequence[Round]) -> Reply:
        """Read the chain up to its last checkpoint and return `p_settled`; NaN where nothing was thought since the one before.

        Raises:
            ModelError: The pass failed, or the chain exceeds the context.
        """
        return await asyncio.to_thread(self._measured, question, rounds)

    def _measured(self, question: str, rounds: Sequence[Round]) -> Reply:
        if not rounds[-1].thinking:
            return Reply(signals={SETTLED: math.nan}, costs={self.name: Cost()})
        values, cost = self.source.of_chain(question, rounds)
        began = time.perf_counter()
        settled = combined(self.probes, values, self._rows)
        return Reply(signals={SETTLED: settled}, costs={self.name: cost + Cost(seconds=time.perf_counter() - began)})
