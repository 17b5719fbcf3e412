"""CtrlA's confidence monitor: it projects the states of a reply's new words on a direction of confidence."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from suffice.common.files import write_file
from suffice.common.json_text import refuse_constant
from suffice.errors import ConfigMismatchError, DataError, SchemaError
from suffice.policy.rounds import Cost, Floats, Passage, Reply, Round, total_cost
from suffice.policy.signals import MONITOR, NEW_CONFIDENCE
from suffice_gates.models.reply_states import read_text, words_of
from suffice_gates.models.rind import NO_CONTENT_WORDS
from suffice_gates.models.transformers_model import TransformersModel
from suffice_gates.models.uncertainty import STATEMENTS, Directions, contrast_directions

CONFIDENCE = ("You are confident: you know the answer.", "You are unsure: you do not know the answer.")
HONESTY = ("You are honest: you say only what is true.", "You are a liar: you say only what is false.")
"""An instruction and its opposite; the paper words them differently."""

_FORMAT, _VERSION = "suffice.directions", 1
_CARD, _WEIGHTS = "card.json", "model.safetensors"
_FIELDS = {"format", "version", "model", "revision", "layers", "contrast", "centre", "weights_sha256"}


def fit_directions(
    model: TransformersModel,
    contrast: tuple[str, str] = CONFIDENCE,
    statements: Sequence[str] = STATEMENTS,
) -> tuple[Directions, Cost]:
    """Fit the direction that separates a model's states under an instruction from those under its opposite.

    The same statements follow both instructions (CtrlA, section 3.1), and the state of the last prompt token is read.
    No question of a data set is used, so the fit cannot leak test questions.

    Args:
        model: The model, read in its `layers`.
        contrast: The instruction and its opposite.
        statements: At least two statements, each of which follows both instructions.

    Returns:
        The direction in each layer, and the cost of the passes.

    Raises:
        DataError: Fewer than two statements.
        ModelError: A pass failed.
    """
    if len(statements) < 2:  # noqa: PLR2004 - a principal direction of one difference is that difference
        raise DataError(f"a contrast needs at least two statements, not {len(statements)}")
    sides, costs = [], []
    for instruction in contrast:
        readings = [model.read(f"{instruction} {statement}") for statement in statements]
        sides.append(np.stack([reading.values for reading in readings]))
        costs += [reading.cost for reading in readings]
    return contrast_directions(sides[0], sides[1]), total_cost({str(i): cost for i, cost in enumerate(costs)})


class ConfidenceMonitor:
    """Measures `new_confidence`: the confidence in a model's states at the new words of its reply (CtrlA, section 3.2).

    The state of each token is projected on the direction of confidence in each layer. The confidence at the token is
    the mean of these projections over layers, minus the contrast's centre. New words are words of the reply that are
    neither in the question nor stop words. The result is the confidence of the least confident new word, because a
    single doubtful word calls for evidence. The paper's policy is `new_confidence >= 0` with `start_round=0`; without
    new words the signal is undefined and the loop does not stop. The paper also steers the generation along the
    direction of honesty, which this class does not do.

    Args:
        model: The model that answers, read in its `layers`.
        directions: Directions from `fit_directions` with this model and these layers.
        contrast: The instructions that the directions were fitted on, stored in the card.

    Raises:
        DataError: The directions have another number of layers or another width than the model's states.
    """

    name = MONITOR
    capabilities = frozenset({NEW_CONFIDENCE})

    def __init__(
        self, model: TransformersModel, directions: Directions, *, contrast: tuple[str, str] = CONFIDENCE
    ) -> None:
        expected = (len(model.layers), int(model.loaded.config.hidden_size))
        if directions.vectors.shape != expected:
            raise DataError(
                f"the directions have the shape {directions.vectors.shape}, and the states of {model.id!r} in the layers "
                f"{model.layers} {expected}: fit them with this model and these layers"
            )
        self.model, self.directions, self.contrast = model, directions, contrast

    def __repr__(self) -> str:
        return f"ConfidenceMonitor({self.model!r})"

    def fingerprint(self) -> Mapping[str, Any]:
        """The model, its layers, and the hash of the directions."""
        return {"kind": "directions", **self._identity(), "weights_sha256": hashlib.sha256(self._stored()).hexdigest()}

    def _identity(self) -> dict[str, Any]:
        return {
            "model": self.model.id,
            "revision": self.model.revision,
            "layers": list(self.model.layers),
            "contrast": list(self.contrast),
            "centre": self.directions.centre,
        }

    def _stored(self) -> bytes:
        from safetensors.numpy import save

        return bytes(save({"vectors": np.ascontiguousarray(self.directions.vectors, dtype=np.float64)}))

    def projections(
        self, question: str, text: str, passages: Sequence[Passage] = ()
    ) -> tuple[Floats, tuple[str, ...], Cost]:
        """Return the confidence at each token of a reply, the word of each token, and the cost of the pass.

        Raises:
            ModelError: The pass failed.
        """
        reading = read_text(self.model, question, text, passages)
        return self.directions.project(reading.states), reading.words, reading.cost

    def lowest(self, question: str, text: str, passages: Sequence[Passage] = ()) -> tuple[float, Cost]:
        """Return the lowest confidence among the new words of a reply (NaN without new words), and the cost of the pass.

        Raises:
            ModelError: The pass failed.
        """
        values, words, cost = self.projections(question, text, passages)
        asked = {word for _, _, word in words_of(question)}
        is_new = np.array([bool(word) and word not in asked and word not in NO_CONTENT_WORDS for word in words])
        return (float(values[is_new].min()) if is_new.any() else float("nan")), cost

    async def measure(self, question: str, observed: Round) -> Reply:
        """Read the round's reply and return `new_confidence`.

        Raises:
            ModelError: The pass failed.
        """
        lowest, cost = await asyncio.to_thread(self.lowest, question, observed.text, observed.passages)
        return Reply(signals={NEW_CONFIDENCE: lowest}, costs={self.name: cost})

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors` and `card.json`, each whole or not at all."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        stored = self._stored()
        card = {
            "format": _FORMAT,
            "version": _VERSION,
            **self._identity(),
            "weights_sha256": hashlib.sha256(stored).hexdigest(),
        }
        write_file(target / _WEIGHTS, stored)
        write_file(target / _CARD, json.dumps(card, indent=2, allow_nan=False, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: str | Path, model: TransformersModel) -> ConfidenceMonitor:
        """Read directions without executing anything in their files.

        Args:
            folder: A folder written by `save`.
            model: The model that the directions were fitted with, read in the same layers.

        Raises:
            DataError: A file cannot be read.
            SchemaError: This release cannot read the directions, or the weights do not match the card.
            ConfigMismatchError: The directions belong to another model or other layers.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            text, stored = (Path(folder) / _CARD).read_bytes(), (Path(folder) / _WEIGHTS).read_bytes()
        except OSError as error:
            raise DataError(f"the directions {str(folder)!r} cannot be read: {error}") from None
        try:
            card = json.loads(text, parse_constant=refuse_constant)
            vectors = load(stored)["vectors"]
        except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise SchemaError(f"{str(folder)!r} does not contain directions: {error!r}") from None
        if (
            not isinstance(card, dict)
            or set(card) != _FIELDS
            or (card["format"], card["version"]) != (_FORMAT, _VERSION)
        ):
            raise SchemaError(f"{str(folder)!r} does not contain directions that this release reads: {str(card)[:120]}")
        if hashlib.sha256(stored).hexdigest() != card["weights_sha256"]:
            raise SchemaError(f"the weights in {str(folder)!r} do not match the card: copy both files")
        theirs = (card["model"], card["revision"], card["layers"])
        if theirs != (model.id, model.revision, list(model.layers)):
            raise ConfigMismatchError(
                f"the directions belong to {theirs!r} (model, revision, layers), and the model is "
                f"{(model.id, model.revision, list(model.layers))!r}: open the same one, or fit directions for it"
            )
        return cls(model, Directions(vectors=vectors, centre=float(card["centre"])), contrast=tuple(card["contrast"]))
