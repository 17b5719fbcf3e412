"""`suffice reranker preferences`: what passages do to a model's confidence, as data that reranker trainers read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from suffice.cli import options
from suffice.cli.confidence import AllowPrompt, LocalModel, open_confidence
from suffice.cli.console import print_json, print_table, progress_bar, say
from suffice.cli.gating import tell_fitted
from suffice.llm import TransformersModel
from suffice.probes import LabelRule, ProbeConfidence
from suffice.retrieval import Question, Retriever, load_questions
from suffice.seen import Seen
from suffice.train.preference_file import PROMPT, card_path
from suffice.train.preferences import PreferenceSummary, build_preferences
from suffice.train.shift import Shift, measure_shift

__all__ = ["preferences_command"]


def preferences_command(
    dataset: Annotated[str, typer.Argument(help=f"Questions: {options.DATASET}.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The preference file, JSON lines; its card lies beside it.")],
    model: Annotated[str, typer.Option("--model", help="A folder or hub id of a causal language model.")],
    probe: Annotated[Path, typer.Option("--probe", help="Its probe, as `suffice gate train` writes it.")],
    local: LocalModel,
    search: options.Search,
    allow_prompt: AllowPrompt = None,
    candidates: Annotated[
        int, typer.Option("--candidates", min=2, help="Passages of a question, the retriever's best.")
    ] = 8,
    k: Annotated[int, typer.Option("--k", min=1, help="Most positives, and most negatives, of a question.")] = 5,
    line_prompt: Annotated[
        str, typer.Option("--line-prompt", help="The field `prompt` of every line, for rerankers that are LLMs.")
    ] = PROMPT,
    shift: Annotated[
        int,
        typer.Option("--shift", min=0, help="Questions on which the probe is measured under both prompts; 0: none."),
    ] = 200,
    label_rule: Annotated[
        str, typer.Option("--label-rule", help="With --shift: when an answer is right: em, contains or f1>=T.")
    ] = "contains",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draws the passages of --shift.")] = 0,
    limit: options.Limit = None,
    as_json: options.AsJson = False,
) -> None:
    """Inc is the confidence with a passage minus that without it. Run the same command again to resume.

    Example: suffice reranker preferences q.jsonl -o p.jsonl --model M --probe P
    """
    questions = load_questions(dataset, limit=limit)
    confidence, source = open_confidence(model, probe, local, allow=allow_prompt or ())
    retriever = search.retriever()
    tell_fitted({"probe": confidence.probe.card.seen}, questions)
    rule = LabelRule.parse(label_rule)
    measured = None
    if shift and not out.exists():
        measured = _shift(
            questions, confidence, source, retriever, most=shift, candidates=candidates, rule=rule, seed=seed
        )
    with progress_bar(f"scoring {dataset}", quiet=as_json) as progress:
        summary = build_preferences(
            questions,
            confidence,
            out,
            retriever=retriever,
            candidates=candidates,
            k=k,
            prompt=line_prompt,
            shift=None if measured is None else measured.to_dict(),
            on_progress=progress,
        )
    _report(summary, measured, as_json=as_json)


def _shift(
    questions: list[Question],
    confidence: ProbeConfidence,
    source: TransformersModel,
    retriever: Retriever,
    *,
    most: int,
    candidates: int,
    rule: LabelRule,
    seed: int,
) -> Shift | None:
    """Measure the probe under both prompts, on questions that it was not fitted on; None where there are none."""
    seen = confidence.probe.card.seen or Seen()
    old = seen.among([q.question_id for q in questions], [q.question for q in questions])
    fresh = [q for q, known in zip(questions, old.tolist(), strict=True) if not known and q.answers]
    if not fresh:
        return None
    return measure_shift(
        fresh[:most],
        confidence,
        source,
        rng=np.random.default_rng(seed),
        retriever=retriever,
        candidates=candidates,
        label=rule,
    )


def _report(summary: PreferenceSummary, shift: Shift | None, *, as_json: bool) -> None:
    if as_json:
        print_json({**summary.to_dict(), "shift": None if shift is None else shift.to_dict()})
        return
    if shift is not None:
        print_table(shift.table())
    dropped = ", ".join(f"{count} {reason}" for reason, count in summary.dropped.items()) or "none"
    left_out = ", ".join(f"{count} {reason}" for reason, count in summary.left_out.items()) or "none"
    pairs = f"{summary.positives} positives, {summary.negatives} negatives"
    lines = (
        f"{summary.path}: {summary.kept} of {summary.questions} questions, {pairs}",
        f"dropped questions: {dropped}",
        f"candidates: {summary.candidates} scored; left out: {left_out}",
        f"passes of this run: {summary.passes['qa']} of questions alone, {summary.passes['rag']} with a candidate",
        f"increases: {card_path(summary.path)}",
    )
    for line in lines:
        say(line)
