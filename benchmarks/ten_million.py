"""Where does a recording of 10 million questions stop being limited by its endpoints, and what do journal and parts cost?

Measured on one processor: what the recorder takes for a call beside the endpoint (with a fixed latency, in a process of its
own), what a commit to the journal takes, what a question takes on disk, and what a worker takes to read the questions before
it begins.  Everything else on the page is computed from these and from one assumption: how many calls a second an endpoint
answers.

    python -m benchmarks.ten_million
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.bench_record import CONCURRENCY, ROUNDS, chat, endpoint
from suffice import Policy, RetrievalLoop, load_questions, record_async
from suffice.loops.retrieval import PoolBM25
from suffice.recordings.journal import Journal
from suffice.recordings.shards import Shard

QUESTIONS = 10_000_000
ENDPOINTS = (1, 2, 4, 8, 16, 32, 64)
WORKERS = (1, 4, 16, 64)
CALLS_PER_S = 40.0
"""The assumption: what one endpoint answers."""

_LATENCY_S = 0.05
_COMMITS = 2_000
_HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured.

    Attributes:
        call_s: Processor seconds of the recorder for one call, its share of the retrieval and of the part included.
        commit_s: Seconds in which a reply is committed to the journal.
        commit_cpu_s: Processor seconds of that.
        journal_bytes: Bytes of a question in the journal.
        part_bytes: Bytes of a question in its part.
        read_s: Seconds in which a worker reads a question of the data set, whichever shard has it.
        read_bytes: Memory that such a question takes.
        start_s: Processor seconds in which a worker starts and imports the package.
    """

    call_s: float
    commit_s: float
    commit_cpu_s: float
    journal_bytes: float
    part_bytes: float
    read_s: float
    read_bytes: float
    start_s: float


def measure(n: int, repeats: int) -> Measured:
    """Return what is measured, the median of some runs."""
    questions = load_questions("hotpotqa_eval", limit=n)
    call_s, part_bytes = [], []
    with endpoint(_LATENCY_S) as url, tempfile.TemporaryDirectory() as folder:
        for repeat in range(repeats + 1):
            loop = RetrievalLoop(model=chat(url), retriever=PoolBM25(), policy=Policy(max_rounds=ROUNDS))
            out = Path(folder) / str(repeat)
            gc.collect()
            before = time.process_time()
            summary = asyncio.run(record_async(questions, loop, out, concurrency=CONCURRENCY, shard=Shard(1, 1)))
            if summary.rounds != n * ROUNDS or summary.failed:
                raise AssertionError(f"{summary.rounds} rounds of {n} questions, {len(summary.failed)} failed")
            if repeat:  # the first one imports
                call_s.append((time.process_time() - before) / summary.rounds)
                part_bytes.append((out / Shard(1, 1).part_name).stat().st_size / n)
        commit_s, commit_cpu_s, journal_bytes = _commits(Path(folder) / "j.journal", summary.path)
        read_s, read_bytes = _reading(Path(folder) / "q.jsonl", n)
    return Measured(
        call_s=statistics.median(call_s),
        commit_s=commit_s,
        commit_cpu_s=commit_cpu_s,
        journal_bytes=journal_bytes,
        part_bytes=statistics.median(part_bytes),
        read_s=read_s,
        read_bytes=read_bytes,
        start_s=_starting(),
    )


def _commits(path: Path, part: Path) -> tuple[float, float, float]:
    """Return the seconds and processor seconds of a commit, and the bytes of a question in the journal."""
    from suffice import read_recording

    row = read_recording(part).table.slice(0, 1).to_pylist()[0]
    payload = {key: value for key, value in row.items() if isinstance(value, int | float | str | list)}
    journal = Journal(path, {})
    began, cpu = time.perf_counter(), time.process_time()
    for number in range(_COMMITS):
        journal.put(f"q{number // ROUNDS}", {(number % ROUNDS, "generator"): payload})
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    journal.close()
    size = path.stat().st_size
    return seconds / _COMMITS, cpu / _COMMITS, size / _COMMITS * ROUNDS


