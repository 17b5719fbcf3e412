"""What does a recording in shards cost: processor time, journal and parts, and reading them?

The bundled questions under new ids, five rounds each, from an endpoint in a process of its own that answers at once, recorded by
one process and in shards, one after the other.  Asserted first: the folder of shards is the recording of one process.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.bench_record import CONCURRENCY, ROUNDS, chat, endpoint
from suffice import Policy, RetrievalLoop, load_questions, read_recording, record
from suffice.loops import Progress
from suffice.loops.retrieval import PoolBM25, Question
from suffice.recordings import Recording, merge_recordings
from suffice.recordings.recording import open_recording
from suffice.recordings.shards import Shard

QUESTIONS = 1000
SHARDS = (1, 8, 64)
_CLOCKS = ("recorded_at", "seconds")


def asked(n: int) -> list[Question]:
    """Return the bundled questions again and again, each time under new ids."""
    bundled = load_questions("hotpotqa_eval") + load_questions("hotpotqa_tune")
    return [
        replace(bundled[i % len(bundled)], question_id=f"{bundled[i % len(bundled)].question_id}-{i}") for i in range(n)
    ]


def rows_of(recording: Recording) -> Any:
    """Return the rows without what depends on the clock."""
    names = sorted(name for name in recording.table.column_names if name.rsplit(".", 1)[-1] not in _CLOCKS)
    return recording.table.select(names).combine_chunks()


def timed(function: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    result = function()
    return result, time.perf_counter() - began


def recorded(questions: Sequence[Question], url: str, path: Path, shard: Shard | None = None) -> int:
    """Record, and return how large the journal was in the end, bytes."""
    journal = path.with_name(f"{path.name}.journal")
    if shard is not None:
        journal = path / f"{shard.part_name}.journal"
    sizes = [0]

    def measure(progress: Progress) -> None:
        if progress.done == progress.total and not sizes[0]:
            sizes[0] = sum(file.stat().st_size for file in journal.parent.glob(f"{journal.name}*"))

    loop = RetrievalLoop(model=chat(url), retriever=PoolBM25(), policy=Policy(max_rounds=ROUNDS))
    record(questions, loop, path, shard=shard, concurrency=CONCURRENCY, on_progress=measure)
    return sizes[0]


def measured(questions: Sequence[Question], url: str, folder: Path, n: int, one: Any) -> dict[str, Any]:
    """Record in so many shards, and read them."""
    replies = len(questions) * ROUNDS
    path = folder / f"shards-{n}"
    wall, cpu = time.perf_counter(), time.process_time()
    journals = [recorded(questions, url, path, Shard(index, n)) for index in range(1, n + 1)]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    opened, open_s = timed(lambda: open_recording(path))
    opened.close()
    recording, read_s = timed(lambda: read_recording(path))
    assert rows_of(recording).equals(one)
    _, merge_s = timed(lambda: merge_recordings(folder / f"merged-{n}.parquet", [path]))
    return {
        "shards": n,
        "replies_per_s": replies / wall,
        "cpu_ms_per_reply": 1000 * cpu / replies,
        "journal_bytes_per_reply": sum(journals) / replies,
        "part_bytes_per_row": sum(part.stat().st_size for part in path.glob("part-*")) / len(one),
        "open_s": open_s,
        "read_s": read_s,
        "merge_s": merge_s,
    }


def run() -> dict[str, Any]:
    """Run the benchmark and return its JSON line."""
    questions = asked(QUESTIONS)
    results = []
    with tempfile.TemporaryDirectory() as name, endpoint(0.0) as url:
        folder = Path(name)
        recorded(questions[:8], url, folder / "warm.parquet")
        recorded(questions, url, folder / "one.parquet")
        one = rows_of(read_recording(folder / "one.parquet"))
        size = (folder / "one.parquet").stat().st_size / len(one)
        print(
            f"{len(questions):,} questions of {ROUNDS} rounds in shards, one process, {CONCURRENCY} at once; one file: {size:.0f} bytes a row"
        )
        print("shards  replies/s  CPU ms/reply  journal bytes/reply  part bytes/row  open s  read s  merge s")
        for n in SHARDS:
            result = measured(questions, url, folder, n, one)
            results.append(result)
            print(
                f"{n:6d}{result['replies_per_s']:11.0f}{result['cpu_ms_per_reply']:14.2f}{result['journal_bytes_per_reply']:21.0f}"
                f"{result['part_bytes_per_row']:16.0f}{result['open_s']:8.3f}{result['read_s']:8.3f}{result['merge_s']:9.3f}"
            )
    return {"name": "shards", "questions": QUESTIONS, "rounds": ROUNDS, "file_bytes_per_row": size, "settings": results}


if __name__ == "__main__":
    run()
