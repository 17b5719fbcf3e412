"""A Ray cluster: a running one, or one that is started on this machine for the duration of a command."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from typing import Any

from suffice.common.tables import counted
from suffice.errors import DataError, MissingExtraError

_HERE = "ray"
_REMOTE = "ray://"
_RUNNING = "ray://auto"
_ADDRESS = "RAY_ADDRESS"

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_AUTH_MODE": "token",  # other users of this machine cannot use its cluster
    "RAY_raylet_start_wait_time_s": "300",  # on a loaded machine the defaults fail
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""What a cluster of our own starts with, unless the environment says otherwise."""

_OBJECTS_BYTES = 80_000_000  # the least that Ray takes: nothing but words and counts go through it


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster on which workers run, and the resources of each worker.

    Attributes:
        on: ``ray``: the cluster that RAY_ADDRESS names, or a new one on this machine; ``ray://auto``: the one that runs on
            this machine; ``ray://HOST:PORT``: the one behind Ray's client server.
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
            raise MissingExtraError("a Ray cluster", "ray") from None
        if ray.is_initialized():
            yield ray
            return
        # Ray lets workers import from the folder in which it is initialised, before anything that is installed.
        with warnings.catch_warnings(), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
            warnings.simplefilter("ignore")  # on settings of Ray's that are its own
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
