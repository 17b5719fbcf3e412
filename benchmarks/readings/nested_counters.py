"""Logs whose nested rounds are numbered under any name, whose scores are in lists, and whose loops are ended by an event of their own."""

from __future__ import annotations

from typing import Any

from benchmarks.readings.cases import Asked, Draw, Log, shape
from benchmarks.readings.plain import loops


def _hops(questions: list[Asked], number: str) -> list[dict[str, Any]]:
    """Return a record for each question, with hops from 0, of which only the first has no passages."""
    return [
        {
            "id": f"vet-{a.number}",
            "question": a.question,
            "gold": a.gold,
            "hops": [
                {number: r, "retrieved": [f"doc_{a.number}_{i}" for i in range(2 * r)], "answer": text}
                for r, text in enumerate(a.answers)
            ],
        }
        for a in questions
    ]


@shape("hops.json")
def hops_numbered_n(draw: Draw) -> Log:
    """`n` may be a setting, or the number of the hop, of which the first is without passages."""
    questions = draw.asked(60, 3)
    return Log(_hops(questions, "n"), loops(questions))


@shape("hops.json")
def hops_numbered_idx(draw: Draw) -> Log:
    """`idx` numbers the hops from 0, of which the first is without passages."""
    questions = draw.asked(60, 4)
    return Log(_hops(questions, "idx"), loops(questions))


@shape(
    "captions.jsonl",
    options=("--column", "rounds=captions", "--metric-column", "judge_score=judge_score:0..100"),
    metric="judge_score",
)
def captions_with_a_list_of_scores(draw: Draw) -> Log:
    """A list of captions, and one of scores from 0 to 100 that is as long."""
    questions = draw.asked(60, 3)
    made, read = [], []
    for a in questions:
        texts = tuple(f"Caption {r} of piece {a.number} shows {text}." for r, text in enumerate(a.answers))
        scores = tuple(draw.random.randint(60, 99) if right else draw.random.randint(3, 55) for right in a.right)
        made.append({"object_id": f"M{a.number:03}", "captions": list(texts), "judge_score": list(scores)})
        read.append(a.loop(answers=texts, golds=(), scores=tuple(score / 100 for score in scores)))
    return Log(made, read)
