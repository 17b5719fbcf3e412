"""Connect to a running Ray cluster, or start one on this machine for the duration of a command."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from suffice.common.processes import keep_folder_out
from suffice.common.tables import counted
from suffice.errors import DataError, MissingExtraError, WorkerDiedError

_HERE = "ray"
_REMOTE = "ray://"
_RUNNING = "ray://auto"
_ADDRESS = "RAY_ADDRESS"

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no usage statistics are sent
    "RAY_AUTH_MODE": "token",  # other users of this machine cannot use its cluster
    "RAY_raylet_start_wait_time_s": "300",  # on a loaded machine the defaults fail
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Environment variables of a cluster that is started here; variables that are already set take precedence."""

_OBJECTS_BYTES = 80_000_000  # the minimum of Ray, enough for command-line arguments and counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster on which workers run, and the resources of each worker.

    Attributes:
        on: The cluster.  ``ray`` is the cluster in the variable RAY_ADDRESS or, if this is unset, a new cluster on this
            machine; ``ray://auto`` is the cluster that runs on this machine; ``ray://HOST:PORT`` is the cluster behind a
            client server of Ray.
        workers: Number of workers; None = as many as fit on the cluster.
        cpus: Processors of each worker; fractions are allowed.
        gpus: GPUs of each worker; fractions are allowed.
        sends_much: Whether large data, and not only arguments and counts, is sent through the cluster's shared memory.
    """

    on: str = _HERE
    workers: int | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    sends_much: bool = False

    def __post_init__(self) -> None:
        if self.on != _HERE and (not self.on.startswith(_REMOTE) or self.on == _REMOTE):
            raise DataError(f"{self.on!r} is not a cluster; allowed: {_HERE}, {_RUNNING}, or {_REMOTE}HOST:PORT")

    @property
    def is_started_here(self) -> bool:
        """True if a new cluster is started on this machine."""
        return self.on == _HERE and not os.environ.get(_ADDRESS)

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """Yield the connected Ray module; an existing connection of this process is kept."""
        if self.is_started_here:
            for name, value in _ENVIRONMENT.items():
                os.environ.setdefault(name, value)
        try:
            import ray
        except ImportError:
            raise MissingExtraError("a Ray cluster", "ray", "suffice-scale") from None
        if ray.is_initialized():
            yield ray
            return
        # Ray lets workers import from the folder in which it is initialised, before anything that is installed.
        with warnings.catch_warnings(), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
            warnings.simplefilter("ignore")  # about Ray's own settings
            try:
                with chdir(empty):
                    ray.init(**self._settings(), log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
                raise DataError(
                    f"no Ray cluster answers at {self.on!r}: {first_line(error)}. Start one with `ray start --head`, or give "
                    f"--on {_HERE} alone for one on this machine"
                ) from None
            try:
                yield ray
            finally:
                ray.shutdown()

    def _settings(self) -> Mapping[str, Any]:
        if not self.is_started_here:
            address = os.environ.get(_ADDRESS) if self.on == _HERE else self.on
            return {"address": "auto" if address == _RUNNING else address}
        wanted = (self.workers or 0) * self.cpus
        return {
            "address": "local",
            "num_cpus": max(os.cpu_count() or 1, round(wanted + 0.5)),
            "include_dashboard": False,
            **({} if self.sends_much else {"object_store_memory": _OBJECTS_BYTES}),
            "_node_ip_address": "127.0.0.1",
        }

    def n_workers(self, ray: Any) -> int:
        """Return the number of workers to start."""
        places = self._places(ray)
        if self.is_started_here and places < (self.workers or 1):
            raise DataError(
                f"{self.workers or 1} workers with {self.cpus:g} processors and {self.gpus:g} GPUs each do not fit on this "
                f"machine, which has place for {places}: fewer workers, or smaller shares with --set gpus-per-worker=0.5"
            )
        return self.workers or max(places, 1)

    def _places(self, ray: Any) -> int:
        """Return the number of workers that fit on the whole cluster."""
        total = ray.cluster_resources()
        shares = [(total.get("CPU", 0.0), self.cpus), (total.get("GPU", 0.0), self.gpus)]
        return min((int(there / share + 1e-9) for there, share in shares if share), default=os.cpu_count() or 1)

    def described(self, ray: Any) -> str:
        """Return the size of the cluster in words."""
        total = ray.cluster_resources()
        nodes = sum(node["Alive"] for node in ray.nodes())
        return f"{counted(nodes, 'node')} with {total.get('CPU', 0):g} processors and {total.get('GPU', 0):g} GPUs"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without its full stop."""
    return str(error).strip().split("\n", maxsplit=1)[0].rstrip(".") or type(error).__name__


_T = TypeVar("_T")
_TRIES = 3
"""Number of times that a part is tried again after its process or node was lost."""


class RayPool(Executor):
    """Runs functions as tasks of a cluster; see `suffice.common.processes.pools_from`."""

    def __init__(self, ray: Any, cluster: Cluster) -> None:
        self._ray = ray
        options = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus, "max_retries": _TRIES}
        self._task = ray.remote(**options, scheduling_strategy="SPREAD")(_call)
        self._stored: tuple[Any, Any] = (None, None)
        self._running: dict[Future[Any], Any] = {}

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run a function on some node of the cluster; functions among its arguments are sent only once."""
        sent = [self._once(item) if callable(item) else item for item in args]
        reference = self._task.remote(str(Path.cwd()), fn, *sent, **kwargs)
        future: Future[_T] = Future()
        self._running[future] = reference
        reference.future().add_done_callback(partial(self._settle, future))
        return future

    def _once(self, item: Any) -> Any:
        if self._stored[0] is not item:  # the calls of one function come in a row
            self._stored = (item, self._ray.put(item))
        return self._stored[1]

    def _settle(self, future: Future[Any], done: Future[Any]) -> None:
        self._running.pop(future, None)
        if not future.set_running_or_notify_cancel():
            return
        error = done.exception()
        if error is None:
            future.set_result(done.result())
        elif isinstance(error, self._ray.exceptions.RayTaskError):
            future.set_exception(error.cause)
        else:
            future.set_exception(WorkerDiedError(f"a process of the cluster was lost {_TRIES + 1} times: {error}"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel the running functions."""
        del wait, cancel_futures
        for reference in list(self._running.values()):
            with suppress(Exception):  # it has ended, or the cluster has
                self._ray.cancel(reference, force=True)
        self._stored = (None, None)


def _call(folder: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a function, in the driver's working directory if this node can access that directory."""
    keep_folder_out()
    with suppress(OSError):
        os.chdir(folder)  # not changed back: the process runs only such tasks, and its own folder may be gone
    return fn(*args, **kwargs)
