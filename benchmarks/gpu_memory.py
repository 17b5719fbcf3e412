"""Memory of passes without a gradient on a GPU beside the estimates of a dry run, and a batch for which memory does not suffice.

Parts of `python -m benchmarks.gpu`.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
from tests.support.local_models import SHORT, START

from benchmarks.gpu_measurement import Measurement
from suffice_gates.models import LoadedModel, TransformersModel
from suffice_gates.training.memory import GIB, pass_memory

PASSES = ((32, 256, 0), (32, 1024, 0), (16, 4096, 0), (32, 256, 16), (32, 1024, 16), (16, 4096, 64))
"""Prompts of a batch, bytes of each, and tokens to generate (0: only states are read)."""

SMALL_PASSES = ((4, 64, 0), (4, 64, 4))

PAIRS = ((32, 644), (128, 300))
"""Pairs that a cross-encoder scores at once, and tokens of each."""

SMALL_PAIRS = ((4, 60),)

CROWDED = 0.4
"""The share of a whole batch's activations that is left free on a crowded device."""


def passes(run: Measurement, loaded: LoadedModel) -> list[dict[str, Any]]:
    """Return what passes over batches of prompts take beside the weights, measured and counted, in GiB."""
    rows = []
    size = next(loaded.network.parameters()).element_size()
    for n, length, new_tokens in SMALL_PASSES if run.tiny else PASSES:
        model = TransformersModel(
            loaded, prompt=SHORT, position=START, layers=("middle", "last"), batch_size=n, max_tokens=new_tokens or 1
        )
        prompts = run.prompts(length, n)
        tokens = max(len(model.prompt_ids(SHORT.messages(prompt, ()))) for prompt in prompts)
        held = run.held()
        with run.peak() as peak:
            if new_tokens:
                model.answers(prompts)
            else:
                model.read_batch(prompts)
        assert model.batch_size == n, "the batch was cut"
        counted = pass_memory(loaded.config, prompts=n, tokens=tokens, new_tokens=new_tokens, size=size)
        rows.append(_beside({"prompts": n, "tokens": tokens, "new_tokens": new_tokens}, peak[0], held, counted))
    return rows


def scores(run: Measurement, encoder: Any) -> list[dict[str, Any]]:
    """Return what scoring pairs takes beside the weights of a cross-encoder, measured and counted, in GiB."""
    rows = []
    size = next(encoder.parameters()).element_size()
    for n, tokens in SMALL_PAIRS if run.tiny else PAIRS:
        encoder.max_seq_length = tokens
        pairs = [
            (question, text) for question, text in zip(run.prompts(64, n), run.prompts(2 * tokens, n), strict=True)
        ]
        held = run.held()
        with run.peak() as peak:
            encoder.predict(pairs, batch_size=n, show_progress_bar=False)
        counted = pass_memory(encoder.config, prompts=n, tokens=tokens, size=size)
        rows.append(_beside({"pairs": n, "tokens": tokens}, peak[0], held, counted))
    return rows


def crowded(run: Measurement, loaded: LoadedModel) -> dict[str, Any]:
    """Read a batch for which memory does not suffice; assert that its states are those of smaller batches.

    The device is filled until a share of what the batch needs is left.  On a CPU nothing is filled, and no batch is cut.
    """
    import torch

    n, length = (8, 64) if run.tiny else (64, 2048)
    prompts = run.prompts(length, n)
    small = TransformersModel(loaded, prompt=SHORT, layers=("last",), batch_size=max(1, n // 16))
    expected = small.read_batch(prompts)
    model = TransformersModel(loaded, prompt=SHORT, layers=("last",), batch_size=n)
    tokens = len(model.prompt_ids(SHORT.messages(prompts[0], ())))
    needed = pass_memory(loaded.config, prompts=n, tokens=tokens, size=next(loaded.network.parameters()).element_size())
    filler = None
    if not run.tiny:
        gc.collect()
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        filler = torch.empty(int(free - CROWDED * (needed or 0)), dtype=torch.uint8, device=run.device)
    states = model.read_batch(prompts)
    del filler
    largest = float((np.linalg.norm(states - expected, axis=-1) / np.linalg.norm(expected, axis=-1)).max())
    assert run.tiny or model.batch_size < n, "the device was not too small for the batch"
    return {"prompts": n, "tokens": tokens, "ended_with": model.batch_size, "largest_difference": largest}


def _beside(sizes: dict[str, int], peak: float | None, held: float | None, counted: int | None) -> dict[str, Any]:
    """Return a row: sizes, and the memory measured and counted beside what was held before."""
    measured = None if peak is None or held is None else peak - held
    expected = None if counted is None else counted / GIB
    return sizes | {
        "measured_gib": measured,
        "counted_gib": expected,
        "counted_of_measured": None if not measured or expected is None else expected / measured,
    }
