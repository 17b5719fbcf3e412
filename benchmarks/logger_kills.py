"""Does `kill -9` cost a log in one file a round that was committed, or an audit its draw?

Two loggers at a time append to one parquet file; each is killed at a random moment, and another takes its place.  Afterwards
every committed round is there, once, with its answer, its decision and its draw; beyond that there is at most one round for each
kill; and an audit that did not end is censored.  `benchmarks.part_kills` asks the same of a folder, with compactions.

    python -m benchmarks.logger_kills --kills 100
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support import children

from benchmarks.part_kills import POLICY, check, committed_rounds, log_questions
from suffice import read_recording

AT_ONCE = 2


def run(folder: Path, *, kills: int, seed: int = 0, pause_s: float = 0.3) -> dict[str, Any]:
    """Kill loggers at random; return what was read at the end.

    Args:
        folder: An empty folder.
        kills: How many are killed.
        seed: When they are killed.
        pause_s: The longest time between the first round of a logger and its end, seconds.

    Raises:
        AssertionError: A committed round is lost or counts twice, a draw changed, or an audit that did not end looks whole.
    """
    numbers, path = random.Random(seed), folder / "log.parquet"
    loggers: list[tuple[Any, Path]] = []
    for started in range(kills + AT_ONCE - 1):
        if started < kills:
            committed = folder / f"{started}.committed"
            loggers.append((children.started(log_questions, path, committed, f"p{started}"), committed))
        if started >= AT_ONCE - 1:
            _kill(*loggers.pop(0), numbers.random() * pause_s)
    recording, rounds = read_recording(path), committed_rounds(folder)
    check(recording, rounds)
    whole, drawn = recording.seen[:, POLICY.max_rounds - 1], recording.column("audited")[:, 0] == 1
    lost = drawn & (recording.ends == "rule")
    assert not (drawn & ~lost & ~whole).any()
    assert len(rounds) <= recording.table.num_rows <= len(rounds) + kills
    return {
        "kills": kills,
        "committed_rounds": len(rounds),
        "recorded_rounds": recording.table.num_rows,
        "questions": recording.shape[0],
        "unfinished": int((recording.ends == "failed").sum()),
        "audited": int(drawn.sum()),
        "audits_lost": int(lost.sum()),
    }


def _kill(process: Any, committed: Path, pause_s: float) -> None:
    """Kill a logger some time after its first round."""
    while not committed.exists() or not committed.stat().st_size:
        if not process.is_alive():
            raise AssertionError(f"a logger ended by itself: {process.exitcode}")
        time.sleep(0.002)
    time.sleep(pause_s)
    os.kill(process.pid, signal.SIGKILL)
    process.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps({"benchmark": "logger_kills", **run(Path(place), kills=arguments.kills, seed=arguments.seed)}))
