"""`suffice judge`: mark each distinct draft of a recording once, or compare drafts with the last draft or with gold answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import typer
from typer import Argument, Exit, Option

from suffice.cli import datasets, models, options
from suffice.cli.cluster import ClusterOptions
from suffice.cli.console import number, progress_bar
from suffice.cli.groups import RecordingPath
from suffice.cli.local import DeviceName
from suffice.cli.models import build_embedder
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting, from_file
from suffice.common.files import quoted
from suffice.common.provided import provided
from suffice.common.tables import Column, Table, counted
from suffice.errors import DataError
from suffice.loops.judges import (
    ATTEMPTS,
    MARKS,
    PREFERRED,
    REFERENCES,
    VERDICTS,
    JudgeModel,
    PairwiseJudge,
    Panel,
    PreferenceColumns,
    RecordingMarks,
    gold_score,
    judge_recording,
    prefer_to_last,
    reference_columns,
    with_columns,
    with_marks,
)
from suffice.loops.models import PROMPTS
from suffice.loops.retrieval import load_questions
from suffice.policy.rounds import Passage
from suffice.recordings import Recording, ResponseCache, read_recording, write_recording
from suffice.recordings.shards import Shard, shard_files_beside

_MANY_UNREADABLE = 0.05

_COLUMNS = (
    Column("mark"),
    Column("mean", ".3f"),
    Column("rounds", "d"),
    Column("undefined", "d"),
    Column("equal", ".2f"),
    Column("difference", ".3f"),
    Column("SD", ".3f"),
)


@dataclass(frozen=True, kw_only=True)
class Judging(models.Endpoint):
    """Options of a judge of recorded drafts: its model, the passages that it reads, and the cache of its replies."""

    panel: ClassVar[str] = "Judge"

    model: Annotated[str, Option("--model", help="The judge's name at the endpoint.")]
    out: Annotated[RecordingPath, Option("--out", "-o", help="The recording with the judge's columns, a parquet file.")]
    dataset: Annotated[
        str | None, Option("--dataset", help="The questions that were recorded: recordings hold ids of passages.")
    ] = None
    corpus: Annotated[
        str | None,
        Option("--corpus", help="The corpus that was searched, or the address of a store, instead of --dataset."),
    ] = None
    concurrency: Annotated[int, Setting("record", "concurrency", min=1, help="Calls in flight.")] = 8
    max_tokens: Annotated[int, Setting("endpoint", "max-tokens", min=1, help="Most tokens per reply.")] = 2048
    cache: Annotated[
        Path | None, Setting("endpoint", "cache", help="Keeps the paid replies (sqlite); default: OUT.judged.sqlite.")
    ] = None
    attempts: Annotated[
        int, Setting("drafts", "attempts", min=1, help="The most attempts to get a readable reply.")
    ] = ATTEMPTS
    retry_unreadable: Annotated[
        bool, Setting("drafts", "retry-unreadable", help="Ask again if all kept replies are unreadable.")
    ] = False

    @property
    def kept(self) -> Path:
        """The file in which paid replies are stored."""
        return self.out.with_name(f"{self.out.name}.judged.sqlite") if self.cache is None else self.cache

    @contextmanager
    def asked(self, shard: Shard | None = None) -> Iterator[JudgeModel]:
        """Yield the judge, with the cache file of its replies.

        Each shard has its own file.  A command without a shard has one file, into which the replies of all shards are copied.
        """
        if self.model == "span-reader" and self.base_url is None:
            raise DataError(f"{self.model!r} reads spans and cannot judge: name a language model and its --base-url")
        prompt = PROMPTS["answer_first"]
        chat = self.chat(cache=None, prompt=prompt, api="chat", max_tokens=self.max_tokens, top_logprobs=None)
        if shard is not None and self.cache is not None and not from_file("cache"):
            raise DataError(
                "the setting cache is one file, and each shard keeps its replies in its own: leave it out with --shard"
            )
        kept = self.kept if shard is None else shard.beside(self.out, ".sqlite")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with ResponseCache(kept) as replies:
            for part in shard_files_beside(self.out, ".sqlite") if shard is None else ():
                replies.take(part)
            yield JudgeModel(
                chat,
                cache=replies,
                max_tokens=self.max_tokens,
                attempts=self.attempts,
                retry_unreadable=self.retry_unreadable,
            )

    def remove_parts(self) -> None:
        """Remove the cache files of shards; their replies are in the common file."""
        for part in shard_files_beside(self.out, ".sqlite"):
            part.unlink(missing_ok=True)

    def show_shard(self, output: Output, shard: Shard, asked: int, what: str, failed: Sequence[str]) -> None:
        """Print the number of calls or pairs of a shard; exit with 1 if some failed."""
        kept = shard.beside(self.out, ".sqlite")
        sentence = f"shard {shard}: {counted(asked, what)} in this run, kept in {kept}"
        then = "the same command without --shard, once all shards have ended"
        if failed:
            sentence = f"shard {shard}: {counted(len(failed), what)} failed; the first: {failed[0]}"
            then = "the same command again: what was answered is kept"
        data = {"path": None, "cache": str(kept), "asked": asked, "failed": list(failed)}
        output.show(data, Screen(sentences=[sentence], then=then))
        if failed:
            raise Exit(1)

    def passages(self, source: Recording) -> dict[str, Passage]:
        """Return the passages of the data set and the corpus by id; of a store, return only passages that the recording names."""
        known: dict[str, Passage] = {}
        if self.dataset is not None:
            known |= {p.passage_id: p for question in load_questions(self.dataset) for p in question.passages}
        if self.corpus is not None and provided("retrieval.is_store_address")(self.corpus):
            ids = source.table.column("passage_ids").to_pylist() if "passage_ids" in source.table.column_names else []
            known |= provided("retrieval.open_store")(self.corpus).passages(
                name for names in ids for name in names or ()
            )
        elif self.corpus is not None:
            known |= {p.passage_id: p for p in provided("retrieval.read_corpus")(self.corpus)}
        return known

    def show(
        self, output: Output, failed: Sequence[str], what: str, data: Mapping[str, Any], table: Table, sentence: str
    ) -> None:
        """Print the judge's results; if calls failed, print advice instead, and exit with 1."""
        if failed:
            screen = Screen(
                sentences=[
                    (
                        f"{len(failed)} {what} failed; {self.out} is not written, what was answered is kept in {self.kept}: run "
                        f"the same command again. The first: {failed[0]}"
                    )
                ]
            )
        else:
            then = options.replay_step(self.out, read_recording(self.out))
            screen = Screen(sentences=[sentence], tables=[table], then=then)
        path = None if failed else str(self.out)
        output.show({"path": path, "cache": str(self.kept), **data, "table": table.to_dict()}, screen)
        if failed:
            raise Exit(1)


