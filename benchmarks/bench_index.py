"""What does an index of a corpus cost by each engine: time, disk, memory and questions per second?

The corpus is that of `index_corpus`.  Each engine builds and searches in a process of its own, which may allocate
`--limit-gb` of memory (RLIMIT_DATA; files that are mapped do not count) and is stopped when the machine runs short, so
that what does not fit is reported as such.  Both have the same words and return the passages.  tantivy has k1 = 1.2 where
bm25s has 1.5, and lengths in one byte, so only the overlap of the best ten is stated.  Cold is the first pass over 100
questions after the pages of the index have left the cache.  Where the machine is shared, processor seconds say more than
seconds.

    python -m benchmarks.bench_index --passages 1000000
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.index_corpus import questions, write_corpus
from suffice_retrieval.indexes import CorpusBM25, index_corpus
from suffice_retrieval.indexes.engines import EngineName

SYSTEMS: tuple[EngineName, ...] = ("bm25s", "tantivy")
K = 10
COLD = 100
SEED = 42
SPARE = 2 * 10**9
"""Bytes of the machine that no system may take."""


def build(system: EngineName, corpus: Path, out: Path) -> None:
    index_corpus(corpus, out, engine=system)


def open_index(out: Path) -> Callable[[str], Any]:
    index = CorpusBM25.load(out)

    def search(question: str) -> Any:
        ranked = index.rank(question, k=K)
        return [passage.passage_id for passage in ranked], [passage.score for passage in ranked]

    return search


def evict(folder: Path) -> None:
    """Let the pages of files leave the cache."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def search_stage(out: Path) -> dict[str, Any]:
    asked = questions()
    evict(out)
    begin = time.perf_counter()
    search = open_index(out)
    opened = time.perf_counter() - begin
    evict(out)
    begin = time.perf_counter()
    for question in asked[:COLD]:
        search(question)
    cold = time.perf_counter() - begin
    found = [search(question) for question in asked]
    times, processor = [], time.process_time()
    for question in asked:
        begin = time.perf_counter()
        search(question)
        times.append(time.perf_counter() - begin)
    return {
        "open_s": round(opened, 2),
        "cold_per_s": round(COLD / cold, 1),
        "warm_per_s": round(len(times) / sum(times), 1),
        "median_ms": round(float(np.median(times)) * 1e3, 2),
        "p95_ms": round(float(np.quantile(times, 0.95)) * 1e3, 2),
        "processor_ms": round((time.process_time() - processor) / len(asked) * 1e3, 2),
        "found": found,
    }


def stage(name: str, system: EngineName, corpus: Path, out: Path, *, limit: int) -> dict[str, Any]:
    """Run one stage in this process."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    begin = time.perf_counter()
    if name == "search":
        return search_stage(out)
    build(system, corpus, out)
    return {"build_s": round(time.perf_counter() - begin, 1)}


class Watcher:
    """Notes the most memory of a process and those that it starts, and stops them when the machine runs short."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.anonymous = self.mapped = 0
        self.is_stopped = False
        self._process = process
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while self._process.poll() is None:
            anonymous, mapped = map(sum, zip((0, 0), *map(resident, family(self._process.pid)), strict=True))
            self.anonymous, self.mapped = max(self.anonymous, anonymous), max(self.mapped, mapped)
            if psutil.virtual_memory().available < SPARE:
                self.is_stopped = True
                for member in reversed(family(self._process.pid)):
                    member.kill()
            time.sleep(0.1)


