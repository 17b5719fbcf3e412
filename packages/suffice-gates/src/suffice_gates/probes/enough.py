"""Probing-RAG's prober as a signal of rounds: the probability that a round's reply needs no more evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from suffice.policy.rounds import Reply, Round
from suffice.policy.signals import ENOUGH, PROBER
from suffice_gates.models.reply_states import ReplyStates
from suffice_gates.models.states import QA, RAG
from suffice_gates.probes.gate import VotingProbes
from suffice_gates.probes.probe import Probe


class ReplyProbes(VotingProbes):
    """Measures `p_enough`: the probability that a round's answer is right, from its reply's states (Baek et al., 2025).

    Probes of several layers vote by the mean of their log-odds, as the paper adds up the logits of its probers.  The
    policy `p_enough > theta` with `start_round=0` is the paper's loop: answer, retrieve if `p_enough` is too low, and
    repeat.

    Args:
        probes: One probe, or one for each of several layers, trained on `ReplyStates`.
        source: The states of the model that answers.
        allow: Prompts to accept besides those that the probes were tested on, on the caller's responsibility:
            `("rag",)` for probes fitted on questions alone.

    Raises:
        ConfigMismatchError: A probe belongs to another model, layer or kind of states.
        DataError: There is no probe.
    """

    name = PROBER
    capabilities = frozenset({ENOUGH})

    def __init__(self, probes: Probe | Sequence[Probe], source: ReplyStates, *, allow: Sequence[str] = ()) -> None:
        super().__init__(probes, source, (QA, RAG), allow=tuple(allow))
        self.source, self.allow = source, tuple(allow)

    def fingerprint(self) -> Mapping[str, Any]:
        """Values that identify the probes, and the additionally allowed prompts."""
        return {**super().fingerprint(), "allowed": list(self.allow)}

    async def measure(self, question: str, observed: Round) -> Reply:
        """Read the round's reply and return `p_enough`; NaN for an empty reply.

        Raises:
            ModelError: The pass failed.
        """
        return await asyncio.to_thread(self._measured, question, observed)

    def _measured(self, question: str, observed: Round) -> Reply:
        values, cost = self.source.of_text(question, observed.text, observed.passages)
        enough, more = self._vote(values)
        return Reply(signals={ENOUGH: enough}, costs={self.name: cost + more})
