"""Opens a local model with its probe, for commands that read confidence with and without passages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import BadParameter

from suffice.cli.local import LocalModel
from suffice.cli.parameters import Setting
from suffice.errors import DataError
from suffice_gates.models import TransformersModel
from suffice_gates.probes import Probe, ProbeConfidence

AllowPrompt = Annotated[
    list[str] | None,
    Setting(
        "gate",
        "allow-prompt",
        help="'rag': use the probe with passages although it was fitted on questions alone, as the paper does.",
    ),
]


def open_confidence(
    model: str, probe: Path, local: LocalModel, *, allow: Sequence[str]
) -> tuple[ProbeConfidence, TransformersModel]:
    """Open a local model and its probe; return the confidence and the model."""
    unknown = sorted(set(allow) - {"qa", "rag"})
    if unknown:
        raise BadParameter(f"{unknown[0]!r} is not a prompt; allowed: 'rag', 'qa'", param_hint="allow-prompt")
    trained_probe = Probe.load(probe)
    trained_probe.card.check_prompt("rag", allow=allow)  # checked before a model is loaded
    if trained_probe.card.layer is None:
        why = (
            "at an embeddings endpoint, and this command runs the model here"
            if trained_probe.card.pinned.get("kind") == "endpoint states"
            else "as a sentence encoder, which reads questions alone"
        )
        raise DataError(
            f"the probe reads {trained_probe.card.model!r} {why}: train one on the hidden states of a model that runs here "
            "(suffice gate states --model PATH, without --base-url)"
        )
    source = local.load(model, (trained_probe.card.layer,))
    return ProbeConfidence(trained_probe, source, allow=allow), source
