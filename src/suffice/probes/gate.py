"""The gate of CBDR: one pass over the question, and a probe for whether the model knows the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from suffice.llm.base import Verdict
from suffice.llm.states import QA, StateSource
from suffice.probes.probe import Probe
from suffice.rounds import Cost
from suffice.seen import Seen
from suffice.signals import KNOWN

__all__ = ["ProbeGate"]


class ProbeGate:
    """Decides whether to retrieve from the hidden state of the question alone (CBDR, Algorithm 1).

    The policy contains the rule `p_known > beta`, with `>`, so that beta = 1 always retrieves, even if a calibrated
    probability is 1.  If the source is the model of the loop and the gate does not retrieve, the answer continues the
    gate's pass, without reading a prompt token twice.

    Args:
        probe: Maps the state to the probability.
        source: Reads questions: a local model, an endpoint's embeddings, or a sentence encoder.
        name: Name in reports.

    Raises:
        ConfigMismatchError: The probe belongs to another model, layer or prompt.
    """

    capabilities = frozenset({KNOWN})

    def __init__(self, probe: Probe, source: StateSource, *, name: str = "probe") -> None:
        probe.card.check_prompt(QA)
        self._row = probe.card.check_source(source)
        self.probe, self.source, self.name = probe, source, name

    def __repr__(self) -> str:
        return f"ProbeGate({self.probe!r})"

    @property
    def seen(self) -> Seen | None:
        """The questions that the probe was fitted on; None if they were not recorded."""
        return self.probe.card.seen

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that changes its verdicts: weights and calibration of the probe, model, layer and prompts."""
        return self.probe.pin()

    def decide(self, question: str) -> Verdict:
        """Read the question and return `p_known`; NaN where the state is undefined.

        Raises:
            DataError: The question is empty.
            ModelError: The source failed.
        """
        state = self.source.read(question)
        began = time.perf_counter()
        p_known = float(self.probe.predict(state.values[self._row][None, :])[0])
        cost = state.cost + Cost(seconds=time.perf_counter() - began)
        return Verdict(signals={KNOWN: p_known}, cost=cost, resume=state.resume)

    async def decide_async(self, question: str) -> Verdict:
        """Like `decide`, in a worker thread."""
        return await asyncio.to_thread(self.decide, question)
