"""Run the tests four times under conditions that must not matter, and say which tests failed under which.

    python scripts/stress.py [--seed N] [PYTEST ARGUMENTS...]

Each run has another BLAS kernel (of those that this processor can run) and another order of tests and hashes; the
four pairs of one or two threads and an idle or a busy machine occur once each.  Busy: three times as many tests at once,
of which every process, and every server or worker that it starts, stands still now and then, for up to four seconds.
Exit code 1 if a test failed in any run; the commands that repeat the failures stand below the table.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ("SkylakeX", "Haswell", "Sandybridge", "Prescott", "Zen", "Nehalem", "NEOVERSEN1", "ARMV8", "CORTEXA57")
WHICH = """
import numpy, threadpoolctl
numpy.ones((99, 99)) @ numpy.ones((99, 99))
print(*{item["architecture"] for item in threadpoolctl.threadpool_info() if item["internal_api"] == "openblas"})
"""
WORKERS = {False: 2, True: 6}
"""Tests at once.  More where the machine is busy: they disturb one another, too, and use the time of those that stand still."""
RUNNING_S, STANDING_S, LONGEST_S = 1.5, 0.5, 4.0
"""How long a process runs and stands still on a busy machine: the means, and the longest of either, seconds."""
LOOKING_S = 0.2
"""How often new processes are looked for, seconds."""


@dataclass(frozen=True, slots=True)
class Run:
    """One setting, and what the tests did under it."""

    kernel: str
    threads: int
    busy: bool
    seed: int

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make the setting."""
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), str(self.threads))
        kernel = {"OPENBLAS_CORETYPE": self.kernel} if self.kernel else {}
        seeds = {"PYTHONHASHSEED": str(self.seed), "SUFFICE_TEST_ORDER": str(self.seed)}
        return kernel | threads | seeds | {"SUFFICE_TRAIN_TINY_MODEL": "1"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    code: int
    seconds: float
    closing: str
    failed: tuple[str, ...]


def kernels() -> list[str]:
    """Return the kernels that numpy starts with here, one name each; an empty name where none can be chosen."""
    found: dict[str, str] = {}
    for name in KERNELS:
        environment = os.environ | {"OPENBLAS_CORETYPE": name}
        command = [sys.executable, "-c", WHICH]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            found.setdefault(done.stdout.strip(), name)
    return list(found.values()) or [""]


def let_stand_still(tests: subprocess.Popen[bytes], seed: int) -> None:
    """Stop the processes that the tests start, each at moments of its own, until the tests have ended.

    What a loaded machine does to one test in ten thousand is done to all of them: a client stands still while its server
    answers everything, a server while its client loses patience, a process between two looks at a file.
    """
    numbers = random.Random(seed)  # noqa: S311 - no secret
    turns: dict[int, tuple[float, bool]] = {}  # when the next one is, and whether the process stands still
    looked = 0.0
    try:
        while tests.poll() is None:
            now = time.monotonic()
            if now - looked > LOOKING_S:
                looked, alive = now, set[int]()
                with contextlib.suppress(psutil.Error):
                    alive = {process.pid for process in psutil.Process(tests.pid).children(recursive=True)}
                turns = {pid: turn for pid, turn in turns.items() if pid in alive}
                turns |= {pid: (now + numbers.expovariate(1 / RUNNING_S), False) for pid in alive - turns.keys()}
            for pid, (_, stands) in [item for item in turns.items() if item[1][0] <= now]:
                pause = numbers.expovariate(1 / (RUNNING_S if stands else STANDING_S))
                turns[pid] = now + min(pause, LONGEST_S), not stands
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT if stands else signal.SIGSTOP)
            time.sleep(0.01)
    finally:
        for pid in [pid for pid, (_, stands) in turns.items() if stands]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def outcome(run: Run, arguments: list[str], log: Path) -> Outcome:
    """Run the tests under a setting, everything that they say into a file."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        str(WORKERS[run.busy]),
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    began = time.perf_counter()
    with log.open("w", encoding="utf-8") as out:
        environment = os.environ | run.environment
        tests = subprocess.Popen([*command, *arguments], cwd=ROOT, env=environment, stdout=out, stderr=out)
        if run.busy:
            let_stand_still(tests, run.seed)
        code = tests.wait()
    said = log.read_text("utf-8", "replace")
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, flags=re.MULTILINE)
    closing = re.findall(r"^=*\s*(.*\b(?:passed|failed|error|no tests)\b.*? in [\d.]+s).*$", said, flags=re.MULTILINE)
    return Outcome(code, time.perf_counter() - began, closing[-1] if closing else f"see {log}", tuple(failed))


def main() -> int:
    """Run all four and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10_000), help="of orders and hashes; printed")
    settings, arguments = parser.parse_known_args()
    usable, folder = kernels(), Path(tempfile.mkdtemp(prefix="suffice-stress-"))
    plan = [
        Run(usable[number % len(usable)], threads, busy, settings.seed + number)
        for number, (threads, busy) in enumerate([(1, False), (2, True), (2, False), (1, True)])
    ]
    print(f"seed {settings.seed}, logs in {folder}\nkernel       threads  machine  seed   seconds  outcome", flush=True)
    repeats, codes = [], []
    for number, run in enumerate(plan):
        done = outcome(run, arguments, folder / f"run{number}.log")
        codes.append(done.code)
        state = "busy" if run.busy else "idle"
        print(
            f"{run.kernel or 'default':<12} {run.threads:>7}  {state:<7} {run.seed:>5}  {done.seconds:>8.0f}  {done.closing}",
            flush=True,
        )
        variables = shlex.join(f"{name}={value}" for name, value in run.environment.items())
        repeats += [f"{variables} {sys.executable} -m pytest {shlex.quote(name)}" for name in done.failed]
    if repeats:
        print("\nfailed; each of these repeats one (those of a busy machine need the load too):", *repeats, sep="\n")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