def judge_command(
    context: typer.Context,
    recording: Annotated[RecordingPath, Argument(help="The recording whose answers (drafts) are judged.")],
    judging: Judging,
    cluster: ClusterOptions,
    output: Output,
    marks: Annotated[
        str, Setting("drafts", "marks", help=f"Comma-separated: {', '.join(MARKS)}; or {', '.join(VERDICTS)} alone.")
    ] = ",".join(MARKS),
    weights: options.MarkWeights = "",
    repeat: Annotated[
        int, Setting("drafts", "repeat", min=1, help="Judge each draft of a sample this often, to measure noise.")
    ] = 1,
    sample: Annotated[int, Setting("drafts", "sample", min=1, help="Drafts in the sample.")] = 50,
    seed: Annotated[int, Setting("statistics", "seed", help="Draws the sample.")] = 0,
    shard: datasets.ShardOption = None,
) -> None:
    """Run the same command again after a failure: replies that came are kept.

    Example: suffice judge drafts d.parquet -o j.parquet --model M --base-url URL
    """
    if cluster.run_whole(context, judging.out, f"judging {recording}", shard=shard, output=output):
        return
    source = read_recording(recording)
    passages = judging.passages(source)
    with judging.asked(shard) as asks, progress_bar(f"judging {recording}", quiet=output.as_json) as progress:
        panel = Panel(asks, options.split_names(marks), weights=parse_weights(weights))
        result = asyncio.run(
            judge_recording(
                source,
                panel,
                rng=np.random.default_rng(seed),
                passages=passages,
                repeats=repeat,
                sample=sample,
                concurrency=judging.concurrency,
                on_progress=progress,
                shard=shard,
            )
        )
    if shard is not None:
        judging.show_shard(output, shard, result.requests_sent, "call", result.failed)
        return
    if not result.failed:
        table, metadata = with_marks(source, result, panel)
        write_recording(judging.out, table, metadata)
        judging.remove_parts()
    judging.show(
        output,
        result.failed,
        "calls",
        {
            "requests": result.drafts,
            "asked": result.requests_sent,
            "repeated": result.repeated,
            "unreadable": result.unreadable,
            "failed": list(result.failed),
            "marks": result.metadata["marks"],
        },
        _marks_table(result),
        f"{judging.out}: {result.drafts} distinct requests; this run: {result.requests_sent} calls",
    )


