"""A signal at the checkpoints of a chain of thought: a probe's probability that the trial answer is right."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from suffice.policy.rounds import Cost, Reply, Round
from suffice.policy.signals import PROBER, SETTLED
from suffice_gates.models.chain_states import THOUGHTS, ChainStates
from suffice_gates.probes.gate import VotingProbes
from suffice_gates.probes.probe import Probe


class SettledProbe(VotingProbes):
    """Measures `p_settled`: the probability that a trial answer would be right, without requesting the trial answer.

    The probability is read from the states of the chain.

    This class is an enricher of a `ThinkingLoop`.  Probes of several layers vote by the mean of their log-odds.  Each
    checkpoint takes one pass over the chain so far, whose tokens are charged to the component `prober`.

    Args:
        probes: One probe, or one for each of several layers, trained on `ChainStates`.
        source: The states of the model that thinks.

    Raises:
        ConfigMismatchError: A probe belongs to another model, layer, template or kind of states.
        DataError: There is no probe.
    """

    name = PROBER
    capabilities = frozenset({SETTLED})

    def __init__(self, probes: Probe | Sequence[Probe], source: ChainStates) -> None:
        super().__init__(probes, source, (THOUGHTS,))
        self.source = source

    async def measure(self, question: str, observed: Round) -> Reply:
        """Measure a chain of a single checkpoint; see `measure_chain`."""
        return await self.measure_chain(question, [observed])

    async def measure_chain(self, question: str, rounds: Sequence[Round]) -> Reply:
        """Read the chain up to its last checkpoint and return `p_settled`; NaN if the last round added no thinking.

        Raises:
            ModelError: The pass failed, or the chain exceeds the context.
        """
        return await asyncio.to_thread(self._measured, question, rounds)

    def _measured(self, question: str, rounds: Sequence[Round]) -> Reply:
        if not rounds[-1].thinking:
            return Reply(signals={SETTLED: math.nan}, costs={self.name: Cost()})
        values, cost = self.source.of_chain(question, rounds)
        settled, more = self._vote(values)
        return Reply(signals={SETTLED: settled}, costs={self.name: cost + more})
