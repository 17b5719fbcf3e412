"""The span reader's network: a six-layer BERT encoder (MiniLM) and a span head, in plain PyTorch.

Shapes: B windows, T tokens, D = 384 features, H = 12 heads, L = 16 span lengths, R = 64 (rank of the pair term).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from suffice_reader._span_windows import Window

D, H, INNER, LAYERS, L, R = 384, 12, 1536, 6, 16, 64


class Layer(nn.Module):
    """One post-norm transformer layer, as in BERT."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, INNER), nn.Linear(INNER, D)
        self.norm1, self.norm2 = nn.LayerNorm(D, eps=1e-12), nn.LayerNorm(D, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, D), mask (B, 1, 1, T) 0 where there is a token and very negative elsewhere -> (B, T, D)."""
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, H, D // H).permute(2, 0, 3, 1, 4)  # each (B, H, T, D/H)
        # Written out: PyTorch's fused attention was five times slower here on a CPU (heads of 32 features, bf16).
        scores = q @ k.transpose(-1, -2) * (D // H) ** -0.5  # (B, H, T, T)
        attended = (scores if mask is None else scores + mask.to(scores.dtype)).softmax(-1).to(v.dtype) @ v
        x = self.norm1(x + self.dropout(self.out(attended.transpose(1, 2).reshape(b, t, D))))
        return self.norm2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class SpanModel(nn.Module):
    """Scores every span of up to L tokens of every window.

    A span's logit is (start + end + pair + length) * sharpness + passage: the usual two token scores, a low-rank
    interaction of the span's first and last token, a bias for its length; and, both read from [CLS], how far apart
    the spans of this passage should be, and how likely it is to hold the answer at all.
    """

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.words = nn.Embedding(30522, D, padding_idx=0)
        self.positions, self.types = nn.Embedding(512, D), nn.Embedding(2, D)
        self.norm, self.dropout = nn.LayerNorm(D, eps=1e-12), nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(dropout) for _ in range(LAYERS))
        self.start_end = nn.Linear(D, 2)
        self.first, self.last = nn.Linear(D, R), nn.Linear(D, R)
        self.length = nn.Parameter(torch.zeros(L))
        self.passage, self.sharpness = nn.Linear(D, 1), nn.Linear(D, 1)
        self.support = nn.Linear(D, 1)  # auxiliary, training only: is the passage a supporting one?
        nn.init.zeros_(self.sharpness.weight)
        nn.init.zeros_(self.sharpness.bias)
        nn.init.constant_(self.passage.bias, -7.0)  # about 1,000 spans a passage: start near log-odds 0 in all

    def encode(self, ids: Tensor, types: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T) ids and types, mask (B, T) bool -> (B, T, D)."""
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.dropout(self.norm(self.words(ids) + self.positions(places) + self.types(types)))
        wide = None if mask is None else (~mask)[:, None, None, :] * -1e4
        for layer in self.layers:
            x = layer(x, wide)
        return x

    def forward(self, ids: Tensor, types: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, T) -> span logits (B, T, L), element (b, i, l) for tokens i..i+l; support logits (B,)."""
        x = self.encode(ids, types, mask).float()
        with torch.autocast(x.device.type, enabled=False):  # bf16 would round the logits to steps of 0.06
            return self.spans(x), self.support(x[:, 0]).squeeze(-1)

    def spans(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, L)."""
        start, end = self.start_end(x).unbind(-1)  # (B, T) each
        first, last = self.first(x), self.last(x)  # (B, T, R)
        t = x.shape[1]
        end, last = F.pad(end, (0, L - 1)), F.pad(last, (0, 0, 0, L - 1))
        spans = torch.stack(  # a static loop over L: no gather, so the exported graph is plain slices and products
            [end[:, i : i + t] + (first * last[:, i : i + t]).sum(-1) * R**-0.5 for i in range(L)], dim=-1
        )  # (B, T, L)
        cls = x[:, :1, :]  # (B, 1, D)
        return (spans + start[..., None] + self.length) * self.sharpness(cls).exp() + self.passage(cls)


def load_minilm(model: SpanModel, weights: Path) -> None:
    """Copy the encoder of all-MiniLM-L6-v2 (`model.safetensors`) into `model`."""
    from safetensors.torch import load_file

    source = load_file(str(weights))
    target = {
        f"{name}.weight": source[f"embeddings.{old}_embeddings.weight"]
        for name, old in (("words", "word"), ("positions", "position"), ("types", "token_type"))
    }
    for kind in ("weight", "bias"):
        target[f"norm.{kind}"] = source[f"embeddings.LayerNorm.{kind}"]
        for i in range(LAYERS):
            old, new = f"encoder.layer.{i}.", f"layers.{i}."
            parts = [source[f"{old}attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            target[f"{new}qkv.{kind}"] = torch.cat(parts)
            target[f"{new}out.{kind}"] = source[f"{old}attention.output.dense.{kind}"]
            target[f"{new}norm1.{kind}"] = source[f"{old}attention.output.LayerNorm.{kind}"]
            target[f"{new}up.{kind}"] = source[f"{old}intermediate.dense.{kind}"]
            target[f"{new}down.{kind}"] = source[f"{old}output.dense.{kind}"]
            target[f"{new}norm2.{kind}"] = source[f"{old}output.LayerNorm.{kind}"]
    missing, unexpected = model.load_state_dict(target, strict=False)
    heads = ("start_end", "first", "last", "length", "passage", "sharpness", "support")
    if unexpected or any(name.split(".")[0] not in heads for name in missing):
        raise ValueError(f"{weights} is not all-MiniLM-L6-v2: missing {missing}, unexpected {unexpected}")


def batches(windows: Sequence[Window], size: int) -> list[list[int]]:
    """Indices of windows in batches of similar length, so that little is padded."""
    order = sorted(range(len(windows)), key=lambda i: len(windows[i].ids))
    return [order[i : i + size] for i in range(0, len(order), size)]


def collate(windows: Sequence[Window], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Pad windows: ids (B, T), types (B, T), mask (B, T) bool."""
    t = max(len(window.ids) for window in windows)
    ids, types, mask = (np.zeros((len(windows), t), np.int64) for _ in range(3))
    for row, window in enumerate(windows):
        n = len(window.ids)
        ids[row, :n], types[row, :n], mask[row, :n] = window.ids, window.types, 1
    return tuple(torch.from_numpy(array).to(device) for array in (ids, types, mask.astype(bool)))  # type: ignore[return-value]
