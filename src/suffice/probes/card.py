"""What a probe says about itself: the model, the layer and the prompts that it was fitted on, and nothing that runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.calibration.maps import CalibrationMap, Sigmoid, map_from_dict
from suffice.errors import ConfigMismatchError, SchemaError
from suffice.llm.states import QA, RAG, StateSource
from suffice.seen import Seen

__all__ = ["Calibration", "ProbeCard", "pinned_of"]

FORMAT = "suffice.probe"
VERSION = 1
_FIELDS = {
    "format",
    "version",
    "model",
    "revision",
    "layer",
    "prompts",
    "pinned",
    "calibration",
    "weights_sha256",
    "provenance",
}
_RAG_PIN = "rag_prompt_sha256"
_NOT_PINNED = frozenset(
    {"model", "revision", "layers", "prompt_id", "position", "max_tokens", "top_logprobs", "device", "batch_size"}
)
"""What a source's fingerprint says besides what its states depend on, or what the card names by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How the network's log-odds become a probability.

    Attributes:
        method: `none` (the logistic function alone), `temperature`, `platt` or `isotonic`.
        map: From log-odds to P(the closed-book answer is correct).
    """

    method: str = "none"
    map: CalibrationMap = field(default_factory=lambda: Sigmoid(1.0, 0.0))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"method": self.method, **self.map.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        """Return the calibration that `to_dict` wrote.

        Raises:
            SchemaError: It does not read.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("method"), str):
            raise SchemaError(f"the calibration of a probe must be an object with a method, not {data!r:.80}")
        return cls(method=data["method"], map=map_from_dict({k: v for k, v in data.items() if k != "method"}))


def pinned_of(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a source, besides model, revision and layer, its states depend on: kind, precision, prompts.

    Args:
        fingerprint: Of a `StateSource`.
    """
    told = {key: value for key, value in fingerprint.items() if key not in _NOT_PINNED}
    pinned: dict[str, Any] = json.loads(json.dumps(told))  # as it reads back: lists, no tuples
    return pinned


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCard:
    """What a probe belongs to.

    Attributes:
        model: The id of the model whose states it reads.
        revision: What tells that model from another version of it.
        layer: Which layer; None for a source without layers (a sentence encoder).
        prompts: The prompts that it was fitted and tested on: `qa`, and perhaps `rag`.
        pinned: What else of the source the states depend on (kind, precision, hashes of prompts and templates).
        calibration: How log-odds become probabilities.
        provenance: Where it comes from: data, settings, figures. It changes nothing.
    """

    model: str
    revision: str
    layer: int | None
    prompts: tuple[str, ...] = (QA,)
    pinned: Mapping[str, Any] = field(default_factory=dict)
    calibration: Calibration = field(default_factory=Calibration)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seen(self) -> Seen | None:
        """The questions that it was fitted, stopped or calibrated on; None if that is not on record."""
        return Seen.from_dict(self.provenance)

    def check_prompt(self, prompt: str, *, allow: Sequence[str] = ()) -> None:
        """Refuse states of a prompt that the probe was never tested on.

        Args:
            prompt: `qa` or `rag`.
            allow: Prompts that the caller takes the responsibility for.

        Raises:
            ConfigMismatchError: The prompt is neither validated nor allowed.
        """
        if prompt not in self.prompts and prompt not in allow:
            raise ConfigMismatchError(
                f"the probe was fitted on states of the prompts {', '.join(self.prompts)}, not on {prompt!r}: what it "
                f"says there is a guess. Train it on both, or allow it (--allow-prompt {prompt}, allow=({prompt!r},)) "
                "and report its AUROC and ECE there"
            )

    def check_source(self, source: StateSource, *, allow: Sequence[str] = ()) -> int:
        """Return which of a source's states the probe reads; refuse another model, layer or prompt.

        Args:
            source: What reads questions.
            allow: Prompts that the caller takes the responsibility for, besides the validated ones.

        Raises:
            ConfigMismatchError: The source is another model, reads other layers or under other prompts.
        """
        ours, theirs = (self.model, self.revision), (source.id, source.revision)
        if ours != theirs:
            raise ConfigMismatchError(
                f"the probe reads states of {self.model!r} (revision {self.revision}), the source is {source.id!r} "
                f"(revision {source.revision}): states of another model mean something else. Train a probe for it"
            )
        found = pinned_of(source.fingerprint())
        relevant = [key for key in self.pinned if key != _RAG_PIN or RAG in (*self.prompts, *allow)]
        wrong = [
            f"{key}: {self.pinned[key]!r} -> {found.get(key)!r}"
            for key in relevant
            if found.get(key) != self.pinned[key]
        ]
        if wrong:
            raise ConfigMismatchError(
                f"the probe was fitted on states of {self.model!r} read another way ({'; '.join(wrong)}): read them the "
                "same way, or train a probe for this one"
            )
        if self.layer is None:
            return 0
        if self.layer not in source.layers:
            raise ConfigMismatchError(
                f"the probe reads layer {self.layer}, the source gives {', '.join(map(str, source.layers)) or 'none'}: "
                f"open it with layers=({self.layer},)"
            )
        return source.layers.index(self.layer)

    def pin(self, weights_sha256: str) -> dict[str, Any]:
        """Return what changes the probe's verdicts, JSON-ready and short: what a policy pins."""
        calibration = json.dumps(self.calibration.to_dict(), sort_keys=True)
        return {
            "kind": "probe",
            "model": self.model,
            "revision": self.revision,
            "layer": self.layer,
            "prompts": list(self.prompts),
            "pinned": dict(self.pinned),
            "calibration": self.calibration.method,
            "calibration_sha256": hashlib.sha256(calibration.encode()).hexdigest()[:16],
            "weights_sha256": weights_sha256,
        }

    def to_dict(self, weights_sha256: str) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "revision": self.revision,
            "layer": self.layer,
            "prompts": list(self.prompts),
            "pinned": dict(self.pinned),
            "calibration": self.calibration.to_dict(),
            "weights_sha256": weights_sha256,
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, data: Any) -> tuple[ProbeCard, str]:
        """Return the card that `to_dict` wrote, and the hash of the weights that it belongs to.

        Raises:
            SchemaError: Another format or version, missing or unknown fields, values of the wrong kind.
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise SchemaError(f"this is no card of a probe: the field 'format' must be {FORMAT!r}")
        if data.get("version") != VERSION:
            raise SchemaError(f"probe version {data.get('version')!r} is not readable; this release reads {VERSION}")
        if set(data) != _FIELDS:
            unknown, missing = sorted(set(data) - _FIELDS), sorted(_FIELDS - set(data))
            raise SchemaError(f"a card with unknown fields {unknown} and missing fields {missing}")
        texts = [data["model"], data["revision"], data["weights_sha256"]]
        layer, prompts = data["layer"], data["prompts"]
        is_list = isinstance(prompts, list) and prompts and all(isinstance(prompt, str) for prompt in prompts)
        is_layer = layer is None or (isinstance(layer, int) and not isinstance(layer, bool))
        is_told = isinstance(data["pinned"], dict) and isinstance(data["provenance"], dict)
        if not (all(isinstance(text, str) for text in texts) and is_list and is_layer and is_told):
            raise SchemaError(f"a card whose fields are of the wrong kind: {str(data)[:200]}")
        card = cls(
            model=data["model"],
            revision=data["revision"],
            layer=layer,
            prompts=tuple(prompts),
            pinned=data["pinned"],
            calibration=Calibration.from_dict(data["calibration"]),
            provenance=data["provenance"],
        )
        return card, data["weights_sha256"]
