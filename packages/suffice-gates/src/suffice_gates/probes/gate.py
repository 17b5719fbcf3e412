"""The gate of CBDR: after one pass over the question, a probe predicts whether the model knows the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from suffice.errors import DataError
from suffice.loops.models.protocols import Verdict
from suffice.policy.rounds import Cost
from suffice.policy.seen import Seen
from suffice.policy.signals import KNOWN
from suffice_gates.models.states import QA, States, StateSource
from suffice_gates.probes.probe import Probe


class VotingProbes:
    """Base class of gates and enrichers with one or several probes on the states of one source.

    Several probes vote, see `combined`.

    Args:
        probes: One probe, or one for each of several layers.
        source: The source of the states.
        prompts: The prompts that will be read.
        allow: Prompts to accept although the probes were not tested on them.

    Raises:
        ConfigMismatchError: A probe belongs to another model, layer or prompt.
        DataError: There is no probe.
    """

    def __init__(
        self, probes: Probe | Sequence[Probe], source: StateSource, prompts: Sequence[str], *, allow: Sequence[str] = ()
    ) -> None:
        self.probes = (probes,) if isinstance(probes, Probe) else tuple(probes)
        if not self.probes:
            raise DataError("there is no probe: give one, or one for each of several layers")
        for probe in self.probes:
            for prompt in prompts:
                probe.card.check_prompt(prompt, allow=allow)
        self._rows = tuple(probe.card.check_source(source, allow=allow) for probe in self.probes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.probes))})"

    @property
    def seen(self) -> Seen | None:
        """The questions that the probes were fitted on; None if they were not recorded for every probe."""
        every = [probe.card.seen for probe in self.probes]
        known = [seen for seen in every if seen is not None]
        return reduce(or_, known) if len(known) == len(every) else None

    def fingerprint(self) -> Mapping[str, Any]:
        """Short JSON-ready values that identify the probes: weights, calibration, model, layer and prompts."""
        pins = [probe.pin() for probe in self.probes]
        return pins[0] if len(pins) == 1 else {"kind": "probes", "probes": pins}

    def _vote(self, values: States) -> tuple[float, Cost]:
        """Return the probes' combined probability for one prompt's states, and the computation's seconds as a cost."""
        began = time.perf_counter()
        share = combined(self.probes, values, self._rows)
        return share, Cost(seconds=time.perf_counter() - began)


class ProbeGate(VotingProbes):
    """Decides whether to retrieve from the hidden state of the question alone (CBDR, Algorithm 1).

    The policy contains the rule `p_known > beta` for a direct answer.  A gate with `p_known` equal to beta retrieves,
    so that beta = 1 always retrieves, even if a calibrated probability is 1.  If the source is the model of the loop
    and the gate does not retrieve, the answer continues the gate's pass, without reading a prompt token twice.

    Args:
        probe: A probe that maps the state to the probability, or probes of several layers, which vote (see `combined`).
        source: Reads questions: a local model, its own replies (`ReplyStates`), an endpoint's embeddings, or a sentence encoder.
        name: Name in reports.

    Raises:
        ConfigMismatchError: A probe belongs to another model, layer or prompt.
        DataError: There is no probe.
    """

    capabilities = frozenset({KNOWN})

    def __init__(self, probe: Probe | Sequence[Probe], source: StateSource, *, name: str = "probe") -> None:
        super().__init__(probe, source, (QA,))
        self._states, self.name = source, name

    @property
    def source(self) -> object:
        """The model that runs the pass: the source, or the model behind a `ReplyStates`."""
        return getattr(self._states, "model", self._states)

    def decide(self, question: str) -> Verdict:
        """Read the question and return `p_known`; NaN where the state is undefined.

        Raises:
            DataError: The question is empty.
            ModelError: The source failed.
        """
        state = self._states.read(question)
        p_known, cost = self._vote(state.values)
        return Verdict(signals={KNOWN: p_known}, cost=state.cost + cost, resume=state.resume)

    async def decide_async(self, question: str) -> Verdict:
        """Like `decide`, in a worker thread."""
        return await asyncio.to_thread(self.decide, question)


def combined(probes: Sequence[Probe], values: States, rows: Sequence[int]) -> float:
    """Combine the probabilities of several layers' probes by the mean of their log-odds.

    Probing-RAG adds up the logits of its probers, which gives the same order of questions (Baek et al., 2025).  A single
    probe keeps its own probability.

    Args:
        probes: At least one.
        values: The states, shape ``(n_layers, width)``.
        rows: The row that each probe reads.

    Returns:
        A probability in [0, 1]; NaN if a state is undefined.
    """
    shares = np.array([float(probe.predict(values[row][None, :])[0]) for probe, row in zip(probes, rows, strict=True)])
    if len(shares) == 1:
        return float(shares[0])
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # probabilities 0 and 1 at once contradict each other: undefined
        odds = float(np.mean(np.log(shares) - np.log1p(-shares)))
    return float(1 / (1 + np.exp(-odds))) if odds > 0 else float(np.exp(odds) / (1 + np.exp(odds)))