def parse_weights(text: str) -> Mapping[str, float] | None:
    """Parse the setting `weights`; None if it is not given."""
    if not text:
        return None
    weights = {}
    for item in text.split(","):
        name, _, value = item.partition("=")
        try:
            weights[name.strip()] = float(value)
        except ValueError:
            raise DataError(f"weights is given as MARK=WEIGHT,..., not {item!r}") from None
    return weights


def _marks_table(judged: RecordingMarks) -> Table:
    rows, notes = [], []
    for part in judged.parts:
        noise = part.noise
        spread = (None, None, None) if noise is None else (noise.equal, noise.difference, noise.sd)
        rows.append((part.mark, part.mean, part.rounds, sum(part.notes.values()), *spread))
        notes += [f"{part.mark} is undefined in {count} rounds: {why}" for why, count in part.notes.items()]
    if judged.repeated:
        notes.append(
            f"{judged.repeated:,} requests took more than one reply, since it could not be read; all are paid for"
        )
    if judged.unreadable > _MANY_UNREADABLE:
        notes.append(
            f"WARNING: in {judged.unreadable:.1%} of the questions a mark is undefined because no reply could be read; what "
            "leaves these questions out selects by the judge's failures. Ask again with --set retry-unreadable=true, or use "
            "another judge"
        )
    sampled = judged.parts[0].noise
    if sampled is None:
        notes.append("the judge's noise was not measured: --set repeat=2 judges a sample again")
    else:
        notes.append(
            f"equal, difference, SD: {sampled.repeats} marks of one draft among each other, {sampled.drafts} drafts of "
            f"the sample; that cost {judged.repeats_cost.calls:,.0f} calls, {number(judged.repeats_cost.tokens, 0)} tokens"
        )
    notes.append("agreement of a judge with itself says nothing about whether it is right")
    return Table(title="marks of the drafts", columns=_COLUMNS, rows=tuple(rows), notes=tuple(notes))


_VERDICTS = {
    "first": "the earlier draft, in both orders",
    "second": "the last draft, in both orders",
    "tie": "neither, in both orders",
    "order_dependent": "depends on the order",
    "undefined": "a reply could not be read",
    "refused": "the endpoint refused",
}


