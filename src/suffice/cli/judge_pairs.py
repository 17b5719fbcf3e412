"""`suffice judge pairs` and `suffice judge gold`: compare drafts with the last one, and with gold answers."""

from __future__ import annotations

import asyncio
import math
from typing import Annotated, Any

import typer

from suffice.cli import options
from suffice.cli.cluster import ClusterOptions
from suffice.cli.console import progress_bar
from suffice.cli.groups import RecordingPath
from suffice.cli.judge import Judging
from suffice.cli.local import DeviceName
from suffice.cli.models import build_embedder
from suffice.cli.output import Output, Screen
from suffice.cli.parameters import Setting
from suffice.common.files import quoted
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.loops.judges import (
    PREFERRED,
    REFERENCES,
    PairwiseJudge,
    PreferenceColumns,
    gold_score,
    prefer_to_last,
    reference_columns,
    with_columns,
)
from suffice.recordings import Recording, read_recording, write_recording

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
    shard: options.ShardOption = None,
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
