"""Start processes: pools that run a function over parts, and programs of this interpreter.

All processes of Suffice are started here, so that no process imports modules from its working directory, whose files may come
from somebody else.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

from suffice.errors import DataError, SufficeError, WorkerDiedError

if TYPE_CHECKING:
    import asyncio
    import subprocess
    from types import ModuleType

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")

_AHEAD = 2
"""Finished results per process that may wait for an earlier part; beyond, processes wait, so that memory stays bounded."""

_state: dict[str, Callable[[Any], Any]] = {}
"""In a worker process: the function that it runs."""

_read: dict[str, Path] = {}
"""In a worker process: the file from which the function was read."""


_imported: dict[Path, None] = {}
"""Files that were imported by their path; worker processes import them, too."""

_SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Environment variable that keeps a process from importing modules from its working directory or script's folder."""

_starting = threading.RLock()
"""Lock held while a process starts and `_SAFE_PATH` is set in this process's environment."""


def keep_folder_out() -> None:
    """Prevent processes started from now on, even by other libraries, from importing modules from their working directory."""
    os.environ.update(_SAFE_PATH)


@contextmanager
def _folder_kept_out() -> Iterator[None]:
    """Prevent processes from importing modules from their working directory, within this block only."""
    with _starting:
        before = {name: os.environ.get(name) for name in _SAFE_PATH}
        os.environ.update(_SAFE_PATH)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def can_start_python() -> bool:
    """Return whether this process runs in Python's own interpreter, so that `start_python` can start it again."""
    return Path(sys.executable or "").name.startswith("python")


def start_python(*words: str, **settings: Any) -> subprocess.Popen[Any]:
    """Start this interpreter with command-line arguments; it imports nothing from the current folder."""
    import subprocess

    return subprocess.Popen([sys.executable, "-P", *words], env=os.environ | _SAFE_PATH, **settings)  # noqa: S603


async def start_python_async(*words: str, **settings: Any) -> asyncio.subprocess.Process:
    """Like `start_python`, but on the running event loop."""
    import asyncio

    return await asyncio.create_subprocess_exec(sys.executable, "-P", *words, env=os.environ | _SAFE_PATH, **settings)


class _Spawned(SpawnProcess):
    """A process that imports nothing from the current folder, even before it receives its `sys.path`."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - the name that multiprocessing gives it
        with _folder_kept_out():
            return SpawnProcess._Popen(process_obj)  # noqa: SLF001


class _Spawning(SpawnContext):
    Process = _Spawned


def spawning_pool(jobs: int, **settings: Any) -> ProcessPoolExecutor:
    """Return a pool of processes that import modules from the current folder only if this process does so."""
    with _folder_kept_out():  # creating its queues may start a process, too
        return ProcessPoolExecutor(jobs, mp_context=_Spawning(), **settings)


def usable_processors() -> int:
    """Return the number of processors that this process may use, at least 1.

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
    """Run a function on each part and yield the results, in the order of the parts.

    A part should be a small reference (a path, a range of row groups), since it is sent to a process, which reads the
    data.  The function is sent to each process once, so it should hold what all parts share (`functools.partial`).
    Processes are spawned, also on Linux, so that threads of libraries and open files are not copied; a program with
    `jobs` above 1 therefore needs ``if __name__ == "__main__":``.

    >>> list(over_parts(len, ["Oslo", "Lima", "Ulaanbaatar"]))
    [4, 4, 11]

    Args:
        function: The function to run; with several jobs it must be defined in a module, and its result must be picklable.
        parts: The parts.
        jobs: Number of processes, at most one per part; 1 = run in this process.
        on_progress: Called with the number of parts done and their total.
        name: Returns the name of a part for errors.
        pool: Running processes to use for several functions in turn, see `process_pool`.

    Raises:
        DataError: `jobs` is less than 1.
        SufficeError: The function raised an error for a part. The part's name is added to the error, and all other parts
            are cancelled.
        WorkerDiedError: A process was killed.
    """
    if jobs < 1:
        raise DataError(f"parts are worked on in at least one process, not {jobs!r}")
    if min(jobs, len(parts)) <= 1:
        return _here(function, parts, on_progress, name)
    sent = _Carried(function) if _imported else function
    return _in_processes(sent, parts, min(jobs, len(parts)), on_progress=on_progress, name=name, shared=pool)


def import_file(path: Path) -> ModuleType:
    """Import a module by the path of its file, once, and return it; worker processes import it, too.

    If the file was already imported as a module of an installed package, that module is returned. So the file does not
    register its signals, rules and so on twice.
    """
    path = path.resolve()
    known = next(
        (
            module
            for module in [*sys.modules.values()]
            if str(getattr(module, "__file__", "")).endswith(path.name) and Path(str(module.__file__)).resolve() == path
        ),
        None,
    )
    if known is not None:
        return known
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path.stem] = module = module_from_spec(spec)  # dataclasses look their module up there
    spec.loader.exec_module(module)
    _imported[path] = None
    return module


class _Carried:
    """A function that is unpickled at its first call, after importing the files that may define it."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._files, self._pickled = tuple(_imported), pickle.dumps(function)
        self._function: Callable[[Any], Any] | None = None

    def __call__(self, part: Any) -> Any:
        if self._function is None:
            for path in self._files:
                import_file(path)
            self._function = pickle.loads(self._pickled)  # noqa: S301 - the first process wrote it
        return self._function(part)


@contextmanager
def process_pool(jobs: int) -> Iterator[Executor | None]:
    """Yield a pool for several calls of `over_parts`, since processes take seconds to start; None for one job."""
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
    """Within this block, make `over_parts` use processes from `start`, such as those of a cluster, instead of its own."""
    token = _START_POOL.set(start)
    try:
        yield
    finally:
        _START_POOL.reset(token)


def _new_pool(jobs: int, function: Callable[[Any], Any] | None) -> Executor:
    start = _START_POOL.get()
    if start is not None:
        return start()
    return spawning_pool(jobs, initializer=_start, initargs=(function,))


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
    """Return the function, or the file that holds it, to send with each part.

    Return None if the processes received the function at their start.
    """
    if _START_POOL.get() is not None:  # other machines cannot read our files
        return function
    return _written(function) if is_shared else None


def _written(function: Callable[[Any], Any]) -> Path:
    """Write a function to a file, which each process reads once."""
    with NamedTemporaryFile(prefix="suffice-", delete=False) as file:
        pickle.dump(function, file)
    return Path(file.name)


@contextmanager
def _named(part: str) -> Iterator[None]:
    """Add the name of a part to an error that lacks it."""
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
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # Ctrl-C ends it without a traceback; the main process reports the interrupt
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if function is not None:
        _state["function"] = function


def _end_with_parent() -> None:
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
