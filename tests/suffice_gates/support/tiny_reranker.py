"""A cross-encoder with random weights, small enough to train within a test, and preferences that it can learn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from suffice.loops.retrieval import Question
from suffice.policy.metrics import exact_match
from suffice_gates.models import TransformersModel
from suffice_gates.probes import Probe, ProbeCard, pinned_of
from suffice_gates.training.preference_file import Preference

WORDS = tuple(f"{a}{b}" for a in ("ba", "do", "ki", "lu", "me") for b in ("ra", "so", "ti"))


def tiny_cross_encoder(
    folder: Path, *, words: Iterable[str] = WORDS, seed: int = 0, labels: int = 1, width: int = 48, dropout: float = 0.0
) -> Path:
    """Write a BERT-style cross-encoder of two layers that knows some words."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=48,
        num_labels=labels,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.1,
    )
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def without_a_head(folder: Path) -> Path:
    """Write the encoder of `tiny_cross_encoder` alone, as encoders are published: its head was never trained."""
    from transformers import BertModel

    tiny_cross_encoder(folder)
    BertModel.from_pretrained(str(folder)).save_pretrained(folder)
    return folder


def language_model_reranker(folder: Path, words: Iterable[str]) -> Path:
    """Write a causal language model of one layer, which sentence-transformers scores by the words 'yes' and 'no'."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {word: i for i, word in enumerate(["[UNK]", "[PAD]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")
    wrapped.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=1,
    )
    Qwen2ForCausalLM(config).eval().save_pretrained(folder)
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


def words_of(questions: Sequence[Question]) -> list[str]:
    """Return the words of questions and passages, as a BERT tokenizer splits them."""
    texts = [item.question for item in questions] + [f"{p.title} {p.text}" for item in questions for p in item.passages]
    return sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())})


def linear_probe(
    model: TransformersModel, questions: Sequence[Question], prompts: Sequence[str], *, seed: int = 0
) -> Probe:
    """Fit a logistic regression on the states of one or both prompts: is the model's own answer under it right?

    Under `rag` every question comes with one passage of its own, drawn at random.
    """
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(seed)
    texts = [item.question for item in questions]
    drawn = [[item.passages[int(rng.integers(len(item.passages)))]] for item in questions]
    states, labels = [], []
    for prompt in prompts:
        passages = drawn if prompt == "rag" else None
        states.append(model.read_batch(texts, passages)[:, 0])
        replies = model.answers(texts, passages)
        labels += [exact_match(reply.answer, item.answers) for reply, item in zip(replies, questions, strict=True)]
    x = np.concatenate(states)
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    fit = LogisticRegression(C=0.1, max_iter=2000).fit((x - mean) / scale, labels)
    card = ProbeCard(
        model=model.id,
        revision=model.revision,
        layer=model.layers[0],
        prompts=tuple(prompts),
        pinned=pinned_of(model.fingerprint()),
    )
    layer = (fit.coef_.astype(np.float32), fit.intercept_.astype(np.float32))
    return Probe([layer], card, mean=mean.astype(np.float32), scale=scale.astype(np.float32))
