"""The card of a probe: model, layer and prompts that it was fitted on; data only, no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.common.identities import same_model
from suffice.errors import ConfigMismatchError, SchemaError
from suffice.policy.calibration.calibrator import CalibrationMap, Sigmoid, map_from_dict
from suffice.policy.seen import Seen
from suffice_gates.models.states import QA, RAG, StateSource

PROBE_FORMAT = "suffice.probe"
PROBE_VERSION = 1
_CARD_FIELDS = {
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
_CONTENT_PIN = "content"
_BY_NAME = "Older releases stored the commit of a hub id or a hash of all files in a folder: open the model as it was opened then"
_NOT_PINNED = frozenset(
    {"model", "revision", "layers", "prompt_id", "position", "max_tokens", "top_logprobs", "device", "batch_size"}
)
"""Fields of a source's fingerprint that do not change its states, or that the card contains separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The function that turns the network's log-odds into a probability.

    Attributes:
        method: `none` (the logistic function alone), `temperature`, `platt` or `isotonic`.
        map: Maps log-odds to P(the closed-book answer is correct).
    """

    method: str = "none"
    map: CalibrationMap = field(default_factory=lambda: Sigmoid(1.0, 0.0))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"method": self.method, **self.map.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        """Build the calibration from the values of `to_dict`.

        Raises:
            SchemaError: The values are invalid.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("method"), str):
            raise SchemaError(f"the calibration of a probe must be an object with a method, not {data!r:.80}")
        return cls(method=data["method"], map=map_from_dict({k: v for k, v in data.items() if k != "method"}))


