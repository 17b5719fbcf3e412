"""Estimates of the memory for training a cross-encoder and for passes without a gradient, from a model's shape.

The estimate for training counts the tensors that PyTorch keeps for the backward pass, in an encoder of the BERT family
with fused attention.  The estimate for a pass without a gradient counts the tensors that exist at the same time.
`tests/suffice_gates/test_reranker_memory.py` checks both on small models.  The estimates leave out the context of the
device (about half a GiB), the overhead of its allocator, and the attention matrices of unfused attention.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from suffice.errors import DataError

GIB = 2**30

MOST_OF = 0.9
"""The share of the memory that an estimate may fill; the rest is left for what the estimate omits."""

STATES_BYTES = 16
"""Numbers in fp32 per weight: the weight, its gradient, and the two moments of AdamW."""

_TWO_MATRICES = frozenset(
    {"bert", "xlm-roberta", "roberta", "electra", "camembert", "mpnet", "distilbert", "deberta-v2"}
)
"""Kinds of models whose feed-forward layer has two matrices; others may have a gate, which keeps two tensors more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Memory for one step of training, bytes.

    Attributes:
        states: Memory of weights, gradients and moments in fp32. Half precision adds a copy of the weights.
        pair: Activations kept for one pair of the longest length.
        whole_layer: With checkpointing, activations of one pair in one layer while that layer is computed again; else
            0.
    """

    states: int
    pair: int
    whole_layer: int = 0

    def total(self, pairs: int) -> int:
        """Return the bytes of memory that a pass over `pairs` pairs takes."""
        return self.states + pairs * (self.pair + self.whole_layer)


def training_memory(
    config: Any, n_weights: int, tokens: int, *, half: bool = True, checkpointing: bool = False
) -> MemoryEstimate | None:
    """Estimate the memory of training; None if the configuration does not contain the sizes of the layers.

    Take a layer of width H, with a feed-forward layer of width I. For each token it keeps 10 H + 2 I numbers (10 H + 4
    I with a gate), plus one number of the mask for each token of the pair. In half precision it keeps another 2 H
    numbers in fp32. With checkpointing, a layer keeps only its input.

    >>> from types import SimpleNamespace
    >>> large = dict(num_hidden_layers=24, hidden_size=1024, intermediate_size=4096, model_type="xlm-roberta")
    >>> estimate = training_memory(SimpleNamespace(**large), 568_000_000, 200)
    >>> round(estimate.states / GIB, 1), round(192 * estimate.pair / GIB, 1)
    (9.5, 39.4)

    Args:
        config: The model's configuration (`num_hidden_layers`, `hidden_size`, `intermediate_size`, `model_type`).
        n_weights: Number of weights of the model.
        tokens: Tokens of the longest pair.
        half: True if passes run in bf16 or fp16.
        checkpointing: True if layers are computed again in the backward pass.
    """
    layers, width, inner = _shape(config)
    if layers is None or width is None or inner is None:
        return None
    size = 2 if half else 4
    gate = 1 if getattr(config, "model_type", "") in _TWO_MATRICES else 2
    layer = (10 * width + 2 * gate * inner) * size + tokens * size + (8 * width if half else 0)
    ends = 10 * width  # embeddings and head
    kept = 4 * width if checkpointing else layer
    return MemoryEstimate(
        states=n_weights * (STATES_BYTES + (size if half else 0)),
        pair=tokens * (layers * kept + ends),
        whole_layer=tokens * layer if checkpointing else 0,
    )


def pass_memory(config: Any, *, prompts: int, tokens: int, new_tokens: int = 0, size: int = 2) -> int | None:
    """Estimate the memory of a pass without a gradient, not counting the weights.

    Return None if the configuration does not contain the sizes of the layers.

    Only one layer at a time holds tensors.  A layer of width H, with a feed-forward layer of width I, holds 4 H + 3 I
    numbers per token (3 H + 2 I without a gate).  With `new_tokens`, keys and values of all layers and the logits of
    the last token are kept.

    >>> from types import SimpleNamespace
    >>> llama = dict(num_hidden_layers=32, hidden_size=4096, intermediate_size=14336, num_attention_heads=32)
    >>> llama |= dict(num_key_value_heads=8, vocab_size=128256, model_type="llama")
    >>> round(pass_memory(SimpleNamespace(**llama), prompts=32, tokens=300, new_tokens=64) / GIB, 1)
    2.5

    Args:
        config: The model's configuration.
        prompts: Prompts of a pass, padded to the longest.
        tokens: Tokens of the longest prompt.
        new_tokens: Tokens to generate; 0 for a pass that only reads states or scores.
        size: Bytes of a number.
    """
    layers, width, inner = _shape(config)
    if layers is None or width is None or inner is None:
        return None
    matrices = 2 if getattr(config, "model_type", "") in _TWO_MATRICES else 3
    bytes_ = prompts * tokens * ((matrices + 1) * width + matrices * inner) * size
    if new_tokens:
        heads = getattr(config, "num_attention_heads", None) or 1
        keys = (getattr(config, "num_key_value_heads", None) or heads) * (
            getattr(config, "head_dim", None) or width // heads
        )
        logits = (getattr(config, "vocab_size", None) or 0) * (size + 2 * 4)  # and two copies in fp32
        bytes_ += prompts * (2 * layers * keys * (tokens + new_tokens) * size + logits)
    return bytes_


def _shape(config: Any) -> tuple[int | None, int | None, int | None]:
    """Return the number of layers, their width, and the width of their feed-forward layer; an unknown value is None."""
    sizes = (getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size", "intermediate_size"))
    layers, width, inner = (size if isinstance(size, int) else None for size in sizes)
    return layers, width, inner


def parts_of_batch(estimate: MemoryEstimate, rows: int, pairs: int, memory: float) -> int:
    """Return the smallest number of equal parts into which a batch must be cut so that a part fits into memory.

    Return `rows` if not even one row fits.

    Args:
        estimate: Estimate of the memory.
        rows: Rows of the batch.
        pairs: Pairs of a row: the positive and its negatives.
        memory: Memory of the device in GiB, of which the share `MOST_OF` is used.

    Raises:
        DataError: The memory is not above 0.
    """
    if not memory > 0:
        raise DataError(f"memory is {memory!r}; allowed: a number of GiB above 0")
    divisors = [parts for parts in range(1, rows + 1) if rows % parts == 0]
    fits = (parts for parts in divisors if estimate.total(rows // parts * pairs) <= MOST_OF * memory * GIB)
    return next(fits, rows)


def device_memory(device: str | None) -> tuple[str, int | None]:
    """Return the name of a torch device and its bytes of memory.

    Args:
        device: The device; None = the first GPU, else the processor.

    Returns:
        The name, or "" if this machine lacks the device; and the bytes, or None if they are unknown.
    """
    with suppress(ImportError):
        import torch

        wanted = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if wanted == "auto":
            return "all devices", None
        if wanted.startswith("cuda"):
            number = int(wanted.partition(":")[2] or 0)
            if number >= torch.cuda.device_count():
                return "", None
            return wanted, int(torch.cuda.get_device_properties(number).total_memory)
        if wanted != "cpu":
            return wanted, None
    with suppress(AttributeError, ValueError):  # not on every system
        return "this machine", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return "this machine", None


def device_name(device: Any) -> str:
    """Return the name of a loaded model's device: the name of the GPU, or the kind of any other device."""
    import torch

    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else f"this machine's {device.type}"
