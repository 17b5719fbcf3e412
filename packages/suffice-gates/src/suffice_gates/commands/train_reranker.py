"""`suffice reranker train`: trains a cross-encoder on a model's preferences, and measures it before and after."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from suffice.cli import datasets, models
from suffice.cli.console import quiet_bars
from suffice.cli.local import LocalRun, hub_name
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.common.files import quoted
from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling
from suffice.loops.retrieval import PoolBM25, load_questions
from suffice_gates.rerank import CrossEncoderScorer
from suffice_gates.training.answers import answers_in_order, compare_answers
from suffice_gates.training.preference_file import card_path, read_preferences
from suffice_gates.training.reranker import FEWEST, RerankerSettings, train_reranker

_RERANKER_DEFAULTS = RerankerSettings()
_TRANSFER = (
    "it is aligned with one model: the published gains (NQ, top 3: +4.7 accuracy) hardly carry over to another (+0.2), and "
    "on HotpotQA general rerankers did better with one passage; `suffice paper transfer` compares models"
)


@dataclass(frozen=True, kw_only=True)
class _Answering(models.Answering):
    """Options of the model that answers `--questions` twice: with passages in the order before training, and after it."""

    panel: ClassVar[str] = "Answers to --questions"

    logprobs: Annotated[
        bool, Setting("endpoint", "logprobs", help="Ask for log-probabilities; nothing here reads them.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class _BaseRun(LocalRun):
    """Options of local models: the cross-encoder to train, and the language model that answers."""

    revision: Annotated[
        str | None,
        Setting("local", "revision", help="Revision of --base at the hub; or write ID@REVISION in any option."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class _RerankerTraining:
    """The fields of `RerankerSettings` as options."""

    panel: ClassVar[str] = "Training"

    learning_rate: Annotated[float, Setting("reranker", "lr", help="Largest learning rate.")] = (
        _RERANKER_DEFAULTS.learning_rate
    )
    weight_decay: Annotated[float, Setting("reranker", "weight-decay", help="Weight decay of AdamW.")] = (
        _RERANKER_DEFAULTS.weight_decay
    )
    query_tokens: Annotated[int, Setting("reranker", "query-tokens", help="Longest question.")] = (
        _RERANKER_DEFAULTS.query_tokens
    )
    passage_tokens: Annotated[int, Setting("reranker", "passage-tokens", help="Longest passage.")] = (
        _RERANKER_DEFAULTS.passage_tokens
    )
    batch: Annotated[
        int, Setting("reranker", "batch", help="Rows per step and device: each a positive with its negatives.")
    ] = _RERANKER_DEFAULTS.batch
    accumulate: Annotated[
        int | None,
        Setting("reranker", "accumulate", help="Parts into which a batch is cut; default: as many as memory demands."),
    ] = _RERANKER_DEFAULTS.accumulate
    memory: Annotated[
        float, Setting("reranker", "memory", help="GiB of the device that training may take; sets accumulate.")
    ] = _RERANKER_DEFAULTS.memory
    checkpointing: Annotated[
        bool,
        Setting("reranker", "checkpointing", help="Compute layers again in the backward pass: less memory, slower."),
    ] = _RERANKER_DEFAULTS.checkpointing
    epochs: Annotated[float, Setting("reranker", "epochs", help="Passes over the data.")] = _RERANKER_DEFAULTS.epochs
    temperature: Annotated[float, Setting("reranker", "temperature", help="Temperature of InfoNCE.")] = (
        _RERANKER_DEFAULTS.temperature
    )
    negatives: Annotated[int, Setting("reranker", "negatives", help="Most given negatives.")] = (
        _RERANKER_DEFAULTS.negatives
    )
    in_batch: Annotated[int, Setting("reranker", "in-batch", help="Most further negatives from the batch.")] = (
        _RERANKER_DEFAULTS.in_batch
    )
    warmup: Annotated[
        float, Setting("reranker", "warmup", help="Share of the steps in which the learning rate rises.")
    ] = _RERANKER_DEFAULTS.warmup
    evaluations: Annotated[int, Setting("reranker", "evaluations", help="Evaluations and checkpoints per epoch.")] = (
        _RERANKER_DEFAULTS.evaluations
    )
    patience: Annotated[
        int, Setting("reranker", "patience", help="Evaluations without a better MRR on dev before it stops.")
    ] = _RERANKER_DEFAULTS.patience
    precision: Annotated[str, Setting("reranker", "precision", help="auto, fp32, bf16 or fp16.")] = (
        _RERANKER_DEFAULTS.precision
    )


def train_reranker_command(
    preferences: Annotated[
        Path, typer.Argument(help="Training preferences, as `suffice reranker preferences` writes them.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the trained cross-encoder.")],
    training: _RerankerTraining,
    answering: _Answering,
    local: _BaseRun,
    output: Output,
    base: Annotated[str, typer.Option("--base", help="A cross-encoder, id or folder.")] = "BAAI/bge-reranker-v2-m3",
    dev: Annotated[Path | None, typer.Option("--dev", help="Preferences that choose the step and stop early.")] = None,
    test: Annotated[
        Path | None, typer.Option("--test", help="Preferences to report on, before and after training; default: --dev.")
    ] = None,
    seed: Annotated[
        int, Setting("reranker", "seed", min=0, help="Seed of row order, dropout, a new head and resamples.")
    ] = 0,
    questions: Annotated[
        str | None, typer.Option("--questions", help="Answer these in both orders, too: quality before and after.")
    ] = None,
    candidates: datasets.Candidates = 20,
) -> None:
    """Train with InfoNCE, and measure quality before and after. Run the same command again to resume.

    Example: suffice reranker train preferences.jsonl -o aligned
    """
    if questions is None or not answering.local:
        remedy = "give --questions and --local, or leave it out"
        local.refuse_unused(remedy, "device", "revision")
    base_model, revision = hub_name(base, local.revision)
    quiet_bars()
    run = train_reranker(
        base_model,
        read_preferences(preferences, at_least=FEWEST),
        out,
        dev=[] if dev is None else read_preferences(dev),
        test=[] if test is None else read_preferences(test),
        settings=RerankerSettings(**asdict(training)),
        aligned_with=_aligned_with(preferences),
        revision=revision,
        device=local.device,
        seed=seed,
    )
    if int(os.environ.get("RANK", "0")) > 0:
        return  # if several processes train together, only the first one answers and prints
    answers = None
    if questions is not None:
        reader = answering.answerer(replace(local, revision=None), logprobs=answering.logprobs)
        scorers = (
            CrossEncoderScorer(base_model, revision=revision, device=local.device),
            CrossEncoderScorer(out, device=local.device),
        )
        listed, retriever = load_questions(questions), PoolBM25()
        paths = (out.with_name(f"{out.name}.{name}.parquet") for name in ("before", "after"))
        before, after = (
            answers_in_order(listed, reader, retriever, scorer, path, candidates=candidates)
            for path, scorer in zip(paths, scorers, strict=True)
        )
        answers = compare_answers(before, after, resampling=Resampling(seed=seed))
    best = "" if run.best_step is None else f", the best on dev after {run.best_step}"
    ranking = run.table()
    tables = [] if ranking is None else [ranking]
    if answers is not None:
        tables.append(answers.table("answers from the first passages in each order, per cent"))
    screen = Screen(
        sentences=[f"{run.path}: {run.steps} steps{best}, {run.seconds:.0f} s"],
        tables=tables,
        notes=[_TRANSFER, *run.notes],
        then=f"suffice record DATASET -o run.parquet --reranker {quoted(run.path)}",
    )
    output.show({"path": str(run.path), **run.to_dict(), "answers": answers}, screen)


def _aligned_with(preferences: Path) -> dict[str, Any] | None:
    """Return the identity of the model whose preferences a file contains, from the file's card; None without a card."""
    try:
        confidence = json.loads(card_path(preferences).read_text(encoding="utf-8"))["config"]["confidence"]
    except OSError:
        return None  # another program's file
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{card_path(preferences)} is not the card of preference data: move it away") from None
    return dict(confidence)
