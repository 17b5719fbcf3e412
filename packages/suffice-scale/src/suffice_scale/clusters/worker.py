"""A worker, which checks that it shares the driver's files and runs the command line on shards."""

from __future__ import annotations

import gc
import io
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from suffice._version import __version__
from suffice.cli.console import ShardReport, Sink, open_sink
from suffice.common.files import is_url, place
from suffice.common.processes import keep_folder_out
from suffice.loops.models.limits import RequestLimits, sharing_limits

_HELD_S = 180.0
"""Seconds for which a lost process may still hold its shard's files: a network file system's lease takes 90 seconds to end."""

_BETWEEN_S = 1.0
_NOTE = "note: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The versions and files that every worker must share with the driver.

    Attributes:
        folder: The working directory, to which the other paths are relative.
        marker: A file that the driver wrote into the output folder.
        files: The size of each file named in the command, by path.
        variables: The names of environment variables with keys or addresses of stores; the values stay on each node.
    """

    version: str = __version__
    folder: str
    marker: str
    token: str
    files: Mapping[str, int] = field(default_factory=dict)
    folders: Sequence[str] = ()
    variables: Sequence[str] = ()

    def lacking(self) -> str | None:
        """Return a text that names a missing version, variable or file, with advice; None if nothing is missing."""
        if self.version != __version__:
            return f"it has Suffice {__version__} and the driver {self.version}: install the same version on every node"
        unset = [name for name in self.variables if not os.environ.get(name)]
        if unset:
            return (
                f"the environment variable {unset[0]!r} is set for the driver and not there: set it on every node before "
                "Ray starts; keys are never sent"
            )
        unseen = next(self._unseen(), None)
        if unseen is None:
            return None
        return (
            f"{unseen}; every node must see the same files: use a shared file system, or workers on this machine alone"
        )

    def _unseen(self) -> Iterator[str]:
        folder = Path(self.folder)
        if not folder.is_dir() and (self.files or self.folders or not is_url(self.marker)):
            yield f"it does not see the working directory {self.folder!r}"
        for path, size in self.files.items():
            file = folder / path
            if not file.is_file():
                yield f"it does not see the file {path!r}"
            elif file.stat().st_size != size:
                yield f"its file {path!r} has {file.stat().st_size} bytes, and the driver's has {size}"
        for path in self.folders:
            if not (folder / path).is_dir():
                yield f"it does not see the folder {path!r}"
        if not self._sees_marker():
            yield f"its folder {str(place(self.marker).parent)!r} is not that of the driver"

    def _sees_marker(self) -> bool:
        marker = place(self.marker) if is_url(self.marker) else Path(self.folder, self.marker)
        try:
            return marker.read_text("utf-8") == self.token
        except OSError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOutcome:
    """The outcome of a command on one shard: finished, or failed with an error.

    Attributes:
        data: The printed result as JSON; None if it is not JSON.
    """

    code: int
    text: str
    data: Any
    error: str | None
    notes: tuple[str, ...] = ()
    report: ShardReport | None = None


class _PaceOfAll:
    """The pace of requests that all workers share; see `suffice.loops.models.limits.Pace`."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def reserve(self, tokens: float = 0.0) -> float:
        import ray

        return float(ray.get(self._actor.reserve.remote(tokens)))


class Worker:
    """Runs a command line in this process; Ray turns it into an actor.

    Args:
        entry: The function that takes command-line arguments and exits, as ``module:function``.
        place: The worker's number, from 1, and the number of workers; limits on concurrent requests are shared among the
            workers.
        pace: The actor of a `suffice.loops.models.limits.EvenPace`, which times requests if there are rate limits.
        busy_s: Seconds to wait for another process that still holds a shard's files.
    """

    def __init__(
        self, entry: str, place: tuple[int, int] = (1, 1), pace: Any = None, *, busy_s: float = _HELD_S
    ) -> None:
        module, _, function = entry.partition(":")
        self._entry = getattr(import_module(module), function)
        self._place = place
        self._pace = None if pace is None else _PaceOfAll(pace)
        self._busy_s = busy_s
        self._sink: Sink | None = None

    def check(self, needs: Needs) -> str | None:
        """Return a text that names this machine and the result of `Needs.lacking`; None if nothing is missing."""
        lacking = needs.lacking()
        return None if lacking is None else f"a worker on {socket.gethostname()} cannot begin: {lacking}"

    def report(self) -> ShardReport | None:
        """Return the progress of the running command."""
        return None if self._sink is None else self._sink.report()

    def pid(self) -> int:
        """Return the id of this process."""
        return os.getpid()

    def run(self, words: Sequence[str], folder: str | None = None) -> ShardOutcome:
        """Run the command as soon as the shard's files are free, in the driver's `folder` if it is accessible."""
        if folder is not None and Path(folder).is_dir():
            os.chdir(folder)  # not changed back: only a `WorkerProcess` gets a folder, and its own may be gone
        deadline = time.monotonic() + self._busy_s
        while True:
            outcome, is_busy = self._run_once(list(words))
            gc.collect()  # frees the command's model before another one is loaded
            if not is_busy or time.monotonic() > deadline:
                return outcome
            time.sleep(_BETWEEN_S)

    def _part(self, limits: RequestLimits) -> RequestLimits:
        """Return this worker's share of the limits in the command."""
        return limits.share(*self._place, pace=self._pace)

    def _run_once(self, words: list[str]) -> tuple[ShardOutcome, bool]:
        out, err = io.StringIO(), io.StringIO()
        code = 0
        with open_sink() as sink, sharing_limits(self._part), redirect_stdout(out), redirect_stderr(err):
            self._sink = sink
            try:
                self._entry(words)
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        text = out.getvalue()
        said = err.getvalue().splitlines()
        is_silent = code != 0 and not text.strip()
        error = sink.error or ("\n".join(said) or f"it ended with code {code}" if is_silent else None)
        return ShardOutcome(
            code=code,
            text=text,
            data=json.loads(text) if text.startswith(("{", "[")) and not error else None,
            error=error,
            notes=tuple(line.removeprefix(_NOTE) for line in said if line.startswith(_NOTE)),
            report=sink.report(),
        ), sink.is_busy


class WorkerProcess(Worker):
    """A worker in a separate process; its child processes do not import modules from its working directory."""

    def __init__(self, entry: str, place: tuple[int, int] = (1, 1), pace: Any = None) -> None:
        keep_folder_out()
        super().__init__(entry, place, pace)
