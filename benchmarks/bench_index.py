"""What does an index of millions of passages cost: time, disk, memory and questions per second, beside bm25s and tantivy?

The corpus is that of `index_corpus`.  Each system builds and searches in a process of its own, which may allocate
`--limit-gb` of memory (RLIMIT_DATA; files that are mapped do not count) and is stopped when the machine runs short, so
that what does not fit is reported as such.  All have the same tokens; suffice and tantivy also store the passages and
return them with a search, bm25s returns their numbers.  Asserted: suffice and bm25s give the same scores, bit for bit.
tantivy has k1 = 1.2 where the others have 1.5, and lengths rounded to one byte, so only the overlap of the best ten is
stated.  Cold is the first pass over 100 questions after the pages of the index have left the cache.  Where the machine is
shared, processor seconds say more than seconds.

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
from suffice.loops.retrieval.tokens import STOP_WORDS, passage_text, words
from suffice_retrieval.indexes import CorpusBM25, index_corpus

SYSTEMS = ("suffice", "tantivy", "bm25s")
K = 10
COLD = 100
SEED = 42
SPARE = 2 * 10**9
"""Bytes of the machine that no system may take."""


def rows(corpus: Path) -> Any:
    """Yield id and text of each passage."""
    with corpus.open() as lines:
        for line in lines:
            row = json.loads(line)
            yield row["id"], row["title"], row["text"]


def build_suffice(corpus: Path, out: Path, jobs: int) -> None:
    index_corpus(corpus, out, jobs=jobs)


def open_suffice(out: Path) -> Callable[[str], Any]:
    index = CorpusBM25.load(out)
    index.rank("compile numba now", k=K)

    def search(question: str) -> Any:
        ranked = index.rank(question, k=K)
        return [passage.passage_id for passage in ranked], [passage.score for passage in ranked]

    return search


def tantivy_index(out: Path, *, is_new: bool) -> Any:
    import tantivy

    if is_new:
        out.mkdir()
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_text_field("title", stored=True, tokenizer_name="words", index_option="freq")
        builder.add_text_field("passage", stored=True, tokenizer_name="words", index_option="freq")
        index = tantivy.Index(builder.build(), path=str(out))
    else:
        index = tantivy.Index.open(str(out))
    analyzer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.regex(r"\w\w+"))
    analyzer = analyzer.filter(tantivy.Filter.lowercase()).filter(tantivy.Filter.custom_stopword(sorted(STOP_WORDS)))
    index.register_tokenizer("words", analyzer.build())
    return index


def build_tantivy(corpus: Path, out: Path, jobs: int) -> None:
    import tantivy

    index = tantivy_index(out, is_new=True)
    writer = index.writer(heap_size=512 * 2**20, num_threads=jobs)
    for name, title, text in rows(corpus):
        writer.add_document(tantivy.Document(id=name, passage=passage_text(title, text)))
    writer.commit()
    writer.wait_merging_threads()


def open_tantivy(out: Path) -> Callable[[str], Any]:
    import tantivy

    index = tantivy_index(out, is_new=False)
    searcher, schema = index.searcher(), index.schema

    def search(question: str) -> Any:
        terms = [(tantivy.Occur.Should, tantivy.Query.term_query(schema, "passage", word)) for word in words(question)]
        hits = searcher.search(tantivy.Query.boolean_query(terms), K).hits
        found = [(searcher.doc(address), score) for score, address in hits]
        return [document["id"][0] for document, _ in found], [score for _, score in found]

    return search


def build_bm25s(corpus: Path, out: Path, jobs: int) -> None:
    import bm25s

    del jobs  # it has one process
    texts = [passage_text(title, text) for _, title, text in rows(corpus)]
    tokens = bm25s.tokenize(texts, show_progress=False)
    index = bm25s.BM25(backend="numba")
    index.index(tokens, show_progress=False)
    index.save(out)


def open_bm25s(out: Path) -> Callable[[str], Any]:
    import bm25s

    index = bm25s.BM25.load(out, mmap=True)

    def search(question: str) -> Any:
        ids, scores = index.retrieve([words(question)], k=K, show_progress=False)
        return list(map(str, ids[0].tolist())), scores[0].tolist()

    search("compile numba now")
    return search


def evict(folder: Path) -> None:
    """Let the pages of files leave the cache."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def search_stage(system: str, out: Path) -> dict[str, Any]:
    asked = questions()
    evict(out)
    begin = time.perf_counter()
    search = {"suffice": open_suffice, "tantivy": open_tantivy, "bm25s": open_bm25s}[system](out)
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


