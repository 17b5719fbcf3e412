"""A local model and the probe that reads it, for commands about confidence with and without passages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from suffice.cli.console import quiet_bars
from suffice.errors import DataError
from suffice.llm import PROMPTS, TransformersModel
from suffice.probes import Probe, ProbeConfidence

__all__ = ["AllowPrompt", "Device", "Dtype", "Instructions", "open_confidence"]

AllowPrompt = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-prompt",
        help="'rag': use the probe with passages although it was fitted on questions alone, as the paper does.",
    ),
]
Instructions = Annotated[
    str, typer.Option("--instructions", help=f"The text of the prompt, one of: {', '.join(PROMPTS)}.")
]
Dtype = Annotated[str, typer.Option("--dtype", help="auto (as stored), float32, bfloat16 or float16.")]
Device = Annotated[str | None, typer.Option("--device", help="As torch names it; default: a GPU if there is one.")]


def open_confidence(
    model: str,
    probe: Path,
    *,
    allow: Sequence[str],
    instructions: str,
    dtype: str = "auto",
    device: str | None = None,
    batch_size: int = 16,
    revision: str | None = None,
) -> tuple[ProbeConfidence, TransformersModel]:
    """Return a model's confidence and the model.

    Args:
        model: A folder or hub id of a causal language model.
        probe: The folder of its probe.
        allow: Prompts that the caller takes the responsibility for.
        instructions: The name of the prompt.
        dtype: As `TransformersModel` takes it.
        device: As torch names it.
        batch_size: Most prompts of one pass.
        revision: Of a hub id.

    Raises:
        ConfigMismatchError: The probe belongs to another model, layer or prompt.
        DataError: There is no such prompt.
        ModelError: The model cannot be loaded.
    """
    if instructions not in PROMPTS:
        raise DataError(f"there are no instructions {instructions!r}; there are: {', '.join(PROMPTS)}")
    unknown = sorted(set(allow) - {"qa", "rag"})
    if unknown:
        raise DataError(f"--allow-prompt {unknown[0]!r} is no prompt; allowed: 'rag', 'qa'")
    found = Probe.load(probe)
    found.card.check_prompt("rag", allow=allow)  # before anything is loaded
    if found.card.layer is None:
        why = (
            "at an embeddings endpoint, and this command runs the model here"
            if found.card.pinned.get("kind") == "endpoint states"
            else "as a sentence encoder, which reads questions alone"
        )
        raise DataError(
            f"the probe reads {found.card.model!r} {why}: train one on the hidden states of a model that runs here "
            "(suffice gate states --model PATH, without --base-url)"
        )
    quiet_bars()
    source = TransformersModel(
        model,
        layers=(found.card.layer,),
        prompt=PROMPTS[instructions],
        batch_size=batch_size,
        dtype=dtype,
        device=device,
        revision=revision,
    )
    return ProbeConfidence(found, source, allow=allow), source
