"""What does a mark cost that was paid for before?

A judge over a real local endpoint marks 500 drafts of about 200 words with five passages of 100 words each; then every
one of them is marked again from the sqlite cache.  Timed is the whole `judge`: the key over question, contexts and
draft, the look-up, and the reading of the stored reply.  Asserted: the endpoint is asked once for each draft, and the
marks from the cache are the same.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.endpoint import Endpoint

from suffice import Passage
from suffice.loops.judges import MARKS, Draft, JudgeModel, MarkJudge
from suffice.loops.models import ChatModel
from suffice.recordings import ResponseCache

DRAFTS = 500
TARGET_RATIO = 0.5


def words(rng: np.random.Generator, count: int) -> str:
    """Return words of a text."""
    return " ".join(f"w{number}" for number in rng.integers(0, 5000, count))


async def marked(judge: MarkJudge, drafts: list[Draft]) -> tuple[list[float], list[float]]:
    """Return the marks, and the seconds of each."""
    marks, seconds = [], []
    for draft in drafts:
        begin = time.perf_counter()
        found = await judge.judge(draft)
        seconds.append(time.perf_counter() - begin)
        marks.append(found.mark)
    return marks, seconds


def run() -> dict[str, Any]:
    """Measure, print and return the figures, in milliseconds."""
    rng = np.random.default_rng(0)
    passages = tuple(Passage(passage_id=str(i), title=f"T{i}", text=words(rng, 100)) for i in range(5))
    drafts = [Draft(question=f"q{i}?", text=words(rng, 200), contexts=passages) for i in range(DRAFTS)]
    verdicts = [{"statement": words(rng, 12), "supported": bool(i % 3)} for i in range(10)]
    with (
        tempfile.TemporaryDirectory() as folder,
        Endpoint(json.dumps({"statements": verdicts})) as endpoint,
        ResponseCache(Path(folder) / "cache.sqlite") as cache,
    ):
        judge = MarkJudge(JudgeModel(ChatModel("j", base_url=endpoint.url), cache=cache), MARKS["faithfulness"])
        first, asked = asyncio.run(marked(judge, drafts))
        again, hits = asyncio.run(marked(judge, drafts))
        assert first == again
        assert len(endpoint.requests) == DRAFTS
    median, p99 = (1e3 * float(np.quantile(hits, q)) for q in (0.5, 0.99))
    call = 1e3 * float(np.median(asked))
    print(f"a mark from the judge's cache: median {median:.3f} ms, 99 % {p99:.3f} ms")
    print(
        f"  from a local endpoint that answers at once: median {call:.3f} ms, ratio {median / call:.2f} (target {TARGET_RATIO})"
    )
    return {
        "name": "judge_cache",
        "ours": median,
        "p99": p99,
        "peer": call,
        "ratio": median / call,
        "unit": "milliseconds, median",
        "target": {"ratio": TARGET_RATIO},
        "met": median <= TARGET_RATIO * call,
        "sizes": {"drafts": DRAFTS, "passages": 5, "words": 200},
    }


if __name__ == "__main__":
    print(json.dumps(run()))
