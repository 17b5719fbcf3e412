"""`suffice paper transfer`: compare the contexts that models prefer, before aligning a reranker with one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from suffice.cli.local import LocalModel
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.loops.retrieval import BUNDLED_QUESTIONS, load_questions
from suffice.policy.rounds import Floats
from suffice_gates.commands.confidence import AllowPrompt, open_confidence
from suffice_papers.cbdr.contexts import build_contexts
from suffice_papers.cbdr.transfer import read_contexts, transfer_check


def transfer_check_command(
    dataset: Annotated[
        str,
        typer.Argument(
            help=f"Questions with answers and paragraphs marked is_supporting: {', '.join(BUNDLED_QUESTIONS)}, or a file."
        ),
    ],
    model: Annotated[
        list[str], typer.Option("--model", help="A folder or hub id of a causal language model; several to compare.")
    ],
    probe: Annotated[list[Path], typer.Option("--probe", help="The probe of each model, in the same order.")],
    local: LocalModel,
    output: Output,
    allow_prompt: AllowPrompt = None,
    most: Annotated[
        int, Setting("papers", "sets", min=2, help="Questions with three contexts each (the paper: 100).")
    ] = 100,
    characters: Annotated[
        int, Setting("papers", "characters", min=1, help="Length of a context, whole sentences (the paper: 200).")
    ] = 200,
    seed: Annotated[
        int, Setting("statistics", "seed", min=0, help="Seed of irrelevant passages, resamples and signs.")
    ] = 0,
) -> None:
    """Compare the effect of contexts on each model's confidence.

    The contexts are on topic (A), with the answer (B) and irrelevant (C).

    Example: suffice paper transfer hotpotqa_tune --model M --probe P
    """
    if len(model) != len(probe):
        raise DataError(
            f"{len(model)} models and {len(probe)} probes: give one --probe for each --model, in their order"
        )
    if len(set(model)) != len(model):
        raise DataError(f"a model occurs twice among {model!r}: name each once")
    rng = np.random.default_rng(seed)
    sets, left_out = build_contexts(load_questions(dataset), rng=rng, characters=characters, most=most)
    read: dict[str, Floats] = {}
    for name, folder in zip(model, probe, strict=True):
        confidence, _ = open_confidence(name, folder, local, allow=allow_prompt or ())
        read[name] = read_contexts(sets, confidence)
        del confidence  # one model at a time: two large ones would not fit into memory
    report = transfer_check(read, rng=rng)
    tables = report.tables()
    if left_out:
        rows = tuple(sorted(left_out.items()))
        tables.append(Table(title="questions without a set", columns=(Column("reason"), Column("n", "d")), rows=rows))
    verdicts = "; ".join(f"{change.model} {change.verdict} {change.type}" for change in report.changes)
    then = f"suffice reranker preferences {dataset} --model {model[0]} --probe {probe[0]} -o preferences.jsonl"
    screen = Screen(sentences=[f"{verdicts}."], tables=tables, then=then)
    output.show({"left_out": left_out, **report.to_dict()}, screen)
