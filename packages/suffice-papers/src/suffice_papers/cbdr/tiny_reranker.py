"""A cross-encoder with random weights and the vocabulary of the tiny world, so that alignment needs no download."""

from __future__ import annotations

from pathlib import Path

from suffice.errors import MissingExtraError


def write_tiny_reranker(folder: str | Path, model: str | Path, *, seed: int = 0) -> Path:
    """Write a BERT of two layers with the vocabulary of a tiny model; it ranks at random until it is trained.

    Args:
        folder: Output folder.
        model: The folder of the tiny model.
        seed: Seed of the weights.

    Raises:
        MissingExtraError: torch or transformers is not installed.
    """
    try:
        import torch
        from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, BertTokenizerFast
    except ImportError:
        raise MissingExtraError("writing a tiny reranker", "torch", "suffice-papers") from None
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = AutoTokenizer.from_pretrained(str(model), trust_remote_code=False).get_vocab()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = sorted({word.strip("Ġ▁ ").lower() for word in vocabulary} - {""})
    (folder / "vocab.txt").write_text("\n".join([*special, *(w for w in words if w not in special)]), encoding="utf-8")
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(special) + len(words),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        num_labels=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        BertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder
