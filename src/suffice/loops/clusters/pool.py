"""The processes of a Ray cluster as a pool, for functions over the parts of a recording."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from suffice.common.processes import keep_folder_out
from suffice.errors import WorkerDiedError
from suffice.loops.clusters.connection import Cluster

_T = TypeVar("_T")
_TRIES = 3
"""So often a part is worked on again whose process or node was lost."""


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
        if self._stored[0] is not item:  # one function after the other is worked on
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
    """Run a function in the driver's working directory, if this node can access it."""
    keep_folder_out()
    with suppress(OSError):
        os.chdir(folder)
    return fn(*args, **kwargs)