def judge_gold_command(
    recording: Annotated[RecordingPath, typer.Argument(help="The recording whose answers (drafts) are compared.")],
    out: Annotated[RecordingPath, typer.Option("--out", "-o", help="The recording with the figures, a parquet file.")],
    output: Output,
    measures: Annotated[
        str, Setting("drafts", "measures", help=f"Comma-separated: {', '.join(REFERENCES)}.")
    ] = "token_f1,rouge_l",
    embedder: Annotated[
        str, Setting("drafts", "embedder", help="For embedding_similarity: 'minilm', or a sentence-transformers id.")
    ] = "minilm",
    device: DeviceName = None,
    score: Annotated[
        str | None,
        Setting(
            "drafts",
            "score",
            help="Take this measure as information_score, with its gain: an oracle, for it reads gold.",
        ),
    ] = None,
) -> None:
    """No language model is asked.

    Example: suffice judge gold drafts.parquet -o measured.parquet
    """
    source = read_recording(recording)
    names = options.split_names(measures)
    embeds: Any = None
    if "embedding_similarity" in names:
        used = build_embedder(embedder, device)
        if used is None:
            raise DataError("embedding_similarity needs an embedder, but the setting embedder is none: name one")
        embeds = used.embed
    if score is not None and score not in names:
        raise DataError(f"score {score!r} is not measured; measures has: {', '.join(names)}")
    columns, metadata = reference_columns(source, names, embed=embeds), source.metadata
    if score is not None:
        marks, metadata = gold_score(source, columns[score])
        columns |= marks
    write_recording(out, with_columns(source.table, columns, signals={"information_gain"}), metadata)
    table = _reference_table(source, columns)
    screen = Screen(tables=[table], files={"recording": out}, then=f"suffice replay {quoted(out)} --metric {names[0]}")
    output.show({"path": str(out), "table": table.to_dict()}, screen)


def _reference_table(source: Recording, columns: dict[str, list[float]]) -> Table:
    rounds = [int(r) for r in source.table.column("round").to_pylist()]
    rows = []
    for r in sorted(set(rounds)):
        here = [row for row, number in enumerate(rounds) if number == r]
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
    context: typer.Context,
    recording: Annotated[RecordingPath, typer.Argument(help="The recording whose answers (drafts) are compared.")],
    judging: Judging,
    cluster: ClusterOptions,
    output: Output,
    shard: datasets.ShardOption = None,
) -> None:
    """A judge whose verdict depends on the order of two drafts prefers places, not drafts.

    Example: suffice judge pairs d.parquet -o j.parquet --model M --base-url URL
    """
    if cluster.run_whole(context, judging.out, f"comparing {recording}", shard=shard, output=output):
        return
    source = read_recording(recording)
    passages = judging.passages(source)
    with judging.asked(shard) as asks, progress_bar(f"comparing {recording}", quiet=output.as_json) as progress:
        preference = asyncio.run(
            prefer_to_last(
                source,
                PairwiseJudge(asks),
                passages=passages,
                concurrency=judging.concurrency,
                on_progress=progress,
                shard=shard,
            )
        )
    if shard is not None:
        judging.show_shard(output, shard, preference.pairs, "pair", preference.failed)
        return
    if not preference.failed:
        judges = dict(source.metadata.get("judges") or {}) | {f"judge:{PREFERRED}": dict(preference.metadata)}
        table = with_columns(source.table, preference.columns)
        write_recording(judging.out, table, {**source.metadata, "judges": judges})
        judging.remove_parts()
    judging.show(
        output,
        preference.failed,
        "pairs",
        {"pairs": preference.pairs, "verdicts": dict(preference.verdicts), "failed": list(preference.failed)},
        _verdict_table(preference),
        f"{judging.out}: {preference.pairs} distinct pairs",
    )


def _verdict_table(preference: PreferenceColumns) -> Table:
    verdicts, total = preference.verdicts, sum(preference.verdicts.values())
    return Table(
        title=f"{preference.pairs} distinct pairs: a draft and the last one of its trajectory",
        columns=(Column("better"), Column("pairs", "d"), Column("share", ".1%")),
        rows=tuple(
            (meaning, verdicts.get(name, 0), verdicts.get(name, 0) / total if total else math.nan)
            for name, meaning in _VERDICTS.items()
        ),
        notes=(
            f"column {PREFERRED}: 1 better than the last draft, 0.5 neither or dependent on the order, 0 worse",
            "a judge whose verdicts depend on the order prefers places, not drafts",
        ),
    )