def _reading(path: Path, n: int) -> tuple[float, float]:
    """Return the seconds and the bytes of memory that reading one question takes."""
    questions = load_questions("hotpotqa_eval", limit=n)
    with path.open("w", encoding="utf-8") as file:
        for copy in range(max(1, 10_000 // n)):
            for question in questions:
                paragraphs = [{"title": passage.title, "text": passage.text} for passage in question.passages]
                line = {"id": f"{question.question_id}-{copy}", "question": question.question}
                file.write(json.dumps({**line, "answers": list(question.answers), "paragraphs": paragraphs}) + "\n")
    program = (
        "import psutil, sys, time\n"
        "from suffice.loops.retrieval import dataset_hash, load_questions\n"
        "load_questions(sys.argv[1], limit=1)\n"
        "before, began = psutil.Process().memory_info().rss, time.process_time()\n"
        "questions = load_questions(sys.argv[1])\n"
        "dataset_hash(questions)\n"
        "seconds = time.process_time() - began\n"
        "print(seconds / len(questions), (psutil.Process().memory_info().rss - before) / len(questions))\n"
    )
    out = subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True).stdout
    seconds, memory = map(float, out.split())
    return seconds, memory


def _starting() -> float:
    program = "import time, suffice.cli.recording, suffice.loops; print(time.process_time())"
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    return float(out)


def hours(measured: Measured, endpoints: int, workers: int) -> float:
    """Return the hours of 10 million questions: the slower of the endpoints and of the workers, one processor each."""
    calls = QUESTIONS * ROUNDS
    return calls / min(endpoints * CALLS_PER_S, workers / measured.call_s) / _HOUR_S


def page(measured: Measured) -> str:
    """Return the measurements and what follows from them, as tables."""
    calls = QUESTIONS * ROUNDS
    per_worker = 1 / measured.call_s
    rows = [
        ("the recorder, processor time for a call", f"{1000 * measured.call_s:.2f} ms"),
        ("so one worker sends at most", f"{per_worker:,.0f} calls/s"),
        (
            "a commit to the journal",
            f"{1e6 * measured.commit_s:.0f} us ({1e6 * measured.commit_cpu_s:.0f} us of the processor)",
        ),
        ("so one journal takes at most", f"{1 / measured.commit_s:,.0f} commits/s"),
        (f"a question in the journal ({ROUNDS} rounds)", f"{measured.journal_bytes / 1000:.1f} kB"),
        ("a question in its part", f"{measured.part_bytes / 1000:.1f} kB"),
        (
            "reading a question of the data set",
            f"{1e6 * measured.read_s:.0f} us, {measured.read_bytes / 1000:.1f} kB of memory",
        ),
        ("starting a worker", f"{measured.start_s:.1f} s"),
    ]
    lines = ["| measured | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows), ""]
    heads = [f"{n} worker{'s' * (n > 1)}" for n in WORKERS]
    lines += [
        f"| endpoints | calls/s | {' | '.join(heads)} | workers that keep up |",
        f"|---:|---:|{'---:|' * (len(WORKERS) + 1)}",
    ]
    for n in ENDPOINTS:
        cells = []
        for workers in WORKERS:
            is_bent = workers * per_worker < n * CALLS_PER_S
            cells.append(f"{hours(measured, n, workers):,.1f}{' *' if is_bent else ''}")
        enough = math.ceil(n * CALLS_PER_S * measured.call_s)
        lines.append(f"| {n} | {n * CALLS_PER_S:,.0f} | {' | '.join(cells)} | {enough} |")

    def reading(n: int) -> str:
        return f"{n * measured.read_s / 60:,.1f} minutes and {n * measured.read_bytes / 1e9:,.1f} GB of memory"

    processors = calls * measured.call_s / _HOUR_S
    notes = (
        "",
        f"- One worker keeps up with {per_worker / CALLS_PER_S:.1f} endpoints; beyond that (*) the hours are those of the workers.",
        f"- The recorder takes {processors:,.0f} processor hours for {calls / 1e6:.0f} million calls, however many workers there are.",
        (
            f"- Commits to the journals take {calls * measured.commit_s / _HOUR_S:,.1f} hours in all: "
            f"{calls * measured.commit_cpu_s / _HOUR_S:,.1f} of the processor, which the hours above include, and the rest waiting for the disk."
        ),
        (
            f"- Parts take {QUESTIONS * measured.part_bytes / 1e9:,.0f} GB with these short replies. Journals take {QUESTIONS * measured.journal_bytes / 1e9:,.0f} GB if "
            "all shards are unfinished at once; each is removed when its part is written."
        ),
        f"- Each shard reads the whole data set before it begins, {reading(QUESTIONS)} for 10 million questions with ten passages;",
        f"  for a file of 100,000 it is {reading(100_000)}.",
    )
    return "\n".join([*lines, *notes])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    measured = measure(arguments.limit, arguments.repeats)
    print(page(measured))
    print(json.dumps({"benchmark": "ten_million", "python": platform.python_version(), **asdict(measured)}))


if __name__ == "__main__":
    main()
