"""`suffice reranker train`: a cross-encoder aligned with a model's preferences, measured before and after."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from suffice.cli import options
from suffice.cli.console import print_json, print_table, quiet_bars, say
from suffice.errors import DataError
from suffice.retrieval import CrossEncoderScorer, PoolBM25, load_questions
from suffice.statistics import Resampling
from suffice.tables import Table
from suffice.train.answers import answers_in_order, compare_answers
from suffice.train.preference_file import Preference, card_path, read_preferences
from suffice.train.ranking import RankingReport
from suffice.train.reranker import FEWEST, RerankerRun, RerankerSettings, train_reranker

__all__ = ["train_reranker_command"]

_PAPER = RerankerSettings()
_TRANSFER = (
    "it is aligned with one model: the published gains (NQ, top 3: +4.7 accuracy) hardly carry over to another (+0.2), and "
    "on HotpotQA general rerankers did better with one passage; `suffice paper transfer` compares models"
)


@dataclass(frozen=True, kw_only=True)
class _Answering(options.Answering):
    """What answers --questions in both orders."""

    panel: ClassVar[str] = "Answers to --questions"

    logprobs: Annotated[
        bool, typer.Option("--logprobs/--no-logprobs", help="Ask for log-probabilities; nothing here reads them.")
    ] = False


def train_reranker_command(
    preferences: Annotated[
        Path, typer.Argument(help="What to learn from, as `suffice reranker preferences` writes it.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the trained cross-encoder.")],
    answering: _Answering,
    base: Annotated[str, typer.Option("--base", help="A cross-encoder, id or folder.")] = "BAAI/bge-reranker-v2-m3",
    dev: Annotated[Path | None, typer.Option("--dev", help="Preferences that choose the step and stop early.")] = None,
    test: Annotated[
        Path | None, typer.Option("--test", help="Preferences to report on, before and after; default: those of --dev.")
    ] = None,
    lr: Annotated[float, typer.Option("--lr", help="Largest learning rate.")] = _PAPER.learning_rate,
    weight_decay: Annotated[float, typer.Option("--weight-decay", help="Of AdamW.")] = _PAPER.weight_decay,
    query_tokens: Annotated[int, typer.Option("--query-tokens", help="Longest question.")] = _PAPER.query_tokens,
    passage_tokens: Annotated[int, typer.Option("--passage-tokens", help="Longest passage.")] = _PAPER.passage_tokens,
    batch: Annotated[
        int, typer.Option("--batch", help="Positives of one step on each device, each with its negatives.")
    ] = _PAPER.batch,
    accumulate: Annotated[
        int, typer.Option("--accumulate", help="Parts into which a batch is cut where memory is short.")
    ] = _PAPER.accumulate,
    epochs: Annotated[float, typer.Option("--epochs", help="Passes over the data.")] = _PAPER.epochs,
    temperature: Annotated[float, typer.Option("--temperature", help="Of InfoNCE.")] = _PAPER.temperature,
    negatives: Annotated[int, typer.Option("--negatives", help="Most given negatives.")] = _PAPER.negatives,
    in_batch: Annotated[int, typer.Option("--in-batch", help="Negatives from the batch besides.")] = _PAPER.in_batch,
    warmup: Annotated[float, typer.Option("--warmup", help="Share of the steps.")] = _PAPER.warmup,
    evaluations: Annotated[
        int, typer.Option("--evaluations", help="Evaluations and checkpoints in an epoch.")
    ] = _PAPER.evaluations,
    patience: Annotated[
        int, typer.Option("--patience", help="Evaluations without a better MRR on dev before it stops.")
    ] = _PAPER.patience,
    precision: Annotated[str, typer.Option("--precision", help="auto, fp32, bf16 or fp16.")] = _PAPER.precision,
    revision: Annotated[str | None, typer.Option("--revision", help="Of the base model at the hub.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="'cpu' to leave a GPU alone.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of rows, dropout, a new head and resamples.")] = 0,
    questions: Annotated[
        str | None, typer.Option("--questions", help="Answer these in both orders, too: quality before and after.")
    ] = None,
    candidates: options.Candidates = 20,
    as_json: options.AsJson = False,
) -> None:
    """The loss is InfoNCE; quality is measured before and after. Run the same command again to resume.

    Example: suffice reranker train preferences.jsonl -o aligned
    """
    settings = RerankerSettings(
        learning_rate=lr,
        weight_decay=weight_decay,
        query_tokens=query_tokens,
        passage_tokens=passage_tokens,
        batch=batch,
        accumulate=accumulate,
        epochs=epochs,
        temperature=temperature,
        negatives=negatives,
        in_batch=in_batch,
        warmup=warmup,
        evaluations=evaluations,
        patience=patience,
        precision=precision,
    )
    quiet_bars()
    run = train_reranker(
        base,
        read_preferences(preferences, at_least=FEWEST),
        out,
        dev=_optional(dev),
        test=_optional(test),
        settings=settings,
        aligned_with=_aligned_with(preferences),
        revision=revision,
        device=device,
        seed=seed,
    )
    if int(os.environ.get("RANK", "0")) > 0:
        return  # of several processes that trained together, the first one answers and prints
    answers = None
    if questions is not None:
        reader = answering.answerer(logprobs=answering.logprobs)
        scorers = (CrossEncoderScorer(base, revision=revision, device=device), CrossEncoderScorer(out, device=device))
        asked, retriever = load_questions(questions), PoolBM25()
        before, after = (
            answers_in_order(asked, reader, retriever, scorer, _recording(out, name), candidates=candidates)
            for name, scorer in zip(("before", "after"), scorers, strict=True)
        )
        answers = compare_answers(before, after, resampling=Resampling(seed=seed))
    _report(run, answers, as_json=as_json)


def _optional(path: Path | None) -> list[Preference]:
    return [] if path is None else read_preferences(path)


def _recording(out: Path, name: str) -> Path:
    return out.with_name(f"{out.name}.{name}.parquet")


def _aligned_with(preferences: Path) -> dict[str, Any] | None:
    """Return what the preference file's card says of the model whose preferences these are."""
    try:
        confidence = json.loads(card_path(preferences).read_text(encoding="utf-8"))["config"]["confidence"]
    except OSError:
        return None  # somebody else's file
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{card_path(preferences)} is no card of preference data: move it away") from None
    return dict(confidence)


def _tables(run: RerankerRun, answers: RankingReport | None) -> list[Table]:
    ranking = run.table()
    tables = [] if ranking is None else [ranking]
    if answers is not None:
        tables.append(answers.table("answers from the first passages in each order, per cent"))
    return tables


def _report(run: RerankerRun, answers: RankingReport | None, *, as_json: bool) -> None:
    if as_json:
        told = None if answers is None else answers.to_dict()
        print_json({"path": str(run.path), **run.to_dict(), "answers": told})
        return
    for table in _tables(run, answers):
        print_table(table)
    best = "" if run.best_step is None else f", the best on dev after {run.best_step}"
    say(f"{run.path}: {run.steps} steps{best}, {run.seconds:.0f} s")
    say(f"note: {_TRANSFER}")
