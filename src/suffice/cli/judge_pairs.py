"""`suffice judge pairs` and `suffice judge gold`: drafts against the last one, and against gold answers."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from suffice.cli import options
from suffice.cli.console import print_json, print_table, say
from suffice.cli.judge import Attempts, RetryUnreadable, judging_model, judging_progress, known_passages
from suffice.embedding import MiniLM, SentenceTransformersEmbedder
from suffice.errors import DataError
from suffice.judges import (
    ATTEMPTS,
    PREFERRED,
    REFERENCES,
    JudgeModel,
    PairwiseJudge,
    Preference,
    gold_score,
    prefer_to_last,
    reference_columns,
    with_columns,
)
from suffice.store import Recording, ResponseCache, read_recording, write_recording
from suffice.tables import Column, Table

__all__ = ["judge_gold_command", "judge_pairs_command"]

_VERDICTS = {
    "first": "the earlier draft, in both orders",
    "second": "the last draft, in both orders",
    "tie": "neither, in both orders",
    "order_dependent": "depends on the order",
    "undefined": "a reply could not be read",
    "refused": "the endpoint refused",
}


def judge_gold_command(
    recording: Annotated[Path, typer.Argument(help="The recording whose answers (drafts) are compared.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The recording with the figures, a parquet file.")],
    measures: Annotated[
        str, typer.Option("--measures", help=f"Comma-separated: {', '.join(REFERENCES)}.")
    ] = "token_f1,rouge_l",
    embedder: Annotated[
        str, typer.Option("--embedder", help="For embedding_similarity: 'minilm', or a sentence-transformers id.")
    ] = "minilm",
    score: Annotated[
        str | None,
        typer.Option(
            "--score", help="Take this measure as information_score, with its gain: an oracle, for it reads gold."
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """No language model is asked.

    Example: suffice judge gold drafts.parquet -o measured.parquet
    """
    source = read_recording(recording)
    names = [name.strip() for name in measures.split(",") if name.strip()]
    embeds: Any = None
    if "embedding_similarity" in names:
        embeds = (MiniLM() if embedder == "minilm" else SentenceTransformersEmbedder(embedder)).embed
    if score is not None and score not in names:
        raise DataError(f"--score {score!r} is not measured; --measures has: {', '.join(names)}")
    columns, metadata = reference_columns(source, names, embed=embeds), source.metadata
    if score is not None:
        marks, metadata = gold_score(source, columns[score])
        columns |= marks
    write_recording(out, with_columns(source.table, columns, signals={"information_gain"}), metadata)
    table = _by_round(source, columns)
    if as_json:
        print_json({"path": str(out), "table": table.to_dict()})
        return
    print_table(table)
    say(f"written to {out}")


def _by_round(source: Recording, columns: dict[str, list[float]]) -> Table:
    """Return means by round."""
    rounds = [int(r) for r in source.table.column("round").to_pylist()]
    rows = []
    for r in sorted(set(rounds)):
        here = [row for row, found in enumerate(rounds) if found == r]
        means = []
        for values in columns.values():
            known = [values[row] for row in here if not math.isnan(values[row])]
            means.append(math.fsum(known) / len(known) if known else math.nan)
        rows.append((r, len(here), *means))
    return Table(
        title="likeness to gold answers, mean by round",
        columns=(Column("round", "d"), Column("drafts", "d"), *(Column(name, ".3f") for name in columns)),
        rows=tuple(rows),
        notes=("later rounds may hold other questions: where trajectories end early, means by round do not compare",),
    )


def judge_pairs_command(
    recording: Annotated[Path, typer.Argument(help="The recording whose answers (drafts) are compared.")],
    model: Annotated[str, typer.Option("--model", help="The judge's name at the endpoint.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The recording with the verdicts, a parquet file.")],
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="The questions that were recorded: recordings hold ids of passages.")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option("--corpus", help="The corpus that was searched, instead of --dataset.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Pairs in flight.")] = 8,
    base_url: options.BaseUrl = None,
    api_key_env: options.KeyVariable = "OPENAI_API_KEY",
    max_tokens: options.MaxTokens = 2048,
    timeout: options.Timeout = 120.0,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Keeps what was paid for (sqlite); default: OUT.judged.sqlite.")
    ] = None,
    extra_body: options.ExtraBody = "{}",
    attempts: Attempts = ATTEMPTS,
    retry_unreadable: RetryUnreadable = False,
    as_json: options.AsJson = False,
) -> None:
    """A judge whose verdict depends on the order of two drafts prefers places, not drafts.

    Example: suffice judge pairs d.parquet -o j.parquet --model M --base-url URL
    """
    source = read_recording(recording)
    passages = known_passages(dataset, corpus)
    kept = out.with_name(f"{out.name}.judged.sqlite") if cache is None else cache
    kept.parent.mkdir(parents=True, exist_ok=True)
    chat = judging_model(model, base_url, api_key_env, max_tokens=max_tokens, timeout=timeout, extra_body=extra_body)
    with ResponseCache(kept) as replies:
        asks = JudgeModel(
            chat, cache=replies, max_tokens=max_tokens, attempts=attempts, retry_unreadable=retry_unreadable
        )
        judge = PairwiseJudge(asks)
        with judging_progress(f"comparing {recording}", quiet=as_json) as tell:
            found = asyncio.run(
                prefer_to_last(source, judge, passages=passages, concurrency=concurrency, on_progress=tell)
            )
    if not found.failed:
        judges = dict(source.metadata.get("judges") or {}) | {f"judge:{PREFERRED}": dict(found.metadata)}
        write_recording(out, with_columns(source.table, found.columns), {**source.metadata, "judges": judges})
    _report(found, out, kept, as_json=as_json)
    if found.failed:
        raise typer.Exit(1)


def _report(found: Preference, out: Path, kept: Path, *, as_json: bool) -> None:
    asked = sum(found.verdicts.values())
    table = Table(
        title=f"{found.pairs} distinct pairs: a draft and the last one of its trajectory",
        columns=(Column("better"), Column("pairs", "d"), Column("share", ".1%")),
        rows=tuple(
            (told, found.verdicts.get(name, 0), found.verdicts.get(name, 0) / asked if asked else math.nan)
            for name, told in _VERDICTS.items()
        ),
        notes=(
            f"column {PREFERRED}: 1 better than the last draft, 0.5 neither or dependent on the order, 0 worse",
            "a judge whose verdicts depend on the order prefers places, not drafts",
        ),
    )
    if as_json:
        print_json(
            {
                "path": None if found.failed else str(out),
                "cache": str(kept),
                "pairs": found.pairs,
                "verdicts": dict(found.verdicts),
                "failed": list(found.failed),
                "table": table.to_dict(),
            }
        )
        return
    if found.failed:
        say(
            f"{len(found.failed)} pairs failed; {out} is not written, what was answered is kept in {kept}: run the same "
            f"command again. The first: {found.failed[0]}"
        )
        return
    print_table(table)
    say(f"written to {out}")
