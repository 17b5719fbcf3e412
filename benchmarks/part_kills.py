"""What is left of a log whose processes are killed at random: every committed round, once, with what the draw of its audit was.

Loggers append to a folder of parts and write down what `observe` had committed, beside it; a compactor joins ended parts all
the time.  `kill -9` hits one of them at random, again and again, and another takes its place.  After each kill the folder is
read while the others write: every round that was committed before must be there, with the same answer, and each run once.

    python -m benchmarks.part_kills --kills 100
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.support import children

from suffice import Audit, Policy, Recorder, read_recording
from suffice.recordings import Recording, compact_recording
from suffice.recordings.parts import part_paths

POLICY = Policy(rule="answer_stable", max_rounds=4)
AUDIT = Audit(rate=0.3, seed="a secret text")
PART_QUESTIONS = 5
PAUSE_S = 0.02
"""Between two questions of a logger, whose loop waits for its model."""
_DEADLINE_S = 600.0


def log_questions(folder: Path, committed: Path, name: str) -> None:
    """Record questions for ever, and write down each round once it is committed."""
    recorder = Recorder(folder, policy=POLICY, audit=AUDIT, part_questions=PART_QUESTIONS)
    numbers = random.Random(name)
    with committed.open("ab", buffering=0) as file:
        for q in range(1_000_000):
            with recorder.question(f"Who is {name} {q}?", question_id=f"{name}-{q}") as run:
                while not run.done or run.auditing:
                    answer = f"{name} {q} {numbers.randrange(3)}"
                    decision = run.observe(answer)
                    line = [run.run, len(run.rounds), answer]
                    if decision is not None and decision.stop and len(run.rounds) == decision.stop_round:
                        line += [AUDIT.draw(run.question_id).audited, decision.stop_round]
                    file.write(json.dumps(line).encode() + b"\n")
            if numbers.random() < 0.1:
                recorder.save()
            time.sleep(PAUSE_S)


def compact_for_ever(folder: Path, ready: Path) -> None:
    """Join ended parts again and again."""
    while True:
        if part_paths(folder):
            compact_recording(folder)
            ready.touch()
        time.sleep(0.05)


def committed_rounds(folder: Path) -> dict[tuple[str, int], list[Any]]:
    """Return what loggers know to be committed, by run and round: the answer, and at a stop the draw and the round."""
    rounds = {}
    for file in sorted(folder.glob("*.committed")):
        for line in file.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                run, r, *values = json.loads(line)
                rounds[run, r] = values
    return rounds


def check(recording: Recording, committed: dict[tuple[str, int], list[Any]]) -> None:
    """Raise unless every committed round is there with its answer and its question's draw, and each run once."""
    names = ["run", "round", "question_id", "answer", "audited", "stop_round", "audit_rate", "policy_digest", "cluster"]
    table = recording.table.select(names).to_pylist()
    rows = {(row["run"], row["round"]): row for row in table}
    for key, (answer, *decided) in committed.items():
        row = rows.get(key)
        if row is None or row["answer"] != answer or (decided and decided != [row["audited"], row["stop_round"]]):
            raise AssertionError(
                f"of {len(committed)} committed rounds {key} with {answer!r}, {decided} is lost: {row}"
            )
    for row in table:
        drawn = [AUDIT.rate, AUDIT.draw(row["cluster"]).audited, POLICY.digest]
        if row["stop_round"] is not None and [row["audit_rate"], row["audited"], row["policy_digest"]] != drawn:
            raise AssertionError(f"the draw of {row['run']} changed: {row}")
    runs = {(row["run"], row["question_id"]) for row in table}
    if len(rows) != len(table) or len(runs) != len({run for run, _ in runs}):
        raise AssertionError("a run counts twice")


class _Cast:
    """The processes: loggers and a compactor, each replaced when it is killed."""

    def __init__(self, folder: Path, loggers: int) -> None:
        self.log, self.beside = folder / "log", folder
        self.started = 0
        self.processes: list[tuple[str, BaseProcess]] = []
        for place, role in [(self.start(role), role) for role in ["logger"] * loggers + ["compactor"]]:
            self.wait(place, role)

    def start(self, role: str) -> Path:
        self.started += 1
        place = self.beside / f"{role}-{self.started}.{'committed' if role == 'logger' else 'ready'}"
        if role == "logger":
            process = children.started(log_questions, self.log, place, f"p{self.started}")
        else:
            process = children.started(compact_for_ever, self.log, place)
        self.processes.append((role, process))
        return place

    def wait(self, place: Path, role: str) -> None:
        """Wait until a process has begun to work, and a logger has committed some rounds."""
        deadline = time.monotonic() + _DEADLINE_S
        while not place.exists() or (role == "logger" and place.read_bytes().count(b"\n") < PART_QUESTIONS):
            if time.monotonic() > deadline:
                raise AssertionError(f"the {role} did not start")
            time.sleep(0.01)

    def kill(self, position: int) -> str:
        role, process = self.processes.pop(position)
        if not process.is_alive():
            raise AssertionError(f"the {role} ended by itself: {process.exitcode}")
        children.killed(process)
        return role

    def kill_all(self) -> None:
        for _, process in self.processes:
            children.killed(process)
        self.processes = []


def run(folder: Path, *, kills: int, loggers: int, seed: int = 0, pause_s: float = 0.3) -> dict[str, Any]:
    """Kill processes at random; return what was read at the end.

    Args:
        folder: An empty folder.
        kills: How many are killed before all are.
        loggers: Processes that log at a time.
        seed: Which are killed, and when.
        pause_s: The longest time between two kills, seconds.

    Raises:
        AssertionError: A committed round is lost, or counts twice.
    """
    numbers = random.Random(seed)
    cast = _Cast(folder, loggers)
    killed = {"logger": 0, "compactor": 0}
    try:
        for _ in range(kills):
            time.sleep(numbers.random() * pause_s)
            role = cast.kill(numbers.randrange(len(cast.processes)))
            killed[role] += 1
            committed = committed_rounds(folder)
            check(read_recording(cast.log), committed)
            cast.wait(cast.start(role), role)
    finally:
        cast.kill_all()
    committed = committed_rounds(folder)
    before = read_recording(cast.log)
    check(before, committed)
    compact_recording(cast.log)  # what had ended
    check(read_recording(cast.log), committed)
    summary = compact_recording(cast.log, idle_s=0)  # and what never will
    after = read_recording(cast.log)
    check(after, committed)
    if summary.open or not after.table.equals(before.table):
        raise AssertionError("compaction changed the recording, or left journals")
    return {
        "kills": kills + loggers + 1,
        "killed": killed,
        "committed_rounds": len(committed),
        "recorded_rounds": after.table.num_rows,
        "questions": after.shape[0],
        "unfinished": int((after.ends == "failed").sum()),
        "audited": int((after.column("audited")[:, 0] == 1).sum()),
        "parts": len(part_paths(cast.log)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--loggers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        result = run(Path(folder), kills=options.kills, loggers=options.loggers, seed=options.seed)
        print(json.dumps({"benchmark": "part_kills", **result, "seconds": round(time.monotonic() - started, 1)}))


if __name__ == "__main__":
    main()
