"""A local model and the probe that reads it, for commands about confidence with and without passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from typer import BadParameter, Option

from suffice.cli.console import quiet_bars
from suffice.errors import DataError
from suffice.llm import PROMPTS, TransformersModel
from suffice.llm.prompts import prompt
from suffice.probes import Probe, ProbeConfidence

__all__ = ["AllowPrompt", "LocalModel", "open_confidence"]

AllowPrompt = Annotated[
    list[str] | None,
    Option(
        "--allow-prompt",
        help="'rag': use the probe with passages although it was fitted on questions alone, as the paper does.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """How a causal language model runs here."""

    panel: ClassVar[str] = "Local model"

    instructions: Annotated[
        str, Option("--instructions", help=f"The text of the prompt, one of: {', '.join(PROMPTS)}.")
    ] = "answer_first"
    batch_size: Annotated[int, Option("--batch-size", min=1, help="Most prompts of one pass.")] = 16
    dtype: Annotated[str, Option("--dtype", help="auto (as stored), float32, bfloat16 or float16.")] = "auto"
    device: Annotated[str | None, Option("--device", help="As torch names it; default: a GPU if there is one.")] = None
    revision: Annotated[str | None, Option("--revision", help="Which revision of a hub id.")] = None

    def load(self, model: str, layers: Sequence[int | str], **settings: Any) -> TransformersModel:
        """Return a folder's or hub id's model."""
        quiet_bars()
        return TransformersModel(
            model,
            layers=layers,
            prompt=prompt(self.instructions),
            batch_size=self.batch_size,
            dtype=self.dtype,
            device=self.device,
            revision=self.revision,
            **settings,
        )


def open_confidence(
    model: str, probe: Path, local: LocalModel, *, allow: Sequence[str]
) -> tuple[ProbeConfidence, TransformersModel]:
    """Return a model's confidence and the model."""
    unknown = sorted(set(allow) - {"qa", "rag"})
    if unknown:
        raise BadParameter(f"{unknown[0]!r} is not a prompt; allowed: 'rag', 'qa'", param_hint="--allow-prompt")
    trained_probe = Probe.load(probe)
    trained_probe.card.check_prompt("rag", allow=allow)  # before a model is loaded
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
