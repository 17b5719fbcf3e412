"""The sentence-transformers trainer, set up for preferences: its rows, loss and selection of the best step."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from suffice.errors import DataError, MissingExtraError, ModelError
from suffice.recordings.journal import differences
from suffice_gates.rerank import load_cross_encoder
from suffice_gates.training.info_nce import info_nce
from suffice_gates.training.memory import GIB, MOST_OF, MemoryEstimate, parts_of_batch, training_memory
from suffice_gates.training.preference_file import Preference
from suffice_gates.training.ranking import NAMES, ScorePairs, rank_metrics

_SELECTS = "mrr"
LOGGED = f"eval_{_SELECTS}"
"""The name of MRR@5 on dev in the trainer's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerSettings:
    """Settings of a reranker's training; the defaults are those of the paper where it states them.

    Attributes:
        learning_rate: Largest learning rate of AdamW; it falls linearly to 0.
        weight_decay: Weight decay of AdamW.
        query_tokens: Largest number of tokens of a question; longer questions are cut.
        passage_tokens: Largest number of tokens of a passage; longer passages are cut.
        batch: Rows per step and device; a row is a positive with its negatives.
        accumulate: Number of parts into which a batch is cut to save memory; the gradient stays the same unless
            negatives come from the batch.  None for as many parts as `memory` requires, but 1 if negatives come from
            the batch.
        memory: GiB of the device that training may take, see `suffice_gates.training.memory`.  If memory runs out
            nevertheless, batches are cut into more parts.
        checkpointing: True to compute layers again in the backward pass, which is a third slower and takes much less
            memory.
        epochs: Passes over the data.
        temperature: tau of InfoNCE; the paper does not state it, and FlagEmbedding uses 1 for rerankers.
        negatives: Largest number of negatives in a row; the negatives that lower confidence most are used.
        in_batch: Largest number of further negatives from the batch.
        warmup: Share of the steps in which the learning rate rises.
        evaluations: Evaluations and checkpoints per epoch.
        patience: Evaluations without a better MRR on dev before training stops.
        precision: `fp32`, `bf16`, `fp16`, or `auto` (bf16 where the device has it).
    """

    learning_rate: float = 6e-5
    weight_decay: float = 0.01
    query_tokens: int = 128
    passage_tokens: int = 512
    batch: int = 32
    accumulate: int | None = None
    memory: float = 24.0
    checkpointing: bool = False
    epochs: float = 1.0
    temperature: float = 1.0
    negatives: int = 5
    in_batch: int = 0
    warmup: float = 0.0
    evaluations: int = 10
    patience: int = 3
    precision: str = "auto"

    def __post_init__(self) -> None:
        for name in ("learning_rate", "epochs", "temperature", "memory"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise DataError(f"{name} is {value!r}; allowed: a number above 0")
        for name in ("query_tokens", "passage_tokens", "batch", "accumulate", "negatives", "evaluations", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"{name} is {value!r}; allowed: 1 or more")
        if self.accumulate is not None and self.batch % self.accumulate:
            raise DataError(f"a batch of {self.batch} rows cannot be cut into {self.accumulate} equal parts")
        if self.weight_decay < 0 or self.in_batch < 0 or not 0 <= self.warmup < 1:
            raise DataError(
                f"weight_decay is {self.weight_decay!r}, in_batch {self.in_batch!r}, warmup {self.warmup!r}; allowed: "
                "weight_decay >= 0, in_batch >= 0 and a share of the steps in [0, 1)"
            )
        if self.precision not in ("auto", "fp32", "bf16", "fp16"):
            raise DataError(f"precision is {self.precision!r}; allowed: auto, fp32, bf16 and fp16")

    @property
    def deciding(self) -> dict[str, Any]:
        """The settings that affect the result; all others only save memory."""
        saving = ("memory", "checkpointing", *(() if self.in_batch and self.accumulate else ("accumulate",)))
        return {name: value for name, value in asdict(self).items() if name not in saving}


def changed_settings(old: Mapping[str, Any], new: RerankerSettings) -> list[str]:
    """List the settings that affect the result and differ from the stored settings, as ``key: old -> new``."""
    deciding = new.deciding
    known = {name: value for name, value in old.items() if name in deciding or name not in asdict(new)}
    if new.in_batch and new.accumulate is None and old.get("accumulate") not in (None, 1):
        return [f"accumulate: {old['accumulate']} -> 1"]
    return differences(known, json.loads(json.dumps(deciding)))


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the progress bars of transformers unless standard error is a terminal."""
    from transformers.utils import logging

    silenced = logging.is_progress_bar_enabled() and not sys.stderr.isatty()
    if silenced:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if silenced:
            logging.enable_progress_bar()


def load_base(
    model: str,
    settings: RerankerSettings,
    *,
    revision: str | None,
    device: str | None,
    seed: int,
    new_head: bool = True,
) -> Any:
    """Load the cross-encoder to train or to compare with, with the length limits of the settings.

    A model to train has weights in single precision.  A model that is only compared keeps the precision of its stored weights,
    which for most large models takes half the memory.

    Args:
        model: Id or folder.
        settings: Training settings.
        revision: Revision of the model at the hub.
        device: A torch device.
        seed: Seed of a new head.
        new_head: True to load the model for training, even without a trained head; False to rank with its own head.

    Raises:
        MissingExtraError: The extra `torch` is not fully installed.
        ModelError: The model cannot be loaded, or has several labels.
    """
    try:
        import accelerate  # noqa: F401 - the trainer needs both
        import datasets  # noqa: F401
        import torch
    except ImportError as error:
        raise MissingExtraError("training a reranker", "torch", "suffice-gates") from error
    torch.manual_seed(seed)  # a base without a head gets a new one
    encoder = load_cross_encoder(model, revision, device, new_head=new_head, dtype=None if new_head else "auto")
    if encoder.num_labels != 1:
        raise ModelError(f"the cross-encoder {model!r} has {encoder.num_labels} labels; use one with a single label")
    special = encoder.tokenizer.num_special_tokens_to_add(pair=True)
    longest = settings.query_tokens + settings.passage_tokens + special
    encoder.max_seq_length = min(longest, encoder.max_seq_length or longest)
    return encoder.float() if new_head else encoder  # in half precision, updates of 6e-5 would be rounded away


def planned_memory(encoder: Any, settings: RerankerSettings, device: str | None) -> MemoryEstimate | None:
    """Estimate the memory of training with these settings; None if the model's sizes are unknown."""
    precision = _precision(settings.precision, device)
    return training_memory(
        encoder.config,
        sum(weight.numel() for weight in encoder.parameters()),
        encoder.max_seq_length,
        half=precision["bf16"] or precision["fp16"],
        checkpointing=settings.checkpointing,
    )


def in_parts(settings: RerankerSettings, estimate: MemoryEstimate | None) -> tuple[RerankerSettings, tuple[str, ...]]:
    """Fill in the number of parts of a batch; return the settings, and notes on memory."""
    pairs = 1 + settings.negatives + settings.in_batch
    parts = settings.accumulate
    if parts is None:
        cut = estimate is not None and not settings.in_batch
        parts = parts_of_batch(estimate, settings.batch, pairs, settings.memory) if cut and estimate else 1
    chosen = replace(settings, accumulate=parts)
    if estimate is None:
        return chosen, ("the model's configuration does not contain the sizes of its layers, so its memory is unknown",)
    rows = settings.batch // parts
    total = estimate.total(rows * pairs) / GIB
    said = (
        f"memory, counted for the longest pairs: {estimate.states / GIB:.1f} GiB of weights, gradients and moments, "
        f"{total - estimate.states / GIB:.1f} GiB of activations for {rows} of {settings.batch} rows at a time, with up to "
        f"{pairs} pairs each"
    )
    if total <= MOST_OF * settings.memory:
        return chosen, (said,)
    advice = "--set checkpointing=true, or fewer negatives or passage-tokens, or a smaller batch"
    return chosen, (f"{said}: more than {MOST_OF:.0%} of {settings.memory:g} GiB. If it does not fit, {advice}",)


def more_parts(settings: RerankerSettings) -> int | None:
    """Return the next number of parts after memory ran out, about twice as many; None if a batch cannot be cut further."""
    parts = settings.accumulate or 1
    if settings.in_batch:
        return None  # negatives come from the batch, so other parts would change them
    return next((n for n in range(2 * parts, settings.batch + 1) if settings.batch % n == 0), None) or (
        settings.batch if parts < settings.batch else None
    )


def _cut_to_tokens(texts: list[str], tokenizer: Any, tokens: int) -> list[str]:
    """Cut each text after `tokens` tokens, keeping its original characters."""
    encoded = tokenizer(
        texts, add_special_tokens=False, truncation=True, max_length=tokens, return_offsets_mapping=True
    )
    return [
        text[: offsets[-1][1]] if len(offsets) == tokens else text
        for text, offsets in zip(texts, encoded["offset_mapping"], strict=True)
    ]


def pair_scorer(encoder: Any, settings: RerankerSettings) -> ScorePairs:
    """Return a scorer of pairs by raw logits, because a sigmoid would make large logits equal."""
    from torch.nn import Identity

    def score(pairs: list[tuple[str, str]]) -> Any:
        queries = _cut_to_tokens([query for query, _ in pairs], encoder.tokenizer, settings.query_tokens)
        passages = _cut_to_tokens([text for _, text in pairs], encoder.tokenizer, settings.passage_tokens)
        cut_pairs = list(zip(queries, passages, strict=True))
        return encoder.predict(cut_pairs, activation_fn=Identity(), show_progress_bar=False, batch_size=settings.batch)

    return score


def _training_rows(preferences: Sequence[Preference], tokenizer: Any, settings: RerankerSettings) -> Any:
    """Return one row for each positive: question, positive and the question's first negatives."""
    from datasets import Dataset

    rows: dict[str, list[Any]] = {"query": [], "positive": [], "negatives": []}
    for item in preferences:
        [query] = _cut_to_tokens([item.query], tokenizer, settings.query_tokens)
        negatives = _cut_to_tokens(list(item.neg[: settings.negatives]), tokenizer, settings.passage_tokens)
        for positive in _cut_to_tokens(list(item.pos), tokenizer, settings.passage_tokens):
            rows["query"].append(query)
            rows["positive"].append(positive)
            rows["negatives"].append(negatives)
    return Dataset.from_dict(rows)


def _precision(wanted: str, device: str | None) -> dict[str, bool]:
    import torch

    has_gpu = torch.cuda.is_available() and device != "cpu"
    if wanted == "fp16" and not has_gpu:
        raise DataError("precision is 'fp16', but there is no GPU to train on; use 'bf16', 'fp32' or 'auto'")
    bf16 = wanted == "bf16" or (wanted == "auto" and has_gpu and torch.cuda.is_bf16_supported())
    return {"bf16": bf16, "fp16": wanted == "fp16"}


def make_trainer(
    encoder: Any,
    preferences: Sequence[Preference],
    dev: Sequence[Preference],
    settings: RerankerSettings,
    folder: Path,
    *,
    device: str | None,
    seed: int,
) -> Any:
    """Build a trainer that evaluates and saves as often as the settings require.

    Args:
        encoder: The cross-encoder.
        preferences: Training questions.
        dev: Questions for choosing the step; if empty, the last step is kept.
        settings: Training settings.
        folder: Folder of the checkpoints.
        device: `cpu` to train on the CPU although there is an accelerator.
        seed: Seed of the row order and of dropout.
    """
    import torch
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from transformers import EarlyStoppingCallback, PrinterCallback

    rows = _training_rows(preferences, encoder.tokenizer, settings)
    if settings.checkpointing:
        encoder.model.gradient_checkpointing_enable({"use_reentrant": False})
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    at_once = settings.batch * processes
    # Several processes drop the last rows if these do not fill a step of every process.
    steps = max(1, len(rows) // at_once if processes > 1 else math.ceil(len(rows) / at_once))
    every = max(1, min(math.ceil(steps / settings.evaluations), math.floor(settings.epochs * steps)))
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(folder),
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        per_device_train_batch_size=settings.batch // (settings.accumulate or 1),
        gradient_accumulation_steps=settings.accumulate or 1,
        num_train_epochs=settings.epochs,
        warmup_steps=math.floor(settings.warmup * settings.epochs * steps),
        eval_strategy="steps" if dev else "no",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=2,
        load_best_model_at_end=bool(dev),
        metric_for_best_model=LOGGED if dev else None,
        greater_is_better=True if dev else None,
        logging_steps=every,
        report_to="none",
        disable_tqdm=not sys.stderr.isatty(),
        dataloader_pin_memory=torch.cuda.is_available() and device != "cpu",
        use_cpu=device == "cpu",
        seed=seed,
        data_seed=seed,
        **_precision(settings.precision, device),
    )
    trainer = CrossEncoderTrainer(
        model=encoder,
        args=arguments,
        train_dataset=rows,
        loss=info_nce(encoder, temperature=settings.temperature, in_batch=settings.in_batch),
        evaluator=_evaluator(dev, pair_scorer(encoder, settings)) if dev else None,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=settings.patience)] if dev else [],
    )
    trainer.remove_callback(PrinterCallback)  # it writes to standard output
    # To write a checkpoint's model card takes as long as several small steps, and nobody reads it.
    encoder.save_pretrained = partial(encoder.save_pretrained, create_model_card=False)
    return trainer


def _evaluator(dev: Sequence[Preference], score: ScorePairs) -> Any:
    """Return the evaluator that selects the step: MRR@5 on dev."""
    from sentence_transformers.base import evaluation

    class Evaluator(evaluation.BaseEvaluator):  # type: ignore[misc]  # Any to mypy here
        def __init__(self) -> None:
            super().__init__()
            self.primary_metric = _SELECTS

        def __call__(self, model: Any, output_path: Any = None, epoch: float = -1, steps: int = -1) -> dict[str, float]:
            del model, output_path, epoch, steps  # the scorer already has the model
            return {_SELECTS: float(rank_metrics(dev, score)[NAMES.index("MRR@5")].mean())}

    return Evaluator()
