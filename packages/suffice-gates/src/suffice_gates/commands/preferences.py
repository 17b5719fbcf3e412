"""`suffice reranker preferences`: preference data for rerankers, from each passage's effect on a model's confidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from suffice.cli import datasets, options
from suffice.cli.cluster import ClusterOptions
from suffice.cli.console import progress_bar
from suffice.cli.gating import note_fitted
from suffice.cli.local import LocalModel
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.common.files import quoted
from suffice.common.tables import counted
from suffice.loops.retrieval import AsyncRetriever, Question, Retriever, load_questions
from suffice.policy.seen import Seen
from suffice_gates.commands.confidence import AllowPrompt, open_confidence
from suffice_gates.models import TransformersModel
from suffice_gates.probes import LabelRule, ProbeConfidence
from suffice_gates.training.preference_file import PROMPT, card_path
from suffice_gates.training.preferences import PreferenceSummary, build_preferences, score_preferences
from suffice_gates.training.shift import Shift, measure_shift


def preferences_command(
    context: typer.Context,
    dataset: datasets.Dataset,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The preference file, JSON lines; a card is written beside it.")
    ],
    model: Annotated[str, typer.Option("--model", help="A folder or hub id of a causal language model.")],
    probe: Annotated[Path, typer.Option("--probe", help="Its probe, as `suffice gate train` writes it.")],
    local: LocalModel,
    search: datasets.Search,
    cluster: ClusterOptions,
    output: Output,
    allow_prompt: AllowPrompt = None,
    candidates: Annotated[
        int, Setting("reranker", "candidates", min=2, help="Candidate passages per question, the retriever's best.")
    ] = 8,
    k: Annotated[int, Setting("reranker", "k", min=1, help="Most positives, and most negatives, per question.")] = 5,
    line_prompt: Annotated[
        str, Setting("reranker", "line-prompt", help="The field `prompt` of every line, for rerankers that are LLMs.")
    ] = PROMPT,
    shift: Annotated[
        int,
        Setting(
            "reranker", "shift", min=0, help="Number of questions to measure the probe on under both prompts; 0: none."
        ),
    ] = 200,
    label_rule: Annotated[
        str, Setting("reranker", "label-rule", help="With shift: when an answer is right: em, contains or f1>=T.")
    ] = "contains",
    seed: Annotated[int, Setting("reranker", "seed", min=0, help="Seed of the passages of shift.")] = 0,
    limit: options.Limit = None,
    shard: datasets.ShardOption = None,
) -> None:
    """Score each passage by the confidence with it minus that without it. Run the same command again to resume.

    Example: suffice reranker preferences q.jsonl -o p.jsonl --model M --probe P
    """
    if cluster.run_whole(context, out, f"scoring {dataset}", shard=shard, output=output):
        return
    questions = load_questions(dataset, limit=limit)
    confidence, source = open_confidence(model, probe, local, allow=allow_prompt or ())
    retriever = search.retriever(local.device)
    note_fitted({"probe": confidence.probe.card.seen}, questions)
    rule = LabelRule.parse(label_rule)
    settings: dict[str, Any] = {"retriever": retriever, "candidates": candidates, "k": k, "prompt": line_prompt}
    if shard is not None:
        with progress_bar(f"scoring {dataset}, shard {shard}", quiet=output.as_json) as progress:
            scored = score_preferences(questions, confidence, out, shard, on_progress=progress, **settings)
        sentence = f"shard {shard}: {counted(scored, 'question')} scored in this run"
        then = "the same command without --shard, once all shards have ended"
        output.show({"path": None, "scored": scored}, Screen(sentences=[sentence], then=then))
        return
    probe_shift = None
    if shift and not out.exists():
        probe_shift = _shift(
            questions, confidence, source, retriever, most=shift, candidates=candidates, rule=rule, seed=seed
        )
    with progress_bar(f"scoring {dataset}", quiet=output.as_json) as progress:
        summary = build_preferences(
            questions,
            confidence,
            out,
            **settings,
            shift=None if probe_shift is None else probe_shift.to_dict(),
            on_progress=progress,
        )
    output.show({**summary.to_dict(), "shift": probe_shift}, _preferences_screen(summary, probe_shift))


def _shift(
    questions: list[Question],
    confidence: ProbeConfidence,
    source: TransformersModel,
    retriever: Retriever | AsyncRetriever,
    *,
    most: int,
    candidates: int,
    rule: LabelRule,
    seed: int,
) -> Shift | None:
    """Measure the probe on prompts without and with a passage; return None if it was fitted on all questions."""
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


def _preferences_screen(summary: PreferenceSummary, shift: Shift | None) -> Screen:
    dropped, left_out = (
        ", ".join(f"{count} {reason}" for reason, count in counts.items()) or "none"
        for counts in (summary.dropped, summary.left_out)
    )
    pairs = f"{summary.positives} positives, {summary.negatives} negatives"
    return Screen(
        sentences=[f"{summary.path}: {summary.kept} of {summary.questions} questions, {pairs}"],
        tables=[] if shift is None else [shift.table()],
        notes=[
            f"dropped questions: {dropped}",
            f"candidates: {summary.candidates} scored; left out: {left_out}",
            f"passes of this run: {summary.passes['qa']} of questions alone, {summary.passes['rag']} with a candidate",
        ],
        files={"increases": card_path(summary.path)},
        then=f"suffice reranker train {quoted(summary.path)} -o aligned",
    )
