"""Does `kill -9` cost a log a row that was committed, or change a draw of its audit?

Two loggers at a time record audited questions, half of them to one file and half to a folder of parts; each is killed at a
random moment, and another one takes its place.  A logger writes down what `observe` has returned.  Afterwards every such
round is in the log with its answer, every decision and draw is as it was returned, every draw is that of the question's
id, and what is in the log beyond that is at most one round for each kill.

    python -m benchmarks.logger_kills --kills 100
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from suffice import Audit, Policy, Recorder, read_recording

POLICY = Policy(rule="fixed_k(2)", max_rounds=4)
AUDIT = Audit(rate=0.5, seed="kills")
SHADOWS = ("fixed_k(1)", "fixed_k(3)")
LONGEST_S, AT_ONCE = 0.3, 2
COMMITTED = ("stop_round", "audited", "audit_rate", "policy_digest")


def log(path: Path, name: str, returned: Path) -> None:
    """Record question after question until somebody kills this process."""
    recorder = Recorder(path, policy=POLICY, audit=AUDIT, shadow=SHADOWS, part_questions=5)
    with returned.open("ab", buffering=0) as file:
        for number in range(10**6):
            run = recorder.question(f"{name} {number}", question_id=f"{name}-{number}")
            while not run.done or run.auditing:
                answer = f"{run.question_id} {run.next_round}"
                run.observe(answer)
                draw = run.session.draw if run.session is not None and run.done else None
                line = [run.run, len(run.rounds), answer, None if draw is None else draw.audited]
                file.write(json.dumps(line).encode() + b"\n")
            if number % 7 == 0:
                recorder.save()


def kill_loggers(path: Path, folder: Path, kills: int, rng: random.Random) -> int:
    """Start loggers and kill each at a random moment after its first round; return how many were killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    running: list[tuple[Any, Path]] = []
    for number in range(kills):
        while len(running) < min(AT_ONCE, kills - number):
            returned = folder / f"{number}-{len(running)}-{path.name}.jsonl"
            process = context.Process(target=log, args=(path, returned.stem, returned), daemon=True)
            process.start()
            running.append((process, returned))
        process, returned = running.pop(0)
        while not returned.exists() or not returned.stat().st_size:
            if not process.is_alive():
                raise RuntimeError(f"a logger ended by itself, with code {process.exitcode}")
            time.sleep(0.002)
        time.sleep(rng.random() * LONGEST_S)
        os.kill(process.pid, 9)
        process.join()
    return kills


def check(path: Path, folder: Path, kills: int) -> dict[str, int]:
    """Compare a log with what its loggers saw; return counts.

    Raises:
        AssertionError: A row is missing, a draw differs, or there is more than one further round for each kill.
    """
    recording = read_recording(path)
    names = ("run", "answer", "end", *COMMITTED)
    columns = {name: recording.objects(name) for name in names}
    place = {run: q for q, run in enumerate(columns["run"][:, 0])}
    returned: dict[str, list[Any]] = defaultdict(list)
    for file in folder.glob(f"*-{path.name}.jsonl"):
        for line in file.read_text("utf-8").splitlines():
            run, *rest = json.loads(line)
            returned[run].append(rest)
    for run, lines in returned.items():
        row = place[run]
        for n, answer, audited in lines:
            assert columns["answer"][row, n - 1] == answer
            if audited is not None:
                assert columns["audited"][row, n - 1] == audited
    decided = [q for q, stop in enumerate(columns["stop_round"][:, 0]) if stop is not None]
    drawn, lost = 0, 0
    for q in decided:
        audited = AUDIT.draw(recording.clusters[q]).audited
        seen = recording.seen[q]
        for name, value in zip(COMMITTED, (2, int(audited), AUDIT.rate, POLICY.digest), strict=True):
            assert set(columns[name][q][seen].tolist()) == {value}, (q, name)
        is_whole = columns["end"][q, 0] == "max_rounds"
        assert not is_whole or (audited and seen.all())
        drawn += audited
        lost += audited and not is_whole
    n_rows, n_returned = int(recording.seen.sum()), sum(map(len, returned.values()))
    assert n_returned <= n_rows <= n_returned + kills
    return {
        "kills": kills,
        "questions": len(recording.question_ids),
        "rounds": n_rows,
        "rounds_returned": n_returned,
        "decided": len(decided),
        "drawn": drawn,
        "audits_lost": lost,
        "in_flight": len(recording.question_ids) - len(decided),
    }


def run(kills: int = 100, seed: int = 0) -> list[dict[str, int]]:
    """Kill loggers of a file and of a folder; return the counts of both."""
    rng = random.Random(seed)
    counts = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("log.parquet", "log"):
            path = Path(folder) / name
            n = kill_loggers(path, Path(folder), kills // 2, rng)
            counts.append({"folder": int(path.is_dir()), **check(path, Path(folder), n)})
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for counted in run(arguments.kills, arguments.seed):
        print(json.dumps(counted))