def pinned_of(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings on which a source's states depend, other than model, revision and layer.

    Args:
        fingerprint: Fingerprint of a `StateSource`.
    """
    relevant = {key: value for key, value in fingerprint.items() if key not in _NOT_PINNED}
    pinned: dict[str, Any] = json.loads(
        json.dumps(relevant)
    )  # lists instead of tuples, as after a round trip through JSON
    return pinned


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeCard:
    """The identity of a probe: its model, layer and prompts.

    Attributes:
        model: Id of the model whose states it reads.
        revision: Version of that model.
        layer: The layer; None for a source without layers (a sentence encoder).
        prompts: The prompts that it was fitted and tested on: `qa`, and possibly `rag`.
        pinned: Further settings on which the states depend (kind, precision, hashes of prompts and templates).
        calibration: The map from log-odds to probabilities.
        provenance: Data, settings and figures of the training; they do not affect predictions.
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
        """The questions used for fitting, early stopping or calibration; None if they were not recorded."""
        return Seen.from_dict(self.provenance)

    def check_prompt(self, prompt: str, *, allow: Sequence[str] = ()) -> None:
        """Raise if the probe was not tested on states of this prompt.

        Args:
            prompt: `qa` or `rag`.
            allow: Prompts to accept besides the tested ones, on the caller's responsibility.

        Raises:
            ConfigMismatchError: The prompt is neither among the tested prompts nor allowed.
        """
        if prompt not in self.prompts and prompt not in allow:
            raise ConfigMismatchError(
                f"the probe was fitted on states of the prompts {', '.join(self.prompts)}, not on {prompt!r}, so its "
                f"output there is a guess: train it on both, or allow the prompt (--set allow-prompt={prompt}, allow=({prompt!r},)) "
                "and report its AUROC and ECE there"
            )

    def check_source(self, source: StateSource, *, allow: Sequence[str] = ()) -> int:
        """Check that a source matches the probe; return the index of the probe's layer in `source.layers`.

        Args:
            source: The source of the states.
            allow: Prompts to accept besides the tested ones, on the caller's responsibility.

        Raises:
            ConfigMismatchError: The source does not match: it has another model, other layers or other prompts.
        """
        pinned = pinned_of(source.fingerprint())
        ours = {**self.pinned, "model": self.model, "revision": self.revision}
        if not same_model(ours, {**pinned, "model": source.id, "revision": source.revision}):
            known = "" if self._has_content else f". {_BY_NAME}"
            raise ConfigMismatchError(
                f"the probe reads states of {self.model!r} (revision {self.revision}), but the source is {source.id!r} "
                f"(revision {source.revision}): states of another model differ, so train a probe for it{known}"
            )
        relevant = [
            key for key in self.pinned if key != _CONTENT_PIN and (key != _RAG_PIN or RAG in (*self.prompts, *allow))
        ]
        wrong = [
            f"{key}: {self.pinned[key]!r} -> {pinned.get(key)!r}"
            for key in relevant
            if pinned.get(key) != self.pinned[key]
        ]
        if wrong:
            raise ConfigMismatchError(
                f"the probe was fitted on states of {self.model!r} read in another way ({'; '.join(wrong)}): read them the "
                "same way, or train a probe for this one"
            )
        if self.layer is None:
            return 0
        if self.layer not in source.layers:
            raise ConfigMismatchError(
                f"the probe reads layer {self.layer}, but the source provides {', '.join(map(str, source.layers)) or 'none'}: "
                f"open it with layers=({self.layer},)"
            )
        return source.layers.index(self.layer)

    @property
    def _has_content(self) -> bool:
        """True if the card identifies the model by a hash of its content, as for models in folders and at the hub."""
        return self.pinned.get("kind") != "transformers" or _CONTENT_PIN in self.pinned

    def pin(self, weights_sha256: str) -> dict[str, Any]:
        """Return short JSON-ready values that determine the probe's verdicts; they are the probe's fingerprint in a policy."""
        calibration = json.dumps(self.calibration.to_dict(), sort_keys=True)
        return {
            "kind": "probe",
            **self._identity(),
            "calibration": self.calibration.method,
            "calibration_sha256": hashlib.sha256(calibration.encode()).hexdigest()[:16],
            "weights_sha256": weights_sha256,
        }

    def to_dict(self, weights_sha256: str) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "format": PROBE_FORMAT,
            "version": PROBE_VERSION,
            **self._identity(),
            "calibration": self.calibration.to_dict(),
            "weights_sha256": weights_sha256,
            "provenance": dict(self.provenance),
        }

    def _identity(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "revision": self.revision,
            "layer": self.layer,
            "prompts": list(self.prompts),
            "pinned": dict(self.pinned),
        }

    @classmethod
    def from_dict(cls, data: Any) -> tuple[ProbeCard, str]:
        """Build the card from the values of `to_dict`; return the card and the hash of the probe's weights.

        Raises:
            SchemaError: The format or version is wrong, or fields are missing, unknown or of the wrong kind.
        """
        if not isinstance(data, dict) or data.get("format") != PROBE_FORMAT:
            raise SchemaError(f"this is not the card of a probe: the field 'format' must be {PROBE_FORMAT!r}")
        if data.get("version") != PROBE_VERSION:
            raise SchemaError(
                f"probe version {data.get('version')!r} is not readable; this release reads {PROBE_VERSION}"
            )
        if set(data) != _CARD_FIELDS:
            unknown, missing = sorted(set(data) - _CARD_FIELDS), sorted(_CARD_FIELDS - set(data))
            raise SchemaError(f"the card has unknown fields {unknown} and missing fields {missing}")
        texts = [data["model"], data["revision"], data["weights_sha256"]]
        layer, prompts = data["layer"], data["prompts"]
        is_list = isinstance(prompts, list) and prompts and all(isinstance(prompt, str) for prompt in prompts)
        is_layer = layer is None or (isinstance(layer, int) and not isinstance(layer, bool))
        are_objects = isinstance(data["pinned"], dict) and isinstance(data["provenance"], dict)
        if not (all(isinstance(text, str) for text in texts) and is_list and is_layer and are_objects):
            raise SchemaError(f"the card has fields of the wrong kind: {str(data)[:200]}")
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
