"""How many prompt tokens does a server evaluate over five rounds, with prefix-stable prompts and without?

Ours: each round's prompt extends the round before, and llama.cpp's server reads the start from its cache.  Peers: the
same prompts with the cache switched off, and the same passages with the newest one first, cache on.  Asserted first:
reuse changes neither answers nor margins, and ours evaluates at most half of either peer.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import json
import platform
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.support.llamacpp import build_model, start_server

from suffice.loops.models.chat import ChatModel, Completion
from suffice.policy.rounds import Passage
from suffice.policy.signals.margins import token_margin

N_QUESTIONS = 6
ROUNDS = 5
WORDS = 60
Asked = tuple[str, list[Passage]]


def questions() -> list[Asked]:
    """Return bundled HotpotQA questions with their first paragraphs, cut so that five fit into the tiny model."""
    path = files("suffice") / "data" / "questions" / "hotpotqa_tune.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()[:N_QUESTIONS]]
    return [(row["question"], [_passage(i, p) for i, p in enumerate(row["paragraphs"][:ROUNDS])]) for row in rows]


def _passage(i: int, paragraph: dict[str, str]) -> Passage:
    text = " ".join(paragraph["text"].split()[:WORDS])
    return Passage(passage_id=str(i), title=paragraph["title"], text=text)


def rounds(
    model: ChatModel, asked: Sequence[Asked], order: Callable[[list[Passage]], list[Passage]], **extra: Any
) -> list[Completion]:
    """Run rounds 1 to 5 of every question, one after the other."""
    return [
        model.complete(model.prompt.messages(question, order(passages[:r])), extra_body=extra)
        for question, passages in asked
        for r in range(1, ROUNDS + 1)
    ]


def evaluated(replies: Sequence[Completion]) -> int:
    """Prompt tokens that the server processed."""
    return int(sum(reply.cost.uncached_tokens for reply in replies))


def assert_same(model: ChatModel, ours: Sequence[Completion], peer: Sequence[Completion]) -> None:
    """Reuse must change nothing but the cost."""
    for a, b in zip(ours, peer, strict=True):
        first, second = model.read(a), model.read(b)
        assert first.answer == second.answer
        assert a.cost.uncached_tokens + a.cost.cached_tokens == b.cost.uncached_tokens + b.cost.cached_tokens
        if first.answer_tokens and second.answer_tokens:
            assert abs(token_margin(first.answer_tokens[0]) - token_margin(second.answer_tokens[0])) < 1e-3


def run() -> dict[str, Any]:
    """Assert correctness, print a table, return the figures."""
    asked = questions()
    with tempfile.TemporaryDirectory() as folder, start_server(build_model(Path(folder))) as server:
        model = ChatModel("tiny", base_url=server.url, max_tokens=16)
        stable = rounds(model, asked, lambda passages: passages, cache_prompt=True)
        without = rounds(model, asked, lambda passages: passages, cache_prompt=False)
        newest_first = rounds(model, asked, lambda passages: passages[::-1], cache_prompt=True)
        model.close()
    assert_same(model, stable, without)
    tokens = {"stable": evaluated(stable), "no reuse": evaluated(without), "newest first": evaluated(newest_first)}
    assert 2 * tokens["stable"] <= min(tokens["no reuse"], tokens["newest first"]), tokens
    print(f"{'prompts':<14}{'tokens evaluated':>18}{'of no reuse':>14}")
    for name, count in tokens.items():
        print(f"{name:<14}{count:>18}{count / tokens['no reuse']:>14.3f}")
    return {
        "name": "prefix_reuse",
        "ours": tokens["stable"],
        "peer": tokens["no reuse"],
        "ratio": tokens["stable"] / tokens["no reuse"],
        "ratio_newest_first": tokens["stable"] / tokens["newest first"],
        "sizes": {"questions": len(asked), "rounds": ROUNDS, "words_per_passage": WORDS},
        "versions": {
            "python": platform.python_version(),
            "xllamacpp": importlib.metadata.version("xllamacpp"),
            "openai": importlib.metadata.version("openai"),
        },
    }


if __name__ == "__main__":
    print(json.dumps(run()))
