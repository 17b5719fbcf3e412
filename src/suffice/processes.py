"""Run one function over the parts of something large, each part in one of several processes."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

from suffice.errors import DataError, SufficeError, WorkerDiedError

__all__ = ["over_parts", "pools_from", "process_pool", "usable_processors"]

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")

_AHEAD = 2
"""Results for each process that may wait for an earlier one: a slow part holds the others back, and not the memory."""

_state: dict[str, Callable[[Any], Any]] = {}
"""In a worker process: what it runs."""

_read: dict[str, Path] = {}
"""In a worker process: the file from which that was read."""


def usable_processors() -> int:
    """Return how many processors this process may use, at least 1.

    >>> usable_processors() >= 1
    True
    """
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # no such limit on this system
        return os.cpu_count() or 1


def over_parts(
    function: Callable[[_Part], _Result],
    parts: Sequence[_Part],
    *,
    jobs: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
    name: Callable[[_Part], str] = str,
    pool: Executor | None = None,
) -> Iterator[_Result]:
    """Yield the result of each part, in the order of the parts.

    Each process works on one part at a time and sends back the result alone, so that a part should be named (a path, a
    range of row groups) and be read by the function.  Processes are spawned, also on Linux: threads of libraries and
    open files are not copied.  The function is sent to each process once: what all parts share belongs into it
    (`functools.partial`).  A program that sets `jobs` above 1 begins with ``if __name__ == "__main__":``, as every
    program that spawns processes.

    >>> list(over_parts(len, ["Oslo", "Lima", "Ulaanbaatar"]))
    [4, 4, 11]

    Args:
        function: What is computed of a part; with several jobs it is defined in a module, and its result can be pickled.
        parts: The parts.
        jobs: Processes; 1 = in this process, without another one.  There are never more than parts.
        on_progress: Called with the number of parts done and their total.
        name: What errors call a part.
        pool: Processes that run several functions one after the other, see `process_pool`; each reads the
            function once.

    Raises:
        DataError: `jobs` is less than 1.
        SufficeError: What the function raised for a part, with the name of the part; other parts are then given up.
        WorkerDiedError: A process was killed.
    """
    if jobs < 1:
        raise DataError(f"parts are worked on in at least one process, not {jobs!r}")
    if min(jobs, len(parts)) <= 1:
        return _here(function, parts, on_progress, name)
    return _in_processes(function, parts, min(jobs, len(parts)), on_progress=on_progress, name=name, shared=pool)


@contextmanager
def process_pool(jobs: int) -> Iterator[Executor | None]:
    """Yield processes for several calls of `over_parts`, which take seconds to start; None for one job."""
    if jobs <= 1:
        yield None
        return
    pool = _new_pool(jobs, None)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


_START_POOL: ContextVar[Callable[[], Executor] | None] = ContextVar("suffice_start_pool", default=None)


@contextmanager
def pools_from(start: Callable[[], Executor]) -> Iterator[None]:
    """Let `over_parts` run on other processes within this block, such as those of a cluster.

    Args:
        start: Returns a pool, which is sent the function with each part.
    """
    token = _START_POOL.set(start)
    try:
        yield
    finally:
        _START_POOL.reset(token)


def _new_pool(jobs: int, function: Callable[[Any], Any] | None) -> Executor:
    from multiprocessing import get_context

    start = _START_POOL.get()
    if start is not None:
        return start()
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start, initargs=(function,))


def _here(
    function: Callable[[_Part], _Result],
    parts: Sequence[_Part],
    on_progress: Callable[[int, int], None] | None,
    name: Callable[[_Part], str],
) -> Iterator[_Result]:
    for done, part in enumerate(parts, 1):
        with _named(name(part)):
            result = function(part)
        if on_progress is not None:
            on_progress(done, len(parts))
        yield result


def _in_processes(
    function: Callable[[_Part], _Result],
    parts: Sequence[_Part],
    jobs: int,
    *,
    on_progress: Callable[[int, int], None] | None,
    name: Callable[[_Part], str],
    shared: Executor | None,
) -> Iterator[_Result]:
    pool = _new_pool(jobs, function) if shared is None else shared
    sent = _sent(function, is_shared=shared is not None)
    running: dict[Future[_Result], int] = {}
    results: dict[int, _Result] = {}
    begun = done = 0
    try:
        for position in range(len(parts)):
            while position not in results:
                while begun < len(parts) and len(running) < jobs and begun - position < (1 + _AHEAD) * jobs:
                    running[pool.submit(_run, parts[begun], sent)] = begun
                    begun += 1
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    with _named(name(parts[running[future]])):
                        results[running[future]] = future.result()
                    del running[future]
                    done += 1
                    if on_progress is not None:
                        on_progress(done, len(parts))
            yield results.pop(position)
    except BrokenProcessPool as error:
        some = ", ".join(name(parts[i]) for i in running.values())
        raise WorkerDiedError(
            f"a process died while these parts were worked on: {some}. Was it killed, or was the memory too small? Then use "
            'fewer jobs. A program of your own needs `if __name__ == "__main__":` around what it calls'
        ) from error
    finally:
        for future in running:
            future.cancel()
        if shared is None:
            pool.shutdown(cancel_futures=True)
        if isinstance(sent, Path):
            sent.unlink()


def _sent(function: Callable[[Any], Any], *, is_shared: bool) -> Path | Callable[[Any], Any] | None:
    """Return what goes to the processes with each part; nothing where they started with the function."""
    if _START_POOL.get() is not None:  # other machines do not see our files
        return function
    return _written(function) if is_shared else None


def _written(function: Callable[[Any], Any]) -> Path:
    """Write a function to a file, from which each process reads it once."""
    with NamedTemporaryFile(prefix="suffice-", delete=False) as file:
        pickle.dump(function, file)
    return Path(file.name)


@contextmanager
def _named(part: str) -> Iterator[None]:
    """Add the name of a part to an error that does not contain it."""
    try:
        yield
    except BrokenProcessPool:
        raise
    except SufficeError as error:
        if part not in str(error):
            error.args = (f"{part}: {error}", *error.args[1:])
            if isinstance(error, ImportError):
                error.msg = error.args[0]
        raise
    except Exception as error:
        error.add_note(f"while this part was worked on: {part}")
        raise


def _start(function: Callable[[Any], Any] | None) -> None:
    """Prepare a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback; the first process reports
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if function is not None:
        _state["function"] = function


def _end_with_parent() -> None:
    """End this process when the one that started it is killed: nobody else would."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(part: Any, sent: Path | Callable[[Any], Any] | None = None) -> Any:
    try:
        if callable(sent):
            return sent(part)
        if sent is not None and sent != _read.get("from"):
            _state["function"] = pickle.loads(sent.read_bytes())  # noqa: S301 - the first process wrote it
            _read["from"] = sent
        return _state["function"](part)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 - it was made here
        except Exception:  # noqa: BLE001 - an error with arguments of its own would break the pool
            kind = SufficeError if isinstance(error, SufficeError) else RuntimeError
            raise kind(f"{type(error).__name__}: {error}") from None
        raise
