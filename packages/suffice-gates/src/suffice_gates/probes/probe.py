"""A probe maps a hidden state to the probability that the model knows the answer (CBDR, section 3.1), with numpy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.files import write_file
from suffice.common.json_text import refuse_constant
from suffice.errors import DataError, SchemaError
from suffice.policy.rounds import Floats
from suffice_gates.probes.card import Calibration, ProbeCard

WEIGHTS = "model.safetensors"
CARD = "card.json"

Weights = npt.NDArray[np.float32]
Layer = tuple[Weights, Weights]
"""Weight, shape ``(width_out, width_in)``, and bias, shape ``(width_out,)``."""

_MATRIX_DIMENSIONS = 2


class Probe:
    """A small network over hidden states, with a calibration of its log-odds.

    It has a ReLU between layers and a single output, the log-odds of "the model's closed-book answer is correct" (the
    difference of the paper's two logits).  A single layer is a logistic regression.  All numbers are float32, as in
    training.

    >>> import numpy as np
    >>> card = ProbeCard(model="tiny", revision="1", layer=2)
    >>> probe = Probe([(np.array([[2.0, 0.0]], dtype=np.float32), np.zeros(1, dtype=np.float32))], card)
    >>> probe.predict(np.array([[0.0, 5.0], [1.0, 5.0], [np.nan, 0.0]])).round(3).tolist()
    [0.5, 0.881, nan]

    Args:
        layers: The layers in order, from the state to the log-odds.
        card: Identity of the probe.
        mean: Vector subtracted from every state, shape ``(width,)``; None to skip.
        scale: Vector that then divides every state, shape ``(width,)``, positive; None to skip.

    Raises:
        DataError: The widths of the layers do not match, the last has several outputs, or a number is not finite.
    """

    def __init__(
        self, layers: Sequence[Layer], card: ProbeCard, *, mean: Weights | None = None, scale: Weights | None = None
    ) -> None:
        self.layers = [_layer(weight, bias) for weight, bias in layers]
        self.card = card
        widths = [(weight.shape[1], weight.shape[0]) for weight, _ in self.layers]
        widths_match = all(before[1] == after[0] for before, after in pairwise(widths))
        if not widths or not widths_match or widths[-1][1] != 1:
            raise DataError(
                f"the layers of a probe must match in width and end in one number; inputs and outputs are {widths!r}"
            )
        self.mean, self.scale = (
            _checked_standard("mean", mean, self.width),
            _checked_standard("scale", scale, self.width),
        )
        if self.scale is not None and not (self.scale > 0).all():
            raise DataError("a probe's scale must be positive everywhere")

    def __repr__(self) -> str:
        sizes = " -> ".join(str(n) for n in (self.width, *(len(bias) for _, bias in self.layers)))
        return f"Probe({self.card.model!r}, layer={self.card.layer!r}, {sizes}, {self.card.calibration.method})"

    @property
    def width(self) -> int:
        """Width of the states."""
        return int(self.layers[0][0].shape[1])

    @property
    def n_parameters(self) -> int:
        """Number of weights and biases."""
        return sum(weight.size + bias.size for weight, bias in self.layers)

    def logits(self, states: npt.ArrayLike) -> Floats:
        """Return the log-odds, shape ``(n,)``; NaN where a state is not finite.

        Args:
            states: States of shape ``(n, width)``.

        Raises:
            DataError: The shape is wrong.
        """
        array = np.asarray(states)
        if array.ndim != _MATRIX_DIMENSIONS or array.shape[1] != self.width or array.dtype.kind not in "fiu":
            raise DataError(
                f"this probe reads states of shape (n, {self.width}), not {array.shape} of {array.dtype}: are they from "
                f"layer {self.card.layer} of {self.card.model!r}?"
            )
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # float64 beyond the range of float32 becomes infinite, i.e. undefined
            x = array.astype(np.float32)
            # Undefined states pass as zeros, because a NaN costs time in every layer, and become NaN at the end.
            known = np.isfinite(x).all(axis=1)
            if not known.all():
                x[~known] = 0.0
            if self.mean is not None:
                x -= self.mean
            if self.scale is not None:
                x /= self.scale
            for position, (weight, bias) in enumerate(self.layers):
                if position:
                    np.maximum(x, 0.0, out=x)
                x = x @ weight.T
                x += bias
        out: Floats = x[:, 0].astype(np.float64)
        out[~known | ~np.isfinite(out)] = np.nan
        return out

    def predict(self, states: npt.ArrayLike) -> Floats:
        """Return P(the closed-book answer is correct), shape ``(n,)``, in [0, 1]; NaN for an undefined state.

        Args:
            states: States of shape ``(n, width)``.

        Raises:
            DataError: The shape is wrong.
        """
        return np.asarray(self.card.calibration.map.predict(self.logits(states)), dtype=np.float64)

    def calibrated(self, calibration: Calibration) -> Probe:
        """Return the probe with another calibration."""
        return self.described(calibration=calibration)

    def described(self, **changes: Any) -> Probe:
        """Return a probe with the same weights, after replacing the given fields of the card."""
        return Probe(self.layers, replace(self.card, **changes), mean=self.mean, scale=self.scale)

    @cached_property
    def _stored(self) -> bytes:
        from safetensors.numpy import save

        tensors = {}
        for position, (weight, bias) in enumerate(self.layers):
            tensors[f"layers.{position}.weight"], tensors[f"layers.{position}.bias"] = weight, bias
        tensors |= {name: value for name, value in (("mean", self.mean), ("scale", self.scale)) if value is not None}
        return bytes(save({name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}))

    @cached_property
    def weights_sha256(self) -> str:
        """SHA-256 of the stored weights."""
        return hashlib.sha256(self._stored).hexdigest()

    def pin(self) -> dict[str, Any]:
        """Return JSON-ready values that determine the probe's verdicts; they are the probe's fingerprint in a policy."""
        return self.card.pin(self.weights_sha256)

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors` and `card.json`, each atomically."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.card.to_dict(self.weights_sha256), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        write_file(target / WEIGHTS, self._stored)
        write_file(target / CARD, text)

    @classmethod
    def load(cls, folder: str | Path) -> Probe:
        """Read a probe without executing anything in its files.

        Raises:
            DataError: A file cannot be read.
            SchemaError: This release cannot read the files, or the weights do not match the card.
        """
        source = Path(folder)
        try:
            text = (source / CARD).read_text(encoding="utf-8")
            stored = (source / WEIGHTS).read_bytes()
        except OSError as error:
            raise DataError(
                f"the probe {str(folder)!r} cannot be read: {error}; expected a folder with {CARD} and {WEIGHTS}"
            ) from None
        except UnicodeDecodeError as error:
            raise SchemaError(f"{str(source / CARD)!r} is not text: {error}") from None
        try:
            data = json.loads(text, parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"{str(source / CARD)!r} is not JSON: {error}") from None
        card, expected = ProbeCard.from_dict(data)
        digest = hashlib.sha256(stored).hexdigest()
        if digest != expected:
            raise SchemaError(
                f"the weights in {str(folder)!r} do not match the card (sha256 {digest[:16]}..., but the "
                f"card has {expected[:16]}...): copy both files of one probe"
            )
        tensors = _tensors(stored, source / WEIGHTS)
        probe = cls(_ordered_layers(tensors), card, mean=tensors.get("mean"), scale=tensors.get("scale"))
        if probe.weights_sha256 != expected:  # another writer's layout would make the pin unstable
            raise SchemaError(
                f"{str(source / WEIGHTS)!r} contains more than a probe, or has another layout: train it again"
            )
        return probe


def _layer(weight: npt.ArrayLike, bias: npt.ArrayLike) -> Layer:
    w, b = np.asarray(weight, dtype=np.float32), np.asarray(bias, dtype=np.float32)
    if w.ndim != _MATRIX_DIMENSIONS or b.shape != w.shape[:1]:
        raise DataError(f"a layer needs a weight (out, in) and a bias (out,), not {w.shape} and {b.shape}")
    if not (np.isfinite(w).all() and np.isfinite(b).all()):
        raise DataError("a weight of the probe is not finite: the training diverged; lower the learning rate")
    return w, b


def _checked_standard(name: str, values: npt.ArrayLike | None, width: int) -> Weights | None:
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float32)
    if array.shape != (width,) or not np.isfinite(array).all():
        raise DataError(f"a probe's {name} must be {width} finite numbers, not {array.shape}")
    return array


def _tensors(stored: bytes, path: Path) -> Mapping[str, Weights]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors: dict[str, Weights] = load(stored)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise SchemaError(f"{str(path)!r} is not a safetensors file: {error}") from None
    wrong = {name: str(value.dtype) for name, value in tensors.items() if value.dtype != np.float32}
    if wrong:
        raise SchemaError(f"{str(path)!r} must contain only float32 numbers; others: {wrong!r:.200}")
    return tensors


def _ordered_layers(tensors: Mapping[str, Weights]) -> list[Layer]:
    n = sum(name.endswith(".weight") for name in tensors)
    names = [(f"layers.{position}.weight", f"layers.{position}.bias") for position in range(n)]
    if set(tensors) - {"mean", "scale"} != {name for pair in names for name in pair}:
        raise SchemaError(f"the weights of a probe are layers.N.weight and layers.N.bias; got {sorted(tensors)!r:.200}")
    return [(tensors[weight], tensors[bias]) for weight, bias in names]
