"""A cross-encoder with random weights, small enough to train within a test, and preferences that it can learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from suffice.train.preference_file import Preference

WORDS = tuple(f"{a}{b}" for a in ("ba", "do", "ki", "lu", "me") for b in ("ra", "so", "ti"))


def tiny_cross_encoder(folder: Path, *, seed: int = 0, labels: int = 1, width: int = 48, dropout: float = 0.0) -> Path:
    """Write a BERT-style cross-encoder of two layers that knows `WORDS`."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=32,
        num_labels=labels,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.1,
    )
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def overlap_preferences(n: int, *, seed: int, shuffled: bool = False) -> list[Preference]:
    """Return questions of two words; what shares a word with them is preferred, unless labels are `shuffled`."""
    rng = np.random.default_rng(seed)
    found: dict[str, Preference] = {}
    while len(found) < n:
        words = [str(word) for word in rng.permutation(WORDS)]
        query, others = words[:2], words[2:]
        texts = [" ".join(rng.permutation([query[i % 2], *rng.permutation(others)[:2]])) for i in range(3)]
        texts += [" ".join(rng.permutation(others)[:3]) for _ in range(4)]
        if len(set(texts)) < len(texts):
            continue
        if shuffled:
            texts = [str(text) for text in rng.permutation(texts)]
        found.setdefault(" ".join(query), Preference(query=" ".join(query), pos=tuple(texts[:3]), neg=tuple(texts[3:])))
    return list(found.values())
