"""Does `suffice import` read four times as many rounds in the same memory, how many a second, and at what cost beside a bare reader?

Questions x 5 rounds with a question, an answer, a gold answer, tokens and a confidence: a long CSV file, the same with the rows of
a question far apart, and nested JSON lines.  Each is imported in a process of its own, so that its peak memory is its own.
Asserted first: read in parts, a small file gives the recording that it gives in one piece.

`python -m benchmarks import` takes about a minute; `python -m benchmarks.bench_import 10000000` imports as many rows, once.
"""

from __future__ import annotations

import json
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from suffice.importers import import_recording
from suffice.importers.tables import table_parts
from suffice.recordings import read_recording

QUESTIONS, FACTOR, ROUNDS, SEED = 10_000, 4, 5, 42
FORMS = ("long", "apart", "nested")
TARGET_GROWTH, TARGET_TIMES = 1.25, 60.0
_HEADER = "qid,step,query,prediction,target,prompt_tokens,cached_tokens,completion_tokens,confidence\n"

_CHILD = """
import csv, json, resource, sys, time
from suffice.importers import import_recording
from suffice.importers.tables import table_parts
table_parts.LARGE = 0
began = time.process_time()
summary = import_recording(sys.argv[1], out=sys.argv[2], first_round=1)
seconds = time.process_time() - began
rows = sum(item.n for item in summary.by_round)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
began = time.process_time()
with open(sys.argv[1], newline="") as file:
    for _ in map(json.loads, file) if sys.argv[3] == "nested" else csv.DictReader(file):
        pass
bare = time.process_time() - began
print(json.dumps({"rows": rows, "seconds": seconds, "bare": bare, "mb": peak}))
"""


def drafts(questions: int) -> Iterator[tuple[str, str, str, list[list[Any]]]]:
    """Yield the id, the text, the gold answer and the rounds of questions; two answers in three are the one before."""
    draw = random.Random(SEED)
    for q in range(questions):
        golds, answer, rounds = f"town {q % 5003}", "", []
        for r in range(1, ROUNDS + 1):
            if not answer or draw.random() < 1 / 3:
                answer = golds if draw.random() < r / 6 else f"village {draw.randrange(20_000)}"
            rounds.append([r, answer, 100 * r, 90 * (r - 1), draw.randint(2, 9), round(draw.random(), 3)])
        yield f"q{q}", f"Where is tower number {q} of the old wall?", golds, rounds


def write(path: Path, questions: int, form: str) -> None:
    """Write the rounds of so many questions."""
    if form == "nested":
        names = ("attempt", "prediction", "prompt_tokens", "cached_tokens", "completion_tokens", "confidence")
        with path.open("w", encoding="utf-8") as file:
            for own, query, gold, rounds in drafts(questions):
                steps = [dict(zip(names, values, strict=True)) for values in rounds]
                file.write(json.dumps({"qid": own, "query": query, "target": gold, "steps": steps}) + "\n")
        return
    with path.open("w", encoding="utf-8") as file:
        file.write(_HEADER)
        for last in (True, False) if form == "apart" else (None,):
            for own, query, gold, rounds in drafts(questions):
                for r, answer, *numbers in rounds:
                    if last is None or last == (r == ROUNDS):
                        file.write(f"{own},{r},{query},{answer},{gold},{','.join(map(str, numbers))}\n")


def check(folder: Path) -> None:
    """Compare the recordings of small files, read in parts and in one piece."""
    for form in FORMS:
        path = folder / "small"
        write(path, 500, form)
        tables = []
        for large in (1 << 40, 0):
            with mock.patch.object(table_parts, "LARGE", large), mock.patch.object(table_parts, "PART", 700):
                import_recording(path, out=folder / "small.parquet", first_round=1)
            tables.append(read_recording(folder / "small.parquet").table)
        assert tables[0].equals(tables[1]), form


def measured(folder: Path, questions: int, form: str) -> dict[str, float]:
    """Return rows, processor seconds and peak memory of an import."""
    path = folder / "log"
    write(path, questions, form)
    command = [sys.executable, "-c", _CHILD, str(path), str(folder / "out.parquet"), form]
    figures: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rate, times = figures["rows"] / figures["seconds"], figures["seconds"] / figures["bare"]
    print(
        f"{form:>8} {figures['rows']:12,.0f} rows {rate:8,.0f} a second of the processor, {times:4.0f} times a bare reader, "
        f"{figures['mb']:6,.0f} MB"
    )
    return {**figures, "rate": rate, "times": times}


def run() -> dict[str, Any]:
    """Return the figures of this machine."""
    results = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check(folder)
        for form in FORMS:
            small, large = (measured(folder, questions, form) for questions in (QUESTIONS, QUESTIONS * FACTOR))
            growth = large["mb"] / small["mb"]
            print(f"{form:>8} memory of {FACTOR} times the rows: {growth:.2f} times (at most {TARGET_GROWTH})")
            results[form] = {
                "rows": large["rows"],
                "rows_per_second": large["rate"],
                "times_bare_reader": large["times"],
                "mb": [small["mb"], large["mb"]],
                "memory_ratio": growth,
            }
    return {
        **results,
        "target": {"memory_ratio": TARGET_GROWTH, "times_bare_reader": TARGET_TIMES},
        "met": all(result["memory_ratio"] <= TARGET_GROWTH for result in results.values())
        and results["long"]["times_bare_reader"] <= TARGET_TIMES,
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(json.dumps(run()))
    else:
        with tempfile.TemporaryDirectory() as place:
            measured(Path(place), int(sys.argv[1]) // ROUNDS, sys.argv[2] if len(sys.argv) > 2 else "long")
