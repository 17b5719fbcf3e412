"""Does another look at a log cost what is new, or the whole log?  `python -m benchmarks.watch_looks`.

A log of about 200,000 rows lies in 20 parts, and again in 2,000, as 2,000 short processes leave it: once as they are, and once after the next
process has opened the folder to write, which joins small parts.  Each is looked at three times, in a process of its own: without a state, as
far as 99 % of it; with the state of the first look and 1 % new rows; and whole, as `read_recording` reads it.  The processor time is that of
the look alone, without the start of the process.  Asserted: the second look says what the whole log says.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.serve_latency import POLICY, observed
from suffice import Audit, Recorder, read_recording
from suffice.recordings.opened import run_starts, write_tables
from suffice.recordings.parts import part_paths
from suffice.verdicts.watches import read_log, watch

_QUESTIONS = 1000
_NOW = 4e9
_AUDIT = Audit(rate=0.05, seed=1)


def audited_log(folder: Path, rows: int) -> tuple[pa.Table, dict[str, Any]]:
    """Return the rows and the metadata of a log in which one request of 20 is audited."""
    with Recorder(folder / "few", policy=POLICY, audit=_AUDIT, missing="ignore") as recorder:
        for number in range(_QUESTIONS):
            with recorder.at_once(f"Question {number}?", question_id=f"q{number}") as run:
                while not run.done or run.auditing:
                    run.observe(replace(observed(min(run.next_round, 2)), index=run.next_round))
    few = read_recording(folder / "few")
    pieces = []
    for copy in range(-(-rows // few.table.num_rows)):
        piece = few.table
        for name in ("question_id", "cluster", "run", "question"):
            place = piece.column_names.index(name)
            named = pc.binary_join_element_wise(piece[name], f"-{copy}", "")
            piece = piece.set_column(place, piece.schema.field(name), named)
        place = piece.column_names.index("recorded_at")
        later = pc.add(piece["recorded_at"], 1000.0 * copy)
        pieces.append(piece.set_column(place, piece.schema.field("recorded_at"), later))
    return pa.concat_tables(pieces), few.metadata


def parted(folder: Path, table: pa.Table, metadata: dict[str, Any], n_parts: int) -> list[Path]:
    """Write a log as parts with about the same number of questions."""
    starts = [*run_starts(table["question_id"]).tolist(), table.num_rows]
    paths = []
    for part in range(n_parts):
        first, last = (starts[(len(starts) - 1) * (part + i) // n_parts] for i in range(2))
        paths.append(folder / f"part-20260101T{part:012d}-a-00000000-1-000000.parquet")
        write_tables(paths[-1], table.schema, [table.slice(first, last - first)], metadata, private=True)
    return paths


def joined(folder: Path) -> float:
    """Open a folder to write, as the next process does, and return the seconds until its small parts are joined."""
    began = time.perf_counter()
    Recorder(folder, policy=POLICY, audit=_AUDIT, missing="ignore").close()
    return time.perf_counter() - began


def looked(folder: Path, *, whole: bool = False) -> dict[str, Any]:
    """Look at a log in a process of its own; return the figures and what the watch says."""
    code = "from benchmarks.watch_looks import main_look; main_look()"
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-c", code, str(folder), str(int(whole))]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main_look() -> None:
    """Look at the log that the arguments name, and print the figures."""
    began, processor = time.perf_counter(), time.process_time()
    log, notes = (read_recording(sys.argv[1]), []) if int(sys.argv[2]) else read_log(sys.argv[1], POLICY)
    result = watch(log, POLICY, now=_NOW, max_loss=0.02)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    says = json.dumps(result.to_dict(), default=str)
    print(json.dumps({"processor": processor, "seconds": seconds, "says": says, "notes": notes}))


def main() -> None:
    """Print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--parts", type=int, nargs="+", default=[20, 2000])
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        table, metadata = audited_log(Path(name), arguments.rows)
        n_old = int(table.num_rows * 0.99)
        while table["question_id"][n_old] == table["question_id"][n_old - 1]:
            n_old += 1
        for n_parts, is_joined in [*((n, False) for n in arguments.parts), (max(arguments.parts), True)]:
            folder = Path(name) / f"log-{n_parts}-{is_joined}"
            n_new = max(1, n_parts // 100)
            parted(folder, table.slice(0, n_old), metadata, n_parts - n_new)
            seconds = joined(folder) if is_joined else 0.0
            first = looked(folder)
            for path in parted(Path(name) / f"new-{n_parts}-{is_joined}", table.slice(n_old), metadata, n_new):
                path.rename(folder / path.name.replace("20260101", "20260102"))
            second, whole = looked(folder), looked(folder, whole=True)
            assert second["says"] == whole["says"]
            assert not second["notes"], second["notes"]
            what = {"parts": n_parts, "parts now": len(part_paths(folder)), "seconds to join": seconds}
            for look, figures in (("first", first), ("1 % new", second), ("whole log", whole)):
                results.append({**what, "look": look, **{k: figures[k] for k in ("processor", "seconds")}})
    print("| parts | parts now | look | processor s | s | times that of the fewest parts |")
    print("| ---: | ---: | --- | ---: | ---: | ---: |")
    for row in results:
        share = row["processor"] / next(r["processor"] for r in results if r["look"] == row["look"])
        print(
            f"| {row['parts']:,} | {row['parts now']:,} | {row['look']} | {row['processor']:.2f} | {row['seconds']:.2f} | {share:.2f} |"
        )
    print(
        json.dumps(
            {"rows": table.num_rows, "results": results, "python": platform.python_version(), "cores": os.cpu_count()}
        )
    )


if __name__ == "__main__":
    main()