def stage(name: str, system: str, corpus: Path, out: Path, *, jobs: int, limit: int) -> dict[str, Any]:
    """Run one stage in this process."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    begin = time.perf_counter()
    if name == "search":
        return search_stage(system, out)
    {"suffice": build_suffice, "tantivy": build_tantivy, "bm25s": build_bm25s}[system](corpus, out, jobs)
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


def in_process(name: str, system: str, corpus: Path, out: Path, *, jobs: int, limit_gb: float) -> dict[str, Any]:
    """Run one stage in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        code = (
            "import json, sys; from pathlib import Path; from benchmarks.bench_index import stage\n"
            "if __name__ == '__main__':\n"
            "    name, system, corpus, out, jobs, limit, result = sys.argv[1:]\n"
            "    figures = stage(name, system, Path(corpus), Path(out), jobs=int(jobs), limit=int(limit))\n"
            "    Path(result).write_text(json.dumps(figures))\n"
        )
        program = Path(folder) / "stage.py"
        program.write_text(code)
        arguments = [name, system, corpus, out, jobs, int(limit_gb * 1e9), result]
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


def agreement(found: dict[str, Any]) -> dict[str, Any]:
    """Compare the best ten of each system with those of suffice."""
    ours = found["suffice"]
    shares: dict[str, Any] = {}
    if "bm25s" in found:
        same = 0
        for (our_ids, our_scores), (ids, scores) in zip(ours, found["bm25s"], strict=True):
            assert np.array_equal(np.float32(our_scores), np.float32(scores)), (our_scores, scores)
            # bm25s breaks ties at random.
            above = {i for i, score in zip(ids, scores, strict=True) if score > scores[-1]}
            assert above <= set(our_ids), (our_ids, ids)
            same += 1
        shares["same_as_bm25s"] = same / len(ours)
    if "tantivy" in found:
        pairs = zip(ours, found["tantivy"], strict=True)
        shares["of_tantivys_ten"] = round(
            float(np.mean([len(set(a[0]) & set(b[0])) / max(len(b[0]), 1) for a, b in pairs])), 3
        )
    return shares


def run(
    passages: int = 20_000,
    systems: tuple[str, ...] = SYSTEMS,
    *,
    limit_gb: float = 8,
    jobs: int | None = None,
    folder: Path | None = None,
    seed: int = SEED,
) -> dict[str, Any]:
    """Run the benchmark and return its figures."""
    jobs = jobs or os.cpu_count() or 1
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
            built = in_process("build", system, corpus, out, jobs=jobs, limit_gb=limit_gb)
            own = figures[system] = {f"build_{key.removeprefix('build_')}": value for key, value in built.items()}
            if "failed" not in built:
                size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
                searched = in_process("search", system, corpus, out, jobs=jobs, limit_gb=limit_gb)
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
            "jobs": jobs,
            "limit_gb": limit_gb,
            "corpus_gb": corpus_gb,
        },
        **figures,
        **(agreement(found) if "suffice" in found else {}),
        "versions": {name: version(name) for name in ("suffice", "bm25s", "tantivy", "numba", "numpy")},
    }


def main() -> None:
    """Print a line for each system and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--limit-gb", type=float, default=8)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--folder", type=Path, help="where the corpus stays, for another run")
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    systems = tuple(given.systems.split(","))
    limits: dict[str, Any] = {"limit_gb": given.limit_gb, "jobs": given.jobs}
    print(json.dumps(run(given.passages, systems, folder=given.folder, seed=given.seed, **limits)))


if __name__ == "__main__":
    main()
