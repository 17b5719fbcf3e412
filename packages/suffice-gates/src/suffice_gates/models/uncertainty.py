"""Measures of a local model's knowledge from its own passes: states of sampled replies, and directions in its states.

Each measure follows one paper; measures that need no extra pass (entropies) are in
`suffice.policy.signals.margins`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Cost, Passage, Reply
from suffice_gates.models._transformers_passes import last_states
from suffice_gates.models.attention import reply_ids
from suffice_gates.models.transformers_model import TransformersModel

_MATRICES = 3

STATEMENTS = (
    "The Earth goes around the Sun.",
    "Fire is cold to the touch.",
    "Water boils when it is heated.",
    "Most birds have four legs.",
    "Paris lies in France.",
    "The Moon is made of wood.",
    "Fish breathe under water.",
    "Winter is warmer than summer.",
)
"""Statements, alternately true and false, that follow both instructions of a contrast."""

# States of samples: SeaKR.


def sample_states(
    model: TransformersModel,
    question: str,
    replies: Sequence[Reply],
    passages: Sequence[Passage] = (),
    *,
    layer: int | None = None,
) -> tuple[npt.NDArray[np.float32], Cost]:
    """Return the state of each reply's end token, for `gram_uncertainty`, and the cost of the passes.

    Source: SeaKR, section 3.2.  For a reply that was cut off, the state of its last token is returned; for an empty
    reply, the state of the last prompt token.

    Args:
        model: The model that generated the replies.
        question: The question.
        replies: Samples of its answer.
        passages: The passages in the prompt of the replies.
        layer: Index in transformers' `hidden_states`; None for the last.

    Returns:
        Shape ``(n, width)``, and the cost.
    """
    began = time.perf_counter()
    rows = []
    for reply in replies:
        prompt, content, end = reply_ids(model, question, reply, passages)
        rows.append([*prompt, *content, *end])
    layers = (model.loaded.n_layers if layer is None else layer,)
    states = last_states(model.loaded, rows, layers)[:, 0]
    tokens = float(sum(map(len, rows)))
    return states, Cost(calls=float(len(rows)), uncached_tokens=tokens, seconds=time.perf_counter() - began)


# Directions: CtrlA.


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """One direction per layer that represents an attitude, such as confidence, in a model's states.

    Attributes:
        vectors: Unit vectors, shape ``(n_layers, width)``.
        centre: The midpoint between the mean projections of the two sides of the contrast; projections are averaged
            over layers.
    """

    vectors: npt.NDArray[np.float64]
    centre: float

    def project(self, states: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Project states on the directions: return the mean over layers minus the centre; above 0 is the positive side.

        Source: CtrlA (Liu et al., 2024, section 3.2: confidence monitoring).

        Args:
            states: Shape ``(n, n_layers, width)``.

        Returns:
            Shape ``(n,)``; NaN where a state is undefined.
        """
        projections: npt.NDArray[np.float64] = np.einsum("nld,ld->nl", states, self.vectors).mean(axis=1) - self.centre
        return projections


def contrast_directions(positive: npt.NDArray[np.floating], negative: npt.NDArray[np.floating]) -> Directions:
    """Return the first principal direction of the differences between paired states, pointing to the positive side.

    The differences are not centred, because their common part is the direction.  Source: CtrlA (Liu et al., 2024, section
    3.1: honesty and confidence features by principal components of contrasted states), after Zou et al. (2023).

    Args:
        positive: States under the instruction (be honest, be confident), shape ``(n, n_layers, width)``.
        negative: States of the same statements under the opposite instruction, same shape.

    Raises:
        DataError: The shapes differ, there are no pairs, or a state is undefined.
    """
    if positive.shape != negative.shape or positive.ndim != _MATRICES or not len(positive):
        raise DataError(
            f"a contrast needs pairs of states, both of shape (n, n_layers, width); got {positive.shape!r} and "
            f"{negative.shape!r}"
        )
    above, below = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    if not (np.isfinite(above).all() and np.isfinite(below).all()):
        raise DataError("a contrast needs finite states, but some are NaN or infinite: read them in float32")
    vectors = []
    for layer in range(above.shape[1]):
        differences = above[:, layer] - below[:, layer]
        first = np.linalg.svd(differences, full_matrices=False)[2][0]
        # The sign of a singular vector is arbitrary: turn it so that the mean difference points along it.
        vectors.append(first if differences.mean(axis=0) @ first >= 0 else -first)
    plain = Directions(vectors=np.stack(vectors), centre=0.0)
    centre = (plain.project(above).mean() + plain.project(below).mean()) / 2
    return Directions(vectors=plain.vectors, centre=float(centre))
