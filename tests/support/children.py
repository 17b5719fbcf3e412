"""Processes that a test can kill: each is forked from one that has imported what they need, and has done nothing else.

An empty Python imports for about a second before it does anything; a forked process begins at once.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from suffice import Recorder
from suffice.recordings import Journal
from suffice.recordings.cache import ResponseCache
from suffice.recordings.journal_file import LockedJournal

PRELOADED = [
    *(__name__, "openai", "suffice.cli.main"),
    *("tests.support.recording", "tests.support.drafting", "tests.support.sampling", "benchmarks.journal_kills"),
]


def started(target: Callable[..., object], *arguments: Any) -> BaseProcess:
    """Start a process that calls a function of a module that is preloaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)  # the first one decides for all
    process = context.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def told(target: Callable[..., object], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """Start a process that has our end of a pipe as its last argument; return it, and the other end."""
    ours, theirs = multiprocessing.Pipe()
    process = started(target, *arguments, theirs)
    theirs.close()
    return process, ours


def killed(process: BaseProcess) -> None:
    """Kill a process as `kill -9` does, and wait for its end."""
    process.kill()
    process.join()


def output_of(code: str, *words: object) -> tuple[int | None, str, str]:
    """Run Python code with these arguments; return the exit code, what it printed, and its errors."""
    process, pipe = told(_run_code, code, [str(word) for word in words])
    with pipe:
        out, err = pipe.recv()
    process.join()
    return process.exitcode, out, err


def _run_code(code: str, words: list[str], tell: Connection) -> None:
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["-c", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
    tell.send((out.getvalue(), err.getvalue()))
    sys.exit(bool(err.getvalue()))


def hold_journal(path: str, settings: dict[str, Any], wait_s: float | None, tell: Connection) -> None:
    """Hold a journal and say so, until the pipe closes; or, after so many seconds, delete it."""
    journal = Journal(path, settings)
    tell.send("held")
    if wait_s is None:
        with contextlib.suppress(EOFError):
            tell.recv()
    else:
        time.sleep(wait_s)
        journal.delete()


def hold_file(path: Path, tell: Connection) -> None:
    """Hold the file of a journal and say so, until the process is killed."""
    with LockedJournal(path, busy="busy", wait_s=0.0):
        tell.send("held")
        time.sleep(600)


def run_command(words: list[str], environment: Mapping[str, str]) -> None:
    """Run `suffice` without a word on the screen."""
    from suffice.cli.main import run

    os.environ.update(environment)
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        run(words)


def log_rounds(path: str, worker: str, n: int, tell: Connection) -> None:
    """Record questions, and save in between; one that is called `killed` leaves another one open and waits for its end."""
    recorder = Recorder(path)
    for q in range(n):
        with recorder.question(f"{worker} {q}", question_id=f"{worker}-{q}", golds="a") as run:
            for answer in "ab":
                run.observe(answer)
        if q == n // 2:
            recorder.save()
    if worker == "killed":
        run = recorder.question("last", question_id="last").__enter__()
        run.observe("paid for")
        tell.send("ready")
        time.sleep(600)
    recorder.close()


def put_replies(path: str, name: str, first: int, last: int, tell: Connection) -> None:
    """Put numbered replies into a cache, and tell the number of each."""
    cache = ResponseCache(path)
    for number in range(first, last):
        cache.put({"writer": name, "number": number}, {"text": "x" * 2000, "number": number})
        tell.send(number)
