"""Options of commands that can run on a Ray cluster, shard by shard."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from uuid import uuid4

import typer
from typer import Option

from suffice.cli.console import print_text, progress_bar, warn
from suffice.cli.groups import command_words
from suffice.cli.output import Output
from suffice.cli.parameters import Setting, given_fields
from suffice.cli.settings import DEFAULT_KEY
from suffice.common.files import make_folder, write_file
from suffice.common.processes import pools_from
from suffice.common.provided import provided
from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.recordings.shards import Shard, n_shards_at

if TYPE_CHECKING:
    from suffice.loops.clusters.connection import Cluster
    from suffice.loops.clusters.total import Total
    from suffice.loops.clusters.worker import Needs, ShardOutcome

_ENTRY = "suffice.cli.main:run"
_MARKER = ".cluster"
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]+@")
_ANY_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The cluster that runs the shards: its address, its workers, and the resources of each."""

    panel: ClassVar[str] = "Cluster"

    on: Annotated[
        str | None,
        Option(
            "--on",
            metavar="ray[://HOST:PORT]",
            help="Run on a Ray cluster, shard by shard: 'ray' is that of RAY_ADDRESS, or a new one on this machine.",
        ),
    ] = None
    workers: Annotated[
        int | None, Setting("cluster", "workers", min=1, help="Processes that work at a time; default: as many as fit.")
    ] = None
    shards: Annotated[
        int | None,
        Setting(
            "cluster", "shards", min=1, help="Default: 4 for each worker; with GPUs 1, as each shard loads the model."
        ),
    ] = None
    cpus_per_worker: Annotated[
        float, Setting("cluster", "cpus-per-worker", min=0, help="Processors that a worker takes, a share allowed.")
    ] = 1.0
    gpus_per_worker: Annotated[
        float, Setting("cluster", "gpus-per-worker", min=0, help="GPUs that a worker takes, a share allowed.")
    ] = 0.0

    def run(
        self,
        context: typer.Context,
        out: Path,
        title: str,
        *,
        shard: Shard | None,
        quiet: bool,
        ends_whole: bool = False,
    ) -> tuple[list[ShardOutcome], Total] | None:
        """Run the current command on the cluster and return the outcomes of its shards; None without a cluster.

        Args:
            context: The command.
            out: The folder of the parts; or the output file, next to the parts.
            title: A description of the work, for the bar.
            shard: The value of `--shard`.
            quiet: Whether to show no bar.
            ends_whole: Whether the command, run without a shard at the end, joins the files of its shards.
        """
        if not self._is_named():
            return None
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
        own = tuple(field.name for field in fields(self))
        words, last_words = command_words(context, *own, "as_json", "details"), command_words(context, *own)
        for word in words:
            if _PASSWORD.search(word):
                raise DataError(
                    "an address on this command line holds a password, and the command line goes to every node: give it by "
                    "an environment variable that the nodes have"
                )
        cluster = self._cluster()
        marker = out.with_name(f".{out.name}.cluster") if ends_whole else out / _MARKER
        with _marker_file(marker) as token, progress_bar(title, quiet=quiet) as move:
            from suffice.loops.clusters.driver import Job, run_shards

            job = Job(
                entry=_ENTRY,
                words=[*words, "--json"],
                last_words=last_words if ends_whole else None,
                needs=_needs(context, words, out, marker, token),
                n_shards=self.shards or n_shards_at(out),
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

    def _is_named(self) -> bool:
        """Return whether a cluster was named; raise if other cluster options were given without one."""
        given = list(given_fields(self).values())
        if self.on is None and given:
            raise DataError(f"{given[0]} is for a cluster, and there is none: give --on ray, too")
        return self.on is not None

    @contextmanager
    def parts(self, jobs: int | None) -> Iterator[int | None]:
        """Let the cluster process a recording's parts; yield how many at a time, or `jobs` without a cluster."""
        if not self._is_named():
            yield jobs
            return
        if jobs is not None or "shards" in given_fields(self):
            raise DataError(
                f"{'--jobs' if jobs is not None else 'shards'} does not go with --on here: the parts are those of the recording, "
                "and the setting workers says how many of them are read at a time"
            )
        from suffice.loops.clusters.connection import RayPool

        cluster = self._cluster(sends_much=True)
        with cluster.connected() as ray:
            n = max(cluster.n_workers(ray), 2)  # one alone would be this process
            warn(f"note: {n} parts at a time, on a Ray cluster of {cluster.described(ray)}")
            with pools_from(lambda: RayPool(ray, cluster)):
                yield n

    def _cluster(self, *, sends_much: bool = False) -> Cluster:
        from suffice.loops.clusters.connection import Cluster

        return Cluster(
            on=str(self.on),
            workers=self.workers,
            cpus=self.cpus_per_worker,
            gpus=self.gpus_per_worker,
            sends_much=sends_much,
        )

    def run_whole(self, context: typer.Context, out: Path, title: str, *, shard: Shard | None, output: Output) -> bool:
        """Run the command on the cluster and print its final output; return False if no cluster was named."""
        run = self.run(context, out, title, shard=shard, quiet=output.as_json, ends_whole=True)
        if run is None:
            return False
        last = run[0][-1]
        print_text(last.text)
        if last.code:
            raise typer.Exit(last.code)
        return True


@contextmanager
def _marker_file(marker: Path) -> Iterator[str]:
    """Write a file beside the parts, so that workers can check that they see the same folder; yield its content."""
    token = uuid4().hex
    make_folder(marker.parent)
    write_file(marker, token)
    try:
        yield token
    finally:
        marker.unlink(missing_ok=True)


def _needs(context: typer.Context, words: Sequence[str], out: Path, marker: Path, token: str) -> Needs:
    """Return the files, folders and keys that workers must be able to access."""
    from suffice.loops.clusters.worker import Needs

    changing = {str(out), str(context.params.get("cache"))}
    values = [word.partition("=")[2] if before == "--set" else word for before, word in pairwise(["", *words])]
    named = [word for word in dict.fromkeys(values) if word not in changing]
    keys = [str(value) for name, value in context.params.items() if name.endswith("api_key_env") and value is not None]
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
    from suffice.cli.show import spent_so_far

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
