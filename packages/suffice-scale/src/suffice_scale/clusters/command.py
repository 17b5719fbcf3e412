"""Run the current command on a Ray cluster, shard by shard, or process the parts of a recording on a cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import typer

from suffice.cli.cluster import ClusterOptions
from suffice.cli.console import progress_bar, warn
from suffice.cli.groups import command_words
from suffice.cli.settings import DEFAULT_KEY
from suffice.cli.show import spent_so_far
from suffice.common.files import make_folder, write_file
from suffice.common.processes import pools_from
from suffice.common.provided import is_provided, provided
from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.recordings.shards import Shard, n_shards_at
from suffice_scale.clusters.connection import Cluster, RayPool
from suffice_scale.clusters.driver import Job, run_shards
from suffice_scale.clusters.total import Total
from suffice_scale.clusters.worker import Needs, ShardOutcome

_ENTRY = "suffice.cli.main:run"
_MARKER = ".cluster"
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]+@")
_ANY_NUMBER = re.compile(r"\d+")


def run_on_cluster(
    options: ClusterOptions,
    context: typer.Context,
    out: Path,
    title: str,
    *,
    shard: Shard | None,
    quiet: bool,
    ends_whole: bool,
) -> tuple[list[ShardOutcome], Total]:
    """Run the current command on the cluster; return the outcomes of its shards and the sum of their reports.

    `suffice.cli.cluster.ClusterOptions.run` describes the arguments.
    """
    if shard is not None:
        raise DataError("--on works on every shard and --shard on one of them: give one of the two")
    if context.params.get("batch_file") is not None or (context.params.get("batch") and not context.params["wait"]):
        raise DataError(
            "--batch-file and wait=false are for one process: give --shard i/n instead of --on, shard by shard"
        )
    if not ends_whole and (out.suffix in {".parquet", ".jsonl"} or out.is_file()):
        raise DataError(
            f"{str(out)!r} is the name of a file: with --on, give -o a folder, which holds a part of each shard"
        )
    own = tuple(field.name for field in fields(options))
    words, last_words = command_words(context, *own, "as_json", "details"), command_words(context, *own)
    for word in words:
        if _PASSWORD.search(word):
            raise DataError(
                "an address on this command line holds a password, and the command line goes to every node: give it by "
                "an environment variable that the nodes have"
            )
    cluster = _cluster(options)
    marker = out.with_name(f".{out.name}.cluster") if ends_whole else out / _MARKER
    with _marker_file(marker) as token, progress_bar(title, quiet=quiet) as move:
        job = Job(
            entry=_ENTRY,
            words=[*words, "--json"],
            last_words=last_words if ends_whole else None,
            needs=_needs(context, words, out, marker, token),
            n_shards=options.shards or n_shards_at(out),
            requests_per_minute=context.params.get("requests_per_minute"),
            tokens_per_minute=context.params.get("tokens_per_minute"),
        )
        outcomes, total = run_shards(
            cluster,
            job,
            on_note=lambda note: warn(f"note: {note}"),
            on_progress=lambda total: None if move is None else _moved(move, total),
        )
    for note in _notes_of(outcomes):
        warn(f"note: {note}")
    return outcomes, total


@contextmanager
def parts_on_cluster(options: ClusterOptions) -> Iterator[int]:
    """Let the cluster process a recording's parts within this block; yield the number of parts processed at once."""
    cluster = _cluster(options, sends_much=True)
    with cluster.connected() as ray:
        n = max(cluster.n_workers(ray), 2)  # one alone would be this process
        warn(f"note: {n} parts at a time, on a Ray cluster of {cluster.described(ray)}")
        with pools_from(lambda: RayPool(ray, cluster)):
            yield n


def _cluster(options: ClusterOptions, *, sends_much: bool = False) -> Cluster:
    return Cluster(
        on=str(options.on),
        workers=options.workers,
        cpus=options.cpus_per_worker,
        gpus=options.gpus_per_worker,
        sends_much=sends_much,
    )


@contextmanager
def _marker_file(marker: Path) -> Iterator[str]:
    """Write a file beside the parts, and yield the file's content.

    By this file, workers check that they see the same folder as the driver.
    """
    token = uuid4().hex
    make_folder(marker.parent)
    write_file(marker, token)
    try:
        yield token
    finally:
        marker.unlink(missing_ok=True)


def _needs(context: typer.Context, words: Sequence[str], out: Path, marker: Path, token: str) -> Needs:
    """Return the files, folders and keys that workers must be able to access."""
    changing = {str(out), str(context.params.get("cache"))}
    values = [word.partition("=")[2] if before == "--set" else word for before, word in pairwise(["", *words])]
    named = [word for word in dict.fromkeys(values) if word not in changing]
    keys = [str(value) for name, value in context.params.items() if name.endswith("api_key_env") and value is not None]
    if is_provided("retrieval.store_variables"):
        keys += [name for word in values for name in provided("retrieval.store_variables")(word)]
    return Needs(
        folder=str(Path.cwd()),
        files={word: Path(word).stat().st_size for word in named if _is_path(word) and Path(word).is_file()},
        folders=[word for word in named if _is_path(word) and Path(word).is_dir()],
        marker=str(marker),
        token=token,
        variables=sorted({name for name in (*keys, DEFAULT_KEY) if os.environ.get(name)}),
    )


def _is_path(word: str) -> bool:
    try:
        return Path(word).exists()
    except (OSError, ValueError):  # a text that no file system takes for a name
        return False


def _moved(move: Any, total: Total) -> None:
    progress = total.progress
    beside = spent_so_far(progress, total.usd)
    beside += f", {progress.failed} failed" if progress.failed else ""
    beside += f", {counted(total.lost, 'worker')} replaced" if total.lost else ""
    move(progress.done + progress.failed, progress.total, beside)


def _notes_of(outcomes: Sequence[ShardOutcome]) -> list[str]:
    """Return the workers' notes; notes that differ only in numbers appear once."""
    notes: dict[str, str] = {}
    for outcome in outcomes:
        for note in outcome.notes:
            notes.setdefault(_ANY_NUMBER.sub("", note), note)
    return list(notes.values())
