"""How much slower is `MiniLM` than onnxruntime called directly, and how long does a live decision on drafts take?

The peer gets the token ids of each draft and returns token means.  Ours gets text: it tokenises, cuts, pools and
normalises.  Both run two drafts side by side, one thread each, on 10,000 drafts of 100 tokens, block by block in turns,
so that a busy machine slows both; the vectors of each block are asserted equal.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import numpy as np
import onnxruntime

from suffice import Policy, Round, Session
from suffice.policy.rules.named import converged
from suffice_reader.minilm import MiniLM

THREADS = 2
N_DRAFTS = 10_000
BLOCK = 500
N_TOKENS = 100
N_DECISIONS = 2000


def drafts(embedder: MiniLM, n: int, seed: int = 0) -> list[str]:
    """Different texts of exactly `N_TOKENS` tokens, special ones not counted."""
    rng = np.random.default_rng(seed)
    words = [
        "the",
        "play",
        "was",
        "written",
        "by",
        "a",
        "poet",
        "who",
        "lived",
        "near",
        "this",
        "old",
        "river",
        "and",
        "saw",
        "its",
        "long",
        "history",
        "in",
        "his",
        "town",
    ]
    made = [" ".join(rng.choice(words, N_TOKENS)) for _ in range(n)]
    if any(len(embedder.chunks(text)[0]) != N_TOKENS + 2 for text in made):
        raise AssertionError("each of the words must be one token")
    return made


def timed(work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Wall-clock time of one call, and what it returned."""
    began = time.perf_counter()
    made = work()
    return time.perf_counter() - began, made


def decision_us() -> float:
    """Median time of a decision on a draft whose embedding is known, microseconds; every sixth opens a session."""
    rng = np.random.default_rng(0)
    embeddings = rng.standard_normal((6, 384)).astype(np.float32)
    rounds = [Round(index=t, answer=f"draft {t}", embedding=embeddings[t - 1]) for t in range(1, 7)]
    policy = Policy(rule=converged(0.06, 2), max_rounds=7)
    times = []
    for _ in range(N_DECISIONS):
        session = Session(policy)
        for observed in rounds:
            began = time.perf_counter()
            decision = session.observe(observed)
            times.append(time.perf_counter() - began)
            if decision.stop:
                raise AssertionError("random directions have not converged")
    return float(np.median(times)) * 1e6


def run() -> dict[str, object]:
    """Assert equal vectors, time both in turns, print a table, return the figures."""
    embedder = MiniLM(threads=THREADS)
    texts = drafts(embedder, N_DRAFTS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    weights = (files("suffice") / "models" / "minilm" / "model.onnx").read_bytes()
    session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
    pool = ThreadPoolExecutor(THREADS)
    mine = theirs = 0.0
    for start in range(0, N_DRAFTS, BLOCK):
        block = texts[start : start + BLOCK]
        inputs = [{"ids": embedder.chunks(text)[0][None]} for text in block]

        def peer(inputs: list[dict[str, np.ndarray]] = inputs) -> np.ndarray:
            return np.array(list(pool.map(lambda feed: session.run(["mean"], feed)[0][0], inputs)))

        def ours(block: list[str] = block) -> np.ndarray:
            return embedder.embed(block)

        first = start // BLOCK % 2  # who goes first changes, too
        (spent, made), (other, means) = (timed(ours), timed(peer)) if first else (timed(peer), timed(ours))[::-1]
        if np.abs(means / np.linalg.norm(means, axis=1, keepdims=True) - made).max() > 1e-6:
            raise AssertionError("MiniLM and onnxruntime disagree")
        mine, theirs = mine + spent, theirs + other
    decided = decision_us()
    share = decided / (1e6 * mine / N_DRAFTS)
    result: dict[str, object] = {
        "name": "embedder_drafts_per_second",
        "ours": round(N_DRAFTS / mine, 1),
        "peer": round(N_DRAFTS / theirs, 1),
        "ratio": round(theirs / mine, 3),
        "decision_us": round(decided, 1),
        "decision_share": round(share, 4),
        "target": "ratio >= 0.8, decision_share <= 0.01",
        "sizes": {"drafts": N_DRAFTS, "tokens": N_TOKENS, "threads": THREADS, "decisions": 6 * N_DECISIONS},
        "versions": {"python": platform.python_version(), "onnxruntime": onnxruntime.__version__},
        "model": embedder.revision,
    }
    print(f"{'':22}drafts/s\nMiniLM                {result['ours']:8}\nonnxruntime directly  {result['peer']:8}")
    print(f"a live decision: {result['decision_us']} us, {100 * share:.2f} % of embedding a draft (target 1 %)")
    return result


if __name__ == "__main__":
    print(json.dumps(run()))
