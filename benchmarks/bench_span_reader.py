"""How much slower is `SpanReader` than onnxruntime called directly on the same token ids?

The peer gets tokenised windows and returns raw logits.  Ours gets text: it tokenises, scores, masks, decodes and
remembers.  Both run two windows side by side, one thread each.  Their answers are asserted equal first.
"""

from __future__ import annotations

import gzip
import json
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import numpy as np
import onnxruntime

from suffice_reader.span_reader import SpanReader, decode, passage_spans

THREADS = 2
N_QUESTIONS = 12
REPEATS = 5

Question = tuple[str, list[tuple[str, str]]]


def questions() -> list[Question]:
    """Bundled HotpotQA questions with their paragraphs."""
    path = files("suffice") / "data" / "questions" / "hotpotqa_tune.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()[:N_QUESTIONS]]
    return [(row["question"], [(p["title"], p["text"]) for p in row["paragraphs"]]) for row in rows]


def seconds(work: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def run() -> dict[str, object]:
    """Assert equal answers, time both in turn (the best of each: other work on the machine only slows), print a table, return the figures."""
    asked = questions()
    n_passages = sum(len(passages) for _, passages in asked)
    reader = SpanReader(threads=THREADS, cache_size=0)
    folder = files("suffice") / "models" / "span_reader"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        (folder / "model.onnx").read_bytes(), options, providers=["CPUExecutionProvider"]
    )
    windows = [[reader._featurizer.windows(q, *passage) for passage in passages] for q, passages in asked]
    inputs = [
        {"ids": window.ids[None], "types": window.types[None]} for per in windows for group in per for window in group
    ]
    pool = ThreadPoolExecutor(THREADS)

    def peer() -> list[np.ndarray]:
        return list(pool.map(lambda feed: session.run(["span_logits"], feed)[0][0], inputs))

    def ours() -> list[object]:
        return [reader.read(q, passages) for q, passages in asked]

    logits = iter(peer())
    for (q, passages), per, reading in zip(asked, windows, ours(), strict=True):
        spans = [
            passage_spans(group, [next(logits) for _ in group], *passage, reader.config.candidates)
            for group, passage in zip(per, passages, strict=True)
        ]
        answer, margin, _, index = decode(spans)
        if (answer, index) != (reading.answer, reading.passage_index) or abs(margin - reading.answer_margin) > 1e-6:
            raise AssertionError(f"SpanReader and onnxruntime disagree on {q!r}")

    times = [(seconds(ours), seconds(peer)) for _ in range(REPEATS)]
    mine, theirs = (min(column) for column in zip(*times, strict=True))
    result: dict[str, object] = {
        "name": "span_reader_passages_per_second",
        "ours": round(n_passages / mine, 1),
        "peer": round(n_passages / theirs, 1),
        "ratio": round(theirs / mine, 3),
        "target": "ratio >= 0.8",
        "sizes": {"passages": n_passages, "tokens": sum(feed["ids"].size for feed in inputs), "threads": THREADS},
        "versions": {
            "python": platform.python_version(),
            "onnxruntime": onnxruntime.__version__,
            "numpy": np.__version__,
        },
        "model": reader.revision,
    }
    print(f"{'':22}passages/s\nSpanReader            {result['ours']:10}\nonnxruntime directly  {result['peer']:10}")
    return result


if __name__ == "__main__":
    print(json.dumps(run()))
