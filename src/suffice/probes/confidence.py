"""A model's confidence before it answers, with and without passages: what preference data is made of (CBDR, eq. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suffice.llm.states import QA, RAG, StateSource
from suffice.probes.probe import Probe
from suffice.rounds import Floats, Passage

__all__ = ["ProbeConfidence"]


class ProbeConfidence:
    """The probe's probability over a source's states, under the prompts that it was tested on.

    Args:
        probe: From the state to the probability.
        source: The model.
        allow: Prompts that the caller takes the responsibility for: `("rag",)` where the probe was fitted on questions
            alone, as CBDR's was.  Measure it there, and say so.

    Raises:
        ConfigMismatchError: The probe belongs to another model or layer, or reads states of questions alone and another
            prompt is wanted that is not allowed.
    """

    def __init__(self, probe: Probe, source: StateSource, *, allow: Sequence[str] = ()) -> None:
        self.probe, self.source, self.allow = probe, source, tuple(allow)
        probe.card.check_prompt(QA, allow=self.allow)
        self._row = probe.card.check_source(source, allow=self.allow)

    def __repr__(self) -> str:
        return f"ProbeConfidence({self.probe!r}, allow={self.allow!r})"

    def fingerprint(self) -> Mapping[str, Any]:
        """The probe's pin, and the prompts that were allowed besides."""
        return {**self.probe.pin(), "allowed": list(self.allow)}

    def of(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None = None) -> Floats:
        """Return the probability of each prompt, shape ``(n,)``; NaN where the state is undefined.

        Args:
            questions: The questions.
            passages: Those of each question; None for the prompt without any.

        Raises:
            ConfigMismatchError: There are passages, and the probe was neither fitted on that prompt nor allowed there.
            ModelError: The model failed, or a prompt is longer than its context.
        """
        if passages is not None and any(passages):
            self.probe.card.check_prompt(RAG, allow=self.allow)
        return self.probe.predict(self.source.read_batch(questions, passages)[:, self._row])
