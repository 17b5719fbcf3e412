"""What is left of a journal whose writers die in the middle of a write, and of copies that are made meanwhile.

Processes record questions to one folder or one file, and write down each round once it is committed. Each of them dies by `kill -9` at a
random byte of a random write: it writes only the first bytes of a group, sometimes with zeros after them as after a power cut, and kills itself.
Another takes its place. Meanwhile the folder is copied file by file, as `cp -r` does. At the end every committed round is there, once, and
nothing else but the round in flight at each kill; and each copy has every round that was committed before it began, or says what it lacks.

    python -m benchmarks.journal_kills --kills 100
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support import children

from benchmarks.part_kills import check, committed_rounds, log_questions
from suffice import read_recording
from suffice.errors import SchemaError
from suffice.recordings.journal_file import LockedJournal

AT_ONCE = 2


def dying(path: Path, committed: Path, name: str, seed: int) -> None:
    """Record questions until a write, drawn by the seed, is torn at a random byte."""
    numbers = random.Random(seed)
    left = numbers.randrange(5, 60)

    def torn(file: LockedJournal, data: bytes, reserve: bool) -> None:
        nonlocal left
        left -= 1
        if left:
            whole(file, data, reserve)
            return
        zeros = bytes(numbers.choice([0, 0, 1, 600]))
        whole(file, data[: numbers.randrange(len(data))] + zeros, reserve)
        os.kill(os.getpid(), signal.SIGKILL)

    whole = LockedJournal._write
    LockedJournal._write = torn  # type: ignore[method-assign]
    log_questions(path, committed, name)


def run(folder: Path, *, kills: int, one_file: bool, seed: int = 0) -> dict[str, Any]:
    """Let writers die, copy meanwhile, and compare; return what was counted.

    Args:
        folder: An empty folder.
        kills: How many writers die.
        one_file: Whether they write to one file, or to a folder of parts.
        seed: When they die, and where their last write ends.

    Raises:
        AssertionError: A committed round is lost or counts twice, or a copy lacks one without a word.
    """
    numbers = random.Random(seed)
    log = folder / "log" / "log.parquet" if one_file else folder / "log"
    log.parent.mkdir(exist_ok=True)
    copies = {"whole": 0, "refused": 0, "copied again": 0}
    running: list[Any] = []
    started = 0
    while started < kills or running:
        while started < kills and len(running) < AT_ONCE:
            arguments = (log, folder / f"{started}.committed", f"p{started}", numbers.randrange(1 << 30))
            running.append(children.started(dying, *arguments))
            started += 1
        time.sleep(numbers.uniform(0.0, 0.1))
        if any(len(values) > 1 for values in committed_rounds(folder).values()):  # a question has stopped
            copies[_copied(folder, log)] += 1
        for process in [process for process in running if process.exitcode is not None]:
            assert process.exitcode == -signal.SIGKILL, process.exitcode
            running.remove(process)
    recording, rounds = read_recording(log), committed_rounds(folder)
    check(recording, rounds)
    extra = recording.table.num_rows - len(rounds)
    assert 0 <= extra <= kills, extra
    return {
        "kills": kills,
        "one_file": one_file,
        "committed_rounds": len(rounds),
        "recorded_rounds": recording.table.num_rows,
        "copies": copies,
    }


def _copied(folder: Path, log: Path) -> str:
    """Copy the log while it is written, and compare; return how that ended."""
    committed = committed_rounds(folder)
    target = folder / "copy"
    shutil.rmtree(target, ignore_errors=True)
    try:
        shutil.copytree(folder / "log", target, ignore=shutil.ignore_patterns("*.tmp"))
    except shutil.Error:  # a file went while the folder was copied, and the copy says so
        return "copied again"
    try:
        copy = read_recording(target / log.name if log.suffix else target)
    except SchemaError:
        return "refused"
    check(copy, committed)
    return "whole"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one-file", action="store_true", help="let all write to one file, not to a folder of parts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        began = time.monotonic()
        result = run(Path(place), kills=options.kills, one_file=options.one_file, seed=options.seed)
        print(json.dumps({"benchmark": "journal_kills", **result, "seconds": round(time.monotonic() - began, 1)}))
