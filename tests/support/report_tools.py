"""Recordings for the tests of reports, and a reader of the data inside a page."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from suffice.policy.metrics import exact_match, f1
from suffice.recordings import write_recording

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<!-- <script>",
    '"><img src=x onerror=alert(3)>',
    "' onmouseover='alert(4)",
    "\u2028alert(5)\u2029",
    "{{ 7 * 7 }} {% raw %}",
    "</style></title></textarea>&amp;&lt;",
]
CITIES = ("Oslo", "Lima", "Rome", "Cairo", "Paris")


def rows(n: int, *, rounds: int = 5, seed: int = 0, judged: bool = False, text: str = "") -> list[dict[str, Any]]:
    """Return rounds of `n` questions whose answers settle and become surer with evidence."""
    rng = np.random.default_rng(seed)
    found = []
    for q in range(n):
        gold, hard, answer = CITIES[q % 5], rng.random(), None
        last = rounds if rng.random() < 0.9 else int(rng.integers(1, rounds + 1))
        for r in range(1, last + 1):
            right = rng.random() < 0.25 + 0.12 * r - 0.3 * hard
            before, answer = (
                answer,
                gold if right else CITIES[int(rng.integers(0, 5))] + (" town" if hard > 0.6 else ""),
            )
            found.append(
                {
                    "question_id": f"q{q}",
                    "round": r,
                    "end": "max_rounds" if last == rounds else "exhausted",
                    "question": f"Where is tower {q}?",
                    "golds": [gold],
                    "answer": answer,
                    "text": text or f"Answer: {answer}",
                    "passage_ids": [f"q{q}#{i}" for i in range(r)],
                    "answer_stable": None if before is None else float(before == answer),
                    "abstained": 0.0,
                    "p_correct": round(float(np.clip(rng.normal(0.3 + 0.3 * right, 0.2), 0, 1)), 3),
                    "overlap": float(rng.random()),
                    **({"judge_entailment": float(rng.integers(1, 6))} if judged else {}),
                    "cost.generator.calls": 1.0,
                    "cost.generator.uncached_tokens": float(rng.integers(50, 400)),
                    "cost.generator.cached_tokens": float(rng.integers(0, 400)),
                    "cost.generator.output_tokens": float(rng.integers(1, 30)),
                    "cost.generator.seconds": float(rng.random()),
                    **(
                        {
                            "cost.judge:entailment.calls": 1.0,
                            "cost.judge:entailment.uncached_tokens": float(rng.integers(50, 90)),
                            "cost.judge:entailment.cached_tokens": 0.0,
                            "cost.judge:entailment.output_tokens": 1.0,
                            "cost.judge:entailment.seconds": float(rng.random()),
                        }
                        if judged
                        else {}
                    ),
                    "em": exact_match(answer, [gold]),
                    "f1": f1(answer, [gold]),
                }
            )
    return found


def recording(path: Path, n: int = 60, **options: Any) -> Path:
    """Write a recording of `rows`."""
    write_recording(path, rows(n, **options), {"config": {"model": {"model": "m"}}})
    return path


def questions(path: Path, n: int = 60, passages: int = 8) -> Path:
    """Write the questions of `rows` with their passages, whose titles and texts try to leave their place."""
    lines = [
        {
            "id": f"q{q}",
            "question": f"Where is tower {q}?",
            "answers": [CITIES[q % 5]],
            "paragraphs": [
                {
                    "title": f"{HOSTILE[i % len(HOSTILE)]} {q}.{i}",
                    "text": f"Text {i}. {HOSTILE[(i + 1) % len(HOSTILE)]}",
                }
                for i in range(passages)
            ],
        }
        for q in range(n)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def hostile(path: Path) -> Path:
    """Write a recording in which every text tries to leave its place."""
    listed = rows(24)
    for row in listed:
        bad = HOSTILE[int(row["question_id"][1:]) % len(HOSTILE)]
        row["question_id"] += bad
        row["cluster"] = row["question_id"]
        row["question"] = bad
        row["golds"] = [bad]
        row["text"] = bad
        row["kind_of_question"] = bad
        row["passage_ids"] = [f"{bad} {i}" for i in range(row["round"])]
        row["answer"] = f"{bad} {row['answer']}"
    write_recording(path, listed, {"config": {"model": {"model": HOSTILE[0]}}})
    return path


def page_data(page: str) -> dict[str, Any]:
    """Return the JSON inside a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def unpack(text: str) -> bytes:
    """Return packed bytes."""
    return gzip.decompress(base64.b64decode(text))


def array(packed: dict[str, Any]) -> Any:
    """Return an array as the page reads it."""
    planes = np.frombuffer(unpack(packed["data"]), dtype=np.uint8).reshape(packed["bytes"], -1)
    flat = np.ascontiguousarray(planes.T).view("<f8" if packed["bytes"] == 8 else np.int8)
    return flat.reshape(packed["shape"])


def trajectories(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the questions that a page holds."""
    found: list[dict[str, Any]] = json.loads(unpack(cell["browser"]["packed"]))
    return found
