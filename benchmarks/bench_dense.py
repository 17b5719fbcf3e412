"""What do vectors on disk cost: building, disk, memory and questions per second, exactly, by lists, and beside FAISS in memory?

The vectors are drawn around one centre for 200 of them, as embeddings of texts on few subjects are, and stand for a model
whose own time is left out.  Each stage runs in a process of its own.  Questions are drawn around the same centres and are no
passages.  Asserted: exact search finds what `faiss.IndexFlatIP` finds, which holds all vectors in memory.  `recall` is the
share of the ten best passages that the lists find.  Where the machine is shared, processor seconds say more than seconds.

    python -m benchmarks.bench_dense --vectors 100000 1000000
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.bench_index import Watcher
from suffice import __version__
from suffice_retrieval.indexes import DenseRetriever, index_dense

DIMENSION = 384
PER_CENTRE = 200
NOISE = 0.7
QUESTIONS, BATCH = 64, 64
K = 10
SEED = 42
RECALL = 0.95

_Floats = npt.NDArray[np.float32]


def drawn(n: int, seed: int, vectors: int, noise: float) -> _Floats:
    """Return unit vectors around the centres of a corpus of `vectors` vectors."""
    centres = np.random.default_rng(SEED).standard_normal((max(1, vectors // PER_CENTRE), DIMENSION), dtype=np.float32)
    rng = np.random.default_rng(seed)
    rows = centres[rng.integers(0, len(centres), n)] + np.float32(noise) * rng.standard_normal(
        (n, DIMENSION), dtype=np.float32
    )
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Drawn:
    """Returns the vectors whose places the texts are, from a file."""

    def __init__(self, path: Path) -> None:
        self.rows = np.load(path, mmap_mode="r")

    def encode(self, texts: list[str]) -> _Floats:
        return self.rows[[int(text.split("\n")[-1]) for text in texts]]


def opened(folder: Path, *, exact: bool) -> DenseRetriever:
    encoder = Drawn(folder / "questions.npy")
    return DenseRetriever.load(folder / "index", "drawn", encoder=encoder, revision="1", exact=exact)


def build(folder: Path, recall: float | None) -> dict[str, Any]:
    """Write the index; with a recall, add lists to it."""
    encoder = Drawn(folder / "vectors.npy")
    index = index_dense(
        folder / "corpus.jsonl", folder / "index", "drawn", encoder=encoder, revision="1", recall=recall
    )
    settings = index.approximate
    more = {} if settings is None else {"form": settings.form, "probes": settings.probes, "promised": settings.recall}
    return {"seconds": index.seconds, "disk_gb": round(index.n_bytes / 1e9, 3), **more}


def timed(search: Callable[[_Floats], Any], questions: _Floats) -> dict[str, Any]:
    """Return the questions per second and per processor second, one by one and together, and what was found."""
    search(questions[:1])
    figures: dict[str, Any] = {}
    for name, size in (("single", 1), ("batch", BATCH)):
        wall, processor = time.perf_counter(), time.process_time()
        found = [search(questions[i : i + size]) for i in range(0, len(questions), size)]
        figures[f"{name}_per_s"] = round(len(questions) / (time.perf_counter() - wall), 1)
        figures[f"{name}_per_processor_s"] = round(len(questions) / (time.process_time() - processor), 1)
    return figures | {"found": [row.tolist() for places in found for row in places]}


def search(folder: Path, *, exact: bool) -> dict[str, Any]:
    retriever = opened(folder, exact=exact)
    searched = retriever.vectors if exact else retriever.lists
    assert searched is not None
    return timed(lambda rows: searched.search(rows, K)[0], np.load(folder / "questions.npy"))


def flat(folder: Path) -> dict[str, Any]:
    import faiss

    began = time.perf_counter()
    index = faiss.IndexFlatIP(DIMENSION)
    index.add(np.load(folder / "vectors.npy"))
    seconds = time.perf_counter() - began
    return {"seconds": seconds, **timed(lambda rows: index.search(rows, K)[1], np.load(folder / "questions.npy"))}


STAGES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "build": lambda folder: build(folder, None),
    "build_lists": lambda folder: build(folder, RECALL),
    "exact": lambda folder: search(folder, exact=True),
    "lists": lambda folder: search(folder, exact=False),
    "faiss_flat": flat,
}


def in_process(name: str, folder: Path) -> dict[str, Any]:
    """Run one stage in a process of its own, and add what it took."""
    arguments = [sys.executable, "-m", "benchmarks.bench_dense", "--stage", name, "--folder", str(folder)]
    root = Path(__file__).parent.parent
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, text=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )
    watcher, before = Watcher(process), os.times()
    output, _ = process.communicate()
    after = os.times()
    assert process.returncode == 0, f"{name}: exit {process.returncode}"
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    memory = {"anonymous_gb": round(watcher.anonymous / 1e9, 2), "mapped_gb": round(watcher.mapped / 1e9, 2)}
    return {**json.loads(output.splitlines()[-1]), "processor_s": round(spent, 1), **memory}


def measured(vectors: int, noise: float) -> dict[str, Any]:
    """Return the figures of one size."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rows = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (vectors, DIMENSION))
        for i, first in enumerate(range(0, vectors, 100_000)):
            rows[first : first + 100_000] = drawn(min(100_000, vectors - first), SEED + 1 + i, vectors, noise)
        del rows
        np.save(folder / "questions.npy", drawn(QUESTIONS, SEED + 10**6, vectors, noise))
        with (folder / "corpus.jsonl").open("w") as lines:
            lines.writelines(json.dumps({"id": str(i), "title": str(i), "text": str(i)}) + "\n" for i in range(vectors))
        figures = {name: in_process(name, folder) for name in STAGES}
    found = {name: np.array(figures[name].pop("found")) for name in ("exact", "lists", "faiss_flat")}
    assert (found["exact"] == found["faiss_flat"]).mean() > 1 - 1e-3, "the two differ by ties alone"
    pairs = zip(found["lists"].tolist(), found["exact"].tolist(), strict=True)
    figures["lists"]["recall"] = round(float(np.mean([len(set(ours) & set(best)) / K for ours, best in pairs])), 4)
    for name in ("build", "build_lists"):
        figures[name]["vectors_per_s"] = round(vectors / figures[name]["seconds"])
    return figures


def run(vectors: tuple[int, ...] = (20_000,), noise: float = NOISE) -> dict[str, Any]:
    """Run the benchmark and return its figures."""
    sizes = {"vectors": vectors, "dimension": DIMENSION, "per_centre": PER_CENTRE, "noise": noise, "k": K}
    figures = {}
    for n in vectors:
        figures[str(n)] = measured(n, noise)
        for stage, own in figures[str(n)].items():
            print(f"{n:,} {stage}: {json.dumps(own)}", file=sys.stderr, flush=True)
    packages = {"suffice": __version__, **{name: version(name) for name in ("numpy", "faiss-cpu")}}
    return {"name": "dense", "sizes": {**sizes, "seed": SEED}, **figures, "versions": packages}


def main() -> None:
    """Print a line for each stage and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument(
        "--noise", type=float, default=NOISE, help="of each number, beside centres whose numbers have one"
    )
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    print(
        json.dumps(run(tuple(given.vectors), given.noise) if given.stage is None else STAGES[given.stage](given.folder))
    )


if __name__ == "__main__":
    main()
