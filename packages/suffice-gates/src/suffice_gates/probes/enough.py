"""Probing-RAG's prober as a signal of rounds: the probability that a round's reply needs no more evidence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from suffice.policy.rounds import Cost, Reply, Round
from suffice.policy.seen import Seen
from suffice.policy.signals import ENOUGH, PROBER
from suffice_gates.models.reply_states import ReplyStates
from suffice_gates.models.states import QA, RAG
from suffice_gates.probes.gate import combined, pin_of, rows_of, seen_by_probes
from suffice_gates.probes.probe import Probe


class ReplyProbes:
    """Measures `p_enough`: the probability that a round's answer is right, from its reply's states (Baek et al., 2025).

    Probes of several layers vote by the mean of their log-odds, as the paper adds up the logits of its probers.  The policy
    `p_enough > theta` with `start_round=0` is the paper's loop: answer, retrieve if that is not enough, and again.

    Args:
        probes: One, or one for each of several layers, trained on `ReplyStates`.
        source: The states of the model that answers.
        allow: Further prompts besides those that the probes were tested on, for which the caller is responsible:
            `("rag",)` for probes fitted on questions alone.

    Raises:
        ConfigMismatchError: A probe belongs to another model, layer or kind of states.
        DataError: There is no probe.
    """

    name = PROBER
    capabilities = frozenset({ENOUGH})

    def __init__(self, probes: Probe | Sequence[Probe], source: ReplyStates, *, allow: Sequence[str] = ()) -> None:
        self.probes = (probes,) if isinstance(probes, Probe) else tuple(probes)
        self.source, self.allow = source, tuple(allow)
        self._rows = rows_of(self.probes, source, (QA, RAG), allow=self.allow)

    def __repr__(self) -> str:
        return f"ReplyProbes({list(self.probes)!r})"

    @property
    def seen(self) -> Seen | None:
        """The questions that the probes were fitted on; None if those of one were not recorded."""
        return seen_by_probes(self.probes)

    def fingerprint(self) -> Mapping[str, Any]:
        """The pins of the probes, and the additionally allowed prompts."""
        return {**pin_of(self.probes), "allowed": list(self.allow)}

    async def measure(self, question: str, observed: Round) -> Reply:
        """Read the round's reply and return `p_enough`; NaN for an empty reply.

        Raises:
            ModelError: The pass failed.
        """
        return await asyncio.to_thread(self._measured, question, observed)

    def _measured(self, question: str, observed: Round) -> Reply:
        values, cost = self.source.of_text(question, observed.text, observed.passages)
        began = time.perf_counter()
        enough = combined(self.probes, values, self._rows)
        return Reply(signals={ENOUGH: enough}, costs={self.name: cost + Cost(seconds=time.perf_counter() - began)})
