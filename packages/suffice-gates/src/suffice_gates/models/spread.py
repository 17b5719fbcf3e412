"""SeaKR's self-aware uncertainty as a signal of rounds: the spread of the end states of sampled replies."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from suffice.errors import DataError
from suffice.policy.rounds import Cost, Passage, Reply, Round, total_cost
from suffice.policy.signals import SAMPLE_SPREAD, SEAKR
from suffice_gates.models.sampled import gram_uncertainty
from suffice_gates.models.states import layer_index
from suffice_gates.models.transformers_model import TransformersModel
from suffice_gates.models.uncertainty import sample_states


class SampleSpread:
    """Measures `sample_spread`: the Gram determinant of the end tokens' states over sampled replies (Yao et al., 2024).

    The samples answer the prompt of the round, with its passages.  If they end in different states, the model is unsure
    and the spread is high.  The policy `sample_spread <= delta` with `start_round=0` retrieves while the spread is
    high.  Delta depends on the model, so choose it on tune questions.  The paper also uses this number to order
    passages, and to choose between answers, as the selector `min_sample_spread` does.

    Args:
        model: The model that answers.
        n: Number of samples; the paper takes 20.
        temperature: Temperature of the samples.
        layer: Layer of the states; the middle one, as in the paper.
        seed: Seed of the samples, together with question and round.

    Raises:
        DataError: Fewer than two samples, or the layer does not exist.
    """

    name = SEAKR
    capabilities = frozenset({SAMPLE_SPREAD})

    def __init__(
        self,
        model: TransformersModel,
        *,
        n: int = 20,
        temperature: float = 1.0,
        layer: int | str = "middle",
        seed: int = 42,
    ) -> None:
        if n < 2 or not temperature > 0:  # noqa: PLR2004 - one sample agrees with itself
            raise DataError(f"need at least 2 samples and a temperature above 0, got {n!r} and {temperature!r}")
        self.model, self.n, self.temperature, self.seed = model, n, temperature, seed
        self.layer = layer_index(layer, model.loaded.n_layers)

    def __repr__(self) -> str:
        return f"SampleSpread({self.model!r}, n={self.n!r}, layer={self.layer!r})"

    def fingerprint(self) -> Mapping[str, Any]:
        """The model and the settings of its samples."""
        settings = {"n": self.n, "temperature": self.temperature, "layer": self.layer, "seed": self.seed}
        return {**self.model.fingerprint(), "kind": "sample spread", **settings}

    def spread(self, question: str, passages: Sequence[Passage] = ()) -> tuple[float, Cost]:
        """Sample replies and read the states of their last tokens; return the spread and the cost of both steps.

        Raises:
            ModelError: A pass failed.
        """
        digest = hashlib.sha256("\x00".join([question, *(p.text for p in passages)]).encode("utf-8", "replace"))
        rng = np.random.default_rng([self.seed, int.from_bytes(digest.digest()[:8], "big")])
        replies = self.model.samples(question, passages, n=self.n, temperature=self.temperature, rng=rng)
        states, reading = sample_states(self.model, question, replies, passages, layer=self.layer)
        sampling = (total_cost(reply.costs) for reply in replies)
        return gram_uncertainty(states), total_cost({str(i): cost for i, cost in enumerate((reading, *sampling))})

    async def measure(self, question: str, observed: Round) -> Reply:
        """Sample replies to the prompt of the round and return `sample_spread`.

        Raises:
            ModelError: A pass failed.
        """
        spread, cost = await asyncio.to_thread(self.spread, question, observed.passages)
        return Reply(signals={SAMPLE_SPREAD: spread}, costs={self.name: cost})
