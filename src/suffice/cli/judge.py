"""`suffice judge drafts`: marks for the drafts of a recording, each distinct draft once, with the judge's noise beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import Progress

from suffice.cli import options
from suffice.cli.console import errors, number, print_json, print_table, say
from suffice.errors import DataError
from suffice.judges import ATTEMPTS, MARKS, Judged, JudgeModel, Panel, judge_recording, with_marks
from suffice.llm import ChatModel
from suffice.retrieval import load_questions
from suffice.rounds import Passage
from suffice.store import ResponseCache, read_recording, write_recording
from suffice.tables import Column, Table

__all__ = ["judge_command", "judging_model", "judging_progress", "known_passages", "parse_weights"]

Attempts = Annotated[
    int, typer.Option("--attempts", min=1, help="Most replies that are asked for, until one can be read.")
]
RetryUnreadable = Annotated[
    bool, typer.Option("--retry-unreadable", help="Ask again where no reply that is kept can be read.")
]
_MANY = 0.05

_COLUMNS = (
    Column("mark"),
    Column("mean", ".3f"),
    Column("rounds", "d"),
    Column("undefined", "d"),
    Column("equal", ".2f"),
    Column("difference", ".3f"),
    Column("SD", ".3f"),
)


def judge_command(
    recording: Annotated[Path, typer.Argument(help="The recording whose answers (drafts) are judged.")],
    model: Annotated[str, typer.Option("--model", help="The judge's name at the endpoint.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The recording with the marks, a parquet file.")],
    marks: Annotated[str, typer.Option("--marks", help=f"Comma-separated: {', '.join(MARKS)}.")] = ",".join(MARKS),
    weights: Annotated[
        str, typer.Option("--weights", help="Of the information score, as MARK=WEIGHT,...; default: equal.")
    ] = "",
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="The questions that were recorded: recordings hold ids of passages.")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option("--corpus", help="The corpus that was searched, instead of --dataset.")
    ] = None,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, help="Judge each draft of a sample this often, to measure noise.")
    ] = 1,
    sample: Annotated[int, typer.Option("--sample", min=1, help="Drafts in the sample.")] = 50,
    seed: Annotated[int, typer.Option("--seed", help="Draws the sample.")] = 0,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Calls in flight.")] = 8,
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
    """Run the same command again after a failure: replies that came are kept.

    Example: suffice judge drafts d.parquet -o j.parquet --model M --base-url URL
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
        names = [name.strip() for name in marks.split(",") if name.strip()]
        panel = Panel(asks, names, weights=parse_weights(weights))
        with judging_progress(f"judging {recording}", quiet=as_json) as tell:
            judged = asyncio.run(
                judge_recording(
                    source,
                    panel,
                    rng=np.random.default_rng(seed),
                    passages=passages,
                    repeats=repeat,
                    sample=sample,
                    concurrency=concurrency,
                    on_progress=tell,
                )
            )
    if not judged.failed:
        table, metadata = with_marks(source, judged, panel)
        write_recording(out, table, metadata)
    _report(judged, out, kept, as_json=as_json)
    if judged.failed:
        raise typer.Exit(1)


def judging_model(
    model: str, base_url: str | None, key_variable: str, *, max_tokens: int, timeout: float, extra_body: str
) -> ChatModel:
    """Return the language model that judges.

    Raises:
        DataError: The name is that of the embedded reader.
    """
    chat = options.build_model(
        model,
        base_url,
        key_variable=key_variable,
        prompt="answer_first",
        api="chat",
        max_tokens=max_tokens,
        logprobs=False,
        timeout=timeout,
        cache=None,
        extra_body=extra_body,
    )
    if not isinstance(chat, ChatModel):
        raise DataError(f"{model!r} reads spans and cannot judge: name a language model and its --base-url")
    return chat


def known_passages(dataset: str | None, corpus: Path | None) -> dict[str, Passage]:
    """Return the passages of a data set and of a corpus by id."""
    found: dict[str, Passage] = {}
    if dataset is not None:
        found |= {p.passage_id: p for question in load_questions(dataset) for p in question.passages}
    if corpus is not None:
        from suffice.retrieval.corpus import read_corpus

        found |= {p.passage_id: p for p in read_corpus(corpus)}
    return found


def parse_weights(text: str) -> Mapping[str, float] | None:
    """Return the value of `--weights`; None if it is not given.

    Raises:
        DataError: It is not of the form MARK=WEIGHT,...
    """
    if not text:
        return None
    found = {}
    for item in text.split(","):
        name, _, value = item.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise DataError(f"--weights is given as MARK=WEIGHT,..., not {item!r}") from None
    return found


@contextmanager
def judging_progress(title: str, *, quiet: bool) -> Iterator[Any]:
    """Show a bar on standard error, if it is a terminal."""
    if quiet or not errors.is_terminal:
        yield None
        return
    with Progress(console=errors, transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _table(judged: Judged) -> Table:
    rows, notes = [], []
    for part in judged.parts:
        noise = part.noise
        seen = (None, None, None) if noise is None else (noise.equal, noise.difference, noise.sd)
        rows.append((part.mark, part.mean, part.rounds, sum(part.notes.values()), *seen))
        notes += [f"{part.mark} is undefined in {count} rounds: {why}" for why, count in part.notes.items()]
    if judged.repeated:
        notes.append(
            f"{judged.repeated:,} requests took more than one reply, since it could not be read; all are paid for"
        )
    if judged.unreadable > _MANY:
        notes.append(
            f"WARNING: in {judged.unreadable:.1%} of the questions a mark is undefined because no reply could be read; what "
            "leaves these questions out selects by the judge's failures. Ask again with --retry-unreadable, or use "
            "another judge"
        )
    sampled = judged.parts[0].noise
    if sampled is None:
        notes.append("the judge's noise was not measured: --repeat 2 judges a sample again")
    else:
        notes.append(
            f"equal, difference, SD: {sampled.repeats} marks of one draft among each other, {sampled.drafts} drafts of "
            f"the sample; that cost {judged.repeats_cost.calls:,.0f} calls, {number(judged.repeats_cost.tokens, 0)} tokens"
        )
    notes.append("agreement of a judge with itself says nothing about whether it is right")
    return Table(title="marks of the drafts", columns=_COLUMNS, rows=tuple(rows), notes=tuple(notes))


def _report(judged: Judged, out: Path, kept: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "path": None if judged.failed else str(out),
                "cache": str(kept),
                "requests": judged.drafts,
                "asked": judged.asked,
                "repeated": judged.repeated,
                "unreadable": judged.unreadable,
                "failed": list(judged.failed),
                "marks": judged.metadata["marks"],
                "table": _table(judged).to_dict(),
            }
        )
        return
    if judged.failed:
        say(
            f"{len(judged.failed)} calls failed; {out} is not written, what was answered is kept in {kept}: run the same "
            f"command again. The first: {judged.failed[0]}"
        )
        return
    print_table(_table(judged))
    say(f"{out}: {judged.drafts} distinct requests; this run: {judged.asked} calls")
