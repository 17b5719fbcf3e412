"""`suffice demo tiny-model`: train a tiny Llama whose knowledge is known, and measure what its hidden states reveal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from suffice.cli.console import progress_bar, quiet_bars
from suffice.cli.output import Output, Screen, check_markdown
from suffice.cli.parameters import Setting, from_file
from suffice.common.files import quoted
from suffice.errors import DataError
from suffice_papers.cbdr.known_world import known_world, known_world_page, known_world_tables
from suffice_papers.cbdr.tiny import train_tiny
from suffice_papers.cbdr.tiny_reranker import write_tiny_reranker
from suffice_papers.cbdr.world import EXPOSURES


def tiny_model_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the model; created if missing.")],
    output: Output,
    seed: Annotated[int, Setting("papers", "seed", min=0, help="Seed of the world and of the training.")] = 0,
    threads: Annotated[int, Setting("papers", "threads", min=1, help="Processor threads.")] = 1,
    measure: Annotated[
        int,
        typer.Option("--measure", min=0, help="Number of seeds, from seed on, to train and measure."),
    ] = 0,
    markdown: Annotated[
        Path | None, Setting("papers", "markdown", help="With --measure: also write the tables to this Markdown file.")
    ] = None,
) -> None:
    """Train a tiny model whose knowledge is known.

    It learns an invented world, some facts of which it never sees; a model takes about a minute. OUT contains the model, its
    tokenizer, tune.jsonl and eval.jsonl (questions with passages), world.json (each fact and how often it was seen) and
    reranker, a small cross-encoder with random weights to align. With --measure each model is written to OUT/seed-N, without
    a reranker.

    Example: suffice demo tiny-model tiny
    """
    quiet_bars()
    if out.exists() and not out.is_dir():
        raise DataError(f"{str(out)!r} is a file; give a folder for the model")
    if measure:
        _measure(out, range(seed, seed + measure), threads, markdown, output)
        return
    if markdown is not None and not from_file("markdown"):
        raise typer.BadParameter("goes with --measure", param_hint="markdown")
    began = time.perf_counter()
    with progress_bar(f"seed {seed}", quiet=output.as_json) as move:
        world = train_tiny(out, seed, threads=threads, on_progress=move)
    seconds = time.perf_counter() - began
    reranker = write_tiny_reranker(out / "reranker", out, seed=seed)
    n = {split: sum(fact.split == split for fact in world.facts) for split in ("tune", "eval")}
    data = {
        "folder": str(out),
        "seed": seed,
        "seconds": seconds,
        "questions": n,
        "exposures": sorted(set(EXPOSURES)),
        "reranker": str(reranker),
    }
    sentence = (
        f"model written to {out} in {seconds:.0f} s: {len(world.entities)} entities, {n['tune']} questions in "
        f"tune.jsonl, {n['eval']} in eval.jsonl; an untrained cross-encoder to align lies in {reranker.name}/"
    )
    then = f"suffice record {out / 'tune.jsonl'} -o tune.parquet --round-zero --local --model {quoted(out)}"
    output.show(data, Screen(sentences=[sentence], then=then))


def _measure(out: Path, seeds: range, threads: int, markdown: Path | None, output: Output) -> None:
    """Train a model for each missing seed, measure the models of all seeds, and print or write the tables."""
    check_markdown(markdown)
    folders = [out / f"seed-{seed}" for seed in seeds]
    measurements = []
    for seed, folder in zip(seeds, folders, strict=True):
        if not (folder / "world.json").exists():
            with progress_bar(f"seed {seed}", quiet=output.as_json) as move:
                train_tiny(folder, seed, threads=threads, on_progress=move)
        measurements.append(known_world(folder))
    if markdown is not None:
        markdown.write_text(known_world_page(measurements), encoding="utf-8")
    known, areas, increases = known_world_tables(measurements)
    best = [max(item.layers) for item in measurements]
    reached = [item.layers[layer].value for item, layer in zip(measurements, best, strict=True)]
    sentence = (
        f"A probe of the last layer's states separates known from unknown facts with an area under the ROC curve of "
        f"{min(reached):.2f} to {max(reached):.2f}, over {len(measurements)} seeds."
    )
    then = f"suffice gate states {folders[0]}/tune.jsonl -o tune.states --model {folders[0]}"
    screen = Screen(sentences=[sentence], tables=[areas, known, increases], files={"tables": markdown}, then=then)
    output.show([item.to_dict() for item in measurements], screen)