def family(pid: int) -> list[psutil.Process]:
    try:
        own = psutil.Process(pid)
        return [own, *own.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def resident(process: psutil.Process) -> tuple[int, int]:
    """Return bytes in memory that are its own, and those of files."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0, 0
    values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Rss")}
    return values.get("RssAnon", 0), values.get("RssFile", 0)


def in_process(name: str, system: EngineName, corpus: Path, out: Path, *, limit_gb: float) -> dict[str, Any]:
    """Run one stage in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        code = (
            "import json, sys; from pathlib import Path; from benchmarks.bench_index import stage\n"
            "if __name__ == '__main__':\n"
            "    name, system, corpus, out, limit, result = sys.argv[1:]\n"
            "    figures = stage(name, system, Path(corpus), Path(out), limit=int(limit))\n"
            "    Path(result).write_text(json.dumps(figures))\n"
        )
        program = Path(folder) / "stage.py"
        program.write_text(code)
        arguments = [name, system, corpus, out, int(limit_gb * 1e9), result]
        process = subprocess.Popen(
            [sys.executable, str(program), *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )
        watcher = Watcher(process)
        before = os.times()
        _, errors = process.communicate()
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        figures: dict[str, Any] = {
            "processor_s": round(spent, 1),
            "anonymous_gb": round(watcher.anonymous / 1e9, 2),
            "mapped_gb": round(watcher.mapped / 1e9, 2),
        }
        if process.returncode == 0:
            return figures | json.loads(result.read_text())
    last = (errors.strip().splitlines() or ["no message"])[-1]
    is_memory = watcher.is_stopped or "Memory" in last or "allocat" in errors or process.returncode == -9
    why = f"out of memory (limit {limit_gb:g} GB)" if is_memory else f"exit {process.returncode}: {last}"
    return figures | {"failed": why}


def agreement(found: dict[str, Any]) -> float:
    """Return the mean share of bm25s' ten best passages that are among tantivy's."""
    pairs = zip(found["bm25s"], found["tantivy"], strict=True)
    return round(float(np.mean([len(set(ours[0]) & set(theirs[0])) / K for ours, theirs in pairs])), 3)


def run(
    passages: int = 20_000,
    systems: tuple[EngineName, ...] = SYSTEMS,
    *,
    limit_gb: float = 8,
    folder: Path | None = None,
    seed: int = SEED,
) -> dict[str, Any]:
    """Run the benchmark and return its figures."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary) if folder is None else folder
        work.mkdir(exist_ok=True)
        corpus = work / f"passages-{passages}-{seed}.jsonl"
        if not corpus.exists():
            write_corpus(corpus.with_suffix(".part"), passages, seed)
            corpus.with_suffix(".part").rename(corpus)
        figures: dict[str, Any] = {}
        found: dict[str, Any] = {}
        for system in systems:
            out = work / f"{system}-{passages}"
            shutil.rmtree(out, ignore_errors=True)
            built = in_process("build", system, corpus, out, limit_gb=limit_gb)
            own = figures[system] = {f"build_{key.removeprefix('build_')}": value for key, value in built.items()}
            if "failed" not in built:
                size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
                searched = in_process("search", system, corpus, out, limit_gb=limit_gb)
                searched.pop("processor_s")
                own |= {"disk_gb": round(size / 1e9, 3), **searched}
                if "found" in searched:
                    found[system] = own.pop("found")
            shutil.rmtree(out, ignore_errors=True)
            print(system, json.dumps(own), flush=True)
        corpus_gb = round(corpus.stat().st_size / 1e9, 3)
    return {
        "name": "index_sizes",
        "sizes": {
            "passages": passages,
            "k": K,
            "seed": seed,
            "limit_gb": limit_gb,
            "corpus_gb": corpus_gb,
        },
        **figures,
        **({"same_of_ten": agreement(found)} if len(found) == len(SYSTEMS) else {}),
        "versions": {name: version(name) for name in ("suffice", "bm25s", "tantivy", "numpy")},
    }


def main() -> None:
    """Print a line for each system and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--limit-gb", type=float, default=8)
    parser.add_argument("--folder", type=Path, help="where the corpus stays, for another run")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    systems = tuple(name for name in SYSTEMS if name in given.systems.split(","))
    print(json.dumps(run(given.passages, systems, folder=given.folder, seed=given.seed, limit_gb=given.limit_gb)))


if __name__ == "__main__":
    main()
