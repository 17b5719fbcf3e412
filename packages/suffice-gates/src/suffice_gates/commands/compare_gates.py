"""`suffice gate compare`: gates side by side, with quality, retrieval rate, knowledge and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from suffice.cli import options
from suffice.cli.console import warn
from suffice.cli.local import LocalRun
from suffice.cli.output import Output, Screen, check_markdown
from suffice.cli.parameters import Setting
from suffice.common.provided import provided
from suffice.common.tables import render
from suffice.evaluation.replay.outcomes import choice_note
from suffice.loops.models import PROMPTS
from suffice.loops.models.prompts import prompt as built_in_prompt
from suffice.recordings import Recording, is_recording, read_recording
from suffice_gates.gates import (
    ANSWERED_FIELDS,
    BUNDLED_ANSWERS,
    GateComparison,
    GateEvaluation,
    ScoredGate,
    answered_recording,
    column_gate,
    compare_gates,
    comparison_table,
    held_out_gates,
    knowledge_table,
    load_answered,
    question_gates,
    questions_of,
)
from suffice_gates.models import TransformersModel

GATE_METRICS = ("contains", "em", "f1")
"""Metrics of the comparison for answers with references."""

_GATE_DETAILS = {"EM", "F1", "p (Holm)", "calls", "to decide, ms", "labels", "fit, s"}
_READ_THE_ANSWER = (
    "entropy, mean",
    "entropy, max",
    "sequence log-probability",
    "flare",
    "dragin",
    "ctrla, confidence",
    "probing-rag",
)


def compare_gates_command(
    recordings: Annotated[
        list[str],
        typer.Argument(
            metavar="RECORDING...",
            help=f"Recordings with round 0, JSON lines with {', '.join(ANSWERED_FIELDS)}, or one of: {', '.join(BUNDLED_ANSWERS)}.",
        ),
    ],
    resampling: options.ResamplingOptions,
    local: LocalRun,
    output: Output,
    tune: Annotated[
        str | None,
        typer.Option("--tune", help="The same for tune questions, on which gates are fitted; default: cross-fitted."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", help="A recorded signal as a gate; NAME:low if low values answer directly."),
    ] = None,
    questions: Annotated[
        bool, typer.Option("--questions/--no-questions", help="Fit the gates that read the question alone.")
    ] = True,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Local model (folder or hub id) of the closed-book answers; adds gates of its own passes; needs torch.",
        ),
    ] = None,
    prompt: Annotated[
        str, typer.Option("--prompt", help=f"With --model, one of: {', '.join(PROMPTS)}.")
    ] = "answer_first",
    max_tokens: Annotated[
        int, Setting("endpoint", "max-tokens", min=1, help="With --model: most tokens of a reply.")
    ] = 64,
    samples: Annotated[int, Setting("gate", "samples", min=2, help="With --model: sampled answers per question.")] = 10,
    rate: Annotated[
        float | None,
        Setting("gate", "rate", min=0.0, max=1.0, help="Choose thresholds by this retrieval rate instead of quality."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="Columns in [0, 1]; the first is the quality. May be repeated.")
    ] = None,
    margin: Annotated[
        float, Setting("statistics", "margin", help="Margin of non-inferiority to always retrieving.")
    ] = 0.02,
    markdown: options.Markdown = None,
) -> None:
    """Compare gates, which answer some questions without retrieval.

    In JSON lines, answers lists the gold answers; no_retrieval and one_retrieval are the model's own, or null.

    Example: suffice gate compare 2wiki_llama31_tune
    """
    _require_gates(questions or bool(column) or model is not None, model, tune, markdown)
    if model is None:
        local.refuse_unused("give --model, or leave it out")
    how: dict[str, Any] = {"resampling": resampling.value, "margin": margin}
    answers = {source: read_answers(source) for source in recordings}
    names = tuple(metric or (("em",) if any(map(choice_note, answers.values())) else GATE_METRICS))
    tune_evaluation = None if tune is None else GateEvaluation(read_answers(tune), metrics=names, **how)
    embedder = provided("reader.MiniLM")() if questions else None
    comparisons: dict[str, GateComparison] = {}
    for source in recordings:
        evaluation = GateEvaluation(answers[source], metrics=names, **how)
        gates: list[ScoredGate] = [column_gate(name, evaluation, tune_evaluation, rate=rate) for name in column or ()]
        if embedder is not None and tune_evaluation is not None:
            gates += question_gates(tune_evaluation, evaluation, embedder.embed)
        elif embedder is not None:
            gates += held_out_gates(evaluation, embedder.embed, rate=rate)
        if model is not None and tune_evaluation is not None:
            opened = local.open(model, built_in_prompt(prompt), max_tokens=max_tokens, layers=("middle", "last"))
            gates += _of_the_model(opened, tune_evaluation, evaluation, n=samples, seed=resampling.seed)
        comparisons[source] = compare_gates(evaluation, gates, tune_evaluation, rate=rate)
    if markdown is not None:
        pages = (comparison_page(comparison, name) for name, comparison in comparisons.items())
        markdown.write_text("\n".join(pages), encoding="utf-8")
    output.show(comparisons, _screen_of(comparisons, markdown))


def _screen_of(comparisons: Mapping[str, GateComparison], markdown: Path | None) -> Screen:
    """Return the comparisons of all recordings on one screen."""
    screens = [comparison_screen(comparison, name) for name, comparison in comparisons.items()]
    return Screen(
        sentences=[sentence for part in screens for sentence in part.sentences],
        tables=[table for part in screens for table in part.tables],
        notes=[note for part in screens for note in part.notes],
        aside=_GATE_DETAILS,
        files={"tables": markdown},
        then="suffice gate states QUESTIONS -o tune.states --encoder minilm",
    )


def _require_gates(any_gate: bool, model: str | None, tune: str | None, markdown: Path | None) -> None:
    """Raise if options contradict each other, before anything is computed."""
    if not any_gate:
        raise typer.BadParameter("name at least one --column, or leave --questions on", param_hint="--no-questions")
    if model is not None and tune is None:
        raise typer.BadParameter(
            "the thresholds of its gates are chosen on tune questions: give --tune", param_hint="--model"
        )
    check_markdown(markdown)


def _of_the_model(
    local_model: TransformersModel, tune: GateEvaluation, evaluation: GateEvaluation, *, n: int, seed: int
) -> list[ScoredGate]:
    """Return the gates whose scores need passes of the local model: scores from entropies, samples or states."""
    from suffice_gates.training.baselines import model_gates

    tune_texts, texts = questions_of(tune.recording), questions_of(evaluation.recording)
    known = tune.answers.right[0]
    if len(set(known.tolist())) == 1:
        every = "right" if known.all() else "wrong"
        warn(
            f"note: all closed-book answers of the tune questions are {every}: probing-rag, which learns from both, is left out"
        )
    gates = model_gates(local_model, tune_texts, texts, seed=seed, n_samples=n, known=known)
    return [_answering(gate) if gate.name in _READ_THE_ANSWER else gate for gate in gates]


def _answering(gate: ScoredGate) -> ScoredGate:
    """Remove the closed-book answer from a gate's price, since replay charges for it already."""
    return replace(gate, component="generator", price=replace(gate.price, calls=gate.price.calls - 1))


