"""Options of commands that can run on a Ray cluster, shard by shard; the package `suffice-scale` runs them there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer import Option

from suffice.cli.console import print_text
from suffice.cli.output import Output
from suffice.cli.parameters import Setting, given_fields
from suffice.common.provided import provided
from suffice.errors import DataError
from suffice.recordings.shards import Shard

_ON = "running on a cluster (--on)"


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The cluster that runs the shards: its address, its workers, and the resources of each."""

    panel: ClassVar[str] = "Cluster"

    on: Annotated[
        str | None,
        Option(
            "--on",
            metavar="ray[://HOST:PORT]",
            help="Run on a Ray cluster (suffice-scale), shard by shard: 'ray' is that of RAY_ADDRESS, or a new one on this machine.",
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
    ) -> Any:
        """Run the current command on the cluster; return the outcomes of its shards and their total, or None without a cluster.

        Args:
            context: The command.
            out: The folder of the parts, or the output file beside which the parts are written.
            title: A description of the work, for the progress bar.
            shard: The value of `--shard`.
            quiet: True to show no progress bar.
            ends_whole: True to run the command once more at the end, without a shard, to join the files of the shards.
        """
        if not self._is_named():
            return None
        run = provided("scale.run_on_cluster", _ON)
        return run(self, context, out, title, shard=shard, quiet=quiet, ends_whole=ends_whole)

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
    def parts(self, jobs: int | None) -> Iterator[int | None]:
        """Let the cluster process a recording's parts; yield the number of parts processed at a time, or `jobs` without a cluster."""
        if not self._is_named():
            yield jobs
            return
        if jobs is not None or "shards" in given_fields(self):
            raise DataError(
                f"{'--jobs' if jobs is not None else 'shards'} does not go with --on here: the parts are those of the recording, "
                "and the setting workers says how many of them are read at a time"
            )
        with provided("scale.parts_on_cluster", _ON)(self) as n:
            yield n

    def _is_named(self) -> bool:
        """Return whether a cluster was named; raise if other cluster options were given without one."""
        given = list(given_fields(self).values())
        if self.on is None and given:
            raise DataError(f"{given[0]} is for a cluster, and there is none: give --on ray, too")
        return self.on is not None
