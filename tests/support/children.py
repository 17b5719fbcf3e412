"""Processes that a test can kill: each is forked from one that has imported what they need, and has done nothing else.

An empty Python imports for about a second before it does anything; a forked process begins at once.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from suffice import Recorder
from suffice.recordings.cache import ResponseCache

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