def read_answers(source: str | Path) -> Recording:
    """Read a recording with round 0, or build one from questions that were answered without and with retrieval."""
    return read_recording(source) if is_recording(source) else answered_recording(load_answered(source))


def comparison_screen(comparison: GateComparison, name: str = "") -> Screen:
    """Return the headline, a sentence for each gate, and the tables."""
    title = (
        f"Gates on {name or 'these questions'}: {comparison.n} questions (data {comparison.data_hash}); "
        f"{comparison.resampling.text}"
    )
    return Screen(
        sentences=[f"{comparison.headline}.", *_about_gates(comparison)],
        tables=[comparison_table(comparison, title), knowledge_table(comparison)],
        notes=comparison.notes,
        aside=_GATE_DETAILS,
    )


def _about_gates(comparison: GateComparison) -> list[str]:
    return [f"- {row.point.headline(comparison.metrics[0])}" for row in comparison.rows]


def comparison_page(comparison: GateComparison, name: str) -> str:
    """Return the tables and sentences of a comparison as Markdown."""
    screen = comparison_screen(comparison, name)
    first, *others = (*screen.sentences, *(f"note: {note}" for note in screen.notes))
    return f"{render(screen.tables, 'md')}\n{first}\n\n" + "".join(f"{line}\n" for line in others)
